//! The streams that work on a memory, and the order of the calls that use it.

use std::cell::Cell;
use std::ptr;
use std::sync::{
    Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};

use pyo3::Python;
use runtime::interchange::Access;
use runtime::{Device, Error, ErrorKind, Event, Stream};

use super::Part;
use crate::current::here;
use crate::error::Result;
use crate::{fork, stream, wait};

/// The streams that may have unfinished work on a memory block, and the calls that use it now.
#[derive(Default)]
pub(crate) struct Work {
    /// A call is alone from its ordering until its work is enqueued: otherwise two calls would miss each other's work.
    /// Shared by relaxed calls, which order nothing.
    turn: RwLock<()>,
    state: Mutex<State>,
    /// The only stream that may have unfinished work, if the memory is lent for one.
    bound: Option<Stream>,
}

#[derive(Default)]
struct State {
    streams: Vec<StreamUse>,
    /// How often a call found work of another stream, as far as it matters.
    switches: usize,
    /// The elements that running exchanges hold.
    held: Vec<Arc<Held>>,
}

/// The work of one stream on a memory since it was last written in order.
#[derive(Clone)]
struct StreamUse {
    stream: Stream,
    writes: bool,
    /// Whether work that is enqueued on the stream comes after the work of all other streams that write.
    is_ordered: bool,
    /// The end of its last work that writes, and of its last work. Without an event, all work of the stream counts.
    write_end: Option<Event>,
    end: Option<Event>,
}

impl StreamUse {
    fn end(&self, all: bool) -> Option<&Event> {
        if all { self.end.as_ref() } else { self.write_end.as_ref() }
    }

    /// Whether its work is known to be done, or that which writes.
    fn is_done(&self, all: bool) -> bool {
        let done = self.end(all).map_or_else(|| self.stream.is_done(), Event::is_done);
        matches!(done, Ok(true))
    }

    /// Records new work, and its end once it is enqueued.
    fn add(&mut self, writes: bool, end: Option<&Event>) {
        self.writes |= writes;
        self.end = end.cloned();
        if writes {
            self.write_end = end.cloned();
        }
    }
}

/// From this number of switches between streams on, the ends of work on a memory are recorded. Before, a stream that
/// waits for another waits for all of its work. Programs that use one stream at a time need no events.
const SHARED_AT: usize = 2;

impl State {
    /// The work of a stream.
    fn of(&mut self, stream: &Stream) -> &mut StreamUse {
        let known = self.streams.iter().position(|used| used.stream == *stream);
        let place = known.unwrap_or_else(|| {
            let is_ordered = self.streams.iter().all(|used| !used.writes);
            let (stream, writes, write_end, end) = (stream.clone(), false, None, None);
            self.streams.push(StreamUse { stream, writes, is_ordered, write_end, end });
            self.streams.len() - 1
        });
        &mut self.streams[place]
    }
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
        let work = Self { bound: Some(stream.clone()), ..Self::default() };
        work.written_on(stream);
        work
    }

    /// Records that work which writes was enqueued.
    pub(crate) fn written_on(&self, stream: &Stream) {
        self.note(stream, true, None, &mut Vec::new());
    }

    /// The streams that have unfinished work.
    pub(super) fn busy(&self) -> Vec<Stream> {
        let state = crate::lock(&self.state);
        let busy = state.streams.iter().filter(|used| !used.is_done(true));
        busy.map(|used| used.stream.clone()).collect()
    }

    /// Whether streams take turns at the memory.
    fn is_shared(&self) -> bool {
        crate::lock(&self.state).switches >= SHARED_AT
    }

    /// Records work, and its end once it is enqueued. Idle streams may be moved to `idle`, as by `unfinished`.
    fn note(&self, stream: &Stream, writes: bool, end: Option<&Event>, idle: &mut Vec<Stream>) {
        let len = {
            let state = &mut *crate::lock(&self.state);
            state.of(stream).add(writes, end);
            if writes {
                // The others have not waited for this work.
                state.streams.iter_mut().for_each(|used| used.is_ordered &= used.stream == *stream);
            }
            state.streams.len()
        };
        if len > PRUNE_AT {
            drop(self.unfinished(None, true, idle));
        }
    }

    /// Orders work that is enqueued on `stream` from now on after the work enqueued so far: after that which writes,
    /// and after all of it if the new work `writes`. Then records the new work.
    fn come_before(&self, stream: &Stream, writes: bool, idle: &mut Vec<Stream>) -> Result<()> {
        {
            let streams = &mut crate::lock(&self.state).streams;
            let is_alone = streams.iter().all(|used| used.stream == *stream);
            let own = streams.iter_mut().find(|used| used.stream == *stream);
            if let Some(own) = own.filter(|own| own.is_ordered && (is_alone || !writes)) {
                own.add(writes, None);
                return Ok(());
            }
        }
        for end in self.unfinished(Some(stream), writes, idle) {
            stream.wait(&end.event()?)?;
        }
        let state = &mut *crate::lock(&self.state);
        state.switches += usize::from(!state.streams.is_empty());
        if writes {
            // Work that comes after this stream's comes after theirs, too.
            let others = state.streams.extract_if(.., |used| used.stream != *stream);
            idle.extend(others.map(|used| used.stream));
        }
        let own = state.of(stream);
        own.is_ordered = true;
        own.add(writes, None);
        Ok(())
    }

    /// The ends of unfinished work of streams other than `own`: of all work, or of such as writes. Idle streams are
    /// moved from the list to `idle`: the caller drops them when it holds no lock, because dropping the last handle of
    /// a stream may free objects that use other locks.
    fn unfinished(&self, own: Option<&Stream>, all: bool, idle: &mut Vec<Stream>) -> Vec<End> {
        let streams = &mut crate::lock(&self.state).streams;
        let counts = |used: &StreamUse| Some(&used.stream) != own && (all || used.writes);
        let is_done = |used: &mut StreamUse| counts(used) && used.is_done(all);
        if all {
            idle.extend(streams.extract_if(.., is_done).map(|used| used.stream));
        } else {
            streams.iter_mut().filter_map(|used| is_done(used).then_some(used)).for_each(|used| {
                (used.writes, used.write_end) = (false, None);
            });
        }
        let end = |used: &StreamUse| match used.end(all) {
            Some(event) => End::Event(event.clone()),
            None => End::Stream(used.stream.clone()),
        };
        streams.iter().filter(|used| counts(used)).map(end).collect()
    }
}

/// The end of work.
enum End {
    Event(Event),
    /// That of all work on the stream.
    Stream(Stream),
}

impl End {
    fn event(self) -> runtime::Result<Event> {
        match self {
            Self::Event(event) => Ok(event),
            Self::Stream(stream) => stream.record_event(),
        }
    }
}

impl Work {
    /// Waits for the work that the host is about to wait for: that which writes, or `all`. Can be interrupted.
    pub(crate) fn wait_ahead(&self, all: bool) -> Result<()> {
        fork::check("wait")?;
        let mut idle = Vec::new();
        let ends = {
            let _turn = (Lock::take(self, false)?, Nested::new());
            self.unfinished(None, all, &mut idle)
        };
        Ok(wait::ahead(ends.into_iter().map(End::event))?)
    }
}

impl Part {
    /// Waits for the work that the host is about to wait for when it reads the elements. Can be interrupted.
    pub(crate) fn wait_ahead(&self, on: &Chosen) -> Result<()> {
        if on.is_ordered {
            self.block.work.wait_ahead(false)?;
        }
        Ok(wait::ahead_of(&on.stream)?)
    }

    /// Events after the work on the memory that was enqueued and has not finished, and how other libraries may use the
    /// elements after it.
    ///
    /// May block, so the caller must let other Python threads run.
    ///
    /// # Errors
    ///
    /// `Conflict` if an exchange holds the elements alone.
    pub(crate) fn unfinished(&self) -> Result<(Vec<Event>, Access)> {
        fork::check("array")?;
        let (work, mut idle) = (&self.block.work, Vec::new());
        let _turn = (Lock::take(work, false)?, Nested::new());
        self.check_free(false)?;
        // Others may read the elements during an exchange, and the exchange then does, too.
        let may_write = !self.read_only && self.check_free(true).is_ok();
        let access = if may_write { Access::ReadWrite } else { Access::ReadOnly };
        let ends = work.unfinished(None, may_write, &mut idle).into_iter();
        let events: runtime::Result<_> = ends.map(End::event).collect();
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

/// What the caller of an operation says of its stream.
#[derive(Clone)]
pub(crate) struct Asked<'a> {
    stream: Option<&'a stream::Stream>,
    /// The current stream.
    here: Option<Stream>,
    is_relaxed: bool,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(
        py: Python<'_>,
        stream: Option<&'a stream::Stream>,
        is_relaxed: bool,
    ) -> Result<Self> {
        Ok(Self { stream, here: here(py)?, is_relaxed })
    }

    /// For a caller that names no stream.
    pub(crate) fn nothing(py: Python<'_>) -> Result<Self> {
        Self::new(py, None, false)
    }

    pub(crate) fn on(stream: &'a stream::Stream, is_relaxed: bool) -> Self {
        Self { stream: Some(stream), here: None, is_relaxed }
    }

    /// As if the caller named no stream.
    pub(crate) fn unnamed(&self) -> Self {
        Self { stream: None, here: self.here.clone(), is_relaxed: false }
    }
}

/// The stream of an operation.
pub(crate) struct Chosen {
    pub(crate) stream: Stream,
    /// Whether earlier work on the memories, on any stream, comes first.
    is_ordered: bool,
}

impl Chosen {
    /// Chooses the stream for an operation on memories of a device: the given one, or that for which one of the
    /// memories is lent, or the current stream, or the device's default stream.
    pub(crate) fn new(asked: Asked<'_>, device: &Device, memories: &[&Work]) -> Self {
        let Asked { stream: given, here, is_relaxed } = asked;
        let bound = memories.iter().find_map(|work| work.bound.clone()).filter(|_| given.is_none());
        let stream = bound.unwrap_or_else(|| stream::Stream::choose(given, here, device));
        Self { stream, is_ordered: !is_relaxed }
    }

    /// Chooses the stream for an operation on one array.
    pub(crate) fn of(asked: Asked<'_>, part: &Part) -> Self {
        Self::new(asked, part.block.device(), &[&part.block.work])
    }

    pub(crate) fn reads<'a>(&'a self, part: &'a Part) -> Use<'a> {
        Use { on: self, work: &part.block.work, part: Some(part), writes: false, may_write: false }
    }

    pub(crate) fn writes<'a>(&'a self, part: &'a Part) -> Use<'a> {
        Use { writes: true, may_write: true, ..self.reads(part) }
    }

    /// The use of an array by code that does not declare whether it writes.
    pub(crate) fn may_write<'a>(&'a self, part: &'a Part) -> Use<'a> {
        Use { may_write: !part.read_only, ..self.reads(part) }
    }

    /// The use of a memory that is no array of a device.
    pub(crate) fn uses<'a>(&'a self, work: &'a Work, writes: bool) -> Use<'a> {
        Use { on: self, work, part: None, writes, may_write: writes }
    }
}

/// The use of a memory by an operation.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    on: &'a Chosen,
    work: &'a Work,
    part: Option<&'a Part>,
    /// Whether the operation writes elements that an exchange may hold.
    writes: bool,
    /// Whether other work must be ordered as if the operation writes.
    may_write: bool,
}

impl Use<'_> {
    /// Whether the stream is one of the memory's device. The runtime refuses other streams.
    fn is_on_device(&self) -> bool {
        self.part.is_none_or(|part| part.block.device().is_same(self.on.stream.device()))
    }
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
        fork::check("array")?;
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
        uses.retain(Use::is_on_device);
        for used in uses.iter().filter(|used| used.on.is_ordered) {
            used.work.come_before(&used.on.stream, used.may_write, &mut idle)?;
        }
        for used in uses.iter().filter(|used| !used.on.is_ordered) {
            used.work.note(&used.on.stream, used.may_write, None, &mut idle);
        }
        Ok(Self { uses, _locks: locks, _nested: nested, idle })
    }
}

impl Drop for Turn<'_> {
    /// Notes the end of the work. Relaxed calls of several threads may end in another order than they began, so they
    /// note none.
    fn drop(&mut self) {
        let mut ends: Vec<(&Stream, Option<Event>)> = Vec::new();
        for used in &self.uses {
            let stream = &used.on.stream;
            if !used.on.is_ordered {
                used.work.note(stream, used.may_write, None, &mut self.idle);
            } else if used.work.is_shared() {
                let known = ends.iter().position(|(known, _)| *known == stream);
                let place = known.unwrap_or_else(|| {
                    ends.push((stream, stream.record_event().ok()));
                    ends.len() - 1
                });
                let end = ends[place].1.as_ref();
                used.work.note(stream, used.may_write, end, &mut self.idle);
            }
        }
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
            work.written_on(&self.on.stream);
            crate::lock(&work.state).held.retain(|other| !Arc::ptr_eq(other, held));
        }
    }
}
