//! The compiled form of a crush map, as `ceph osd getcrushmap` gives and monitors keep it (upstream `CrushWrapper::decode`).
//! Every error names the byte. Verified against maps compiled by crushtool 16.2.15.

use super::map::{bad, Alg, Bucket, ChooseArg, ChooseArgs, CrushMap, Error, Rule, Step};
use std::collections::BTreeMap;

const MAGIC: u32 = 0x0001_0000;

/// Whether bytes begin as a compiled map does.
pub fn is_binary(data: &[u8]) -> bool {
    data.starts_with(&MAGIC.to_le_bytes())
}

/// Decodes the compiled form.
pub fn parse(data: &[u8]) -> Result<CrushMap, Error> {
    let mut r = Reader { data, at: 0 };
    if r.u32()? != MAGIC {
        return bad!("byte 0: not a compiled crush map (wrong magic number)");
    }
    let mut map = CrushMap::empty();
    let max_buckets = r.count(4)?;
    let max_rules = r.count(4)?;
    map.max_devices = r.i32()?;
    for index in 0..max_buckets {
        if let Some(bucket) = bucket(&mut r, index)? {
            map.add_bucket(bucket)?;
        }
    }
    for id in 0..max_rules {
        if r.u32()? != 0 {
            map.add_rule(rule(&mut r, id as u32)?)?;
        }
    }
    map.types = strings(&mut r)?;
    map.names = strings(&mut r)?;
    for (id, name) in strings(&mut r)? {
        if let Some(Some(rule)) = usize::try_from(id).ok().and_then(|i| map.rules.get_mut(i)) {
            rule.name = name;
        }
    }
    tunables(&mut r, &mut map)?;
    if !r.end() {
        classes(&mut r, &mut map)?;
    }
    if !r.end() {
        choose_args(&mut r, &mut map)?;
    }
    map.check()?;
    Ok(map)
}

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let Some(part) = self
            .at
            .checked_add(n)
            .and_then(|end| self.data.get(self.at..end))
        else {
            return bad!(
                "byte {}: the map ends where {n} more bytes are expected",
                self.at
            );
        };
        self.at += n;
        Ok(part)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.fixed::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, Error> {
        self.fixed().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.fixed().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Result<i32, Error> {
        self.fixed().map(i32::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, Error> {
        self.fixed().map(i64::from_le_bytes)
    }

    /// A number of elements, each of which takes at least `width` bytes of what is left.
    fn count(&mut self, width: usize) -> Result<usize, Error> {
        let (at, n) = (self.at, self.u32()? as usize);
        // The header counts buckets and rules that follow much later; everything is still in the same file.
        if n.saturating_mul(width) > self.data.len() {
            return bad!("byte {at}: {n} elements do not fit into the file");
        }
        Ok(n)
    }

    fn u32s(&mut self, n: usize) -> Result<Vec<u32>, Error> {
        (0..n).map(|_| self.u32()).collect()
    }

    fn end(&self) -> bool {
        self.at >= self.data.len()
    }
}

fn bucket(r: &mut Reader<'_>, index: usize) -> Result<Option<Bucket>, Error> {
    if r.u32()? == 0 {
        return Ok(None);
    }
    let at = r.at;
    let id = r.i32()?;
    if i64::from(id) != -1 - index as i64 {
        return bad!(
            "byte {at}: bucket id {id} stands in the place of {}",
            -1 - index as i64
        );
    }
    let type_id = r.u16()?;
    let number = u32::from(r.u8()?);
    let Some(alg) = Alg::from_number(number) else {
        return bad!("byte {at}: bucket {id} has the unknown algorithm {number}");
    };
    let hash = r.u8()?;
    if hash != 0 {
        return bad!("byte {at}: bucket {id} has the unknown hash {hash}");
    }
    let weight = r.u32()?;
    let size = r.count(4)?;
    let items = (0..size).map(|_| r.i32()).collect::<Result<Vec<_>, _>>()?;
    let (item_weights, derived) = match alg {
        Alg::Uniform => (vec![r.u32()?; size], Vec::new()),
        Alg::Straw2 => (r.u32s(size)?, Vec::new()),
        Alg::List | Alg::Straw => {
            let pairs = (0..size)
                .map(|_| Ok((r.u32()?, r.u32()?)))
                .collect::<Result<Vec<_>, Error>>()?;
            pairs.into_iter().unzip()
        }
        Alg::Tree => {
            let nodes = usize::from(r.u8()?);
            let nodes = r.u32s(nodes)?;
            if size > 0 && nodes.len() != super::builder::tree_size(size) {
                return bad!(
                    "byte {at}: tree bucket {id} has {} nodes for {size} items",
                    nodes.len()
                );
            }
            ((0..size).map(|i| nodes[2 * i + 1]).collect(), nodes)
        }
    };
    Ok(Some(Bucket {
        id,
        type_id,
        alg,
        weight,
        items,
        item_weights,
        derived,
    }))
}

fn rule(r: &mut Reader<'_>, id: u32) -> Result<Rule, Error> {
    let steps = r.count(12)?;
    let _ruleset = r.u8()?;
    let (kind, min_size, max_size) = (r.u8()?, r.u8()?, r.u8()?);
    let mut rule = Rule {
        id,
        name: String::new(),
        kind,
        min_size,
        max_size,
        steps: Vec::new(),
    };
    for _ in 0..steps {
        let at = r.at;
        let (op, a, b) = (r.u32()?, r.i32()?, r.i32()?);
        if op == 0 {
            continue;
        }
        let Some(step) = Step::from_op(op, a, b) else {
            return bad!("byte {at}: rule {id} has step {op}, which is not supported (MSR rules came with Squid)");
        };
        rule.steps.push(step);
    }
    Ok(rule)
}

/// A map of strings by number. Old encoders wrote the numbers with 64 bits; strings are never empty.
fn strings(r: &mut Reader<'_>) -> Result<BTreeMap<i32, String>, Error> {
    let n = r.count(8)?;
    let mut out = BTreeMap::new();
    for _ in 0..n {
        let key = r.i32()?;
        let mut length = r.u32()? as usize;
        if length == 0 {
            length = r.u32()? as usize;
        }
        out.insert(key, String::from_utf8_lossy(r.take(length)?).into_owned());
    }
    Ok(out)
}

fn tunables(r: &mut Reader<'_>, map: &mut CrushMap) -> Result<(), Error> {
    let t = &mut map.tunables;
    if !r.end() {
        t.choose_local_tries = r.u32()?;
        t.choose_local_fallback_tries = r.u32()?;
        t.choose_total_tries = r.u32()?;
    }
    if !r.end() {
        t.chooseleaf_descend_once = r.u32()?;
    }
    if !r.end() {
        t.chooseleaf_vary_r = r.u8()?;
    }
    if !r.end() {
        t.straw_calc_version = r.u8()?;
    }
    if !r.end() {
        let _allowed_bucket_algs = r.u32()?;
    }
    if !r.end() {
        t.chooseleaf_stable = r.u8()?;
    }
    Ok(())
}

fn classes(r: &mut Reader<'_>, map: &mut CrushMap) -> Result<(), Error> {
    for _ in 0..r.count(8)? {
        map.item_classes.insert(r.i32()?, r.i32()?);
    }
    for _ in 0..r.count(8)? {
        let id = r.i32()?;
        let length = r.u32()? as usize;
        map.class_names
            .insert(id, String::from_utf8_lossy(r.take(length)?).into_owned());
    }
    for _ in 0..r.count(8)? {
        let original = r.i32()?;
        let shadows = map.class_buckets.entry(original).or_default();
        for _ in 0..r.count(8)? {
            shadows.insert(r.i32()?, r.i32()?);
        }
    }
    Ok(())
}

fn choose_args(r: &mut Reader<'_>, map: &mut CrushMap) -> Result<(), Error> {
    for _ in 0..r.count(12)? {
        let pool = r.i64()?;
        let mut args = ChooseArgs::new();
        for _ in 0..r.count(12)? {
            let (at, index) = (r.at, r.u32()?);
            let Ok(id) = i32::try_from(-1 - i64::from(index)) else {
                return bad!("byte {at}: bucket index {index} is too large");
            };
            let mut arg = ChooseArg::default();
            for _ in 0..r.count(4)? {
                let size = r.count(4)?;
                arg.weight_set.push(r.u32s(size)?);
            }
            let ids = r.count(4)?;
            arg.ids = (0..ids).map(|_| r.i32()).collect::<Result<_, _>>()?;
            args.insert(id, arg);
        }
        map.choose_args.insert(pool, args);
    }
    Ok(())
}
