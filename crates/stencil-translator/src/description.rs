//! What is known of a translated stencil, for the texts that are made of it.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;

use crate::bodies::Bodies;
use crate::body::{Body, Expr, ExprKind, Offset};
use crate::footprint::Footprint;
use crate::syntax::{Column, Intent, Reduction};
use crate::value::Type;

#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) name: Ident,
    pub(crate) is_inexact: bool,
    pub(crate) reduction: Option<Reduction>,
    pub(crate) column: Option<Column>,
    pub(crate) rank: usize,
    pub(crate) fields: Vec<Field>,
    pub(crate) scalars: Vec<Scalar>,
    pub(crate) bodies: Bodies,
    /// The parameters and variables that the source never reads.
    pub(crate) unused: Vec<Ident>,
    /// The types that the source names, with their tokens.
    pub(crate) asserted: Vec<(Type, TokenStream)>,
}

/// A field parameter.
#[derive(Debug)]
pub struct Field {
    pub(crate) ident: Ident,
    pub(crate) name: String,
    pub(crate) intent: Intent,
    pub(crate) element: Type,
    pub(crate) footprint: Footprint,
    /// The footprints of a point that is the first of a column or not, and the last or not.
    pub(crate) at_ends: [[Footprint; 2]; 2],
}

impl Field {
    /// Its name, without `r#`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name, with its place.
    pub fn ident(&self) -> &Ident {
        &self.ident
    }

    /// What the stencil does with it.
    pub fn intent(&self) -> Intent {
        self.intent
    }

    /// The type of its elements.
    pub fn element(&self) -> Type {
        self.element
    }

    /// Where it is read. What a column has set at the previous point does not count.
    pub fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    /// Where it is read by a point that is the first of a column or not, and the last or not.
    pub fn footprint_at(&self, [is_first, is_last]: [bool; 2]) -> &Footprint {
        &self.at_ends[usize::from(is_first)][usize::from(is_last)]
    }
}

/// A scalar parameter.
#[derive(Debug)]
pub struct Scalar {
    pub(crate) ident: Ident,
    pub(crate) name: String,
    pub(crate) ty: Type,
}

impl Scalar {
    /// Its name, without `r#`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name, with its place.
    pub fn ident(&self) -> &Ident {
        &self.ident
    }

    /// Its type. A `bool` is passed as a `u32`, which is 0 or 1.
    pub fn ty(&self) -> Type {
        self.ty
    }
}

/// A member of the struct of arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name in the struct.
    pub name: String,
    /// Its type, never `bool`.
    pub ty: Type,
    /// The number of elements, if it is an array.
    pub length: Option<usize>,
}

impl Description {
    /// Its name, without `r#`.
    pub(crate) fn name(&self) -> String {
        self.name.unraw().to_string()
    }

    /// The members of the struct of arguments. Larger types come first, so that there are no gaps between them.
    pub(crate) fn members(&self) -> Vec<Member> {
        let integers = |name: String, length| Member { name, ty: Type::I64, length };
        let mut members = Vec::new();
        for Field { name, .. } in &self.fields {
            members.push(integers(format!("{name}_first"), None));
            if self.rank > 1 {
                members.push(integers(format!("{name}_strides"), Some(self.rank - 1)));
            }
        }
        for name in ["extents", "first", "grid"] {
            members.push(integers(name.into(), Some(self.rank)));
        }
        for size in [8, 4] {
            for scalar in self.scalars.iter().filter(|scalar| scalar.ty.size() == size) {
                let ty = if scalar.ty == Type::Bool { Type::U32 } else { scalar.ty };
                members.push(Member { name: format!("{}_value", scalar.name), ty, length: None });
            }
        }
        if self.scalars.iter().filter(|scalar| scalar.ty.size() == 4).count() % 2 == 1 {
            members.push(Member { name: "pad".into(), ty: Type::U32, length: None });
        }
        members
    }

    /// The offset of the previous point, if it is a column.
    pub(crate) fn previous(&self) -> Offset {
        let mut offset = [0; 3];
        if let Some(Column { direction, axis, .. }) = self.column {
            offset[axis] = direction.previous();
        }
        offset
    }

    /// The outputs that a column reads at the previous point, in a body or in any.
    pub(crate) fn carried<'a>(&self, body: impl Into<Option<&'a Body>>) -> BTreeSet<usize> {
        let mut fields = BTreeSet::new();
        let mut visitor = |expression: &Expr| {
            if let ExprKind::Previous(field) = &expression.kind {
                fields.insert(*field);
            }
        };
        match body.into() {
            Some(body) => body.visit(&mut visitor),
            None => self.bodies.visit(&mut visitor),
        }
        fields
    }

    pub(crate) fn outputs(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.intent.is_output())
    }
}
