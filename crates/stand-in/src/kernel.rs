//! Kernels: modules, functions and launches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::code::{Code, Result};
use crate::context::Context;
use crate::ptx::{self, Entry, Fault, Geometry, Global};
use crate::space::{Allocation, Kind, Snapshot, to_usize};
use crate::state::EngineState;

/// The most threads of a block.
pub const BLOCK_THREADS: u32 = 1024;
/// The most bytes of shared memory of a block: by default, and if the kernel permits more.
pub const SHARED_BYTES: [usize; 2] = [48 << 10, 227 << 10];
/// The most blocks in each dimension.
pub const GRID: [u32; 3] = [0x7fff_ffff, 65535, 65535];
/// The most threads of a block in each dimension.
pub const BLOCK: [u32; 3] = [1024, 1024, 64];
/// The number of multiprocessors of a device.
pub const MULTIPROCESSORS: u32 = 4;
/// The most threads of a multiprocessor.
pub const MULTIPROCESSOR_THREADS: u32 = 2048;

/// A module.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: Arc<Context>,
    pub(crate) program: ptx::Module,
    /// The launches of its kernels.
    pub(crate) used: Mutex<Clock>,
    /// The handles of its kernels, by name.
    pub(crate) functions: Mutex<BTreeMap<String, u64>>,
}

/// A kernel of a module.
#[derive(Debug)]
pub struct Function {
    pub(crate) module: Arc<Module>,
    name: String,
    dynamic_shared: AtomicUsize,
}

impl Function {
    pub(crate) fn new(module: Arc<Module>, name: &str) -> Result<Self> {
        module.program.entry(name).ok_or(Code::NOT_FOUND)?;
        let dynamic_shared = AtomicUsize::new(SHARED_BYTES[0]);
        Ok(Self { module, name: name.to_owned(), dynamic_shared })
    }

    /// The compiled kernel.
    ///
    /// # Panics
    ///
    /// Never: a function is made for an entry of its module.
    #[expect(clippy::expect_used, reason = "the constructor has looked the entry up")]
    pub fn entry(&self) -> &Entry {
        self.module.program.entry(&self.name).expect("an entry of the module")
    }

    /// The compute capability that it was compiled for, such as 90.
    pub fn target(&self) -> u32 {
        self.module.program.target()
    }

    /// The bytes of shared memory that a launch may request.
    pub fn dynamic_shared(&self) -> usize {
        self.dynamic_shared
            .load(Ordering::Relaxed)
            .min(SHARED_BYTES[1] - self.entry().static_shared())
    }

    /// Sets the bytes of shared memory that a launch may request.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for more than the device has.
    pub fn set_dynamic_shared(&self, bytes: usize) -> Result<()> {
        if bytes > SHARED_BYTES[1].saturating_sub(self.entry().static_shared()) {
            return Err(Code::INVALID_VALUE);
        }
        self.dynamic_shared.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The most threads of a block.
    pub fn max_threads(&self) -> u32 {
        match self.entry().max_threads() {
            0 => BLOCK_THREADS,
            threads => threads.min(BLOCK_THREADS),
        }
    }

    /// The number of blocks that a multiprocessor runs at once.
    pub fn blocks_per_multiprocessor(&self, threads: u32, dynamic_shared: usize) -> u32 {
        if threads == 0 || threads > self.max_threads() || dynamic_shared > self.dynamic_shared() {
            return 0;
        }
        let shared = self.entry().static_shared() + dynamic_shared;
        let by_shared = SHARED_BYTES[1].checked_div(shared).unwrap_or(32);
        let by_threads = MULTIPROCESSOR_THREADS / threads.next_multiple_of(32);
        by_threads.min(u32::try_from(by_shared).unwrap_or(32)).min(32)
    }

    /// The largest block size, up to `most`, with which the most threads run at once. `shared_of` returns the bytes of
    /// shared memory that a launch with a block size requests.
    pub fn best_block(&self, most: u32, shared_of: impl Fn(u32) -> usize) -> u32 {
        let limit = self.max_threads().min(most);
        let sizes = (1..=limit).filter(|threads| threads % 32 == 0 || *threads == limit);
        let active =
            |threads| threads * self.blocks_per_multiprocessor(threads, shared_of(threads));
        sizes.max_by_key(|threads| (active(*threads), *threads)).unwrap_or(0)
    }

    /// Checks that all blocks of a cooperative launch can run at once.
    ///
    /// # Errors
    ///
    /// [`Code::COOPERATIVE_LAUNCH_TOO_LARGE`].
    pub fn check_cooperative(&self, geometry: &Geometry) -> Result<()> {
        let threads = geometry.block.iter().fold(1_u32, |all, size| all.saturating_mul(*size));
        let most = self.blocks_per_multiprocessor(threads, geometry.dynamic_shared);
        let blocks =
            geometry.grid.iter().fold(1_u64, |all, size| all.saturating_mul((*size).into()));
        let fits = blocks <= u64::from(most * MULTIPROCESSORS);
        fits.then_some(()).ok_or(Code::COOPERATIVE_LAUNCH_TOO_LARGE)
    }

    /// Checks that a launch with this geometry is possible.
    pub(crate) fn check(&self, geometry: &Geometry) -> Result<()> {
        let Geometry { grid, block, dynamic_shared, .. } = geometry;
        let fits = |sizes: &[u32; 3], limits: [u32; 3]| {
            sizes.iter().zip(limits).all(|(size, limit)| (1..=limit).contains(size))
        };
        let threads: u64 = block.iter().map(|size| u64::from(*size)).product();
        if !fits(grid, GRID) || !fits(block, BLOCK) || threads > BLOCK_THREADS.into() {
            return Err(Code::INVALID_VALUE);
        }
        if *dynamic_shared > self.dynamic_shared() {
            return Err(Code::INVALID_VALUE);
        }
        (threads <= self.max_threads().into()).then_some(()).ok_or(Code::LAUNCH_OUT_OF_RESOURCES)
    }
}

/// A launch.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) function: Arc<Function>,
    geometry: Geometry,
    params: Box<[u8]>,
    /// The memory to which the parameters point.
    pub(crate) memory: Vec<Arc<Allocation>>,
}

impl Launch {
    pub(crate) fn new(
        function: Arc<Function>,
        geometry: Geometry,
        params: Box<[u8]>,
        state: &EngineState,
    ) -> Self {
        let addresses = params.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut memory: Vec<_> = addresses.filter_map(|address| state.space.at(address)).collect();
        memory.sort_by_key(|memory| memory.range.start);
        memory.dedup_by_key(|memory| memory.range.start);
        Self { function, geometry, params, memory }
    }

    pub(crate) fn run(&self, context: &Context, state: &EngineState) -> Result<()> {
        let visible = Visible { memory: state.space.snapshot(), context };
        let program = &self.function.module.program;
        let entry = self.function.entry();
        let stop = context.stop();
        let result = ptx::run(program, entry, &self.geometry, &self.params, &visible, stop);
        result.or_else(|fault| {
            let code = match &fault {
                Fault::Stopped => return Ok(()),
                Fault::IllegalAddress(_) => Code::ILLEGAL_ADDRESS,
                Fault::Misaligned(_) => Code::MISALIGNED_ADDRESS,
                Fault::Trap => Code::LAUNCH_FAILED,
                Fault::Assert => Code::ASSERT,
                Fault::IllegalInstruction(_) => Code::ILLEGAL_INSTRUCTION,
            };
            state.report.failure(format!("kernel '{}': {fault:?}", self.function.name));
            Err(code)
        })
    }
}

/// The memory that kernels of a context can access.
struct Visible<'a> {
    memory: Snapshot,
    context: &'a Context,
}

impl Visible<'_> {
    /// The allocation that contains `width` aligned bytes at an address, and their offset in it.
    fn find(&self, address: u64, width: usize) -> Result<(&Allocation, usize), Fault> {
        if !address.is_multiple_of(width as u64) {
            return Err(Fault::Misaligned(address));
        }
        let next = self.memory.partition_point(|memory| memory.range.start <= address);
        let found = next.checked_sub(1).map(|index| &*self.memory[index]);
        let fits = |memory: &&Allocation| memory.range.end.saturating_sub(address) >= width as u64;
        let found = found.filter(fits).filter(|memory| memory.is_alive() && self.may_touch(memory));
        let memory = found.ok_or(Fault::IllegalAddress(address))?;
        Ok((memory, to_usize(address - memory.range.start)))
    }

    fn may_touch(&self, memory: &Allocation) -> bool {
        let device = self.context.device();
        match &memory.kind {
            Kind::Device(_) => self.context.reaches(memory.context.device()),
            Kind::Pool(pool) => pool.device == device || pool.open_to.lock().contains(&device),
            Kind::Managed(_) | Kind::Pinned | Kind::Registered => true,
        }
    }
}

impl Global for Visible<'_> {
    fn load(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let (memory, at) = self.find(address, bytes.len())?;
        memory.bytes.read(at, bytes);
        Ok(())
    }

    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (memory, at) = self.find(address, bytes.len())?;
        memory.bytes.write(at, bytes);
        Ok(())
    }

    fn update(
        &self,
        address: u64,
        width: usize,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let (memory, at) = self.find(address, width)?;
        Ok(memory.bytes.update(at, width, update))
    }
}
