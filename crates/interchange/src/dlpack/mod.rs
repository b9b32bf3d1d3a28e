//! DLPack: every kind of memory, strides in elements, an owner. The producer orders the array on a stream that the
//! consumer names.
//!
//! The structures are in [`abi`]. A [`DlpackRequest`] holds a consumer's request. A [`DlpackTensor`] owns one of the
//! two structures: the content of a Python capsule.

pub mod abi;
mod export;
mod import;
mod request;

pub use export::DlpackOptions;
pub use request::{DlpackCopy, DlpackFence, DlpackRequest};

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

use abi::{DLDataType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor, code};
use runtime_core::{DType, Error, ErrorKind, Result};

use crate::typestr::no_records;

const PROTOCOL: &str = "dlpack";

#[expect(unsafe_code, reason = "holds the pointer that C hands over, and calls its deleter")]
mod tensor {
    use super::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor, NonNull};
    use crate::owner::release;

    /// One of the two structures.
    pub(super) enum Raw {
        Versioned(NonNull<DLManagedTensorVersioned>),
        Legacy(NonNull<DLManagedTensor>),
    }

    // SAFETY: the maker promised that the structure stays unchanged, and may be freed on any thread.
    unsafe impl Send for Raw {}
    // SAFETY: as above; nothing writes through it.
    unsafe impl Sync for Raw {}

    impl Raw {
        /// The version that the producer wrote; `None` for the old structure, which has none.
        pub(super) fn version(&self) -> Option<DLPackVersion> {
            match self {
                // SAFETY: valid, and at the same offset in all versions.
                Self::Versioned(raw) => Some(unsafe { (*raw.as_ptr()).version }),
                Self::Legacy(_) => None,
            }
        }

        pub(super) fn flags(&self) -> u64 {
            match self {
                // SAFETY: as above.
                Self::Versioned(raw) => unsafe { (*raw.as_ptr()).flags },
                Self::Legacy(_) => 0,
            }
        }

        /// The array itself.
        ///
        /// # Safety
        ///
        /// The major version is [`abi::VERSION`]'s.
        pub(super) unsafe fn tensor(&self) -> DLTensor {
            match self {
                // SAFETY: valid, and of this version, as the caller promises.
                Self::Versioned(raw) => unsafe { (*raw.as_ptr()).dl_tensor },
                // SAFETY: valid; the old structure has only one version.
                Self::Legacy(raw) => unsafe { (*raw.as_ptr()).dl_tensor },
            }
        }
    }

    impl Drop for Raw {
        fn drop(&mut self) {
            match *self {
                Self::Versioned(raw) => {
                    // SAFETY: valid, and at the same offset in all versions.
                    if let Some(deleter) = unsafe { (*raw.as_ptr()).deleter } {
                        // SAFETY: owned, so the deleter was not called yet; this is the last use.
                        release(|| unsafe { deleter(raw.as_ptr()) });
                    }
                }
                Self::Legacy(raw) => {
                    // SAFETY: valid.
                    if let Some(deleter) = unsafe { (*raw.as_ptr()).deleter } {
                        // SAFETY: as above.
                        release(|| unsafe { deleter(raw.as_ptr()) });
                    }
                }
            }
        }
    }
}

use tensor::Raw;

/// A DLPack tensor with its owner, in either structure. Dropping it calls the deleter, if it has one.
///
/// The name of a Python capsule gives the structure in it: `dltensor_versioned` or `dltensor`.
pub struct DlpackTensor(Raw);

impl DlpackTensor {
    /// Takes ownership of a tensor, for instance from a capsule named `dltensor_versioned`.
    ///
    /// # Safety
    ///
    /// `raw` points to a tensor that the caller owns. It is not moved or changed until its deleter is called. The
    /// deleter may be called on any thread. If the major version is [`abi::VERSION`]'s, `shape` and `strides` each have
    /// `ndim` numbers, unless they are null, and the description of the elements is true: every index is an initialised
    /// element in memory of the device. The elements are writable, unless a flag says otherwise.
    #[expect(unsafe_code, reason = "the caller vouches for a pointer")]
    pub unsafe fn from_versioned(raw: NonNull<DLManagedTensorVersioned>) -> Self {
        Self(Raw::Versioned(raw))
    }

    /// Takes ownership of a tensor of the old structure, for instance from a capsule named `dltensor`.
    ///
    /// # Safety
    ///
    /// As for [`from_versioned`](Self::from_versioned).
    #[expect(unsafe_code, reason = "the caller vouches for a pointer")]
    pub unsafe fn from_legacy(raw: NonNull<DLManagedTensor>) -> Self {
        Self(Raw::Legacy(raw))
    }

    /// Whether the tensor uses the old structure.
    pub fn is_legacy(&self) -> bool {
        matches!(self.0, Raw::Legacy(_))
    }

    /// The version that the producer wrote; `None` for the old structure.
    pub fn version(&self) -> Option<DLPackVersion> {
        self.0.version()
    }

    /// Returns the structure. The caller must call its deleter. [`is_legacy`](Self::is_legacy) says which structure it
    /// is.
    pub fn into_raw(self) -> NonNull<c_void> {
        let raw = match &self.0 {
            Raw::Versioned(raw) => raw.cast(),
            Raw::Legacy(raw) => raw.cast(),
        };
        std::mem::forget(self);
        raw
    }
}

impl fmt::Debug for DlpackTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version() {
            Some(DLPackVersion { major, minor }) => write!(f, "DlpackTensor({major}.{minor})"),
            None => f.write_str("DlpackTensor(legacy)"),
        }
    }
}

/// DLPack's code for an element type; records have none.
fn data_type(dtype: DType) -> Result<DLDataType> {
    let (code, bits) = match dtype {
        DType::Bool => (code::BOOL, 8),
        DType::I8 => (code::INT, 8),
        DType::I16 => (code::INT, 16),
        DType::I32 => (code::INT, 32),
        DType::I64 => (code::INT, 64),
        DType::U8 => (code::UINT, 8),
        DType::U16 => (code::UINT, 16),
        DType::U32 => (code::UINT, 32),
        DType::U64 => (code::UINT, 64),
        DType::F16 => (code::FLOAT, 16),
        DType::F32 => (code::FLOAT, 32),
        DType::F64 => (code::FLOAT, 64),
        DType::BF16 => (code::BFLOAT, 16),
        DType::C64 => (code::COMPLEX, 64),
        DType::C128 => (code::COMPLEX, 128),
        DType::Record(_) => return Err(no_records(dtype, PROTOCOL)),
    };
    Ok(DLDataType { code, bits, lanes: 1 })
}

/// The element type of a DLPack code.
fn dtype(named: DLDataType) -> Result<DType> {
    let DLDataType { code, bits, lanes } = named;
    let found = match (code, bits, lanes) {
        (code::BOOL, 8, 1) => DType::Bool,
        (code::INT, 8, 1) => DType::I8,
        (code::INT, 16, 1) => DType::I16,
        (code::INT, 32, 1) => DType::I32,
        (code::INT, 64, 1) => DType::I64,
        (code::UINT, 8, 1) => DType::U8,
        (code::UINT, 16, 1) => DType::U16,
        (code::UINT, 32, 1) => DType::U32,
        (code::UINT, 64, 1) => DType::U64,
        (code::FLOAT, 16, 1) => DType::F16,
        (code::FLOAT, 32, 1) => DType::F32,
        (code::FLOAT, 64, 1) => DType::F64,
        (code::BFLOAT, 16, 1) => DType::BF16,
        (code::COMPLEX, 64, 1) => DType::C64,
        (code::COMPLEX, 128, 1) => DType::C128,
        _ => {
            let message = format!("data type code {code} of {bits} bits in {lanes} lanes");
            return Err(Error::new(ErrorKind::InvalidArgument, PROTOCOL, message));
        }
    };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_has_a_name() {
        for named in DType::ALL {
            assert_eq!(dtype(data_type(named).unwrap()).unwrap(), named);
            assert_eq!(usize::from(data_type(named).unwrap().bits), named.size() * 8);
        }
    }
}
