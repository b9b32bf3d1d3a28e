//! The equiangular cubed sphere: six faces of a cube, projected onto a unit sphere, with grid lines at equal angles.

use std::f64::consts::FRAC_PI_2;

/// A point or a direction in space.
pub(crate) type Vector = [f64; 3];

/// Normal, x and y of each tile, as [`Topology::cubed_sphere`](runtime::halo::Topology::cubed_sphere) joins them.
const FACES: [[Vector; 3]; 6] = [
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    [[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
    [[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]],
    [[-1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, -1.0, 0.0]],
    [[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]],
    [[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]],
];

/// A sphere of six tiles of `cells` × `cells` cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) cells: usize,
}

impl Grid {
    /// The point of a tile at `x` and `y`, counted in cells from its corner.
    fn point(self, tile: usize, x: f64, y: f64) -> Vector {
        let [normal, along_x, along_y] = FACES[tile];
        let tangent = |at: f64| ((at / self.cells as f64 - 0.5) * FRAC_PI_2).tan();
        let (a, b) = (tangent(x), tangent(y));
        let point: Vector = std::array::from_fn(|k| normal[k] + a * along_x[k] + b * along_y[k]);
        let length = dot(point, point).sqrt();
        point.map(|part| part / length)
    }

    /// A corner of cells.
    pub(crate) fn corner(self, tile: usize, [i, j]: [usize; 2]) -> Vector {
        self.point(tile, i as f64, j as f64)
    }

    /// The middle of a cell.
    pub(crate) fn centre(self, tile: usize, [i, j]: [usize; 2]) -> Vector {
        self.point(tile, i as f64 + 0.5, j as f64 + 0.5)
    }

    /// The area of a cell, whose sides are parts of great circles.
    pub(crate) fn area(self, tile: usize, [i, j]: [usize; 2]) -> f64 {
        let [a, b] = [self.corner(tile, [i, j]), self.corner(tile, [i + 1, j])];
        let [c, d] = [self.corner(tile, [i + 1, j + 1]), self.corner(tile, [i, j + 1])];
        triangle(a, b, c) + triangle(a, c, d)
    }

    /// The tile and the cell that contain a point.
    pub(crate) fn cell(self, point: Vector) -> (usize, [usize; 2]) {
        let height = |tile: usize| dot(point, FACES[tile][0]);
        let tile =
            (1..6).fold(0, |best, tile| if height(tile) > height(best) { tile } else { best });
        let index = |axis: Vector| {
            let at = (dot(point, axis) / height(tile)).atan() / FRAC_PI_2 + 0.5;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to `cells`"
            )]
            let index = (at * self.cells as f64) as usize;
            index.min(self.cells - 1)
        };
        (tile, [index(FACES[tile][1]), index(FACES[tile][2])])
    }
}

/// The area of a triangle of great circles (Van Oosterom and Strackee, 1983).
fn triangle(a: Vector, b: Vector, c: Vector) -> f64 {
    2.0 * dot(a, cross(b, c)).atan2(1.0 + dot(a, b) + dot(b, c) + dot(c, a))
}

pub(crate) fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub(crate) fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}
