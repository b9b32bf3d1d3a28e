//! Graphs: work captured once and launched many times.

use std::any::Any;

use super::DeviceStream;
use crate::{NativeHandle, Result};

/// Capture of enqueued work, to be launched as one.
///
/// # Safety
///
/// A launch does what was captured, in the order in which it was captured, touching exactly the bytes named there, in
/// the order of the stream it is launched on.
pub unsafe trait GraphCapture {
    /// Begins a capture: a stream that keeps what is enqueued on it instead of running it. Nothing arrives there but
    /// copies within the device, copies from and to pinned memory, fills, launches and region copies by the device, in
    /// any thread, but one at a time. Dropping the stream abandons the capture.
    ///
    /// Until then every other call *must* work as ever, in the capturing thread too, `synchronize` of the device
    /// included, and *must not* become a part of the capture. Several captures may go on at once.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    fn begin(&self) -> Result<Box<dyn DeviceStream>>;

    /// Ends a capture, in which every enqueue succeeded, and makes a graph of it. It may be of no work.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    fn end(&self, captured: Box<dyn DeviceStream>) -> Result<Box<dyn DeviceGraph>>;

    /// Enqueues everything captured as one operation, which *must not* wait for the work. Launches of one graph arrive
    /// one at a time, and may be in flight on several streams; unordered ones leave bytes of device memory unspecified.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    ///
    /// # Safety
    ///
    /// `graph` and `stream` belong to this device. What was promised of each operation when it was captured holds
    /// again, and holds until this launch has run: pinned memory is ordered with copies and graphs of other streams, too.
    unsafe fn launch(&self, graph: &mut dyn DeviceGraph, stream: &dyn DeviceStream) -> Result<()>;

    /// Gives a graph back once the streams in `after` are done, as
    /// [`memory_free`](super::AcceleratorDevice::memory_free) does. What its work uses is given back after it.
    ///
    /// # Safety
    ///
    /// As [`memory_free`](super::AcceleratorDevice::memory_free).
    unsafe fn release(&self, graph: Box<dyn DeviceGraph>, after: &[&dyn DeviceStream]);
}

/// Captured work, ready to be launched.
pub trait DeviceGraph: Any + Send {
    /// The vendor's handle.
    fn native(&self) -> NativeHandle;
}
