//! Random programs of launches: each call has the same outcome on any number of ranks as on one, and the fields have the
//! same values. `STENCIL_PROGRAMS_SEED` chooses the first program, and `STENCIL_PROGRAMS` their number.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

#[path = "../../halo/tests/altered/mod.rs"]
mod altered;
mod messages;

use std::env;
use std::mem::swap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use backend_host::HostDevice;
use backend_sim::{SimConfig, SimDevice};
use fastrand::Rng;
use halo::communicator::{Communicator, ThreadCommunicator};
use messages::by_messages;
use runtime_core::{Device, Stream};
use stencil::{Boundary, End, ErrorKind, Field, Grid, Launch, Location, Result, stencils};

/// How many programs each run tries, of how many calls each.
const PROGRAMS: u64 = 12;
const CALLS: usize = 30;
const FIELDS: usize = 6;

#[stencils]
mod model {
    use stencil::{In, InOut, Out};

    #[stencil]
    pub(super) fn point(out: Out<f64, 2>, a: In<f64, 2>, b: In<f64, 2>, by: f64) {
        out.set(by * a.at(0, 0) - 0.5 * b.at(0, 0));
    }

    #[stencil]
    pub(super) fn star(out: Out<f64, 2>, a: In<f64, 2>, b: In<f64, 2>, by: f64) {
        out.set(by * a.at(0, 0) + 0.25 * (a.at(-1, 0) - a.at(1, 0)) + b.at(0, -1) - b.at(0, 1));
    }

    #[stencil]
    pub(super) fn diagonals(out: Out<f64, 2>, a: In<f64, 2>, b: In<f64, 2>, by: f64) {
        out.set(by * a.at(-1, -1) + 0.25 * a.at(1, 1) - 0.5 * b.at(1, -1));
    }

    #[stencil]
    pub(super) fn far(out: Out<f64, 2>, a: In<f64, 2>, b: In<f64, 2>, by: f64) {
        out.set(by * a.at(-2, 0) + 0.25 * a.at(0, 2) - b.at(0, -1) + 0.01 * index(0) as f64);
    }

    #[stencil]
    pub(super) fn update(x: InOut<f64, 2>, a: In<f64, 2>, by: f64) {
        x.set(0.5 * x.at(0, 0) + by * a.at(0, -1) - 0.25 * a.at(1, 0));
    }

    #[column(forward)]
    pub(super) fn forward(x: Out<f64, 2>, a: In<f64, 2>, by: f64) {
        if first() {
            x.set(a.at(0, 1));
        } else {
            x.set(by * x.at(-1, 0) + 0.5 * a.at(-1, -1));
        }
    }

    #[stencil]
    pub(super) fn ghosts(x: Out<f64, 2>, a: In<f64, 2>, by: f64) {
        x.set(by * a.at(0, 0) + 0.5 * index(0) as f64 - 0.25 * index(1) as f64);
    }

    #[reduction(sum)]
    pub(super) fn sum(a: In<f64, 2>, b: In<f64, 2>) -> f64 {
        a.at(0, 1) + 0.5 * b.at(-1, -1)
    }
}

type OfTwo =
    for<'a> fn(&'a mut Field<f64, 2>, &'a Field<f64, 2>, &'a Field<f64, 2>, f64) -> Launch<'a>;
const OF_TWO: [OfTwo; 4] = [model::point, model::star, model::diagonals, model::far];

/// What a program does with its fields, which are numbered.
#[derive(Clone, Debug)]
enum Call {
    OfTwo { stencil: usize, inputs: [usize; 2] },
    Update { input: usize },
    Column { input: usize },
    Ghosts { input: usize, end: End },
    Swap { with: usize },
    SetBoundary { end: End, boundary: Boundary<f64> },
    Set { by: f64 },
    Change { by: f64 },
    Sum { with: usize },
}

/// A call for one field.
#[derive(Clone, Debug)]
struct Step {
    call: Call,
    field: usize,
    over: Option<(usize, Range<usize>)>,
    inside: usize,
    stream: usize,
    by: f64,
}

#[derive(Clone, Debug)]
struct Program {
    cells: [usize; 2],
    periodic: [bool; 2],
    /// Axis 0 is not divided, for columns along it.
    is_whole: bool,
    locations: [Location; 2],
    boundaries: Vec<[Boundary<f64>; 4]>,
    steps: Vec<Step>,
}

const ENDS: [End; 4] = [End::Low(0), End::High(0), End::Low(1), End::High(1)];

impl Program {
    fn random(seed: u64) -> Self {
        let random = &mut Rng::with_seed(seed);
        let locations = [
            Location::Centre,
            Location::Centre,
            Location::Face(0),
            Location::Face(1),
            Location::Corner,
        ];
        Self {
            cells: [random.usize(18..24), random.usize(16..26)],
            periodic: [random.u8(..3) == 0, random.u8(..3) == 0],
            is_whole: random.bool(),
            locations: [0, 1].map(|_| random.choice(locations).unwrap()),
            boundaries: (0..FIELDS).map(|_| [0; 4].map(|_| boundary(random))).collect(),
            steps: (0..CALLS).map(|_| step(random)).collect(),
        }
    }
}

fn boundary(random: &mut Rng) -> Boundary<f64> {
    match random.u8(..7) {
        0 => Boundary::Value(2.5),
        1 => Boundary::Mirror,
        2 => Boundary::OddMirror,
        3 => Boundary::Clamp,
        4 => Boundary::Extrapolate,
        _ => Boundary::Computed,
    }
}

fn step(random: &mut Rng) -> Step {
    let field = random.usize(..FIELDS);
    let mut other = || (field + random.usize(1..FIELDS)) % FIELDS;
    let inputs = [other(), other()];
    let input = inputs[0];
    let call = match random.u8(..14) {
        0..=5 => Call::OfTwo { stencil: random.usize(..OF_TWO.len()), inputs },
        6 => Call::Update { input },
        7 => Call::Column { input },
        8 | 9 => Call::Ghosts { input, end: random.choice(ENDS).unwrap() },
        10 => Call::Swap { with: input },
        11 => Call::SetBoundary { end: random.choice(ENDS).unwrap(), boundary: boundary(random) },
        12 if random.bool() => Call::Set { by: random.f64() },
        12 => Call::Change { by: random.f64() },
        _ => Call::Sum { with: input },
    };
    let first = random.usize(..10);
    let over = (random.u8(..4) == 0).then(|| (random.usize(..2), first..first + random.usize(..9)));
    let inside = if random.u8(..6) == 0 { random.usize(1..3) } else { 0 };
    let by = random.choice([0.5, 0.25, -0.75, 0.125]).unwrap();
    Step { call, field, over, inside, stream: random.usize(..2), by }
}

/// What a call returns: an error, or no values, or the bits of the values.
type Outcome = std::result::Result<Vec<u64>, ErrorKind>;

fn run(program: &Program, ranks: Arc<dyn Communicator>, device: &Device) -> Result<Vec<Outcome>> {
    let streams = [device.default_stream(), device.stream_create(&Default::default())?];
    let blocks = if program.is_whole { [1, 0] } else { [0, 0] };
    let grid = Grid::cartesian(program.cells)
        .periodic(program.periodic)
        .blocks(blocks)
        .halo(3)
        .ranks(ranks)
        .timeout(Duration::from_secs(60))
        .build(device)?;
    let mut fields = Vec::new();
    for (number, boundaries) in program.boundaries.iter().enumerate() {
        let mut field = grid.field(format!("f{number}")).at(program.locations[number % 2]);
        for (end, boundary) in ENDS.into_iter().zip(boundaries) {
            field = field.boundary_at(end, *boundary);
        }
        // One has no values at first.
        fields.push(match number {
            0 => field.uninit()?,
            _ => field.from_fn(|place| value(place, number as f64))?,
        });
    }
    let mut outcomes = Vec::new();
    for step in &program.steps {
        let outcome = step.run(&mut fields, &streams[step.stream]);
        outcomes.push(outcome.map_err(|error| error.kind()));
    }
    for field in &mut fields {
        let values = field
            .gather(0)
            .map(|values| values.iter().flatten().map(|value| value.to_bits()).collect::<Vec<_>>());
        outcomes.push(values.map_err(|error| error.kind()));
    }
    Ok(outcomes)
}

fn value([i, j]: [usize; 2], by: f64) -> f64 {
    ((7919 * i + 104_729 * j) % 1000) as f64 / 97.0 - by
}

impl Step {
    fn run(&self, fields: &mut [Field<f64, 2>], stream: &Stream) -> Result<Vec<u64>> {
        let Self { field, by, .. } = *self;
        let launched = match self.call.clone() {
            Call::OfTwo { stencil, inputs: [a, b] } if a == b => {
                let [x, a] = fields.get_disjoint_mut([field, a]).unwrap();
                self.launch(OF_TWO[stencil](x, a, a, by), stream)
            }
            Call::OfTwo { stencil, inputs: [a, b] } => {
                let [x, a, b] = fields.get_disjoint_mut([field, a, b]).unwrap();
                self.launch(OF_TWO[stencil](x, a, b, by), stream)
            }
            Call::Update { input } => {
                let [x, a] = fields.get_disjoint_mut([field, input]).unwrap();
                self.launch(model::update(x, a, by), stream)
            }
            Call::Column { input } => {
                let [x, a] = fields.get_disjoint_mut([field, input]).unwrap();
                self.launch(model::forward(x, a, by), stream)
            }
            Call::Ghosts { input, end } => {
                let [x, a] = fields.get_disjoint_mut([field, input]).unwrap();
                model::ghosts(x, a, by).on(end).run(stream)
            }
            Call::Swap { with } => {
                let [x, y] = fields.get_disjoint_mut([field, with]).unwrap();
                swap(x, y);
                Ok(())
            }
            Call::SetBoundary { end, boundary } => fields[field].set_boundary(end, boundary),
            Call::Set { by } => fields[field].set_from_fn(|place| value(place, by)),
            Call::Change { by } => fields[field].read_write_host().and_then(|mut values| {
                values.map_inplace(|value| *value = by - 0.5 * *value);
                values.commit()
            }),
            Call::Sum { with } => {
                let sum = model::sum(&fields[field], &fields[with]).run(stream)?;
                return sum.get().map(|sum| vec![sum.to_bits()]);
            }
        };
        launched.map(|()| Vec::new())
    }

    fn launch(&self, launch: Launch<'_>, stream: &Stream) -> Result<()> {
        let launch = launch.inside(self.inside);
        match self.over.clone() {
            Some((axis, range)) => launch.over(axis, range).run(stream),
            None => launch.run(stream),
        }
    }
}

/// Compares up to the first call that needs more of a divided grid than of one that is whole. Returns the number of
/// calls that were compared.
fn compare(expected: &[Outcome], ranks: &[Vec<Outcome>], what: &str) -> usize {
    for (call, expected) in expected.iter().enumerate() {
        let found = ranks.iter().map(|outcomes| &outcomes[call]);
        let is_refused = Err(ErrorKind::InvalidArgument);
        if *expected != is_refused && found.clone().all(|found| *found == is_refused) {
            return call;
        }
        for (rank, found) in found.enumerate() {
            // One rank gathers.
            let gathers = call >= CALLS && rank > 0 && found.is_ok();
            assert!(
                found == expected || gathers,
                "call {call} on rank {rank} {what}: {found:?} instead of {expected:?}"
            );
        }
    }
    expected.len()
}

#[test]
fn programs_do_the_same_on_any_number_of_ranks() {
    let number = |variable| env::var(variable).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("STENCIL_PROGRAMS_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    let count = number("STENCIL_PROGRAMS").unwrap_or(PROGRAMS);
    println!("STENCIL_PROGRAMS_SEED={seed} STENCIL_PROGRAMS={count}");
    let host = Device::new(HostDevice::new(0)).unwrap();
    let (mut compared, mut succeeded) = (0, 0);
    for seed in seed..seed + count {
        let program = Program::random(seed);
        let alone: Arc<dyn Communicator> =
            Arc::new(ThreadCommunicator::group(1).unwrap().remove(0));
        let expected = run(&program, alone, &host).unwrap();
        succeeded += expected.iter().filter(|outcome| outcome.is_ok()).count();
        let sim = Device::new(SimDevice::new(0, SimConfig::new().seed(seed))).unwrap();
        for (size, is_direct, device) in
            [(2, false, &host), (2 + (seed % 3) as usize, true, &sim), (4, false, &sim)]
        {
            let found = ThreadCommunicator::run(size, |rank| {
                let ranks = if is_direct { Arc::new(rank) } else { by_messages(rank) };
                run(&program, ranks, device).unwrap()
            });
            let what = format!("of {size} in {program:#?}, seed {seed}, direct {is_direct}");
            compared += compare(&expected, &found.unwrap(), &what);
        }
    }
    let (compared, succeeded) = (compared as u64, succeeded as u64);
    assert!(compared > 30 * count && succeeded > 10 * count, "{compared} and {succeeded} calls");
}
