//! The metadata of code objects about their kernels.

use std::collections::HashMap;

use cpp_demangle::Symbol;
use rmpv::Value;
use stand_in::ptx::{Entry, Module};

use crate::device::WAVEFRONT;

/// Whether each parameter is a pointer, by names of kernels.
///
/// PTX does not distinguish pointers from numbers, but mangled names do. So the same kernels are also compiled with C++
/// linkage, which puts the types into the names.
#[derive(Debug, Default)]
pub(crate) struct Pointers(HashMap<String, Vec<bool>>);

impl Pointers {
    pub(crate) fn of(mangled: &Module) -> Self {
        let mut kernels = HashMap::new();
        for entry in mangled.entries() {
            let Some(text) = Symbol::new(entry).ok().and_then(|symbol| symbol.demangle().ok())
            else {
                continue;
            };
            if let Some((name, types)) = signature(&text) {
                let pointers: Vec<bool> = types.iter().map(|name| name.ends_with('*')).collect();
                kernels.insert(entry.to_owned(), pointers.clone());
                kernels.insert(name.to_owned(), pointers);
            }
        }
        Self(kernels)
    }
}

/// The name and the types of the parameters of a demangled function such as `f(float*, g<int, 2>)`.
fn signature(text: &str) -> Option<(&str, Vec<&str>)> {
    let inner = text.strip_suffix(')')?;
    let mut depth = 0_u32;
    let mut ends = vec![inner.len()];
    for (at, letter) in inner.char_indices().rev() {
        match letter {
            ')' | '>' | ']' | '}' => depth += 1,
            '(' if depth == 0 => {
                ends.push(at);
                let types = ends.windows(2).rev().map(|ends| inner[ends[1] + 1..ends[0]].trim());
                let types = types.filter(|name| !name.is_empty() && *name != "void").collect();
                return Some((&inner[..at], types));
            }
            '(' | '<' | '[' | '{' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => ends.push(at),
            _ => {}
        }
    }
    None
}

/// The hidden parameters after those that a kernel declares, in code objects of version 5.
const HIDDEN: [(&str, usize); 13] = [
    ("hidden_block_count_x", 4),
    ("hidden_block_count_y", 4),
    ("hidden_block_count_z", 4),
    ("hidden_group_size_x", 2),
    ("hidden_group_size_y", 2),
    ("hidden_group_size_z", 2),
    ("hidden_remainder_x", 2),
    ("hidden_remainder_y", 2),
    ("hidden_remainder_z", 2),
    ("hidden_global_offset_x", 8),
    ("hidden_global_offset_y", 8),
    ("hidden_global_offset_z", 8),
    ("hidden_grid_dims", 2),
];

/// The metadata of a program in MessagePack.
///
/// # Errors
///
/// A message that names the kernel whose parameters are not known.
pub(crate) fn write(
    program: &Module,
    pointers: &Pointers,
    architecture: &str,
) -> Result<Vec<u8>, String> {
    let mut names: Vec<&str> = program.entries().collect();
    names.sort_unstable();
    let mut kernels = Vec::new();
    for name in names {
        if let Some(entry) = program.entry(name) {
            let pointers = pointers.0.get(name).filter(|p| p.len() == entry.params().len());
            let pointers =
                pointers.ok_or_else(|| format!("the types of parameters of '{name}'"))?;
            kernels.push(kernel(name, entry, pointers));
        }
    }
    let root = map([
        ("amdhsa.version", Value::Array(vec![1.into(), 2.into()])),
        ("amdhsa.target", format!("amdgcn-amd-amdhsa--{architecture}").into()),
        ("amdhsa.kernels", Value::Array(kernels)),
    ]);
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &root).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn kernel(name: &str, entry: &Entry, pointers: &[bool]) -> Value {
    let mut end = 0;
    let mut parameters = Vec::new();
    for (param, is_pointer) in entry.params().iter().zip(pointers) {
        let kind = if *is_pointer { "global_buffer" } else { "by_value" };
        let mut parameter = vec![
            (".offset", param.offset.into()),
            (".size", param.size.into()),
            (".value_kind", kind.into()),
        ];
        parameter.extend(is_pointer.then_some((".address_space", "global".into())));
        parameters.push(map(parameter));
        end = param.offset + param.size;
    }
    end = end.next_multiple_of(8);
    for (kind, size) in HIDDEN {
        end = end.next_multiple_of(size);
        parameters.push(map([
            (".offset", end.into()),
            (".size", size.into()),
            (".value_kind", kind.into()),
        ]));
        end += size;
    }
    map([
        (".name", name.into()),
        (".symbol", format!("{name}.kd").into()),
        (".args", Value::Array(parameters)),
        (".kernarg_segment_align", 8.into()),
        (".kernarg_segment_size", end.next_multiple_of(8).into()),
        (".group_segment_fixed_size", entry.static_shared().into()),
        (".private_segment_fixed_size", 0.into()),
        (".max_flat_workgroup_size", entry.max_threads().into()),
        (".wavefront_size", WAVEFRONT.into()),
        (".sgpr_count", 32.into()),
        (".vgpr_count", 32.into()),
    ])
}

fn map(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_parameters_are_found_in_a_signature() {
        let cases: [(&str, &str, &[&str]); 5] = [
            ("f()", "f", &[]),
            ("saxpy(float*, float const*, int)", "saxpy", &["float*", "float const*", "int"]),
            ("void g<int, (E)2>(h<int, 2>, x*)", "void g<int, (E)2>", &["h<int, 2>", "x*"]),
            ("f(void (*)(int, int), long)", "f", &["void (*)(int, int)", "long"]),
            ("n::f(int (&) [3])", "n::f", &["int (&) [3]"]),
        ];
        for (text, name, types) in cases {
            assert_eq!(signature(text), Some((name, types.to_vec())));
        }
        assert_eq!(signature("variable"), None);
    }
}
