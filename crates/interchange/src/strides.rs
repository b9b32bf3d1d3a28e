//! Extents, and strides in the two units that protocols use. The two units have separate types.

use std::ops::Deref;

use runtime_core::{DType, Error, ErrorKind, Layout, MAX_RANK, Result};
use smallvec::SmallVec;

type Numbers = SmallVec<[i64; MAX_RANK]>;

macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(Numbers);

        impl Deref for $name {
            type Target = [i64];

            fn deref(&self) -> &[i64] {
                &self.0
            }
        }

        impl From<&[i64]> for $name {
            fn from(numbers: &[i64]) -> Self {
                Self(numbers.into())
            }
        }

        impl<const N: usize> From<[i64; N]> for $name {
            fn from(numbers: [i64; N]) -> Self {
                Self(numbers.iter().copied().collect())
            }
        }

        impl FromIterator<i64> for $name {
            fn from_iter<I: IntoIterator<Item = i64>>(numbers: I) -> Self {
                Self(numbers.into_iter().collect())
            }
        }
    };
}

numbers! {
    /// The number of elements along each dimension, as a protocol gives it; not checked yet.
    Shape
}

numbers! {
    /// Strides in elements, as in DLPack and the SYCL USM array interface.
    ///
    /// This is a separate type, because a stride in elements that is read as bytes, or the reverse, gives wrong
    /// addresses. Conversion needs an element type.
    ElemStrides
}

numbers! {
    /// Strides in bytes, as in the NumPy and CUDA array interfaces.
    ByteStrides
}

impl ElemStrides {
    /// Converts the strides to bytes.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a stride does not fit.
    ///
    /// ```
    /// use interchange::{ByteStrides, ElemStrides};
    /// use runtime_core::DType;
    ///
    /// let bytes = ElemStrides::from([-3, 1]).to_bytes(DType::F64)?;
    /// assert_eq!(bytes, ByteStrides::from([-24, 8]));
    /// assert_eq!(bytes.to_elements(DType::F64)?, ElemStrides::from([-3, 1]));
    /// assert!(ByteStrides::from([12]).to_elements(DType::F64).is_err());
    /// # Ok::<(), runtime_core::Error>(())
    /// ```
    pub fn to_bytes(&self, dtype: DType) -> Result<ByteStrides> {
        let size = size(dtype);
        let scaled = self.iter().map(|stride| {
            stride.checked_mul(size).ok_or_else(|| {
                invalid(format!("a stride of {stride} {dtype} is more than {} bytes", i64::MAX))
            })
        });
        scaled.collect::<Result<_>>().map(ByteStrides)
    }
}

impl ByteStrides {
    /// Converts the strides to elements.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a stride is not a multiple of the element size.
    pub fn to_elements(&self, dtype: DType) -> Result<ElemStrides> {
        let size = size(dtype);
        let divided = self.iter().map(|stride| {
            let whole = stride % size == 0;
            whole.then(|| stride / size).ok_or_else(|| {
                invalid(format!(
                    "a stride of {stride} bytes is no multiple of {size}, as {dtype} has"
                ))
            })
        });
        divided.collect::<Result<_>>().map(ElemStrides)
    }
}

fn size(dtype: DType) -> i64 {
    // At most 16.
    i64::try_from(dtype.size()).unwrap_or(i64::MAX)
}

/// Extents of a layout.
pub(crate) fn shape_of(layout: &Layout) -> Shape {
    // The extents fit, because their product fits.
    layout.shape().iter().map(|extent| i64::try_from(*extent).unwrap_or(i64::MAX)).collect()
}

/// Strides of a layout.
pub(crate) fn strides_of(layout: &Layout) -> ElemStrides {
    layout.strides().iter().map(|stride| i64::try_from(*stride).unwrap_or(i64::MAX)).collect()
}

/// Strides of a layout in bytes; 0 for a number that does not fit, which leads to no element.
pub(crate) fn byte_strides_of(layout: &Layout) -> ByteStrides {
    let size = size(layout.dtype());
    strides_of(layout).iter().map(|stride| stride.checked_mul(size).unwrap_or(0)).collect()
}

/// Makes the layout that a protocol describes. Without strides it is row-major without gaps.
pub(crate) fn layout(dtype: DType, shape: &[i64], strides: Option<&[i64]>) -> Result<Layout> {
    if shape.len() > MAX_RANK {
        return Err(invalid(format!("{} dimensions; at most {MAX_RANK} are taken", shape.len())));
    }
    let mut extents = [0_usize; MAX_RANK];
    for (extent, given) in extents.iter_mut().zip(shape) {
        *extent = usize::try_from(*given)
            .map_err(|_| invalid(format!("an extent of {given} in shape {shape:?}")))?;
    }
    let extents = &extents[..shape.len()];
    let Some(strides) = strides else { return Layout::contiguous(dtype, extents) };
    if strides.len() != shape.len() {
        let message = format!("{} strides for shape {shape:?}", strides.len());
        return Err(invalid(message));
    }
    let mut steps = [0_isize; MAX_RANK];
    for (step, given) in steps.iter_mut().zip(strides) {
        *step = isize::try_from(*given)
            .map_err(|_| invalid(format!("a stride of {given} elements")))?;
    }
    Layout::new(dtype, extents, &steps[..shape.len()])
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "strides", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_that_lead_to_no_element_need_not_fit() {
        let empty = Layout::contiguous(DType::F64, &[0, 1 << 60]).unwrap();
        assert_eq!(byte_strides_of(&empty), ByteStrides::from([0, 8]));
        let one = Layout::new(DType::F64, &[1, 2], &[isize::MIN, -3]).unwrap();
        assert_eq!(byte_strides_of(&one), ByteStrides::from([0, -24]));
    }
}
