//! Operations, and what they do to values.

use crate::value::{Type, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Neg,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    BitAnd,
    BitOr,
    BitXor,
    And,
    Or,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// What the operands of an operation may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Numbers,
    Integers,
    Bools,
    Floats,
    Any,
    IntegersAndBools,
    Signed,
}

impl Class {
    pub(crate) fn has(self, ty: Type) -> bool {
        match self {
            Self::Numbers => ty != Type::Bool,
            Self::Integers => ty.is_integer(),
            Self::Bools => ty == Type::Bool,
            Self::Floats => ty.is_float(),
            Self::Any => true,
            Self::IntegersAndBools => !ty.is_float(),
            Self::Signed => !matches!(ty, Type::Bool | Type::U32),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Integers => "integers",
            Self::Bools => "`bool`",
            Self::Floats => "`f32` and `f64`",
            Self::Any => "values",
            Self::IntegersAndBools => "integers and `bool`",
            Self::Signed => "signed numbers",
        }
    }
}

impl Unary {
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Neg => "-",
            Self::Not => "!",
        }
    }

    pub(crate) fn operand(self) -> Class {
        match self {
            Self::Neg => Class::Signed,
            Self::Not => Class::IntegersAndBools,
        }
    }
}

impl Binary {
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Rem => "%",
            Self::BitAnd => "&",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::And => "&&",
            Self::Or => "||",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }

    pub(crate) fn operands(self) -> Class {
        match self {
            Self::Add | Self::Sub | Self::Mul | Self::Div => Class::Numbers,
            Self::Rem => Class::Integers,
            Self::BitAnd | Self::BitOr | Self::BitXor => Class::IntegersAndBools,
            Self::And | Self::Or => Class::Bools,
            Self::Eq | Self::Ne => Class::Any,
            Self::Lt | Self::Le | Self::Gt | Self::Ge => Class::Numbers,
        }
    }

    pub(crate) fn is_comparison(self) -> bool {
        matches!(self, Self::Eq | Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge)
    }
}

/// A function of numbers. All but the last four give the same bits everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Sqrt,
    Abs,
    Floor,
    Ceil,
    MulAdd,
    Exp,
    Sin,
    Cos,
    Pow,
}

impl Function {
    pub(crate) fn is_inexact(self) -> bool {
        matches!(self, Self::Exp | Self::Sin | Self::Cos | Self::Pow)
    }

    /// Its name in Rust.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqrt => "sqrt",
            Self::Abs => "abs",
            Self::Floor => "floor",
            Self::Ceil => "ceil",
            Self::MulAdd => "mul_add",
            Self::Exp => "exp",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Pow => "powf",
        }
    }
}

/// The value of an operation. Its operands have the types that inference has proved; others give `None`, and so does
/// an integer division that has no value.
pub(crate) fn unary(op: Unary, operand: Value) -> Option<Value> {
    Some(match (op, operand) {
        (Unary::Neg, Value::F32(a)) => Value::F32(-a),
        (Unary::Neg, Value::F64(a)) => Value::F64(-a),
        (Unary::Neg, Value::I32(a)) => Value::I32(a.wrapping_neg()),
        (Unary::Neg, Value::I64(a)) => Value::I64(a.wrapping_neg()),
        (Unary::Not, Value::Bool(a)) => Value::Bool(!a),
        (Unary::Not, Value::I32(a)) => Value::I32(!a),
        (Unary::Not, Value::I64(a)) => Value::I64(!a),
        (Unary::Not, Value::U32(a)) => Value::U32(!a),
        _ => return None,
    })
}

macro_rules! compare {
    ($op:expr, $a:expr, $b:expr) => {
        match $op {
            Binary::Eq => Some(Value::Bool($a == $b)),
            Binary::Ne => Some(Value::Bool($a != $b)),
            Binary::Lt => Some(Value::Bool($a < $b)),
            Binary::Le => Some(Value::Bool($a <= $b)),
            Binary::Gt => Some(Value::Bool($a > $b)),
            Binary::Ge => Some(Value::Bool($a >= $b)),
            _ => None,
        }
    };
}

macro_rules! floats {
    ($wrap:path, $op:expr, $a:expr, $b:expr) => {
        match $op {
            Binary::Add => Some($wrap($a + $b)),
            Binary::Sub => Some($wrap($a - $b)),
            Binary::Mul => Some($wrap($a * $b)),
            Binary::Div => Some($wrap($a / $b)),
            op => compare!(op, $a, $b),
        }
    };
}

macro_rules! integers {
    ($wrap:path, $op:expr, $a:expr, $b:expr) => {
        match $op {
            Binary::Add => Some($wrap($a.wrapping_add($b))),
            Binary::Sub => Some($wrap($a.wrapping_sub($b))),
            Binary::Mul => Some($wrap($a.wrapping_mul($b))),
            Binary::Div if $b != 0 => Some($wrap($a.wrapping_div($b))),
            Binary::Rem if $b != 0 => Some($wrap($a.wrapping_rem($b))),
            Binary::BitAnd => Some($wrap($a & $b)),
            Binary::BitOr => Some($wrap($a | $b)),
            Binary::BitXor => Some($wrap($a ^ $b)),
            op => compare!(op, $a, $b),
        }
    };
}

pub(crate) fn binary(op: Binary, left: Value, right: Value) -> Option<Value> {
    match (left, right) {
        (Value::F32(a), Value::F32(b)) => floats!(Value::F32, op, a, b),
        (Value::F64(a), Value::F64(b)) => floats!(Value::F64, op, a, b),
        (Value::I32(a), Value::I32(b)) => integers!(Value::I32, op, a, b),
        (Value::I64(a), Value::I64(b)) => integers!(Value::I64, op, a, b),
        (Value::U32(a), Value::U32(b)) => integers!(Value::U32, op, a, b),
        (Value::Bool(a), Value::Bool(b)) => match op {
            Binary::BitAnd | Binary::And => Some(Value::Bool(a & b)),
            Binary::BitOr | Binary::Or => Some(Value::Bool(a | b)),
            Binary::BitXor | Binary::Ne => Some(Value::Bool(a ^ b)),
            Binary::Eq => Some(Value::Bool(a == b)),
            _ => None,
        },
        _ => None,
    }
}

pub(crate) fn call(function: Function, operands: &[Value]) -> Option<Value> {
    macro_rules! floats {
        ($wrap:path, $operands:expr) => {
            Some($wrap(match (function, $operands) {
                (Function::Sqrt, [a]) => a.sqrt(),
                (Function::Abs, [a]) => a.abs(),
                (Function::Floor, [a]) => a.floor(),
                (Function::Ceil, [a]) => a.ceil(),
                (Function::MulAdd, [a, b, c]) => a.mul_add(*b, *c),
                (Function::Exp, [a]) => a.exp(),
                (Function::Sin, [a]) => a.sin(),
                (Function::Cos, [a]) => a.cos(),
                (Function::Pow, [a, b]) => a.powf(*b),
                _ => return None,
            }))
        };
    }
    match operands {
        [Value::F32(a)] => floats!(Value::F32, [*a].as_slice()),
        [Value::F64(a)] => floats!(Value::F64, [*a].as_slice()),
        [Value::F32(a), Value::F32(b)] => floats!(Value::F32, [*a, *b].as_slice()),
        [Value::F64(a), Value::F64(b)] => floats!(Value::F64, [*a, *b].as_slice()),
        [Value::F32(a), Value::F32(b), Value::F32(c)] => {
            floats!(Value::F32, [*a, *b, *c].as_slice())
        }
        [Value::F64(a), Value::F64(b), Value::F64(c)] => {
            floats!(Value::F64, [*a, *b, *c].as_slice())
        }
        _ => None,
    }
}

/// The value as another type, by the rules of `as`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "this is `as`")]
pub(crate) fn cast(value: Value, to: Type) -> Option<Value> {
    macro_rules! numbers {
        ($a:expr) => {
            match to {
                Type::F32 => Value::F32($a as f32),
                Type::F64 => Value::F64($a as f64),
                Type::I32 => Value::I32($a as i32),
                Type::I64 => Value::I64($a as i64),
                Type::U32 => Value::U32($a as u32),
                Type::Bool => return None,
            }
        };
    }
    Some(match value {
        Value::F32(a) => numbers!(a),
        Value::F64(a) => numbers!(a),
        Value::I32(a) => numbers!(a),
        Value::I64(a) => numbers!(a),
        Value::U32(a) => numbers!(a),
        Value::Bool(_) if to == Type::Bool => value,
        Value::Bool(_) if to.is_float() => return None,
        Value::Bool(a) => return to.integer(a.into()),
    })
}
