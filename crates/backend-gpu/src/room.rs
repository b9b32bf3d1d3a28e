//! Allocations, and the memory in them, which is aligned as promised whatever the library does.

use std::num::NonZeroUsize;

use crate::vendor::Vendor;

/// What memory is aligned to, whatever the library aligns its allocations to.
pub const ALIGNMENT: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// An allocation of the library, in which memory begins at a multiple of [`ALIGNMENT`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

impl Room {
    /// Room for that many bytes; where an allocation is less aligned, of so many more.
    pub(crate) fn new<V: Vendor>(
        bytes: usize,
        allocate: impl Fn(usize) -> Result<u64, u32>,
        give_back: impl FnOnce(Self),
    ) -> Result<Self, u32> {
        let room = Self { address: allocate(bytes)?, bytes };
        if room.first() == room.address {
            return Ok(room);
        }
        give_back(room);
        let bytes = bytes.checked_add(ALIGNMENT.get() - 1).ok_or(V::OUT_OF_MEMORY)?;
        Ok(Self { address: allocate(bytes)?, bytes })
    }

    /// Where the memory begins.
    pub(crate) fn first(self) -> u64 {
        self.address.next_multiple_of(ALIGNMENT.get() as u64)
    }
}

/// The address that a call allocated. Where there is no room, some versions of libraries tell success and give none.
#[inline]
pub(crate) fn allocated<V: Vendor>(outcome: Result<u64, u32>, bytes: usize) -> Result<u64, u32> {
    match outcome {
        Ok(0) if bytes > 0 => Err(V::OUT_OF_MEMORY),
        outcome => outcome,
    }
}
