//! Which streams an object was used on: what must be done before it is given back.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::contract::DeviceStream;
use crate::device::same_device;
use crate::mark::Marks;
use crate::stream::StreamCore;
use crate::{Device, Result, Stream};

/// Streams whose ids are found without a lock.
const FAST: usize = 4;
/// Beyond this many streams, those that are done and dropped are forgotten.
const PRUNE_AT: usize = 16;

/// An object that captured work may use, and that the graph keeps then.
pub(crate) trait Used: Send + Sync {
    /// Notes a use by an enqueue on `stream`; call it before the enqueue.
    fn mark(&self, stream: &Stream);

    /// How far streams are with it, if the host can see its bytes.
    fn marks(&self) -> Option<&Marks>;
}

/// The streams an object was used on since it was made.
#[derive(Default)]
pub(crate) struct Uses {
    /// The object itself; `None` if it cannot be captured.
    owner: Option<Weak<dyn Used>>,
    ids: [AtomicU64; FAST],
    streams: Mutex<Vec<StreamUse>>,
}

#[derive(Clone)]
struct StreamUse {
    core: Arc<StreamCore>,
    /// A stream of another device keeps that device open; our own is kept by the object.
    keep: Option<Device>,
}

impl Uses {
    /// Of an object that captures keep.
    pub(crate) fn of(owner: Weak<dyn Used>) -> Self {
        Self { owner: Some(owner), ..Self::default() }
    }

    /// Notes a use by an enqueue on `stream`; call it before the enqueue. Takes no lock when the stream is one of the
    /// first few and known.
    #[inline]
    pub(crate) fn mark(&self, stream: &Stream, owner: &Device) {
        // A found id needs no ordering: it only says that the list, which the owner alone reads, has the stream.
        if self.ids.iter().all(|id| id.load(Ordering::Relaxed) != stream.core.id) {
            self.mark_new(stream, owner);
        }
    }

    #[cold]
    fn mark_new(&self, stream: &Stream, owner: &Device) {
        if let Some(capture) = &stream.core.capture {
            return capture.keep(self.owner.as_ref().and_then(Weak::upgrade));
        }
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.iter().any(|used| used.core.id == stream.core.id) {
            return;
        }
        if streams.len() >= PRUNE_AT {
            streams.retain(|used| !used.core.is_retired());
            // A stream that is being used cannot be retired, so no reader misses an id that it needs.
            for (slot, id) in self.ids.iter().enumerate() {
                id.store(streams.get(slot).map_or(0, |used| used.core.id), Ordering::Relaxed);
            }
        }
        let keep = (!same_device(stream.device(), owner)).then(|| stream.device().clone());
        streams.push(StreamUse { core: Arc::clone(&stream.core), keep });
        if let Some(id) = self.ids.get(streams.len() - 1) {
            id.store(stream.core.id, Ordering::Relaxed);
        }
    }

    /// Lets `stream` wait for every other stream noted, each of which is of a device that it reaches or of its own.
    pub(crate) fn order_before(&self, stream: &Stream, owner: &Device) -> Result<()> {
        let mut others = self.streams().into_iter().filter(|used| used.core.id != stream.core.id);
        others.try_for_each(|used| {
            if used.core.is_lent() {
                // Its owner may have it back already, so that nothing can be recorded there.
                return used.core.synchronize();
            }
            let event = used.keep.as_ref().unwrap_or(owner).raw().event_create(false)?;
            used.core.raw.record(&*event)?;
            stream.core.raw.wait(&*event)
        })
    }

    /// Calls `f` with every stream noted, without the lock, which other threads need to note theirs.
    pub(crate) fn with_streams<R>(&self, f: impl FnOnce(&[&dyn DeviceStream]) -> R) -> R {
        let streams = self.streams();
        let raw: Vec<&dyn DeviceStream> = streams.iter().map(|used| &*used.core.raw).collect();
        f(&raw)
    }

    fn streams(&self) -> Vec<StreamUse> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_streams(|streams| write!(f, "used on {} streams", streams.len()))
    }
}
