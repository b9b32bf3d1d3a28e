//! The data moved and sent, and the check that it was the necessary minimum.

use runtime::{DeviceKind, Statistics, Support, Traffic};

use crate::diffusion::{Field, Schedule};
use crate::error::DemoError;
use crate::ranks::Rank;

/// Totals of all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) launches: u64,
    /// Between host and devices, by arrays: the necessary minimum.
    pub(crate) moved: Traffic,
    /// Between ranks, for ghost cells.
    pub(crate) messages: Traffic,
}

impl Totals {
    /// Checks that only the necessary data was moved. If the device works in the host's memory, that is none. Otherwise
    /// it is each rank's cells, once to the device, and once back for each picture and for the result. The devices' own
    /// counters must agree.
    ///
    /// All ranks call it together when they are done.
    pub(crate) fn check(
        rank: &Rank,
        field: &Field,
        cells: usize,
        schedule: Schedule,
    ) -> Result<Self, DemoError> {
        let (device, transfers) = (&rank.device, field.transfers());
        let id = device.id().to_string();
        let is_shared = device.info().kind == DeviceKind::Host;
        let least = |count: u64| match is_shared {
            true => Traffic::default(),
            false => Traffic { count, bytes: count * (cells * size_of::<f64>()) as u64 },
        };
        let (up, down) = (transfers.between("host", &id), transfers.between(&id, "host"));
        let results = schedule.pictures() + 1;
        for (direction, found, least) in
            [("to the device", up, least(1)), ("from the device", down, least(results))]
        {
            if found != least {
                return Err(DemoError::Moved { direction, found, least });
            }
        }

        let step = field.messages();
        let (sent, bytes) = (step.count * schedule.steps, step.bytes * schedule.steps);
        let measured = field.measured()?;
        let sums = rank.sum([up.count, up.bytes, down.count, down.bytes, sent, bytes, measured])?;
        let [ups, up, downs, down, count, bytes, measured] = sums;

        // After the first sum, when all ranks are done with devices that they share.
        let own = if rank.reports_device { device.statistics() } else { Statistics::default() };
        let (to, from) = (own.to_device, own.from_device);
        let sums = rank.sum([own.launches, to.count, to.bytes, from.count, from.bytes])?;
        let [launches, tos, to, froms, from] = sums;
        // For a device that cannot copy regions, the host's copies are counted too.
        let is_emulated = device.capabilities().region_copy == Support::Emulated;
        for (direction, found, least) in [
            ("to devices", Traffic { count: tos, bytes: to }, Traffic { count: ups, bytes: up }),
            (
                "from devices",
                Traffic { count: froms, bytes: from },
                Traffic { count: downs, bytes: down },
            ),
        ] {
            // Messages pass through the host if the transport cannot transfer them from device to device.
            let may_be = least.bytes..=least.bytes + bytes + measured;
            if !is_emulated && !may_be.contains(&found.bytes) {
                return Err(DemoError::Moved { direction, found, least });
            }
        }
        let moved = Traffic { count: ups + downs, bytes: up + down };
        Ok(Self { launches, moved, messages: Traffic { count, bytes } })
    }
}
