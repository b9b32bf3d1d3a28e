//! Devices that own their memory and their program.

use std::time::Duration;

use super::{CommonRuntime, Counters};
use crate::Result;

/// A processor with a program of its own: flashed, called, timed, and its memory read back.
///
/// Nothing is transferred implicitly. The checked front, [`Embedded`](crate::Embedded), has looked at every argument:
/// addresses lie in one area of the memory map that admits the access, the timeout is not zero, and
/// [`call`](Self::call) gets at most [`Limits::arguments`](crate::Limits::arguments) values.
pub trait EmbeddedDevice: CommonRuntime {
    /// Loads an ELF image, replacing the program that was there, and resets.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if it is not an executable for this processor or does not fit the memory map.
    fn flash(&self, image: &[u8]) -> Result<()>;

    /// Starts the flashed program anew; ends a call that hangs.
    ///
    /// # Errors
    ///
    /// `DeviceLost` if the device does not come back.
    fn reset(&self) -> Result<()>;

    /// Areas of memory that can be addressed, fixed for as long as the device is open.
    fn memory_map(&self) -> &[MemoryArea];

    /// Writes device memory.
    ///
    /// # Errors
    ///
    /// What the transport reports.
    fn memory_write(&self, address: u64, bytes: &[u8]) -> Result<()>;

    /// Reads device memory.
    ///
    /// # Errors
    ///
    /// What the transport reports.
    fn memory_read(&self, address: u64, bytes: &mut [u8]) -> Result<()>;

    /// Where the flashed program has the function or object of that name.
    ///
    /// # Errors
    ///
    /// `KernelNotFound` naming the symbol.
    fn symbol(&self, name: &str) -> Result<Symbol>;

    /// Calls a function and blocks until it returns.
    ///
    /// # Errors
    ///
    /// `DeviceFault` with cause, program counter and address; `Timeout`, after which [`reset`](Self::reset) *must*
    /// make the device usable again.
    fn call(&self, function: &str, args: &[CallValue], timeout: Duration) -> Result<CallOutcome>;

    /// Lines the program printed since the last time this was asked.
    ///
    /// # Errors
    ///
    /// What the transport reports.
    fn console(&self) -> Result<Vec<String>>;

    /// Event counters, where the processor has any.
    fn counters(&self) -> Option<&dyn Counters>;
}

/// A contiguous part of a device's address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryArea {
    /// What it is called, such as `ram`.
    pub name: String,
    /// First address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether it can be written.
    pub writable: bool,
}

/// A named place in a flashed program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its address.
    pub address: u64,
    /// Its size in bytes, 0 where the program does not say.
    pub bytes: u64,
}

/// A value passed to or returned by a function on the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CallValue {
    /// An integer, extended to the register's width.
    Int(i64),
    /// An address on the device.
    Address(u64),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
}

/// What a call gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallOutcome {
    /// The integer result register.
    pub value: u64,
    /// The floating-point result register's bits, where the processor has one.
    pub float_bits: Option<u64>,
    /// Time from the call to its return as the host saw it.
    pub elapsed: Duration,
}
