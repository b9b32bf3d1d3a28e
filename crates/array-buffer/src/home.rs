//! A place to which the values of an array are copied.

use runtime_core::Stream;

/// The place to which each committed write of an array is copied: see
/// [`ArrayBuffer::set_home`](crate::ArrayBuffer::set_home).
#[derive(Clone, Debug)]
pub enum Home {
    /// The host.
    Host,
    /// A device; the copies are enqueued on the stream.
    Device(Stream),
}
