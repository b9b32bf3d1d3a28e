//! Modules and their kernels.

use std::sync::Arc;

use super::Engine;
use crate::code::{Code, Result};
use crate::context::Context;
use crate::fault::Class;
use crate::kernel::{Function, Module};
use crate::ptx;

/// The reason why a module was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The code.
    pub code: Code,
    /// The messages of the compiler; may be empty.
    pub log: String,
}

impl From<Code> for LoadError {
    fn from(code: Code) -> Self {
        Self { code, log: String::new() }
    }
}

impl Engine {
    /// Loads PTX text. `newest` is the newest supported version and compute capability, such as `((8, 4), 90)`.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_PTX`] with a log, or [`Code::UNSUPPORTED_PTX_VERSION`] for a newer driver or device.
    pub fn module_load(
        &self,
        context: &Arc<Context>,
        text: &str,
        newest: ((u32, u32), u32),
    ) -> Result<u64, LoadError> {
        self.admit(Class::Module, context)?;
        let program =
            ptx::Module::parse(text).map_err(|log| LoadError { code: Code::INVALID_PTX, log })?;
        let (version, target) = (program.version(), program.target());
        if version > newest.0 || target > newest.1 {
            let ((major, minor), capability) = newest;
            let log = format!(
                "version {}.{} for sm_{target}; {major}.{minor} and sm_{capability} are the newest",
                version.0, version.1
            );
            return Err(LoadError { code: Code::UNSUPPORTED_PTX_VERSION, log });
        }
        let (context, (used, functions)) = (Arc::clone(context), Default::default());
        Ok(self.modules.insert(Module { context, program, used, functions }))
    }

    /// Unloads a module. A launch of its kernels that may be unfinished is a violation.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn module_unload(&self, handle: u64) -> Result<()> {
        let module = self.remove(&self.modules, handle)?;
        self.functions.take(|function| Arc::ptr_eq(&function.module, &module));
        module.context.check()?;
        if let Some(launch) = module.used.lock().not_covered_by(&self.host_clock()) {
            let message = format!(
                "module {handle:#x}, launched by work {} of stream {}",
                launch.place, launch.stream
            );
            self.state.report.violation("unload in use", message);
        }
        Ok(())
    }

    /// The handle of a kernel, the same one in each call with this name.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`], or [`Code::NOT_FOUND`].
    pub fn function(&self, module: u64, name: &str) -> Result<u64> {
        let module = self.find(&self.modules, module)?;
        module.context.check()?;
        let functions = &mut *module.functions.lock();
        if let Some(function) = functions.get(name) {
            return Ok(*function);
        }
        let function = self.functions.insert(Function::new(Arc::clone(&module), name)?);
        functions.insert(name.to_owned(), function);
        Ok(function)
    }

    /// A kernel.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn kernel(&self, function: u64) -> Result<Arc<Function>> {
        self.find(&self.functions, function)
    }
}
