//! Accesses that need no action: the content of the atomic mirror.

use super::set::{PartSet, Set};
use super::state::{
    HOST, Health, LANES, PartId, PartState, REPLICAS, Reduce, Refusal, ReplicaId, Role, Who,
};

/// The bit of the host in [`fast_readers`], above the bits of the lanes.
pub const HOST_BIT: u64 = 1 << LANES;
const _: () = assert!(LANES < 64);

/// What accesses to a part depend on in all parts of the array.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// The reduction that is pending in some ghost part, if any.
    pending: Option<Reduce>,
    /// Whether all ghost parts are stale. A committed write makes them stale, so nothing is left to do then.
    settled: bool,
}

impl Whole {
    /// Looks at all parts.
    pub fn of(parts: &[PartState]) -> Self {
        let stale = |part: &PartState| {
            part.valid.is_empty() && part.pending.is_none() && part.health == Health::Good
        };
        Self {
            pending: pending(parts),
            settled: parts.iter().all(|part| part.role == Role::Owned || stale(part)),
        }
    }
}

/// For each replica, the users that can read a part there without a wait, a copy or a new access record: bits of lanes,
/// and [`HOST_BIT`].
#[inline]
pub fn fast_readers(state: &PartState, whole: Whole) -> [u64; REPLICAS] {
    let mut users = [0; REPLICAS];
    if hindrance(state, 0, whole.pending).is_some() {
        return users;
    }
    for at in state.valid.iter() {
        let bytes = state.bytes(at);
        let host = if at == HOST && bytes.sources() == Set::EMPTY { HOST_BIT } else { 0 };
        let writer = bytes.writer.map_or(0, |lane| 1 << lane);
        users[usize::from(at)] = bytes.readers.bits() | writer | host;
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

/// The user that can write a part without an action: taking and committing the guard changes only the version.
#[inline]
pub fn owner(state: &PartState, whole: Whole) -> Option<Owner> {
    let at = state.valid.first()?;
    let bytes = state.bytes(at);
    let alone = state.valid == Set::one(at) && bytes.readers == Set::EMPTY;
    let who: Who = bytes.writer;
    let keeps = bytes.origins != Set::EMPTY;
    let fits = who.is_some() || at == HOST && !keeps;
    let is_owned = state.role == Role::Owned && whole.settled;
    let is_usable = is_owned && alone && fits && hindrance(state, 0, whole.pending).is_none();
    is_usable.then_some(Owner { at, who, keeps })
}

/// The reason why `part` cannot be read, if there is one.
pub fn readable(parts: &[PartState], part: PartId) -> Option<Refusal> {
    first_hindrance(parts, PartSet::one(part))
}

/// The reason why the first of these parts that cannot be read cannot be read.
pub(crate) fn first_hindrance(parts: &[PartState], set: PartSet) -> Option<Refusal> {
    let pending = pending(parts);
    set.iter().find_map(|part| hindrance(&parts[usize::from(part)], part, pending))
}

/// The reason why a part in this state cannot be read, while this reduction is pending in some part.
#[inline]
pub(crate) fn hindrance(
    state: &PartState,
    part: PartId,
    pending: Option<Reduce>,
) -> Option<Refusal> {
    let pending = if state.role == Role::Owned { pending } else { state.pending };
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
