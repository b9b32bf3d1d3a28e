//! Array buffers of any element type behind one interface.
#![expect(
    unsafe_code,
    reason = "leases are written by kernels of Python, and lent to other libraries"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runtime::array::ndarray::IxDyn;
use runtime::array::{Lease, Leased, PartStatus, SharedArrayBuffer, TransferReport};
use runtime::{DType, Device, Element, MemoryView, MemoryViewMut, Result, Stream};

use crate::array::Lent;

/// How values are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Read,
    ReadWrite,
    Write,
}

/// A [`SharedArrayBuffer`] of some element type and any number of dimensions.
pub(super) trait Buffer: Send + Sync {
    fn dtype(&self) -> DType;

    fn describe(&self, timeout: Duration) -> Result<Description>;

    /// Takes the values, on the stream or on the host.
    fn take(&self, how: How, on: Option<&Stream>, timeout: Duration) -> Result<Arc<dyn Lent>>;

    fn prefetch(&self, on: Option<&Stream>, timeout: Duration) -> Result<()>;

    fn evict(&self, device: &Device, timeout: Duration) -> Result<()>;

    fn duplicate(&self, timeout: Duration) -> Result<Arc<dyn Buffer>>;

    fn is_valid_on(&self, device: Option<&Device>, timeout: Duration) -> Result<bool>;
}

/// What is known of an array without its values.
pub(super) struct Description {
    pub(super) shape: Vec<usize>,
    pub(super) version: u64,
    pub(super) status: PartStatus,
    pub(super) transfers: TransferReport,
}

impl<T: Element> Buffer for SharedArrayBuffer<T, IxDyn> {
    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn describe(&self, timeout: Duration) -> Result<Description> {
        let array = self.read(timeout)?;
        Ok(Description {
            shape: array.shape().to_vec(),
            version: array.version(),
            status: array.status(0),
            transfers: array.transfers(),
        })
    }

    fn take(&self, how: How, on: Option<&Stream>, timeout: Duration) -> Result<Arc<dyn Lent>> {
        let lease = match how {
            How::Read => self.lease_read(on, timeout),
            How::ReadWrite => self.lease_read_write(on, timeout),
            How::Write => self.lease_write(on, timeout),
        }?;
        Ok(Arc::new(Access { lease: Some(lease), strange: false.into(), failed: false.into() }))
    }

    fn prefetch(&self, on: Option<&Stream>, timeout: Duration) -> Result<()> {
        let array = self.read(timeout)?;
        match on {
            Some(stream) => array.prefetch(stream),
            None => array.prefetch_host(),
        }
    }

    fn evict(&self, device: &Device, timeout: Duration) -> Result<()> {
        self.write(timeout)?.evict(device)
    }

    fn duplicate(&self, timeout: Duration) -> Result<Arc<dyn Buffer>> {
        Ok(Arc::new(Self::new(self.read(timeout)?.duplicate()?)))
    }

    fn is_valid_on(&self, device: Option<&Device>, timeout: Duration) -> Result<bool> {
        let array = self.read(timeout)?;
        Ok(match device {
            Some(device) => array.is_valid_on(device),
            None => array.is_valid_on_host(),
        })
    }
}

/// Values that Python code holds.
struct Access<T: Element> {
    // Taken when it ends.
    lease: Option<Lease<T, IxDyn>>,
    /// Others may have written the values.
    strange: AtomicBool,
    /// The code that held them failed.
    failed: AtomicBool,
}

impl<T: Element> Access<T> {
    fn lease(&self) -> Result<&Lease<T, IxDyn>> {
        self.lease.as_ref().ok_or_else(super::over)
    }

    fn end(&mut self) -> Result<()> {
        let Some(mut lease) = self.lease.take() else { return Ok(()) };
        if *self.failed.get_mut() {
            lease.abort();
            return Ok(());
        }
        if *self.strange.get_mut() {
            lease.mark_written();
        }
        lease.commit()
    }
}

impl<T: Element> Lent for Access<T> {
    fn view(&self) -> Result<MemoryView<'_>> {
        match self.lease()?.values()? {
            Leased::Device(view) => Ok(view),
            Leased::Host(_) => Err(super::over()),
        }
    }

    fn view_mut(&self) -> Result<MemoryViewMut<'_>> {
        // SAFETY: this crate makes no slice of the memory, and who has its address outside orders accesses with this one's
        // work, which the documentation of the protocols asks for.
        unsafe { self.lease()?.view_mut_shared() }
    }

    fn shape(&self) -> &[usize] {
        self.lease.as_ref().map_or(&[], Lease::shape)
    }

    fn host_address(&self) -> Result<usize> {
        match self.lease()?.values()? {
            Leased::Host(first) => Ok(first.as_ptr().expose_provenance()),
            Leased::Device(_) => Err(super::over()),
        }
    }

    fn lend_to_strangers(&self) {
        self.strange.store(true, Ordering::Release);
    }

    fn finish(self: Arc<Self>, failed: bool) -> Result<()> {
        self.failed.fetch_or(failed, Ordering::AcqRel);
        // Whoever else holds it ends the access.
        Arc::into_inner(self).map_or(Ok(()), |mut access| access.end())
    }
}

impl<T: Element> Drop for Access<T> {
    fn drop(&mut self) {
        // An array that is lost says so when it is read.
        let _ended = self.end();
    }
}
