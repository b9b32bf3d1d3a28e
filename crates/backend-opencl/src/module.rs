//! Modules and kernels, as the traits of the runtime require them.
#![expect(unsafe_code, reason = "creates kernels through the driver")]

use std::sync::{Arc, Mutex, MutexGuard};

use backend_support::lock;
use opencl3::kernel::{
    CL_KERNEL_COMPILE_WORK_GROUP_SIZE, CL_KERNEL_LOCAL_MEM_SIZE,
    CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, CL_KERNEL_WORK_GROUP_SIZE,
    get_kernel_work_group_data,
};
use opencl3::types::cl_uint;
use runtime_core::contract::{DeviceKernel, DeviceModule, KernelAbilities, ParamInfo};
use runtime_core::{Error, ErrorKind, Result};

use crate::handle::{Handle, Kernel};
use crate::open_device::OpenDevice;
use crate::platform::integer;
use crate::program::Built;
use crate::signature;

/// A loaded program.
#[derive(Debug)]
pub(crate) struct OpenClModule {
    built: Built,
    shared: Arc<OpenDevice>,
}

impl OpenClModule {
    pub(crate) fn new(built: Built, shared: &Arc<OpenDevice>) -> Self {
        Self { built, shared: Arc::clone(shared) }
    }

    /// Creates an object for the kernel of this name, with its own arguments.
    pub(crate) fn create(&self, name: &str) -> Result<Handle<Kernel>> {
        let shared = &self.shared;
        shared.check("kernel")?;
        let raw = signature::create(self.built.program.raw(), name).map_err(|code| {
            let error = shared.error("kernel", code, format!("no kernel {name:?} in the module"));
            match (error.kind(), error.driver()) {
                // A program without any kernel has no kernel names to search.
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
}

impl OpenClModule {
    /// The most work-items in a block of a kernel.
    pub(crate) fn max_items(&self, kernel: &Handle<Kernel>) -> u64 {
        let device = self.shared.found.id();
        let size = get_kernel_work_group_data(kernel.raw(), device, CL_KERNEL_WORK_GROUP_SIZE);
        size.map(|size| integer(&size)).ok().filter(|most| *most > 0).unwrap_or(u64::MAX)
    }
}

impl DeviceModule for OpenClModule {
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>> {
        let kernel = self.create(name)?;
        let signature = self.built.signatures.as_ref().and_then(|all| all.get(name));
        let local = signature.map(|signature| signature.local()).unwrap_or_default();
        if local.len() > 1 {
            let message = format!(
                "kernel {name:?} has {} parameters in local memory; one takes a launch's shared bytes, and more cannot be distinguished",
                local.len()
            );
            return Err(Error::new(ErrorKind::InvalidModule, "kernel", message));
        }
        if let Some(kind) = signature.and_then(|signature| signature.opaque()) {
            let message =
                format!("kernel {name:?} has a parameter of type {kind}, which no launch can give");
            return Err(Error::new(ErrorKind::InvalidModule, "kernel", message));
        }
        let ask = |what| {
            get_kernel_work_group_data(kernel.raw(), self.shared.found.id(), what)
                .unwrap_or_default()
        };
        let required = ask(CL_KERNEL_COMPILE_WORK_GROUP_SIZE);
        let mut required = required.chunks_exact(size_of::<usize>()).map(integer);
        let required = std::array::from_fn(|_| required.next().unwrap_or(0));
        Ok(Box::new(OpenClKernel {
            name: name.into(),
            parameters: signature.map(|signature| signature.parameters()),
            alignments: signature.map(|signature| signature.alignments()).unwrap_or_default(),
            local: local.first().copied(),
            most: self.max_items(&kernel),
            preferred_multiple: integer(&ask(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE)),
            required: Some(required).filter(|required| *required != [0; 3]),
            static_bytes: integer(&ask(CL_KERNEL_LOCAL_MEM_SIZE)),
            kernel: Mutex::new(kernel),
        }))
    }
}

/// A kernel. Its arguments are state of the driver's object, so they are set under a lock.
#[derive(Debug)]
pub(crate) struct OpenClKernel {
    pub(crate) name: Arc<str>,
    parameters: Option<Vec<ParamInfo>>,
    /// For each argument, the required alignment of an address, as far as it is known.
    pub(crate) alignments: Vec<usize>,
    /// The parameter in local memory, which is not an argument of a launch.
    pub(crate) local: Option<cl_uint>,
    /// The most work-items in a block of this kernel.
    pub(crate) most: u64,
    /// The preferred multiple of the block size; 0 if the driver does not report it.
    pub(crate) preferred_multiple: u64,
    /// The block size that the kernel was compiled for, if it supports no other.
    pub(crate) required: Option<[u64; 3]>,
    /// The local memory that the kernel itself declares.
    pub(crate) static_bytes: u64,
    kernel: Mutex<Handle<Kernel>>,
}

impl OpenClKernel {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Handle<Kernel>> {
        lock(&self.kernel)
    }
}

impl DeviceKernel for OpenClKernel {
    fn parameters(&self) -> Option<&[ParamInfo]> {
        self.parameters.as_deref()
    }

    fn abilities(&self) -> KernelAbilities<'_> {
        KernelAbilities::none().with_occupancy(self)
    }
}
