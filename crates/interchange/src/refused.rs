//! The error of a refused conversion; it returns the input.

use std::fmt;

use runtime_core::Error;

/// The error of a refused conversion, together with the unchanged input.
///
/// In a function that returns [`Error`], `?` converts it to the error alone. The input is then dropped, and its owner
/// too if no other code holds it.
///
/// ```
/// use interchange::ArrayExchange;
/// use runtime_core::ErrorKind;
///
/// let refused = ArrayExchange::from_vec(vec![1.0, 2.0, 3.0], &[2, 2]).unwrap_err();
/// assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
/// assert_eq!(refused.into_inner(), [1.0, 2.0, 3.0]);
/// ```
pub struct Refused<A>(Box<(A, Error)>);

impl<A> Refused<A> {
    pub(crate) fn new(what: A, error: Error) -> Self {
        Self(Box::new((what, error)))
    }

    /// The error.
    pub fn error(&self) -> &Error {
        &self.0.1
    }

    /// The unchanged input of the conversion.
    pub fn into_inner(self) -> A {
        self.0.0
    }

    /// The input and the error.
    pub fn into_parts(self) -> (A, Error) {
        *self.0
    }
}

impl<A> From<Refused<A>> for Error {
    fn from(refused: Refused<A>) -> Self {
        refused.0.1
    }
}

impl<A> fmt::Debug for Refused<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.error(), f)
    }
}

impl<A> fmt::Display for Refused<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error(), f)
    }
}

impl<A> std::error::Error for Refused<A> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}
