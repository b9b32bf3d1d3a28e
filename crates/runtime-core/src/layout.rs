//! The layout of an n-d array in memory.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use crate::{DType, Error, ErrorKind, MAX_REGION_RANK, Result};

/// The most dimensions that a [`Layout`] can have. A region copy has the same limit.
pub const MAX_RANK: usize = MAX_REGION_RANK;

/// Element type, shape and signed strides of an n-d array.
///
/// Strides count elements, as in `ndarray`. They may be negative or zero. A layout does not contain the position of
/// element `[0, …, 0]`; a view adds it. A layout is a small value without an allocation.
///
/// ```
/// use runtime_core::{DType, Layout};
///
/// let rows = Layout::contiguous(DType::F64, &[3, 4])?;
/// assert_eq!(rows.strides(), [4, 1]);
/// let columns = Layout::new(DType::F64, &[3, 4], &[1, 3])?;
/// assert_eq!(columns.span_bytes(), 0..96);
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    dtype: DType,
    rank: u8,
    shape: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
    // Byte span relative to element [0, …, 0]. It is checked to fit when the layout is created.
    low: isize,
    high: isize,
    empty: bool,
    contiguous: bool,
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of shape {:?} with strides {:?}", self.dtype, self.shape(), self.strides())
    }
}

impl Layout {
    /// A layout of `shape` whose neighbouring elements along each dimension are `strides` elements apart.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are more than [`MAX_RANK`] dimensions, if shape and strides differ in length, or
    /// if the bytes spanned do not fit `isize`.
    pub fn new(dtype: DType, shape: &[usize], strides: &[isize]) -> Result<Self> {
        if shape.len() > MAX_RANK || shape.len() != strides.len() {
            return Err(invalid(format!(
                "{} extents with {} strides; both must agree and be at most {MAX_RANK}",
                shape.len(),
                strides.len()
            )));
        }
        let mut layout = Self {
            dtype,
            rank: u8::try_from(shape.len()).unwrap_or(u8::MAX),
            shape: [1; MAX_RANK],
            strides: [0; MAX_RANK],
            low: 0,
            high: 0,
            empty: false,
            contiguous: false,
        };
        layout.shape[..shape.len()].copy_from_slice(shape);
        layout.strides[..strides.len()].copy_from_slice(strides);
        let (low, high) = span(dtype, shape, strides).ok_or_else(|| {
            invalid(format!(
                "shape {shape:?} with strides {strides:?} of {dtype} spans more than {} bytes",
                isize::MAX
            ))
        })?;
        (layout.low, layout.high) = (low, high);
        Ok(layout.with_flags())
    }

    fn with_flags(mut self) -> Self {
        self.empty = self.shape().contains(&0);
        self.contiguous = self.empty || is_contiguous(self.shape(), self.strides());
        self
    }

    /// The layout of `shape` in row-major order without gaps.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). Also if the strides do not fit `isize`, which those of an empty shape may not.
    pub fn contiguous(dtype: DType, shape: &[usize]) -> Result<Self> {
        let too_large =
            || invalid(format!("shape {shape:?} of {dtype}: its strides exceed {}", isize::MAX));
        let mut strides = [0; MAX_RANK];
        let Some(strides) = strides.get_mut(..shape.len()) else {
            let message =
                format!("shape {shape:?} of {} dimensions, at most {MAX_RANK}", shape.len());
            return Err(invalid(message));
        };
        // The outermost extent is in no stride.
        let mut next = Some(1_isize);
        for (stride, extent) in strides.iter_mut().zip(shape).rev() {
            *stride = next.ok_or_else(too_large)?;
            let extent = isize::try_from((*extent).max(1)).ok();
            next = extent.and_then(|extent| stride.checked_mul(extent));
        }
        Self::new(dtype, shape, strides)
    }

    /// A one-dimensional layout of `len` elements without gaps, the layout of plain memory.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `len` elements do not fit `isize` bytes.
    pub fn row(dtype: DType, len: usize) -> Result<Self> {
        Self::contiguous(dtype, &[len])
    }

    /// The one-dimensional layout of an existing allocation, whose size is known to fit.
    #[inline(always)]
    pub(crate) fn row_unchecked(dtype: DType, len: usize) -> Self {
        let mut layout = Self {
            dtype,
            rank: 1,
            shape: [1; MAX_RANK],
            strides: [0; MAX_RANK],
            low: 0,
            high: (len * dtype.size()).cast_signed(),
            empty: len == 0,
            contiguous: true,
        };
        layout.shape[0] = len;
        layout.strides[0] = 1;
        layout
    }

    /// The part with indices `range` along dimension `dim`, and the distance in elements from the whole's element
    /// `[0, …, 0]` to that of the part. The range was checked.
    pub(crate) fn narrowed(&self, dim: usize, range: &Range<usize>) -> (Self, isize) {
        let mut part = *self;
        part.shape[dim] = range.len();
        part = part.with_flags();
        let stride = self.strides[dim];
        // An empty part may start one past the end, where there is no element.
        let start = if part.is_empty() { 0 } else { range.start.cast_signed() * stride };
        // A part of a layout that fits also fits.
        let (low, high) = span(self.dtype, part.shape(), part.strides()).unwrap_or((0, 0));
        (Self { low, high, ..part }, start)
    }

    /// Type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of dimensions. 0 means a single element.
    #[inline]
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// Number of elements along each dimension.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        &self.shape[..self.rank()]
    }

    /// Distance in elements from one index to the next along each dimension.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.rank()]
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        // The product of the other extents can overflow even if one extent is zero.
        if self.is_empty() { 0 } else { self.shape().iter().product() }
    }

    /// Whether there is no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// The byte range from the lowest to past the highest byte of any element, relative to element `[0, …, 0]`. Empty
    /// layouts span `0..0`.
    #[inline]
    pub fn span_bytes(&self) -> Range<isize> {
        self.low..self.high
    }

    /// Whether no two indices refer to the same element, as far as nesting strides show it: each stride must exceed the
    /// extent of all smaller ones.
    pub fn is_nested(&self) -> bool {
        self.contiguous || is_nested(self.shape(), self.strides())
    }

    /// Whether the elements lie in row-major order without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }
}

/// Whether each stride exceeds the extent of all smaller ones, so that all elements are distinct.
fn is_nested(shape: &[usize], strides: &[isize]) -> bool {
    let mut dims: SmallVec<[(usize, usize); MAX_RANK]> = shape
        .iter()
        .zip(strides)
        .filter(|(extent, _)| **extent > 1)
        .map(|(extent, stride)| (stride.unsigned_abs(), *extent))
        .collect();
    dims.sort_unstable();
    let mut reach = 0_usize;
    dims.into_iter().all(|(stride, extent)| {
        let beyond = stride > reach;
        reach = reach.saturating_add(stride.saturating_mul(extent - 1));
        beyond
    })
}

fn is_contiguous(shape: &[usize], strides: &[isize]) -> bool {
    let mut next = 1_isize;
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        if extent != 1 && stride != next {
            return false;
        }
        next = next.saturating_mul(extent.cast_signed());
    }
    true
}

/// The offsets of the lowest byte of any element and past the highest, or `None` if a number does not fit.
fn span(dtype: DType, shape: &[usize], strides: &[isize]) -> Option<(isize, isize)> {
    if shape.contains(&0) {
        return Some((0, 0));
    }
    let size = dtype.size().cast_signed();
    let mut count = 1_usize;
    let (mut low, mut high) = (0_isize, size);
    for (&extent, &stride) in shape.iter().zip(strides) {
        count = count.checked_mul(extent)?;
        let reach = isize::try_from(extent - 1).ok()?.checked_mul(stride)?.checked_mul(size)?;
        if reach < 0 {
            low = low.checked_add(reach)?;
        } else {
            high = high.checked_add(reach)?;
        }
    }
    isize::try_from(count).ok()?.checked_mul(size)?;
    high.checked_sub(low)?;
    Some((low, high))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "layout", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_follow_the_signs_of_strides() {
        let layout = Layout::new(DType::F32, &[3, 2], &[-2, 1]).unwrap();
        assert_eq!(layout.span_bytes(), -16..8);
        assert!(!layout.is_contiguous());
        assert_eq!(layout.len(), 6);
    }

    #[test]
    fn empty_and_scalar_layouts_are_well_defined() {
        assert_eq!(Layout::contiguous(DType::F64, &[3, 0]).unwrap().span_bytes(), 0..0);
        assert_eq!(Layout::contiguous(DType::F64, &[]).unwrap().span_bytes(), 0..8);
        // The outermost extent is in no stride.
        let wide = Layout::contiguous(DType::U8, &[usize::MAX, 2, 0]).unwrap();
        assert_eq!(wide.strides(), [2, 1, 1]);
    }

    #[test]
    fn layouts_beyond_the_limits_are_refused() {
        for (shape, strides) in [
            (vec![usize::MAX], vec![1]),
            (vec![2, 2], vec![isize::MAX, isize::MIN]),
            (vec![usize::MAX, usize::MAX], vec![0, 0]),
            (vec![2], vec![1, 1]),
            (vec![1; 7], vec![1; 7]),
        ] {
            let error = Layout::new(DType::F64, &shape, &strides).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{shape:?}");
        }
        assert!(Layout::contiguous(DType::F64, &[usize::MAX, usize::MAX]).is_err());
        let error = Layout::contiguous(DType::F64, &[1; 9]).unwrap_err();
        assert!(error.message().contains("9 dimensions, at most 6"), "{error}");
    }

    #[test]
    fn repeating_layouts_do_not_nest() {
        let nested = |shape: &[usize], strides: &[isize]| {
            Layout::new(DType::U8, shape, strides).unwrap().is_nested()
        };
        assert!(nested(&[3, 4], &[4, 1]) && nested(&[3, 4], &[-1, 3]) && nested(&[1, 4], &[0, 1]));
        assert!(nested(&[0, 4], &[0, 0]) && nested(&[], &[]));
        assert!(
            !nested(&[2, 4], &[0, 1]) && !nested(&[3, 4], &[3, 1]) && !nested(&[2, 2], &[1, -1])
        );
    }

    #[test]
    fn a_gap_is_not_contiguous() {
        assert!(Layout::contiguous(DType::U8, &[2, 3]).unwrap().is_contiguous());
        assert!(Layout::new(DType::U8, &[1, 3], &[99, 1]).unwrap().is_contiguous());
        assert!(!Layout::new(DType::U8, &[2, 3], &[4, 1]).unwrap().is_contiguous());
    }
}
