//! Protocols that use dictionaries.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use runtime::interchange::{
    ArrayInterface, ByteStrides, CudaArrayInterface, ElemStrides, Shape, SyclObject,
    SyclUsmArrayInterface,
};

use crate::error::Result;

/// An entry that may be missing or None.
fn optional<'py, T>(dict: &Bound<'py, PyAny>, key: &str) -> Result<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let entry = match dict.get_item(key) {
        Ok(entry) if !entry.is_none() => entry,
        Ok(_) => return Ok(None),
        Err(error) if error.is_instance_of::<PyKeyError>(dict.py()) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(entry.extract()?))
}

fn required<'py, T>(dict: &Bound<'py, PyAny>, key: &str) -> Result<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    Ok(dict.get_item(key)?.extract()?)
}

fn shape(dict: &Bound<'_, PyAny>) -> Result<Shape> {
    let extents: Vec<i64> = required(dict, "shape")?;
    Ok(extents.into_iter().collect())
}

fn is_masked(dict: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(dict.contains("mask")? && !dict.get_item("mask")?.is_none())
}

/// Converts the value of `__array_interface__`.
pub(super) fn array_interface(dict: &Bound<'_, PyAny>) -> Result<ArrayInterface> {
    let strides: Option<Vec<i64>> = optional(dict, "strides")?;
    Ok(ArrayInterface {
        shape: shape(dict)?,
        typestr: required::<String>(dict, "typestr")?.into(),
        data: Some(required(dict, "data")?),
        strides: strides.map(ByteStrides::from_iter),
        masked: is_masked(dict)?,
        offset: optional(dict, "offset")?,
        version: required(dict, "version")?,
    })
}

pub(super) fn of_array_interface<'py>(
    py: Python<'py>,
    said: &ArrayInterface,
) -> Result<Bound<'py, PyDict>> {
    let dict = described(py, &said.shape, &said.typestr, said.strides.as_ref())?;
    dict.set_item("data", said.data)?;
    dict.set_item("version", said.version)?;
    Ok(dict)
}

/// A dictionary that describes an array without its address.
fn described<'py>(
    py: Python<'py>,
    shape: &Shape,
    typestr: &str,
    strides: Option<&ByteStrides>,
) -> Result<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("shape", PyTuple::new(py, &**shape)?)?;
    dict.set_item("typestr", typestr)?;
    dict.set_item("strides", strides.map(|strides| PyTuple::new(py, &**strides)).transpose()?)?;
    Ok(dict)
}

/// Converts the value of `__cuda_array_interface__`.
pub(super) fn cuda_array_interface(dict: &Bound<'_, PyAny>) -> Result<CudaArrayInterface> {
    let strides: Option<Vec<i64>> = optional(dict, "strides")?;
    Ok(CudaArrayInterface {
        shape: shape(dict)?,
        typestr: required::<String>(dict, "typestr")?.into(),
        data: required(dict, "data")?,
        strides: strides.map(ByteStrides::from_iter),
        masked: is_masked(dict)?,
        stream: optional(dict, "stream")?,
        version: required(dict, "version")?,
    })
}

pub(super) fn of_cuda_array_interface<'py>(
    py: Python<'py>,
    said: &CudaArrayInterface,
) -> Result<Bound<'py, PyDict>> {
    let dict = described(py, &said.shape, &said.typestr, said.strides.as_ref())?;
    dict.set_item("data", said.data)?;
    dict.set_item("stream", said.stream)?;
    dict.set_item("version", said.version)?;
    Ok(dict)
}

/// Converts the value of `__sycl_usm_array_interface__`, if it names its context by a filter selector. Objects of SYCL
/// packages, such as a queue, can only be used by those packages.
pub(super) fn sycl_usm(dict: &Bound<'_, PyAny>) -> Result<Option<SyclUsmArrayInterface>> {
    let Ok(filter) = required(dict, "syclobj") else { return Ok(None) };
    let strides: Option<Vec<i64>> = optional(dict, "strides")?;
    Ok(Some(SyclUsmArrayInterface {
        shape: shape(dict)?,
        typestr: required::<String>(dict, "typestr")?.into(),
        data: required(dict, "data")?,
        strides: strides.map(ElemStrides::from_iter),
        offset: optional(dict, "offset")?.unwrap_or(0),
        syclobj: SyclObject::Filter(filter),
        version: required(dict, "version")?,
    }))
}
