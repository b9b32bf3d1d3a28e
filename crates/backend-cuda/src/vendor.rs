//! The parts specific to CUDA: contexts, streams and addresses.
#![expect(
    unsafe_code,
    reason = "retains contexts, and queries handles of other libraries, through the driver"
)]

use std::ffi::{c_int, c_void};
use std::{ptr, sync::Mutex};

use backend_gpu::handle::Stream;
use backend_gpu::{
    AddressInfo, Api, Busy, Codes, Context, Contexts, Description, InUse, Lends, Pooled, Unfit,
    Vendor, Words, ok, written,
};
use cudarc::driver::sys::{CUcontext, CUmemorytype, CUpointer_attribute as Attribute};
use runtime_core::{DeviceInfo, NativeHandle, OriginKind, Result};

use crate::codes::INVALID_VALUE;
use crate::cuda::Cuda;
use crate::library::{Library, library};
use crate::{info, nvml, surviving_memory};

/// The driver's handle of the default stream of each thread.
const PER_THREAD: usize = 2;

impl Vendor for Cuda {
    type Api = Library;
    const WORDS: Words = Words {
        backend: "cuda",
        interface: "CUDA",
        library: "driver",
        broken: "no context",
        lost: "a program was stopped, and its context with it; open the device again",
        lost_for_good: "a program was stopped in this process, for which the driver works no more; it does in a new process",
    };
}

impl Contexts<Self> for Cuda {
    // Pools belong to the device, and are not destroyed with the context.
    const POOLS_OUTLIVE_FAULTS: bool = true;
    const NOT_RELEASED: &str = "a context could not be released";
    const TRIM_COUNTS_USED: bool = true;

    fn library() -> Result<(&'static Library, usize)> {
        let library = library()?;
        Ok((library, library.devices))
    }

    unsafe fn in_use() -> &'static InUse<Self> {
        static IN_USE: InUse<Cuda> = Mutex::new(Vec::new());
        &IN_USE
    }

    fn describe(api: &'static Library, ordinal: usize) -> Result<Description<Self>> {
        info::describe(api, ordinal)
    }

    fn retain(api: &Library, ordinal: usize) -> Result<(c_int, usize), u32> {
        let device = api.device(c_int::try_from(ordinal).unwrap_or(c_int::MAX))?;
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the handle is written to a valid place.
        ok(unsafe { (api.functions.cuDevicePrimaryCtxRetain)(&mut context, device) })?;
        Ok((device, context.expose_provenance()))
    }

    fn opened(context: &Context<Self>) {
        surviving_memory::free(context);
    }

    fn stays_lost(code: u32) -> Option<&'static str> {
        Self::is_sticky(code).then_some(
            "a kernel was stopped in the context, which other code in this process keeps open, or the driver requires a new process",
        )
    }

    fn release(context: &Context<Self>) -> Result<(), u32> {
        // SAFETY: the context was retained once and is released once, and no object that uses it is left.
        ok(unsafe { (context.api.functions.cuDevicePrimaryCtxRelease_v2)(context.device) })
    }

    fn leave(context: &Context<Self>, memory: Pooled) {
        surviving_memory::keep(context, memory);
    }

    fn is_per_thread(stream: Stream) -> bool {
        stream.0 == PER_THREAD
    }

    unsafe fn check_stream(context: &Context<Self>, handle: NativeHandle) -> Result<(), Unfit> {
        if handle.raw == 0 {
            let why = "may be either default stream: 1 is the legacy one, 2 the thread's own";
            return Err(Unfit::Wrong(why.to_owned()));
        }
        let (stream, ask) = (Stream(handle.raw), context.api.functions.cuStreamGetCtx);
        let mut of: CUcontext = ptr::null_mut();
        let asked = context.bind().and_then(|()| {
            // SAFETY: the caller guarantees that the handle is a stream, and the context is written to a valid place.
            ok(unsafe { ask(stream.pointer(), &mut of) })
        });
        asked.map_err(Unfit::Code)?;
        if of.addr() != context.place {
            return Err(Unfit::Wrong("belongs to another context".to_owned()));
        }
        Ok(())
    }

    fn address_info(context: &Context<Self>, address: u64) -> Option<AddressInfo> {
        const HOST: u64 = CUmemorytype::CU_MEMORYTYPE_HOST as u64;
        context.bind().ok()?;
        let ask = |attribute| -> Option<u64> {
            let function = context.api.functions.cuPointerGetAttribute;
            let asked = |value: *mut u64| {
                // SAFETY: the queried attributes have at most 64 bits, and are written to a valid place.
                unsafe { function(value.cast::<c_void>(), attribute, address) }
            };
            written(asked).ok()
        };
        // A 32-bit number, which is negative if the address belongs to no device.
        let device = ask(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?.cast_signed();
        let device = c_int::try_from(device).ok().filter(|device| *device >= 0)?;
        let managed = ask(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED);
        let kind = match ask(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            _ if managed.is_some_and(|managed| managed & 1 == 1) => OriginKind::Managed,
            Some(HOST) => OriginKind::Pinned,
            _ => OriginKind::Device,
        };
        let start = ask(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
        let range = start.zip(ask(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE));
        Some(AddressInfo { device, kind, range })
    }

    fn busy(info: &DeviceInfo) -> Busy {
        info.pci.map(nvml::busy).unwrap_or_default()
    }
}

impl Lends for Cuda {
    unsafe fn device_of(api: &Library, place: usize) -> Result<(usize, c_int), u32> {
        // SAFETY: the caller guarantees that the place is a context.
        unsafe { api.make_current(place) }?;
        // SAFETY: the number is written to a valid place.
        let device = written(|device| unsafe { (api.functions.cuCtxGetDevice)(device) })?;
        let is_here = |ordinal: &usize| {
            api.device(c_int::try_from(*ordinal).unwrap_or(c_int::MAX)) == Ok(device)
        };
        let ordinal = (0..api.devices).find(is_here).ok_or(INVALID_VALUE)?;
        Ok((ordinal, device))
    }
}
