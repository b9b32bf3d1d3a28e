//! One direction of an exchange, ready to run on a device.

use std::ops::Range;

use runtime_core::{Combine, DType, Device, Memory, RegionPlan, Result, Slot, Stream};

use super::devices::Relay;
use crate::communicator::Storage;
use crate::field::{Field, FieldSpec, execute};
use crate::plan::transfer::refuse;
use crate::plan::{ALIGN, Message};

/// The direction of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Owned elements overwrite their ghosts, or roots their leaves.
    Fill,
    /// As `Fill`, for the ghosts beyond the ends of this axis.
    Axis(usize),
    /// Ghosts are combined with their original elements, or leaves with their roots.
    Reduce(Combine),
    /// Points that two ranks share take the value of their owner.
    Shared,
}

impl Direction {
    /// A number that no other direction has.
    pub(crate) fn code(self) -> u64 {
        match self {
            Self::Fill => 0,
            Self::Shared => 1,
            Self::Reduce(combine) => 2 + combine as u64,
            Self::Axis(axis) => 8 + axis as u64,
        }
    }

    pub(crate) fn reduction(self) -> Option<Combine> {
        match self {
            Self::Fill | Self::Axis(_) | Self::Shared => None,
            Self::Reduce(combine) => Some(combine),
        }
    }
}

/// The launches of one direction, and the peers of its messages.
#[derive(Debug)]
pub(crate) struct Route {
    launches: Launches,
    pub(crate) sends: Vec<Peer>,
    pub(crate) receives: Vec<Peer>,
    /// Bytes that the rank exchanges with itself.
    pub(crate) own_bytes: usize,
    /// Values for missing corners.
    constants: Option<Memory<u8>>,
    /// The memory of messages on the device if they travel through pinned memory: of sent messages, and of received
    /// messages.
    staging: Option<[Memory<u8>; 2]>,
    direction: Direction,
    /// The ways to the other devices of the rank.
    relays: Vec<Relay>,
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) rank: usize,
    /// Distinguishes the message from others of the rank.
    pub(crate) part: usize,
    pub(crate) bytes: usize,
    /// Its offset in the staging memory.
    start: usize,
}

impl Peer {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }
}

/// The launches of a route.
#[derive(Debug)]
pub(crate) struct Launches {
    /// Packs all messages, and copies the data that the rank exchanges with itself.
    pub(crate) pack: RegionPlan,
    /// Unpacks all messages, by one plan after the other.
    pub(crate) unpack: Vec<RegionPlan>,
    /// Unpacks messages of which some may be absent; each has a slot. `None` if `unpack` serves for this, or if the
    /// order of messages matters.
    pub(crate) unpack_some: Option<RegionPlan>,
}

impl Route {
    /// `messages` are those to send, and those to receive. `own_bytes` is the number of bytes that the rank exchanges
    /// with itself.
    pub(crate) fn new(
        device: &Device,
        [sends, receives]: [Vec<Peer>; 2],
        direction: Direction,
        staged: bool,
        own_bytes: usize,
        constants: Option<Memory<u8>>,
        launches: Launches,
    ) -> Result<Self> {
        let bytes = |peers: &[Peer]| peers.last().map_or(0, |peer| peer.start + peer.bytes);
        let staging = match staged {
            true => Some([
                device.memory_allocate(bytes(&sends))?,
                device.memory_allocate(bytes(&receives))?,
            ]),
            false => None,
        };
        let relays = Vec::new();
        Ok(Self { launches, sends, receives, own_bytes, constants, staging, direction, relays })
    }

    /// The same route for a rank with several devices.
    pub(crate) fn with_relays(self, relays: Vec<Relay>) -> Self {
        Self { relays, ..self }
    }

    /// Enqueues packing all messages, into buffers of matching lengths. Returns the number of launches.
    pub(crate) fn pack(
        &mut self,
        stream: &Stream,
        fields: &mut [Field<'_>],
        buffers: &mut [Storage],
    ) -> Result<usize> {
        let mut launches = self.launches.pack.launches();
        for relay in &mut self.relays {
            launches += relay.pack(stream, fields)?;
        }
        let mut slots: Vec<Slot<'_>> = Vec::new();
        match &mut self.staging {
            Some([outgoing, _]) if !outgoing.is_empty() => slots.push(outgoing.view_mut().into()),
            Some(_) => {}
            None => slots.extend(buffers.iter_mut().filter_map(|buffer| match buffer {
                Storage::Device(memory) => Some(memory.view_mut().into()),
                _ => None,
            })),
        }
        slots.extend(self.constants.as_ref().map(|constants| constants.view().into()));
        for relay in &mut self.relays {
            slots.extend(relay.on_first().map(|memory| Slot::from(memory.view_mut())));
        }
        execute(&self.launches.pack, stream, fields, slots)?;
        if let Some([outgoing, _]) = &self.staging {
            for (peer, buffer) in self.sends.iter().zip(buffers) {
                let Storage::Pinned(pinned) = buffer else { continue };
                let bytes = outgoing.view().slice(peer.range())?;
                bytes.copy_to_pinned(stream, pinned)?;
            }
        }
        Ok(launches)
    }

    /// Enqueues unpacking messages together, given with their indices. Returns the number of launches.
    pub(crate) fn unpack(
        &mut self,
        stream: &Stream,
        fields: &mut [Field<'_>],
        batch: &[(usize, Storage)],
    ) -> Result<usize> {
        let are_all = batch.len() == self.receives.len();
        if batch.is_empty() && !are_all {
            return Ok(0);
        }
        if let Some([_, incoming]) = &mut self.staging {
            for (index, buffer) in batch {
                let Storage::Pinned(pinned) = buffer else { continue };
                let view = incoming.view_mut().slice(self.receives[*index].range());
                view?.copy_from_pinned(stream, pinned)?;
            }
        }
        let some = self.launches.unpack_some.as_ref().filter(|_| !are_all);
        let plans = some.map_or(&self.launches.unpack[..], std::slice::from_ref);
        let mut launches: usize = plans.iter().map(RegionPlan::launches).sum();
        for plan in plans {
            let mut memories = match &self.staging {
                Some([_, incoming]) if are_all => vec![incoming.view().into()],
                staging => bind(staging.as_ref(), &self.receives, batch)?,
            };
            for relay in &mut self.relays {
                memories.extend(relay.on_first().map(|memory| Slot::from(memory.view_mut())));
            }
            execute(plan, stream, fields, memories)?;
        }
        for relay in &mut self.relays {
            launches += relay.unpack(stream, fields)?;
        }
        Ok(launches)
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether messages may be unpacked as they arrive.
    pub(crate) fn takes_any_order(&self) -> bool {
        self.direction.reduction().is_none() && self.relays.is_empty()
    }
}

/// Returns a slot for each message. Slots of messages that are not in the batch are absent.
fn bind<'a>(
    staging: Option<&'a [Memory<u8>; 2]>,
    receives: &[Peer],
    batch: &'a [(usize, Storage)],
) -> Result<Vec<Slot<'a>>> {
    let mut slots: Vec<Slot<'_>> = receives.iter().map(|_| Slot::Absent).collect();
    for (index, buffer) in batch {
        let peer = receives[*index];
        slots[*index] = match (staging, buffer) {
            (Some([_, incoming]), _) => incoming.view().slice(peer.range())?.into(),
            (None, Storage::Device(memory)) => memory.view().into(),
            (None, _) => {
                let rank = peer.rank;
                return Err(refuse(format!("the message of rank {rank} is in host memory")));
            }
        };
    }
    Ok(slots)
}

/// A block of a message.
pub(crate) struct Placed<'a, B> {
    pub(crate) block: &'a B,
    /// The slot of the memory that holds the message.
    pub(crate) slot: usize,
    /// The byte of that memory at which the block starts.
    pub(crate) start: usize,
    /// The rank at the other end.
    pub(crate) peer: usize,
}

/// The blocks of messages. The messages are in the staging memory, or each is in its own memory. `fields` is the number
/// of slots before them.
pub(crate) fn placed<'a, B>(
    fields: usize,
    messages: &'a [Message<B>],
    peers: &'a [Peer],
    staged: bool,
) -> impl Iterator<Item = Placed<'a, B>> {
    messages.iter().zip(peers).enumerate().flat_map(move |(index, (message, peer))| {
        let (slot, first) = if staged { (fields, peer.start) } else { (fields + index, 0) };
        let rank = peer.rank;
        let place = move |(block, offset): &'a (B, usize)| Placed {
            block,
            slot,
            start: first + offset,
            peer: rank,
        };
        message.blocks.iter().map(place)
    })
}

/// The messages with their places in the staging memory.
pub(crate) fn peers<B>(messages: &[Message<B>]) -> Result<Vec<Peer>> {
    let mut start = 0_usize;
    let peer = |message: &Message<B>| {
        let Message { peer: rank, part, bytes, .. } = *message;
        let peer = Peer { rank, part, bytes, start };
        let end = start.checked_add(bytes.next_multiple_of(ALIGN));
        let Some(end) = end.filter(|end| isize::try_from(*end).is_ok()) else {
            return Err(refuse("messages of 2^63 bytes or more in all".to_owned()));
        };
        start = end;
        Ok(peer)
    };
    messages.iter().map(peer).collect()
}

/// Checks that the elements of all fields support an operation.
pub(crate) fn check_combine(specs: &[FieldSpec], combine: Combine) -> Result<()> {
    let admits = |dtype: DType| match combine {
        Combine::Replace => true,
        Combine::Sum => dtype.admits_sum(),
        Combine::Min | Combine::Max => dtype.admits_order(),
    };
    match specs.iter().find(|spec| !admits(spec.dtype())) {
        None => Ok(()),
        Some(spec) => {
            let (name, dtype) = (spec.name(), spec.dtype());
            Err(refuse(format!("field {name}: {combine:?} of elements of {dtype}")))
        }
    }
}
