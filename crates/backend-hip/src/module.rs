//! Modules and kernels as the contract has them.
#![expect(unsafe_code, reason = "loads modules and asks for kernels through the runtime")]

use std::ffi::{CStr, CString, c_int};
use std::ptr;
use std::sync::Arc;

use hip_sys::hiprt::{hipFunction_attribute, hipFunction_t, hipModule_t};
use runtime_core::contract::{DeviceKernel, DeviceModule, Occupancy, ParamInfo};
use runtime_core::{Error, ErrorKind, Limits, Result};
use tempfile::TempDir;

use crate::code_object::Metadata;
use crate::codes;
use crate::context::{Context, ok};
use crate::program::Built;
use crate::reaper::Object;
use crate::shared::Shared;

/// Loads a binary that was found to be whole.
pub(crate) fn load(context: &Context, image: &[u8]) -> Result<hipModule_t, u32> {
    let image = aligned(image);
    let mut module = ptr::null_mut();
    context.bind()?;
    // SAFETY: the binary is whole; the handle is written to where it may be.
    ok(unsafe { (context.hip.hipModuleLoadData)(&mut module, image.as_ptr().cast()) })?;
    Ok(module)
}

/// The function of that name in a loaded module.
pub(crate) fn function(
    context: &Context,
    module: hipModule_t,
    name: &CStr,
) -> Result<hipFunction_t, u32> {
    let mut function = ptr::null_mut();
    context.bind()?;
    // SAFETY: the callers' modules are loaded; the name ends with a NUL, and the handle is written to where it may be.
    ok(unsafe { (context.hip.hipModuleGetFunction)(&mut function, module, name.as_ptr()) })?;
    Ok(function)
}

/// A number that the runtime was asked for; `None` where it has no answer.
fn answered(code: u32, number: c_int) -> Result<Option<u32>, u32> {
    match code {
        codes::NOT_SUPPORTED => Ok(None),
        code => ok(code).map(|()| Some(u32::try_from(number).unwrap_or(0))),
    }
}

/// Work-items of a block where the runtime suggests none, which suit wavefronts of any width.
const DEFAULT_BLOCK: u32 = 256;

/// Bytes that the runtime copies from where a bundle begins, however short it is.
const LEAST_BYTES: usize = 4096;

/// The bytes where numbers of 64 bits may be, which binaries hold, and zeros behind them if they are few.
fn aligned(image: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    let mut words: Vec<u64> = image.chunks(8).map(word).collect();
    words.resize(words.len().max(LEAST_BYTES / 8), 0);
    words
}

/// A loaded module.
#[derive(Debug)]
pub(crate) struct HipModule {
    raw: usize,
    metadata: Metadata,
    shared: Arc<Shared>,
    /// Most work-items of a block, and most bytes of its shared memory, on the device.
    most: (u32, u32),
    folder: Option<TempDir>,
}

impl HipModule {
    pub(crate) fn load(shared: &Arc<Shared>, built: Built, limits: &Limits) -> Result<Self> {
        let Built { image, metadata, folder, entry: _ } = built;
        let raw = load(&shared.context, &image).map_err(|code| refused(shared, code, &metadata))?;
        let (raw, shared) = (raw.expose_provenance(), Arc::clone(shared));
        let most = (limits.block_size, limits.shared_bytes);
        Ok(Self { raw, metadata, shared, most, folder })
    }

    /// What is to unload, and the folder that goes with it.
    pub(crate) fn into_object(self) -> (Object, Option<TempDir>) {
        (Object::Module(self.raw), self.folder)
    }
}

/// Whatever the runtime calls it, code that it does not take is an invalid module.
fn refused(shared: &Shared, code: u32, metadata: &Metadata) -> Error {
    const OPERATION: &str = "module_load";
    let about = match metadata.target.as_str() {
        "" => "the runtime does not take the code".to_owned(),
        target => format!("the runtime does not take the code, which is for {target}"),
    };
    let error = shared.error(OPERATION, code, &about);
    match error.kind() {
        ErrorKind::OutOfMemory | ErrorKind::DeviceLost | ErrorKind::InvalidModule => error,
        _ => Error::new(ErrorKind::InvalidModule, OPERATION, about)
            .with_driver(shared.context.hip.name(code), code.into())
            .on(&shared.id),
    }
}

impl DeviceModule for HipModule {
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>> {
        const OPERATION: &str = "kernel";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let missing = || format!("no kernel {name:?} in the module");
        let text = CString::new(name)
            .map_err(|_| Error::new(ErrorKind::KernelNotFound, OPERATION, missing()))?;
        let module = ptr::with_exposed_provenance_mut(self.raw);
        let function = function(&shared.context, module, &text)
            .map_err(|code| shared.error(OPERATION, code, missing()))?;
        // Where there is no answer, the runtime refuses a launch that asks for too much.
        let ask = |attribute| -> Result<Option<u32>> {
            let Some(ask) = shared.context.hip.hipFuncGetAttribute else { return Ok(None) };
            let mut value: c_int = 0;
            // SAFETY: the function is of a loaded module; the number is written to where it may be.
            answered(unsafe { ask(&mut value, attribute, function) }, value)
                .map_err(|code| shared.error(OPERATION, code, format_args!("kernel {name:?}")))
        };
        let (most_threads, most_shared) = self.most;
        let threads = hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        let declared = hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        Ok(Box::new(HipKernel {
            function,
            name: name.to_owned(),
            parameters: self.metadata.kernel(name).map(<[_]>::to_vec),
            most_threads: ask(threads)?.unwrap_or(most_threads),
            most_shared: most_shared.saturating_sub(ask(declared)?.unwrap_or(0)),
            shared: Arc::clone(shared),
        }))
    }
}

/// A kernel.
#[derive(Debug)]
pub(crate) struct HipKernel {
    pub(crate) function: hipFunction_t,
    pub(crate) name: String,
    parameters: Option<Vec<ParamInfo>>,
    /// Most work-items in a block of this kernel.
    pub(crate) most_threads: u32,
    /// Most bytes of dynamic shared memory of a block.
    most_shared: u32,
    shared: Arc<Shared>,
}

// SAFETY: functions may be launched from any thread, and by several at once.
unsafe impl Send for HipKernel {}
// SAFETY: as above.
unsafe impl Sync for HipKernel {}

impl HipKernel {
    /// Refuses more dynamic shared memory than is left beside what the kernel declares.
    #[inline]
    pub(crate) fn check_shared(&self, operation: &'static str, bytes: u32) -> Result<()> {
        if bytes <= self.most_shared {
            return Ok(());
        }
        Err(self.too_much(operation, bytes))
    }

    #[cold]
    fn too_much(&self, operation: &'static str, bytes: u32) -> Error {
        let message = format!(
            "kernel {:?}: {bytes} bytes of shared memory; this kernel has at most {}",
            self.name, self.most_shared
        );
        Error::new(ErrorKind::InvalidArgument, operation, message)
    }

    /// Asks the runtime about blocks of the kernel; `None` where it has no answer.
    fn ask(&self, call: impl FnOnce(&mut c_int) -> u32) -> Result<Option<u32>> {
        const OPERATION: &str = "occupancy";
        self.shared.check(OPERATION)?;
        let mut number = 0;
        let asked = self.shared.context.bind().and_then(|()| {
            let code = call(&mut number);
            answered(code, number)
        });
        asked.map_err(|code| {
            self.shared.error(OPERATION, code, format_args!("blocks of kernel {:?}", self.name))
        })
    }
}

impl DeviceKernel for HipKernel {
    fn parameters(&self) -> Option<&[ParamInfo]> {
        self.parameters.as_deref()
    }

    fn occupancy(&self) -> Option<&dyn Occupancy> {
        Some(self)
    }
}

impl Occupancy for HipKernel {
    fn suggested_block(&self, shared_bytes: u32) -> Result<u32> {
        self.check_shared("occupancy", shared_bytes)?;
        let mut grid: c_int = 0;
        let bytes = shared_bytes as usize;
        let suggestion = match self.shared.context.hip.hipModuleOccupancyMaxPotentialBlockSize {
            None => None,
            Some(ask) => self.ask(|block| {
                // SAFETY: the function is of a loaded module; the numbers are written to where they may be.
                unsafe { ask(&mut grid, block, self.function, bytes, 0) }
            })?,
        };
        match suggestion {
            None => Ok(DEFAULT_BLOCK.min(self.most_threads)),
            Some(block) if block > 0 => Ok(block),
            Some(_) => {
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
        let function = self.shared.context.hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor;
        let Some(ask) = function else { return Ok(None) };
        let (size, bytes) = (c_int::try_from(block).unwrap_or(c_int::MAX), shared_bytes as usize);
        // SAFETY: as above.
        self.ask(|blocks| unsafe { ask(blocks, self.function, size, bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_images_have_as_much_behind_them_as_the_runtime_copies() {
        for (bytes, words) in [(1, 512), (152, 512), (4096, 512), (4097, 513)] {
            let image = aligned(&vec![1; bytes]);
            assert_eq!(image.len(), words, "{bytes} bytes");
            let ones: u32 = image.iter().map(|word| word.count_ones()).sum();
            assert_eq!(ones as usize, bytes);
        }
    }
}
