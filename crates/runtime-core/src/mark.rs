//! The end of an object's latest use on each stream. The host waits for it before it accesses the object's bytes.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use smallvec::SmallVec;

use crate::contract::{DeviceEvent, EventOptions};
use crate::stream::StreamCore;
use crate::sync::lock;
use crate::{Device, Result, Stream};

/// The end of the latest use of an object on one stream. An event is recorded after each use; all uses on the stream
/// share this event.
pub(crate) struct Mark {
    stream: Arc<StreamCore>,
    /// The stream's id, here too because a search compares it.
    id: u64,
    /// `None` if the device could not create it.
    event: Option<Box<dyn DeviceEvent>>,
    /// Whether the end of a use was not recorded, because its enqueue panicked or recording failed. Then only the
    /// stream itself can report when the uses are done.
    is_lost: AtomicBool,
    // Dropped after the stream and the event, which may belong to another device than the object.
    device: Device,
}

impl Mark {
    pub(crate) fn new(stream: &Stream) -> Self {
        let device = stream.device().clone();
        let event = device.raw().event_create(&EventOptions::default()).ok();
        let (core, is_lost) = (Arc::clone(&stream.core), AtomicBool::new(false));
        Self { stream: core, id: stream.core.id, event, is_lost, device }
    }

    pub(crate) fn stream(&self) -> &Arc<StreamCore> {
        &self.stream
    }

    pub(crate) fn is_of(&self, stream: &Stream) -> bool {
        self.id == stream.core.id
    }

    /// The event at the end of all uses. `None` if it does not cover each of them.
    fn end(&self) -> Option<&dyn DeviceEvent> {
        self.event.as_deref().filter(|_| !self.is_lost.load(Ordering::Acquire))
    }

    /// Blocks until the uses are done.
    pub(crate) fn wait(&self) -> Result<()> {
        let waited = self.end().map_or_else(|| self.stream.drain(), |event| event.wait());
        waited.map_err(|e| self.device.place(e))
    }

    /// Makes work enqueued on `stream` from now on wait for the uses. Blocks only if their end is not recorded.
    pub(crate) fn hold_up(&self, stream: &Stream) -> Result<()> {
        match self.end() {
            Some(event) => stream.core.raw.wait(event).map_err(|e| stream.device().place(e)),
            None => self.wait(),
        }
    }

    /// Whether the uses are known to be done.
    pub(crate) fn is_over(&self) -> bool {
        match self.end() {
            Some(event) => matches!(event.query(), Ok(true)),
            None => self.stream.is_retired(),
        }
    }
}

/// A use whose end is not recorded yet. Dropping it without a record makes waits for the mark wait for the stream.
pub(crate) struct Begun<M: Deref<Target = Mark>> {
    mark: M,
    is_recorded: bool,
}

impl<M: Deref<Target = Mark>> Begun<M> {
    pub(crate) fn new(mark: M) -> Self {
        Self { mark, is_recorded: false }
    }

    /// Records the end of the use, after its enqueue succeeded or failed, because a driver may have begun the work in
    /// either case. Call it for one use of the mark at a time. Otherwise a thread could replace the record of another
    /// thread by an earlier one.
    pub(crate) fn end(mut self) {
        let recorded = |event| self.mark.stream.raw.record(event).is_ok();
        self.is_recorded = self.mark.event.as_deref().is_some_and(recorded);
    }
}

impl<M: Deref<Target = Mark>> Drop for Begun<M> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.mark.is_lost.store(true, Ordering::Release);
        }
    }
}

/// Whether a panic began since a thread was, or was not, `panicking`. Then no end is recorded, because a second panic
/// would abort the process. Destructors can enqueue work while their thread panics.
pub(crate) fn has_panicked_since(panicking: bool) -> bool {
    thread::panicking() && !panicking
}

/// When there are this many marks, those that are no longer needed are removed.
pub(crate) const PRUNE_AT: usize = 16;

/// Number of streams whose marks are found without a lock.
const FIRST: usize = 4;

/// Marks that a caller is waiting for, without a lock.
pub(crate) type Waiting = SmallVec<[Arc<Mark>; 4]>;

/// The latest use on each stream of a memory that the host can address.
#[derive(Default)]
pub(crate) struct Marks {
    /// The marks of the first streams, in order. They stay for as long as the memory.
    first: [OnceLock<Mark>; FIRST],
    others: Mutex<Vec<Arc<Mark>>>,
}

impl Marks {
    /// Registers a use by the next enqueue on `stream`, unless it is that of a capture, where nothing runs. Cold,
    /// because most memory has no marks.
    #[cold]
    pub(crate) fn begin<'a>(&'a self, stream: &'a Stream, in_use: &mut InUses<'a>) {
        if stream.core.capture.is_some() {
            return;
        }
        let known = self.first().find(|mark| mark.is_of(stream));
        let mark = known.map_or_else(|| self.add(stream), Held::First);
        in_use.begun.get_or_insert_with(BegunUses::new).uses.push(Begun::new(mark));
    }

    /// The mark of a stream that is not among the first, or a new one.
    #[cold]
    fn add(&self, stream: &Stream) -> Held<'_> {
        let mut others = lock(&self.others);
        // Another thread may have added it.
        let first = self.first.iter().map(|slot| slot.get_or_init(|| Mark::new(stream)));
        if let Some(mark) = first.into_iter().find(|mark| mark.is_of(stream)) {
            return Held::First(mark);
        }
        if others.len() >= PRUNE_AT {
            // A stream in use has a handle, so it is not retired.
            others.retain(|mark| !mark.stream.is_retired());
        }
        let known = others.iter().find(|mark| mark.is_of(stream)).map(Arc::clone);
        Held::Other(known.unwrap_or_else(|| {
            let mark = Arc::new(Mark::new(stream));
            others.push(Arc::clone(&mark));
            mark
        }))
    }

    /// Blocks until all uses are done.
    pub(crate) fn wait(&self) -> Result<()> {
        self.first().try_for_each(Mark::wait)?;
        // Without the lock, because other threads need it to enqueue work.
        self.others().iter().try_for_each(|mark| mark.wait())
    }

    /// Whether all uses are known to be done. Does not block.
    pub(crate) fn are_over(&self) -> bool {
        self.first().all(Mark::is_over) && self.others().iter().all(|mark| mark.is_over())
    }

    fn first(&self) -> impl Iterator<Item = &Mark> {
        self.first.iter().map_while(OnceLock::get)
    }

    fn others(&self) -> Waiting {
        match self.first[FIRST - 1].get() {
            None => Waiting::new(),
            Some(_) => lock(&self.others).iter().map(Arc::clone).collect(),
        }
    }
}

/// The mark of a use in progress.
enum Held<'a> {
    First(&'a Mark),
    Other(Arc<Mark>),
}

impl Deref for Held<'_> {
    type Target = Mark;

    fn deref(&self) -> &Mark {
        match self {
            Self::First(mark) => mark,
            Self::Other(mark) => mark,
        }
    }
}

/// The uses of memories by one enqueue. Their ends are recorded when it is dropped.
pub(crate) struct InUses<'a> {
    stream: &'a Stream,
    /// `None` for memory without marks, so that it costs little.
    begun: Option<BegunUses<'a>>,
}

struct BegunUses<'a> {
    /// Whether the thread was already panicking when the first use began.
    panicking: bool,
    uses: SmallVec<[Begun<Held<'a>>; 4]>,
}

impl BegunUses<'_> {
    fn new() -> Self {
        Self { panicking: thread::panicking(), uses: SmallVec::new() }
    }

    #[cold]
    fn end(&mut self, stream: &Stream) {
        if !has_panicked_since(self.panicking) {
            let _one_at_a_time = stream.core.recording();
            while let Some(begun) = self.uses.pop() {
                begun.end();
            }
        }
    }
}

impl<'a> InUses<'a> {
    /// No uses, by the next enqueue on `stream`.
    #[inline]
    pub(crate) fn new(stream: &'a Stream) -> Self {
        Self { stream, begun: None }
    }

    /// Records the ends of the uses, before the value is dropped.
    #[inline]
    pub(crate) fn end(&mut self) {
        if let Some(begun) = &mut self.begun
            && !begun.uses.is_empty()
        {
            begun.end(self.stream);
        }
    }
}

impl Drop for InUses<'_> {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}
