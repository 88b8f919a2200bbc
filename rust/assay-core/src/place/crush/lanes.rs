//! Many inputs at once through the common kind of rule: take, one choose or chooseleaf, emit, over straw2 buckets without
//! local retries (every map since 2013). Each input is a small state machine that asks for one choice at a time; choices
//! of 32 inputs are made side by side by [`straw2::choose`]. The results equal those of [`Mapper::map_one`].

use super::flat::Node;
use super::map::{Alg, Rule, Step, NONE};
use super::mapper::{Mapper, Settings};
use super::straw2::{self, Choices, LANES, LARGE};

const UNDEF: i32 = 0x7fff_fffe;

/// A rule that this engine can carry out.
#[derive(Clone, Copy)]
pub struct Plan {
    root: Node,
    firstn: bool,
    leaf: bool,
    reps: u32,
    type_id: i32,
    settings: Settings,
    leaf_tries: u32,
    /// All buckets have equal weights.
    equal: bool,
    /// Some bucket is large.
    large: bool,
}

/// The plan for a rule, or `None` if it needs the plain mapper.
pub fn plan(mapper: &Mapper<'_>, rule: &Rule, size: usize) -> Option<Plan> {
    let mut settings = Settings::new(mapper.map);
    let (mut taken, mut chosen, mut emitted) = (None, None, false);
    for &step in &rule.steps {
        match step {
            _ if emitted => return None,
            Step::Take(item) => taken = Some(mapper.flat.node(item)?),
            Step::Choose { .. } if taken.is_none() || chosen.is_some() => return None,
            Step::Choose {
                firstn,
                leaf,
                count,
                type_id,
            } => chosen = Some((firstn, leaf, count, type_id)),
            Step::Emit => emitted = chosen.is_some(),
            other => settings.set(other),
        }
    }
    let (root, (firstn, leaf, count, type_id)) = (taken?, chosen?);
    let straw2 = mapper.flat.nodes.iter().all(|n| n.alg == Alg::Straw2);
    let wanted = if count <= 0 {
        i64::from(count) + size as i64
    } else {
        i64::from(count)
    };
    if !emitted || !straw2 || settings.local_tries > 0 || settings.fallback_tries > 0 || wanted < 1
    {
        return None;
    }
    let nodes = || mapper.flat.nodes.iter().filter(|n| n.size > 0);
    let (equal, large) = (nodes().all(|n| n.equal), nodes().any(|n| n.size >= LARGE));
    let leaf_tries = if firstn {
        settings.firstn_leaf_tries()
    } else {
        settings.leaf_tries.max(1)
    };
    Some(Plan {
        root,
        firstn,
        leaf,
        reps: u32::try_from(wanted).ok()?,
        type_id,
        settings,
        leaf_tries,
        equal,
        large,
    })
}

/// One input on its way.
#[derive(Clone, Copy)]
struct Lane {
    x: u32,
    /// Where its results go.
    row: usize,
    node: Node,
    r: u32,
    rep: u32,
    failures: u32,
    /// Results so far (`firstn`) or positions still to fill (`indep`).
    count: u32,
    /// The item whose leaf is being looked for.
    outer: Option<i32>,
    outer_r: u32,
    leaf_failures: u32,
}

/// Results of a run: `size` slots per input and how many of them hold.
pub struct Rows<'o> {
    pub items: &'o mut [i32],
    pub lengths: &'o mut [u8],
    pub size: usize,
}

enum Next {
    Choose,
    Done,
}

struct Run<'m, 'a, 'o> {
    mapper: &'m Mapper<'a>,
    plan: Plan,
    rows: Rows<'o>,
    /// Items of the chosen type while `rows` holds the leaves below them.
    outer: Vec<i32>,
    slots: usize,
}

/// Maps `xs` (as many as `rows` has lengths) by `plan`.
pub fn run(mapper: &Mapper<'_>, plan: Plan, xs: &mut dyn Iterator<Item = u32>, rows: Rows<'_>) {
    let slots = if plan.firstn {
        rows.size
    } else {
        rows.size.min(plan.reps as usize)
    };
    let outer = if plan.leaf {
        vec![UNDEF; rows.items.len()]
    } else {
        Vec::new()
    };
    let mut run = Run {
        mapper,
        plan,
        rows,
        outer,
        slots,
    };
    let mut xs = xs.enumerate();
    let mut choices = Choices::new();
    let mut lanes: [Option<Lane>; LANES] = [None; LANES];
    let mut chosen = [0; LANES];
    loop {
        let mut busy = false;
        for (l, slot) in lanes.iter_mut().enumerate() {
            // A lane that is done takes the next input; some inputs are done without any choice.
            while slot.is_none() {
                let Some((row, x)) = xs.next() else { break };
                *slot = run.begin(x, row);
            }
            if let Some(lane) = slot {
                busy = true;
                choices.x[l] = lane.x;
                choices.r[l] = lane.r;
                choices.start[l] = lane.node.start;
                choices.weight_start[l] =
                    mapper.flat.weight_start(lane.node, run.position(lane)) as u32;
                choices.size[l] = lane.node.size;
            }
        }
        if !busy {
            return;
        }
        run.choose(&choices, &lanes, &mut chosen);
        for (slot, index) in lanes.iter_mut().zip(chosen) {
            if let Some(lane) = slot {
                let item = mapper.flat.items[(lane.node.start + index) as usize];
                if let Next::Done = run.chosen(lane, item) {
                    *slot = None;
                }
            }
        }
    }
}

/// Whether a row holds an item. Rows are filled with what is no item, and are searched to their end: the length that
/// never changes is cheaper than the early exit that cannot be predicted.
#[inline(always)]
fn holds(row: &[i32], item: i32) -> bool {
    row.iter().fold(false, |found, &i| found | (i == item))
}

impl Run<'_, '_, '_> {
    /// A lane that waits for its first choice, or `None` if it needs none.
    fn begin(&mut self, x: u32, row: usize) -> Option<Lane> {
        let size = self.rows.size;
        self.rows.items[row * size..][..size].fill(UNDEF);
        let count = if self.plan.firstn {
            0
        } else {
            self.slots as u32
        };
        let mut lane = Lane {
            x,
            row,
            node: self.plan.root,
            r: 0,
            rep: 0,
            failures: 0,
            count,
            outer: None,
            outer_r: 0,
            leaf_failures: 0,
        };
        match self.settle(&mut lane) {
            Next::Choose => Some(lane),
            Next::Done => None,
        }
    }

    fn choose(&self, choices: &Choices, lanes: &[Option<Lane>; LANES], chosen: &mut [u32; LANES]) {
        let flat = &self.mapper.flat;
        if self.plan.large {
            for (lane, slot) in lanes.iter().zip(chosen) {
                if let Some(lane) = lane {
                    *slot = straw2::search(flat, lane.node, self.position(lane), lane.x, lane.r);
                }
            }
            return;
        }
        straw2::choose(flat, choices, self.plan.equal, chosen);
        for (l, slot) in chosen.iter_mut().enumerate() {
            if *slot == u32::MAX {
                *slot = lanes[l].map_or(0, |lane| {
                    straw2::exact(
                        flat,
                        lane.node,
                        choices.weight_start[l] as usize,
                        lane.x,
                        lane.r,
                    )
                });
            }
        }
    }

    /// The position whose weights hold: upstream passes on where the call began to write.
    fn position(&self, lane: &Lane) -> usize {
        if self.plan.firstn {
            lane.count as usize
        } else if lane.outer.is_some() {
            lane.rep as usize
        } else {
            0
        }
    }

    /// Skips what needs no choice: empty buckets and those with a single item.
    #[inline]
    fn settle(&mut self, lane: &mut Lane) -> Next {
        loop {
            let next = match lane.node.size {
                0 => self.failed(lane),
                1 => {
                    let item = self.mapper.flat.items[lane.node.start as usize];
                    self.step(lane, item)
                }
                _ => return Next::Choose,
            };
            if let Next::Done = next {
                return Next::Done;
            }
        }
    }

    #[inline]
    fn chosen(&mut self, lane: &mut Lane, item: i32) -> Next {
        match self.step(lane, item) {
            Next::Choose => self.settle(lane),
            Next::Done => Next::Done,
        }
    }

    /// What a choice leads to; `Next::Choose` with the lane's node and r set.
    #[inline]
    fn step(&mut self, lane: &mut Lane, item: i32) -> Next {
        let wanted = if lane.outer.is_some() {
            0
        } else {
            self.plan.type_id
        };
        if item >= 0 {
            if item >= self.mapper.map.max_devices || wanted != 0 {
                return self.hopeless(lane);
            }
        } else if let Some(node) = self.mapper.flat.node(item) {
            if node.type_id != wanted {
                lane.node = node;
                return Next::Choose;
            }
        } else {
            return self.hopeless(lane);
        }
        match lane.outer {
            None => self.found(lane, item),
            Some(outer) => {
                let collide = self.plan.firstn
                    && holds(
                        &self.rows.items[lane.row * self.rows.size..][..self.rows.size],
                        item,
                    );
                if collide || self.mapper.is_out(item, lane.x) {
                    return self.failed(lane);
                }
                self.accept(lane, outer, item)
            }
        }
    }

    /// An item of the wanted type.
    #[inline]
    fn found(&mut self, lane: &mut Lane, item: i32) -> Next {
        let from = lane.row * self.rows.size;
        let taken = if self.plan.leaf {
            &self.outer[from..][..self.rows.size]
        } else {
            &self.rows.items[from..][..self.rows.size]
        };
        if holds(taken, item) {
            return self.failed(lane);
        }
        if !self.plan.leaf || item >= 0 {
            if self.plan.leaf && !self.plan.firstn {
                // Upstream notes the leaf before it asks whether the device is out, and a position that stays empty
                // keeps that note.
                self.rows.items[from + lane.rep as usize] = item;
            }
            if item >= 0 && self.mapper.is_out(item, lane.x) {
                return self.failed(lane);
            }
            return self.accept(lane, item, item);
        }
        lane.outer = Some(item);
        lane.outer_r = lane.r;
        lane.leaf_failures = 0;
        self.enter_leaf(lane, item)
    }

    /// Begins, or begins again, the search for a device below `outer`.
    #[inline]
    fn enter_leaf(&self, lane: &mut Lane, outer: i32) -> Next {
        if let Some(node) = self.mapper.flat.node(outer) {
            lane.node = node;
        }
        lane.r = if self.plan.firstn {
            let s = &self.plan.settings;
            let rep = if s.stable { 0 } else { lane.count };
            rep.wrapping_add(s.leaf_r(lane.outer_r))
                .wrapping_add(lane.leaf_failures)
        } else {
            lane.rep
                .wrapping_add(lane.outer_r)
                .wrapping_add(self.plan.reps.wrapping_mul(lane.leaf_failures))
        };
        Next::Choose
    }

    /// A collision, a device that is out, an empty bucket: try again, one level after the other.
    #[inline]
    fn failed(&mut self, lane: &mut Lane) -> Next {
        if let Some(outer) = lane.outer {
            lane.leaf_failures += 1;
            if lane.leaf_failures < self.plan.leaf_tries {
                return self.enter_leaf(lane, outer);
            }
            lane.outer = None;
        }
        if !self.plan.firstn {
            lane.rep += 1;
            return self.next_position(lane);
        }
        lane.failures += 1;
        if lane.failures < self.plan.settings.tries {
            return self.descend_again(lane);
        }
        self.next_replica(lane)
    }

    /// What cannot be retried: the replica is given up, or (below a chosen item) that item.
    fn hopeless(&mut self, lane: &mut Lane) -> Next {
        if lane.outer.is_some() {
            lane.leaf_failures = self.plan.leaf_tries;
            return self.failed(lane);
        }
        if self.plan.firstn {
            return self.next_replica(lane);
        }
        self.accept(lane, NONE, NONE)
    }

    #[inline]
    fn accept(&mut self, lane: &mut Lane, item: i32, leaf: i32) -> Next {
        let place = if self.plan.firstn {
            lane.count
        } else {
            lane.rep
        } as usize;
        let at = lane.row * self.rows.size + place;
        self.rows.items[at] = leaf;
        if self.plan.leaf {
            self.outer[at] = item;
        }
        lane.outer = None;
        if self.plan.firstn {
            lane.count += 1;
            return self.next_replica(lane);
        }
        lane.count -= 1;
        lane.rep += 1;
        self.next_position(lane)
    }

    #[inline]
    fn descend_again(&self, lane: &mut Lane) -> Next {
        lane.node = self.plan.root;
        lane.r = if self.plan.firstn {
            lane.rep.wrapping_add(lane.failures)
        } else {
            lane.rep
                .wrapping_add(self.plan.reps.wrapping_mul(lane.failures))
        };
        Next::Choose
    }

    #[inline]
    fn next_replica(&mut self, lane: &mut Lane) -> Next {
        lane.rep += 1;
        lane.failures = 0;
        if lane.rep >= self.plan.reps || lane.count as usize >= self.slots {
            self.rows.lengths[lane.row] = lane.count as u8;
            return Next::Done;
        }
        self.descend_again(lane)
    }

    /// The next position that is not filled, in the next round after the last.
    #[inline]
    fn next_position(&mut self, lane: &mut Lane) -> Next {
        let from = lane.row * self.rows.size;
        let held = if self.plan.leaf {
            &self.outer[from..][..self.slots]
        } else {
            &self.rows.items[from..][..self.slots]
        };
        while lane.count > 0 {
            while let Some(&item) = held.get(lane.rep as usize) {
                if item == UNDEF {
                    return self.descend_again(lane);
                }
                lane.rep += 1;
            }
            lane.rep = 0;
            lane.failures += 1;
            if lane.failures >= self.plan.settings.tries {
                break;
            }
        }
        for slot in &mut self.rows.items[from..from + self.slots] {
            if *slot == UNDEF {
                *slot = NONE;
            }
        }
        self.rows.lengths[lane.row] = self.slots as u8;
        Next::Done
    }
}
