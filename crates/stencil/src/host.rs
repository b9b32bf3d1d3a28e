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
        let rows = if has_wide_instructions() { parts.wide } else { parts.baseline };
        HostKernel::new(fields.chain([words]).collect(), move |grid, args| {
            run(parts, rows, grid, args)
        })
    }
}

/// Computes a box on this processor, whose fields are outputs and then inputs of this many points.
pub(crate) fn compute<T: Element>(
    parts: &'static Parts,
    words: &Words,
    inputs: &[Vec<T>],
    outputs: usize,
    points: usize,
) -> Vec<Vec<T>> {
    let mut results = vec![vec![T::zeroed(); points]; outputs];
    let mut pointers: Vec<*mut u8> =
        results.iter_mut().map(|result| result.as_mut_ptr().cast()).collect();
    pointers.extend(inputs.iter().map(|input| input.as_ptr().cast_mut().cast::<u8>()));
    // SAFETY: the caller passes a box of one row whose points the fields have. Inputs are only read.
    unsafe { (parts.baseline)(words.as_ptr(), &pointers, 0..1) };
    results
}

#[cfg(target_arch = "x86_64")]
fn has_wide_instructions() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2")
        && has!("avx")
        && has!("bmi1")
        && has!("bmi2")
        && has!("f16c")
        && has!("fma")
        && has!("lzcnt")
        && has!("movbe")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_wide_instructions() -> bool {
    false
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
