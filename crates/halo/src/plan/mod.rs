//! The messages that a rank sends and receives, one or several for each neighbour, and its local copies.

pub(crate) mod attributes;
pub(crate) mod copies;
pub(crate) mod fingerprint;
pub(crate) mod lists;
pub(crate) mod transfer;

use std::collections::{BTreeSet, HashMap};

use runtime_core::Result;

use self::fingerprint::Hasher;
use self::transfer::{Edge, Fields, Pattern, Transfer, refuse};
use crate::options::Messages;
use crate::topology::Topology;

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

/// The data of one message between two ranks. Both know the order of its blocks, so the message needs no description of
/// itself. The parts of a halo exchange are in the order of the receiver's blocks, of the sides of each, and of the fields
/// for each side.
#[derive(Clone, Debug)]
pub(crate) struct Message<B = Transfer> {
    pub(crate) peer: usize,
    /// 0 for the message with the combined fields. For a field with its own message, the field's number plus 1.
    pub(crate) part: usize,
    /// Includes [`STAMP_BYTES`] at the end.
    pub(crate) bytes: usize,
    /// The blocks of data, and the offset of each.
    pub(crate) blocks: Vec<(B, usize)>,
}

impl<B> Message<B> {
    pub(crate) const fn new(peer: usize, part: usize) -> Self {
        Self { peer, part, bytes: 0, blocks: Vec::new() }
    }

    /// Appends a block of this many bytes. `None` if the message then has 2^63 bytes or more.
    pub(crate) fn push(&mut self, block: B, bytes: usize) -> Option<()> {
        let offset = self.bytes.next_multiple_of(ALIGN);
        let end = offset.checked_add(bytes)?;
        self.bytes = (end <= isize::MAX as usize - 2 * ALIGN).then_some(end)?;
        self.blocks.push((block, offset));
        Some(())
    }

    /// Appends the place of the stamp, after the last block.
    pub(crate) const fn close(&mut self) {
        self.bytes = self.bytes.next_multiple_of(STAMP_BYTES) + STAMP_BYTES;
    }
}

impl Plan {
    pub(crate) fn new(
        topology: &Topology,
        fields: &Fields,
        rank: usize,
        pattern: Pattern,
        sharing: Messages,
    ) -> Result<Self> {
        let reach = match pattern {
            Pattern::Halo(_) | Pattern::Axis(_) => fields.reach(),
            Pattern::Shared => 1,
        };
        let (mut incoming, mut edges, mut readers) = (Vec::new(), Vec::new(), BTreeSet::new());
        for block in fields.blocks() {
            let (mut transfers, mut open) = fields.incoming(topology, *block, pattern)?;
            incoming.append(&mut transfers);
            edges.append(&mut open);
            readers.extend(topology.readers(*block, reach)?);
        }
        let is_own = |block: usize| topology.owner(block) == rank;
        let mut outgoing = Vec::new();
        for to in readers.into_iter().filter(|to| !is_own(*to)) {
            let (theirs, _) = fields.incoming(topology, to, pattern)?;
            outgoing.extend(theirs.into_iter().filter(|transfer| is_own(transfer.from)));
        }
        let (mut local, incoming): (Vec<_>, _) =
            incoming.into_iter().partition(|transfer| is_own(transfer.from));
        // Fields without elements have no offsets to copy from.
        local.retain(|transfer| fields.extents(transfer).all(|(_, extent)| extent > 0));
        let peer = |block| topology.owner(block);
        Ok(Self {
            sends: messages(fields, rank, outgoing, sharing, |transfer| peer(transfer.to))?,
            receives: messages(fields, rank, incoming, sharing, |transfer| peer(transfer.from))?,
            local,
            edges,
        })
    }

    /// Whether the rank exchanges nothing.
    pub(crate) const fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty() && self.local.is_empty()
    }

    /// The number of bytes that the rank exchanges with itself.
    pub(crate) fn own_bytes(&self, fields: &Fields) -> usize {
        let bytes = |transfer: &Transfer| {
            let spec = &fields.specs()[transfer.field];
            let elements: usize = fields.extents(transfer).map(|(_, extent)| extent).product();
            elements * spec.dtype().size()
        };
        self.local.iter().map(bytes).fold(0, usize::saturating_add)
    }

    /// A hash sum of the sent messages minus that of the received messages. The sum over all ranks is 0 if they agree
    /// on every message.
    pub(crate) fn balance(&self, fields: &Fields, rank: usize) -> u128 {
        let hash = |from, to, message: &Message| {
            let mut hash = Hasher::new();
            hash.number(from);
            hash.number(to);
            hash.number(message.part);
            hash.number(message.bytes);
            for (transfer, offset) in &message.blocks {
                hash.number(transfer.from);
                hash.number(transfer.to);
                hash.number(transfer.side.id());
                hash.number(transfer.field);
                hash.number(*offset);
                for (dim, extent) in fields.extents(transfer) {
                    hash.number(dim);
                    hash.number(extent);
                }
            }
            hash.value()
        };
        let sent = self.sends.iter().map(|message| hash(rank, message.peer, message));
        let received = self.receives.iter().map(|message| hash(message.peer, rank, message));
        sent.fold(0, u128::wrapping_add).wrapping_sub(received.fold(0, u128::wrapping_add))
    }
}

/// Groups the transfers of a rank into messages.
fn messages(
    fields: &Fields,
    rank: usize,
    transfers: Vec<Transfer>,
    sharing: Messages,
    peer: impl Fn(&Transfer) -> usize,
) -> Result<Vec<Message>> {
    let too_long = |field: usize| {
        let name = &fields.of(fields.blocks()[0]).roles[field].name;
        refuse(format!("field {name} of rank {rank}: a message of 2^63 bytes or more"))
    };
    let mut sized = Vec::with_capacity(transfers.len());
    // Bytes by peer and field.
    let mut shares: HashMap<(usize, usize), usize> = HashMap::new();
    for transfer in transfers {
        let size = fields.specs()[transfer.field].dtype().size();
        let bytes = fields
            .extents(&transfer)
            .try_fold(size, |bytes, (_, extent)| bytes.checked_mul(extent));
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
        (peer(transfer), part(transfer), transfer.to, transfer.side.id(), transfer.field, start)
    });
    let mut messages: Vec<Message> = Vec::new();
    for (transfer, bytes) in sized {
        let (peer, part) = (peer(&transfer), part(&transfer));
        if messages.last().is_none_or(|message| (message.peer, message.part) != (peer, part)) {
            messages.push(Message::new(peer, part));
        }
        let Some(message) = messages.last_mut() else { continue };
        let field = transfer.field;
        message.push(transfer, bytes).ok_or_else(|| too_long(field))?;
    }
    messages.iter_mut().for_each(Message::close);
    Ok(messages)
}
