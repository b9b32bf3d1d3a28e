//! Integers: arithmetic wraps, shifts by the width or more empty the value.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "instructions take the low bits of what they compute"
)]

use super::super::instruction::Type;
use super::{Binary, Bits, Carry, Quaternary, Ternary, Unary, slots};

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
            "cnot" => slots!(|a: $t| $t::from(a == 0)),
            "popc" => slots!(|a: $t| a.count_ones()),
            "clz" => slots!(|a: $t| a.leading_zeros()),
            "brev" => slots!(|a: $t| a.reverse_bits()),
            "bfind" => {
                slots!(|a: $t| $t::BITS
                    .wrapping_sub(1 + sign_or_zero_bits(a as $wide as i128, $t::BITS)))
            }
            "bfind.shiftamt" => slots!(|a: $t| {
                let bits = sign_or_zero_bits(a as $wide as i128, $t::BITS);
                if bits == $t::BITS { u32::MAX } else { bits }
            }),
            _ => return None,
        }
    };
}

/// How many of the high bits of a value of so many bits are zeros, or copies of a sign that is set.
fn sign_or_zero_bits(value: i128, bits: u32) -> u32 {
    let magnitude = if value < 0 { !value } else { value };
    magnitude.leading_zeros() + bits - 128
}

/// `not`, `neg`, `abs`, `cnot`, `popc`, `clz`, `brev`, `bfind` and `bfind.shiftamt`.
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
            "add.sat" => slots!(|a: $t, b: $t| a.saturating_add(b)),
            "sub.sat" => slots!(|a: $t, b: $t| a.saturating_sub(b)),
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

/// Arithmetic and logic, with their `.lo`, `.hi` and `.sat`, shifts, and `exch`, `inc` and `dec` of atomics.
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
        Type::U16 => slots!(|a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)),
        Type::S16 => slots!(|a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c)),
        Type::U32 => slots!(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
        Type::S32 => slots!(|a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
        _ => return None,
    })
}

macro_rules! ternary {
    ($t:ident, $wide:ident, $name:expr) => {
        match $name {
            "mad.lo" => slots!(|a: $t, b: $t, c: $t| a.wrapping_mul(b).wrapping_add(c)),
            "mad.hi" => slots!(|a: $t, b: $t, c: $t| {
                ((((a as $wide) * (b as $wide)) >> $t::BITS) as $t).wrapping_add(c)
            }),
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

/// `mad.lo`, `mad.hi`, `bfe`, the funnel shifts `shf.*`, `prmt`, and the `cas` of atomics.
pub(in super::super) fn integer_ternary(name: &str, ty: Type) -> Option<Ternary> {
    if ty == Type::B32 {
        let apply: Ternary = match name {
            "shf.l.wrap" => {
                slots!(|a: u32, b: u32, c: u32| ((joined(a, b) << (c & 31)) >> 32) as u32)
            }
            "shf.r.wrap" => slots!(|a: u32, b: u32, c: u32| (joined(a, b) >> (c & 31)) as u32),
            "shf.l.clamp" => {
                slots!(|a: u32, b: u32, c: u32| ((joined(a, b) << c.min(32)) >> 32) as u32)
            }
            "shf.r.clamp" => slots!(|a: u32, b: u32, c: u32| (joined(a, b) >> c.min(32)) as u32),
            "prmt" => slots!(|a: u32, b: u32, c: u32| permute(joined(a, b), c)),
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

/// Four bytes of eight, each by a nibble: its high bit takes the sign of the byte instead.
fn permute(bytes: u64, selector: u32) -> u32 {
    let bytes = bytes.to_le_bytes();
    u32::from_le_bytes([0, 4, 8, 12].map(|shift| {
        let nibble = selector >> shift;
        let byte = bytes[(nibble & 7) as usize];
        if nibble & 8 == 0 { byte } else { (byte.cast_signed() >> 7).cast_unsigned() }
    }))
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

macro_rules! carries {
    ($t:ident, $wide:ident, $name:expr) => {
        match $name {
            "add" => |a, b, _, carry| {
                split(u128::from($t::of(a)) + u128::from($t::of(b)) + u128::from(carry), $t::BITS)
            },
            "sub" => |a, b, _, carry| {
                let (difference, first) = $t::of(a).overflowing_sub($t::of(b));
                let (difference, second) = difference.overflowing_sub(carry as $t);
                (u64::from(difference), u64::from(first | second))
            },
            "mad.lo" => |a, b, c, carry| {
                let product = $t::of(a).wrapping_mul($t::of(b));
                split(u128::from(product) + u128::from($t::of(c)) + u128::from(carry), $t::BITS)
            },
            _ => return None,
        }
    };
}

fn split(sum: u128, bits: u32) -> (u64, u64) {
    ((sum & ((1 << bits) - 1)) as u64, (sum >> bits) as u64)
}

macro_rules! high {
    ($t:ident, $wide:ident) => {
        |a, b, c, carry| {
            let high = (((<$t>::of(a) as $wide) * (<$t>::of(b) as $wide)) >> $t::BITS) as $t;
            let mask = (1_u128 << $t::BITS) - 1;
            let sum = (high as u128 & mask) + (<$t>::of(c) as u128 & mask) + u128::from(carry);
            split(sum, $t::BITS)
        }
    };
}

/// `add`, `sub`, `mad.lo` and `mad.hi` with a carry, or a borrow, in and out.
pub(in super::super) fn carry(name: &str, ty: Type) -> Option<Carry> {
    let apply: Carry = match (name, ty) {
        ("mad.hi", Type::U32 | Type::B32) => high!(u32, u64),
        ("mad.hi", Type::S32) => high!(i32, i64),
        ("mad.hi", Type::U64 | Type::B64) => high!(u64, u128),
        ("mad.hi", Type::S64) => high!(i64, i128),
        (_, Type::U32 | Type::B32 | Type::S32) => carries!(u32, u64, name),
        (_, Type::U64 | Type::B64 | Type::S64) => carries!(u64, u128, name),
        _ => return None,
    };
    Some(apply)
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
