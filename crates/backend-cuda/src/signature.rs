//! The parameters of kernels as PTX declares them.

use std::collections::HashMap;

use runtime_core::DType;
use runtime_core::contract::{ParamInfo, ParamKind};

/// The parameters of each kernel of a program, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(unnameable_types, reason = "of the implementation of a trait")]
pub struct Signatures(HashMap<String, Vec<ParamInfo>>);

impl Signatures {
    /// Reads the kernels' heads in a PTX text. Kernels whose heads cannot be read are left out.
    pub(crate) fn of(ptx: &str) -> Self {
        let text = code(ptx);
        let kernel = |head: &str| {
            let name =
                head.split(|c: char| c.is_whitespace() || c == '(').find(|w| !w.is_empty())?;
            let rest = head.split_once(name)?.1.trim_start();
            let parameters = match rest.strip_prefix('(') {
                Some(rest) => rest.split_once(')')?.0,
                None => "",
            };
            let list = parameters.split(',').map(str::trim).filter(|p| !p.is_empty());
            Some((name.to_owned(), list.map(parameter).collect::<Option<_>>()?))
        };
        Self(text.split(".entry").skip(1).filter_map(kernel).collect())
    }

    pub(crate) fn get(&self, kernel: &str) -> Option<&[ParamInfo]> {
        self.0.get(kernel).map(Vec::as_slice)
    }

    /// Names the existing kernels, for an error about a missing kernel.
    pub(crate) fn instead_of(&self, kernel: &str) -> String {
        const MOST: usize = 8;
        // The C++ name of a function that is not `extern "C"`: the length of the name, the name, and then the
        // parameters.
        let part = format!("{}{kernel}", kernel.len());
        let is_mangled = |name: &&String| name.starts_with("_Z") && name.contains(&part);
        if let Some(name) = self.0.keys().filter(is_mangled).min() {
            return format!("it has {name:?}: declare it extern \"C\"");
        }
        let mut names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        let more = if names.len() > MOST { ", …" } else { "" };
        names.truncate(MOST);
        match names.as_slice() {
            [] => "it has none".to_owned(),
            names => format!("it has {}{more}", names.join(", ")),
        }
    }
}

/// A declaration such as `.param .u64 .ptr .global .align 4 name` or `.param .align 8 .b8 name[24]`.
fn parameter(text: &str) -> Option<ParamInfo> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (kind, size) = words.iter().find_map(|word| element(word))?;
    if let Some((_, length)) = text.split_once('[') {
        // Structures are arrays of bytes.
        let length: usize = integer(length.split(']').next()?.trim())?;
        let size = Some(size.checked_mul(length)?);
        return Some(ParamInfo::new(ParamKind::Value).with_size(size));
    }
    let dtype = match kind {
        "f32" => Some(DType::F32),
        "f64" => Some(DType::F64),
        _ => None,
    };
    let kind = match size {
        _ if words.contains(&".ptr") => ParamKind::Memory,
        // A pointer is a 64-bit number, unless the compiler declares more.
        8 if dtype.is_none() => ParamKind::Unknown,
        _ => ParamKind::Value,
    };
    let size = (kind != ParamKind::Memory).then_some(size);
    Some(ParamInfo::new(kind).with_size(size).with_dtype(dtype))
}

/// The name and size of an elementary type such as `.u32`.
fn element(word: &str) -> Option<(&str, usize)> {
    let name = word.strip_prefix('.')?;
    let bits: usize = name.strip_prefix(['u', 's', 'b', 'f'])?.parse().ok()?;
    matches!(bits, 8 | 16 | 32 | 64).then_some((name, bits / 8))
}

/// A number of a PTX text: decimal, hexadecimal, octal or binary.
fn integer(text: &str) -> Option<usize> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    usize::from_str_radix(digits, radix).ok()
}

/// The text without comments and strings. A string ends with its line at the latest.
fn code(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['/', '"']) {
        let (before, from) = rest.split_at(at);
        left.push_str(before);
        left.push(' ');
        rest = if let Some(comment) = from.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, rest)| rest)
        } else if from.starts_with("//") {
            from.find('\n').map_or("", |end| &from[end..])
        } else if let Some(string) = from.strip_prefix('"') {
            let mut escaped = false;
            let end = string.find(|c| {
                let ends = c == '\n' || c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            end.map_or("", |end| string[end..].strip_prefix('"').unwrap_or(&string[end..]))
        } else {
            &from[1..]
        };
    }
    left + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
.version 8.0 // .entry not this one
.target sm_60
/* .entry nor
   this */
.visible .entry saxpy(
	.param .u64 saxpy_param_0,
	.param .u64 .ptr .global .align 4 saxpy_param_1,
	.param .f32 saxpy_param_2,
	.param .u32 saxpy_param_3,
	.param .align 8 .b8 saxpy_param_4[24]
)
.maxntid 256, 1, 1
{ ret; }
.entry nothing() { ret; }
.entry bare { ret; }
.entry odd(.param .v4 .what x) { ret; }
";

    #[test]
    fn parameters_are_read_from_the_heads_of_kernels() {
        let all = Signatures::of(PTX);
        let info = |kind, size, dtype| ParamInfo::new(kind).with_size(size).with_dtype(dtype);
        let expected = [
            info(ParamKind::Unknown, Some(8), None),
            info(ParamKind::Memory, None, None),
            info(ParamKind::Value, Some(4), Some(DType::F32)),
            info(ParamKind::Value, Some(4), None),
            info(ParamKind::Value, Some(24), None),
        ];
        assert_eq!(all.get("saxpy"), Some(&expected[..]));
        assert_eq!(all.get("nothing"), Some(&[][..]));
        assert_eq!(all.get("bare"), Some(&[][..]));
    }

    #[test]
    fn strings_and_comments_are_no_code() {
        let kernels = |ptx: &str| Signatures::of(ptx).instead_of("");
        for text in [
            r#".file 1 "/tmp/a/*b""#,
            r#".file 2 "x/.entry k(.param .u32 a)""#,
            r#".file 3 "a\"//.entry b" // "#,
            r#".file 4 "no end"#,
            r#"/* " */ "#,
            r#"// " /* "#,
        ] {
            let ptx = format!("{text}\n.entry real() {{ ret; }}");
            assert_eq!(kernels(&ptx), "it has real", "{text}");
        }
        assert_eq!(
            kernels(".entry a/**/() { ret; } .entry b() { ret; } /* .entry c"),
            "it has a, b"
        );
    }

    #[test]
    fn lengths_are_numbers_of_any_radix() {
        let size = |length: &str| {
            let ptx = format!(".entry k(.param .align 8 .b8 x[{length}]) {{ ret; }}");
            Signatures::of(&ptx).get("k").and_then(|all| all[0].size)
        };
        for length in ["24", "24U", "0x18", "0X18U", "030", "0b11000"] {
            assert_eq!(size(length), Some(24), "{length}");
        }
        assert_eq!(size("0"), Some(0));
        for length in ["", "0x", "x", "24 5", "0x10000000000000000"] {
            assert_eq!(size(length), None, "{length}");
        }
    }

    #[test]
    fn the_error_lists_the_available_kernels() {
        let of = |names: &[&str]| {
            let ptx: String =
                names.iter().map(|name| format!(".entry {name}() {{ ret; }}\n")).collect();
            Signatures::of(&ptx)
        };
        assert_eq!(of(&[]).instead_of("k"), "it has none");
        assert_eq!(of(&["b", "_Z1lv", "a"]).instead_of("k"), "it has _Z1lv, a, b");
        let mangled = r#"it has "_Z1kPi": declare it extern "C""#;
        assert_eq!(of(&["a", "_Z1kPi"]).instead_of("k"), mangled);
        let many = of(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
        assert_eq!(many.instead_of("k"), "it has a, b, c, d, e, f, g, h, …");
    }

    #[test]
    fn unsupported_declarations_are_unknown() {
        assert_eq!(Signatures::of(PTX).get("odd"), None);
        assert_eq!(Signatures::of(".entry k(.param .u32").get("k"), None);
        assert_eq!(Signatures::of(".entry").get(""), None);
        assert_eq!(Signatures::of("/* no end").get("k"), None);
        let large = ".entry k(.param .align 8 .b64 x[4611686018427387904]) { ret; }";
        assert_eq!(Signatures::of(large).get("k"), None);
    }
}
