//! Hillslope diffusion on a device: the scheme, its field, and the loop over steps.
#![expect(unsafe_code, reason = "lends an exchange a view of more than it writes")]

use std::mem::swap;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ndarray::{Array2, ArrayRef2, Ix2};
use runtime::array::{ArrayBuffer, HostReadGuard, Parts, TransferReport};
use runtime::halo::{self, HaloExchange, HaloOptions, Reach, StagingTimes};
use runtime::{Result, Stream, StreamOptions, Traffic};

use crate::args::Spacing;
use crate::blocks::{Blocks, OWN, Patch};
use crate::error::DemoError;
use crate::gather::Gather;
use crate::kernel::Diffusion;
use crate::progress::Progress;
use crate::queue::Queue;
use crate::ranks::Rank;

/// The coefficients of one explicit step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheme {
    /// Years per step.
    pub(crate) dt: f64,
    /// `D dt / dx²`.
    pub(crate) ax: f64,
    /// `D dt / dy²`.
    pub(crate) ay: f64,
}

impl Scheme {
    /// The step as a fraction of the longest stable step, `1 / (2 D (1/dx² + 1/dy²))`.
    ///
    /// Below 1, a new height is a weighted mean of old heights with positive weights, so no new extremes arise. Below
    /// 0.5, even the roughest terrain decays without changing sign.
    pub(crate) const STABLE_SHARE: f64 = 0.25;

    /// The scheme for a `diffusivity` in square metres per year.
    pub(crate) fn stable(spacing: Spacing, diffusivity: f64) -> Self {
        let (x, y) = (1.0 / (spacing.dx * spacing.dx), 1.0 / (spacing.dy * spacing.dy));
        let dt = Self::STABLE_SHARE / (2.0 * diffusivity * (x + y));
        Self { dt, ax: diffusivity * dt * x, ay: diffusivity * dt * y }
    }
}

/// One rank's terrain during the run: two grids that alternate, each stored where it was last written or read.
pub(crate) struct Field {
    now: ArrayBuffer<f64, Ix2>,
    next: ArrayBuffer<f64, Ix2>,
    /// The index in these grids of the rank's first own cell.
    first: usize,
    /// The patch that needs no cell of another rank, and the other patches.
    patches: (Patch, Vec<Patch>),
    /// `None` if there are no other ranks.
    halo: Option<HaloExchange>,
}

impl Field {
    /// Takes the heights of the rank's block, in an array with the block's shape, without a copy. All ranks call it
    /// together.
    pub(crate) fn new(heights: Array2<f64>, rank: &Rank, blocks: &Blocks) -> Result<Self> {
        let block = blocks.of(rank.number())?;
        let partition = block.partition()?;
        // The stencil has no diagonals.
        let options = HaloOptions { reach: Reach::Faces, ..Default::default() };
        let halo = match blocks.topology.ranks() {
            1 => None,
            _ => Some(HaloExchange::new(
                Arc::clone(&rank.communicator),
                &blocks.topology,
                &[block.quantity()?],
                &rank.device,
                &options,
            )?),
        };
        let next = ArrayBuffer::with_partition(partition.clone())?;
        let now = ArrayBuffer::from_array_with(heights, partition)?;
        let [rows, columns] = block.own();
        let first = rows.start * block.shape()[1] + columns.start;
        Ok(Self { now, next, first, patches: block.patches(), halo })
    }

    /// Enqueues a step. If there are other ranks, it waits for their cells while the device computes its interior
    /// cells.
    fn step(&mut self, stream: &Stream, kernel: &Diffusion) -> Result<()> {
        let pitch = self.now.shape()[1];
        let ghosts = self.now.partition().exchanged();
        let (interior, rim) = &self.patches;
        let [mut own] = self.next.split([Parts::one(OWN)])?;
        let mut next = own.write(stream)?;
        let rest = match &mut self.halo {
            None => slice::from_ref(interior),
            Some(halo) => {
                let [own, mut ghosts] = self.now.split([Parts::one(OWN), ghosts])?;
                let (z, mut arriving) = (own.read(stream)?, ghosts.write(stream)?);
                // SAFETY: an exchange writes the ghost cells of these parts through the view, and touches nothing else.
                let around = unsafe { arriving.whole_mut()? };
                let mut fields = [halo::Field::split(z.view()?, around)?];
                let flight = halo.start(stream, &mut fields)?;
                // SAFETY: interior cells are the rank's own.
                let next = unsafe { next.span_mut()? };
                // SAFETY: the cells next to them are the rank's own, too.
                let z = unsafe { z.span()? };
                kernel.enqueue(stream, interior, pitch, next, (z, 0))?;
                flight.finish()?;
                arriving.commit()?;
                &rim[..]
            }
        };
        let z = self.now.part(Parts::one(OWN) | ghosts)?.read(stream)?;
        for patch in rest {
            // SAFETY: the cells of a patch that are written are the rank's own.
            let next = unsafe { next.span_mut()? };
            // SAFETY: the cells of a patch and those next to it are the rank's own, or ghost cells that were exchanged.
            let z = unsafe { z.whole()? };
            kernel.enqueue(stream, patch, pitch, next, (z, self.first))?;
        }
        next.commit()?;
        swap(&mut self.now, &mut self.next);
        Ok(())
    }

    /// The rank's own heights on the host. Blocks until all steps are done, and copies the heights if they are
    /// elsewhere.
    #[track_caller]
    pub(crate) fn heights(&self) -> Result<HostReadGuard<'_, f64, Ix2>> {
        self.now.part(Parts::one(OWN))?.read_host()
    }

    /// The transfers so far, and their causes.
    pub(crate) fn transfers(&self) -> TransferReport {
        self.now.transfers() + self.next.transfers()
    }

    /// Number of bytes sent when ranks measured the paths for messages: those of a step, several times on each path.
    pub(crate) fn measured(&self) -> Result<u64> {
        const TIMES: u64 = 2 * StagingTimes::ROUNDS as u64;
        let statistics = self.halo.as_ref().map(HaloExchange::statistics).transpose()?;
        let is_measured = statistics.is_some_and(|statistics| statistics.staging.is_some());
        Ok(if is_measured { TIMES * self.messages().bytes } else { 0 })
    }

    /// The messages to other ranks in each step, and their bytes.
    pub(crate) fn messages(&self) -> Traffic {
        let sends = self.halo.iter().flat_map(|halo| halo.sends());
        sends.fold(Traffic::default(), |sum, (_, bytes)| Traffic {
            count: sum.count + 1,
            bytes: sum.bytes + bytes as u64,
        })
    }
}

/// Displays heights.
pub(crate) type Show<'a> = &'a mut dyn FnMut(&ArrayRef2<f64>) -> Result<(), DemoError>;

/// The length of a run, and the interval between pictures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) steps: u64,
    /// Steps between pictures. 0 for no pictures.
    pub(crate) picture_every: u64,
}

impl Schedule {
    /// The number of pictures during the run. There is none after the last step, which gives the result.
    pub(crate) fn pictures(&self) -> u64 {
        (self.steps - 1).checked_div(self.picture_every).unwrap_or(0)
    }

    fn is_shown_after(&self, step: u64) -> bool {
        step < self.steps && step.checked_rem(self.picture_every) == Some(0)
    }
}

/// The duration of the parts of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) to_device: Duration,
    pub(crate) steps: Duration,
    /// Including the transfers for them.
    pub(crate) pictures: Duration,
}

/// Runs the steps on the rank's device. The field stays there: it is copied to the device once, and the host reads it
/// only for pictures. All ranks call it together. The first rank shows the pictures.
pub(crate) fn smooth(
    rank: &Rank,
    field: &mut Field,
    gather: &mut Gather,
    scheme: &Scheme,
    schedule: Schedule,
    progress: &mut Progress,
    show: Show<'_>,
) -> Result<Timing, DemoError> {
    let kernel = Diffusion::new(&rank.device, *scheme)?;
    let stream = rank.device.stream_create(&StreamOptions::default())?;

    // The first step would also copy the field to the device. It is copied before, so that the step time excludes it.
    let start = Instant::now();
    drop(field.now.part(Parts::one(OWN))?.read(&stream)?);
    stream.synchronize()?;
    let uploaded = Instant::now();

    let mut pictures = Duration::ZERO;
    let cells = field.now.len();
    let mut queue = Queue::new(&stream, cells, progress);
    for step in 1..=schedule.steps {
        field.step(&stream, &kernel)?;
        queue.pushed()?;
        if schedule.is_shown_after(step) {
            queue.finish()?;
            let clock = Instant::now();
            if let Some(heights) = gather.heights(field)? {
                show(&heights)?;
            }
            pictures += clock.elapsed();
        }
    }
    queue.finish()?;
    Ok(Timing { to_device: uploaded - start, steps: uploaded.elapsed() - pictures, pictures })
}
