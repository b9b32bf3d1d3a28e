//! Imports and exports of arrays: dictionaries and capsules for the descriptions that `interchange` makes.

pub(crate) mod capsule;
mod dictionary;
pub(crate) mod export;
pub(crate) mod import;
