//! Arrays in host memory.
#![expect(unsafe_code, reason = "reads memory that a capsule keeps")]

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use runtime::interchange::ArrayExchange;
use runtime::{DType, Element, Layout, bytemuck};

use super::index::Order;
use crate::dtype;
use crate::error::{Failure, Result};
use crate::protocol::import;

/// An array in host memory.
pub(crate) struct HostArray<'py> {
    taken: ArrayExchange,
    layout: Layout,
    /// The object that it came from.
    pub(crate) object: Bound<'py, PyAny>,
}

impl<'py> HostArray<'py> {
    fn new(taken: ArrayExchange, object: &Bound<'py, PyAny>) -> Self {
        Self { layout: *taken.layout(), taken, object: object.clone() }
    }

    /// Elements of 16 bits as the `BF16` that they are.
    fn of_bfloat16(bits: &Bound<'py, PyAny>) -> Result<Option<Self>> {
        let Some(taken) = import::from_host(bits)? else { return Ok(None) };
        let (shape, strides) = (taken.layout().shape(), taken.layout().strides());
        let layout = Layout::new(DType::BF16, shape, strides)?;
        Ok(Some(Self { layout, taken, object: dtype::as_bfloat16(bits)? }))
    }

    /// A new NumPy array, of unspecified values.
    pub(crate) fn empty(py: Python<'py>, shape: &[usize], of: DType, order: Order) -> Result<Self> {
        let stored = if of == DType::BF16 { DType::U16 } else { of };
        let arguments = (PyTuple::new(py, shape)?, dtype::to_python(py, stored)?, order.name());
        let array = dtype::numpy(py)?.call_method1("empty", arguments)?;
        let made = match of {
            DType::BF16 => Self::of_bfloat16(&array)?,
            _ => import::from_host(&array)?.map(|taken| Self::new(taken, &array)),
        };
        made.ok_or_else(|| Self::none(&array))
    }

    /// An array that speaks a protocol of host memory, or what NumPy makes of another thing, with elements of this type then.
    pub(crate) fn of(object: &Bound<'py, PyAny>, of: Option<DType>) -> Result<Self> {
        match import::from_host(object) {
            Ok(Some(taken)) => return Ok(Self::new(taken, object)),
            Ok(None) => {}
            Err(failure) => {
                let name = object.getattr_opt("dtype")?.map(|dtype| dtype.getattr("name"));
                let name = name.transpose()?;
                if !name.is_some_and(|name| name.eq(dtype::name(DType::BF16)).unwrap_or(false)) {
                    return Err(failure);
                }
                let bits = object.call_method1("view", ("uint16",))?;
                return Self::of_bfloat16(&bits)?.ok_or_else(|| Self::none(object));
            }
        }
        let py = object.py();
        let of = of.map(|of| dtype::to_python(py, of)).transpose()?;
        let array = dtype::numpy(py)?.call_method1("asarray", (object, of))?;
        match import::from_host(&array)? {
            Some(taken) => Ok(Self::new(taken, &array)),
            None => Err(Self::none(object)),
        }
    }

    #[cold]
    fn none(object: &Bound<'_, PyAny>) -> Failure {
        Failure::invalid("array", format!("{object:?} is no array of the host"))
    }

    /// Where element `[0, …, 0]` lies.
    pub(crate) fn data(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.taken.pointer().unwrap_or(0))
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.taken.access().is_writable()
    }

    /// Whether elements lie at multiples of their alignment.
    pub(crate) fn is_aligned(&self) -> bool {
        let align = dtype::with_element!(self.layout.dtype(), T => align_of::<T>());
        self.data().addr().is_multiple_of(align)
    }

    /// The array itself, in which `BF16` are `U16`.
    pub(crate) fn into_exchange(self) -> ArrayExchange {
        self.taken
    }

    /// The elements of an array in row-major order without gaps.
    pub(crate) fn to_vec<T: Element>(&self) -> Vec<T> {
        let len = self.layout.len();
        if len == 0 {
            return Vec::new();
        }
        let mut elements = vec![T::zeroed(); len];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
        // SAFETY: the array has that many bytes without gaps, kept by its capsule.
        unsafe { std::ptr::copy_nonoverlapping(self.data(), bytes.as_mut_ptr(), bytes.len()) };
        elements
    }

    /// The same values without gaps, in this order: the array itself, or a copy by NumPy.
    pub(crate) fn ordered(self, order: Order) -> Result<Self> {
        let layout = self.layout;
        if layout.is_empty() || layout == order.layout(layout.dtype(), layout.shape())? {
            return Ok(self);
        }
        let numpy = dtype::numpy(self.object.py())?;
        let array = numpy.call_method1("asarray", (&self.object,))?;
        Self::of(&array.call_method1("copy", (order.name(),))?, None)
    }
}
