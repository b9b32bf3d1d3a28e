//! Rounding toward zero, down and up: what is nearest, corrected by one step where the exact result lies beyond it.
//!
//! How an operation's nearest result compares with the exact one is the sign of a sum of a few doubles, since a product
//! of doubles is the sum of two.

use super::super::instruction::Type;
use super::{Binary, Bits, Ternary, Unary, slots};

/// A direction of rounding; to nearest is what the other functions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Rounding {
    Zero,
    Down,
    Up,
}

impl Rounding {
    /// Whether a number above the exact result, or below it, is to be corrected.
    fn corrects(self, result: f64, is_above: bool) -> bool {
        match self {
            Self::Down => is_above,
            Self::Up => !is_above,
            Self::Zero => is_above == (result > 0.0),
        }
    }
}

/// A product as a sum, exact unless it is subnormal.
fn product(a: f64, b: f64) -> [f64; 2] {
    let high = a * b;
    [high, a.mul_add(b, -high)]
}

/// The sign of an exact sum, by adding each term to an expansion of numbers that do not overlap (Shewchuk 1997).
fn sign(terms: &[f64]) -> f64 {
    let mut expansion = [0.0; 8];
    for (count, term) in terms.iter().enumerate() {
        let mut sum = *term;
        for part in &mut expansion[..count] {
            let total = sum + *part;
            let virtual_part = total - sum;
            *part = (sum - (total - virtual_part)) + (*part - virtual_part);
            sum = total;
        }
        expansion[count] = sum;
    }
    expansion.into_iter().rev().find(|part| *part != 0.0).unwrap_or(0.0)
}

/// The sign of the nearest result minus the exact one, which is the sum of the terms.
fn excess<const N: usize>(nearest: f64, exact: [f64; N]) -> f64 {
    if nearest.is_infinite() && exact.iter().all(|term| term.is_finite()) {
        return nearest;
    }
    let mut terms = [0.0; 4];
    terms[0] = nearest;
    for (term, exact) in terms[1..].iter_mut().zip(exact) {
        *term = -exact;
    }
    sign(&terms)
}

/// `excess` has the sign of the nearest result minus the exact one.
pub(super) trait Directed: Bits {
    fn directed(nearest: Self, excess: f64, rounding: Rounding) -> Self;
}

macro_rules! directed {
    ($t:ident) => {
        impl Directed for $t {
            fn directed(nearest: Self, excess: f64, rounding: Rounding) -> Self {
                let is_above = excess > 0.0;
                let is_exact = excess == 0.0 || excess.is_nan();
                if is_exact || !rounding.corrects(nearest.into(), is_above) {
                    nearest
                } else if is_above {
                    nearest.next_down()
                } else {
                    nearest.next_up()
                }
            }
        }
    };
}

directed!(f32);
directed!(f64);

macro_rules! modes {
    ($rounding:expr, $of:ident, $($argument:tt)*) => {
        match $rounding {
            Rounding::Zero => $of!(Rounding::Zero, $($argument)*),
            Rounding::Down => $of!(Rounding::Down, $($argument)*),
            Rounding::Up => $of!(Rounding::Up, $($argument)*),
        }
    };
}

macro_rules! unary {
    ($mode:expr, $t:ident, $name:expr) => {
        match $name {
            "sqrt" => slots!(|a: $t| {
                let nearest = a.sqrt();
                let [high, low] = product(nearest.into(), nearest.into());
                $t::directed(nearest, sign(&[high, low, -f64::from(a)]), $mode)
            }),
            "rcp" => slots!(|a: $t| quotient!($t, 1.0, a, $mode)),
            _ => return None,
        }
    };
}

macro_rules! quotient {
    ($t:ident, $a:expr, $b:expr, $mode:expr) => {{
        let (a, b): ($t, $t) = ($a, $b);
        let nearest = a / b;
        let [high, low] = product(nearest.into(), b.into());
        // The sign of nearest · b - a is that of nearest - a / b where b is positive.
        let excess = if nearest.is_infinite() && a.is_finite() && b != 0.0 {
            nearest.into()
        } else {
            sign(&[high, low, -f64::from(a)]) * f64::from(b.signum())
        };
        $t::directed(nearest, excess, $mode)
    }};
}

/// `sqrt` and `rcp`.
pub(in super::super) fn directed_unary(name: &str, ty: Type, rounding: Rounding) -> Option<Unary> {
    let apply: Unary = match ty {
        Type::F32 => modes!(rounding, unary, f32, name),
        Type::F64 => modes!(rounding, unary, f64, name),
        _ => return None,
    };
    Some(apply)
}

macro_rules! binary {
    ($mode:expr, $t:ident, $name:expr) => {
        match $name {
            "add" => slots!(|a: $t, b: $t| sum!($t, a, b, $mode)),
            "sub" => slots!(|a: $t, b: $t| sum!($t, a, -b, $mode)),
            "mul" => slots!(|a: $t, b: $t| {
                let nearest = a * b;
                let [high, low] = product(a.into(), b.into());
                $t::directed(nearest, excess(nearest.into(), [high, low]), $mode)
            }),
            "div" => slots!(|a: $t, b: $t| quotient!($t, a, b, $mode)),
            _ => return None,
        }
    };
}

macro_rules! sum {
    ($t:ident, $a:expr, $b:expr, $mode:expr) => {{
        let nearest = $a + $b;
        let excess = excess(nearest.into(), [$a.into(), $b.into()]);
        // Numbers that cancel give -0 when rounded down.
        if nearest == 0.0 && $a != 0.0 && $mode == Rounding::Down {
            -0.0
        } else {
            $t::directed(nearest, excess, $mode)
        }
    }};
}

/// `add`, `sub`, `mul` and `div`.
pub(in super::super) fn directed_binary(
    name: &str,
    ty: Type,
    rounding: Rounding,
) -> Option<Binary> {
    let apply: Binary = match ty {
        Type::F32 => modes!(rounding, binary, f32, name),
        Type::F64 => modes!(rounding, binary, f64, name),
        _ => return None,
    };
    Some(apply)
}

macro_rules! ternary {
    ($mode:expr, $t:ident, $name:expr) => {
        match $name {
            "fma" => slots!(|a: $t, b: $t, c: $t| {
                let nearest = a.mul_add(b, c);
                let [high, low] = product(a.into(), b.into());
                $t::directed(nearest, excess(nearest.into(), [high, low, c.into()]), $mode)
            }),
            _ => return None,
        }
    };
}

/// `fma`.
pub(in super::super) fn directed_ternary(
    name: &str,
    ty: Type,
    rounding: Rounding,
) -> Option<Ternary> {
    let apply: Ternary = match ty {
        Type::F32 => modes!(rounding, ternary, f32, name),
        Type::F64 => modes!(rounding, ternary, f64, name),
        _ => return None,
    };
    Some(apply)
}
