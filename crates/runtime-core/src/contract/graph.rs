//! Graphs: work captured once and launched many times.

use std::any::Any;

use super::DeviceStream;
use crate::{NativeHandle, Result};

/// Capture of enqueued work, to be launched as one operation.
///
/// # Safety
///
/// A launch runs the captured work in the order in which it was captured. It touches exactly the bytes that were named,
/// in the order of the stream it is launched on.
pub unsafe trait GraphCapture {
    /// Begins a capture. Returns a stream that keeps the work enqueued on it instead of running it. Only these
    /// operations are enqueued on it: copies within the device, copies from and to pinned memory, fills, launches, and
    /// region copies by the device. Any thread may enqueue, but only one at a time. Dropping the stream abandons the
    /// capture.
    ///
    /// Until then every other call *must* work as usual, also in the capturing thread and including `synchronize` of
    /// the device, and *must not* become part of the capture. Several captures may be open at once.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn begin(&self) -> Result<Box<dyn DeviceStream>>;

    /// Ends a capture in which every enqueue succeeded, and makes a graph of it. The graph may be empty.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn end(&self, captured: Box<dyn DeviceStream>) -> Result<Box<dyn DeviceGraph>>;

    /// Enqueues all captured work as one operation. *Must not* wait for the work. Launches of one graph arrive one at a
    /// time, and may be in flight on several streams. Unordered launches leave bytes of device memory unspecified.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    ///
    /// # Safety
    ///
    /// `graph` and `stream` belong to this device. The promises made for each operation when it was captured hold
    /// again, and hold until this launch has run. Pinned memory, too, is ordered with copies and graphs of other
    /// streams.
    unsafe fn launch(&self, graph: &mut dyn DeviceGraph, stream: &dyn DeviceStream) -> Result<()>;
}

/// Captured work, ready to be launched.
pub trait DeviceGraph: Any + Send {
    /// The vendor's handle.
    fn native(&self) -> NativeHandle;
}
