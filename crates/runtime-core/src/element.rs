//! Element types: the values that memory holds, and the arithmetic that a region copy may do on them.
#![expect(
    unsafe_code,
    reason = "declares and implements the unsafe trait that binds Rust types to element types"
)]

use std::fmt;

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;

use crate::Record;

/// The type of one array element.
///
/// | type | bytes | negate | sum | min, max |
/// |---|---|---|---|---|
/// | `Bool` | 1 | – | – | – |
/// | `I8` … `I64` | 1 … 8 | wraps | wraps | yes |
/// | `U8` … `U64` | 1 … 8 | – | wraps | yes |
/// | `F16`, `BF16` | 2 | sign bit | in `f32`, rounded to nearest even | yes |
/// | `F32`, `F64` | 4, 8 | sign bit | IEEE 754 | yes |
/// | `C64`, `C128` | 8, 16 | both sign bits | by component | – |
/// | `Record` | those of the struct | – | – | – |
///
/// Integers wrap in two's complement. Negating a floating-point value flips its sign bit, also for a NaN.
/// `min(old, new)` is `new` if `new < old` or `new` is NaN, else `old`. `max` does the same with `>`. A NaN on either
/// side therefore gives a NaN, and of two zeros the old one is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table above describes each item")]
pub enum DType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    F64,
    C64,
    C128,
    /// A struct: see [`record!`](crate::record).
    Record(&'static Record),
}

impl DType {
    /// Every type of numbers.
    pub const ALL: [Self; 15] = [
        Self::Bool,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::C64,
        Self::C128,
    ];

    /// Size of one element in bytes, never 0.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
            Self::Record(record) => record.size(),
        }
    }

    /// A number below 256 that no other type has, except that all records have one.
    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Bool => 0,
            Self::I8 => 1,
            Self::I16 => 2,
            Self::I32 => 3,
            Self::I64 => 4,
            Self::U8 => 5,
            Self::U16 => 6,
            Self::U32 => 7,
            Self::U64 => 8,
            Self::F16 => 9,
            Self::BF16 => 10,
            Self::F32 => 11,
            Self::F64 => 12,
            Self::C64 => 13,
            Self::C128 => 14,
            Self::Record(_) => 15,
        }
    }

    /// Alignment of one element in bytes. For complex numbers, the alignment of a component.
    pub const fn align(self) -> usize {
        match self {
            Self::C64 | Self::C128 => self.size() / 2,
            Self::Record(record) => record.align(),
            _ => self.size(),
        }
    }

    /// The name, such as `f64`; the name of a struct, whose fields are in messages, too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::C64 => "c64",
            Self::C128 => "c128",
            Self::Record(record) => record.name(),
        }
    }

    /// Whether a region copy may negate elements of this type.
    pub const fn admits_negate(self) -> bool {
        use DType::{Bool, Record, U8, U16, U32, U64};
        !matches!(self, Bool | U8 | U16 | U32 | U64 | Record(_))
    }

    /// Whether a region copy may sum elements of this type.
    pub const fn admits_sum(self) -> bool {
        !matches!(self, Self::Bool | Self::Record(_))
    }

    /// Whether elements of this type are ordered, so that a region copy may take their minimum or maximum.
    pub const fn admits_order(self) -> bool {
        !matches!(self, Self::Bool | Self::C64 | Self::C128 | Self::Record(_))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(record) => record.fmt(f),
            _ => f.pad(self.name()),
        }
    }
}

/// A Rust type that can be an array element.
///
/// [`Pod`] promises that every bit pattern is a value and that there is no padding, so bytes that a device wrote are
/// always readable. For this reason [`Bool`] is an element and `bool` is not. `usize` is not an element either, because
/// its size differs between machines: pass sizes as `u64` or `u32`.
///
/// # Safety
///
/// `DTYPE` must describe the type's real representation: its size is [`DType::size`], it needs no stricter alignment
/// than [`DType::align`], and the bytes have the meaning that [`DType`] defines. A transparent wrapper around an
/// element satisfies this with the element's own `DTYPE`.
///
/// Memory of a type with another size or a stricter alignment does not compile:
///
/// ```compile_fail,E0080
/// use runtime_core::{DType, Device, Element, Memory, Result, bytemuck};
///
/// #[derive(Clone, Copy)]
/// #[repr(C, align(16))]
/// struct Aligned([f64; 2]);
///
/// unsafe impl bytemuck::Zeroable for Aligned {}
/// unsafe impl bytemuck::Pod for Aligned {}
/// // Wrong: a `C128` is aligned to 8 bytes.
/// unsafe impl Element for Aligned {
///     const DTYPE: DType = DType::C128;
/// }
///
/// fn allocate(device: &Device) -> Result<Memory<Aligned>> {
///     device.memory_allocate(10)
/// }
/// # let _ = allocate as fn(&Device) -> Result<Memory<Aligned>>;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no element of arrays",
    label = "no element",
    note = "elements are `i8` to `i64`, `u8` to `u64`, `f16`, `bf16`, `f32`, `f64`, `Complex<f32>`, `Complex<f64>` and `Bool`",
    note = "write `Bool` for `bool`, and `u64` or `u32` for `usize`; declare a struct by `record!`"
)]
pub unsafe trait Element: Pod + Send + Sync {
    /// The element type of these values on a device.
    const DTYPE: DType;
}

/// Evaluated for every element type for which memory is allocated or lent as a slice.
pub(crate) const fn check_representation<T: Element>() {
    assert!(size_of::<T>() == T::DTYPE.size(), "the element has another size than its DTYPE");
    assert!(align_of::<T>() <= T::DTYPE.align(), "the element needs more alignment than its DTYPE");
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),* $(,)?) => {$(
        const _: () = check_representation::<$type>();
        // SAFETY: the line above checks size and alignment, and the name denotes the same representation.
        unsafe impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    Bool => Bool,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64,
    Complex<f32> => C64, Complex<f64> => C128,
}

/// A truth value of one byte. Zero is false; any other value is true.
///
/// Unlike for `bool`, every bit pattern is a value, so memory written by a device can be read directly.
///
/// ```
/// use runtime_core::Bool;
/// assert!(bool::from(Bool::from(true)));
/// assert_eq!(Bool::from(false), Bool::default());
/// ```
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Bool(u8);

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> Self {
        value.0 != 0
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        bool::from(*self) == bool::from(*other)
    }
}

impl Eq for Bool {}

impl fmt::Debug for Bool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bool::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_divides_size() {
        for dtype in DType::ALL {
            assert_eq!(dtype.size() % dtype.align(), 0, "{dtype}");
        }
    }

    #[test]
    fn any_byte_is_a_bool() {
        let values: &[Bool] = bytemuck::cast_slice(&[0u8, 1, 0xAB]);
        assert_eq!(values.iter().map(|v| bool::from(*v)).collect::<Vec<_>>(), [false, true, true]);
    }
}
