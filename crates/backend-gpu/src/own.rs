//! The backend's own kernels on one device.
#![expect(unsafe_code, reason = "unloads modules through the library")]

use std::array;
use std::sync::{Arc, OnceLock};

use crate::api::Api;
use crate::context::Context;
use crate::handle::{Function, Module};
use crate::vendor::Vendor;

/// `N` kernels, each of which is loaded when it is first needed.
#[derive(Debug)]
pub struct BuiltinKernels<V: Vendor, const N: usize> {
    context: Arc<Context<V>>,
    loaded: [OnceLock<(Module, Function)>; N],
}

impl<V: Vendor, const N: usize> BuiltinKernels<V, N> {
    /// Creates the set, with no kernel loaded.
    pub fn new(context: &Arc<Context<V>>) -> Self {
        let loaded = array::from_fn(|_| OnceLock::new());
        Self { context: Arc::clone(context), loaded }
    }

    /// Returns the kernel with a number below `N`. Calls `load` first if the kernel is not loaded yet.
    ///
    /// # Errors
    ///
    /// Errors of `load`.
    ///
    /// # Safety
    ///
    /// The caller does not use the loaded module afterwards, and the function belongs to it. The function is launched
    /// only on streams of the device.
    pub unsafe fn function<E>(
        &self,
        number: usize,
        load: impl FnOnce(&Context<V>) -> Result<(Module, Function), E>,
    ) -> Result<Function, E> {
        let place = &self.loaded[number];
        if let Some((_, function)) = place.get() {
            return Ok(*function);
        }
        // Without a lock, because a build emits `tracing` events, and a subscriber may need the same kernel.
        let loaded = load(&self.context)?;
        let (module, function) = *place.get_or_init(|| loaded);
        if module != loaded.0 {
            // Another thread loaded the kernel in the meantime.
            self.unload(loaded.0);
        }
        Ok(function)
    }

    fn unload(&self, module: Module) {
        // SAFETY: no work that launches its kernels is left or comes.
        let unloaded = self.context.outside_captures(|api| unsafe { api.module_unload(module) });
        self.context.note(unloaded);
    }
}

impl<V: Vendor, const N: usize> Drop for BuiltinKernels<V, N> {
    fn drop(&mut self) {
        if self.context.fault().is_some() {
            return;
        }
        for (module, _) in self.loaded.iter().filter_map(OnceLock::get) {
            // Every stream of the device is done, and no code launches the kernels any more.
            self.unload(*module);
        }
    }
}
