//! A launch: the blocks of a grid on the cores of the machine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{available_parallelism, scope};

use super::block::{Blocks, Launch};
use super::memory::Memory;
use super::thread::{Place, Thread};
use super::{Entry, Fault, Global, Module};

/// The threads of a grid for each core that executes it.
const THREADS_PER_CORE: u64 = 4096;

/// The extents of a launch along x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of shared memory in addition to those that the kernel declares.
    pub dynamic_shared: usize,
    /// Whether blocks may wait for each other.
    pub is_cooperative: bool,
}

impl Geometry {
    /// A launch that is not cooperative, without additional shared memory.
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, dynamic_shared: 0, is_cooperative: false }
    }
}

/// Executes a kernel, and blocks until it ends.
///
/// `params` are the bytes of all parameters, as [`Entry::params`] places them. Blocks begin in the order of their
/// indices, on several cores if there are many threads. The blocks of a cooperative launch run in turns on one core.
///
/// # Errors
///
/// The first [`Fault`] of a thread; earlier effects of other threads remain. [`Fault::Stopped`] soon after `stop` is
/// set. [`Fault::IllegalInstruction`] for an extent of 0, for more threads than the kernel allows, or if `params` is
/// too short.
pub fn run(
    module: &Module,
    entry: &Entry,
    geometry: &Geometry,
    params: &[u8],
    globals: &dyn Global,
    stop: &AtomicBool,
) -> Result<(), Fault> {
    let count = |extents: [u32; 3]| {
        extents.iter().fold(1, |count: u64, extent| count.saturating_mul((*extent).into()))
    };
    let (blocks, threads) = (count(geometry.grid), count(geometry.block));
    if blocks == 0 || threads == 0 || threads > entry.max_threads().into() {
        let message = format!(
            "{blocks} blocks of {threads} threads, allowed are 1 to {}",
            entry.max_threads()
        );
        return Err(Fault::IllegalInstruction(message));
    }
    let size = entry.params_size();
    let Some(params) = params.get(..size) else {
        let message = format!("{} bytes of parameters, the kernel has {size}", params.len());
        return Err(Fault::IllegalInstruction(message));
    };
    let failed = AtomicBool::new(false);
    let launch = Launch { function: entry.function, params, stops: [stop, &failed] };
    let next = AtomicU64::new(0);
    let place = |block| Place {
        grid: &geometry.grid,
        block: &geometry.block,
        index: position(block, geometry.grid),
        common_shared: entry.common_shared,
        static_shared: entry.static_shared,
        dynamic_shared: geometry.dynamic_shared,
    };
    let work = || -> Result<(), Fault> {
        let make = || Thread::new(&module.functions);
        let memory = Memory { globals, variables: &module.variables, shared: Vec::new() };
        let mut executor = Blocks { launch: &launch, memory, make: &make, idle: Vec::new() };
        if geometry.is_cooperative {
            return executor.run_together((0..blocks).map(place));
        }
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= blocks {
                return Ok(());
            }
            let outcome = executor.run(&place(block));
            if outcome.is_err() {
                failed.store(true, Ordering::Relaxed);
                return outcome;
            }
        }
    };
    let cores = available_parallelism().map_or(1, |cores| cores.get() as u64);
    let helpers = (blocks.saturating_mul(threads) / THREADS_PER_CORE)
        .min(cores)
        .min(blocks)
        .saturating_sub(1);
    if helpers == 0 || geometry.is_cooperative {
        return work();
    }
    scope(|scope| {
        let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
        let own = work();
        let panicked = |_| Err(Fault::IllegalInstruction("the interpreter panicked".to_owned()));
        let outcomes = helpers.into_iter().map(|helper| helper.join().unwrap_or_else(panicked));
        // Blocks that stopped because another block failed are ignored.
        let outcomes: Vec<_> = outcomes.chain([own]).filter_map(Result::err).collect();
        let first = outcomes.iter().find(|fault| **fault != Fault::Stopped);
        first.or(outcomes.first()).map_or(Ok(()), |fault| Err(fault.clone()))
    })
}

#[expect(clippy::cast_possible_truncation, reason = "each index is below its extent")]
fn position(block: u64, grid: [u32; 3]) -> [u32; 3] {
    let [width, height, _] = grid.map(u64::from);
    [block % width, block / width % height, block / width / height].map(|index| index as u32)
}
