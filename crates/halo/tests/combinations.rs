//! All kinds of fields on all kinds of decompositions. Each pair of choices occurs; with `HALO_EXHAUSTIVE`, all
//! combinations.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod common;
mod devices;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, iter, thread};

use common::world::{Cube, Flat, World};
use common::{Case, Shape, two_blocks};
use devices::host;
use halo::{HaloOptions, Kind, Symmetry, Topology};
use runtime_core::{DType, Device};

#[derive(Clone, Copy, Debug)]
enum Decomposition {
    /// The cube, with the ranks on each tile: rows, columns.
    Sphere([usize; 2]),
    /// A box, with the ranks along each axis, and whether the axis is periodic.
    Box([usize; 2], [bool; 2]),
    /// Two blocks joined by this symmetry.
    Joined(Symmetry),
}

#[derive(Clone, Copy, Debug)]
enum Placing {
    Dense,
    /// More elements allocated around a field than its halo.
    Padded,
    /// The fastest dimension runs backwards, with gaps.
    Backwards,
}

/// The components of a quantity that are staggered along x and y.
type Grid = [[bool; 2]; 4];

const CELLS: Grid = [[false; 2]; 4];
const POINTS: Grid = [[true; 2]; 4];
/// Components on the sides that they cross, and on the sides that they run along.
const C_GRID: Grid = [[true, false], [false, true], [false; 2], [false; 2]];
const D_GRID: Grid = [[false, true], [true, false], [false; 2], [false; 2]];

const KINDS: [(Kind, Grid); 14] = [
    (Kind::Scalar, CELLS),
    (Kind::Scalar, POINTS),
    (Kind::PseudoScalar, CELLS),
    (Kind::PseudoScalar, POINTS),
    (Kind::Vector, CELLS),
    (Kind::Vector, POINTS),
    (Kind::Vector, C_GRID),
    (Kind::Vector, D_GRID),
    (Kind::UnsignedPair, CELLS),
    (Kind::UnsignedPair, POINTS),
    (Kind::UnsignedPair, C_GRID),
    (Kind::UnsignedPair, D_GRID),
    (Kind::Tensor, CELLS),
    (Kind::Tensor, POINTS),
];
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
const WIDTHS: [usize; 4] = [1, 2, 3, 4];
const PLACINGS: [Placing; 3] = [Placing::Dense, Placing::Padded, Placing::Backwards];
const OPEN_AND_PERIODIC: [([usize; 2], [bool; 2]); 4] = [
    ([1, 1], [true, true]),
    ([2, 1], [true, true]),
    ([3, 2], [true, false]),
    ([2, 3], [false, false]),
];

fn decompositions() -> Vec<Decomposition> {
    let layouts = (1..=3).flat_map(|rows| (1..=3).map(move |columns| [rows, columns]));
    let spheres = layouts.map(Decomposition::Sphere);
    let boxes = OPEN_AND_PERIODIC.map(|(ranks, periodic)| Decomposition::Box(ranks, periodic));
    spheres.chain(boxes).chain(Symmetry::ALL.map(Decomposition::Joined)).collect()
}

/// The number of choices for each factor.
const FACTORS: usize = 6;
/// One choice for each factor.
type Choice = [usize; FACTORS];
/// The indices of the two factors whose choices cannot all be combined.
const KIND: usize = 1;
const DTYPE: usize = 2;

/// The meaning of a choice.
#[derive(Clone, Copy, Debug)]
struct Combination {
    decomposition: Decomposition,
    kind: (Kind, Grid),
    dtype: DType,
    order: [usize; 3],
    width: usize,
    placing: Placing,
}

struct Factors {
    decompositions: Vec<Decomposition>,
}

impl Factors {
    fn counts(&self) -> Choice {
        [
            self.decompositions.len(),
            KINDS.len(),
            DType::ALL.len(),
            ORDERS.len(),
            WIDTHS.len(),
            PLACINGS.len(),
        ]
    }

    fn combination(&self, choice: Choice) -> Combination {
        Combination {
            decomposition: self.decompositions[choice[0]],
            kind: KINDS[choice[KIND]],
            dtype: DType::ALL[choice[DTYPE]],
            order: ORDERS[choice[3]],
            width: WIDTHS[choice[4]],
            placing: PLACINGS[choice[5]],
        }
    }

    fn all(&self) -> impl Iterator<Item = Choice> {
        let counts = self.counts();
        let total: usize = counts.iter().product();
        (0..total).map(move |mut number| {
            counts.map(|count| {
                let choice = number % count;
                number /= count;
                choice
            })
        })
    }
}

/// Whether the elements can have the signs that the kind needs.
fn is_possible(kind: usize, dtype: usize) -> bool {
    let is_unsigned = matches!(KINDS[kind].0, Kind::Scalar | Kind::UnsignedPair);
    is_unsigned || DType::ALL[dtype].admits_negate()
}

/// Two choices, each a factor and a value; the second factor comes later than the first.
type Pair = [(usize, usize); 2];

fn goes_together(pair: Pair) -> bool {
    match pair {
        [(KIND, kind), (DTYPE, dtype)] => is_possible(kind, dtype),
        _ => true,
    }
}

fn pair(a: (usize, usize), b: (usize, usize)) -> Pair {
    [a.min(b), a.max(b)]
}

fn pairs_of(choice: &Choice) -> impl Iterator<Item = Pair> {
    let choice = *choice;
    (0..FACTORS).flat_map(move |a| (a + 1..FACTORS).map(move |b| [(a, choice[a]), (b, choice[b])]))
}

/// A small set of combinations in which every allowed pair of choices occurs.
fn pairwise(counts: Choice) -> Vec<Choice> {
    let values = |factor: usize| (0..counts[factor]).map(move |value| (factor, value));
    let later = |a: (usize, usize)| (a.0 + 1..FACTORS).flat_map(values).map(move |b| [a, b]);
    let mut open: BTreeSet<Pair> =
        (0..FACTORS).flat_map(values).flat_map(later).filter(|pair| goes_together(*pair)).collect();
    let mut choices = Vec::new();
    while let Some(&[first, second]) = open.first() {
        let mut chosen = vec![first, second];
        for factor in (0..FACTORS).filter(|factor| ![first.0, second.0].contains(factor)) {
            let fits = |value: &(usize, usize)| {
                chosen.iter().all(|other| goes_together(pair(*value, *other)))
            };
            let gain = |value: &(usize, usize)| {
                chosen.iter().filter(|other| open.contains(&pair(*value, **other))).count()
            };
            chosen.extend(values(factor).filter(fits).max_by_key(gain));
        }
        let mut choice = [0; FACTORS];
        chosen.into_iter().for_each(|(factor, value)| choice[factor] = value);
        for pair in pairs_of(&choice) {
            open.remove(&pair);
        }
        choices.push(choice);
    }
    choices
}

impl Combination {
    fn quantities(&self) -> Vec<(Kind, Vec<Shape>)> {
        let (kind, grid) = self.kind;
        let mut shape = Shape {
            free: vec![2],
            order: self.order.to_vec(),
            backwards: matches!(self.placing, Placing::Backwards),
            ..Shape::new(self.dtype, self.width)
        };
        if let Placing::Padded = self.placing {
            shape.allocated = shape.halo.map(|[below, above]| [below + 2, above + 1]);
        }
        let components = (0..kind.components())
            .map(|c| shape.clone().staggered([grid[c][0], grid[c][1], false]));
        vec![(kind, components.collect())]
    }

    /// Runs the exchange, and compares every byte.
    fn check(&self, device: &Device) {
        let _printed = PrintOnPanic(self);
        // Block sizes that differ by one cell, none smaller than the halo.
        let cells = |ranks: usize| self.width * ranks + 1;
        let check = |topology: &Topology, world: &dyn World| {
            let quantities = self.quantities();
            Case { topology, world, quantities, options: HaloOptions::default() }.carry(device);
        };
        match self.decomposition {
            Decomposition::Sphere(layout) => {
                let cells = cells(layout[0].max(layout[1]));
                check(&Topology::cubed_sphere(cells, layout).unwrap(), &Cube { cells });
            }
            Decomposition::Box(ranks, periodic) => {
                let cells = ranks.map(cells);
                let topology = Topology::cartesian(&cells, &ranks, &periodic).unwrap();
                let (cells, periodic) =
                    ([cells[0], cells[1], 1], [periodic[0], periodic[1], false]);
                check(&topology, &Flat { cells, periodic });
            }
            Decomposition::Joined(symmetry) => {
                let (topology, world) = two_blocks(symmetry, [5, 4], [6, 4]);
                check(&topology, &world);
            }
        }
    }
}

/// Prints the tested combination on a panic.
struct PrintOnPanic<'a>(&'a Combination);

impl Drop for PrintOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{:?}", self.0);
        }
    }
}

/// `HALO_EXHAUSTIVE=1` tests all combinations, `HALO_EXHAUSTIVE=100` every hundredth.
#[test]
fn fields_of_every_description_on_every_decomposition() {
    let factors = Factors { decompositions: decompositions() };
    let chosen = match env::var("HALO_EXHAUSTIVE") {
        Ok(step) => {
            let step = step.parse().unwrap();
            let possible = factors.all().filter(|choice| is_possible(choice[KIND], choice[DTYPE]));
            possible.step_by(step).collect()
        }
        Err(_) => pairwise(factors.counts()),
    };
    let (next, device) = (AtomicUsize::new(0), host());
    let work = || {
        let numbers = iter::from_fn(|| chosen.get(next.fetch_add(1, Ordering::Relaxed)));
        numbers.for_each(|choice| factors.combination(*choice).check(&device));
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().unwrap().get()).for_each(|_| drop(scope.spawn(work)));
    });
    println!("{} combinations", chosen.len());
}

#[test]
fn every_pair_of_choices_occurs() {
    let counts = Factors { decompositions: decompositions() }.counts();
    let choices = pairwise(counts);
    let found: BTreeSet<Pair> = choices.iter().flat_map(pairs_of).collect();
    assert!(found.iter().all(|pair| goes_together(*pair)));
    // All pairs of values of any two factors, except kinds whose element type has no sign.
    let total: usize =
        (0..FACTORS).flat_map(|a| (a + 1..FACTORS).map(move |b| counts[a] * counts[b])).sum();
    let signed = KINDS.iter().filter(|(k, _)| !matches!(k, Kind::Scalar | Kind::UnsignedPair));
    let unsigned = DType::ALL.iter().filter(|dtype| !dtype.admits_negate());
    assert_eq!(found.len(), total - signed.count() * unsigned.count());
    assert!(choices.len() < 2 * counts[0] * counts[DTYPE], "{} choices", choices.len());
}
