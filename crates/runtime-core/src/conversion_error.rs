//! The error of a failed conversion; it returns the input.

use std::fmt;

use crate::Error;

/// The error of a conversion that takes its input by value, together with that input.
///
/// In a function that returns [`Error`], `?` converts it to the error alone. The input is then dropped, and its owner
/// too if no other code holds it.
///
/// ```
/// use runtime_core::{ConversionError, Error, ErrorKind};
///
/// fn into_even(values: Vec<i32>) -> Result<Vec<i32>, ConversionError<Vec<i32>>> {
///     if values.iter().all(|value| value % 2 == 0) {
///         return Ok(values);
///     }
///     let error = Error::new(ErrorKind::InvalidArgument, "into_even", "a value is odd");
///     Err(ConversionError::new(values, error))
/// }
///
/// let failed = into_even(vec![2, 3]).unwrap_err();
/// assert_eq!(failed.error().kind(), ErrorKind::InvalidArgument);
/// assert_eq!(failed.into_inner(), [2, 3]);
/// ```
pub struct ConversionError<A>(Box<(A, Error)>);

impl<A> ConversionError<A> {
    /// The error of a conversion of `input`.
    pub fn new(input: A, error: Error) -> Self {
        Self(Box::new((input, error)))
    }

    /// The error.
    pub fn error(&self) -> &Error {
        &self.0.1
    }

    /// The input of the conversion.
    pub fn into_inner(self) -> A {
        self.0.0
    }

    /// The input and the error.
    pub fn into_parts(self) -> (A, Error) {
        *self.0
    }
}

impl<A> From<ConversionError<A>> for Error {
    fn from(failed: ConversionError<A>) -> Self {
        failed.0.1
    }
}

impl<A> fmt::Debug for ConversionError<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.error(), f)
    }
}

impl<A> fmt::Display for ConversionError<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error(), f)
    }
}

impl<A> std::error::Error for ConversionError<A> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}
