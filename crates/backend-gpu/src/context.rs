//! The context of a device, which all of its opened instances share. The library's calls go through it, and it records
//! whether it works.
#![expect(unsafe_code, reason = "makes contexts current, and uses events through the library")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{mem, thread};

use backend_support::{POLL_TIMEOUT, lock};
use runtime_core::{DeviceId, Error, ErrorKind, Result};

use crate::api::Api;
use crate::handle;
use crate::raw_stream::RawStream;
use crate::vendor::{Vendor, error};

/// The maximum number of events kept for reuse.
const MAX_SPARE: usize = 64;

/// The context of a device, or a context that another library owns.
#[derive(Debug)]
pub struct Context<V: Vendor> {
    /// The library.
    pub api: &'static V::Api,
    /// The number of the device.
    pub ordinal: usize,
    /// The library's handle of the device.
    pub device: c_int,
    /// The place that calls make current.
    pub place: usize,
    /// Whether another library owns the context. It then keeps the context for as long as this object exists.
    borrowed: bool,
    /// The code of the fault that made the context unusable; 0 while it works.
    broken: AtomicU32,
    /// A number that no other context has, not even a later one of the device.
    number: u64,
    /// The numbers of contexts for which direct access has been tried, whether or not it is possible.
    peers: Mutex<Vec<u64>>,
    /// Unused events.
    spare: Mutex<Vec<handle::Event>>,
}

impl<V: Vendor> Context<V> {
    /// Opens the context of a device. It lives as long as an object of this crate holds it.
    ///
    /// # Errors
    ///
    /// `DeviceLost` while lost instances of the device are held, or if a fault in this process is permanent.
    pub(crate) fn open(api: &'static V::Api, id: &DeviceId) -> Result<Arc<Self>> {
        let ordinal = id.index();
        let lost = |message: &str| Error::new(ErrorKind::DeviceLost, "open", message).on(id);
        let mut in_use = loop {
            // SAFETY: contexts get only codes of the library.
            let in_use = lock(unsafe { V::in_use() });
            let found = in_use.iter().find(|(used, _)| *used == ordinal).map(|(_, c)| c.upgrade());
            // The last owner needs the list to release the context, and this thread may now be the last owner.
            match found {
                None => break in_use,
                Some(context) => {
                    drop(in_use);
                    match context {
                        Some(context) if context.fault().is_none() => return Ok(context),
                        Some(_) => {
                            return Err(lost("an instance that was lost is still held; drop it"));
                        }
                        None => {}
                    }
                }
            }
            thread::yield_now();
        };
        let failed = |code| error::<V>(api, "open", code, V::WORDS.broken).on(id);
        let (device, place) = V::retain(api, ordinal).map_err(|code| {
            if !V::is_sticky(code) {
                return failed(code);
            }
            // There is no other context that could be lost.
            lost(V::WORDS.lost_for_good).with_driver(api.name(code), code.into())
        })?;
        let context = Arc::new(Self::of(api, ordinal, device, place, false));
        in_use.push((ordinal, Arc::downgrade(&context)));
        drop(in_use);
        match context.probe() {
            Ok(()) => {
                V::opened(&context);
                Ok(context)
            }
            Err(code) => Err(match V::stays_lost(code) {
                Some(message) => lost(message).with_driver(api.name(code), code.into()),
                None => failed(code),
            }),
        }
    }

    /// A context that another library owns.
    ///
    /// # Errors
    ///
    /// The library's code, if the context does not work.
    ///
    /// # Safety
    ///
    /// The place is a context of that device, and stays one for as long as the result exists.
    pub(crate) unsafe fn borrowed(
        api: &'static V::Api,
        ordinal: usize,
        device: c_int,
        place: usize,
    ) -> Result<Arc<Self>, u32> {
        let context = Self::of(api, ordinal, device, place, true);
        context.probe()?;
        V::opened(&context);
        Ok(Arc::new(context))
    }

    fn of(
        api: &'static V::Api,
        ordinal: usize,
        device: c_int,
        place: usize,
        borrowed: bool,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (broken, peers, spare) = Default::default();
        Self { api, ordinal, device, place, borrowed, broken, number, peers, spare }
    }

    /// Checks whether the context works.
    pub(crate) fn probe(&self) -> Result<(), u32> {
        self.memory().map(drop)
    }

    /// The number of free bytes of memory, and the total number of bytes.
    pub(crate) fn memory(&self) -> Result<(usize, usize), u32> {
        self.outside_captures(V::Api::memory_info)
    }

    /// The range of priorities in the contract's terms, where larger numbers are more urgent. A single priority if the
    /// library does not report the range.
    pub(crate) fn priorities(&self) -> Result<(i32, i32), u32> {
        self.bind()?;
        match self.api.priority_range() {
            Ok((least, greatest)) => Ok((-least, -greatest)),
            Err(code) if code == V::NOT_SUPPORTED => Ok((0, 0)),
            Err(code) => Err(code),
        }
    }

    /// Makes the context current in the thread and leaves it current. Other code in the thread may have made another
    /// context current since the last call. A query costs less than a change, so each call queries and changes the
    /// context only if needed.
    ///
    /// # Errors
    ///
    /// The library's code.
    #[inline]
    pub fn bind(&self) -> Result<(), u32> {
        if self.api.current() == Ok(self.place) {
            return Ok(());
        }
        // SAFETY: the context is retained, or its owner keeps it.
        unsafe { self.api.make_current(self.place) }
    }

    /// Makes a call that waits, queries, allocates, loads or frees, with the context current. Captures of other code in
    /// this process do not affect the call: they do not forbid it, and it does not end them.
    ///
    /// # Errors
    ///
    /// The library's code.
    pub fn outside_captures<T>(
        &self,
        call: impl FnOnce(&V::Api) -> Result<T, u32>,
    ) -> Result<T, u32> {
        self.bind()?;
        let mut mode = V::Api::RELAXED;
        let relaxed = self.api.exchange_capture_mode(&mut mode).is_ok();
        let outcome = call(self.api);
        if relaxed {
            // This cannot fail, because the thread had the mode before.
            let _ = self.api.exchange_capture_mode(&mut mode);
        }
        outcome
    }

    /// The code of the fault that broke the context.
    #[inline]
    pub fn fault(&self) -> Option<u32> {
        match self.broken.load(Ordering::Acquire) {
            0 => None,
            code => Some(code),
        }
    }

    /// How long to poll after a wait that failed: not at all once the context is broken.
    pub(crate) fn poll_timeout(&self) -> Duration {
        self.fault().map_or(POLL_TIMEOUT, |_| Duration::ZERO)
    }

    /// Whether the work of a query is finished, if its outcome says so. Work is finished when it is done, or when the
    /// context is broken.
    pub(crate) fn finished(&self, outcome: Result<(), u32>) -> Option<bool> {
        match outcome {
            Ok(()) => Some(true),
            Err(code) if code == V::NOT_READY => Some(false),
            Err(_) => {
                self.note(outcome);
                self.fault().map(|_| true)
            }
        }
    }

    /// Records a code that shows that the context is unusable. Some codes say so themselves. Any other code counts only
    /// if a separate call on the context returns the same code or one that says so.
    #[inline]
    pub fn note<T>(&self, outcome: Result<T, u32>) {
        if let Err(code) = outcome
            && self.fault().is_none()
        {
            self.judge(code);
        }
    }

    #[cold]
    fn judge(&self, code: u32) {
        let says_nothing =
            code == V::NOT_READY || code == V::OUT_OF_MEMORY || V::OF_CAPTURE.contains(&code);
        if V::is_sticky(code) {
            self.give_up(code);
        } else if !says_nothing
            && let Err(found) = self.probe()
            && (found == code || V::is_sticky(found))
        {
            self.give_up(found);
        }
    }

    /// Records that the context is broken. The first of several codes is the cause.
    pub(crate) fn give_up(&self, code: u32) {
        let _ = self.broken.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Creates a stream that is not ordered with any other stream; a smaller number is more urgent.
    pub(crate) fn new_stream(self: &Arc<Self>, priority: i32) -> Result<RawStream<V>, u32> {
        let raw = self.outside_captures(|api| api.stream_create(priority))?;
        Ok(RawStream::owned(raw, self))
    }

    /// Creates an event.
    pub(crate) fn new_event(&self, timing: bool) -> Result<handle::Event, u32> {
        self.bind()?;
        self.api.event_create(timing)
    }

    /// Returns an event without timing: an unused one if there is one, otherwise a new one.
    pub(crate) fn take_event(&self) -> Result<handle::Event, u32> {
        let spare = lock(&self.spare).pop();
        spare.map_or_else(|| self.new_event(false), Ok)
    }

    /// Keeps an event without timing for reuse.
    pub(crate) fn keep_event(&self, raw: handle::Event) {
        let mut spare = lock(&self.spare);
        if spare.len() < MAX_SPARE {
            spare.push(raw);
            return;
        }
        drop(spare);
        self.note(self.destroy_event(raw));
    }

    /// Destroys an event. The library still ends pending waits for it.
    pub(crate) fn destroy_event(&self, raw: handle::Event) -> Result<(), u32> {
        if self.fault().is_some() {
            // The event is released with the context.
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the caller no longer uses the event.
        unsafe { self.api.event_destroy(raw) }
    }

    /// Enables direct copies between the memory of this device and that of `peer`, if the hardware supports them.
    /// Otherwise the library stages the copies.
    pub(crate) fn enable_peer(&self, peer: &Self) {
        let mut peers = lock(&self.peers);
        if peers.contains(&peer.number) {
            return;
        }
        let mut refused = None;
        let possible = self.api.peer_possible(self.device, peer.device);
        if possible.is_ok_and(|can| can != 0) {
            // SAFETY: both contexts are retained, or their owners keep them.
            let enabled = self.outside_captures(|api| unsafe { api.peer_enable(peer.place) });
            if let Err(code) = enabled
                && code != V::PEER_ACCESS_ALREADY_ENABLED
            {
                refused = Some(self.api.name(code));
            }
        }
        peers.push(peer.number);
        // A subscriber may copy between these devices.
        drop(peers);
        if let Some(error) = refused {
            // Copies work without direct access too.
            tracing::debug!(from = peer.ordinal, to = self.ordinal, error, "no direct access");
        }
    }
}

impl<V: Vendor> Drop for Context<V> {
    fn drop(&mut self) {
        let spare = mem::take(self.spare.get_mut().unwrap_or_else(|e| e.into_inner()));
        for raw in spare {
            // The context is being released, so a failure has no consequence.
            let _ = self.destroy_event(raw);
        }
        if self.borrowed {
            return;
        }
        // SAFETY: no context gets a code.
        let mut in_use = lock(unsafe { V::in_use() });
        let released = V::release(self);
        in_use.retain(|(ordinal, _)| *ordinal != self.ordinal);
        // A subscriber may open the device again.
        drop(in_use);
        if let Err(code) = released {
            let error = self.api.name(code);
            tracing::warn!(device = self.ordinal, error, "{}", V::NOT_RELEASED);
        }
    }
}
