//! How far a stencil reads a field.

use std::collections::BTreeSet;

use crate::body::{Body, Expr, ExprKind};

/// The offsets at which a stencil reads a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    offsets: BTreeSet<Vec<i64>>,
}

impl Footprint {
    /// That of all these bodies.
    pub(crate) fn of(bodies: &[Body], field: usize, rank: usize) -> Self {
        let mut offsets = BTreeSet::new();
        let mut visitor = |expression: &Expr| {
            if let ExprKind::Read(read, offset) = &expression.kind
                && *read == field
            {
                offsets.insert(offset[..rank].to_vec());
            }
        };
        bodies.iter().for_each(|body| body.visit(&mut visitor));
        Self { offsets }
    }

    /// Each offset, on any path, in order. An offset has a number for each axis.
    pub fn offsets(&self) -> impl Iterator<Item = &[i64]> {
        self.offsets.iter().map(Vec::as_slice)
    }

    /// The least and the greatest offset on an axis; (0, 0) if the field is not read.
    pub fn range(&self, axis: usize) -> (i64, i64) {
        let along = || self.offsets.iter().filter_map(|offset| offset.get(axis).copied());
        (along().min().unwrap_or(0), along().max().unwrap_or(0))
    }

    /// Whether it has an offset along several axes at once, for which ghost cells at corners are needed.
    pub fn has_diagonals(&self) -> bool {
        let moved = |offset: &Vec<i64>| offset.iter().filter(|axis| **axis != 0).count();
        self.offsets.iter().any(|offset| moved(offset) > 1)
    }
}
