//! The context that a device works in, which all of its opened instances share: what calls go through, and whether it works.
#![expect(unsafe_code, reason = "makes contexts current, and uses events through the library")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{mem, thread};

use backend_support::lock;
use runtime_core::{DeviceId, Error, ErrorKind, Result};

use crate::api::Api;
use crate::handle;
use crate::raw_stream::RawStream;
use crate::vendor::{Vendor, error};

/// Events kept to be used again.
const MOST_SPARE: usize = 64;

/// The context of a device, or one that others own.
#[derive(Debug)]
pub struct Context<V: Vendor> {
    /// The library.
    pub api: &'static V::Api,
    /// The number of the device.
    pub ordinal: usize,
    /// The device, as the library counts.
    pub device: c_int,
    /// What is made current.
    pub place: usize,
    /// Whether others own it, and keep it for as long as there is this.
    lent: bool,
    /// The code of the fault after which it is of no use; 0 while it works.
    broken: AtomicU32,
    /// Different from that of any other, also of a later one of the device.
    number: u64,
    /// Contexts, by number, whose memory copies reach directly or never will.
    peers: Mutex<Vec<u64>>,
    /// Events that nobody uses.
    spare: Mutex<Vec<handle::Event>>,
}

impl<V: Vendor> Context<V> {
    /// The context of a device, which lives for as long as anybody here holds it.
    ///
    /// # Errors
    ///
    /// `DeviceLost` while lost instances of the device are held, or where a fault in this process stays.
    pub(crate) fn open(api: &'static V::Api, id: &DeviceId) -> Result<Arc<Self>> {
        let ordinal = id.index();
        let lost = |message: &str| Error::new(ErrorKind::DeviceLost, "open", message).on(id);
        let mut in_use = loop {
            // SAFETY: it is told codes of the library.
            let in_use = lock(unsafe { V::in_use() });
            let found = in_use.iter().find(|(used, _)| *used == ordinal).map(|(_, c)| c.upgrade());
            // A last owner needs the list to release the context, and this may be the last one by now.
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
        let (device, place) = V::retain(api, ordinal).map_err(failed)?;
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

    /// A context that others own.
    ///
    /// # Errors
    ///
    /// The library's code, for a context that does not work.
    ///
    /// # Safety
    ///
    /// The place is a context of that device, and stays so for as long as there is the result.
    pub(crate) unsafe fn lent(
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

    fn of(api: &'static V::Api, ordinal: usize, device: c_int, place: usize, lent: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (broken, peers, spare) = Default::default();
        Self { api, ordinal, device, place, lent, broken, number, peers, spare }
    }

    /// Whether the context works.
    pub(crate) fn probe(&self) -> Result<(), u32> {
        self.memory().map(drop)
    }

    /// How many bytes of memory are free, and how many there are.
    pub(crate) fn memory(&self) -> Result<(usize, usize), u32> {
        self.apart(V::Api::memory_info)
    }

    /// The range of priorities as the contract counts them, larger numbers being more urgent; one priority where the library
    /// does not answer.
    pub(crate) fn priorities(&self) -> Result<(i32, i32), u32> {
        self.bind()?;
        match self.api.priority_range() {
            Ok((least, greatest)) => Ok((-least, -greatest)),
            Err(code) if code == V::NOT_SUPPORTED => Ok((0, 0)),
            Err(code) => Err(code),
        }
    }

    /// Makes the context the thread's current one, and leaves it so. Whoever shares the thread may have made another
    /// one current since our last call, and asking costs less than setting: so it is asked each time, and set if needed.
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

    /// Makes a call that waits, asks, allocates, loads or frees, with the context current. A capture that others in this process
    /// make does not concern it: so it is neither forbidden, nor does it end that capture.
    ///
    /// # Errors
    ///
    /// The library's code.
    pub fn apart<T>(&self, call: impl FnOnce(&V::Api) -> Result<T, u32>) -> Result<T, u32> {
        self.bind()?;
        let mut mode = V::Api::RELAXED;
        let relaxed = self.api.exchange_capture_mode(&mut mode).is_ok();
        let outcome = call(self.api);
        if relaxed {
            // It cannot fail: the thread had the mode before.
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

    /// What an outcome tells of work on the context, if anything: whether it is over. It is when it is done, and when the
    /// context is broken.
    pub(crate) fn told(&self, outcome: Result<(), u32>) -> Option<bool> {
        match outcome {
            Ok(()) => Some(true),
            Err(code) if code == V::NOT_READY => Some(false),
            Err(_) => {
                self.note(outcome);
                self.fault().map(|_| true)
            }
        }
    }

    /// Remembers a code after which the context is of no use: one that says so, and any that a call returns, too, which has
    /// nothing to do with what failed.
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
            code == V::NOT_READY || code == V::OUT_OF_MEMORY || V::is_of_capture(code);
        if V::is_sticky(code) {
            self.give_up(code);
        } else if !says_nothing
            && let Err(found) = self.probe()
            && (found == code || V::is_sticky(found))
        {
            self.give_up(found);
        }
    }

    /// Counts the context as broken. Of several codes the first is the cause.
    pub(crate) fn give_up(&self, code: u32) {
        let _ = self.broken.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
    }

    /// A new stream that is ordered with no other; a smaller number is more urgent.
    pub(crate) fn new_stream(self: &Arc<Self>, priority: i32) -> Result<RawStream<V>, u32> {
        let raw = self.apart(|api| api.stream_create(priority))?;
        Ok(RawStream::own(raw, self))
    }

    /// A new event.
    pub(crate) fn new_event(&self, timing: bool) -> Result<handle::Event, u32> {
        self.bind()?;
        self.api.event_create(timing)
    }

    /// An event without timing: one that nobody uses any more, or a new one.
    pub(crate) fn take_event(&self) -> Result<handle::Event, u32> {
        let spare = lock(&self.spare).pop();
        spare.map_or_else(|| self.new_event(false), Ok)
    }

    /// Keeps an event without timing to be used again.
    pub(crate) fn keep_event(&self, raw: handle::Event) {
        let mut spare = lock(&self.spare);
        if spare.len() < MOST_SPARE {
            spare.push(raw);
            return;
        }
        drop(spare);
        self.note(self.destroy_event(raw));
    }

    /// Destroys an event; the library lets what waits for it come to its end.
    pub(crate) fn destroy_event(&self, raw: handle::Event) -> Result<(), u32> {
        if self.fault().is_some() {
            // It goes with the context.
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the caller gives the event up.
        unsafe { self.api.event_destroy(raw) }
    }

    /// Lets copies between the memory of this device and `peer`'s go directly where the hardware can; elsewhere the
    /// library stages them.
    pub(crate) fn enable_peer(&self, peer: &Self) {
        let mut peers = lock(&self.peers);
        if peers.contains(&peer.number) {
            return;
        }
        let possible = self.api.peer_possible(self.device, peer.device);
        if possible.is_ok_and(|can| can != 0) {
            // SAFETY: both contexts are retained, or their owners keep them.
            let enabled = self.apart(|api| unsafe { api.peer_enable(peer.place) });
            if let Err(code) = enabled
                && code != V::PEER_ACCESS_ALREADY_ENABLED
            {
                // Copies work all the same.
                let error = self.api.name(code);
                tracing::debug!(from = peer.ordinal, to = self.ordinal, error, "no direct access");
            }
        }
        peers.push(peer.number);
    }
}

impl<V: Vendor> Drop for Context<V> {
    fn drop(&mut self) {
        let spare = mem::take(self.spare.get_mut().unwrap_or_else(|e| e.into_inner()));
        for raw in spare {
            // The context goes, and nobody is left to hear of it.
            let _ = self.destroy_event(raw);
        }
        if self.lent {
            return;
        }
        // SAFETY: it is told nothing.
        let mut in_use = lock(unsafe { V::in_use() });
        V::release(self);
        in_use.retain(|(ordinal, _)| *ordinal != self.ordinal);
    }
}
