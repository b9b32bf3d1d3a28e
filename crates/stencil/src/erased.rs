//! Arrays, guards and exchanges of any element type that a field may have.

use std::cell::{Ref, RefCell, RefMut};
use std::fmt;

use array_buffer::{ArrayBuffer, InFlight, PartMut, ReadGuard, WriteGuard};
use ndarray::IxDyn;
use runtime_core::Element;

use crate::accumulate::Value;

/// The element type of a field: `f32`, `f64`, `i32`, `i64` or `u32`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no element type of a field",
    label = "use f32, f64, i32, i64 or u32, and u32 for `bool`"
)]
pub trait Number: Element + PartialEq + fmt::Debug + Erase + Value {}

/// The array of a field.
pub(crate) type Array<T> = ArrayBuffer<T, IxDyn>;

/// A type for each element type.
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub trait Family {
    /// The type.
    type Of<T: Number>;
}

/// A value whose element type is known only at run time.
#[derive(Debug)]
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub enum Any<F: Family> {
    F32(F::Of<f32>),
    F64(F::Of<f64>),
    I32(F::Of<i32>),
    I64(F::Of<i64>),
    U32(F::Of<u32>),
}

/// Evaluates an expression for the value in an [`Any`].
macro_rules! with {
    ($any:expr, $value:pat => $result:expr) => {
        match $any {
            $crate::erased::Any::F32($value) => $result,
            $crate::erased::Any::F64($value) => $result,
            $crate::erased::Any::I32($value) => $result,
            $crate::erased::Any::I64($value) => $result,
            $crate::erased::Any::U32($value) => $result,
        }
    };
}

/// Makes an [`Any`] of an expression for the value in another one.
macro_rules! map {
    ($any:expr, $value:pat => $result:expr) => {
        match $any {
            $crate::erased::Any::F32($value) => $crate::erased::Any::F32($result),
            $crate::erased::Any::F64($value) => $crate::erased::Any::F64($result),
            $crate::erased::Any::I32($value) => $crate::erased::Any::I32($result),
            $crate::erased::Any::I64($value) => $crate::erased::Any::I64($result),
            $crate::erased::Any::U32($value) => $crate::erased::Any::U32($result),
        }
    };
}

pub(crate) use {map, with};

/// Makes an [`Any`] of an array.
#[expect(unnameable_types, reason = "seals `Number`")]
pub trait Erase: Sized + Element {
    /// The array, with its type known only at run time.
    #[doc(hidden)]
    fn erase(array: &RefCell<ArrayBuffer<Self, IxDyn>>) -> Any<Arrays<'_>>;
}

macro_rules! families {
    ($($(#[$meta:meta])* $vis:vis $name:ident = $of:ty;)*) => {$(
        $(#[$meta])*
        #[derive(Debug)]
        $vis struct $name<'a>(std::marker::PhantomData<&'a ()>);

        impl<'a> Family for $name<'a> {
            type Of<T: Number> = $of;
        }
    )*};
}

families! {
    /// Arrays.
    #[expect(unnameable_types, reason = "part of a sealed trait")]
    pub Arrays = &'a RefCell<ArrayBuffer<T, IxDyn>>;
    /// Borrowed arrays.
    pub(crate) Borrowed = Ref<'a, ArrayBuffer<T, IxDyn>>;
    /// Exclusively borrowed arrays.
    pub(crate) Exclusive = RefMut<'a, ArrayBuffer<T, IxDyn>>;
    /// Exchanges.
    pub(crate) Flights = InFlight<'a, T, IxDyn>;
    /// Owned parts.
    pub(crate) Owned = PartMut<'a, T, IxDyn>;
    /// Guards for reading.
    pub(crate) Reads = ReadGuard<'a, T, IxDyn>;
    /// Guards for writing.
    pub(crate) Writes = WriteGuard<'a, T, IxDyn>;
}

macro_rules! numbers {
    ($($ty:ty, $variant:ident;)*) => {$(
        impl Number for $ty {}

        impl Erase for $ty {
            fn erase(array: &RefCell<ArrayBuffer<Self, IxDyn>>) -> Any<Arrays<'_>> {
                Any::$variant(array)
            }
        }
    )*};
}

numbers! {
    f32, F32;
    f64, F64;
    i32, I32;
    i64, I64;
    u32, U32;
}
