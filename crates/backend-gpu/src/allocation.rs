//! Allocations, and the aligned memory in them. The alignment does not depend on the library.

use crate::vendor::Vendor;

/// The alignment of memory, whatever alignment the library's allocations have.
pub(crate) const ALIGNMENT: usize = 256;

/// An allocation of the library, which holds memory that begins at a multiple of [`ALIGNMENT`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlignedAllocation {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

impl AlignedAllocation {
    /// Allocates room for that many bytes. If the allocation is not aligned enough, replaces it with a larger one.
    pub(crate) fn new<V: Vendor>(
        bytes: usize,
        allocate: impl Fn(usize) -> Result<u64, u32>,
        give_back: impl FnOnce(Self),
    ) -> Result<Self, u32> {
        let allocation = Self { address: allocate(bytes)?, bytes };
        if allocation.first() == allocation.address {
            return Ok(allocation);
        }
        give_back(allocation);
        let bytes = bytes.checked_add(ALIGNMENT - 1).ok_or(V::OUT_OF_MEMORY)?;
        Ok(Self { address: allocate(bytes)?, bytes })
    }

    /// The address of the memory's first byte.
    pub(crate) fn first(self) -> u64 {
        self.address.next_multiple_of(ALIGNMENT as u64)
    }
}

/// The address that a call allocated. Some library versions return success and a null address if memory is short.
#[inline]
pub(crate) fn allocated<V: Vendor>(outcome: Result<u64, u32>, bytes: usize) -> Result<u64, u32> {
    match outcome {
        Ok(0) if bytes > 0 => Err(V::OUT_OF_MEMORY),
        outcome => outcome,
    }
}
