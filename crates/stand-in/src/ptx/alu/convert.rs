//! Conversions between types.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_lossless,
    reason = "conversions are what this is about, and macros do not know which widen"
)]

use half::f16;

use super::super::instruction::Type;
use super::round::Directed;
use super::{Bits, Rounding, Unary, slots};

/// The value of an integer type, which a narrower destination cuts off.
macro_rules! by_type {
    ($ty:expr, $of:ident $(, $argument:tt)*) => {
        match $ty {
            Type::B8 | Type::U8 => $of!(u8 $(, $argument)*),
            Type::B16 | Type::U16 => $of!(u16 $(, $argument)*),
            Type::B32 | Type::U32 => $of!(u32 $(, $argument)*),
            Type::B64 | Type::U64 => $of!(u64 $(, $argument)*),
            Type::S8 => $of!(i8 $(, $argument)*),
            Type::S16 => $of!(i16 $(, $argument)*),
            Type::S32 => $of!(i32 $(, $argument)*),
            Type::S64 => $of!(i64 $(, $argument)*),
            _ => return None,
        }
    };
}

macro_rules! cut {
    ($to:ident, $from:ident) => {
        slots!(|a: $from| a as $to)
    };
}

macro_rules! clamp {
    ($to:ident, $from:ident) => {
        slots!(|a: $from| (a as i128).clamp($to::MIN as i128, $to::MAX as i128) as $to)
    };
}

macro_rules! by_type_inner {
    ($from:expr, $of:ident, $to:ident) => {
        match $from {
            Type::B8 | Type::U8 => $of!($to, u8),
            Type::B16 | Type::U16 => $of!($to, u16),
            Type::B32 | Type::U32 => $of!($to, u32),
            Type::B64 | Type::U64 => $of!($to, u64),
            Type::S8 => $of!($to, i8),
            Type::S16 => $of!($to, i16),
            Type::S32 => $of!($to, i32),
            Type::S64 => $of!($to, i64),
            _ => return None,
        }
    };
}

macro_rules! integer_source {
    ($to:ident, $from:expr, $of:ident) => {
        by_type_inner!($from, $of, $to)
    };
}

/// Between integers: cut off, or clamped to the destination's range.
pub(in super::super) fn integer_to_integer(to: Type, from: Type, saturates: bool) -> Option<Unary> {
    let apply: Unary = if saturates {
        by_type!(to, integer_source, from, clamp)
    } else {
        by_type!(to, integer_source, from, cut)
    };
    Some(apply)
}

/// The value of a signed type, its sign repeated up to 64 bits.
pub(in super::super) fn extend(from: Type) -> Option<Unary> {
    integer_to_integer(Type::S64, from, false)
}

macro_rules! nearest {
    ($to:ident, $from:ident) => {
        slots!(|a: $from| a as $to)
    };
}

macro_rules! toward {
    ($to:ident, $from:ident) => {
        |rounding: Rounding| -> Unary {
            match rounding {
                Rounding::Zero => slots!(|a: $from| rounded!($to, a, Rounding::Zero)),
                Rounding::Down => slots!(|a: $from| rounded!($to, a, Rounding::Down)),
                Rounding::Up => slots!(|a: $from| rounded!($to, a, Rounding::Up)),
            }
        }
    };
}

macro_rules! rounded {
    ($to:ident, $a:expr, $mode:expr) => {{
        let nearest = $a as $to;
        $to::directed(nearest, (nearest as i128 - $a as i128) as f64, $mode)
    }};
}

macro_rules! nearest_source {
    ($from:ident, $to:ident) => {{
        let apply: Unary = nearest!($to, $from);
        apply
    }};
}

macro_rules! toward_source {
    ($from:ident, $to:ident) => {
        toward!($to, $from)
    };
}

/// From an integer to a float, to nearest or in a direction.
pub(in super::super) fn from_integer(
    to: Type,
    from: Type,
    rounding: Option<Rounding>,
) -> Option<Unary> {
    Some(match (to, rounding) {
        (Type::F32, None) => by_type!(from, nearest_source, f32),
        (Type::F64, None) => by_type!(from, nearest_source, f64),
        (Type::F32, Some(rounding)) => by_type!(from, toward_source, f32)(rounding),
        (Type::F64, Some(rounding)) => by_type!(from, toward_source, f64)(rounding),
        _ => return None,
    })
}

macro_rules! of_float {
    ($to:ident, $from:ident, $nan:expr) => {
        slots!(|a: $from| if a.is_nan() { ($nan) as $to } else { a as $to })
    };
}

macro_rules! of_f32 {
    ($to:ident) => {
        of_float!($to, f32, if size_of::<$to>() == 8 { 1_u64 << 63 } else { 0 })
    };
}

macro_rules! of_f64 {
    ($to:ident) => {
        of_float!($to, f64, 1_u64 << ($to::BITS - 1))
    };
}

/// From a float, which is integral, to an integer: clamped to the destination's range. A NaN is 0, or the highest bit where
/// one of the types has 64 bits.
pub(in super::super) fn to_integer(to: Type, from: Type) -> Option<Unary> {
    let apply: Unary = match from {
        Type::F32 => by_type!(to, of_f32),
        Type::F64 => by_type!(to, of_f64),
        _ => return None,
    };
    Some(apply)
}

/// From a float to a wider one.
pub(in super::super) fn widen(to: Type, from: Type) -> Option<Unary> {
    Some(match (to, from) {
        (Type::F64, Type::F32) => slots!(|a: f32| f64::from(a)),
        (Type::F32, Type::F16) => slots!(|a: u16| f16::from_bits(a).to_f32()),
        (Type::F64, Type::F16) => slots!(|a: u16| f16::from_bits(a).to_f64()),
        _ => return None,
    })
}

/// From a float to a narrower one, to nearest or in a direction.
pub(in super::super) fn narrow(to: Type, from: Type, rounding: Option<Rounding>) -> Option<Unary> {
    Some(match (to, from, rounding) {
        (Type::F32, Type::F64, None) => slots!(|a: f64| a as f32),
        (Type::F32, Type::F64, Some(Rounding::Zero)) => slots!(|a: f64| single(a, Rounding::Zero)),
        (Type::F32, Type::F64, Some(Rounding::Down)) => slots!(|a: f64| single(a, Rounding::Down)),
        (Type::F32, Type::F64, Some(Rounding::Up)) => slots!(|a: f64| single(a, Rounding::Up)),
        (Type::F16, Type::F32, None) => slots!(|a: f32| f16::from_f32(a).to_bits()),
        (Type::F16, Type::F64, None) => slots!(|a: f64| f16::from_f64(a).to_bits()),
        _ => return None,
    })
}

fn single(value: f64, rounding: Rounding) -> f32 {
    let nearest = value as f32;
    f32::directed(nearest, f64::from(nearest) - value, rounding)
}
