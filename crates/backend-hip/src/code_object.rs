//! Code objects: whether a binary is whole, since the runtime is told where one begins and not how long it is, and what
//! its metadata says of the parameters of kernels.

use std::collections::HashMap;

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use rmpv::ValueRef;
use runtime_core::contract::{ParamInfo, ParamKind};

type Header = FileHeader64<LittleEndian>;
const ENDIAN: LittleEndian = LittleEndian;

/// The first bytes of several code objects in one file.
const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
/// Of a note with metadata: its owner and its type.
const OWNER: &[u8] = b"AMDGPU";
const METADATA: u32 = 32;

/// What a code object says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// What it is for, such as `gfx90a:sramecc+:xnack-`; empty if it does not say.
    pub(crate) target: String,
    /// The parameters of each kernel, by name; those that are not understood are left out.
    kernels: HashMap<String, Vec<ParamInfo>>,
}

impl Metadata {
    pub(crate) fn kernel(&self, name: &str) -> Option<&[ParamInfo]> {
        self.kernels.get(name).map(Vec::as_slice)
    }
}

/// Checks that everything a binary refers to lies inside it, and reads the metadata of the code object in it that is for
/// an architecture: of the first one if none says so, for the runtime decides what it takes.
///
/// # Errors
///
/// What is wrong, in words.
pub(crate) fn read(binary: &[u8], architecture: &str) -> Result<Metadata, String> {
    let mut all = if binary.starts_with(BUNDLE) {
        let entries = entries(binary).ok_or_else(|| {
            format!("the binary refers beyond its end, after {} bytes", binary.len())
        })?;
        let objects = entries.into_iter().filter(|entry| entry.starts_with(&elf::ELFMAG));
        objects.map(read_elf).collect::<Result<Vec<_>, _>>()?
    } else if binary.starts_with(&elf::ELFMAG) {
        vec![read_elf(binary)?]
    } else {
        return Err("the binary is neither a code object nor an uncompressed bundle".to_owned());
    };
    if all.is_empty() {
        return Err("the bundle has no code object".to_owned());
    }
    let is_for = |metadata: &Metadata| processor(&metadata.target) == processor(architecture);
    let at = all.iter().position(is_for).unwrap_or(0);
    Ok(all.swap_remove(at))
}

/// A target without its features: `gfx90a` of `gfx90a:sramecc+:xnack-`.
fn processor(target: &str) -> &str {
    target.split(':').next().unwrap_or_default()
}

/// The contents of a bundle: behind its first bytes their count, and of each where it is, its length, and the length of a
/// name with the name.
fn entries(bundle: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, mut rest) = number(bundle.get(BUNDLE.len()..)?)?;
    let mut found = Vec::new();
    for _ in 0..count {
        let (at, behind) = number(rest)?;
        let (len, behind) = number(behind)?;
        let (name, behind) = number(behind)?;
        rest = behind.get(name..)?;
        found.push(bundle.get(at..at.checked_add(len)?)?);
    }
    Some(found)
}

/// A number at the beginning, and what is behind it.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, behind) = bytes.split_first_chunk::<8>()?;
    Some((usize::try_from(u64::from_le_bytes(*number)).ok()?, behind))
}

/// Checks an ELF file, and reads its metadata.
fn read_elf(file: &[u8]) -> Result<Metadata, String> {
    let cut = || format!("the code object refers beyond its end, after {} bytes", file.len());
    let header = Header::parse(file).map_err(|_| cut())?;
    if header.e_machine(ENDIAN) != elf::EM_AMDGPU {
        return Err(format!("an ELF file for machine {}, not AMDGPU", header.e_machine(ENDIAN)));
    }
    let segments = header.program_headers(ENDIAN, file).map_err(|_| cut())?;
    let sections = header.section_headers(ENDIAN, file).map_err(|_| cut())?;
    let mut notes = Vec::new();
    for segment in segments {
        segment.data(ENDIAN, file).map_err(|()| cut())?;
        notes.extend(segment.notes(ENDIAN, file).map_err(|_| cut())?);
    }
    for section in sections {
        section.data(ENDIAN, file).map_err(|_| cut())?;
        notes.extend(section.notes(ENDIAN, file).map_err(|_| cut())?);
    }
    Ok(notes.into_iter().find_map(metadata).unwrap_or_default())
}

/// The metadata among notes, if it is there and can be read.
fn metadata(mut notes: NoteIterator<'_, Header>) -> Option<Metadata> {
    while let Some(note) = notes.next().ok()? {
        if note.name() == OWNER && note.n_type(ENDIAN) == METADATA {
            let root = rmpv::decode::read_value_ref(&mut note.desc()).ok()?;
            let target = get(&root, "amdhsa.target").and_then(text).unwrap_or_default();
            // What the architecture is of comes first: `amdgcn-amd-amdhsa--`.
            let target = target.rsplit_once("--").map_or(target, |(_, target)| target);
            let kernels = get(&root, "amdhsa.kernels").and_then(list).unwrap_or_default();
            let kernels = kernels.iter().filter_map(kernel).collect();
            return Some(Metadata { target: target.to_owned(), kernels });
        }
    }
    None
}

fn get<'a, 'v>(map: &'a ValueRef<'v>, key: &str) -> Option<&'a ValueRef<'v>> {
    let ValueRef::Map(entries) = map else { return None };
    entries.iter().find(|(name, _)| text(name) == Some(key)).map(|(_, value)| value)
}

fn text<'a>(value: &'a ValueRef<'_>) -> Option<&'a str> {
    if let ValueRef::String(text) = value { text.as_str() } else { None }
}

fn list<'a, 'v>(value: &'a ValueRef<'v>) -> Option<&'a [ValueRef<'v>]> {
    if let ValueRef::Array(list) = value { Some(list) } else { None }
}

/// A kernel's name and parameters.
fn kernel(kernel: &ValueRef<'_>) -> Option<(String, Vec<ParamInfo>)> {
    let name = get(kernel, ".name").and_then(text)?;
    // A kernel without parameters may have no list of them.
    let all = get(kernel, ".args").and_then(list).unwrap_or_default();
    let mut parameters = Vec::new();
    for parameter in all {
        let kind = get(parameter, ".value_kind").and_then(text)?;
        // What the runtime adds comes behind what the kernel declares.
        if !kind.starts_with("hidden_") {
            let size = match get(parameter, ".size")? {
                ValueRef::Integer(size) => usize::try_from(size.as_u64()?).ok()?,
                _ => return None,
            };
            parameters.push(info(kind, size));
        }
    }
    Some((name.to_owned(), parameters))
}

fn info(kind: &str, size: usize) -> ParamInfo {
    let (kind, size) = match kind {
        "by_value" => (ParamKind::Value, Some(size)),
        "global_buffer" => (ParamKind::Memory, None),
        _ => (ParamKind::Unknown, Some(size)),
    };
    ParamInfo { kind, size, dtype: None, access: None }
}
