//! Accesses that need no action: the content of the atomic mirror.

use super::set::Set;
use super::state::{
    HOST, Health, LANES, PartId, PartState, REPLICAS, Reduce, Refusal, ReplicaId, Role, Who,
};

/// The bit of the host in [`fast_readers`], above the bits of the lanes.
pub const HOST_BIT: u64 = 1 << LANES;
const _: () = assert!(LANES < 64);

/// For each replica, the users that can read `part` there without a wait, a copy or a new access record: bits of lanes,
/// and [`HOST_BIT`].
#[inline]
pub fn fast_readers(parts: &[PartState], part: PartId) -> [u64; REPLICAS] {
    let state = &parts[usize::from(part)];
    let mut users = [0; REPLICAS];
    if readable(parts, part).is_some() {
        return users;
    }
    for at in state.valid.iter() {
        let bytes = state.bytes(at);
        let host = if at == HOST && bytes.sources() == Set::EMPTY { HOST_BIT } else { 0 };
        let writer = bytes.writer.map_or(0, |lane| 1 << lane);
        users[usize::from(at)] = bytes.readers.0 | writer | host;
    }
    users
}

/// The only user of a part's only valid replica. This user can write the part again without a wait or a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The replica.
    pub at: ReplicaId,
    /// The user.
    pub who: Who,
    /// Whether the values depend on other streams. An overwrite ends this dependence, so it needs an action.
    pub keeps: bool,
}

/// The user that can write `part` without an action: taking and committing the guard changes only the version.
#[inline]
pub fn owner(parts: &[PartState], part: PartId) -> Option<Owner> {
    let state = &parts[usize::from(part)];
    let at = state.valid.first()?;
    let bytes = state.bytes(at);
    let alone = state.valid == Set::one(at) && bytes.readers == Set::EMPTY;
    let who: Who = bytes.writer;
    let keeps = bytes.origins != Set::EMPTY;
    let fits = who.is_some() || at == HOST && !keeps;
    if state.role != Role::Owned || !alone || !fits || readable(parts, part).is_some() {
        return None;
    }
    // A committed write makes ghosts stale. If they are stale already, nothing is left to do.
    let settled = |other: &PartState| {
        other.role == Role::Owned
            || other.valid.is_empty() && other.pending.is_none() && other.health == Health::Good
    };
    parts.iter().all(settled).then_some(Owner { at, who, keeps })
}

/// The reason why `part` cannot be read, if there is one.
#[inline]
pub fn readable(parts: &[PartState], part: PartId) -> Option<Refusal> {
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

/// The reduction that is pending in some ghost part, if any.
#[inline]
pub(crate) fn pending(parts: &[PartState]) -> Option<Reduce> {
    parts.iter().find_map(|part| part.pending)
}
