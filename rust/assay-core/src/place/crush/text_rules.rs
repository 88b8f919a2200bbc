//! Rules and choose_args of the text form; see [`super::text`].

use super::map::{bad, error, ChooseArg, ChooseArgs, Error, Rule, Step};
use super::text::Parser;

impl Parser<'_> {
    pub(super) fn rule(&mut self, line: usize) -> Result<(), Error> {
        let name = if self.peek() == "{" {
            ""
        } else {
            self.next("a rule's name")?.text
        };
        self.expect("{")?;
        let (mut id, mut kind, mut min_size, mut max_size) = (None, 1, 1, 100);
        let mut steps = Vec::new();
        while !self.accept("}") {
            let word = self.next("a rule's content or \"}\"")?;
            match word.text {
                "id" | "ruleset" | "pool" => id = Some(self.number::<u32>("a rule id")?),
                "type" => {
                    let token = self.next("a rule type")?;
                    kind = match token.text {
                        "replicated" | "1" => 1,
                        "erasure" | "3" => 3,
                        other => return bad!("line {}: rule type {other:?} is not supported; known: replicated, erasure", token.line),
                    };
                }
                "min_size" => min_size = self.number("a size from 0 to 255")?,
                "max_size" => max_size = self.number("a size from 0 to 255")?,
                "step" => {
                    let step = self.step()?;
                    steps.push(step);
                }
                other => return bad!("line {}: {other:?} in rule {name:?}", word.line),
            }
        }
        let Some(id) = id else {
            return bad!("line {line}: rule {name:?} has no id");
        };
        let rule = Rule {
            id,
            name: name.to_owned(),
            kind,
            min_size,
            max_size,
            steps,
        };
        self.map
            .add_rule(rule)
            .map_err(|e| Error(format!("line {line}: {e}")))
    }

    fn step(&mut self) -> Result<Step, Error> {
        let word = self.next("a step")?;
        Ok(match word.text {
            "take" => self.take()?,
            "emit" => Step::Emit,
            "set_choose_tries" => Step::ChooseTries(self.number("a number of tries")?),
            "set_chooseleaf_tries" => Step::ChooseleafTries(self.number("a number of tries")?),
            "set_choose_local_tries" => Step::LocalTries(self.number("a number of tries")?),
            "set_choose_local_fallback_tries" => {
                Step::LocalFallbackTries(self.number("a number of tries")?)
            }
            "set_chooseleaf_vary_r" => Step::VaryR(self.number("a number")?),
            "set_chooseleaf_stable" => Step::Stable(self.number("0 or 1")?),
            "choose" | "chooseleaf" => {
                let mode = self.next("firstn or indep")?;
                if !matches!(mode.text, "firstn" | "indep") {
                    return bad!(
                        "line {}: {:?} where firstn or indep is expected",
                        mode.line,
                        mode.text
                    );
                }
                let count = self.number("a number of items")?;
                self.expect("type")?;
                let kind = self.next("a bucket type")?;
                let Some(&type_id) = self.type_ids.get(kind.text) else {
                    return bad!("line {}: type {:?} is not defined", kind.line, kind.text);
                };
                Step::Choose {
                    firstn: mode.text == "firstn",
                    leaf: word.text == "chooseleaf",
                    count,
                    type_id: i32::from(type_id),
                }
            }
            other => return bad!("line {}: unknown step {other:?}", word.line),
        })
    }

    fn take(&mut self) -> Result<Step, Error> {
        let name = self.next("an item's name")?;
        let Some(&id) = self.ids.get(name.text) else {
            return bad!("line {}: item {:?} is not defined", name.line, name.text);
        };
        if !self.accept("class") {
            return Ok(Step::Take(id));
        }
        let class = self.next("a device class")?;
        let number = self
            .map
            .class_names
            .iter()
            .find(|(_, n)| *n == class.text)
            .map(|(&id, _)| id);
        let shadow = number.and_then(|c| self.map.class_buckets.get(&id)?.get(&c));
        match shadow {
            Some(&shadow) => Ok(Step::Take(shadow)),
            None => bad!(
                "line {}: {:?} has no devices of class {:?} below it",
                class.line,
                name.text,
                class.text
            ),
        }
    }

    // --- choose_args ---

    pub(super) fn choose_args(&mut self, line: usize) -> Result<(), Error> {
        let pool = self.pool()?;
        self.expect("{")?;
        let mut args = ChooseArgs::new();
        while !self.accept("}") {
            self.expect("{")?;
            self.expect("bucket_id")?;
            let id: i32 = self.number("a bucket id")?;
            let mut arg = ChooseArg::default();
            while !self.accept("}") {
                let word = self.next("weight_set, ids or \"}\"")?;
                self.expect("[")?;
                match word.text {
                    "weight_set" => {
                        while !self.accept("]") {
                            let row = self.weight_row()?;
                            arg.weight_set.push(row);
                        }
                    }
                    "ids" => {
                        while !self.accept("]") {
                            arg.ids.push(self.number("an item id")?);
                        }
                    }
                    other => return bad!("line {}: {other:?} in choose_args", word.line),
                }
            }
            args.insert(id, arg);
        }
        if self.map.choose_args.insert(pool, args).is_some() {
            return bad!("line {line}: choose_args {pool} are given twice");
        }
        Ok(())
    }

    /// A pool's id; crushtool writes -1, the default, as an unsigned number.
    fn pool(&mut self) -> Result<i64, Error> {
        let token = self.next("a pool id or -1")?;
        let unsigned = || token.text.parse::<u64>().map(|n| n as i64);
        token
            .text
            .parse()
            .or_else(|_| unsigned())
            .map_err(|_| error!("line {}: {:?} is not a pool id", token.line, token.text))
    }

    fn weight_row(&mut self) -> Result<Vec<u32>, Error> {
        self.expect("[")?;
        let mut row = Vec::new();
        while !self.accept("]") {
            row.push(self.weight()?);
        }
        Ok(row)
    }
}
