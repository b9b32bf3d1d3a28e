//! Region copies by a single kernel, whose source OpenCL, CUDA and HIP share.
//!
//! A backend creates a [`RegionKernel`] and compiles its [`source`](RegionKernel::source) once. It
//! [lowers](RegionKernel::lower) every program to [`RegionLaunches`]: words to upload once, and the launches that one
//! execution enqueues, in order.
//!
//! | kernel parameter | type | value |
//! |---|---|---|
//! | 0 | pointer to device memory | the [`words`](RegionLaunches::words), of 8 bytes each |
//! | 1 | 64-bit unsigned | [`RegionLaunch::start`] |
//!
//! [`Binding`] defines the other parameters. With [`Binding::Parameters`]:
//!
//! | kernel parameter | type | value |
//! |---|---|---|
//! | 2 + 2 i | pointer to device memory | memory of the slot [`RegionLaunch::slots`]`[i]` |
//! | 3 + 2 i | 64-bit unsigned | byte offset from there to the first byte of the slot |
//!
//! With [`Binding::List`], parameter 2 is a struct with as many 64-bit addresses as the kernel has places for slots.
//! Place `i` contains the address of the first byte of slot [`RegionLaunch::slots`]`[i]`. With [`Binding::Table`], it
//! is a pointer to addresses in device memory.
//!
//! A slot without memory has null and 0; the copies that read or write it are left out. Places that a launch does not
//! use must be present too, but are never read: pass null and 0. Offsets have 64 bits. A strided copy of any size takes
//! a few hundred bytes of words. An indexed copy takes 4 bytes for each index, and 8 for each item that is read by a
//! fold.
//!
//! Results agree bit for bit with the [element types](runtime_core::DType), except for the payload of a NaN that
//! results from a sum. This requires that sums of `f32` round to nearest even and keep subnormal numbers. A device or
//! compiler option that flushes subnormal numbers changes only sums of `f32`, `bf16` and `c64`.

mod items;
mod lower;
mod piece;
mod source;
mod tables;
#[cfg(test)]
mod tests;
mod words;

pub use lower::{RegionLaunch, RegionLaunches, RegionLimits};
pub use source::Dialect;
pub use tables::{AddressTable, AddressTables};

use runtime_core::{Error, ErrorKind, RegionProgram, Result};

/// How the work-items of a launch share its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// A work-item moves a run of consecutive elements in loops that a compiler can unroll and vectorise. For CPUs.
    Runs,
    /// Neighbouring work-items move neighbouring elements, of 16 bytes where rows and addresses allow it. For GPUs.
    Lanes,
}

/// How a kernel receives the memories of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// Each memory is a parameter, and the offset of its slot is another parameter. For drivers whose memory has no
    /// address. Up to [`RegionKernel::MAX_SLOTS`].
    Parameters(usize),
    /// One parameter contains all addresses. For drivers that copy it as fast as few parameters. Up to
    /// [`RegionKernel::MAX_LISTED`].
    List(usize),
    /// The addresses of any number of memories are in device memory. [`AddressTables`] determines when to set them, and
    /// [`RegionKernel::setter_source`] is a kernel that sets them in stream order.
    Table,
}

/// The kernel that executes region copies.
///
/// ```
/// use backend_support::{Binding, Dialect, Mapping, RegionKernel, RegionLimits};
/// use runtime_core::{Combine, DType, RegionCopy, RegionProgram, RegionSide};
///
/// // Once per device: compile `source` and take the function `RegionKernel::NAME`.
/// let kernel = RegionKernel::new(Mapping::Lanes, Binding::Parameters(8), true)?;
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
///     max_groups: (1 << 31) - 1,
///     slab: RegionLimits::MAX_SLAB,
/// };
/// let lowered = kernel.lower(&program, limits)?;
/// assert!(lowered.words().len() < 100);
///
/// // Each execution: set the parameters and launch.
/// for launch in lowered.launches() {
///     assert_eq!(launch.slots, [3, 0]);
///     assert_eq!(launch.group_size, 256);
///     assert!(launch.groups <= limits.max_groups);
/// }
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionKernel {
    mapping: Mapping,
    binding: Binding,
    has_f64: bool,
}

impl RegionKernel {
    /// Name of the kernel in the source.
    pub const NAME: &'static str = "region_copy";

    /// Name of the kernel that sets a [table](Binding::Table), run by one group of any size. Its parameters are a
    /// pointer to the first address to set, the number of addresses as 64-bit unsigned, and a struct of
    /// [`MAX_LISTED`](Self::MAX_LISTED) addresses.
    pub const SETTER: &'static str = "region_table";

    /// The most distinct memories that a kernel can take as parameters.
    pub const MAX_SLOTS: usize = 32;

    /// The most addresses in one parameter. Together with the data that drivers add, they stay below 4 KiB.
    pub const MAX_LISTED: usize = 448;

    /// Creates the kernel with this binding, for a device with or without double precision.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless the number of memories is at least 2, which one copy may need, and at most
    /// [`MAX_SLOTS`](Self::MAX_SLOTS) as parameters or [`MAX_LISTED`](Self::MAX_LISTED) in a list.
    pub fn new(mapping: Mapping, binding: Binding, has_f64: bool) -> Result<Self> {
        let (slots, most) = match binding {
            Binding::Parameters(slots) => (slots, Self::MAX_SLOTS),
            Binding::List(slots) => (slots, Self::MAX_LISTED),
            Binding::Table => return Ok(Self { mapping, binding, has_f64 }),
        };
        if !(2..=most).contains(&slots) {
            let message = format!("a kernel of {slots} slots, allowed are 2 to {most}");
            return Err(Error::new(ErrorKind::InvalidArgument, "region kernel", message));
        }
        Ok(Self { mapping, binding, has_f64 })
    }

    /// The most memories for the smallest kernel of [`by_address`](Self::by_address).
    pub const FEW: usize = 8;

    /// The most memories for the next kernel, in a short list.
    pub const MANY: usize = 32;

    /// The bindings for memories that have addresses. A launch with fewer bytes of parameters is faster.
    pub const BY_ADDRESS: [Binding; 4] = [
        Binding::Parameters(Self::FEW),
        Binding::List(Self::MANY),
        Binding::List(Self::MAX_LISTED),
        Binding::Table,
    ];

    /// The kernel for a program over this many memories that have addresses: the first of
    /// [`BY_ADDRESS`](Self::BY_ADDRESS) that takes them in one launch. It also supports double precision.
    pub fn by_address(mapping: Mapping, memories: usize) -> Self {
        let kernels = Self::BY_ADDRESS.map(|binding| Self { mapping, binding, has_f64: true });
        let [.., last] = kernels;
        kernels.into_iter().find(|kernel| memories <= kernel.slots()).unwrap_or(last)
    }

    /// How work-items share elements.
    pub fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// How the kernel receives its memories.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// The most memories that a launch takes.
    pub fn slots(&self) -> usize {
        match self.binding {
            Binding::Parameters(slots) | Binding::List(slots) => slots,
            Binding::Table => usize::MAX,
        }
    }

    /// The source of the kernel. It includes no header. Compiler options that relax floating-point arithmetic must be
    /// off.
    pub fn source(&self, dialect: Dialect) -> String {
        source::source(self, dialect)
    }

    /// The source of the kernel [`SETTER`](Self::SETTER), in CUDA C++ and HIP C++. It includes no header.
    pub fn setter_source() -> String {
        source::setter()
    }

    /// Lowers a program to launches of this kernel.
    ///
    /// A phase is one launch, or several if one launch cannot bind all its slots. A launch must have ended before a
    /// launch of a later phase begins; an in-order stream ensures that. Place `i` of a [table](Binding::Table) is slot
    /// `i` of the program for all launches.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a limit is 0, if a slab is larger than [`RegionLimits::MAX_SLAB`], or if the program sums
    /// elements of `f64` or `c128` and the kernel has no double precision. No other operation needs double precision.
    /// `OutOfMemory` if the host has no room for the words.
    pub fn lower(&self, program: &RegionProgram, limits: RegionLimits) -> Result<RegionLaunches> {
        lower::lower(self, program, limits)
    }
}
