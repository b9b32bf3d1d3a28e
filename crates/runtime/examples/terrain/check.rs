//! Checks of the result that do not rely on the device.
//!
//! The bounds are the largest possible rounding errors. With `ε` the distance from 1 to the next number and `M` the
//! largest height, kernel and reference each compute a step to within `4 ε M`. A step is a weighted mean, which does
//! not enlarge errors, so the errors of `n` steps at most add up.

use std::ops::RangeInclusive;

use ndarray::{Array2, ArrayRef2, Zip};

use crate::dem::mirrored;
use crate::error::DemoError;

/// The properties of a terrain that are needed to check the result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    /// Sum of all heights.
    pub(crate) mass: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

impl Summary {
    /// The summary of finite heights.
    pub(crate) fn of(terrain: &ArrayRef2<f64>) -> Self {
        let start = Self { mass: 0.0, lowest: f64::INFINITY, highest: f64::NEG_INFINITY };
        // Compensated summation: its own error must not hide a loss of mass.
        let mut lost = 0.0;
        let sum = terrain.iter().fold(start, |sum, &height| {
            let mass = sum.mass + height;
            lost += if sum.mass.abs() >= height.abs() {
                (sum.mass - mass) + height
            } else {
                (height - mass) + sum.mass
            };
            Self { mass, lowest: sum.lowest.min(height), highest: sum.highest.max(height) }
        });
        Self { mass: sum.mass + lost, ..sum }
    }

    pub(crate) fn range(&self) -> RangeInclusive<f64> {
        self.lowest..=self.highest
    }
}

/// The checks that were passed, with their bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checks {
    pub(crate) before: Summary,
    pub(crate) after: Summary,
    /// Change of mass, as a fraction of cells × largest height.
    pub(crate) mass: Bounded,
    /// Largest difference from the reference in metres.
    pub(crate) reference: Bounded,
}

/// A value and its largest permitted value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounded {
    pub(crate) value: f64,
    pub(crate) bound: f64,
}

impl Bounded {
    fn check(self, what: &'static str) -> Result<Self, DemoError> {
        let Self { value, bound } = self;
        // Not `value > bound`, which would accept a NaN.
        if value <= bound { Ok(self) } else { Err(DemoError::Wrong { what, value, bound }) }
    }
}

impl Checks {
    /// Compares `terrain` with its state `before`, and each of its tiles with the `reference`.
    pub(crate) fn run(
        before: &Summary,
        terrain: &ArrayRef2<f64>,
        reference: &Array2<f64>,
        steps: u64,
    ) -> Result<Self, DemoError> {
        let rounding = 4.0 * f64::EPSILON * steps as f64;
        let largest = before.highest.abs().max(before.lowest.abs());
        // This check comes first, because it detects any NaN.
        let value = largest_difference(terrain, reference);
        let reference = Bounded { value, bound: 2.0 * rounding * largest }
            .check("the difference from the reference")?;

        let after = Summary::of(terrain);
        let value = (after.mass - before.mass).abs()
            / (terrain.len() as f64 * largest.max(f64::MIN_POSITIVE));
        let mass = Bounded { value, bound: rounding }.check("the relative change of mass")?;
        if after.lowest < before.lowest || after.highest > before.highest {
            return Err(DemoError::NewExtreme { before: before.range(), after: after.range() });
        }
        Ok(Self { before: *before, after, mass, reference })
    }
}

/// The largest difference over all tiles. NaN if any height is NaN.
fn largest_difference(terrain: &ArrayRef2<f64>, reference: &Array2<f64>) -> f64 {
    let across = terrain.ncols() / reference.ncols();
    let tiles = terrain.exact_chunks(reference.dim()).into_iter().enumerate();
    tiles.fold(0.0, |largest, (index, tile)| {
        let reference = mirrored(reference, index / across, index % across);
        Zip::from(tile).and(reference).fold(largest, |largest, a, b| {
            let apart = (a - b).abs();
            if apart > largest || apart.is_nan() { apart } else { largest }
        })
    })
}
