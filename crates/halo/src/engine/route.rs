//! One direction of an exchange, ready to run on a device.

use std::ops::Range;

use runtime_core::{
    Combine, DType, Device, Memory, RegionCopy, RegionPlan, RegionSide, Result, Slot, Stream,
};

use super::corner;
use crate::communicator::Storage;
use crate::field::{Field, FieldSpec, execute};
use crate::plan::copies::Ends;
use crate::plan::transfer::{Transfer, refuse};
use crate::plan::{ALIGN, Message, Plan};

/// The direction of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Owned elements overwrite their ghosts.
    Fill,
    /// Ghosts are combined with their original elements.
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
        }
    }

    fn reduction(self) -> Option<Combine> {
        match self {
            Self::Fill | Self::Shared => None,
            Self::Reduce(combine) => Some(combine),
        }
    }
}

/// The launches of one direction, and the peers of its messages.
#[derive(Debug)]
pub(crate) struct Route {
    /// Packs all messages, and copies the data that the rank exchanges with itself.
    pack: RegionPlan,
    /// Unpacks all messages, by one plan after the other.
    unpack: Vec<RegionPlan>,
    /// Unpacks messages of which some may be absent; each has a slot. `None` if `unpack` serves for this, or if the
    /// order of messages matters.
    unpack_some: Option<RegionPlan>,
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

impl Route {
    pub(crate) fn new(
        device: &Device,
        specs: &[FieldSpec],
        plan: &Plan,
        direction: Direction,
        staged: bool,
        constants: Option<Memory<u8>>,
    ) -> Result<Self> {
        let reduction = direction.reduction();
        if let Some(combine) = reduction {
            check_combine(specs, combine)?;
        }
        let (outgoing, incoming) = match reduction {
            None => (&plan.sends, &plan.receives),
            Some(_) => (&plan.receives, &plan.sends),
        };
        let (sends, receives) = (peers(outgoing)?, peers(incoming)?);
        let departures = in_messages(specs, outgoing, &sends, staged);
        let mut entries: Vec<RegionCopy> = departures
            .map(|(transfer, ends, place)| {
                let near = if reduction.is_some() { ends.target() } else { ends.source() };
                ends.copy(near, place, transfer.negate, Combine::Replace)
            })
            .collect();
        if reduction.is_none() {
            entries.extend(plan.local.iter().map(|transfer| Ends::new(specs, transfer).direct()));
        }
        if constants.is_some() {
            let messages = if staged { usize::from(!sends.is_empty()) } else { sends.len() };
            entries.extend(corner::fills(specs, &plan.edges, specs.len() + messages));
        }
        let pack = device.plan_regions(&entries)?;

        let arrivals = |staged| {
            in_messages(specs, incoming, &receives, staged).map(|(transfer, ends, place)| {
                let (near, combine) = match reduction {
                    None => (ends.target(), Combine::Replace),
                    Some(combine) => (ends.source(), combine),
                };
                (transfer, ends.copy(place, near, false, combine))
            })
        };
        let (mut unpack, mut unpack_some) = (Vec::new(), None);
        if let Some(combine) = reduction {
            let local = plan.local.iter().map(|transfer| {
                let ends = Ends::new(specs, transfer);
                (transfer, ends.copy(ends.target(), ends.source(), transfer.negate, combine))
            });
            let mut all: Vec<_> = arrivals(staged).chain(local).collect();
            // Several contributions meet in one element: they are combined in this order, whichever arrives first.
            all.sort_by_key(|(transfer, _)| (transfer.to, transfer.side.id(), transfer.field));
            for entries in layers(specs, all, combine) {
                unpack.push(device.plan_regions(&entries)?);
            }
        } else {
            let make = |staged| {
                let copies: Vec<RegionCopy> = arrivals(staged).map(|(_, copy)| copy).collect();
                device.plan_regions(&copies)
            };
            unpack.push(make(staged)?);
            if staged && incoming.len() > 1 {
                unpack_some = Some(make(false)?);
            }
        }
        let bytes = |peers: &[Peer]| peers.last().map_or(0, |peer| peer.start + peer.bytes);
        let staging = match staged {
            true => Some([
                device.memory_allocate(bytes(&sends))?,
                device.memory_allocate(bytes(&receives))?,
            ]),
            false => None,
        };
        let own_bytes = plan.own_bytes(specs);
        Ok(Self {
            pack,
            unpack,
            unpack_some,
            sends,
            receives,
            own_bytes,
            constants,
            staging,
            direction,
        })
    }

    /// Enqueues packing all messages, into buffers of matching lengths. Returns the number of launches.
    pub(crate) fn pack(
        &mut self,
        stream: &Stream,
        fields: &mut [Field<'_>],
        buffers: &mut [Storage],
    ) -> Result<usize> {
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
        execute(&self.pack, stream, fields, slots)?;
        if let Some([outgoing, _]) = &self.staging {
            for (peer, buffer) in self.sends.iter().zip(buffers) {
                let Storage::Pinned(pinned) = buffer else { continue };
                let bytes = outgoing.view().slice(peer.range())?;
                bytes.copy_to_pinned(stream, pinned)?;
            }
        }
        Ok(self.pack.launches())
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
        let some = self.unpack_some.as_ref().filter(|_| !are_all);
        let plans = some.map_or(&self.unpack[..], std::slice::from_ref);
        for plan in plans {
            let messages = match &self.staging {
                Some([_, incoming]) if are_all => vec![incoming.view().into()],
                _ => self.bind(batch)?,
            };
            execute(plan, stream, fields, messages)?;
        }
        Ok(plans.iter().map(RegionPlan::launches).sum())
    }

    /// Returns a slot for each message. Slots of messages that are not in the batch are absent.
    fn bind<'a>(&'a self, batch: &'a [(usize, Storage)]) -> Result<Vec<Slot<'a>>> {
        let mut slots: Vec<Slot<'_>> = self.receives.iter().map(|_| Slot::Absent).collect();
        for (index, buffer) in batch {
            let peer = self.receives[*index];
            slots[*index] = match (&self.staging, buffer) {
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

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether messages may be unpacked as they arrive.
    pub(crate) fn takes_any_order(&self) -> bool {
        self.direction.reduction().is_none()
    }

    /// Whether it writes elements that ranks own.
    pub(crate) fn writes_owned(&self) -> bool {
        self.direction != Direction::Fill
    }
}

/// The transfers in messages, each with the place of its elements in its message. The messages are in the staging
/// memory, or each is in its own memory.
fn in_messages<'a>(
    specs: &'a [FieldSpec],
    messages: &'a [Message],
    peers: &'a [Peer],
    staged: bool,
) -> impl Iterator<Item = (&'a Transfer, Ends<'a>, RegionSide)> {
    messages.iter().zip(peers).enumerate().flat_map(move |(index, (message, peer))| {
        let (slot, start) =
            if staged { (specs.len(), peer.start) } else { (specs.len() + index, 0) };
        message.blocks.iter().map(move |(transfer, offset)| {
            let ends = Ends::new(specs, transfer);
            let place = ends.in_message(slot, start + offset);
            (transfer, ends, place)
        })
    })
}

fn peers(messages: &[Message]) -> Result<Vec<Peer>> {
    let mut start = 0_usize;
    let peer = |message: &Message| {
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

fn check_combine(specs: &[FieldSpec], combine: Combine) -> Result<()> {
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

/// Splits copies into layers that run one after the other: one layer if the device orders copies into the same
/// elements, otherwise as many layers as needed so that no two copies of a layer write the same elements.
fn layers(
    specs: &[FieldSpec],
    copies: Vec<(&Transfer, RegionCopy)>,
    combine: Combine,
) -> Vec<Vec<RegionCopy>> {
    if combine != Combine::Replace {
        return vec![copies.into_iter().map(|(_, copy)| copy).collect()];
    }
    let mut layers: Vec<Vec<RegionCopy>> = Vec::new();
    let mut placed: Vec<(usize, [Range<isize>; 3], usize)> = Vec::new();
    for (transfer, copy) in copies {
        let owned = Ends::new(specs, transfer).source_box();
        let meets = |other: &[Range<isize>; 3]| {
            owned.iter().zip(other).all(|(a, b)| a.start < b.end && b.start < a.end)
        };
        let below =
            placed.iter().filter(|(field, other, _)| *field == transfer.source && meets(other));
        let layer = below.map(|(_, _, layer)| layer + 1).max().unwrap_or(0);
        if layers.len() <= layer {
            layers.push(Vec::new());
        }
        layers[layer].push(copy);
        placed.push((transfer.source, owned, layer));
    }
    layers
}
