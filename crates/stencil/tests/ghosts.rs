//! Ghosts of every kind of boundary, location and footprint, compared with a grid that is not divided.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

#[path = "../../halo/tests/altered/mod.rs"]
mod altered;
#[path = "../../halo/tests/devices/mod.rs"]
#[macro_use]
mod devices;
mod messages;

use halo::communicator::ThreadCommunicator;
use messages::mostly_by_messages;
use ndarray::Array;
use runtime_core::Device;
use stencil::{Boundary, End, ErrorKind, Field, Grid, Launch, Location, Result, stencils};

#[stencils]
mod model {
    use stencil::{In, InOut, Out};

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
    pub(super) fn star(out: Out<f64, 2>, a: In<f64, 2>, b: In<f64, 2>) {
        out.set(a.at(-1, 0) - 3.0 * a.at(3, 0) + a.at(0, -2) * b.at(0, 1) - a.at(0, 1));
    }

    /// Ghosts of which each depends on its place and on time.
    #[stencil]
    pub(super) fn inflow(a: Out<f64, 2>, x: In<f64, 2>, time: f64) {
        a.set(time * x.at(0, 0) + 0.5 * index(0) as f64 - 2.0 * index(1) as f64);
    }

    /// Ghosts that depend on those before them, at each end.
    #[column(backward, ghosts)]
    pub(super) fn low_0(a: Out<f64, 2>, x: In<f64, 2>, time: f64) {
        a.set(time * a.at(1, 0) + x.at(1, 0) - 0.25 * x.at(0, -1));
    }

    #[column(forward, ghosts)]
    pub(super) fn high_0(a: InOut<f64, 2>, x: In<f64, 2>, time: f64) {
        a.set(time * a.at(-1, 0) + x.at(-1, 0) - 0.25 * x.at(0, -1));
    }

    #[column(backward, ghosts, axis = 1)]
    pub(super) fn low_1(a: Out<f64, 2>, x: In<f64, 2>, time: f64) {
        a.set(time * a.at(0, 1) + x.at(0, 1) - 0.25 * x.at(-1, 0));
    }

    #[column(forward, ghosts, axis = 1)]
    pub(super) fn high_1(a: Out<f64, 2>, x: In<f64, 2>, time: f64) {
        a.set(time * a.at(0, -1) + x.at(0, -1) - 0.25 * x.at(-1, 0));
    }

    #[column(forward, ghosts, axis = 2)]
    pub(super) fn threefold(a: Out<i64, 3>) {
        a.set(3 * a.at(0, 0, -1) + index(2));
    }

    #[column(backward, ghosts)]
    pub(super) fn halves(a: Out<f32, 1>) {
        if last() {
            a.set(-a.at(1));
        } else {
            a.set(0.5 * a.at(1));
        }
    }

    #[stencil]
    pub(super) fn ahead(out: Out<i64, 3>, a: In<i64, 3>) {
        out.set(a.at(0, 0, 2));
    }

    #[stencil]
    pub(super) fn behind(out: Out<f32, 1>, a: In<f32, 1>) {
        out.set(a.at(-2));
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
    computed: Option<Box<Ends>>,
}

/// How stencils compute the ghosts beyond the ends of a field.
struct Ends {
    /// The field that they read.
    x: Plain,
    /// For each end, whether a column computes them.
    columns: [[bool; 2]; 2],
}

const TIME: f64 = 0.75;

impl Ends {
    /// The ghost at an index beyond an end. `before` is the one before it, or the last own point.
    fn at(&self, index: [i64; 2], axis: usize, end: usize, before: f64) -> f64 {
        let x = |axis: usize, by: i64| {
            let mut at = index;
            at[axis] += by;
            self.x.at(at)
        };
        if self.columns[axis][end] {
            TIME * before + x(axis, 1 - 2 * end as i64) - 0.25 * x(1 - axis, -1)
        } else {
            TIME * x(0, 0) + 0.5 * index[0] as f64 - 2.0 * index[1] as f64
        }
    }
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
                Boundary::Computed => {
                    let ends = self.computed.as_ref().unwrap();
                    ends.at(index, axis, end, within(1 - distance))
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
            .ranks(mostly_by_messages(rank))
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
        _ if cfg!(miri) => 0..1,
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
            computed: None,
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

/// What the ranks of a run with ends that stencils compute have in common.
#[derive(Debug)]
struct Open {
    setup: Setup,
    /// Of the field that these stencils read, which has the boundaries of the second field.
    x: Location,
    columns: [[bool; 2]; 2],
}

impl Open {
    fn random(seed: u64) -> Self {
        let mut setup = random(seed);
        let mut random = Random(seed + 1000);
        for end in setup.boundaries[0].as_flattened_mut() {
            if random.below(3) > 0 {
                *end = Boundary::Computed;
            }
        }
        let [a, _, out] = &mut setup.locations;
        // Without points of the output that are shifted against those of the inputs: they read corners.
        *out = Location::Centre;
        let x = if *a == Location::Centre { LOCATIONS[random.below(4)] } else { *a };
        Self {
            setup,
            x,
            columns: std::array::from_fn(|_| [random.below(2) > 0, random.below(2) > 0]),
        }
    }

    /// Whether stencils compute ghosts beyond an end.
    fn is_computed(&self, axis: usize, side: usize) -> bool {
        !self.setup.periodic[axis] && self.setup.boundaries[0][axis][side] == Boundary::Computed
    }

    fn plain(&self, number: usize, location: Location, computed: Option<Box<Ends>>) -> Plain {
        Plain {
            cells: self.setup.cells.map(|n| n as i64),
            staggered: staggered(location),
            periodic: self.setup.periodic,
            boundaries: self.setup.boundaries[number.min(1)],
            seed: number as f64,
            computed,
        }
    }
}

/// A launch that computes ghosts of the first field.
type Compute = for<'a> fn(&'a mut Field<f64, 2>, &'a Field<f64, 2>, f64) -> Launch<'a>;

/// Columns beyond each end.
const COLUMNS: [[Compute; 2]; 2] = [[model::low_0, model::high_0], [model::low_1, model::high_1]];

/// The values of both readers on this many ranks.
fn run_open(device: &Device, ranks: usize, open: &Open) -> Vec<Result<[Values; 2]>> {
    let Setup { cells, periodic, locations, boundaries, .. } = &open.setup;
    ThreadCommunicator::run(ranks, |rank| {
        let stream = device.default_stream();
        let grid = Grid::cartesian(*cells)
            .periodic(*periodic)
            .halo(3)
            .ranks(mostly_by_messages(rank))
            .build(device)?;
        let field = |number: usize, location: Location| {
            let mut field = grid.field("field").at(location);
            for (axis, [low, high]) in boundaries[number.min(1)].into_iter().enumerate() {
                field = field.boundary_at(End::Low(axis), low).boundary_at(End::High(axis), high);
            }
            field.from_fn(|[i, j]| initial([i as i64, j as i64], number as f64))
        };
        let (mut a, b, x) = (field(0, locations[0])?, field(1, locations[1])?, field(2, open.x)?);
        let (mut near, mut far) = (grid.field("near").uninit()?, grid.field("far").uninit()?);
        let computed: Vec<(usize, usize)> = [(0, 0), (1, 1), (0, 1), (1, 0)]
            .into_iter()
            .filter(|(axis, side)| open.is_computed(*axis, *side))
            .collect();
        // Ghosts that the first reader needs, and those that the second one needs besides.
        let (first, second): (Vec<_>, Vec<_>) =
            computed.into_iter().partition(|(axis, side)| axis == side);
        let compute = |a: &mut Field<f64, 2>, ends: &[(usize, usize)]| {
            ends.iter().try_for_each(|&(axis, side)| {
                let end = [End::Low(axis), End::High(axis)][side];
                let make =
                    if open.columns[axis][side] { COLUMNS[axis][side] } else { model::inflow };
                make(a, &x, TIME).on(end).run(&stream)
            })
        };
        let check = |result: Result<()>, is_stale: bool| match result {
            Ok(()) => assert!(!is_stale, "no ghosts were computed: {open:?}"),
            Err(error) => {
                assert!(is_stale && error.kind() == ErrorKind::Stale, "{error}: {open:?}");
            }
        };
        for _ in 0..2 {
            // A field on faces has the point behind the last cell.
            let is_read = |end: &(usize, usize)| *end != (1, 1) || !staggered(locations[0])[1];
            check(model::one_sided(&mut near, &a, &b).run(&stream), first.iter().any(is_read));
            compute(&mut a, &first)?;
            model::one_sided(&mut near, &a, &b).run(&stream)?;
            check(model::star(&mut far, &a, &b).run(&stream), !second.is_empty());
            compute(&mut a, &second)?;
            model::star(&mut far, &a, &b).run(&stream)?;
            compute(&mut a, &first)?;
            compute(&mut a, &second)?;
            let exchanges = grid.exchanges();
            model::star(&mut far, &a, &b).run(&stream)?;
            model::one_sided(&mut near, &a, &b).run(&stream)?;
            assert_eq!(grid.exchanges(), exchanges, "nothing else is stale");
            // All of them are stale after a change.
            let mut host = a.read_write_host()?;
            host[[0, 0]] += 0.0;
            host.commit()?;
        }
        let first = near.first();
        let values = |field: &mut Field<f64, 2>| -> Result<Values> {
            let values = field.read_host()?;
            let values = values.indexed_iter();
            Ok(values.map(|(at, value)| ([first[0] + at[0], first[1] + at[1]], *value)).collect())
        };
        Ok([values(&mut near)?, values(&mut far)?])
    })
    .unwrap()
}

fn computed_ghosts_have_the_values_of_an_undivided_grid(device: &Device) {
    let (seeds, ranks): (_, &[usize]) = match device.id().backend() {
        _ if cfg!(miri) => (0..1, &[1]),
        "host" => (0..16, &[1, 2, 4, 6]),
        _ => (0..3, &[1, 4]),
    };
    for seed in seeds {
        let open = Open::random(seed);
        let [a, b, _] = open.setup.locations;
        let ends = Ends { x: open.plain(2, open.x, None), columns: open.columns };
        let (a, b) = (open.plain(0, a, Some(Box::new(ends))), open.plain(1, b, None));
        let near = |a: Read<'_>, b: Read<'_>| a(-2, 0) - 3.0 * a(0, 1) + b(0, -1);
        let far =
            |a: Read<'_>, b: Read<'_>| a(-1, 0) - 3.0 * a(3, 0) + a(0, -2) * b(0, 1) - a(0, 1);
        for &ranks in ranks {
            let mut count = 0;
            for rank in run_open(device, ranks, &open) {
                let [found_near, found_far] = rank.unwrap();
                count += found_near.len();
                for (values, reader) in
                    [(found_near, &near as &dyn Fn(Read<'_>, Read<'_>) -> f64), (found_far, &far)]
                {
                    for ([i, j], value) in values {
                        let (i, j) = (i as i64, j as i64);
                        let expected = reader(&|di, dj| a.at([i + di, j + dj]), &|di, dj| {
                            b.at([i + di, j + dj])
                        });
                        assert_eq!(
                            value.to_bits(),
                            expected.to_bits(),
                            "seed {seed}, {ranks} ranks, ({i}, {j}): {value} for {expected} of {open:?}"
                        );
                    }
                }
            }
            assert_eq!(count, open.setup.cells.iter().product());
        }
    }
}

fn computed_ghosts_of_other_types_and_axes(device: &Device) -> Result<()> {
    let stream = device.default_stream();
    let grid = Grid::cartesian([3, 4, 5]).halo(2).build(device)?;
    let a = grid.field("a").boundary_at(End::High(2), Boundary::Computed);
    let mut a = a.at(Location::Face(2)).from_fn(|[i, j, k]| (100 * i + 10 * j + k) as i64)?;
    let mut out = grid.field("out").uninit()?;
    model::threefold(&mut a).on(End::High(2)).run(&stream)?;
    model::ahead(&mut out, &a).run(&stream)?;
    let expected = Array::from_shape_fn([3, 4, 5], |(i, j, k)| match (100 * i + 10 * j, k) {
        (line, 4) => 3 * (line + 5) as i64 + 6,
        (line, k) => (line + k + 2) as i64,
    });
    assert_eq!(out.read_host()?.view(), expected.into_dyn());

    let grid = Grid::cartesian([4]).halo(2).build(device)?;
    let a = grid.field("a").boundary(Boundary::Computed);
    let mut a = a.from_fn(|[i]| [8.0_f32, 1.0, 2.0, 3.0][i])?;
    let mut out = grid.field("out").uninit()?;
    model::halves(&mut a).on(End::Low(0)).run(&stream)?;
    model::behind(&mut out, &a).run(&stream)?;
    assert_eq!(out.read_host()?.as_slice(), Some(&[-4.0, 4.0, 8.0, 1.0][..]));
    Ok(())
}

fn computed_ghosts_have_any_type_and_axis(device: &Device) {
    computed_ghosts_of_other_types_and_axes(device).unwrap();
}

on_all_devices!(
    ghosts_have_the_values_of_an_undivided_grid,
    computed_ghosts_have_the_values_of_an_undivided_grid,
    computed_ghosts_have_any_type_and_axis,
);
