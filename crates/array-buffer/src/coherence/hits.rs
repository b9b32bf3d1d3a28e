//! Which accesses need nothing: what the atomic mirror of the state holds.

use super::set::{Set, SmallSet};
use super::state::{HOST, Health, LANES, PartId, PartState, Reduce, Refusal, ReplicaId, Role, Who};

/// The bit of the host in [`hits`], beyond that of every lane.
pub(crate) const HOST_BIT: u32 = 1 << 31;
const _: () = assert!(LANES < 31);

/// Who can read `part` at `at` without a wait, a copy or a new mark: bits of lanes, and [`HOST_BIT`].
pub(crate) fn hits(parts: &[PartState], part: PartId, at: ReplicaId) -> u32 {
    let state = &parts[usize::from(part)];
    if readable(parts, part).is_some() || !state.valid.contains(at) {
        return 0;
    }
    let bytes = state.bytes(at);
    let host = if at == HOST && bytes.doubts() == SmallSet::EMPTY { HOST_BIT } else { 0 };
    let writer = bytes.writer.map_or(0, |lane| 1 << lane);
    bytes.readers.bits() | writer | host
}

/// A part whose only valid replica was last touched by one user, who can write it again without a wait or a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) at: ReplicaId,
    pub(crate) who: Who,
    /// Whether the values depend on streams that an overwrite makes them independent of: it is not for free.
    pub(crate) keeps: bool,
}

/// Who can write `part` so that taking and committing the guard leaves the state as it is, but for the version.
pub(crate) fn owner(parts: &[PartState], part: PartId) -> Option<Owner> {
    let state = &parts[usize::from(part)];
    let at = state.valid.first()?;
    let bytes = state.bytes(at);
    let alone = state.valid == Set::one(at) && bytes.readers == SmallSet::EMPTY;
    let who: Who = bytes.writer;
    let keeps = bytes.origins != SmallSet::EMPTY;
    let fits = who.is_some() || at == HOST && !keeps;
    // A committed write makes ghosts stale: nothing is left to do if they are.
    let settled = |other: &PartState| {
        other.role == Role::Owned
            || other.valid.is_empty() && other.pending.is_none() && other.health == Health::Good
    };
    let settled = state.role == Role::Owned && parts.iter().all(settled);
    (readable(parts, part).is_none() && alone && fits && settled).then_some(Owner {
        at,
        who,
        keeps,
    })
}

/// Why `part` cannot be read, if it cannot.
pub(crate) fn readable(parts: &[PartState], part: PartId) -> Option<Refusal> {
    let state = &parts[usize::from(part)];
    let pending = if state.role == Role::Owned { pending(parts) } else { state.pending };
    match (state.health, pending) {
        (Health::Uninit, _) => Some(Refusal::Uninit(part)),
        (Health::Poisoned | Health::Writing { .. }, _) => Some(Refusal::Poisoned(part)),
        (Health::Exchanging { .. }, _) => Some(Refusal::Exchanging(part)),
        (Health::Good, Some(op)) => Some(Refusal::Pending(part, op)),
        (Health::Good, None) if state.valid.is_empty() => Some(Refusal::Stale(part)),
        (Health::Good, None) => None,
    }
}

/// The reduction that is pending in some ghost part.
pub(crate) fn pending(parts: &[PartState]) -> Option<Reduce> {
    parts.iter().find_map(|part| part.pending)
}
