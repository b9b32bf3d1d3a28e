//! Counts of a device's operations.

use std::sync::{Arc, Mutex};

use backend_support::lock;
use runtime_core::contract::{CounterSet, Counters};
use runtime_core::{Error, ErrorKind, Result, Traffic};

/// Counts of a simulated device's operations since it was opened. Calls that failed at once are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimCounts {
    /// Allocations of device memory.
    pub allocations: u64,
    /// Allocations of pinned memory.
    pub pinned_allocations: u64,
    /// Registrations of host memory.
    pub registrations: u64,
    /// Copies from the host to the device.
    pub to_device: Traffic,
    /// Copies from the device to the host.
    pub from_device: Traffic,
    /// Copies, fills and region copies within the device.
    pub on_device: Traffic,
    /// Copies from other devices to this one.
    pub from_peers: Traffic,
    /// Kernel launches.
    pub launches: u64,
    /// Events created.
    pub events: u64,
    /// Events recorded.
    pub records: u64,
    /// Waits of streams for events.
    pub waits: u64,
    /// Calls that blocked the host until work was done: `synchronize` of streams and of the device, and waits of the
    /// host for events.
    pub synchronizations: u64,
}

/// Counts that threads add to.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<SimCounts>);

impl Tally {
    pub(crate) fn add(&self, add: impl FnOnce(&mut SimCounts)) {
        add(&mut lock(&self.0));
    }

    pub(crate) fn counts(&self) -> SimCounts {
        *lock(&self.0)
    }
}

/// Adds one copy of `bytes`.
pub(crate) fn add_traffic(traffic: &mut Traffic, bytes: usize) {
    traffic.count += 1;
    traffic.bytes += bytes as u64;
}

type Read = fn(&SimCounts) -> u64;

const COUNTERS: [(&str, Read); 16] = [
    ("allocations", |c| c.allocations),
    ("pinned_allocations", |c| c.pinned_allocations),
    ("registrations", |c| c.registrations),
    ("to_device_copies", |c| c.to_device.count),
    ("to_device_bytes", |c| c.to_device.bytes),
    ("from_device_copies", |c| c.from_device.count),
    ("from_device_bytes", |c| c.from_device.bytes),
    ("on_device_copies", |c| c.on_device.count),
    ("on_device_bytes", |c| c.on_device.bytes),
    ("from_peers_copies", |c| c.from_peers.count),
    ("from_peers_bytes", |c| c.from_peers.bytes),
    ("launches", |c| c.launches),
    ("events", |c| c.events),
    ("records", |c| c.records),
    ("waits", |c| c.waits),
    ("synchronizations", |c| c.synchronizations),
];

/// The counts as event counters.
#[derive(Clone, Debug)]
pub(crate) struct SimCounters(pub(crate) Arc<Tally>);

struct Open {
    tally: Arc<Tally>,
    begin: SimCounts,
    counters: Vec<Read>,
}

impl Counters for SimCounters {
    fn names(&self) -> Vec<String> {
        COUNTERS.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn open(&self, names: &[&str]) -> Result<Box<dyn CounterSet>> {
        let find = |name: &&str| {
            let known = COUNTERS.iter().find(|(known, _)| known == name);
            known.map(|(_, read)| *read).ok_or_else(|| {
                let known = COUNTERS.map(|(known, _)| known).join(", ");
                let message = format!("no counter {name:?}; there are {known}");
                Error::new(ErrorKind::InvalidArgument, "counters_open", message)
            })
        };
        let counters = names.iter().map(find).collect::<Result<_>>()?;
        Ok(Box::new(Open { tally: Arc::clone(&self.0), begin: self.0.counts(), counters }))
    }
}

impl CounterSet for Open {
    fn read(&mut self, values: &mut [u64]) -> Result<()> {
        if values.len() != self.counters.len() {
            let message = format!("{} values for {} counters", values.len(), self.counters.len());
            return Err(Error::new(ErrorKind::InvalidArgument, "counters_read", message));
        }
        let now = self.tally.counts();
        for (value, read) in values.iter_mut().zip(&self.counters) {
            *value = read(&now) - read(&self.begin);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_from_when_they_were_opened() {
        let tally = Arc::new(Tally::default());
        let count = || tally.add(|c| add_traffic(&mut c.to_device, 100));
        count();
        let counters = SimCounters(Arc::clone(&tally));
        let mut open = counters.open(&["to_device_bytes", "launches", "to_device_copies"]).unwrap();
        count();
        count();
        let mut values = [9; 3];
        open.read(&mut values).unwrap();
        assert_eq!(values, [200, 0, 2]);
        assert!(open.read(&mut [0; 2]).is_err());
    }

    #[test]
    fn every_name_opens_and_no_other() {
        let counters = SimCounters(Arc::default());
        let names = counters.names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(counters.open(&names).is_ok());
        let error = counters.open(&["cycles"]).err().unwrap();
        assert!(
            error.message().contains("cycles") && error.message().contains("launches"),
            "{error}"
        );
    }
}
