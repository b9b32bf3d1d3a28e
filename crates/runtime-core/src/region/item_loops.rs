//! The loops that run indexed copies in host memory.
#![expect(unsafe_code, reason = "moves elements through raw pointers")]

use std::ops::Range;
use std::ptr;

use half::{bf16, f16};
use num_complex::Complex;
use smallvec::SmallVec;

use super::Combine;
use super::arithmetic::{Keep, Max, Min, Op, Operation, Sum};
use super::host_slot::HostSlot;
use super::items::{ItemsEnd, LoweredItems};
use super::loops::{self, Dim};
use crate::DType;

/// Runs a range of the items that are written. Skips items with an absent slot.
///
/// # Safety
///
/// As [`RegionProgram::run`](super::RegionProgram::run). The range is one of the items.
pub(super) type ItemsKernel = unsafe fn(&LoweredItems, &[HostSlot], Range<usize>);

macro_rules! combining_real {
    ($items:ident, $merge:ident) => {
        combining_real!($items, $merge: I8 => i8, I16 => i16, I32 => i32, I64 => i64, U8 => u8, U16 => u16, U32 => u32,
            U64 => u64, F16 => f16, BF16 => bf16, F32 => f32, F64 => f64)
    };
    ($items:ident, $merge:ident: $($dtype:ident => $type:ty),*) => {
        match $items.dtype {
            $(DType::$dtype => combining::<Op<$type, Keep, $merge>>($items),)*
            dtype => unreachable!("{dtype} does not admit the operation, which was checked"),
        }
    };
}

/// The loops for these items.
pub(super) fn kernel(items: &LoweredItems) -> ItemsKernel {
    match items.combine {
        Combine::Replace => match (items.components, items.dtype.size() * items.parts) {
            (1, 1) => moves::<1, true>,
            (1, 2) => moves::<2, true>,
            (1, 4) => moves::<4, true>,
            (1, 8) => moves::<8, true>,
            (1, 12) => moves::<12, true>,
            (1, 16) => moves::<16, true>,
            (1, 24) => moves::<24, true>,
            (1, 32) => moves::<32, true>,
            (_, 4) => moves::<4, false>,
            (_, 8) => moves::<8, false>,
            _ => moves::<ANY, false>,
        },
        Combine::Sum => match items.dtype {
            DType::C64 => combining::<Op<Complex<f32>, Keep, Sum>>(items),
            DType::C128 => combining::<Op<Complex<f64>, Keep, Sum>>(items),
            _ => combining_real!(items, Sum),
        },
        Combine::Min => combining_real!(items, Min),
        Combine::Max => combining_real!(items, Max),
    }
}

fn combining<O: Operation>(items: &LoweredItems) -> ItemsKernel {
    let parts = if items.components == 1 { items.parts } else { ANY };
    match (&items.fold, parts) {
        (Some(_), 1) => folds::<O, 1>,
        (Some(_), 2) => folds::<O, 2>,
        (Some(_), 3) => folds::<O, 3>,
        (Some(_), _) => folds::<O, ANY>,
        (None, 1) => combines::<O, 1>,
        (None, 2) => combines::<O, 2>,
        (None, 3) => combines::<O, 3>,
        (None, _) => combines::<O, ANY>,
    }
}

/// The size of a component is known only when the loops run.
const ANY: usize = 0;

/// Moves components of `BYTES` adjacent bytes. `SINGLE` items have one component.
///
/// # Safety
///
/// As [`ItemsKernel`].
unsafe fn moves<const BYTES: usize, const SINGLE: bool>(
    items: &LoweredItems,
    slots: &[HostSlot],
    range: Range<usize>,
) {
    let bytes = if BYTES == ANY { items.dtype.size() * items.parts } else { BYTES };
    let components = across(items, &items.sources[0]);
    pairs(items, slots, range, |to, from| {
        if SINGLE {
            // SAFETY: an item of either side, as the caller guarantees. The sides do not overlap.
            return unsafe { from.copy_to_nonoverlapping(to, bytes) };
        }
        for component in 0..components.extent {
            let (to, from) = loops::at(to, from, components, component);
            // SAFETY: a component of an item of either side, as the caller guarantees. The sides do not overlap.
            unsafe { from.copy_to_nonoverlapping(to, bytes) };
        }
    });
}

/// Combines items one by one. They have one component of `PARTS` elements.
///
/// # Safety
///
/// As [`ItemsKernel`].
unsafe fn combines<O: Operation, const PARTS: usize>(
    items: &LoweredItems,
    slots: &[HostSlot],
    range: Range<usize>,
) {
    let components = across(items, &items.sources[0]);
    pairs(items, slots, range, |to, from| {
        // SAFETY: an item of either side, as the caller guarantees.
        unsafe { combine::<O, PARTS>(items, components, to, from) };
    });
}

/// Combines all items that are read for one item, then those for the next.
///
/// # Safety
///
/// As [`ItemsKernel`].
unsafe fn folds<O: Operation, const PARTS: usize>(
    items: &LoweredItems,
    slots: &[HostSlot],
    range: Range<usize>,
) {
    let (Some(fold), end) = (&items.fold, &items.destination) else { return };
    let to = slots[end.slot].base;
    if to.is_null() {
        return;
    }
    let to = to.wrapping_add(end.offset);
    let first = |end: &ItemsEnd| match slots[end.slot].base {
        base if base.is_null() => ptr::null(),
        base => base.wrapping_add(end.offset).cast_const(),
    };
    let sources: SmallVec<[_; 8]> =
        items.sources.iter().map(|end| (first(end), end.stride, across(items, end))).collect();
    for item in range {
        let to = to.wrapping_offset(end.distance(item));
        for &[source, index] in fold.reads_of(item) {
            let (first, stride, components) = sources[source as usize];
            if first.is_null() {
                continue;
            }
            let at = |index: u32| first.wrapping_offset((index as usize).cast_signed() * stride);
            let from = at(index);
            // SAFETY: an item of either side, as the caller guarantees.
            unsafe { combine::<O, PARTS>(items, components, to, from) };
        }
    }
}

/// The components of an item on both sides.
fn across(items: &LoweredItems, source: &ItemsEnd) -> Dim {
    let (to, from) = (items.destination.component_stride, source.component_stride);
    Dim { extent: items.components, to, from }
}

/// Calls `f` with the places of each pair of items. Does nothing if a slot is absent.
#[inline(always)]
fn pairs(
    items: &LoweredItems,
    slots: &[HostSlot],
    range: Range<usize>,
    mut f: impl FnMut(*mut u8, *const u8),
) {
    let (to_end, from_end) = (&items.destination, &items.sources[0]);
    let [to, from] = [to_end, from_end].map(|end| slots[end.slot].base);
    if to.is_null() || from.is_null() {
        return;
    }
    let (to, from) =
        (to.wrapping_add(to_end.offset), from.wrapping_add(from_end.offset).cast_const());
    let to_at = |index: usize| to.wrapping_offset(index.cast_signed() * to_end.stride);
    let from_at = |index: usize| from.wrapping_offset(index.cast_signed() * from_end.stride);
    match (to_end.indices.as_deref(), from_end.indices.as_deref()) {
        (None, None) => range.for_each(|item| f(to_at(item), from_at(item))),
        (Some(to), None) => {
            for (to, item) in to[range.clone()].iter().zip(range) {
                f(to_at(*to as usize), from_at(item));
            }
        }
        (None, Some(from)) => {
            for (item, (from, later)) in range.clone().zip(with_later(&from[range])) {
                loops::fetch(from_at(*later as usize));
                f(to_at(item), from_at(*from as usize));
            }
        }
        (Some(to), Some(from)) => {
            for (to, (from, later)) in to[range.clone()].iter().zip(with_later(&from[range])) {
                loops::fetch(from_at(*later as usize));
                f(to_at(*to as usize), from_at(*from as usize));
            }
        }
    }
}

/// The elements of a list, each with one some places later, or with the last one.
#[inline(always)]
fn with_later<T>(list: &[T]) -> impl Iterator<Item = (&T, &T)> {
    /// The number of items whose memory is being fetched at a time.
    const AHEAD: usize = 16;
    let later = list.get(AHEAD..).unwrap_or_default();
    list.iter().zip(later.iter().chain(list.last().into_iter().cycle()))
}

/// Combines one item with another.
///
/// # Safety
///
/// Both are items of `items`, aligned and initialised, which no other code accesses.
#[inline(always)]
unsafe fn combine<O: Operation, const PARTS: usize>(
    items: &LoweredItems,
    components: Dim,
    to: *mut u8,
    from: *const u8,
) {
    let size = size_of::<O::Element>().cast_signed();
    if PARTS != ANY {
        // SAFETY: guaranteed by the caller.
        return unsafe { loops::line::<O>(to, from, Dim { extent: PARTS, to: size, from: size }) };
    }
    for component in 0..components.extent {
        let (to, from) = loops::at(to, from, components, component);
        // SAFETY: a component of the item, as the caller guarantees.
        unsafe { loops::line::<O>(to, from, Dim { extent: items.parts, to: size, from: size }) };
    }
}
