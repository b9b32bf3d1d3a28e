//! The path of messages from the device to the transport, measured if two paths are possible.

use std::mem;
use std::time::{Duration, Instant};

use runtime_core::{Device, Error, ErrorKind, Memory, Result, Stream, StreamOptions};

use super::agreement::Ranks;
use super::channel::Channel;
use crate::communicator::{Buffer, Storage, Way, deadline};
use crate::engine::Engine;
use crate::engine::statistics::{MEASURED_ROUNDS, StagingTimes};
use crate::options::Staging;
use crate::plan::transfer::refuse;

/// The value that a rank contributes instead of a time if it failed.
const FAILED: u64 = u64::MAX;

/// Measures both paths, and makes the engine use the faster one. All ranks call this together.
pub(super) fn choose_staging(
    ranks: Ranks<'_>,
    engine: &mut Engine,
    channel: &mut Channel,
) -> Result<()> {
    let trial = Trial::new(ranks, channel, &engine.device, engine.settings.timeout);
    let (choice, times) = trial.run(engine)?;
    tracing::debug!(rank = ranks.rank, ?choice, ?times, "staging measured");
    engine.choose_staging(choice, times);
    channel.stamps = engine.stamps();
    Ok(())
}

/// Trial messages with the sizes of those of an exchange, sent before the first exchange.
struct Trial<'a> {
    ranks: Ranks<'a>,
    channel: &'a Channel,
    device: &'a Device,
    timeout: Duration,
    /// The time at which messages must have arrived.
    deadline: Instant,
    /// The time at which ranks must have exchanged their results.
    end: Instant,
}

/// A message of a trial.
struct TrialMessage {
    way: Way,
    rank: usize,
    buffer: Buffer,
    /// The message's memory on the device, if the buffer is not on the device.
    memory: Option<Memory<u8>>,
}

impl<'a> Trial<'a> {
    fn new(ranks: Ranks<'a>, channel: &'a Channel, device: &'a Device, timeout: Duration) -> Self {
        let end = deadline(timeout.saturating_mul(2));
        Self { ranks, channel, device, timeout, deadline: deadline(timeout), end }
    }

    /// Sends the messages of an engine each way. All ranks call this together. Returns the faster way, which is the
    /// same on all ranks, and the times. Blocks until all ranks have called it, for at most twice the timeout.
    ///
    /// After a failure, which all ranks get, collective calls are refused until a reset: messages may be left behind.
    fn run(&self, engine: &Engine) -> Result<(Staging, StagingTimes)> {
        let times = self.time(engine, Staging::Pinned).and_then(|pinned| {
            self.time(engine, Staging::Device).map(|device| StagingTimes { pinned, device })
        });
        let times = times.inspect_err(|error| self.ranks.communicator.collectives().fail(error))?;
        let choice = if times.pinned < times.device { Staging::Pinned } else { Staging::Device };
        Ok((choice, times))
    }

    fn time(&self, engine: &Engine, staging: Staging) -> Result<Duration> {
        // A stream of the program would report the failures of other work.
        let made = self
            .messages(engine, staging)
            .and_then(|made| Ok((made, self.device.stream_create(&StreamOptions::default())?)));
        let (mut messages, stream) = match made {
            Ok(made) => self.slowest(Ok(Duration::ZERO)).map(|_| made)?,
            Err(error) => return self.slowest(Err(error)),
        };
        let mut round = || {
            let done = self.round(&mut messages, &stream);
            self.slowest(done.map_err(|error| {
                let Self { timeout, ranks: Ranks { rank, .. }, .. } = self;
                let limit = match error.kind() {
                    ErrorKind::Timeout => format!(" within {timeout:?}"),
                    _ => String::new(),
                };
                error.about(format_args!("rank {rank} measures its messages{limit}"))
            }))
        };
        round()?;
        let mut best = Duration::MAX;
        for _ in 0..MEASURED_ROUNDS {
            best = best.min(round()?);
        }
        Ok(best)
    }

    fn messages(&self, engine: &Engine, staging: Staging) -> Result<Vec<TrialMessage>> {
        let receives = engine.receives().map(|message| (Way::Receive, message));
        let sends = engine.sends().map(|message| (Way::Send, message));
        let messages = receives.chain(sends).map(|(way, (rank, bytes))| {
            let memory = self.device.memory_allocate(bytes)?;
            let (buffer, memory) = match staging {
                Staging::Pinned => {
                    (Buffer::pinned(self.device.pinned_allocate(bytes)?), Some(memory))
                }
                Staging::Device | Staging::Auto => (Buffer::device(memory), None),
            };
            Ok(TrialMessage { way, rank, buffer, memory })
        });
        messages.collect()
    }

    /// Sends all messages from device to device once.
    fn round(&self, messages: &mut [TrialMessage], stream: &Stream) -> Result<Duration> {
        let start = Instant::now();
        let remaining = || self.deadline.saturating_duration_since(Instant::now());
        for message in messages.iter_mut().filter(|message| message.way == Way::Send) {
            message.copy_from_device(stream)?;
        }
        stream.record_event()?.wait_for(remaining())?;
        let mut requests = Vec::with_capacity(messages.len());
        for TrialMessage { way, rank, buffer, .. } in &mut *messages {
            let buffer = mem::take(buffer);
            let (communicator, tag) = (self.ranks.communicator, self.channel.tag());
            let from = |sender: usize| buffer.with_message_id(self.channel.exchange_id(sender));
            requests.push(Some(match way {
                Way::Receive => communicator.receive(*rank, tag, from(*rank))?,
                Way::Send => communicator.send(*rank, tag, from(self.ranks.rank))?,
            }));
        }
        while let Some((index, buffer)) =
            self.ranks.communicator.wait_any(&mut requests, remaining())?
        {
            let count = messages.len();
            let Some(message) = messages.get_mut(index) else {
                let message = format!("the transport completed request {index} of {count}");
                return Err(Error::new(ErrorKind::Driver, "wait_any", message));
            };
            // A transport that returns a request again and again never says that none is left.
            if remaining().is_zero() {
                let message = format!("request {index} of {count} is over too late");
                return Err(Error::new(ErrorKind::Timeout, "wait_any", message));
            }
            message.buffer = buffer;
            if message.way == Way::Receive {
                message.copy_to_device(stream)?;
            }
        }
        stream.record_event()?.wait_for(remaining())?;
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
        let remaining = self.end.saturating_duration_since(Instant::now());
        self.ranks.gather(mine, remaining).map_err(|error| {
            error.about(format_args!("rank {} measures its messages", self.ranks.rank))
        })
    }
}

impl TrialMessage {
    /// Enqueues the copy from the device, if there is one.
    fn copy_from_device(&mut self, stream: &Stream) -> Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        match self.buffer.storage_mut() {
            Storage::Pinned(pinned) => memory.view().copy_to_pinned(stream, pinned),
            _ => Ok(()),
        }
    }

    /// Enqueues the copy to the device, if there is one.
    fn copy_to_device(&mut self, stream: &Stream) -> Result<()> {
        match (&mut self.memory, self.buffer.storage()) {
            (Some(memory), Storage::Pinned(pinned)) => {
                memory.view_mut().copy_from_pinned(stream, pinned)
            }
            _ => Ok(()),
        }
    }
}
