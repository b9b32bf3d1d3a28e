//! The kernels that the backend itself needs, compiled when they are first needed.
#![expect(unsafe_code, reason = "unloads modules through the runtime")]

use std::ffi::CStr;
use std::sync::{Arc, Mutex, OnceLock};

use backend_support::{Binding, Dialect, Mapping, RegionKernel};
use hip_sys::hiprt::{hipFunction_t, hipModule_t};
use runtime_core::{Error, ErrorKind, ImageFormat, ModuleImage, Result};

use crate::codes;
use crate::context::Context;
use crate::lock;
use crate::module;
use crate::program::Builder;

/// A kernel of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Region copies by the kernel that gets its memories so.
    Regions(Binding),
    /// Sets the addresses of a table of memories.
    RegionTable,
}

pub(crate) const ALL: [Own; 5] = {
    let [few, many, most, any] = RegionKernel::BY_ADDRESS;
    [Own::Regions(few), Own::Regions(many), Own::Regions(most), Own::Regions(any), Own::RegionTable]
};

impl Own {
    pub(crate) fn source(self) -> Result<String> {
        match self {
            Self::Regions(binding) => {
                Ok(RegionKernel::new(Mapping::Lanes, binding, true)?.source(Dialect::HipC))
            }
            Self::RegionTable => Ok(RegionKernel::setter_source()),
        }
    }

    fn name(self) -> &'static CStr {
        match self {
            Self::Regions(_) => c"region_copy",
            Self::RegionTable => c"region_table",
        }
    }
}

/// The kernels on one device.
#[derive(Debug)]
pub(crate) struct Kernels {
    context: Arc<Context>,
    loaded: [OnceLock<Loaded>; ALL.len()],
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
        let (loaded, loading) = Default::default();
        Self { context: Arc::clone(context), loaded, loading }
    }

    pub(crate) fn function(&self, kernel: Own, builder: &Builder) -> Result<hipFunction_t> {
        let known = self.loaded.iter().zip(ALL).find(|(_, known)| *known == kernel);
        let Some((place, _)) = known else {
            let message = format!("no kernel {kernel:?}");
            return Err(Error::new(ErrorKind::Driver, "plan_regions", message));
        };
        if let Some(loaded) = place.get() {
            return Ok(loaded.function);
        }
        let _one = lock(&self.loading);
        if let Some(loaded) = place.get() {
            return Ok(loaded.function);
        }
        let built = builder.build(&ModuleImage::source(ImageFormat::HipC, kernel.source()?))?;
        let loaded = self.load(kernel, &built.image).map_err(|code| {
            codes::error(self.context.hip, "plan_regions", code, "the kernel of region copies")
        })?;
        built.entry.iter().for_each(|entry| builder.keep(entry));
        Ok(place.get_or_init(|| loaded).function)
    }

    fn load(&self, kernel: Own, image: &[u8]) -> Result<Loaded, u32> {
        let module = module::load(&self.context, image)?;
        let function = module::function(&self.context, module, kernel.name())?;
        Ok(Loaded { module, function })
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if self.context.fault().is_some() || self.context.bind().is_err() {
            return;
        }
        for loaded in self.loaded.iter().filter_map(OnceLock::get) {
            // SAFETY: every stream of the device is done, and nobody launches the kernel any more.
            let code = unsafe { (self.context.hip.hipModuleUnload)(loaded.module) };
            self.context.note(code);
        }
    }
}
