//! A place that always has the values of an array.

use runtime_core::Stream;

/// The place where an array always has its values: see [`ArrayBuffer::set_home`](crate::ArrayBuffer::set_home).
#[derive(Clone, Debug)]
pub enum Home {
    /// The host.
    Host,
    /// A device; the copies are enqueued on the stream.
    Device(Stream),
}
