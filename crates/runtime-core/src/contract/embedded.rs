//! Devices with their own memory and their own program.

use std::time::Duration;

use super::{CommonRuntime, EmbeddedAbilities};
use crate::Result;

/// A processor that runs its own program. The host flashes the program, calls its functions, measures them, and reads
/// back memory.
///
/// Nothing is transferred implicitly. The checked front, [`Embedded`](crate::Embedded), has validated every argument:
/// addresses, including that of a called function, lie in one area of the memory map that allows the access; the
/// timeout is not zero; and [`call`](Self::call) gets at most [`Limits::max_arguments`](crate::Limits::max_arguments)
/// values.
pub trait EmbeddedDevice: CommonRuntime {
    /// The abilities that this device has beyond the other methods of this trait. *Must* be the same at every call.
    fn abilities(&self) -> EmbeddedAbilities<'_>;

    /// Loads an ELF image in place of the previous program, and resets the device.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if the image is not an executable for this processor or does not fit the memory map.
    fn flash(&self, image: &[u8]) -> Result<()>;

    /// Restarts the flashed program from any state. *Must* end a call that hangs, in any thread, and *must* recover a
    /// device that was lost. Memory outside of the program's segments *must* keep its bytes.
    ///
    /// # Errors
    ///
    /// `DeviceLost` if the device does not recover.
    fn reset(&self) -> Result<()>;

    /// The areas of memory that can be addressed. Fixed for as long as the device is open.
    fn memory_map(&self) -> &[MemoryArea];

    /// Writes device memory.
    ///
    /// # Errors
    ///
    /// Errors of the transport.
    fn memory_write(&self, address: u64, bytes: &[u8]) -> Result<()>;

    /// Reads device memory.
    ///
    /// # Errors
    ///
    /// Errors of the transport.
    fn memory_read(&self, address: u64, bytes: &mut [u8]) -> Result<()>;

    /// Writes instructions. Later calls run them, whatever was executed at these addresses before.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    fn code_write(&self, address: u64, bytes: &[u8]) -> Result<()>;

    /// Returns the location of the function or object of that name in the flashed program.
    ///
    /// # Errors
    ///
    /// `KernelNotFound` naming the symbol.
    fn symbol(&self, name: &str) -> Result<Symbol>;

    /// Calls the function at `function`, using the C calling convention, and blocks until it returns. Calls from
    /// several threads take turns.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an address that the device does not have, and for a function that is not aligned for
    /// instructions. `DeviceFault` with cause, program counter and address; the device *must* accept calls afterwards.
    /// `Timeout`, and from then on `Conflict`, until the call returns after all or [`reset`](Self::reset) ends it.
    /// `DeviceLost`.
    fn call(&self, function: u64, args: &[CallValue], timeout: Duration) -> Result<CallOutcome>;

    /// Returns the lines that the program printed since the last call of this method.
    ///
    /// # Errors
    ///
    /// Errors of the transport.
    fn console(&self) -> Result<Vec<String>>;
}

/// A contiguous part of a device's address space.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryArea {
    /// Its name, such as `ram`.
    pub name: String,
    /// First address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether it can be written.
    pub writable: bool,
}

impl MemoryArea {
    /// The `bytes` bytes from `address` on.
    pub fn new(name: impl Into<String>, address: u64, bytes: u64, writable: bool) -> Self {
        Self { name: name.into(), address, bytes, writable }
    }
}

/// A named place in a flashed program.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its address.
    pub address: u64,
    /// Its size in bytes, 0 where the program does not say.
    pub bytes: u64,
    /// Whether the program declares it as data, which cannot be called by name.
    pub data: bool,
}

impl Symbol {
    /// A function, or data, at `address`. `bytes` is 0 where the program does not say.
    pub const fn new(address: u64, bytes: u64, data: bool) -> Self {
        Self { address, bytes, data }
    }
}

/// A value passed to a function on the device. Its C type is the one that the function declares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CallValue {
    /// A 32-bit integer, or a shorter one, sign- or zero-extended according to its own type.
    I32(i32),
    /// A 64-bit integer.
    I64(i64),
    /// An address on the device.
    Address(u64),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
}

/// The result of a call.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallOutcome {
    /// The integer result register, or the two registers that make 64 bits. Bits beyond the function's result are
    /// unspecified.
    pub value: u64,
    /// The bits of the floating-point result register, if the calling convention has one.
    pub float_bits: Option<u64>,
    /// The time from the call to its return, measured on the host.
    pub elapsed: Duration,
}

impl CallOutcome {
    /// A call that returned `value` after `elapsed`.
    pub const fn new(value: u64, elapsed: Duration) -> Self {
        Self { value, float_bits: None, elapsed }
    }

    /// Sets the bits of the floating-point result register, where the calling convention has one.
    #[must_use]
    pub fn with_float_bits(mut self, bits: impl Into<Option<u64>>) -> Self {
        self.float_bits = bits.into();
        self
    }

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
