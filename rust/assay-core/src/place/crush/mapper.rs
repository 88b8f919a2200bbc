//! Rules carried out (upstream `src/crush/mapper.c`): `firstn` and `indep` with every tunable and bucket algorithm.
//!
//! This is the plain form, one input after the other. [`super::lanes`] does the common kind of rule many inputs at once;
//! tests hold the two against each other and both against crushtool 16.2.15.

use super::flat::{Flat, Node};
use super::hash::hash2;
use super::map::{bad, Alg, CrushMap, Error, Rule, Step, NONE, ONE};

/// An `indep` position that is still to be filled.
const UNDEF: i32 = 0x7fff_fffe;

/// A map prepared for one pool's choose arguments and one vector of reweights.
pub struct Mapper<'a> {
    pub(super) map: &'a CrushMap,
    pub(super) flat: Flat,
    /// Per device: 16.16; below 1.0 a device takes only this share of what falls on it, at 0 it is out.
    pub(super) reweights: &'a [u32],
}

/// Settings that a rule's steps may change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub tries: u32,
    pub leaf_tries: u32,
    pub local_tries: u32,
    pub fallback_tries: u32,
    pub vary_r: u32,
    pub stable: bool,
    pub descend_once: bool,
}

impl Settings {
    pub fn new(map: &CrushMap) -> Self {
        let t = &map.tunables;
        Self {
            tries: t.choose_total_tries + 1, // upstream counts retries there
            leaf_tries: 0,
            local_tries: t.choose_local_tries,
            fallback_tries: t.choose_local_fallback_tries,
            vary_r: u32::from(t.chooseleaf_vary_r),
            stable: t.chooseleaf_stable != 0,
            descend_once: t.chooseleaf_descend_once != 0,
        }
    }

    /// Applies a step that sets something.
    pub fn set(&mut self, step: Step) {
        let positive = |n: i32, old: u32| if n > 0 { n as u32 } else { old };
        let natural = |n: i32, old: u32| if n >= 0 { n as u32 } else { old };
        match step {
            Step::ChooseTries(n) => self.tries = positive(n, self.tries),
            Step::ChooseleafTries(n) => self.leaf_tries = positive(n, self.leaf_tries),
            Step::LocalTries(n) => self.local_tries = natural(n, self.local_tries),
            Step::LocalFallbackTries(n) => self.fallback_tries = natural(n, self.fallback_tries),
            Step::VaryR(n) => self.vary_r = natural(n, self.vary_r),
            Step::Stable(n) => self.stable = natural(n, u32::from(self.stable)) != 0,
            _ => {}
        }
    }

    pub fn firstn_leaf_tries(&self) -> u32 {
        match self.leaf_tries {
            0 if self.descend_once => 1,
            0 => self.tries,
            n => n,
        }
    }

    /// The replica number of the choice of a leaf below a choice made with `r`.
    pub fn leaf_r(&self, r: u32) -> u32 {
        match self.vary_r {
            0 => 0,
            n => r.checked_shr(n - 1).unwrap_or(0),
        }
    }
}

/// What stays the same during one `firstn` call.
#[derive(Clone, Copy)]
struct Firstn {
    x: u32,
    reps: u32,
    type_id: i32,
    tries: u32,
    leaf: bool,
    parent_r: u32,
    settings: Settings,
}

/// Where a descent ended.
enum Descent {
    Found(i32),
    /// An empty bucket: try again.
    Empty,
    /// Something that cannot be right: give this replica up.
    Bad,
}

impl<'a> Mapper<'a> {
    pub fn new(map: &'a CrushMap, pool: i64, reweights: &'a [u32]) -> Self {
        Self {
            map,
            flat: Flat::new(map, map.choose_args_for(pool)),
            reweights,
        }
    }

    /// The rule, or which there are.
    pub fn rule(&self, id: u32) -> Result<&'a Rule, Error> {
        self.map.rule(id).map_or_else(
            || {
                let known: Vec<String> = self
                    .map
                    .rules
                    .iter()
                    .flatten()
                    .map(|r| r.id.to_string())
                    .collect();
                bad!("the map has no rule {id}; it has {}", known.join(", "))
            },
            Ok,
        )
    }

    /// The items that `rule` gives `x`, at most `size`, appended to `out`.
    pub fn map_one(&self, rule: &Rule, x: u32, size: usize, out: &mut Vec<i32>) {
        let begin = out.len();
        let mut settings = Settings::new(self.map);
        let mut working: Vec<i32> = Vec::new();
        for &step in &rule.steps {
            match step {
                Step::Take(item) => {
                    let known = if item >= 0 {
                        item < self.map.max_devices
                    } else {
                        self.flat.node(item).is_some()
                    };
                    if known {
                        working = vec![item];
                    }
                }
                Step::Choose {
                    firstn,
                    leaf,
                    count,
                    type_id,
                } => {
                    if !working.is_empty() {
                        working = self.choose(
                            &working,
                            x,
                            size,
                            (firstn, leaf, count, type_id),
                            settings,
                        );
                    }
                }
                Step::Emit => {
                    let room = size - (out.len() - begin);
                    out.extend(working.drain(..).take(room));
                }
                other => settings.set(other),
            }
        }
    }

    fn choose(
        &self,
        from: &[i32],
        x: u32,
        size: usize,
        step: (bool, bool, i32, i32),
        settings: Settings,
    ) -> Vec<i32> {
        let (firstn, leaf, count, type_id) = step;
        let (mut chosen, mut leaves): (Vec<i32>, Vec<i32>) = (Vec::new(), Vec::new());
        for &item in from {
            let wanted = if count <= 0 {
                i64::from(count) + size as i64
            } else {
                i64::from(count)
            };
            let Some(node) = self.flat.node(item).filter(|_| wanted > 0) else {
                continue;
            };
            let room = size - chosen.len();
            let (mut out, mut out2);
            if firstn {
                let call = Firstn {
                    x,
                    reps: wanted as u32,
                    type_id,
                    tries: settings.tries,
                    leaf,
                    parent_r: 0,
                    settings,
                };
                (out, out2) = (Vec::new(), Vec::new());
                self.firstn(call, node, &mut out, &mut out2, room);
            } else {
                let n = (wanted as usize).min(room);
                (out, out2) = (vec![UNDEF; n], vec![UNDEF; n]);
                self.indep(
                    x,
                    node,
                    wanted as u32,
                    type_id,
                    leaf,
                    &mut out,
                    &mut out2,
                    settings,
                );
            }
            chosen.append(&mut out);
            leaves.append(&mut out2);
        }
        if leaf {
            leaves
        } else {
            chosen
        }
    }

    fn type_of(&self, item: i32) -> i32 {
        if item >= 0 {
            0
        } else {
            self.flat.node(item).map_or(-1, |n| n.type_id)
        }
    }

    /// Whether a device does not take `x`: it is out, or reweighted and `x` is in the share it gave away.
    #[inline]
    pub(super) fn is_out(&self, device: i32, x: u32) -> bool {
        match self.reweights.get(device as usize) {
            Some(&w) if w >= ONE => false,
            Some(&w) => w == 0 || hash2(x, device as u32) & 0xffff >= w,
            None => true,
        }
    }

    // --- firstn ---

    fn firstn(
        &self,
        c: Firstn,
        root: Node,
        out: &mut Vec<i32>,
        leaves: &mut Vec<i32>,
        room: usize,
    ) {
        let mut left = room;
        for rep in 0..c.reps {
            if left == 0 {
                break;
            }
            if let Some((item, leaf)) = self.replica(c, root, rep, out, leaves) {
                out.push(item);
                if c.leaf {
                    leaves.push(leaf);
                }
                left -= 1;
            }
        }
    }

    /// One device below `root` for the item that becomes number `taken.len()`; `parent_r` from the choice above.
    fn leaf_below(&self, c: Firstn, root: Node, r: u32, taken: &[i32]) -> Option<i32> {
        let s = c.settings;
        let inner = Firstn {
            type_id: 0,
            tries: s.firstn_leaf_tries(),
            leaf: false,
            parent_r: s.leaf_r(r),
            ..c
        };
        let rep = if s.stable { 0 } else { taken.len() as u32 };
        self.replica(inner, root, rep, taken, &[])
            .map(|(item, _)| item)
    }

    /// One item that is neither in `taken` nor out, and the device below it; with retries.
    fn replica(
        &self,
        c: Firstn,
        root: Node,
        rep: u32,
        taken: &[i32],
        leaves: &[i32],
    ) -> Option<(i32, i32)> {
        let s = c.settings;
        let position = taken.len();
        let mut failures = 0;
        loop {
            let mut node = root;
            let mut local = 0;
            loop {
                let r = rep.wrapping_add(c.parent_r).wrapping_add(failures);
                let permute =
                    s.fallback_tries > 0 && local >= node.size >> 1 && local > s.fallback_tries;
                let (mut collide, mut item, mut leaf) = (false, 0, 0);
                let mut reject = node.size == 0;
                if !reject {
                    item = if permute {
                        self.permuted(node, c.x, r)
                    } else {
                        self.pick(node, c.x, r, position)
                    };
                    if item >= self.map.max_devices {
                        return None;
                    }
                    if self.type_of(item) != c.type_id {
                        node = self.flat.node(item)?;
                        continue;
                    }
                    collide = taken.contains(&item);
                    if !collide && c.leaf {
                        match self.flat.node(item) {
                            Some(below) => match self.leaf_below(c, below, r, leaves) {
                                Some(found) => leaf = found,
                                None => reject = true,
                            },
                            None => leaf = item,
                        }
                    }
                    if !reject && !collide && item >= 0 {
                        reject = self.is_out(item, c.x);
                    }
                }
                if !reject && !collide {
                    return Some((item, leaf));
                }
                failures += 1;
                local += 1;
                let again = (collide && local <= s.local_tries)
                    || (s.fallback_tries > 0
                        && local <= node.size.saturating_add(s.fallback_tries));
                if !again {
                    if failures < c.tries {
                        break;
                    }
                    return None;
                }
            }
        }
    }

    // --- indep ---

    #[allow(clippy::too_many_arguments)]
    fn indep(
        &self,
        x: u32,
        root: Node,
        reps: u32,
        type_id: i32,
        leaf: bool,
        out: &mut [i32],
        leaves: &mut [i32],
        s: Settings,
    ) {
        let mut left = out.len();
        for failures in 0..s.tries {
            if left == 0 {
                break;
            }
            for rep in 0..out.len() {
                if out[rep] != UNDEF {
                    continue;
                }
                let (end, r) = self.descend(root, x, type_id, (rep as u32, 0, reps, failures), 0);
                let item = match end {
                    Descent::Found(item) => item,
                    Descent::Empty => continue,
                    Descent::Bad => {
                        (out[rep], leaves[rep]) = (NONE, NONE);
                        left -= 1;
                        continue;
                    }
                };
                if out.contains(&item) {
                    continue;
                }
                if leaf {
                    leaves[rep] = match self.flat.node(item) {
                        Some(below) => self.indep_leaf(below, x, (rep as u32, r, reps), s),
                        None => item,
                    };
                    if leaves[rep] == NONE {
                        continue;
                    }
                }
                if item >= 0 && self.is_out(item, x) {
                    continue;
                }
                out[rep] = item;
                left -= 1;
            }
        }
        for slot in out.iter_mut().chain(leaves) {
            if *slot == UNDEF {
                *slot = NONE;
            }
        }
    }

    fn indep_leaf(
        &self,
        root: Node,
        x: u32,
        (rep, parent_r, reps): (u32, u32, u32),
        s: Settings,
    ) -> i32 {
        for failures in 0..s.leaf_tries.max(1) {
            match self
                .descend(root, x, 0, (rep, parent_r, reps, failures), rep as usize)
                .0
            {
                Descent::Found(item) if !self.is_out(item, x) => return item,
                Descent::Bad => return NONE,
                _ => {}
            }
        }
        NONE
    }

    /// From `root` down to an item of a type; also the replica number of the last choice.
    fn descend(
        &self,
        root: Node,
        x: u32,
        type_id: i32,
        (rep, parent_r, reps, failures): (u32, u32, u32, u32),
        position: usize,
    ) -> (Descent, u32) {
        let mut node = root;
        loop {
            // A uniform bucket whose size the replicas divide would give the same items again.
            let stride = reps + u32::from(node.alg == Alg::Uniform && node.size % reps == 0);
            let r = rep
                .wrapping_add(parent_r)
                .wrapping_add(stride.wrapping_mul(failures));
            if node.size == 0 {
                return (Descent::Empty, r);
            }
            let item = self.pick(node, x, r, position);
            if item >= self.map.max_devices {
                return (Descent::Bad, r);
            }
            if self.type_of(item) == type_id {
                return (Descent::Found(item), r);
            }
            match self.flat.node(item) {
                Some(inner) => node = inner,
                None => return (Descent::Bad, r),
            }
        }
    }
}
