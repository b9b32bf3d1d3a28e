//! Region copies by a kernel.
#![expect(
    unsafe_code,
    reason = "sets arguments and enqueues kernels through the driver, and implements an unsafe ability"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use backend_support::{Dialect, Mapping, RegionKernel, RegionLaunches, RegionLimits};
use opencl3::command_queue::enqueue_nd_range_kernel;
use opencl3::kernel::set_kernel_arg;
use opencl3::memory::{CL_MEM_COPY_HOST_PTR, CL_MEM_READ_ONLY, create_buffer};
use opencl3::types::{cl_int, cl_kernel, cl_uint};
use runtime_core::contract::{DeviceRegions, DeviceStream, RawSlot, RegionCopyAbility, own};
use runtime_core::{
    DeviceInfo, DeviceKind, Error, ErrorKind, ImageFormat, ModuleImage, RegionProgram, Result,
};

use crate::RegionMapping;
use crate::device::OpenClDevice;
use crate::handle::{Handle, Kernel, Mem};
use crate::launch::{set_buffer, set_memory};
use crate::memory::OpenClMemory;
use crate::module::OpenClModule;
use crate::shared::Shared;
use crate::stream::OpenClStream;

/// Numbers of memories that kernels are made for: fewer parameters are set faster.
const SLOTS: [usize; 3] = [2, 8, RegionKernel::MAX_SLOTS];

/// Bytes of the parameters that every kernel has, and of those for each slot.
const FIXED_BYTES: usize = 16;
const SLOT_BYTES: usize = 16;

/// The kernels of region copies, each built when it is first needed.
#[derive(Debug)]
pub(crate) struct RegionKernels {
    /// Kernels that the device can take, fewest slots first; none without a compiler.
    kernels: Vec<(RegionKernel, OnceLock<OpenClModule>)>,
    limits: RegionLimits,
    building: Mutex<()>,
}

impl RegionKernels {
    pub(crate) fn new(info: &DeviceInfo, doubles: bool, mapping: RegionMapping) -> Self {
        let compiles = info.formats.contains(&ImageFormat::OpenClC);
        let most = info.limits.argument_bytes.saturating_sub(FIXED_BYTES) / SLOT_BYTES;
        let (mapping, group) = match (mapping, info.kind) {
            // A processor runs the items of a group one after the other.
            (RegionMapping::Auto, DeviceKind::Cpu) | (RegionMapping::Runs, _) => (Mapping::Runs, 1),
            (RegionMapping::Auto | RegionMapping::Lanes, _) => (Mapping::Lanes, 256),
        };
        let group = group.min(info.limits.block_size).min(info.limits.block[0]);
        let make = |slots: usize| RegionKernel::new(mapping, slots.min(most), doubles).ok();
        let mut kernels: Vec<RegionKernel> =
            SLOTS.iter().filter(|_| compiles).filter_map(|slots| make(*slots)).collect();
        kernels.dedup();
        Self {
            kernels: kernels.into_iter().map(|kernel| (kernel, OnceLock::new())).collect(),
            limits: RegionLimits {
                compute_units: info.compute_units as usize,
                group_size: group as usize,
                most_groups: (info.limits.grid[0] / group.max(1)).into(),
                slab: RegionLimits::MAX_SLAB,
            },
            building: Mutex::default(),
        }
    }

    pub(crate) fn is_supported(&self) -> bool {
        !self.kernels.is_empty()
    }
}

/// A program made ready: its words on the device, and a kernel of its own, so that executions of different plans do
/// not wait for one another.
#[derive(Debug)]
struct OpenClRegions {
    lowered: RegionLaunches,
    _words: Option<Handle<Mem>>,
    kernel: Mutex<Handle<Kernel>>,
}

impl DeviceRegions for OpenClRegions {
    fn launches(&self) -> usize {
        self.lowered.launches().len()
    }
}

impl OpenClDevice {
    /// The kernel with the fewest slots that holds a program, or the one with most.
    fn region_kernel(&self, slots: usize) -> Result<(RegionKernel, &OpenClModule)> {
        let regions = self.regions();
        let fitting = regions.kernels.iter().find(|(kernel, _)| kernel.slots() >= slots);
        let Some((kernel, module)) = fitting.or(regions.kernels.last()) else {
            let message = "the device has no compiler for region copies";
            return Err(Error::new(ErrorKind::Driver, "plan_regions", message));
        };
        if let Some(module) = module.get() {
            return Ok((*kernel, module));
        }
        let _one = regions.building.lock().unwrap_or_else(PoisonError::into_inner);
        if module.get().is_none() {
            let source = kernel.source(Dialect::OpenClC);
            let image = ModuleImage::source(ImageFormat::OpenClC, source);
            let built = self.builder().build_own(&self.shared, &image)?;
            // Nobody else builds meanwhile.
            let _ = module.set(OpenClModule::new(built, &self.shared));
        }
        match module.get() {
            Some(module) => Ok((*kernel, module)),
            None => Err(Error::new(ErrorKind::Driver, "plan_regions", "no kernel was built")),
        }
    }
}

// SAFETY: the kernel touches the elements that its words name, which are those of the program, and the launches are in
// phase order in an in-order queue.
unsafe impl RegionCopyAbility for OpenClDevice {
    fn prepare(&self, program: &RegionProgram) -> Result<Box<dyn DeviceRegions>> {
        let shared = &self.shared;
        shared.check("plan_regions")?;
        let used = program.slots().iter().filter(|slot| slot.bytes > 0).count();
        let (kind, module) = self.region_kernel(used)?;
        let kernel = module.create(RegionKernel::NAME)?;
        // A kernel may take smaller groups than the device does.
        let most = usize::try_from(module.most_items(&kernel)).unwrap_or(usize::MAX);
        let limits = self.regions().limits;
        let limits = RegionLimits { group_size: limits.group_size.min(most), ..limits };
        let lowered = kind.lower(program, limits)?;
        let failed =
            |code| shared.error("plan_regions", code, "the plan could not be put on the device");
        let words = upload(shared, lowered.words()).map_err(failed)?;
        // SAFETY: nobody else has the kernel yet.
        unsafe { set_fixed(kernel.raw(), words.as_ref(), kind.slots()) }.map_err(failed)?;
        Ok(Box::new(OpenClRegions { lowered, _words: words, kernel: Mutex::new(kernel) }))
    }

    unsafe fn execute(
        &self,
        stream: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        const OPERATION: &str = "execute";
        let (stream, regions) =
            (own::<OpenClStream>(stream, OPERATION)?, own::<OpenClRegions>(regions, OPERATION)?);
        let failed =
            |code| self.shared.error(OPERATION, code, "a memory could not be made an argument");
        let kernel = regions.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = kernel.raw();
        let most = regions.lowered.launches().iter().map(|launch| launch.slots.len()).max();
        for launch in regions.lowered.launches() {
            // SAFETY: the kernel is locked.
            unsafe { set_number(raw, 1, launch.start) }.map_err(failed)?;
            for (place, slot) in launch.slots.iter().enumerate() {
                let (index, RawSlot { memory, offset, .. }) = (slot_index(place), slots[*slot]);
                match memory {
                    Some(memory) => {
                        let memory = own::<OpenClMemory>(memory, OPERATION)?;
                        // SAFETY: the kernel is locked; a buffer is an argument as a whole.
                        unsafe { set_memory(&self.shared, raw, index, memory.place(), 0) }
                    }
                    // SAFETY: as above; the kernel leaves out what it would do with it.
                    None => unsafe { set_buffer(raw, index, ptr::null_mut()) },
                }
                .map_err(failed)?;
                // SAFETY: as above.
                unsafe { set_number(raw, index + 1, offset as u64) }.map_err(failed)?;
            }
            // Memory of another launch, perhaps of an earlier execution, may be gone.
            for place in launch.slots.len()..most.unwrap_or(0) {
                // SAFETY: as above.
                unsafe { set_buffer(raw, slot_index(place), ptr::null_mut()) }.map_err(failed)?;
            }
            let local = [launch.group_size];
            let global = [usize::try_from(launch.groups).unwrap_or(usize::MAX) * local[0]];
            // SAFETY: the caller vouches that the slots agree with the program; the arguments are copied by the call.
            unsafe {
                stream.submit("region_copy", |queue| {
                    enqueue_nd_range_kernel(
                        queue,
                        raw,
                        1,
                        ptr::null(),
                        global.as_ptr(),
                        local.as_ptr(),
                        0,
                        ptr::null(),
                    )
                })
            }?;
        }
        drop(kernel);
        stream.flush(OPERATION)
    }

    unsafe fn release(&self, regions: Box<dyn DeviceRegions>, _after: &[&dyn DeviceStream]) {
        // The driver keeps words and kernel until the launches are over.
        drop(regions);
    }
}

/// Puts words on the device; `None` if there are none, for which there is no buffer.
fn upload(shared: &Shared, words: &[u64]) -> Result<Option<Handle<Mem>>, cl_int> {
    if words.is_empty() {
        return Ok(None);
    }
    // SAFETY: the words are copied by the call, which only reads them.
    let raw = unsafe {
        create_buffer(
            shared.context.raw(),
            CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
            size_of_val(words),
            words.as_ptr().cast_mut().cast(),
        )
    }?;
    // SAFETY: the buffer was just created.
    Ok(Some(unsafe { Handle::own(raw, &shared.failures) }))
}

/// The parameter that takes the memory of a slot; its offset is the next one.
fn slot_index(slot: usize) -> cl_uint {
    cl_uint::try_from(2 + 2 * slot).unwrap_or(cl_uint::MAX)
}

/// Sets the arguments that stay, and those of slots that no launch binds.
///
/// # Safety
///
/// Nobody else sets arguments of the kernel meanwhile.
unsafe fn set_fixed(
    kernel: cl_kernel,
    words: Option<&Handle<Mem>>,
    slots: usize,
) -> Result<(), cl_int> {
    // SAFETY: the caller vouches for the kernel.
    unsafe { set_buffer(kernel, 0, words.map_or(ptr::null_mut(), Handle::raw)) }?;
    for slot in 0..slots {
        // SAFETY: as above.
        unsafe { set_buffer(kernel, slot_index(slot), ptr::null_mut()) }?;
        // SAFETY: as above.
        unsafe { set_number(kernel, slot_index(slot) + 1, 0) }?;
    }
    Ok(())
}

/// Makes a number an argument.
///
/// # Safety
///
/// The kernel is locked.
unsafe fn set_number(kernel: cl_kernel, index: cl_uint, number: u64) -> Result<(), cl_int> {
    // SAFETY: the number is copied by the call.
    unsafe { set_kernel_arg(kernel, index, size_of::<u64>(), (&raw const number).cast()) }
}
