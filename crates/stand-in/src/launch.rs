//! Modules, launches and graphs.

use std::sync::Arc;

use crate::code::{Code, Result};
use crate::context::Context;
use crate::engine::Engine;
use crate::fault::Class;
use crate::graph::{Capture, CaptureMode, Executable, Graph};
use crate::kernel::{Function, Launch, Module};
use crate::ptx::{self, Geometry};
use crate::work::Work;

/// Why a module was not loaded: the code, and what the compiler says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The code.
    pub code: Code,
    /// What the compiler says; may be empty.
    pub log: String,
}

impl From<Code> for LoadError {
    fn from(code: Code) -> Self {
        Self { code, log: String::new() }
    }
}

impl Engine {
    /// Loads PTX text, of a version and for a compute capability up to the newest, such as `((8, 4), 90)`.
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
                "version {}.{} for sm_{target}, where {major}.{minor} and sm_{capability} are the newest",
                version.0, version.1
            );
            return Err(LoadError { code: Code::UNSUPPORTED_PTX_VERSION, log });
        }
        let (context, (used, functions)) = (Arc::clone(context), Default::default());
        Ok(self.modules.insert(Module { context, program, used, functions }))
    }

    /// Unloads a module; no launch of its kernels may be unfinished.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn module_unload(&self, handle: u64) -> Result<()> {
        let module = self.forget(&self.modules, handle)?;
        self.functions.take(|function| Arc::ptr_eq(&function.module, &module));
        module.context.check()?;
        if let Some(launch) = module.used.lock().beyond(&self.known()) {
            let message = format!(
                "module {handle:#x}, launched by work {} of stream {}",
                launch.place, launch.stream
            );
            self.shared.report.violation("unload in use", message);
        }
        Ok(())
    }

    /// Handle of a kernel, the same one for each name.
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

    /// Launches a kernel with the bytes of its parameters.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] or [`Code::LAUNCH_OUT_OF_RESOURCES`] for a shape that is impossible.
    pub fn launch(
        &self,
        context: &Arc<Context>,
        function: &Arc<Function>,
        geometry: Geometry,
        params: Box<[u8]>,
        stream: u64,
    ) -> Result<()> {
        let fault = self.admit_work(Class::Launch, context)?;
        let stream = self.stream_in(context, stream)?;
        if !Arc::ptr_eq(&function.module.context, context) {
            return Err(Code::INVALID_HANDLE);
        }
        function.check(&geometry)?;
        let launch = Launch::new(Arc::clone(function), geometry, params, &self.shared);
        stream.submit(Work::Launch(Arc::new(launch)), fault)
    }

    /// Captures what is enqueued on a stream from here on.
    ///
    /// # Errors
    ///
    /// [`Code::STREAM_CAPTURE_UNSUPPORTED`] if it is captured.
    pub fn capture_begin(&self, stream: u64, mode: CaptureMode) -> Result<()> {
        let stream = self.stream(stream)?;
        stream.context.check()?;
        let capture = Capture::begin(&stream, mode)?;
        self.captures.lock().push(capture);
        Ok(())
    }

    /// Ends the capture, and returns the handle of the graph.
    ///
    /// # Errors
    ///
    /// What spoilt the capture.
    pub fn capture_end(&self, stream: u64) -> Result<u64> {
        let stream = self.stream(stream)?;
        let (ended, nodes) = Capture::end(&stream)?;
        self.captures.lock().retain(|capture| !Arc::ptr_eq(capture, &ended));
        stream.context.check()?;
        let context = Arc::clone(&stream.context);
        Ok(self.graphs.insert(Graph { context, nodes: nodes? }))
    }

    /// Whether a stream is captured, and whether the capture is spoilt.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn capture_state(&self, stream: u64) -> Result<Option<bool>> {
        let stream = self.stream(stream)?;
        Ok(stream.with_capture(|captured| captured.as_ref().map(|c| c.capture.is_spoilt())))
    }

    /// Makes a graph that can be launched.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn graph_instantiate(&self, graph: u64) -> Result<u64> {
        let graph = self.find(&self.graphs, graph)?;
        graph.context.check()?;
        Ok(self.executables.insert(Executable::new(&graph, self.shared.config.seed)))
    }

    /// Launches a graph.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn graph_launch(&self, context: &Arc<Context>, graph: u64, stream: u64) -> Result<()> {
        let fault = self.admit_work(Class::Launch, context)?;
        let graph = self.find(&self.executables, graph)?;
        self.stream_in(context, stream)?.submit(Work::Graph(graph), fault)
    }

    /// Nothing, if there is such a graph that can be launched.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn graph_exists(&self, graph: u64) -> Result<()> {
        self.find(&self.executables, graph).map(drop)
    }

    /// Ends a graph.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn graph_destroy(&self, graph: u64) -> Result<()> {
        self.forget(&self.graphs, graph).map(drop)
    }

    /// Ends a graph that can be launched; launches of it are done.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`].
    pub fn executable_destroy(&self, graph: u64) -> Result<()> {
        self.forget(&self.executables, graph).map(drop)
    }
}
