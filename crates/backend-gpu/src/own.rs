//! Kernels of the backend's own on one device.
#![expect(unsafe_code, reason = "unloads modules through the library")]

use std::array;
use std::sync::{Arc, Mutex, OnceLock};

use backend_support::lock;

use crate::api::Api;
use crate::context::Context;
use crate::handle::{Function, Module};
use crate::vendor::Vendor;

/// `N` kernels, each loaded when it is first needed.
#[derive(Debug)]
pub struct OwnKernels<V: Vendor, const N: usize> {
    context: Arc<Context<V>>,
    loaded: [OnceLock<(Module, Function)>; N],
    loading: Mutex<()>,
}

impl<V: Vendor, const N: usize> OwnKernels<V, N> {
    /// None of them loaded.
    pub fn new(context: &Arc<Context<V>>) -> Self {
        let loaded = array::from_fn(|_| OnceLock::new());
        Self { context: Arc::clone(context), loaded, loading: Mutex::default() }
    }

    /// The kernel of a number below `N`, which is made by `load` if it is not there yet.
    ///
    /// # Errors
    ///
    /// That of `load`.
    ///
    /// # Safety
    ///
    /// The module is given up, and the function is of it. It is launched on streams of the device alone.
    pub unsafe fn function<E>(
        &self,
        number: usize,
        load: impl FnOnce(&Context<V>) -> Result<(Module, Function), E>,
    ) -> Result<Function, E> {
        let place = &self.loaded[number];
        if let Some((_, function)) = place.get() {
            return Ok(*function);
        }
        let _one = lock(&self.loading);
        if let Some((_, function)) = place.get() {
            return Ok(*function);
        }
        let loaded = load(&self.context)?;
        Ok(place.get_or_init(|| loaded).1)
    }
}

impl<V: Vendor, const N: usize> Drop for OwnKernels<V, N> {
    fn drop(&mut self) {
        if self.context.fault().is_some() {
            return;
        }
        for (module, _) in self.loaded.iter().filter_map(OnceLock::get) {
            // SAFETY: every stream of the device is done, and nobody launches the kernel any more.
            let unloaded = self.context.apart(|api| unsafe { api.module_unload(*module) });
            self.context.note(unloaded);
        }
    }
}
