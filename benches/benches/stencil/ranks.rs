//! Steps of two ranks that are threads: grids against an exchange of `halo` and launches by hand.

use std::mem::swap;
use std::ops::Range;
use std::sync::Arc;

use backend_host::HostDevice;
use benches::Bench;
use benches::team::Team;
use benches::turns::Contestant;
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{
    Dim, FieldSpec, HaloExchange, HaloOptions, Quantity, Reach, Topology, interior_and_rim,
};
use runtime_core::{
    Arg, DType, Device, Grid as Cores, HostModule, Kernel, Launch, Memory, Result, Stream,
    StreamOptions, args,
};
use stencil::{Field, Grid};

use crate::rows::{self, Row};
use crate::{SPEED, five_point, value};

/// The blocks of ranks.
const BLOCKS: [usize; 2] = [2, 1];

/// Compares steps of five points on periodic grids.
pub(crate) fn steps(bench: &mut Bench) -> Result<()> {
    if !bench.group("five-point, f64, steps of two ranks, against exchanges and launches by hand") {
        return Ok(());
    }
    let large = if bench.is_quick() { [512; 2] } else { [8192, 4096] };
    for cells in [[256; 2], [1024; 2], large] {
        // One core for each rank, on the whole.
        let device = Device::new(HostDevice::with_threads(0, 2)?)?;
        let by_hand = device.clone();
        let ours = Team::new(2, move |ranks| {
            let mut ours = Ours::new(&device, ranks, cells).expect("fields");
            move || ours.step().expect("a step")
        })?;
        let by_hand = Team::new(2, move |ranks| {
            let mut by_hand = ByHand::new(&by_hand, ranks, cells).expect("memory");
            move || by_hand.step().expect("a step")
        })?;
        let mut contestants: [Box<Contestant<'_>>; 2] =
            [Box::new(|calls| ours.run(calls)), Box::new(|calls| by_hand.run(calls))];
        let [ours, theirs] = &mut contestants;
        bench.compare_timed(
            format!("{cells:?} points"),
            0.0,
            &mut **ours,
            ("by hand", SPEED, &mut **theirs),
        );
    }
    same_values()
}

/// Checks that both compute the same bits.
fn same_values() -> Result<()> {
    let cells = [24, 20];
    let device = Device::new(HostDevice::with_threads(0, 2)?)?;
    let values = ThreadCommunicator::run(2, |ranks| -> Result<_> {
        let mut ours = Ours::new(&device, ranks, cells)?;
        for _ in 0..5 {
            ours.step()?;
        }
        let values: Vec<f64> = ours.t.read_host()?.iter().copied().collect();
        Ok(values)
    })?;
    let by_hand = ThreadCommunicator::run(2, |ranks| -> Result<_> {
        let mut by_hand = ByHand::new(&device, ranks, cells)?;
        for _ in 0..5 {
            by_hand.step()?;
        }
        by_hand.values()
    })?;
    for (ours, by_hand) in values.into_iter().zip(by_hand) {
        assert!(ours? == by_hand?, "a step by hand computes other values");
    }
    Ok(())
}

struct Ours {
    stream: Stream,
    t: Field<f64, 2>,
    next: Field<f64, 2>,
}

impl Ours {
    fn new(device: &Device, ranks: ThreadCommunicator, cells: [usize; 2]) -> Result<Self> {
        let stream = device.stream_create(&StreamOptions::default())?;
        let grid = Grid::cartesian(cells).periodic([true; 2]).blocks(BLOCKS).ranks(Arc::new(ranks));
        let grid = grid.build(device)?;
        let t = grid.field("t").from_fn(value)?;
        let next = t.like("next")?;
        Ok(Self { stream, t, next })
    }

    fn step(&mut self) -> Result<()> {
        five_point(&mut self.next, &self.t, 0.1).run(&self.stream)?;
        swap(&mut self.t, &mut self.next);
        self.stream.synchronize()
    }
}

/// The same with an exchange and a kernel.
struct ByHand {
    stream: Stream,
    halo: HaloExchange,
    kernel: Kernel,
    /// Rows and columns with ghosts.
    shape: [usize; 2],
    t: Memory<f64>,
    next: Memory<f64>,
}

/// Five points of each point in a box of `rows` rows of `n` points, which are `step` apart.
fn kernel(
    cores: &Cores<'_>,
    next: &mut [f64],
    t: &[f64],
    [next_at, t_at, step]: [usize; 3],
    [rows, n]: [usize; 2],
) {
    let band = (16_384 / n).max(1);
    let next = &mut next[next_at..];
    let end = (rows * step).min(next.len());
    cores.chunks_mut(&mut next[..end], band * step, |chunk, next| {
        for (row, next) in next.chunks_mut(step).enumerate() {
            let at = t_at + (chunk * band + row) * step;
            let around = &t[at - step..at + step + n];
            let (next, here) = (next[..n].as_mut_ptr(), around[step..].as_ptr());
            let row = Row {
                points: n,
                steps: [step; 2],
                outputs: [next; 2],
                inputs: [here; 2],
                scalars: [0.1; 2],
            };
            // SAFETY: the slices have the row, and the points around it. The processor was checked.
            unsafe { rows::five_point(&row) };
        }
    });
}

impl ByHand {
    fn new(device: &Device, ranks: ThreadCommunicator, cells: [usize; 2]) -> Result<Self> {
        let stream = device.stream_create(&StreamOptions::default())?;
        let topology = Topology::cartesian(&cells, &BLOCKS, &[true; 2])?;
        let rank = ranks.rank();
        let [n, m, _] = topology.block(rank)?.cells;
        let dims = [Dim::axis(0, n).halo(1, 1), Dim::axis(1, m).halo(1, 1)];
        let field = [Quantity::scalar(FieldSpec::new("t", DType::F64, &dims)?)];
        let options = HaloOptions { reach: Reach::Faces, ..Default::default() };
        let halo = HaloExchange::new(Arc::new(ranks), &topology, &field, device, &options)?;
        let step = m + 2;
        let function = move |cores: &Cores<'_>,
                             next: &mut [f64],
                             t: &[f64],
                             next_at: u64,
                             t_at: u64,
                             rows: u64,
                             n: u64| {
            let size = |n| usize::try_from(n).expect("a size");
            kernel(cores, next, t, [size(next_at), size(t_at), step], [size(rows), size(n)]);
        };
        let module = device.module_load(&HostModule::new().with("step", function))?;
        let kernel = module.kernel("step")?;
        let shape = [n + 2, m + 2];
        let wrap = |at: usize, cells: usize| (at + cells - 1) % cells;
        let first = rank * n;
        let values: Vec<f64> = (0..shape[0] * shape[1])
            .map(|at| value([wrap(first + at / shape[1], cells[0]), wrap(at % shape[1], cells[1])]))
            .collect();
        let t = device.memory_from_slice(&stream, &values)?;
        let next = device.memory_from_slice(&stream, &values)?;
        Ok(Self { stream, halo, kernel, shape, t, next })
    }

    fn step(&mut self) -> Result<()> {
        let Self { stream, halo, kernel, shape: [n, m], t, next } = self;
        let step = *m;
        let parts = interior_and_rim(&[0..*n - 2, 0..*m - 2], &[(1, 1); 2]);
        let launch = |next: &mut Memory<f64>, t: Arg<'_>, t_first: usize, part: &[Range<usize>]| {
            let at = part[0].start * step + part[1].start;
            let place = [at + step + 1, at + t_first, part[0].len(), part[1].len()];
            let [next_at, t_at, rows, n] = place.map(|n| n as u64);
            let one = Launch::cover(1, 1);
            // SAFETY: the kernel is safe Rust.
            unsafe { kernel.launch(stream, &one, args![next, t, next_at, t_at, rows, n]) }
        };
        halo.overlap(stream, &mut [t.view_mut().reshape(&[*n, *m])?.into()], |progress| {
            let owned = progress.owned(0)?;
            // SAFETY: the kernel reads own values alone.
            let owned = unsafe { owned.span()? };
            launch(next, owned.into(), 0, &parts.interior)?;
            progress.poll()
        })?;
        for part in &parts.rim {
            launch(next, (&*t).into(), step + 1, part)?;
        }
        swap(t, next);
        stream.synchronize()
    }

    /// The values without ghosts.
    fn values(&self) -> Result<Vec<f64>> {
        let [_, m] = self.shape;
        let all = self.t.to_vec(&self.stream)?;
        let rows = all.chunks(m).skip(1).take(self.shape[0] - 2);
        Ok(rows.flat_map(|row| row[1..m - 1].to_vec()).collect())
    }
}
