//! The end of an object's latest use on each stream. The host waits for it before it accesses the object's bytes.

use std::sync::{Arc, Mutex, MutexGuard};

use smallvec::SmallVec;

use crate::contract::{DeviceEvent, EventOptions};
use crate::stream::StreamCore;
use crate::sync::lock;
use crate::{Device, Result, Stream};

/// The end of the latest use of an object on one stream. An event is recorded after each use; all uses on the stream
/// share this event.
#[derive(Clone)]
pub(crate) struct Mark {
    stream: Arc<StreamCore>,
    event: Option<Arc<dyn DeviceEvent>>,
    /// The number of uses that have begun and whose end is not recorded, because their enqueue is still running or
    /// panicked, or because recording failed. While it is not 0, only the stream itself can report when they are done.
    begun: usize,
    // Dropped after the stream and the event, which may belong to another device than the object.
    device: Device,
}

impl Mark {
    pub(crate) fn new(stream: &Stream) -> Self {
        let core = Arc::clone(&stream.core);
        Self { stream: core, event: None, begun: 0, device: stream.device().clone() }
    }

    pub(crate) fn stream(&self) -> &Arc<StreamCore> {
        &self.stream
    }

    /// Registers a use. Call it before the enqueue.
    pub(crate) fn begin(&mut self) -> Began {
        self.begun += 1;
        Began { panicking: std::thread::panicking() }
    }

    /// Records the end of a use, after its enqueue succeeded or failed, because a driver may have begun the work in
    /// either case. If a panic began in between, it records nothing, because a second panic would abort the process.
    pub(crate) fn end(&mut self, began: Began) {
        if std::thread::panicking() && !began.panicking {
            return;
        }
        if self.event.is_none() {
            self.event =
                self.device.raw().event_create(&EventOptions::default()).ok().map(Arc::from);
        }
        if let Some(event) = &self.event
            && self.stream.raw.record(&**event).is_ok()
        {
            self.begun -= 1;
        }
    }

    /// Blocks until the uses are done.
    pub(crate) fn wait(&self) -> Result<()> {
        match &self.event {
            Some(event) if self.begun == 0 => event.wait(),
            _ => self.stream.drain(),
        }
        .map_err(|e| self.device.place(e))
    }

    /// Makes work enqueued on `stream` from now on wait for the uses. Blocks only if their end is not recorded.
    pub(crate) fn hold_up(&self, stream: &Stream) -> Result<()> {
        match &self.event {
            Some(event) if self.begun == 0 => {
                stream.core.raw.wait(&**event).map_err(|e| stream.device().place(e))
            }
            _ => self.wait(),
        }
    }

    /// Whether the uses are known to be done.
    pub(crate) fn is_over(&self) -> bool {
        match &self.event {
            Some(event) if self.begun == 0 => matches!(event.query(), Ok(true)),
            _ => self.stream.is_retired(),
        }
    }
}

/// The state at the beginning of a use.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    /// Whether the thread was already panicking: destructors can enqueue work.
    panicking: bool,
}

/// When there are this many marks, those that are no longer needed are removed.
pub(crate) const PRUNE_AT: usize = 16;

/// Marks that a caller is waiting for, copied so that no lock is needed.
pub(crate) type Waiting = SmallVec<[Mark; 4]>;

/// The latest use on each stream of a memory that the host can address.
#[derive(Default)]
pub(crate) struct Marks(Mutex<Vec<Mark>>);

impl Marks {
    /// Registers a use by the next enqueue on `stream`. Its end is recorded when the result is dropped. `None` in a
    /// capture, where nothing runs. Cold, because most memory has no marks.
    #[cold]
    pub(crate) fn begin<'a>(&'a self, stream: &'a Stream) -> Option<InUse<'a>> {
        if stream.core.capture.is_some() {
            return None;
        }
        let mut marks = self.lock();
        if marks.len() >= PRUNE_AT {
            marks.retain(|mark| !mark.is_over());
        }
        let index = position(&marks, stream).unwrap_or_else(|| {
            marks.push(Mark::new(stream));
            marks.len() - 1
        });
        let began = marks[index].begin();
        Some(InUse { marks: self, stream, began })
    }

    /// Blocks until all uses are done.
    pub(crate) fn wait(&self) -> Result<()> {
        // Without the lock, because other threads need it to enqueue work.
        let marks: Waiting = self.lock().iter().cloned().collect();
        marks.iter().try_for_each(Mark::wait)
    }

    /// Whether all uses are known to be done. Does not block.
    pub(crate) fn are_over(&self) -> bool {
        self.lock().iter().all(Mark::is_over)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mark>> {
        lock(&self.0)
    }
}

fn position(marks: &[Mark], stream: &Stream) -> Option<usize> {
    marks.iter().position(|mark| mark.stream.id == stream.core.id)
}

/// A use of a memory by an enqueue in progress.
pub(crate) struct InUse<'a> {
    marks: &'a Marks,
    stream: &'a Stream,
    began: Began,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let mut marks = self.marks.lock();
        if let Some(index) = position(&marks, self.stream) {
            marks[index].end(self.began);
        }
    }
}

/// Uses by one enqueue.
pub(crate) type InUses<'a> = SmallVec<[InUse<'a>; 4]>;
