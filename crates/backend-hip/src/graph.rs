//! Graphs: work captured once and launched many times.
#![expect(unsafe_code, reason = "captures and launches through the runtime")]

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use hip_sys::hiprt::{hipGraph_t, hipGraphExec_t, hipStreamCaptureMode};
use runtime_core::contract::{DeviceGraph, DeviceStream, GraphCapture, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use crate::context::{Context, ok};
use crate::device::HipDevice;
use crate::library::GraphFunctions;
use crate::stream::HipStream;

const OPERATION: &str = "capture";

/// A graph that can be launched.
#[derive(Debug)]
struct HipGraph {
    exec: hipGraphExec_t,
    functions: &'static GraphFunctions,
    context: Arc<Context>,
}

// SAFETY: a graph may be launched from any thread, and by one at a time.
unsafe impl Send for HipGraph {}

impl DeviceGraph for HipGraph {
    fn native(&self) -> NativeHandle {
        let raw = self.exec.expose_provenance();
        NativeHandle { api: "hip", kind: NativeKind::Graph, raw }
    }
}

impl Drop for HipGraph {
    fn drop(&mut self) {
        if self.context.fault().is_none() && self.context.bind().is_ok() {
            // SAFETY: nobody launches it any more; the runtime lets launches in flight come to their end.
            let code = unsafe { (self.functions.hipGraphExecDestroy)(self.exec) };
            self.context.note(code);
        }
    }
}

/// A captured graph, from which those that can be launched are made.
struct Captured {
    raw: hipGraph_t,
    functions: &'static GraphFunctions,
    context: Arc<Context>,
}

impl Captured {
    fn instantiate(&self) -> Result<HipGraph, u32> {
        let mut exec = ptr::null_mut();
        self.context.bind()?;
        // SAFETY: the graph is alive; the handle is written to where it may be.
        ok(unsafe { (self.functions.hipGraphInstantiateWithFlags)(&mut exec, self.raw, 0) })?;
        let (functions, context) = (self.functions, Arc::clone(&self.context));
        Ok(HipGraph { exec, functions, context })
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: the graph is this object's own.
        let code = unsafe { (self.functions.hipGraphDestroy)(self.raw) };
        self.context.note(code);
    }
}

// SAFETY: the runtime captures what is enqueued on the stream, in its order, and a launch is an operation of the stream
// that it is enqueued on.
unsafe impl GraphCapture for HipDevice {
    fn begin(&self) -> Result<Box<dyn DeviceStream>> {
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let failed = |code| shared.error(OPERATION, code, "a capture cannot begin");
        let functions = shared.context.graphs().map_err(failed)?;
        // The device does not know the stream: nobody can wait for what is not run.
        let stream = Arc::new(shared.context.new_stream(0).map_err(failed)?);
        // Any thread may enqueue, and whatever else a thread does is none of the capture's business.
        let mode = hipStreamCaptureMode::hipStreamCaptureModeRelaxed;
        // SAFETY: the stream is alive, and nothing is on it.
        ok(unsafe { (functions.hipStreamBeginCapture)(stream.raw(), mode) }).map_err(failed)?;
        Ok(Box::new(HipStream::capturing(shared, stream)))
    }

    fn end(&self, captured: Box<dyn DeviceStream>) -> Result<Box<dyn DeviceGraph>> {
        let shared = &self.shared;
        let stream = own::<HipStream>(&*captured, OPERATION)?;
        let failed = |code| shared.error(OPERATION, code, "there is no graph of the capture");
        let raw = stream.end_capture().map_err(failed)?;
        let functions = shared.context.graphs().map_err(failed)?;
        let graph = Captured { raw, functions, context: Arc::clone(&shared.context) };
        Ok(Box::new(graph.instantiate().map_err(failed)?))
    }

    unsafe fn launch(&self, graph: &mut dyn DeviceGraph, stream: &dyn DeviceStream) -> Result<()> {
        let graph: &dyn Any = graph;
        let HipGraph { exec, functions, .. } = own::<HipGraph>(graph, "launch")?;
        own::<HipStream>(stream, "launch")?.enqueue("launch", "a graph", |_, stream| {
            // SAFETY: both are alive; the caller vouches for what the graph uses.
            unsafe { (functions.hipGraphLaunch)(*exec, stream) }
        })
    }

    unsafe fn release(&self, graph: Box<dyn DeviceGraph>, _after: &[&dyn DeviceStream]) {
        // The runtime keeps the graph until its launches are over.
        drop(graph);
    }
}
