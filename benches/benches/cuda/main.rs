//! The CUDA backend against calls of the driver written by hand in the same context: copies, allocations, launches,
//! region copies, array accesses and a whole loop of diffusion.
//!
//! Both sides run in turns, and every timed call ends when the device is done, but for those that show what enqueueing
//! costs the host. The rival checks and remembers nothing.

mod raw;

use std::ffi::c_void;
use std::hint::black_box;
use std::mem::swap;
use std::process::ExitCode;
use std::ptr::from_mut;
use std::sync::RwLock;

use array_buffer::ArrayBuffer;
use backend_cuda::CudaDriver;
use benches::{Bench, Rival};
use runtime_core::{
    Combine, DType, Device, Driver, ErrorKind, ImageFormat, Launch, Memory, ModuleImage,
    RegionCopy, RegionSide, Result, Slot, args, bytemuck,
};

use crate::raw::{Address, Raw};

/// Copies of many bytes: a share of the rival's bandwidth.
const BANDWIDTH: f64 = 0.98;
/// Small copies and launches: a tenth more time at most.
const LATENCY: f64 = 1.0 / 1.1;
/// Contiguous region copies, as a share of the driver's copies within the device.
const CONTIGUOUS: f64 = 0.8;
/// Strided ones, against a copy of all the sectors that they touch.
const SECTORS: f64 = 1.0 / 1.5;
/// Loops of kernels.
const WITHIN: f64 = 1.0 / 1.05;
/// No target: a figure for the report.
const TOLD: f64 = 0.0;

/// Bytes that memory moves at once.
const SECTOR: usize = 32;

/// The demo's kernel, and one that does nothing.
const DIFFUSION: &str = include_str!("../../../crates/runtime/examples/terrain/diffusion.ptx");
const NOTHING: &str = "
.version 8.0
.target sm_60
.address_size 64
.visible .entry nothing(
    .param .u64 .ptr .global nothing_a, .param .u64 .ptr .global nothing_b, .param .u64 nothing_n, .param .f32 nothing_x
) { ret; }
";

fn main() -> Result<ExitCode> {
    let mut bench = Bench::from_args();
    let device = match CudaDriver::new().open(&"cuda:0".parse()?) {
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            println!("cuda: left out: {error}");
            return Ok(ExitCode::SUCCESS);
        }
        device => device?,
    };
    println!("cuda: {}, {}", device.info().name, device.info().driver_version);
    let raw = Raw::new().expect("a stream in the device's context");
    copies(&mut bench, &device, &raw)?;
    allocations(&mut bench, &device, &raw)?;
    launches(&mut bench, &device, &raw)?;
    contiguous(&mut bench, &device, &raw)?;
    faces(&mut bench, &device, &raw)?;
    boxes(&mut bench, &device, &raw)?;
    arrays(&mut bench, &device)?;
    diffusion(&mut bench, &device, &raw)?;
    Ok(bench.finish())
}

/// Page-locked memory to the device and back.
fn copies(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("pinned copies") {
        return Ok(());
    }
    let stream = device.default_stream();
    let sizes = [4, 64, 1 << 10, 64 << 10];
    let sizes = if bench.is_quick() { &sizes[..1] } else { &sizes[..] };
    for &kib in sizes {
        let bytes = kib << 10;
        let target = if kib == 4 { LATENCY } else { BANDWIDTH };
        let data: Vec<u8> = (0..=250).cycle().take(bytes).collect();
        let mut memory = device.memory_allocate::<u8>(bytes)?;
        let address = raw.memory(bytes).expect("memory");
        let mut pinned = device.pinned_allocate::<u8>(bytes)?;
        pinned.as_mut_slice()?.copy_from_slice(&data);
        let theirs = raw.pinned(bytes).expect("pinned memory");
        theirs.copy_from_slice(&data);
        bench.compare(
            format!("to the device, {kib} KiB"),
            bytes as u64,
            &mut || {
                memory.view_mut().copy_from_pinned(&stream, &pinned).expect("a copy");
                stream.synchronize().expect("a copy");
            },
            &mut [Rival {
                name: "driver",
                target,
                run: &mut || raw.upload(address, theirs).expect("a copy"),
            }],
        );
        bench.compare(
            format!("from the device, {kib} KiB"),
            bytes as u64,
            &mut || {
                memory.view().copy_to_pinned(&stream, &mut pinned).expect("a copy");
                stream.synchronize().expect("a copy");
            },
            &mut [Rival {
                name: "driver",
                target,
                run: &mut || raw.download(theirs, address).expect("a copy"),
            }],
        );
        assert!(pinned.as_slice()? == data && *theirs == data, "both sides copy all of it");
    }
    Ok(())
}

/// Memory taken from the pool and given back, a hundred times, without waiting for the device.
fn allocations(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("allocations") {
        return Ok(());
    }
    const TIMES: u32 = 100;
    for kib in [4, 1 << 10] {
        bench.compare_within(
            format!("{TIMES} allocations and frees, {kib} KiB"),
            // Two microseconds each.
            f64::from(TIMES) * 2e-6,
            &mut || {
                for _ in 0..TIMES {
                    drop(black_box(device.memory_allocate::<u8>(kib << 10).expect("memory")));
                }
            },
            Rival {
                name: "driver + 2 us",
                target: 1.0,
                run: &mut || {
                    for _ in 0..TIMES {
                        raw.allocate_and_free(kib << 10).expect("memory");
                    }
                },
            },
        );
        device.synchronize()?;
        raw.finish().expect("frees");
    }
    Ok(())
}

/// Kernels that do nothing: one and the wait for it, and a hundred and the wait for them.
fn launches(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("launches") {
        return Ok(());
    }
    let stream = device.default_stream();
    let module = device.module_load(ModuleImage::source(ImageFormat::Ptx, NOTHING))?;
    let launch = Launch::cover(64, 64);
    let (mut a, b) = (device.memory_allocate::<u32>(64)?, device.memory_allocate::<u32>(64)?);
    let (mut raw_a, mut raw_b) =
        (raw.memory(256).expect("memory"), raw.memory(256).expect("memory"));
    let ours = module.kernel("nothing")?;
    let theirs = raw.kernel(NOTHING, "nothing").expect("a kernel");
    for count in [1, 100] {
        bench.compare(
            format!("{count} with four arguments"),
            0,
            &mut || {
                for _ in 0..count {
                    let args = args![&mut a, &b, 64_u64, 0.5_f32];
                    // SAFETY: the kernel does nothing.
                    unsafe { ours.launch(&stream, &launch, args) }.expect("a launch");
                }
                stream.synchronize().expect("launches");
            },
            &mut [Rival {
                name: "driver",
                target: LATENCY,
                run: &mut || {
                    let (mut n, mut x) = (64_u64, 0.5_f32);
                    for _ in 0..count {
                        let mut arguments = [
                            pointer(&mut raw_a),
                            pointer(&mut raw_b),
                            pointer(&mut n),
                            pointer(&mut x),
                        ];
                        // SAFETY: the kernel does nothing.
                        unsafe { raw.launch(theirs, &launch, &mut arguments) }.expect("a launch");
                    }
                    raw.finish().expect("launches");
                },
            }],
        );
    }
    Ok(())
}

fn pointer<T>(value: &mut T) -> *mut c_void {
    from_mut(value).cast()
}

/// One side of a region copy of `f64`; strides are in elements.
fn side(slot: usize, offset: usize, strides: &[usize]) -> RegionSide {
    let bytes = |elements: usize| elements * size_of::<f64>();
    let strides = strides.iter().map(|stride| bytes(*stride).cast_signed()).collect();
    RegionSide { slot, offset: bytes(offset), strides }
}

fn region(extents: Vec<usize>, source: RegionSide, destination: RegionSide) -> RegionCopy {
    let (negate, combine) = (false, Combine::Replace);
    RegionCopy { dtype: DType::F64, extents, source, destination, negate, combine }
}

/// Region copies of what lies in one piece.
fn contiguous(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("contiguous region copies") {
        return Ok(());
    }
    let stream = device.default_stream();
    let sizes = if bench.is_quick() { &[1 << 10][..] } else { &[128 << 10, 1 << 20, 8 << 20] };
    for &elements in sizes {
        let bytes = elements * size_of::<f64>();
        let from = device.memory_from_slice(&stream, &vec![1.0_f64; elements])?;
        let mut to = device.memory_from_slice(&stream, &vec![0.0_f64; elements])?;
        let addresses = [raw.memory(bytes).expect("memory"), raw.memory(bytes).expect("memory")];
        let plan =
            device.plan_regions(&[region(vec![elements], side(0, 0, &[1]), side(1, 0, &[1]))])?;
        bench.compare(
            format!("{} KiB", bytes >> 10),
            bytes as u64,
            &mut || {
                let mut slots = [Slot::Read(from.view()), Slot::Write(to.view_mut())];
                plan.execute(&stream, &mut slots).expect("a copy");
                stream.synchronize().expect("a copy");
            },
            &mut [Rival {
                name: "driver",
                target: CONTIGUOUS,
                run: &mut || raw.copy(addresses[1], addresses[0], bytes).expect("a copy"),
            }],
        );
        assert!(to.to_vec(&stream)?.iter().all(|value| *value == 1.0), "all of it is copied");
    }
    Ok(())
}

/// Width of halos, and cells along each edge of the fields.
const HALO: usize = 3;

/// Faces of a field, packed: against a copy within the device that moves as many sectors.
fn faces(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("packed faces") {
        return Ok(());
    }
    let stream = device.default_stream();
    let edge = if bench.is_quick() { 32 } else { 512 };
    let cells = edge * edge * edge;
    let field = device.memory_from_slice(&stream, &vec![2.0_f64; cells])?;
    let packed_cells = edge * edge * HALO;
    let mut packed = device.memory_from_slice(&stream, &vec![0.0_f64; packed_cells])?;
    let strides = [edge * edge, edge, 1];
    for (name, fast) in
        [("slowest dimension", 0), ("middle dimension", 1), ("fastest dimension", 2)]
    {
        let mut extents = vec![edge; 3];
        extents[fast] = HALO;
        let dense = [extents[1] * extents[2], extents[2], 1];
        let plan =
            device.plan_regions(&[region(extents, side(0, 0, &strides), side(1, 0, &dense))])?;
        // Rows begin at multiples of a sector. Of those that are read, a row has a part; all that is written is dense.
        let rows = packed_cells / HALO;
        let read = match fast {
            2 => rows * (HALO * size_of::<f64>()).next_multiple_of(SECTOR),
            _ => packed_cells * size_of::<f64>(),
        };
        let written = (packed_cells * size_of::<f64>()).next_multiple_of(SECTOR);
        let bytes = usize::midpoint(read, written);
        let addresses = [raw.memory(bytes).expect("memory"), raw.memory(bytes).expect("memory")];
        bench.compare(
            format!("{HALO} wide of {edge}³ f64, {name}"),
            plan.bytes(),
            &mut || {
                let mut slots = [Slot::Read(field.view()), Slot::Write(packed.view_mut())];
                plan.execute(&stream, &mut slots).expect("a face");
                stream.synchronize().expect("a face");
            },
            &mut [Rival {
                name: "sectors",
                target: SECTORS,
                run: &mut || raw.copy(addresses[1], addresses[0], bytes).expect("a copy"),
            }],
        );
        assert!(packed.to_vec(&stream)?.iter().all(|value| *value == 2.0), "all of it is packed");
        packed.fill(&stream, 0.0_f64)?;
    }
    Ok(())
}

/// All 26 neighbours' regions of eight fields, in one launch.
fn boxes(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("packed halos of eight fields") {
        return Ok(());
    }
    const FIELDS: usize = 8;
    let stream = device.default_stream();
    let edge = if bench.is_quick() { 16 } else { 128 };
    let fields: Vec<Memory<f64>> = (0..FIELDS)
        .map(|_| device.memory_from_slice(&stream, &vec![3.0_f64; edge * edge * edge]))
        .collect::<Result<_>>()?;
    let strides = [edge * edge, edge, 1];
    let (mut entries, mut filled) = (Vec::new(), 0);
    for slot in 0..FIELDS {
        for neighbour in (0..27).filter(|neighbour| *neighbour != 13) {
            let at = [neighbour / 9, neighbour / 3 % 3, neighbour % 3];
            let extents: Vec<usize> =
                at.iter().map(|a| if *a == 1 { edge } else { HALO }).collect();
            let starts = at.map(|a| if a == 2 { edge - HALO } else { 0 });
            let offset = starts.iter().zip(strides).map(|(start, stride)| start * stride).sum();
            let dense = [extents[1] * extents[2], extents[2], 1];
            let cells: usize = extents.iter().product();
            entries.push(region(
                extents,
                side(slot, offset, &strides),
                side(FIELDS, filled, &dense),
            ));
            filled += cells;
        }
    }
    let mut packed = device.memory_from_slice(&stream, &vec![0.0_f64; filled])?;
    let plan = device.plan_regions(&entries)?;
    assert_eq!(plan.launches(), 1, "all regions of all fields go in one launch");
    let bytes = filled * size_of::<f64>();
    let addresses = [raw.memory(bytes).expect("memory"), raw.memory(bytes).expect("memory")];
    bench.compare(
        format!("{FIELDS} fields of {edge}³ f64, {HALO} wide, 26 regions each"),
        plan.bytes(),
        &mut || {
            let mut slots: Vec<Slot<'_>> = fields.iter().map(|f| Slot::Read(f.view())).collect();
            slots.push(Slot::Write(packed.view_mut()));
            plan.execute(&stream, &mut slots).expect("a halo");
            stream.synchronize().expect("a halo");
        },
        &mut [Rival {
            name: "dense copy",
            target: TOLD,
            run: &mut || raw.copy(addresses[1], addresses[0], bytes).expect("a copy"),
        }],
    );
    assert!(packed.to_vec(&stream)?.iter().all(|value| *value == 3.0), "all of it is packed");
    Ok(())
}

/// An access to values that are on the device already: no call of the driver.
fn arrays(bench: &mut Bench, device: &Device) -> Result<()> {
    if !bench.group("arrays") {
        return Ok(());
    }
    let stream = device.default_stream();
    let array = ArrayBuffer::from_vec(vec![0.0_f64; 64], 64)?;
    drop(array.read(&stream)?);
    let lock = RwLock::new(());
    bench.compare(
        "read of what is there",
        0,
        &mut || drop(black_box(array.read(&stream))),
        &mut [Rival { name: "RwLock", target: 1.0, run: &mut || drop(black_box(lock.read())) }],
    );
    Ok(())
}

/// Steps between two waits: an even number, which leaves the result where the start was.
const STEPS: u32 = 20;

/// The demo's loop, two grids that take turns.
fn diffusion(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("diffusion") {
        return Ok(());
    }
    let stream = device.default_stream();
    let module = device.module_load(ModuleImage::source(ImageFormat::Ptx, DIFFUSION))?;
    let ours = module.kernel("diffuse")?;
    let theirs = raw.kernel(DIFFUSION, "diffuse").expect("a kernel");
    let sides = if bench.is_quick() { &[64_u32][..] } else { &[256, 1024, 4096] };
    for &side in sides {
        let heights: Vec<f64> = (0..side * side).map(|i| f64::from(i % 977)).collect();
        let bytes = size_of_val(heights.as_slice());
        let launch = Launch::cover_2d(side as usize, side as usize, [32, 8]);
        // All of the grid from its first element on, without cells beyond its sides.
        let mut numbers = [0, 0, u64::from(side), u64::from(side), u64::from(side), 0];
        let (mut ax, mut ay) = (0.07_f64, 0.05_f64);
        let ([none, _, edge, ..], ax_there, ay_there) = (numbers, ax, ay);
        let step_ours = |z: &mut Memory<f64>, next: &mut Memory<f64>| {
            for _ in 0..STEPS {
                let (a, b) = (ax_there, ay_there);
                let args = args![&mut *next, &*z, none, none, edge, edge, edge, none, a, b];
                // SAFETY: the kernel writes its first argument, within the extents that both have.
                unsafe { ours.launch(&stream, &launch, args) }.expect("a step");
                swap(z, next);
            }
            stream.synchronize().expect("steps");
        };
        let mut step_theirs = |z: &mut Address, next: &mut Address| {
            for _ in 0..STEPS {
                let [a, b, c, d, e, f] = &mut numbers;
                let mut arguments = [
                    pointer(next),
                    pointer(z),
                    pointer(a),
                    pointer(b),
                    pointer(c),
                    pointer(d),
                    pointer(e),
                    pointer(f),
                    pointer(&mut ax),
                    pointer(&mut ay),
                ];
                // SAFETY: as above.
                unsafe { raw.launch(theirs, &launch, &mut arguments) }.expect("a step");
                swap(z, next);
            }
            raw.finish().expect("steps");
        };
        let mut z = device.memory_from_slice(&stream, &heights)?;
        let mut next = device.memory_allocate(heights.len())?;
        let (mut raw_z, mut raw_next) =
            (raw.memory(bytes).expect("memory"), raw.memory(bytes).expect("memory"));
        let pinned = raw.pinned(bytes).expect("pinned memory");
        pinned.copy_from_slice(bytemuck::cast_slice(&heights));
        raw.upload(raw_z, pinned).expect("a copy");
        bench.compare(
            format!("{STEPS} steps of {side}² f64"),
            2 * bytes as u64 * u64::from(STEPS),
            &mut || step_ours(&mut z, &mut next),
            &mut [Rival {
                name: "driver",
                target: WITHIN,
                run: &mut || step_theirs(&mut raw_z, &mut raw_next),
            }],
        );

        z.copy_from_slice(&stream, &heights)?;
        step_ours(&mut z, &mut next);
        raw.upload(raw_z, pinned).expect("a copy");
        step_theirs(&mut raw_z, &mut raw_next);
        raw.download(pinned, raw_z).expect("a copy");
        assert!(
            z.to_vec(&stream)? == bytemuck::cast_slice::<u8, f64>(pinned),
            "both compute the same"
        );
    }
    Ok(())
}
