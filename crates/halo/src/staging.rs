//! The way of messages from the device to the transport, measured where two are possible.

use std::mem;
use std::time::{Duration, Instant};

use runtime_core::{Memory, Result, Stream};

use crate::communicator::{Buffer, Communicator, Storage, Way, deadline};
use crate::exchange::mark;
use crate::options::Staging;
use crate::plan::Plan;
use crate::transfer::refuse;

/// How long the messages of an exchange took each way when it was made: from memory of the device to memory of the
/// neighbours' devices, without packing and unpacking, on the slowest rank, in the fastest of three rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingTimes {
    /// Through page-locked host memory.
    pub pinned: Duration,
    /// In the device's memory.
    pub device: Duration,
}

impl StagingTimes {
    /// How often each message was sent each way.
    pub const ROUNDS: usize = 1 + ROUNDS;
}

/// Rounds that count, after one that does not: memory is slower when it is first used.
const ROUNDS: usize = 3;

/// What a rank brings instead of a time if it failed.
const FAILED: u64 = u64::MAX;

/// Messages like those of an exchange, sent before there are any.
pub(crate) struct Trial<'a> {
    communicator: &'a dyn Communicator,
    stream: Stream,
    tag: u32,
    /// What tells the exchange that is made from others of the communicator: a number of each rank.
    serials: &'a [u64],
    /// When messages must be there.
    deadline: Instant,
    /// When ranks must have told each other.
    end: Instant,
}

/// A message of a trial.
struct Carried {
    way: Way,
    rank: usize,
    buffer: Buffer,
    /// Where it is on the device if the buffer is not there.
    memory: Option<Memory<u8>>,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(
        communicator: &'a dyn Communicator,
        stream: Stream,
        tag: u32,
        serials: &'a [u64],
        timeout: Duration,
    ) -> Self {
        let end = deadline(timeout.saturating_mul(2));
        Self { communicator, stream, tag, serials, deadline: deadline(timeout), end }
    }

    /// Sends the messages of a plan each way. All ranks call it at once, and get the same: which way is faster, and the
    /// times. Blocks until all ranks are there, and for at most twice the timeout.
    pub(crate) fn run(&self, plan: &Plan) -> Result<(Staging, StagingTimes)> {
        let pinned = self.time(plan, Staging::Pinned)?;
        let device = self.time(plan, Staging::Device)?;
        let choice = if pinned < device { Staging::Pinned } else { Staging::Device };
        // That of the next rank, which is the same but for a replay: its own times differ from those of the record, whose
        // messages went as its ranks chose.
        let all = self.gather(&[u8::from(choice == Staging::Pinned)])?;
        let next = (self.communicator.rank() + 1) % self.communicator.size();
        let choice = if all[next] == 1 { Staging::Pinned } else { Staging::Device };
        Ok((choice, StagingTimes { pinned, device }))
    }

    fn time(&self, plan: &Plan, staging: Staging) -> Result<Duration> {
        let mut messages = Vec::new();
        let made = self.messages(plan, staging).map(|made| messages = made);
        self.slowest(made.map(|()| Duration::ZERO))?;
        self.slowest(self.round(&mut messages))?;
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            best = best.min(self.slowest(self.round(&mut messages))?);
        }
        Ok(best)
    }

    fn messages(&self, plan: &Plan, staging: Staging) -> Result<Vec<Carried>> {
        let device = self.stream.device();
        let receives = plan.receives.iter().map(|message| (Way::Receive, message));
        let sends = plan.sends.iter().map(|message| (Way::Send, message));
        let carried = receives.chain(sends).map(|(way, message)| {
            let memory = device.memory_allocate(message.bytes)?;
            let (buffer, memory) = match staging {
                Staging::Pinned => {
                    (Buffer::pinned(device.pinned_allocate(message.bytes)?), Some(memory))
                }
                Staging::Device | Staging::Auto => (Buffer::device(memory), None),
            };
            Ok(Carried { way, rank: message.peer, buffer, memory })
        });
        carried.collect()
    }

    /// Lets all messages get from device to device once.
    fn round(&self, messages: &mut [Carried]) -> Result<Duration> {
        let start = Instant::now();
        let left = || self.deadline.saturating_duration_since(Instant::now());
        for message in messages.iter_mut().filter(|message| message.way == Way::Send) {
            message.leave(&self.stream)?;
        }
        self.stream.record_event()?.wait_for(left())?;
        let mut requests = Vec::with_capacity(messages.len());
        for Carried { way, rank, buffer, .. } in &mut *messages {
            let buffer = mem::take(buffer);
            let own = self.communicator.rank();
            let marked = |sender: usize| buffer.marked(mark(self.serials[sender], 0));
            requests.push(Some(match way {
                Way::Receive => self.communicator.receive(*rank, self.tag, marked(*rank))?,
                Way::Send => self.communicator.send(*rank, self.tag, marked(own))?,
            }));
        }
        while let Some((index, buffer)) = self.communicator.wait_any(&mut requests, left())? {
            messages[index].buffer = buffer;
            if messages[index].way == Way::Receive {
                messages[index].arrive(&self.stream)?;
            }
        }
        self.stream.record_event()?.wait_for(left())?;
        Ok(start.elapsed())
    }

    /// The longest time of all ranks, or an error on all of them if one failed.
    fn slowest(&self, own: Result<Duration>) -> Result<Duration> {
        let nanos = own.as_ref().ok().and_then(|own| u64::try_from(own.as_nanos()).ok());
        let all = self.gather(&nanos.unwrap_or(FAILED).to_le_bytes());
        // Its own failure tells a rank more than that ranks failed.
        own?;
        let all = all?;
        let times: Vec<u64> =
            all.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let failed: Vec<usize> = (0..times.len()).filter(|rank| times[*rank] == FAILED).collect();
        if !failed.is_empty() {
            return Err(refuse(format!("ranks {failed:?} could not measure their messages")));
        }
        Ok(Duration::from_nanos(times.into_iter().max().unwrap_or(0)))
    }

    fn gather(&self, mine: &[u8]) -> Result<Vec<u8>> {
        let left = self.end.saturating_duration_since(Instant::now());
        self.communicator.all_gather(mine, left).map_err(|error| {
            error.about(format_args!("rank {} measures its messages", self.communicator.rank()))
        })
    }
}

impl Carried {
    /// Enqueues the copy from the device, if there is one.
    fn leave(&mut self, stream: &Stream) -> Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        self.buffer.with_storage(|storage| match storage {
            Storage::Pinned(pinned) => memory.view().copy_to_pinned(stream, pinned),
            _ => Ok(()),
        })
    }

    /// Enqueues the copy to the device, if there is one.
    fn arrive(&mut self, stream: &Stream) -> Result<()> {
        match (&mut self.memory, self.buffer.storage()) {
            (Some(memory), Storage::Pinned(pinned)) => {
                memory.view_mut().copy_from_pinned(stream, pinned)
            }
            _ => Ok(()),
        }
    }
}
