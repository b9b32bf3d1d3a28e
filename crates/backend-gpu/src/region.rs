//! Region copies by a kernel.
#![expect(
    unsafe_code,
    reason = "launches kernels through the library, and implements an unsafe ability"
)]

use std::ffi::c_void;
use std::ptr;

use backend_support::{
    AddressTables, Binding, Mapping, RegionKernel, RegionLaunch, RegionLaunches, RegionLimits,
};
use runtime_core::contract::{DeviceRegions, DeviceStream, RawSlot, RegionCopyAbility, own};
use runtime_core::{Launch, RegionProgram, Result};

use crate::api::Api;
use crate::device::Device;
use crate::handle::Function;
use crate::launch::address;
use crate::memory::Memory;
use crate::open_device::OpenDevice;
use crate::raw_stream::RawStream;
use crate::stream::Stream;
use crate::vendor::{BuiltinKernel, Vendor};

const OPERATION: &str = "execute";

/// The number of threads in a block.
const BLOCK: u32 = 256;

/// A prepared program, with its words on the device.
#[derive(Debug)]
pub(crate) struct Regions<V: Vendor> {
    lowered: RegionLaunches,
    function: Function,
    words: Option<Memory<V>>,
    memories: Memories<V>,
}

/// How the kernel gets its memories.
#[derive(Debug)]
enum Memories<V: Vendor> {
    Few,
    Many,
    Most,
    Any { setter: Function, tables: AddressTables<RawStream<V>, Memory<V>> },
}

impl<V: Vendor> DeviceRegions for Regions<V> {
    fn launches(&self) -> usize {
        self.lowered.launches().len()
    }
}

impl<V: Vendor> Regions<V> {
    /// Frees the memory of the program once everything enqueued on the streams is done.
    pub(crate) fn free(self, shared: &OpenDevice<V>, after: &[&dyn DeviceStream]) {
        let tables = match self.memories {
            Memories::Any { tables, .. } => Some(tables.into_memories()),
            Memories::Few | Memories::Many | Memories::Most => None,
        };
        for memory in self.words.into_iter().chain(tables.into_iter().flatten()) {
            memory.free(shared, after);
        }
    }

    /// Enqueues the launches of a kernel that takes each memory as parameters.
    ///
    /// # Safety
    ///
    /// As [`RegionCopyAbility::execute`], and the kernel takes [`RegionKernel::FEW`].
    unsafe fn with_parameters(&self, stream: &Stream<V>, slots: &[RawSlot<'_>]) -> Result<()> {
        let words = self.words();
        for launch in self.lowered.launches() {
            let mut bound = [(0_u64, 0_u64); RegionKernel::FEW];
            for (place, slot) in bound.iter_mut().zip(&launch.slots) {
                place.0 = at::<V>(slots[*slot])?;
            }
            let mut arguments = [ptr::null_mut(); 2 + 2 * RegionKernel::FEW];
            let (fixed, of_slots) = arguments.split_at_mut(2);
            fixed.copy_from_slice(&[address(&words), address(&launch.start)]);
            for (pair, (base, offset)) in of_slots.chunks_exact_mut(2).zip(&bound) {
                pair.copy_from_slice(&[address(base), address(offset)]);
            }
            // SAFETY: there are as many arguments as parameters, and the caller guarantees the slots.
            unsafe { enqueue(stream, self.function, shape(launch), &mut arguments) }?;
        }
        Ok(())
    }

    /// Enqueues the launches of a kernel that takes all memories in one parameter.
    ///
    /// # Safety
    ///
    /// As [`RegionCopyAbility::execute`], and the kernel takes `MOST` memories.
    unsafe fn with_list<const MOST: usize>(
        &self,
        stream: &Stream<V>,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        let words = self.words();
        for launch in self.lowered.launches() {
            let mut list = [0_u64; MOST];
            for (place, slot) in list.iter_mut().zip(&launch.slots) {
                *place = at::<V>(slots[*slot])?;
            }
            let mut arguments = [address(&words), address(&launch.start), address(&list)];
            // SAFETY: as above.
            unsafe { enqueue(stream, self.function, shape(launch), &mut arguments) }?;
        }
        Ok(())
    }

    /// Enqueues the launches of a kernel that takes a table of all memories. Enqueues the kernel that sets the table
    /// first.
    ///
    /// # Safety
    ///
    /// As [`RegionCopyAbility::execute`].
    unsafe fn with_table(
        &self,
        stream: &Stream<V>,
        slots: &[RawSlot<'_>],
        setter: Function,
        tables: &AddressTables<RawStream<V>, Memory<V>>,
    ) -> Result<()> {
        let allocate = |bytes| Memory::allocate(&stream.shared, bytes);
        // The table stays locked until everything is enqueued.
        let mut table = tables.of(stream.raw(), stream.is_capture(), allocate)?;
        let set = |memory: &Memory<V>, first: usize, count: usize, list: &_| {
            let (to, count) = (memory.at(first * size_of::<u64>()), count as u64);
            let mut arguments = [address(&to), address(&count), address(list)];
            // SAFETY: these are the kernel's parameters, and the table has room for that many addresses.
            unsafe { enqueue(stream, setter, (1, BLOCK), &mut arguments) }
        };
        table.set(|slot| at::<V>(slots[slot]), set)?;
        let (words, table) = (self.words(), table.memory().at(0));
        for launch in self.lowered.launches() {
            let mut arguments = [address(&words), address(&launch.start), address(&table)];
            // SAFETY: as above; the table contains all slots.
            unsafe { enqueue(stream, self.function, shape(launch), &mut arguments) }?;
        }
        Ok(())
    }

    fn words(&self) -> u64 {
        self.words.as_ref().map_or(0, |words| words.at(0))
    }
}

/// The address of a slot; 0 if it has no memory.
fn at<V: Vendor>(slot: RawSlot<'_>) -> Result<u64> {
    slot.memory.map_or(Ok(0), |memory| Ok(own::<Memory<V>>(memory, OPERATION)?.at(slot.offset)))
}

/// The number of blocks, and of threads in a block. The lowering respects the limits.
fn shape(launch: &RegionLaunch) -> (u32, u32) {
    let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
    (number(launch.groups), number(launch.group_size as u64))
}

/// Enqueues a kernel.
///
/// # Safety
///
/// The arguments match the kernel's parameters, and the caller may enqueue the kernel's accesses on the stream.
unsafe fn enqueue<V: Vendor>(
    stream: &Stream<V>,
    function: Function,
    (grid, block): (u32, u32),
    arguments: &mut [*mut c_void],
) -> Result<()> {
    let launch = Launch::new([grid, 1, 1], [block, 1, 1]);
    stream.enqueue(OPERATION, "a region copy", |api, stream| {
        // SAFETY: the call copies the arguments, and the caller guarantees that they fit.
        unsafe { api.launch(function, &launch, stream, arguments.as_mut_ptr()) }
    })
}

/// Copies words to the device. Blocks until they are there.
fn upload<V: Vendor>(shared: &OpenDevice<V>, words: &[u64]) -> Result<Option<Memory<V>>> {
    let bytes = size_of_val(words);
    if bytes == 0 {
        return Ok(None);
    }
    let memory = Memory::allocate(shared, bytes)?;
    let copied = shared.context.bind().and_then(|()| {
        let (api, from) = (shared.context.api, words.as_ptr().cast());
        // SAFETY: the memory has room for that many bytes. The words are valid until the copy is finished, because
        // `wait_or_give_up` waits below.
        unsafe { api.copy_to(memory.at(0), from, bytes, shared.service.raw()) }
    });
    match copied.and(shared.service.wait_or_give_up()) {
        Ok(()) => Ok(Some(memory)),
        Err(code) => {
            memory.free(shared, &[]);
            Err(shared.error("plan_regions", code, "the plan could not be put on the device"))
        }
    }
}

// SAFETY: the kernel touches only the elements that its words name, which are those of the program. The launches are in
// the order of the phases, in an in-order stream.
unsafe impl<V: Vendor> RegionCopyAbility for Device<V> {
    fn prepare(&self, program: &RegionProgram) -> Result<Box<dyn DeviceRegions>> {
        const OPERATION: &str = "plan_regions";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let used = program.slots().iter().filter(|slot| slot.bytes > 0).count();
        let kernel = RegionKernel::by_address(Mapping::Lanes, used);
        let limits = RegionLimits {
            compute_units: shared.compute_units as usize,
            group_size: BLOCK as usize,
            max_groups: shared.max_blocks.min(V::MAX_REGION_BLOCKS).into(),
            slab: RegionLimits::MAX_SLAB,
        };
        let lowered = kernel.lower(program, limits)?;
        let function = V::region_function(self, BuiltinKernel::Regions(kernel.binding()))?;
        let memories = match kernel.binding() {
            Binding::Parameters(_) => Memories::Few,
            Binding::List(..=RegionKernel::MANY) => Memories::Many,
            Binding::List(_) => Memories::Most,
            Binding::Table => {
                let tables = AddressTables::new(program.slots().len());
                Memories::Any {
                    setter: V::region_function(self, BuiltinKernel::RegionTable)?,
                    tables,
                }
            }
        };
        let words = upload(shared, lowered.words())?;
        Ok(Box::new(Regions { lowered, function, words, memories }))
    }

    unsafe fn execute(
        &self,
        stream: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        let stream = own::<Stream<V>>(stream, OPERATION)?;
        let regions = own::<Regions<V>>(regions, OPERATION)?;
        match &regions.memories {
            // SAFETY: the kernel is the one for that many memories, and the caller guarantees that the slots match the
            // program.
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
}
