//! An atomic mirror of the state. It serves accesses that need no action, without a lock.
//!
//! Only [`Core`](crate::core) writes the words, under the state's lock, from [`fast_readers`] and [`owner`]. A write
//! that needs no action leaves the state unchanged. It is recorded in `writing`, where the next thread that takes the
//! lock finds it.
//!
//! Streams are given by their numbers. An order without a comment is `Relaxed`: the lock, an exclusive borrow or a
//! stronger order orders that access. `cargo xtask mutants orders` weakens the others.

use std::panic::Location;

use coherence::{
    Access, HOST, HOST_BIT, LANES, Lane, PartId, PartSet, PartState, REPLICAS, ReplicaId, Who,
    Whole, fast_readers, owner, take_up,
};

// Those of the parent module: tests replace them.
use super::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub(crate) struct Mirror {
    parts: Box<[PartMirror]>,
    /// Streams with their lanes and replicas. The search begins at an index derived from the stream's number. 0 means
    /// that the entry is empty and always was.
    lanes: [AtomicU64; ENTRIES],
    /// The number of replicas that streams work on, or more.
    replicas: AtomicUsize,
    /// How often a stream was removed.
    removals: AtomicU64,
    /// The number of reported failures of the process, as far as the state includes their effects.
    failures: AtomicU64,
    /// Whether few lanes are left.
    crowded: AtomicBool,
    /// What else writes do, as bits. It changes only while the array is borrowed exclusively.
    extras: AtomicU8,
    /// Replicas whose accesses all need the state, as bits. It changes only while the array is borrowed exclusively.
    hidden: AtomicU32,
}

#[derive(Default)]
struct PartMirror {
    /// For each replica, the users that can read it without any action, as bits.
    readers: [AtomicU64; REPLICAS],
    /// The user that can write without any action, the replica, and whether this holds only if the old values are kept.
    owner: AtomicU32,
    /// The access of a write guard that was taken in the mirror.
    writing: AtomicU8,
    /// Whether all readers need the state, because copies are running. For the holder of the state's lock.
    running: AtomicBool,
    /// The address of the source location of the last write.
    call_site: AtomicUsize,
}

/// Each overwrite is checked for completeness.
pub(crate) const CHECKS: u8 = 1;
/// Each committed write is copied to a home.
pub(crate) const HOME: u8 = 2;
/// An access that wrote nothing may end as a write, because ghosts are refreshed.
pub(crate) const REFRESHED: u8 = 4;

const READ_WRITE: u8 = 1;
const WRITE: u8 = 2;
/// The number of bits for the replica in a stream's word, and also for the lane.
const BITS: u32 = 6;
/// The number of entries for streams.
const ENTRIES: usize = 1 << BITS;
const _: () = assert!(REPLICAS <= 1 << BITS && LANES <= ENTRIES);
/// A removed entry: the search continues after it.
const GONE: u64 = u64::MAX;

/// The indices where a stream's word may be, the likeliest first.
#[inline]
fn places(stream: u64) -> impl Iterator<Item = usize> {
    let [first, ..] = stream.to_le_bytes();
    (0..ENTRIES).map(move |step| (usize::from(first) + step) % ENTRIES)
}

/// The number in the lowest bits of a stream's word.
#[inline]
fn field(word: u64) -> u8 {
    let [low, ..] = word.to_le_bytes();
    low & ((1 << BITS) - 1)
}

#[inline]
fn owner_word(at: ReplicaId, who: Who) -> u32 {
    let lane = who.map_or(u32::from(u8::MAX), u32::from);
    1 << 16 | u32::from(at) << 8 | lane
}

/// The bit of an owner's word that says that an overwrite needs an action.
const KEEPS: u32 = 1 << 17;

impl Mirror {
    pub(crate) fn new(parts: usize) -> Self {
        Self {
            parts: (0..parts).map(|_| PartMirror::default()).collect(),
            lanes: std::array::from_fn(|_| AtomicU64::new(0)),
            replicas: AtomicUsize::new(1),
            removals: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            crowded: AtomicBool::new(false),
            extras: AtomicU8::new(0),
            hidden: AtomicU32::new(0),
        }
    }

    /// The number of heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.parts)
    }

    /// Whether the published state includes the effects of this number of reported failures. Otherwise the caller must
    /// use the state.
    #[inline]
    pub(crate) fn includes(&self, failures: u64) -> bool {
        // Acquires what was published.
        self.failures.load(Ordering::Acquire) == failures
    }

    /// The published state includes the effects of this number of reported failures.
    pub(crate) fn include(&self, failures: u64) {
        // Releases what was published.
        self.failures.store(failures, Ordering::Release);
    }

    /// Whether few lanes are left. For the thread that borrows the array exclusively.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    pub(crate) fn set_crowded(&self, crowded: bool) {
        self.crowded.store(crowded, Ordering::Relaxed);
    }

    /// Whether writes do more than usual. No write then begins in the mirror.
    pub(crate) fn has_extras(&self) -> bool {
        self.extras.load(Ordering::Relaxed) != 0
    }

    /// Whether writes do something of [`CHECKS`], [`HOME`] and [`REFRESHED`].
    pub(crate) fn has_extra(&self, extra: u8) -> bool {
        self.extras.load(Ordering::Relaxed) & extra != 0
    }

    /// The caller publishes the state afterwards.
    pub(crate) fn set_extra(&self, extra: u8, on: bool) {
        match on {
            true => self.extras.fetch_or(extra, Ordering::Relaxed),
            false => self.extras.fetch_and(!extra, Ordering::Relaxed),
        };
    }

    /// Writes do what they do with `other`.
    pub(crate) fn take_extras(&self, other: &Self) {
        self.extras.store(other.extras.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether accesses refresh ghosts.
    #[inline]
    pub(crate) fn is_refreshed(&self) -> bool {
        self.has_extra(REFRESHED)
    }

    /// Lets all accesses in a replica use the state from now on.
    pub(crate) fn hide(&self, at: ReplicaId) {
        self.hidden.fetch_or(1 << at, Ordering::Relaxed);
    }

    /// Lets all readers of these parts use the state, and those of other parts no longer. Returns whether that changes
    /// anything; then the caller publishes the state.
    pub(crate) fn set_running(&self, parts: PartSet) -> bool {
        let set = |(part, known): (PartId, &PartMirror)| {
            known.running.swap(parts.contains(part), Ordering::Relaxed) != parts.contains(part)
        };
        (0..=PartId::MAX).zip(&self.parts).map(set).fold(false, |any, changed| any | changed)
    }

    /// Whether only the borrower of an array that is borrowed exclusively uses the state. Otherwise arrays with the
    /// same memory budget do, too.
    #[inline]
    pub(crate) fn is_private(&self) -> bool {
        self.hidden.load(Ordering::Relaxed) == 0
    }

    /// The lane and replica of a known stream.
    #[inline]
    pub(crate) fn lane(&self, stream: u64) -> Option<(Lane, ReplicaId)> {
        for place in places(stream) {
            // With the release in `set_lane`: the bits of the lane's earlier stream are gone.
            let word = self.lanes[place].load(Ordering::Acquire);
            if word >> (2 * BITS) == stream {
                return Some((field(word >> BITS), field(word)));
            }
            if word == 0 {
                return None;
            }
        }
        None
    }

    /// Adds a stream, unless it is known. There are more entries than lanes. Returns whether the stream was added.
    pub(crate) fn set_lane(&self, lane: Lane, stream: u64, at: ReplicaId) -> bool {
        let word = stream << (2 * BITS) | u64::from(lane) << BITS | u64::from(at);
        let free = |place: &usize| matches!(self.lanes[*place].load(Ordering::Relaxed), 0 | GONE);
        let place = places(stream).find(free).filter(|_| self.lane(stream).is_none());
        if let Some(place) = place {
            self.lanes[place].store(word, Ordering::Release);
            self.replicas.fetch_max(usize::from(at) + 1, Ordering::Relaxed);
        }
        place.is_some()
    }

    /// Lets the streams of one replica work in another. The array is borrowed exclusively.
    pub(crate) fn move_lanes(&self, from: ReplicaId, to: ReplicaId) {
        for known in &self.lanes {
            let word = known.load(Ordering::Relaxed);
            if !matches!(word, 0 | GONE) && field(word) == from {
                known.store(word ^ u64::from(from) | u64::from(to), Ordering::Relaxed);
            }
        }
    }

    /// Removes a lane's stream. The caller publishes the state before another stream gets the lane.
    pub(crate) fn clear_lane(&self, lane: Lane) {
        let of_lane = |word: u64| !matches!(word, 0 | GONE) && field(word >> BITS) == lane;
        let known = self.lanes.iter().find(|word| of_lane(word.load(Ordering::Relaxed)));
        if let Some(word) = known {
            word.store(GONE, Ordering::Relaxed);
            let removals = self.removals.load(Ordering::Relaxed);
            // Releases the removal.
            self.removals.store(removals + 1, Ordering::Release);
        }
    }

    /// The replica where the parts can be read on `stream` without any action.
    #[inline]
    pub(crate) fn read(&self, set: &PartSet, stream: u64) -> Option<ReplicaId> {
        // A constant array forgets idle streams while others read it, so the lane may be another stream's by now. Then
        // the bits that `readable` acquires were published after a removal that is not in `removals`.
        let removals = self.removals.load(Ordering::Acquire);
        let (lane, at) = self.lane(stream)?;
        let readable = self.readable(set, at, 1 << lane);
        (readable && self.removals.load(Ordering::Relaxed) == removals).then_some(at)
    }

    /// Whether the host can read the parts without any action.
    #[inline]
    pub(crate) fn read_host(&self, set: &PartSet) -> bool {
        self.readable(set, HOST, HOST_BIT)
    }

    #[inline(always)]
    fn readable(&self, set: &PartSet, at: ReplicaId, bit: u64) -> bool {
        set.all(|part| {
            let part = &self.parts[usize::from(part)];
            // Acquire in this order: if the record of a forgotten write has moved to the state, its readers are gone.
            // Acquire also the values, which another thread may have copied.
            part.writing.load(Ordering::Acquire) == 0
                && part.readers[usize::from(at)].load(Ordering::Acquire) & bit != 0
        })
    }

    /// Takes the parts for writing if that needs no action. On `false`, the caller must use the state. `alone`: the
    /// array is borrowed exclusively until the guard ends. Without `alone`, sets of several parts are left to the
    /// state.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        set: &PartSet,
        at: ReplicaId,
        who: Who,
        access: Access,
        call_site: &'static Location<'static>,
        alone: bool,
    ) -> bool {
        let code = match access {
            Access::ReadWrite => READ_WRITE,
            Access::Write => WRITE,
            Access::Accumulate(_) => return false,
        };
        let word = owner_word(at, who);
        let ignored = if code == READ_WRITE { KEEPS } else { 0 };
        let owns = |known: u32| known & !ignored == word;
        let call_site = std::ptr::from_ref(call_site).addr();
        let free = |part: u8| {
            let part = &self.parts[usize::from(part)];
            owns(part.owner.load(Ordering::Relaxed))
                && part.call_site.load(Ordering::Relaxed) == call_site
                && part.writing.load(Ordering::Relaxed) == 0
        };
        if alone {
            // No other thread can look before the guard ends.
            return set.all(free)
                && set.all(|part| {
                    self.parts[usize::from(part)].writing.store(code, Ordering::Relaxed);
                    true
                });
        }
        // Another thread could see the records of only some of several parts.
        let Some(part) = set.only().filter(|part| free(*part)) else { return false };
        let known = &self.parts[usize::from(part)];
        // This exchange and those of `take_up` have one order. If `take_up` is later, it finds the record. If it is
        // earlier, this acquires the owner word that was published before it.
        known.writing.swap(code, Ordering::Acquire);
        // Another thread may have changed the state meanwhile. If it found the record, the guard is now in the state.
        owns(known.owner.load(Ordering::Relaxed)) || !self.release(part, false)
    }

    /// Ends writes that began in the mirror. Returns the parts whose writes have moved to the state, if there are any.
    #[inline(always)]
    pub(crate) fn release_all(&self, set: &PartSet, alone: bool) -> Option<PartSet> {
        let (mut any, mut moved) = (false, PartSet::EMPTY);
        set.all(|part| {
            if !self.release(part, alone) {
                any = true;
                moved.insert(part);
            }
            true
        });
        any.then_some(moved)
    }

    /// Ends a write that began in the mirror; `false` if the write has moved to the state.
    #[inline(always)]
    pub(crate) fn release(&self, part: u8, alone: bool) -> bool {
        let writing = &self.parts[usize::from(part)].writing;
        if alone {
            let was = writing.load(Ordering::Relaxed);
            writing.store(0, Ordering::Relaxed);
            return was != 0;
        }
        writing.swap(0, Ordering::Relaxed) != 0
    }

    /// Moves writes that began in the mirror to the state. Returns whether the state must be published.
    pub(crate) fn take_up(&self, state: &mut [PartState]) -> bool {
        let mut any = false;
        for (mirror, part) in self.parts.iter().zip(state) {
            let writing = &mirror.writing;
            // Releases what was published, to later records.
            if writing.compare_exchange(0, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
                continue;
            }
            any = true;
            // From here on, a thread that finds no record must not mistake a forgotten write for an ended one.
            mirror.readers.iter().for_each(|readers| readers.store(0, Ordering::Relaxed));
            mirror.owner.store(0, Ordering::Relaxed);
            match writing.swap(0, Ordering::Release) {
                READ_WRITE => take_up(part, Access::ReadWrite),
                WRITE => take_up(part, Access::Write),
                // It has ended meanwhile.
                _ => {}
            }
        }
        any
    }

    /// Publishes the state. A write that began in the mirror meanwhile becomes part of the state.
    pub(crate) fn show(&self, state: &mut [PartState]) {
        self.publish(state);
        while self.take_up(state) {
            self.publish(state);
        }
    }

    pub(crate) fn set_site(&self, part: u8, call_site: &'static Location<'static>) {
        let address = std::ptr::from_ref(call_site).addr();
        self.parts[usize::from(part)].call_site.store(address, Ordering::Relaxed);
    }

    /// Publishes a state. Writes that began in the mirror stay there.
    pub(crate) fn publish(&self, state: &[PartState]) {
        let (hidden, has_extras) = (self.hidden.load(Ordering::Relaxed), self.has_extras());
        let is_shown = |at: ReplicaId| hidden & (1 << at) == 0;
        let used = self.replicas.load(Ordering::Relaxed);
        let whole = Whole::of(state);
        for (part, mirror) in state.iter().zip(&self.parts) {
            let users = fast_readers(part, whole);
            let running = mirror.running.load(Ordering::Relaxed);
            for ((at, readers), users) in (0..).zip(&mirror.readers[..used]).zip(users) {
                // Releases the values that they may read.
                let users = if is_shown(at) && !running { users } else { 0 };
                readers.store(users, Ordering::Release);
            }
            let owner = owner(part, whole).filter(|owner| is_shown(owner.at) && !has_extras);
            let word = owner.map_or(0, |owner| {
                owner_word(owner.at, owner.who) | if owner.keeps { KEEPS } else { 0 }
            });
            mirror.owner.store(word, Ordering::Relaxed);
        }
    }
}
