//! The parts specific to HIP: devices, streams and addresses.
#![expect(
    unsafe_code,
    reason = "resets devices, and queries handles of other libraries, through the runtime"
)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use backend_gpu::handle::{Stream, pointer};
use backend_gpu::{
    AddressInfo, Api, Busy, Codes, Context, Contexts, Description, InUse, Pooled, Unfit, Vendor,
    Words, ok, written,
};
use hip_sys::hiprt::hipPointer_attribute as Attribute;
use runtime_core::{DeviceInfo, NativeHandle, OriginKind, Result};

use crate::hip::Hip;
use crate::info;
use crate::library::{Library, library};

/// Whether a reset of a device failed after a fault. Many versions of the runtime keep the first fault of a process, on
/// any device, until the process ends.
static FAULT_STAYS: AtomicBool = AtomicBool::new(false);

impl Vendor for Hip {
    type Api = Library;
    const WORDS: Words = Words {
        backend: "hip",
        interface: "HIP",
        library: "runtime",
        broken: "the device does not work",
        lost: "a program was stopped, and its device is lost",
        lost_for_good: "a program was stopped in this process, for which the runtime works no more; it does in a new process",
    };
}

impl Contexts<Self> for Hip {
    // Pools are destroyed when the device is reset.
    const POOLS_OUTLIVE_FAULTS: bool = false;
    const NOT_RELEASED: &str = "a device could not be reset";
    // The number counts only free bytes.
    const TRIM_COUNTS_USED: bool = false;

    fn library() -> Result<(&'static Library, usize)> {
        let library = library()?;
        Ok((library, library.devices))
    }

    unsafe fn in_use() -> &'static InUse<Self> {
        static IN_USE: InUse<Hip> = Mutex::new(Vec::new());
        &IN_USE
    }

    fn describe(api: &'static Library, ordinal: usize) -> Result<Description<Self>> {
        info::describe(api, ordinal)
    }

    fn retain(_: &Library, ordinal: usize) -> Result<(c_int, usize), u32> {
        Ok((c_int::try_from(ordinal).unwrap_or(c_int::MAX), ordinal))
    }

    fn opened(_: &Context<Self>) {}

    fn stays_lost(code: u32) -> Option<&'static str> {
        if FAULT_STAYS.load(Ordering::Acquire) {
            Some(Self::WORDS.lost_for_good)
        } else if Self::is_sticky(code) {
            Some(
                "a program was stopped in this process; drop all that uses its device, or start a new process",
            )
        } else {
            None
        }
    }

    fn release(context: &Context<Self>) -> Result<(), u32> {
        if context.fault().is_none() {
            return Ok(());
        }
        let reset = context.api.functions.hipDeviceReset;
        // SAFETY: all objects of this crate on the device are dropped, and after a fault the device runs no work of any
        // library.
        let done = context.bind().and_then(|()| ok(unsafe { reset() }));
        if done.is_err() {
            FAULT_STAYS.store(true, Ordering::Release);
        }
        done
    }

    fn leave(_: &Context<Self>, _: Pooled) {
        // The memory is released when the device is reset.
    }

    fn is_per_thread(_: Stream) -> bool {
        false
    }

    unsafe fn check_stream(context: &Context<Self>, handle: NativeHandle) -> Result<(), Unfit> {
        if matches!(handle.raw, 1 | 2) {
            let why = "is a stream of CUDA's alone; the default stream is 0";
            return Err(Unfit::Wrong(why.to_owned()));
        }
        // The default stream belongs to the current device.
        if handle.raw != 0
            && let Some(device_of) = context.api.functions.hipStreamGetDevice
        {
            let (stream, mut device) = (Stream(handle.raw), context.device);
            // SAFETY: the caller guarantees that the handle is a stream, and the number is written to a valid place.
            match ok(unsafe { device_of(stream.pointer(), &mut device) }) {
                Ok(()) if device != context.device => {
                    return Err(Unfit::Wrong(format!("belongs to device {device}")));
                }
                Ok(()) => {}
                // As without the function, the device is not checked.
                Err(code) if code == Self::NOT_SUPPORTED => {}
                Err(code) => return Err(Unfit::Code(code)),
            }
        }
        Ok(())
    }

    fn address_info(context: &Context<Self>, address: u64) -> Option<AddressInfo> {
        context.bind().ok()?;
        let ask = |attribute| ask(context, attribute, address);
        let device = ask(Attribute::HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?;
        let managed = ask(Attribute::HIP_POINTER_ATTRIBUTE_IS_MANAGED);
        let kind = match ask(Attribute::HIP_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            _ if managed.is_some_and(|managed| managed & 1 == 1) => OriginKind::Managed,
            Some(kind) if Some(kind) == host_kind(context) => OriginKind::Pinned,
            _ => OriginKind::Device,
        };
        let mut start = ptr::null_mut();
        let range = context.api.functions.hipMemGetAddressRange;
        // SAFETY: address and number are written to valid places.
        let bytes: Option<usize> =
            written(|bytes| unsafe { range(&mut start, bytes, pointer(address)) }).ok();
        let range = bytes.map(|bytes| (start.addr() as u64, bytes as u64));
        Some(AddressInfo { device, kind, range })
    }

    fn busy(_: &DeviceInfo) -> Busy {
        // The runtime does not report the load.
        Busy::default()
    }
}

/// Queries one attribute of an address. The structure with all attributes has another layout in HIP 6.
fn ask(context: &Context<Hip>, attribute: Attribute, address: u64) -> Option<c_int> {
    let function = context.api.functions.hipPointerGetAttribute;
    let asked = |value: *mut c_int| {
        // SAFETY: the queried attributes have at most 32 bits, and are written to a valid place.
        unsafe { function(value.cast::<c_void>(), attribute, pointer(address)) }
    };
    written(asked).ok()
}

/// The number of the kind "host memory". It changed in HIP 6, so the runtime is queried for that of an allocation of
/// host memory.
fn host_kind(context: &Context<Hip>) -> Option<c_int> {
    static KIND: OnceLock<c_int> = OnceLock::new();
    if let Some(kind) = KIND.get() {
        return Some(*kind);
    }
    let memory = context.outside_captures(|api| api.allocate_host(1, false)).ok()?;
    let kind = ask(context, Attribute::HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
    // SAFETY: nothing uses the memory.
    context.note(context.outside_captures(|api| unsafe { api.free_host(memory) }));
    kind.map(|kind| *KIND.get_or_init(|| kind))
}
