//! Tests every reachable state, and every action in each state.

use std::collections::{HashSet, VecDeque};

use super::super::state::{Access, Health, Reduce};
use super::super::{
    Action, Exchange, HOST, HOST_BIT, PartId, Plan, Refusal, Step, Who, Whole, fast_readers, owner,
    plan, take_up,
};
use super::machine::{Machine, Op};
use super::*;

const OPS: [Reduce; 2] = [Reduce::Sum, Reduce::Replace];

/// The places of an access: a replica, and the user that works on it.
fn places(world: &World) -> Vec<(u8, Who)> {
    let host = std::iter::once((HOST, None));
    let lanes = (0..PLACES)
        .flat_map(|at| world.lanes[usize::from(at)].iter().map(move |lane| (at, Some(*lane))));
    host.chain(lanes).collect()
}

fn actions(world: &World, parts: usize) -> Vec<(PartSet, Action)> {
    let all = PartSet::below(parts);
    let sets = subsets(parts);
    let mut actions = Vec::new();
    for (at, by) in places(world) {
        for set in sets.clone() {
            actions.push((set, Action::Read { at, by }));
            actions.push((set, Action::Prefetch { at, by }));
            let accumulate = OPS.map(Access::Accumulate);
            for access in [Access::ReadWrite, Access::Write].into_iter().chain(accumulate) {
                actions.push((set, Action::Acquire { at, by, access }));
            }
        }
        for exchange in [Exchange::Broadcast, Exchange::Reduce] {
            actions.push((all, Action::Begin { at, by, exchange }));
        }
    }
    let copiers = world.paths.locked.iter().flat_map(|at| world.lanes[usize::from(*at)]);
    for by in copiers.map(|lane| Some(*lane)) {
        actions.extend(sets.clone().map(|set| (set, Action::Prefetch { at: HOST, by })));
    }
    for set in sets.clone() {
        actions.extend([Action::Commit, Action::Keep, Action::Abort].map(|action| (set, action)));
    }
    let whole = [Action::End, Action::Fail, Action::Withdraw, Action::Outdate];
    actions.extend(whole.map(|action| (all, action)));
    let evicted = || (0..PLACES).flat_map(|at| sets.clone().map(move |set| (set, at)));
    actions.extend(evicted().map(|(set, at)| (set, Action::Evict { at })));
    actions.extend(evicted().map(|(set, at)| (set, Action::MakeRoom { at })));
    let lanes: HashSet<Lane> = world.lanes.iter().flat_map(|lanes| lanes.iter().copied()).collect();
    actions.extend(lanes.iter().map(|lane| (all, Action::Lost { lane: *lane })));
    actions
}

/// The work that the access records stand for, and the users known to come after it.
fn machine(parts: &[PartState]) -> Machine {
    let mut machine = Machine::default();
    for (part, at) in all_bytes(parts) {
        let state = &parts[usize::from(part)];
        let bytes = state.bytes(at);
        if let Some(lane) = bytes.writer {
            // Readers of bytes that are not valid have read the bytes from before a failed write.
            let know = if state.valid.contains(at) { bytes.readers } else { Set::EMPTY };
            machine.assume(Op { part, at, lane, writes: true }, know.iter());
            // Reads on the writer's lane have no access record of their own.
            machine.assume(Op { part, at, lane, writes: false }, std::iter::empty());
        }
        for lane in bytes.readers.iter() {
            machine.assume(Op { part, at, lane, writes: false }, std::iter::empty());
        }
    }
    machine
}

fn all_bytes(parts: &[PartState]) -> impl Iterator<Item = (PartId, u8)> + use<> {
    let parts = PartSet::below(parts.len());
    parts.iter().flat_map(|part| (0..PLACES).map(move |at| (part, at)))
}

/// Checks that the access records of `next` cover all work in `machine`, and claim no order that does not hold.
fn marks_hold(
    machine: &Machine,
    next: &[PartState],
    evicted: Option<(PartSet, u8)>,
) -> Result<(), String> {
    let gone = |(part, at): &(PartId, u8)| {
        evicted.is_some_and(|(set, of)| set.contains(*part) && of == *at)
    };
    for (part, at) in all_bytes(next).filter(|bytes| !gone(bytes)) {
        let state = &next[usize::from(part)];
        let bytes = state.bytes(at);
        let here = |op: &Op| (op.part, op.at) == (part, at);
        // Only the last write and later operations matter: all earlier operations are ordered before that write.
        let last = machine.ops.iter().rposition(|op| here(op) && op.writes);
        for (index, op) in machine.ops.iter().enumerate().skip(last.unwrap_or(0)) {
            if !here(op) || machine.is_after(None, index) {
                continue;
            }
            if bytes.writer != Some(op.lane) && (op.writes || !bytes.readers.contains(op.lane)) {
                return Err(format!("{op:?} is not marked in {bytes:?}"));
            }
        }
        let Some(last) = last else { continue };
        let write = machine.ops[last];
        if bytes.writer.is_none() && !machine.is_after(None, last) {
            return Err(format!("{write:?} counts as done"));
        }
        let valid = bytes.writer.is_some() && state.valid.contains(at);
        let claims = if valid { bytes.readers } else { Set::EMPTY };
        if let Some(lane) = claims.iter().find(|lane| !machine.is_after(Some(*lane), last)) {
            return Err(format!("lane {lane} counts as having waited for {write:?}"));
        }
    }
    Ok(())
}

/// Checks what must hold in every state.
fn state_holds(parts: &[PartState]) -> Result<(), String> {
    for state in parts {
        let empty = state.valid.is_empty();
        let fits = match state.health {
            Health::Uninit | Health::Poisoned => empty,
            Health::Good if state.role == Role::Owned => !empty && state.pending.is_none(),
            Health::Good => state.pending.is_none() || !empty,
            Health::Writing { .. } | Health::Exchanging { .. } => true,
        };
        let marks = state
            .bytes
            .iter()
            .all(|b| b.writer.is_none_or(|w| !b.readers.contains(w) && !b.origins.contains(w)));
        if !fits || !marks || !state.valid.is_subset(Set::below(PLACES.into())) {
            return Err(format!("{state:?}"));
        }
    }
    Ok(())
}

/// Whether values can be read, defined again independently.
fn has_values(parts: &[PartState], set: PartSet) -> bool {
    set.iter().all(|part| {
        let state = &parts[usize::from(part)];
        let contributions =
            parts.iter().any(|other| other.pending.is_some()) && state.role == Role::Owned;
        state.health == Health::Good
            && !state.valid.is_empty()
            && state.pending.is_none()
            && !contributions
    })
}

fn by(action: Action) -> Option<(u8, Who)> {
    match action {
        Action::Read { at, by }
        | Action::Prefetch { at, by }
        | Action::Acquire { at, by, .. }
        | Action::Begin { at, by, .. } => Some((at, by)),
        _ => None,
    }
}

/// The parts whose bytes the action needs in its place.
fn wanted(parts: &[PartState], set: PartSet, action: Action) -> PartSet {
    let owned: PartSet = PartSet::below(parts.len())
        .iter()
        .filter(|part| parts[usize::from(*part)].role == Role::Owned)
        .collect();
    let pending: PartSet = PartSet::below(parts.len())
        .iter()
        .filter(|part| parts[usize::from(*part)].pending.is_some())
        .collect();
    match action {
        Action::Read { .. }
        | Action::Prefetch { .. }
        | Action::Acquire { access: Access::ReadWrite, .. } => set,
        Action::Acquire { access: Access::Accumulate(_), .. } => set.and(owned.union(pending)),
        Action::Begin { exchange: Exchange::Broadcast, .. } => owned,
        Action::Begin { exchange: Exchange::Reduce, .. } => owned.union(pending),
        _ => PartSet::EMPTY,
    }
}

/// The parts whose bytes the user of the action will write.
fn written(parts: &[PartState], set: PartSet, action: Action) -> PartSet {
    let is = |role| {
        let has = move |part: &u8| parts[usize::from(*part)].role == role;
        PartSet::below(parts.len()).iter().filter(has).collect::<PartSet>()
    };
    match action {
        Action::Acquire { .. } => set,
        Action::Begin { exchange: Exchange::Broadcast, .. } => is(Role::Ghost),
        Action::Begin { exchange: Exchange::Reduce, .. } => is(Role::Owned),
        _ => PartSet::EMPTY,
    }
}

/// For each part at each place, the streams that its bytes came through. If one of these streams fails, the bytes are
/// lost.
struct SourceSets(Vec<[Set; PLACES as usize]>);

impl SourceSets {
    fn of(parts: &[PartState]) -> Self {
        let of = |state: &PartState| std::array::from_fn(|at| of_bytes(state, at.to_le_bytes()[0]));
        Self(parts.iter().map(of).collect())
    }

    fn at(&mut self, part: PartId, at: u8) -> &mut Set {
        &mut self.0[usize::from(part)][usize::from(at)]
    }

    /// Whether the host may learn of a failure by waiting for a stream.
    fn any(&self, lane: Lane) -> bool {
        self.0.iter().flatten().any(|sources| sources.contains(lane))
    }

    /// Records a step of an action on `set`.
    fn step(&mut self, step: Step, set: PartSet, paths: &Paths) {
        match step {
            // Work on other parts may be enqueued on the stream between the wait and the rest of the action.
            Step::Wait { who: None, on } => {
                for part in set.iter() {
                    self.0[usize::from(part)].iter_mut().for_each(|sources| sources.remove(on));
                }
            }
            Step::Wait { .. } => {}
            Step::See { part, on, origins } => {
                let sources = self.at(part, HOST);
                *sources = sources.without(origins).without(Set::one(on));
            }
            Step::Copy { part, from, to, reads, writes } => {
                let through = self.at(part, from).union(reads.map_or(Set::EMPTY, Set::one));
                let through = if paths.staged(part, from, to) { Set::EMPTY } else { through };
                *self.at(part, to) = through.union(writes.map_or(Set::EMPTY, Set::one));
            }
            Step::Fill { part, at, by, .. } => {
                *self.at(part, at) = by.map_or(Set::EMPTY, Set::one);
            }
        }
    }

    /// Records a write: its origins are added to the old ones, or replace them.
    fn write(&mut self, part: PartId, at: u8, by: Who, keeps: bool, from: Set) {
        let old = if keeps { *self.at(part, at) } else { Set::EMPTY };
        *self.at(part, at) = old.union(by.map_or(Set::EMPTY, Set::one)).union(from);
    }

    /// Checks that the states agree with this, where there are values.
    fn hold(&mut self, next: &[PartState]) -> Result<(), String> {
        for (part, at) in all_bytes(next) {
            let state = &next[usize::from(part)];
            let held = match state.health {
                Health::Writing { at, .. } | Health::Exchanging { at, .. } => Set::one(at),
                _ => Set::EMPTY,
            };
            let (sources, marked) = (*self.at(part, at), of_bytes(state, at));
            let bytes = state.bytes(at);
            if !state.valid.union(held).contains(at) {
                if bytes.origins != Set::EMPTY {
                    return Err(format!("origins of nothing: {bytes:?}"));
                }
            } else if !sources.is_subset(marked)
                // A stream that the host has waited for may still be recorded as the writer.
                || !bytes.origins.is_subset(sources)
            {
                return Err(format!("{part} at {at} comes through {sources:?}: {bytes:?}"));
            }
        }
        Ok(())
    }
}

fn of_bytes(state: &PartState, at: u8) -> Set {
    let bytes = state.bytes(at);
    bytes.origins.union(bytes.writer.map_or(Set::EMPTY, Set::one))
}

/// Checks one accepted action and everything that its steps do.
fn check(
    world: &World,
    parts: &[PartState],
    set: PartSet,
    action: Action,
    plan: &Plan,
) -> Result<(), String> {
    state_holds(&plan.next)?;
    let evicted = match action {
        Action::Evict { at } | Action::MakeRoom { at } => Some((set, at)),
        _ => None,
    };
    let wanted = wanted(parts, set, action);
    let written = written(parts, set, action);

    // Data: only missing bytes are copied, each once, and from a valid replica.
    let mut current: Vec<Set> = parts.iter().map(|state| state.valid).collect();
    let mut machine = machine(parts);
    let mut copied = PartSet::EMPTY;
    let mut sources = SourceSets::of(parts);
    let paths = world.paths.during(parts, set, action);
    for (index, step) in plan.steps.iter().enumerate() {
        if let Step::Wait { who, on } = *step
            && before_knows(&machine, who, on)
            && !(who.is_none() && sources.any(on))
        {
            return Err(format!("{step:?} is for nothing"));
        }
        if let Step::Wait { who: Some(who), on } = *step
            && !world.waits(who, on)
        {
            return Err(format!("{step:?} is between devices that do not reach each other"));
        }
        machine.step(*step, &paths)?;
        let all = matches!(action, Action::Begin { .. });
        sources.step(*step, if all { PartSet::below(parts.len()) } else { set }, &paths);
        match *step {
            Step::Copy { part, from, to, .. } => {
                let current = &mut current[usize::from(part)];
                if !current.contains(from) || current.contains(to) || copied.contains(part) {
                    return Err(format!("{step:?} with {current:?} valid"));
                }
                current.insert(to);
                copied.insert(part);
                let goal = by(action).map_or(HOST, |(at, _)| at);
                if to != goal {
                    return Err(format!("{step:?} is not asked for"));
                }
            }
            Step::Fill { part, .. } => current[usize::from(part)] = Set::EMPTY,
            Step::Wait { .. } | Step::See { .. } => {}
        }
        // A failure here leaves access records for the enqueued work, and the values where they were.
        let kept = plan.interrupted(parts, &plan.steps[..=index]);
        state_or_stale(&kept)?;
        marks_hold(&machine, &kept, None)?;
        for (old, new) in parts.iter().zip(&kept) {
            let filled = plan.steps.iter().any(|step| matches!(step, Step::Fill { .. }));
            if !filled && (old.health, old.valid) != (new.health, new.valid) {
                return Err(format!("a failure of {step:?} makes {new:?} of {old:?}"));
            }
        }
    }
    if let Some((at, by)) = by(action) {
        let missing: PartSet =
            wanted.iter().filter(|part| !parts[usize::from(*part)].valid.contains(at)).collect();
        if copied != missing {
            return Err(format!("copied {copied:?}, missing {missing:?}"));
        }
        // The user's work with the guard, checked against the access records of this action alone.
        if !matches!(action, Action::Prefetch { .. }) {
            let mut from = Set::EMPTY;
            for part in wanted.without(written).iter() {
                machine.touch(by, part, at, false)?;
                from = from.union(*sources.at(part, at));
            }
            if !matches!(action, Action::Begin { .. }) {
                from = Set::EMPTY;
            }
            for part in wanted.iter().filter(|_| by.is_none()) {
                if !sources.at(part, at).is_empty() {
                    return Err(format!("the host uses {part} unasked"));
                }
            }
            for part in written.iter() {
                machine.touch(by, part, at, true)?;
                sources.write(part, at, by, wanted.contains(part), from);
            }
        }
    }
    if let Some((set, at)) = evicted {
        for part in set.iter() {
            let had = SourceSets::of(parts).at(part, at).to_owned();
            let was = &parts[usize::from(part)];
            let mut kept = plan.next[usize::from(part)].valid.iter();
            let safe = kept.any(|other| sources.at(part, other).is_subset(had));
            if was.health == Health::Good && was.valid.contains(at) && !safe {
                return Err(format!("the values of {part} depend on more work than before"));
            }
            *sources.at(part, at) = Set::EMPTY;
        }
    }
    sources.hold(&plan.next)?;
    marks_hold(&machine, &plan.next, evicted)?;

    // Values: valid means current.
    match action {
        Action::Commit => {
            let owned = set.iter().any(|part| parts[usize::from(part)].role == Role::Owned);
            for (part, state) in (0..).zip(parts) {
                let current = &mut current[usize::from(part)];
                if let Health::Writing { at, access, outdated } = state.health
                    && set.contains(part)
                {
                    let contributes = matches!(access, Access::Accumulate(_));
                    let ghost = state.role == Role::Ghost;
                    *current = Set::one(at);
                    if ghost && !contributes && (owned || outdated) {
                        *current = Set::EMPTY;
                    }
                } else if owned && state.role == Role::Ghost && state.pending.is_none() {
                    *current = Set::EMPTY;
                }
            }
            if plan.committed != owned {
                return Err("the version is wrong".into());
            }
        }
        Action::End => {
            let mut reduced = false;
            for (current, state) in current.iter_mut().zip(parts) {
                if let Health::Exchanging { at, reduce, outdated } = state.health {
                    let stale = outdated || reduce && state.role == Role::Ghost;
                    *current = if stale { Set::EMPTY } else { Set::one(at) };
                    reduced |= reduce;
                }
            }
            if reduced {
                for (current, state) in current.iter_mut().zip(parts) {
                    if state.role == Role::Ghost {
                        *current = Set::EMPTY;
                    }
                }
            }
            if plan.committed != reduced {
                return Err("the version is wrong".into());
            }
        }
        Action::Withdraw => {
            for (current, state) in current.iter_mut().zip(parts) {
                let outdated = matches!(state.health, Health::Exchanging { outdated: true, .. });
                if outdated && state.pending.is_none() {
                    *current = Set::EMPTY;
                }
            }
        }
        Action::Keep => {
            for part in set.iter().map(usize::from) {
                let outdated = matches!(
                    parts[part].health,
                    Health::Writing { outdated: true, access: Access::ReadWrite, .. }
                );
                if outdated {
                    current[part] = Set::EMPTY;
                }
            }
            if plan.committed {
                return Err("the version is wrong".into());
            }
        }
        _ if plan.committed => return Err(format!("{action:?} raised the version")),
        _ => {}
    }
    for (current, next) in current.iter().zip(&plan.next) {
        let idle = matches!(next.health, Health::Good);
        if idle && !next.valid.is_subset(*current) {
            return Err(format!("{next:?} claims more than {current:?}"));
        }
    }
    expected(world, parts, set, action, plan)
}

/// Checks the visible result of each action.
fn expected(
    world: &World,
    parts: &[PartState],
    set: PartSet,
    action: Action,
    plan: &Plan,
) -> Result<(), String> {
    let next = |part: u8| &plan.next[usize::from(part)];
    let all = |holds: &dyn Fn(u8) -> bool| set.iter().all(holds);
    let right = match action {
        Action::Read { at, by } | Action::Prefetch { at, by } => {
            // Where a stream has copied the values to the host, the host waits for these copies alone.
            let copied = |part: u8| {
                let state = &parts[usize::from(part)];
                let writer = state.bytes(HOST).writer;
                state.valid.contains(HOST)
                    && writer.is_some_and(|lane| world.paths.only_copies(lane))
            };
            let waits = plan.steps.iter().any(|step| matches!(step, Step::Wait { .. }));
            has_values(parts, set)
                && !((at, by) == (HOST, None) && all(&copied) && waits)
                && all(&|part| next(part).valid.contains(at) && next(part).health == Health::Good)
        }
        Action::Acquire { at, access, .. } => {
            let held = Health::Writing { at, access, outdated: false };
            let copies = plan.steps.iter().any(|step| matches!(step, Step::Copy { .. }));
            let pending = plan.next.iter().any(|state| state.pending.is_some());
            all(&|part| next(part).health == held)
                && match access {
                    Access::Write => !copies && !pending,
                    Access::ReadWrite => has_values(parts, set),
                    Access::Accumulate(op) => plan.steps.iter().all(|step| match step {
                        Step::Fill { part, op: with, .. } => {
                            *with == op && parts[usize::from(*part)].pending.is_none()
                        }
                        _ => true,
                    }),
                }
        }
        Action::Commit | Action::Keep | Action::Abort => all(&|part| {
            let was = parts[usize::from(part)].health;
            let poisoned = next(part).health == Health::Poisoned;
            let Health::Writing { access, .. } = was else { return false };
            match action {
                Action::Abort => poisoned,
                Action::Keep => match access {
                    Access::Write => poisoned,
                    Access::ReadWrite => true,
                    Access::Accumulate(_) => next(part).valid == parts[usize::from(part)].valid,
                },
                _ => next(part).health == Health::Good,
            }
        }),
        Action::Evict { at } | Action::MakeRoom { at } => (0..).zip(parts).all(|(part, was)| {
            let next = next(part);
            let kept = was.valid.is_empty() || was.health != Health::Good || !next.valid.is_empty();
            let gone = !next.valid.contains(at) && next.bytes(at).writer.is_none();
            let live = matches!(action, Action::MakeRoom { .. });
            kept && (!live || next.health == was.health)
                && if set.contains(part) { gone } else { next.valid == was.valid }
        }),
        Action::Begin { at, exchange, .. } => {
            let role = if exchange == Exchange::Broadcast { Role::Ghost } else { Role::Owned };
            let reduce = exchange == Exchange::Reduce;
            plan.next
                .iter()
                .filter(|state| state.role == role)
                .all(|state| state.health == Health::Exchanging { at, reduce, outdated: false })
        }
        Action::End | Action::Fail => plan.next.iter().zip(parts).all(|(next, was)| {
            let poisoned = next.health == Health::Poisoned;
            match was.health {
                Health::Exchanging { .. } => poisoned == (action == Action::Fail),
                _ => true,
            }
        }),
        // As before, but for ghosts that are outdated now.
        Action::Withdraw => plan.next.iter().zip(parts).all(|(next, was)| match was.health {
            Health::Exchanging { outdated, .. } => {
                let kept = !outdated || was.pending.is_some();
                next.health == Health::Good
                    && next.pending == was.pending
                    && next.valid == if kept { was.valid } else { Set::EMPTY }
            }
            _ => next == was,
        }),
        Action::Lost { lane } => plan.next.iter().zip(parts).all(|(next, was)| {
            let doubtful = next.valid.iter().any(|at| of_bytes(next, at).contains(lane));
            let sole = was.health == Health::Good && !was.valid.is_empty() && next.valid.is_empty();
            !doubtful && (!sole || next.health == Health::Poisoned)
        }),
        Action::Outdate => plan.next.iter().zip(parts).all(|(next, was)| {
            let same = next.role == Role::Owned || was.pending.is_some() || was.user().is_some();
            let stale = next.health == Health::Good && next.valid.is_empty();
            plan.steps.is_empty() && if same { next.valid == was.valid } else { stale }
        }),
        Action::Forget { .. } => true,
    };
    if right { Ok(()) } else { Err(format!("{action:?} gives {:?}", plan.next)) }
}

/// Filled ghost parts may be stale after a failure.
fn state_or_stale(parts: &[PartState]) -> Result<(), String> {
    let lenient: Vec<PartState> = parts
        .iter()
        .map(|state| match state.role {
            Role::Ghost if state.valid.is_empty() => PartState { pending: None, ..state.clone() },
            _ => state.clone(),
        })
        .collect();
    state_holds(&lenient)
}

/// Whether a wait is by a user that already comes after all of the work.
fn before_knows(machine: &Machine, who: Who, on: Lane) -> bool {
    let mut ops = machine.ops.iter().enumerate().filter(|(_, op)| op.lane == on);
    who == Some(on) || ops.all(|(index, _)| machine.is_after(who, index))
}

/// Checks that a refusal has its reason in the state.
fn check_refusal(
    parts: &[PartState],
    set: PartSet,
    action: Action,
    why: Refusal,
) -> Result<(), String> {
    let state = |part: u8| &parts[usize::from(part)];
    let pending = parts.iter().find_map(|state| state.pending);
    let right = match why {
        Refusal::Uninit(part) => state(part).health == Health::Uninit,
        Refusal::Poisoned(part) => {
            matches!(state(part).health, Health::Poisoned | Health::Writing { .. })
        }
        Refusal::Stale(part) => state(part).role == Role::Ghost && state(part).valid.is_empty(),
        Refusal::Pending(_, op) => {
            let guards = parts.iter().filter(|state| state.role == Role::Ghost);
            let open = Access::Accumulate(op);
            let is_open = |state: &PartState| matches!(state.health, Health::Writing { access, .. } if access == open);
            let accumulates =
                matches!(action, Action::Acquire { access: Access::Accumulate(_), .. });
            pending == Some(op) || accumulates && guards.into_iter().any(is_open)
        }
        Refusal::Exchanging(part) => matches!(state(part).health, Health::Exchanging { .. }),
        Refusal::NothingPending => pending.is_none(),
        Refusal::LastReplica(part) => state(part).valid == Set::one(HOST),
        Refusal::NotWriting(part) => !matches!(state(part).health, Health::Writing { .. }),
        Refusal::InUse(part) => {
            set.contains(part)
                && matches!(action, Action::MakeRoom { at } if state(part).user() == Some(at))
        }
    };
    let may_refuse = match action {
        Action::Read { .. } | Action::Prefetch { .. } => !has_values(parts, set),
        Action::Acquire { access: Access::ReadWrite, .. } => !has_values(parts, set),
        Action::Acquire { access: Access::Write, .. } => pending.is_some(),
        Action::Lost { .. } | Action::Forget { .. } | Action::Outdate => false,
        Action::End | Action::Fail | Action::Withdraw => false,
        _ => true,
    };
    if right && may_refuse { Ok(()) } else { Err(format!("{action:?} is refused: {why:?}")) }
}

/// Checks that the mirror says "no action" exactly where the transition function does nothing.
fn check_fast_path(world: &World, parts: &[PartState]) -> Result<(), String> {
    for part in PartSet::below(parts.len()).iter() {
        for (at, by) in places(world) {
            let bit = by.map_or(HOST_BIT, |lane| 1 << lane);
            let hit = fast_readers(&parts[usize::from(part)], Whole::of(parts))[usize::from(at)]
                & bit
                != 0;
            let set = PartSet::one(part);
            let read = plan(parts, set, Action::Read { at, by }, &world.paths);
            let idle = read.is_ok_and(|plan| plan.steps.is_empty() && plan.next == parts);
            if hit != idle {
                return Err(format!("a read by {by:?} at {at}: mirror {hit}, transition {idle}"));
            }
            let owner = owner(&parts[usize::from(part)], Whole::of(parts))
                .filter(|owner| (owner.at, owner.who) == (at, by));
            for access in [Access::ReadWrite, Access::Write] {
                let held = plan(parts, set, Action::Acquire { at, by, access }, &world.paths);
                let mut taken = parts.to_vec();
                take_up(&mut taken[usize::from(part)], access);
                let same = held.is_ok_and(|held| {
                    let done = plan(&held.next, set, Action::Commit, &world.paths);
                    held.steps.is_empty()
                        && held.next == taken
                        && done.is_ok_and(|done| done.committed && done.next == parts)
                });
                let owned = owner.is_some_and(|owner| access == Access::ReadWrite || !owner.keeps);
                if owned && !same {
                    return Err(format!("a write by {by:?} at {at} is not for free"));
                }
                // While ghosts are in flight the mirror is not used, although nothing would change for this part.
                if same && !owned && parts.iter().all(|state| state.health == Health::Good) {
                    return Err(format!("a write by {by:?} at {at} would be for free"));
                }
            }
        }
    }
    Ok(())
}

/// Packs a state into one number.
fn packed(parts: &[PartState]) -> u128 {
    parts.iter().fold(1, |all, state| (all << 60) | pack(state))
}

fn pack(state: &PartState) -> u128 {
    let op = |op: Reduce| op as u128 + 1;
    let (health, at, access, outdated) = match state.health {
        Health::Uninit => (0, 0, 0, false),
        Health::Good => (1, 0, 0, false),
        Health::Poisoned => (2, 0, 0, false),
        Health::Writing { at, access, outdated } => {
            let access = match access {
                Access::ReadWrite => 0,
                Access::Write => 5,
                Access::Accumulate(with) => op(with),
            };
            (3, at, access, outdated)
        }
        Health::Exchanging { at, reduce, outdated } => (4 + u128::from(reduce), at, 0, outdated),
    };
    let fields = [
        (3, u128::from(state.valid.bits())),
        (3, state.pending.map_or(0, op)),
        (3, health),
        (2, at.into()),
        (3, access),
        (1, outdated.into()),
    ];
    let marks = (0..PLACES).map(|at| state.bytes(at)).flat_map(|bytes| {
        let writer = bytes.writer.map_or(7, u128::from);
        [(3, writer), (5, bytes.readers.bits().into()), (5, bytes.origins.bits().into())]
    });
    fields.into_iter().chain(marks).fold(0, |all, (bits, field)| {
        assert!(field < 1 << bits, "{field} has more than {bits} bits");
        all << bits | field
    })
}

/// Visits all states. Returns the number of states and of transitions.
fn explore(world: &World, roles: &[Role]) -> (usize, usize) {
    let first = start(roles);
    let actions = actions(world, roles.len());
    let mut seen = HashSet::from([packed(&first)]);
    let mut queue = VecDeque::from([first]);
    let mut transitions = 0;
    while let Some(parts) = queue.pop_front() {
        check_fast_path(world, &parts)
            .unwrap_or_else(|why| panic!("{}: {why}\nin {parts:#?}", world.name));
        for &(set, action) in &actions {
            let checked = match plan(&parts, set, action, &world.paths) {
                Ok(plan) => {
                    transitions += 1;
                    let checked = check(world, &parts, set, action, &plan);
                    let kept = (0..plan.steps.len())
                        .map(|step| plan.interrupted(&parts, &plan.steps[..=step]));
                    for next in kept.chain([plan.next.clone()]) {
                        if seen.insert(packed(&next)) {
                            queue.push_back(next);
                        }
                    }
                    checked
                }
                Err(why) => check_refusal(&parts, set, action, why),
            };
            checked.unwrap_or_else(|why| {
                panic!("{}: {action:?} on {set:?}: {why}\nin {parts:#?}", world.name)
            });
        }
    }
    (seen.len(), transitions)
}

/// Explores a world and checks the number of its states, so a change to it is noticed.
fn closure(world: World, roles: &[Role], expected: usize) {
    let (states, transitions) = explore(&world, roles);
    println!("{} {roles:?}: {states} states, {transitions} transitions", world.name);
    assert_eq!(states, expected, "{} {roles:?}", world.name);
}

#[test]
fn two_owned_parts_on_devices_that_are_no_peers() {
    closure(apart(ONE), &[Role::Owned, Role::Owned], 76_176);
}

#[test]
fn two_owned_parts_on_peers() {
    closure(peers(ONE), &[Role::Owned, Role::Owned], 284_410);
}

#[test]
fn two_owned_parts_with_a_device_in_host_memory() {
    closure(shared(ONE), &[Role::Owned, Role::Owned], 38_349);
}

#[test]
fn two_owned_parts_of_page_locked_host_memory() {
    closure(locked(ONE, PartSet::below(2)), &[Role::Owned, Role::Owned], 317_449);
}

#[test]
fn a_part_that_is_copied_directly_beside_one_that_is_not() {
    closure(locked(ONE, PartSet::one(0)), &[Role::Owned, Role::Owned], 155_633);
}

#[test]
fn an_owned_and_a_ghost_part_of_page_locked_host_memory() {
    closure(locked(ONE, PartSet::below(2)), &[Role::Owned, Role::Ghost], 973_280);
}

#[test]
fn two_owned_parts_whose_prefetches_are_prepared() {
    closure(with_workers(apart(ONE), &[1]), &[Role::Owned, Role::Owned], 317_728);
}

#[test]
fn an_owned_and_a_ghost_part_on_devices_that_are_no_peers() {
    closure(apart(ONE), &[Role::Owned, Role::Ghost], 246_421);
}

#[test]
fn an_owned_and_a_ghost_part_on_peers() {
    closure(peers(ONE), &[Role::Owned, Role::Ghost], 908_509);
}

#[test]
fn an_owned_and_a_ghost_part_with_a_device_in_host_memory() {
    closure(shared(ONE), &[Role::Owned, Role::Ghost], 133_449);
}

#[test]
fn one_part_used_by_several_streams_of_each_device() {
    closure(apart(MANY), &[Role::Owned], 1016);
    closure(peers(MANY), &[Role::Owned], 2994);
    closure(shared(MANY), &[Role::Owned], 1012);
    closure(locked(MANY, PartSet::one(0)), &[Role::Owned], 4802);
}

#[test]
fn one_part_whose_prefetches_are_prepared_for_two_devices() {
    closure(with_workers(apart(ONE), &[1, 2]), &[Role::Owned], 1791);
    closure(with_workers(peers(ONE), &[1, 2]), &[Role::Owned], 2404);
    closure(with_workers(apart(MANY), &[1, 2]), &[Role::Owned], 22_533);
    closure(with_workers(peers(MANY), &[1, 2]), &[Role::Owned], 38_044);
}
