//! The work that streams and graphs execute.

use std::sync::Arc;

use crate::callback::Callback;
use crate::clock::{Clock, Stamp};
use crate::code::{Code, Result};
use crate::context::Context;
use crate::event::Mark;
use crate::graph::Executable;
use crate::kernel::Launch;
use crate::report::Report;
use crate::shared::Shared;
use crate::space::Allocation;

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Copy(Arc<Copy>),
    Fill(Arc<Fill>),
    Launch(Arc<Launch>),
    Call(Callback),
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
    Allocate(Arc<Allocation>),
    Free(Arc<Allocation>),
    Graph(Arc<Executable>),
}

/// Where bytes come from or go to.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// An offset in an allocation.
    Memory(Arc<Allocation>, usize),
    /// Bytes taken when the call was made.
    Staged(Arc<[u8]>),
    /// Where the caller of a blocking copy waits for bytes.
    Caller(Arc<parking_lot::Mutex<Vec<u8>>>),
}

/// Rows in planes: how far apart they are at one end of a copy, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pitch {
    /// From row to row.
    pub row: usize,
    /// From plane to plane.
    pub plane: usize,
}

/// Bytes in a row, rows in a plane, planes.
pub type Extent = [usize; 3];

/// A copy.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) to: Place,
    pub(crate) to_pitch: Pitch,
    pub(crate) from: Place,
    pub(crate) from_pitch: Pitch,
    pub(crate) extent: Extent,
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
    /// Notes, at all that it is known to touch, that it comes after what the clock covers.
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
            Self::Allocate(memory) => memory.born(stamp),
            Self::Free(memory) => memory.freed(Some(stamp), clock, report)?,
            Self::Call(_) | Self::Record(_) | Self::Wait(_) => {}
        }
        Ok(())
    }

    /// Does it. After a failure of the context only what others wait for is done, and callbacks are told.
    pub(crate) fn run(&self, context: &Context, shared: &Shared) {
        match self {
            Self::Record(mark) => return mark.reach(),
            Self::Wait(mark) => {
                // Its failure is that of its own context.
                let _of_another = mark.wait();
                return;
            }
            Self::Allocate(memory) => return memory.freshen(),
            Self::Free(memory) => return shared.space.remove(memory),
            Self::Call(callback) => return callback.call(context.check()),
            _ => {}
        }
        if context.check().is_err() {
            return;
        }
        let result = match self {
            Self::Copy(copy) => copy.run(shared),
            Self::Fill(fill) => fill.run(shared),
            Self::Launch(launch) => launch.run(context, shared),
            Self::Graph(graph) => graph.run(context, shared),
            _ => Ok(()),
        };
        if let Err(code) = result {
            context.fail(code);
        }
    }
}

/// Work finds its memory alive.
fn alive(memory: &Allocation, shared: &Shared) -> Result<()> {
    if memory.is_alive() {
        return Ok(());
    }
    let message = format!("memory {:#x} was freed before work on it ran", memory.range.start);
    shared.report.violation("use after free", message);
    Err(Code::ILLEGAL_ADDRESS)
}

impl Place {
    fn memory(&self) -> Option<&Arc<Allocation>> {
        match self {
            Self::Memory(memory, _) => Some(memory),
            Self::Staged(_) | Self::Caller(_) => None,
        }
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Self::Memory(memory, offset) => memory.bytes.read(offset + at, into),
            Self::Staged(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
            Self::Caller(bytes) => into.copy_from_slice(&bytes.lock()[at..at + into.len()]),
        }
    }

    fn write(&self, at: usize, from: &[u8]) {
        match self {
            Self::Memory(memory, offset) => memory.bytes.write(offset + at, from),
            Self::Staged(_) => unreachable!("copies do not go to staged bytes"),
            Self::Caller(bytes) => bytes.lock()[at..at + from.len()].copy_from_slice(from),
        }
    }
}

impl Copy {
    fn run(&self, shared: &Shared) -> Result<()> {
        for memory in [&self.to, &self.from].into_iter().filter_map(|place| place.memory()) {
            alive(memory, shared)?;
        }
        let [bytes, rows, planes] = self.extent;
        for plane in 0..planes {
            for row in 0..rows {
                let to = plane * self.to_pitch.plane + row * self.to_pitch.row;
                let from = plane * self.from_pitch.plane + row * self.from_pitch.row;
                match (&self.to, &self.from) {
                    (Place::Memory(memory, at), Place::Memory(other, other_at)) => {
                        memory.bytes.copy(at + to, &other.bytes, other_at + from, bytes);
                    }
                    (place, other) => {
                        let mut row = vec![0; bytes];
                        other.read(from, &mut row);
                        place.write(to, &row);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Fill {
    fn run(&self, shared: &Shared) -> Result<()> {
        alive(&self.memory, shared)?;
        self.memory.bytes.fill(self.at, self.bytes, &self.pattern);
        Ok(())
    }
}
