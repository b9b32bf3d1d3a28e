//! Boards: their description in TOML.

use std::path::Path;

use runtime_core::contract::MemoryArea;
use runtime_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::Processor;
use crate::mailbox::GUARD_BYTES;

/// The properties of a board that are needed to run programs on it. `docs/embedded.md` describes the file.
///
/// ```
/// let board = backend_embedded::Board::parse(r#"
///     name = "QEMU virt"
///     processor = "riscv64"
///     stack = 0x800F_0000  # start of the stack of called functions; it grows down
///     stub = 0x800F_0000   # 4 KiB of RAM for the routine that calls functions
///
///     [[memory]]           # what programs and data may use
///     name = "ram"
///     address = 0x8010_0000
///     bytes = 0xFF0_0000
/// "#)?;
/// assert_eq!(board.memory[0].name, "ram");
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Board {
    /// The name of the board.
    pub name: String,
    /// The processor that programs are compiled for.
    pub processor: Processor,
    /// The address of the routine that calls functions: [`STUB_BYTES`](Self::STUB_BYTES) of RAM that nothing else uses.
    pub stub: u64,
    /// The start of the stack of called functions. It grows down.
    pub stack: u64,
    /// The end of the stack. On processors with memory protection, a function that writes to the
    /// [`GUARD_BYTES`](Self::GUARD_BYTES) below it faults; a RISC-V processor must have memory protection if this is
    /// set. Without a limit, only the end of RAM stops a stack.
    pub stack_limit: Option<u64>,
    /// A command of the debug server that resets the processor and leaves it halted, such as OpenOCD's `reset halt`.
    pub reset: Option<String>,
    /// The numbers of registers.
    #[serde(default)]
    pub registers: Registers,
    /// The memory that programs and data may use.
    #[serde(deserialize_with = "areas")]
    pub memory: Vec<MemoryArea>,
}

/// The register numbers of the debug server, if they differ from the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registers {
    /// The program counter.
    pub pc: Option<u32>,
    /// The program status register of a Cortex-M.
    pub xpsr: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Area {
    name: String,
    address: u64,
    bytes: u64,
    #[serde(default = "yes")]
    writable: bool,
}

fn yes() -> bool {
    true
}

fn areas<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<MemoryArea>, D::Error> {
    let areas = Vec::<Area>::deserialize(deserializer)?;
    let area =
        |Area { name, address, bytes, writable }| MemoryArea::new(name, address, bytes, writable);
    Ok(areas.into_iter().map(area).collect())
}

impl Board {
    /// The size of the guarded area below [`stack_limit`](Self::stack_limit). The limit is a multiple of it.
    pub const GUARD_BYTES: u64 = GUARD_BYTES;
    /// The bytes of RAM that the routine at [`stub`](Self::stub) needs.
    pub const STUB_BYTES: u64 = 4096;

    /// Reads a description.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`; the error says what is wrong and where.
    pub fn parse(text: &str) -> Result<Self> {
        let board: Self = toml::from_str(text).map_err(|error| {
            refused(&format!("the board's description: {}", error.to_string().trim_end()))
        })?;
        board.check()?;
        Ok(board)
    }

    /// Reads a description from a file.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse), and `InvalidArgument` if the file cannot be read.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| refused(&format!("{}: {error}", file.display())).with_source(error))?;
        Self::parse(&text)
            .map_err(|error| refused(&format!("{}: {}", file.display(), error.message())))
    }

    /// Refuses what contradicts itself, for the fields are anybody's to set.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` saying what is wrong.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_fields().map_err(|why| refused(&format!("board {:?}: {why}", self.name)))
    }

    fn check_fields(&self) -> Result<(), String> {
        let most = self.processor.last_address();
        let end =
            |area: &MemoryArea| area.address.checked_add(area.bytes).filter(|end| *end <= most);
        for area in &self.memory {
            if area.bytes == 0 || end(area).is_none() {
                return Err(format!(
                    "{} bytes of {:?} at {:#x}",
                    area.bytes, area.name, area.address
                ));
            }
        }
        for (index, area) in self.memory.iter().enumerate() {
            let meets = |other: &&MemoryArea| {
                area.address < other.address + other.bytes
                    && other.address < area.address + area.bytes
            };
            if let Some(other) = self.memory[..index].iter().find(meets) {
                return Err(format!("memory {:?} overlaps {:?}", area.name, other.name));
            }
            if area.address < self.stub.saturating_add(Self::STUB_BYTES)
                && self.stub < area.address + area.bytes
            {
                return Err(format!("the stub at {:#x} lies in memory {:?}", self.stub, area.name));
            }
        }
        let in_stub = self.stack > self.stub && self.stack - self.stub <= Self::STUB_BYTES;
        if self.stack == 0 || in_stub {
            return Err(format!("a stack that begins at {:#x} has no room below", self.stack));
        }
        let holds_stack = |area: &&MemoryArea| {
            area.address < self.stack && self.stack <= area.address + area.bytes
        };
        if let Some(area) = self.memory.iter().find(holds_stack) {
            return Err(format!(
                "the stack that begins at {:#x} grows down into memory {:?}",
                self.stack, area.name
            ));
        }
        if !self.memory.iter().any(|area| area.writable) {
            return Err("no memory that can be written".to_owned());
        }
        if !self.stub.is_multiple_of(256)
            || !self.stack.is_multiple_of(16)
            || self.stub.max(self.stack) > most
        {
            return Err(format!(
                "stub = {:#x} must be a multiple of 256, stack = {:#x} of 16, both at most {most:#x}",
                self.stub, self.stack
            ));
        }
        self.check_guard()
    }

    fn check_guard(&self) -> Result<(), String> {
        let Some(limit) = self.stack_limit else { return Ok(()) };
        if limit == 0 || !limit.is_multiple_of(Self::GUARD_BYTES) || limit >= self.stack {
            return Err(format!(
                "stack_limit = {limit:#x} must be a multiple of {}, above 0 and below stack = {:#x}",
                Self::GUARD_BYTES,
                self.stack
            ));
        }
        let guard = limit - Self::GUARD_BYTES;
        let meets =
            |address: u64, bytes: u64| address < limit && guard < address.saturating_add(bytes);
        if meets(self.stub, Self::STUB_BYTES) {
            return Err(format!(
                "the stub at {:#x} lies below stack_limit = {limit:#x}",
                self.stub
            ));
        }
        match self.memory.iter().find(|area| meets(area.address, area.bytes)) {
            Some(area) => {
                Err(format!("memory {:?} lies below stack_limit = {limit:#x}", area.name))
            }
            None => Ok(()),
        }
    }

    /// The guarded page below the stack.
    pub(crate) fn guard(&self) -> Option<u64> {
        self.stack_limit.map(|limit| limit - Self::GUARD_BYTES)
    }

    /// Whether the page at address 0 is not memory that functions may write, and the processor can guard it.
    pub(crate) fn guards_null(&self) -> bool {
        let used = |address: u64| address < Self::GUARD_BYTES;
        let areas = self.memory.iter().any(|area| used(area.address));
        !(self.processor.is_64_bit() || areas || used(self.stub) || used(self.stack - 1))
    }
}

fn refused(message: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, "open", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        name = "b"
        processor = "cortex-m7"
        stub = 0x20000000
        stack = 0x20010000
        memory = [{ name = "ram", address = 0x20010000, bytes = 4096 }]
    "#;

    #[test]
    fn a_description_is_read() {
        let board = Board::parse(GOOD).unwrap();
        assert_eq!((board.processor, board.memory[0].writable), (Processor::CortexM7, true));
    }

    #[test]
    fn errors_of_descriptions_name_the_cause() {
        for (from, to, expected) in [
            ("cortex-m7", "z80", "z80"),
            ("stack", "stork", "stork"),
            ("bytes = 4096", "bytes = 0", "0 bytes"),
            ("bytes = 4096", "bytes = 0xF0000000", "ram"),
            ("0x20000000", "0x20010800", "lies in"),
            ("0x20000000", "0x20000010", "multiple of 256"),
            ("stack = 0x20010000", "stack = 0", "no room"),
            ("stack = 0x20010000", "stack = 0x20000800", "no room"),
            ("stack = 0x20010000", "stack = 0x20011000", "grows down into"),
            ("bytes = 4096", "bytes = 4096, writable = false", "written"),
            ("stack =", "stack_limit = 0x20001800\nstack =", "multiple of 4096"),
            ("stack =", "stack_limit = 0x20010000\nstack =", "below stack"),
            ("stack =", "stack_limit = 0x20001000\nstack =", "the stub"),
            (" }]", " }, { name = \"again\", address = 0x20010FFF, bytes = 1 }]", "overlaps"),
        ] {
            let error = Board::parse(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{to}");
            assert!(error.message().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_shipped_descriptions_are_right() {
        for text in [
            include_str!("../boards/qemu-virt.toml"),
            include_str!("../boards/qemu-mps2-an500.toml"),
            include_str!("../boards/qemu-mps2-an385.toml"),
        ] {
            Board::parse(text).unwrap();
        }
    }
}
