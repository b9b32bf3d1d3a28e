//! Runs PTX, the text that compilers for NVIDIA GPUs emit, on the CPU.
//!
//! [`Module::parse`] accepts the PTX that NVRTC 12 and 13 emit for the kernels of this repository, and for similar
//! kernels: integers, floats of 32 and 64 bits, all state spaces, vectors, calls, barriers, atomics, and warp
//! exchanges. Any other instruction is refused with its line, as are calls through pointers and `printf`. No
//! instruction is skipped.
//!
//! [`run`] executes a launch. The threads of a block take turns. Each runs until it ends, waits, or has used up its
//! turn. The blocks of a large grid are distributed over the cores. Results are those of a GPU to the last bit, with
//! two exceptions: the approximate functions (`sin.approx` and the like), which are those of the standard library, and
//! the payload of a NaN.
//!
//! | file | subject |
//! |---|---|
//! | `lexer.rs`, `cursor.rs`, `parse.rs` | text, tokens, declarations of a module |
//! | `function.rs`, `body.rs`, `statement.rs`, `symbols.rs` | bodies of functions: scopes, labels, statements, names |
//! | `decode/` | one statement to `Operation`s |
//! | `alu/` | arithmetic: operations by name and type |
//! | `memory.rs` | state spaces and the generic address space |
//! | `thread.rs`, `block.rs`, `grid.rs` | execution: a thread, the barriers of a block, blocks on cores |

mod alu;
mod block;
mod body;
mod cursor;
mod decode;
mod function;
mod grid;
mod instruction;
mod lexer;
mod memory;
mod module;
mod parse;
mod statement;
mod symbols;
mod thread;
mod types;

pub use grid::{Geometry, run};
pub use module::{Entry, Module, Param};

use thiserror::Error;

/// Device memory as a kernel sees it: the global part of the generic address space.
///
/// Addresses below 2^56 come here. The interpreter has checked that accesses are of 1, 2, 4, 8 or 16 bytes and
/// naturally aligned. Kernels run on several cores at once, and so do accesses.
pub trait Global: Sync {
    /// Reads `bytes.len()` bytes.
    ///
    /// # Errors
    ///
    /// [`Fault::IllegalAddress`] if there is no memory.
    fn load(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Writes the bytes.
    ///
    /// # Errors
    ///
    /// [`Fault::IllegalAddress`] if there is no memory.
    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Replaces `width` bytes, 4 or 8, atomically by the result of `update`. Returns the old value.
    ///
    /// # Errors
    ///
    /// [`Fault::IllegalAddress`] if there is no memory.
    fn update(
        &self,
        address: u64,
        width: usize,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault>;
}

/// The reason why a launch ended before its kernel.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// An access to an address without memory, or beyond the end of a state space.
    #[error("no memory at address {0:#x}")]
    IllegalAddress(u64),
    /// An access at an address that is not a multiple of its size.
    #[error("a misaligned access at address {0:#x}")]
    Misaligned(u64),
    /// The kernel executed `trap`.
    #[error("the kernel trapped")]
    Trap,
    /// An assertion of the kernel failed.
    #[error("an assertion of the kernel failed")]
    Assert,
    /// The kernel did something undefined: threads wait for each other for ever, or calls are nested too deeply.
    #[error("{0}")]
    IllegalInstruction(String),
    /// The caller asked for the launch to stop.
    #[error("stopped")]
    Stopped,
}
