//! A device as calls are made for it, which all of its opened instances share: HIP has no contexts, but a current device
//! per thread.
#![expect(unsafe_code, reason = "chooses devices and creates objects on them through the runtime")]

use std::ffi::{c_int, c_uint, c_void};
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use hip_sys::hiprt::{
    hipEvent_t, hipEventDefault, hipEventDisableTiming, hipStreamCaptureMode, hipStreamNonBlocking,
};
use runtime_core::{DeviceId, Error, ErrorKind, Result};

use crate::codes;
use crate::library::{Functions, GraphFunctions, Library, PeerFunctions};
use crate::lock;
use crate::raw_stream::RawStream;

/// Events kept to be used again.
const MOST_SPARE: usize = 64;

/// The mode of a thread whose calls captures do not concern.
const RELAXED: c_uint = hipStreamCaptureMode::hipStreamCaptureModeRelaxed as c_uint;

/// The devices in use. Who drops one takes it off, so that nobody opens a lost device while it is being reset.
static IN_USE: Mutex<Vec<(usize, Weak<Context>)>> = Mutex::new(Vec::new());

/// Whether a device could not be reset after a fault: many versions of the runtime keep the first fault of a process, of
/// whatever device, until the process ends.
static FAULT_STAYS: AtomicBool = AtomicBool::new(false);

/// A device of the runtime in use.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) hip: &'static Functions,
    pub(crate) library: &'static Library,
    pub(crate) ordinal: usize,
    /// The ordinal, as the runtime counts.
    pub(crate) device: c_int,
    /// The code of the fault after which it is of no use; 0 while it works.
    broken: AtomicU32,
    /// Devices, by number, whose memory copies reach directly or never will.
    peers: AtomicU64,
    spare: Mutex<Vec<Spare>>,
}

/// A handle of an event that nobody uses.
#[derive(Debug)]
struct Spare(hipEvent_t);

// SAFETY: events may be used from any thread.
unsafe impl Send for Spare {}

/// An outcome of the runtime as a result.
pub(crate) fn ok(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// The address of memory that a call allocated. Where there is no room, some versions of the runtime tell success and give
/// none.
pub(crate) fn allocated(memory: *mut c_void, bytes: usize) -> Result<u64, u32> {
    if memory.is_null() && bytes > 0 {
        return Err(codes::OUT_OF_MEMORY);
    }
    Ok(memory.expose_provenance() as u64)
}

/// What memory is aligned to, whatever the runtime aligns its allocations to.
pub(crate) const ALIGNMENT: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// An allocation of the runtime, in which memory begins at a multiple of [`ALIGNMENT`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

impl Room {
    /// Room for that many bytes; where an allocation is less aligned, of so many more.
    pub(crate) fn new(
        bytes: usize,
        allocate: impl Fn(usize) -> Result<u64, u32>,
        give_back: impl FnOnce(Self),
    ) -> Result<Self, u32> {
        let room = Self { address: allocate(bytes)?, bytes };
        if room.first() == room.address {
            return Ok(room);
        }
        give_back(room);
        let bytes = bytes.checked_add(ALIGNMENT.get() - 1).ok_or(codes::OUT_OF_MEMORY)?;
        Ok(Self { address: allocate(bytes)?, bytes })
    }

    /// Where the memory begins.
    pub(crate) fn first(self) -> u64 {
        self.address.next_multiple_of(ALIGNMENT.get() as u64)
    }
}

/// The runtime's pointer to an address on a device, or in memory that the host shares with it.
#[inline]
pub(crate) fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

impl Context {
    /// A device, in use for as long as anybody here holds it.
    ///
    /// # Errors
    ///
    /// `DeviceLost` while lost instances of the device are held, or where a fault in this process stays until its end.
    pub(crate) fn open(library: &'static Library, id: &DeviceId) -> Result<Arc<Self>> {
        let ordinal = id.index();
        let lost = |message: &str| Error::new(ErrorKind::DeviceLost, "open", message).on(id);
        let mut in_use = loop {
            let in_use = lock(&IN_USE);
            let found = in_use.iter().find(|(used, _)| *used == ordinal).map(|(_, c)| c.upgrade());
            // A last owner needs the list to give the device up, and this may be the last one by now.
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
        let (hip, device) = (&library.functions, c_int::try_from(ordinal).unwrap_or(c_int::MAX));
        let (broken, peers, spare) = Default::default();
        let context = Arc::new(Self { hip, library, ordinal, device, broken, peers, spare });
        in_use.push((ordinal, Arc::downgrade(&context)));
        drop(in_use);
        let Err(code) = context.probe() else { return Ok(context) };
        let message = if FAULT_STAYS.load(Ordering::Acquire) {
            "a program was stopped in this process, for which the runtime works no more; it does in a new process"
        } else if codes::is_sticky(code) {
            "a program was stopped in this process; drop all that uses its device, or start a new process"
        } else {
            return Err(codes::error(hip, "open", code, "the device does not work").on(id));
        };
        Err(lost(message).with_driver(hip.name(code), code.into()))
    }

    /// What graphs take, where the runtime has it.
    pub(crate) fn graphs(&self) -> Result<&'static GraphFunctions, u32> {
        self.library.graphs.as_ref().ok_or(codes::NOT_SUPPORTED)
    }

    /// What copies between devices take, where the runtime has it.
    pub(crate) fn copies(&self) -> Result<&'static PeerFunctions, u32> {
        self.library.peers.as_ref().ok_or(codes::NOT_SUPPORTED)
    }

    /// Whether the device works.
    pub(crate) fn probe(&self) -> Result<(), u32> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the numbers are written to where they may be.
        ok(unsafe { (self.hip.hipMemGetInfo)(&mut free, &mut total) })
    }

    /// Makes the device the thread's current one, and leaves it so. Whoever shares the thread may have made another one
    /// current since our last call, and asking costs less than setting: so it is asked each time, and set if needed.
    #[inline]
    pub(crate) fn bind(&self) -> Result<(), u32> {
        let mut current = -1;
        // SAFETY: the number is written to where it may be.
        let code = unsafe { (self.hip.hipGetDevice)(&mut current) };
        if code == 0 && current == self.device {
            return Ok(());
        }
        // SAFETY: any number may be asked for.
        ok(unsafe { (self.hip.hipSetDevice)(self.device) })
    }

    /// Makes a call that waits, asks, allocates or frees, with the device current. A capture that others in this process
    /// make does not concern it: so it is neither forbidden, nor does it end that capture.
    pub(crate) fn apart(&self, call: impl FnOnce(&Functions) -> u32) -> u32 {
        if let Err(code) = self.bind() {
            return code;
        }
        let Some(exchange) = self.hip.hipThreadExchangeStreamCaptureMode else {
            return call(self.hip);
        };
        let mut mode = RELAXED;
        // SAFETY: the mode is read, and that of before written to where it was.
        let relaxed = unsafe { exchange(&mut mode) } == 0;
        let code = call(self.hip);
        if relaxed {
            // SAFETY: as above. It cannot fail: the thread had the mode before.
            unsafe { exchange(&mut mode) };
        }
        code
    }

    /// The code of the fault that broke the device.
    #[inline]
    pub(crate) fn fault(&self) -> Option<u32> {
        match self.broken.load(Ordering::Acquire) {
            0 => None,
            code => Some(code),
        }
    }

    /// What a code tells of work on the device, if anything: whether it is over. It is when it is done, and when the
    /// device is broken.
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

    /// Remembers a code after which the device is of no use: one that says so, and any that a call returns, too, which has
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

    /// Counts the device as broken. Of several codes the first is the cause.
    pub(crate) fn give_up(&self, code: u32) {
        let _ = self.broken.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
    }

    /// A new stream that is ordered with no other; a smaller number is more urgent.
    pub(crate) fn new_stream(self: &Arc<Self>, priority: i32) -> Result<RawStream, u32> {
        self.bind()?;
        let mut raw = ptr::null_mut();
        let create = self.hip.hipStreamCreateWithPriority;
        // SAFETY: the handle is written to where it may be.
        ok(unsafe { create(&mut raw, hipStreamNonBlocking, priority) })?;
        Ok(RawStream::own(raw, self))
    }

    /// A new event.
    pub(crate) fn new_event(&self, timing: bool) -> Result<hipEvent_t, u32> {
        self.bind()?;
        let flags = if timing { hipEventDefault } else { hipEventDisableTiming };
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is written to where it may be.
        ok(unsafe { (self.hip.hipEventCreateWithFlags)(&mut raw, flags) })?;
        Ok(raw)
    }

    /// An event without timing: one that nobody uses any more, or a new one.
    pub(crate) fn take_event(&self) -> Result<hipEvent_t, u32> {
        let spare = lock(&self.spare).pop();
        spare.map_or_else(|| self.new_event(false), |Spare(raw)| Ok(raw))
    }

    /// Keeps an event without timing to be used again.
    pub(crate) fn keep_event(&self, raw: hipEvent_t) {
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
    /// runtime stages them.
    pub(crate) fn enable_peer(&self, functions: &PeerFunctions, peer: &Self) {
        let bit = 1_u64.checked_shl(u32::try_from(peer.ordinal).unwrap_or(u32::MAX)).unwrap_or(0);
        if self.peers.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        let mut can = 0;
        // SAFETY: the number is written to where it may be.
        let asked =
            unsafe { (functions.hipDeviceCanAccessPeer)(&mut can, self.device, peer.device) };
        if asked == 0 && can != 0 && self.bind().is_ok() {
            // SAFETY: any device may be asked for; there are no flags.
            let code = unsafe { (functions.hipDeviceEnablePeerAccess)(peer.device, 0) };
            if code != 0 && code != codes::PEER_ACCESS_ALREADY_ENABLED {
                // Copies work all the same.
                let error = self.hip.name(code);
                tracing::debug!(from = peer.ordinal, to = self.ordinal, error, "no direct access");
            }
        }
        self.peers.fetch_or(bit, Ordering::Relaxed);
    }

    /// Destroys an event; the runtime lets what waits for it come to its end.
    pub(crate) fn destroy_event(&self, raw: hipEvent_t) -> Result<(), u32> {
        if self.fault().is_some() {
            // It goes when the device is reset.
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the caller gives the event up.
        ok(unsafe { (self.hip.hipEventDestroy)(raw) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let spare = std::mem::take(self.spare.get_mut().unwrap_or_else(|e| e.into_inner()));
        for Spare(raw) in spare {
            // The device is given up, and nobody is left to hear of it.
            let _ = self.destroy_event(raw);
        }
        let mut in_use = lock(&IN_USE);
        if self.fault().is_some() {
            // SAFETY: what this crate made on the device is dropped, and nothing works there for anybody.
            let reset = self.bind().and_then(|()| ok(unsafe { (self.hip.hipDeviceReset)() }));
            if let Err(code) = reset {
                FAULT_STAYS.store(true, Ordering::Release);
                let error = self.hip.name(code);
                tracing::warn!(device = self.ordinal, error, "a device could not be reset");
            }
        }
        in_use.retain(|(ordinal, _)| *ordinal != self.ordinal);
    }
}
