//! Graphs: work captured once and launched many times.
#![expect(unsafe_code, reason = "captures and launches through the library")]

use std::any::Any;
use std::sync::Arc;

use runtime_core::contract::{DeviceGraph, DeviceStream, GraphCapture, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use crate::api::Api;
use crate::context::Context;
use crate::device::Device;
use crate::handle;
use crate::stream::Stream;
use crate::vendor::Vendor;

const OPERATION: &str = "capture";

/// A graph that can be launched.
#[derive(Debug)]
struct Graph<V: Vendor> {
    exec: handle::GraphExec,
    context: Arc<Context<V>>,
}

impl<V: Vendor> DeviceGraph for Graph<V> {
    fn native(&self) -> NativeHandle {
        NativeHandle { api: V::WORDS.backend, kind: NativeKind::Graph, raw: self.exec.0 }
    }
}

impl<V: Vendor> Drop for Graph<V> {
    fn drop(&mut self) {
        if self.context.fault().is_none() && self.context.bind().is_ok() {
            // SAFETY: the graph is not launched again, and the library lets launches in flight run to completion.
            self.context.note(unsafe { self.context.api.graph_exec_destroy(self.exec) });
        }
    }
}

/// A captured graph, from which executable graphs are made.
struct Captured<V: Vendor> {
    raw: handle::Graph,
    context: Arc<Context<V>>,
}

impl<V: Vendor> Captured<V> {
    fn instantiate(&self) -> Result<Graph<V>, u32> {
        // SAFETY: the graph is alive.
        let exec =
            self.context.outside_captures(|api| unsafe { api.graph_instantiate(self.raw) })?;
        Ok(Graph { exec, context: Arc::clone(&self.context) })
    }
}

impl<V: Vendor> Drop for Captured<V> {
    fn drop(&mut self) {
        // SAFETY: only this object uses the graph.
        self.context.note(unsafe { self.context.api.graph_destroy(self.raw) });
    }
}

// SAFETY: the library captures the work enqueued on the stream, in its order. A launch is an operation of the stream on
// which it is enqueued.
unsafe impl<V: Vendor> GraphCapture for Device<V> {
    fn begin(&self) -> Result<Box<dyn DeviceStream>> {
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let failed = |code| shared.error(OPERATION, code, "a capture cannot start");
        // The device does not keep the stream, because work that does not run cannot be waited for.
        let stream = Arc::new(shared.context.new_stream(0).map_err(failed)?);
        // Any thread may enqueue, and the capture does not affect the other calls of a thread.
        // SAFETY: the stream is alive, and nothing is on it.
        unsafe { shared.context.api.capture_begin(stream.raw()) }.map_err(failed)?;
        Ok(Box::new(Stream::capturing(shared, stream)))
    }

    fn end(&self, captured: Box<dyn DeviceStream>) -> Result<Box<dyn DeviceGraph>> {
        let shared = &self.shared;
        let stream = own::<Stream<V>>(&*captured, OPERATION)?;
        let failed = |code| shared.error(OPERATION, code, "there is no graph of the capture");
        let raw = stream.end_capture().map_err(failed)?;
        let graph = Captured { raw, context: Arc::clone(&shared.context) };
        Ok(Box::new(graph.instantiate().map_err(failed)?))
    }

    unsafe fn launch(&self, graph: &mut dyn DeviceGraph, stream: &dyn DeviceStream) -> Result<()> {
        let graph: &dyn Any = graph;
        let exec = own::<Graph<V>>(graph, "launch")?.exec;
        own::<Stream<V>>(stream, "launch")?.enqueue("launch", "a graph", |api, stream| {
            // SAFETY: both are alive; the caller guarantees that the graph's work is allowed.
            unsafe { api.graph_launch(exec, stream) }
        })
    }
}
