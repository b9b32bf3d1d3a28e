//! Graphs: work that is captured from streams, to be run as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

use parking_lot::Mutex;

use crate::code::{Code, Result};
use crate::context::Context;
use crate::pause::Random;
use crate::shared::Shared;
use crate::stream::Stream;
use crate::work::{Place, Work};

/// Which calls a capture forbids, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// Calls that may wait or use a stream behind the scenes, to all threads.
    Global,
    /// Such calls, to the thread that began the capture.
    ThreadLocal,
    /// Nothing.
    Relaxed,
}

impl CaptureMode {
    /// The mode of a driver's number.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a number that is none.
    pub fn of(number: u32) -> Result<Self> {
        let modes = [Self::Global, Self::ThreadLocal, Self::Relaxed];
        modes.into_iter().find(|mode| *mode as u32 == number).ok_or(Code::INVALID_VALUE)
    }
}

/// One piece of work of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) work: Work,
    context: Arc<Context>,
    /// What it comes after.
    after: Vec<usize>,
}

/// A graph that is being captured.
#[derive(Debug)]
pub(crate) struct Capture {
    /// Number of the stream that it was begun on.
    origin: u64,
    mode: CaptureMode,
    thread: ThreadId,
    nodes: Mutex<Vec<Node>>,
    spoilt: AtomicBool,
    ended: AtomicBool,
    streams: Mutex<Vec<Arc<Stream>>>,
}

/// How far a stream is in a capture.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) capture: Arc<Capture>,
    context: Arc<Context>,
    /// What the next work comes after.
    pub(crate) last: Vec<usize>,
}

impl Capture {
    /// Begins a capture.
    pub(crate) fn begin(stream: &Arc<Stream>, mode: CaptureMode) -> Result<Arc<Self>> {
        let capture = Arc::new(Self {
            origin: stream.number,
            mode,
            thread: thread::current().id(),
            nodes: Mutex::default(),
            spoilt: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        stream.with_capture(|captured| match captured {
            Some(captured) => Err(captured.spoil()),
            None => {
                capture.join(stream, captured, &[]);
                Ok(())
            }
        })?;
        Ok(capture)
    }

    /// A stream is captured too, or comes after more nodes.
    pub(crate) fn join(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        captured: &mut Option<Captured>,
        after: &[usize],
    ) {
        let captured = captured.get_or_insert_with(|| {
            self.streams.lock().push(Arc::clone(stream));
            let (capture, context) = (Arc::clone(self), Arc::clone(stream.context()));
            Captured { capture, context, last: Vec::new() }
        });
        captured.last.extend(after);
        captured.last.sort_unstable();
        captured.last.dedup();
    }

    /// Ends the capture that was begun on the stream.
    pub(crate) fn end(stream: &Arc<Stream>) -> Result<(Arc<Self>, Result<Vec<Node>>)> {
        let (capture, last) = stream.with_capture(|captured| match captured {
            None => Err(Code::INVALID_VALUE),
            Some(captured) if captured.capture.origin != stream.number => {
                captured.spoil();
                Err(Code::STREAM_CAPTURE_UNMATCHED)
            }
            Some(Captured { capture, last, .. }) => Ok((Arc::clone(capture), last.clone())),
        })?;
        if capture.mode != CaptureMode::Relaxed && capture.thread != thread::current().id() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let nodes = capture.nodes.lock().clone();
        let mut joined = BTreeSet::new();
        let mut next = last;
        while let Some(node) = next.pop() {
            if joined.insert(node) {
                next.extend(&nodes[node].after);
            }
        }
        capture.leave();
        let nodes = if capture.is_spoilt() {
            Err(Code::STREAM_CAPTURE_INVALIDATED)
        } else if joined.len() < nodes.len() {
            Err(Code::STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(nodes)
        };
        Ok((capture, nodes))
    }

    /// Nothing is captured any more.
    pub(crate) fn leave(&self) {
        self.ended.store(true, Ordering::Release);
        let streams = std::mem::take(&mut *self.streams.lock());
        for stream in streams {
            stream.with_capture(Option::take);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether it forbids a thread of that mode a call that may wait or use a stream behind the scenes.
    pub(crate) fn forbids(&self, mode: CaptureMode) -> bool {
        let own = self.thread == thread::current().id() && self.mode != CaptureMode::Relaxed;
        match mode {
            CaptureMode::Global => own || self.mode == CaptureMode::Global,
            CaptureMode::ThreadLocal => own,
            CaptureMode::Relaxed => false,
        }
    }

    pub(crate) fn spoil(&self) {
        self.spoilt.store(true, Ordering::Release);
    }

    pub(crate) fn is_spoilt(&self) -> bool {
        self.spoilt.load(Ordering::Acquire)
    }
}

impl Captured {
    /// A call was made that ends the capture; the code that says so.
    pub(crate) fn spoil(&self) -> Code {
        self.capture.spoil();
        Code::STREAM_CAPTURE_UNSUPPORTED
    }

    /// Captures work.
    pub(crate) fn add(&mut self, work: Work) -> Result<()> {
        if self.capture.is_spoilt() {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        let lasts = match &work {
            Work::Copy(copy) => {
                [&copy.to, &copy.from].iter().all(|place| matches!(place, Place::Memory(..)))
            }
            Work::Fill(_) | Work::Launch(_) | Work::Call(_) => true,
            _ => false,
        };
        if !lasts {
            return Err(self.spoil());
        }
        let nodes = &mut *self.capture.nodes.lock();
        let after = std::mem::replace(&mut self.last, vec![nodes.len()]);
        nodes.push(Node { work, context: Arc::clone(&self.context), after });
        Ok(())
    }
}

/// A graph as it was captured.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Vec<Node>,
}

/// A graph that can be launched.
#[derive(Debug)]
pub(crate) struct Executable {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Vec<Node>,
    /// Held while it runs: launches of one graph do not overlap.
    random: Mutex<Random>,
}

impl Executable {
    pub(crate) fn new(graph: &Graph, seed: u64) -> Self {
        let (context, nodes) = (Arc::clone(&graph.context), graph.nodes.clone());
        Self { context, nodes, random: Mutex::new(Random::new(seed, 0)) }
    }

    /// Runs the nodes one after another, in an order that their dependencies allow.
    pub(crate) fn run(&self, context: &Context, shared: &Shared) -> Result<()> {
        let random = &mut *self.random.lock();
        let mut done = vec![false; self.nodes.len()];
        let mut waiting: Vec<usize> = (0..self.nodes.len()).collect();
        loop {
            let free = |node: &usize| self.nodes[*node].after.iter().all(|before| done[*before]);
            let ready: Vec<usize> = waiting.iter().copied().filter(free).collect();
            if ready.is_empty() {
                return context.check();
            }
            let most = ready.len() as u64;
            let chosen = ready[usize::try_from(random.next() % most).unwrap_or_default()];
            let node = &self.nodes[chosen];
            node.work.run(&node.context, shared);
            done[chosen] = true;
            waiting.retain(|node| *node != chosen);
        }
    }
}
