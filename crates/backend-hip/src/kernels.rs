//! The kernels that the backend itself needs. Each is compiled when it is first needed.
#![expect(unsafe_code, reason = "queries functions through the runtime")]

use std::ffi::CStr;

use backend_gpu::handle::Function;
use backend_gpu::{Api, BuiltinKernel, Context, Device, error};
use backend_support::{Dialect, Mapping, RegionKernel};
use runtime_core::{Error, ErrorKind, ImageFormat, ModuleImage, Result};

use crate::hip::Hip;
use crate::module;

pub(crate) const ALL: [BuiltinKernel; 5] = {
    let [few, many, most, any] = RegionKernel::BY_ADDRESS;
    [
        BuiltinKernel::Regions(few),
        BuiltinKernel::Regions(many),
        BuiltinKernel::Regions(most),
        BuiltinKernel::Regions(any),
        BuiltinKernel::RegionTable,
    ]
};

/// The kernels on one device.
pub(crate) type BuiltinKernels = backend_gpu::BuiltinKernels<Hip, { ALL.len() }>;

pub(crate) fn source(kernel: BuiltinKernel) -> Result<String> {
    match kernel {
        BuiltinKernel::Regions(binding) => {
            Ok(RegionKernel::new(Mapping::Lanes, binding, true)?.source(Dialect::HipC))
        }
        BuiltinKernel::RegionTable => Ok(RegionKernel::setter_source()),
    }
}

fn name(kernel: BuiltinKernel) -> &'static CStr {
    match kernel {
        BuiltinKernel::Regions(_) => c"region_copy",
        BuiltinKernel::RegionTable => c"region_table",
    }
}

/// Returns a kernel on a device, and loads it if needed.
pub(crate) fn function(device: &Device<Hip>, kernel: BuiltinKernel) -> Result<Function> {
    const OPERATION: &str = "plan_regions";
    let Some(number) = ALL.iter().position(|known| *known == kernel) else {
        let message = format!("no kernel {kernel:?}");
        return Err(Error::new(ErrorKind::Driver, OPERATION, message));
    };
    let load = |context: &Context<Hip>| {
        let image = ModuleImage::source(ImageFormat::HipC, source(kernel)?);
        device.build_builtin(OPERATION, &image, |code| {
            let loaded = module::load(context, &code.image).and_then(|module| {
                // SAFETY: the module was just loaded.
                let find = |api: &_| unsafe { Api::module_function(api, module, name(kernel)) };
                Ok((module, context.outside_captures(find)?))
            });
            let failed =
                |code| error::<Hip>(context.api, OPERATION, code, "the kernel of region copies");
            loaded.map_err(failed)
        })
    };
    // SAFETY: the state gets no code.
    let kernels = unsafe { &device.shared().kernels };
    // SAFETY: the module is not used otherwise, and its function is launched only on streams of the device.
    unsafe { kernels.function(number, load) }
}
