//! Allocations with a lock, and parts of them.
#![expect(
    unsafe_code,
    reason = "owns raw storage and moves bytes between blocks under their locks"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use runtime_core::contract::prefer_huge_pages;
use runtime_core::{Error, ErrorKind, Result};

use crate::Cores;
use crate::access::{Access, AccessLock, Guard};

/// Alignment of blocks: a pair of cache lines, which are also prefetched together.
const ALIGN: usize = 128;
/// Blocks of at least this many bytes start at different offsets in a page.
const LARGE: usize = 64 << 10;
/// The number of offsets. They are [`ALIGN`] apart and are used in an order that keeps neighbours apart.
const PLACES: usize = 32;
const NEXT_PLACE: usize = 5;

/// Copies of at least this many bytes are spread over several cores.
const PARALLEL_BYTES: usize = 4 << 20;
/// Number of bytes that one core then copies at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// An allocation in host memory, initialised, with a lock that operations hold while they touch its bytes.
///
/// Dropping a block frees the storage and then drops its `owner`.
pub struct Block {
    pointer: NonNull<u8>,
    len: usize,
    lock: AccessLock,
    storage: Option<Storage>,
    _owner: Option<Box<dyn Any + Send + Sync>>,
}

/// Storage that the block allocated itself.
struct Storage {
    base: NonNull<u8>,
    layout: Layout,
    scrub: Option<u8>,
}

// SAFETY: a block owns its bytes or has exclusive rights to them, and gives access only under its lock.
unsafe impl Send for Block {}
// SAFETY: as above; shared access takes the lock.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates `len` zeroed bytes at a multiple of [`ALIGN`](Self::ALIGN). Large blocks use no physical memory before
    /// they are touched. `None` if the allocator has no room.
    pub fn zeroed(len: usize, owner: Option<Box<dyn Any + Send + Sync>>) -> Option<Arc<Self>> {
        Self::allocate(len, None, owner)
    }

    /// Allocates `len` bytes with the value `poison` at a multiple of [`ALIGN`](Self::ALIGN). They are overwritten with
    /// `scrub` when they are freed. `None` if the allocator has no room.
    pub fn poisoned(
        len: usize,
        poison: u8,
        scrub: u8,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Option<Arc<Self>> {
        let block = Self::allocate(len, Some(scrub), owner)?;
        // SAFETY: the storage has `len` bytes, and no other code has access to it.
        unsafe { block.pointer.write_bytes(poison, len) };
        Some(block)
    }

    /// Every block's address is a multiple of this, except for adopted blocks.
    pub const ALIGN: usize = ALIGN;

    // Allocates more than needed and aligns by hand, for two reasons. An aligned zeroed allocation would be zeroed by
    // writing, which uses physical memory at once and places all of it near the core that allocates. And the system
    // returns large blocks at multiples of a page: loops over several arrays would then use the same cache sets in all
    // arrays, and loads would wait for stores to similar addresses.
    fn allocate(
        len: usize,
        scrub: Option<u8>,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Option<Arc<Self>> {
        static PLACE: AtomicUsize = AtomicUsize::new(0);
        let place = match len {
            ..LARGE => 0,
            _ => PLACE.fetch_add(NEXT_PLACE, Ordering::Relaxed) % PLACES,
        };
        let layout = Layout::from_size_align(len.checked_add(ALIGN * (place + 1))?, 16).ok()?;
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skip = base.addr().get().next_multiple_of(ALIGN) - base.addr().get() + ALIGN * place;
        // SAFETY: at most `ALIGN * (place + 1)` bytes are skipped, and the allocation is that much larger than `len`.
        let pointer = unsafe { base.add(skip) };
        prefer_huge_pages(pointer, len);
        let storage = Some(Storage { base, layout, scrub });
        Some(Arc::new(Self { pointer, len, lock: AccessLock::default(), storage, _owner: owner }))
    }

    /// A block over `len` bytes that another owner allocated. Dropping the block drops `owner` and does nothing else.
    ///
    /// # Safety
    ///
    /// The bytes are initialised, and can be read and written until `owner` is dropped. All other accesses to them are
    /// ordered with the operations on this block.
    pub unsafe fn adopt(
        pointer: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            pointer,
            len,
            lock: AccessLock::default(),
            storage: None,
            _owner: Some(owner),
        })
    }

    /// The address of the first byte.
    pub fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether another owner owns the bytes, so that dropping the block runs that owner's code.
    pub fn is_adopted(&self) -> bool {
        self.storage.is_none()
    }

    pub(crate) fn hold(&self, access: Access) -> Guard<'_> {
        self.lock.hold(access)
    }

    pub(crate) fn try_hold(&self, access: Access) -> Option<Guard<'_>> {
        self.lock.try_hold(access)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(Storage { base, layout, scrub }) = self.storage else { return };
        if let Some(scrub) = scrub {
            // SAFETY: the storage has `len` bytes, and they are no longer used.
            unsafe { self.pointer.write_bytes(scrub, self.len) };
        }
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(base.as_ptr(), layout) };
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes at {:p})", self.len, self.pointer)
    }
}

/// A part of a block that an operation reads or writes. Keeps the block alive.
#[derive(Clone, Debug)]
pub struct Span {
    block: Arc<Block>,
    start: usize,
    len: usize,
    split: u64,
}

impl Span {
    /// The `len` bytes from `start` on.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if they extend beyond the block.
    pub fn new(block: &Arc<Block>, start: usize, len: usize) -> Result<Self> {
        match start.checked_add(len) {
            Some(end) if end <= block.len => {
                Ok(Self { block: Arc::clone(block), start, len, split: 0 })
            }
            _ => Err(Error::new(
                ErrorKind::OutOfBounds,
                "span",
                format!("{len} bytes from {start} on of a block of {}", block.len),
            )),
        }
    }

    /// The same bytes, of which a region program touches only one side of the split with this number. 0 means no split:
    /// see [`RawSlot::split`](runtime_core::contract::RawSlot::split).
    #[must_use]
    pub fn of_split(self, split: u64) -> Self {
        Self { split, ..self }
    }

    /// The kind of access that an operation makes.
    pub(crate) fn access(&self, writes: bool) -> Access {
        match (self.split, writes) {
            (0, false) => Access::Read,
            (0, true) => Access::Write,
            (split, writes) => Access::Split { split, writes },
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte.
    pub fn pointer(&self) -> NonNull<u8> {
        // SAFETY: the span lies inside the block.
        unsafe { self.block.pointer.add(self.start) }
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// Copies `src`, which is as long as the span, into the span. Holds the block during the copy. Large copies are
    /// spread over `cores`.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the lengths differ.
    pub fn copy_in(&self, src: &[u8], cores: Cores<'_>) -> Result<()> {
        self.check_len(src.len())?;
        let _held = self.block.hold(Access::Write);
        // SAFETY: both sides have `len` bytes. The block's bytes are held exclusively, and a slice lent by safe code
        // cannot be part of them.
        unsafe { spread(src.as_ptr(), self.pointer().as_ptr(), self.len, cores) };
        Ok(())
    }

    /// Copies the span to `dst`, which is as long as the span. Holds the block during the copy. Large copies are spread
    /// over `cores`.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the lengths differ.
    pub fn copy_out(&self, dst: &mut [u8], cores: Cores<'_>) -> Result<()> {
        self.check_len(dst.len())?;
        let _held = self.block.hold(Access::Read);
        // SAFETY: both sides have `len` bytes. The block's bytes are held shared, and a slice that safe code lends
        // exclusively cannot be part of them.
        unsafe { spread(self.pointer().as_ptr(), dst.as_mut_ptr(), self.len, cores) };
        Ok(())
    }

    /// Copies as many bytes as both spans have from `self` to `dst`. They may overlap. Both blocks are held.
    pub(crate) fn copy_to(&self, dst: &Self, cores: Cores<'_>) {
        let (from, to) = (self.pointer().as_ptr(), dst.pointer().as_ptr());
        let len = self.len.min(dst.len);
        if from.addr().abs_diff(to.addr()) < len {
            // SAFETY: both spans have `len` bytes, and their blocks are held.
            unsafe { std::ptr::copy(from, to, len) };
        } else {
            // SAFETY: as above, and they do not overlap.
            unsafe { spread(from, to, len, cores) };
        }
    }

    /// Fills the span with repetitions of `pattern`; the last one may be incomplete. The block is held.
    pub(crate) fn fill(&self, pattern: &[u8], cores: Cores<'_>) {
        let whole = Bytes(self.pointer().as_ptr());
        in_chunks(self.len, cores, |range| {
            // SAFETY: the chunk lies inside the span.
            let start = unsafe { whole.get().add(range.start) };
            // SAFETY: the block is held exclusively for the span's length, and chunks are disjoint.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, range.len()) };
            fill(bytes, pattern);
        });
    }

    fn check_len(&self, len: usize) -> Result<()> {
        if len == self.len {
            return Ok(());
        }
        let message = format!("{len} bytes of host memory for a span of {}", self.len);
        Err(Error::new(ErrorKind::OutOfBounds, "copy", message))
    }
}

/// Writes repetitions of `pattern`. A chunk starts with the pattern's first byte.
fn fill(bytes: &mut [u8], pattern: &[u8]) {
    match pattern {
        [] => {}
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => bytes.fill(*first),
        // Doubling the filled part makes all copies but the first few long.
        _ => {
            let mut done = pattern.len().min(bytes.len());
            bytes[..done].copy_from_slice(&pattern[..done]);
            while done < bytes.len() {
                let (head, tail) = bytes.split_at_mut(done);
                // A source of a few pages stays in the first-level cache.
                let len = tail.len().min(done).min(16 << 10);
                tail[..len].copy_from_slice(&head[..len]);
                done += len;
            }
        }
    }
}

/// Calls `f` with ranges that together make up `0..len`: a single range, or chunks on all cores if that is faster.
fn in_chunks(len: usize, cores: Cores<'_>, f: impl Fn(Range<usize>) + Sync) {
    if len < PARALLEL_BYTES {
        return f(0..len);
    }
    cores.for_each(len.div_ceil(CHUNK_BYTES), &|chunk| {
        let start = chunk * CHUNK_BYTES;
        f(start..len.min(start + CHUNK_BYTES));
    });
}

/// Copies `len` bytes, using all cores for large copies.
///
/// # Safety
///
/// Until this returns, any thread can read `len` bytes at `from` and write `len` bytes at `to`. They do not overlap.
unsafe fn spread(from: *const u8, to: *mut u8, len: usize, cores: Cores<'_>) {
    let (from, to) = (Bytes(from.cast_mut()), Bytes(to));
    in_chunks(len, cores, |range| {
        // SAFETY: the range lies inside both sides.
        let from = unsafe { from.get().add(range.start) };
        // SAFETY: as above.
        let to = unsafe { to.get().add(range.start) };
        // SAFETY: the caller guarantees both sides.
        unsafe { std::ptr::copy_nonoverlapping(from, to, range.len()) };
    });
}

/// An address shared by threads; each thread uses it for its own bytes.
struct Bytes(*mut u8);

impl Bytes {
    fn get(&self) -> *mut u8 {
        self.0
    }
}

// SAFETY: an address is only a number until code with access to the bytes uses it.
unsafe impl Sync for Bytes {}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn blocks_are_aligned_and_zeroed() {
        for len in [1, 127, 4096, LARGE - 1, LARGE, LARGE + 1, 3 << 20] {
            let block = Block::zeroed(len, None).unwrap();
            assert_eq!(block.pointer().addr().get() % ALIGN, 0);
            let mut bytes = vec![1; len];
            Span::new(&block, 0, len).unwrap().copy_out(&mut bytes, Cores::SERIAL).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn large_blocks_start_at_different_places_of_a_page() {
        let blocks: Vec<_> = (0..8).map(|_| Block::zeroed(1 << 20, None).unwrap()).collect();
        let places: HashSet<_> =
            blocks.iter().map(|block| block.pointer().addr().get() % 4096).collect();
        assert!(places.len() > 4, "{places:x?}");
    }

    #[test]
    fn an_absurd_size_is_no_block() {
        for len in [usize::MAX, isize::MAX as usize, (isize::MAX / 2) as usize] {
            assert!(Block::zeroed(len, None).is_none(), "{len}");
        }
    }

    #[test]
    fn spans_stay_inside() {
        let block = Block::poisoned(8, 0xAB, 0xDD, None).unwrap();
        for (start, len) in [(9, 0), (0, 9), (usize::MAX, 2), (4, usize::MAX)] {
            assert_eq!(Span::new(&block, start, len).unwrap_err().kind(), ErrorKind::OutOfBounds);
        }
        let span = Span::new(&block, 2, 4).unwrap();
        assert!(span.copy_in(&[0; 5], Cores::SERIAL).is_err());
        span.copy_in(&[1, 2, 3, 4], Cores::SERIAL).unwrap();
        let mut all = [0; 8];
        Span::new(&block, 0, 8).unwrap().copy_out(&mut all, Cores::SERIAL).unwrap();
        assert_eq!(all, [0xAB, 0xAB, 1, 2, 3, 4, 0xAB, 0xAB]);
    }

    #[test]
    fn a_fill_repeats_its_pattern_in_every_chunk() {
        let len = PARALLEL_BYTES + 12;
        let block = Block::zeroed(len, None).unwrap();
        let span = Span::new(&block, 0, len).unwrap();
        for pattern in [&[7_u8][..], &[1, 2], &[3, 3, 3, 3], &[1, 2, 3, 4, 5, 6, 7, 8]] {
            span.fill(pattern, Cores::SERIAL);
            let mut bytes = vec![0; len];
            span.copy_out(&mut bytes, Cores::SERIAL).unwrap();
            assert!(bytes.iter().zip(pattern.iter().cycle()).all(|(a, b)| a == b), "{pattern:?}");
        }
    }

    #[test]
    fn the_owner_is_dropped_with_the_block() {
        let owner = Arc::new(());
        let mut bytes = [5_u8; 4];
        let pointer = NonNull::from(&mut bytes).cast();
        // SAFETY: the array outlives the block, and nothing else uses it meanwhile.
        let block = unsafe { Block::adopt(pointer, 4, Box::new(Arc::clone(&owner))) };
        let span = Span::new(&block, 1, 2).unwrap();
        drop(block);
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(span);
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
