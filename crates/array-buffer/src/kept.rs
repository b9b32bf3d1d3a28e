//! The error of a failed `into_inner` or `into_memory`; it returns the array.

use std::fmt;

use runtime_core::Error;

/// The error of a failed [`into_inner`](crate::ArrayBuffer::into_inner) or
/// [`into_memory`](crate::ArrayBuffer::into_memory), together with the array.
///
/// In a function that returns [`Error`], `?` converts it to the error alone.
///
/// ```
/// use array_buffer::{ArrayBuffer, ErrorKind, TransferBudget};
/// use backend_sim::{SimConfig, SimDevice};
/// use runtime_core::Device;
///
/// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
/// let array = ArrayBuffer::from_vec(vec![1, 2, 3], 3)?;
/// let budget = TransferBudget::forbid();
/// let kept = array.into_memory(&device.default_stream()).unwrap_err();
/// assert_eq!(kept.error().kind(), ErrorKind::LimitExceeded);
/// drop(budget);
/// let array = kept.into_array().expect("nothing was lost");
/// assert_eq!(array.into_inner()?.to_vec(), [1, 2, 3]);
/// # Ok::<(), array_buffer::Error>(())
/// ```
pub struct Kept<A>(Box<(Option<A>, Error)>);

impl<A> Kept<A> {
    pub(crate) fn new(array: A, error: Error) -> Self {
        Self(Box::new((Some(array), error)))
    }

    /// An error that occurred after the array's storage was taken.
    pub(crate) fn lost(error: Error) -> Self {
        Self(Box::new((None, error)))
    }

    /// The error.
    pub fn error(&self) -> &Error {
        &self.0.1
    }

    /// The array, unchanged; `None` only if its storage was already taken.
    pub fn into_array(self) -> Option<A> {
        self.0.0
    }
}

impl<A> From<Kept<A>> for Error {
    fn from(kept: Kept<A>) -> Self {
        kept.0.1
    }
}

impl<A> fmt::Debug for Kept<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.error(), f)
    }
}

impl<A> fmt::Display for Kept<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error(), f)
    }
}

impl<A> std::error::Error for Kept<A> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}
