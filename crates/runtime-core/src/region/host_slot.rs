//! Host memory on which a program runs.
#![expect(unsafe_code, reason = "memory that is only named may be sent to any thread")]

use std::ptr;

/// Host memory bound to one slot of a program: `len` bytes at `base`.
///
/// If `base` is null, the copies that read or write the slot are left out.
#[derive(Clone, Copy, Debug)]
pub struct HostSlot {
    /// The first byte.
    pub base: *mut u8,
    /// Number of bytes.
    pub len: usize,
}

impl HostSlot {
    /// No memory.
    pub const ABSENT: Self = Self { base: ptr::null_mut(), len: 0 };
}

// SAFETY: it only names memory; the unsafe functions that use it define which accesses are allowed.
unsafe impl Send for HostSlot {}
// SAFETY: as above.
unsafe impl Sync for HostSlot {}
