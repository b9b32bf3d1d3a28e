//! Arrays of this package for other libraries, and theirs for this one: dictionaries and capsules of what `interchange` says.

mod capsule;
mod dictionary;
pub(crate) mod export;
pub(crate) mod import;
