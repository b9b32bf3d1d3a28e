//! The types of the subset, and their values.

use std::fmt;

/// A type of the subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Type {
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// `u32`
    U32,
    /// `bool`
    Bool,
}

impl Type {
    /// All types.
    pub const ALL: [Self; 6] = [Self::F32, Self::F64, Self::I32, Self::I64, Self::U32, Self::Bool];

    /// Its name in Rust.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U32 => "u32",
            Self::Bool => "bool",
        }
    }

    /// Its size in the struct of arguments. A `bool` is passed as a `u32`.
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 | Self::U32 | Self::Bool => 4,
        }
    }

    /// Whether it is `f32` or `f64`.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Whether it is `i32`, `i64` or `u32`.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::I32 | Self::I64 | Self::U32)
    }

    /// This integer as a value of the type, if it has it.
    pub(crate) fn integer(self, value: i128) -> Option<Value> {
        match self {
            Self::I32 => value.try_into().ok().map(Value::I32),
            Self::I64 => value.try_into().ok().map(Value::I64),
            Self::U32 => value.try_into().ok().map(Value::U32),
            Self::F32 | Self::F64 | Self::Bool => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value of the subset.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is a value of the type that it names")]
pub enum Value {
    F32(f32),
    F64(f64),
    I32(i32),
    I64(i64),
    U32(u32),
    Bool(bool),
}

impl Value {
    /// Its type.
    pub const fn ty(self) -> Type {
        match self {
            Self::F32(_) => Type::F32,
            Self::F64(_) => Type::F64,
            Self::I32(_) => Type::I32,
            Self::I64(_) => Type::I64,
            Self::U32(_) => Type::U32,
            Self::Bool(_) => Type::Bool,
        }
    }

    /// Whether both have the same type and the same bits. All NaNs count as the same.
    pub fn same_bits(self, other: Self) -> bool {
        match (self, other) {
            (Self::F32(a), Self::F32(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            (Self::F64(a), Self::F64(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            _ => self == other,
        }
    }

    pub(crate) fn as_integer(self) -> Option<i64> {
        match self {
            Self::I32(value) => Some(value.into()),
            Self::I64(value) => Some(value),
            Self::U32(value) => Some(value.into()),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) => None,
        }
    }

    pub(crate) fn is_finite(self) -> bool {
        match self {
            Self::F32(value) => value.is_finite(),
            Self::F64(value) => value.is_finite(),
            _ => true,
        }
    }

    pub(crate) fn is_negative(self) -> bool {
        match self {
            Self::F32(value) => value.is_sign_negative(),
            Self::F64(value) => value.is_sign_negative(),
            _ => self.as_integer().is_some_and(|value| value < 0),
        }
    }

    /// Its absolute value in decimal digits, for floats the fewest that are read back as the same value.
    pub(crate) fn digits(self) -> String {
        match self {
            Self::F32(value) => format!("{:?}", value.abs()),
            Self::F64(value) => format!("{:?}", value.abs()),
            Self::I32(value) => value.unsigned_abs().to_string(),
            Self::I64(value) => value.unsigned_abs().to_string(),
            Self::U32(value) => value.to_string(),
            Self::Bool(value) => value.to_string(),
        }
    }
}
