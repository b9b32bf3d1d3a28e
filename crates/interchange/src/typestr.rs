//! NumPy's names of element types, which three protocols share.

use std::borrow::Cow;

use runtime_core::{DType, Error, ErrorKind, Result};

/// The native byte order, as protocols write it.
const NATIVE: char = if cfg!(target_endian = "little") { '<' } else { '>' };

macro_rules! ordered {
    ($name:literal) => {
        if cfg!(target_endian = "little") { concat!("<", $name) } else { concat!(">", $name) }
    };
}

/// The name of an element type.
///
/// # Errors
///
/// `InvalidArgument` for `bf16` and records, which have no name.
pub(crate) fn typestr(dtype: DType, protocol: &'static str) -> Result<Cow<'static, str>> {
    Ok(Cow::Borrowed(match dtype {
        DType::Bool => "|b1",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I16 => ordered!("i2"),
        DType::I32 => ordered!("i4"),
        DType::I64 => ordered!("i8"),
        DType::U16 => ordered!("u2"),
        DType::U32 => ordered!("u4"),
        DType::U64 => ordered!("u8"),
        DType::F16 => ordered!("f2"),
        DType::F32 => ordered!("f4"),
        DType::F64 => ordered!("f8"),
        DType::C64 => ordered!("c8"),
        DType::C128 => ordered!("c16"),
        DType::BF16 => {
            let message = "bf16 has no typestr; DLPack has it";
            return Err(Error::new(ErrorKind::InvalidArgument, protocol, message));
        }
        DType::Record(_) => return Err(no_records(dtype, protocol)),
    }))
}

/// The error for elements that are records: protocols hand over numbers.
pub(crate) fn no_records(dtype: DType, protocol: &'static str) -> Error {
    let message = format!("elements of {dtype}, a record; hand over its bytes as `u8`");
    Error::new(ErrorKind::InvalidArgument, protocol, message)
}

/// Parses the name of an element type. The byte order may be `=`. It may be missing or `|` only if `loose` is set, or
/// for elements of one byte.
///
/// # Errors
///
/// `InvalidArgument` for another byte order, and for unsupported element types.
pub(crate) fn parse(text: &str, loose: bool, protocol: &'static str) -> Result<DType> {
    let refuse = |why: &str| {
        let message = format!("typestr {text:?}: {why}");
        Error::new(ErrorKind::InvalidArgument, protocol, message)
    };
    let order = text.chars().next().filter(|c| matches!(c, '<' | '>' | '=' | '|'));
    let name = &text[order.map_or(0, char::len_utf8)..];
    let dtype = match name {
        "b1" => DType::Bool,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "c8" => DType::C64,
        "c16" => DType::C128,
        _ => return Err(refuse("no element type of this runtime")),
    };
    match order {
        Some('=') => Ok(dtype),
        Some(order) if order == NATIVE => Ok(dtype),
        Some('<' | '>') if dtype.size() > 1 => Err(refuse("not the byte order of this machine")),
        Some('<' | '>') => Ok(dtype),
        _ if loose || (order.is_some() && dtype.size() == 1) => Ok(dtype),
        _ => Err(refuse("no byte order")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for dtype in DType::ALL {
            match typestr(dtype, "test") {
                Ok(name) => assert_eq!(parse(&name, false, "test").unwrap(), dtype),
                Err(error) => assert!(dtype == DType::BF16, "{error}"),
            }
        }
    }

    #[test]
    fn byte_orders_are_those_of_the_protocol() {
        for (text, strict, loose) in [
            ("=f8", true, true),
            ("|f8", false, true),
            ("f8", false, true),
            ("|b1", true, true),
            ("b1", false, true),
            ("<u1", true, true),
            (">u1", true, true),
            ("<M8", false, false),
            ("|V8", false, false),
            ("<f16", false, false),
            ("", false, false),
            ("<", false, false),
            ("é8", false, false),
        ] {
            assert_eq!(parse(text, false, "test").is_ok(), strict, "{text}");
            assert_eq!(parse(text, true, "test").is_ok(), loose, "{text}");
        }
        let foreign = if cfg!(target_endian = "little") { ">f8" } else { "<f8" };
        assert!(parse(foreign, true, "test").is_err());
    }
}
