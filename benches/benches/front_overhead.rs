//! The cost of the checked front over the direct trait call: copies, fills, events, launches, region plans.
//!
//! Both sides run on a device that does nothing, in turns, in one process.

use std::hint::black_box;
use std::process::ExitCode;

use benches::overhead::nanoseconds;
use conformance::NullDevice;
use runtime_core::contract::{
    AcceleratorDevice, DeviceMemory, EventOptions, PinnedOptions, RawArg, RawSlot,
    RegionCopyAbility, StreamOptions,
};
use runtime_core::{
    Combine, DType, Device, ImageFormat, Launch, ModuleImage, RegionCopy, RegionProgram,
    RegionSide, Result, Slot, args,
};

/// The most nanoseconds that the front may add to an operation.
const PER_OPERATION: f64 = 20.0;
/// The most nanoseconds that each kernel argument may add to that.
const PER_ARGUMENT: f64 = 5.0;
/// The most nanoseconds for marking the end of a use of memory that the host can access.
const PER_MARK: f64 = 40.0;
/// The most nanoseconds that executing a region plan may add.
const PER_PLAN: f64 = 1000.0;

/// The rows of the table, and whether each kept its limit.
struct Table {
    batch: u32,
    rounds: usize,
    missed: bool,
}

impl Table {
    fn row(&mut self, name: &str, limit: f64, ours: impl FnMut(), rival: impl FnMut()) {
        let (ours, rival) = nanoseconds(self.batch, self.rounds, ours, rival);
        let added = ours - rival;
        let verdict = if added <= limit { "" } else { "  MISSED" };
        self.missed |= added > limit;
        println!("{name:28} {ours:8.1} {rival:8.1} {added:8.1} {limit:8.0}{verdict}");
    }
}

fn main() -> Result<ExitCode> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let check = std::env::args().any(|arg| arg == "--check");
    let mut table = Table {
        batch: if quick { 100 } else { 20_000 },
        rounds: if quick { 3 } else { 101 },
        missed: false,
    };
    println!("{:28} {:>8} {:>8} {:>8} {:>8}", "ns per call", "front", "direct", "added", "limit");
    copies(&mut table)?;
    marks(&mut table)?;
    launches(&mut table)?;
    plans(&mut table)?;
    Ok(ExitCode::from(u8::from(check && table.missed)))
}

fn copies(table: &mut Table) -> Result<()> {
    let device = Device::new(NullDevice::default())?;
    let stream = device.default_stream();
    let mut memory = device.memory_allocate::<f64>(1024)?;
    let source = device.memory_allocate::<f64>(1024)?;
    let event = device.event_create(false)?;
    let mut host = vec![0.0_f64; 1024];

    let raw = NullDevice::default();
    let raw_stream = raw.stream_create(&StreamOptions::default())?;
    let (raw_memory, raw_source) = (raw.memory_allocate(8192)?, raw.memory_allocate(8192)?);
    let raw_event = raw.event_create(&EventOptions::default())?;
    let mut raw_host = vec![0_u8; 8192];

    table.row(
        "copy_from_slice",
        PER_OPERATION,
        || drop(black_box(memory.view_mut().copy_from_slice(&stream, &host))),
        // SAFETY: the null device accesses no byte.
        || drop(black_box(unsafe { raw_stream.memory_copy_to(&*raw_memory, 0, &raw_host) })),
    );
    table.row(
        "copy_to_slice",
        PER_OPERATION,
        || drop(black_box(memory.view().copy_to_slice(&stream, &mut host))),
        // SAFETY: as above.
        || drop(black_box(unsafe { raw_stream.memory_copy_from(&*raw_memory, 0, &mut raw_host) })),
    );
    table.row(
        "copy_from",
        PER_OPERATION,
        || drop(black_box(memory.view_mut().copy_from(&stream, &source.view()))),
        || {
            // SAFETY: as above.
            let done = unsafe { raw_stream.memory_copy(&*raw_source, 0, &*raw_memory, 0, 8192) };
            drop(black_box(done));
        },
    );
    table.row(
        "fill",
        PER_OPERATION,
        || drop(black_box(memory.view_mut().fill(&stream, 1.0_f64))),
        // SAFETY: as above.
        || drop(black_box(unsafe { raw_stream.memory_fill(&*raw_memory, 0, 8192, &[0; 8]) })),
    );
    table.row(
        "record",
        PER_OPERATION,
        || drop(black_box(stream.record(&event))),
        || drop(black_box(raw_stream.record(&*raw_event))),
    );
    table.row(
        "wait",
        PER_OPERATION,
        || drop(black_box(stream.wait(&event))),
        || drop(black_box(raw_stream.wait(&*raw_event))),
    );
    Ok(())
}

/// Memory that the host can access: the end of each use is marked. The rival marks its uses by hand, with one event.
fn marks(table: &mut Table) -> Result<()> {
    let device = Device::new(NullDevice::default())?;
    let stream = device.default_stream();
    let mut memory = device.memory_allocate::<f64>(1024)?;
    let mut pinned = device.pinned_allocate::<f64>(1024)?;

    let raw = NullDevice::default();
    let raw_stream = raw.stream_create(&StreamOptions::default())?;
    let raw_memory = raw.memory_allocate(8192)?;
    let raw_pinned = raw.pinned_allocate(8192, &PinnedOptions::default())?;
    let raw_event = raw.event_create(&EventOptions::default())?;
    let record = || drop(black_box(raw_stream.record(&*raw_event)));

    table.row(
        "copy_from_pinned",
        PER_OPERATION + PER_MARK,
        || drop(black_box(memory.view_mut().copy_from_pinned(&stream, &pinned))),
        || {
            // SAFETY: the null device accesses no byte.
            let done = unsafe { raw_stream.pinned_copy_to(&*raw_pinned, 0, &*raw_memory, 0, 8192) };
            drop(black_box(done));
            record();
        },
    );
    table.row(
        "copy_to_pinned",
        PER_OPERATION + PER_MARK,
        || drop(black_box(memory.view().copy_to_pinned(&stream, &mut pinned))),
        || {
            // SAFETY: as above.
            let done =
                unsafe { raw_stream.pinned_copy_from(&*raw_memory, 0, &*raw_pinned, 0, 8192) };
            drop(black_box(done));
            record();
        },
    );
    let Some(unified) = device.unified_memory() else { return Ok(()) };
    let mut shown = unified.allocate::<f64>(1024)?;
    table.row(
        "fill, unified memory",
        PER_OPERATION + PER_MARK,
        || drop(black_box(shown.view_mut().fill(&stream, 1.0_f64))),
        || {
            // SAFETY: as above.
            drop(black_box(unsafe { raw_stream.memory_fill(&*raw_memory, 0, 8192, &[0; 8]) }));
            record();
        },
    );
    table.row(
        "as_slice, unified memory",
        PER_OPERATION + PER_MARK,
        || drop(black_box(shown.as_slice())),
        || drop(black_box(raw_event.wait())),
    );
    Ok(())
}

fn launches(table: &mut Table) -> Result<()> {
    let device = Device::new(NullDevice::default())?;
    let stream = device.default_stream();
    let module = device.module_load(ModuleImage::source(ImageFormat::Ptx, ""))?;
    let memories =
        (0..8).map(|_| device.memory_allocate::<f64>(1024)).collect::<Result<Vec<_>>>()?;
    let view = |index: usize| memories[index].view();
    let launch = Launch::cover(1024, 256);

    let raw = NullDevice::default();
    let raw_stream = raw.stream_create(&StreamOptions::default())?;
    let raw_memory = raw.memory_allocate(8192)?;
    let raw_module = raw.module_load(&ModuleImage::source(ImageFormat::Ptx, ""))?;

    macro_rules! arguments {
        ($name:literal, $($index:literal)*) => {{
            let count = [$($index as usize),*].len();
            let (kernel, raw_kernel) = (module.kernel($name)?, raw_module.kernel($name)?);
            table.row(
                &format!("launch, {count} arguments"),
                PER_OPERATION + PER_ARGUMENT * f64::from(u32::try_from(count).unwrap_or(0)),
                // SAFETY: the null device accesses no byte.
                || drop(black_box(unsafe { kernel.launch(&stream, &launch, args![$(view($index)),*]) })),
                || {
                    let args = [$({ let _ = $index; argument(&*raw_memory) }),*];
                    // SAFETY: as above.
                    drop(black_box(unsafe { raw_stream.launch(&*raw_kernel, &launch, &args) }));
                },
            );
        }};
    }
    arguments!("a", 0);
    arguments!("aaaa", 0 1 2 3);
    arguments!("aaaaaaaa", 0 1 2 3 4 5 6 7);
    Ok(())
}

fn argument(memory: &dyn DeviceMemory) -> RawArg<'_> {
    RawArg::Memory {
        memory,
        origin: 0,
        start: 0,
        bytes: 8192,
        dtype: DType::F64,
        writes: false,
        dense: true,
    }
}

fn plans(table: &mut Table) -> Result<()> {
    let row = |slot| RegionSide { slot, offset: 0, strides: vec![8] };
    let entry = RegionCopy {
        dtype: DType::F64,
        extents: vec![1024],
        source: row(0),
        destination: row(1),
        negate: false,
        combine: Combine::Replace,
    };
    let device = Device::new(NullDevice::default())?;
    let stream = device.default_stream();
    let memory = device.memory_allocate::<f64>(1024)?;
    let source = memory.view();
    let mut target = device.memory_allocate::<f64>(1024)?;
    let plan = device.plan_regions(std::slice::from_ref(&entry))?;

    let raw = NullDevice::default();
    let raw_stream = raw.stream_create(&StreamOptions::default())?;
    let (raw_source, raw_target) = (raw.memory_allocate(8192)?, raw.memory_allocate(8192)?);
    let regions = raw.prepare(&RegionProgram::new(&[entry])?)?;
    table.row(
        "plan.execute, 2 slots",
        PER_PLAN,
        || {
            let mut slots = [Slot::from(source), Slot::from(target.view_mut())];
            drop(black_box(plan.execute(&stream, &mut slots)));
        },
        || {
            let slot = |memory| RawSlot { memory: Some(memory), offset: 0, bytes: 8192, split: 0 };
            let slots = [slot(&*raw_source), slot(&*raw_target)];
            // SAFETY: the null device accesses no byte.
            drop(black_box(unsafe { raw.execute(&*raw_stream, &*regions, &slots) }));
        },
    );
    Ok(())
}
