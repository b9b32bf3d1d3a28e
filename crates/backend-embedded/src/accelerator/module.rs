//! Modules: programs in the memory of the device, several at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use runtime_core::contract::{DeviceKernel, DeviceModule, KernelAbilities, ParamInfo};
use runtime_core::{Error, ErrorKind, ImageCode, ModuleImage, Result};

use super::heap::Range;
use super::shared::OpenDevice;
use crate::program::Program;

/// A program in the device's memory.
pub(crate) struct EmbeddedModule {
    range: Arc<Range>,
    kernels: BTreeMap<String, (u64, Arc<[ParamInfo]>)>,
}

/// A function of a module that the module declares as a kernel.
#[derive(Clone)]
pub(crate) struct EmbeddedKernel {
    pub(crate) name: Arc<str>,
    pub(crate) address: u64,
    pub(crate) parameters: Arc<[ParamInfo]>,
    /// The module's memory, which remains while a launch may use it.
    _module: Arc<Range>,
}

impl EmbeddedModule {
    /// Loads an ELF executable: at any address if it is position-independent, otherwise at its link address.
    pub(crate) fn load(shared: &Arc<OpenDevice>, image: &ModuleImage<'_>) -> Result<Self> {
        let ImageCode::Bytes(bytes) = image.code() else {
            return Err(invalid(format!("an image of {} that is no binary", image.format())));
        };
        let areas = std::slice::from_ref(&shared.area);
        let mut program = Program::read(bytes, &shared.architecture, areas)?;
        if program.segments.is_empty() {
            return Err(invalid("a program without segments".to_owned()));
        }
        let (start, length) = program.extent();
        let range = if program.relocatable {
            let base = start - start % program.alignment;
            let whole = length + (start - base);
            let range = shared.take("module_load", whole, program.alignment)?;
            program.relocate(range.address.wrapping_sub(base), &shared.architecture)?;
            range
        } else {
            shared.heap.take_at(start, length).ok_or_else(|| {
                let message =
                    format!("a program linked to {start:#x}: its {length} bytes there are in use");
                Error::new(ErrorKind::OutOfMemory, "module_load", message)
            })?
        };
        let kernels = std::mem::take(&mut program.kernels);
        let kernels = kernels.into_iter().map(|(name, parameters)| {
            let address = program.symbol(&name).map_err(|_| {
                invalid(format!(
                    "kernel {name:?} is declared, but the image has no symbol of that name"
                ))
            })?;
            Ok((name, (address.address, parameters.into())))
        });
        let kernels = kernels.collect::<Result<_>>()?;
        shared.exclusively(|device| {
            program
                .segments
                .iter()
                .try_for_each(|segment| device.code_write(segment.address, &segment.bytes))
        })?;
        Ok(Self { range: Arc::new(range), kernels })
    }
}

impl DeviceModule for EmbeddedModule {
    fn kernel(&self, name: &str) -> Result<Box<dyn DeviceKernel>> {
        let (address, parameters) = self.kernels.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.kernels.keys().map(String::as_str).collect();
            let message = format!("no kernel {name:?}; the module declares {}", known.join(", "));
            Error::new(ErrorKind::KernelNotFound, "kernel", message)
        })?;
        Ok(Box::new(EmbeddedKernel {
            name: name.into(),
            address: *address,
            parameters: Arc::clone(parameters),
            _module: Arc::clone(&self.range),
        }))
    }
}

impl DeviceKernel for EmbeddedKernel {
    fn parameters(&self) -> Option<&[ParamInfo]> {
        Some(&self.parameters)
    }

    fn abilities(&self) -> KernelAbilities<'_> {
        KernelAbilities::none()
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidModule, "module_load", message)
}
