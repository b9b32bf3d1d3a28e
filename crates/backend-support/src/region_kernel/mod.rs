//! Region copies by one kernel, whose text OpenCL, CUDA and HIP share.
//!
//! A backend makes a [`RegionKernel`], compiles its [`source`](RegionKernel::source) once, and
//! [lowers](RegionKernel::lower) every program to [`RegionLaunches`]: words to upload once, and the launches that one
//! execution enqueues, in order.
//!
//! | kernel parameter | type | value |
//! |---|---|---|
//! | 0 | pointer to device memory | the [`words`](RegionLaunches::words), of 8 bytes each |
//! | 1 | 64-bit unsigned | [`RegionLaunch::start`] |
//! | 2 + 2 i | pointer to device memory | memory of the slot [`RegionLaunch::slots`]`[i]` |
//! | 3 + 2 i | 64-bit unsigned | bytes from there to the first byte of the slot |
//!
//! A slot without memory has null and 0: the copies that read or write it are left out. Parameters of slots that a launch
//! does not bind are there too and never looked at: null and 0 will do. There are no
//! index arrays; offsets have 64 bits; a copy of any size takes a few hundred bytes of words.
//!
//! Results agree bit for bit with the [element types](runtime_core::DType), but for the payload of a NaN that a sum
//! gives. That takes sums of `f32` rounded to nearest even that keep subnormal numbers; a device or compiler
//! option that flushes them changes sums of `f32`, `bf16` and `c64` and nothing else.

mod lower;
mod piece;
mod source;
#[cfg(test)]
mod tests;
mod words;

pub use lower::{RegionLaunch, RegionLaunches, RegionLimits};
pub use source::Dialect;

use runtime_core::{Error, ErrorKind, RegionProgram, Result};

/// How the work-items of a launch share its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// A work-item moves a run of consecutive elements in loops that a compiler can unroll and vectorise: for CPUs.
    Runs,
    /// Neighbouring work-items move neighbouring elements, of 16 bytes where rows and addresses admit it: for GPUs.
    Lanes,
}

/// The kernel that executes region copies.
///
/// ```
/// use backend_support::{Dialect, Mapping, RegionKernel, RegionLimits};
/// use runtime_core::{Combine, DType, RegionCopy, RegionProgram, RegionSide};
///
/// // Once per device: compile `source` and take the function `RegionKernel::NAME`.
/// let kernel = RegionKernel::new(Mapping::Lanes, 8, true)?;
/// let source = kernel.source(Dialect::CudaC);
/// assert!(source.contains(RegionKernel::NAME));
///
/// // Once per program: upload the words.
/// let face = RegionCopy {
///     dtype: DType::F64,
///     extents: vec![128, 128, 3],
///     source: RegionSide { slot: 0, offset: 24, strides: vec![134 * 134 * 8, 134 * 8, 8] },
///     destination: RegionSide { slot: 3, offset: 0, strides: vec![128 * 24, 24, 8] },
///     negate: false,
///     combine: Combine::Replace,
/// };
/// let program = RegionProgram::new(&[face])?;
/// let limits = RegionLimits {
///     compute_units: 132,
///     group_size: 256,
///     most_groups: (1 << 31) - 1,
///     slab: RegionLimits::MAX_SLAB,
/// };
/// let lowered = kernel.lower(&program, limits)?;
/// assert!(lowered.words().len() < 100);
///
/// // Each execution: set the parameters and launch.
/// for launch in lowered.launches() {
///     assert_eq!(launch.slots, [3, 0]);
///     assert_eq!(launch.group_size, 256);
///     assert!(launch.groups <= limits.most_groups);
/// }
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionKernel {
    mapping: Mapping,
    slots: usize,
    has_f64: bool,
}

impl RegionKernel {
    /// Name of the kernel in the source.
    pub const NAME: &'static str = "region_copy";

    /// Distinct memories that a kernel can take at most.
    pub const MAX_SLOTS: usize = 32;

    /// The kernel that takes `slots` distinct memories, for a device that computes in double precision or does not.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless `slots` is from 2, which one copy can need, to [`MAX_SLOTS`](Self::MAX_SLOTS).
    pub fn new(mapping: Mapping, slots: usize, has_f64: bool) -> Result<Self> {
        if !(2..=Self::MAX_SLOTS).contains(&slots) {
            let message =
                format!("a kernel of {slots} slots, allowed are 2 to {}", Self::MAX_SLOTS);
            return Err(Error::new(ErrorKind::InvalidArgument, "region kernel", message));
        }
        Ok(Self { mapping, slots, has_f64 })
    }

    /// How work-items share elements.
    pub fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// Number of memories that the kernel takes.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The text of the kernel. It includes no header; options that relax floating-point arithmetic must be off.
    pub fn source(&self, dialect: Dialect) -> String {
        source::source(self, dialect)
    }

    /// Lowers a program to launches of this kernel.
    ///
    /// A phase is one launch, or as many as it takes to bind no more slots than the kernel has. A launch must have
    /// ended before one of a later phase begins, as an in-order stream sees to.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a limit is 0, if a slab is larger than [`RegionLimits::MAX_SLAB`], or if the program sums
    /// elements of `f64` or `c128` and the kernel has no double precision; nothing else needs it. `OutOfMemory` if the
    /// host has no room for the words.
    pub fn lower(&self, program: &RegionProgram, limits: RegionLimits) -> Result<RegionLaunches> {
        lower::lower(self, program, limits)
    }
}
