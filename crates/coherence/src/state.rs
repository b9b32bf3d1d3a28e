//! The state of an array.

use std::fmt;

use super::set::{PartSet, Set};

/// The number of a stream within one array. Streams of different devices never share a number.
pub type Lane = u8;
/// The number of a replica within one array.
pub type ReplicaId = u8;
/// The number of a part within one array.
pub type PartId = u8;
/// The user of an access: a stream, or the host itself. The host's work is finished when its guard ends.
pub type Who = Option<Lane>;

/// The replica in host memory.
pub const HOST: ReplicaId = 0;
/// The maximum number of replicas of an array, including the host's.
pub const REPLICAS: usize = 32;
/// The maximum number of parts of an array.
pub const PARTS: usize = 1 << PartId::BITS;
/// The maximum number of streams that an array tracks at once.
pub const LANES: usize = 63;
/// The number of replicas whose records are stored in the state itself. Most arrays have no others.
const NEAR: usize = 4;

/// How contributions are combined with the values that they are added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// The sum; contributions begin with 0.
    Sum,
    /// The minimum; contributions begin with the type's greatest value.
    Min,
    /// The maximum; contributions begin with the type's least value.
    Max,
    /// The contribution replaces the value. There is no neutral value, so all of the part must be written.
    Replace,
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Replace => "replace",
        })
    }
}

/// The role of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Its values are the array's own (*roots* of a star forest).
    Owned,
    /// Its values are copies of owned values, from here or from another process (*leaves*).
    Ghost,
}

/// Work on one replica's bytes that may still be running. It is dropped when the bytes are written, not when they
/// become invalid.
///
/// A record of a lane stands for all work that is on it at the time when another lane waits for it. So reads on the
/// writer's own lane need no record, and `readers` never contains the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bytes {
    /// The lane that last wrote the bytes, by a kernel or a copy; `None` once the host has seen that write finish.
    pub writer: Option<Lane>,
    /// The lanes that have read the bytes since, after waiting for the writer.
    pub readers: Set,
    /// Earlier lanes that the values came through, if the host has not seen them finish since. If work on one of them
    /// has failed, the values are lost. Empty if the replica is not valid and not being written.
    pub origins: Set,
}

impl Bytes {
    /// The streams whose failure makes the values doubtful.
    #[inline]
    pub fn sources(&self) -> Set {
        let mut all = self.origins;
        all.extend(self.writer);
        all
    }
}

/// For each replica, the work on one part's bytes that may still be running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Records {
    near: [Bytes; NEAR],
    /// Those of the other replicas, from the first change of one of these on.
    far: Option<Box<[Bytes; REPLICAS - NEAR]>>,
}

impl Records {
    #[inline]
    fn at(&self, at: ReplicaId) -> &Bytes {
        const NONE: Bytes = Bytes { writer: None, readers: Set::EMPTY, origins: Set::EMPTY };
        let at = usize::from(at);
        match &self.far {
            _ if at < NEAR => &self.near[at],
            Some(far) => &far[at - NEAR],
            None => &NONE,
        }
    }

    #[inline]
    fn at_mut(&mut self, at: ReplicaId) -> &mut Bytes {
        let at = usize::from(at);
        if at < NEAR {
            return &mut self.near[at];
        }
        &mut self.far.get_or_insert_default()[at - NEAR]
    }

    /// The records in the order of the replicas, without those at the end that never changed.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.near.iter().chain(self.far.iter().flat_map(|far| far.iter()))
    }

    /// As `iter`, to change the records.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Bytes> {
        self.near.iter_mut().chain(self.far.iter_mut().flat_map(|far| far.iter_mut()))
    }
}

/// The kind of a writing access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Old values are available and may be kept.
    ReadWrite,
    /// Every value is overwritten.
    Write,
    /// Contributions are added.
    Accumulate(Reduce),
}

/// The usability of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Never written.
    Uninit,
    /// Usable where `valid` says. A ghost part without a valid replica must be filled by an exchange.
    Good,
    /// A writer failed.
    Poisoned,
    /// A write guard was given out. If the guard is forgotten, the part stays in this state.
    Writing {
        /// The replica that the guard writes.
        at: ReplicaId,
        /// The kind of the write.
        access: Access,
        /// Owned values changed meanwhile, so the values written here are immediately stale.
        outdated: bool,
    },
    /// An exchange is in flight. If it is forgotten, the part stays in this state.
    Exchanging {
        /// The replica that the exchange uses.
        at: ReplicaId,
        /// Whether the exchange is a reduction.
        reduce: bool,
        /// Owned values changed meanwhile, so the values that arrive are immediately stale.
        outdated: bool,
    },
}

/// The state of one part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartState {
    /// Whether its values are the array's own.
    pub role: Role,
    /// Replicas that hold its values, or its contributions while a reduction is pending.
    pub valid: Set,
    /// Set if contributions in this ghost part wait to be combined with the owned values.
    pub pending: Option<Reduce>,
    /// Whether it can be used.
    pub health: Health,
    /// For each replica, the work on its bytes that may still be running.
    pub bytes: Records,
}

impl PartState {
    /// A part that was never written.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            valid: Set::EMPTY,
            pending: None,
            health: Health::Uninit,
            bytes: Records::default(),
        }
    }

    /// The replica that a write guard or an exchange uses.
    #[inline]
    pub fn user(&self) -> Option<ReplicaId> {
        match self.health {
            Health::Writing { at, .. } | Health::Exchanging { at, .. } => Some(at),
            Health::Uninit | Health::Good | Health::Poisoned => None,
        }
    }

    /// The work on the bytes of a replica.
    #[inline]
    pub fn bytes(&self, at: ReplicaId) -> &Bytes {
        self.bytes.at(at)
    }

    /// The work on the bytes of a replica, to change its record.
    #[inline]
    pub fn bytes_mut(&mut self, at: ReplicaId) -> &mut Bytes {
        self.bytes.at_mut(at)
    }
}

/// How bytes are copied between replicas.
#[derive(Clone, Copy, Debug)]
pub struct Paths {
    /// Replicas that the host can address.
    pub host: Set,
    /// For each replica, the replicas that it copies from without the host.
    pub peers: [Set; REPLICAS],
    /// For each replica on a device, the lane that copies from it, and to it for no lane in particular.
    pub lanes: [Lane; REPLICAS],
    /// The device for which the host's replica is page-locked. No device works in the host's memory then.
    pub locked: Option<ReplicaId>,
    /// The parts that streams of that device copy from and to the host's replica without the host.
    pub direct: PartSet,
    /// The devices whose streams copy from and to the host's replica when a prefetch asks for it, although it is not
    /// page-locked: a thread prepares the copies. No device works in the host's memory then.
    pub workers: Set,
    /// The devices between which a thread copies when a prefetch asks for it, if they do not reach each other.
    pub relays: Set,
    /// The replica that each lane works on.
    pub places: [ReplicaId; LANES],
}

impl Paths {
    /// The users that read `from` and write `to` in a copy for `by`, which uses `to`.
    ///
    /// The source is not read on its writer's lane: the failure of a copy would then count as the writer's.
    pub(crate) fn copiers(
        &self,
        part: PartId,
        (from, to): (ReplicaId, ReplicaId),
        by: Who,
    ) -> (Who, Who) {
        let peer = self.peers[usize::from(to)].contains(from);
        let source = self.lanes[usize::from(from)];
        let target = by.unwrap_or(self.lanes[usize::from(to)]);
        if self.is_direct(part, from, to) {
            // A prefetch to the host may name the device's stream that copies.
            let lane = if from == HOST { target } else { by.unwrap_or(source) };
            return (Some(lane), Some(lane));
        }
        let reads = if self.host.contains(from) && !peer { None } else { Some(source) };
        let writes = if self.host.contains(to) && !peer { None } else { Some(target) };
        (reads, writes)
    }

    /// Whether a device's stream copies between the device and the host's replica.
    #[inline]
    pub fn is_direct(&self, part: PartId, from: ReplicaId, to: ReplicaId) -> bool {
        let device = match (from, to) {
            (HOST, device) | (device, HOST) => device,
            _ => return false,
        };
        self.copies_alone(part, device) || self.workers.contains(device)
    }

    /// Whether a device's streams copy between the device and the host's replica, which is page-locked for it.
    #[inline]
    pub fn copies_alone(&self, part: PartId, device: ReplicaId) -> bool {
        self.locked == Some(device) && self.direct.contains(part)
    }

    /// Whether a lane uses the host's replica only in direct copies.
    #[inline]
    pub fn only_copies(&self, lane: Lane) -> bool {
        self.places[usize::from(lane)] != HOST
    }

    /// Whether a thread copies between two devices: their streams copy from and to memory of its own.
    #[inline]
    pub fn relayed(&self, from: ReplicaId, to: ReplicaId) -> bool {
        let both = self.relays.contains(from) && self.relays.contains(to);
        both && !self.peers[usize::from(to)].contains(from)
    }

    /// Whether a copy goes through the host, which waits for it.
    #[inline]
    pub fn staged(&self, part: PartId, from: ReplicaId, to: ReplicaId) -> bool {
        !self.peers[usize::from(to)].contains(from)
            && !self.is_direct(part, from, to)
            && !self.relayed(from, to)
    }
}

/// The reason why an action is refused. A refusal changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A part was never written.
    Uninit(PartId),
    /// A part's writer failed or was forgotten.
    Poisoned(PartId),
    /// A ghost part is out of date.
    Stale(PartId),
    /// A reduction is pending.
    Pending(PartId, Reduce),
    /// An exchange is in flight or was forgotten.
    Exchanging(PartId),
    /// No reduction is pending.
    NothingPending,
    /// The host's replica is the only one.
    LastReplica(PartId),
    /// The part has no write guard.
    NotWriting(PartId),
    /// A write guard or an exchange uses the part.
    InUse(PartId),
}
