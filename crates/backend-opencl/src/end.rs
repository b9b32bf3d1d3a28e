//! The two ends of a copy: its source and its destination.

use std::ffi::c_void;
use std::ptr;

use opencl3::types::cl_mem;
use runtime_core::Result;
use runtime_core::contract::{DevicePinned, MemoryAt, PinnedAt, own};

use crate::memory::{OpenClMemory, OpenClPinned, Place};

/// One end of a copy.
#[derive(Clone, Copy)]
pub(crate) enum End<'a> {
    Device(&'a OpenClMemory, usize),
    Host(*mut c_void),
}

/// The location of an end, in the form that an OpenCL command takes.
pub(crate) enum Named {
    Buffer(cl_mem, usize),
    Address { pointer: *mut c_void, host: bool },
}

impl<'a> End<'a> {
    pub(crate) fn device(at: MemoryAt<'a>, operation: &'static str) -> Result<Self> {
        Ok(Self::Device(own(at.object, operation)?, at.offset))
    }

    pub(crate) fn pinned(at: PinnedAt<'a>, operation: &'static str) -> Result<Self> {
        let start = own::<OpenClPinned>(at.object, operation)?.ptr();
        Ok(Self::Host(start.wrapping_add(at.offset).cast()))
    }

    /// The location that is this many bytes after this one.
    pub(crate) fn behind(self, bytes: usize) -> Self {
        match self {
            Self::Device(memory, offset) => Self::Device(memory, offset + bytes),
            Self::Host(pointer) => Self::Host(pointer.wrapping_byte_add(bytes)),
        }
    }

    pub(crate) fn named(self) -> Named {
        match self {
            Self::Host(pointer) => Named::Address { pointer, host: true },
            Self::Device(memory, offset) => match memory.place() {
                Place::Buffer(buffer) => Named::Buffer(buffer.raw(), offset),
                Place::Pointer(address) => {
                    let pointer = ptr::with_exposed_provenance_mut(address + offset);
                    Named::Address { pointer, host: memory.is_visible() }
                }
            },
        }
    }
}
