//! The OpenCL backend against hand-written opencl3 calls for the same work on the same device: copies, launches, region
//! copies and a whole diffusion loop. A stencil is compared with a kernel by hand, launched on the same stream.
//!
//! Both sides run in turns, and every timed call ends when the device is done. The calls of opencl3 have their own
//! in-order queue, which records times like a stream's queue. They check and store nothing.

mod raw;

use std::mem::swap;
use std::process::ExitCode;

use backend_opencl::{OpenClBackend, OpenClDevice};
use benches::{Bench, Rival};
use opencl3::memory::Buffer;
use runtime_core::{
    Backend, Combine, DType, Device, ErrorKind, ImageFormat, Launch, Memory, ModuleImage,
    RegionCopy, RegionSide, Result, Slot, args, bytemuck,
};
use stencil::{Boundary, Grid, In, Out, stencil};

use crate::raw::{Raw, Rect, set_args};

/// The minimum speed of copies, launches and loops, relative to the rival.
const WITHIN: f64 = 1.0 / 1.05;
/// Region copies must be faster.
const FASTER: f64 = 1.0;

/// The demo's kernel, and one that does nothing.
const DIFFUSION: &str = include_str!("diffusion.cl");
const NOTHING: &str =
    "kernel void nothing(global uint *a, global const uint *b, ulong n, float x) {}";

fn main() -> Result<ExitCode> {
    let mut bench = Bench::from_args();
    let device = match OpenClBackend::new().open(&"opencl:0".parse()?) {
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            println!("opencl: left out: {error}");
            return Ok(ExitCode::SUCCESS);
        }
        device => device?,
    };
    println!("opencl: {}, {}", device.info().name, device.info().driver_version);
    let backend = device.backend::<OpenClDevice>().expect("an OpenCL device");
    let raw = Raw::beside(backend).expect("a queue on the device");
    copies(&mut bench, &device, &raw)?;
    launches(&mut bench, &device, &raw)?;
    halos(&mut bench, &device, &raw)?;
    diffusion(&mut bench, &device, &raw)?;
    stencils(&mut bench, &device)?;
    Ok(bench.finish())
}

/// Host to device and back, from ordinary memory and from pinned memory.
fn copies(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("copies") {
        return Ok(());
    }
    let stream = device.default_stream();
    let sizes = [64, 256, 1024, 16 << 10, 64 << 10];
    let sizes = if bench.is_quick() { &sizes[..1] } else { &sizes[..] };
    for &kib in sizes {
        let bytes = kib << 10;
        let data: Vec<u8> = (0..=250).cycle().take(bytes).collect();
        let mut memory = device.memory_from_slice(&stream, &data)?;
        let mut buffer = raw.buffer(bytes).expect("a buffer");
        bench.compare(
            format!("to the device, {kib} KiB"),
            bytes as u64,
            &mut || {
                memory.copy_from_slice(&stream, &data).expect("a copy");
                stream.synchronize().expect("a copy");
            },
            &mut [Rival {
                name: "write",
                target: WITHIN,
                run: &mut || {
                    raw.write(&mut buffer, &data).expect("a copy");
                    raw.finish().expect("a copy");
                },
            }],
        );
        let (mut ours, mut theirs) = (vec![0; bytes], vec![0; bytes]);
        bench.compare(
            format!("from the device, {kib} KiB"),
            bytes as u64,
            &mut || memory.view().copy_to_slice(&stream, &mut ours).expect("a copy"),
            &mut [Rival {
                name: "read",
                target: WITHIN,
                run: &mut || raw.read(&buffer, &mut theirs).expect("a copy"),
            }],
        );
        assert!(ours == data && theirs == data, "both sides copy all of it");

        let mut pinned = device.pinned_allocate::<u8>(bytes)?;
        pinned.as_mut_slice()?.copy_from_slice(&data);
        let mut mapped = raw.mapped(bytes).expect("mapped memory");
        mapped.as_mut_slice().copy_from_slice(&data);
        bench.compare(
            format!("pinned, to the device, {kib} KiB"),
            bytes as u64,
            &mut || {
                memory.view_mut().copy_from_pinned(&stream, &pinned).expect("a copy");
                stream.synchronize().expect("a copy");
            },
            &mut [Rival {
                name: "write",
                target: WITHIN,
                run: &mut || raw.write_mapped(&mut buffer, &mut mapped).expect("a copy"),
            }],
        );
        bench.compare(
            format!("pinned, from the device, {kib} KiB"),
            bytes as u64,
            &mut || {
                memory.view().copy_to_pinned(&stream, &mut pinned).expect("a copy");
                stream.synchronize().expect("a copy");
            },
            &mut [Rival {
                name: "read",
                target: WITHIN,
                run: &mut || raw.read_mapped(&buffer, &mut mapped).expect("a copy"),
            }],
        );
        assert!(pinned.as_slice()? == data && mapped.as_mut_slice() == data, "likewise");
    }
    Ok(())
}

/// Kernels that do nothing: one and the wait for it, and a hundred and the wait for all of them.
fn launches(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("launches") {
        return Ok(());
    }
    let stream = device.default_stream();
    let module = device.module_load(ModuleImage::source(ImageFormat::OpenClC, NOTHING))?;
    let launch = Launch::cover(64, 64);
    let (mut a, b) = (device.memory_allocate::<u32>(64)?, device.memory_allocate::<u32>(64)?);
    let (raw_a, raw_b) = (raw.buffer(256).expect("a buffer"), raw.buffer(256).expect("a buffer"));
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
                name: "opencl3",
                target: WITHIN,
                run: &mut || {
                    for _ in 0..count {
                        set_args!(theirs, &raw_a, &raw_b, &64_u64, &0.5_f32);
                        // SAFETY: the kernel does nothing.
                        unsafe { raw.launch(&theirs, &launch) }.expect("a launch");
                    }
                    raw.finish().expect("launches");
                },
            }],
        );
    }
    Ok(())
}

/// The cells along each edge of the field, and the width of the ghost cells around it.
const EDGE: usize = 128;
const GHOSTS: usize = 3;
/// The bytes from row to row and from slice to slice of the field with its ghost cells.
const PITCH: [usize; 2] =
    [(EDGE + 2 * GHOSTS) * size_of::<f64>(), (EDGE + 2 * GHOSTS).pow(2) * size_of::<f64>()];

/// The six faces of the field. They are copied to the ghost cells on the opposite side, or each to the start of a
/// separate memory.
fn faces(packed: bool) -> Vec<Rect> {
    let face = |dim: usize, upper: bool| {
        let mut extents = [EDGE; 3];
        extents[dim] = GHOSTS;
        let (mut from, mut to) = ([GHOSTS; 3], [GHOSTS; 3]);
        (from[dim], to[dim]) = if upper { (EDGE, 0) } else { (GHOSTS, EDGE + GHOSTS) };
        let in_bytes = |[x, y, z]: [usize; 3]| [x * size_of::<f64>(), y, z];
        let region = in_bytes(extents);
        let (to, to_pitch) = match packed {
            true => ([0; 3], [region[0], region[0] * region[1]]),
            false => (in_bytes(to), PITCH),
        };
        Rect { from: in_bytes(from), to, region, from_pitch: PITCH, to_pitch }
    };
    (0..3).flat_map(|dim| [face(dim, false), face(dim, true)]).collect()
}

/// The same copy as an entry of a plan.
fn region(rect: &Rect, destination: usize) -> RegionCopy {
    let side = |slot, [x, y, z]: [usize; 3], [row, slice]: [usize; 2]| RegionSide {
        slot,
        offset: x + y * row + z * slice,
        strides: [slice, row, size_of::<f64>()].map(usize::cast_signed).to_vec(),
    };
    let [bytes, rows, slices] = rect.region;
    RegionCopy {
        dtype: DType::F64,
        extents: vec![slices, rows, bytes / size_of::<f64>()],
        source: side(0, rect.from, rect.from_pitch),
        destination: side(destination, rect.to, rect.to_pitch),
        negate: false,
        combine: Combine::Replace,
    }
}

/// The halo of a field in one plan, against one rectangular copy for each face.
fn halos(bench: &mut Bench, device: &Device, raw: &Raw) -> Result<()> {
    if !bench.group("halos") {
        return Ok(());
    }
    let stream = device.default_stream();
    let cells = (EDGE + 2 * GHOSTS).pow(3);
    let data: Vec<f64> = (0_u32..).take(cells).map(f64::from).collect();
    let field = device.memory_from_slice(&stream, &data)?;
    let mut raw_field = raw.buffer(field.bytes()).expect("a buffer");
    raw.write(&mut raw_field, bytemuck::cast_slice(&data)).expect("a copy");

    for (name, packed) in [("to ghost cells", false), ("packed", true)] {
        let rects = faces(packed);
        // When packed, every face has its own memory.
        let target = |index: usize| if packed { index } else { 0 };
        let lengths = if packed { vec![EDGE * EDGE * GHOSTS; rects.len()] } else { vec![cells] };
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for &length in &lengths {
            ours.push(device.memory_from_slice(&stream, &vec![0.0_f64; length])?);
            let mut buffer = raw.buffer(length * size_of::<f64>()).expect("a buffer");
            raw.write(&mut buffer, bytemuck::cast_slice(&vec![0.0_f64; length])).expect("a copy");
            theirs.push(buffer);
        }
        let entries: Vec<RegionCopy> =
            rects.iter().enumerate().map(|(index, rect)| region(rect, 1 + target(index))).collect();
        let plan = device.plan_regions(&entries)?;
        bench.compare(
            format!("{GHOSTS} wide, {EDGE}³ f64, {name}"),
            plan.bytes(),
            &mut || {
                let mut slots = vec![Slot::from(field.view())];
                slots.extend(ours.iter_mut().map(|memory| Slot::from(memory.view_mut())));
                plan.execute(&stream, &mut slots).expect("a halo");
                stream.synchronize().expect("a halo");
            },
            &mut [Rival {
                name: "rect",
                target: FASTER,
                run: &mut || {
                    for (index, rect) in rects.iter().enumerate() {
                        raw.copy_rect(&raw_field, &mut theirs[target(index)], rect)
                            .expect("a face");
                    }
                    raw.finish().expect("a halo");
                },
            }],
        );
        for (memory, buffer) in ours.iter().zip(&theirs) {
            let mut copied = vec![0.0_f64; memory.len()];
            raw.read(buffer, bytemuck::cast_slice_mut(&mut copied)).expect("a copy");
            assert!(memory.to_vec(&stream)? == copied, "both sides copy the same");
        }
    }
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
    let module = device.module_load(ModuleImage::source(ImageFormat::OpenClC, DIFFUSION))?;
    let ours = module.kernel("diffuse")?;
    let theirs = raw.kernel(DIFFUSION, "diffuse").expect("a kernel");
    let sides = if bench.is_quick() { &[64_u32][..] } else { &[256, 1024, 2048] };
    for &side in sides {
        let heights: Vec<f64> = (0..side * side).map(|i| f64::from(i % 977)).collect();
        let bytes = size_of_val(heights.as_slice());
        let launch = Launch::cover_2d(side as usize, side as usize, [32, 8]);
        // The whole grid from its first element, without cells beyond its sides.
        let (edge, ax, ay, none) = (u64::from(side), 0.07_f64, 0.05_f64, 0_u64);
        let step_ours = |z: &mut Memory<f64>, next: &mut Memory<f64>| {
            for _ in 0..STEPS {
                let args = args![&mut *next, &*z, none, none, edge, edge, edge, none, ax, ay];
                // SAFETY: the kernel writes its first argument, within the extents that both have.
                unsafe { ours.launch(&stream, &launch, args) }.expect("a step");
                swap(z, next);
            }
            stream.synchronize().expect("steps");
        };
        let step_theirs = |z: &mut Buffer<u8>, next: &mut Buffer<u8>| {
            for _ in 0..STEPS {
                set_args!(theirs, &*next, &*z, &none, &none, &edge, &edge, &edge, &none, &ax, &ay);
                // SAFETY: as above; the buffers live until the wait below.
                unsafe { raw.launch(&theirs, &launch) }.expect("a step");
                swap(z, next);
            }
            raw.finish().expect("steps");
        };
        let mut z = device.memory_from_slice(&stream, &heights)?;
        let mut next = device.memory_allocate(heights.len())?;
        let mut raw_z = raw.buffer(bytes).expect("a buffer");
        let mut raw_next = raw.buffer(bytes).expect("a buffer");
        raw.write(&mut raw_z, bytemuck::cast_slice(&heights)).expect("a copy");
        bench.compare(
            format!("{STEPS} steps of {side}² f64"),
            2 * bytes as u64 * u64::from(STEPS),
            &mut || step_ours(&mut z, &mut next),
            &mut [Rival {
                name: "opencl3",
                target: WITHIN,
                run: &mut || step_theirs(&mut raw_z, &mut raw_next),
            }],
        );

        z.copy_from_slice(&stream, &heights)?;
        step_ours(&mut z, &mut next);
        raw.write(&mut raw_z, bytemuck::cast_slice(&heights)).expect("a copy");
        step_theirs(&mut raw_z, &mut raw_next);
        let mut stepped = vec![0.0_f64; heights.len()];
        raw.read(&raw_z, bytemuck::cast_slice_mut(&mut stepped)).expect("a copy");
        assert!(z.to_vec(&stream)? == stepped, "both loops compute the same");
    }
    Ok(())
}

#[stencil]
fn five_point(next: Out<f64, 2>, t: In<f64, 2>, a: f64) {
    let around = t.at(-1, 0) + t.at(1, 0) + t.at(0, -1) + t.at(0, 1);
    next.set(t.at(0, 0) + a * (around - 4.0 * t.at(0, 0)));
}

/// The same by hand, for a square with a ghost around it.
const FIVE_POINT: &str = r"
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

kernel void five_point(global double *restrict next, global const double *restrict t, ulong cells, ulong pitch,
                       double a)
{
    size_t x = get_global_id(0), y = get_global_id(1);
    if (x >= cells || y >= cells)
        return;
    size_t at = (y + 1) * pitch + x + 1;
    double around = t[at - pitch] + t[at + pitch] + t[at - 1] + t[at + 1];
    next[at] = t[at] + a * (around - 4.0 * t[at]);
}
";

/// The option with which kernels of stencils are built.
const EXACT: &str = "-cl-fp32-correctly-rounded-divide-sqrt";

/// A stencil whose ghosts are fresh against a kernel written by hand.
fn stencils(bench: &mut Bench, device: &Device) -> Result<()> {
    if !bench.group("stencils") {
        return Ok(());
    }
    let image = ModuleImage::source(ImageFormat::OpenClC, FIVE_POINT).with_options([EXACT]);
    let by_hand = device.module_load(image)?.kernel("five_point")?;
    let stream = device.default_stream();
    let sides = if bench.is_quick() { &[64_usize][..] } else { &[256, 2048] };
    for &side in sides {
        let value = |[i, j]: [usize; 2]| ((i * 31 + j) % 977) as f64;
        let grid = Grid::cartesian([side; 2]).build(device)?;
        let t = grid.field("t").boundary(Boundary::Clamp).from_fn(value)?;
        let mut next = t.like("next")?;
        let pitch = side + 2;
        let inner = |at: usize| (at.max(1) - 1).min(side - 1);
        let ghosted: Vec<f64> =
            (0..pitch * pitch).map(|at| value([at / pitch, at % pitch].map(inner))).collect();
        let plain_t = device.memory_from_slice(&stream, &ghosted)?;
        let mut plain_next = device.memory_from_slice(&stream, &ghosted)?;
        // The blocks of the stencil.
        let launch = Launch::cover_2d(side, side, [64, 4]);
        bench.compare(
            format!("{STEPS} launches, {side}² f64, five points"),
            (2 * side * side * size_of::<f64>()) as u64 * u64::from(STEPS),
            &mut || {
                for _ in 0..STEPS {
                    five_point(&mut next, &t, 0.1).run(&stream).expect("a launch");
                }
                stream.synchronize().expect("launches");
            },
            &mut [Rival {
                name: "by hand",
                target: WITHIN,
                run: &mut || {
                    for _ in 0..STEPS {
                        let args =
                            args![&mut plain_next, &plain_t, side as u64, pitch as u64, 0.1_f64];
                        // SAFETY: the kernel writes the inner cells of its first argument, and reads the second.
                        unsafe { by_hand.launch(&stream, &launch, args) }.expect("a launch");
                    }
                    stream.synchronize().expect("launches");
                },
            }],
        );
        let by_hand = plain_next.to_vec(&stream)?;
        let inner = (1..=side).flat_map(|i| &by_hand[i * pitch + 1..][..side]);
        assert!(next.read_host()?.iter().eq(inner), "both compute the same");
    }
    Ok(())
}
