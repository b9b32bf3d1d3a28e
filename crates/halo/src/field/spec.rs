//! The description of a field: element type, dimensions and memory layout.

use runtime_core::{DType, Device, Error, ErrorKind, Layout, MAX_RANK, Result};

use crate::topology::symmetry::AXES;

/// One dimension of a field: the elements that the rank owns, and the ghosts around them.
///
/// ```
/// use halo::Dim;
///
/// // 64 cells along x, halos of 3, and an allocation padded by one more element at the end.
/// let x = Dim::axis(0, 64).halo(3, 3).allocated(3, 4);
/// assert_eq!(x.allocation(), 71);
/// // The 33 points between 32 cells along y. The outer points are shared with the neighbours.
/// let y = Dim::axis(1, 32).staggered().halo(2, 1);
/// assert_eq!(y.owned(), 2..35);
/// let levels = Dim::free(79);
/// # let _ = levels;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    axis: Option<usize>,
    cells: usize,
    staggered: bool,
    halo: [usize; 2],
    around: Option<[usize; 2]>,
}

impl Dim {
    /// A dimension along axis `axis` of the topology (0 is x, 1 is y, 2 is z) with `cells` cells on this rank.
    pub const fn axis(axis: usize, cells: usize) -> Self {
        Self { axis: Some(axis), cells, staggered: false, halo: [0; 2], around: None }
    }

    /// A dimension that the topology does not divide, such as levels or species. Its whole extent is exchanged.
    pub const fn free(extent: usize) -> Self {
        Self { axis: None, cells: extent, staggered: false, halo: [0; 2], around: None }
    }

    /// Sets how many elements are exchanged below and above the owned elements.
    #[must_use]
    pub const fn halo(mut self, below: usize, above: usize) -> Self {
        self.halo = [below, above];
        self
    }

    /// Sets how many elements are allocated below and above the owned elements. The default is the width of the halo.
    #[must_use]
    pub const fn allocated(mut self, below: usize, above: usize) -> Self {
        self.around = Some([below, above]);
        self
    }

    /// Pads the allocation of the fastest dimension for elements of `dtype`, so that kernels of the device can take any
    /// row without a copy. It allocates at least as many elements as before. Each row, and the owned part of each row,
    /// starts at a multiple of [`Limits::argument_alignment`](runtime_core::Limits::argument_alignment). This changes
    /// nothing on devices that accept any address. Call it last.
    ///
    /// ```
    /// # use halo::Dim;
    /// # use runtime_core::{DType, Device};
    /// # fn rows(device: &Device) {
    /// // On a device with an alignment of 128 bytes: 16 elements below, 64, and 16 above.
    /// let x = Dim::axis(0, 64).halo(3, 3).aligned(device, DType::F64);
    /// # }
    /// ```
    #[must_use]
    pub fn aligned(self, device: &Device, dtype: DType) -> Self {
        // The fewest elements with a multiple of the alignment, which is a power of two.
        let alignment = device.info().limits.argument_alignment.get();
        let elements = alignment >> alignment.trailing_zeros().min(dtype.size().trailing_zeros());
        let [below, above] = self.around();
        let up = |count: usize| count.checked_next_multiple_of(elements).unwrap_or(usize::MAX);
        let below = up(below);
        let end = below.saturating_add(self.points()).saturating_add(above);
        self.allocated(below, above.saturating_add(up(end) - end))
    }

    /// Places the values on the points between cells: there is one more point than cells. Neighbours share the point
    /// between them, which is not exchanged.
    #[must_use]
    pub const fn staggered(mut self) -> Self {
        self.staggered = true;
        self
    }

    /// The indices of the owned elements.
    pub const fn owned(&self) -> std::ops::Range<usize> {
        let start = self.below();
        start..start.saturating_add(self.points())
    }

    /// The number of elements in memory.
    pub const fn allocation(&self) -> usize {
        let around = self.around();
        around[0].saturating_add(self.points()).saturating_add(around[1])
    }

    /// The axis of the topology along which the dimension runs, if any.
    pub const fn along(&self) -> Option<usize> {
        self.axis
    }

    /// Whether values are on the points between cells.
    pub const fn is_staggered(&self) -> bool {
        self.staggered
    }

    /// Halo widths below and above.
    pub const fn widths(&self) -> [usize; 2] {
        self.halo
    }

    pub(crate) const fn cells(&self) -> usize {
        self.cells
    }

    /// The number of elements in memory below the owned elements.
    pub(crate) const fn below(&self) -> usize {
        self.around()[0]
    }

    /// The number of owned elements.
    pub(crate) const fn points(&self) -> usize {
        self.cells.saturating_add(self.staggered as usize)
    }

    const fn around(&self) -> [usize; 2] {
        match self.around {
            Some(around) => around,
            None => self.halo,
        }
    }

    fn check(&self) -> Result<(), String> {
        let around = self.around();
        let fits =
            [around[0], around[1], 1].iter().try_fold(self.cells, |sum, n| sum.checked_add(*n));
        if fits.is_none_or(|sum| isize::try_from(sum).is_err()) {
            return Err(format!("{} cells with {around:?} around them", self.cells));
        }
        if self.halo[0] > around[0] || self.halo[1] > around[1] {
            return Err(format!(
                "a halo of {:?}, but {around:?} elements around those owned",
                self.halo
            ));
        }
        match self.axis {
            Some(axis) if axis >= AXES => {
                Err(format!("axis {axis}; a topology has at most {AXES}"))
            }
            None if self.staggered || self.halo != [0; 2] => {
                Err("a halo or staggering, but no axis of the topology".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The description of a field on one rank: element type, dimensions in the order of its shape, and strides.
///
/// Dimensions may be in any order. Strides may have any sign and any padding. The descriptions on different ranks may
/// differ only in the numbers of cells, in what is allocated around them, and in the strides. The strides must have the
/// same order on all ranks.
///
/// ```
/// use halo::{Dim, FieldSpec};
/// use runtime_core::DType;
///
/// let dims = [Dim::axis(1, 8).halo(1, 1), Dim::axis(0, 6).halo(1, 1)];
/// let rows = FieldSpec::new("temperature", DType::F64, &dims)?; // x runs fastest
/// assert_eq!(rows.layout().shape(), [10, 8]);
/// let columns = rows.clone().ordered(&[1, 0])?; // y runs fastest
/// assert_eq!(columns.layout().strides(), [1, 10]);
/// # Ok::<(), halo::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    name: String,
    dims: Vec<Dim>,
    layout: Layout,
}

impl FieldSpec {
    /// A field in row-major order: the last dimension runs fastest.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for more than [`MAX_RANK`] dimensions, for an axis that occurs twice or does not exist, for a
    /// halo wider than its allocation, or for an allocation beyond `isize` bytes.
    pub fn new(name: impl Into<String>, dtype: DType, dims: &[Dim]) -> Result<Self> {
        let name = name.into();
        for (index, dim) in dims.iter().enumerate() {
            dim.check().map_err(|why| refuse(&name, format!("dimension {index} has {why}")))?;
            let again = |other: &Dim| dim.axis.is_some() && other.axis == dim.axis;
            if dims[..index].iter().any(again) {
                return Err(refuse(
                    &name,
                    format!("dimension {index} is along an axis that another has"),
                ));
            }
        }
        let layout =
            Layout::contiguous(dtype, &shape(dims)).map_err(|e| refuse(&name, e.message()))?;
        Ok(Self { name, dims: dims.to_vec(), layout })
    }

    /// Returns the same field with its dimensions in this order in memory, the slowest first, without gaps.
    ///
    /// Fortran order is the reverse order of all dimensions. Views of such a field have its [layout](Self::layout):
    ///
    /// ```
    /// # use backend_host::HostDevice;
    /// # use halo::{Dim, FieldSpec, HaloTransformer, Quantity, Topology};
    /// # use runtime_core::{DType, Device};
    /// # let device = Device::new(HostDevice::new(0))?;
    /// # let stream = device.default_stream();
    /// // real(8) :: f(0:3, 0:4). The rank owns f(1:2, 1:3).
    /// let dims = [Dim::axis(0, 2).halo(1, 1), Dim::axis(1, 3).halo(1, 1)];
    /// let spec = FieldSpec::new("f", DType::F64, &dims)?.ordered(&[1, 0])?;
    /// assert_eq!((spec.layout().shape(), spec.layout().strides()), (&[4, 5][..], &[1, 4][..]));
    ///
    /// let topology = Topology::cartesian(&[2, 3], &[1, 1], &[true, true])?;
    /// let quantities = [Quantity::scalar(spec.clone())];
    /// let mut halo = HaloTransformer::new(&topology, 0, &quantities, &device, &Default::default())?;
    /// let values: Vec<f64> = (0..20).map(f64::from).collect();
    /// let mut memory = device.memory_from_slice(&stream, &values)?;
    /// halo.pack(&stream, &mut [memory.view_mut().with_layout(0, spec.layout())?.into()])?;
    /// // f(0:3, 1)
    /// assert_eq!(memory.to_vec(&stream)?[4..8], [6.0, 5.0, 6.0, 5.0]);
    /// # Ok::<(), halo::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless each dimension occurs exactly once.
    pub fn ordered(self, order: &[usize]) -> Result<Self> {
        let count = self.dims.len();
        if order.len() != count || !(0..count).all(|dim| order.contains(&dim)) {
            let message =
                format!("order {order:?}; each of {count} dimensions occurs exactly once");
            return Err(refuse(&self.name, message));
        }
        let mut strides = [0_isize; MAX_RANK];
        let mut next = 1_isize;
        for &dim in order.iter().rev() {
            strides[dim] = next;
            next = next.saturating_mul(self.layout.shape()[dim].cast_signed());
        }
        self.strided(&strides[..count])
    }

    /// Returns the same field with these strides, counted in elements.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless there is a stride for each dimension, each stride steps over the whole span of the
    /// faster dimensions, and all elements lie within `isize` bytes.
    pub fn strided(self, strides: &[isize]) -> Result<Self> {
        let shape = shape(&self.dims);
        let layout = Layout::new(self.dtype(), &shape, strides)
            .map_err(|e| refuse(&self.name, e.message()))?;
        let mut steps: Vec<(usize, usize)> =
            strides.iter().map(|stride| stride.unsigned_abs()).zip(shape.iter().copied()).collect();
        steps.retain(|(_, extent)| *extent > 1);
        steps.sort_unstable();
        if layout.is_empty() {
            return Ok(Self { layout, ..self });
        }
        let mut span = 0;
        for (stride, extent) in steps {
            if stride <= span {
                let message = format!("strides {strides:?} let elements of {shape:?} overlap");
                return Err(refuse(&self.name, message));
            }
            // No overflow: the layout was checked to lie within `isize`.
            span += stride.wrapping_mul(extent - 1);
        }
        Ok(Self { layout, ..self })
    }

    /// The properties that may differ between ranks, apart from the numbers of cells. For each dimension: the elements
    /// in memory below and above the owned elements, and the stride.
    pub(crate) fn placement(&self) -> impl Iterator<Item = [i64; 3]> + '_ {
        self.dims.iter().zip(self.layout.strides()).map(|(dim, stride)| {
            let [below, above] = dim.around();
            [below as i64, above as i64, *stride as i64]
        })
    }

    /// Returns the same field on a rank whose block has these cells and whose field has this
    /// [placement](Self::placement).
    pub(crate) fn placed(&self, cells: [usize; AXES], placement: &[[i64; 3]]) -> Result<Self> {
        let whole = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        let dims = self.dims.iter().zip(placement).map(|(dim, [below, above, _])| Dim {
            cells: dim.axis.map_or(dim.cells, |axis| cells[axis]),
            around: Some([whole(*below), whole(*above)]),
            ..*dim
        });
        let strides: Vec<isize> =
            placement.iter().map(|[.., stride]| isize::try_from(*stride).unwrap_or(0)).collect();
        Self::new(self.name.as_str(), self.dtype(), &dims.collect::<Vec<_>>())?.strided(&strides)
    }

    /// Adds the block to the name, for errors of ranks with several blocks.
    pub(crate) fn in_block(self, block: usize) -> Self {
        Self { name: format!("{} of block {block}", self.name), ..self }
    }

    /// The name of the field, which errors contain.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.layout.dtype()
    }

    /// The dimensions in the order of the shape.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// The layout that a view of the field must have. It covers all allocated elements.
    ///
    /// `memory.view_mut().with_layout(start, spec.layout())` is such a view. Its first element is at byte `start`,
    /// which is 0 unless strides are negative. In row-major order without gaps,
    /// `memory.view_mut().reshape(spec.layout().shape())` is such a view, too.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The dimension along an axis of the topology.
    pub(crate) fn along(&self, axis: usize) -> Option<&Dim> {
        self.dims.iter().find(|dim| dim.axis == Some(axis))
    }

    /// The extents of the dimensions that no axis divides.
    pub(crate) fn free_extents(&self) -> impl Iterator<Item = usize> + '_ {
        self.dims.iter().filter(|dim| dim.axis.is_none()).map(|dim| dim.cells)
    }

    /// The dimensions from the slowest in memory to the fastest.
    pub(crate) fn memory_order(&self) -> impl Iterator<Item = usize> + use<> {
        let (strides, shape) = (self.layout.strides(), self.layout.shape());
        let mut order: Vec<usize> = (0..strides.len()).collect();
        // A dimension of one element has the stride of the next slower one. Other ranks may have more elements there.
        order.sort_by_key(|&dim| std::cmp::Reverse((strides[dim].unsigned_abs(), shape[dim])));
        order.into_iter()
    }
}

fn shape(dims: &[Dim]) -> Vec<usize> {
    dims.iter().map(Dim::allocation).collect()
}

fn refuse(name: &str, message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidArgument, "field", format!("field {name}: {message}"))
}

#[cfg(test)]
mod tests {
    use backend_sim::{SimConfig, SimDevice};

    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let x = Dim::axis(0, 4);
        for dims in [
            vec![x, x],
            vec![Dim::axis(3, 4)],
            vec![x.halo(2, 2).allocated(2, 1)],
            vec![Dim::free(3).halo(1, 0)],
            vec![Dim::free(3).staggered()],
            vec![Dim::axis(0, usize::MAX).halo(1, 1)],
            vec![Dim::free(1); 7],
            vec![Dim::free(1 << 40), Dim::axis(0, 1 << 40)],
        ] {
            let error = FieldSpec::new("t", DType::F32, &dims).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{dims:?}");
            assert!(error.message().starts_with("field t: "), "{error}");
        }
        let field = FieldSpec::new("t", DType::F32, &[x, Dim::free(2)]).unwrap();
        assert!(field.clone().ordered(&[0, 0]).is_err());
        assert!(field.clone().ordered(&[0; 9]).is_err());
        assert!(field.clone().ordered(&[0]).is_err());
        assert!(field.clone().strided(&[1]).is_err());
        for strides in [[1, 1], [0, 1], [2, 4], [-1, 1]] {
            let error = field.clone().strided(&strides).unwrap_err();
            assert!(error.message().contains(&format!("strides {strides:?}")), "{error}");
        }
        field.strided(&[-4, 9 * 4]).unwrap();
    }

    #[test]
    fn numbers_beyond_memory_are_refused_and_do_not_wrap() {
        let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
        let most = usize::MAX;
        for dim in [
            Dim::axis(0, most).staggered(),
            Dim::axis(0, 4).halo(most, 1),
            Dim::axis(0, 4).allocated(most, 0),
            Dim::axis(0, 4).allocated(0, most),
            Dim::axis(0, 4).allocated(most, most),
        ] {
            for dim in [dim, dim.aligned(&device, DType::F64)] {
                assert_eq!(dim.allocation(), most, "{dim:?}");
                assert!(dim.owned().start <= dim.owned().end);
                let error = FieldSpec::new("t", DType::U8, &[dim]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            }
        }
    }

    #[test]
    fn a_halo_may_be_narrower_than_its_allocation() {
        let dim = Dim::axis(0, 10).allocated(3, 4).halo(2, 0).staggered();
        assert_eq!((dim.allocation(), dim.owned()), (18, 3..14));
        let field = FieldSpec::new("t", DType::U8, &[dim, Dim::free(5)]).unwrap();
        assert_eq!(field.memory_order().collect::<Vec<_>>(), [0, 1]);
        let field = field.strided(&[-1, 20]).unwrap();
        assert_eq!(field.memory_order().collect::<Vec<_>>(), [1, 0]);
        let placement: Vec<_> = field.placement().collect();
        assert_eq!(field.placed([10, 0, 0], &placement).unwrap().layout(), field.layout());
        let other = field.placed([7, 0, 0], &[[4, 5, 2], [0, 0, 40]]).unwrap();
        assert_eq!(
            (other.layout().shape(), other.layout().strides()),
            (&[17, 5][..], &[2, 40][..])
        );
    }
}
