//! Floats, rounded to nearest even, and the approximate functions.

use std::cmp::Ordering;

use super::super::types::Type;
use super::bits::{Binary, Bits, Ternary, Unary, slots};

macro_rules! by_type {
    ($ty:expr, $of:ident, $($argument:expr),*) => {
        match $ty {
            Type::F32 => $of!(f32, $($argument),*),
            Type::F64 => $of!(f64, $($argument),*),
            _ => return None,
        }
    };
}

macro_rules! unary {
    ($t:ident, $name:expr) => {
        match $name {
            "neg" => slots!(|a: $t| -a),
            "abs" => slots!(|a: $t| a.abs()),
            "sqrt" => slots!(|a: $t| a.sqrt()),
            "rcp" => slots!(|a: $t| 1.0 / a),
            "rsqrt" => slots!(|a: $t| 1.0 / a.sqrt()),
            "sin" => slots!(|a: $t| a.sin()),
            "cos" => slots!(|a: $t| a.cos()),
            "ex2" => slots!(|a: $t| a.exp2()),
            "lg2" => slots!(|a: $t| a.log2()),
            "floor" => slots!(|a: $t| a.floor()),
            "ceil" => slots!(|a: $t| a.ceil()),
            "trunc" => slots!(|a: $t| a.trunc()),
            "nearest" => slots!(|a: $t| a.round_ties_even()),
            _ => return None,
        }
    };
}

/// Arithmetic and approximate functions, and `floor`, `ceil`, `trunc` and `nearest` to integral values.
pub(in super::super) fn float_unary(name: &str, ty: Type) -> Option<Unary> {
    let apply: Unary = by_type!(ty, unary, name);
    Some(apply)
}

macro_rules! binary {
    ($t:ident, $name:expr) => {
        match $name {
            "add" => slots!(|a: $t, b: $t| a + b),
            "sub" => slots!(|a: $t, b: $t| a - b),
            "mul" => slots!(|a: $t, b: $t| a * b),
            "div" => slots!(|a: $t, b: $t| a / b),
            "min" => slots!(|a: $t, b: $t| if b.is_nan() || precedes!(a, b) { a } else { b }),
            "max" => slots!(|a: $t, b: $t| if b.is_nan() || precedes!(b, a) { a } else { b }),
            "min.NaN" => slots!(|a: $t, b: $t| if a.is_nan() || precedes!(a, b) { a } else { b }),
            "max.NaN" => slots!(|a: $t, b: $t| if a.is_nan() || precedes!(b, a) { a } else { b }),
            // The sign is the first operand's.
            "copysign" => slots!(|a: $t, b: $t| b.copysign(a)),
            _ => return None,
        }
    };
}

/// Whether one number is less than another, where -0 is less than +0.
macro_rules! precedes {
    ($a:expr, $b:expr) => {
        $a < $b || ($a == $b && $a.is_sign_negative())
    };
}

/// `add` to `copysign`.
pub(in super::super) fn float_binary(name: &str, ty: Type) -> Option<Binary> {
    let apply: Binary = by_type!(ty, binary, name);
    Some(apply)
}

/// `fma`.
pub(in super::super) fn float_ternary(name: &str, ty: Type) -> Option<Ternary> {
    Some(match (name, ty) {
        ("fma", Type::F32) => slots!(|a: f32, b: f32, c: f32| a.mul_add(b, c)),
        ("fma", Type::F64) => slots!(|a: f64, b: f64, c: f64| a.mul_add(b, c)),
        _ => return None,
    })
}

/// A direction of rounding. All other functions round to nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Rounding {
    Zero,
    Down,
    Up,
}

/// `fma.f32`, rounded in a direction.
pub(in super::super) fn directed_fma(rounding: Rounding) -> Ternary {
    match rounding {
        Rounding::Zero => slots!(|a: f32, b: f32, c: f32| rounded_fma(a, b, c, Rounding::Zero)),
        Rounding::Down => slots!(|a: f32, b: f32, c: f32| rounded_fma(a, b, c, Rounding::Down)),
        Rounding::Up => slots!(|a: f32, b: f32, c: f32| rounded_fma(a, b, c, Rounding::Up)),
    }
}

/// The nearest result, corrected by one step if it lies on the wrong side of the exact result.
fn rounded_fma(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    let nearest = a.mul_add(b, c);
    // The exact result is `sum + error` (Knuth): a product of two singles is exact in a double.
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let rounded_c = sum - product;
    let error = (product - (sum - rounded_c)) + (c - rounded_c);
    let excess = match f64::from(nearest) - sum {
        0.0 => -error,
        excess => excess,
    };
    let is_wrong = match rounding {
        Rounding::Down => excess > 0.0,
        Rounding::Up => excess < 0.0,
        Rounding::Zero => excess * f64::from(nearest) > 0.0,
    };
    match is_wrong {
        true if excess > 0.0 => nearest.next_down(),
        true => nearest.next_up(),
        false => nearest,
    }
}

macro_rules! comparison {
    ($t:ident, $name:expr) => {
        match $name {
            "eq" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_some_and(Ordering::is_eq)),
            "ne" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_some_and(Ordering::is_ne)),
            "lt" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_some_and(Ordering::is_lt)),
            "le" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_some_and(Ordering::is_le)),
            "gt" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_some_and(Ordering::is_gt)),
            "ge" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_some_and(Ordering::is_ge)),
            // These are true for a NaN, which has no order.
            "equ" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_eq)),
            "neu" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_ne)),
            "ltu" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_lt)),
            "leu" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_le)),
            "gtu" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_gt)),
            "geu" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_ge)),
            "num" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_some()),
            "nan" => slots!(|a: $t, b: $t| a.partial_cmp(&b).is_none()),
            _ => return None,
        }
    };
}

pub(super) fn compare(name: &str, ty: Type) -> Option<Binary> {
    let apply: Binary = by_type!(ty, comparison, name);
    Some(apply)
}

macro_rules! flushing {
    ($t:ident,) => {
        slots!(|a: $t| if a.is_subnormal() { (0.0 as $t).copysign(a) } else { a })
    };
}

/// `.ftz`: a subnormal number as zero of its sign.
pub(in super::super) fn flush(ty: Type) -> Option<Unary> {
    let apply: Unary = by_type!(ty, flushing,);
    Some(apply)
}

macro_rules! saturating {
    ($t:ident,) => {
        slots!(|a: $t| if a > 0.0 { a.min(1.0) } else { 0.0 })
    };
}

/// `.sat`: into the range from +0 to 1; a NaN is 0.
pub(in super::super) fn saturate(ty: Type) -> Option<Unary> {
    let apply: Unary = by_type!(ty, saturating,);
    Some(apply)
}
