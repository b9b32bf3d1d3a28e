//! Ranks with blocks on several devices. Messages are on the first device. What blocks on other devices give and take
//! goes through memory of the first one: one launch of the other device, one copy between devices, each way.

use runtime_core::{Device, Error, ErrorKind, Memory, RegionPlan, Result, Stream};

use crate::field::{Field, execute};
use crate::plan::transfer::refuse;

/// The devices of the blocks of a rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    /// The streams of the devices other than the first.
    others: Vec<Stream>,
    /// For each block of the rank, the number of its device; all have the first, 0, if it is empty.
    of_blocks: Vec<usize>,
}

impl Devices {
    /// `streams` has the stream of each of `blocks` blocks.
    pub(crate) fn new(streams: &[Stream], blocks: usize, rank: usize) -> Result<Self> {
        if streams.len() != blocks {
            let message =
                format!("{} streams of rank {rank}, which has {blocks} blocks", streams.len());
            return Err(refuse(message));
        }
        let mut distinct: Vec<&Stream> = Vec::new();
        let mut of_blocks = Vec::new();
        for stream in streams {
            let is_there = |other: &&Stream| other.device().is_same(stream.device());
            let number = distinct.iter().position(is_there).unwrap_or(distinct.len());
            match distinct.get(number) {
                None => distinct.push(stream),
                Some(other) if *other != stream => {
                    let (one, two, device) = (other.id(), stream.id(), stream.device().id());
                    let message = format!("rank {rank}: streams {one} and {two} of {device}");
                    return Err(refuse(message));
                }
                Some(_) => {}
            }
            of_blocks.push(number);
        }
        let others = distinct.into_iter().skip(1).cloned().collect();
        Ok(Self { others, of_blocks })
    }

    /// The number of devices other than the first.
    pub(crate) const fn others(&self) -> usize {
        self.others.len()
    }

    /// The number of the device of a block, which has this place among those of the rank.
    pub(crate) fn of(&self, place: usize) -> usize {
        self.of_blocks.get(place).copied().unwrap_or(0)
    }

    /// The stream of another device than the first.
    pub(crate) fn stream(&self, number: usize) -> Option<&Stream> {
        self.others.get(number.checked_sub(1)?)
    }

    /// The failures that were reported of the streams of the other devices.
    pub(crate) fn failures(&self) -> u64 {
        self.others.iter().map(Stream::failures).sum()
    }

    /// Refuses streams of other devices that capture.
    pub(crate) fn check(&self, rank: usize) -> Result<()> {
        match self.others.iter().find(|stream| stream.is_capturing()) {
            None => Ok(()),
            Some(stream) => {
                // As any operation that a capture refuses, this ends it.
                let _ = stream.is_done();
                let message =
                    format!("rank {rank}: a stream that captures, which nothing can wait for");
                let error = Error::new(ErrorKind::InvalidArgument, "exchange", message);
                Err(error.on(stream.device().id()))
            }
        }
    }
}

/// The way between another device and the first one, in one direction of an exchange.
#[derive(Debug)]
pub(crate) struct Relay {
    stream: Stream,
    /// Packs what blocks on the device give, and copies what they exchange with each other.
    pack: RegionPlan,
    /// Unpacks what they take, by one plan after the other.
    unpack: Vec<RegionPlan>,
    /// What they give: on their device, and on the first one.
    outgoing: [Memory<u8>; 2],
    /// What they take: on the first device, and on theirs.
    incoming: [Memory<u8>; 2],
}

impl Relay {
    /// `bytes` are those that blocks on the device give, and those that they take.
    pub(crate) fn new(
        first: &Device,
        stream: &Stream,
        pack: RegionPlan,
        unpack: Vec<RegionPlan>,
        bytes: [usize; 2],
    ) -> Result<Self> {
        let own = stream.device();
        let [given, taken] = bytes;
        Ok(Self {
            stream: stream.clone(),
            pack,
            unpack,
            outgoing: [own.memory_allocate(given)?, first.memory_allocate(given)?],
            incoming: [first.memory_allocate(taken)?, own.memory_allocate(taken)?],
        })
    }

    /// The memories on the first device: what blocks on the other device give, and what they take.
    pub(crate) fn on_first(&mut self) -> [&mut Memory<u8>; 2] {
        [&mut self.outgoing[1], &mut self.incoming[0]]
    }

    /// Enqueues packing on the device, and the copy to the first device. Returns the number of launches.
    pub(crate) fn pack(&mut self, first: &Stream, fields: &mut [Field<'_>]) -> Result<usize> {
        let [own, there] = &mut self.outgoing;
        execute(&self.pack, &self.stream, fields, vec![own.view_mut().into()])?;
        if !own.is_empty() {
            there.view_mut().copy_from_device(first, &own.view(), &self.stream)?;
        }
        Ok(self.pack.launches())
    }

    /// Enqueues the copy from the first device, and unpacking on the device. Returns the number of launches.
    pub(crate) fn unpack(&mut self, first: &Stream, fields: &mut [Field<'_>]) -> Result<usize> {
        let [there, own] = &mut self.incoming;
        if !own.is_empty() {
            own.view_mut().copy_from_device(&self.stream, &there.view(), first)?;
        }
        for plan in &self.unpack {
            execute(plan, &self.stream, fields, vec![own.view().into()])?;
        }
        Ok(self.unpack.iter().map(RegionPlan::launches).sum())
    }
}
