//! The operations of region copies on single elements.

use std::marker::PhantomData;

use half::{bf16, f16};
use num_complex::Complex;

/// The operation on one element, as a type, so that every loop is compiled for it.
pub(super) trait Operation: 'static {
    type Element: Copy + 'static;

    /// Whether the result depends on the element already there.
    const READS: bool;

    /// The bits that the operation flips in each 8 bytes of the incoming element. `None` if it does more than that.
    const FLIPS: Option<u64>;

    /// The value to store when `new` is combined with `old`.
    fn apply(old: Self::Element, new: Self::Element) -> Self::Element;
}

/// The operation on elements `T` that changes the sign by `S` and combines by `C`.
pub(super) struct Op<T, S, C>(PhantomData<(T, S, C)>);

impl<T, S, C> Operation for Op<T, S, C>
where
    T: Copy + 'static,
    S: Sign<T> + 'static,
    C: Merge<T> + 'static,
{
    type Element = T;

    const READS: bool = C::READS;

    const FLIPS: Option<u64> = if C::READS { None } else { S::FLIPS };

    #[inline(always)]
    fn apply(old: T, new: T) -> T {
        C::merge(old, S::sign(new))
    }
}

/// Keeps or changes the sign of an element.
pub(super) trait Sign<T> {
    /// As [`Operation::FLIPS`].
    const FLIPS: Option<u64> = None;

    fn sign(value: T) -> T;
}

pub(super) struct Keep;
/// Changes the sign of a number.
pub(super) struct Flip;
/// Changes the sign bit of a floating-point number, or of both components of a complex number, given as bits.
pub(super) struct FlipBit;

impl<T> Sign<T> for Keep {
    const FLIPS: Option<u64> = Some(0);

    #[inline(always)]
    fn sign(value: T) -> T {
        value
    }
}

/// Combines the existing element with the incoming one.
pub(super) trait Merge<T> {
    const READS: bool = true;

    fn merge(old: T, new: T) -> T;
}

pub(super) struct Replace;
pub(super) struct Sum;
pub(super) struct Min;
pub(super) struct Max;

impl<T> Merge<T> for Replace {
    const READS: bool = false;

    #[inline(always)]
    fn merge(_: T, new: T) -> T {
        new
    }
}

macro_rules! sign {
    ($sign:ident, $($type:ty)*: |$value:ident| $result:expr) => {$(
        impl Sign<$type> for $sign {
            #[inline(always)]
            fn sign($value: $type) -> $type {
                $result
            }
        }
    )*};
}

macro_rules! flip_bit {
    ($($type:ty: $flips:literal, |$value:ident| $result:expr;)*) => {$(
        impl Sign<$type> for FlipBit {
            const FLIPS: Option<u64> = Some($flips);

            #[inline(always)]
            fn sign($value: $type) -> $type {
                $result
            }
        }
    )*};
}

macro_rules! merge {
    ($merge:ident, $($type:ty)*: $rule:expr) => {$(
        impl Merge<$type> for $merge {
            #[inline(always)]
            fn merge(old: $type, new: $type) -> $type {
                let rule: fn($type, $type) -> $type = $rule;
                rule(old, new)
            }
        }
    )*};
}

sign!(Flip, i8 i16 i32 i64: |value| value.wrapping_neg());
// Negation changes only the sign bit, also of a NaN.
sign!(Flip, f16 bf16 f32 f64 Complex<f32> Complex<f64>: |value| -value);
flip_bit! {
    u16: 0x8000_8000_8000_8000, |bits| bits ^ (1 << 15);
    u32: 0x8000_0000_8000_0000, |bits| bits ^ (1 << 31);
    u64: 0x8000_0000_0000_0000, |bits| bits ^ (1 << 63);
    [u32; 2]: 0x8000_0000_8000_0000, |bits| bits.map(|bits| bits ^ (1 << 31));
    [u64; 2]: 0x8000_0000_0000_0000, |bits| bits.map(|bits| bits ^ (1 << 63));
}

merge!(Sum, i8 i16 i32 i64 u8 u16 u32 u64: |old, new| old.wrapping_add(new));
merge!(Sum, f32 f64 Complex<f32> Complex<f64>: |old, new| old + new);
merge!(Sum, f16: |old, new| f16::from_f32(old.to_f32() + new.to_f32()));
merge!(Sum, bf16: |old, new| bf16::from_f32(old.to_f32() + new.to_f32()));

merge!(Min, i8 i16 i32 i64 u8 u16 u32 u64: |old, new| old.min(new));
merge!(Max, i8 i16 i32 i64 u8 u16 u32 u64: |old, new| old.max(new));
merge!(Min, f16 bf16 f32 f64: |old, new| if new < old || new.is_nan() { new } else { old });
merge!(Max, f16 bf16 f32 f64: |old, new| if new > old || new.is_nan() { new } else { old });
