//! Device memory, and the pool it comes from.
#![expect(
    unsafe_code,
    reason = "implements the contract's unsafe memory traits and adopts foreign memory"
)]

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{ThreadId, current};

use backend_support::{Block, Span, lock};
use runtime_core::contract::{DeviceMemory, DevicePinned, MemoryAt, PinnedAt, own};
use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, Result};

use crate::alive::Alive;
use crate::codes;

/// The byte that fills fresh memory.
const POISON: u8 = 0xAB;
/// The byte that overwrites freed memory.
const SCRUB: u8 = 0xDD;

/// Device memory. The host can address it if it is unified.
#[derive(Debug)]
pub(crate) struct SimMemory {
    block: Arc<Block>,
    unified: bool,
}

// SAFETY: a block has its length and stays in place until it is no longer used.
unsafe impl DeviceMemory for SimMemory {
    fn len(&self) -> usize {
        self.block.len()
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        self.unified.then(|| self.block.pointer().as_ptr())
    }

    fn native(&self) -> NativeHandle {
        let raw = self.block.pointer().as_ptr().expose_provenance();
        NativeHandle { api: "sim", kind: NativeKind::Pointer, raw }
    }
}

/// Pinned host memory.
#[derive(Debug)]
pub(crate) struct SimPinned(Arc<Block>);

// SAFETY: as above; blocks that are allocated are at least 64 bytes aligned.
unsafe impl DevicePinned for SimPinned {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn ptr(&self) -> *mut u8 {
        self.0.pointer().as_ptr()
    }
}

impl SimPinned {
    /// Registers its handle.
    pub(crate) fn note_in(&self, alive: &Alive<Block>) {
        alive.note(self.0.pointer().as_ptr().addr(), &self.0);
    }

    /// The host memory of `bytes` bytes at `first`.
    ///
    /// # Safety
    ///
    /// As [`HostRegistration::register`](runtime_core::contract::HostRegistration::register).
    pub(crate) unsafe fn registered(first: NonNull<u8>, bytes: usize) -> Self {
        // SAFETY: the caller guarantees the bytes, which stay until the registration ends.
        Self(unsafe { Block::adopt(first, bytes, Box::new(())) })
    }

    pub(crate) fn allocate(bytes: usize) -> Result<Self> {
        let refused =
            || codes::out_of_memory("pinned_allocate", format!("{bytes} bytes of host memory"));
        Block::zeroed(bytes, None).map(Self).ok_or_else(refused)
    }
}

impl SimMemory {
    fn hidden(block: Arc<Block>) -> Self {
        Self { block, unified: false }
    }

    /// Lets the host address the memory.
    pub(crate) fn unify(self) -> Self {
        Self { unified: true, ..self }
    }

    /// Registers its handle.
    pub(crate) fn note_in(&self, alive: &Alive<Block>) {
        alive.note(self.block.pointer().as_ptr().addr(), &self.block);
    }

    /// Memory of `bytes` bytes at an address that another simulated device, or the host, owns.
    ///
    /// # Safety
    ///
    /// As [`MemoryAdoption::adopt`](runtime_core::contract::MemoryAdoption::adopt).
    pub(crate) unsafe fn adopt(
        handle: NativeHandle,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let pointer = std::ptr::with_exposed_provenance_mut(handle.raw);
        let pointer = match NonNull::new(pointer) {
            Some(pointer) if handle.api == "sim" && handle.kind == NativeKind::Pointer => pointer,
            _ => {
                let message = format!("{handle:?} is no address of simulated memory");
                return Err(Error::new(ErrorKind::InvalidArgument, "memory_adopt", message));
            }
        };
        // SAFETY: the caller guarantees the bytes and the owner.
        Ok(Self::hidden(unsafe { Block::adopt(pointer, bytes, owner) }))
    }
}

/// The block behind memory of a simulated device.
pub(crate) fn block(memory: &dyn DeviceMemory) -> Result<&Arc<Block>> {
    Ok(&own::<SimMemory>(memory, "memory")?.block)
}

/// A part of memory of a simulated device.
pub(crate) fn span(at: MemoryAt<'_>, bytes: usize) -> Result<Span> {
    Span::new(block(at.object)?, at.offset, bytes)
}

/// A part of pinned memory of a simulated device.
pub(crate) fn pinned_span(at: PinnedAt<'_>, bytes: usize) -> Result<Span> {
    Span::new(&own::<SimPinned>(at.object, "memory")?.0, at.offset, bytes)
}

/// A caching pool with a fixed capacity. Freed memory stays reserved for allocations of the same size until the pool is
/// trimmed. It is intended that this makes allocations of other sizes fail.
#[derive(Debug)]
pub(crate) struct Pool {
    capacity: usize,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    used: usize,
    cached: usize,
    // The number of freed pieces of each size.
    pieces: BTreeMap<usize, usize>,
    // The last allocation of each thread, if it failed as planned.
    refused: HashMap<ThreadId, PlannedFailure>,
}

/// An allocation that failed as planned. It must fail again when its thread retries it after a trim.
#[derive(Debug, PartialEq)]
enum PlannedFailure {
    Once(usize),
    Trimmed(usize),
}

/// A number of bytes that is in use while this lives, and cached afterwards if they were ever there.
struct Charge {
    pool: Arc<Pool>,
    bytes: usize,
    exist: AtomicBool,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.used -= self.bytes;
        if *self.exist.get_mut() {
            state.cached += self.bytes;
            *state.pieces.entry(self.bytes).or_default() += 1;
        }
    }
}

impl Pool {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { capacity, state: Mutex::default() })
    }

    /// Records that an allocation of this thread fails as planned.
    pub(crate) fn refuse(&self, bytes: usize) {
        self.lock().refused.insert(current().id(), PlannedFailure::Once(bytes));
    }

    /// Whether this thread retries, after a trim, the allocation that failed as planned.
    pub(crate) fn is_refused_again(&self, bytes: usize) -> bool {
        let refused = self.lock().refused.remove(&current().id());
        refused == Some(PlannedFailure::Trimmed(bytes))
    }

    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<SimMemory> {
        let refused = |what: String| codes::out_of_memory("memory_allocate", what);
        {
            let mut state = self.lock();
            if let Some(pieces) = state.pieces.get_mut(&bytes).filter(|pieces| **pieces > 0) {
                *pieces -= 1;
                state.cached -= bytes;
            } else {
                let free = self.capacity.saturating_sub(state.used + state.cached);
                if bytes > free {
                    return Err(refused(format!(
                        "{bytes} bytes, {free} of {} free",
                        self.capacity
                    )));
                }
            }
            state.used += bytes;
        }
        let exist = AtomicBool::new(false);
        let charge = Arc::new(Charge { pool: Arc::clone(self), bytes, exist });
        let block = Block::poisoned(bytes, POISON, SCRUB, Some(Box::new(Arc::clone(&charge))));
        charge.exist.store(block.is_some(), Ordering::Relaxed);
        block
            .map(SimMemory::hidden)
            .ok_or_else(|| refused(format!("{bytes} bytes of host memory to simulate it with")))
    }

    pub(crate) fn reserved(&self) -> usize {
        let state = self.lock();
        state.used + state.cached
    }

    pub(crate) fn used(&self) -> usize {
        self.lock().used
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Releases freed pieces, the largest first, until at most `keep` bytes of them are left.
    pub(crate) fn trim(&self, keep: usize) {
        let mut state = self.lock();
        while state.cached > keep {
            let Some((bytes, pieces)) = state.pieces.pop_last() else { break };
            let give = pieces.min((state.cached - keep).div_ceil(bytes));
            state.cached -= give * bytes;
            if pieces > give {
                state.pieces.insert(bytes, pieces - give);
            }
        }
        if let Some(refused) = state.refused.get_mut(&current().id())
            && let PlannedFailure::Once(bytes) = *refused
        {
            *refused = PlannedFailure::Trimmed(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use backend_support::Cores;

    use super::*;

    #[test]
    fn fresh_memory_is_poisoned() {
        let memory = Pool::new(1 << 20).allocate(100).unwrap();
        let mut bytes = [0; 100];
        span(MemoryAt::new(&memory, 0), 100).unwrap().copy_out(&mut bytes, Cores::SERIAL).unwrap();
        assert_eq!(bytes, [POISON; 100]);
        assert!(memory.host_ptr().is_none());
    }

    #[test]
    fn memory_that_the_host_does_not_have_is_not_reserved() {
        let pool = Pool::new(usize::MAX);
        assert!(pool.allocate(isize::MAX.unsigned_abs()).is_err());
        assert_eq!((pool.used(), pool.reserved()), (0, 0));
    }

    #[test]
    fn freed_memory_stays_reserved_until_it_is_trimmed() {
        let pool = Pool::new(1000);
        let (a, b) = (pool.allocate(300).unwrap(), pool.allocate(300).unwrap());
        drop((a, b));
        assert_eq!((pool.used(), pool.reserved()), (0, 600));
        let a = pool.allocate(300).unwrap();
        assert_eq!((pool.used(), pool.reserved()), (300, 600));
        let error = pool.allocate(500).unwrap_err();
        assert_eq!(error.driver().unwrap().to_string(), "SIM_OUT_OF_MEMORY (2)");
        pool.trim(0);
        assert_eq!((pool.used(), pool.reserved()), (300, 300));
        let b = pool.allocate(500).unwrap();
        assert!(pool.allocate(usize::MAX).is_err());
        drop((a, b));
        pool.trim(300);
        assert_eq!(pool.reserved(), 300);
        pool.trim(299);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn a_planned_failure_is_that_of_the_thread_it_befell() {
        let pool = Pool::new(1000);
        pool.refuse(300);
        let others = || {
            pool.trim(0);
            assert!(!pool.is_refused_again(300));
        };
        std::thread::scope(|scope| scope.spawn(others).join()).unwrap();
        pool.trim(0);
        assert!(pool.is_refused_again(300));
        assert!(!pool.is_refused_again(300));
    }

    #[test]
    fn memory_counts_as_used_while_work_holds_it() {
        let pool = Pool::new(1000);
        let memory = pool.allocate(300).unwrap();
        let held = span(MemoryAt::new(&memory, 0), 1).unwrap();
        drop(memory);
        assert_eq!(pool.used(), 300);
        drop(held);
        assert_eq!(pool.used(), 0);
    }
}
