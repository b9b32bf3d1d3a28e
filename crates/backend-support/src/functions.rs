//! Modules whose kernels are Rust functions.

use runtime_core::contract::{DeviceKernel, DeviceModule, KernelAbilities, ParamInfo};
use runtime_core::{Error, ErrorKind, HostKernel, HostModule, ImageCode, ModuleImage, Result};

/// Loads an image of Rust functions.
///
/// # Errors
///
/// `InvalidModule` if the image holds anything else.
pub fn functions_load(image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
    match image.code() {
        ImageCode::Functions(module) => Ok(Box::new(Functions(module.clone()))),
        ImageCode::Text(_) | ImageCode::Bytes(_) => Err(Error::new(
            ErrorKind::InvalidModule,
            "module_load",
            format!("an image of {} with code that is no Rust function", image.format()),
        )),
    }
}

struct Functions(HostModule);

impl DeviceModule for Functions {
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>> {
        Ok(Box::new(Function(self.0.kernel(name)?)))
    }
}

/// A kernel of a module that [`functions_load`] loaded.
#[derive(Clone, Debug)]
pub struct Function(HostKernel);

impl Function {
    /// The Rust function.
    pub fn kernel(&self) -> &HostKernel {
        &self.0
    }
}

impl DeviceKernel for Function {
    fn parameters(&self) -> Option<&[ParamInfo]> {
        Some(self.0.parameters())
    }

    fn abilities(&self) -> KernelAbilities<'_> {
        KernelAbilities::none()
    }
}

#[cfg(test)]
mod tests {
    use runtime_core::{Grid, ImageFormat};

    use super::*;

    #[test]
    fn only_functions_load() {
        let module = HostModule::new().with("k", |_: &Grid<'_>, _out: &mut [f32]| {});
        let loaded = functions_load(&ModuleImage::functions(&module)).unwrap();
        assert_eq!(loaded.kernel("k").unwrap().parameters().map(<[_]>::len), Some(1));
        assert_eq!(loaded.kernel("x").err().unwrap().kind(), ErrorKind::KernelNotFound);
        let text = ModuleImage::source(ImageFormat::HostFunctions, "fn k() {}");
        assert_eq!(functions_load(&text).err().unwrap().kind(), ErrorKind::InvalidModule);
    }
}
