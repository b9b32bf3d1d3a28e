//! The exchange of ranks that read each other's fields.

use std::ops::Range;

use runtime_core::{
    AnyView, AnyViewOutside, Device, Memory, RegionCopy, RegionPlan, Result, Slot, Stream, bytemuck,
};
use smallvec::SmallVec;

use super::corner;
use crate::communicator::{LentViews, LoanEvents};
use crate::field::{Field, begin_writes};
use crate::plan::Plan;
use crate::plan::copies::{Ends, owned_layout};
use crate::plan::transfer::{Fields, refuse};
use crate::topology::Topology;

/// Up to this number of memories, the lists need no allocation.
const FEW: usize = 16;

/// Copies owned values of neighbours, and of the rank itself, to ghosts in one launch.
///
/// The slots of its plan are the rank's fields, the fields of each rank in `peers`, and the constants.
#[derive(Debug)]
pub(crate) struct DirectRoute {
    plan: RegionPlan,
    /// For each peer, the number of its fields.
    lent: Vec<usize>,
    /// The neighbours that this rank reads from, or that read from it.
    pub(crate) peers: Vec<usize>,
    /// The ranks that this rank reads from, possibly itself, with the bytes.
    pub(crate) copied: Vec<(usize, usize)>,
    /// The events for loans of its fields, on the stream of the latest exchange.
    pub(crate) events: LoanEvents,
    /// Values for missing corners.
    constants: Option<Memory<u8>>,
}

/// The owned part of a field, and the part outside it.
pub(crate) type Divided<'a> = (AnyView<'a>, AnyViewOutside<'a>);

impl DirectRoute {
    /// Makes the copies of `rank`. `neighbours` holds the fields of its neighbours.
    pub(crate) fn new(
        rank: usize,
        device: &Device,
        fields: &Fields,
        plan: &Plan,
        neighbours: &[Peer],
        constants: Option<Memory<u8>>,
    ) -> Result<Self> {
        let specs = fields.specs();
        let mut entries: Vec<RegionCopy> =
            plan.local.iter().map(|transfer| Ends::new(fields, transfer).direct()).collect();
        let own = plan.own_bytes(fields);
        let mut copied = Vec::from_iter((own > 0).then_some((rank, own)));
        let mut slots = specs.len();
        for Peer { rank: peer, fields: theirs } in neighbours {
            let first = entries.len();
            let messages = plan.receives.iter().filter(|message| message.peer == *peer);
            for (transfer, _) in messages.flat_map(|message| &message.blocks) {
                let sender = theirs.of(transfer.from);
                let mut copy = Ends::between(fields.of(transfer.to), sender, transfer).direct();
                copy.source.slot += slots;
                // Neighbours lend only the elements that they own, without ghosts.
                copy.source.offset -= owned_layout(&sender.specs[transfer.source])?.1;
                entries.push(copy);
            }
            slots += theirs.specs().len();
            let bytes =
                |copy: &RegionCopy| copy.extents.iter().product::<usize>() * copy.dtype.size();
            let bytes = entries[first..].iter().map(bytes).fold(0, usize::saturating_add);
            copied.extend((bytes > 0).then_some((*peer, bytes)));
        }
        if constants.is_some() {
            entries.extend(corner::fills(specs, &plan.edges, slots));
        }
        let mut plan = device.plan_regions(&entries)?;
        let slots = plan.slots().len();
        let theirs = neighbours.iter().flat_map(|peer| peer.fields.specs());
        for (slot, spec) in specs.iter().chain(theirs).enumerate().take(slots) {
            let (layout, start) = owned_layout(spec)?;
            plan = plan.with_split(slot, if slot < specs.len() { start } else { 0 }, &layout)?;
        }
        let peers = neighbours.iter().map(|peer| peer.rank).collect();
        let lent = neighbours.iter().map(|peer| peer.fields.specs().len()).collect();
        let events = LoanEvents::new(&device.default_stream())?;
        Ok(Self { plan, lent, peers, copied, events, constants })
    }

    /// Prepares for loans of `stream`.
    pub(crate) fn use_stream(&mut self, stream: &Stream) -> Result<()> {
        if self.events.stream() != stream {
            self.events = LoanEvents::new(stream)?;
        }
        Ok(())
    }

    /// Begins the writes of the fields that it writes.
    pub(crate) fn begin_writes(&self, fields: &mut [Field<'_>]) {
        begin_writes(&self.plan, fields);
    }

    /// Enqueues all copies. Returns the number of launches. `views` is in the order of `peers`.
    pub(crate) fn execute(
        &self,
        stream: &Stream,
        own: &mut [Divided<'_>],
        views: &[LentViews<'_>],
    ) -> Result<usize> {
        for (other, planned) in views.iter().zip(&self.lent) {
            let (rank, count) = (other.rank, other.views().len());
            if count != *planned {
                return Err(refuse(format!("rank {rank} lends {count} fields for {planned}")));
            }
        }
        let mut slots: SmallVec<[Slot<'_>; FEW]> =
            own.iter_mut().map(|(_, outside)| outside.reborrow().into()).collect();
        slots.extend(views.iter().flat_map(LentViews::views).map(Slot::Read));
        slots.extend(self.constants.as_ref().map(|constants| constants.view().into()));
        slots.truncate(self.plan.slots().len());
        self.plan.execute(stream, &mut slots)?;
        Ok(self.plan.launches())
    }
}

/// Whether direct reads would mostly move cache lines back and forth between the cores of a processor.
///
/// If rows are short, the cells that neighbours read share cache lines with ghosts, which are written in every
/// exchange. That costs more than gathering the cells in a message, if the message fits a cache and is large enough to
/// outweigh its cost.
pub(crate) fn share_lines(fields: &Fields, plan: &Plan) -> bool {
    const LINE: usize = 64;
    const MESSAGES: Range<usize> = 32 << 10..(1 << 20) + 1;
    let (mut all, mut narrow) = (0, 0_usize);
    for (transfer, _) in plan.receives.iter().flat_map(|message| &message.blocks) {
        let copy = Ends::new(fields, transfer).direct();
        let size = copy.dtype.size();
        let bytes = copy.extents.iter().product::<usize>() * size;
        let rows = copy.extents.iter().zip(&copy.destination.strides);
        let row =
            rows.filter(|(_, stride)| stride.unsigned_abs() == size).map(|(row, _)| row * size);
        all = bytes.saturating_add(all);
        narrow = narrow.saturating_add(if row.max().unwrap_or(size) < LINE { bytes } else { 0 });
    }
    MESSAGES.contains(&all) && 2 * narrow > all
}

/// A neighbour with its fields.
#[derive(Debug)]
pub(crate) struct Peer {
    rank: usize,
    fields: Fields,
}

/// Returns the neighbours of a rank with their fields. `all` holds the memory placement of the fields of each rank.
pub(crate) fn neighbours(
    topology: &Topology,
    fields: &Fields,
    plan: &Plan,
    all: &[u8],
) -> Result<Vec<Peer>> {
    let (all, _) = all.as_chunks::<{ size_of::<[i64; 3]>() }>();
    let all: Vec<[i64; 3]> = all.iter().map(|bytes| bytemuck::pod_read_unaligned(bytes)).collect();
    let messages = plan.receives.iter().chain(&plan.sends);
    let mut peers: Vec<usize> = messages.map(|message| message.peer).collect();
    peers.sort_unstable();
    peers.dedup();
    let dims_of_rank = all.len() / topology.ranks();
    let with_fields = |rank: usize| {
        let fields = fields.placed(topology, rank, &all[rank * dims_of_rank..])?;
        Ok(Peer { rank, fields })
    };
    peers.into_iter().map(with_fields).collect()
}
