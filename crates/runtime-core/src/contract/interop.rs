//! Streams, events and memory that other libraries own.

use super::{DeviceEvent, DeviceStream};
use crate::{NativeHandle, Origin, Result};

/// Use of native objects that others own, where several libraries work with one device.
///
/// Handles arrive with this device's interface and the kind that each method names.
///
/// # Safety
///
/// A stream made of a handle is that very stream: what is enqueued by either side is in one order. No method gives up
/// anything that belongs to the owner.
pub unsafe trait NativeInterop {
    /// Wraps a stream, to be used as one of [`stream_create`](super::AcceleratorDevice::stream_create) until
    /// [`stream_end`](Self::stream_end). Others may enqueue there at any time. *Must not* destroy it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the handle is none that streams have, or is seen to be of another device or context.
    ///
    /// # Safety
    ///
    /// The handle is of a stream of this device's context, which nobody captures, and stays so until
    /// [`stream_end`](Self::stream_end) returns.
    unsafe fn stream(&self, handle: NativeHandle) -> Result<Box<dyn DeviceStream>>;

    /// Ends the use of a stream that [`stream`](Self::stream) made. *Must not* wait for its work where the driver can
    /// avoid that, and *must not* panic.
    ///
    /// From here on the owner may destroy the stream, so its handle *must not* be touched without a reference of the
    /// device's own. The object stays for what still asks for the work enqueued until now: a `free` that waits for it,
    /// [`synchronize`](DeviceStream::synchronize) and [`query`](DeviceStream::query), perhaps in another thread while
    /// this runs.
    ///
    /// # Safety
    ///
    /// `stream` was made by [`stream`](Self::stream) of this device, and from here on nothing is enqueued, recorded or
    /// held up on it.
    unsafe fn stream_end(&self, stream: &dyn DeviceStream);

    /// Wraps an event, to be waited for and asked until it is dropped; it is not recorded. *Must not* destroy it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it is seen to be of a context whose events this device cannot wait for.
    ///
    /// # Safety
    ///
    /// The handle is of an event that streams of this device can wait for, and stays so until the object is dropped.
    unsafe fn event(&self, handle: NativeHandle) -> Result<Box<dyn DeviceEvent>>;

    /// Which allocation an address or a memory object is in, whoever made it; `None` if the driver does not know it or
    /// cannot tell.
    ///
    /// # Errors
    ///
    /// What the driver reports, other than that it does not know the address.
    ///
    /// # Safety
    ///
    /// A memory object is alive. An address may be any number.
    unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>>;
}
