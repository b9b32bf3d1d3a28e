//! The CUDA backend against hand-written driver calls in the same context: copies, allocations, launches, region
//! copies, array accesses, a whole diffusion loop, and stencils against a kernel written by hand.
//!
//! Both sides run in turns. Every timed call ends when the device is done, except for cases that measure the enqueueing
//! cost on the host. The rival checks and records nothing. Copies within the device come in series. Each copy uses a
//! place that is no longer in the device's cache, so the result measures the bandwidth of device memory and not
//! launches or the cache.

mod raw;

use std::ffi::c_void;
use std::hint::black_box;
use std::mem::swap;
use std::process::ExitCode;
use std::ptr::from_mut;
use std::sync::RwLock;
use std::time::{Duration, Instant};

use array_buffer::ArrayBuffer;
use backend_cuda::CudaBackend;
use benches::{Bench, Rival};
use runtime_core::{
    Backend, Combine, DType, Device, ErrorKind, ImageFormat, Launch, Memory, ModuleImage,
    RegionCopy, RegionSide, Result, Slot, args, bytemuck,
};
use stencil::{Boundary, Grid, In, Out, stencil};

use crate::raw::{Address, Raw};

/// Large copies: the minimum fraction of the rival's bandwidth.
const BANDWIDTH: f64 = 0.98;
/// Small copies and launches: at most a tenth more time.
const LATENCY: f64 = 1.0 / 1.1;
/// Contiguous region copies, relative to the driver's copies within the device.
const CONTIGUOUS: f64 = 0.75;
/// Strided region copies, relative to a copy of all the sectors that they access.
const SECTORS: f64 = 1.0 / 1.5;
/// Rows that are shorter than a transfer, likewise.
const SHORT_ROWS: f64 = 0.55;
/// Loops of kernels, and stencils relative to kernels written by hand.
const WITHIN: f64 = 1.0 / 1.05;
/// No target: the value is only reported.
const TOLD: f64 = 0.0;

/// The bytes that device memory transfers at once: two sectors of the cache.
const SECTOR: usize = 64;

/// The number of copies within the device between two waits.
fn copies_at_once(bench: &Bench) -> usize {
    if bench.is_quick() { 2 } else { 32 }
}

/// The demo's kernel, and one that does nothing.
const DIFFUSION: &str = include_str!("../../../crates/stand-in/tests/ptx/data/diffusion.ptx");
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
    let device = match CudaBackend::new().open(&"cuda:0".parse()?) {
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            println!("cuda: left out: {error}");
            return Ok(ExitCode::SUCCESS);
        }
        device => device?,
    };
    println!("cuda: {}, {}", device.info().name, device.info().driver_version);
    let raw = Raw::new().expect("a stream in the device's context");
    if !bench.is_quick() {
        bench.set_sample_time(Duration::from_millis(2));
        wake(&raw);
    }
    copies(&mut bench, &device, &raw)?;
    allocations(&mut bench, &device, &raw)?;
    launches(&mut bench, &device, &raw)?;
    contiguous(&mut bench, &device, &raw)?;
    faces(&mut bench, &device, &raw)?;
    boxes(&mut bench, &device, &raw)?;
    arrays(&mut bench, &device)?;
    diffusion(&mut bench, &device, &raw)?;
    stencils(&mut bench, &device, &raw)?;
    Ok(bench.finish())
}

/// Keeps the device busy until its clocks are at full speed.
fn wake(raw: &Raw) {
    const BYTES: usize = 256 << 20;
    let addresses = [raw.memory(BYTES).expect("memory"), raw.memory(BYTES).expect("memory")];
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        (0..32).for_each(|_| raw.copy(addresses[1], addresses[0], BYTES).expect("a copy"));
        raw.finish().expect("copies");
    }
}

/// Copies pinned memory to the device and back.
fn copies(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("pinned copies") {
        return Ok(());
    }
    let stream = device.default_stream();
    let sizes = [4, 64, 1 << 10, 64 << 10];
    let sizes = if bench.is_quick() { &sizes[..1] } else { &sizes[..] };
    for &kib in sizes {
        let bytes = kib << 10;
        let target = if kib < 64 << 10 { LATENCY } else { BANDWIDTH };
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

/// Memory allocated from the pool and freed, a hundred times, without waiting for the device.
fn allocations(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("allocations") {
        return Ok(());
    }
    const TIMES: u32 = 100;
    for kib in [4, 1 << 10] {
        bench.compare_within(
            format!("{TIMES} allocations and frees, {kib} KiB"),
            // Three microseconds for each: allocations are ready for every stream, and captures do not forbid them.
            f64::from(TIMES) * 3e-6,
            &mut || {
                for _ in 0..TIMES {
                    drop(black_box(device.memory_allocate::<u8>(kib << 10).expect("memory")));
                }
            },
            Rival {
                name: "driver + 3 us",
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

/// Kernels that do nothing: one and the wait for it, and a hundred and the wait for all of them.
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
    let mut launch_ours = || {
        let args = args![&mut a, &b, 64_u64, 0.5_f32];
        // SAFETY: the kernel does nothing.
        unsafe { ours.launch(&stream, &launch, args) }.expect("a launch");
    };
    let mut launch_theirs = || {
        let (mut n, mut x) = (64_u64, 0.5_f32);
        let mut arguments =
            [pointer(&mut raw_a), pointer(&mut raw_b), pointer(&mut n), pointer(&mut x)];
        // SAFETY: the kernel does nothing.
        unsafe { raw.launch(theirs, &launch, &mut arguments) }.expect("a launch");
    };
    let wait_ours = || stream.synchronize().expect("launches");
    let wait_theirs = || raw.finish().expect("launches");
    for count in [1, 100] {
        bench.compare(
            format!("{count} with four arguments"),
            0,
            &mut || {
                (0..count).for_each(|_| launch_ours());
                wait_ours();
            },
            &mut [Rival {
                name: "driver",
                target: LATENCY,
                run: &mut || {
                    (0..count).for_each(|_| launch_theirs());
                    wait_theirs();
                },
            }],
        );
    }
    bench.compare_timed(
        "enqueueing one with four arguments",
        0.0,
        &mut |calls| enqueueing(calls, &mut launch_ours, &wait_ours),
        ("driver", LATENCY, &mut |calls| enqueueing(calls, &mut launch_theirs, &wait_theirs)),
    );
    Ok(())
}

/// Runs this number of calls, and returns the seconds per call on the host. Waits do not count, and come before the
/// device's queue is full.
fn enqueueing(calls: u32, call: &mut dyn FnMut(), wait: &dyn Fn()) -> f64 {
    const MOST: u32 = 100;
    let (mut left, mut spent) = (calls, Duration::ZERO);
    while left > 0 {
        let batch = left.min(MOST);
        let begun = Instant::now();
        (0..batch).for_each(|_| call());
        spent += begun.elapsed();
        wait();
        left -= batch;
    }
    spent.as_secs_f64() / f64::from(calls)
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

/// Cycles through the places, without end.
fn turns(places: usize) -> impl FnMut() -> usize {
    let mut turns = (0..places).cycle();
    move || turns.next().unwrap_or(0)
}

/// The rival of region copies: the driver's copy, between two memories with space for this number of places.
fn dense_copies<'a>(
    raw: &'a Raw,
    copies: usize,
    bytes: usize,
    places: usize,
    source: &'a Memory<f64>,
) -> impl FnMut() + 'a {
    let whole = bytes * places;
    let [from, to] = [(); 2].map(|()| raw.memory(whole).expect("memory"));
    // Not zeros, which are cheaper to move.
    let known = source.native().map_or(0, |native| native.raw) as Address;
    let filled = whole.min(source.len() * size_of::<f64>());
    raw.copy(from, known, filled).expect("a copy");
    raw.finish().expect("a copy");
    let mut turn = turns(places);
    move || {
        for _ in 0..copies {
            let place = (turn() * bytes) as Address;
            raw.copy(to + place, from + place, bytes).expect("a copy");
        }
        raw.finish().expect("copies");
    }
}

/// The offset of a cell in a field with these strides. Cells are numbered in row-major order in a box with the strides
/// `dense`.
fn offset(cell: usize, dense: [usize; 3], strides: [usize; 3]) -> usize {
    dot([cell / dense[0], cell % dense[0] / dense[1], cell % dense[1]], strides)
}

fn dot(at: [usize; 3], strides: [usize; 3]) -> usize {
    at.iter().zip(strides).map(|(at, stride)| at * stride).sum()
}

/// Numbers that differ from cell to cell.
fn numbered(cells: usize) -> Vec<f64> {
    (0..cells).map(|cell| cell as f64).collect()
}

/// Region copies of contiguous memory.
fn contiguous(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("contiguous region copies") {
        return Ok(());
    }
    let stream = device.default_stream();
    let copies = copies_at_once(bench);
    let (sizes, all) = if bench.is_quick() {
        (&[1 << 10][..], 4 << 10)
    } else {
        (&[128 << 10, 1 << 20, 8 << 20][..], 32 << 20)
    };
    let numbers = numbered(all);
    let from = device.memory_from_slice(&stream, &numbers)?;
    let mut to = device.memory_allocate(all)?;
    for &elements in sizes {
        let (bytes, places) = (elements * size_of::<f64>(), all / elements);
        let plan =
            device.plan_regions(&[region(vec![elements], side(0, 0, &[1]), side(1, 0, &[1]))])?;
        let copy = |to: &mut Memory<f64>, place: usize| -> Result<()> {
            let range = place * elements..(place + 1) * elements;
            let from = from.view().slice(range.clone())?;
            let to = to.view_mut().slice(range)?;
            plan.execute(&stream, &mut [Slot::from(from), Slot::from(to)])
        };
        let mut turn = turns(places);
        bench.compare(
            format!("{copies} of {} KiB", bytes >> 10),
            (copies * bytes) as u64,
            &mut || {
                (0..copies).for_each(|_| copy(&mut to, turn()).expect("a copy"));
                stream.synchronize().expect("copies");
            },
            &mut [Rival {
                name: "driver",
                target: CONTIGUOUS,
                run: &mut dense_copies(raw, copies, bytes, places, &from),
            }],
        );
        to.fill(&stream, 0.0)?;
        (0..places).try_for_each(|place| copy(&mut to, place))?;
        assert!(to.to_vec(&stream)? == numbers, "all of it is copied");
    }
    Ok(())
}

/// The width of halos, and the cells along each edge of the fields.
const HALO: usize = 3;

/// Packing faces of a field, against a copy within the device that moves as many sectors.
fn faces(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("packed faces") {
        return Ok(());
    }
    let stream = device.default_stream();
    let copies = copies_at_once(bench);
    let edge = if bench.is_quick() { 32 } else { 512 };
    let numbers = numbered(edge * edge * edge);
    let field = device.memory_from_slice(&stream, &numbers)?;
    // Faces at the two nearest places share no cache line.
    const APART: usize = 16;
    let places = edge / APART;
    let cells = edge * edge * HALO;
    let mut packed = device.memory_allocate::<f64>(places * cells)?;
    let strides = [edge * edge, edge, 1];
    for (name, thin) in
        [("slowest dimension", 0), ("middle dimension", 1), ("fastest dimension", 2)]
    {
        let mut extents = [edge; 3];
        extents[thin] = HALO;
        let dense = [extents[1] * extents[2], extents[2], 1];
        let plan = device.plan_regions(&[region(
            extents.to_vec(),
            side(0, 0, &strides),
            side(1, 0, &dense),
        )])?;
        let start = |place: usize| place * APART * strides[thin];
        let pack = |packed: &mut Memory<f64>, place: usize| -> Result<()> {
            let from = field.view().slice(start(place)..numbers.len())?;
            let to = packed.view_mut().slice(place * cells..(place + 1) * cells)?;
            plan.execute(&stream, &mut [Slot::from(from), Slot::from(to)])
        };
        // Faces start at sector boundaries. Sectors of a thin row are read only in part; all others are read fully.
        let read = match thin {
            2 => edge * edge * (HALO * size_of::<f64>()).next_multiple_of(SECTOR),
            _ => cells * size_of::<f64>(),
        };
        let bytes = usize::midpoint(read, cells * size_of::<f64>());
        let target = if thin == 2 { SHORT_ROWS } else { SECTORS };
        let mut turn = turns(places);
        bench.compare(
            format!("{copies} {HALO} wide of {edge}³ f64, {name}"),
            copies as u64 * plan.bytes(),
            &mut || {
                (0..copies).for_each(|_| pack(&mut packed, turn()).expect("a face"));
                stream.synchronize().expect("faces");
            },
            &mut [Rival {
                name: "sectors",
                target,
                run: &mut dense_copies(raw, copies, bytes, places, &field),
            }],
        );
        packed.fill(&stream, 0.0)?;
        (0..places).try_for_each(|place| pack(&mut packed, place))?;
        let found = packed.to_vec(&stream)?;
        for (place, face) in found.chunks_exact(cells).enumerate() {
            let is_packed = face.iter().enumerate().all(|(cell, value)| {
                *value == numbers[start(place) + offset(cell, dense, strides)]
            });
            assert!(is_packed, "face {place} is packed");
        }
    }
    Ok(())
}

/// The regions of all 26 neighbours, for eight fields, in one launch.
fn boxes(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("packed halos of eight fields") {
        return Ok(());
    }
    const FIELDS: usize = 8;
    let stream = device.default_stream();
    let copies = copies_at_once(bench);
    let edge = if bench.is_quick() { 16 } else { 128 };
    let numbers = numbered(edge * edge * edge);
    let fields: Vec<Memory<f64>> =
        (0..FIELDS).map(|_| device.memory_from_slice(&stream, &numbers)).collect::<Result<_>>()?;
    let strides = [edge * edge, edge, 1];
    // The packed elements, cell by cell.
    let (mut entries, mut expected) = (Vec::new(), Vec::new());
    for slot in 0..FIELDS {
        for neighbour in (0..27).filter(|neighbour| *neighbour != 13) {
            let at = [neighbour / 9, neighbour / 3 % 3, neighbour % 3];
            let extents: Vec<usize> =
                at.iter().map(|a| if *a == 1 { edge } else { HALO }).collect();
            let starts = at.map(|a| if a == 2 { edge - HALO } else { 0 });
            let start = dot(starts, strides);
            let dense = [extents[1] * extents[2], extents[2], 1];
            let (from, to) = (side(slot, start, &strides), side(FIELDS, expected.len(), &dense));
            let cells = extents.iter().product();
            expected.extend((0..cells).map(|cell| start + offset(cell, dense, strides)));
            entries.push(region(extents, from, to));
        }
    }
    let mut packed = device.memory_allocate::<f64>(expected.len())?;
    let plan = device.plan_regions(&entries)?;
    assert_eq!(plan.launches(), 1, "all regions of all fields go in one launch");
    let mut pack = || {
        let mut slots: Vec<Slot<'_>> = fields.iter().map(|f| Slot::from(f.view())).collect();
        slots.push(Slot::from(packed.view_mut()));
        plan.execute(&stream, &mut slots).expect("a halo");
    };
    bench.compare(
        format!("{copies} of {FIELDS} fields of {edge}³ f64, {HALO} wide, 26 regions each"),
        copies as u64 * plan.bytes(),
        &mut || {
            (0..copies).for_each(|_| pack());
            stream.synchronize().expect("halos");
        },
        &mut [Rival {
            name: "dense copies",
            target: TOLD,
            run: &mut dense_copies(raw, copies, expected.len() * size_of::<f64>(), 1, &fields[0]),
        }],
    );
    let found = packed.to_vec(&stream)?;
    assert!(found.iter().eq(expected.iter().map(|cell| &numbers[*cell])), "all of it is packed");
    Ok(())
}

/// Access to values that are already on the device makes no driver call.
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

/// The steps between two waits: an even number, so the result is in the first grid again.
const STEPS: u32 = 20;

/// The demo's loop with two alternating grids.
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
        // The whole grid from its first element, without cells beyond its sides.
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
        // The time of the smallest grid is that of the launches.
        let target = if side == sides[0] { LATENCY } else { WITHIN };
        bench.compare(
            format!("{STEPS} steps of {side}² f64"),
            2 * bytes as u64 * u64::from(STEPS),
            &mut || step_ours(&mut z, &mut next),
            &mut [Rival {
                name: "driver",
                target,
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

#[stencil]
fn seven_point(next: Out<f64, 3>, t: In<f64, 3>, a: f64) {
    let across = t.at(-1, 0, 0) + t.at(1, 0, 0) + t.at(0, -1, 0) + t.at(0, 1, 0);
    let around = across + t.at(0, 0, -1) + t.at(0, 0, 1);
    next.set(t.at(0, 0, 0) + a * (around - 6.0 * t.at(0, 0, 0)));
}

/// The same step of a cube with one ghost on each side, as a program for this one kernel has it.
const SEVEN_POINT: &str = r#"
extern "C" __global__ void seven_point(double *next, const double *t, unsigned cells, unsigned pitch, double a)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= cells || y >= cells || z >= cells)
        return;
    unsigned long long plane = (unsigned long long)pitch * pitch;
    unsigned long long at = (z + 1) * plane + (y + 1) * pitch + x + 1;
    const double *here = t + at;
    double across = *(here - plane) + here[plane] + *(here - pitch) + here[pitch];
    double around = across + here[-1] + here[1];
    next[at] = *here + a * (around - 6.0 * *here);
}
"#;

/// A stencil whose ghosts are fresh against a kernel written by hand, and against copies within the device that move as
/// many bytes.
fn stencils(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("stencils") {
        return Ok(());
    }
    if !device.info().formats.contains(&ImageFormat::CudaC) {
        println!("stencils: left out: no NVRTC");
        return Ok(());
    }
    let image = ModuleImage::source(ImageFormat::CudaC, SEVEN_POINT);
    let module = device.module_load(image.with_options(["--fmad=false"]))?;
    let by_hand = module.kernel("seven_point")?;
    let stream = device.default_stream();
    let sides = if bench.is_quick() { &[16_usize][..] } else { &[64, 512] };
    for &side in sides {
        let value = |at: [usize; 3]| ((at[0] * 31 + at[1] * 17 + at[2]) % 977) as f64;
        let grid = Grid::cartesian([side; 3]).build(device)?;
        let t = grid.field("t").boundary(Boundary::Clamp).from_fn(value)?;
        let mut next = t.like("next")?;
        let pitch = side + 2;
        let inner = |at: usize| (at.max(1) - 1).min(side - 1);
        let ghosted: Vec<f64> = (0..pitch.pow(3))
            .map(|at| value([at / (pitch * pitch), at / pitch % pitch, at % pitch].map(inner)))
            .collect();
        let plain_t = device.memory_from_slice(&stream, &ghosted)?;
        let mut plain_next = device.memory_from_slice(&stream, &ghosted)?;
        let numbers = [side, pitch].map(|number| u32::try_from(number).expect("a small number"));
        let [cells, _] = numbers;
        let launch = Launch::new([cells.div_ceil(64), cells.div_ceil(4), cells], [64, 4, 1]);
        let bytes = 2 * side.pow(3) * size_of::<f64>();
        let title = format!("{STEPS} launches, {side}³ f64, seven points");
        let mut ours = || {
            for _ in 0..STEPS {
                seven_point(&mut next, &t, 0.1).run(&stream).expect("a launch");
            }
            stream.synchronize().expect("launches");
        };
        let mut theirs = || {
            for _ in 0..STEPS {
                let [cells, pitch] = numbers;
                let args = args![&mut plain_next, &plain_t, cells, pitch, 0.1_f64];
                // SAFETY: the kernel writes the inner cells of its first argument, and reads the second.
                unsafe { by_hand.launch(&stream, &launch, args) }.expect("a launch");
            }
            stream.synchronize().expect("launches");
        };
        if side == sides[0] {
            // The time of the smallest grid is that of the launches: one microsecond more for each.
            let (name, target) = ("kernel by hand + 1 us", 1.0);
            let rival = Rival { name, target, run: &mut theirs };
            bench.compare_within(title, f64::from(STEPS) * 1e-6, &mut ours, rival);
        } else {
            let mut copies = dense_copies(raw, STEPS as usize, bytes / 2, 1, &plain_t);
            let rivals = &mut [
                Rival { name: "kernel by hand", target: WITHIN, run: &mut theirs },
                Rival { name: "copies", target: TOLD, run: &mut copies },
            ];
            bench.compare(title, bytes as u64 * u64::from(STEPS), &mut ours, rivals);
        }
        let by_hand = plain_next.to_vec(&stream)?;
        let values = next.read_host()?;
        let differs = values.indexed_iter().find(|(at, value)| {
            let ghosted = [at[0] + 1, at[1] + 1, at[2] + 1];
            by_hand[dot(ghosted, [pitch * pitch, pitch, 1])] != **value
        });
        assert!(differs.is_none(), "both compute the same: {differs:?}");
    }
    Ok(())
}
