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
//!
//! # What may be dropped while work uses it
//!
//! - *Memory, pinned memory, modules, prepared regions and graphs* are given to their `free`, `unload` or `release`, with
//!   streams that have all work on them behind them. A graph comes before what its work uses.
//! - *Kernels* are dropped when the last launch has been enqueued, perhaps not run, and before their module is unloaded.
//! - *Events* are dropped at any time: waits that were enqueued for their mark hold.
//! - *Streams* are dropped at any time, but live as long as an object that a `free` is yet to name them for. Their work
//!   runs to its end. That of a capture is dropped with nothing enqueued to run.
//! - *The device* is dropped last, with work perhaps in flight. Only a [`CounterSet`] may outlive it, and what a
//!   [`Driver`](crate::Driver) keeps.
//!
//! Adopted memory outlives every object made of it: its owner is dropped when the memory is given back and the streams
//! named there are done. A native stream or event that others own outlives its wrapper, a stream until
//! [`NativeInterop::stream_end`].
//!
//! # What a panic may do
//!
//! A method that panics does so in the program that called it, and the front stays sound. It takes that
//!
//! - *an enqueue* (of [`DeviceStream`], [`RegionCopyAbility::execute`], [`PeerAccess::memory_copy`],
//!   [`GraphCapture::launch`]) has begun: what the work uses is given back after its stream, and memory that the host sees
//!   is shown when its stream is done. An enqueue on a stream of [`GraphCapture::begin`] ends the capture;
//! - *[`record`](DeviceStream::record), [`wait`](DeviceStream::wait), `synchronize` and `query`* have done nothing;
//! - *what makes an object* has made none;
//! - *what answers a question* has changed nothing.
//!
//! So an object that a panic passed *must* remain usable, as after an error. What gives back (`free`, `unload`, `release`,
//! [`NativeInterop::stream_end`]) and destructors *must not* panic: the front calls them in destructors of its own, where a
//! second panic ends the process.
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
