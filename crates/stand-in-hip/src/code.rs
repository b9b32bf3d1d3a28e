//! Code objects: ELF files as AMD's compiler writes them, with PTX in place of machine code.

use std::str;

use object::elf::{EM_AMDGPU, ET_DYN, FileHeader64, PF_R, PT_NOTE, SHT_NOTE, SHT_PROGBITS};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::write::StringId;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Writer};
use object::{Endianness, LittleEndian};
use stand_in::abi::In;
use stand_in::{Code, Result};

/// The architecture of every device.
pub(crate) const ARCHITECTURE: &str = "gfx1030";

/// The architectures for which programs can be compiled, and their numbers in code objects.
const ARCHITECTURES: &[(&str, u32)] = &[
    ("gfx900", 0x2c),
    ("gfx906", 0x2f),
    ("gfx908", 0x30),
    ("gfx90a", 0x3f),
    ("gfx940", 0x40),
    ("gfx942", 0x4c),
    ("gfx1030", 0x36),
    ("gfx1100", 0x41),
];

type Header = FileHeader64<LittleEndian>;
const ENDIAN: LittleEndian = LittleEndian;
const HEAD: usize = size_of::<Header>();

/// Code objects of version 5 for the HSA runtime.
const OS_ABI: u8 = 64;
const ABI_VERSION: u8 = 3;
/// The bits of the flags with the architecture.
const MACHINE: u32 = 0xff;

const TEXT: &[u8] = b".stand_in.ptx";
/// The type of the note with metadata, and its owner with a NUL and padding.
const METADATA: u32 = 32;
const OWNER: &[u8; 8] = b"AMDGPU\0\0";

const MAGIC: &[u8] = b"\x7fELF";
/// The starts of files with several code objects: plain and compressed.
const BUNDLES: [&[u8]; 2] = [b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"];

/// The number of an architecture. Features after its name are ignored.
pub(crate) fn machine(architecture: &str) -> Option<u32> {
    let name = architecture.split(':').next()?;
    ARCHITECTURES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// A code object with metadata and the text of a program.
///
/// # Errors
///
/// A message.
pub(crate) fn write(machine: u32, metadata: &[u8], ptx: &str) -> Result<Vec<u8>, String> {
    let note = note(metadata)?;
    let mut file = Vec::new();
    let mut writer = Writer::new(Endianness::Little, true, &mut file);
    writer.reserve_null_section_index();
    writer.reserve_section_index();
    let note_name = writer.add_section_name(b".note");
    writer.reserve_section_index();
    let text_name = writer.add_section_name(TEXT);
    writer.reserve_shstrtab_section_index();
    writer.reserve_file_header();
    writer.reserve_program_headers(1);
    let note_at = writer.reserve(note.len(), 4) as u64;
    let text_at = writer.reserve(ptx.len(), 1) as u64;
    writer.reserve_shstrtab();
    writer.reserve_section_headers();
    let header = FileHeader {
        os_abi: OS_ABI,
        abi_version: ABI_VERSION,
        e_type: ET_DYN,
        e_machine: EM_AMDGPU,
        e_entry: 0,
        e_flags: machine,
    };
    writer.write_file_header(&header).map_err(|error| error.to_string())?;
    writer.write_align_program_headers();
    let note_len = note.len() as u64;
    writer.write_program_header(&ProgramHeader {
        p_type: PT_NOTE,
        p_flags: PF_R,
        p_offset: note_at,
        p_vaddr: note_at,
        p_paddr: note_at,
        p_filesz: note_len,
        p_memsz: note_len,
        p_align: 4,
    });
    writer.write_align(4);
    writer.write(&note);
    writer.write(ptx.as_bytes());
    writer.write_shstrtab();
    writer.write_null_section_header();
    writer.write_section_header(&section(note_name, SHT_NOTE, note_at, note_len, 4));
    writer.write_section_header(&section(text_name, SHT_PROGBITS, text_at, ptx.len() as u64, 1));
    writer.write_shstrtab_section_header();
    Ok(file)
}

fn note(metadata: &[u8]) -> Result<Vec<u8>, String> {
    let len = u32::try_from(metadata.len()).map_err(|_| "too many kernels".to_owned())?;
    let head = [7, len, METADATA].map(u32::to_le_bytes);
    let mut note = [head.as_flattened(), OWNER, metadata].concat();
    note.resize(note.len().next_multiple_of(4), 0);
    Ok(note)
}

fn section(name: StringId, kind: u32, at: u64, len: u64, align: u64) -> SectionHeader {
    SectionHeader {
        name: Some(name),
        sh_type: kind,
        sh_flags: 0,
        sh_addr: 0,
        sh_offset: at,
        sh_size: len,
        sh_link: 0,
        sh_info: 0,
        sh_addralign: align,
        sh_entsize: 0,
    }
}

/// The text of the program in an image. The headers of the image say where it ends.
///
/// # Errors
///
/// [`Code::NO_BINARY_FOR_GPU`] for code of another architecture, real machine code included, and
/// [`Code::INVALID_IMAGE`] for anything else.
pub(crate) fn read(image: In<u8>) -> Result<String> {
    for bundle in BUNDLES {
        if starts_with(image, bundle)? {
            return Err(Code::NO_BINARY_FOR_GPU);
        }
    }
    if !starts_with(image, MAGIC)? {
        return Err(Code::INVALID_IMAGE);
    }
    let head = image.take(HEAD)?;
    let len = length(&head).ok_or(Code::INVALID_IMAGE)?;
    program(&image.take(len)?)
}

/// The length of an ELF file, from its header: the table of sections comes last.
fn length(head: &[u8]) -> Option<usize> {
    let header = Header::parse(head).ok()?;
    let (count, size) = (header.e_shnum.get(ENDIAN), header.e_shentsize.get(ENDIAN));
    let end = header.e_shoff.get(ENDIAN).checked_add(u64::from(count) * u64::from(size))?;
    usize::try_from(end).ok().filter(|len| *len >= head.len())
}

/// The text of the program in an ELF file.
fn program(file: &[u8]) -> Result<String> {
    let invalid = |_| Code::INVALID_IMAGE;
    let header = Header::parse(file).map_err(invalid)?;
    if header.e_machine(ENDIAN) != EM_AMDGPU {
        return Err(Code::INVALID_IMAGE);
    }
    if Some(header.e_flags(ENDIAN) & MACHINE) != machine(ARCHITECTURE) {
        return Err(Code::NO_BINARY_FOR_GPU);
    }
    let sections = header.sections(ENDIAN, file).map_err(invalid)?;
    let (_, text) = sections.section_by_name(ENDIAN, TEXT).ok_or(Code::NO_BINARY_FOR_GPU)?;
    let text = text.data(ENDIAN, file).map_err(invalid)?;
    Ok(str::from_utf8(text).map_err(|_| Code::INVALID_IMAGE)?.to_owned())
}

/// Whether an image starts with these bytes. Nothing after the first difference is read.
fn starts_with(image: In<u8>, magic: &[u8]) -> Result<bool> {
    for (index, byte) in magic.iter().enumerate() {
        if image.at(index)? != *byte {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "passes a pointer as a caller of the runtime does")]
    use super::*;

    fn image(bytes: &[u8]) -> In<u8> {
        // SAFETY: the type has the layout of a pointer; the bytes outlive the call, and readers stop inside them.
        unsafe { std::mem::transmute(bytes.as_ptr()) }
    }

    #[test]
    fn the_program_of_a_code_object_can_be_read() {
        let number = machine("gfx1030:xnack-").unwrap();
        for ptx in ["", "some text"] {
            let file = write(number, b"metadata", ptx).unwrap();
            assert_eq!(read(image(&file)).as_deref(), Ok(ptx));
        }
    }

    #[test]
    fn other_images_are_refused() {
        let file = |architecture| write(machine(architecture).unwrap(), b"", "text").unwrap();
        assert_eq!(read(image(&file("gfx90a"))), Err(Code::NO_BINARY_FOR_GPU));
        let mut real = file(ARCHITECTURE);
        let name = real.windows(TEXT.len()).position(|name| name == TEXT).unwrap();
        real[name + 1] = b'x';
        assert_eq!(read(image(&real)), Err(Code::NO_BINARY_FOR_GPU));
        let mut host = file(ARCHITECTURE);
        host[18] = 62;
        assert_eq!(read(image(&host)), Err(Code::INVALID_IMAGE));
        assert_eq!(read(image(BUNDLES[0])), Err(Code::NO_BINARY_FOR_GPU));
        assert_eq!(read(image(b"n")), Err(Code::INVALID_IMAGE));
        assert_eq!(machine("gfx0"), None);
    }
}
