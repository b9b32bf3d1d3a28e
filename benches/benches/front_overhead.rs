//! The cost of the checked front over the direct trait call: copies, fills, events, launches, region plans.
//!
//! Both sides run on a device that does nothing, in turns, in one process.

use std::hint::black_box;
use std::process::ExitCode;

use benches::overhead::{Limit, Table, Unit};
use conformance::NullDevice;
use runtime_core::contract::{
    AcceleratorDevice, DeviceMemory, EventOptions, GraphCapture, MemoryAt, PinnedAt, PinnedOptions,
    RawArg, RawSlot, RegionCopyAbility, StreamOptions,
};
use runtime_core::{
    Combine, DType, Device, ImageFormat, Launch, ModuleImage, RegionCopy, RegionProgram,
    RegionSide, Result, Slot, args,
};

/// The most atomic additions that the front may add to an operation.
const PER_OPERATION: f64 = 6.5;
/// The most for taking failures of earlier work, under a lock.
const PER_FAILURE: f64 = 3.5;
/// The most that a further memory may add to a copy.
const PER_MEMORY: f64 = 3.5;
/// The most for recording the ends of uses of memory that the host can access.
const PER_MARK: f64 = 5.0;
/// The most that a copy from or to pinned memory may add, which is ordered with other copies under a lock.
const PER_PINNED: f64 = 18.0;
/// The most that a launch may add without arguments, and with each argument.
const PER_LAUNCH: f64 = 8.0;
const PER_ARGUMENT: f64 = 4.25;
/// The most that launching a graph with two pinned memories may add.
const PER_GRAPH: f64 = 80.0;
/// The most that executing a region plan may add.
const PER_PLAN: f64 = 90.0;

/// The name of the rival in each row.
const DIRECT: &str = "the trait's method";

fn main() -> Result<ExitCode> {
    let mut table = Table::from_args(20_000, 101, Unit::Atomic);
    copies(&mut table)?;
    marks(&mut table)?;
    launches(&mut table)?;
    plans(&mut table)?;
    Ok(table.finish())
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
    let (raw_at, raw_source) = (MemoryAt::new(&*raw_memory, 0), MemoryAt::new(&*raw_source, 0));
    let raw_event = raw.event_create(&EventOptions::default())?;
    let mut raw_host = vec![0_u8; 8192];

    table.row(
        "copy_from_slice",
        DIRECT,
        Limit::Adds(PER_OPERATION),
        || drop(black_box(memory.view_mut().copy_from_slice(&stream, &host))),
        // SAFETY: the null device accesses no byte.
        || drop(black_box(unsafe { raw_stream.memory_copy_to(raw_at, &raw_host) })),
    );
    table.row(
        "copy_to_slice",
        DIRECT,
        Limit::Adds(PER_OPERATION + PER_FAILURE),
        || drop(black_box(memory.view().copy_to_slice(&stream, &mut host))),
        // SAFETY: as above.
        || drop(black_box(unsafe { raw_stream.memory_copy_from(raw_at, &mut raw_host) })),
    );
    table.row(
        "copy_from",
        DIRECT,
        Limit::Adds(PER_OPERATION + PER_MEMORY),
        || drop(black_box(memory.view_mut().copy_from(&stream, &source.view()))),
        || {
            // SAFETY: as above.
            let done = unsafe { raw_stream.memory_copy(raw_source, raw_at, 8192) };
            drop(black_box(done));
        },
    );
    table.row(
        "fill",
        DIRECT,
        Limit::Adds(PER_OPERATION),
        || drop(black_box(memory.view_mut().fill(&stream, 1.0_f64))),
        // SAFETY: as above.
        || drop(black_box(unsafe { raw_stream.memory_fill(raw_at, 8192, &[0; 8]) })),
    );
    table.row(
        "record",
        DIRECT,
        Limit::Adds(PER_OPERATION),
        || drop(black_box(stream.record(&event))),
        || drop(black_box(raw_stream.record(&*raw_event))),
    );
    table.row(
        "wait",
        DIRECT,
        Limit::Adds(PER_OPERATION),
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
    let (raw_at, raw_pinned) = (MemoryAt::new(&*raw_memory, 0), PinnedAt::new(&*raw_pinned, 0));
    let raw_event = raw.event_create(&EventOptions::default())?;
    let record = || drop(black_box(raw_stream.record(&*raw_event)));

    table.row(
        "copy_from_pinned",
        DIRECT,
        Limit::Adds(PER_PINNED),
        || drop(black_box(memory.view_mut().copy_from_pinned(&stream, &pinned))),
        || {
            // SAFETY: the null device accesses no byte.
            let done = unsafe { raw_stream.pinned_copy_to(raw_pinned, raw_at, 8192) };
            drop(black_box(done));
            record();
        },
    );
    table.row(
        "copy_to_pinned",
        DIRECT,
        Limit::Adds(PER_PINNED),
        || drop(black_box(memory.view().copy_to_pinned(&stream, &mut pinned))),
        || {
            // SAFETY: as above.
            let done = unsafe { raw_stream.pinned_copy_from(raw_at, raw_pinned, 8192) };
            drop(black_box(done));
            record();
        },
    );
    if let Some(graphs) = device.graphs() {
        let mut back = device.pinned_allocate::<f64>(1024)?;
        let graph = graphs.capture(|to| {
            memory.view_mut().copy_from_pinned(to, &pinned)?;
            memory.view().copy_to_pinned(to, &mut back)
        })?;
        let mut raw_graph = raw.end(raw.begin()?)?;
        table.row(
            "graph launch, 2 pinned memories",
            DIRECT,
            Limit::Adds(PER_GRAPH),
            // SAFETY: as above.
            || drop(black_box(unsafe { graph.launch(&stream) })),
            || {
                // SAFETY: as above.
                let done = unsafe { raw.launch(&mut *raw_graph, &*raw_stream) };
                drop(black_box(done));
                record();
                record();
            },
        );
    }
    let Some(unified) = device.unified_memory() else { return Ok(()) };
    let mut shown = unified.allocate::<f64>(1024)?;
    table.row(
        "fill, unified memory",
        DIRECT,
        Limit::Adds(PER_OPERATION + PER_MARK),
        || drop(black_box(shown.view_mut().fill(&stream, 1.0_f64))),
        || {
            // SAFETY: as above.
            drop(black_box(unsafe { raw_stream.memory_fill(raw_at, 8192, &[0; 8]) }));
            record();
        },
    );
    table.row(
        "as_slice, unified memory",
        DIRECT,
        Limit::Adds(PER_OPERATION + PER_MARK),
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
                DIRECT,
                Limit::Adds(PER_LAUNCH + PER_ARGUMENT * f64::from(u32::try_from(count).unwrap_or(0))),
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

    let Some(unified) = device.unified_memory() else { return Ok(()) };
    let shown = (0..4).map(|_| unified.allocate::<f64>(1024)).collect::<Result<Vec<_>>>()?;
    let view = |index: usize| shown[index].view();
    let (kernel, raw_kernel) = (module.kernel("aaaa")?, raw_module.kernel("aaaa")?);
    let events =
        (0..4).map(|_| raw.event_create(&EventOptions::default())).collect::<Result<Vec<_>>>()?;
    table.row(
        "launch, 4 arguments, unified",
        DIRECT,
        Limit::Adds(PER_LAUNCH + 4.0 * (PER_ARGUMENT + PER_MARK)),
        || {
            let args = args![view(0), view(1), view(2), view(3)];
            // SAFETY: as above.
            drop(black_box(unsafe { kernel.launch(&stream, &launch, args) }));
        },
        || {
            let args = [(); 4].map(|()| argument(&*raw_memory));
            // SAFETY: as above.
            drop(black_box(unsafe { raw_stream.launch(&*raw_kernel, &launch, &args) }));
            events.iter().for_each(|event| drop(black_box(raw_stream.record(&**event))));
        },
    );
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
        DIRECT,
        Limit::Adds(PER_PLAN),
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
