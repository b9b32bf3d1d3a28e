//! The work that streams execute, and graphs of such work.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::callback::Callback;
use crate::clock::{Clock, Stamp};
use crate::code::{Code, Result};
use crate::context::Context;
use crate::kernel::Launch;
use crate::mark::Mark;
use crate::pause::Random;
use crate::report::Report;
use crate::space::Allocation;
use crate::state::EngineState;

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Copy(Arc<Copy>),
    Fill(Arc<Fill>),
    Launch(Arc<Launch>),
    Call(Callback),
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
    WaitValue(Arc<Allocation>, usize, u32),
    Allocate(Arc<Allocation>),
    Free(Arc<Allocation>),
    Graph(Arc<Executable>),
}

/// The source or the target of a copy.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// An offset in an allocation.
    Memory(Arc<Allocation>, usize),
    /// Bytes that were read during the call.
    Staged(Arc<[u8]>),
    /// Bytes for the caller of a blocking copy.
    Caller(Arc<Mutex<Vec<u8>>>),
}

/// A copy.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) to: Place,
    pub(crate) from: Place,
    pub(crate) bytes: usize,
}

/// A fill with a pattern of 1, 2 or 4 bytes.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) memory: Arc<Allocation>,
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    pub(crate) pattern: Vec<u8>,
}

impl Work {
    /// Notes this work on all memory that it is known to use. The work in `clock` is ordered before it.
    pub(crate) fn note(&self, stamp: Stamp, clock: &Clock, report: &Report) -> Result<()> {
        let used = |memory: &Arc<Allocation>| memory.used(stamp, clock, report);
        match self {
            Self::Copy(copy) => {
                [&copy.to, &copy.from].iter().filter_map(|end| end.memory()).for_each(used)
            }
            Self::Fill(fill) => used(&fill.memory),
            Self::Launch(launch) => {
                launch.function.module.used.lock().add(stamp);
                launch.memory.iter().for_each(used);
            }
            Self::Graph(graph) => {
                graph.nodes.iter().try_for_each(|node| node.work.note(stamp, clock, report))?;
            }
            Self::WaitValue(memory, ..) => used(memory),
            Self::Allocate(memory) => memory.allocated_by(stamp),
            Self::Free(memory) => memory.freed(Some(stamp), clock, report)?,
            Self::Call(_) | Self::Record(_) | Self::Wait(_) => {}
        }
        Ok(())
    }

    /// Executes the work. If the context has failed, executes only work for which others wait.
    pub(crate) fn run(&self, context: &Context, state: &EngineState) {
        match self {
            Self::Record(mark) => return mark.reach(),
            Self::Wait(mark) => {
                // A failure of the other context does not concern this one.
                let _status = mark.wait();
                return;
            }
            Self::WaitValue(memory, at, value) => return wait_for(memory, *at, *value, context),
            Self::Allocate(memory) => return memory.fill_fresh(),
            Self::Free(memory) => return state.space.remove(memory),
            _ if context.check().is_err() => return,
            _ => {}
        }
        let result = match self {
            Self::Copy(copy) => copy.run(state),
            Self::Fill(fill) => fill.run(state),
            Self::Launch(launch) => launch.run(context, state),
            Self::Graph(graph) => graph.run(context, state),
            Self::Call(callback) => {
                callback.call();
                Ok(())
            }
            Self::Record(_)
            | Self::Wait(_)
            | Self::WaitValue(..)
            | Self::Allocate(_)
            | Self::Free(_) => Ok(()),
        };
        if let Err(code) = result {
            context.fail(code);
        }
    }
}

/// Waits until the host has written a number that is at least `value`, or the context has failed.
fn wait_for(memory: &Allocation, at: usize, value: u32, context: &Context) {
    while context.check().is_ok() {
        let mut number = [0; 4];
        memory.bytes.read(at, &mut number);
        // Acquires what the host wrote before the number.
        fence(Ordering::Acquire);
        if u32::from_le_bytes(number).wrapping_sub(value).cast_signed() >= 0 {
            return;
        }
        thread::sleep(Duration::from_micros(20));
    }
}

/// Checks that memory was not freed before work on it runs.
fn check_alive(memory: &Allocation, state: &EngineState) -> Result<()> {
    if memory.is_alive() {
        return Ok(());
    }
    let message = format!("memory {:#x} was freed before work on it ran", memory.range.start);
    state.report.violation("use after free", message);
    Err(Code::ILLEGAL_ADDRESS)
}

impl Place {
    fn memory(&self) -> Option<&Arc<Allocation>> {
        match self {
            Self::Memory(memory, _) => Some(memory),
            Self::Staged(_) | Self::Caller(_) => None,
        }
    }
}

impl Copy {
    fn run(&self, state: &EngineState) -> Result<()> {
        for memory in [&self.to, &self.from].into_iter().filter_map(Place::memory) {
            check_alive(memory, state)?;
        }
        match (&self.to, &self.from) {
            (Place::Memory(to, at), Place::Memory(from, from_at)) => {
                to.bytes.copy(*at, &from.bytes, *from_at, self.bytes);
            }
            (Place::Memory(to, at), Place::Staged(bytes)) => to.bytes.write(*at, bytes),
            (Place::Caller(to), Place::Memory(from, at)) => from.bytes.read(*at, &mut to.lock()),
            (Place::Caller(to), Place::Staged(bytes)) => to.lock().copy_from_slice(bytes),
            (Place::Staged(_), _) | (_, Place::Caller(_)) => return Err(Code::UNKNOWN),
        }
        Ok(())
    }
}

impl Fill {
    fn run(&self, state: &EngineState) -> Result<()> {
        check_alive(&self.memory, state)?;
        self.memory.bytes.fill(self.at, self.bytes, &self.pattern);
        Ok(())
    }
}

/// One piece of work of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) work: Work,
    /// The planned failure of the work.
    pub(crate) fault: Option<Code>,
    pub(crate) context: Arc<Context>,
    /// The nodes on which it depends.
    pub(crate) after: Vec<usize>,
}

/// A graph, as it was captured.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Vec<Node>,
}

/// A graph that can be launched.
#[derive(Debug)]
pub(crate) struct Executable {
    pub(crate) context: Arc<Context>,
    nodes: Vec<Node>,
    /// Locked while it runs: launches of one graph do not overlap.
    random: Mutex<Random>,
}

impl Executable {
    pub(crate) fn new(graph: &Graph, seed: u64) -> Self {
        let (context, nodes) = (Arc::clone(&graph.context), graph.nodes.clone());
        Self { context, nodes, random: Mutex::new(Random::new(seed, 0)) }
    }

    /// Executes the nodes one after the other, in a random order that their dependencies allow.
    fn run(&self, context: &Context, state: &EngineState) -> Result<()> {
        let random = &mut *self.random.lock();
        let mut done = vec![false; self.nodes.len()];
        let mut waiting: Vec<usize> = (0..self.nodes.len()).collect();
        loop {
            let is_ready = |node: &usize| self.nodes[*node].after.iter().all(|other| done[*other]);
            let ready: Vec<usize> = waiting.iter().copied().filter(is_ready).collect();
            if ready.is_empty() {
                return context.check();
            }
            let count = ready.len() as u64;
            let chosen = ready[usize::try_from(random.next() % count).unwrap_or_default()];
            let node = &self.nodes[chosen];
            if let Some(code) = node.fault {
                node.context.fail(code);
            }
            node.work.run(&node.context, state);
            done[chosen] = true;
            waiting.retain(|node| *node != chosen);
        }
    }
}
