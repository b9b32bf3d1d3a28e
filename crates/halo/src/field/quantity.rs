//! The kind of a quantity: how its components change when the axes change.

use runtime_core::{Error, ErrorKind, Result};

use super::spec::FieldSpec;
use crate::topology::Symmetry;

/// How the components of a quantity change where the axes of two blocks differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One component that is the same in any axes, such as a temperature.
    Scalar,
    /// One component that changes its sign under reflections, such as a vorticity.
    PseudoScalar,
    /// Two components along x and y, which change places and signs with the axes, such as a wind. The third component
    /// of a vector in three dimensions is a separate [`Scalar`](Self::Scalar): its axis, z, is the same on all blocks.
    Vector,
    /// Two components that change places with the axes and keep their signs, such as lengths of cell edges along x and
    /// y.
    UnsignedPair,
    /// Four components xx, xy, yx, yy, which change places and signs like the product of two vectors, such as a stress.
    Tensor,
}

impl Kind {
    /// The number of components.
    pub const fn components(self) -> usize {
        match self {
            Self::Scalar | Self::PseudoScalar => 1,
            Self::Vector | Self::UnsignedPair => 2,
            Self::Tensor => 4,
        }
    }

    /// Returns which of the neighbour's components becomes `component` of the receiver, and whether it is negated.
    /// `symmetry` maps the receiver's axes to the neighbour's.
    pub(crate) fn source(self, component: usize, symmetry: Symmetry) -> (usize, bool) {
        match self {
            Self::Scalar => (0, false),
            Self::PseudoScalar => (0, symmetry.is_reflection()),
            Self::Vector => symmetry.axis(component),
            Self::UnsignedPair => (symmetry.axis(component).0, false),
            Self::Tensor => {
                let (row, row_against) = symmetry.axis(component / 2);
                let (column, column_against) = symmetry.axis(component % 2);
                (2 * row + column, row_against ^ column_against)
            }
        }
    }
}

/// A physical quantity: one field for each component, and their kind.
///
/// A field that is staggered along x or y only cannot be exchanged with itself across an edge that swaps x and y. Its
/// values there belong to a partner that is staggered along the other axis. Describe both together as a
/// [vector](Self::vector), or as an [unsigned pair](Self::unsigned_pair) if they keep their signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    kind: Kind,
    components: Vec<FieldSpec>,
}

impl Quantity {
    /// A quantity of this kind.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number of components is not that of the kind, or if the components differ in element
    /// type or in the extents of dimensions that no axis of the topology divides.
    pub fn new(kind: Kind, components: Vec<FieldSpec>) -> Result<Self> {
        if components.len() != kind.components() {
            let message = format!(
                "{} components for a {kind:?}, which has {}",
                components.len(),
                kind.components()
            );
            return Err(refuse(message));
        }
        let first = &components[0];
        for other in &components[1..] {
            if other.dtype() != first.dtype() {
                return Err(refuse(format!(
                    "field {} has elements of {}, its partner {} of {}",
                    first.name(),
                    first.dtype(),
                    other.name(),
                    other.dtype()
                )));
            }
            if !first.free_extents().eq(other.free_extents()) {
                return Err(refuse(format!(
                    "fields {} and {} differ in dimensions that no axis divides: {:?} and {:?}",
                    first.name(),
                    other.name(),
                    first.free_extents().collect::<Vec<_>>(),
                    other.free_extents().collect::<Vec<_>>()
                )));
            }
        }
        Ok(Self { kind, components })
    }

    /// A scalar.
    pub fn scalar(field: FieldSpec) -> Self {
        Self { kind: Kind::Scalar, components: vec![field] }
    }

    /// A scalar that changes its sign under reflections.
    pub fn pseudo_scalar(field: FieldSpec) -> Self {
        Self { kind: Kind::PseudoScalar, components: vec![field] }
    }

    /// A vector with components along x and y.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn vector(x: FieldSpec, y: FieldSpec) -> Result<Self> {
        Self::new(Kind::Vector, vec![x, y])
    }

    /// Two fields that change places with the axes and keep their signs.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn unsigned_pair(x: FieldSpec, y: FieldSpec) -> Result<Self> {
        Self::new(Kind::UnsignedPair, vec![x, y])
    }

    /// A 2-tensor with components xx, xy, yx, yy.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn tensor(components: [FieldSpec; 4]) -> Result<Self> {
        Self::new(Kind::Tensor, components.into())
    }

    /// The kind of the quantity.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The fields of the quantity.
    pub fn components(&self) -> &[FieldSpec] {
        &self.components
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "quantity", message)
}

#[cfg(test)]
mod tests {
    use runtime_core::DType;

    use super::*;
    use crate::field::spec::Dim;

    #[test]
    fn components_follow_their_axes() {
        let quarter = Symmetry::QUARTER;
        assert_eq!(Kind::Scalar.source(0, quarter), (0, false));
        assert_eq!(Kind::PseudoScalar.source(0, Symmetry::MIRROR_X), (0, true));
        assert_eq!([0, 1].map(|c| Kind::Vector.source(c, quarter)), [(1, false), (0, true)]);
        assert_eq!([0, 1].map(|c| Kind::UnsignedPair.source(c, quarter)), [(1, false), (0, false)]);
        let tensor = [0, 1, 2, 3].map(|c| Kind::Tensor.source(c, quarter));
        assert_eq!(tensor, [(3, false), (2, true), (1, true), (0, false)]);
    }

    #[test]
    fn vector_count_check() {
        let field = |dtype| FieldSpec::new("u", dtype, &[Dim::axis(0, 4)]).unwrap();
        let one = Quantity::new(Kind::Vector, vec![field(DType::F64)]).unwrap_err();
        assert_eq!(one.message(), "1 components for a Vector, which has 2");
        let mixed = Quantity::vector(field(DType::F64), field(DType::I32)).unwrap_err();
        assert_eq!(mixed.kind(), ErrorKind::InvalidArgument);
    }
}
