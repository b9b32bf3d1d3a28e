//! Page-locked host memory.
#![expect(unsafe_code, reason = "implements the contract's unsafe trait, and page-locks memory")]

use std::any::Any;
use std::marker::PhantomData;
use std::ptr::NonNull;

use runtime_core::contract::{DevicePinned, PinnedOptions};
use runtime_core::{Error, ErrorKind, Result};

use crate::allocation::{AlignedAllocation, allocated};
use crate::api::Api;
use crate::claim::Claim;
use crate::handle::pointer;
use crate::open_device::OpenDevice;
use crate::reaper::Object;
use crate::vendor::Vendor;

/// Host memory that all devices can copy to and from at full speed.
#[derive(Debug)]
pub(crate) struct Pinned<V: Vendor> {
    first: u64,
    bytes: usize,
    origin: Origin,
    vendor: PhantomData<V>,
}

#[derive(Debug)]
enum Origin {
    /// The library allocated it at this address.
    Allocated(u64),
    /// The program allocated it.
    Registered(Claim),
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
        let origin = Origin::Allocated(allocation.address);
        Ok(Self { first: allocation.first(), bytes, origin, vendor: PhantomData })
    }

    /// Page-locks memory of the program.
    ///
    /// # Safety
    ///
    /// As [`HostRegistration::register`](runtime_core::contract::HostRegistration::register).
    pub(crate) unsafe fn register(
        shared: &OpenDevice<V>,
        first: NonNull<u8>,
        bytes: usize,
    ) -> Result<Self> {
        const OPERATION: &str = "register";
        shared.check(OPERATION)?;
        let start = first.as_ptr().expose_provenance();
        let range = start..start + bytes;
        let claim = Claim::new(V::WORDS.backend, range.clone()).map_err(|other| {
            let message = format!(
                "{bytes} bytes at {start:#x} share a memory page with {} registered bytes at {:#x}",
                other.len(),
                other.start
            );
            Error::new(ErrorKind::Conflict, OPERATION, message).on(&shared.id)
        })?;
        let first = start as u64;
        // SAFETY: the caller guarantees the bytes, until the registration has ended.
        let lock = |api: &V::Api| unsafe { api.register_host(first, bytes) };
        let locked = shared.with_allocation(|| shared.context.outside_captures(lock));
        locked.map_err(|code| {
            shared.error(
                OPERATION,
                code,
                format_args!("{bytes} bytes of host memory at {start:#x}"),
            )
        })?;
        Ok(Self { first, bytes, origin: Origin::Registered(claim), vendor: PhantomData })
    }

    pub(crate) fn address(&self) -> *mut u8 {
        pointer(self.first)
    }

    /// `owner` keeps memory of the program.
    pub(crate) fn into_object(self, owner: Box<dyn Any + Send + Sync>) -> Object {
        match self.origin {
            Origin::Allocated(address) => Object::Pinned(address),
            Origin::Registered(claim) => Object::Registered { address: self.first, claim, owner },
        }
    }
}

// SAFETY: the memory stays at this address until it is freed or unregistered. What the library allocated is aligned
// like all memory of a device.
unsafe impl<V: Vendor> DevicePinned for Pinned<V> {
    fn len(&self) -> usize {
        self.bytes
    }

    fn ptr(&self) -> *mut u8 {
        self.address()
    }
}
