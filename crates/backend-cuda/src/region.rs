//! Region copies by a kernel.
#![expect(
    unsafe_code,
    reason = "launches kernels through the driver, and implements an unsafe ability"
)]

use std::ffi::c_void;
use std::ptr;

use backend_support::{Mapping, RegionKernel, RegionLaunch, RegionLaunches, RegionLimits};
use cudarc::driver::sys::{CUdeviceptr, CUfunction};
use runtime_core::contract::{DeviceRegions, DeviceStream, RawSlot, RegionCopyAbility, own};
use runtime_core::{RegionProgram, Result};

use crate::context::ok;
use crate::device::CudaDevice;
use crate::fill::address;
use crate::memory::CudaMemory;
use crate::shared::Shared;
use crate::shipped::{FEW_SLOTS, MANY_SLOTS, Shipped};
use crate::stream::CudaStream;

/// Threads of a block.
const BLOCK: u32 = 256;

/// A program made ready: its words on the device.
#[derive(Debug)]
struct CudaRegions {
    lowered: RegionLaunches,
    slots: usize,
    function: CUfunction,
    words: Option<CudaMemory>,
}

// SAFETY: functions may be launched from any thread, and by several at once.
unsafe impl Send for CudaRegions {}
// SAFETY: as above.
unsafe impl Sync for CudaRegions {}

impl DeviceRegions for CudaRegions {
    fn launches(&self) -> usize {
        self.lowered.launches().len()
    }
}

impl CudaRegions {
    /// Enqueues one launch.
    ///
    /// # Safety
    ///
    /// As [`RegionCopyAbility::execute`].
    unsafe fn launch(
        &self,
        stream: &CudaStream,
        launch: &RegionLaunch,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        const OPERATION: &str = "execute";
        let mut bound = [(0 as CUdeviceptr, 0_u64); MANY_SLOTS];
        for (place, slot) in bound.iter_mut().zip(&launch.slots) {
            if let RawSlot { memory: Some(memory), offset, .. } = slots[*slot] {
                *place = (own::<CudaMemory>(memory, OPERATION)?.at(0), offset as u64);
            }
        }
        let words = self.words.as_ref().map_or(0, |words| words.at(0));
        let mut pointers = [ptr::null_mut::<c_void>(); 2 + 2 * MANY_SLOTS];
        let (fixed, of_slots) = pointers.split_at_mut(2);
        fixed.copy_from_slice(&[address(&words), address(&launch.start)]);
        for (pair, (base, offset)) in of_slots.chunks_exact_mut(2).zip(&bound[..self.slots]) {
            pair.copy_from_slice(&[address(base), address(offset)]);
        }
        // The lowering keeps to the limits.
        let grid = u32::try_from(launch.groups).unwrap_or(u32::MAX);
        let block = u32::try_from(launch.group_size).unwrap_or(u32::MAX);
        stream.enqueue(OPERATION, "a region copy", |driver, stream| {
            let (function, arguments, extra) =
                (self.function, pointers.as_mut_ptr(), ptr::null_mut());
            let launch = driver.cuLaunchKernel;
            // SAFETY: there are as many arguments as parameters, of 64 bits each, which are copied by the call. The caller
            // vouches for the slots.
            unsafe { launch(function, grid, 1, 1, block, 1, 1, 0, stream, arguments, extra) }
        })
    }
}

/// Puts words on the device, where they are when this returns.
fn upload(shared: &Shared, words: &[u64]) -> Result<Option<CudaMemory>> {
    let bytes = size_of_val(words);
    if bytes == 0 {
        return Ok(None);
    }
    let memory = CudaMemory::allocate(shared, bytes)?;
    let copied = shared.context.bind().and_then(|()| {
        let copy = shared.context.driver.cuMemcpyHtoDAsync_v2;
        let from = words.as_ptr().cast();
        // SAFETY: the memory has room for as many bytes; the words stay until the copy is over, below.
        ok(unsafe { copy(memory.at(0), from, bytes, shared.service.raw()) })
    });
    match copied.and(shared.service.settle()) {
        Ok(()) => Ok(Some(memory)),
        Err(code) => {
            memory.free(shared, &[]);
            Err(shared.error("plan_regions", code, "the plan could not be put on the device"))
        }
    }
}

// SAFETY: the kernel touches the elements that its words name, which are those of the program, and the launches are in
// phase order in an in-order stream.
unsafe impl RegionCopyAbility for CudaDevice {
    fn prepare(&self, program: &RegionProgram) -> Result<Box<dyn DeviceRegions>> {
        const OPERATION: &str = "plan_regions";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let used = program.slots().iter().filter(|slot| slot.bytes > 0).count();
        let (shipped, slots) = if used <= FEW_SLOTS {
            (Shipped::RegionsFew, FEW_SLOTS)
        } else {
            (Shipped::RegionsMany, MANY_SLOTS)
        };
        let kernel = RegionKernel::new(Mapping::Lanes, slots, true)?;
        let limits = RegionLimits {
            compute_units: shared.compute_units as usize,
            group_size: BLOCK as usize,
            most_groups: shared.most_blocks.into(),
            slab: RegionLimits::MAX_SLAB,
        };
        let lowered = kernel.lower(program, limits)?;
        let function = shared.shipped.function(shipped);
        let function = function.map_err(|code| shared.error(OPERATION, code, "its kernel"))?;
        let words = upload(shared, lowered.words())?;
        Ok(Box::new(CudaRegions { lowered, slots, function, words }))
    }

    unsafe fn execute(
        &self,
        stream: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        const OPERATION: &str = "execute";
        let stream = own::<CudaStream>(stream, OPERATION)?;
        let regions = own::<CudaRegions>(regions, OPERATION)?;
        for launch in regions.lowered.launches() {
            // SAFETY: the caller vouches that the slots agree with the program.
            unsafe { regions.launch(stream, launch, slots) }?;
        }
        Ok(())
    }

    unsafe fn release(&self, regions: Box<dyn DeviceRegions>, after: &[&dyn DeviceStream]) {
        let any: Box<dyn std::any::Any> = regions;
        if let Ok(regions) = any.downcast::<CudaRegions>()
            && let Some(words) = regions.words
        {
            words.free(&self.shared, after);
        }
    }
}
