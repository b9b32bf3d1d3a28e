//! Free memory, and the load of the processor.

use std::sync::Mutex;

use backend_support::lock;
use runtime_core::contract::{DeviceLoad, Monitor};
use runtime_core::{Error, ErrorKind, Result};

use crate::machine;

/// Reads the operating system's statistics, which cover the whole machine.
#[derive(Debug)]
pub(crate) struct HostMonitor {
    last: Mutex<Sample>,
}

/// The processor's time at the last call, and the fraction computed then.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    busy: u64,
    total: u64,
    share: Option<f32>,
}

impl Sample {
    /// The sample after the given ticks. If the total did not advance, the sample is unchanged.
    #[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
    fn next(self, busy: u64, total: u64) -> Self {
        if total <= self.total {
            return self;
        }
        let share = busy.saturating_sub(self.busy) as f32 / (total - self.total) as f32;
        Self { busy, total, share: Some(share.min(1.0)) }
    }
}

impl HostMonitor {
    /// `None` if the operating system does not report memory.
    pub(crate) fn new() -> Option<Self> {
        machine::memory()?;
        let (busy, total) = machine::processor_ticks().unwrap_or_default();
        Some(Self { last: Mutex::new(Sample { busy, total, share: None }) })
    }
}

impl Monitor for HostMonitor {
    /// `processor_busy` covers the time since the last call, or since the device was opened.
    fn load(&self) -> Result<DeviceLoad> {
        let unreadable = || {
            Error::new(ErrorKind::Driver, "load", "the system's memory statistics cannot be read")
        };
        let (total, available) = machine::memory().ok_or_else(unreadable)?;
        let mut last = lock(&self.last);
        if let Some((busy, total)) = machine::processor_ticks() {
            *last = last.next(busy, total);
        }
        Ok(DeviceLoad::default()
            .with_memory(available, total.saturating_sub(available))
            .with_busy(last.share, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_time_between() {
        let first = Sample { busy: 100, total: 1000, share: None };
        assert_eq!(first.next(100, 1000).share, None);
        let second = first.next(150, 1200);
        assert_eq!(second.share, Some(0.25));
        assert_eq!(second.next(150, 1200).share, Some(0.25));
        assert_eq!(second.next(0, 1300).share, Some(0.0));
    }
}
