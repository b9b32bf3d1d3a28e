//! Programs: the contents of an ELF image for a processor.

use std::collections::BTreeMap;

use object::read::elf::FileHeader;
use object::{
    File, FileFlags, Object, ObjectKind, ObjectSection, ObjectSegment, ObjectSymbol,
    RelocationFlags, RelocationTarget, SymbolKind,
};
use runtime_core::contract::{MemoryArea, ParamInfo, Symbol};
use runtime_core::{Error, ErrorKind, Result};

use crate::Architecture;
use crate::signature;

/// The section in which `KERNEL` of `kernel.h` declares kernels.
const KERNELS: &str = ".kernels";
/// The largest alignment: no supported processor has larger pages.
const MAX_ALIGNMENT: u64 = 1 << 16;
/// The most segments of a program. Linkers make fewer than ten.
const MAX_SEGMENTS: usize = 256;

/// An ELF executable, read and checked.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// By address, without overlap.
    pub(crate) segments: Vec<Segment>,
    pub(crate) symbols: BTreeMap<String, Symbol>,
    /// The parameters of the kernels that the program declares.
    pub(crate) kernels: BTreeMap<String, Vec<ParamInfo>>,
    /// Whether the program can be placed at any address.
    pub(crate) relocatable: bool,
    /// The program may be moved by multiples of this only.
    pub(crate) alignment: u64,
    relocations: Vec<Relocation>,
}

/// A contiguous part of a program in memory.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    /// Its bytes, including zeros at the end.
    pub(crate) bytes: Vec<u8>,
}

impl Segment {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes.len() as u64)
    }
}

/// An address that a program stores in memory, relative to the program's own address.
#[derive(Clone, Copy, Debug)]
struct Relocation {
    place: u64,
    /// `None` if the value is already in memory.
    value: Option<u64>,
}

impl Program {
    /// Reads an image for `processor`. Segments are placed at their virtual addresses, inside one of the writable
    /// `areas`, unless the program can be placed at any address.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if it is not an ELF executable for the processor, if a segment is outside the areas or overlaps
    /// another, or if there are too many segments.
    /// `OutOfMemory` if the host has no memory for a segment.
    pub(crate) fn read(
        image: &[u8],
        architecture: &Architecture,
        areas: &[MemoryArea],
    ) -> Result<Self> {
        let file = File::parse(image).map_err(|error| invalid(format!("no ELF file: {error}")))?;
        check_machine(&file, architecture)?;
        let relocatable = match file.kind() {
            ObjectKind::Executable => false,
            ObjectKind::Dynamic => true,
            kind => {
                return Err(invalid(format!(
                    "an ELF file of kind {kind:?}; only executables are loaded"
                )));
            }
        };
        let count = file.segments().count();
        if count > MAX_SEGMENTS {
            return Err(invalid(format!("{count} segments; {MAX_SEGMENTS} is the most")));
        }
        // The most bytes that all segments together may take, wherever they are placed.
        let writable = areas.iter().filter(|area| area.writable).map(|area| area.bytes);
        let mut left = match relocatable {
            true => writable.max().unwrap_or(0),
            false => writable.fold(0, u64::saturating_add),
        };
        let mut segments = Vec::new();
        for segment in file.segments().filter(|segment| segment.size() > 0) {
            let (address, bytes) = (segment.address(), segment.size());
            let place = format!("a segment of {bytes} bytes at {address:#x}");
            if address.checked_add(bytes).is_none() {
                return Err(invalid(format!("{place} ends beyond the last address")));
            }
            if !relocatable && !fits(areas, address, bytes) || bytes > left {
                return Err(invalid(format!(
                    "{place} is outside of the memory that can be written: {}",
                    list(areas)
                )));
            }
            left -= bytes;
            let data = segment.data().map_err(|error| invalid(format!("{place}: {error}")))?;
            if data.len() as u64 > bytes {
                return Err(invalid(format!("{place} with {} bytes in the file", data.len())));
            }
            let length = usize::try_from(bytes).unwrap_or(usize::MAX);
            let mut whole = Vec::new();
            // An area may be said to be larger than the host's memory, and so may a segment be.
            whole.try_reserve_exact(length).map_err(|error| {
                let message = format!("{place}, which the host has no memory to prepare");
                Error::new(ErrorKind::OutOfMemory, "load", message).with_source(error)
            })?;
            whole.extend_from_slice(data);
            whole.resize(length, 0);
            segments.push(Segment { address, bytes: whole });
        }
        segments.sort_by_key(|segment| segment.address);
        let mut pairs = segments.iter().zip(segments.iter().skip(1));
        if let Some((below, above)) = pairs.find(|(below, above)| below.end() > above.address) {
            return Err(invalid(format!(
                "a segment of {} bytes at {:#x} overlaps that at {:#x}",
                below.bytes.len(),
                below.address,
                above.address
            )));
        }
        // An alignment of 0 means none, as 1 does.
        let alignment = file.segments().map(|segment| segment.align().max(1)).max().unwrap_or(1);
        if !(1..=MAX_ALIGNMENT).contains(&alignment) || !alignment.is_power_of_two() {
            return Err(invalid(format!(
                "segments aligned to {alignment} bytes; {MAX_ALIGNMENT} is the most"
            )));
        }
        let mut program = Self { segments, relocatable, alignment, ..Self::default() };
        program.symbols = symbols(&file, architecture);
        program.kernels = kernels(&file)?;
        if relocatable {
            program.relocations = relocations(&file, architecture)?;
        }
        Ok(program)
    }

    /// Returns the function or object of this name.
    ///
    /// # Errors
    ///
    /// `KernelNotFound` with the name.
    pub(crate) fn symbol(&self, name: &str) -> Result<Symbol> {
        self.symbols.get(name).copied().ok_or_else(|| {
            let why = if self.symbols.is_empty() {
                "there is no program, or it has no symbols"
            } else {
                "the program has no symbol of that name"
            };
            Error::new(ErrorKind::KernelNotFound, "symbol", format!("{name:?}: {why}"))
        })
    }

    /// Returns the start address and the number of bytes that it spans.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let start = self.segments.first().map_or(0, |first| first.address);
        let end = self.segments.last().map_or(0, Segment::end);
        (start, end - start)
    }

    /// Refuses a program that has no fixed address.
    ///
    /// # Errors
    ///
    /// `InvalidModule`.
    pub(crate) fn must_be_fixed(&self) -> Result<()> {
        if !self.relocatable {
            return Ok(());
        }
        Err(invalid(
            "a position-independent program; a program to be flashed must be linked to a fixed address".to_owned(),
        ))
    }

    /// Moves the program by `by` bytes.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if the program stores an address outside of its segments.
    pub(crate) fn relocate(&mut self, by: u64, architecture: &Architecture) -> Result<()> {
        let width = architecture.width();
        for Relocation { place, value } in std::mem::take(&mut self.relocations) {
            let above = self.segments.partition_point(|segment| segment.address <= place);
            let word = self.segments[..above].last_mut().and_then(|segment| {
                let start = usize::try_from(place - segment.address).ok()?;
                segment.bytes.get_mut(start..start.checked_add(width)?)
            });
            let Some(word) = word else {
                return Err(invalid(format!("a relocation at {place:#x}, which no segment has")));
            };
            let mut kept = [0; 8];
            kept[..width].copy_from_slice(word);
            let moved = value.unwrap_or(u64::from_le_bytes(kept)).wrapping_add(by);
            word.copy_from_slice(&moved.to_le_bytes()[..width]);
        }
        for segment in &mut self.segments {
            segment.address = segment.address.wrapping_add(by);
        }
        for symbol in self.symbols.values_mut() {
            symbol.address = symbol.address.wrapping_add(by);
        }
        Ok(())
    }
}

fn check_machine(file: &File<'_>, architecture: &Architecture) -> Result<()> {
    let (machine, is_little) = match file {
        File::Elf32(file) => (file.elf_header().e_machine(file.endian()), file.is_little_endian()),
        File::Elf64(file) => (file.elf_header().e_machine(file.endian()), file.is_little_endian()),
        _ => return Err(invalid("no ELF file".to_owned())),
    };
    if machine != architecture.machine || file.is_64() != architecture.is_64_bit || !is_little {
        let bits = if file.is_64() { 64 } else { 32 };
        return Err(invalid(format!(
            "an ELF file for machine {machine} with {bits} bits; the device is {}, machine {}",
            architecture.name, architecture.machine
        )));
    }
    let flags = match file.flags() {
        FileFlags::Elf { e_flags, .. } => e_flags,
        _ => 0,
    };
    if !architecture.takes_flags(flags) {
        return Err(invalid(format!(
            "an ELF file with flags {flags:#x}, which {} does not take: it may pass floating-point numbers in other registers",
            architecture.name
        )));
    }
    Ok(())
}

fn fits(areas: &[MemoryArea], address: u64, bytes: u64) -> bool {
    let Some(end) = address.checked_add(bytes) else { return false };
    areas.iter().any(|area| {
        area.writable && address >= area.address && end <= area.address.saturating_add(area.bytes)
    })
}

fn list(areas: &[MemoryArea]) -> String {
    let writable = areas.iter().filter(|area| area.writable);
    let reported: Vec<_> = writable
        .map(|area| format!("{} of {} bytes at {:#x}", area.name, area.bytes, area.address))
        .collect();
    reported.join(", ")
}

fn symbols(file: &File<'_>, architecture: &Architecture) -> BTreeMap<String, Symbol> {
    let symbols = file.symbols().filter(|symbol| symbol.is_definition());
    let named = symbols.filter_map(|symbol| {
        let address = match symbol.kind() {
            SymbolKind::Text => architecture.address(symbol.address()),
            SymbolKind::Data | SymbolKind::Unknown | SymbolKind::Label => symbol.address(),
            _ => return None,
        };
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        // Symbols from assembler files may be code without being marked as code.
        let data = symbol.kind() == SymbolKind::Data;
        Some((name.to_owned(), Symbol::new(address, symbol.size(), data)))
    });
    named.collect()
}

fn kernels(file: &File<'_>) -> Result<BTreeMap<String, Vec<ParamInfo>>> {
    let Some(section) = file.section_by_name(KERNELS) else { return Ok(BTreeMap::new()) };
    let bytes = section.data().map_err(|error| invalid(format!("section {KERNELS}: {error}")))?;
    let declarations = bytes.split(|byte| *byte == 0).filter(|text| !text.is_empty());
    declarations
        .map(|text| {
            let text = String::from_utf8_lossy(text);
            signature::parse(&text).map_err(|why| invalid(format!("kernel {text:?}: {why}")))
        })
        .collect()
}

fn relocations(file: &File<'_>, architecture: &Architecture) -> Result<Vec<Relocation>> {
    let Some(found) = file.dynamic_relocations() else { return Ok(Vec::new()) };
    found
        .map(|(place, relocation)| {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                return Err(invalid(format!("a relocation at {place:#x} that is not of ELF")));
            };
            if r_type != architecture.relative || relocation.target() != RelocationTarget::Absolute {
                return Err(invalid(format!(
                    "a relocation of type {r_type} at {place:#x}; only relative ones are known, which programs linked with -pie have"
                )));
            }
            let value = (!relocation.has_implicit_addend()).then(|| relocation.addend().cast_unsigned());
            Ok(Relocation { place, value })
        })
        .collect()
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidModule, "load", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// A section header: name, kind and flags, and then the place, the size, the linked section and the entry size.
    fn section(
        name: u32,
        kind: u32,
        [offset, bytes]: [usize; 2],
        link: u32,
        entry: u64,
    ) -> Vec<u8> {
        let mut header = [name, kind].map(u32::to_le_bytes).concat();
        header.extend(words(&[2, 0, offset as u64, bytes as u64]));
        header.extend([link, 0].map(u32::to_le_bytes).concat());
        header.extend(words(&[8, entry]));
        header
    }

    /// A position-independent program for RISC-V. Its segments of 8 bytes are at these addresses, and it stores the
    /// address 0x100 at these places.
    fn program(segments: &[u64], places: &[u64]) -> Result<Program> {
        const HEADER: usize = 64;
        const NAMES: &[u8] = b"\0.dynsym\0.rela.dyn\0.shstrtab\0";
        let data = HEADER + 56 * segments.len();
        let (symbols, relocations) = (data + 8, data + 8 + 24);
        let names = relocations + 24 * places.len();
        let sections = names + NAMES.len();

        let mut image = b"\x7fELF\x02\x01\x01".to_vec();
        image.resize(16, 0);
        image.extend([3_u16, 243].map(u16::to_le_bytes).concat());
        image.extend(1_u32.to_le_bytes());
        image.extend(words(&[0, HEADER as u64, sections as u64]));
        image.extend(5_u32.to_le_bytes());
        let count = u16::try_from(segments.len()).unwrap();
        image.extend([64, 56, count, 64, 4, 3].map(u16::to_le_bytes).concat());
        for address in segments {
            image.extend([1_u32, 7].map(u32::to_le_bytes).concat());
            image.extend(words(&[data as u64, *address, *address, 8, 8, 8]));
        }
        image.extend([0; 8 + 24]);
        for place in places {
            image.extend(words(&[*place, 3, 0x100]));
        }
        image.extend(NAMES);
        image.extend([0; 64]);
        image.extend(section(1, 11, [symbols, 24], 0, 24));
        image.extend(section(9, 4, [relocations, 24 * places.len()], 1, 24));
        image.extend(section(19, 3, [names, NAMES.len()], 0, 0));

        Program::read(&image, &riscv(), &[MemoryArea::new("ram", 0x8000_0000, 1 << 20, true)])
    }

    fn riscv() -> Architecture {
        Architecture::new_64_bit("rv64gc", 243, 3)
    }

    #[test]
    fn relocations_change_the_segments_that_have_their_places() {
        let segments: Vec<u64> = (0..MAX_SEGMENTS as u64).rev().map(|index| 16 * index).collect();
        let mut all = program(&segments, &segments).unwrap();
        assert_eq!(all.extent(), (0, 16 * MAX_SEGMENTS as u64 - 8));
        all.relocate(0x1000, &riscv()).unwrap();
        for (segment, address) in all.segments.iter().zip(segments.iter().rev()) {
            assert_eq!(segment.address, address + 0x1000);
            assert_eq!(segment.bytes, 0x1100_u64.to_le_bytes(), "{address:#x}");
        }
        for place in [8, 16 + 4, 1 << 20] {
            let error = program(&segments, &[place]).unwrap().relocate(0, &riscv()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidModule);
            assert!(error.message().contains(&format!("a relocation at {place:#x}")), "{error}");
        }
    }

    #[test]
    fn too_many_segments_are_refused_and_segments_that_overlap() {
        let segments: Vec<u64> = (0..=MAX_SEGMENTS as u64).map(|index| 16 * index).collect();
        for (segments, expected) in [
            (&segments[..], "257 segments; 256 is the most"),
            (&[32, 0, 4], "a segment of 8 bytes at 0x0 overlaps that at 0x4"),
        ] {
            let error = program(segments, &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidModule);
            assert!(error.message().contains(expected), "{error}");
        }
    }
}
