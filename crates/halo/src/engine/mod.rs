//! Packs, copies and unpacks the fields of one rank.

pub(crate) mod corner;
pub(crate) mod direct;
pub(crate) mod pool;
pub(crate) mod route;
pub(crate) mod stamp;
pub(crate) mod statistics;
