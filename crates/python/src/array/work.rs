//! The streams that work on a memory, and the order of the calls that use it.

use std::cell::Cell;
use std::mem;
use std::ptr;
use std::sync::{
    Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};

use runtime::interchange::Access;
use runtime::{Device, Error, ErrorKind, Event, Stream};

use super::Part;
use crate::error::Result;
use crate::stream;

/// The streams that may have unfinished work on a memory block, and the calls that use it now.
#[derive(Default)]
pub(crate) struct Work {
    /// Shared by calls that enqueue work on named streams. A call that names none is alone from its ordering until its
    /// work is enqueued: otherwise two such calls would miss each other's work.
    turn: RwLock<()>,
    state: Mutex<State>,
    /// The only stream that may have unfinished work, if the memory is lent for one.
    bound: Option<Stream>,
}

#[derive(Default)]
struct State {
    streams: Vec<Stream>,
    /// The elements that running exchanges hold.
    held: Vec<Arc<Held>>,
}

struct Held {
    part: Part,
    others_may_read: bool,
}

/// Above this number of streams, idle streams are dropped from the list.
const PRUNE_AT: usize = 4;

impl Work {
    /// For memory that is lent for work on one stream.
    pub(crate) fn bound_to(stream: &Stream) -> Self {
        let state = State { streams: vec![stream.clone()], held: Vec::new() };
        Self { turn: RwLock::default(), state: Mutex::new(state), bound: Some(stream.clone()) }
    }

    /// Records that work was enqueued.
    pub(crate) fn used_on(&self, stream: &Stream) {
        self.note(stream, &mut Vec::new());
    }

    /// As `used_on`. Idle streams may be moved to `idle`, as by `busy`.
    fn note(&self, stream: &Stream, idle: &mut Vec<Stream>) {
        let len = {
            let streams = &mut crate::lock(&self.state).streams;
            if streams.contains(stream) {
                return;
            }
            streams.push(stream.clone());
            streams.len()
        };
        if len > PRUNE_AT {
            self.busy(idle);
        }
    }

    /// Orders work that is enqueued on `stream` from now on after the work enqueued so far.
    fn come_before(&self, stream: &Stream, idle: &mut Vec<Stream>) -> Result<()> {
        for other in self.busy(idle).iter().filter(|other| *other != stream) {
            stream.wait(&other.record_event()?)?;
        }
        Ok(())
    }

    /// The streams that have unfinished work. Idle streams are moved from the list to `idle`: the caller drops them
    /// when it holds no lock, because dropping the last handle of a stream may free objects that use other locks.
    fn busy(&self, idle: &mut Vec<Stream>) -> Vec<Stream> {
        let streams = &mut crate::lock(&self.state).streams;
        let is_busy = |stream: &Stream| !matches!(stream.is_done(), Ok(true));
        let (busy, done): (Vec<_>, Vec<_>) =
            mem::take(&mut *streams).into_iter().partition(is_busy);
        streams.clone_from(&busy);
        idle.extend(done);
        busy
    }
}

impl Part {
    /// Events after the work on the memory that was enqueued and has not finished, and how other libraries may use the
    /// elements after it.
    ///
    /// May block, so the caller must let other Python threads run.
    ///
    /// # Errors
    ///
    /// `Conflict` if an exchange holds the elements alone.
    pub(crate) fn unfinished(&self) -> Result<(Vec<Event>, Access)> {
        let (work, mut idle) = (&self.block.work, Vec::new());
        let _turn = (Lock::take(work, false)?, Nested::new());
        self.check_free(false)?;
        // Others may read the elements during an exchange, and the exchange then does, too.
        let may_write = !self.read_only && self.check_free(true).is_ok();
        let access = if may_write { Access::ReadWrite } else { Access::ReadOnly };
        let events: runtime::Result<_> =
            work.busy(&mut idle).iter().map(Stream::record_event).collect();
        Ok((events?, access))
    }

    /// Refuses a use of elements that an exchange holds.
    fn check_free(&self, writes: bool) -> Result<()> {
        let held = crate::lock(&self.block.work.state).held.clone();
        for held in held.iter().filter(|held| writes || !held.others_may_read) {
            let (mine, theirs) = (self.hold()?, held.part.hold()?);
            if self.view(&mine)?.overlaps(&held.part.view(&theirs)?) {
                let what = if held.others_may_read { "may only be read" } else { "is in use" };
                let message = format!("the array {what} until a halo exchange has ended");
                let error = Error::new(ErrorKind::Conflict, "array", message);
                return Err(error.on(self.block.device().id()).into());
            }
        }
        Ok(())
    }
}

/// The stream of an operation.
pub(crate) struct Chosen {
    pub(crate) stream: Stream,
    /// Whether all earlier work on the memories comes first, on any stream.
    is_ordered: bool,
}

impl Chosen {
    /// Chooses the stream for an operation on memories of a device. If a stream is given, only that stream orders the
    /// operation. Otherwise it is the stream that one of the memories is lent for, or this thread's current stream, or
    /// the device's default stream; all work on the memories then comes first.
    pub(crate) fn new(given: Option<&stream::Stream>, device: &Device, memories: &[&Work]) -> Self {
        let bound = memories.iter().find_map(|work| work.bound.clone()).filter(|_| given.is_none());
        let stream = bound.unwrap_or_else(|| stream::Stream::choose(given, device));
        Self { stream, is_ordered: given.is_none() }
    }

    /// Chooses the stream for an operation on one array.
    pub(crate) fn of(given: Option<&stream::Stream>, part: &Part) -> Self {
        Self::new(given, part.block.device(), &[&part.block.work])
    }

    pub(crate) fn reads<'a>(&'a self, part: &'a Part) -> Use<'a> {
        Use { on: self, work: &part.block.work, part: Some(part), writes: false }
    }

    pub(crate) fn writes<'a>(&'a self, part: &'a Part) -> Use<'a> {
        Use { writes: true, ..self.reads(part) }
    }

    /// The use of a memory that is no array of a device.
    pub(crate) fn uses<'a>(&'a self, work: &'a Work) -> Use<'a> {
        Use { on: self, work, part: None, writes: true }
    }
}

/// The use of a memory by an operation.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    on: &'a Chosen,
    work: &'a Work,
    part: Option<&'a Part>,
    writes: bool,
}

/// While this exists, the work of an operation is being enqueued.
#[must_use = "the work is noted once more when this is dropped"]
pub(crate) struct Turn<'a> {
    uses: Vec<Use<'a>>,
    _locks: Vec<Lock<'a>>,
    _nested: Nested,
    // Dropped after the locks.
    idle: Vec<Stream>,
}

/// Kept until it is dropped.
#[expect(dead_code, reason = "held")]
enum Lock<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl<'a> Lock<'a> {
    /// Waits for other threads. A thread that has a turn does not wait: it runs Python code within that turn, such as
    /// the deleter of an adopted array, and could be waiting for itself.
    ///
    /// # Errors
    ///
    /// `Conflict` instead of such a wait.
    fn take(work: &'a Work, alone: bool) -> Result<Self> {
        let turn = &work.turn;
        if TURNS.get() == 0 {
            return Ok(match alone {
                true => Self::Alone(turn.write().unwrap_or_else(PoisonError::into_inner)),
                false => Self::Shared(turn.read().unwrap_or_else(PoisonError::into_inner)),
            });
        }
        let taken = match alone {
            true => unless_taken(turn.try_write()).map(Self::Alone),
            false => unless_taken(turn.try_read()).map(Self::Shared),
        };
        taken.ok_or_else(|| {
            let message = "an operation that uses the array has called this code, and is not over";
            Error::new(ErrorKind::Conflict, "array", message).into()
        })
    }
}

fn unless_taken<T>(tried: TryLockResult<T>) -> Option<T> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

thread_local! {
    /// The number of turns that this thread has.
    static TURNS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a turn of this thread.
struct Nested;

impl Nested {
    fn new() -> Self {
        TURNS.set(TURNS.get() + 1);
        Self
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        TURNS.set(TURNS.get() - 1);
    }
}

impl<'a> Turn<'a> {
    /// Orders an operation that uses these memories, and notes it. To enqueue work without a turn is to race.
    ///
    /// Blocks while another thread enqueues work that must be ordered, so the caller must let other Python threads run.
    ///
    /// # Errors
    ///
    /// `Conflict` if an exchange holds elements, or if this thread has a turn and would have to wait for another one.
    pub(crate) fn take(uses: impl IntoIterator<Item = Use<'a>>) -> Result<Self> {
        Self::take_with(uses.into_iter().collect(), false)
    }

    fn take_with(mut uses: Vec<Use<'a>>, alone: bool) -> Result<Self> {
        // All threads lock in one order, and each lock once.
        uses.sort_by_key(|used| ptr::from_ref(used.work).addr());
        let of_work = |one: &Use<'_>, other: &Use<'_>| ptr::eq(one.work, other.work);
        let locks = uses.chunk_by(of_work).map(|same| {
            Lock::take(same[0].work, alone || same.iter().any(|used| used.on.is_ordered))
        });
        let (locks, mut idle) = (locks.collect::<Result<_>>()?, Vec::new());
        let nested = Nested::new();
        for used in &uses {
            used.part.map_or(Ok(()), |part| part.check_free(used.writes))?;
        }
        for used in uses.iter().filter(|used| used.on.is_ordered) {
            used.work.come_before(&used.on.stream, &mut idle)?;
        }
        // Noted before and after the work is enqueued: a check in between drops a stream that is idle.
        let mut turn = Self { uses, _locks: locks, _nested: nested, idle };
        turn.note();
        Ok(turn)
    }

    fn note(&mut self) {
        for used in &self.uses {
            used.work.note(&used.on.stream, &mut self.idle);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.note();
    }
}

/// While this exists, an exchange holds elements. Other operations that use them are refused.
#[must_use = "the elements are free when this is dropped"]
pub(crate) struct Hold<'a> {
    on: &'a Chosen,
    held: Vec<Arc<Held>>,
}

impl<'a> Hold<'a> {
    /// Holds the elements of `parts` for work on the stream. Ordered, blocking and failing as [`Turn::take`].
    pub(crate) fn new(on: &'a Chosen, parts: &[Part], others_may_read: bool) -> Result<Self> {
        let turn = Turn::take_with(parts.iter().map(|part| on.writes(part)).collect(), true)?;
        let held = parts.iter().map(|part| Arc::new(Held { part: part.clone(), others_may_read }));
        let held: Vec<_> = held.collect();
        for held in &held {
            crate::lock(&held.part.block.work.state).held.push(Arc::clone(held));
        }
        drop(turn);
        Ok(Self { on, held })
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        for held in &self.held {
            let work = &held.part.block.work;
            work.used_on(&self.on.stream);
            crate::lock(&work.state).held.retain(|other| !Arc::ptr_eq(other, held));
        }
    }
}
