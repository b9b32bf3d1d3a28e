//! The messages that a rank sends and receives, one or several for each neighbour, and its local copies.

pub(crate) mod attributes;
pub(crate) mod fingerprint;
pub(crate) mod transfer;

use std::collections::HashMap;
use std::ops::Range;

use runtime_core::{Combine, Layout, RegionCopy, RegionSide, Result};

use crate::plan::fingerprint::Fingerprint;
use crate::plan::transfer::{Edge, Fields, Pattern, Transfer, index_of, refuse};
use crate::{Dim, FieldSpec, Messages, Topology};

/// The alignment of blocks in a message: devices can then move whole words.
pub(crate) const ALIGN: usize = 16;

/// The number of bytes of a stamp. It distinguishes a message from others of its rank and from those of other
/// exchanges.
pub(crate) const STAMP_BYTES: usize = 8;

/// The exchange of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Ordered by rank and part.
    pub(crate) sends: Vec<Message>,
    /// Ordered by rank and part.
    pub(crate) receives: Vec<Message>,
    /// Copies of data that the rank exchanges with itself.
    pub(crate) local: Vec<Transfer>,
    /// Ghost elements that no rank sends.
    pub(crate) edges: Vec<Edge>,
}

/// The data of one message between two ranks. Both order it by side of the receiver and by field, so the message needs
/// no description of itself.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) peer: usize,
    /// 0 for the message with the combined fields. For a field with its own message, the field's number plus 1.
    pub(crate) part: usize,
    /// Includes [`STAMP_BYTES`] at the end.
    pub(crate) bytes: usize,
    /// The transfers, and the offset of each.
    pub(crate) blocks: Vec<(Transfer, usize)>,
}

impl Plan {
    pub(crate) fn new(
        topology: &Topology,
        fields: &Fields,
        rank: usize,
        pattern: Pattern,
        sharing: Messages,
    ) -> Result<Self> {
        let (incoming, edges) = fields.incoming(topology, rank, pattern)?;
        // Any rank within the widest halo of this rank has this rank within its own widest halo.
        let reach = match pattern {
            Pattern::Halo(_) => fields.reach(),
            Pattern::Shared => 1,
        };
        let (around, _) = topology.surroundings(rank, &[[reach; 2]; 3])?;
        let mut ranks: Vec<usize> = around.iter().map(|piece| piece.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut outgoing = Vec::new();
        for to in ranks.into_iter().filter(|to| *to != rank) {
            let (theirs, _) = fields.incoming(topology, to, pattern)?;
            outgoing.extend(theirs.into_iter().filter(|transfer| transfer.from == rank));
        }
        let (mut local, incoming): (Vec<_>, _) =
            incoming.into_iter().partition(|transfer| transfer.from == rank);
        let specs = fields.specs();
        // Fields without elements have no offsets to copy from.
        local.retain(|transfer| {
            extents(&specs[transfer.field], transfer).all(|(_, extent)| extent > 0)
        });
        Ok(Self {
            sends: messages(specs, rank, outgoing, sharing, |transfer| transfer.to)?,
            receives: messages(specs, rank, incoming, sharing, |transfer| transfer.from)?,
            local,
            edges,
        })
    }

    /// The number of bytes that the rank exchanges with itself.
    pub(crate) fn own_bytes(&self, specs: &[FieldSpec]) -> usize {
        let bytes = |transfer: &Transfer| {
            let spec = &specs[transfer.field];
            let elements: usize = extents(spec, transfer).map(|(_, extent)| extent).product();
            elements * spec.dtype().size()
        };
        self.local.iter().map(bytes).fold(0, usize::saturating_add)
    }

    /// A hash sum of the sent messages minus that of the received messages. The sum over all ranks is 0 if they agree
    /// on every message.
    pub(crate) fn balance(&self, specs: &[FieldSpec], rank: usize) -> u128 {
        let print = |from, to, message: &Message| {
            let mut print = Fingerprint::new();
            print.number(from);
            print.number(to);
            print.number(message.part);
            print.number(message.bytes);
            for (transfer, offset) in &message.blocks {
                print.number(transfer.side.id());
                print.number(transfer.field);
                print.number(*offset);
                for (dim, extent) in extents(&specs[transfer.field], transfer) {
                    print.number(dim);
                    print.number(extent);
                }
            }
            print.value()
        };
        let sent = self.sends.iter().map(|message| print(rank, message.peer, message));
        let received = self.receives.iter().map(|message| print(message.peer, rank, message));
        sent.fold(0, u128::wrapping_add).wrapping_sub(received.fold(0, u128::wrapping_add))
    }
}

/// Groups the transfers of a rank into messages.
fn messages(
    specs: &[FieldSpec],
    rank: usize,
    transfers: Vec<Transfer>,
    sharing: Messages,
    peer: impl Fn(&Transfer) -> usize,
) -> Result<Vec<Message>> {
    let too_long = |field: usize| {
        let name = specs[field].name();
        refuse(format!("field {name} of rank {rank}: a message of 2^63 bytes or more"))
    };
    let mut sized = Vec::with_capacity(transfers.len());
    // Bytes by peer and field.
    let mut shares: HashMap<(usize, usize), usize> = HashMap::new();
    for transfer in transfers {
        let spec = &specs[transfer.field];
        let bytes = extents(spec, &transfer)
            .try_fold(spec.dtype().size(), |bytes, (_, extent)| bytes.checked_mul(extent));
        let bytes = bytes.ok_or_else(|| too_long(transfer.field))?;
        let share = shares.entry((peer(&transfer), transfer.field)).or_default();
        *share = share.saturating_add(bytes);
        sized.push((transfer, bytes));
    }
    let part = |transfer: &Transfer| {
        let goes_alone = shares[&(peer(transfer), transfer.field)] > sharing.limit();
        if goes_alone { transfer.field + 1 } else { 0 }
    };
    sized.retain(|(_, bytes)| *bytes > 0);
    sized.sort_by_cached_key(|(transfer, _)| {
        let start = [0, 1, 2].map(|axis| transfer.target[axis].start);
        (peer(transfer), part(transfer), transfer.side.id(), transfer.field, start)
    });
    let mut messages: Vec<Message> = Vec::new();
    for (transfer, bytes) in sized {
        let (peer, part) = (peer(&transfer), part(&transfer));
        if messages.last().is_none_or(|message| (message.peer, message.part) != (peer, part)) {
            messages.push(Message { peer, part, bytes: 0, blocks: Vec::new() });
        }
        let Some(message) = messages.last_mut() else { continue };
        let offset = message.bytes.next_multiple_of(ALIGN);
        message.bytes = offset
            .checked_add(bytes)
            .filter(|b| *b <= isize::MAX as usize - 2 * ALIGN)
            .ok_or_else(|| too_long(transfer.field))?;
        message.blocks.push((transfer, offset));
    }
    for message in &mut messages {
        message.bytes = message.bytes.next_multiple_of(STAMP_BYTES) + STAMP_BYTES;
    }
    Ok(messages)
}

/// The dimensions of a transfer in the order of the receiver's memory, the slowest first, with their extents.
/// Dimensions with one element are left out.
fn extents<'a>(
    spec: &'a FieldSpec,
    transfer: &'a Transfer,
) -> impl Iterator<Item = (usize, usize)> + 'a {
    let extent = |dim: usize| match spec.dims()[dim].along() {
        Some(axis) => (transfer.target[axis].end - transfer.target[axis].start).unsigned_abs(),
        None => spec.dims()[dim].points(),
    };
    spec.memory_order().map(move |dim| (dim, extent(dim))).filter(|(_, extent)| *extent != 1)
}

/// The two ends of a transfer, as region copies describe them.
pub(crate) struct Sides<'a> {
    specs: &'a [FieldSpec],
    /// The fields as the sender has them.
    sender: &'a [FieldSpec],
    transfer: &'a Transfer,
    dims: Vec<(usize, usize)>,
}

impl<'a> Sides<'a> {
    /// A transfer whose near end is a field of `specs`. The other end is a message, or also a field of `specs`.
    pub(crate) fn new(specs: &'a [FieldSpec], transfer: &'a Transfer) -> Self {
        Self::between(specs, specs, transfer)
    }

    /// A transfer from fields of another rank to fields of this rank.
    pub(crate) fn between(
        specs: &'a [FieldSpec],
        sender: &'a [FieldSpec],
        transfer: &'a Transfer,
    ) -> Self {
        let dims = extents(&specs[transfer.field], transfer).collect();
        Self { specs, sender, transfer, dims }
    }

    pub(crate) fn extents(&self) -> Vec<usize> {
        self.dims.iter().map(|(_, extent)| *extent).collect()
    }

    /// The copy from the sender's elements to the receiver's.
    pub(crate) fn copy(&self) -> RegionCopy {
        RegionCopy {
            dtype: self.specs[self.transfer.field].dtype(),
            extents: self.extents(),
            source: self.source(),
            destination: self.target(),
            negate: self.transfer.negate,
            combine: Combine::Replace,
        }
    }

    /// The receiver's elements, in the memory bound to the slot of their field.
    pub(crate) fn target(&self) -> RegionSide {
        let spec = &self.specs[self.transfer.field];
        let first = spec.dims().iter().map(|dim| match dim.along() {
            Some(axis) => index_of(dim, self.transfer.target[axis].start),
            None => 0,
        });
        let strides = self.dims.iter().map(|(dim, _)| stride(spec, *dim)).collect();
        RegionSide { slot: self.transfer.field, offset: offset(spec, first), strides }
    }

    /// The sender's elements, in the memory bound to the slot of their field.
    pub(crate) fn source(&self) -> RegionSide {
        let (receiver, spec) =
            (&self.specs[self.transfer.field], &self.sender[self.transfer.source]);
        let run_along = |axis| self.transfer.origin.iter().find(|run| run.axis == axis);
        let first = spec.dims().iter().map(|dim| {
            let run = dim.along().and_then(run_along);
            run.map_or(0, |run| index_of(dim, run.first))
        });
        let is_free = |dim: &usize, spec: &FieldSpec| spec.dims()[*dim].along().is_none();
        let strides = self.dims.iter().map(|(dim, _)| {
            match receiver.dims()[*dim].along() {
                Some(axis) => {
                    let run = self.transfer.origin[axis];
                    let along = spec.dims().iter().position(|dim| dim.along() == Some(run.axis));
                    let stride = along.map_or(0, |dim| stride(spec, dim));
                    if run.backwards { -stride } else { stride }
                }
                // The free dimensions of partners are in the same order.
                None => {
                    let number = (0..*dim).filter(|dim| is_free(dim, receiver)).count();
                    let own = (0..spec.dims().len()).filter(|dim| is_free(dim, spec)).nth(number);
                    own.map_or(0, |dim| stride(spec, dim))
                }
            }
        });
        RegionSide {
            slot: self.transfer.source,
            offset: offset(spec, first),
            strides: strides.collect(),
        }
    }

    /// The elements in a message at byte `start` of the memory bound to `slot`.
    pub(crate) fn wire(&self, slot: usize, start: usize) -> RegionSide {
        let size = self.specs[self.transfer.field].dtype().size();
        let mut strides = vec![0_isize; self.dims.len()];
        let mut next = size.cast_signed();
        for (stride, (_, extent)) in strides.iter_mut().zip(&self.dims).rev() {
            *stride = next;
            next *= extent.cast_signed();
        }
        RegionSide { slot, offset: start, strides }
    }

    /// The sender's elements as ranges along its axes.
    pub(crate) fn source_box(&self) -> [Range<isize>; 3] {
        let mut ranges = [0..0, 0..0, 0..0];
        for (axis, run) in self.transfer.origin.iter().enumerate() {
            let len = self.transfer.target[axis].end - self.transfer.target[axis].start;
            let first = if run.backwards { run.first + 1 - len } else { run.first };
            ranges[run.axis] = first..first + len;
        }
        ranges
    }
}

/// A box of elements of a field, in the memory bound to `slot`.
pub(crate) fn box_side(spec: &FieldSpec, slot: usize, ranges: &[Range<usize>]) -> RegionSide {
    let strides = (0..ranges.len()).map(|dim| stride(spec, dim)).collect();
    RegionSide { slot, offset: offset(spec, ranges.iter().map(|range| range.start)), strides }
}

/// The layout of the owned part of a field, and the offset in bytes of its lowest byte from the lowest byte of the
/// field.
pub(crate) fn owned(spec: &FieldSpec) -> Result<(Layout, usize)> {
    let shape: Vec<usize> = spec.dims().iter().map(Dim::points).collect();
    let layout = Layout::new(spec.dtype(), &shape, spec.layout().strides())?;
    let first = offset(spec, spec.dims().iter().map(|dim| dim.owned().start));
    Ok((layout, first.wrapping_add_signed(layout.span_bytes().start)))
}

fn stride(spec: &FieldSpec, dim: usize) -> isize {
    // Only the stride of a dimension with at most one element can overflow.
    spec.layout().strides()[dim].wrapping_mul(spec.dtype().size().cast_signed())
}

/// Bytes from the lowest byte of the field to the element with these indices.
fn offset(spec: &FieldSpec, index: impl Iterator<Item = usize>) -> usize {
    let from_origin: isize =
        index.enumerate().map(|(dim, index)| index.cast_signed() * stride(spec, dim)).sum();
    usize::try_from(from_origin - spec.layout().span_bytes().start).unwrap_or(usize::MAX)
}

/// A hash of each field, over everything that all ranks must agree on.
pub(crate) fn fingerprints(fields: &Fields) -> Vec<u128> {
    let print = |(field, spec): (usize, &FieldSpec)| {
        let mut print = Fingerprint::new();
        print.text(spec.name());
        print.text(&format!("{:?} {}", fields.kind(field), spec.dtype()));
        for dim in spec.dims() {
            let free = if dim.along().is_none() { dim.points() } else { 0 };
            print.text(&format!(
                "{:?} {} {:?} {free}",
                dim.along(),
                dim.is_staggered(),
                dim.widths()
            ));
        }
        print.value()
    };
    fields.specs().iter().enumerate().map(print).collect()
}
