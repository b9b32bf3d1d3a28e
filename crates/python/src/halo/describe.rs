//! The objects of an exchange: decompositions, fields and quantities.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use runtime::halo::{self, Kind, Link, Side, Symmetry};

use crate::array;
use crate::dtype;
use crate::error::{Failure, Result};

/// A decomposition: the block of cells of each rank, and the neighbours beyond its sides. Every rank makes the same
/// topology.
#[pyclass(frozen, module = "device_runtime.halo")]
pub(crate) struct Topology(pub(super) halo::Topology);

const SYMMETRIES: [(&str, Symmetry); 8] = [
    ("identity", Symmetry::IDENTITY),
    ("quarter", Symmetry::QUARTER),
    ("half", Symmetry::HALF),
    ("three_quarters", Symmetry::THREE_QUARTERS),
    ("mirror_x", Symmetry::MIRROR_X),
    ("mirror_y", Symmetry::MIRROR_Y),
    ("transpose", Symmetry::TRANSPOSE),
    ("antitranspose", Symmetry::ANTITRANSPOSE),
];

/// The names in a table.
fn names<T>(table: &[(&'static str, T)]) -> String {
    table.iter().map(|row| row.0).collect::<Vec<_>>().join(", ")
}

fn symmetry(name: &str) -> Result<Symmetry> {
    let known = SYMMETRIES.iter().find(|known| known.0 == name);
    known.map(|known| known.1).ok_or_else(|| {
        let message = format!("symmetry {name:?}; there are {}", names(&SYMMETRIES));
        Failure::invalid("topology", message)
    })
}

/// A link: a rank, a side of its block as the ends (-1, 0 or 1) along x, y and z, the rank beyond that side, and how
/// the axes of the first rank are oriented in the other's block.
type Beyond = (usize, [i8; 3], usize, String);

/// The side, the rank of the neighbour, and the symmetry.
type Neighbour = ([i8; 3], usize, &'static str);

#[pymethods]
impl Topology {
    /// A box of ``cells`` along one to three axes, divided into ``ranks`` blocks along each axis. ``periodic`` says
    /// which axes are periodic. Ranks are numbered with x fastest.
    #[staticmethod]
    fn cartesian(cells: Vec<usize>, ranks: Vec<usize>, periodic: Vec<bool>) -> Result<Self> {
        Ok(Self(halo::Topology::cartesian(&cells, &ranks, &periodic)?))
    }

    /// The cubed sphere: six tiles of ``cells`` × ``cells`` cells, each divided into ``layout`` = (along y, along x)
    /// blocks.
    #[staticmethod]
    fn cubed_sphere(cells: usize, layout: [usize; 2]) -> Result<Self> {
        Ok(Self(halo::Topology::cubed_sphere(cells, layout)?))
    }

    /// One block of cells along x, y and z for each rank (1 along unused axes), joined by links: (rank, side,
    /// neighbour, symmetry). Each link is given from both of its ends.
    #[staticmethod]
    fn of_blocks(axes: usize, blocks: Vec<[usize; 3]>, links: Vec<Beyond>) -> Result<Self> {
        let link = |(rank, ends, neighbour, name): Beyond| {
            let refuse = || Failure::invalid("topology", format!("{ends:?} is no side"));
            let side = Side::new(ends).ok_or_else(refuse)?;
            Ok(Link { rank, side, neighbour, symmetry: symmetry(&name)? })
        };
        let links = links.into_iter().map(link).collect::<Result<Vec<_>>>()?;
        fn first<const N: usize>(blocks: &[[usize; 3]]) -> Vec<[usize; N]> {
            blocks.iter().map(|block| std::array::from_fn(|axis| block[axis])).collect()
        }
        let made = match axes {
            1 => halo::Topology::of_blocks::<1>(&first(&blocks), &links),
            2 => halo::Topology::of_blocks::<2>(&first(&blocks), &links),
            3 => halo::Topology::of_blocks::<3>(&first(&blocks), &links),
            _ => {
                let message = format!("{axes} axes; there are 1 to 3");
                return Err(Failure::invalid("topology", message));
            }
        };
        Ok(Self(made?))
    }

    /// The number of ranks.
    #[getter]
    fn ranks(&self) -> usize {
        self.0.ranks()
    }

    /// The number of axes.
    #[getter]
    fn axes(&self) -> usize {
        self.0.axes()
    }

    /// The tile of a rank's block, its position in the tile, and its number of cells, along x, y and z.
    fn block(&self, rank: usize) -> Result<(usize, [usize; 3], [usize; 3])> {
        let block = self.0.block(rank)?;
        Ok((block.tile, block.start, block.cells))
    }

    /// The neighbours of a rank's block: the ends of the side along x, y and z, the rank there, and how this rank's
    /// axes are oriented in that block.
    fn neighbours(&self, rank: usize) -> Result<Vec<Neighbour>> {
        let name = |symmetry| {
            SYMMETRIES.iter().find(|known| known.1 == symmetry).map_or("", |known| known.0)
        };
        let neighbours = self.0.neighbours(rank)?.into_iter();
        Ok(neighbours.map(|next| (next.side.ends(), next.rank, name(next.symmetry))).collect())
    }
}

/// One dimension of a field. ``Dim.axis`` makes one along an axis of the topology; ``Dim.free`` makes one that is not
/// divided.
#[pyclass(frozen, from_py_object, module = "device_runtime.halo")]
#[derive(Clone, Copy)]
pub(crate) struct Dim(halo::Dim);

impl Dim {
    /// Checks that indices of the elements fit into a slice.
    fn new(dim: halo::Dim, cells: usize, around: (usize, usize)) -> Result<Self> {
        if isize::try_from(dim.allocation()).is_err() {
            let message = format!(
                "{cells} cells with {around:?} elements around them; a dimension has at most {} elements",
                isize::MAX
            );
            return Err(Failure::invalid("dim", message));
        }
        Ok(Self(dim))
    }
}

#[pymethods]
impl Dim {
    /// A dimension along ``axis`` (0 is x, 1 is y, 2 is z) with the rank's ``cells``. ``halo`` elements below and above
    /// them are exchanged. The same number, or ``allocated``, are in memory. Staggered values are on the points between
    /// cells.
    #[staticmethod]
    #[pyo3(signature = (axis, cells, halo = (0, 0), *, allocated = None, staggered = false))]
    fn axis(
        axis: usize,
        cells: usize,
        halo: (usize, usize),
        allocated: Option<(usize, usize)>,
        staggered: bool,
    ) -> Result<Self> {
        let around = allocated.unwrap_or(halo);
        let dim = halo::Dim::axis(axis, cells).halo(halo.0, halo.1).allocated(around.0, around.1);
        Self::new(if staggered { dim.staggered() } else { dim }, cells, around)
    }

    /// A dimension that the topology does not divide.
    #[staticmethod]
    fn free(extent: usize) -> Result<Self> {
        Self::new(halo::Dim::free(extent), extent, (0, 0))
    }

    /// The slice of the elements that the rank owns.
    #[getter]
    fn owned<'py>(&self, py: Python<'py>) -> Bound<'py, pyo3::types::PySlice> {
        let owned = self.0.owned();
        pyo3::types::PySlice::new(py, owned.start.cast_signed(), owned.end.cast_signed(), 1)
    }
}

/// A field as one rank has it: element type, dimensions in the order of its shape, and strides. The strides are
/// row-major by default. ``order`` gives the dimensions in memory order, slowest first; ``strides`` gives them in
/// bytes.
#[pyclass(frozen, from_py_object, module = "device_runtime.halo")]
#[derive(Clone)]
pub(crate) struct FieldSpec(halo::FieldSpec);

#[pymethods]
impl FieldSpec {
    #[new]
    #[pyo3(signature = (name, dtype, dims, *, order = None, strides = None))]
    fn new(
        name: &str,
        dtype: &Bound<'_, PyAny>,
        dims: Vec<Dim>,
        order: Option<Vec<usize>>,
        strides: Option<Vec<isize>>,
    ) -> Result<Self> {
        let dims: Vec<halo::Dim> = dims.into_iter().map(|dim| dim.0).collect();
        let rows = halo::FieldSpec::new(name, dtype::from_python(dtype)?, &dims)?;
        Ok(Self(match (order, strides) {
            (None, None) => rows,
            (Some(order), None) => rows.ordered(&order)?,
            (None, Some(strides)) => {
                let layout = *rows.layout();
                let layout = array::byte_layout(layout.dtype(), layout.shape(), Some(&strides))?;
                rows.strided(layout.strides())?
            }
            (Some(_), Some(_)) => {
                return Err(Failure::invalid(
                    "field",
                    "an order and strides; one of them is enough",
                ));
            }
        }))
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The number of elements in memory along each dimension, including ghosts.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.layout().shape())
    }

    /// The element type, a ``numpy.dtype``.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype::to_python(py, self.0.dtype())
    }

    /// The slices of the elements that the rank owns: ``array[field.owned]``.
    #[getter]
    fn owned<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.dims().iter().map(|dim| Dim(*dim).owned(py)))
    }
}

const KINDS: [(&str, Kind); 5] = [
    ("scalar", Kind::Scalar),
    ("pseudo_scalar", Kind::PseudoScalar),
    ("vector", Kind::Vector),
    ("unsigned_pair", Kind::UnsignedPair),
    ("tensor", Kind::Tensor),
];

/// A physical quantity: one field for each component, and the kind of quantity, which determines how a rotation changes
/// it. Kinds: scalar, pseudo_scalar, vector (x, y), unsigned_pair (x, y) or tensor (xx, xy, yx, yy).
#[pyclass(frozen, from_py_object, module = "device_runtime.halo")]
#[derive(Clone)]
pub(crate) struct Quantity(pub(super) halo::Quantity);

#[pymethods]
impl Quantity {
    #[new]
    fn new(kind: &str, components: Vec<FieldSpec>) -> Result<Self> {
        let Some((_, kind)) = KINDS.iter().find(|known| known.0 == kind) else {
            let message = format!("kind {kind:?}; there are {}", names(&KINDS));
            return Err(Failure::invalid("quantity", message));
        };
        let components = components.into_iter().map(|component| component.0).collect();
        Ok(Self(halo::Quantity::new(*kind, components)?))
    }

    /// Makes a scalar.
    #[staticmethod]
    fn scalar(field: FieldSpec) -> Self {
        Self(halo::Quantity::scalar(field.0))
    }

    /// Makes a vector with components along x and y.
    #[staticmethod]
    fn vector(x: FieldSpec, y: FieldSpec) -> Result<Self> {
        Ok(Self(halo::Quantity::vector(x.0, y.0)?))
    }
}
