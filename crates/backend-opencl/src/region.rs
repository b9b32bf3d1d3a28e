//! Region copies by a kernel.
#![expect(
    unsafe_code,
    reason = "sets arguments and enqueues kernels through the driver, and implements an unsafe ability"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use backend_support::{
    Binding, Dialect, RegionKernel, RegionLaunch, RegionLaunches, RegionLimits, lock,
};
use opencl3::command_queue::enqueue_nd_range_kernel;
use opencl3::memory::{CL_MEM_COPY_HOST_PTR, CL_MEM_READ_ONLY, create_buffer};
use opencl3::types::{cl_int, cl_kernel, cl_uint};
use runtime_core::contract::{
    DeviceMemory, DeviceRegions, DeviceStream, RawSlot, RegionCopyAbility, own,
};
use runtime_core::{Error, ErrorKind, ImageFormat, ModuleImage, RegionProgram, Result};

use crate::arguments::{set_buffer, set_memory, set_number};
use crate::device::OpenClDevice;
use crate::handle::{Handle, Kernel, Mem};
use crate::memory::OpenClMemory;
use crate::module::OpenClModule;
use crate::open_device::OpenDevice;
use crate::region_kernels::Source;
use crate::stream::OpenClStream;

const OPERATION: &str = "execute";

/// A program that is ready to run.
#[derive(Debug)]
struct OpenClRegions {
    by_argument: Prepared,
    /// Used if memory has addresses and the program uses more memories than one launch takes as arguments.
    by_address: Option<Prepared>,
    /// Of the latest execution, or of one with memory of the device itself.
    launches: AtomicUsize,
}

/// Launches with their words on the device. Each has its own kernel, so executions of different plans do not wait for
/// each other.
#[derive(Debug)]
struct Prepared {
    lowered: RegionLaunches,
    _words: Option<Handle<Mem>>,
    bound: Mutex<Bound>,
}

/// A kernel and the addresses that were passed to it.
#[derive(Debug)]
struct Bound {
    kernel: Handle<Kernel>,
    /// For each slot, the memory's number and the start of the slot.
    places: Vec<(u64, u64)>,
    table: Option<Handle<Mem>>,
}

impl DeviceRegions for OpenClRegions {
    fn launches(&self) -> usize {
        self.launches.load(Ordering::Relaxed)
    }
}

impl OpenClDevice {
    fn region_module<'a>(&self, (kernel, module): &'a Source) -> Result<&'a OpenClModule> {
        if let Some(module) = module.get() {
            return Ok(module);
        }
        let source = kernel.source(Dialect::OpenClC);
        let image = ModuleImage::source(ImageFormat::OpenClC, source);
        // No lock is held, because a build emits `tracing` events, and a subscriber may need the same kernel.
        let built = self.builder().build_own(&self.shared, &image)?;
        Ok(module.get_or_init(|| OpenClModule::new(built, &self.shared)))
    }

    fn prepare_for(&self, source: &Source, program: &RegionProgram) -> Result<Prepared> {
        let shared = &self.shared;
        let module = self.region_module(source)?;
        let kernel = module.create(RegionKernel::NAME)?;
        // A kernel may allow only smaller groups than the device.
        let most = usize::try_from(module.max_items(&kernel)).unwrap_or(usize::MAX);
        let limits = self.regions().limits;
        let limits = RegionLimits { group_size: limits.group_size.min(most), ..limits };
        let lowered = source.0.lower(program, limits)?;
        let failed =
            |code| shared.error("plan_regions", code, "the plan could not be put on the device");
        let words = upload(shared, lowered.words()).map_err(failed)?;
        // SAFETY: no other code has the kernel yet.
        unsafe { set_fixed(kernel.raw(), words.as_ref(), source.0.binding()) }.map_err(failed)?;
        let places = vec![(0, 0); program.slots().len()];
        let bound = Mutex::new(Bound { kernel, places, table: None });
        Ok(Prepared { lowered, _words: words, bound })
    }
}

impl Prepared {
    /// Enqueues the launches of a kernel that gets memories as arguments.
    ///
    /// # Safety
    ///
    /// As [`RegionCopyAbility::execute`].
    unsafe fn with_arguments(&self, stream: &OpenClStream, slots: &[RawSlot<'_>]) -> Result<()> {
        let shared = stream.shared();
        let failed = |code| shared.error(OPERATION, code, "a memory could not be made an argument");
        let bound = lock(&self.bound);
        let raw = bound.kernel.raw();
        let most = self.lowered.launches().iter().map(|launch| launch.slots.len()).max();
        for launch in self.lowered.launches() {
            for (place, slot) in launch.slots.iter().enumerate() {
                let (index, RawSlot { memory, offset, .. }) = (slot_index(place), slots[*slot]);
                match memory {
                    Some(memory) => {
                        let memory = own::<OpenClMemory>(memory, OPERATION)?;
                        // SAFETY: the kernel is locked; the whole buffer is the argument.
                        unsafe { set_memory(shared, raw, index, memory.place(), 0) }
                    }
                    // SAFETY: as above; the kernel skips absent slots.
                    None => unsafe { set_buffer(raw, index, ptr::null_mut()) },
                }
                .map_err(failed)?;
                // SAFETY: as above.
                unsafe { set_number(raw, index + 1, offset as u64) }.map_err(failed)?;
            }
            // Memory of another launch, possibly of an earlier execution, may have been freed.
            for place in launch.slots.len()..most.unwrap_or(0) {
                // SAFETY: as above.
                unsafe { set_buffer(raw, slot_index(place), ptr::null_mut()) }.map_err(failed)?;
            }
            // SAFETY: the caller guarantees that the slots match the program.
            unsafe { enqueue(stream, raw, launch) }?;
        }
        Ok(())
    }

    /// Enqueues the launches of a kernel that gets all addresses in a table.
    ///
    /// # Safety
    ///
    /// As [`RegionCopyAbility::execute`], and each memory [has an address](OpenClMemory::address).
    unsafe fn with_table(&self, stream: &OpenClStream, slots: &[RawSlot<'_>]) -> Result<()> {
        let mut bound = lock(&self.bound);
        let mut changed = bound.table.is_none();
        for (known, slot) in bound.places.iter_mut().zip(slots) {
            let place = match slot.memory {
                Some(memory) => {
                    let memory = own::<OpenClMemory>(memory, OPERATION)?;
                    let address = memory.address().unwrap_or(0).wrapping_add(slot.offset);
                    (memory.number(), address as u64)
                }
                None => (0, 0),
            };
            changed |= *known != place;
            *known = place;
        }
        if changed {
            bound.set(stream.shared(), slots)?;
        }
        for launch in self.lowered.launches() {
            // SAFETY: the caller guarantees that the slots match the program.
            unsafe { enqueue(stream, bound.kernel.raw(), launch) }?;
        }
        Ok(())
    }
}

impl Bound {
    /// Passes the kernel a new table of the addresses. The driver keeps the previous table until its uses are over.
    fn set(&mut self, shared: &OpenDevice, slots: &[RawSlot<'_>]) -> Result<()> {
        self.table = None;
        let raw = self.kernel.raw();
        let addresses: Vec<u64> = self.places.iter().map(|(_, address)| *address).collect();
        let memories = slots.iter().filter_map(|slot| slot.memory);
        let mut pointers = Vec::with_capacity(slots.len());
        for memory in memories {
            let address = own::<OpenClMemory>(memory, OPERATION)?.address();
            pointers.extend(address.map(ptr::with_exposed_provenance::<c_void>));
        }
        let set = || {
            let table = upload(shared, &addresses)?;
            // SAFETY: the kernel is locked.
            unsafe { set_buffer(raw, 2, table.as_ref().map_or(ptr::null_mut(), Handle::raw)) }?;
            if let Some(kind) = &shared.pointers {
                // SAFETY: as above; the pointers are to memory of the context.
                unsafe { kind.set_indirect(raw, &pointers) }?;
            }
            Ok(table)
        };
        let failed = |code| shared.error(OPERATION, code, "memories could not be made a table");
        self.table = set().map_err(failed)?;
        Ok(())
    }
}

/// Enqueues a launch of a kernel whose memories are set.
///
/// # Safety
///
/// The kernel is locked, and the caller guarantees the memories.
unsafe fn enqueue(stream: &OpenClStream, kernel: cl_kernel, launch: &RegionLaunch) -> Result<()> {
    // SAFETY: the kernel is locked.
    unsafe { set_number(kernel, 1, launch.start) }
        .map_err(|code| stream.shared().error(OPERATION, code, "where the launch begins"))?;
    let local = [launch.group_size];
    let global = [usize::try_from(launch.groups).unwrap_or(usize::MAX) * local[0]];
    // SAFETY: the caller guarantees the memories; the arguments are copied during the call.
    unsafe {
        stream.submit("region_copy", |queue| {
            enqueue_nd_range_kernel(
                queue,
                kernel,
                1,
                ptr::null(),
                global.as_ptr(),
                local.as_ptr(),
                0,
                ptr::null(),
            )
        })
    }
}

// SAFETY: the kernel accesses the elements that its words describe, which are those of the program, and the launches
// are in phase order in an in-order queue.
unsafe impl RegionCopyAbility for OpenClDevice {
    fn prepare(&self, program: &RegionProgram) -> Result<Box<dyn DeviceRegions>> {
        self.shared.check("plan_regions")?;
        let used = program.slots().iter().filter(|slot| slot.bytes > 0).count();
        let Some(arguments) = self.regions().for_slots(used) else {
            let message = "the device has no compiler for region copies";
            return Err(Error::new(ErrorKind::Driver, "plan_regions", message));
        };
        let by_argument = self.prepare_for(arguments, program)?;
        let is_more = self.is_by_pointer() && used > arguments.0.slots();
        let table = self.regions().by_address.as_ref().filter(|_| is_more);
        let by_address = table.map(|table| self.prepare_for(table, program)).transpose()?;
        let launches = by_address.as_ref().unwrap_or(&by_argument).lowered.launches().len().into();
        Ok(Box::new(OpenClRegions { by_argument, by_address, launches }))
    }

    unsafe fn execute(
        &self,
        stream: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        let (stream, regions) =
            (own::<OpenClStream>(stream, OPERATION)?, own::<OpenClRegions>(regions, OPERATION)?);
        let mut memories = slots.iter().filter_map(|slot| slot.memory);
        let has_address = |memory: &dyn DeviceMemory| {
            own::<OpenClMemory>(memory, OPERATION).is_ok_and(|memory| memory.address().is_some())
        };
        let by_address = regions.by_address.as_ref().filter(|_| memories.all(has_address));
        let launches = by_address.unwrap_or(&regions.by_argument).lowered.launches().len();
        regions.launches.store(launches, Ordering::Relaxed);
        match by_address {
            // SAFETY: the caller guarantees that the slots match the program.
            Some(prepared) => unsafe { prepared.with_table(stream, slots) },
            // SAFETY: as above.
            None => unsafe { regions.by_argument.with_arguments(stream, slots) },
        }?;
        let flushed = stream.flush(OPERATION);
        stream.queue().emit();
        flushed
    }
}

/// Copies words to the device. Returns `None` if there are none: an empty buffer is not possible.
fn upload(shared: &OpenDevice, words: &[u64]) -> Result<Option<Handle<Mem>>, cl_int> {
    if words.is_empty() {
        return Ok(None);
    }
    // SAFETY: the words are copied during the call, which only reads them.
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

/// The index of the parameter for the memory of a slot. The parameter for its offset follows.
fn slot_index(slot: usize) -> cl_uint {
    cl_uint::try_from(2 + 2 * slot).unwrap_or(cl_uint::MAX)
}

/// Sets the arguments that do not change, and those of slots that no launch binds.
///
/// # Safety
///
/// No other thread sets arguments of the kernel at the same time.
unsafe fn set_fixed(
    kernel: cl_kernel,
    words: Option<&Handle<Mem>>,
    binding: Binding,
) -> Result<(), cl_int> {
    // SAFETY: the caller guarantees the kernel.
    unsafe { set_buffer(kernel, 0, words.map_or(ptr::null_mut(), Handle::raw)) }?;
    let Binding::Parameters(slots) = binding else { return Ok(()) };
    for slot in 0..slots {
        // SAFETY: as above.
        unsafe { set_buffer(kernel, slot_index(slot), ptr::null_mut()) }?;
        // SAFETY: as above.
        unsafe { set_number(kernel, slot_index(slot) + 1, 0) }?;
    }
    Ok(())
}
