//! Region copies by a kernel.
#![expect(
    unsafe_code,
    reason = "launches kernels through the runtime, and implements an unsafe ability"
)]

use std::ffi::c_void;
use std::ptr;

use backend_support::{
    AddressTables, Binding, Mapping, RegionKernel, RegionLaunch, RegionLaunches, RegionLimits,
};
use hip_sys::hiprt::hipFunction_t;
use runtime_core::contract::{DeviceRegions, DeviceStream, RawSlot, RegionCopyAbility, own};
use runtime_core::{RegionProgram, Result};

use crate::context::{ok, pointer};
use crate::device::HipDevice;
use crate::kernels::Own;
use crate::memory::HipMemory;
use crate::raw_stream::RawStream;
use crate::shared::Shared;
use crate::stream::HipStream;

const OPERATION: &str = "execute";

/// Threads of a block.
const BLOCK: u32 = 256;

/// A program made ready: its words on the device.
#[derive(Debug)]
struct HipRegions {
    lowered: RegionLaunches,
    function: hipFunction_t,
    words: Option<HipMemory>,
    memories: Memories,
}

/// How the kernel gets its memories.
#[derive(Debug)]
enum Memories {
    Few,
    Many,
    Most,
    Any { setter: hipFunction_t, tables: AddressTables<RawStream, HipMemory> },
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
    /// Enqueues the launches of a kernel whose memories are parameters.
    ///
    /// # Safety
    ///
    /// As [`RegionCopyAbility::execute`], and the kernel takes [`RegionKernel::FEW`].
    unsafe fn with_parameters(&self, stream: &HipStream, slots: &[RawSlot<'_>]) -> Result<()> {
        let words = self.words();
        for launch in self.lowered.launches() {
            let mut bound = [(0_u64, 0_u64); RegionKernel::FEW];
            for (place, slot) in bound.iter_mut().zip(&launch.slots) {
                place.0 = at(slots[*slot])?;
            }
            let mut arguments = [ptr::null_mut(); 2 + 2 * RegionKernel::FEW];
            let (fixed, of_slots) = arguments.split_at_mut(2);
            fixed.copy_from_slice(&[address(&words), address(&launch.start)]);
            for (pair, (base, offset)) in of_slots.chunks_exact_mut(2).zip(&bound) {
                pair.copy_from_slice(&[address(base), address(offset)]);
            }
            // SAFETY: there are as many arguments as parameters; the caller vouches for the slots.
            unsafe { enqueue(stream, self.function, shape(launch), &mut arguments) }?;
        }
        Ok(())
    }

    /// Enqueues the launches of a kernel with one parameter for all memories.
    ///
    /// # Safety
    ///
    /// As [`RegionCopyAbility::execute`], and the kernel takes `MOST` memories.
    unsafe fn with_list<const MOST: usize>(
        &self,
        stream: &HipStream,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        let words = self.words();
        for launch in self.lowered.launches() {
            let mut list = [0_u64; MOST];
            for (place, slot) in list.iter_mut().zip(&launch.slots) {
                *place = at(slots[*slot])?;
            }
            let mut arguments = [address(&words), address(&launch.start), address(&list)];
            // SAFETY: as above.
            unsafe { enqueue(stream, self.function, shape(launch), &mut arguments) }?;
        }
        Ok(())
    }

    /// Enqueues the launches of a kernel with a table of all memories, after what sets it.
    ///
    /// # Safety
    ///
    /// As [`RegionCopyAbility::execute`].
    unsafe fn with_table(
        &self,
        stream: &HipStream,
        slots: &[RawSlot<'_>],
        setter: hipFunction_t,
        tables: &AddressTables<RawStream, HipMemory>,
    ) -> Result<()> {
        let allocate = |bytes| HipMemory::allocate(&stream.shared, bytes);
        // Locked until everything is enqueued.
        let mut table = tables.of(stream.raw(), stream.is_capture(), allocate)?;
        let set = |memory: &HipMemory, first: usize, count: usize, list: &_| {
            let (to, count) = (memory.at(first * size_of::<u64>()), count as u64);
            let mut arguments = [address(&to), address(&count), address(list)];
            // SAFETY: these are the kernel's parameters, and the table has room for as many addresses.
            unsafe { enqueue(stream, setter, (1, BLOCK), &mut arguments) }
        };
        table.set(|slot| at(slots[slot]), set)?;
        let (words, table) = (self.words(), table.memory().at(0));
        for launch in self.lowered.launches() {
            let mut arguments = [address(&words), address(&launch.start), address(&table)];
            // SAFETY: as above; the table has all slots.
            unsafe { enqueue(stream, self.function, shape(launch), &mut arguments) }?;
        }
        Ok(())
    }

    fn words(&self) -> u64 {
        self.words.as_ref().map_or(0, |words| words.at(0))
    }
}

/// Where a slot begins; 0 if it has no memory.
fn at(slot: RawSlot<'_>) -> Result<u64> {
    slot.memory.map_or(Ok(0), |memory| Ok(own::<HipMemory>(memory, OPERATION)?.at(slot.offset)))
}

/// Blocks, and threads of a block. The lowering keeps to the limits.
fn shape(launch: &RegionLaunch) -> (u32, u32) {
    let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
    (number(launch.groups), number(launch.group_size as u64))
}

/// Enqueues a kernel.
///
/// # Safety
///
/// The arguments are those of the kernel's parameters, and it does what the stream may do.
unsafe fn enqueue(
    stream: &HipStream,
    function: hipFunction_t,
    (grid, block): (u32, u32),
    arguments: &mut [*mut c_void],
) -> Result<()> {
    stream.enqueue(OPERATION, "a region copy", |hip, stream| {
        let (launch, arguments, extra) =
            (hip.hipModuleLaunchKernel, arguments.as_mut_ptr(), ptr::null_mut());
        // SAFETY: the arguments are copied by the call; the caller vouches for them.
        unsafe { launch(function, grid, 1, 1, block, 1, 1, 0, stream, arguments, extra) }
    })
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
        let kernel = RegionKernel::by_address(Mapping::Lanes, used);
        let limits = RegionLimits {
            compute_units: shared.compute_units as usize,
            group_size: BLOCK as usize,
            // The work-items of a launch are counted with 32 bits.
            most_groups: u64::from(shared.most_blocks.min(u32::MAX / BLOCK)),
            slab: RegionLimits::MAX_SLAB,
        };
        let lowered = kernel.lower(program, limits)?;
        let function = self.region_function(Own::Regions(kernel.binding()))?;
        let memories = match kernel.binding() {
            Binding::Parameters(_) => Memories::Few,
            Binding::List(..=RegionKernel::MANY) => Memories::Many,
            Binding::List(_) => Memories::Most,
            Binding::Table => {
                let tables = AddressTables::new(program.slots().len());
                Memories::Any { setter: self.region_function(Own::RegionTable)?, tables }
            }
        };
        let words = upload(shared, lowered.words())?;
        Ok(Box::new(HipRegions { lowered, function, words, memories }))
    }

    unsafe fn execute(
        &self,
        stream: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        let stream = own::<HipStream>(stream, OPERATION)?;
        let regions = own::<HipRegions>(regions, OPERATION)?;
        match &regions.memories {
            // SAFETY: the kernel is the one for so many memories, and the caller vouches that the slots agree with the program.
            Memories::Few => unsafe { regions.with_parameters(stream, slots) },
            // SAFETY: as above.
            Memories::Many => unsafe { regions.with_list::<{ RegionKernel::MANY }>(stream, slots) },
            // SAFETY: as above.
            Memories::Most => unsafe {
                regions.with_list::<{ RegionKernel::MAX_LISTED }>(stream, slots)
            },
            // SAFETY: as above.
            Memories::Any { setter, tables } => unsafe {
                regions.with_table(stream, slots, *setter, tables)
            },
        }
    }

    unsafe fn release(&self, regions: Box<dyn DeviceRegions>, after: &[&dyn DeviceStream]) {
        let any: Box<dyn std::any::Any> = regions;
        let Ok(regions) = any.downcast::<HipRegions>() else { return };
        let HipRegions { words, memories, .. } = *regions;
        let tables = match memories {
            Memories::Any { tables, .. } => Some(tables.into_memories()),
            Memories::Few | Memories::Many | Memories::Most => None,
        };
        for memory in words.into_iter().chain(tables.into_iter().flatten()) {
            memory.free(&self.shared, after);
        }
    }
}
