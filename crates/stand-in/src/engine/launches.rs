//! Launches of kernels.

use std::sync::Arc;

use super::Engine;
use crate::code::{Code, Result};
use crate::context::Context;
use crate::fault::Class;
use crate::kernel::{Function, Launch};
use crate::ptx::Geometry;
use crate::work::Work;

impl Engine {
    /// Launches a kernel with the bytes of its parameters.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] or [`Code::LAUNCH_OUT_OF_RESOURCES`] if the geometry is not possible.
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
        let launch = Launch::new(Arc::clone(function), geometry, params, &self.state);
        stream.submit(Work::Launch(Arc::new(launch)), fault)
    }
}
