//! Modules and kernels for the contract.
#![expect(unsafe_code, reason = "queries kernels through the library")]

use std::ffi::{CString, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use backend_support::{Intermediates, not_taken};
use runtime_core::contract::{DeviceKernel, DeviceModule, KernelAbilities, Occupancy, ParamInfo};
use runtime_core::{Error, ErrorKind, Limits, Result};

use crate::api::Api;
use crate::handle::{self, Function};
use crate::open_device::OpenDevice;
use crate::program::Built;
use crate::reaper::Object;
use crate::vendor::{NotLoaded, Vendor};

/// The number of work-items in a block if the library suggests none. It is a multiple of the subgroup size of any
/// device.
const DEFAULT_BLOCK: u32 = 256;

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Module<V: Vendor> {
    raw: handle::Module,
    signatures: V::Signatures,
    shared: Arc<OpenDevice<V>>,
    /// The device's maximum number of work-items in a block, and of bytes of shared memory in a block.
    most: (u32, u32),
    folder: Option<Intermediates>,
}

impl<V: Vendor> Module<V> {
    pub(crate) fn load(
        shared: &Arc<OpenDevice<V>>,
        built: Built<V>,
        limits: &Limits,
    ) -> Result<Self> {
        let raw = V::load(&shared.context, &built.code).map_err(|why| {
            let NotLoaded { code, about, log } = why;
            let error = not_taken(shared.error("module_load", code, &about), &about, &shared.id);
            match log {
                Some(log) => error.with_log(log),
                None => error,
            }
        })?;
        let Built { code, folder, entry: _ } = built;
        let (shared, most) =
            (Arc::clone(shared), (limits.max_block_threads, limits.max_shared_bytes));
        Ok(Self { raw, signatures: code.signatures, shared, most, folder })
    }

    /// Returns the function with that name.
    fn function(&self, name: &str) -> Result<Function> {
        const OPERATION: &str = "kernel";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let missing = || {
            let instead = V::instead_of(&self.signatures, name);
            format!("no kernel {name:?} in the module{instead}")
        };
        // Drivers refuse the empty name as an invalid value.
        let text = CString::new(name).ok().filter(|name| !name.is_empty());
        let text =
            text.ok_or_else(|| Error::new(ErrorKind::KernelNotFound, OPERATION, missing()))?;
        // SAFETY: the module is loaded.
        let found =
            shared.context.outside_captures(|api| unsafe { api.module_function(self.raw, &text) });
        found.map_err(|code| match code {
            _ if code == V::NOT_FOUND => shared.error(OPERATION, code, missing()),
            // Libraries load code on the first request for it.
            _ => shared.error(OPERATION, code, format_args!("kernel {name:?} does not load")),
        })
    }

    /// Returns the module to unload, and its folder.
    pub(crate) fn into_object(self) -> (Object, Option<Intermediates>) {
        (Object::Module(self.raw), self.folder)
    }
}

/// Copies an image to memory that is aligned for 64-bit numbers, which binaries contain. Pads it with zeros to at least
/// `least` bytes.
pub fn aligned(image: &[u8], least: usize) -> Vec<u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    let mut words: Vec<u64> = image.chunks(8).map(word).collect();
    words.resize(words.len().max(least / 8), 0);
    words
}

/// The answer of a query to the library; `None` if the library does not support the query.
fn answered<V: Vendor>(reported: Result<c_int, u32>) -> Result<Option<u32>, u32> {
    match reported {
        Ok(number) => Ok(Some(u32::try_from(number).unwrap_or(0))),
        Err(code) if code == V::NOT_SUPPORTED => Ok(None),
        Err(code) => Err(code),
    }
}

impl<V: Vendor> DeviceModule for Module<V> {
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>> {
        let function = self.function(name)?;
        let shared = &self.shared;
        // Without an answer, the library itself refuses a launch that is too large.
        let number = |reported| {
            answered::<V>(reported)
                .map_err(|code| shared.error("kernel", code, format_args!("kernel {name:?}")))
        };
        // SAFETY: the function belongs to a loaded module.
        let threads =
            shared.context.outside_captures(|api| unsafe { api.function_threads(function) });
        // SAFETY: as above.
        let declared =
            shared.context.outside_captures(|api| unsafe { api.function_shared(function) });
        let (max_threads, max_shared) = self.most;
        let max_threads = number(threads)?.unwrap_or(max_threads);
        let declared = number(declared)?.unwrap_or(0);
        let max_shared = max_shared.saturating_sub(declared);
        Ok(Box::new(Kernel {
            function,
            name: name.to_owned(),
            parameters: V::parameters(&shared.context, function, &self.signatures, name),
            max_threads,
            max_shared,
            granted: AtomicU32::new(V::granted(max_shared, declared)),
            shared: Arc::clone(shared),
        }))
    }
}

/// A kernel.
#[derive(Debug)]
pub(crate) struct Kernel<V: Vendor> {
    pub(crate) function: Function,
    pub(crate) name: String,
    parameters: Option<Vec<ParamInfo>>,
    /// The maximum number of work-items in a block of this kernel.
    pub(crate) max_threads: u32,
    /// The maximum number of bytes of dynamic shared memory in a block.
    max_shared: u32,
    /// The number of bytes of dynamic shared memory that launches may use now; more must be granted first.
    granted: AtomicU32,
    shared: Arc<OpenDevice<V>>,
}

impl<V: Vendor> Kernel<V> {
    /// Allows launches to use that many bytes of dynamic shared memory.
    #[inline]
    pub(crate) fn grant(&self, operation: &'static str, bytes: u32) -> Result<()> {
        if bytes <= self.granted.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.raise(operation, bytes)
    }

    #[cold]
    fn raise(&self, operation: &'static str, bytes: u32) -> Result<()> {
        let most = self.max_shared;
        if bytes > most {
            let most = V::max_shared(most);
            let message = format!("kernel {:?}: {bytes} bytes of shared memory; {most}", self.name);
            return Err(Error::new(ErrorKind::InvalidArgument, operation, message));
        }
        // To the maximum at once, because several kernels may share one function, and no kernel may lower the limit of
        // another.
        V::raise_shared(&self.shared.context, self.function, most).map_err(|code| {
            let what = format_args!("kernel {:?}: {most} bytes of shared memory", self.name);
            self.shared.error(operation, code, what)
        })?;
        self.granted.store(most, Ordering::Relaxed);
        Ok(())
    }

    /// Queries the library about blocks of the kernel; `None` if the library does not support the query.
    fn ask(&self, call: impl FnOnce(&V::Api) -> Result<c_int, u32>) -> Result<Option<u32>> {
        const OPERATION: &str = "occupancy";
        self.shared.check(OPERATION)?;
        answered::<V>(self.shared.context.outside_captures(call)).map_err(|code| {
            self.shared.error(OPERATION, code, format_args!("blocks of kernel {:?}", self.name))
        })
    }
}

impl<V: Vendor> DeviceKernel for Kernel<V> {
    fn parameters(&self) -> Option<&[ParamInfo]> {
        self.parameters.as_deref()
    }

    fn abilities(&self) -> KernelAbilities<'_> {
        KernelAbilities::none().with_occupancy(self)
    }
}

impl<V: Vendor> Occupancy for Kernel<V> {
    fn suggested_block(&self, shared_bytes: u32) -> Result<u32> {
        self.grant("occupancy", shared_bytes)?;
        let (function, bytes) = (self.function, shared_bytes as usize);
        // SAFETY: the function belongs to a loaded module.
        match self.ask(|api| unsafe { api.suggested_block(function, bytes) })? {
            None => Ok(DEFAULT_BLOCK.min(self.max_threads)),
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
        if block > self.max_threads || shared_bytes > self.max_shared {
            return Ok(Some(0));
        }
        self.grant("occupancy", shared_bytes)?;
        let (function, bytes) = (self.function, shared_bytes as usize);
        let size = c_int::try_from(block).unwrap_or(c_int::MAX);
        // SAFETY: as above.
        self.ask(|api| unsafe { api.resident_blocks(function, size, bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_images_have_as_much_behind_them_as_is_copied() {
        for (bytes, words) in [(1, 512), (152, 512), (4096, 512), (4097, 513)] {
            let image = aligned(&vec![1; bytes], 4096);
            assert_eq!(image.len(), words, "{bytes} bytes");
            let ones: u32 = image.iter().map(|word| word.count_ones()).sum();
            assert_eq!(ones as usize, bytes);
        }
    }
}
