//! What host, accelerator and embedded devices share.

use std::any::Any;

use super::DeviceMemory;
use crate::{DType, DeviceInfo, ModuleImage, Result};

/// An opened device of any kind: who it is, and loading code.
pub trait CommonRuntime: Any + Send + Sync {
    /// Identity, limits and formats. *Must* stay the same for as long as the device is open.
    fn info(&self) -> &DeviceInfo;

    /// Loads code. Only formats listed in [`DeviceInfo::formats`] arrive here.
    ///
    /// # Errors
    ///
    /// `InvalidModule` with the compiler's or loader's log if the code is not accepted.
    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>>;

    /// Blocks until everything enqueued on any stream of this device is done.
    ///
    /// # Errors
    ///
    /// The first failure of asynchronous work, or of a release in a destructor, that was not reported before.
    fn synchronize(&self) -> Result<()>;
}

/// Loaded code.
pub trait DeviceModule: Any + Send + Sync {
    /// The kernel of that name. Kernels are dropped before their module.
    ///
    /// # Errors
    ///
    /// `KernelNotFound` naming the kernel.
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>>;
}

/// A kernel of a loaded module.
pub trait DeviceKernel: Any + Send + Sync {
    /// The parameters in order as the *loaded* kernel has them, or `None` where the driver cannot tell. The front
    /// refuses launches that differ.
    fn parameters(&self) -> Option<&[ParamInfo]>;

    /// How blocks of the kernel fill the device, or `None` where the driver cannot tell or blocks do not matter.
    fn occupancy(&self) -> Option<&dyn Occupancy>;
}

/// How blocks of a kernel fill the multiprocessors of a device.
///
/// Bytes of shared memory are those that a launch adds to what the kernel declares, within the device's limit.
pub trait Occupancy {
    /// Work-items of a block, in one dimension and at least 1, that suit the kernel best as far as the driver knows. The
    /// device and the kernel *must* be able to run such a block.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if no block of one dimension can be launched; what the driver reports.
    fn suggested_block(&self, shared_bytes: u32) -> Result<u32>;

    /// Blocks of `block` work-items, at least 1, that one multiprocessor holds at once, 0 if such a block does not fit;
    /// `None` where the driver cannot tell.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    fn resident_blocks(&self, block: u32, shared_bytes: u32) -> Result<Option<u32>>;
}

/// What a driver knows about one kernel parameter; what is unknown is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Memory or value.
    pub kind: ParamKind,
    /// Size in bytes of a value.
    pub size: Option<usize>,
    /// Element type of the memory or value.
    pub dtype: Option<DType>,
    /// Whether the kernel writes through it.
    pub access: Option<ParamAccess>,
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

/// What a kernel does with memory it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamAccess {
    /// It reads only.
    Read,
    /// It may write.
    Write,
}

/// One kernel argument as a backend gets it.
#[derive(Clone, Copy)]
pub enum RawArg<'a> {
    /// Memory of this device.
    Memory {
        /// The allocation.
        memory: &'a dyn DeviceMemory,
        /// Byte offset of element `[0, …, 0]`: where the kernel's pointer points.
        origin: usize,
        /// Byte offset of the lowest byte the argument covers; differs from `origin` under negative strides.
        start: usize,
        /// Bytes covered from `start` on.
        bytes: usize,
        /// Whether the elements fill those bytes, in whatever order. Bytes in gaps between them are somebody else's.
        dense: bool,
        /// Type of the elements.
        dtype: DType,
        /// Whether the kernel may write it.
        writes: bool,
    },
    /// A view without elements; kernels get a null pointer.
    Empty {
        /// Type of the elements.
        dtype: DType,
        /// Whether the kernel may write it.
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
