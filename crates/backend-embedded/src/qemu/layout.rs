//! The layout of a machine's RAM.

/// Offsets in RAM: the start of the stack, which grows down; code that waits to be copied; the mailbox; the start of
/// programs. `firmware/monitor` has the same numbers.
pub(crate) const STACK: u64 = 0xE_0000;
pub(crate) const STAGING: u64 = 0xE_0000;
pub(crate) const STAGING_BYTES: usize = 0x1_0000;
pub(crate) const MAILBOX: u64 = 0xF_0000;
pub(crate) const RESERVED: u64 = 0x10_0000;
