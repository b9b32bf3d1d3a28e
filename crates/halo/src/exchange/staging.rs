//! The path of messages from the device to the transport, measured if two paths are possible.

use std::mem;
use std::time::{Duration, Instant};

use runtime_core::{Memory, Result, Stream};

use crate::communicator::{Buffer, Communicator, Storage, Way, deadline};
use crate::exchange::mark;
use crate::options::Staging;
use crate::plan::Plan;
use crate::plan::transfer::refuse;

/// How long the messages of an exchange took each way when the exchange was made: from the device's memory to the
/// memory of the neighbours' devices, without packing and unpacking, on the slowest rank, in the fastest of three
/// rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingTimes {
    /// Through pinned (page-locked) host memory.
    pub pinned: Duration,
    /// In the device's memory.
    pub device: Duration,
}

impl StagingTimes {
    /// The number of times that each message was sent each way.
    pub const ROUNDS: usize = 1 + ROUNDS;
}

/// The number of rounds that count. One more round comes before them and does not count, because memory is slower on
/// first use.
const ROUNDS: usize = 3;

/// The value that a rank contributes instead of a time if it failed.
const FAILED: u64 = u64::MAX;

/// Trial messages with the sizes of those of an exchange, sent before the first exchange.
pub(crate) struct Trial<'a> {
    communicator: &'a dyn Communicator,
    stream: Stream,
    tag: u32,
    /// The serial number of the exchange on each rank. It distinguishes the exchange from others of the communicator.
    serials: &'a [u64],
    /// The time at which messages must have arrived.
    deadline: Instant,
    /// The time at which ranks must have exchanged their results.
    end: Instant,
}

/// A message of a trial.
struct Carried {
    way: Way,
    rank: usize,
    buffer: Buffer,
    /// The message's memory on the device, if the buffer is not on the device.
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

    /// Sends the messages of a plan each way. All ranks call this together. Returns the faster way, which is the same
    /// on all ranks, and the times. Blocks until all ranks have called it, for at most twice the timeout.
    pub(crate) fn run(&self, plan: &Plan) -> Result<(Staging, StagingTimes)> {
        let pinned = self.time(plan, Staging::Pinned)?;
        let device = self.time(plan, Staging::Device)?;
        let choice = if pinned < device { Staging::Pinned } else { Staging::Device };
        // Take the choice of the next rank. Normally all choices are equal. In a replay, the rank's own times differ
        // from those of the record, but its messages were sent as the recorded ranks chose.
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

    /// Sends all messages from device to device once.
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

    /// Returns the longest time of all ranks, or an error on all ranks if one rank failed.
    fn slowest(&self, own: Result<Duration>) -> Result<Duration> {
        let nanos = own.as_ref().ok().and_then(|own| u64::try_from(own.as_nanos()).ok());
        let all = self.gather(&nanos.unwrap_or(FAILED).to_le_bytes());
        // A rank's own error says more than the error that ranks failed.
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
