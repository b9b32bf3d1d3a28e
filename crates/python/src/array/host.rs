//! Arrays in host memory.

use pyo3::prelude::*;
use runtime::{DType, Layout};

use super::index::Order;
use crate::dtype;
use crate::error::{Failure, Result};

/// An array in host memory that a Python object keeps.
pub(crate) struct HostArray<'py> {
    /// Where element `[0, …, 0]` lies.
    pub(crate) data: *mut u8,
    pub(crate) layout: Layout,
    pub(crate) read_only: bool,
    /// The object whose memory it is.
    pub(crate) object: Bound<'py, PyAny>,
}

impl<'py> HostArray<'py> {
    /// A new NumPy array, of unspecified values.
    pub(crate) fn empty(py: Python<'py>, shape: &[usize], of: DType, order: Order) -> Result<Self> {
        let shape = pyo3::types::PyTuple::new(py, shape)?;
        let arguments = (shape, dtype::to_python(py, of)?, order.name());
        Self::of(&dtype::numpy(py)?.call_method1("empty", arguments)?)
    }

    /// An array that speaks a protocol of host memory.
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> Result<Self> {
        let interface = object.getattr("__array_interface__")?;
        let (data, read_only): (usize, bool) = interface.get_item("data")?.extract()?;
        let shape: Vec<usize> = interface.get_item("shape")?.extract()?;
        let of = dtype::from_python(&interface.get_item("typestr")?)?;
        let strides: Option<Vec<isize>> = interface.get_item("strides")?.extract()?;
        let size = of.size().cast_signed();
        let layout = match strides {
            None => Layout::contiguous(of, &shape)?,
            Some(strides) if strides.iter().any(|stride| stride % size != 0) => {
                return Err(Failure::invalid("array interface", format!("strides {strides:?}")));
            }
            Some(strides) => {
                let strides: Vec<isize> = strides.iter().map(|stride| stride / size).collect();
                Layout::new(of, &shape, &strides)?
            }
        };
        let data = std::ptr::with_exposed_provenance_mut(data);
        Ok(Self { data, layout, read_only, object: object.clone() })
    }

    /// The same values without gaps, in this order: the array itself, or a copy by NumPy.
    pub(crate) fn ordered(self, order: Order) -> Result<Self> {
        if self.layout == order.layout(self.layout.dtype(), self.layout.shape())? {
            return Ok(self);
        }
        let py = self.object.py();
        Self::of(
            &dtype::numpy(py)?
                .call_method1("array", (&self.object,))?
                .call_method1("copy", (order.name(),))?,
        )
    }
}
