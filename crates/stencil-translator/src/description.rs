//! What is known of a translated stencil, for the texts that are made of it.

use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;

use crate::body::Body;
use crate::footprint::Footprint;
use crate::syntax::{Intent, Reduction};
use crate::value::Type;

#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) name: Ident,
    pub(crate) is_inexact: bool,
    pub(crate) reduction: Option<Reduction>,
    pub(crate) rank: usize,
    pub(crate) fields: Vec<Field>,
    pub(crate) scalars: Vec<Scalar>,
    pub(crate) body: Body,
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

    /// Where it is read.
    pub fn footprint(&self) -> &Footprint {
        &self.footprint
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

    pub(crate) fn outputs(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.intent.is_output())
    }
}
