//! The kernels that the backend itself needs, compiled when they are first needed.
#![expect(unsafe_code, reason = "unloads modules through the runtime")]

use std::sync::{Arc, Mutex, OnceLock};

use backend_support::{Dialect, Mapping, RegionKernel};
use hip_sys::hiprt::{hipFunction_t, hipModule_t};
use runtime_core::{ImageFormat, ModuleImage, Result};

use crate::codes;
use crate::context::Context;
use crate::lock;
use crate::module;
use crate::program::Builder;

/// Memories that the kernels of region copies take: fewer parameters are launched faster.
pub(crate) const FEW_SLOTS: usize = 8;
pub(crate) const MANY_SLOTS: usize = RegionKernel::MAX_SLOTS;

/// The kernels on one device.
#[derive(Debug)]
pub(crate) struct Kernels {
    context: Arc<Context>,
    few: OnceLock<Loaded>,
    many: OnceLock<Loaded>,
    loading: Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Loaded {
    module: hipModule_t,
    function: hipFunction_t,
}

// SAFETY: modules and functions may be used from any thread, and by several at once.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Kernels {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let (few, many, loading) = Default::default();
        Self { context: Arc::clone(context), few, many, loading }
    }

    /// The kernel for region copies of up to so many memories.
    pub(crate) fn regions(&self, slots: usize, builder: &Builder) -> Result<hipFunction_t> {
        let place = if slots <= FEW_SLOTS { &self.few } else { &self.many };
        if let Some(loaded) = place.get() {
            return Ok(loaded.function);
        }
        let _one = lock(&self.loading);
        if let Some(loaded) = place.get() {
            return Ok(loaded.function);
        }
        let source = RegionKernel::new(Mapping::Lanes, slots, true)?.source(Dialect::HipC);
        let built = builder.build(&ModuleImage::source(ImageFormat::HipC, source))?;
        let loaded = self.load(&built.image).map_err(|code| {
            codes::error(self.context.hip, "plan_regions", code, "the kernel of region copies")
        })?;
        built.entry.iter().for_each(|entry| builder.keep(entry));
        Ok(place.get_or_init(|| loaded).function)
    }

    fn load(&self, image: &[u8]) -> Result<Loaded, u32> {
        let module = module::load(&self.context, image)?;
        let function = module::function(&self.context, module, c"region_copy")?;
        Ok(Loaded { module, function })
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if self.context.fault().is_some() || self.context.bind().is_err() {
            return;
        }
        for loaded in [&self.few, &self.many].into_iter().filter_map(OnceLock::get) {
            // SAFETY: every stream of the device is done, and nobody launches the kernel any more.
            let code = unsafe { (self.context.hip.hipModuleUnload)(loaded.module) };
            self.context.note(code);
        }
    }
}
