//! What is known of a stencil.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use runtime_core::{DType, ImageFormat};

use crate::hash::hash_of_text;

/// A parameter of a stencil that it reads, at any offsets: a field of `T` over `N` axes. This type only marks the
/// parameter; the stencil is called with a [`Field`](crate::Field).
#[derive(Debug)]
pub struct In<T, const N: usize>(PhantomData<T>);

/// A parameter of a stencil that it sets, and does not read; a column may read what it has set at the previous point.
/// See [`In`].
#[derive(Debug)]
pub struct Out<T, const N: usize>(PhantomData<T>);

/// A parameter of a stencil that it reads at the point itself, and sets there; a column may also read what it has set at
/// the previous point. See [`In`].
#[derive(Debug)]
pub struct InOut<T, const N: usize>(PhantomData<T>);

/// What a stencil does with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// It reads the field at any offsets.
    In,
    /// It sets the field, and does not read the values from before.
    Out,
    /// It reads the field at the point itself, and sets it there.
    InOut,
}

/// The format of a stencil's text in C99, for [`Stencil::source`].
pub const C: ImageFormat = ImageFormat::Other("C");

/// The description of a stencil. The attribute [`stencil`](macro@crate::stencil) makes it: for a stencil `diffuse` it
/// is `diffuse::STENCIL`.
pub struct Stencil {
    parts: Parts,
    /// Differs for stencils with other bodies.
    hash: u64,
}

/// The parts of a description.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "for generated code")]
pub struct Parts {
    pub name: &'static str,
    pub kernel: &'static str,
    pub is_inexact: bool,
    pub rank: usize,
    pub fields: &'static [FieldParts],
    /// The name and the size in bytes of each scalar.
    pub scalars: &'static [(&'static str, usize)],
    pub sources: &'static [Source],
    pub column: Option<ColumnParts>,
    /// The function over rows, for any processor and then for higher levels: on x86-64 for v3 and v4.
    pub rows: &'static [Rows],
}

/// A field parameter.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "for generated code")]
pub struct FieldParts {
    pub name: &'static str,
    pub intent: Intent,
    pub dtype: DType,
    /// For each axis, the least and the greatest offset.
    pub reach: [[i64; 2]; 3],
    pub has_diagonals: bool,
    pub is_read: bool,
}

impl FieldParts {
    /// The name of a field that is passed for this parameter, in messages.
    pub(crate) fn called(&self, field: &str) -> String {
        match self.name {
            name if name == field => format!("field {field}"),
            name => format!("field {field} (parameter {name})"),
        }
    }
}

/// How a column goes through a grid.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "for generated code")]
pub struct ColumnParts {
    pub axis: usize,
    pub is_forward: bool,
    /// Whether it computes ghosts, the first from the last own point.
    pub ghosts: bool,
    pub reach: &'static [EndReach],
}

/// How far a field is read along the axis of a column, if it is read: by a point that is the first or not, and the last
/// or not.
pub type EndReach = [[Option<[i64; 2]>; 2]; 2];

/// The text of a stencil in one format.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "for generated code")]
pub struct Source {
    pub format: ImageFormat,
    pub text: &'static str,
    pub options: &'static [&'static str],
}

/// Computes rows of a box, as `stencil-translator` numbers them. It takes the struct of arguments, a pointer to the first
/// element of each field, and the numbers of the rows.
pub type Rows = unsafe fn(*const u64, &[*mut u8], Range<usize>);

impl Stencil {
    pub(crate) const fn of(parts: Parts) -> Self {
        let hash = match parts.sources {
            [first, ..] => hash_of_text(first.text),
            [] => 0,
        };
        Self { parts, hash }
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.parts.name
    }

    /// What the attribute made of its function.
    pub(crate) fn kind(&self) -> &'static str {
        if self.parts.column.is_some() { "column" } else { "stencil" }
    }

    /// Whether it gives up that all devices compute the same bits.
    pub fn is_inexact(&self) -> bool {
        self.parts.is_inexact
    }

    /// Its text for a device that takes this format: OpenCL C, CUDA C, HIP C, or [`C`]; for ELF, the C text of which a
    /// program for embedded devices is [compiled](crate::Grid::add_image). `None` for other formats.
    pub fn source(&self, format: ImageFormat) -> Option<&'static str> {
        let source = self.parts.sources.iter().find(|source| source.format == format)?;
        Some(source.text)
    }

    /// For each axis, the least and the greatest offset at which it reads a field. `None` if it has no such field.
    pub fn reach(&self, field: &str) -> Option<&'static [[i64; 2]]> {
        let field = self.parts.fields.iter().find(|known| known.name == field)?;
        Some(&field.reach[..self.parts.rank])
    }
}

impl fmt::Debug for Stencil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stencil({})", self.parts.name)
    }
}
