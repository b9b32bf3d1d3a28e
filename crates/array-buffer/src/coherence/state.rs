//! What is remembered of a buffer.

use std::fmt;

use super::set::{Set, SmallSet};

/// A stream's number in one buffer. Streams of different devices never share one.
pub(crate) type Lane = u8;
/// A storage location's number in one buffer.
pub(crate) type ReplicaId = u8;
/// A part's number in one buffer.
pub(crate) type PartId = u8;
/// Who enqueues or acts: a stream, or the host itself, whose acts are over when the guard is.
pub(crate) type Who = Option<Lane>;

/// The replica in host memory.
pub(crate) const HOST: ReplicaId = 0;
/// Most replicas of a buffer, the host's among them.
pub(crate) const REPLICAS: usize = 10;
/// Most parts of a buffer.
pub(crate) const PARTS: usize = 64;
/// Most streams that a buffer remembers at once.
pub(crate) const LANES: usize = 16;

/// How contributions are combined with what they are added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// The sum; contributions begin with 0.
    Sum,
    /// The minimum; contributions begin with the type's greatest value.
    Min,
    /// The maximum; contributions begin with the type's least value.
    Max,
    /// The contribution itself. There is no neutral value, so all of it must be written.
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

/// What a part is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// Its values are the array's own (*roots* of a star forest).
    Owned,
    /// Its values are copies of owned ones, here or in another process (*leaves*).
    Ghost,
}

/// Work on one replica's bytes that may still be running. It is forgotten when the bytes are written, not when they
/// become invalid.
///
/// A mark on a lane stands for everything enqueued there so far, whoever waits for it later. So reads on the writer's
/// own lane need no mark, and `readers` never has the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bytes {
    /// Who wrote them last, by a kernel or a copy; none once the host has seen that write done.
    pub(crate) writer: Option<Lane>,
    /// Who reads them since then, having waited for the writer.
    pub(crate) readers: SmallSet,
    /// Streams before the writer's that the values came through, if the host has not seen them done since: the values
    /// are lost if work on one of them has failed. Empty where nothing is valid or being written.
    pub(crate) origins: SmallSet,
}

impl Bytes {
    /// The streams whose failure makes the values doubtful.
    pub(crate) fn doubts(&self) -> SmallSet {
        let mut all = self.origins;
        all.extend(self.writer);
        all
    }
}

/// The kind of a writing access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// Old values are there, and may be kept.
    ReadWrite,
    /// Every value is overwritten.
    Write,
    /// Contributions are added.
    Accumulate(Reduce),
}

/// Whether a part can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Health {
    /// Never written.
    Uninit,
    /// As its valid replicas say. Without any, a ghost part that an exchange must fill.
    Good,
    /// A writer failed.
    Poisoned,
    /// A write guard was given out; it stays so if the guard is forgotten.
    Writing {
        at: ReplicaId,
        access: Access,
        /// Owned values changed meanwhile, so that what is written here is stale at once.
        outdated: bool,
    },
    /// An exchange is in flight; it stays so if that is forgotten.
    Exchanging { at: ReplicaId, reduce: bool, outdated: bool },
}

/// What is remembered of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartState {
    pub(crate) role: Role,
    /// Replicas that hold its values, or its contributions while a reduction is pending.
    pub(crate) valid: Set,
    /// The contributions of a ghost part wait to be combined with the values they belong to.
    pub(crate) pending: Option<Reduce>,
    pub(crate) health: Health,
    pub(crate) bytes: [Bytes; REPLICAS],
}

impl PartState {
    /// A part that was never written.
    pub(crate) fn new(role: Role) -> Self {
        Self {
            role,
            valid: Set::EMPTY,
            pending: None,
            health: Health::Uninit,
            bytes: [Bytes::default(); REPLICAS],
        }
    }

    pub(crate) fn bytes(&self, at: ReplicaId) -> &Bytes {
        &self.bytes[usize::from(at)]
    }

    pub(crate) fn bytes_mut(&mut self, at: ReplicaId) -> &mut Bytes {
        &mut self.bytes[usize::from(at)]
    }
}

/// How bytes get from replica to replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths {
    /// Replicas that the host addresses.
    pub(crate) host: Set,
    /// For each replica, those it copies from without the host.
    pub(crate) peers: [SmallSet; REPLICAS],
    /// For each replica of a device, the lane of that device's default stream.
    pub(crate) lanes: [Lane; REPLICAS],
}

impl Paths {
    /// Who reads `from` and who writes `to` in a copy for somebody who is `to`'s user.
    pub(crate) fn copiers(
        &self,
        from: ReplicaId,
        to: ReplicaId,
        writer: Option<Lane>,
        by: Who,
    ) -> (Who, Who) {
        let peer = self.peers[usize::from(to)].contains(from);
        // The writer's own lane needs no wait.
        let source = writer.unwrap_or(self.lanes[usize::from(from)]);
        let reads = if self.host.contains(from) && !peer { None } else { Some(source) };
        let target = by.unwrap_or(self.lanes[usize::from(to)]);
        let writes = if self.host.contains(to) && !peer { None } else { Some(target) };
        (reads, writes)
    }

    /// Whether bytes go through the host.
    pub(crate) fn staged(&self, from: ReplicaId, to: ReplicaId) -> bool {
        !self.peers[usize::from(to)].contains(from)
    }
}

/// Why an action is refused; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// A part was never written.
    Uninit(PartId),
    /// A part's writer failed or was forgotten.
    Poisoned(PartId),
    /// A ghost part is out of date.
    Stale(PartId),
    /// A reduction is pending.
    Pending(PartId, Reduce),
    /// An exchange is in flight, or was forgotten.
    Exchanging(PartId),
    /// There is nothing to reduce.
    NothingPending,
    /// The host's replica is the last one.
    LastReplica(PartId),
    /// No write guard is out.
    NotWriting(PartId),
}
