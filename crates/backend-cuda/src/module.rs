//! Modules and kernels as the contract has them.
#![expect(unsafe_code, reason = "loads modules and asks for kernels through the driver")]

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUjit_option, CUmodule};
use runtime_core::contract::{DeviceKernel, DeviceModule, Occupancy, ParamInfo, ParamKind};
use runtime_core::{Error, ErrorKind, Result};
use tempfile::TempDir;

use crate::codes;
use crate::context::ok;
use crate::nvrtc::headline;
use crate::program::Built;
use crate::reaper::Object;
use crate::shared::Shared;
use crate::signature::Signatures;

/// Dynamic shared memory that every kernel may have, together with what it declares; beyond, it must be asked for.
const SHARED_BYTES: u32 = 48 << 10;

/// A loaded module.
#[derive(Debug)]
pub(crate) struct CudaModule {
    raw: usize,
    signatures: Option<Signatures>,
    shared: Arc<Shared>,
    /// Most bytes of shared memory of a block.
    most_shared: u32,
    folder: Option<TempDir>,
}

impl CudaModule {
    pub(crate) fn load(shared: &Arc<Shared>, built: Built, most_shared: u32) -> Result<Self> {
        const OPERATION: &str = "module_load";
        let Built { image, signatures, folder, entry: _ } = built;
        let image = aligned(&image);
        let mut log = vec![0_u8; 16 << 10];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values =
            [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
        let mut raw: CUmodule = ptr::null_mut();
        let loaded = ok(shared.context.apart(|driver| {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            // SAFETY: text ends with a NUL, and binaries are whole; the log has as many bytes as the options say.
            unsafe {
                (driver.cuModuleLoadDataEx)(&mut raw, image.as_ptr().cast(), 2, options, values)
            }
        }));
        if let Err(code) = loaded {
            let log = log.split(|byte| *byte == 0).next().unwrap_or_default();
            let log = String::from_utf8_lossy(log);
            let about =
                if log.is_empty() { "the driver does not take the code" } else { headline(&log) };
            return Err(refused(shared, OPERATION, code, about).with_log(log.as_ref()));
        }
        let (raw, shared) = (raw.expose_provenance(), Arc::clone(shared));
        Ok(Self { raw, signatures, shared, most_shared, folder })
    }

    /// The function of that name.
    pub(crate) fn function(&self, name: &str) -> Result<CUfunction> {
        const OPERATION: &str = "kernel";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let missing = || {
            let instead = self.signatures.as_ref().map(|all| all.instead_of(name));
            let instead = instead.map_or(String::new(), |instead| format!("; {instead}"));
            format!("no kernel {name:?} in the module{instead}")
        };
        let text = CString::new(name)
            .map_err(|_| Error::new(ErrorKind::KernelNotFound, OPERATION, missing()))?;
        let mut function = ptr::null_mut();
        let code = shared.context.apart(|driver| {
            let module: CUmodule = ptr::with_exposed_provenance_mut(self.raw);
            // SAFETY: the module is loaded; the name ends with a NUL.
            unsafe { (driver.cuModuleGetFunction)(&mut function, module, text.as_ptr()) }
        });
        match code {
            0 => Ok(function),
            codes::NOT_FOUND => Err(shared.error(OPERATION, code, missing())),
            // Drivers load code when it is asked for first.
            _ => Err(shared.error(OPERATION, code, format_args!("kernel {name:?} does not load"))),
        }
    }

    /// What is to unload, and the folder that goes with it.
    pub(crate) fn into_object(self) -> (Object, Option<TempDir>) {
        (Object::Module(self.raw), self.folder)
    }
}

/// The bytes where numbers of 64 bits may be, which binaries hold.
fn aligned(image: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    image.chunks(8).map(word).collect()
}

/// Whatever the driver calls it, code that it does not take is an invalid module.
fn refused(shared: &Shared, operation: &'static str, code: u32, about: &str) -> Error {
    let error = shared.error(operation, code, about);
    match error.kind() {
        ErrorKind::OutOfMemory | ErrorKind::DeviceLost | ErrorKind::InvalidModule => error,
        _ => Error::new(ErrorKind::InvalidModule, operation, about)
            .with_driver(shared.context.driver.name(code), code.into())
            .on(&shared.id),
    }
}

impl DeviceModule for CudaModule {
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>> {
        let function = self.function(name)?;
        let shared = &self.shared;
        let ask = |attribute| -> Result<u32> {
            let mut value: c_int = 0;
            let code = shared.context.apart(|driver| {
                // SAFETY: the function is of a loaded module; the number is written to where it may be.
                unsafe { (driver.cuFuncGetAttribute)(&mut value, attribute, function) }
            });
            ok(code)
                .map_err(|code| shared.error("kernel", code, format_args!("kernel {name:?}")))?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let most_threads = ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        let declared = ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let signature = self.signatures.as_ref().and_then(|all| all.get(name));
        Ok(Box::new(CudaKernel {
            function,
            name: name.to_owned(),
            parameters: parameters(shared, function, signature),
            most_threads,
            most_shared: self.most_shared.saturating_sub(declared),
            granted: AtomicU32::new(SHARED_BYTES.saturating_sub(declared)),
            shared: Arc::clone(shared),
        }))
    }
}

/// The parameters: their sizes as the driver tells them, where it does, and the rest as PTX declares them.
fn parameters(
    shared: &Shared,
    function: CUfunction,
    declared: Option<&[ParamInfo]>,
) -> Option<Vec<ParamInfo>> {
    match sizes(shared, function) {
        Some(sizes) if declared.is_none_or(|declared| declared.len() != sizes.len()) => {
            Some(sizes.into_iter().map(of_size).collect())
        }
        _ => declared.map(<[_]>::to_vec),
    }
}

/// The sizes of a kernel's parameters, where the driver tells them.
fn sizes(shared: &Shared, function: CUfunction) -> Option<Vec<usize>> {
    let ask = shared.context.driver.cuFuncGetParamInfo?;
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is of a loaded module; the numbers are written to where they may be.
        match unsafe { ask(function, sizes.len(), &mut offset, &mut size) } {
            0 => sizes.push(size),
            // There is no parameter of that number.
            codes::INVALID_VALUE => return Some(sizes),
            _ => return None,
        }
    }
}

/// A parameter of which no more than the size is known: memory is what has the size of a pointer, if anything.
fn of_size(size: usize) -> ParamInfo {
    let is_pointer = size == size_of::<u64>();
    let kind = if is_pointer { ParamKind::Unknown } else { ParamKind::Value };
    ParamInfo { kind, size: Some(size), dtype: None, access: None }
}

/// A kernel.
#[derive(Debug)]
pub(crate) struct CudaKernel {
    pub(crate) function: CUfunction,
    pub(crate) name: String,
    parameters: Option<Vec<ParamInfo>>,
    /// Most work-items in a block of this kernel.
    pub(crate) most_threads: u32,
    /// Most bytes of dynamic shared memory of a block.
    most_shared: u32,
    /// Bytes of dynamic shared memory that a launch may have without asking for more.
    granted: AtomicU32,
    shared: Arc<Shared>,
}

// SAFETY: functions may be launched from any thread, and by several at once.
unsafe impl Send for CudaKernel {}
// SAFETY: as above.
unsafe impl Sync for CudaKernel {}

impl CudaKernel {
    /// Lets launches have that much dynamic shared memory.
    #[inline]
    pub(crate) fn grant(&self, operation: &'static str, bytes: u32) -> Result<()> {
        if bytes <= self.granted.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.raise(operation, bytes)
    }

    #[cold]
    fn raise(&self, operation: &'static str, bytes: u32) -> Result<()> {
        if bytes > self.most_shared {
            let message = format!(
                "kernel {:?}: {bytes} bytes of shared memory; it has at most {} beside what it declares",
                self.name, self.most_shared
            );
            return Err(Error::new(ErrorKind::InvalidArgument, operation, message));
        }
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // To the most at once: several kernels may share one function, and none may lower what another one has.
        let most = c_int::try_from(self.most_shared).unwrap_or(c_int::MAX);
        let code = self.shared.context.apart(|driver| {
            // SAFETY: the function is of a loaded module.
            unsafe { (driver.cuFuncSetAttribute)(self.function, attribute, most) }
        });
        ok(code).map_err(|code| {
            let what =
                format_args!("kernel {:?}: {} bytes of shared memory", self.name, self.most_shared);
            self.shared.error(operation, code, what)
        })?;
        self.granted.store(self.most_shared, Ordering::Relaxed);
        Ok(())
    }

    /// Asks the driver about blocks of the kernel.
    fn ask(&self, call: impl FnOnce() -> u32) -> Result<()> {
        const OPERATION: &str = "occupancy";
        self.shared.check(OPERATION)?;
        ok(self.shared.context.apart(|_| call())).map_err(|code| {
            self.shared.error(OPERATION, code, format_args!("blocks of kernel {:?}", self.name))
        })
    }
}

impl DeviceKernel for CudaKernel {
    fn parameters(&self) -> Option<&[ParamInfo]> {
        self.parameters.as_deref()
    }

    fn occupancy(&self) -> Option<&dyn Occupancy> {
        Some(self)
    }
}

impl Occupancy for CudaKernel {
    fn suggested_block(&self, shared_bytes: u32) -> Result<u32> {
        self.grant("occupancy", shared_bytes)?;
        let (mut grid, mut block): (c_int, c_int) = (0, 0);
        let function = self.shared.context.driver.cuOccupancyMaxPotentialBlockSize;
        let bytes = shared_bytes as usize;
        // SAFETY: the function is of a loaded module; the numbers are written to where they may be.
        self.ask(|| unsafe { function(&mut grid, &mut block, self.function, None, bytes, 0) })?;
        match u32::try_from(block) {
            Ok(block) if block > 0 => Ok(block),
            _ => {
                let message = format!(
                    "kernel {:?}: no block fits with {shared_bytes} bytes of shared memory",
                    self.name
                );
                Err(Error::new(ErrorKind::InvalidArgument, "occupancy", message))
            }
        }
    }

    fn resident_blocks(&self, block: u32, shared_bytes: u32) -> Result<Option<u32>> {
        if block > self.most_threads || shared_bytes > self.most_shared {
            return Ok(Some(0));
        }
        self.grant("occupancy", shared_bytes)?;
        let mut blocks: c_int = 0;
        let function = self.shared.context.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor;
        let (size, bytes) = (c_int::try_from(block).unwrap_or(c_int::MAX), shared_bytes as usize);
        // SAFETY: as above.
        self.ask(|| unsafe { function(&mut blocks, self.function, size, bytes) })?;
        Ok(Some(u32::try_from(blocks).unwrap_or(0)))
    }
}
