//! What an implementor writes: object-safe traits, a screen each.
//!
//! **If you implement a device**, write these traits and nothing else: every method is required and none has a
//! default body, so a device that lacks something does not compile. You may rely on the checked front having looked
//! at every argument before you see it: ranges lie inside the memory and do not overflow, sizes are not zero,
//! objects were made by this very device unless a method says otherwise, launch geometry is within your
//! [`Limits`](crate::Limits), and kernel arguments agree with what
//! [`DeviceKernel::parameters`] reports. Do not repeat these checks. Prove the result with the `conformance` crate.
//!
//! **If you use a device**, use [`Device`](crate::Device) and its companions instead; they call these traits.
//!
//! Two things hold for every trait that says `unsafe`. The implementor promises what the trait's docs say, since safe
//! code relies on it. And enqueued work *must* touch exactly the bytes named, in stream order, and no others.
#![expect(unsafe_code, reason = "declares the unsafe traits and functions that backends implement")]

mod abilities;
mod accelerator;
mod common;
mod embedded;
mod graph;
mod interop;
mod stream;

pub use abilities::{
    CounterSet, Counters, DeviceLoad, DeviceRegions, MemoryAdoption, MemoryPool, Monitor,
    PeerAccess, RawSlot, RegionCopyAbility, UnifiedMemory,
};
pub use accelerator::{
    AcceleratorDevice, DeviceMemory, DevicePinned, PinnedOptions, StreamOptions,
};
pub use common::{
    CommonRuntime, DeviceKernel, DeviceModule, Occupancy, ParamAccess, ParamInfo, ParamKind, RawArg,
};
pub use embedded::{CallOutcome, CallValue, EmbeddedDevice, MemoryArea, Symbol};
pub use graph::{DeviceGraph, GraphCapture};
pub use interop::NativeInterop;
pub use stream::{DeviceEvent, DeviceStream};

use std::any::Any;

use crate::{Error, ErrorKind, Result};

/// A backend's own object behind a trait object: the one downcast a backend needs.
///
/// # Errors
///
/// `WrongDevice` if the object is of another type, which the checked front lets happen only where a method says
/// that it takes objects of other devices.
///
/// ```
/// use std::any::Any;
/// use runtime_core::contract::own;
///
/// let object: Box<dyn Any> = Box::new(7_u32);
/// assert_eq!(*own::<u32>(&*object, "example")?, 7);
/// assert!(own::<i8>(&*object, "example").is_err());
/// # Ok::<(), runtime_core::Error>(())
/// ```
pub fn own<'a, T: Any>(object: &'a dyn Any, operation: &'static str) -> Result<&'a T> {
    object.downcast_ref().ok_or_else(|| {
        Error::new(
            ErrorKind::WrongDevice,
            operation,
            format!("the object is not a {}", std::any::type_name::<T>()),
        )
    })
}
