//! Captures: work that is recorded from streams, to be launched as a graph.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

use parking_lot::Mutex;

use crate::code::{Code, Result};
use crate::context::Context;
use crate::work::{Node, Place, Work};

/// The calls that a capture forbids, and the threads for which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// Calls that may wait or use a stream implicitly, on all threads.
    Global,
    /// Such calls, on the thread that began the capture.
    ThreadLocal,
    /// No calls.
    Relaxed,
}

impl CaptureMode {
    /// The mode with the number that drivers use.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for other numbers.
    pub fn of(number: u32) -> Result<Self> {
        let modes = [Self::Global, Self::ThreadLocal, Self::Relaxed];
        modes.into_iter().find(|mode| *mode as u32 == number).ok_or(Code::INVALID_VALUE)
    }
}

/// A capture, which several streams can join.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The number of the stream on which it was begun.
    origin: u64,
    mode: CaptureMode,
    thread: ThreadId,
    nodes: Mutex<Vec<Node>>,
    invalid: AtomicBool,
    ended: AtomicBool,
}

/// The position of a stream in a capture.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) capture: Arc<Capture>,
    context: Arc<Context>,
    /// The nodes on which the next work depends.
    pub(crate) last: Vec<usize>,
}

impl Capture {
    /// A capture that the stream with this number begins.
    pub(crate) fn new(origin: u64, mode: CaptureMode) -> Arc<Self> {
        Arc::new(Self {
            origin,
            mode,
            thread: thread::current().id(),
            nodes: Mutex::default(),
            invalid: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        })
    }

    /// Adds a stream to the capture. Its next work depends on the nodes `after`.
    pub(crate) fn join(
        self: &Arc<Self>,
        context: &Arc<Context>,
        captured: &mut Option<Captured>,
        after: &[usize],
    ) {
        let (capture, context) = (Arc::clone(self), Arc::clone(context));
        let captured = captured.insert(Captured { capture, context, last: Vec::new() });
        captured.wait_for(after);
    }

    /// The capture of the stream with number `origin`, and its nodes or the reason why they are no graph.
    pub(crate) fn finish(
        captured: Option<&Captured>,
        origin: u64,
    ) -> Result<(Arc<Self>, Result<Vec<Node>>)> {
        let Captured { capture, last, .. } = captured.ok_or(Code::INVALID_VALUE)?;
        if capture.origin != origin {
            capture.invalidate();
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != CaptureMode::Relaxed && capture.thread != thread::current().id() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let nodes = capture.nodes.lock().clone();
        let (mut joined, mut next) = (BTreeSet::new(), last.clone());
        while let Some(node) = next.pop() {
            if joined.insert(node) {
                next.extend(&nodes[node].after);
            }
        }
        let nodes = if capture.is_invalid() {
            Err(Code::STREAM_CAPTURE_INVALIDATED)
        } else if joined.len() < nodes.len() {
            Err(Code::STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(nodes)
        };
        Ok((Arc::clone(capture), nodes))
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether it forbids a thread of this mode to make calls that may wait or use a stream implicitly.
    pub(crate) fn forbids(&self, mode: CaptureMode) -> bool {
        let own = self.thread == thread::current().id() && self.mode != CaptureMode::Relaxed;
        match mode {
            CaptureMode::Global => own || self.mode == CaptureMode::Global,
            CaptureMode::ThreadLocal => own,
            CaptureMode::Relaxed => false,
        }
    }

    pub(crate) fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    fn is_invalid(&self) -> bool {
        self.invalid.load(Ordering::Acquire)
    }
}

impl Captured {
    /// Makes the next work depend on these nodes, too.
    pub(crate) fn wait_for(&mut self, nodes: &[usize]) {
        self.last.extend(nodes);
        self.last.sort_unstable();
        self.last.dedup();
    }

    /// Invalidates the capture because of a call that is not allowed. Returns the code of the call.
    pub(crate) fn invalidate(&self) -> Code {
        self.capture.invalidate();
        Code::STREAM_CAPTURE_UNSUPPORTED
    }

    /// Captures work, which fails when it runs if `fault` is its planned failure.
    pub(crate) fn add(&mut self, work: Work, fault: Option<Code>) -> Result<()> {
        if self.capture.is_invalid() {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        let is_repeatable = match &work {
            Work::Copy(copy) => {
                [&copy.to, &copy.from].iter().all(|place| matches!(place, Place::Memory(..)))
            }
            Work::Fill(_) | Work::Launch(_) | Work::Call(_) => true,
            _ => false,
        };
        if !is_repeatable {
            return Err(self.invalidate());
        }
        let nodes = &mut *self.capture.nodes.lock();
        let after = std::mem::replace(&mut self.last, vec![nodes.len()]);
        nodes.push(Node { work, fault, context: Arc::clone(&self.context), after });
        Ok(())
    }
}
