//! Launching kernels.
#![expect(unsafe_code, reason = "launches kernels through the library")]

use std::ffi::c_void;
use std::ptr;

use runtime_core::contract::{RawArg, own};
use runtime_core::{Error, ErrorKind, Launch, Result};
use smallvec::SmallVec;

use crate::api::Api;
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::stream::Stream;
use crate::vendor::Vendor;

const OPERATION: &str = "launch";

/// Arguments of a launch. The usual number needs no allocation.
type Arguments<T> = SmallVec<[T; 16]>;

impl<V: Vendor> Kernel<V> {
    /// Enqueues the kernel.
    ///
    /// # Safety
    ///
    /// As [`DeviceStream::launch`](runtime_core::contract::DeviceStream::launch).
    #[inline]
    pub(crate) unsafe fn launch(
        &self,
        stream: &Stream<V>,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        let [x, y, z] = launch.block;
        // The product does not overflow: the front has checked it against the device's limit.
        if x * y * z > self.max_threads {
            return Err(self.too_large(x * y * z));
        }
        self.grant(OPERATION, launch.shared_bytes)?;
        let mut addresses = Arguments::<u64>::new();
        for arg in args {
            addresses.push(match arg {
                RawArg::Memory { memory, origin, .. } => {
                    own::<Memory<V>>(*memory, OPERATION)?.at(*origin)
                }
                RawArg::Empty { .. } | RawArg::Value { .. } => 0,
            });
        }
        let mut pointers: Arguments<*mut c_void> = args
            .iter()
            .zip(&mut addresses)
            .map(|(arg, address)| match arg {
                RawArg::Value { bytes, .. } => bytes.as_ptr().cast_mut().cast(),
                RawArg::Memory { .. } | RawArg::Empty { .. } => ptr::from_mut(address).cast(),
            })
            .collect();
        // SAFETY: the caller guarantees that kernel and arguments fit.
        unsafe { self.enqueue(stream, launch, &mut pointers) }
    }

    /// Enqueues the kernel with arguments that the library copies from the pointers.
    ///
    /// # Safety
    ///
    /// As [`launch`](Self::launch); each pointer points to an argument of the size that the kernel takes.
    #[inline]
    pub(crate) unsafe fn enqueue(
        &self,
        stream: &Stream<V>,
        launch: &Launch,
        pointers: &mut [*mut c_void],
    ) -> Result<()> {
        let arguments = pointers.as_mut_ptr();
        stream.enqueue(OPERATION, &self.name, |api, stream| {
            if launch.cooperative {
                // SAFETY: the caller guarantees that kernel and arguments fit.
                unsafe { api.launch_cooperative(self.function, launch, stream, arguments) }
            } else {
                // SAFETY: as above.
                unsafe { api.launch(self.function, launch, stream, arguments) }
            }
        })
    }

    #[cold]
    fn too_large(&self, block: u32) -> Error {
        let message = format!(
            "kernel {:?}: block size of {block}; this kernel has at most {}",
            self.name, self.max_threads
        );
        Error::new(ErrorKind::InvalidArgument, OPERATION, message)
    }
}

/// The address of an argument, from which the library copies it.
pub fn address<T>(argument: &T) -> *mut c_void {
    ptr::from_ref(argument).cast_mut().cast()
}
