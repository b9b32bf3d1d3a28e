//! The objects of an exchange: decompositions, fields and quantities.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PySlice, PyTuple};
use runtime::halo::{self, Kind, Link, Side, Symmetry};

use super::recipe::Recipe;
use crate::array;
use crate::dtype;
use crate::error::{Failure, Result};

/// A decomposition: the block of cells of each rank, and the neighbours beyond its sides. Every rank makes the same
/// topology.
#[pyclass(frozen, weakref, module = "device_runtime.halo")]
pub(crate) struct Topology(pub(super) halo::Topology, Recipe);

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

/// A number of cells, ranks or elements.
pub(super) struct Count(pub(super) usize);

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyInt>() && given.lt(0)? {
            return Err(Failure::invalid("count", format!("{} is negative", given.str()?)).into());
        }
        given.extract().map(Self)
    }
}

fn plain(counts: Vec<Count>) -> Vec<usize> {
    counts.into_iter().map(|count| count.0).collect()
}

/// The numbers of elements below and above: two, or one for both.
struct Around(usize, usize);

impl<'py> FromPyObject<'_, 'py> for Around {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyInt>() {
            let Count(both) = given.extract()?;
            return Ok(Self(both, both));
        }
        let (Count(below), Count(above)) = given.extract()?;
        Ok(Self(below, above))
    }
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
    fn cartesian(
        py: Python<'_>,
        cells: Vec<Count>,
        ranks: Vec<Count>,
        periodic: Vec<bool>,
    ) -> Result<Self> {
        let (cells, ranks) = (plain(cells), plain(ranks));
        let made = halo::Topology::cartesian(&cells, &ranks, &periodic)?;
        let call =
            (PyTuple::new(py, cells)?, PyTuple::new(py, ranks)?, PyTuple::new(py, periodic)?);
        Ok(Self(made, Recipe::new("Topology", Some("cartesian"), call, &[], py)?))
    }

    /// The cubed sphere: six tiles of ``cells`` × ``cells`` cells, each divided into ``layout`` = (along y, along x)
    /// blocks, as NDSL has it. ``cartesian`` has x first.
    #[staticmethod]
    fn cubed_sphere(py: Python<'_>, cells: Count, layout: [Count; 2]) -> Result<Self> {
        let layout = layout.map(|count| count.0);
        let made = halo::Topology::cubed_sphere(cells.0, layout)?;
        let call = (cells.0, PyTuple::new(py, layout)?);
        Ok(Self(made, Recipe::new("Topology", Some("cubed_sphere"), call, &[], py)?))
    }

    /// One block of cells along x, y and z for each rank (1 along unused axes), joined by links: (rank, side,
    /// neighbour, symmetry). Each link is given from both of its ends.
    #[staticmethod]
    fn of_blocks(
        py: Python<'_>,
        axes: Count,
        blocks: Vec<[Count; 3]>,
        links: Vec<Beyond>,
    ) -> Result<Self> {
        let axes = axes.0;
        let blocks: Vec<[usize; 3]> =
            blocks.into_iter().map(|block| block.map(|count| count.0)).collect();
        let call = (axes, blocks.clone(), links.clone());
        let recipe = Recipe::new("Topology", Some("of_blocks"), call, &[], py)?;
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
        Ok(Self(made?, recipe))
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
    fn block(&self, rank: Count) -> Result<(usize, [usize; 3], [usize; 3])> {
        let block = self.0.block(rank.0)?;
        Ok((block.tile, block.start, block.cells))
    }

    /// The neighbours of a rank's block: the ends of the side along x, y and z, the rank there, and how this rank's
    /// axes are oriented in that block.
    fn neighbours(&self, rank: Count) -> Result<Vec<Neighbour>> {
        let name = |symmetry| {
            SYMMETRIES.iter().find(|known| known.1 == symmetry).map_or("", |known| known.0)
        };
        let neighbours = self.0.neighbours(rank.0)?.into_iter();
        Ok(neighbours.map(|next| (next.side.ends(), next.rank, name(next.symmetry))).collect())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.1.repr(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.1.reduce(py)
    }
}

/// One dimension of a field. ``Dim.axis`` makes one along an axis of the topology; ``Dim.free`` makes one that is not
/// divided.
#[pyclass(frozen, weakref, from_py_object, module = "device_runtime.halo")]
#[derive(Clone)]
pub(crate) struct Dim(halo::Dim, Recipe);

impl Dim {
    /// Checks that indices of the elements fit into a slice.
    fn check(dim: &halo::Dim, cells: usize, around: (usize, usize)) -> Result<()> {
        if isize::try_from(dim.allocation()).is_err() {
            let message = format!(
                "{cells} cells with {around:?} elements around them; a dimension has at most {} elements",
                isize::MAX
            );
            return Err(Failure::invalid("dim", message));
        }
        Ok(())
    }
}

/// The slice of the elements that the rank owns along a dimension.
fn owned<'py>(py: Python<'py>, dim: &halo::Dim) -> Bound<'py, PySlice> {
    let owned = dim.owned();
    PySlice::new(py, owned.start.cast_signed(), owned.end.cast_signed(), 1)
}

#[pymethods]
impl Dim {
    /// A dimension along ``axis`` (0 is x, 1 is y, 2 is z) with the rank's ``cells``. ``halo`` elements below and above
    /// them are exchanged; one number means as many on both sides. The same number, or ``allocated``, are in memory.
    /// Staggered values are on the points between cells.
    #[staticmethod]
    #[pyo3(signature = (axis, cells, halo = Around(0, 0), *, allocated = None, staggered = false),
        text_signature = "(axis, cells, halo=(0, 0), *, allocated=None, staggered=False)")]
    fn axis(
        py: Python<'_>,
        axis: Count,
        cells: Count,
        halo: Around,
        allocated: Option<Around>,
        staggered: bool,
    ) -> Result<Self> {
        let (Count(axis), Count(cells), Around(low, high)) = (axis, cells, halo);
        let allocated = allocated.map(|around| (around.0, around.1));
        let around = allocated.unwrap_or((low, high));
        let dim = halo::Dim::axis(axis, cells).halo(low, high).allocated(around.0, around.1);
        let dim = if staggered { dim.staggered() } else { dim };
        Self::check(&dim, cells, around)?;
        let allocated = allocated.map(|around| around.into_pyobject(py)).transpose()?;
        let staggered = staggered.then(|| PyBool::new(py, true).to_owned().into_any());
        let keywords = [("allocated", allocated.map(Bound::into_any)), ("staggered", staggered)];
        let call = (axis, cells, (low, high));
        Ok(Self(dim, Recipe::new("Dim", Some("axis"), call, &keywords, py)?))
    }

    /// A dimension that the topology does not divide.
    #[staticmethod]
    fn free(py: Python<'_>, extent: Count) -> Result<Self> {
        let dim = halo::Dim::free(extent.0);
        Self::check(&dim, extent.0, (0, 0))?;
        Ok(Self(dim, Recipe::new("Dim", Some("free"), (extent.0,), &[], py)?))
    }

    /// The slice of the elements that the rank owns.
    #[getter]
    fn owned<'py>(&self, py: Python<'py>) -> Bound<'py, PySlice> {
        owned(py, &self.0)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.1.repr(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.1.reduce(py)
    }
}

/// A field as one rank has it: element type, dimensions in the order of its shape, and strides. The strides are
/// row-major by default. ``order`` gives the dimensions in memory order, slowest first; ``strides`` gives them in
/// bytes.
#[pyclass(frozen, weakref, from_py_object, module = "device_runtime.halo")]
#[derive(Clone)]
pub(crate) struct FieldSpec(halo::FieldSpec, Recipe);

#[pymethods]
impl FieldSpec {
    #[new]
    #[pyo3(signature = (name, dtype, dims, *, order = None, strides = None))]
    fn new(
        py: Python<'_>,
        name: &str,
        dtype: &Bound<'_, PyAny>,
        dims: Vec<Dim>,
        order: Option<Vec<Count>>,
        strides: Option<Vec<isize>>,
    ) -> Result<Self> {
        let (of, order) = (dtype::from_python(dtype)?, order.map(plain));
        let call = (name, dtype::name(of), PyTuple::new(py, dims.clone())?);
        let in_order = order.as_ref().map(|dims| PyTuple::new(py, dims)).transpose()?;
        let in_bytes = strides.as_ref().map(|strides| PyTuple::new(py, strides)).transpose()?;
        let keywords =
            [("order", in_order.map(Bound::into_any)), ("strides", in_bytes.map(Bound::into_any))];
        let recipe = Recipe::new("FieldSpec", None, call, &keywords, py)?;
        let dims: Vec<halo::Dim> = dims.into_iter().map(|dim| dim.0).collect();
        let rows = halo::FieldSpec::new(name, of, &dims)?;
        let spec = match (order, strides) {
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
        };
        Ok(Self(spec, recipe))
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
        PyTuple::new(py, self.0.dims().iter().map(|dim| owned(py, dim)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.1.repr(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.1.reduce(py)
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
#[pyclass(frozen, weakref, from_py_object, module = "device_runtime.halo")]
#[derive(Clone)]
pub(crate) struct Quantity(pub(super) halo::Quantity, Recipe);

#[pymethods]
impl Quantity {
    #[new]
    fn new(py: Python<'_>, kind: &str, components: Vec<FieldSpec>) -> Result<Self> {
        let Some((name, kind)) = KINDS.iter().find(|known| known.0 == kind) else {
            let message = format!("kind {kind:?}; there are {}", names(&KINDS));
            return Err(Failure::invalid("quantity", message));
        };
        let call = (*name, PyTuple::new(py, components.clone())?);
        let recipe = Recipe::new("Quantity", None, call, &[], py)?;
        let components = components.into_iter().map(|component| component.0).collect();
        Ok(Self(halo::Quantity::new(*kind, components)?, recipe))
    }

    /// Makes a scalar.
    #[staticmethod]
    fn scalar(py: Python<'_>, field: FieldSpec) -> Result<Self> {
        let recipe = Recipe::new("Quantity", Some("scalar"), (field.clone(),), &[], py)?;
        Ok(Self(halo::Quantity::scalar(field.0), recipe))
    }

    /// Makes a vector with components along x and y.
    #[staticmethod]
    fn vector(py: Python<'_>, x: FieldSpec, y: FieldSpec) -> Result<Self> {
        let recipe = Recipe::new("Quantity", Some("vector"), (x.clone(), y.clone()), &[], py)?;
        Ok(Self(halo::Quantity::vector(x.0, y.0)?, recipe))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.1.repr(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.1.reduce(py)
    }
}
