//! Shapes, orders and indices from Python.

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PySlice, PyTuple};
use runtime::{DType, Layout, MAX_RANK};

use crate::error::{Failure, Result};

/// The extents: an int, or a sequence of ints.
pub(crate) struct Shape(pub(crate) Vec<usize>);

impl<'py> FromPyObject<'_, 'py> for Shape {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let extents = integers(&given)?;
        let shape = extents.iter().map(|extent| usize::try_from(*extent));
        let shape = shape.collect::<std::result::Result<_, _>>().map_err(|_| {
            Failure::invalid("shape", format!("{extents:?}; no extent can be negative"))
        })?;
        Ok(Self(shape))
    }
}

/// One integer, or all integers of an iterable.
pub(crate) fn integers(given: &Bound<'_, PyAny>) -> PyResult<Vec<isize>> {
    match given.extract() {
        Ok(one) => Ok(vec![one]),
        Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => Err(error),
        Err(_) => given.try_iter()?.map(|each| each?.extract()).collect(),
    }
}

/// Integers that are given one by one, or as one sequence.
pub(crate) fn integers_of(given: &Bound<'_, PyTuple>) -> PyResult<Vec<isize>> {
    match given.len() {
        1 => integers(&given.get_item(0)?),
        _ => integers(given),
    }
}

/// Completes a shape for `elements` elements, in which one extent may be -1. `None` if there is no such shape.
pub(crate) fn completed(shape: &[isize], elements: usize) -> Option<Vec<usize>> {
    let others: Vec<usize> = shape
        .iter()
        .filter(|extent| **extent != -1)
        .map(|n| usize::try_from(*n).ok())
        .collect::<Option<_>>()?;
    let open = shape.len() - others.len();
    let known = others.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent))?;
    let left = match open {
        0 => 1,
        1 => elements.checked_div(known).filter(|left| left * known == elements)?,
        _ => return None,
    };
    Some(shape.iter().map(|extent| usize::try_from(*extent).unwrap_or(left)).collect())
}

/// The order of elements in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The last dimension varies fastest.
    C,
    /// The first dimension varies fastest.
    F,
}

impl<'py> FromPyObject<'_, 'py> for Order {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match given.extract()? {
            "C" => Ok(Self::C),
            "F" => Ok(Self::F),
            other => Err(PyValueError::new_err(format!("order {other:?}; there are 'C' and 'F'"))),
        }
    }
}

impl Order {
    /// The layout without gaps in this order.
    pub(crate) fn layout(self, dtype: DType, shape: &[usize]) -> runtime::Result<Layout> {
        match self {
            Self::C => Layout::contiguous(dtype, shape),
            Self::F => {
                let dims: Vec<usize> = (0..shape.len()).rev().collect();
                let backwards: Vec<usize> = dims.iter().map(|dim| shape[*dim]).collect();
                permuted(&Layout::contiguous(dtype, &backwards)?, &dims)
            }
        }
    }

    /// NumPy's name of the order.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::F => "F",
        }
    }
}

/// The same elements with dimension `dims[i]` as dimension `i`. Each dimension occurs once in `dims`.
pub(crate) fn permuted(layout: &Layout, dims: &[usize]) -> runtime::Result<Layout> {
    let shape: Vec<usize> = dims.iter().map(|dim| layout.shape()[*dim]).collect();
    let strides: Vec<isize> = dims.iter().map(|dim| layout.strides()[*dim]).collect();
    Layout::new(layout.dtype(), &shape, &strides)
}

/// The dimensions from the slowest to the fastest, if the elements lie without gaps in some order.
pub(crate) fn dense_order(layout: &Layout) -> Option<Vec<usize>> {
    let mut dims: Vec<usize> = (0..layout.rank()).collect();
    if layout.is_contiguous() {
        return Some(dims);
    }
    // A dimension of extent 1 may have any stride, so it is sorted to the front, where it does not matter.
    dims.sort_by_key(|dim| (layout.shape()[*dim] != 1, std::cmp::Reverse(layout.strides()[*dim])));
    permuted(layout, &dims).is_ok_and(|sorted| sorted.is_contiguous()).then_some(dims)
}

/// Selects the elements that `key` names: integers, slices of any step, `...` and `None`, as in NumPy's basic indexing.
/// Returns their layout, and the byte of the first selected element if element `[0, …, 0]` of `layout` lies at byte
/// `origin`.
///
/// # Errors
///
/// `IndexError` for an index beyond an extent and for too many indices. `TypeError` for indices of another kind.
pub(crate) fn indexed(
    layout: &Layout,
    origin: usize,
    key: &Bound<'_, PyAny>,
) -> Result<(Layout, usize)> {
    let key = match key.cast::<PyTuple>() {
        Ok(keys) => keys.clone(),
        Err(_) => PyTuple::new(key.py(), [key])?,
    };
    let is_ellipsis = |key: &Bound<'_, PyAny>| key.is_instance_of::<PyEllipsis>();
    let taken = key.iter().filter(|key| !key.is_none() && !is_ellipsis(key)).count();
    if key.iter().filter(is_ellipsis).count() > 1 {
        return Err(PyIndexError::new_err("an index can have one '...'").into());
    }
    let Some(mut left) = layout.rank().checked_sub(taken) else {
        let message = format!("{taken} indices for {} dimensions", layout.rank());
        return Err(PyIndexError::new_err(message).into());
    };
    let mut first = 0_isize;
    let mut made: Vec<(usize, isize)> = Vec::new();
    let mut dims = layout.shape().iter().copied().zip(layout.strides().iter().copied());
    for key in key.iter() {
        if key.is_none() {
            made.push((1, 0));
        } else if is_ellipsis(&key) {
            made.extend(dims.by_ref().take(std::mem::take(&mut left)));
        } else if let Some((extent, stride)) = dims.next() {
            // An extent fits into `isize`, unless there are no elements.
            let signed = isize::try_from(extent).unwrap_or(isize::MAX);
            if let Ok(slice) = key.cast::<PySlice>() {
                let range = slice.indices(signed)?;
                if range.slicelength > 0 {
                    first += range.start * stride;
                }
                // The step to an element that does not exist has no meaning, and may be too large for other libraries.
                let step = if range.slicelength > 1 { range.step } else { 1 };
                made.push((range.slicelength, step.saturating_mul(stride)));
            } else {
                let index = integer(&key, extent)?;
                let place = if index < 0 { index.saturating_add(signed) } else { index };
                if !(0..signed).contains(&place) {
                    let message = format!("index {index} for an extent of {extent}");
                    return Err(PyIndexError::new_err(message).into());
                }
                first += place * stride;
            }
        }
    }
    made.extend(dims);
    if made.len() > MAX_RANK {
        let message = format!("{} dimensions; there can be {MAX_RANK}", made.len());
        return Err(PyIndexError::new_err(message).into());
    }
    let (shape, strides): (Vec<usize>, Vec<isize>) = made.into_iter().unzip();
    let part = Layout::new(layout.dtype(), &shape, &strides)?;
    // Without elements, the offset does not matter.
    let first = if part.is_empty() || layout.is_empty() { 0 } else { first };
    Ok((part, origin.wrapping_add_signed(first * layout.dtype().size().cast_signed())))
}

fn integer(key: &Bound<'_, PyAny>, extent: usize) -> PyResult<isize> {
    let py = key.py();
    // NumPy takes a truth value as a mask.
    if !key.is_instance_of::<PyBool>() {
        match key.extract::<isize>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => {
                let message = format!("index {key:?} for an extent of {extent}");
                return Err(PyIndexError::new_err(message));
            }
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {}
            outcome => return outcome,
        }
    }
    let message = format!("{key:?} is no index: there are integers, slices, '...' and None");
    Err(PyTypeError::new_err(message))
}
