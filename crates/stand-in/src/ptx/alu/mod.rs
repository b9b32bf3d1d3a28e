//! Arithmetic: functions from the bits of operands to the bits of the result, found by name and type.

mod bits;
mod convert;
mod float;
mod integer;

pub(super) use bits::{Binary, Carry, Quaternary, Ternary, Unary};
pub(super) use convert::{cut, extend, from_integer, narrow, to_integer, widen};
pub(super) use float::{
    Rounding, directed_fma, float_binary, float_ternary, float_unary, flush, saturate,
};
pub(super) use integer::{
    carry, insert, integer_binary, integer_ternary, integer_unary, select, wide_binary,
    wide_ternary,
};

use super::types::Type;

/// The comparison `setp.NAME`.
pub(super) fn compare(name: &str, ty: Type) -> Option<Binary> {
    if ty.is_float() { float::compare(name, ty) } else { integer::compare(name, ty) }
}
