//! Runs PTX, the text that compilers for NVIDIA GPUs emit, on the processor.
//!
//! [`Module::parse`] takes what NVRTC 12 and 13 make of C++ kernels, for any architecture: integers, floats of 32 and 64
//! bits, all state spaces, vectors, calls, jump tables, barriers, atomics, and warp exchanges. A text with anything else
//! is refused with the line of it, so are calls through pointers and `printf`; nothing is skipped.
//!
//! [`run`] executes a launch. The threads of a block take turns, each until it ends, waits, or has used up its turn, and
//! the blocks of a large grid are shared out among the cores. Results are those of a GPU to the last bit, but for the
//! approximate functions (`sin.approx` and the like), which are the standard library's, and the payload of a NaN. Directed
//! rounding of doubles is exact unless a product is subnormal or too large.
//!
//! | file | subject |
//! |---|---|
//! | `lexer.rs`, `parse.rs`, `body.rs` | text, declarations, bodies of functions with their scopes and labels |
//! | `decode/` | one statement to `Operation`s |
//! | `alu/` | arithmetic: operations by name and type |
//! | `memory.rs` | state spaces and the generic address space |
//! | `thread.rs`, `block.rs`, `grid.rs` | execution: a thread, its fellows and barriers, blocks on cores |

mod alu;
mod block;
mod body;
mod decode;
mod grid;
mod instruction;
mod lexer;
mod memory;
mod module;
mod parse;
mod thread;

pub use grid::{Geometry, run};
pub use module::{Entry, Module, Param};

use thiserror::Error;

/// Device memory as a kernel sees it: the global part of the generic address space.
///
/// Addresses below 2^56 come here. The interpreter has checked that accesses are of 1, 2, 4, 8 or 16 bytes and naturally
/// aligned. Kernels run on several cores at once, and so do accesses.
pub trait Global: Sync {
    /// Reads `bytes.len()` bytes.
    ///
    /// # Errors
    ///
    /// [`Fault::IllegalAddress`] where no memory is.
    fn load(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Writes the bytes.
    ///
    /// # Errors
    ///
    /// [`Fault::IllegalAddress`] where no memory is.
    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Replaces `width` bytes, 4 or 8, by what `update` makes of them, atomically, and returns what was there.
    ///
    /// # Errors
    ///
    /// [`Fault::IllegalAddress`] where no memory is.
    fn update(
        &self,
        address: u64,
        width: usize,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault>;
}

/// Why a launch ended before its kernel did.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// An access to an address without memory, or beyond what a state space has.
    #[error("no memory at address {0:#x}")]
    IllegalAddress(u64),
    /// An access at an address that is no multiple of its size.
    #[error("a misaligned access at address {0:#x}")]
    Misaligned(u64),
    /// The kernel executed `trap`.
    #[error("the kernel trapped")]
    Trap,
    /// An assertion of the kernel failed.
    #[error("an assertion of the kernel failed")]
    Assert,
    /// What the kernel did is undefined: threads wait for each other for ever, a jump beyond its table.
    #[error("{0}")]
    IllegalInstruction(String),
    /// The caller asked for the launch to stop.
    #[error("stopped")]
    Stopped,
}
