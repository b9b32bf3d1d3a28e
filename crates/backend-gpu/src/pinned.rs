//! Page-locked host memory.
#![expect(unsafe_code, reason = "implements the contract's unsafe trait")]

use std::marker::PhantomData;

use runtime_core::Result;
use runtime_core::contract::{DevicePinned, PinnedOptions};

use crate::allocation::{AlignedAllocation, allocated};
use crate::api::Api;
use crate::handle::pointer;
use crate::open_device::OpenDevice;
use crate::reaper::Object;
use crate::vendor::Vendor;

/// Host memory that all devices can copy to and from at full speed.
#[derive(Debug)]
pub(crate) struct Pinned<V: Vendor> {
    allocation: AlignedAllocation,
    bytes: usize,
    vendor: PhantomData<V>,
}

impl<V: Vendor> Pinned<V> {
    pub(crate) fn allocate(
        shared: &OpenDevice<V>,
        bytes: usize,
        options: &PinnedOptions,
    ) -> Result<Self> {
        const OPERATION: &str = "pinned_allocate";
        shared.check(OPERATION)?;
        let attempt = |bytes| {
            let combined = options.write_combined;
            let host = shared.context.outside_captures(|api| api.allocate_host(bytes, combined));
            allocated::<V>(host, bytes)
        };
        let allocate = |bytes| shared.with_allocation(|| attempt(bytes));
        let give_back =
            |allocation: AlignedAllocation| shared.retire(Object::Pinned(allocation.address), &[]);
        let allocation =
            AlignedAllocation::new::<V>(bytes, allocate, give_back).map_err(|code| {
                shared.error(OPERATION, code, format_args!("{bytes} bytes of host memory"))
            })?;
        Ok(Self { allocation, bytes, vendor: PhantomData })
    }

    pub(crate) fn address(&self) -> *mut u8 {
        pointer(self.allocation.first())
    }

    pub(crate) fn into_object(self) -> Object {
        Object::Pinned(self.allocation.address)
    }
}

// SAFETY: the memory stays at this address until it is freed, and is aligned like all memory of a device.
unsafe impl<V: Vendor> DevicePinned for Pinned<V> {
    fn len(&self) -> usize {
        self.bytes
    }

    fn ptr(&self) -> *mut u8 {
        self.address()
    }
}
