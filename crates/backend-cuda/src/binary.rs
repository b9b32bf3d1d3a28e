//! Checks that a binary is complete, because the driver gets its address without its length.

/// The first bytes of an ELF file, and of a fatbin.
const ELF: &[u8] = b"\x7fELF\x02\x01";
const FATBIN: &[u8] = &0xba55_ed50_u32.to_le_bytes();

/// Checks that everything a cubin or fatbin refers to lies inside it.
///
/// # Errors
///
/// A description of the error.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    let end = if bytes.starts_with(ELF) {
        elf_end(bytes)
    } else if bytes.starts_with(FATBIN) {
        fatbin_end(bytes)
    } else {
        return Err("the binary is neither a cubin nor a fatbin".to_owned());
    };
    match end {
        Some(end) if end <= bytes.len() as u64 => Ok(()),
        Some(end) => Err(format!(
            "the binary is truncated: {} bytes, its headers declare {end}",
            bytes.len()
        )),
        None => Err(format!("the binary ends within its headers, after {} bytes", bytes.len())),
    }
}

/// The end of the last header, section or segment of an ELF file.
fn elf_end(bytes: &[u8]) -> Option<u64> {
    /// The number of segments that says that the first section has the number.
    const MANY_SEGMENTS: u64 = 0xffff;
    let first = number(bytes, 40, 8)?;
    let sections = Table {
        at: first,
        stride: number(bytes, 58, 2)?.max(SECTION_BYTES),
        count: match number(bytes, 60, 2)? {
            // More sections than the field can hold, or none.
            0 if first != 0 => number(bytes, first.checked_add(32)?, 8)?,
            count => count,
        },
    };
    let segments = Table {
        at: number(bytes, 32, 8)?,
        stride: number(bytes, 54, 2)?.max(SEGMENT_BYTES),
        count: match number(bytes, 56, 2)? {
            MANY_SEGMENTS if first != 0 => number(bytes, first.checked_add(44)?, 4)?,
            count => count,
        },
    };
    let mut end = segments.end()?.max(sections.end()?);
    if end > bytes.len() as u64 {
        return Some(end);
    }
    for entry in segments.entries() {
        end = end.max(number(bytes, entry + 8, 8)?.checked_add(number(bytes, entry + 32, 8)?)?);
    }
    for entry in sections.entries() {
        /// A section without bytes in the file.
        const NO_BITS: u64 = 8;
        if number(bytes, entry + 4, 4)? != NO_BITS {
            end = end.max(number(bytes, entry + 24, 8)?.checked_add(number(
                bytes,
                entry + 32,
                8,
            )?)?);
        }
    }
    Some(end)
}

/// The sizes of headers.
const SECTION_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;

/// A table of headers.
struct Table {
    at: u64,
    stride: u64,
    count: u64,
}

impl Table {
    fn end(&self) -> Option<u64> {
        self.at.checked_add(self.stride.checked_mul(self.count)?)
    }

    fn entries(&self) -> impl Iterator<Item = u64> {
        (0..self.count).map(|index| self.at + index * self.stride)
    }
}

/// The end of a fatbin's content: the header's length plus the content's length, both as the header states them.
fn fatbin_end(bytes: &[u8]) -> Option<u64> {
    number(bytes, 6, 2)?.checked_add(number(bytes, 8, 8)?)
}

/// The little-endian number of `len` bytes at `at`.
fn number(bytes: &[u8], at: u64, len: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let part = bytes.get(at..at.checked_add(len)?)?;
    Some(part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &mut [u8], at: usize, number: u64, len: usize) {
        bytes[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
    }

    /// An ELF file with a header, one section of 16 bytes at 64, and the section table at 80.
    fn elf() -> Vec<u8> {
        let mut bytes = vec![0; 80 + 64];
        bytes[..6].copy_from_slice(ELF);
        for (at, number, len) in
            [(40, 80, 8), (58, 64, 2), (60, 1, 2), (80 + 24, 64, 8), (80 + 32, 16, 8)]
        {
            put(&mut bytes, at, number, len);
        }
        bytes
    }

    #[test]
    fn whole_binaries_pass() {
        assert_eq!(check(&elf()), Ok(()));
        let mut fatbin = [FATBIN, &[0; 28]].concat();
        put(&mut fatbin, 6, 16, 2);
        put(&mut fatbin, 8, 16, 8);
        assert_eq!(check(&fatbin), Ok(()));
    }

    /// As [`elf`], but the first section has the number of all sections, and of the segments.
    fn extended(sections: u64, segments: u64) -> Vec<u8> {
        let mut bytes = elf();
        for (at, number, len) in [
            (60, 0, 2),
            (80 + 24, 0, 8),
            (80 + 32, sections, 8),
            (56, 0xffff, 2),
            (80 + 44, segments, 4),
        ] {
            put(&mut bytes, at, number, len);
        }
        bytes
    }

    #[test]
    fn numbers_that_the_header_cannot_hold_are_in_the_first_section() {
        assert_eq!(check(&extended(1, 0)), Ok(()));
        assert_eq!(check(&extended(1, 2)), Ok(()));
        for (sections, segments) in
            [(70_000, 0), (1 << 60, 0), (u64::MAX, 0), (2, 0), (1, 70_000), (1, 3)]
        {
            let error = check(&extended(sections, segments));
            assert!(error.is_err(), "{sections} sections, {segments} segments");
        }
        let mut without_a_table = elf();
        put(&mut without_a_table, 40, 0, 8);
        put(&mut without_a_table, 60, 0, 2);
        assert_eq!(check(&without_a_table), Ok(()));
    }

    #[test]
    fn headers_that_claim_no_length_are_as_long_as_headers_are() {
        let mut bytes = elf();
        put(&mut bytes, 58, 0, 2);
        put(&mut bytes, 60, 2, 2);
        assert!(check(&bytes).is_err());
    }

    #[test]
    fn truncated_binaries_and_offsets_beyond_the_end_are_refused() {
        let whole = elf();
        for len in 0..whole.len() {
            assert!(check(&whole[..len]).is_err(), "{len} bytes");
        }
        for (at, number, len) in [
            (40, u64::MAX, 8),
            (40, 1 << 40, 8),
            (60, 2, 2),
            (80 + 24, 200, 8),
            (80 + 32, u64::MAX, 8),
        ] {
            let mut bytes = elf();
            put(&mut bytes, at, number, len);
            assert!(check(&bytes).is_err(), "{number} at {at}");
        }
        let mut fatbin = [FATBIN, &[0; 28]].concat();
        put(&mut fatbin, 6, 16, 2);
        put(&mut fatbin, 8, 17, 8);
        let expected = "the binary is truncated: 32 bytes, its headers declare 33";
        assert_eq!(check(&fatbin), Err(expected.to_owned()));
        assert!(check(b"neither").unwrap_err().contains("neither"));
    }
}
