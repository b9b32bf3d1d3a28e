//! What a halo exchange exchanges, and the launches for it.

use std::ops::Range;

use runtime_core::{Combine, Device, DeviceKind, Memory, RegionCopy, RegionSide, Result};

use super::corner::{self, Corners};
use super::direct::{DirectRoute, neighbours, share_lines};
use super::route::{Direction, Launches, Peer, Route, check_combine, peers, placed};
use crate::field::{Dim, FieldSpec, Quantity};
use crate::options::{HaloOptions, MissingCorners, Reach};
use crate::plan::attributes::{Attributes, check_blocks};
use crate::plan::copies::Ends;
use crate::plan::fingerprint::PlanFingerprint;
use crate::plan::transfer::{Fields, Pattern, Transfer, refuse};
use crate::plan::{Message, Plan};
use crate::topology::Topology;

/// The fields of one rank, and the plan to fill their ghosts.
#[derive(Debug)]
pub(crate) struct HaloSource {
    topology: Topology,
    rank: usize,
    fields: Fields,
    /// The whole exchange at once.
    pub(crate) plan: Plan,
    /// The plans of the axes with ghosts to fill, if messages go axis by axis.
    axes: Vec<(Direction, Plan)>,
    options: HaloOptions,
}

impl HaloSource {
    /// Makes the plan of a rank.
    pub(crate) fn new(
        topology: &Topology,
        rank: usize,
        quantities: &[Quantity],
        options: &HaloOptions,
    ) -> Result<Self> {
        let fields = Fields::new(quantities, topology, rank)?;
        check_blocks(&fields, rank)?;
        let plan = |pattern| Plan::new(topology, &fields, rank, pattern, options.messages);
        let mut axes = Vec::new();
        if options.reach == Reach::ByAxis {
            if !topology.is_box() {
                let message = "Reach::ByAxis for a topology that is not of Topology::cartesian";
                return Err(refuse(message.to_owned()));
            }
            for axis in 0..topology.axes() {
                let plan = plan(Pattern::Axis(axis))?;
                if !plan.is_empty() {
                    axes.push((Direction::Axis(axis), plan));
                }
            }
        }
        let plan = plan(Pattern::Halo(options.reach))?;
        let (topology, options) = (topology.clone(), options.clone());
        Ok(Self { topology, rank, fields, plan, axes, options })
    }

    /// The plans that fill the halos by messages, one after the other.
    pub(crate) fn filling(&self) -> impl Iterator<Item = (Direction, &Plan)> {
        let whole = self.axes.is_empty().then_some((Direction::Fill, &self.plan));
        whole.into_iter().chain(self.axes.iter().map(|(direction, plan)| (*direction, plan)))
    }

    pub(crate) fn specs(&self) -> &[FieldSpec] {
        self.fields.specs()
    }

    /// What sets corners to averages, if the options specify this.
    pub(crate) fn corners(&self, device: &Device) -> Result<Option<Corners>> {
        match self.options.missing_corners {
            MissingCorners::Average => {
                Corners::new(device, self.specs(), &self.plan.edges).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether messages are cheaper than reading the fields of other ranks directly, if the ranks are threads.
    pub(crate) fn prefers_messages(&self, device: &Device) -> bool {
        device.info().kind == DeviceKind::Host && share_lines(&self.fields, &self.plan)
    }

    /// The placement of the fields in memory, for the other ranks. Each rank has as many numbers as the one with most
    /// blocks.
    pub(crate) fn placements(&self) -> Vec<[i64; 3]> {
        let mut all: Vec<_> = self.specs().iter().flat_map(FieldSpec::placement).collect();
        let of_block = all.len() / self.fields.blocks().len();
        all.resize(of_block * self.topology.most_blocks(), [0; 3]);
        all
    }

    /// Makes the copies from the fields of other ranks. `placements` holds the [placements](Self::placements) of all
    /// ranks.
    pub(crate) fn direct_route(&self, device: &Device, placements: &[u8]) -> Result<DirectRoute> {
        let (fields, plan) = (&self.fields, &self.plan);
        let neighbours = neighbours(&self.topology, fields, plan, placements)?;
        let constants = self.constants(device)?;
        DirectRoute::new(self.rank, device, fields, plan, &neighbours, constants)
    }

    pub(crate) fn fingerprint(&self) -> PlanFingerprint {
        let (fields, rank) = (&self.fields, self.rank);
        let plans = self.axes.iter().map(|(_, plan)| plan).chain([&self.plan]);
        let balance = plans.map(|plan| plan.balance(fields, rank)).fold(0, u128::wrapping_add);
        let is_staggered =
            self.specs().iter().any(|spec| spec.dims().iter().any(Dim::is_staggered));
        let shared = if is_staggered { self.shared().ok() } else { None };
        let shared = shared.map(|plan| plan.balance(fields, rank));
        let count = self.specs().len() / fields.blocks().len();
        PlanFingerprint::new(&self.attributes(), count, balance, shared)
    }

    pub(crate) fn attributes(&self) -> Attributes {
        Attributes::new(&self.topology, &self.options, &self.fields)
    }

    /// The plan of points that ranks share.
    pub(crate) fn shared(&self) -> Result<Plan> {
        if self.topology.has_regions() {
            let message = "points that ranks share, in a topology of Topology::of_regions";
            return Err(refuse(message.to_owned()));
        }
        let sharing = self.options.messages;
        Plan::new(&self.topology, &self.fields, self.rank, Pattern::Shared, sharing)
    }

    /// The plan of a direction other than [`Shared`](Direction::Shared).
    pub(crate) fn plan_of(&self, direction: Direction) -> &Plan {
        let axis = self.axes.iter().find(|(axis, _)| *axis == direction);
        axis.map_or(&self.plan, |(_, plan)| plan)
    }

    /// Makes the route of a direction. `plan` is the plan of that direction.
    pub(crate) fn route(
        &self,
        device: &Device,
        plan: &Plan,
        direction: Direction,
        staged: bool,
    ) -> Result<Route> {
        let constants = match direction {
            Direction::Fill => self.constants(device)?,
            Direction::Axis(_) | Direction::Reduce(_) | Direction::Shared => None,
        };
        let (outgoing, incoming) = match direction.reduction() {
            None => (&plan.sends, &plan.receives),
            Some(_) => (&plan.receives, &plan.sends),
        };
        let messages = [peers(outgoing)?, peers(incoming)?];
        let launches = launches(
            device,
            &self.fields,
            plan,
            direction,
            &messages,
            staged,
            constants.is_some(),
        )?;
        let own_bytes = plan.own_bytes(&self.fields);
        Route::new(device, messages, direction, staged, own_bytes, constants, launches)
    }

    /// The values of missing corners, if the options set any.
    fn constants(&self, device: &Device) -> Result<Option<Memory<u8>>> {
        match self.options.missing_corners {
            MissingCorners::Fill(value) => {
                corner::constants(device, self.specs(), &self.plan.edges, value)
            }
            _ => Ok(None),
        }
    }
}

fn launches(
    device: &Device,
    fields: &Fields,
    plan: &Plan,
    direction: Direction,
    [sends, receives]: &[Vec<Peer>; 2],
    staged: bool,
    sets_constants: bool,
) -> Result<Launches> {
    let reduction = direction.reduction();
    if let Some(combine) = reduction {
        check_combine(fields.specs(), combine)?;
    }
    let (outgoing, incoming) = match reduction {
        None => (&plan.sends, &plan.receives),
        Some(_) => (&plan.receives, &plan.sends),
    };
    let departures = in_messages(fields, outgoing, sends, staged);
    let mut entries: Vec<RegionCopy> = departures
        .map(|(transfer, ends, place)| {
            let near = if reduction.is_some() { ends.target() } else { ends.source() };
            ends.copy(near, place, transfer.negate, Combine::Replace)
        })
        .collect();
    if reduction.is_none() {
        entries.extend(plan.local.iter().map(|transfer| Ends::new(fields, transfer).direct()));
    }
    if sets_constants {
        let messages = if staged { usize::from(!sends.is_empty()) } else { sends.len() };
        let specs = fields.specs();
        entries.extend(corner::fills(specs, &plan.edges, specs.len() + messages));
    }
    let pack = device.plan_regions(&entries)?;

    let arrivals = |staged| {
        in_messages(fields, incoming, receives, staged).map(|(transfer, ends, place)| {
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
            let ends = Ends::new(fields, transfer);
            (transfer, ends.copy(ends.target(), ends.source(), transfer.negate, combine))
        });
        let mut all: Vec<_> = arrivals(staged).chain(local).collect();
        // Several contributions meet in one element: they are combined in this order, whichever arrives first.
        all.sort_by_key(|(transfer, _)| (transfer.to, transfer.side.id(), transfer.field));
        for entries in layers(fields, all, combine) {
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
    Ok(Launches { pack, unpack, unpack_some })
}

/// The transfers in messages, each with the place of its elements in its message.
fn in_messages<'a>(
    fields: &'a Fields,
    messages: &'a [Message],
    peers: &'a [Peer],
    staged: bool,
) -> impl Iterator<Item = (&'a Transfer, Ends<'a>, RegionSide)> {
    placed(fields.specs().len(), messages, peers, staged).map(|at| {
        let ends = Ends::new(fields, at.block);
        let place = ends.in_message(at.slot, at.start);
        (at.block, ends, place)
    })
}

/// Splits copies into layers that run one after the other: one layer if the device orders copies into the same
/// elements, otherwise as many layers as needed so that no two copies of a layer write the same elements.
fn layers(
    fields: &Fields,
    copies: Vec<(&Transfer, RegionCopy)>,
    combine: Combine,
) -> Vec<Vec<RegionCopy>> {
    if combine != Combine::Replace {
        return vec![copies.into_iter().map(|(_, copy)| copy).collect()];
    }
    let mut layers: Vec<Vec<RegionCopy>> = Vec::new();
    let mut placed: Vec<([usize; 2], [Range<isize>; 3], usize)> = Vec::new();
    for (transfer, copy) in copies {
        let owned = Ends::new(fields, transfer).source_box();
        let meets = |other: &[Range<isize>; 3]| {
            owned.iter().zip(other).all(|(a, b)| a.start < b.end && b.start < a.end)
        };
        let source = [transfer.from, transfer.source];
        let below = placed.iter().filter(|(of, other, _)| *of == source && meets(other));
        let layer = below.map(|(_, _, layer)| layer + 1).max().unwrap_or(0);
        if layers.len() <= layer {
            layers.push(Vec::new());
        }
        layers[layer].push(copy);
        placed.push((source, owned, layer));
    }
    layers
}
