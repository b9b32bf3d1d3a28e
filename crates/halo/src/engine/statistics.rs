//! The traffic and the times of exchanges.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use runtime_core::{Device, Event, Result, Stream, Traffic};

/// The traffic and the times of the exchanges of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HaloStatistics {
    /// The traffic with each neighbour, by rank. Includes the rank itself if it exchanges with itself.
    pub neighbours: Vec<NeighbourTraffic>,
    /// The number of launches on the device; 0 if region copies are emulated. Packing, unpacking and direct copies take
    /// one launch each, or more if the device needs them for many memories: see
    /// [`RegionPlan::launches`](runtime_core::RegionPlan::launches). Averages of corners are not counted.
    pub launches: u64,
    /// Launches that pack messages, and copy the data that the rank exchanges with itself.
    pub pack: Time,
    /// Exchanges of messages, from the moment when the host passes the first message to the transport until the last
    /// has arrived, as measured by the host. [By axis](crate::Reach::ByAxis), each axis counts.
    pub wire: Time,
    /// Launches that unpack messages.
    pub unpack: Time,
    /// Launches that copy from the neighbours' fields, and from the rank's own.
    pub copy: Time,
    /// The messages sent each way to choose the [staging](crate::Staging::Auto), if that was measured. No other
    /// statistic counts them.
    pub staging: Option<StagingTimes>,
}

/// The traffic to and from one neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourTraffic {
    /// The neighbour.
    pub rank: usize,
    /// Messages to it.
    pub sent: Traffic,
    /// Messages from it.
    pub received: Traffic,
    /// Copies directly from its fields, one for each exchange. Data that a rank exchanges with itself is counted here,
    /// also in exchanges by messages.
    pub copied: Traffic,
}

/// A number of measurements and their total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// The number of measurements.
    pub count: u64,
    /// The total time.
    pub total: Duration,
}

impl Time {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.total += time;
    }
}

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
    pub const ROUNDS: usize = 1 + MEASURED_ROUNDS;
}

/// The number of rounds that count. One more round comes before them and does not count, because memory is slower on
/// first use.
pub(crate) const MEASURED_ROUNDS: usize = 3;

/// A part of an exchange on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Pack,
    Unpack,
    Copy,
}

/// The direction in which bytes moved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moved {
    Sent,
    Received,
    Copied,
}

/// The most launches whose times are not yet read. Further launches are not measured.
const MAX_OPEN: usize = 64;

/// Counts the work of exchanges. Times come from events that are read once they are reached, so nothing waits for them.
#[derive(Debug)]
pub(crate) struct Recorder {
    device: Device,
    timing: bool,
    statistics: HaloStatistics,
    open: VecDeque<(Part, [Event; 2])>,
    idle: Vec<[Event; 2]>,
    sent: Option<Instant>,
}

impl Recorder {
    pub(crate) fn new(device: &Device, timing: bool) -> Self {
        Self {
            device: device.clone(),
            timing,
            statistics: HaloStatistics::default(),
            open: VecDeque::new(),
            idle: Vec::new(),
            sent: None,
        }
    }

    /// The statistics so far.
    pub(crate) fn statistics(&mut self) -> Result<HaloStatistics> {
        self.read()?;
        Ok(self.statistics.clone())
    }

    pub(crate) fn staging_measured(&mut self, times: StagingTimes) {
        self.statistics.staging = Some(times);
    }

    /// Calls `f`, which enqueues a part of an exchange on the stream and returns the number of launches.
    pub(crate) fn measure(
        &mut self,
        part: Part,
        stream: &Stream,
        f: impl FnOnce() -> Result<usize>,
    ) -> Result<()> {
        if self.timing {
            self.read()?;
        }
        if !self.timing || self.open.len() == MAX_OPEN {
            self.statistics.launches += f()? as u64;
            return Ok(());
        }
        let events = match self.idle.pop() {
            Some(events) => events,
            None => [self.device.event_create(true)?, self.device.event_create(true)?],
        };
        stream.record(&events[0])?;
        self.statistics.launches += f()? as u64;
        stream.record(&events[1])?;
        self.open.push_back((part, events));
        Ok(())
    }

    /// Reads the times of launches that are done.
    fn read(&mut self) -> Result<()> {
        while let Some((part, [begin, end])) = self.open.front() {
            let Some(time) = end.try_elapsed_since(begin)? else { return Ok(()) };
            let sum = match part {
                Part::Pack => &mut self.statistics.pack,
                Part::Unpack => &mut self.statistics.unpack,
                Part::Copy => &mut self.statistics.copy,
            };
            sum.add(time);
            self.idle.extend(self.open.pop_front().map(|(_, events)| events));
        }
        Ok(())
    }

    /// Counts bytes that went to a neighbour or came from it.
    pub(crate) fn moved(&mut self, rank: usize, moved: Moved, bytes: usize) {
        let neighbours = &mut self.statistics.neighbours;
        let index = neighbours.binary_search_by_key(&rank, |neighbour| neighbour.rank);
        let index = index.unwrap_or_else(|index| {
            neighbours.insert(index, NeighbourTraffic { rank, ..Default::default() });
            index
        });
        let traffic = match moved {
            Moved::Sent => &mut neighbours[index].sent,
            Moved::Received => &mut neighbours[index].received,
            Moved::Copied => &mut neighbours[index].copied,
        };
        traffic.count += 1;
        traffic.bytes += bytes as u64;
    }

    /// Records the start of an exchange. Messages of an earlier exchange that failed do not count.
    pub(crate) fn begin(&mut self) {
        self.sent = None;
    }

    /// Records that the transport gets messages.
    pub(crate) fn sending(&mut self) {
        self.sent = self.timing.then(Instant::now);
    }

    /// Records that all messages have arrived.
    pub(crate) fn all_received(&mut self) {
        if let Some(sent) = self.sent.take() {
            self.statistics.wire.add(sent.elapsed());
        }
    }
}
