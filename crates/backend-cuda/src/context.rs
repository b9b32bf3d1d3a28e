//! The context that a device works in: the primary one, which all of its opened instances share with whoever else uses
//! it, or one that others own.
#![expect(unsafe_code, reason = "retains contexts and creates objects in them through the driver")]

use std::ffi::c_uint;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUevent, CUevent_flags, CUstream_flags, CUstreamCaptureMode,
};
use runtime_core::{DeviceId, Error, ErrorKind, Result};

use crate::codes;
use crate::library::{Functions, Library};
use crate::lock;
use crate::raw_stream::RawStream;

/// Events kept to be used again.
const MOST_SPARE: usize = 64;

/// The mode of a thread whose calls captures do not concern.
const RELAXED: c_uint = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;

/// The contexts in use. Who drops one takes it off, so that nobody retains a broken context while it is being released.
static IN_USE: Mutex<Vec<(usize, Weak<Context>)>> = Mutex::new(Vec::new());

/// The primary context of a device, retained, or a context that others own.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) driver: &'static Functions,
    pub(crate) device: CUdevice,
    pub(crate) ordinal: usize,
    raw: CUcontext,
    /// Whether others own it, and keep it for as long as there is this.
    lent: bool,
    /// The code of the fault after which it is of no use; 0 while it works.
    broken: AtomicU32,
    /// Different from that of any other, also of a later one of the device.
    number: u64,
    /// Contexts, by number, whose memory copies reach directly or never will.
    peers: Mutex<Vec<u64>>,
    spare: Mutex<Vec<Spare>>,
}

// SAFETY: a context may be current in any thread, and several at once.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A handle of an event that nobody uses.
#[derive(Debug)]
struct Spare(CUevent);

// SAFETY: events may be used from any thread.
unsafe impl Send for Spare {}

/// An outcome of the driver as a result.
pub(crate) fn ok(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

impl Context {
    /// The context of a device, which lives for as long as anybody here holds it.
    ///
    /// # Errors
    ///
    /// `DeviceLost` while lost instances of the device, or others in this process, keep a broken context alive.
    pub(crate) fn open(library: &'static Library, id: &DeviceId) -> Result<Arc<Self>> {
        let ordinal = id.index();
        let lost = |message: &str| Error::new(ErrorKind::DeviceLost, "open", message).on(id);
        let mut in_use = loop {
            let in_use = lock(&IN_USE);
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
        let driver = &library.functions;
        let failed = |code| codes::error(driver, "open", code, "no context").on(id);
        let context = Self::retain(driver, ordinal).map_err(failed)?;
        let context = Arc::new(context);
        in_use.push((ordinal, Arc::downgrade(&context)));
        drop(in_use);
        match context.probe() {
            Ok(()) => {
                context.free_left();
                Ok(context)
            }
            Err(code) if codes::is_sticky(code) => {
                let message = "a program was stopped in the context, which others in this process keep, or the driver wants a new process";
                Err(lost(message).with_driver(driver.name(code), code.into()))
            }
            Err(code) => Err(failed(code)),
        }
    }

    fn retain(driver: &'static Functions, ordinal: usize) -> Result<Self, u32> {
        let mut device = 0;
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        // SAFETY: the number is written to where it may be.
        ok(unsafe { (driver.cuDeviceGet)(&mut device, number) })?;
        let mut raw = ptr::null_mut();
        // SAFETY: as above.
        ok(unsafe { (driver.cuDevicePrimaryCtxRetain)(&mut raw, device) })?;
        Ok(Self::of(driver, device, ordinal, raw, false))
    }

    fn of(
        driver: &'static Functions,
        device: CUdevice,
        ordinal: usize,
        raw: CUcontext,
        lent: bool,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (broken, peers, spare) = Default::default();
        Self { driver, device, ordinal, raw, lent, broken, number, peers, spare }
    }

    /// A context that others own.
    ///
    /// # Safety
    ///
    /// It is a context of the driver, and stays so for as long as there is the result.
    pub(crate) unsafe fn lent(library: &'static Library, raw: CUcontext) -> Result<Arc<Self>, u32> {
        let driver = &library.functions;
        // SAFETY: the caller vouches for the context.
        ok(unsafe { (driver.cuCtxSetCurrent)(raw) })?;
        let mut device = 0;
        // SAFETY: the number is written to where it may be.
        ok(unsafe { (driver.cuCtxGetDevice)(&mut device) })?;
        let is_here = |ordinal: &usize| {
            let (mut other, number) = (-1, i32::try_from(*ordinal).unwrap_or(i32::MAX));
            // SAFETY: as above.
            let code = unsafe { (driver.cuDeviceGet)(&mut other, number) };
            code == 0 && other == device
        };
        let ordinal = (0..library.devices).find(is_here).ok_or(codes::INVALID_VALUE)?;
        let context = Self::of(driver, device, ordinal, raw, true);
        context.probe()?;
        context.free_left();
        Ok(Arc::new(context))
    }

    /// Whether the context works.
    pub(crate) fn probe(&self) -> Result<(), u32> {
        self.memory().map(drop)
    }

    /// How many bytes of memory are free, and how many there are.
    pub(crate) fn memory(&self) -> Result<(usize, usize), u32> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the numbers are written to where they may be.
        ok(self.apart(|driver| unsafe { (driver.cuMemGetInfo_v2)(&mut free, &mut total) }))?;
        Ok((free, total))
    }

    pub(crate) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Makes the context the thread's current one, and leaves it so. Whoever shares the thread may have made another
    /// one current since our last call, and asking costs less than setting: so it is asked each time, and set if needed.
    #[inline]
    pub(crate) fn bind(&self) -> Result<(), u32> {
        let mut current = ptr::null_mut();
        // SAFETY: the handle is written to where it may be.
        let code = unsafe { (self.driver.cuCtxGetCurrent)(&mut current) };
        if code == 0 && current == self.raw {
            return Ok(());
        }
        // SAFETY: the context is retained, or its owner keeps it.
        ok(unsafe { (self.driver.cuCtxSetCurrent)(self.raw) })
    }

    /// Makes a call that waits, asks, allocates, loads or frees, with the context current. A capture that others in this process
    /// make does not concern it: so it is neither forbidden, nor does it end that capture.
    pub(crate) fn apart(&self, call: impl FnOnce(&Functions) -> u32) -> u32 {
        if let Err(code) = self.bind() {
            return code;
        }
        let exchange = self.driver.cuThreadExchangeStreamCaptureMode;
        let mut mode = RELAXED;
        // SAFETY: the mode is read, and that of before written to where it was.
        let relaxed = unsafe { exchange(&mut mode) } == 0;
        let code = call(self.driver);
        if relaxed {
            // SAFETY: as above. It cannot fail: the thread had the mode before.
            unsafe { exchange(&mut mode) };
        }
        code
    }

    /// The code of the fault that broke the context.
    #[inline]
    pub(crate) fn fault(&self) -> Option<u32> {
        match self.broken.load(Ordering::Acquire) {
            0 => None,
            code => Some(code),
        }
    }

    /// What a code tells of work on the context, if anything: whether it is over. It is when it is done, and when the
    /// context is broken.
    pub(crate) fn told(&self, code: u32) -> Option<bool> {
        match code {
            0 => Some(true),
            codes::NOT_READY => Some(false),
            _ => {
                self.note(code);
                self.fault().map(|_| true)
            }
        }
    }

    /// Remembers a code after which the context is of no use: one that says so, and any that a call returns, too, which has
    /// nothing to do with what failed.
    #[inline]
    pub(crate) fn note(&self, code: u32) {
        if code != 0 && self.fault().is_none() {
            self.judge(code);
        }
    }

    #[cold]
    fn judge(&self, code: u32) {
        if codes::is_sticky(code) {
            self.give_up(code);
        } else if !codes::is_passing(code)
            && let Err(found) = self.probe()
            && (found == code || codes::is_sticky(found))
        {
            self.give_up(found);
        }
    }

    /// Counts the context as broken. Of several codes the first is the cause.
    pub(crate) fn give_up(&self, code: u32) {
        let _ = self.broken.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
    }

    /// A new stream that is ordered with no other; a smaller number is more urgent.
    pub(crate) fn new_stream(self: &Arc<Self>, priority: i32) -> Result<RawStream, u32> {
        let mut raw = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        ok(self.apart(|driver| {
            // SAFETY: the handle is written to where it may be.
            unsafe { (driver.cuStreamCreateWithPriority)(&mut raw, flags, priority) }
        }))?;
        Ok(RawStream::own(raw, self))
    }

    /// A new event.
    pub(crate) fn new_event(&self, timing: bool) -> Result<CUevent, u32> {
        self.bind()?;
        let flags = if timing {
            CUevent_flags::CU_EVENT_DEFAULT
        } else {
            CUevent_flags::CU_EVENT_DISABLE_TIMING
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is written to where it may be.
        ok(unsafe { (self.driver.cuEventCreate)(&mut raw, flags as u32) })?;
        Ok(raw)
    }

    /// An event without timing: one that nobody uses any more, or a new one.
    pub(crate) fn take_event(&self) -> Result<CUevent, u32> {
        let spare = lock(&self.spare).pop();
        spare.map_or_else(|| self.new_event(false), |Spare(raw)| Ok(raw))
    }

    /// Keeps an event without timing to be used again.
    pub(crate) fn keep_event(&self, raw: CUevent) {
        let mut spare = lock(&self.spare);
        if spare.len() < MOST_SPARE {
            spare.push(Spare(raw));
            return;
        }
        drop(spare);
        if let Err(code) = self.destroy_event(raw) {
            self.note(code);
        }
    }

    /// Lets copies between the memory of this device and `peer`'s go directly where the hardware can; elsewhere the
    /// driver stages them.
    pub(crate) fn enable_peer(&self, peer: &Self) {
        let mut peers = lock(&self.peers);
        if peers.contains(&peer.number) {
            return;
        }
        let mut can = 0;
        // SAFETY: the number is written to where it may be.
        let asked =
            unsafe { (self.driver.cuDeviceCanAccessPeer)(&mut can, self.device, peer.device) };
        if asked == 0 && can != 0 {
            // SAFETY: both contexts are retained, or their owners keep them.
            let code = self.apart(|driver| unsafe { (driver.cuCtxEnablePeerAccess)(peer.raw, 0) });
            if code != 0 && code != codes::PEER_ACCESS_ALREADY_ENABLED {
                // Copies work all the same.
                let error = self.driver.name(code);
                tracing::debug!(from = peer.ordinal, to = self.ordinal, error, "no direct access");
            }
        }
        peers.push(peer.number);
    }

    /// Destroys an event; the driver lets what waits for it come to its end.
    pub(crate) fn destroy_event(&self, raw: CUevent) -> Result<(), u32> {
        if self.fault().is_some() {
            // It goes with the context.
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the caller gives the event up.
        ok(unsafe { (self.driver.cuEventDestroy_v2)(raw) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let spare = std::mem::take(self.spare.get_mut().unwrap_or_else(|e| e.into_inner()));
        for Spare(raw) in spare {
            // The context goes, and nobody is left to hear of it.
            let _ = self.destroy_event(raw);
        }
        if self.lent {
            return;
        }
        let mut in_use = lock(&IN_USE);
        // SAFETY: retained once, and given up once; no object of this crate is left that uses it.
        let code = unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.device) };
        if code != 0 {
            let error = self.driver.name(code);
            tracing::warn!(device = self.ordinal, error, "a context could not be released");
        }
        in_use.retain(|(ordinal, _)| *ordinal != self.ordinal);
    }
}
