//! Conversions between types. A conversion of an integer first extends it to 64 bits.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_lossless,
    reason = "conversions are the subject, and macros do not know which of them widen"
)]

use super::super::types::Type;
use super::bits::{Bits, Unary, slots};

/// The value of an integer type, extended to 64 bits with its sign or with zeros.
pub(in super::super) fn extend(from: Type) -> Option<Unary> {
    Some(match from {
        Type::B8 | Type::U8 => slots!(|a: u8| a),
        Type::B16 | Type::U16 => slots!(|a: u16| a),
        Type::B32 | Type::U32 => slots!(|a: u32| a),
        Type::B64 | Type::U64 | Type::S64 => slots!(|a: u64| a),
        Type::S8 => slots!(|a: i8| a as i64),
        Type::S16 => slots!(|a: i16| a as i64),
        Type::S32 => slots!(|a: i32| a as i64),
        _ => return None,
    })
}

/// The low bits of a value of 64 bits, as many as an integer type has.
pub(in super::super) fn cut(to: Type) -> Option<Unary> {
    match to {
        Type::Pred | Type::F32 | Type::F64 => None,
        Type::S8 => extend(Type::U8),
        Type::S16 => extend(Type::U16),
        Type::S32 => extend(Type::U32),
        other => extend(other),
    }
}

/// From an extended integer to the nearest float.
pub(in super::super) fn from_integer(to: Type, is_signed: bool) -> Option<Unary> {
    Some(match (to, is_signed) {
        (Type::F32, false) => slots!(|a: u64| a as f32),
        (Type::F32, true) => slots!(|a: i64| a as f32),
        (Type::F64, false) => slots!(|a: u64| a as f64),
        (Type::F64, true) => slots!(|a: i64| a as f64),
        _ => return None,
    })
}

macro_rules! to_integer {
    ($to:expr, $from:ident) => {
        match $to {
            Type::U8 => of_float!(u8, $from),
            Type::U16 => of_float!(u16, $from),
            Type::U32 => of_float!(u32, $from),
            Type::U64 => of_float!(u64, $from),
            Type::S8 => of_float!(i8, $from),
            Type::S16 => of_float!(i16, $from),
            Type::S32 => of_float!(i32, $from),
            Type::S64 => of_float!(i64, $from),
            _ => return None,
        }
    };
}

macro_rules! of_float {
    ($to:ident, $from:ident) => {
        slots!(|a: $from| match a.is_nan() {
            true if $to::BITS.max(8 * size_of::<$from>() as u32) == 64 => {
                (1_u64 << ($to::BITS - 1)) as $to
            }
            true => 0,
            false => a as $to,
        })
    };
}

/// From a float, which is integral, to an integer: clamped to the destination's range. A NaN is 0, or the highest bit
/// if one of the types has 64 bits.
pub(in super::super) fn to_integer(to: Type, from: Type) -> Option<Unary> {
    let apply: Unary = match from {
        Type::F32 => to_integer!(to, f32),
        Type::F64 => to_integer!(to, f64),
        _ => return None,
    };
    Some(apply)
}

/// From a float to a wider one.
pub(in super::super) fn widen(to: Type, from: Type) -> Option<Unary> {
    (to == Type::F64 && from == Type::F32).then_some(slots!(|a: f32| f64::from(a)))
}

/// From a float to the nearest narrower one.
pub(in super::super) fn narrow(to: Type, from: Type) -> Option<Unary> {
    (to == Type::F32 && from == Type::F64).then_some(slots!(|a: f64| a as f32))
}
