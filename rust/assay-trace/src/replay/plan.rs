//! What each replay thread has to do, in which order, and what it has to wait for.
//!
//! Order is kept per thread. Across threads it is kept where the kernel would otherwise do something else than it did: an
//! open before the use of what it opened, changes of a name in their recorded order, a child after its parent's fork, a
//! parent's wait after its child's end. (After ARTC, Weiss et al., SOSP 2013.) Nothing else is synchronised, as in the paper.
use super::mapping::{skipped, Mapping};
use crate::model::{flag, Class, Event, Op, Trace};
use std::collections::HashMap;

/// "Wait until thread `lane` has done its operation number `index`."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub lane: u32,
    pub index: u32,
}

/// One operation of a lane. `event` is its number in the trace.
#[derive(Clone, Debug)]
pub struct Step {
    pub event: u32,
    pub start: u64,
    /// From the end of what came before in this lane (or of the fork) to this start, ns.
    pub gap: u64,
    pub op: Op,
    pub file: u32,
    pub file2: u32,
    pub path: u32,
    pub path2: u32,
    pub flags: u64,
    pub offset: i64,
    pub offset2: i64,
    pub count: u64,
    pub result: i64,
    /// The close after which nobody uses the open file any more; others close a duplicate.
    pub last_close: bool,
    pub dependencies: (u32, u32),
}

/// A replay thread: a recorded thread, or one of those that stand in for its asynchronous operations.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    pub task: u32,
    pub process: u32,
    pub birth: u64,
    pub steps: Vec<Step>,
    /// The parent's operation before the fork.
    pub after: Option<(u32, u32)>,
}

#[derive(Debug, Default)]
pub struct Plan {
    pub lanes: Vec<Lane>,
    pub dependencies: Vec<Dependency>,
    /// Lanes of each process.
    pub processes: Vec<Vec<u32>>,
    /// Open files whose descriptor more than one process uses.
    pub cross_process: bool,
    /// Files that must be open before the clock starts, and whether for writing.
    pub open_before: Vec<(u32, bool)>,
    /// Operations of the trace that are not replayed, by reason.
    pub skipped: HashMap<String, u64>,
    /// Calls of mmap: nothing to replay, their page-ins are.
    pub mapped: u64,
    pub largest: u64,
    pub span: u64,
}

#[derive(Default)]
struct Resource {
    changed: Option<(u32, u32)>,
    seen: HashMap<u32, u32>,
}

impl Resource {
    fn observe(&mut self, lane: u32, index: u32, needs: &mut Vec<(u32, u32)>) {
        needs.extend(self.changed);
        self.seen.insert(lane, index);
    }

    fn change(&mut self, lane: u32, index: u32, needs: &mut Vec<(u32, u32)>) {
        needs.extend(self.changed);
        needs.extend(self.seen.drain());
        self.changed = Some((lane, index));
    }
}

pub(super) fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

struct Builder<'a> {
    trace: &'a Trace,
    plan: Plan,
    lane_of_task: HashMap<u32, u32>,
    async_lanes: HashMap<u32, Vec<u32>>,
    lane_end: Vec<u64>,
    process_of: HashMap<(u32, u64), u32>,
    names: HashMap<String, Resource>,
    inside: HashMap<String, HashMap<u32, u32>>,
    files: HashMap<u32, Resource>,
    last_of_pid: HashMap<u32, HashMap<u32, u32>>,
    process_using: HashMap<u32, u32>,
    contents: HashMap<u32, Content>,
}

/// A file by its path: its size as far as followed, and who changed it last from which size on.
#[derive(Default)]
struct Content {
    size: u64,
    changed: Option<(u32, u32)>,
    from: u64,
}

impl<'a> Builder<'a> {
    fn new_lane(&mut self, task: u32) -> u32 {
        let t = &self.trace.tasks[task as usize];
        // a process id used again is another process: told apart by the birth of its first thread
        let first = self
            .trace
            .tasks
            .iter()
            .filter(|o| o.pid == t.pid && o.tid == t.pid && o.birth <= t.birth)
            .map(|o| o.birth)
            .max()
            .unwrap_or(0);
        let fresh = self.plan.processes.len() as u32;
        let process = *self.process_of.entry((t.pid, first)).or_insert(fresh);
        if process == fresh {
            self.plan.processes.push(Vec::new());
        }
        let n = self.plan.lanes.len() as u32;
        self.plan.processes[process as usize].push(n);
        let after = t.parent.checked_sub(1).and_then(|parent| {
            let lane = *self.lane_of_task.get(&parent)?;
            let steps = &self.plan.lanes[lane as usize].steps;
            let index = steps.iter().rposition(|s| s.start <= t.birth)?;
            Some((lane, index as u32))
        });
        self.plan.lanes.push(Lane {
            task,
            process,
            birth: t.birth,
            after,
            ..Lane::default()
        });
        self.lane_end.push(t.birth);
        n
    }

    fn lane(&mut self, e: &Event) -> u32 {
        if e.flags & flag::ASYNC == 0 {
            if let Some(&n) = self.lane_of_task.get(&e.task) {
                return n;
            }
            let n = self.new_lane(e.task);
            self.lane_of_task.insert(e.task, n);
            return n;
        }
        let lanes = self.async_lanes.entry(e.task).or_default().clone();
        for n in &lanes {
            if self.lane_end[*n as usize] <= e.start {
                return *n;
            }
        }
        let n = self.new_lane(e.task);
        self.async_lanes.entry(e.task).or_default().push(n);
        n
    }

    fn resource_name(
        &mut self,
        path: u32,
        lane: u32,
        index: u32,
        changes: bool,
        needs: &mut Vec<(u32, u32)>,
    ) {
        let path = self.trace.path(path);
        let above = parent_of(path);
        if let Some(parent) = self.names.get(above) {
            needs.extend(parent.changed); // its mkdir, or the rename that put it there
        }
        self.inside
            .entry(above.to_owned())
            .or_default()
            .insert(lane, index);
        if !self.names.contains_key(path) {
            self.names.insert(path.to_owned(), Resource::default());
        }
        if let Some(name) = self.names.get_mut(path) {
            if changes {
                name.change(lane, index, needs);
            } else {
                name.observe(lane, index, needs);
            }
        }
    }

    /// What an event must wait for, by the resources it uses; notes it as their user.
    fn needs(&mut self, e: &Event, lane: u32, index: u32) -> Vec<(u32, u32)> {
        let mut needs = Vec::new();
        let changes = matches!(
            e.op,
            Op::Rename | Op::Unlink | Op::Mkdir | Op::Rmdir | Op::Link | Op::Symlink | Op::Truncate
        ) || (e.op == Op::Open
            && e.call_flags() & (libc::O_CREAT | libc::O_TRUNC) as u64 != 0);
        let changes = changes && e.result >= 0;
        if e.path != 0 {
            if matches!(e.op, Op::Rename | Op::Rmdir) && e.result >= 0 {
                if let Some(children) = self.inside.remove(self.trace.path(e.path)) {
                    needs.extend(children);
                }
            }
            self.resource_name(e.path, lane, index, changes, &mut needs);
        }
        if e.path2 != 0 && e.op != Op::Symlink {
            self.resource_name(e.path2, lane, index, changes, &mut needs);
        }
        for file in [e.file, e.file2] {
            if file == 0 {
                continue;
            }
            let resource = self.files.entry(file).or_default();
            match e.op {
                Op::Open => resource.changed = Some((lane, index)),
                Op::Close => resource.change(lane, index, &mut needs),
                _ => resource.observe(lane, index, &mut needs),
            }
            let process = self.plan.lanes[lane as usize].process;
            if *self.process_using.entry(file).or_insert(process) != process {
                self.plan.cross_process = true;
            }
        }
        self.data(e, lane, index, &mut needs);
        if e.op == Op::Wait {
            if let Some(last) = u32::try_from(e.result)
                .ok()
                .and_then(|pid| self.last_of_pid.get(&pid))
            {
                needs.extend(last.iter().map(|(l, i)| (*l, *i)));
            }
        }
        needs
    }

    /// Reads of what another lane has appended wait for it, and so does whoever changes the size next.
    fn data(&mut self, e: &Event, lane: u32, index: u32, needs: &mut Vec<(u32, u32)>) {
        if e.result < 0 {
            return;
        }
        let path_of = |n: u32| self.trace.files[n as usize].path;
        let end = |offset: i64| (offset.max(0) as u64).saturating_add(e.bytes());
        let mut touched: Vec<(u32, u64, bool, bool)> = Vec::new(); // path, end, writes, sets the size
        match e.op {
            Op::CopyFileRange | Op::Sendfile | Op::Splice => {
                touched.push((path_of(e.file), end(e.offset), false, false));
                touched.push((path_of(e.file2), end(e.offset2), true, false));
            }
            Op::Ftruncate => touched.push((path_of(e.file), e.offset.max(0) as u64, true, true)),
            Op::Truncate => touched.push((e.path, e.offset.max(0) as u64, true, true)),
            Op::Open if e.call_flags() & libc::O_TRUNC as u64 != 0 => {
                touched.push((e.path, 0, true, true))
            }
            _ if e.op.class() == Class::Read => {
                touched.push((path_of(e.file), end(e.offset), false, false))
            }
            _ if e.op.class() == Class::Write => {
                touched.push((path_of(e.file), end(e.offset), true, false))
            }
            _ => {}
        }
        for (path, end, writes, sets) in touched {
            if path == 0 {
                continue;
            }
            let content = self.contents.entry(path).or_default();
            let short = !writes && e.bytes() < e.count; // the end of the file was seen
            let changes = writes && (sets || end > content.size);
            if changes || short || end > content.from {
                needs.extend(content.changed);
            }
            if changes {
                content.from = if sets {
                    end.min(content.size)
                } else {
                    content.size
                };
                content.size = end;
                content.changed = Some((lane, index));
            }
        }
    }

    fn add(&mut self, number: usize, e: &Event) {
        let lane = self.lane(e);
        let index = self.plan.lanes[lane as usize].steps.len() as u32;
        let mut needs = self.needs(e, lane, index);
        let mut before = self.lane_end[lane as usize];
        if index == 0 {
            if let Some((l, i)) = self.plan.lanes[lane as usize].after {
                needs.push((l, i));
                let step = &self.plan.lanes[l as usize].steps[i as usize];
                before = self.trace.events[step.event as usize].end();
            } else if e.flags & flag::ASYNC == 0 {
                before = 0;
            }
        }
        let first = self.plan.dependencies.len() as u32;
        let mut latest: HashMap<u32, u32> = HashMap::new();
        for (l, i) in needs {
            if l != lane {
                let entry = latest.entry(l).or_insert(i);
                *entry = (*entry).max(i);
            }
        }
        self.plan.dependencies.extend(
            latest
                .into_iter()
                .map(|(lane, index)| Dependency { lane, index }),
        );
        self.plan.lanes[lane as usize].steps.push(Step {
            event: number as u32,
            start: e.start,
            gap: if e.op == Op::Wait {
                0
            } else {
                e.start.saturating_sub(before)
            },
            op: e.op,
            file: e.file,
            file2: e.file2,
            path: e.path,
            path2: e.path2,
            flags: e.call_flags(),
            offset: e.offset,
            offset2: e.offset2,
            count: e.count,
            result: e.result,
            last_close: false,
            dependencies: (first, self.plan.dependencies.len() as u32),
        });
        self.lane_end[lane as usize] = e.end();
        let pid = self.trace.tasks[e.task as usize].pid;
        self.last_of_pid.entry(pid).or_default().insert(lane, index);
        if matches!(e.op.class(), Class::Read | Class::Write | Class::Mapped) || e.op == Op::Readdir
        {
            self.plan.largest = self.plan.largest.max(e.count);
        }
    }
}

/// Makes the plan. Events that cannot be replayed are counted by reason.
pub fn build(trace: &Trace, mapping: &Mapping) -> Plan {
    let mut order: Vec<u32> = (0..trace.events.len() as u32).collect();
    // a wait counts from its end: it is then that what its child did is done
    let when = |e: &Event| if e.op == Op::Wait { e.end() } else { e.start };
    order.sort_by_key(|&i| (when(&trace.events[i as usize]), i));
    let mut b = Builder {
        trace,
        plan: Plan::default(),
        lane_of_task: HashMap::new(),
        async_lanes: HashMap::new(),
        lane_end: Vec::new(),
        process_of: HashMap::new(),
        names: HashMap::new(),
        inside: HashMap::new(),
        files: HashMap::new(),
        last_of_pid: HashMap::new(),
        process_using: HashMap::new(),
        contents: HashMap::new(),
    };
    let mut opened: HashMap<u32, bool> = HashMap::new();
    let mut before: HashMap<u32, bool> = HashMap::new();
    let mut last_close: HashMap<u32, (u32, u32)> = HashMap::new();
    for &number in &order {
        let e = &trace.events[number as usize];
        if e.op == Op::Mmap {
            b.plan.mapped += 1;
            continue;
        }
        if let Some(reason) = skipped(trace, mapping, e) {
            *b.plan.skipped.entry(reason.to_owned()).or_default() += 1;
            continue;
        }
        b.add(number as usize, e);
        let Some(&lane) = (if e.flags & flag::ASYNC == 0 {
            b.lane_of_task.get(&e.task)
        } else {
            None
        }) else {
            for file in [e.file, e.file2].into_iter().filter(|&f| f != 0) {
                last_close.remove(&file);
                if !opened.contains_key(&file) {
                    *before.entry(file).or_default() |= e.op.class() == Class::Write;
                }
            }
            continue;
        };
        let index = b.plan.lanes[lane as usize].steps.len() as u32 - 1;
        for (second, file) in [(false, e.file), (true, e.file2)] {
            if file == 0 {
                continue;
            }
            if e.op == Op::Open {
                opened.insert(file, true);
            } else if !opened.contains_key(&file) {
                let writes = e.op.class() == Class::Write && (second || e.file2 == 0)
                    || matches!(e.op, Op::Ftruncate | Op::Fallocate);
                *before.entry(file).or_default() |= writes;
            }
            if e.op == Op::Close {
                last_close.insert(file, (lane, index));
            } else {
                last_close.remove(&file);
            }
        }
    }
    for (lane, index) in last_close.into_values() {
        b.plan.lanes[lane as usize].steps[index as usize].last_close = true;
    }
    b.plan.open_before = before.into_iter().collect();
    b.plan.open_before.sort_unstable();
    b.plan.span = trace.duration();
    b.plan
}
