//! Page-locked host memory.
#![expect(
    unsafe_code,
    reason = "allocates through the runtime and implements the contract's trait"
)]

use std::ptr;

use hip_sys::hiprt::{hipHostMallocPortable, hipHostMallocWriteCombined};
use runtime_core::Result;
use runtime_core::contract::{DevicePinned, PinnedOptions};

use crate::context::{Room, allocated, ok, pointer};
use crate::reaper::Object;
use crate::shared::Shared;

/// Host memory that every device copies to and from at full speed.
#[derive(Debug)]
pub(crate) struct HipPinned {
    room: Room,
    bytes: usize,
}

impl HipPinned {
    pub(crate) fn allocate(shared: &Shared, bytes: usize, options: &PinnedOptions) -> Result<Self> {
        const OPERATION: &str = "pinned_allocate";
        shared.check(OPERATION)?;
        let combined = if options.write_combined { hipHostMallocWriteCombined } else { 0 };
        let flags = hipHostMallocPortable | combined;
        let attempt = |bytes| {
            let mut address = ptr::null_mut();
            let allocate = shared.context.hip.hipHostMalloc;
            // SAFETY: the address is written to where it may be.
            let code = shared.context.apart(|_| unsafe { allocate(&mut address, bytes, flags) });
            ok(code)?;
            allocated(address, bytes)
        };
        let allocate = |bytes| shared.with_room(|| attempt(bytes));
        let give_back = |room: Room| shared.retire(Object::Pinned(room.address), &[]);
        let room = Room::new(bytes, allocate, give_back).map_err(|code| {
            shared.error(OPERATION, code, format_args!("{bytes} bytes of host memory"))
        })?;
        Ok(Self { room, bytes })
    }

    pub(crate) fn address(&self) -> *mut u8 {
        pointer(self.room.first()).cast()
    }

    pub(crate) fn into_object(self) -> Object {
        Object::Pinned(self.room.address)
    }
}

// SAFETY: the memory stays at this address, which is aligned as all memory of the backend, until it is freed.
unsafe impl DevicePinned for HipPinned {
    fn len(&self) -> usize {
        self.bytes
    }

    fn ptr(&self) -> *mut u8 {
        self.address()
    }
}
