//! The loops that move elements in host memory, compiled for each element operation and instruction set.
#![expect(unsafe_code, reason = "moves elements through raw pointers")]

use std::marker::PhantomData;

use super::arithmetic::Operation;
use super::tiles;

/// One dimension of a loop nest: the number of iterations, and the distance in bytes on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) extent: usize,
    pub(super) to: isize,
    pub(super) from: isize,
}

impl Dim {
    /// A dimension of one element.
    pub(super) const ONE: Self = Self { extent: 1, to: 0, from: 0 };

    /// Byte offsets after the given number of steps. They fit, because they stay inside an allocation.
    #[inline(always)]
    pub(super) fn steps(self, to: isize, from: isize, steps: usize) -> (isize, isize) {
        let steps = steps.cast_signed();
        let along = |offset: isize, stride: isize| offset.wrapping_add(steps.wrapping_mul(stride));
        (along(to, self.to), along(from, self.from))
    }
}

/// A plane of elements: the outer dimension, then the inner one.
pub(super) type Plane = [Dim; 2];

/// Copies the elements of a plane from the second pointer to the first.
///
/// # Safety
///
/// Every element lies in memory that may be read, or written, through the pointers. Elements are initialised and
/// aligned for their type. No written element overlaps another element, and no other code accesses the elements
/// meanwhile. The dimensions satisfy the requirements of the kernel's [`Loops`]. The processor supports the
/// instructions that the kernel was chosen for.
pub(super) type Kernel = unsafe fn(*mut u8, *const u8, &Plane);

/// The body of a kernel.
pub(super) trait Loops {
    /// Runs the loops with the instructions of `TIER`.
    ///
    /// # Safety
    ///
    /// As [`Kernel`].
    unsafe fn run<const TIER: u8>(to: *mut u8, from: *const u8, plane: &Plane);
}

/// Instructions that every processor of the target has.
const BASE: u8 = 0;

/// Vectors of 256 bits on x86-64.
pub(super) const AVX2: u8 = 1;

/// The kernel with this body for the instructions of this processor.
pub(super) fn kernel<L: Loops>() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if !prefers_base() && std::is_x86_feature_detected!("avx2") {
        return avx2::<L>;
    }
    base::<L>
}

#[cfg(test)]
thread_local! {
    /// Lets tests choose the kernels that other processors would use.
    pub(super) static PREFER_BASE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(target_arch = "x86_64")]
fn prefers_base() -> bool {
    #[cfg(test)]
    return PREFER_BASE.get();
    #[cfg(not(test))]
    false
}

/// The kernel with this body, for every processor.
///
/// # Safety
///
/// As [`Kernel`].
pub(super) unsafe fn base<L: Loops>(to: *mut u8, from: *const u8, plane: &Plane) {
    // SAFETY: guaranteed by the caller.
    unsafe { L::run::<BASE>(to, from, plane) };
}

/// # Safety
///
/// As [`Kernel`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<L: Loops>(to: *mut u8, from: *const u8, plane: &Plane) {
    // SAFETY: guaranteed by the caller.
    unsafe { L::run::<AVX2>(to, from, plane) };
}

/// The pointers `steps` further along a dimension.
#[inline(always)]
pub(super) fn at(to: *mut u8, from: *const u8, dim: Dim, steps: usize) -> (*mut u8, *const u8) {
    let (to_offset, from_offset) = dim.steps(0, 0, steps);
    (to.wrapping_offset(to_offset), from.wrapping_offset(from_offset))
}

/// Calls `f` with the pointers to each position along a dimension.
#[inline(always)]
fn places(to: *mut u8, from: *const u8, dim: Dim, mut f: impl FnMut(*mut u8, *const u8)) {
    let (mut to, mut from) = (to, from);
    for _ in 0..dim.extent {
        f(to, from);
        (to, from) = at(to, from, dim, 1);
    }
}

/// Returns the result of the operation for one element.
///
/// # Safety
///
/// `from` and `to` are aligned and readable for an element, and no other code writes there.
#[inline(always)]
unsafe fn result<O: Operation>(to: *const u8, from: *const u8) -> O::Element {
    // SAFETY: readable, as the caller guarantees.
    let new = unsafe { from.cast::<O::Element>().read() };
    let old = if O::READS {
        // SAFETY: readable, as the caller guarantees.
        unsafe { to.cast::<O::Element>().read() }
    } else {
        new
    };
    O::apply(old, new)
}

/// Applies the operation to one element.
///
/// # Safety
///
/// `from` is readable, and `to` is readable and writable, for an element. Both are aligned, and no other code accesses
/// them.
#[inline(always)]
unsafe fn put<O: Operation>(to: *mut u8, from: *const u8) {
    // SAFETY: guaranteed by the caller.
    let result = unsafe { result::<O>(to, from) };
    // SAFETY: writable, as the caller guarantees.
    unsafe { to.cast::<O::Element>().write(result) };
}

/// Applies the operation to the elements along one dimension.
///
/// # Safety
///
/// As [`put`] for each of them.
#[inline(always)]
pub(super) unsafe fn line<O: Operation>(to: *mut u8, from: *const u8, dim: Dim) {
    for index in 0..dim.extent {
        let (to, from) = at(to, from, dim, index);
        // SAFETY: guaranteed by the caller.
        unsafe { put::<O>(to, from) };
    }
}

/// Prefetches the cache line at an address, whether or not there is memory.
#[inline(always)]
pub(super) fn fetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint and accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches the cache lines of a row some steps further along, whether or not that row exists.
///
/// The processor's prefetcher does not recognise rows that are far apart, especially if another core holds them.
#[inline(always)]
fn fetch_ahead(to: *const u8, from: *const u8, dim: Dim) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        /// Number of rows whose lines are being fetched at a time.
        const AHEAD: isize = 16;
        let ahead = |at: *const u8, stride: isize| {
            at.wrapping_offset(stride.wrapping_mul(AHEAD)).cast::<i8>()
        };
        // SAFETY: a prefetch is a hint and accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead(from, dim.from)) };
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead(to, dim.to)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (to, from, dim);
}

/// Rows of `BYTES` bytes, which are contiguous on both sides.
pub(super) struct ShortRuns<const BYTES: usize>;

impl<const BYTES: usize> Loops for ShortRuns<BYTES> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(to: *mut u8, from: *const u8, &[rows, _]: &Plane) {
        places(to, from, rows, |to, from| {
            fetch_ahead(to, from, rows);
            // SAFETY: a run of the plane, as the caller guarantees.
            unsafe { from.copy_to_nonoverlapping(to, BYTES) };
        });
    }
}

/// Longest row for [`MediumRuns`].
pub(super) const MEDIUM_RUN: usize = 16 << 10;

/// Rows of bytes, contiguous on both sides and so short that a function call for each would be costly.
pub(super) struct MediumRuns;

impl Loops for MediumRuns {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(to: *mut u8, from: *const u8, plane: &Plane) {
        const CHUNK: usize = 32;
        let [rows, run] = *plane;
        let bytes = run.extent * run.to.unsigned_abs();
        let Some(last) = bytes.checked_sub(CHUNK) else {
            // SAFETY: guaranteed by the caller.
            return unsafe { LongRuns::run::<TIER>(to, from, plane) };
        };
        places(to, from, rows, |to, from| {
            let mut start = 0;
            while start < last {
                let (to, from) = (to.wrapping_add(start), from.wrapping_add(start));
                // SAFETY: inside a run of the plane, as the caller guarantees.
                unsafe { from.copy_to_nonoverlapping(to, CHUNK) };
                start += CHUNK;
            }
            // May overlap the previous chunk.
            let (to, from) = (to.wrapping_add(last), from.wrapping_add(last));
            // SAFETY: inside a run of the plane, as the caller guarantees.
            unsafe { from.copy_to_nonoverlapping(to, CHUNK) };
        });
    }
}

/// Rows of bytes, contiguous on both sides.
pub(super) struct LongRuns;

impl Loops for LongRuns {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(to: *mut u8, from: *const u8, &[rows, run]: &Plane) {
        let bytes = run.extent * run.to.unsigned_abs();
        places(to, from, rows, |to, from| {
            // SAFETY: a run of the plane, as the caller guarantees.
            unsafe { from.copy_to_nonoverlapping(to, bytes) };
        });
    }
}

/// Two runs of elements as slices.
///
/// # Safety
///
/// `to` and `from` are the lowest bytes of runs of `extent` elements that may be written and read. No other code
/// accesses them during `'a`.
#[inline(always)]
unsafe fn slices<'a, T>(to: *mut u8, from: *const u8, extent: usize) -> (&'a mut [T], &'a [T]) {
    // SAFETY: guaranteed by the caller.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<T>(), extent) };
    // SAFETY: guaranteed by the caller.
    let from = unsafe { std::slice::from_raw_parts(from.cast::<T>(), extent) };
    (to, from)
}

/// Rows of elements, contiguous on both sides.
pub(super) struct Rows<O>(PhantomData<O>);

/// Applies the operation along two runs.
#[inline(always)]
fn row<O: Operation>(to: &mut [O::Element], from: &[O::Element]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = O::apply(*to, *from);
    }
}

impl<O: Operation> Loops for Rows<O> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(to: *mut u8, from: *const u8, &[rows, run]: &Plane) {
        places(to, from, rows, |to, from| {
            // SAFETY: a run of the plane, as the caller guarantees.
            let (to, from) = unsafe { slices::<O::Element>(to, from, run.extent) };
            row::<O>(to, from);
        });
    }
}

/// Rows of elements, contiguous on both sides, with the source read backwards.
pub(super) struct Reversed<O>(PhantomData<O>);

/// Applies the operation along two runs in opposite directions.
#[inline(always)]
fn reversed_row<O: Operation>(to: &mut [O::Element], from: &[O::Element]) {
    // Loading whole groups makes the compiler use shuffles.
    const GROUP: usize = 8;
    let (groups, rest) = to.as_chunks_mut::<GROUP>();
    let (from_rest, from_groups) = from.as_rchunks::<GROUP>();
    for (to, &from) in groups.iter_mut().zip(from_groups.iter().rev()) {
        let old = *to;
        *to = std::array::from_fn(|index| O::apply(old[index], from[GROUP - 1 - index]));
    }
    for (to, from) in rest.iter_mut().zip(from_rest.iter().rev()) {
        *to = O::apply(*to, *from);
    }
}

impl<O: Operation> Loops for Reversed<O> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(to: *mut u8, from: *const u8, &[rows, run]: &Plane) {
        places(to, from, rows, |to, from| {
            let (_, lowest) = at(to, from, run, run.extent - 1);
            // SAFETY: a run of the plane, as the caller guarantees.
            let (to, from) = unsafe { slices::<O::Element>(to, lowest, run.extent) };
            reversed_row::<O>(to, from);
        });
    }
}

/// Rows of `WIDTH` elements with any strides.
pub(super) struct Thin<O, const WIDTH: usize>(PhantomData<O>);

impl<O: Operation, const WIDTH: usize> Loops for Thin<O, WIDTH> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(to: *mut u8, from: *const u8, &[rows, across]: &Plane) {
        places(to, from, rows, |to, from| {
            // SAFETY: elements of the plane, as the caller guarantees.
            unsafe { line::<O>(to, from, Dim { extent: WIDTH, ..across }) };
        });
    }
}

/// Rows of elements with any strides.
pub(super) struct Strided<O>(PhantomData<O>);

impl<O: Operation> Loops for Strided<O> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(to: *mut u8, from: *const u8, &[rows, along]: &Plane) {
        for row in 0..rows.extent {
            let (to, from) = at(to, from, rows, row);
            // SAFETY: elements of the plane, as the caller guarantees.
            unsafe { line::<O>(to, from, along) };
        }
    }
}

/// Multiples of a stride that look unrelated to the compiler. Otherwise it would compute the positions of a group of
/// elements by a chain of dependent additions.
#[derive(Clone, Copy)]
struct Multiples {
    one: isize,
    three: isize,
    five: isize,
    seven: isize,
}

impl Multiples {
    #[inline(always)]
    fn of(one: isize) -> Self {
        let multiple = |n: isize| one.wrapping_mul(n);
        std::hint::black_box(Self {
            one,
            three: multiple(3),
            five: multiple(5),
            seven: multiple(7),
        })
    }

    /// The `n`-th multiple, up to 7.
    #[inline(always)]
    fn get(self, n: usize) -> isize {
        match n {
            0 => 0,
            1 => self.one,
            2 => self.one.wrapping_mul(2),
            3 => self.three,
            4 => self.one.wrapping_mul(4),
            5 => self.five,
            6 => self.three.wrapping_mul(2),
            _ => self.seven,
        }
    }
}

/// Rows of elements, contiguous in the destination.
pub(super) struct Gathered<O>(PhantomData<O>);

impl<O: Operation> Loops for Gathered<O> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(to: *mut u8, from: *const u8, &[rows, along]: &Plane) {
        const GROUP: usize = 8;
        let size = size_of::<O::Element>();
        let step = Multiples::of(along.from);
        places(to, from, rows, |mut to, mut from| {
            for _ in 0..along.extent / GROUP {
                let group: [O::Element; GROUP] = std::array::from_fn(|n| {
                    let (to, from) = (to.wrapping_add(n * size), from.wrapping_offset(step.get(n)));
                    // SAFETY: an element of the plane, as the caller guarantees.
                    unsafe { result::<O>(to, from) }
                });
                // SAFETY: adjacent elements of the plane, as the caller guarantees.
                unsafe { tiles::store::<_, TIER>(to, group) };
                (to, from) = at(to, from, along, GROUP);
            }
            for _ in 0..along.extent % GROUP {
                // SAFETY: an element of the plane, as the caller guarantees.
                unsafe { put::<O>(to, from) };
                (to, from) = at(to, from, along, 1);
            }
        });
    }
}

/// Elements that are contiguous in the destination along the inner dimension and contiguous in the source, forwards or
/// backwards, along the outer dimension.
pub(super) struct Transposed<O>(PhantomData<O>);

impl<O: Operation> Loops for Transposed<O> {
    #[inline(always)]
    unsafe fn run<const TIER: u8>(to: *mut u8, from: *const u8, plane: &Plane) {
        let size = size_of::<O::Element>();
        let edge = tiles::edge::<O, TIER>();
        let [down, along] = *plane;
        let (full_down, full_along) = (down.extent / edge * edge, along.extent / edge * edge);
        // Blocks whose source stays in the second-level cache.
        let height = (STRIPE / size).next_multiple_of(edge);
        let creeping = creeps(along.from) && creeps(down.to);
        let small = down.extent * along.extent * size <= HALF_SECOND_CACHE;
        let width = if creeping && small { FEW_ROWS } else { MAX_ROWS };
        // The part of a block that uses each cache line of the source once.
        let lines = (LINE / size).next_multiple_of(edge);
        for top in (0..full_down).step_by(height) {
            let bottom = full_down.min(top + height);
            for left in (0..full_along).step_by(width) {
                let right = full_along.min(left + width);
                for top in (top..bottom).step_by(lines) {
                    let bottom = bottom.min(top + lines);
                    for column in (left..right).step_by(edge) {
                        let (to, from) = at(to, from, along, column);
                        for row in (top..bottom).step_by(edge) {
                            let (to, from) = at(to, from, down, row);
                            // SAFETY: a tile of the plane, as the caller guarantees.
                            unsafe { tiles::tile::<O, TIER>(to, from, [down, along]) };
                        }
                    }
                }
            }
        }
        let bottom = Dim { extent: down.extent - full_down, ..down };
        let (to_bottom, from_bottom) = at(to, from, down, full_down);
        // SAFETY: the rest of the plane, as the caller guarantees.
        unsafe { base::<Strided<O>>(to_bottom, from_bottom, &[bottom, along]) };
        let right = Dim { extent: along.extent - full_along, ..along };
        let (to_right, from_right) = at(to, from, along, full_along);
        let full = Dim { extent: full_down, ..down };
        // SAFETY: the rest of the plane, as the caller guarantees.
        unsafe { base::<Strided<O>>(to_right, from_right, &[right, full]) };
    }
}

/// Bytes in a cache line.
pub(super) const LINE: usize = 64;

/// Number of bytes read from each row of the source before the next rows are read.
const STRIPE: usize = 512;

/// Number of source rows in a block.
const MAX_ROWS: usize = 64;

/// The same, if lines of adjacent rows compete for places in the first-level cache.
const FEW_ROWS: usize = 16;

/// A number of bytes that reliably stay in the second-level cache.
const HALF_SECOND_CACHE: usize = 512 << 10;

/// A cache: the distance in bytes at which lines compete for the same places, and the number of such places to rely on.
pub(super) type Cache = (usize, usize);

pub(super) const FIRST: Cache = (4 << 10, 8);
pub(super) const SECOND: Cache = (64 << 10, 8);

/// The number of cache lines at this distance that stay in a cache together.
pub(super) fn resident(stride: isize, (span, places): Cache) -> usize {
    let common = 1 << stride.unsigned_abs().trailing_zeros().min(span.trailing_zeros());
    places * (span / common.max(LINE))
}

/// Whether positions at this distance advance through the first-level cache so slowly that many of them share few of
/// its places.
fn creeps(stride: isize) -> bool {
    let (span, _) = FIRST;
    let step = stride.unsigned_abs() % span;
    let step = step.min(span - step);
    step > 0 && step < LINE
}
