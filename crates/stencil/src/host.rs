//! Stencils as kernels of devices that run Rust functions.
#![expect(unsafe_code, reason = "rows are computed through pointers")]

use std::ops::Range;

use runtime_core::contract::{ParamAccess, ParamInfo, ParamKind};
use runtime_core::{Element, Grid, HostArg, HostKernel, HostModule, KernelFunction};
use smallvec::SmallVec;

use crate::arguments::Words;
use crate::description::{Intent, Parts, Rows};

/// The number of points that a core takes at a time: enough to hide the cost of distribution, and few enough for an
/// even distribution.
const POINTS: usize = 16_384;

/// The least number of columns that a core takes at a time, side by side: enough for long rows.
const COLUMNS: usize = 512;

/// A module with the kernel of a stencil.
pub(crate) fn module(parts: &'static Parts) -> HostModule {
    HostModule::new().with(parts.kernel, Function(parts))
}

struct Function(&'static Parts);

impl KernelFunction<Parts> for Function {
    fn into_kernel(self) -> HostKernel {
        let parts = self.0;
        let memory = |intent| {
            let access = if intent == Intent::In { ParamAccess::Read } else { ParamAccess::Write };
            ParamInfo::new(ParamKind::Memory).with_access(access)
        };
        let fields = parts.fields.iter().map(|field| memory(field.intent).with_dtype(field.dtype));
        let words =
            ParamInfo::new(ParamKind::Value).with_size(Words::count(parts) * size_of::<u64>());
        let rows = parts.rows[level()];
        HostKernel::new(fields.chain([words]).collect(), move |grid, args| {
            run(parts, rows, grid, args)
        })
    }
}

/// Computes a box on this processor, whose fields are outputs and then inputs of this many points.
pub(crate) fn compute<T: Element>(
    rows: Rows,
    words: &Words,
    inputs: &[Vec<T>],
    outputs: usize,
    points: usize,
) -> Vec<Vec<T>> {
    let mut results = vec![vec![T::zeroed(); points]; outputs];
    let mut pointers: Vec<*mut u8> =
        results.iter_mut().map(|result| result.as_mut_ptr().cast()).collect();
    pointers.extend(inputs.iter().map(|input| input.as_ptr().cast_mut().cast::<u8>()));
    // SAFETY: the caller passes a box of one row whose points the fields have, and rows that this processor can run.
    // Inputs are only read.
    unsafe { rows(words.as_ptr(), &pointers, 0..1) };
    results
}

/// The highest of the levels that this processor has, as a place in [`Parts::rows`].
#[cfg(target_arch = "x86_64")]
fn level() -> usize {
    macro_rules! has {
        ($($feature:tt)*) => { $(std::arch::is_x86_feature_detected!($feature))&&* };
    }
    // The features are those in `LEVELS` of `stencil-translator`.
    let has_v3 = has!("avx" "avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe");
    let has_v4 = has_v3 && has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl");
    usize::from(has_v3) + usize::from(has_v4)
}

#[cfg(not(target_arch = "x86_64"))]
fn level() -> usize {
    0
}

/// The pointers of a launch, for all cores.
struct Pointers(SmallVec<[*mut u8; 16]>);

// SAFETY: cores write the outputs of different points, and read inputs that no core writes.
unsafe impl Sync for Pointers {}

impl Pointers {
    fn get(&self) -> &[*mut u8] {
        &self.0
    }
}

fn run(
    parts: &'static Parts,
    rows: Rows,
    grid: &Grid<'_>,
    args: &[HostArg<'_>],
) -> Result<(), String> {
    let Some((HostArg::Value(bytes), fields)) = args.split_last() else {
        return Err("a launch without arguments".to_owned());
    };
    let words = Words::from_bytes(parts, bytes);
    let pointers: SmallVec<[*mut u8; 16]> = fields
        .iter()
        .map(|field| match field {
            HostArg::Memory { pointer, .. } => *pointer,
            HostArg::Value(_) => std::ptr::null_mut(),
        })
        .collect();
    let pointers = Pointers(pointers);
    let extents = words.extents();
    let Some((&length, outer)) = extents.split_last() else { return Ok(()) };
    let count: usize = outer.iter().product();
    if count == 0 || length == 0 {
        return Ok(());
    }
    let call = |words: &Words, range: Range<usize>| {
        // SAFETY: the launch has checked that the box and the footprints around it lie in the memories, and that
        // outputs are no other arguments. The words are those of this stencil, and no two calls compute the same point.
        unsafe { rows(words.as_ptr(), pointers.get(), range) }
    };
    if let Some(column) = parts.column.filter(|column| column.axis < outer.len()) {
        // Columns across the rows are cut where they are side by side.
        let levels = extents[column.axis];
        let lines = count / levels;
        let columns = (POINTS / levels).max(COLUMNS);
        let pieces = length.div_ceil(columns);
        let width = length.div_ceil(pieces);
        let band = (columns / width).max(1);
        grid.for_each(lines.div_ceil(band) * pieces, |chunk| {
            let (line, start) = (chunk / pieces * band, chunk % pieces * width);
            let mut words = words.clone();
            words.narrow(start..length.min(start + width));
            call(&words, line..lines.min(line + band));
        });
    } else if count == 1 && parts.column.is_none() {
        // One long row is cut along itself.
        grid.for_each(length.div_ceil(POINTS), |chunk| {
            let start = chunk * POINTS;
            let mut words = words.clone();
            words.narrow(start..length.min(start + POINTS));
            call(&words, 0..1);
        });
    } else {
        let band = (POINTS / length).max(1);
        grid.for_each(count.div_ceil(band), |chunk| {
            let start = chunk * band;
            call(&words, start..count.min(start + band));
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use runtime_core::DType;

    use super::*;
    use crate::probe;

    #[test]
    fn rows_have_the_same_bits_at_all_levels_of_this_processor() {
        const POINTS: usize = 1013;
        let mut random = 1_u32;
        let mut value = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(random.cast_signed()) / 1e8
        };
        let inputs: [Vec<f64>; 3] = std::array::from_fn(|_| (0..POINTS).map(|_| value()).collect());
        let parts = probe::of(DType::F64).parts();
        let mut words = Words::new(parts, &[]);
        words.set_box(&[POINTS, 1, 1], &[0; 3], &[POINTS, 1, 1]);
        let bits = |level: usize| -> Vec<u64> {
            let results = compute(parts.rows[level], &words, &inputs, 4, POINTS);
            results.iter().flatten().map(|value: &f64| value.to_bits()).collect()
        };
        let baseline = bits(0);
        assert!(baseline.iter().all(|bits| *bits != 0));
        for level in 1..=level() {
            assert!(bits(level) == baseline, "level {level}");
        }
    }
}
