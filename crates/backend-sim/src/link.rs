//! The link between the host and a device.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use backend_support::lock;

/// A direction of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToDevice,
    FromDevice,
}

/// The two directions of a link. If its rate is modelled, each direction carries one copy at a time.
#[derive(Debug, Default)]
pub(crate) struct Link {
    bytes_per_second: Option<u64>,
    to_device: Mutex<()>,
    from_device: Mutex<()>,
}

impl Link {
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, ..Self::default() }
    }

    /// Copies bytes over the link, or within the device, which takes no modelled time.
    pub(crate) fn carry<R>(&self, way: Option<Way>, bytes: usize, copy: impl FnOnce() -> R) -> R {
        let (Some(way), Some(rate)) = (way, self.bytes_per_second) else { return copy() };
        let _busy = lock(match way {
            Way::ToDevice => &self.to_device,
            Way::FromDevice => &self.from_device,
        });
        let began = Instant::now();
        let done = copy();
        let time = Duration::from_secs_f64(bytes as f64 / rate as f64);
        thread::sleep(time.saturating_sub(began.elapsed()));
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_independent_and_each_carries_one_copy_at_a_time() {
        let link = Link::new(Some(1_000_000));
        let began = Instant::now();
        thread::scope(|scope| {
            for way in [Way::ToDevice, Way::FromDevice, Way::ToDevice] {
                let link = &link;
                scope.spawn(move || link.carry(Some(way), 20_000, || ()));
            }
        });
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(40), "{took:?}");
        let began = Instant::now();
        link.carry(None, usize::MAX, || ());
        Link::default().carry(Some(Way::ToDevice), usize::MAX, || ());
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
