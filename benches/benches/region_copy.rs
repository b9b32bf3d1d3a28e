//! Region copies in host memory, against `copy_nonoverlapping` and `ndarray`'s `assign` of the same views; and emulated
//! region copies, against the same copies by hand and copies of the whole field.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use backend_sim::{SimConfig, SimDevice};
use benches::{Bench, Rival};
use ndarray::{Array, Array1, Array2, Array3, ArrayView, ArrayViewMut, Axis, Dimension, Slice, s};
use rayon::prelude::*;
use runtime_core::{
    Combine, Device, Element, HostSlot, RegionCopy, RegionProgram, RegionSide, Result,
};

/// A copy from one view to another, ready to run by both methods.
struct Case<'a, T, D: Dimension> {
    to: ArrayViewMut<'a, T, D>,
    from: ArrayView<'a, T, D>,
    program: RegionProgram,
    slots: [HostSlot; 2],
}

impl<'a, T: Element, D: Dimension> Case<'a, T, D> {
    /// `to` and `from` may have any strides; both views must have the same shape.
    fn new(mut to: ArrayViewMut<'a, T, D>, from: ArrayView<'a, T, D>) -> Self {
        assert_eq!(to.shape(), from.shape());
        let bytes = size_of::<T>().cast_signed();
        // Slots start at the lowest element.
        let side = |slot: usize, strides: &[isize]| {
            let strides: Vec<isize> = strides.iter().map(|stride| stride * bytes).collect();
            let below = from
                .shape()
                .iter()
                .zip(&strides)
                .map(|(extent, stride)| (extent - 1) * stride.min(&0).unsigned_abs());
            RegionSide { slot, offset: below.sum(), strides }
        };
        let (source, destination) = (side(0, from.strides()), side(1, to.strides()));
        let bases = [
            from.as_ptr().cast::<u8>().wrapping_sub(source.offset).cast_mut(),
            to.as_mut_ptr().cast::<u8>().wrapping_sub(destination.offset),
        ];
        let entry = RegionCopy {
            dtype: T::DTYPE,
            extents: from.shape().to_vec(),
            source,
            destination,
            negate: false,
            combine: Combine::Replace,
        };
        let program = RegionProgram::new(&[entry]).expect("views of arrays are sound regions");
        let slots =
            [0, 1].map(|slot| HostSlot { base: bases[slot], len: program.slots()[slot].bytes });
        Self { to, from, program, slots }
    }

    fn bytes(&self) -> u64 {
        self.program.bytes()
    }

    /// Compares both with one thread.
    fn compare(mut self, bench: &mut Bench, name: String, target: f64) {
        let (program, slots) = (&self.program, self.slots);
        let bytes = self.bytes();
        bench.compare(
            name,
            bytes,
            // SAFETY: the slots are the two views, which no other code uses during the call.
            &mut || unsafe { black_box(program).run(black_box(&slots)) },
            &mut [Rival {
                name: "ndarray",
                target,
                run: &mut || black_box(&mut self.to).assign(black_box(&self.from)),
            }],
        );
    }
}

/// How two axes of the source are rotated by the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Plain,
    Transposed,
    By90,
    By180,
    By270,
}

impl Turn {
    const ALL: [Self; 5] = [Self::Plain, Self::Transposed, Self::By90, Self::By180, Self::By270];

    fn apply<'a, T, D: Dimension>(
        self,
        mut view: ArrayView<'a, T, D>,
        [a, b]: [usize; 2],
    ) -> ArrayView<'a, T, D> {
        if matches!(self, Self::Transposed | Self::By90 | Self::By270) {
            view.swap_axes(a, b);
        }
        if matches!(self, Self::By90 | Self::By180) {
            view.invert_axis(Axis(a));
        }
        if matches!(self, Self::By270 | Self::By180) {
            view.invert_axis(Axis(b));
        }
        view
    }

    /// The source shape for the target shape `shape`.
    fn shape_before(self, mut shape: [usize; 3], [a, b]: [usize; 2]) -> [usize; 3] {
        if matches!(self, Self::Transposed | Self::By90 | Self::By270) {
            shape.swap(a, b);
        }
        shape
    }
}

/// An element type for the measurements.
trait Number: Element + From<u16> {}
impl Number for f32 {}
impl Number for f64 {}

/// An array of this shape with different numbers in it. All its pages have been written.
fn filled<T: Number, D: Dimension>(shape: impl ndarray::IntoDimension<Dim = D>) -> Array<T, D> {
    let mut next = 0_u16;
    Array::from_shape_simple_fn(shape.into_dimension(), || {
        next = next.wrapping_add(1);
        T::from(next)
    })
}

/// The box of size `shape` in a cube of edge `edge + 2 * width`: it begins at `start` along axes with extent `width`.
fn place(
    shape: [usize; 3],
    width: usize,
    start: usize,
) -> impl Fn(ndarray::AxisDescription) -> Slice {
    move |axis| {
        let extent = shape[axis.axis.index()];
        let first = if extent == width { start } else { width };
        Slice::from(first..first + extent)
    }
}

/// The faces of a cube, for each thin axis, rotated in each plane: packed, unpacked, and moved.
fn faces<T: Number>(bench: &mut Bench) {
    let edges: &[usize] = if bench.is_quick() { &[32] } else { &[32, 64, 128, 256] };
    for &edge in edges {
        if !bench.group(format!("faces {} {edge}^2", T::DTYPE)) {
            continue;
        }
        for width in [1, 3] {
            let cube: [usize; 3] = [edge + 2 * width; 3];
            let field: Array3<T> = filled(cube);
            let mut other: Array3<T> = filled(cube);
            let mut wire: Array1<T> = filled(edge * edge * width);
            for thin in 0..3 {
                let mut shape = [edge; 3];
                shape[thin] = width;
                for (turn, axes) in turns() {
                    let turned = turn.shape_before(shape, axes);
                    let name = format!("{width} wide, axis {thin}, {turn:?} {axes:?}");
                    let face = || field.slice_each_axis(|axis| place(shape, width, width)(axis));
                    let mut flat = wire.view_mut();
                    let to = flat.view_mut().into_shape_with_order(turned).expect("as many");
                    Case::new(to, turn.apply(face(), axes)).compare(
                        bench,
                        format!("pack {name}"),
                        0.95,
                    );
                    let to = other.slice_each_axis_mut(|axis| place(turned, width, 0)(axis));
                    Case::new(to, turn.apply(face(), axes)).compare(
                        bench,
                        format!("move {name}"),
                        0.95,
                    );
                    let from = wire.view().into_shape_with_order(turned).expect("as many");
                    let to = other.slice_each_axis_mut(|axis| place(shape, width, 0)(axis));
                    Case::new(to, turn.apply(from, axes)).compare(
                        bench,
                        format!("unpack {name}"),
                        0.95,
                    );
                }
            }
        }
    }
}

/// Every rotation in every plane of three axes.
fn turns() -> Vec<(Turn, [usize; 2])> {
    let mut turns = vec![(Turn::Plain, [0, 1])];
    for axes in [[0, 1], [0, 2], [1, 2]] {
        turns.extend(Turn::ALL[1..].iter().map(|turn| (*turn, axes)));
    }
    turns
}

/// Whole matrices and blocks of larger matrices, rotated.
fn matrices<T: Number>(bench: &mut Bench) {
    let edges = [32, 64, 100, 128, 256, 512, 1024, 2048, 4096];
    let edges = if bench.is_quick() { &edges[..3] } else { &edges[..] };
    for &edge in edges {
        if !bench.group(format!("matrices {} {edge}^2", T::DTYPE)) {
            continue;
        }
        for pad in [0, 5] {
            let from: Array2<T> = filled([edge + pad; 2]);
            let mut to: Array2<T> = filled([edge + pad; 2]);
            for turn in Turn::ALL {
                let turned = turn.apply(from.slice(s![..edge, ..edge]), [0, 1]);
                let target = match turn {
                    // Contiguous, so both make a plain copy.
                    Turn::Plain if pad == 0 => 0.9,
                    // Not rotations by 180°, which keep rows contiguous: memory limits both sides.
                    Turn::By90 | Turn::By270 if pad == 0 && edge >= 512 => 2.0,
                    _ => 0.95,
                };
                Case::new(to.slice_mut(s![..edge, ..edge]), turned).compare(
                    bench,
                    format!("{turn:?}, pitch {}", edge + pad),
                    target,
                );
            }
        }
    }
}

/// Contiguous memory against a plain copy.
fn contiguous(bench: &mut Bench) {
    if !bench.group("contiguous") {
        return;
    }
    let sizes = [64, 256, 1024, 16 << 10, 128 << 10];
    let sizes = if bench.is_quick() { &sizes[..2] } else { &sizes[..] };
    for &kib in sizes {
        let from: Array1<f64> = filled(kib * 128);
        let mut to: Array1<f64> = filled(kib * 128);
        let (raw_from, raw_to) = (from.as_ptr(), to.as_mut_ptr());
        let case = Case::new(to.view_mut(), from.view());
        let (program, slots) = (&case.program, case.slots);
        bench.compare(
            format!("{kib} KiB"),
            case.bytes(),
            // SAFETY: the slots are the two arrays, which no other code uses during the call.
            &mut || unsafe { black_box(program).run(black_box(&slots)) },
            &mut [Rival {
                name: "memcpy",
                target: 0.9,
                // SAFETY: as above, and both have the same number of elements.
                run: &mut || unsafe {
                    raw_to.copy_from_nonoverlapping(black_box(raw_from), black_box(kib * 128));
                },
            }],
        );
    }
}

/// Waits until two threads get two cores, at most `tries` times in total: with one core the measurement means nothing.
fn wait_for_cores(tries: &mut u32) {
    let work = || {
        (0..8_000_000_u64).fold(0_u64, |sum, n| black_box(sum.wrapping_mul(31) ^ n));
    };
    while *tries > 0 {
        let start = Instant::now();
        work();
        let alone = start.elapsed();
        let start = Instant::now();
        rayon::join(work, work);
        if start.elapsed().as_secs_f64() < 1.25 * alone.as_secs_f64() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
        *tries -= 1;
        if *tries == 0 {
            println!("  no second core is free, so that two threads may be no faster than one");
        }
    }
}

/// Rotated faces on two threads against one thread of `ndarray`.
fn threads<T: Number>(bench: &mut Bench) {
    if !bench.group(format!("two threads {}", T::DTYPE)) {
        return;
    }
    let (edge, width) = (if bench.is_quick() { 64 } else { 256 }, 3);
    let mut tries = if bench.is_quick() { 0 } else { 100 };
    let cube = [edge + 2 * width; 3];
    let field: Array3<T> = filled(cube);
    let mut wire: Array1<T> = filled(edge * edge * width);
    for thin in 0..3 {
        let mut shape = [edge; 3];
        shape[thin] = width;
        for (turn, axes) in turns() {
            if matches!(turn, Turn::Plain | Turn::Transposed) {
                continue;
            }
            let turned = turn.shape_before(shape, axes);
            let face = field.slice_each_axis(|axis| place(shape, width, width)(axis));
            let to = wire.view_mut().into_shape_with_order(turned).expect("as many");
            let mut case = Case::new(to, turn.apply(face, axes));
            let (program, slots) = (&case.program, case.slots);
            wait_for_cores(&mut tries);
            bench.compare(
                format!("axis {thin}, {turn:?} {axes:?}"),
                case.program.bytes(),
                &mut || {
                    for phase in 0..program.phases().len() {
                        (0..program.parts(phase)).into_par_iter().for_each(|part| {
                            // SAFETY: the slots are the two views, which no other code uses during the call; a phase
                            // ends before the next starts.
                            unsafe { program.run_part(phase, part, black_box(&slots)) };
                        });
                    }
                },
                &mut [Rival {
                    name: "ndarray",
                    target: 1.5,
                    run: &mut || black_box(&mut case.to).assign(black_box(&case.from)),
                }],
            );
        }
    }
}

/// The ghost columns of a field on a device without region copies, behind a slow link. A plan is compared with the same
/// batches by hand, in which each element is a copy from or to pinned memory, and with a copy of the whole field to the
/// host and back, during which no other work may use the field.
fn emulated(bench: &mut Bench) {
    const EDGE: usize = 512;
    if !bench.group(format!("ghost columns of {EDGE}^2 f64, emulated")) {
        return;
    }
    let config = SimConfig::new().jitter(Duration::ZERO).link(1 << 28).region_copies(false);
    let device = Device::new(SimDevice::new(0, config)).expect("a simulated device");
    let stream = device.default_stream();
    let row = (EDGE * 8).cast_signed();
    let copy = |from: usize, to: usize| {
        let side = |column: usize| RegionSide { slot: 0, offset: 8 * column, strides: vec![row] };
        RegionCopy {
            dtype: f64::DTYPE,
            extents: vec![EDGE],
            source: side(from),
            destination: side(to),
            negate: false,
            combine: Combine::Replace,
        }
    };
    let columns = [(EDGE - 2, 0), (1, EDGE - 1)];
    let plan = device.plan_regions(&columns.map(|(from, to)| copy(from, to))).expect("a plan");
    let mut values = vec![1.0; EDGE * EDGE];
    let upload = || device.memory_from_slice(&stream, &values).expect("a field");
    let (mut field, mut theirs, mut whole) = (upload(), upload(), upload());
    let mut pinned = device.pinned_allocate::<f64>(2 * EDGE).expect("pinned memory");
    let ends =
        || (0..EDGE).flat_map(|row| columns.map(|(from, to)| (EDGE * row + from, EDGE * row + to)));
    bench.compare(
        "both columns",
        plan.bytes(),
        &mut || {
            let executed = plan.execute(&stream, &mut [field.view_mut().into()]);
            executed.and_then(|()| stream.synchronize()).expect("an exchange");
        },
        &mut [
            Rival {
                name: "by hand",
                target: 1.0,
                run: &mut || {
                    let mut by_hand = || -> Result<()> {
                        for (at, (from, _)) in ends().enumerate() {
                            let to = pinned.slice_mut(at..at + 1)?;
                            theirs.view().slice(from..from + 1)?.copy_to_pinned(&stream, to)?;
                        }
                        stream.synchronize()?;
                        black_box(pinned.as_mut_slice()?);
                        for (at, (_, to)) in ends().enumerate() {
                            let from = pinned.slice(at..at + 1)?;
                            theirs.view_mut().slice(to..to + 1)?.copy_from_pinned(&stream, from)?;
                        }
                        stream.synchronize()
                    };
                    by_hand().expect("an exchange");
                },
            },
            Rival {
                name: "whole field",
                target: 4.0,
                run: &mut || {
                    whole.view().copy_to_slice(&stream, &mut values).expect("a copy");
                    ends().for_each(|(from, to)| values[to] = values[from]);
                    whole.copy_from_slice(&stream, &values).expect("a copy");
                },
            },
        ],
    );
}

fn main() -> ExitCode {
    let mut bench = Bench::from_args();
    contiguous(&mut bench);
    matrices::<f32>(&mut bench);
    matrices::<f64>(&mut bench);
    faces::<f32>(&mut bench);
    faces::<f64>(&mut bench);
    emulated(&mut bench);
    // This thread belongs to the pool, so that passing work to it is not measured each time.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).use_current_thread().build();
    let _pool = pool.expect("a second thread");
    bench.set_sample_time(Duration::from_millis(5));
    threads::<f32>(&mut bench);
    threads::<f64>(&mut bench);
    bench.finish()
}
