//! Graphs: captured work of host devices.
#![expect(unsafe_code, reason = "implements the contract's unsafe capture trait")]

use std::sync::Arc;

use backend_support::Work;
use runtime_core::contract::{DeviceGraph, DeviceStream, GraphCapture, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use crate::HostDevice;
use crate::stream::HostStream;

/// Work that a stream repeats for each launch.
struct HostGraph(Arc<[Work]>);

impl DeviceGraph for HostGraph {
    fn native(&self) -> NativeHandle {
        let raw = Arc::as_ptr(&self.0).cast::<Work>().addr();
        NativeHandle { api: "host", kind: NativeKind::Graph, raw }
    }
}

// SAFETY: a launch is one task on the stream's queue, which performs each captured piece of work in order.
unsafe impl GraphCapture for HostDevice {
    fn begin(&self) -> Result<Box<dyn DeviceStream>> {
        Ok(Box::new(self.new_stream().capturing()))
    }

    fn end(&self, captured: Box<dyn DeviceStream>) -> Result<Box<dyn DeviceGraph>> {
        Ok(Box::new(HostGraph(own::<HostStream>(&*captured, "capture")?.captured().into())))
    }

    unsafe fn launch(&self, graph: &mut dyn DeviceGraph, stream: &dyn DeviceStream) -> Result<()> {
        let graph = own::<HostGraph>(graph, "launch")?;
        own::<HostStream>(stream, "launch")?.launch_graph(&graph.0)
    }
}
