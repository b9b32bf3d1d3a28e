//! The memory of a device, and pools of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::code::{Code, Result};

/// The granularity in which a pool takes memory from the device.
const PIECE: usize = 2 << 20;

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) total: usize,
    taken: Mutex<usize>,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Self {
        Self { total, taken: Mutex::new(0) }
    }

    pub(crate) fn free(&self) -> usize {
        self.total - *self.taken.lock()
    }

    pub(crate) fn take(&self, bytes: usize) -> Result<()> {
        let mut taken = self.taken.lock();
        if bytes > self.total - *taken {
            return Err(Code::OUT_OF_MEMORY);
        }
        *taken += bytes;
        Ok(())
    }

    pub(crate) fn give(&self, bytes: usize) {
        *self.taken.lock() -= bytes;
    }
}

/// A pool of memory that is allocated and freed in the order of streams.
#[derive(Debug)]
pub struct Pool {
    pub(crate) device: usize,
    pub(crate) handle: u64,
    /// Whether it is the default pool of its device.
    pub(crate) is_default: bool,
    budget: Arc<Budget>,
    state: Mutex<PoolState>,
    /// Whether it returns all memory that is freed.
    destroyed: AtomicBool,
    /// The other devices whose kernels may access its memory.
    pub(crate) open_to: Mutex<BTreeSet<usize>>,
}

/// The state of a pool, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolState {
    /// The size of all allocations.
    pub used: usize,
    /// The memory that the pool has taken from the device.
    pub reserved: usize,
    /// The memory that the pool keeps when the host has waited for a stream or event.
    pub threshold: usize,
}

impl Pool {
    pub(crate) fn new(device: usize, handle: u64, budget: &Arc<Budget>, is_default: bool) -> Self {
        let (state, destroyed, open_to) = Default::default();
        Self { device, handle, is_default, budget: Arc::clone(budget), state, destroyed, open_to }
    }

    pub(crate) fn take(&self, bytes: usize) -> Result<()> {
        let state = &mut *self.state.lock();
        let needed = state.used.checked_add(bytes).ok_or(Code::OUT_OF_MEMORY)?;
        if let Some(missing) = needed.checked_sub(state.reserved).filter(|missing| *missing > 0) {
            let pieces = missing.div_ceil(PIECE).saturating_mul(PIECE);
            let take = |bytes| self.budget.take(bytes).map(|()| bytes);
            state.reserved += take(pieces).or_else(|_| take(missing))?;
        }
        state.used = needed;
        Ok(())
    }

    pub(crate) fn give(&self, bytes: usize) {
        self.state.lock().used -= bytes;
        if self.destroyed.load(Ordering::Acquire) {
            self.trim(0);
        }
    }

    /// Returns unused memory to the device, and the other memory as soon as it is freed.
    pub(crate) fn destroy(&self) {
        self.destroyed.store(true, Ordering::Release);
        self.trim(0);
    }

    /// Returns unused memory until `keep` bytes are reserved. CUDA counts in this way.
    pub fn trim(&self, keep: usize) {
        self.trim_to(|_| keep);
    }

    /// Returns unused memory except for `keep` bytes. HIP counts in this way.
    pub fn trim_unused(&self, keep: usize) {
        self.trim_to(|used| used.saturating_add(keep));
    }

    fn trim_to(&self, least: impl FnOnce(usize) -> usize) {
        let state = &mut *self.state.lock();
        let kept = state.used.max(state.reserved.min(least(state.used)));
        self.budget.give(state.reserved - kept);
        state.reserved = kept;
    }

    /// Returns unused memory above the threshold to the device.
    pub(crate) fn trim_to_threshold(&self) {
        let threshold = self.state.lock().threshold;
        self.trim(threshold);
    }

    /// Its state.
    pub fn state(&self) -> PoolState {
        *self.state.lock()
    }

    /// Sets the threshold.
    pub fn set_threshold(&self, bytes: usize) {
        self.state.lock().threshold = bytes;
    }

    /// Sets whether kernels of another device may access its memory.
    pub fn open_to(&self, device: usize, open: bool) {
        let devices = &mut *self.open_to.lock();
        if open {
            devices.insert(device);
        } else {
            devices.remove(&device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_memory_until_it_is_trimmed() {
        let budget = Arc::new(Budget::new(8 << 20));
        let pool = Pool::new(0, 0, &budget, false);
        pool.take(100).unwrap();
        assert_eq!((pool.state().reserved, budget.free()), (2 << 20, 6 << 20));
        pool.take((8 << 20) - 100).unwrap();
        assert_eq!(pool.take(1), Err(Code::OUT_OF_MEMORY));
        pool.give(8 << 20);
        assert_eq!(budget.take(1), Err(Code::OUT_OF_MEMORY));
        pool.set_threshold(1 << 20);
        pool.trim_to_threshold();
        assert_eq!((pool.state().reserved, budget.free()), (1 << 20, 7 << 20));
        pool.trim(0);
        assert_eq!(budget.free(), 8 << 20);
    }

    #[test]
    fn a_trim_counts_all_memory_or_only_unused_memory() {
        let budget = Arc::new(Budget::new(16 << 20));
        let pool = Pool::new(0, 0, &budget, false);
        pool.take(8 << 20).unwrap();
        pool.take(6 << 20).unwrap();
        pool.give(6 << 20);
        pool.trim(12 << 20);
        assert_eq!(pool.state().reserved, 12 << 20);
        pool.trim_unused(2 << 20);
        assert_eq!(pool.state().reserved, 10 << 20);
        pool.trim_unused(usize::MAX);
        assert_eq!(pool.state().reserved, 10 << 20);
        pool.trim(0);
        assert_eq!(pool.state().reserved, 8 << 20);
    }

    #[test]
    fn a_destroyed_pool_returns_memory_when_it_is_freed() {
        let budget = Arc::new(Budget::new(8 << 20));
        let pool = Pool::new(0, 0, &budget, false);
        pool.set_threshold(usize::MAX);
        pool.take(4 << 20).unwrap();
        pool.take(2 << 20).unwrap();
        pool.give(2 << 20);
        pool.destroy();
        assert_eq!(budget.free(), 4 << 20);
        pool.give(4 << 20);
        assert_eq!(budget.free(), 8 << 20);
    }
}
