//! Modules, kernels and their arguments.

use std::any::Any;

use super::{DeviceMemory, KernelAbilities};
use crate::{DType, Result};

/// Loaded code.
pub trait DeviceModule: Any + Send + Sync {
    /// Returns the kernel of that name. Kernels are dropped before their module.
    ///
    /// # Errors
    ///
    /// `KernelNotFound` naming the kernel.
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>>;
}

/// A kernel of a loaded module.
pub trait DeviceKernel: Any + Send + Sync {
    /// Returns the parameters of the *loaded* kernel, in order, or `None` if the driver does not report them. The front
    /// refuses launches whose arguments differ.
    fn parameters(&self) -> Option<&[ParamInfo]>;

    /// Further properties of the kernel that the driver reports. *Must* be the same at every call.
    fn abilities(&self) -> KernelAbilities<'_>;
}

/// How blocks of a kernel fill the multiprocessors of a device.
///
/// `shared_bytes` counts the bytes of shared memory that a launch adds to those the kernel declares. It is within the
/// device's limit.
pub trait Occupancy {
    /// Returns the number of work-items in a one-dimensional block, at least 1, that suits the kernel best as far as
    /// the driver knows. The device and the kernel *must* be able to run such a block.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if no one-dimensional block can be launched. Errors of the driver.
    fn suggested_block(&self, shared_bytes: u32) -> Result<u32>;

    /// Returns how many blocks of `block` work-items (at least 1) one multiprocessor holds at once, 0 if such a block
    /// does not fit, or `None` if the driver does not report it.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn resident_blocks(&self, block: u32, shared_bytes: u32) -> Result<Option<u32>>;
}

/// The known properties of one kernel parameter. Unknown properties are not checked.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Memory or value.
    pub kind: ParamKind,
    /// Size of a value in bytes.
    pub size: Option<usize>,
    /// Element type of the memory or value.
    pub dtype: Option<DType>,
    /// Whether the kernel writes to the memory.
    pub access: Option<ParamAccess>,
}

impl ParamInfo {
    /// A parameter of that kind, with no other known property.
    pub const fn new(kind: ParamKind) -> Self {
        Self { kind, size: None, dtype: None, access: None }
    }

    /// Sets the size of a value in bytes.
    #[must_use]
    pub fn with_size(mut self, bytes: impl Into<Option<usize>>) -> Self {
        self.size = bytes.into();
        self
    }

    /// Sets the element type.
    #[must_use]
    pub fn with_dtype(mut self, dtype: impl Into<Option<DType>>) -> Self {
        self.dtype = dtype.into();
        self
    }

    /// Sets how the kernel accesses the memory.
    #[must_use]
    pub fn with_access(mut self, access: impl Into<Option<ParamAccess>>) -> Self {
        self.access = access.into();
        self
    }
}

/// Whether a kernel parameter is memory or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Device memory.
    Memory,
    /// A value.
    Value,
    /// The driver does not say.
    Unknown,
}

/// How a kernel accesses a memory argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamAccess {
    /// The kernel only reads.
    Read,
    /// The kernel may write.
    Write,
}

/// One kernel argument as a backend receives it.
#[derive(Clone, Copy)]
pub enum RawArg<'a> {
    /// Memory of this device.
    Memory {
        /// The allocation.
        memory: &'a dyn DeviceMemory,
        /// Byte offset of element `[0, …, 0]`, which the kernel's pointer points to.
        origin: usize,
        /// Byte offset of the lowest byte that the argument covers. Differs from `origin` under negative strides.
        start: usize,
        /// Number of bytes covered, from `start` on.
        bytes: usize,
        /// Whether the elements fill those bytes, in any order. If not, the bytes in the gaps do not belong to the
        /// argument.
        dense: bool,
        /// Type of the elements.
        dtype: DType,
        /// Whether the kernel may write to it.
        writes: bool,
    },
    /// A view without elements. The kernel gets a null pointer.
    Empty {
        /// Type of the elements.
        dtype: DType,
        /// Whether the kernel may write to it.
        writes: bool,
    },
    /// A value, copied at launch.
    Value {
        /// Its bytes.
        bytes: &'a [u8],
        /// Its element type, where it is a single element.
        dtype: Option<DType>,
    },
}

impl std::fmt::Debug for RawArg<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory { origin, bytes, dtype, writes, .. } => {
                let access = if *writes { "write" } else { "read" };
                write!(f, "{access} {dtype} memory, {bytes} bytes, origin {origin}")
            }
            Self::Empty { dtype, .. } => write!(f, "empty {dtype} memory"),
            Self::Value { bytes, dtype: Some(dtype) } => write!(f, "{dtype} value {bytes:?}"),
            Self::Value { bytes, dtype: None } => write!(f, "value of {} bytes", bytes.len()),
        }
    }
}
