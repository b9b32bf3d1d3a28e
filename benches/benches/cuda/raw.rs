//! The rival: a hand-written program with the driver's own functions, in the same context.

use std::env;
use std::error::Error;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use libloading::Library;
use runtime_core::Launch;

/// Handles of the driver are pointers, and memory is a number.
type Handle = *mut c_void;
pub(crate) type Address = u64;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Declares the functions that are loaded from the driver's library.
macro_rules! functions {
    ($($name:ident($($arg:ty),*);)*) => {
        #[expect(non_snake_case, reason = "functions have the names of the driver's headers")]
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) -> u32,)*
        }

        impl Functions {
            fn bind(library: &Library) -> Result<Self> {
                Ok(Self {
                    // SAFETY: the driver's headers declare the function with this type.
                    $($name: *unsafe { library.get(stringify!($name)) }?,)*
                })
            }
        }
    };
}

functions! {
    cuCtxGetDevice(*mut c_int);
    cuDeviceGetDefaultMemPool(*mut Handle, c_int);
    cuMemPoolSetAttribute(Handle, c_uint, *mut c_void);
    cuStreamCreate(*mut Handle, c_uint);
    cuStreamSynchronize(Handle);
    cuMemAlloc_v2(*mut Address, usize);
    cuMemAllocAsync(*mut Address, usize, Handle);
    cuMemFreeAsync(Address, Handle);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemcpyHtoDAsync_v2(Address, *const c_void, usize, Handle);
    cuMemcpyDtoHAsync_v2(*mut c_void, Address, usize, Handle);
    cuMemcpyDtoDAsync_v2(Address, Address, usize, Handle);
    cuModuleLoadData(*mut Handle, *const c_char);
    cuModuleGetFunction(*mut Handle, Handle, *const c_char);
    cuLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle,
        *mut *mut c_void, *mut *mut c_void
    );
}

/// A separate stream. Its allocations are never freed.
pub(crate) struct Raw {
    driver: Functions,
    stream: Handle,
    _library: Library,
}

/// Success, or an error with the driver's code.
fn check(code: u32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(format!("the driver returns {code}").into()) }
}

/// The driver's flag for a stream that does not wait for the default one.
const NON_BLOCKING: c_uint = 1;
/// The driver's attribute of a pool: how many unused bytes it keeps across waits.
const RELEASE_THRESHOLD: c_uint = 4;

impl Raw {
    /// For use next to a device of the backend, whose context is current in this thread.
    pub(crate) fn new() -> Result<Self> {
        let name = env::var_os("BACKEND_CUDA_DRIVER").unwrap_or_else(|| "libcuda.so.1".into());
        // SAFETY: loading the driver's library runs its constructors; the backend has already loaded it.
        let library = unsafe { Library::new(name) }?;
        let driver = Functions::bind(&library)?;
        let mut stream = null_mut();
        // SAFETY: `stream` is written.
        check(unsafe { (driver.cuStreamCreate)(&mut stream, NON_BLOCKING) })?;
        let (mut device, mut pool, mut all) = (0, null_mut(), u64::MAX);
        // SAFETY: `device` is written.
        check(unsafe { (driver.cuCtxGetDevice)(&mut device) })?;
        // SAFETY: `pool` is written.
        check(unsafe { (driver.cuDeviceGetDefaultMemPool)(&mut pool, device) })?;
        let value = (&raw mut all).cast();
        // SAFETY: the attribute is a 64-bit number, which is only read.
        check(unsafe { (driver.cuMemPoolSetAttribute)(pool, RELEASE_THRESHOLD, value) })?;
        Ok(Self { driver, stream, _library: library })
    }

    pub(crate) fn memory(&self, bytes: usize) -> Result<Address> {
        let mut address = 0;
        // SAFETY: `address` is written.
        check(unsafe { (self.driver.cuMemAlloc_v2)(&mut address, bytes) })?;
        Ok(address)
    }

    /// Allocates pinned (page-locked) host memory filled with zeros.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<&'static mut [u8]> {
        let mut pointer = null_mut();
        // SAFETY: `pointer` is written.
        check(unsafe { (self.driver.cuMemHostAlloc)(&mut pointer, bytes, 0) })?;
        // SAFETY: the driver has just allocated this many bytes, and no code frees them.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        // SAFETY: as above; no other code has them.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), bytes) })
    }

    /// Copies pinned memory to the device. Blocks until the copy is done.
    pub(crate) fn upload(&self, to: Address, from: &[u8]) -> Result<()> {
        // SAFETY: both have this many bytes, and the copy is done when this returns.
        check(unsafe {
            (self.driver.cuMemcpyHtoDAsync_v2)(to, from.as_ptr().cast(), from.len(), self.stream)
        })?;
        self.finish()
    }

    /// Copies to pinned memory. Blocks until the copy is done.
    pub(crate) fn download(&self, to: &mut [u8], from: Address) -> Result<()> {
        // SAFETY: as in `upload`.
        check(unsafe {
            (self.driver.cuMemcpyDtoHAsync_v2)(to.as_mut_ptr().cast(), from, to.len(), self.stream)
        })?;
        self.finish()
    }

    /// Enqueues a copy within the device.
    pub(crate) fn copy(&self, to: Address, from: Address, bytes: usize) -> Result<()> {
        // SAFETY: the driver checks the ranges.
        check(unsafe { (self.driver.cuMemcpyDtoDAsync_v2)(to, from, bytes, self.stream) })
    }

    /// Allocates memory from the pool and frees it, in stream order.
    pub(crate) fn allocate_and_free(&self, bytes: usize) -> Result<()> {
        let mut address = 0;
        // SAFETY: `address` is written.
        check(unsafe { (self.driver.cuMemAllocAsync)(&mut address, bytes, self.stream) })?;
        // SAFETY: just allocated, and unused.
        check(unsafe { (self.driver.cuMemFreeAsync)(address, self.stream) })
    }

    /// Loads a kernel from PTX text.
    pub(crate) fn kernel(&self, ptx: &str, name: &str) -> Result<Handle> {
        let (ptx, name) = (CString::new(ptx)?, CString::new(name)?);
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the text ends with a zero.
        check(unsafe { (self.driver.cuModuleLoadData)(&mut module, ptx.as_ptr()) })?;
        // SAFETY: the module stays loaded.
        check(unsafe { (self.driver.cuModuleGetFunction)(&mut function, module, name.as_ptr()) })?;
        Ok(function)
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    ///
    /// `arguments` point to as many values as the kernel has parameters, of the same types, and the memory that they
    /// refer to is large enough.
    pub(crate) unsafe fn launch(
        &self,
        kernel: Handle,
        launch: &Launch,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let ([x, y, z], [i, j, k]) = (launch.grid, launch.block);
        let (shared, arguments) = (launch.shared_bytes, arguments.as_mut_ptr());
        // SAFETY: the caller guarantees the arguments.
        check(unsafe {
            (self.driver.cuLaunchKernel)(
                kernel,
                x,
                y,
                z,
                i,
                j,
                k,
                shared,
                self.stream,
                arguments,
                null_mut(),
            )
        })
    }

    pub(crate) fn finish(&self) -> Result<()> {
        // SAFETY: the stream lives as long as this.
        check(unsafe { (self.driver.cuStreamSynchronize)(self.stream) })
    }
}
