//! Code objects. Checks that a binary is complete, because the runtime gets its address without its length. Reads the
//! parameters of kernels from its metadata.

use std::collections::HashMap;

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use rmpv::ValueRef;
use rmpv::decode::read_value_ref_with_max_depth;
use runtime_core::contract::{ParamInfo, ParamKind};

type Header = FileHeader64<LittleEndian>;
const ENDIAN: LittleEndian = LittleEndian;

/// The first bytes of a file with several code objects.
const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
/// The first bytes of SPIR-V, which the runtime compiles for its device from ROCm 6.4 on.
const SPIRV: [u8; 4] = 0x0723_0203_u32.to_le_bytes();
/// The compiler's name for SPIR-V for any AMD GPU.
const SPIRV_TARGET: &str = "amdgcnspirv";
/// The owner and the type of a note with metadata.
const OWNER: &[u8] = b"AMDGPU";
const METADATA: u32 = 32;
/// The notes of a code object may be this many times as long as its file. A segment and a section may share a note.
const MOST_NOTES: u64 = 2;
/// The maximum nesting depth of values that are read, to limit the use of the stack. Metadata has 6 levels.
const MAX_LEVELS: usize = 32;

/// The metadata of a code object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(unnameable_types, reason = "of the implementation of a trait")]
pub struct Metadata {
    /// The target, such as `gfx90a:sramecc+:xnack-`; empty if the metadata has none.
    pub(crate) target: String,
    /// The parameters of each kernel, by name. Kernels whose parameters cannot be read are left out.
    kernels: HashMap<String, Vec<ParamInfo>>,
}

impl Metadata {
    pub(crate) fn kernel(&self, name: &str) -> Option<&[ParamInfo]> {
        self.kernels.get(name).map(Vec::as_slice)
    }
}

/// Checks that everything that a binary refers to lies inside the binary. Returns the metadata of the code object for
/// `architecture`. If no code object names this architecture, the runtime decides what to load. The metadata then has
/// no kernels if the binary contains SPIR-V, and is otherwise that of the first code object.
///
/// # Errors
///
/// A description of the error.
pub(crate) fn read(binary: &[u8], architecture: &str) -> Result<Metadata, String> {
    if binary.starts_with(&elf::ELFMAG) {
        return read_elf(binary);
    }
    if !binary.starts_with(BUNDLE) {
        return Err("the binary is neither a code object nor an uncompressed bundle".to_owned());
    }
    let entries = entries(binary).ok_or_else(|| {
        format!("the binary refers to data beyond its end at byte {}", binary.len())
    })?;
    // Each entry is scanned, so entries that overlap could make a small file cost much time.
    let bytes = entries.iter().fold(0, |sum: usize, entry| sum.saturating_add(entry.len()));
    if bytes > binary.len() {
        let limit = binary.len();
        return Err(format!("the entries have {bytes} bytes, and the bundle has only {limit}"));
    }
    let objects = entries.iter().filter(|entry| entry.starts_with(&elf::ELFMAG));
    let mut all = objects.map(|object| read_elf(object)).collect::<Result<Vec<_>, _>>()?;
    let is_for = |metadata: &Metadata| processor(&metadata.target) == processor(architecture);
    let at = all.iter().position(is_for);
    if at.is_none() && entries.iter().any(|entry| entry.starts_with(&SPIRV)) {
        return Ok(Metadata { target: SPIRV_TARGET.to_owned(), ..Metadata::default() });
    }
    if all.is_empty() {
        return Err("the bundle has neither a code object nor SPIR-V".to_owned());
    }
    Ok(all.swap_remove(at.unwrap_or(0)))
}

/// A target without its features: `gfx90a` of `gfx90a:sramecc+:xnack-`.
fn processor(target: &str) -> &str {
    target.split(':').next().unwrap_or_default()
}

/// The contents of a bundle. Its first bytes are followed by the number of entries, and for each entry its offset, its
/// length, the length of its name, and the name.
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

/// The number at the beginning, and the remaining bytes.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, behind) = bytes.split_first_chunk::<8>()?;
    Some((usize::try_from(u64::from_le_bytes(*number)).ok()?, behind))
}

/// Checks an ELF file, and reads its metadata.
fn read_elf(file: &[u8]) -> Result<Metadata, String> {
    let cut = || format!("the code object refers to data beyond its end at byte {}", file.len());
    let header = Header::parse(file).map_err(|_| cut())?;
    if header.e_machine(ENDIAN) != elf::EM_AMDGPU {
        return Err(format!("an ELF file for machine {}, not AMDGPU", header.e_machine(ENDIAN)));
    }
    let segments = header.program_headers(ENDIAN, file).map_err(|_| cut())?;
    let sections = header.section_headers(ENDIAN, file).map_err(|_| cut())?;
    let (mut notes, mut bytes) = (Vec::new(), 0_u64);
    for segment in segments {
        segment.data(ENDIAN, file).map_err(|()| cut())?;
        if let Some(note) = segment.notes(ENDIAN, file).map_err(|_| cut())? {
            notes.push(note);
            bytes = bytes.saturating_add(segment.p_filesz(ENDIAN));
        }
    }
    for section in sections {
        section.data(ENDIAN, file).map_err(|_| cut())?;
        // The runtime uses the largest of these offsets as the end of the file, even that of an empty section.
        if section.sh_offset(ENDIAN) > file.len() as u64 {
            return Err(cut());
        }
        if let Some(note) = section.notes(ENDIAN, file).map_err(|_| cut())? {
            notes.push(note);
            bytes = bytes.saturating_add(section.sh_size(ENDIAN));
        }
    }
    // Notes that overlap could make a small file cost much time.
    let limit = MOST_NOTES.saturating_mul(file.len() as u64);
    if bytes > limit {
        return Err(format!(
            "the notes have {bytes} bytes; a file of this length has at most {limit}"
        ));
    }
    Ok(notes.into_iter().find_map(metadata).unwrap_or_default())
}

/// The metadata among notes, if there is any and it can be read.
fn metadata(mut notes: NoteIterator<'_, Header>) -> Option<Metadata> {
    while let Some(note) = notes.next().ok()? {
        if note.name() == OWNER && note.n_type(ENDIAN) == METADATA {
            let root = read_value_ref_with_max_depth(&mut note.desc(), MAX_LEVELS).ok()?;
            let target = get(&root, "amdhsa.target").and_then(text).unwrap_or_default();
            // The target follows a prefix such as `amdgcn-amd-amdhsa--`.
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
        // Parameters that the runtime adds follow those that the kernel declares.
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
    ParamInfo::new(kind).with_size(size)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rmpv::Value;

    use super::*;

    fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
        Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// The metadata of code for a target.
    fn metadata(target: &str) -> Vec<u8> {
        let argument = |kind: &str, size: u32| {
            map([(".value_kind", kind.into()), (".size", size.into()), (".offset", 0.into())])
        };
        let arguments = vec![
            argument("global_buffer", 8),
            argument("by_value", 24),
            argument("image", 8),
            argument("hidden_global_offset_x", 8),
        ];
        let kernels = vec![
            map([(".name", "k".into()), (".args", Value::Array(arguments))]),
            map([(".name", "none".into())]),
            map([(".name", "odd".into()), (".args", vec![Value::Nil].into())]),
        ];
        let root = map([
            ("amdhsa.kernels", Value::Array(kernels)),
            ("amdhsa.target", format!("amdgcn-amd-amdhsa--{target}").into()),
        ]);
        let mut metadata = Vec::new();
        rmpv::encode::write_value(&mut metadata, &root).unwrap();
        metadata
    }

    /// An ELF file with metadata: its header, the section table, and at the end a section with a note. Every truncation
    /// therefore removes something needed.
    fn elf_with(metadata: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [OWNER.len() + 1, metadata.len(), METADATA as usize] {
            note.extend(u32::try_from(number).unwrap().to_le_bytes());
        }
        note.extend(OWNER);
        note.extend([0; 2]);
        note.extend(metadata);
        note.resize(note.len().next_multiple_of(8), 0);

        let mut file = vec![0; 64];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut put = |at: usize, number: usize, len: usize| {
            file[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
        };
        let sections = 64;
        for (at, number, len) in
            [(18, 224, 2), (20, 1, 4), (40, sections, 8), (52, 64, 2), (58, 64, 2), (60, 2, 2)]
        {
            put(at, number, len);
        }
        // The first section is empty; the second has the note.
        file.resize(sections + 2 * 64, 0);
        let mut put = |at: usize, number: usize, len: usize| {
            let at = sections + 64 + at;
            file[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
        };
        put(4, 7, 4);
        put(24, sections + 2 * 64, 8);
        put(32, note.len(), 8);
        put(48, 4, 8);
        file.extend(note);
        file
    }

    fn elf(target: &str) -> Vec<u8> {
        elf_with(&metadata(target))
    }

    fn bundle(objects: &[Vec<u8>]) -> Vec<u8> {
        let mut head = [BUNDLE, &(objects.len() as u64).to_le_bytes()].concat();
        let name = "a name";
        let mut at = head.len() + objects.len() * (24 + name.len());
        for object in objects {
            for number in [at, object.len(), name.len()] {
                head.extend((number as u64).to_le_bytes());
            }
            head.extend(name.as_bytes());
            at += object.len();
        }
        [head, objects.concat()].concat()
    }

    #[test]
    fn parameters_are_those_of_the_metadata() {
        let metadata = read(&elf("gfx90a"), "").unwrap();
        assert_eq!(metadata.target, "gfx90a");
        let parameter = |kind, size| ParamInfo::new(kind).with_size(size);
        let expected = [
            parameter(ParamKind::Memory, None),
            parameter(ParamKind::Value, Some(24)),
            parameter(ParamKind::Unknown, Some(8)),
        ];
        assert_eq!(metadata.kernel("k"), Some(&expected[..]));
        assert_eq!(metadata.kernel("none"), Some(&[][..]));
        assert_eq!(metadata.kernel("odd"), None);
        assert_eq!(metadata.kernel("other"), None);
    }

    #[test]
    fn deeply_nested_metadata_is_refused() {
        let deep = |levels| elf_with(&[vec![0x91; levels], vec![0xc0]].concat());
        let read = move || [100, 1 << 20].map(|levels| read(&deep(levels), "").unwrap());
        let small = std::thread::Builder::new().stack_size(256 << 10).spawn(read).unwrap();
        assert_eq!(small.join().unwrap(), [Metadata::default(), Metadata::default()]);
    }

    /// Every note and every entry is scanned once for each reference to it.
    #[test]
    fn references_to_the_same_bytes_are_limited() {
        const TIMES: u16 = 20_000;
        let times = usize::from(TIMES);
        // A note that is no metadata, so that the next one is read too.
        let mut many = elf_with(&[0xc1; 1 << 20]);
        let table = many.len();
        let note = many[128..192].to_vec();
        many.extend([vec![0; 64], note.repeat(times)].concat());
        many[40..48].copy_from_slice(&(table as u64).to_le_bytes());
        many[60..62].copy_from_slice(&TIMES.to_le_bytes());
        let began = Instant::now();
        let error = read(&many, "").unwrap_err();
        let bytes = (times - 1) * (table - 192);
        assert!(error.contains(&format!("the notes have {bytes} bytes")), "{error}");
        assert!(error.contains(&format!("at most {}", 2 * many.len())), "{error}");

        let object = elf("gfx1030");
        let head = BUNDLE.len() + 8 + times * 24;
        let mut same = [BUNDLE, &u64::from(TIMES).to_le_bytes()].concat();
        for _ in 0..TIMES {
            same.extend(
                [head, object.len(), 0].map(|number| (number as u64).to_le_bytes()).concat(),
            );
        }
        same.extend(&object);
        let error = read(&same, "").unwrap_err();
        assert!(error.contains(&format!("have {} bytes", times * object.len())), "{error}");
        assert!(error.contains(&format!("only {}", same.len())), "{error}");
        assert!(began.elapsed() < Duration::from_secs(1));
    }

    #[test]
    fn the_code_object_of_the_device_is_read_from_a_bundle() {
        let bundle = bundle(&[Vec::new(), elf("gfx1030"), elf("gfx90a:sramecc+")]);
        let target = |architecture| read(&bundle, architecture).unwrap().target;
        assert_eq!(target("gfx90a:sramecc+:xnack-"), "gfx90a:sramecc+");
        assert_eq!(target("gfx1030"), "gfx1030");
        assert_eq!(target("gfx942"), "gfx1030");
    }

    #[test]
    fn a_bundle_with_spirv_has_no_metadata_unless_a_code_object_matches_the_device() {
        let spirv = [&SPIRV[..], &[0; 16]].concat();
        let host = Vec::new();
        let read = |objects: &[Vec<u8>]| read(&bundle(objects), "gfx90a:xnack-").unwrap();
        let alone = read(&[host.clone(), spirv.clone()]);
        assert_eq!((alone.target.as_str(), alone.kernel("k")), (SPIRV_TARGET, None));
        assert_eq!(read(&[host.clone(), elf("gfx1030"), spirv.clone()]), alone);
        assert_eq!(read(&[host, spirv, elf("gfx90a")]).target, "gfx90a");
    }

    #[test]
    fn truncated_code_objects_are_refused() {
        for whole in [elf("gfx90a"), bundle(&[elf("gfx90a")])] {
            read(&whole, "").unwrap();
            for len in 0..whole.len() {
                assert!(read(&whole[..len], "").is_err(), "{len} bytes of {}", whole.len());
            }
        }
        assert!(read(b"text", "").unwrap_err().contains("neither"));
        assert!(read(&bundle(&[]), "").unwrap_err().contains("neither a code object nor SPIR-V"));
        let mut empty = elf("gfx90a");
        // The second section has no bytes in the file, and its offset is far beyond the end.
        empty[128 + 4..128 + 8].copy_from_slice(&elf::SHT_NOBITS.to_le_bytes());
        read(&empty, "").unwrap();
        empty[128 + 24..128 + 32].copy_from_slice(&(1_u64 << 32).to_le_bytes());
        assert!(read(&empty, "").unwrap_err().contains("beyond its end"));
        let mut other = elf("gfx90a");
        other[18] = 62;
        assert!(read(&other, "").unwrap_err().contains("machine 62"));
    }
}
