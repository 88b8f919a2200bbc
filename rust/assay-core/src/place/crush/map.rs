//! The crush map as data, and what makes one valid.

use std::collections::BTreeMap;
use std::fmt;

/// Why a map cannot be used: where (a line of text, a byte, a bucket or rule) and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// An [`Error`] from a format string.
macro_rules! error {
    ($($arg:tt)*) => { crate::place::crush::map::Error(format!($($arg)*)) };
}
/// An `Err` from a format string.
macro_rules! bad {
    ($($arg:tt)*) => { Err(crate::place::crush::map::error!($($arg)*)) };
}
pub(crate) use {bad, error};

/// The item of an `indep` result that could not be placed.
pub const NONE: i32 = 0x7fff_ffff;
/// Weight 1.0.
pub const ONE: u32 = 0x1_0000;

/// How a bucket chooses among its items; the numbers are those of the encoded map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alg {
    Uniform = 1,
    List = 2,
    Tree = 3,
    Straw = 4,
    Straw2 = 5,
}

impl Alg {
    pub fn from_number(n: u32) -> Option<Self> {
        [
            Self::Uniform,
            Self::List,
            Self::Tree,
            Self::Straw,
            Self::Straw2,
        ]
        .into_iter()
        .find(|&a| a as u32 == n)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::Uniform,
            Self::List,
            Self::Tree,
            Self::Straw,
            Self::Straw2,
        ]
        .into_iter()
        .find(|a| a.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::List => "list",
            Self::Tree => "tree",
            Self::Straw => "straw",
            Self::Straw2 => "straw2",
        }
    }
}

/// An inner node. Weights are 16.16 fixed point. Items below zero are buckets, others are devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub id: i32,
    pub type_id: u16,
    pub alg: Alg,
    pub weight: u32,
    pub items: Vec<i32>,
    pub item_weights: Vec<u32>,
    /// What the algorithm needs besides: running sums (list), node weights (tree), straw lengths (straw).
    pub derived: Vec<u32>,
}

/// One instruction of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Take(i32),
    /// `count` items (0 or less: the result size plus it) of a type, each with a device below it if `leaf`.
    Choose {
        firstn: bool,
        leaf: bool,
        count: i32,
        type_id: i32,
    },
    Emit,
    ChooseTries(i32),
    ChooseleafTries(i32),
    LocalTries(i32),
    LocalFallbackTries(i32),
    VaryR(i32),
    Stable(i32),
}

impl Step {
    /// From the number and arguments of an encoded step; `None` for one that is not known (MSR rules came with Squid).
    pub fn from_op(op: u32, a: i32, b: i32) -> Option<Self> {
        let choose = |firstn, leaf| Self::Choose {
            firstn,
            leaf,
            count: a,
            type_id: b,
        };
        Some(match op {
            1 => Self::Take(a),
            2 => choose(true, false),
            3 => choose(false, false),
            4 => Self::Emit,
            6 => choose(true, true),
            7 => choose(false, true),
            8 => Self::ChooseTries(a),
            9 => Self::ChooseleafTries(a),
            10 => Self::LocalTries(a),
            11 => Self::LocalFallbackTries(a),
            12 => Self::VaryR(a),
            13 => Self::Stable(a),
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub id: u32,
    pub name: String,
    /// 1 replicated, 3 erasure.
    pub kind: u8,
    pub min_size: u8,
    pub max_size: u8,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    pub choose_local_tries: u32,
    pub choose_local_fallback_tries: u32,
    pub choose_total_tries: u32,
    pub chooseleaf_descend_once: u32,
    pub chooseleaf_vary_r: u8,
    pub chooseleaf_stable: u8,
    pub straw_calc_version: u8,
}

impl Tunables {
    /// What a map without tunables means ("argonaut").
    pub const LEGACY: Self = Self {
        choose_local_tries: 2,
        choose_local_fallback_tries: 5,
        choose_total_tries: 19,
        chooseleaf_descend_once: 0,
        chooseleaf_vary_r: 0,
        chooseleaf_stable: 0,
        straw_calc_version: 0,
    };
}

/// Other weights (one row per position of the result, the last for all further ones) and ids for one bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChooseArg {
    pub weight_set: Vec<Vec<u32>>,
    pub ids: Vec<i32>,
}

/// Bucket id -> arguments.
pub type ChooseArgs = BTreeMap<i32, ChooseArg>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrushMap {
    /// The bucket with id `-1 - i` stands at `i`.
    pub buckets: Vec<Option<Bucket>>,
    pub max_devices: i32,
    /// The rule with id `i` stands at `i`.
    pub rules: Vec<Option<Rule>>,
    pub tunables: Tunables,
    /// By pool; -1 holds for pools without an entry.
    pub choose_args: BTreeMap<i64, ChooseArgs>,
    pub names: BTreeMap<i32, String>,
    pub types: BTreeMap<i32, String>,
    /// Device (or shadow bucket) -> class id.
    pub item_classes: BTreeMap<i32, i32>,
    pub class_names: BTreeMap<i32, String>,
    /// Bucket -> class id -> shadow bucket that holds only devices of this class.
    pub class_buckets: BTreeMap<i32, BTreeMap<i32, i32>>,
}

/// More ids than this and a damaged file would make us allocate what the machine does not have.
pub const MOST_IDS: i32 = 1 << 24;
/// More tries than this and a damaged file would keep a processor busy for hours; real maps have at most hundreds.
pub const MOST_TRIES: u32 = 1000;

impl CrushMap {
    pub fn empty() -> Self {
        Self {
            buckets: Vec::new(),
            max_devices: 0,
            rules: Vec::new(),
            tunables: Tunables::LEGACY,
            choose_args: BTreeMap::new(),
            names: BTreeMap::new(),
            types: BTreeMap::new(),
            item_classes: BTreeMap::new(),
            class_names: BTreeMap::new(),
            class_buckets: BTreeMap::new(),
        }
    }

    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        let index = usize::try_from(-1 - i64::from(id)).ok()?;
        self.buckets.get(index)?.as_ref()
    }

    pub fn rule(&self, id: u32) -> Option<&Rule> {
        self.rules.get(id as usize)?.as_ref()
    }

    /// An item's name, or its id where the map gives none.
    pub fn name(&self, id: i32) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| {
            if id < 0 {
                format!("bucket {id}")
            } else {
                format!("osd.{id}")
            }
        })
    }

    /// Put a bucket (with `derived` filled in) where its id says.
    pub fn add_bucket(&mut self, bucket: Bucket) -> Result<(), Error> {
        let id = bucket.id;
        if id >= 0 || id <= -MOST_IDS {
            return bad!("bucket id {id} is not between -1 and {}", 1 - MOST_IDS);
        }
        let index = (-1 - id) as usize;
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, None);
        }
        if self.buckets[index].is_some() {
            return bad!("bucket id {id} is used twice");
        }
        self.buckets[index] = Some(bucket);
        Ok(())
    }

    pub fn add_rule(&mut self, rule: Rule) -> Result<(), Error> {
        let index = rule.id as usize;
        if index > 255 {
            return bad!("rule id {index} is above 255");
        }
        if self.rules.len() <= index {
            self.rules.resize(index + 1, None);
        }
        if self.rules[index].is_some() {
            return bad!("rule id {index} is used twice");
        }
        self.rules[index] = Some(rule);
        Ok(())
    }

    /// The number of devices that the buckets refer to, as `crush_finalize` counts it.
    pub fn count_devices(&self) -> i32 {
        let items = self.buckets.iter().flatten().flat_map(|b| b.items.iter());
        items
            .copied()
            .max()
            .map_or(0, |most| most.saturating_add(1))
            .max(0)
    }

    /// Whether each device is in some bucket.
    pub fn present(&self) -> Vec<bool> {
        let mut present = vec![false; self.max_devices as usize];
        for &item in self.buckets.iter().flatten().flat_map(|b| b.items.iter()) {
            if let Some(slot) = usize::try_from(item).ok().and_then(|i| present.get_mut(i)) {
                *slot = true;
            }
        }
        present
    }

    /// Choose arguments of a pool: its own, else the default ones.
    pub fn choose_args_for(&self, pool: i64) -> Option<&ChooseArgs> {
        self.choose_args
            .get(&pool)
            .or_else(|| self.choose_args.get(&-1))
    }

    /// Every reference leads somewhere, nothing contains itself, and sizes agree. Mapping relies on this.
    pub fn check(&self) -> Result<(), Error> {
        if !(0..MOST_IDS).contains(&self.max_devices) {
            return bad!("{} devices are more than a map may have", self.max_devices);
        }
        let t = &self.tunables;
        let most = t
            .choose_total_tries
            .max(t.choose_local_tries)
            .max(t.choose_local_fallback_tries);
        if most > MOST_TRIES {
            return bad!("a tunable allows {most} tries; at most {MOST_TRIES} are supported");
        }
        for bucket in self.buckets.iter().flatten() {
            self.check_bucket(bucket)?;
        }
        self.check_cycles()?;
        for rule in self.rules.iter().flatten() {
            self.check_rule(rule)?;
        }
        for (pool, args) in &self.choose_args {
            for (&id, arg) in args {
                self.check_choose_arg(*pool, id, arg)?;
            }
        }
        Ok(())
    }

    fn check_bucket(&self, bucket: &Bucket) -> Result<(), Error> {
        let name = self.name(bucket.id);
        let (size, id) = (bucket.items.len(), bucket.id);
        if bucket.type_id == 0 {
            return bad!("bucket {name} (id {id}) has type 0, which is that of devices");
        }
        if bucket.item_weights.len() != size {
            return bad!(
                "bucket {name} (id {id}) has {size} items but {} weights",
                bucket.item_weights.len()
            );
        }
        for &item in &bucket.items {
            if item < 0 && self.bucket(item).is_none() {
                return bad!(
                    "bucket {name} (id {id}) refers to bucket {item}, which is not in the map"
                );
            }
            if item >= MOST_IDS {
                return bad!(
                    "bucket {name} (id {id}) refers to device {item}: ids end at {}",
                    MOST_IDS - 1
                );
            }
        }
        Ok(())
    }

    /// Depth-first over all buckets without recursion: a map from a file may be as deep as it likes.
    fn check_cycles(&self) -> Result<(), Error> {
        const NEW: u8 = 0;
        const OPEN: u8 = 1;
        const DONE: u8 = 2;
        let mut state = vec![NEW; self.buckets.len()];
        for start in 0..self.buckets.len() {
            let mut stack = vec![(start, 0)];
            while let Some(&mut (index, ref mut next)) = stack.last_mut() {
                let Some(bucket) = &self.buckets[index] else {
                    stack.pop();
                    continue;
                };
                state[index] = if state[index] == DONE { DONE } else { OPEN };
                let child = bucket.items.iter().skip(*next).position(|&item| item < 0);
                let Some(skipped) = child.filter(|_| state[index] == OPEN) else {
                    state[index] = DONE;
                    stack.pop();
                    continue;
                };
                *next += skipped + 1;
                let inner = (-1 - bucket.items[*next - 1]) as usize;
                if state[inner] == OPEN {
                    let id = -1 - inner as i32;
                    return bad!("bucket {} (id {id}) contains itself", self.name(id));
                }
                if state[inner] == NEW {
                    stack.push((inner, 0));
                }
            }
        }
        Ok(())
    }

    fn check_rule(&self, rule: &Rule) -> Result<(), Error> {
        for step in &rule.steps {
            match *step {
                Step::Take(item) if item < 0 && self.bucket(item).is_none() => {
                    return bad!(
                        "rule {} ({}) takes bucket {item}, which is not in the map",
                        rule.id,
                        rule.name
                    );
                }
                Step::ChooseTries(n)
                | Step::ChooseleafTries(n)
                | Step::LocalTries(n)
                | Step::LocalFallbackTries(n)
                    if n > MOST_TRIES as i32 =>
                {
                    return bad!(
                        "rule {} ({}) tries {n} times; at most {MOST_TRIES} are supported",
                        rule.id,
                        rule.name
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_choose_arg(&self, pool: i64, id: i32, arg: &ChooseArg) -> Result<(), Error> {
        let Some(bucket) = self.bucket(id) else {
            return bad!("choose_args {pool} name bucket {id}, which is not in the map");
        };
        let size = bucket.items.len();
        let wrong = arg.weight_set.iter().map(Vec::len).find(|&n| n != size);
        if let Some(n) = wrong.or_else(|| Some(arg.ids.len()).filter(|&n| n != 0 && n != size)) {
            return bad!(
                "choose_args {pool}: bucket {} (id {id}) has {size} items but {n} weights or ids",
                self.name(id)
            );
        }
        Ok(())
    }
}
