//! Another library on the first device, by the driver's own functions.
#![expect(non_snake_case, reason = "functions have the names of the driver's headers")]

use std::ffi::{c_int, c_uint, c_void};

use backend_cuda::{CudaConfig, CudaDevice};
use backend_support::{function_table, libloading};
use runtime_core::{Device, NativeHandle, NativeKind, Result};

use crate::common::open;
use crate::suite::interop::handle;

function_table! {
    /// The functions that the other library calls.
    Driver:
    every version {
        cuDeviceGet(device: *mut c_int, ordinal: c_int);
        cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int);
        cuDevicePrimaryCtxRelease_v2(device: c_int);
        cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int);
        cuCtxCreate_v2(context: *mut usize, flags: c_uint, device: c_int);
        cuCtxDestroy_v2(context: usize);
        cuCtxSetCurrent(context: usize);
        cuStreamCreate(stream: *mut usize, flags: c_uint);
        cuStreamDestroy_v2(stream: usize);
        cuStreamSynchronize(stream: usize);
        cuEventCreate(event: *mut usize, flags: c_uint);
        cuEventDestroy_v2(event: usize);
        cuEventRecord(event: usize, stream: usize);
        cuMemAlloc_v2(address: *mut usize, bytes: usize);
        cuMemFree_v2(address: usize);
        cuMemsetD32Async(address: usize, value: c_uint, count: usize, stream: usize);
        cuMemcpyDtoHAsync_v2(to: *mut c_void, from: usize, bytes: usize, stream: usize);
    }
    newer versions {}
}

/// How many numbers the other library's memory has.
pub(crate) const LEN: usize = 1 << 12;

/// Another library: a context of the first device, with a stream and memory.
pub(crate) struct Others {
    driver: Driver,
    kind: ContextKind,
    device: c_int,
    context: usize,
    pub(crate) stream: usize,
    pub(crate) memory: usize,
}

/// Which context it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContextKind {
    /// The primary one, retained.
    Primary,
    /// One of their own.
    Created,
}

const KINDS: [ContextKind; 2] = [ContextKind::Primary, ContextKind::Created];

/// Calls a function of the driver that must not fail.
macro_rules! call {
    ($others:expr, $name:ident($($arg:expr),*)) => {
        // SAFETY: the arguments are what the driver's headers ask for, and the objects are alive.
        assert_eq!(unsafe { ($others.driver.$name)($($arg),*) }, 0, stringify!($name))
    };
}

impl Others {
    /// Others of every kind.
    pub(crate) fn all() -> Vec<Self> {
        KINDS.into_iter().filter_map(Self::within).collect()
    }

    /// In the primary context; `None`, said aloud, where there is no device.
    pub(crate) fn new() -> Option<Self> {
        Self::within(ContextKind::Primary)
    }

    pub(crate) fn within(kind: ContextKind) -> Option<Self> {
        // There is a device, so the driver is loaded.
        drop(open("")?);
        let path = std::env::var("BACKEND_CUDA_DRIVER").unwrap_or("libcuda.so.1".to_owned());
        // SAFETY: the backend has the library loaded.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        let driver = Driver::bind(&library).unwrap();
        std::mem::forget(library);
        let mut others = Self { driver, kind, device: 0, context: 0, stream: 0, memory: 0 };
        call!(others, cuDeviceGet(&mut others.device, 0));
        match kind {
            ContextKind::Primary => {
                call!(others, cuDevicePrimaryCtxRetain(&mut others.context, others.device));
            }
            ContextKind::Created => {
                call!(others, cuCtxCreate_v2(&mut others.context, 0, others.device));
            }
        }
        call!(others, cuCtxSetCurrent(others.context));
        call!(others, cuStreamCreate(&mut others.stream, 1));
        call!(others, cuMemAlloc_v2(&mut others.memory, 4 * LEN));
        Some(others)
    }

    pub(crate) fn open(&self) -> Result<CudaDevice> {
        let config = CudaConfig::new();
        // SAFETY: the context is retained, or not destroyed yet.
        unsafe { CudaDevice::from_native(handle(NativeKind::Context, self.context), &config) }
    }

    fn give_context_up(&self) {
        match self.kind {
            ContextKind::Primary => call!(self, cuDevicePrimaryCtxRelease_v2(self.device)),
            ContextKind::Created => call!(self, cuCtxDestroy_v2(self.context)),
        }
    }

    pub(crate) fn device(&self) -> Device {
        Device::new(self.open().unwrap()).unwrap()
    }

    pub(crate) fn stream(&self) -> NativeHandle {
        handle(NativeKind::Stream, self.stream)
    }

    pub(crate) fn fill(&self, value: u32) {
        call!(self, cuCtxSetCurrent(self.context));
        call!(self, cuMemsetD32Async(self.memory, value, LEN, self.stream));
    }

    pub(crate) fn read(&self) -> Vec<u32> {
        let mut numbers = vec![0_u32; LEN];
        call!(self, cuCtxSetCurrent(self.context));
        let to = numbers.as_mut_ptr().cast();
        call!(self, cuMemcpyDtoHAsync_v2(to, self.memory, 4 * LEN, self.stream));
        call!(self, cuStreamSynchronize(self.stream));
        numbers
    }

    pub(crate) fn stream_create(&self) -> usize {
        let mut stream = 0;
        call!(self, cuCtxSetCurrent(self.context));
        call!(self, cuStreamCreate(&mut stream, 1));
        stream
    }

    pub(crate) fn stream_destroy(&self, stream: usize) {
        call!(self, cuStreamDestroy_v2(stream));
    }

    pub(crate) fn event_create(&self) -> usize {
        let mut event = 0;
        call!(self, cuCtxSetCurrent(self.context));
        call!(self, cuEventCreate(&mut event, 2));
        event
    }

    pub(crate) fn event_record(&self, event: usize) {
        call!(self, cuEventRecord(event, self.stream));
    }

    pub(crate) fn event_destroy(&self, event: usize) {
        call!(self, cuEventDestroy_v2(event));
    }

    /// Destroys the context, which a fault broke; what it has goes with it.
    pub(crate) fn give_up_broken(self) {
        // SAFETY: the context is no longer in use.
        let _told_once_more = unsafe { (self.driver.cuCtxDestroy_v2)(self.context) };
        std::mem::forget(self);
    }

    /// Checks what must hold while a device shares with them, and when it is dropped.
    pub(crate) fn check_sharing(&self, device: &Device) {
        assert_eq!(device.native(), handle(NativeKind::Context, self.context));
    }

    pub(crate) fn check_alone(&self) {
        if self.kind == ContextKind::Primary {
            let (mut flags, mut active) = (0, 0);
            call!(self, cuDevicePrimaryCtxGetState(self.device, &mut flags, &mut active));
            assert_eq!(active, 1);
        }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        call!(self, cuCtxSetCurrent(self.context));
        call!(self, cuMemFree_v2(self.memory));
        call!(self, cuStreamDestroy_v2(self.stream));
        self.give_context_up();
    }
}
