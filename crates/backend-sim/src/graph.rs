//! Graphs: captured work of simulated devices.
#![expect(unsafe_code, reason = "implements the contract's unsafe capture trait")]

use std::sync::Arc;

use runtime_core::contract::{DeviceGraph, DeviceStream, GraphCapture, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use crate::SimDevice;
use crate::stream::{Captured, SimStream};

/// Work that a stream repeats for each launch.
struct SimGraph(Arc<[Captured]>);

impl DeviceGraph for SimGraph {
    fn native(&self) -> NativeHandle {
        let raw = Arc::as_ptr(&self.0).cast::<Captured>().addr();
        NativeHandle { api: "sim", kind: NativeKind::Graph, raw }
    }
}

// SAFETY: a launch is one task on the stream's queue, which performs each captured piece of work in order.
unsafe impl GraphCapture for SimDevice {
    fn begin(&self) -> Result<Box<dyn DeviceStream>> {
        self.shared().check("capture")?;
        Ok(Box::new(self.new_stream().capturing()))
    }

    fn end(&self, captured: Box<dyn DeviceStream>) -> Result<Box<dyn DeviceGraph>> {
        self.shared().check("capture")?;
        Ok(Box::new(SimGraph(own::<SimStream>(&*captured, "capture")?.captured().into())))
    }

    unsafe fn launch(&self, graph: &mut dyn DeviceGraph, stream: &dyn DeviceStream) -> Result<()> {
        let graph = own::<SimGraph>(graph, "launch")?;
        own::<SimStream>(stream, "launch")?.launch_graph(&graph.0)
    }
}
