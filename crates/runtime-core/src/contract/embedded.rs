//! Devices that own their memory and their program.

use std::time::Duration;

use super::{CommonRuntime, Counters};
use crate::Result;

/// A processor with a program of its own: flashed, called, timed, and its memory read back.
///
/// Nothing is transferred implicitly. The checked front, [`Embedded`](crate::Embedded), has looked at every argument:
/// addresses lie in one area of the memory map that admits the access, a called function among them, the timeout is not
/// zero, and [`call`](Self::call) gets at most [`Limits::arguments`](crate::Limits::arguments) values.
pub trait EmbeddedDevice: CommonRuntime {
    /// Loads an ELF image, replacing the program that was there, and resets.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if it is not an executable for this processor or does not fit the memory map.
    fn flash(&self, image: &[u8]) -> Result<()>;

    /// Starts the flashed program anew, whatever the device was at: *must* end a call that hangs, in any thread, and
    /// bring back a device that was lost. Memory outside of the program's segments *must* keep its bytes.
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

    /// Writes instructions: calls from here on run them, whatever was executed there before.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    fn code_write(&self, address: u64, bytes: &[u8]) -> Result<()>;

    /// Where the flashed program has the function or object of that name.
    ///
    /// # Errors
    ///
    /// `KernelNotFound` naming the symbol.
    fn symbol(&self, name: &str) -> Result<Symbol>;

    /// Calls the function at `function`, by the calling convention of C, and blocks until it returns. Calls of several
    /// threads take turns.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an address that the device does not have; `DeviceFault` with cause, program counter and
    /// address, after which the device *must* take calls again; `Timeout`, and `Conflict` until the call ends after all or
    /// [`reset`](Self::reset) ends it; `DeviceLost`.
    fn call(&self, function: u64, args: &[CallValue], timeout: Duration) -> Result<CallOutcome>;

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
    /// Whether the program says that it is data, which is not called by its name.
    pub data: bool,
}

/// A value passed to a function on the device, of the C type that the function declares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CallValue {
    /// An integer of 32 bits, or a shorter one extended as its own sign says.
    I32(i32),
    /// An integer of 64 bits.
    I64(i64),
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
    /// The integer result register, or the two that make 64 bits. Bits beyond the function's result are unspecified.
    pub value: u64,
    /// The floating-point result register's bits, where the calling convention has one.
    pub float_bits: Option<u64>,
    /// Time from the call to its return as the host saw it.
    pub elapsed: Duration,
}

impl CallOutcome {
    /// The result of a function that returns a 32-bit integer.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are the result")]
    pub fn i32(&self) -> i32 {
        self.value as i32
    }

    /// The result of a function that returns a 64-bit integer.
    pub fn i64(&self) -> i64 {
        self.value.cast_signed()
    }

    /// The result of a function that returns `float`.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are the result")]
    pub fn f32(&self) -> f32 {
        f32::from_bits(self.float_bits.unwrap_or(self.value) as u32)
    }

    /// The result of a function that returns `double`.
    pub fn f64(&self) -> f64 {
        f64::from_bits(self.float_bits.unwrap_or(self.value))
    }
}
