//! Streams, events and memory that other libraries own.

use super::{DeviceEvent, DeviceStream};
use crate::{NativeHandle, Origin, Result};

/// Use of native objects of other owners, where several libraries work with one device.
///
/// The front passes only handles of this device's interface and of the kind that each method names.
///
/// # Safety
///
/// A stream made from a handle is the same stream: work enqueued by either side is in one order. No method releases
/// anything that belongs to the owner.
pub unsafe trait NativeInterop {
    /// Wraps a stream. It is used like a stream of [`stream_create`](super::AcceleratorDevice::stream_create) until
    /// [`stream_end`](Self::stream_end). The owner may enqueue on it at any time. *Must not* destroy it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if no stream can have this handle, or if the stream is found to be of another device or
    /// context.
    ///
    /// # Safety
    ///
    /// The handle is of a stream of this device's context that is not being captured. Both remain true until
    /// [`stream_end`](Self::stream_end) returns.
    unsafe fn stream(&self, handle: NativeHandle) -> Result<Box<dyn DeviceStream>>;

    /// Ends the use of a stream that [`stream`](Self::stream) made. *Must not* wait for its work where the driver can
    /// avoid it, and *must not* panic.
    ///
    /// From now on the owner may destroy the stream, so the device *must not* use the handle unless it holds its own
    /// reference. The object stays alive for callers that still need the state of the work enqueued so far: a
    /// [`release`](super::AcceleratorDevice::release) that waits for it, [`synchronize`](DeviceStream::synchronize) and
    /// [`query`](DeviceStream::query), possibly in another thread while this method runs.
    ///
    /// # Safety
    ///
    /// `stream` was made by [`stream`](Self::stream) of this device. From now on no work, event record or wait is
    /// enqueued on it.
    unsafe fn stream_end(&self, stream: &dyn DeviceStream);

    /// Wraps an event. Callers wait for it and query it until it is dropped; they do not record it. *Must not* destroy
    /// it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the event is found to be of a context whose events this device cannot wait for.
    ///
    /// # Safety
    ///
    /// The handle is of an event that streams of this device can wait for. It stays valid until the object is dropped.
    unsafe fn event(&self, handle: NativeHandle) -> Result<Box<dyn DeviceEvent>>;

    /// Returns the allocation that contains an address or a memory object, whichever library made it. `None` if the
    /// driver does not know the allocation or cannot report it.
    ///
    /// # Errors
    ///
    /// Errors of the driver. An unknown address is not an error.
    ///
    /// # Safety
    ///
    /// If the handle is a memory object, the object is alive. An address may be any number.
    unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>>;
}
