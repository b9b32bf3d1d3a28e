//! Another library on the first device, by the runtime's own functions.
#![expect(non_snake_case, reason = "functions have the names of the runtime's headers")]

use std::ffi::{c_int, c_uint, c_void};

use backend_support::{function_table, libloading};
use runtime_core::{Device, NativeHandle, NativeKind};

use crate::common::open;
use crate::suite::interop::handle;

function_table! {
    /// The functions that the other library calls.
    Runtime:
    every version {
        hipSetDevice(device: c_int);
        hipStreamCreateWithFlags(stream: *mut usize, flags: c_uint);
        hipStreamDestroy(stream: usize);
        hipStreamSynchronize(stream: usize);
        hipEventCreateWithFlags(event: *mut usize, flags: c_uint);
        hipEventDestroy(event: usize);
        hipEventRecord(event: usize, stream: usize);
        hipMalloc(address: *mut usize, bytes: usize);
        hipFree(address: usize);
        hipMemsetD32Async(address: usize, value: c_uint, count: usize, stream: usize);
        hipMemcpyDtoHAsync(to: *mut c_void, from: usize, bytes: usize, stream: usize);
    }
    newer versions {}
}

/// How many numbers the other library's memory has.
pub(crate) const LEN: usize = 1 << 12;

/// Another library on the first device, with a stream and memory.
pub(crate) struct Others {
    runtime: Runtime,
    pub(crate) stream: usize,
    pub(crate) memory: usize,
}

/// Calls a function of the runtime that must not fail.
macro_rules! call {
    ($others:expr, $name:ident($($arg:expr),*)) => {
        // SAFETY: the arguments are what the runtime's headers ask for, and the objects are alive.
        assert_eq!(unsafe { ($others.runtime.$name)($($arg),*) }, 0, stringify!($name))
    };
}

impl Others {
    /// Others of every kind.
    pub(crate) fn all() -> Vec<Self> {
        Self::new().into_iter().collect()
    }

    /// `None`, said aloud, where there is no device.
    pub(crate) fn new() -> Option<Self> {
        // Whoever has a device has the runtime.
        drop(open("")?);
        let path = std::env::var("BACKEND_HIP_LIBRARY").unwrap_or("libamdhip64.so".to_owned());
        // SAFETY: the backend has the library loaded.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        let runtime = Runtime::bind(&library).unwrap();
        std::mem::forget(library);
        let mut others = Self { runtime, stream: 0, memory: 0 };
        call!(others, hipSetDevice(0));
        call!(others, hipStreamCreateWithFlags(&mut others.stream, 1));
        call!(others, hipMalloc(&mut others.memory, 4 * LEN));
        Some(others)
    }

    pub(crate) fn stream(&self) -> NativeHandle {
        handle(NativeKind::Stream, self.stream)
    }

    pub(crate) fn fill(&self, value: u32) {
        call!(self, hipSetDevice(0));
        call!(self, hipMemsetD32Async(self.memory, value, LEN, self.stream));
    }

    pub(crate) fn read(&self) -> Vec<u32> {
        let mut numbers = vec![0_u32; LEN];
        call!(self, hipSetDevice(0));
        let to = numbers.as_mut_ptr().cast();
        call!(self, hipMemcpyDtoHAsync(to, self.memory, 4 * LEN, self.stream));
        call!(self, hipStreamSynchronize(self.stream));
        numbers
    }

    pub(crate) fn device(&self) -> Device {
        open("").unwrap()
    }

    pub(crate) fn stream_create(&self) -> usize {
        let mut stream = 0;
        call!(self, hipSetDevice(0));
        call!(self, hipStreamCreateWithFlags(&mut stream, 1));
        stream
    }

    pub(crate) fn stream_destroy(&self, stream: usize) {
        call!(self, hipStreamDestroy(stream));
    }

    pub(crate) fn event_create(&self) -> usize {
        let mut event = 0;
        call!(self, hipSetDevice(0));
        call!(self, hipEventCreateWithFlags(&mut event, 2));
        event
    }

    pub(crate) fn event_record(&self, event: usize) {
        call!(self, hipEventRecord(event, self.stream));
    }

    pub(crate) fn event_destroy(&self, event: usize) {
        call!(self, hipEventDestroy(event));
    }

    /// Checks what must hold while a device shares with them, and when it is dropped.
    pub(crate) fn check_sharing(&self, device: &Device) {
        assert_eq!(device.native(), handle(NativeKind::Context, 0));
    }

    pub(crate) fn check_alone(&self) {}
}

impl Drop for Others {
    fn drop(&mut self) {
        call!(self, hipSetDevice(0));
        call!(self, hipFree(self.memory));
        call!(self, hipStreamDestroy(self.stream));
    }
}
