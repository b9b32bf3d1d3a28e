//! Ghosts of every kind of boundary, location and footprint, compared with a grid that is not divided.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

#[path = "../../halo/tests/devices/mod.rs"]
#[macro_use]
mod devices;

use std::sync::Arc;

use halo::communicator::ThreadCommunicator;
use runtime_core::Device;
use stencil::{Boundary, End, Field, Grid, Launch, Location, Result, stencils};

#[stencils]
mod model {
    use stencil::{In, Out};

    #[stencil]
    pub(super) fn one_sided(out: Out<f64, 2>, a: In<f64, 2>, b: In<f64, 2>) {
        out.set(a.at(-2, 0) - 3.0 * a.at(0, 1) + b.at(0, -1));
    }

    #[stencil]
    pub(super) fn diagonals(out: Out<f64, 2>, a: In<f64, 2>, b: In<f64, 2>) {
        out.set(a.at(-1, -2) - 3.0 * a.at(2, 1) + b.at(1, -1) * b.at(0, 0));
    }

    #[stencil]
    pub(super) fn faces(out: Out<f64, 2>, a: In<f64, 2>, b: In<f64, 2>) {
        out.set(a.at(-1, 0) - 3.0 * a.at(0, 1) + b.at(0, -1));
    }

    #[stencil]
    pub(super) fn point(out: Out<f64, 2>, a: In<f64, 2>, b: In<f64, 2>) {
        out.set(a.at(0, 0) - 3.0 * b.at(0, 0));
    }
}

/// Reads of a stencil, by offset.
type Read<'a> = &'a dyn Fn(i64, i64) -> f64;

/// A stencil, the same as a function, and how far it reads.
type Case = (
    for<'a> fn(&'a mut Field<f64, 2>, &'a Field<f64, 2>, &'a Field<f64, 2>) -> Launch<'a>,
    fn(Read<'_>, Read<'_>) -> f64,
);

const CASES: [Case; 4] = [
    (model::one_sided, |a, b| a(-2, 0) - 3.0 * a(0, 1) + b(0, -1)),
    (model::diagonals, |a, b| a(-1, -2) - 3.0 * a(2, 1) + b(1, -1) * b(0, 0)),
    (model::faces, |a, b| a(-1, 0) - 3.0 * a(0, 1) + b(0, -1)),
    (model::point, |a, b| a(0, 0) - 3.0 * b(0, 0)),
];

const BOUNDARIES: [Boundary<f64>; 5] = [
    Boundary::Value(2.5),
    Boundary::Mirror,
    Boundary::OddMirror,
    Boundary::Clamp,
    Boundary::Extrapolate,
];

const LOCATIONS: [Location; 4] =
    [Location::Centre, Location::Face(0), Location::Face(1), Location::Corner];

/// A field of one rank, as its documentation says that it is.
struct Plain {
    cells: [i64; 2],
    staggered: [bool; 2],
    periodic: [bool; 2],
    boundaries: [[Boundary<f64>; 2]; 2],
    seed: f64,
}

impl Plain {
    fn points(&self, axis: usize) -> i64 {
        self.cells[axis] + i64::from(self.staggered[axis])
    }

    fn own(&self, mut index: [i64; 2]) -> f64 {
        for (axis, at) in index.iter_mut().enumerate().filter(|(axis, _)| self.periodic[*axis]) {
            *at = at.rem_euclid(self.cells[axis]);
        }
        initial(index, self.seed)
    }

    /// The value at an index. Ghosts beyond the ends of axis 1 depend on those beyond the ends of axis 0.
    fn at(&self, index: [i64; 2]) -> f64 {
        for axis in [1, 0] {
            let (n, i) = (self.points(axis), index[axis]);
            if self.periodic[axis] || (0..n).contains(&i) {
                continue;
            }
            let end = usize::from(i >= n);
            // The distance from the last point, and the index of a point that far within.
            let distance = if end == 0 { -i } else { i - (n - 1) };
            let within = |distance: i64| {
                let mut at = index;
                at[axis] = if end == 0 { distance } else { n - 1 - distance };
                self.at(at)
            };
            let mirrored = distance - i64::from(!self.staggered[axis]);
            return match self.boundaries[axis][end] {
                Boundary::Nothing => f64::NAN,
                Boundary::Value(value) => value,
                Boundary::Mirror => within(mirrored),
                Boundary::OddMirror => -within(mirrored),
                Boundary::Clamp => within(0),
                Boundary::Extrapolate => {
                    let (one, two) = (within(1 - distance), within(2 - distance));
                    (one + one) - two
                }
            };
        }
        self.own(index)
    }
}

fn initial([i, j]: [i64; 2], seed: f64) -> f64 {
    // Not by a sine, which Miri rounds at random.
    ((7919 * i + 104_729 * j).rem_euclid(1000) as f64 - 500.0) / 97.0 + seed
}

/// A generator of small numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Indices in the grid, and values.
type Values = Vec<([usize; 2], f64)>;

/// What the ranks of one run have in common.
#[derive(Debug)]
struct Setup {
    cells: [usize; 2],
    periodic: [bool; 2],
    locations: [Location; 3],
    boundaries: [[[Boundary<f64>; 2]; 2]; 2],
    /// An axis, and the points along it that are computed.
    over: (usize, std::ops::Range<usize>),
}

fn random(seed: u64) -> Setup {
    let mut random = Random(seed);
    for _ in 0..4 {
        random.below(2);
    }
    let mut pick = || {
        let mut boundary = || BOUNDARIES[random.below(5)];
        [[boundary(), boundary()], [boundary(), boundary()]]
    };
    let boundaries = [pick(), pick()];
    Setup {
        cells: [18 + random.below(6), 12 + random.below(9)],
        periodic: [random.below(3) == 0, random.below(3) == 0],
        locations: std::array::from_fn(|_| LOCATIONS[random.below(4)]),
        boundaries,
        over: (random.below(2), random.below(5)..8 + random.below(5)),
    }
}

fn staggered(location: Location) -> [bool; 2] {
    match location {
        Location::Centre => [false; 2],
        Location::Corner => [true; 2],
        Location::Face(axis) => [axis == 0, axis == 1],
    }
}

fn run(device: &Device, ranks: usize, setup: &Setup, case: &Case) -> Vec<Result<Values>> {
    ThreadCommunicator::run(ranks, |rank| {
        let stream = device.default_stream();
        let grid = Grid::cartesian(setup.cells)
            .periodic(setup.periodic)
            .halo(3)
            .ranks(Arc::new(rank))
            .build(device)?;
        let field = |number: usize| {
            let mut field = grid.field("field").at(setup.locations[number]);
            for (axis, ends) in setup.boundaries[number].iter().enumerate() {
                field = field
                    .boundary_at(End::Low(axis), ends[0])
                    .boundary_at(End::High(axis), ends[1]);
            }
            field.from_fn(|[i, j]| initial([i as i64, j as i64], number as f64))
        };
        let (a, b) = (field(0)?, field(1)?);
        // Some of the points come first: those that are left out keep their values.
        let mut part = grid.field("part").at(setup.locations[2]).filled(-1.0)?;
        let (axis, points) = setup.over.clone();
        case.0(&mut part, &a, &b).over(axis, points.clone()).run(&stream)?;
        let mut out = grid.field("out").at(setup.locations[2]).uninit()?;
        case.0(&mut out, &a, &b).run(&stream)?;
        let exchanges = grid.exchanges();
        case.0(&mut out, &a, &b).run(&stream)?;
        assert_eq!(grid.exchanges(), exchanges, "nothing is stale");
        let first = out.first();
        let values = out.read_host()?;
        for (at, value) in part.read_host()?.indexed_iter() {
            let is_computed = points.contains(&(first[axis] + at[axis]));
            let expected = if is_computed { values[[at[0], at[1]]] } else { -1.0 };
            assert_eq!(value.to_bits(), expected.to_bits(), "{:?} at {at:?} of {setup:?}", case.0);
        }
        Ok(values
            .indexed_iter()
            .map(|(at, v)| ([first[0] + at[0], first[1] + at[1]], *v))
            .collect())
    })
    .unwrap()
}

fn ghosts_have_the_values_of_an_undivided_grid(device: &Device) {
    // Devices that interpret kernels get fewer cases, and so do interpreted tests. Miri refuses the waits of ranks.
    let seeds = match device.id().backend() {
        _ if cfg!(miri) => 0..2,
        "host" => 0..60,
        _ => 0..6,
    };
    let ranks: &[usize] = if cfg!(miri) { &[1] } else { &[1, 2, 4, 6] };
    for seed in seeds {
        let setup = random(seed);
        let case = &CASES[seed as usize % 4];
        let [a, b] = [0, 1].map(|number| Plain {
            cells: setup.cells.map(|n| n as i64),
            staggered: staggered(setup.locations[number]),
            periodic: setup.periodic,
            boundaries: setup.boundaries[number],
            seed: number as f64,
        });
        for &ranks in ranks {
            let mut count = 0;
            for rank in run(device, ranks, &setup, case) {
                for ([i, j], value) in rank.unwrap() {
                    let (i, j) = (i as i64, j as i64);
                    let expected =
                        case.1(&|di, dj| a.at([i + di, j + dj]), &|di, dj| b.at([i + di, j + dj]));
                    assert_eq!(
                        value.to_bits(),
                        expected.to_bits(),
                        "seed {seed}, {ranks} ranks, ({i}, {j}): {value} for {expected}"
                    );
                    count += 1;
                }
            }
            assert!(count >= setup.cells[0] * setup.cells[1]);
        }
    }
}

on_all_devices!(ghosts_have_the_values_of_an_undivided_grid);
