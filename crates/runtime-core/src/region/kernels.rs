//! Chooses the loops that run a copy in host memory.
//!
//! A kernel runs the two innermost dimensions of a copy. From the strides, [`choose`] decides once per copy which
//! dimensions these are, which kernel runs them, and how the loops around the kernel are cut into blocks.

use half::{bf16, f16};
use num_complex::Complex;

use super::arithmetic::{Flip, FlipBit, Keep, Max, Merge, Min, Op, Replace, Sign, Sum};
use super::loops::{self, Dim, FIRST, Kernel, LINE, MEDIUM_RUN, SECOND};
use super::{Combine, LoweredCopy, MAX_REGION_RANK};
use crate::DType;

/// The chosen way to run a copy.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) kernel: Kernel,
    /// Outermost first. The kernel runs the last two.
    pub(super) dims: [Dim; MAX_REGION_RANK],
    /// Whether the innermost dimension may be cut into pieces.
    pub(super) splits_inner: bool,
    /// A dimension that is run in blocks of the given number of elements, and whose blocks enclose the previous
    /// dimension.
    pub(super) block: (usize, usize),
}

/// Longest run of bytes that is copied with moves of a fixed size.
const SHORT_RUN: usize = 64;

/// Largest extent of a dimension that is unrolled completely.
const THIN: usize = 4;

/// The loops that suit a copy best.
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
    /// The innermost dimension is contiguous only in the destination.
    Gathered,
    /// None of these.
    Strided,
}

/// Decides how to run a copy.
pub(super) fn choose(copy: &LoweredCopy) -> Choice {
    const LAST: usize = MAX_REGION_RANK - 1;
    let size = copy.dtype().size();
    let unit = size.cast_signed();
    let replaces = copy.combine() == Combine::Replace;
    let mut dims = [Dim::ONE; MAX_REGION_RANK];
    let first = MAX_REGION_RANK - copy.extents().len();
    let strides = copy.destination_strides().iter().zip(copy.source_strides());
    for ((dim, &extent), (&to, &from)) in dims[first..].iter_mut().zip(copy.extents()).zip(strides)
    {
        *dim = Dim { extent, to, from };
    }
    if first == MAX_REGION_RANK {
        dims[LAST] = Dim { extent: 1, to: unit, from: unit };
    }
    let inner = dims[LAST];
    // The dimension along which the source is contiguous, if it is a different dimension.
    let partner = (first..LAST).find(|&dim| dims[dim].from.unsigned_abs() == size);
    let is_thin = |dim: usize| dims[dim].extent <= THIN;
    let shape = match partner {
        _ if inner.to == unit
            && inner.from == unit
            && (!is_thin(LAST) || replaces && !copy.negate()) =>
        {
            Shape::Rows
        }
        _ if is_thin(LAST) => Shape::Thin(inner.extent),
        Some(partner) if replaces && inner.to == unit && !is_thin(partner) => Shape::Transposed,
        Some(partner) if inner.to != unit && is_thin(partner) => Shape::Thin(dims[partner].extent),
        _ if inner.to == unit && inner.from == -unit => Shape::Reversed,
        _ if inner.to == unit => Shape::Gathered,
        _ => Shape::Strided,
    };
    match (shape, partner) {
        // The thin dimension becomes the innermost.
        (Shape::Thin(_), Some(partner)) if !is_thin(LAST) => dims[partner..].rotate_left(1),
        // The partner comes next to the innermost.
        (Shape::Thin(_) | Shape::Transposed | Shape::Gathered, Some(partner)) => {
            dims[partner..LAST].rotate_left(1);
        }
        // Neighbouring elements in a cache line are moved together, at least on one side.
        (Shape::Strided, Some(partner)) if inner.to.unsigned_abs() >= LINE => {
            dims[partner..].rotate_left(1);
        }
        _ => {}
    }
    let run = dims[LAST].extent.saturating_mul(size);
    let splits_inner = match shape {
        Shape::Rows => run > SHORT_RUN,
        Shape::Thin(_) => false,
        _ => true,
    };
    let row = match shape {
        Shape::Strided | Shape::Gathered => LAST,
        _ => LAST - 1,
    };
    let block = match shape {
        // These loops have their own blocks.
        Shape::Transposed => usize::MAX,
        _ => block(dims[row - 1], dims[row]),
    };
    let shape = match shape {
        Shape::Gathered if is_scattered([dims[LAST - 1], dims[LAST]], block) => Shape::Strided,
        _ => shape,
    };
    Choice { kernel: kernel(copy, shape, run), dims, splits_inner, block: (row, block) }
}

/// The number of elements of the inner dimension to run before the next step of the outer dimension, if one side is
/// denser along the outer dimension. Otherwise there is no limit.
fn block(outer: Dim, inner: Dim) -> usize {
    // This many cache lines do not stay in the second-level cache.
    const MANY: usize = (2 << 20) / LINE;
    let many = outer.extent.saturating_mul(inner.extent) >= MANY;
    // Reads wait less for the second-level cache than writes do.
    let sides =
        [(outer.to, inner.to, inner.from, FIRST), (outer.from, inner.from, inner.to, SECOND)];
    let blocks = sides.map(|(outer_stride, inner_stride, other, cache)| {
        let (near, far) = (outer_stride.unsigned_abs(), inner_stride.unsigned_abs());
        let other = other.unsigned_abs();
        if outer.extent == 1 || near >= far {
            usize::MAX
        } else if near < LINE {
            // Few enough that lines on this side are still cached when their next elements are needed.
            loops::resident(inner_stride, cache)
        } else if many && 0 < other && other < LINE {
            // About one line of the other side, so that this side mostly runs along its nearer dimension.
            (LINE / other).max(8)
        } else {
            usize::MAX
        }
    });
    blocks[0].min(blocks[1])
}

/// Whether every element read is in its own cache line and rows are short. Such loads wait for the caches. In
/// measurements they waited less one after the other than in groups.
fn is_scattered([outer, inner]: [Dim; 2], block: usize) -> bool {
    const SHORT: usize = 128;
    let near = |dim: Dim| dim.extent > 1 && dim.from.unsigned_abs() < LINE;
    !near(outer) && !near(inner) && inner.extent < SHORT && block >= inner.extent
}

/// The kernel for the operation and the shape. `run` is the length of the innermost dimension in bytes.
fn kernel(copy: &LoweredCopy, shape: Shape, run: usize) -> Kernel {
    let (dtype, negate) = (copy.dtype(), copy.negate());
    match copy.combine() {
        // Bits are moved unchanged, so only size and alignment matter.
        Combine::Replace if !negate => match (shape, dtype.size(), dtype.align()) {
            (Shape::Rows, ..) => runs_kernel(run),
            (_, 1, _) => replacing::<u8, Keep>(shape),
            (_, 2, _) => replacing::<u16, Keep>(shape),
            (_, 4, _) => replacing::<u32, Keep>(shape),
            (_, 8, 4) => replacing::<[u32; 2], Keep>(shape),
            (_, 8, _) => replacing::<u64, Keep>(shape),
            _ => replacing::<[u64; 2], Keep>(shape),
        },
        Combine::Replace => match dtype {
            DType::I8 | DType::U8 | DType::Bool => replacing::<i8, Flip>(shape),
            DType::I16 | DType::U16 => replacing::<i16, Flip>(shape),
            DType::I32 | DType::U32 => replacing::<i32, Flip>(shape),
            DType::I64 | DType::U64 => replacing::<i64, Flip>(shape),
            DType::F16 | DType::BF16 => replacing::<u16, FlipBit>(shape),
            DType::F32 => replacing::<u32, FlipBit>(shape),
            DType::F64 => replacing::<u64, FlipBit>(shape),
            DType::C64 => replacing::<[u32; 2], FlipBit>(shape),
            DType::C128 => replacing::<[u64; 2], FlipBit>(shape),
            DType::Record(_) => unreachable!("records are copied as units, which was checked"),
        },
        Combine::Sum => match (dtype, negate) {
            (DType::C64, false) => combining::<Complex<f32>, Keep, Sum>(shape),
            (DType::C64, true) => combining::<Complex<f32>, Flip, Sum>(shape),
            (DType::C128, false) => combining::<Complex<f64>, Keep, Sum>(shape),
            (DType::C128, true) => combining::<Complex<f64>, Flip, Sum>(shape),
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
                $(DType::$dtype => combining::<$type, $sign, C>(shape),)*
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

/// The kernel of a shape for overwriting.
fn replacing<T, S>(shape: Shape) -> Kernel
where
    T: Copy + 'static,
    S: Sign<T> + 'static,
{
    match shape {
        Shape::Rows => loops::kernel::<loops::Rows<Op<T, S, Replace>>>(),
        Shape::Reversed => loops::kernel::<loops::Reversed<Op<T, S, Replace>>>(),
        Shape::Transposed => loops::kernel::<loops::Transposed<Op<T, S, Replace>>>(),
        Shape::Thin(2) => loops::kernel::<loops::Thin<Op<T, S, Replace>, 2>>(),
        Shape::Thin(3) => loops::kernel::<loops::Thin<Op<T, S, Replace>, 3>>(),
        Shape::Thin(4) => loops::kernel::<loops::Thin<Op<T, S, Replace>, 4>>(),
        Shape::Gathered => loops::kernel::<loops::Gathered<Op<T, S, Replace>>>(),
        Shape::Thin(_) | Shape::Strided => loops::base::<loops::Strided<Op<T, S, Replace>>>,
    }
}

/// The kernel of a shape for combining. These operations are many and rarer, so they share fewer loops.
fn combining<T, S, C>(shape: Shape) -> Kernel
where
    T: Copy + 'static,
    S: Sign<T> + 'static,
    C: Merge<T> + 'static,
{
    match shape {
        Shape::Rows => loops::kernel::<loops::Rows<Op<T, S, C>>>(),
        _ => loops::base::<loops::Strided<Op<T, S, C>>>,
    }
}

/// The kernel that moves runs of this many bytes.
fn runs_kernel(run: usize) -> Kernel {
    macro_rules! short {
        ($($bytes:literal)*) => {
            match run {
                $($bytes => loops::kernel::<loops::ShortRuns<$bytes>>(),)*
                32..=MEDIUM_RUN => loops::kernel::<loops::MediumRuns>(),
                _ => loops::kernel::<loops::LongRuns>(),
            }
        };
    }
    short!(1 2 3 4 6 8 12 16 20 24 28 32 36 40 48 56 64)
}
