//! The positions of cells in space. This module does not use symmetries between tiles: tiles are placed in space,
//! ghosts are at the continuation of their tile, and values are functions of places.

use halo::Kind;
use runtime_core::DType;

/// A place in space, and the directions of the tile's x and y there.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) at: [i64; 3],
    pub(crate) basis: [[i64; 3]; 2],
    /// 1 if x and y are a right-handed pair, seen from outside.
    pub(crate) hand: i64,
}

pub(crate) trait World: Sync {
    /// The place of a point of a tile or around it, given in half cells. `None` if no cell lies there.
    fn place(&self, tile: usize, at: [i64; 3]) -> Option<Place>;
}

/// A box. Each of its axes may be a ring.
pub(crate) struct Flat {
    pub(crate) cells: [usize; 3],
    pub(crate) periodic: [bool; 3],
}

impl World for Flat {
    fn place(&self, _: usize, at: [i64; 3]) -> Option<Place> {
        let mut wrapped = at;
        for axis in 0..3 {
            let length = 2 * self.cells[axis] as i64;
            if self.periodic[axis] {
                wrapped[axis] = at[axis].rem_euclid(length);
            } else if !(0..=length).contains(&at[axis]) {
                return None;
            }
        }
        Some(Place { at: wrapped, basis: [[1, 0, 0], [0, 1, 0]], hand: 1 })
    }
}

/// The surface of a cube. Each tile is a face with an outward normal. Beyond an edge the tile continues along the next
/// face, away from its own normal.
pub(crate) struct Cube {
    pub(crate) cells: usize,
}

/// The normal, x and y of each face: the staircase of tiles.
const FACES: [[[i64; 3]; 3]; 6] = [
    [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    [[0, 1, 0], [-1, 0, 0], [0, 0, 1]],
    [[0, 0, 1], [-1, 0, 0], [0, -1, 0]],
    [[-1, 0, 0], [0, 0, -1], [0, -1, 0]],
    [[0, -1, 0], [0, 0, -1], [1, 0, 0]],
    [[0, 0, -1], [0, 1, 0], [1, 0, 0]],
];

fn sum(terms: [([i64; 3], i64); 3]) -> [i64; 3] {
    std::array::from_fn(|k| terms.iter().map(|(v, factor)| v[k] * factor).sum())
}

impl World for Cube {
    fn place(&self, tile: usize, at: [i64; 3]) -> Option<Place> {
        let half = self.cells as i64;
        let [normal, x, y] = FACES[tile];
        // Half cells from the centre of the face.
        let (a, b) = (at[0] - half, at[1] - half);
        let beyond = |c: i64| (c.abs() - half).max(0);
        if beyond(a) > 0 && beyond(b) > 0 {
            return None;
        }
        let depth = beyond(a) + beyond(b);
        let place =
            sum([(normal, half - depth), (x, a.clamp(-half, half)), (y, b.clamp(-half, half))]);
        let down = |c: i64| normal.map(|n| -n * c.signum());
        let basis =
            [if beyond(a) > 0 { down(a) } else { x }, if beyond(b) > 0 { down(b) } else { y }];
        Some(Place { at: place, basis, hand: 1 })
    }
}

/// Tiles in a plane, each with a corner and the directions of its x and y.
pub(crate) struct Plane {
    pub(crate) tiles: Vec<Tile>,
}

pub(crate) struct Tile {
    pub(crate) corner: [i64; 2],
    pub(crate) x: [i64; 2],
    pub(crate) y: [i64; 2],
    pub(crate) cells: [usize; 2],
}

impl Tile {
    fn out(&self, at: [i64; 3]) -> [i64; 2] {
        std::array::from_fn(|k| 2 * self.corner[k] + at[0] * self.x[k] + at[1] * self.y[k])
    }

    fn holds(&self, place: [i64; 2]) -> bool {
        let from = [place[0] - 2 * self.corner[0], place[1] - 2 * self.corner[1]];
        let along = |v: [i64; 2]| from[0] * v[0] + from[1] * v[1];
        let within = |c: i64, cells: usize| (0..=2 * cells as i64).contains(&c);
        within(along(self.x), self.cells[0]) && within(along(self.y), self.cells[1])
    }
}

impl World for Plane {
    fn place(&self, tile: usize, at: [i64; 3]) -> Option<Place> {
        let tile = &self.tiles[tile];
        let place = tile.out(at);
        let hand = tile.x[0] * tile.y[1] - tile.x[1] * tile.y[0];
        let basis = [[tile.x[0], tile.x[1], 0], [tile.y[0], tile.y[1], 0]];
        let is_somewhere = self.tiles.iter().any(|tile| tile.holds(place));
        is_somewhere.then_some(Place { at: [place[0], place[1], at[2]], basis, hand })
    }
}

/// A number for a place and further values, between 1 and the largest number that the type represents exactly.
fn number(at: [i64; 3], salt: usize, dtype: DType) -> i64 {
    let mut hash = salt as u64 + 1;
    for part in at {
        hash = (hash ^ part as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
    }
    let limit = match dtype {
        DType::Bool => return i64::from(hash & 1 == 1),
        DType::I8 | DType::U8 => 127,
        DType::BF16 => 255,
        DType::F16 => 2047,
        DType::I16 | DType::U16 => 32_767,
        _ => 1 << 24,
    };
    1 + (hash % limit) as i64
}

/// The value of a component at a place: the value of the quantity there along the tile's directions.
pub(crate) fn value(kind: Kind, component: usize, place: &Place, salt: usize, dtype: DType) -> i64 {
    let axis = |direction: [i64; 3]| direction.iter().position(|c| *c != 0).unwrap();
    let sign = |direction: [i64; 3]| direction.iter().sum::<i64>();
    let along = |index: usize| place.basis[index];
    let salt = salt * 16;
    match kind {
        Kind::Scalar => number(place.at, salt, dtype),
        Kind::PseudoScalar => place.hand * number(place.at, salt, dtype),
        Kind::Vector => {
            let direction = along(component);
            sign(direction) * number(place.at, salt + 1 + axis(direction), dtype)
        }
        Kind::UnsignedPair => number(place.at, salt + 1 + axis(along(component)), dtype),
        Kind::Tensor => {
            let (row, column) = (along(component / 2), along(component % 2));
            let salt = salt + 4 + 3 * axis(row) + axis(column);
            sign(row) * sign(column) * number(place.at, salt, dtype)
        }
    }
}
