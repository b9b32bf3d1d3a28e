//! The numbers of replicas and lanes mean nothing: a plan with other numbers in the same order is the same plan.

use super::super::state::{Bytes, HOST, Health};
use super::super::{Action, Refusal, ReplicaId, Step, Who, plan};
use super::*;

/// The greatest numbers, and those next to where the records of a state are stored in another way.
fn replica(at: ReplicaId) -> ReplicaId {
    [HOST, 4, 31][usize::from(at)]
}

fn lane(lane: Lane) -> Lane {
    lane + 58
}

fn who(who: Who) -> Who {
    who.map(lane)
}

fn replicas(set: Set) -> Set {
    set.iter().map(replica).collect()
}

fn lanes(set: Set) -> Set {
    set.iter().map(lane).collect()
}

fn paths(of: &Paths) -> Paths {
    let mut renamed = Paths {
        host: replicas(of.host),
        peers: [Set::EMPTY; REPLICAS],
        lanes: [0; REPLICAS],
        locked: of.locked.map(replica),
        direct: of.direct,
        workers: replicas(of.workers),
        relays: replicas(of.relays),
        places: [HOST; LANES],
    };
    for at in 0..PLACES {
        let to = usize::from(replica(at));
        renamed.peers[to] = replicas(of.peers[usize::from(at)]);
        renamed.lanes[to] = lane(of.lanes[usize::from(at)]);
    }
    for number in 0..5 {
        renamed.places[usize::from(lane(number))] = replica(of.places[usize::from(number)]);
    }
    renamed
}

fn part(of: &PartState) -> PartState {
    let mut renamed = PartState::new(of.role);
    (renamed.valid, renamed.pending) = (replicas(of.valid), of.pending);
    renamed.health = match of.health {
        Health::Writing { at, access, outdated } => {
            Health::Writing { at: replica(at), access, outdated }
        }
        Health::Exchanging { at, reduce, outdated } => {
            Health::Exchanging { at: replica(at), reduce, outdated }
        }
        known => known,
    };
    for at in 0..PLACES {
        let Bytes { writer, readers, origins } = *of.bytes(at);
        *renamed.bytes_mut(replica(at)) =
            Bytes { writer: who(writer), readers: lanes(readers), origins: lanes(origins) };
    }
    renamed
}

fn parts(of: &[PartState]) -> Vec<PartState> {
    of.iter().map(part).collect()
}

fn action(of: Action) -> Action {
    match of {
        Action::Read { at, by } => Action::Read { at: replica(at), by: who(by) },
        Action::Acquire { at, by, access } => {
            Action::Acquire { at: replica(at), by: who(by), access }
        }
        Action::Prefetch { at, by } => Action::Prefetch { at: replica(at), by: who(by) },
        Action::Evict { at } => Action::Evict { at: replica(at) },
        Action::MakeRoom { at } => Action::MakeRoom { at: replica(at) },
        Action::Begin { at, by, exchange } => {
            Action::Begin { at: replica(at), by: who(by), exchange }
        }
        Action::Lost { lane: of } => Action::Lost { lane: lane(of) },
        Action::Forget { lane: of } => Action::Forget { lane: lane(of) },
        other => other,
    }
}

fn step(of: Step) -> Step {
    match of {
        Step::Wait { who: waits, on } => Step::Wait { who: who(waits), on: lane(on) },
        Step::See { part, on, origins } => {
            Step::See { part, on: lane(on), origins: lanes(origins) }
        }
        Step::Copy { part, from, to, reads, writes } => {
            let (from, to) = (replica(from), replica(to));
            Step::Copy { part, from, to, reads: who(reads), writes: who(writes) }
        }
        Step::Fill { part, at, by, op } => Step::Fill { part, at: replica(at), by: who(by), op },
    }
}

/// Plans the action with other numbers, and compares the plans.
pub(super) fn check(
    before: &[PartState],
    set: PartSet,
    asked: Action,
    along: &Paths,
    planned: &Result<super::super::Plan, Refusal>,
) {
    let other = plan(&parts(before), set, action(asked), &paths(along));
    match (planned, other) {
        (Ok(planned), Ok(other)) => {
            let steps: Vec<Step> = planned.steps.iter().copied().map(step).collect();
            assert_eq!((steps, planned.committed), (other.steps, other.committed), "{asked:?}");
            assert_eq!(parts(&planned.next), other.next, "{asked:?}");
        }
        (Err(refusal), other) => assert_eq!(Some(*refusal), other.err(), "{asked:?}"),
        (Ok(_), Err(other)) => panic!("{asked:?}: {other:?}"),
    }
}
