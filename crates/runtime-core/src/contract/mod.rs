//! The traits that a backend implements. All are object-safe.
//!
//! **If you use a device**, use [`Device`](crate::Device) and the other types of this crate. They call these traits.
//!
//! **If you implement a device**, implement these traits and nothing else. No method has a default body, so a backend
//! that omits a method does not compile. A feature that only some devices have is an [ability](Abilities), which a
//! device adds if it has it. A new ability, limit or option therefore breaks no backend. Test your device with the
//! `conformance` crate.
//!
//! The *front* is the checked types that programs use. It validates every argument before it calls your code, so do not
//! repeat these checks:
//!
//! - ranges lie inside the memory and do not overflow, and sizes are not zero;
//! - objects were made by this same device, unless a method says otherwise;
//! - the grid and block of a launch are within your [`Limits`](crate::Limits);
//! - kernel arguments agree with the result of [`DeviceKernel::parameters`].
//!
//! Two rules apply to every trait that is `unsafe`. The implementor guarantees what the trait's documentation says,
//! because safe code relies on it. Enqueued work *must* access exactly the bytes named, in stream order, and no others.
//!
//! # What may be dropped while work uses it
//!
//! - *Memory, pinned memory, modules, prepared regions and graphs* are passed to
//!   [`release`](AcceleratorDevice::release), together with streams. Registered memory is passed to
//!   [`unregister`](HostRegistration::unregister) instead.
//! - *Kernels* are dropped after their last launch was enqueued, possibly before it has run, and before their module is
//!   unloaded.
//! - *Events* are dropped at any time. Waits that were already enqueued for their point remain in force.
//! - *Gates* are dropped after they were opened or failed. Waits that were already enqueued end.
//! - *Streams* are dropped at any time, but not before the last `release` that takes them in `after`. Their work runs
//!   to completion. The work of a capture stream is dropped, and none of it is enqueued to run.
//! - *The device* is dropped last, possibly with work in flight. Only a [`CounterSet`] and the state of a
//!   [`Backend`](crate::Backend) may outlive it.
//!
//! Adopted memory outlives every object made of it: its owner is dropped once the memory was freed and the streams
//! passed to that `release` are done. A native event that another library owns outlives its wrapper. A native stream
//! that another library owns lives at least until [`NativeInterop::stream_end`].
//!
//! # What a panic may do
//!
//! A method that panics does so in the program that called it, and the front stays sound. After a panic the front
//! assumes that
//!
//! - *an enqueue* (of [`DeviceStream`], [`RegionCopyAbility::execute`], [`PeerAccess::memory_copy`],
//!   [`GraphCapture::launch`]) has begun: what the work uses is freed only after its stream is done, and the host sees
//!   such memory only when the stream is done. An enqueue on a stream of [`GraphCapture::begin`] ends the capture;
//! - *[`record`](DeviceStream::record), `wait` (of [streams](DeviceStream::wait) and of [events](DeviceEvent::wait)),
//!   `synchronize`, `take_failure` and `query`* have done nothing: no work is known to be done, and no failure is taken;
//! - *[`DeviceGate::hold_up`]* has held the stream up, or has done nothing;
//! - *a method that creates an object* has created none, and what was passed to it by value is dropped;
//! - *[`MemoryPool::trim`]* has returned any part of the unused memory, and no memory in use;
//! - *a method of [`EmbeddedDevice`] that changes the device* ([`flash`](EmbeddedDevice::flash),
//!   [`reset`](EmbeddedDevice::reset), [`memory_write`](EmbeddedDevice::memory_write),
//!   [`code_write`](EmbeddedDevice::code_write), [`call`](EmbeddedDevice::call),
//!   [`console`](EmbeddedDevice::console)) has done any part of its work, as after an error. A later `flash` or `reset`
//!   starts the program anew;
//! - *a method that only returns information* has changed nothing. If it writes to a slice of the caller, it has written
//!   any part of it.
//!
//! An object *must* remain usable after one of its methods panicked, as after an error. Methods that release something
//! ([`AcceleratorDevice::release`], [`HostRegistration::unregister`], [`NativeInterop::stream_end`]), those that open a
//! gate ([`DeviceGate::open`], [`DeviceGate::fail`]) and destructors *must not* panic: the front calls them in its own
//! destructors, where a second panic aborts the process.
#![expect(unsafe_code, reason = "declares the unsafe traits and functions that backends implement")]

mod abilities;
mod accelerator;
mod common;
mod embedded;
mod graph;
mod huge_pages;
mod interop;
mod module;
mod stream;

pub use abilities::{
    Abilities, CounterSet, Counters, DeviceGate, DeviceLoad, DeviceRegions, EmbeddedAbilities,
    Gates, HostRegistration, KernelAbilities, MemoryAdoption, MemoryPool, Monitor, PeerAccess,
    RawSlot, RegionCopyAbility, UnifiedMemory,
};
pub use accelerator::{
    AcceleratorDevice, DeviceMemory, DevicePinned, EventOptions, PinnedOptions, Released,
    StreamOptions,
};
pub use common::CommonRuntime;
pub use embedded::{CallOutcome, CallValue, EmbeddedDevice, MemoryArea, Symbol};
pub use graph::{DeviceGraph, GraphCapture};
pub use huge_pages::prefer_huge_pages;
pub use interop::NativeInterop;
pub use module::{
    DeviceKernel, DeviceModule, Occupancy, ParamAccess, ParamInfo, ParamKind, RawArg,
};
pub use stream::{At, DeviceEvent, DeviceStream, MemoryAt, PinnedAt};

use std::any::Any;

use crate::{Error, ErrorKind, Result};

/// Returns a backend's own object behind a trait object.
///
/// # Errors
///
/// `WrongDevice` if the object is of another type. The checked front passes such objects only to methods that are
/// documented to take objects of other devices.
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
    object.downcast_ref().ok_or_else(|| not_own::<T>(operation))
}

/// As [`own`], for an object in its box: one to be released, or a captured stream.
///
/// # Errors
///
/// `WrongDevice` if the object is of another type. The object is then dropped.
///
/// ```
/// use std::any::Any;
/// use runtime_core::contract::own_box;
///
/// let object: Box<dyn Any> = Box::new(String::from("text"));
/// let text: String = own_box(object, "example")?;
/// # Ok::<(), runtime_core::Error>(())
/// ```
pub fn own_box<T: Any>(object: Box<dyn Any>, operation: &'static str) -> Result<T> {
    object.downcast().map(|object| *object).map_err(|_| not_own::<T>(operation))
}

#[cold]
fn not_own<T>(operation: &'static str) -> Error {
    let message = format!("the object is not a {}", std::any::type_name::<T>());
    Error::new(ErrorKind::WrongDevice, operation, message)
}
