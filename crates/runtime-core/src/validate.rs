//! Comparing results with a reference.

use std::fmt;

use half::{bf16, f16};
use num_complex::Complex;

use crate::{Bool, Element};

/// The allowed difference of a result from its reference: `|result − reference| ≤ absolute + relative · |reference|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Allowed for every value.
    pub absolute: f64,
    /// Allowed as a fraction of the reference.
    pub relative: f64,
}

impl Tolerance {
    /// No difference allowed.
    pub const EXACT: Self = Self { absolute: 0.0, relative: 0.0 };

    /// A few rounding errors of a type: 8 units in the last place for floating-point numbers, none for other types.
    pub fn of<T: Compare>() -> Self {
        Self { absolute: 0.0, relative: 8.0 * T::EPSILON }
    }
}

/// Elements that can be compared with a tolerance.
pub trait Compare: Element + fmt::Debug {
    /// Distance from 1 to the next larger number. 0 for exact types.
    const EPSILON: f64;

    /// The distance of two values and the magnitude of the reference. The distance of two NaNs is 0; that of a NaN and
    /// a number is infinite.
    fn distance(self, reference: Self) -> (f64, f64);
}

fn between(value: f64, reference: f64) -> (f64, f64) {
    let apart = match (value.is_nan(), reference.is_nan()) {
        (true, true) => 0.0,
        (false, false) if value == reference => 0.0,
        (false, false) => (value - reference).abs(),
        _ => f64::INFINITY,
    };
    (apart, if reference.is_finite() { reference.abs() } else { 0.0 })
}

macro_rules! compare {
    ($($type:ty, $epsilon:expr, $to:expr;)*) => {$(
        impl Compare for $type {
            const EPSILON: f64 = $epsilon;
            fn distance(self, reference: Self) -> (f64, f64) {
                let to: fn(Self) -> f64 = $to;
                between(to(self), to(reference))
            }
        }
    )*};
}

compare! {
    f16, 9.765_625e-4, |x| x.to_f64();
    bf16, 7.812_5e-3, |x| x.to_f64();
    f32, 1.192_092_895_507_812_5e-7, f64::from;
    f64, f64::EPSILON, |x| x;
    i8, 0.0, f64::from;
    i16, 0.0, f64::from;
    i32, 0.0, f64::from;
    u8, 0.0, f64::from;
    u16, 0.0, f64::from;
    u32, 0.0, f64::from;
    Bool, 0.0, |x| f64::from(u8::from(bool::from(x)));
}

// Not through `f64`, where neighbouring large integers would be equal.
macro_rules! compare_wide {
    ($($type:ty)*) => {$(
        impl Compare for $type {
            const EPSILON: f64 = 0.0;
            #[expect(clippy::cast_precision_loss, reason = "a difference other than 0 stays other than 0")]
            fn distance(self, reference: Self) -> (f64, f64) {
                (self.abs_diff(reference) as f64, reference as f64)
            }
        }
    )*};
}

compare_wide!(i64 u64);

macro_rules! compare_complex {
    ($($part:ty)*) => {$(
        impl Compare for Complex<$part> {
            const EPSILON: f64 = <$part as Compare>::EPSILON;
            fn distance(self, reference: Self) -> (f64, f64) {
                let (re, im) = (self.re.distance(reference.re), self.im.distance(reference.im));
                (re.0.hypot(im.0), re.1.hypot(im.1))
            }
        }
    )*};
}

compare_complex!(f32 f64);

/// The first element that differs too much, and the number of such elements.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "element {index} is {value}, expected {reference} within {tolerance:?}; {count} of {len} differ"
)]
pub struct Mismatch {
    /// Index of the first element that differs too much.
    pub index: usize,
    /// Its value.
    pub value: String,
    /// The expected value.
    pub reference: String,
    /// The tolerance that was applied.
    pub tolerance: Tolerance,
    /// Number of elements that differ too much.
    pub count: usize,
    /// Number of elements.
    pub len: usize,
}

/// Compares a result with its reference, element by element.
///
/// # Errors
///
/// The first mismatch. If the lengths differ, there is a mismatch at the end of the shorter slice.
///
/// ```
/// use runtime_core::{Tolerance, compare};
///
/// compare(&[1.0_f32, 2.0], &[1.0, 2.000_000_2], Tolerance::of::<f32>())?;
/// let mismatch = compare(&[1, 2, 3], &[1, 2, 4], Tolerance::EXACT).unwrap_err();
/// assert_eq!((mismatch.index, mismatch.count), (2, 1));
/// # Ok::<(), runtime_core::Mismatch>(())
/// ```
pub fn compare<T: Compare>(
    result: &[T],
    reference: &[T],
    tolerance: Tolerance,
) -> Result<(), Mismatch> {
    let differs = |pair: (&T, &T)| {
        let (apart, scale) = pair.0.distance(*pair.1);
        let limit = tolerance.absolute + tolerance.relative * scale.abs();
        apart > limit || limit.is_nan()
    };
    let common = result.len().min(reference.len());
    let len = result.len().max(reference.len());
    let first = result.iter().zip(reference).position(differs);
    let index = match first {
        Some(index) => index,
        None if common < len => common,
        None => return Ok(()),
    };
    let show = |values: &[T]| values.get(index).map_or("missing".to_owned(), |v| format!("{v:?}"));
    let count = result.iter().zip(reference).filter(|pair| differs(*pair)).count() + (len - common);
    Err(Mismatch { index, value: show(result), reference: show(reference), tolerance, count, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_equals_nan_alone() {
        assert!(compare(&[f64::NAN], &[f64::NAN], Tolerance::EXACT).is_ok());
        assert!(
            compare(&[f64::NAN], &[1.0], Tolerance { absolute: f64::MAX, relative: 0.0 }).is_err()
        );
    }

    #[test]
    fn infinities_and_large_integers_are_distinguished() {
        assert!(compare(&[f32::INFINITY], &[f32::INFINITY], Tolerance::EXACT).is_ok());
        assert!(compare(&[f32::INFINITY], &[1.0], Tolerance::of::<f32>()).is_err());
        assert!(compare(&[u64::MAX], &[u64::MAX - 1], Tolerance::of::<u64>()).is_err());
    }

    #[test]
    fn a_missing_element_is_a_mismatch() {
        let mismatch = compare(&[1, 2], &[1], Tolerance::EXACT).unwrap_err();
        assert_eq!((mismatch.index, mismatch.reference.as_str()), (1, "missing"));
    }
}
