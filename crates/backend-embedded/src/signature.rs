//! Parses the declarations of `KERNEL` in `kernel.h`: the parameters of a kernel as C text.

use runtime_core::DType;
use runtime_core::contract::{ParamAccess, ParamInfo, ParamKind};

/// Returns the name and the parameters of a declaration such as `saxpy(float *y, const float *x, float a, uint32_t n)`.
/// A pointer to a type that is not an element type stands for memory of any element type. An array is a pointer.
///
/// # Errors
///
/// A description of what is wrong with the text.
pub(crate) fn parse(text: &str) -> Result<(String, Vec<ParamInfo>), String> {
    let (name, rest) = text.split_once('(').ok_or("it has no parameters")?;
    let list = rest.trim_end().strip_suffix(')').ok_or("the closing parenthesis is missing")?;
    let texts = list.split(',').map(str::trim);
    let parameters = match list.trim() {
        "" | "void" => Vec::new(),
        _ => texts.map(parameter).collect::<Result<_, _>>()?,
    };
    Ok((name.trim().to_owned(), parameters))
}

fn parameter(text: &str) -> Result<ParamInfo, String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let pointee = match text.split_once('[') {
        // C passes an array as a pointer to its elements.
        Some((element, _)) => Some(element.trim_end().trim_end_matches(is_of_name)),
        None => text.rsplit_once('*').map(|(pointee, _name)| pointee),
    };
    if let Some(pointee) = pointee {
        let words = pointee.split_whitespace();
        // In `const float **rows`, the rows are constant, and not the pointers to them.
        let outermost = pointee.rsplit('*').next().unwrap_or(pointee);
        let access = if outermost.split_whitespace().any(|word| word == "const") {
            ParamAccess::Read
        } else {
            ParamAccess::Write
        };
        let words: Vec<&str> = words.filter(|word| !["const", "volatile"].contains(word)).collect();
        let dtype = element(&words);
        return Ok(ParamInfo::new(ParamKind::Memory).with_dtype(dtype).with_access(access));
    }
    let mut words: Vec<&str> = text.split_whitespace().filter(|word| *word != "const").collect();
    words.pop();
    let dtype = element(&words).filter(|dtype| !matches!(dtype, DType::C64 | DType::C128));
    let dtype = dtype.ok_or_else(|| {
        format!("parameter {text:?} is neither a pointer nor a number of stdint.h, float, double or bool")
    })?;
    Ok(ParamInfo::new(ParamKind::Value).with_size(dtype.size()).with_dtype(dtype))
}

fn element(words: &[&str]) -> Option<DType> {
    Some(match words {
        ["bool" | "_Bool"] => DType::Bool,
        ["int8_t"] => DType::I8,
        ["uint8_t"] => DType::U8,
        ["int16_t"] => DType::I16,
        ["uint16_t"] => DType::U16,
        ["int32_t"] => DType::I32,
        ["uint32_t"] => DType::U32,
        ["int64_t"] => DType::I64,
        ["uint64_t"] => DType::U64,
        ["float"] => DType::F32,
        ["double"] => DType::F64,
        ["float", "_Complex" | "complex"] => DType::C64,
        ["double", "_Complex" | "complex"] => DType::C128,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_become_parameters() {
        let text = "saxpy(float *y, const float * restrict x, struct cell *cells, const double a, uint32_t n)";
        let (name, parameters) = parse(text).unwrap();
        assert_eq!(name, "saxpy");
        let reported: Vec<_> = parameters.iter().map(|p| (p.kind, p.dtype, p.access)).collect();
        let memory = ParamKind::Memory;
        assert_eq!(
            reported,
            [
                (memory, Some(DType::F32), Some(ParamAccess::Write)),
                (memory, Some(DType::F32), Some(ParamAccess::Read)),
                (memory, None, Some(ParamAccess::Write)),
                (ParamKind::Value, Some(DType::F64), None),
                (ParamKind::Value, Some(DType::U32), None),
            ]
        );
        assert!(parse("nothing()").unwrap().1.is_empty());
    }

    #[test]
    fn memory_is_read_only_if_its_own_elements_are_constant() {
        for (text, access) in [
            ("const float **rows", ParamAccess::Write),
            ("const float *rows[]", ParamAccess::Write),
            ("float *const *rows", ParamAccess::Read),
            ("const float *const rows[4]", ParamAccess::Read),
            ("float const *x", ParamAccess::Read),
            ("float *const x", ParamAccess::Write),
        ] {
            let (_, parameters) = parse(&format!("k({text})")).unwrap();
            assert_eq!(parameters[0].access, Some(access), "{text}");
        }
    }

    #[test]
    fn arrays_are_pointers() {
        for (array, pointer) in [
            ("float x[]", "float *x"),
            ("const uint8_t mask [static 4]", "const uint8_t *mask"),
            ("double grid[restrict][4]", "double *restrict grid"),
            ("struct cell cells[8]", "struct cell *cells"),
            ("float *rows[]", "float **rows"),
        ] {
            let parameters = |text| {
                let (_, parameters) = parse(&format!("k({text}, uint32_t n)")).unwrap();
                parameters.iter().map(|p| (p.kind, p.dtype, p.access)).collect::<Vec<_>>()
            };
            assert_eq!(parameters(array), parameters(pointer), "{array}");
            assert_eq!(parameters(array)[0].0, ParamKind::Memory, "{array}");
        }
    }

    #[test]
    fn parameters_that_fit_no_register_are_refused() {
        for text in [
            "k",
            "k(float a",
            "k(struct cell c)",
            "k(size_t n)",
            "k(float _Complex z)",
            "k(float a,)",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
