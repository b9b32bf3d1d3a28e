//! Integers: arithmetic wraps, shifts by the width or more empty the value.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "instructions take the low bits of what they compute"
)]

use super::super::types::Type;
use super::bits::{Binary, Bits, Carry, Quaternary, Ternary, Unary, slots};

macro_rules! by_type {
    ($ty:expr, $of:ident, $($argument:expr),*) => {
        match $ty {
            Type::B16 | Type::U16 => $of!(u16, u32, $($argument),*),
            Type::S16 => $of!(i16, i32, $($argument),*),
            Type::B32 | Type::U32 => $of!(u32, u64, $($argument),*),
            Type::S32 => $of!(i32, i64, $($argument),*),
            Type::B64 | Type::U64 => $of!(u64, u128, $($argument),*),
            Type::S64 => $of!(i64, i128, $($argument),*),
            _ => return None,
        }
    };
}

macro_rules! unary {
    ($t:ident, $wide:ident, $name:expr) => {
        match $name {
            "not" => slots!(|a: $t| !a),
            "neg" => slots!(|a: $t| (0 as $t).wrapping_sub(a)),
            "abs" => slots!(|a: $t| if a < (0 as $t) { (0 as $t).wrapping_sub(a) } else { a }),
            "popc" => slots!(|a: $t| a.count_ones()),
            "clz" => slots!(|a: $t| a.leading_zeros()),
            "brev" => slots!(|a: $t| a.reverse_bits()),
            _ => return None,
        }
    };
}

/// `not`, `neg`, `abs`, `popc`, `clz` and `brev`.
pub(in super::super) fn integer_unary(name: &str, ty: Type) -> Option<Unary> {
    if ty == Type::Pred {
        return (name == "not").then_some(slots!(|a: bool| !a));
    }
    let apply: Unary = by_type!(ty, unary, name);
    Some(apply)
}

macro_rules! binary {
    ($t:ident, $wide:ident, $name:expr) => {
        match $name {
            "add" => slots!(|a: $t, b: $t| a.wrapping_add(b)),
            "sub" => slots!(|a: $t, b: $t| a.wrapping_sub(b)),
            "mul.lo" => slots!(|a: $t, b: $t| a.wrapping_mul(b)),
            "mul.hi" => slots!(|a: $t, b: $t| (((a as $wide) * (b as $wide)) >> $t::BITS) as $t),
            // What a division by zero gives is up to the machine: all ones, and the dividend.
            "div" => slots!(|a: $t, b: $t| if b == 0 { !0 } else { a.wrapping_div(b) }),
            "rem" => slots!(|a: $t, b: $t| if b == 0 { a } else { a.wrapping_rem(b) }),
            "min" => slots!(|a: $t, b: $t| a.min(b)),
            "max" => slots!(|a: $t, b: $t| a.max(b)),
            "and" => slots!(|a: $t, b: $t| a & b),
            "or" => slots!(|a: $t, b: $t| a | b),
            "xor" => slots!(|a: $t, b: $t| a ^ b),
            "exch" => slots!(|_a: $t, b: $t| b),
            "inc" => slots!(|a: $t, b: $t| if a >= b { 0 } else { a + 1 }),
            "dec" => slots!(|a: $t, b: $t| if a == 0 || a > b { b } else { a - 1 }),
            "shl" => slots!(|a: $t, b: u32| a.checked_shl(b).unwrap_or(0)),
            "shr" => slots!(|a: $t, b: u32| {
                a.checked_shr(b).unwrap_or(if a < (0 as $t) { !0 } else { 0 })
            }),
            _ => return None,
        }
    };
}

/// Arithmetic and logic, with their `.lo` and `.hi`, shifts, and `exch`, `inc` and `dec` of atomics.
pub(in super::super) fn integer_binary(name: &str, ty: Type) -> Option<Binary> {
    if ty == Type::Pred {
        return Some(match name {
            "and" => slots!(|a: bool, b: bool| a & b),
            "or" => slots!(|a: bool, b: bool| a | b),
            "xor" => slots!(|a: bool, b: bool| a ^ b),
            _ => return None,
        });
    }
    let apply: Binary = by_type!(ty, binary, name);
    Some(apply)
}

/// `mul.wide`: all bits of the product.
pub(in super::super) fn wide_binary(ty: Type) -> Option<Binary> {
    Some(match ty {
        Type::U16 => slots!(|a: u16, b: u16| u32::from(a) * u32::from(b)),
        Type::S16 => slots!(|a: i16, b: i16| i32::from(a) * i32::from(b)),
        Type::U32 => slots!(|a: u32, b: u32| u64::from(a) * u64::from(b)),
        Type::S32 => slots!(|a: i32, b: i32| i64::from(a) * i64::from(b)),
        _ => return None,
    })
}

/// `mad.wide`.
pub(in super::super) fn wide_ternary(ty: Type) -> Option<Ternary> {
    Some(match ty {
        Type::U32 => slots!(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
        Type::S32 => slots!(|a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
        _ => return None,
    })
}

macro_rules! ternary {
    ($t:ident, $wide:ident, $name:expr) => {
        match $name {
            "mad.lo" => slots!(|a: $t, b: $t, c: $t| a.wrapping_mul(b).wrapping_add(c)),
            "bfe" => slots!(|a: $t, b: u32, c: u32| extract(a as $wide as i128, $t::MIN != 0, b, c) as $t),
            "cas" => slots!(|a: $t, b: $t, c: $t| if a == b { c } else { a }),
            _ => return None,
        }
    };
}

/// A field of the value: it goes on with its sign where that is asked for. The low 8 bits of position and length count.
fn extract(value: i128, is_signed: bool, position: u32, length: u32) -> i128 {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 {
        return 0;
    }
    let above = 128 - length.min(128);
    let field = (value >> position.min(127)) << above;
    if is_signed { field >> above } else { (field.cast_unsigned() >> above).cast_signed() }
}

/// `mad.lo`, `bfe`, the funnel shifts `shf.*.wrap`, and the `cas` of atomics.
pub(in super::super) fn integer_ternary(name: &str, ty: Type) -> Option<Ternary> {
    if ty == Type::B32 {
        let apply: Ternary = match name {
            "shf.l.wrap" => {
                slots!(|a: u32, b: u32, c: u32| ((joined(a, b) << (c & 31)) >> 32) as u32)
            }
            "shf.r.wrap" => slots!(|a: u32, b: u32, c: u32| (joined(a, b) >> (c & 31)) as u32),
            _ => by_type!(ty, ternary, name),
        };
        return Some(apply);
    }
    let apply: Ternary = by_type!(ty, ternary, name);
    Some(apply)
}

fn joined(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// `bfi`: the low bits of the first operand as a field of the second.
pub(in super::super) fn insert(ty: Type) -> Option<Quaternary> {
    fn field(position: u32, length: u32) -> u128 {
        ((1_u128 << (length & 0xff).min(64)) - 1) << (position & 0xff).min(64)
    }
    Some(match ty {
        Type::B32 => slots!(|a: u32, b: u32, c: u32, d: u32| {
            let field = field(c, d) as u32;
            (b & !field) | (a.checked_shl(c & 0xff).unwrap_or(0) & field)
        }),
        Type::B64 => slots!(|a: u64, b: u64, c: u32, d: u32| {
            let field = field(c, d) as u64;
            (b & !field) | (a.checked_shl(c & 0xff).unwrap_or(0) & field)
        }),
        _ => return None,
    })
}

/// `add`, `sub`, `mad.lo` and `mad.hi` of 32 bits with a carry, or a borrow, in and out.
pub(in super::super) fn carry(name: &str, ty: Type) -> Option<Carry> {
    fn product(a: u64, b: u64) -> u64 {
        u64::from(a as u32) * u64::from(b as u32)
    }
    fn sum(a: u64, b: u64, carry: u64) -> (u64, u64) {
        let sum = u64::from(a as u32) + u64::from(b as u32) + carry;
        (u64::from(sum as u32), sum >> 32)
    }
    if ty != Type::U32 {
        return None;
    }
    Some(match name {
        "add" => |a, b, _, carry| sum(a, b, carry),
        "sub" => |a, b, _, borrow| {
            let difference = u64::from(a as u32).wrapping_sub(u64::from(b as u32) + borrow);
            (u64::from(difference as u32), difference >> 63)
        },
        "mad.lo" => |a, b, c, carry| sum(product(a, b), c, carry),
        "mad.hi" => |a, b, c, carry| sum(product(a, b) >> 32, c, carry),
        _ => return None,
    })
}

macro_rules! comparison {
    ($t:ident, $wide:ident, $name:expr) => {
        match $name {
            "eq" => slots!(|a: $t, b: $t| a == b),
            "ne" => slots!(|a: $t, b: $t| a != b),
            "lt" | "lo" => slots!(|a: $t, b: $t| a < b),
            "le" | "ls" => slots!(|a: $t, b: $t| a <= b),
            "gt" | "hi" => slots!(|a: $t, b: $t| a > b),
            "ge" | "hs" => slots!(|a: $t, b: $t| a >= b),
            _ => return None,
        }
    };
}

pub(super) fn compare(name: &str, ty: Type) -> Option<Binary> {
    let apply: Binary = by_type!(ty, comparison, name);
    Some(apply)
}

/// `selp`: the first operand where the third is true, else the second.
pub(in super::super) const fn select() -> Ternary {
    |a, b, on| if on & 1 == 1 { a } else { b }
}
