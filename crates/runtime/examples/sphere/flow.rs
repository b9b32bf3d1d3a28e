//! The flow and its exact solution: the sphere turns as a solid body and carries a hill around.

use std::f64::consts::TAU;

use crate::grid::{Vector, cross, dot};

/// A rotation about an axis, with one turn in time 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    axis: Vector,
}

/// The initial position of the hill: the middle of the first tile.
const START: Vector = [1.0, 0.0, 0.0];

impl Flow {
    /// A path along the equator if `degrees` is 0, over the poles if it is 90, and over four corners of the cube if it
    /// is 45.
    pub(crate) fn tilted(degrees: f64) -> Self {
        let (sin, cos) = degrees.to_radians().sin_cos();
        Self { axis: [0.0, -sin, cos] }
    }

    /// The flow in time 1 through the great circle from `a` to `b`, to the right. It is exact: with the velocity
    /// `ω × x` it is the integral of `ω · dx`. No cell therefore gains or loses mass, except by rounding.
    pub(crate) fn through(self, a: Vector, b: Vector) -> f64 {
        TAU * (dot(self.axis, b) - dot(self.axis, a))
    }

    /// The position of the hill (Rodrigues' formula).
    pub(crate) fn centre(self, time: f64) -> Vector {
        let (sin, cos) = (TAU * time).sin_cos();
        let across = cross(self.axis, START);
        let along = dot(self.axis, START) * (1.0 - cos);
        std::array::from_fn(|k| cos * START[k] + sin * across[k] + along * self.axis[k])
    }

    /// The height at a point and a time: a Gaussian hill of height 1.
    pub(crate) fn exact(self, point: Vector, time: f64) -> f64 {
        let centre = self.centre(time);
        let distance: f64 = (0..3).map(|k| (point[k] - centre[k]).powi(2)).sum();
        (-5.0 * distance).exp()
    }
}
