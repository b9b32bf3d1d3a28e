//! Fields as arguments of a stencil.

use runtime_core::{Error, ErrorKind, Result, Stream};

use crate::boundary::Constants;
use crate::description::Intent;
use crate::erased::{Any, Arrays, Borrowed, Exclusive, Number, map};
use crate::field::{Core, Field};

/// A field as an argument of a stencil.
pub struct Argument<'a> {
    pub(crate) core: &'a Core,
    pub(crate) array: Any<Arrays<'a>>,
    pub(crate) intent: Intent,
    pub(crate) boundaries: &'a dyn Boundaries,
}

/// The values of a field's boundaries.
pub(crate) trait Boundaries {
    /// Calls `work` with the values, in memory that work on `stream` may read.
    fn lend(
        &self,
        stream: &Stream,
        work: &mut dyn FnMut(&dyn Constants) -> Result<()>,
    ) -> Result<()>;
}

impl<T: Number, const N: usize> Boundaries for Field<T, N> {
    fn lend(
        &self,
        stream: &Stream,
        work: &mut dyn FnMut(&dyn Constants) -> Result<()>,
    ) -> Result<()> {
        self.with_constants(stream, work)
    }
}

impl<'a> Argument<'a> {
    /// A field that is read.
    pub fn input<T: Number, const N: usize>(field: &'a Field<T, N>) -> Self {
        Self::new(field, Intent::In)
    }

    /// A field that is set.
    pub fn output<T: Number, const N: usize>(field: &'a mut Field<T, N>) -> Self {
        Self::new(field, Intent::Out)
    }

    /// A field that is read and set.
    pub fn update<T: Number, const N: usize>(field: &'a mut Field<T, N>) -> Self {
        Self::new(field, Intent::InOut)
    }

    /// Its array, to read.
    pub(crate) fn shared(&self) -> Result<Any<Borrowed<'a>>> {
        Ok(map!(self.array, array => array.try_borrow().map_err(|_| self.in_use())?))
    }

    /// Its array, to set values or ghosts.
    pub(crate) fn exclusive(&self) -> Result<Any<Exclusive<'a>>> {
        Ok(map!(self.array, array => array.try_borrow_mut().map_err(|_| self.in_use())?))
    }

    fn in_use(&self) -> Error {
        let message = format!(
            "field {} is in use by the launch or the sweep whose work needs it again",
            self.core.name
        );
        Error::new(ErrorKind::Conflict, "run", message)
    }

    /// The same argument.
    pub(crate) fn again(&self) -> Argument<'_> {
        let array = map!(self.array, array => array);
        Argument { array, ..*self }
    }

    fn new<T: Number, const N: usize>(field: &'a Field<T, N>, intent: Intent) -> Self {
        Self { core: field.core(), array: T::erase(field.array()), intent, boundaries: field }
    }
}

impl std::fmt::Debug for Argument<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.intent, self.core.name)
    }
}
