//! Modules and kernels as the contract has them.
#![expect(unsafe_code, reason = "creates kernels through the driver")]

use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opencl3::error_codes::CL_INVALID_KERNEL_NAME;
use opencl3::kernel::{
    CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ADDRESS_LOCAL,
    CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_TYPE_CONST, CL_KERNEL_ARG_TYPE_NAME,
    CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_NUM_ARGS, CL_KERNEL_WORK_GROUP_SIZE, create_kernel,
    get_kernel_arg_data, get_kernel_data, get_kernel_work_group_data,
};
use opencl3::program::{CL_PROGRAM_KERNEL_NAMES, get_program_data};
use opencl3::types::{cl_int, cl_kernel, cl_program, cl_uint};
use runtime_core::contract::{DeviceKernel, DeviceModule, ParamAccess, ParamInfo, ParamKind};
use runtime_core::{DType, Error, ErrorKind, Result};

use crate::handle::{Handle, Kernel};
use crate::platform::{integer, text};
use crate::program::Built;
use crate::shared::Shared;

/// A loaded program.
#[derive(Debug)]
pub(crate) struct OpenClModule {
    built: Built,
    shared: Arc<Shared>,
}

impl OpenClModule {
    pub(crate) fn new(built: Built, shared: &Arc<Shared>) -> Self {
        Self { built, shared: Arc::clone(shared) }
    }

    /// Whether the driver tells the parameters of every kernel of a built program.
    pub(crate) fn tells_parameters(program: cl_program) -> bool {
        let names =
            get_program_data(program, CL_PROGRAM_KERNEL_NAMES).map(text).unwrap_or_default();
        names.split(';').filter(|name| !name.is_empty()).all(|name| {
            let Ok(kernel) = create(program, name) else { return false };
            // SAFETY: the kernel was just created.
            let kernel: Handle<Kernel> = unsafe { Handle::own(kernel, &Arc::default()) };
            parameters(kernel.raw()).is_ok_and(|(known, _)| known.is_some())
        })
    }

    /// A new object for the kernel of that name, with arguments of its own.
    pub(crate) fn create(&self, name: &str) -> Result<Handle<Kernel>> {
        let shared = &self.shared;
        shared.check("kernel")?;
        let raw = create(self.built.program.raw(), name).map_err(|code| {
            let error = shared.error("kernel", code, format!("no kernel {name:?} in the module"));
            match (error.kind(), error.driver()) {
                // A program without any kernel has nothing to look in.
                (ErrorKind::InvalidModule, Some(driver)) => {
                    Error::new(ErrorKind::KernelNotFound, "kernel", error.message())
                        .with_driver(driver.name.clone(), driver.code)
                }
                _ => error,
            }
        })?;
        // SAFETY: the kernel was just created.
        Ok(unsafe { Handle::own(raw, &shared.failures) })
    }

    fn opencl_kernel(&self, name: &str) -> Result<OpenClKernel> {
        let shared = &self.shared;
        let kernel = self.create(name)?;
        let raw = kernel.raw();
        let failed = |code| shared.error("kernel", code, format!("kernel {name:?}"));
        let (parameters, local) = parameters(raw).map_err(failed)?;
        if let Local::Several(count) = local {
            let message = format!(
                "kernel {name:?} has {count} parameters in local memory; one takes a launch's shared bytes, and more cannot be told apart"
            );
            return Err(Error::new(ErrorKind::InvalidModule, "kernel", message));
        }
        let device = shared.found.id();
        let size = get_kernel_work_group_data(raw, device, CL_KERNEL_WORK_GROUP_SIZE);
        let most = size.map_or(u64::MAX, |size| integer(&size));
        Ok(OpenClKernel {
            name: name.to_owned(),
            parameters,
            local: if let Local::One(index) = local { Some(index) } else { None },
            most,
            kernel: Mutex::new(kernel),
        })
    }
}

impl DeviceModule for OpenClModule {
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>> {
        Ok(Box::new(self.opencl_kernel(name)?))
    }
}

/// A kernel. Its arguments are a state of the driver's object, and so set under a lock.
#[derive(Debug)]
pub(crate) struct OpenClKernel {
    pub(crate) name: String,
    parameters: Option<Vec<ParamInfo>>,
    /// The parameter in local memory, which is no argument of a launch.
    pub(crate) local: Option<cl_uint>,
    /// Most work-items in a block of this kernel.
    pub(crate) most: u64,
    kernel: Mutex<Handle<Kernel>>,
}

impl OpenClKernel {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Handle<Kernel>> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceKernel for OpenClKernel {
    fn parameters(&self) -> Option<&[ParamInfo]> {
        self.parameters.as_deref()
    }
}

fn create(program: cl_program, name: &str) -> Result<cl_kernel, cl_int> {
    let name = CString::new(name).map_err(|_| CL_INVALID_KERNEL_NAME)?;
    create_kernel(program, &name)
}

/// Parameters in local memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Local {
    None,
    One(cl_uint),
    Several(u32),
}

/// What the driver tells of the parameters that are arguments of a launch, if it does, and of those in local memory.
fn parameters(kernel: cl_kernel) -> Result<(Option<Vec<ParamInfo>>, Local), cl_int> {
    let count = integer(&get_kernel_data(kernel, CL_KERNEL_NUM_ARGS)?);
    let count = cl_uint::try_from(count).unwrap_or(cl_uint::MAX);
    let mut known = Vec::new();
    let mut local = Local::None;
    for index in 0..count {
        let ask = |what| get_kernel_arg_data(kernel, index, what);
        let (Ok(space), Ok(name)) =
            (ask(CL_KERNEL_ARG_ADDRESS_QUALIFIER), ask(CL_KERNEL_ARG_TYPE_NAME))
        else {
            return Ok((None, Local::None));
        };
        let (space, name) = (integer(&space), text(name));
        if space == u64::from(CL_KERNEL_ARG_ADDRESS_LOCAL) {
            local = match local {
                Local::None => Local::One(index),
                Local::One(_) => Local::Several(2),
                Local::Several(count) => Local::Several(count + 1),
            };
            continue;
        }
        let constant = space == u64::from(CL_KERNEL_ARG_ADDRESS_CONSTANT)
            || ask(CL_KERNEL_ARG_TYPE_QUALIFIER)
                .is_ok_and(|bits| integer(&bits) & u64::from(CL_KERNEL_ARG_TYPE_CONST) != 0);
        let memory = space == u64::from(CL_KERNEL_ARG_ADDRESS_GLOBAL)
            || space == u64::from(CL_KERNEL_ARG_ADDRESS_CONSTANT);
        known.push(if memory { pointer(&name, constant) } else { value(&name) });
    }
    Ok((Some(known), local))
}

fn pointer(name: &str, constant: bool) -> ParamInfo {
    let element = name.trim_end().trim_end_matches('*').trim_end();
    ParamInfo {
        kind: ParamKind::Memory,
        size: None,
        // Bytes stand for memory of any type.
        dtype: scalar(element).map(|(_, dtype)| dtype).filter(|dtype| dtype.size() > 1),
        access: Some(if constant { ParamAccess::Read } else { ParamAccess::Write }),
    }
}

fn value(name: &str) -> ParamInfo {
    let (size, dtype) = match scalar(name) {
        Some((size, dtype)) => (Some(size), Some(dtype)),
        None => (vector(name), None),
    };
    ParamInfo { kind: ParamKind::Value, size, dtype, access: None }
}

/// Size and element type of a built-in type of OpenCL C.
fn scalar(name: &str) -> Option<(usize, DType)> {
    let dtype = match name {
        "char" => DType::I8,
        "uchar" | "unsigned char" => DType::U8,
        "short" => DType::I16,
        "ushort" | "unsigned short" => DType::U16,
        "int" => DType::I32,
        "uint" | "unsigned int" | "unsigned" => DType::U32,
        "long" => DType::I64,
        "ulong" | "unsigned long" => DType::U64,
        "half" => DType::F16,
        "float" => DType::F32,
        "double" => DType::F64,
        _ => return None,
    };
    Some((dtype.size(), dtype))
}

/// Size of a vector such as `float4`; three components take the room of four.
fn vector(name: &str) -> Option<usize> {
    let digits = name.find(|c: char| c.is_ascii_digit())?;
    let (size, _) = scalar(&name[..digits])?;
    match name[digits..].parse().ok()? {
        count @ (2 | 4 | 8 | 16) => Some(count * size),
        3 => Some(4 * size),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_from_their_names() {
        assert_eq!(value("uint").dtype, Some(DType::U32));
        assert_eq!(value("float4").size, Some(16));
        assert_eq!(value("double3").size, Some(32));
        assert_eq!(value("struct particle").size, None);
        assert_eq!(value("float5").size, None);
        assert_eq!(pointer("float*", true).dtype, Some(DType::F32));
        assert_eq!(pointer("uchar*", false).dtype, None);
        assert_eq!(pointer("double2*", false).dtype, None);
        assert_eq!(pointer("int *", false).access, Some(ParamAccess::Write));
    }
}
