//! What a halo exchange exchanges, and the launches for it.

use runtime_core::{Device, DeviceKind, Memory, Result, Stream};

use super::corner::{self, Corners};
use super::devices::Devices;
use super::direct::{DirectRoute, neighbours, share_lines};
use super::launches::Job;
use super::route::{Direction, Route, peers};
use crate::field::{Dim, FieldSpec, Quantity};
use crate::options::{HaloOptions, MissingCorners, Reach};
use crate::plan::Plan;
use crate::plan::attributes::{Attributes, check_blocks};
use crate::plan::fingerprint::PlanFingerprint;
use crate::plan::transfer::{Fields, Pattern, refuse};
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
    pub(crate) devices: Devices,
}

impl HaloSource {
    /// Makes the plan of a rank.
    pub(crate) fn new(
        topology: &Topology,
        rank: usize,
        quantities: &[Quantity],
        devices: Devices,
        options: &HaloOptions,
    ) -> Result<Self> {
        let fields = Fields::new(quantities, topology, rank)?;
        check_blocks(&fields, rank)?;
        if devices.others() > 0 && options.missing_corners != MissingCorners::Untouched {
            let message = format!(
                "rank {rank}: blocks on several devices, and {:?}",
                options.missing_corners
            );
            return Err(refuse(message));
        }
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
        Ok(Self { topology, rank, fields, plan, axes, options, devices })
    }

    /// The plans that fill the halos by messages, one after the other.
    pub(crate) fn filling(&self) -> impl Iterator<Item = (Direction, &Plan)> {
        let whole = self.axes.is_empty().then_some((Direction::Fill, &self.plan));
        whole.into_iter().chain(self.axes.iter().map(|(direction, plan)| (*direction, plan)))
    }

    /// The stream of the device of a field, if it is not the first device.
    pub(crate) fn stream_of(&self, field: usize) -> Option<&Stream> {
        let of_block = self.specs().len() / self.fields.blocks().len();
        self.devices.stream(self.devices.of(field / of_block))
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
        let job = Job {
            device,
            devices: &self.devices,
            fields: &self.fields,
            plan,
            direction,
            messages: &messages,
            staged,
            sets_constants: constants.is_some(),
        };
        let (launches, relays) = job.launches()?;
        let own_bytes = plan.own_bytes(&self.fields);
        let route =
            Route::new(device, messages, direction, staged, own_bytes, constants, launches)?;
        Ok(route.with_relays(relays))
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
