//! What the code that attributes generate refers to. It is no part of the public interface.
#![expect(unsafe_code, reason = "descriptions are made of parts that must fit together")]

use runtime_core::Element;

pub use crate::accumulate::Op;
pub use crate::argument::Argument;
pub use crate::description::{ColumnParts, EndReach, FieldParts, Parts, Rows, Source};
pub use crate::launch::launch;
pub use crate::reduction::reduce;
pub use runtime_core::{DType, ImageFormat};

use crate::description::Stencil;

/// A description made of its parts.
///
/// # Safety
///
/// All parts were made of one stencil by `stencil-translator`.
pub const unsafe fn describe(parts: Parts) -> Stencil {
    Stencil::of(parts)
}

/// The value of a scalar parameter: its size, and its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Scalar {
    pub(crate) size: usize,
    pub(crate) bytes: [u8; 8],
}

macro_rules! scalars {
    ($($ty:ty)*) => {$(
        impl From<$ty> for Scalar {
            fn from(value: $ty) -> Self {
                const { assert!(size_of::<$ty>() <= 8 && <$ty as Element>::DTYPE.size() == size_of::<$ty>()) };
                let mut bytes = [0; 8];
                bytes[..size_of::<$ty>()].copy_from_slice(&value.to_ne_bytes());
                Self { size: size_of::<$ty>(), bytes }
            }
        }
    )*};
}

scalars!(f32 f64 i32 i64 u32);

impl From<bool> for Scalar {
    fn from(value: bool) -> Self {
        u32::from(value).into()
    }
}
