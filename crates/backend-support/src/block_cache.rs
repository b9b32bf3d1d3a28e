//! A cache of device memory, for drivers that wait for the whole device when they allocate or free.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::reaper::Mark;

/// The most bytes that a cache keeps for reuse.
const MAX_CACHED: usize = 1 << 30;

/// The part of a driver that makes plain allocations. Errors are the driver's codes.
pub trait Heap: fmt::Debug + Send + Sync {
    /// A place in one of the driver's streams.
    type Mark: Mark;

    /// Allocates memory of that many bytes and returns its address.
    ///
    /// # Errors
    ///
    /// The driver's code.
    fn allocate(&self, bytes: usize) -> Result<u64, u32>;

    /// Frees memory that is no longer used.
    ///
    /// # Errors
    ///
    /// The driver's code.
    fn free(&self, address: u64) -> Result<(), u32>;
}

/// Plain allocations, kept for reuse once the work that used them is finished: up to 1 GiB.
#[derive(Debug)]
pub struct BlockCache<H: Heap> {
    heap: Arc<H>,
    /// Number of bytes allocated from the driver.
    reserved: AtomicUsize,
    /// Oldest first.
    blocks: Mutex<Vec<Block<H::Mark>>>,
}

#[derive(Debug)]
struct Block<M> {
    address: u64,
    bytes: usize,
    after: Vec<M>,
}

impl<M: Mark> Block<M> {
    fn is_over(&self) -> bool {
        self.after.iter().all(Mark::is_over)
    }
}

/// The size allocated for a request. It is rounded so that requests of similar size can reuse the same blocks.
fn class(bytes: usize) -> usize {
    let step = (1 << bytes.max(1).ilog2()) / 8;
    bytes.checked_next_multiple_of(step.max(512)).unwrap_or(bytes)
}

impl<H: Heap> BlockCache<H> {
    /// An empty cache.
    pub fn new(heap: &Arc<H>) -> Self {
        let (reserved, blocks) = Default::default();
        Self { heap: Arc::clone(heap), reserved, blocks }
    }

    /// Returns memory that any stream can use at once.
    ///
    /// # Errors
    ///
    /// The driver's code, if no cached block fits and there is no more memory.
    pub fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        let bytes = class(bytes);
        let mut blocks = lock(&self.blocks);
        if let Some(at) = blocks.iter().position(|b| b.bytes == bytes && b.is_over()) {
            return Ok(blocks.remove(at).address);
        }
        drop(blocks);
        let address = self.heap.allocate(bytes)?;
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        Ok(address)
    }

    /// Takes back memory that [`allocate`](Self::allocate) returned for the same number of bytes. It is reused once the
    /// work before the marks is finished. Does not wait for that.
    ///
    /// # Errors
    ///
    /// The driver's code for freeing the oldest blocks to make room. The memory itself is taken back in any case.
    pub fn free(&self, address: u64, bytes: usize, after: Vec<H::Mark>) -> Result<(), u32> {
        lock(&self.blocks).push(Block { address, bytes: class(bytes), after });
        self.shrink(MAX_CACHED)
    }

    /// Frees the oldest unused blocks until the cache holds at most `keep` bytes.
    ///
    /// # Errors
    ///
    /// The first code of the driver. A block that the driver fails to free stays in the cache.
    pub fn shrink(&self, keep: usize) -> Result<(), u32> {
        let mut blocks = lock(&self.blocks);
        let mut kept = blocks.iter().map(|block| block.bytes).sum::<usize>();
        let gone: Vec<_> = blocks
            .extract_if(.., |block| {
                let goes = kept > keep && block.is_over();
                kept -= if goes { block.bytes } else { 0 };
                goes
            })
            .collect();
        drop(blocks);
        let mut first = Ok(());
        for block in gone {
            if let Err(code) = self.give_back(&block) {
                lock(&self.blocks).push(block);
                first = first.and(Err(code));
            }
        }
        first
    }

    fn give_back(&self, block: &Block<H::Mark>) -> Result<(), u32> {
        self.heap.free(block.address)?;
        self.reserved.fetch_sub(block.bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Number of bytes allocated from the driver.
    pub fn reserved_bytes(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Number of bytes allocated from the driver that cannot be reused now.
    pub fn used_bytes(&self) -> usize {
        let blocks = lock(&self.blocks);
        let free: usize = blocks.iter().filter(|b| b.is_over()).map(|block| block.bytes).sum();
        self.reserved_bytes().saturating_sub(free)
    }
}

impl<H: Heap> Drop for BlockCache<H> {
    fn drop(&mut self) {
        let blocks = mem::take(self.blocks.get_mut().unwrap_or_else(|e| e.into_inner()));
        for block in blocks {
            // Memory that work may still use is leaked. There is no caller to report a failure to. A driver that has
            // become unusable records that itself.
            if block.after.iter().all(Mark::wait) {
                let _ = self.give_back(&block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether work is finished, as far as it is known.
    struct Told(bool);

    impl Mark for Told {
        fn wait(&self) -> bool {
            self.0
        }

        fn is_over(&self) -> bool {
            self.0
        }
    }

    /// The addresses do not refer to memory. The first few frees fail.
    #[derive(Debug, Default)]
    struct Numbers {
        next: AtomicUsize,
        refusals: AtomicUsize,
        freed: Mutex<Vec<u64>>,
    }

    impl Heap for Numbers {
        type Mark = Told;

        fn allocate(&self, _bytes: usize) -> Result<u64, u32> {
            Ok(self.next.fetch_add(1, Ordering::Relaxed) as u64)
        }

        fn free(&self, address: u64) -> Result<(), u32> {
            let refuses = |left: usize| left.checked_sub(1);
            if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refuses).is_ok() {
                return Err(999);
            }
            lock(&self.freed).push(address);
            Ok(())
        }
    }

    #[test]
    fn blocks_that_the_driver_does_not_take_stay() {
        let heap = Arc::new(Numbers::default());
        let cache = BlockCache::new(&heap);
        let addresses = [0; 3].map(|_| cache.allocate(1000).unwrap());
        for address in addresses {
            cache.free(address, 1000, vec![]).unwrap();
        }
        heap.refusals.store(1, Ordering::Relaxed);
        assert_eq!(cache.shrink(0), Err(999));
        assert_eq!(*lock(&heap.freed), addresses[1..]);
        assert_eq!((cache.reserved_bytes(), cache.used_bytes()), (1024, 0));
        assert_eq!(cache.allocate(1000), Ok(addresses[0]));
    }

    #[test]
    fn blocks_in_flight_are_neither_reused_nor_freed() {
        let heap = Arc::new(Numbers::default());
        let cache = BlockCache::new(&heap);
        let used = cache.allocate(1000).unwrap();
        cache.free(used, 1000, vec![Told(true), Told(false)]).unwrap();
        let other = cache.allocate(1000).unwrap();
        assert_ne!(other, used);
        cache.free(other, 1000, vec![Told(true)]).unwrap();
        drop(cache);
        assert_eq!(*lock(&heap.freed), [other]);
    }

    #[test]
    fn sizes_are_rounded_by_an_eighth_at_most() {
        assert_eq!(class(1), 512);
        assert_eq!(class(512), 512);
        for bytes in [5_000, 1 << 20, (1 << 20) + 1, 123_456_789] {
            let class_of = class(bytes);
            assert!(
                class_of >= bytes && class_of - bytes <= bytes / 8 + 512,
                "{bytes}: {class_of}"
            );
            assert_eq!(class(class_of), class_of);
        }
        assert_eq!(class(usize::MAX), usize::MAX);
    }
}
