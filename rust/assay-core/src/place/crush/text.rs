//! The text form of a crush map, as `crushtool -d` writes and `crushtool -c` reads it (upstream `CrushCompiler.cc`,
//! `grammar.h`). Every error names the line. Verified by diffing mappings of random maps against crushtool 16.2.15.

use super::builder::populate_classes;
use super::map::{bad, error, Alg, Bucket, CrushMap, Error};
use std::collections::{BTreeMap, BTreeSet};

/// Deeper than any real hierarchy, shallow enough to recurse over.
const DEEPEST: usize = 64;

/// Parses the text form.
pub fn parse(text: &str) -> Result<CrushMap, Error> {
    Parser::new(text).run()
}

#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    pub text: &'a str,
    pub line: usize,
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("");
        for word in line.split_ascii_whitespace() {
            let mut rest = word;
            while let Some(at) = rest.find(['{', '}', '[', ']']) {
                let pieces = [&rest[..at], &rest[at..=at]];
                out.extend(
                    pieces
                        .into_iter()
                        .filter(|p| !p.is_empty())
                        .map(|text| Token {
                            text,
                            line: index + 1,
                        }),
                );
                rest = &rest[at + 1..];
            }
            if !rest.is_empty() {
                out.push(Token {
                    text: rest,
                    line: index + 1,
                });
            }
        }
    }
    out
}

/// A bucket as written; its items may be defined further down.
struct Draft<'a> {
    type_id: u16,
    name: Token<'a>,
    id: Option<i32>,
    classes: BTreeMap<i32, i32>,
    alg: Option<Alg>,
    items: Vec<DraftItem<'a>>,
}

struct DraftItem<'a> {
    name: Token<'a>,
    weight: Option<u32>,
    pos: Option<usize>,
}

pub(super) struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    pub map: CrushMap,
    pub ids: BTreeMap<&'a str, i32>,
    pub type_ids: BTreeMap<&'a str, u16>,
    drafts: Vec<Draft<'a>>,
    shadow_ids: BTreeMap<i32, BTreeMap<i32, i32>>,
    depth: BTreeMap<i32, usize>,
    placed: bool,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            tokens: tokens(text),
            at: 0,
            map: CrushMap::empty(),
            ids: BTreeMap::new(),
            type_ids: BTreeMap::new(),
            drafts: Vec::new(),
            shadow_ids: BTreeMap::new(),
            depth: BTreeMap::new(),
            placed: false,
        }
    }

    fn run(mut self) -> Result<CrushMap, Error> {
        while let Some(token) = self.tokens.get(self.at).copied() {
            self.at += 1;
            match token.text {
                "tunable" => self.tunable()?,
                "device" => self.device()?,
                "type" => self.bucket_type()?,
                "rule" => {
                    if !self.placed {
                        self.place_buckets()?;
                        populate_classes(&mut self.map, &self.shadow_ids)?;
                    }
                    self.rule(token.line)?;
                }
                "choose_args" => {
                    if !self.placed {
                        self.place_buckets()?;
                    }
                    self.choose_args(token.line)?;
                }
                _ if self.placed => {
                    return bad!("line {}: {:?} where a rule or choose_args is expected (buckets come before rules)", token.line, token.text);
                }
                _ => self.bucket(token)?,
            }
        }
        if !self.placed {
            self.place_buckets()?;
        }
        self.map.max_devices = self.map.count_devices();
        self.map.check()?;
        Ok(self.map)
    }

    // --- tokens ---

    pub(super) fn next(&mut self, what: &str) -> Result<Token<'a>, Error> {
        let Some(&token) = self.tokens.get(self.at) else {
            let line = self.tokens.last().map_or(1, |t| t.line);
            return bad!("line {line}: the map ends where {what} is expected");
        };
        self.at += 1;
        Ok(token)
    }

    pub(super) fn peek(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |t| t.text)
    }

    pub(super) fn accept(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, word: &str) -> Result<(), Error> {
        let token = self.next(word)?;
        if token.text == word {
            return Ok(());
        }
        bad!(
            "line {}: {:?} where {word:?} is expected",
            token.line,
            token.text
        )
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, Error> {
        let token = self.next(what)?;
        token
            .text
            .parse()
            .map_err(|_| error!("line {}: {:?} is not {what}", token.line, token.text))
    }

    /// A weight as 16.16, through `float` as upstream.
    pub(super) fn weight(&mut self) -> Result<u32, Error> {
        let token = self.next("a weight")?;
        match token.text.parse::<f32>() {
            Ok(w) if (0.0..65_536.0).contains(&w) => Ok((w * 65_536.0) as u32),
            _ => bad!(
                "line {}: {:?} is not a weight from 0 to 65535",
                token.line,
                token.text
            ),
        }
    }

    // --- statements ---

    fn tunable(&mut self) -> Result<(), Error> {
        let name = self.next("a tunable")?;
        let value: u32 = self.number("a tunable's value")?;
        let small =
            u8::try_from(value).map_err(|_| error!("line {}: {value} is too large", name.line));
        let t = &mut self.map.tunables;
        match name.text {
            "choose_local_tries" => t.choose_local_tries = value,
            "choose_local_fallback_tries" => t.choose_local_fallback_tries = value,
            "choose_total_tries" => t.choose_total_tries = value,
            "chooseleaf_descend_once" => t.chooseleaf_descend_once = value,
            "chooseleaf_vary_r" => t.chooseleaf_vary_r = small?,
            "chooseleaf_stable" => t.chooseleaf_stable = small?,
            "straw_calc_version" => t.straw_calc_version = small?,
            "allowed_bucket_algs" => {}
            other => return bad!("line {}: unknown tunable {other:?}", name.line),
        }
        Ok(())
    }

    fn class_id(&mut self, name: &str) -> i32 {
        if let Some((&id, _)) = self.map.class_names.iter().find(|(_, n)| *n == name) {
            return id;
        }
        let id = self
            .map
            .class_names
            .last_key_value()
            .map_or(0, |(&last, _)| last + 1);
        self.map.class_names.insert(id, name.to_owned());
        id
    }

    fn device(&mut self) -> Result<(), Error> {
        let id: i32 = self.number("a device id")?;
        let name = self.next("a device's name")?;
        if id < 0 {
            return bad!("line {}: device id {id} is negative", name.line);
        }
        if self.ids.insert(name.text, id).is_some() {
            return bad!("line {}: {:?} is defined twice", name.line, name.text);
        }
        self.map.names.insert(id, name.text.to_owned());
        if self.accept("class") {
            let class = self.next("a device class")?;
            let class = self.class_id(class.text);
            self.map.item_classes.insert(id, class);
        }
        Ok(())
    }

    fn bucket_type(&mut self) -> Result<(), Error> {
        let id: u16 = self.number("a type id from 0 to 65535")?;
        let name = self.next("a type's name")?;
        self.type_ids.insert(name.text, id);
        self.map.types.insert(i32::from(id), name.text.to_owned());
        Ok(())
    }

    fn bucket(&mut self, kind: Token<'a>) -> Result<(), Error> {
        let Some(&type_id) = self.type_ids.get(kind.text) else {
            return bad!(
                "line {}: {:?} is neither a statement nor a bucket type",
                kind.line,
                kind.text
            );
        };
        let name = self.next("a bucket's name")?;
        let mut draft = Draft {
            type_id,
            name,
            id: None,
            classes: BTreeMap::new(),
            alg: None,
            items: Vec::new(),
        };
        self.expect("{")?;
        while !self.accept("}") {
            let word = self.next("a bucket's content or \"}\"")?;
            match word.text {
                "id" => self.bucket_id(&mut draft, word.line)?,
                "alg" => {
                    let alg = self.next("a bucket algorithm")?;
                    draft.alg = Alg::from_name(alg.text);
                    if draft.alg.is_none() {
                        return bad!("line {}: unknown bucket algorithm {:?}; known: uniform, list, tree, straw, straw2", alg.line, alg.text);
                    }
                }
                "hash" => {
                    let hash = self.next("a hash")?;
                    if !matches!(hash.text, "0" | "rjenkins1") {
                        return bad!(
                            "line {}: unknown hash {:?}; only 0 (rjenkins1) exists",
                            hash.line,
                            hash.text
                        );
                    }
                }
                "item" => {
                    let item = self.item()?;
                    draft.items.push(item);
                }
                other => return bad!("line {}: {other:?} in bucket {:?}", word.line, name.text),
            }
        }
        self.drafts.push(draft);
        Ok(())
    }

    fn bucket_id(&mut self, draft: &mut Draft<'a>, line: usize) -> Result<(), Error> {
        let id: i32 = self.number("a bucket id")?;
        if id >= 0 {
            return bad!("line {line}: bucket id {id} is not negative");
        }
        if self.accept("class") {
            let class = self.next("a device class")?;
            let class_id = self.class_id(class.text);
            if draft.classes.insert(class_id, id).is_some() {
                return bad!(
                    "line {line}: class {:?} twice in bucket {:?}",
                    class.text,
                    draft.name.text
                );
            }
        } else {
            draft.id = Some(id);
        }
        Ok(())
    }

    fn item(&mut self) -> Result<DraftItem<'a>, Error> {
        let name = self.next("an item's name")?;
        let mut item = DraftItem {
            name,
            weight: None,
            pos: None,
        };
        loop {
            if self.accept("weight") {
                item.weight = Some(self.weight()?);
            } else if self.accept("pos") {
                item.pos = Some(self.number("a position")?);
            } else {
                return Ok(item);
            }
        }
    }

    // --- buckets, once all are read ---

    /// Adds the buckets in the order of the file, but after those they contain.
    fn place_buckets(&mut self) -> Result<(), Error> {
        self.placed = true;
        let mut taken: BTreeSet<i32> = self.drafts.iter().filter_map(|d| d.id).collect();
        let mut waiting = std::mem::take(&mut self.drafts);
        for draft in &waiting {
            let twice = waiting
                .iter()
                .filter(|d| d.name.text == draft.name.text)
                .count()
                > 1;
            if twice || self.ids.contains_key(draft.name.text) {
                return bad!(
                    "line {}: {:?} is defined twice",
                    draft.name.line,
                    draft.name.text
                );
            }
        }
        while !waiting.is_empty() {
            let known = |d: &Draft<'a>, ids: &BTreeMap<&str, i32>| {
                d.items.iter().all(|i| ids.contains_key(i.name.text))
            };
            let Some(ready) = waiting.iter().position(|d| known(d, &self.ids)) else {
                return Err(self.unresolved(&waiting));
            };
            let draft = waiting.remove(ready);
            self.place_bucket(&draft, &mut taken)?;
        }
        Ok(())
    }

    fn unresolved(&self, waiting: &[Draft<'a>]) -> Error {
        for draft in waiting {
            for item in &draft.items {
                let defined = self.ids.contains_key(item.name.text)
                    || waiting.iter().any(|d| d.name.text == item.name.text);
                if !defined {
                    return Error(format!(
                        "line {}: item {:?} of bucket {:?} is not defined",
                        item.name.line, item.name.text, draft.name.text
                    ));
                }
            }
        }
        let first = &waiting[0];
        Error(format!(
            "line {}: bucket {:?} is in a cycle of buckets that contain each other",
            first.name.line, first.name.text
        ))
    }

    fn place_bucket(&mut self, draft: &Draft<'a>, taken: &mut BTreeSet<i32>) -> Result<(), Error> {
        let (name, line) = (draft.name.text, draft.name.line);
        let Some(alg) = draft.alg else {
            return bad!("line {line}: bucket {name:?} has no alg");
        };
        let id = match draft.id {
            Some(id) => id,
            None => (1..)
                .map(|n| -n)
                .find(|id| !taken.contains(id))
                .unwrap_or(i32::MIN),
        };
        taken.insert(id);
        let (items, weights) = self.ordered_items(draft, alg)?;
        let below = items
            .iter()
            .filter_map(|i| self.depth.get(i))
            .max()
            .copied()
            .unwrap_or(0);
        if below >= DEEPEST {
            return bad!("line {line}: bucket {name:?} is nested more than {DEEPEST} deep");
        }
        let version = self.map.tunables.straw_calc_version;
        let at_line = |e: Error| Error(format!("line {line}: {e}"));
        let bucket =
            Bucket::new(id, draft.type_id, alg, items, weights, version).map_err(at_line)?;
        self.map.add_bucket(bucket).map_err(at_line)?;
        self.map.names.insert(id, name.to_owned());
        self.ids.insert(name, id);
        self.depth.insert(id, below + 1);
        if !draft.classes.is_empty() {
            self.shadow_ids.insert(id, draft.classes.clone());
        }
        Ok(())
    }

    /// Items and weights by position: explicit ones first, the others into the gaps.
    fn ordered_items(&self, draft: &Draft<'a>, alg: Alg) -> Result<(Vec<i32>, Vec<u32>), Error> {
        let size = draft.items.len();
        let mut slots: Vec<Option<(i32, u32)>> = vec![None; size];
        let explicit: BTreeSet<usize> = draft.items.iter().filter_map(|i| i.pos).collect();
        let mut free = (0..size).filter(|p| !explicit.contains(p));
        let mut uniform = None;
        for item in &draft.items {
            let (name, line) = (item.name.text, item.name.line);
            let id = self.ids.get(name).copied().unwrap_or(0);
            let own = || self.map.bucket(id).map_or(super::map::ONE, |b| b.weight);
            let weight = item.weight.unwrap_or_else(own);
            if alg == Alg::Uniform && *uniform.get_or_insert(weight) != weight {
                return bad!("line {line}: item {name:?} of the uniform bucket {:?} differs in weight from those before", draft.name.text);
            }
            let pos = item.pos.or_else(|| free.next()).unwrap_or(size);
            match slots.get_mut(pos) {
                Some(slot @ None) => *slot = Some((id, weight)),
                Some(_) => {
                    return bad!(
                        "line {line}: position {pos} of bucket {:?} is taken",
                        draft.name.text
                    )
                }
                None => {
                    return bad!(
                        "line {line}: position {pos} is beyond the {size} items of {:?}",
                        draft.name.text
                    )
                }
            }
        }
        Ok(slots.into_iter().flatten().unzip())
    }
}
