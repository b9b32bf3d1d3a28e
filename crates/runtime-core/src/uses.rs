//! The streams that an object was used on. Their work must be done before the object is freed.
#![expect(unsafe_code, reason = "gives objects back to their device")]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::contract::{DeviceStream, EventOptions, Released};
use crate::device::same_device;
use crate::mark::Marks;
use crate::stream::StreamCore;
use crate::sync::lock;
use crate::{Device, Result, Stream};

/// Number of streams whose ids are found without a lock.
const FAST: usize = 4;
/// Beyond this many streams, those that are done and dropped are removed.
const PRUNE_AT: usize = 16;

/// An object that captured work may use. The graph then keeps it alive.
pub(crate) trait Used: Send + Sync {
    /// Registers a use by an enqueue on `stream`. Call it before the enqueue.
    fn mark(&self, stream: &Stream);

    /// The progress of streams that use the object, if the host can see its bytes.
    fn marks(&self) -> Option<&Marks>;
}

/// The streams that an object was used on since it was created.
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
    /// Keeps the device of the stream open if it is another device. The object itself keeps its own device open.
    keep: Option<Device>,
}

impl Uses {
    /// The uses of an object that captures keep alive.
    pub(crate) fn of(owner: Weak<dyn Used>) -> Self {
        Self { owner: Some(owner), ..Self::default() }
    }

    /// The object.
    pub(crate) fn owner(&self) -> Option<Weak<dyn Used>> {
        self.owner.clone()
    }

    /// Registers a use by an enqueue on `stream`. Call it before the enqueue. Takes no lock if the stream is one of the
    /// first few and already registered.
    #[inline]
    pub(crate) fn mark(&self, stream: &Stream, owner: &Device) {
        // A matching id needs no memory ordering: it only shows that the stream is in the list, which only the owner
        // reads.
        if self.ids.iter().all(|id| id.load(Ordering::Relaxed) != stream.core.id) {
            self.mark_new(stream, owner);
        }
    }

    #[cold]
    fn mark_new(&self, stream: &Stream, owner: &Device) {
        if let Some(capture) = &stream.core.capture {
            return capture.keep(self.owner.as_ref().and_then(Weak::upgrade));
        }
        let mut streams = lock(&self.streams);
        if streams.iter().any(|used| used.core.id == stream.core.id) {
            return;
        }
        if streams.len() >= PRUNE_AT {
            streams.retain(|used| !used.core.is_retired());
            // A stream in use cannot be retired, so no reader misses an id that it needs.
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

    /// Makes `stream` wait for every other registered stream. Each of them belongs to the stream's own device or to a
    /// device that it reaches.
    pub(crate) fn order_before(&self, stream: &Stream, owner: &Device) -> Result<()> {
        if let Some(capture) = &stream.core.capture {
            return Err(capture.refuse("order_before"));
        }
        let mut others = self.streams().into_iter().filter(|used| used.core.id != stream.core.id);
        others.try_for_each(|used| {
            if used.core.is_foreign() {
                // Its owner may already have destroyed it, so nothing can be recorded there.
                return used.core.drain();
            }
            let event =
                used.keep.as_ref().unwrap_or(owner).raw().event_create(&EventOptions::default())?;
            used.core.raw.record(&*event)?;
            stream.core.raw.wait(&*event)
        })
    }

    /// Gives an object back to the device that made it, to be released after the work on every registered stream. The
    /// lock is not held, because other threads need it to register streams.
    ///
    /// # Safety
    ///
    /// `device` made the object. Every stream on which it was used is registered, and it is not used again.
    pub(crate) unsafe fn release(&self, device: &Device, object: Released) {
        let streams = self.streams();
        let after: Vec<&dyn DeviceStream> = streams.iter().map(|used| &*used.core.raw).collect();
        // SAFETY: the caller guarantees the object. All work on it is on these streams.
        unsafe { device.raw().release(object, &after) };
    }

    fn streams(&self) -> Vec<StreamUse> {
        lock(&self.streams).clone()
    }
}

impl fmt::Debug for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "used on {} streams", self.streams().len())
    }
}
