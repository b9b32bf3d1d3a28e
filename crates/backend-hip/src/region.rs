//! Region copies by a kernel.
#![expect(
    unsafe_code,
    reason = "launches kernels through the runtime, and implements an unsafe ability"
)]

use std::ffi::c_void;
use std::ptr;

use backend_support::{Mapping, RegionKernel, RegionLaunch, RegionLaunches, RegionLimits};
use hip_sys::hiprt::hipFunction_t;
use runtime_core::contract::{DeviceRegions, DeviceStream, RawSlot, RegionCopyAbility, own};
use runtime_core::{RegionProgram, Result};

use crate::context::{ok, pointer};
use crate::device::HipDevice;
use crate::kernels::{FEW_SLOTS, MANY_SLOTS};
use crate::memory::HipMemory;
use crate::shared::Shared;
use crate::stream::HipStream;

/// Threads of a block.
const BLOCK: u32 = 256;

/// A program made ready: its words on the device.
#[derive(Debug)]
struct HipRegions {
    lowered: RegionLaunches,
    slots: usize,
    function: hipFunction_t,
    words: Option<HipMemory>,
}

// SAFETY: functions may be launched from any thread, and by several at once.
unsafe impl Send for HipRegions {}
// SAFETY: as above.
unsafe impl Sync for HipRegions {}

impl DeviceRegions for HipRegions {
    fn launches(&self) -> usize {
        self.lowered.launches().len()
    }
}

impl HipRegions {
    /// Enqueues one launch.
    ///
    /// # Safety
    ///
    /// As [`RegionCopyAbility::execute`].
    unsafe fn launch(
        &self,
        stream: &HipStream,
        launch: &RegionLaunch,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        const OPERATION: &str = "execute";
        let mut bound = [(0_u64, 0_u64); MANY_SLOTS];
        for (place, slot) in bound.iter_mut().zip(&launch.slots) {
            if let RawSlot { memory: Some(memory), offset, .. } = slots[*slot] {
                *place = (own::<HipMemory>(memory, OPERATION)?.at(0), offset as u64);
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
        stream.enqueue(OPERATION, "a region copy", |hip, stream| {
            let (function, arguments, extra) =
                (self.function, pointers.as_mut_ptr(), ptr::null_mut());
            let launch = hip.hipModuleLaunchKernel;
            // SAFETY: there are as many arguments as parameters, of 64 bits each, which are copied by the call. The caller
            // vouches for the slots.
            unsafe { launch(function, grid, 1, 1, block, 1, 1, 0, stream, arguments, extra) }
        })
    }
}

/// Where an argument lies, from where the runtime copies it.
fn address<T>(argument: &T) -> *mut c_void {
    ptr::from_ref(argument).cast_mut().cast()
}

/// Puts words on the device, where they are when this returns.
fn upload(shared: &Shared, words: &[u64]) -> Result<Option<HipMemory>> {
    let bytes = size_of_val(words);
    if bytes == 0 {
        return Ok(None);
    }
    let memory = HipMemory::allocate(shared, bytes)?;
    let copied = shared.context.bind().and_then(|()| {
        let copy = shared.context.hip.hipMemcpyHtoDAsync;
        let from = words.as_ptr().cast_mut().cast();
        // SAFETY: the memory has room for as many bytes; the words, which are read alone, stay until the copy is over, below.
        ok(unsafe { copy(pointer(memory.at(0)), from, bytes, shared.service.raw()) })
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
unsafe impl RegionCopyAbility for HipDevice {
    fn prepare(&self, program: &RegionProgram) -> Result<Box<dyn DeviceRegions>> {
        const OPERATION: &str = "plan_regions";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let used = program.slots().iter().filter(|slot| slot.bytes > 0).count();
        let slots = if used <= FEW_SLOTS { FEW_SLOTS } else { MANY_SLOTS };
        let kernel = RegionKernel::new(Mapping::Lanes, slots, true)?;
        let limits = RegionLimits {
            compute_units: shared.compute_units as usize,
            group_size: BLOCK as usize,
            // The work-items of a launch are counted with 32 bits.
            most_groups: u64::from(shared.most_blocks.min(u32::MAX / BLOCK)),
            slab: RegionLimits::MAX_SLAB,
        };
        let lowered = kernel.lower(program, limits)?;
        let function = self.region_function(slots)?;
        let words = upload(shared, lowered.words())?;
        Ok(Box::new(HipRegions { lowered, slots, function, words }))
    }

    unsafe fn execute(
        &self,
        stream: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        const OPERATION: &str = "execute";
        let stream = own::<HipStream>(stream, OPERATION)?;
        let regions = own::<HipRegions>(regions, OPERATION)?;
        for launch in regions.lowered.launches() {
            // SAFETY: the caller vouches that the slots agree with the program.
            unsafe { regions.launch(stream, launch, slots) }?;
        }
        Ok(())
    }

    unsafe fn release(&self, regions: Box<dyn DeviceRegions>, after: &[&dyn DeviceStream]) {
        let any: Box<dyn std::any::Any> = regions;
        if let Ok(regions) = any.downcast::<HipRegions>()
            && let Some(words) = regions.words
        {
            words.free(&self.shared, after);
        }
    }
}
