//! The loops that move elements in host memory.
//!
//! A kernel runs the three innermost dimensions of a copy; which three, and which kernel, [`choose`] decides once per
//! copy from the strides. All are compiled per element operation.
#![expect(unsafe_code, reason = "moves elements through raw pointers")]

use half::{bf16, f16};
use num_complex::Complex;

use super::arithmetic::{Flip, Keep, Max, Merge, Min, Op, Operation, Replace, Sign, Sum};
use super::{Combine, LoweredCopy, MAX_REGION_RANK};
use crate::DType;

/// One dimension of a loop nest: how often, and how many bytes apart on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) extent: usize,
    pub(super) to: isize,
    pub(super) from: isize,
}

impl Dim {
    /// A dimension of one element.
    pub(super) const ONE: Self = Self { extent: 1, to: 0, from: 0 };
}

/// Dimensions that a kernel runs itself.
pub(super) const KERNEL_RANK: usize = 3;

/// Copies the elements of a box, the last dimension innermost, from the second pointer to the first.
///
/// # Safety
///
/// All elements of the box are inside memory that may be read, or written, through the pointers; they are initialised and
/// aligned for their type; no element written overlaps another one, and nobody else touches them meanwhile. The
/// dimensions are as [`choose`] made them, apart from the extents of those that may be split.
pub(super) type Kernel = unsafe fn(*mut u8, *const u8, &[Dim; KERNEL_RANK]);

/// How a copy is run.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) kernel: Kernel,
    /// Outermost first, the last [`KERNEL_RANK`] of them the kernel's.
    pub(super) dims: [Dim; MAX_REGION_RANK],
    /// Whether the innermost dimension may be run in pieces.
    pub(super) splits_inner: bool,
}

/// Longest run of bytes that is copied by moves of fixed size.
const SHORT_RUN: usize = 64;

/// Largest extent of a dimension that is unrolled completely.
const THIN: usize = 4;

/// The loops that are best for a copy.
#[derive(Clone, Copy)]
enum Shape {
    /// The innermost dimension is contiguous on both sides.
    Rows,
    /// The innermost dimension is contiguous on both sides and runs backwards in the source.
    Reversed,
    /// The innermost dimension is contiguous in the destination, the next one in the source.
    Transposed,
    /// The innermost dimension has this extent, at most [`THIN`].
    Thin(usize),
    /// None of these.
    Strided,
}

/// Decides how to run a copy.
pub(super) fn choose(copy: &LoweredCopy) -> Choice {
    const LAST: usize = MAX_REGION_RANK - 1;
    let size = copy.dtype().size();
    let unit = size.cast_signed();
    let plain = copy.combine() == Combine::Replace && !copy.negate();
    let mut dims = [Dim::ONE; MAX_REGION_RANK];
    let first = MAX_REGION_RANK - copy.extents().len();
    let strides = copy.destination_strides().iter().zip(copy.source_strides());
    for ((dim, &extent), (&to, &from)) in dims[first..].iter_mut().zip(copy.extents()).zip(strides) {
        *dim = Dim { extent, to, from };
    }
    if first == MAX_REGION_RANK {
        dims[LAST] = Dim { extent: 1, to: unit, from: unit };
    }
    let inner = dims[LAST];
    // The dimension along which the source is contiguous, if it is another one.
    let partner = (first..LAST).find(|&dim| dims[dim].from.unsigned_abs() == size);
    let is_thin = |dim: usize| dims[dim].extent <= THIN;
    let shape = match partner {
        _ if inner.to == unit && inner.from == unit && (plain || !is_thin(LAST)) => Shape::Rows,
        _ if is_thin(LAST) => {
            // The partner comes next to it.
            if let Some(partner) = partner {
                dims[partner..LAST].rotate_left(1);
            }
            Shape::Thin(inner.extent)
        }
        Some(partner) if is_thin(partner) => {
            dims[partner..].rotate_left(1);
            Shape::Thin(dims[LAST].extent)
        }
        Some(partner) if inner.to == unit => {
            dims[partner..LAST].rotate_left(1);
            Shape::Transposed
        }
        _ if inner.to == unit && inner.from == -unit => Shape::Reversed,
        _ => Shape::Strided,
    };
    let run = dims[LAST].extent.saturating_mul(size);
    let splits_inner = match shape {
        Shape::Rows => run > SHORT_RUN,
        Shape::Thin(_) => false,
        _ => true,
    };
    Choice { kernel: kernel(copy, shape, run), dims, splits_inner }
}

/// The kernel for the operation and the shape; `run` is the length of the innermost dimension in bytes.
fn kernel(copy: &LoweredCopy, shape: Shape, run: usize) -> Kernel {
    let (dtype, negate) = (copy.dtype(), copy.negate());
    match copy.combine() {
        Combine::Replace if !negate => match (shape, dtype.size(), dtype.align()) {
            (Shape::Rows, ..) => runs_kernel(run),
            // Bits are moved as they are: only size and alignment matter.
            (_, 1, _) => pick::<u8, Keep, Replace>(shape),
            (_, 2, _) => pick::<u16, Keep, Replace>(shape),
            (_, 4, _) => pick::<u32, Keep, Replace>(shape),
            (_, 8, 4) => pick::<[u32; 2], Keep, Replace>(shape),
            (_, 8, _) => pick::<u64, Keep, Replace>(shape),
            _ => pick::<[u64; 2], Keep, Replace>(shape),
        },
        Combine::Replace => match dtype {
            DType::C64 => pick::<Complex<f32>, Flip, Replace>(shape),
            DType::C128 => pick::<Complex<f64>, Flip, Replace>(shape),
            _ => flipped::<Replace>(dtype, shape),
        },
        Combine::Sum => match (dtype, negate) {
            (DType::C64, false) => pick::<Complex<f32>, Keep, Sum>(shape),
            (DType::C64, true) => pick::<Complex<f32>, Flip, Sum>(shape),
            (DType::C128, false) => pick::<Complex<f64>, Keep, Sum>(shape),
            (DType::C128, true) => pick::<Complex<f64>, Flip, Sum>(shape),
            (_, false) => kept::<Sum>(dtype, shape),
            (_, true) => flipped::<Sum>(dtype, shape),
        },
        Combine::Min if negate => flipped::<Min>(dtype, shape),
        Combine::Min => kept::<Min>(dtype, shape),
        Combine::Max if negate => flipped::<Max>(dtype, shape),
        Combine::Max => kept::<Max>(dtype, shape),
    }
}

macro_rules! kernels_by_type {
    ($(#[$doc:meta])* $name:ident: $sign:ident, $($dtype:ident => $type:ty),*) => {
        $(#[$doc])*
        fn $name<C>(dtype: DType, shape: Shape) -> Kernel
        where
            C: $(Merge<$type> +)* 'static,
        {
            match dtype {
                $(DType::$dtype => pick::<$type, $sign, C>(shape),)*
                _ => unreachable!("{dtype} does not admit the operation, which was checked"),
            }
        }
    };
}

kernels_by_type! {
    /// The kernel that combines elements of a real type by `C`.
    kept: Keep,
    I8 => i8, I16 => i16, I32 => i32, I64 => i64, U8 => u8, U16 => u16, U32 => u32, U64 => u64,
    F16 => f16, BF16 => bf16, F32 => f32, F64 => f64
}

kernels_by_type! {
    /// The kernel that negates elements of a signed real type and combines them by `C`.
    flipped: Flip,
    I8 => i8, I16 => i16, I32 => i32, I64 => i64, F16 => f16, BF16 => bf16, F32 => f32, F64 => f64
}

/// The kernel of a shape for one operation.
fn pick<T, S, C>(shape: Shape) -> Kernel
where
    T: Copy + 'static,
    S: Sign<T> + 'static,
    C: Merge<T> + 'static,
{
    match shape {
        Shape::Rows => rows::<Op<T, S, C>>,
        Shape::Reversed => reversed::<Op<T, S, C>>,
        Shape::Transposed => transposed::<Op<T, S, C>>,
        Shape::Thin(3) => thin::<Op<T, S, C>, 3>,
        Shape::Thin(2) => thin::<Op<T, S, C>, 2>,
        Shape::Thin(4) => thin::<Op<T, S, C>, 4>,
        Shape::Thin(_) | Shape::Strided => strided::<Op<T, S, C>>,
    }
}

/// The kernel that moves runs of this many bytes.
fn runs_kernel(run: usize) -> Kernel {
    macro_rules! short {
        ($($bytes:literal)*) => {
            match run {
                $($bytes => short_runs::<$bytes>,)*
                _ if run <= 512 => medium_runs,
                _ => long_runs,
            }
        };
    }
    short!(1 2 3 4 6 8 12 16 20 24 28 32 36 40 48 56 64)
}

/// Applies the operation to one element.
///
/// # Safety
///
/// `from` is readable and `to` readable and writable for an element, both aligned, and nobody else touches them.
#[inline(always)]
unsafe fn put<O: Operation>(to: *mut O::Element, from: *const O::Element) {
    // SAFETY: readable, as the caller promises.
    let new = unsafe { from.read() };
    let old = if O::READS {
        // SAFETY: readable, as the caller promises.
        unsafe { to.read() }
    } else {
        new
    };
    // SAFETY: writable, as the caller promises.
    unsafe { to.write(O::apply(old, new)) };
}

/// Calls `f` with the pointers to each place of a plane, in blocks if the source runs faster along the outer dimension.
#[inline(always)]
fn plane(
    to: *mut u8,
    from: *const u8,
    [outer, inner]: [Dim; 2],
    mut f: impl FnMut(*mut u8, *const u8),
) {
    const BLOCK: usize = 16;
    let crossed = inner.from.unsigned_abs() > outer.from.unsigned_abs() && outer.extent > 1;
    let block = if crossed { BLOCK } else { inner.extent.max(1) };
    let mut first = 0;
    while first < inner.extent {
        let count = block.min(inner.extent - first);
        let (mut to, mut from) = at(to, from, inner, first);
        for _ in 0..outer.extent {
            let (mut to_inner, mut from_inner) = (to, from);
            for _ in 0..count {
                f(to_inner, from_inner);
                (to_inner, from_inner) = at(to_inner, from_inner, inner, 1);
            }
            (to, from) = at(to, from, outer, 1);
        }
        first += count;
    }
}

/// The pointers `steps` further along a dimension. Steps fit, since they stay inside an allocation.
#[inline(always)]
fn at(to: *mut u8, from: *const u8, dim: Dim, steps: usize) -> (*mut u8, *const u8) {
    let steps = steps.cast_signed();
    (
        to.wrapping_offset(steps.wrapping_mul(dim.to)),
        from.wrapping_offset(steps.wrapping_mul(dim.from)),
    )
}

/// # Safety
///
/// As [`Kernel`]; the innermost dimension is contiguous on both sides and has `BYTES` bytes.
unsafe fn short_runs<const BYTES: usize>(to: *mut u8, from: *const u8, dims: &[Dim; KERNEL_RANK]) {
    let [outer, inner, _] = *dims;
    plane(to, from, [outer, inner], |to, from| {
        // SAFETY: a run of the box, as the caller promises.
        unsafe { from.copy_to_nonoverlapping(to, BYTES) };
    });
}

/// # Safety
///
/// As [`Kernel`]; the innermost dimension is contiguous on both sides and has at least 32 bytes.
unsafe fn medium_runs(to: *mut u8, from: *const u8, dims: &[Dim; KERNEL_RANK]) {
    const CHUNK: usize = 32;
    let [outer, inner, run] = *dims;
    let bytes = run.extent * run.to.unsigned_abs();
    if bytes < CHUNK {
        // SAFETY: as the caller promises.
        return unsafe { long_runs(to, from, dims) };
    }
    let last = bytes - CHUNK;
    plane(to, from, [outer, inner], |to, from| {
        let mut start = 0;
        // The last chunk overlaps the one before it, unless the run is a multiple.
        loop {
            // SAFETY: inside a run of the box, as the caller promises.
            unsafe { from.wrapping_add(start).copy_to_nonoverlapping(to.wrapping_add(start), CHUNK) };
            if start == last {
                break;
            }
            start = (start + CHUNK).min(last);
        }
    });
}

/// # Safety
///
/// As [`Kernel`]; the innermost dimension is contiguous on both sides.
unsafe fn long_runs(to: *mut u8, from: *const u8, dims: &[Dim; KERNEL_RANK]) {
    let [outer, inner, run] = *dims;
    let bytes = run.extent * run.to.unsigned_abs();
    plane(to, from, [outer, inner], |to, from| {
        // SAFETY: a run of the box, as the caller promises.
        unsafe { from.copy_to_nonoverlapping(to, bytes) };
    });
}

/// The elements of a run, as slices.
///
/// # Safety
///
/// `to` and `from` are the lowest bytes of runs of `extent` elements that may be written and read; nobody else touches
/// them during `'a`.
#[inline(always)]
unsafe fn slices<'a, T>(to: *mut u8, from: *const u8, extent: usize) -> (&'a mut [T], &'a [T]) {
    // SAFETY: as the caller promises.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<T>(), extent) };
    // SAFETY: as the caller promises.
    let from = unsafe { std::slice::from_raw_parts(from.cast::<T>(), extent) };
    (to, from)
}

/// # Safety
///
/// As [`Kernel`]; the innermost dimension is contiguous on both sides.
unsafe fn rows<O: Operation>(to: *mut u8, from: *const u8, dims: &[Dim; KERNEL_RANK]) {
    let [outer, inner, run] = *dims;
    plane(to, from, [outer, inner], |to, from| {
        // SAFETY: a run of the box, as the caller promises.
        let (to, from) = unsafe { slices::<O::Element>(to, from, run.extent) };
        for (to, from) in to.iter_mut().zip(from) {
            *to = O::apply(*to, *from);
        }
    });
}

/// # Safety
///
/// As [`Kernel`]; the innermost dimension is contiguous on both sides, and runs backwards in the source.
unsafe fn reversed<O: Operation>(to: *mut u8, from: *const u8, dims: &[Dim; KERNEL_RANK]) {
    let [outer, inner, run] = *dims;
    plane(to, from, [outer, inner], |to, from| {
        let (_, lowest) = at(to, from, run, run.extent - 1);
        // SAFETY: a run of the box, as the caller promises.
        let (to, from) = unsafe { slices::<O::Element>(to, lowest, run.extent) };
        for (to, from) in to.iter_mut().zip(from.iter().rev()) {
            *to = O::apply(*to, *from);
        }
    });
}

/// # Safety
///
/// As [`Kernel`]; the innermost dimension has `WIDTH` elements.
unsafe fn thin<O: Operation, const WIDTH: usize>(
    to: *mut u8,
    from: *const u8,
    dims: &[Dim; KERNEL_RANK],
) {
    let [outer, inner, row] = *dims;
    plane(to, from, [outer, inner], |to, from| {
        for index in 0..WIDTH {
            let (to, from) = at(to, from, row, index);
            // SAFETY: an element of the box, as the caller promises.
            unsafe { put::<O>(to.cast(), from.cast()) };
        }
    });
}

/// # Safety
///
/// As [`Kernel`].
unsafe fn strided<O: Operation>(to: *mut u8, from: *const u8, dims: &[Dim; KERNEL_RANK]) {
    let [outer, middle, inner] = *dims;
    for index in 0..outer.extent {
        let (to, from) = at(to, from, outer, index);
        plane(to, from, [middle, inner], |to, from| {
            // SAFETY: an element of the box, as the caller promises.
            unsafe { put::<O>(to.cast(), from.cast()) };
        });
    }
}

/// # Safety
///
/// As [`Kernel`].
unsafe fn transposed<O: Operation>(to: *mut u8, from: *const u8, dims: &[Dim; KERNEL_RANK]) {
    // SAFETY: as the caller promises.
    unsafe { strided::<O>(to, from, dims) };
}
