//! Graphs: work captured once and launched many times.
#![expect(unsafe_code, reason = "captures and launches through the driver")]

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstreamCaptureMode};
use runtime_core::contract::{DeviceGraph, DeviceStream, GraphCapture, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use crate::context::{Context, ok};
use crate::device::CudaDevice;
use crate::stream::CudaStream;

const OPERATION: &str = "capture";

/// A graph that can be launched.
#[derive(Debug)]
struct CudaGraph {
    exec: CUgraphExec,
    context: Arc<Context>,
}

// SAFETY: a graph may be launched from any thread, and by one at a time.
unsafe impl Send for CudaGraph {}

impl DeviceGraph for CudaGraph {
    fn native(&self) -> NativeHandle {
        let raw = self.exec.expose_provenance();
        NativeHandle { api: "cuda", kind: NativeKind::Graph, raw }
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.context.fault().is_none() && self.context.bind().is_ok() {
            // SAFETY: nobody launches it any more; the driver lets launches in flight come to their end.
            let code = unsafe { (self.context.driver.cuGraphExecDestroy)(self.exec) };
            self.context.note(code);
        }
    }
}

/// A captured graph, from which those that can be launched are made.
struct Captured {
    raw: CUgraph,
    context: Arc<Context>,
}

impl Captured {
    fn instantiate(&self) -> Result<CudaGraph, u32> {
        let mut exec = ptr::null_mut();
        ok(self.context.apart(|driver| {
            // SAFETY: the graph is alive; the handle is written to where it may be.
            unsafe { (driver.cuGraphInstantiateWithFlags)(&mut exec, self.raw, 0) }
        }))?;
        Ok(CudaGraph { exec, context: Arc::clone(&self.context) })
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: the graph is this object's own.
        let code = unsafe { (self.context.driver.cuGraphDestroy)(self.raw) };
        self.context.note(code);
    }
}

// SAFETY: the driver captures what is enqueued on the stream, in its order, and a launch is an operation of the stream
// that it is enqueued on.
unsafe impl GraphCapture for CudaDevice {
    fn begin(&self) -> Result<Box<dyn DeviceStream>> {
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let failed = |code| shared.error(OPERATION, code, "a capture cannot begin");
        // The device does not know the stream: nobody can wait for what is not run.
        let stream = Arc::new(shared.context.new_stream(0).map_err(failed)?);
        // Any thread may enqueue, and whatever else a thread does is none of the capture's business.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive, and nothing is on it.
        ok(unsafe { (shared.context.driver.cuStreamBeginCapture_v2)(stream.raw(), mode) })
            .map_err(failed)?;
        Ok(Box::new(CudaStream::capturing(shared, stream)))
    }

    fn end(&self, captured: Box<dyn DeviceStream>) -> Result<Box<dyn DeviceGraph>> {
        let shared = &self.shared;
        let stream = own::<CudaStream>(&*captured, OPERATION)?;
        let failed = |code| shared.error(OPERATION, code, "there is no graph of the capture");
        let raw = stream.end_capture().map_err(failed)?;
        let graph = Captured { raw, context: Arc::clone(&shared.context) };
        Ok(Box::new(graph.instantiate().map_err(failed)?))
    }

    unsafe fn launch(&self, graph: &mut dyn DeviceGraph, stream: &dyn DeviceStream) -> Result<()> {
        let graph: &dyn Any = graph;
        let exec = own::<CudaGraph>(graph, "launch")?.exec;
        own::<CudaStream>(stream, "launch")?.enqueue("launch", "a graph", |driver, stream| {
            // SAFETY: both are alive; the caller vouches for what the graph uses.
            unsafe { (driver.cuGraphLaunch)(exec, stream) }
        })
    }

    unsafe fn release(&self, graph: Box<dyn DeviceGraph>, _after: &[&dyn DeviceStream]) {
        // The driver keeps the graph until its launches are over.
        drop(graph);
    }
}
