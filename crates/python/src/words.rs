//! Names in errors as Python has them.

use runtime::DType;

use crate::dtype;

/// Names of the Rust interface, and what a Python program uses instead.
const NAMES: [(&str, &str); 4] = [
    ("Event::wait", "Event.synchronize"),
    ("MemoryViewMut::with_layout and FieldSpec::layout", "FieldSpec.shape"),
    ("plan_regions", "copy()"),
    ("strides [", "element strides ["),
];

/// The text of an error with Python's names of methods and element types.
pub(crate) fn of_python(text: &str) -> String {
    let mut text = text.to_owned();
    for (rust, python) in NAMES {
        if text.contains(rust) {
            text = text.replace(rust, python);
        }
    }
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.push_str(&of_word(word));
        let end = after.find(is_part).unwrap_or(after.len());
        out.push_str(&after[..end]);
        rest = &after[end..];
    }
    out
}

/// A type of elements, or `Class::method`.
fn of_word(word: &str) -> String {
    let bare = word.trim_end_matches(':');
    if let Some(known) = DType::ALL.into_iter().find(|known| known.to_string() == bare) {
        return format!("{}{}", dtype::name(known), &word[bare.len()..]);
    }
    match bare.split_once("::") {
        Some((class, method))
            if class.starts_with(|c: char| c.is_ascii_uppercase())
                && method.chars().all(|c| c.is_ascii_lowercase() || c == '_') =>
        {
            format!("{class}.{method}{}", &word[bare.len()..])
        }
        _ => word.to_owned(),
    }
}
