//! Captures and graphs.

use std::sync::Arc;

use super::Engine;
use crate::capture::{Capture, CaptureMode};
use crate::code::Result;
use crate::context::Context;
use crate::fault::Class;

use crate::work::{Executable, Graph, Work};

impl Engine {
    /// Begins to capture the work that is enqueued on a stream.
    ///
    /// # Errors
    ///
    /// [`Code::STREAM_CAPTURE_UNSUPPORTED`](crate::Code::STREAM_CAPTURE_UNSUPPORTED) if it is captured already.
    pub fn capture_begin(&self, stream: u64, mode: CaptureMode) -> Result<()> {
        let stream = self.stream(stream)?;
        stream.context.check()?;
        let capture = Capture::new(stream.number, mode);
        stream.with_capture(|captured| match captured {
            Some(captured) => Err(captured.invalidate()),
            None => {
                capture.join(&stream.context, captured, &[]);
                Ok(())
            }
        })?;
        self.captures.lock().push(capture);
        Ok(())
    }

    /// Ends the capture, and returns the handle of the graph.
    ///
    /// # Errors
    ///
    /// The reason why the capture is invalid.
    pub fn capture_end(&self, stream: u64) -> Result<u64> {
        let stream = self.stream(stream)?;
        let (capture, nodes) =
            stream.with_capture(|captured| Capture::finish(captured.as_ref(), stream.number))?;
        self.end_capture(&capture);
        stream.context.check()?;
        let context = Arc::clone(&stream.context);
        Ok(self.graphs.insert(Graph { context, nodes: nodes? }))
    }

    /// From now on, no stream is captured by this capture.
    pub(super) fn end_capture(&self, capture: &Arc<Capture>) {
        capture.end();
        for stream in self.streams.all() {
            stream.with_capture(|captured| {
                captured.take_if(|captured| Arc::ptr_eq(&captured.capture, capture));
            });
        }
        self.captures.lock().retain(|other| !Arc::ptr_eq(other, capture));
    }

    /// Makes an executable graph from a graph.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`](crate::Code::INVALID_HANDLE).
    pub fn graph_instantiate(&self, graph: u64) -> Result<u64> {
        let graph = self.find(&self.graphs, graph)?;
        graph.context.check()?;
        Ok(self.executables.insert(Executable::new(&graph, self.state.config.seed)))
    }

    /// Launches an executable graph.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`](crate::Code::INVALID_HANDLE).
    pub fn graph_launch(&self, context: &Arc<Context>, graph: u64, stream: u64) -> Result<()> {
        let fault = self.admit_work(Class::Launch, context)?;
        let graph = self.find(&self.executables, graph)?;
        self.stream_in(context, stream)?.submit(Work::Graph(graph), fault)
    }

    /// Destroys a graph.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`](crate::Code::INVALID_HANDLE).
    pub fn graph_destroy(&self, graph: u64) -> Result<()> {
        self.remove(&self.graphs, graph).map(drop)
    }

    /// Destroys an executable graph. Its launches still run.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_HANDLE`](crate::Code::INVALID_HANDLE).
    pub fn executable_destroy(&self, graph: u64) -> Result<()> {
        self.remove(&self.executables, graph).map(drop)
    }
}
