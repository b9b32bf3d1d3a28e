//! Random programs: conflicting operations are ordered, and every read sees the last value written.

use super::super::state::{Access, Bytes, Health, Reduce};
use super::super::{Action, Exchange, HOST, PartId, Refusal, ReplicaId, Step, Who, plan};
use super::machine::Machine;
use super::*;

/// A generator of pseudorandom numbers: `SplitMix64` of Steele, Lea and Flood.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// An array whose values are numbers that identify the writes.
struct Program {
    world: World,
    parts: Vec<PartState>,
    machine: Machine,
    /// The value in each replica of each part.
    held: Vec<[u64; PLACES as usize]>,
    /// The value that a read must see.
    latest: Vec<u64>,
    version: u64,
    stamp: u64,
    /// Live read guards, which may be used at any time before the next exclusive access.
    guards: Vec<(Lane, PartSet, ReplicaId)>,
}

impl Program {
    fn new(world: World, roles: &[Role]) -> Self {
        let count = roles.len();
        Self {
            world,
            parts: start(roles),
            machine: Machine::default(),
            held: vec![[0; PLACES as usize]; count],
            latest: vec![0; count],
            version: 0,
            stamp: 0,
            guards: Vec::new(),
        }
    }

    /// Does an action, or fails at a random step of it. `None` if it was refused or failed.
    fn act(&mut self, random: &mut Random, set: PartSet, action: Action) -> Option<()> {
        let planned = plan(&self.parts, set, action, &self.world.paths);
        numbers::check(&self.parts, set, action, &self.world.paths, &planned);
        let plan = match planned {
            Ok(plan) => plan,
            Err(Refusal::Exchanging(_)) => panic!("exchanges end before anything else begins"),
            Err(_) => return None,
        };
        let paths = self.world.paths.during(&self.parts, set, action);
        let fails = !plan.steps.is_empty() && random.one_in(8);
        let failing = if fails { random.below(plan.steps.len()) } else { usize::MAX };
        for (index, step) in plan.steps.iter().enumerate() {
            // It is not known whether the failing step has begun.
            if index < failing || random.one_in(2) {
                self.machine.step(*step, &paths).unwrap();
                self.copy(*step);
            }
            if index == failing {
                self.parts = plan.interrupted(&self.parts, &plan.steps[..=index]);
                return None;
            }
        }
        self.parts = plan.next;
        self.version += u64::from(plan.committed);
        Some(())
    }

    fn copy(&mut self, step: Step) {
        match step {
            Step::Wait { .. } | Step::See { .. } => {}
            Step::Copy { part, from, to, .. } => {
                let held = &mut self.held[usize::from(part)];
                held[usize::from(to)] = held[usize::from(from)];
            }
            Step::Fill { part, at, .. } => self.scribble(part, at),
        }
    }

    fn scribble(&mut self, part: PartId, at: ReplicaId) {
        self.stamp += 1;
        self.held[usize::from(part)][usize::from(at)] = self.stamp;
    }

    fn touch(&mut self, by: Who, set: PartSet, at: ReplicaId, writes: bool) {
        for part in set.iter() {
            self.machine.touch(by, part, at, writes).unwrap();
            if writes {
                self.scribble(part, at);
            } else {
                let (held, latest) =
                    (&self.held[usize::from(part)], self.latest[usize::from(part)]);
                assert_eq!(held[usize::from(at)], latest, "part {part} at {at}");
            }
        }
    }

    fn of(&self, role: Role) -> PartSet {
        let has = |part: &u8| self.parts[usize::from(*part)].role == role;
        PartSet::below(self.parts.len()).iter().filter(has).collect()
    }

    /// Takes a write guard, does work through it, and ends it.
    fn write(&mut self, random: &mut Random, set: PartSet, at: ReplicaId, by: Who) {
        let ops = [Reduce::Sum, Reduce::Min, Reduce::Max, Reduce::Replace];
        let access = match random.below(4) {
            0 => Access::Write,
            1 => Access::Accumulate(random.pick(&ops)),
            _ => Access::ReadWrite,
        };
        if self.act(random, set, Action::Acquire { at, by, access }).is_none() {
            return;
        }
        self.make_room(random);
        if access == Access::ReadWrite {
            self.touch(by, set, at, false);
        }
        let end = match random.below(8) {
            0 if access != Access::Write => Action::Keep,
            1 => Action::Abort,
            2 => return,
            _ => Action::Commit,
        };
        if end != Action::Keep {
            self.touch(by, set, at, true);
        }
        self.make_room(random);
        let before = self.version;
        self.act(random, set, end).unwrap();
        assert_eq!(
            self.version - before,
            u64::from(end == Action::Commit && !set.and(self.of(Role::Owned)).is_empty())
        );
        if end == Action::Commit {
            self.adopt(set, at);
        }
    }

    /// Makes the values at `at` the ones that a read must see from now on.
    fn adopt(&mut self, set: PartSet, at: ReplicaId) {
        for part in set.iter().map(usize::from) {
            self.latest[part] = self.held[part][usize::from(at)];
        }
    }

    fn exchange(&mut self, random: &mut Random, at: ReplicaId, by: Who) {
        let exchange = random.pick(&[Exchange::Broadcast, Exchange::Reduce]);
        let all = PartSet::below(self.parts.len());
        let pending: Vec<bool> = self.parts.iter().map(|part| part.pending.is_some()).collect();
        if self.act(random, all, Action::Begin { at, by, exchange }).is_none() {
            return;
        }
        let (owned, ghosts) = (self.of(Role::Owned), self.of(Role::Ghost));
        let contributing = ghosts.iter().filter(|part| pending[usize::from(*part)]).collect();
        let (read, written) = match exchange {
            Exchange::Broadcast => (owned, ghosts),
            Exchange::Reduce => (contributing, owned),
        };
        self.touch(by, read, at, false);
        self.touch(by, written, at, true);
        self.make_room(random);
        let end = random.pick(&[Action::End, Action::End, Action::End, Action::Fail]);
        self.act(random, all, end).unwrap();
        if end == Action::End {
            self.adopt(written, at);
        }
    }

    /// Sometimes frees the memory of some parts while guards are alive.
    fn make_room(&mut self, random: &mut Random) {
        let (set, at) = (self.some(random), u8::try_from(random.below(PLACES.into())).unwrap());
        let is_read =
            |&(_, of, here): &(Lane, PartSet, ReplicaId)| here == at && !of.and(set).is_empty();
        if random.one_in(2) || self.guards.iter().any(is_read) {
            return;
        }
        if self.act(random, set, Action::MakeRoom { at }).is_some() {
            self.machine.evict(set, at);
        }
    }

    /// A set of parts that is not empty.
    fn some(&self, random: &mut Random) -> PartSet {
        let mut sets = subsets(self.parts.len());
        sets.nth(random.below((1 << self.parts.len()) - 1)).unwrap_or_default()
    }

    fn turn(&mut self, random: &mut Random) {
        let count = self.parts.len();
        let set = self.some(random);
        let at = u8::try_from(random.below(PLACES.into())).unwrap();
        let lanes = self.world.lanes[usize::from(at)];
        let by = match lanes.len() {
            0 if at == HOST => None,
            0 => return,
            _ if at == HOST && random.one_in(2) => None,
            _ => Some(random.pick(lanes)),
        };
        if !self.guards.is_empty() && random.one_in(2) {
            let (lane, set, at) = random.pick(&self.guards);
            self.touch(Some(lane), set, at, false);
        }
        let turn = random.below(16);
        if !(0..7).contains(&turn) {
            self.guards.clear();
        }
        match turn {
            0..6 => {
                if self.act(random, set, Action::Read { at, by }).is_some() {
                    self.touch(by, set, at, false);
                    self.guards.extend(by.map(|lane| (lane, set, at)));
                }
            }
            6 => {
                self.act(random, set, Action::Prefetch { at, by });
                self.make_room(random);
            }
            7..12 => self.write(random, set, at, by),
            12 => {
                if self.act(random, PartSet::below(count), Action::Evict { at }).is_some() {
                    self.machine.evict(PartSet::below(count), at);
                }
            }
            13 => {
                if let Some(lane) = by {
                    self.machine.drain(lane);
                    self.act(random, PartSet::below(count), Action::Forget { lane }).unwrap();
                    let mut bytes = self.parts.iter().flat_map(|part| part.bytes.iter());
                    let marked = |b: &Bytes| b.sources().union(b.readers).contains(lane);
                    assert!(!bytes.any(marked), "lane {lane} is not forgotten");
                }
            }
            _ => self.exchange(random, at, by),
        }
        self.machine.forget_done();
    }
}

fn run(world: World, roles: &[Role], programs: u64) {
    let mut reads = 0;
    for seed in 0..programs {
        let mut random = Random(seed);
        let mut program = Program::new(world, roles);
        for _ in 0..12 {
            program.turn(&mut random);
        }
        reads += program.parts.iter().filter(|part| part.health == Health::Good).count();
    }
    assert!(reads > 0, "no program got anywhere");
}

#[test]
fn programs_on_devices_that_are_no_peers() {
    run(apart(MANY), &[Role::Owned, Role::Owned, Role::Ghost], 60_000);
}

#[test]
fn programs_on_peers() {
    run(peers(MANY), &[Role::Owned, Role::Ghost, Role::Ghost], 60_000);
}

#[test]
fn programs_with_a_device_in_host_memory() {
    run(shared(MANY), &[Role::Owned, Role::Ghost], 60_000);
}

#[test]
fn programs_with_page_locked_host_memory() {
    let direct = [0, 2].into_iter().collect();
    run(locked(MANY, direct), &[Role::Owned, Role::Owned, Role::Ghost], 60_000);
}

#[test]
fn programs_whose_prefetches_are_prepared() {
    let [apart, peers] = [apart(MANY), peers(MANY)].map(|world| with_workers(world, &[1, 2]));
    run(apart, &[Role::Owned, Role::Owned, Role::Ghost], 60_000);
    run(peers, &[Role::Owned, Role::Ghost], 20_000);
}
