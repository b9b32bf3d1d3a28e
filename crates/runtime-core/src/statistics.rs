//! Counts of the work that one device did.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::lock;
/// A number of copies and the bytes they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of copies.
    pub count: u64,
    /// Total bytes of these copies.
    pub bytes: u64,
}

/// The data moved and the kernels launched through one opened device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Host to device.
    pub to_device: Traffic,
    /// Device to host.
    pub from_device: Traffic,
    /// Within the device: copies, fills and region copies.
    pub on_device: Traffic,
    /// From other devices without the host.
    pub from_peers: Traffic,
    /// Memory that was copied for a launch, and back if the kernel may write it, because a view began at an address
    /// that a kernel's pointer cannot have: see [`Limits::argument_alignment`](crate::Limits::argument_alignment).
    /// These copies are not counted elsewhere.
    pub realigned: Traffic,
    /// Kernel launches.
    pub launches: u64,
    /// Allocations of device memory; pinned memory is not counted.
    pub allocations: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    to_device: TrafficCount,
    from_device: TrafficCount,
    on_device: TrafficCount,
    from_peers: TrafficCount,
    realigned: TrafficCount,
    launches: AtomicU64,
    allocations: AtomicU64,
}

/// Count and bytes in one word, so that counting a copy takes one atomic addition. A half-full word is emptied into
/// wider counts.
#[derive(Default)]
struct TrafficCount {
    packed: AtomicU64,
    emptied: Mutex<Traffic>,
}

/// Bits of the packed word that hold bytes; the others hold the count.
const BYTE_BITS: u32 = 44;
const BYTE_MASK: u64 = (1 << BYTE_BITS) - 1;
const COUNT_MASK: u64 = u64::MAX >> BYTE_BITS;

impl TrafficCount {
    #[inline(always)]
    fn add(&self, bytes: usize) {
        self.add_traffic(Traffic { count: 1, bytes: bytes as u64 });
    }

    #[inline]
    fn add_traffic(&self, Traffic { count, bytes }: Traffic) {
        if count > COUNT_MASK / 256 || bytes > BYTE_MASK / 4 {
            return self.add_emptied(count, bytes);
        }
        let before = self.packed.fetch_add((count << BYTE_BITS) + bytes, Ordering::Relaxed);
        // At half of either field, so that the additions of many threads still fit before one of them empties the word.
        if before & (1 << 63 | 1 << (BYTE_BITS - 1)) != 0 {
            self.empty();
        }
    }

    /// Adds what would fill much of the packed word.
    #[cold]
    fn add_emptied(&self, count: u64, bytes: u64) {
        let mut emptied = lock(&self.emptied);
        (emptied.count, emptied.bytes) = (emptied.count + count, emptied.bytes + bytes);
    }

    /// Runs under the lock that [`snapshot`](Self::snapshot) takes, so that no observed count shrinks.
    #[cold]
    fn empty(&self) {
        let mut emptied = lock(&self.emptied);
        let full = self.packed.swap(0, Ordering::Relaxed);
        emptied.count += full >> BYTE_BITS;
        emptied.bytes += full & BYTE_MASK;
    }

    fn snapshot(&self) -> Traffic {
        // Held while the packed word is read. Otherwise counts emptied between the two reads would be counted twice or
        // not at all.
        let emptied = lock(&self.emptied);
        let packed = self.packed.load(Ordering::Relaxed);
        Traffic {
            count: emptied.count + (packed >> BYTE_BITS),
            bytes: emptied.bytes + (packed & BYTE_MASK),
        }
    }
}

impl Counts {
    pub(crate) fn copied_to_device(&self, bytes: usize) {
        self.to_device.add(bytes);
    }

    pub(crate) fn copied_from_device(&self, bytes: usize) {
        self.from_device.add(bytes);
    }

    pub(crate) fn copied_on_device(&self, bytes: usize) {
        self.on_device.add(bytes);
    }

    pub(crate) fn copied_from_peer(&self, bytes: usize) {
        self.from_peers.add(bytes);
    }

    pub(crate) fn realigned(&self, bytes: usize) {
        self.realigned.add(bytes);
    }

    pub(crate) fn launched(&self) {
        self.launches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn allocated(&self) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the counts of one launch of a graph.
    pub(crate) fn add(&self, once: &Statistics) {
        for (count, traffic) in [
            (&self.to_device, once.to_device),
            (&self.from_device, once.from_device),
            (&self.on_device, once.on_device),
            (&self.realigned, once.realigned),
        ] {
            if traffic.count > 0 {
                count.add_traffic(traffic);
            }
        }
        if once.launches > 0 {
            self.launches.fetch_add(once.launches, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> Statistics {
        Statistics {
            to_device: self.to_device.snapshot(),
            from_device: self.from_device.snapshot(),
            on_device: self.on_device.snapshot(),
            from_peers: self.from_peers.snapshot(),
            realigned: self.realigned.snapshot(),
            launches: self.launches.load(Ordering::Relaxed),
            allocations: self.allocations.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushing_the_packed_counter_loses_nothing() {
        let traffic = TrafficCount::default();
        let large = usize::try_from(BYTE_MASK / 4).unwrap();
        let sizes = (0..2_000_000)
            .map(|n: usize| if n.is_multiple_of(1000) { large + n % 3 } else { n % 7 });
        let mut expected = Traffic::default();
        for bytes in sizes {
            traffic.add(bytes);
            expected.count += 1;
            expected.bytes += bytes as u64;
        }
        assert_eq!(traffic.snapshot(), expected);
    }

    #[test]
    fn threads_lose_nothing() {
        let traffic = TrafficCount::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..600_000).for_each(|_| traffic.add(1 << 22)));
            }
        });
        let expected = Traffic { count: 2_400_000, bytes: 2_400_000 << 22 };
        assert_eq!(traffic.snapshot(), expected);
    }
}
