//! Array buffers of any element type, behind one interface.
#![expect(
    unsafe_code,
    reason = "leases are written by kernels of Python, and exported to other libraries"
)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use runtime::array::ndarray::IxDyn;
use runtime::array::{ArrayBuffer, Lease, Leased, PartStatus, SharedArrayBuffer, TransferReport};
use runtime::{
    AnyView, AnyViewMut, DType, Device, Element, Error, ErrorKind, Event, Result, Stream,
};

use crate::array::{HostArray, Loan};
use crate::dtype;
use crate::wait;

/// The kind of access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Read,
    ReadWrite,
    Write,
}

/// An array of some element type and any number of dimensions, shared by several owners.
pub(super) trait Buffer: Send + Sync {
    fn dtype(&self) -> DType;

    fn shape(&self) -> &[usize];

    /// The metadata; also available while the array is held for writing.
    fn describe(&self, timeout: Duration) -> Result<Description>;

    /// Starts an access to the values, on the stream or on the host.
    fn take(&self, how: How, on: Option<&Stream>, timeout: Duration) -> Result<Arc<dyn Loan>>;

    fn prefetch(&self, on: Option<&Stream>, timeout: Duration) -> Result<()>;

    fn evict(&self, device: &Device, timeout: Duration) -> Result<()>;

    /// Moves the host's values into memory that is page-locked for the device, unless they are shown.
    fn page_lock(&self, device: &Device, timeout: Duration) -> Result<()>;

    /// Made by an access on the host. While it lives, the host's values keep their address.
    fn show(&self) -> Shown;

    fn duplicate(&self, timeout: Duration) -> Result<Arc<dyn Buffer>>;

    /// Notes the end of an access on a stream.
    fn accessed_on(&self, stream: &Stream);

    /// Waits for the accesses on streams, as the host is about to do. Can be interrupted.
    fn wait_ahead(&self) -> Result<()>;

    fn is_valid_on(&self, device: Option<&Device>, timeout: Duration) -> Result<bool>;
}

/// Kept by those who know the address of the host's values.
pub(super) type Shown = Arc<()>;

/// The metadata of an array.
pub(super) struct Description {
    pub(super) version: u64,
    pub(super) status: PartStatus,
    pub(super) transfers: TransferReport,
}

/// An array, and the access that holds it for writing.
struct Shared<T: Element> {
    array: SharedArrayBuffer<T, IxDyn>,
    /// The element type; elements are stored as `T`.
    dtype: DType,
    shape: Vec<usize>,
    writer: Writer<T>,
    shown: Mutex<Shown>,
    /// The ends of the latest accesses on streams, with the numbers of these.
    ends: Mutex<Vec<(u64, Event)>>,
}

/// The access that holds an array for writing. The lock is held while the access is inspected.
type Writer<T> = Arc<Mutex<Weak<Access<T>>>>;

/// Shares an array of `dtype`, stored as `T`.
pub(super) fn shared<T: Element>(array: ArrayBuffer<T, IxDyn>, dtype: DType) -> Arc<dyn Buffer> {
    let (shape, array) = (array.shape().to_vec(), SharedArrayBuffer::new(array));
    let (writer, shown, ends) = (Writer::default(), Mutex::default(), Mutex::default());
    Arc::new(Shared { array, dtype, shape, writer, shown, ends })
}

/// Uses the memory of a host array, which must be writable, aligned, in row-major order without gaps, and not empty.
pub(super) fn taken_up(host: HostArray<'_>) -> Result<Arc<dyn Buffer>> {
    dtype::with_storage!(host.layout().dtype(), T => stored_as::<T>(host))
}

/// As `taken_up`, for elements stored as `T`.
fn stored_as<T: Element>(host: HostArray<'_>) -> Result<Arc<dyn Buffer>> {
    let (first, layout) = (host.data()?.cast::<T>(), *host.layout());
    let Some(first) = NonNull::new(first) else {
        let message = "an array at a null pointer";
        return Err(Error::new(ErrorKind::InvalidArgument, "ArrayBuffer", message));
    };
    let (shape, owner) = (IxDyn(layout.shape()), host.into_exchange().into_keeper());
    // SAFETY: by the protocol of the export, the elements exist and may be written until the owner is dropped. Other
    // users of the memory order their uses with the accesses, as the documentation of the class says.
    let array = unsafe { ArrayBuffer::from_host_memory(first, shape, owner) }?;
    Ok(shared(array, layout.dtype()))
}

impl<T: Element> Shared<T> {
    /// Applies `look` to the lease of the access that holds the array for writing, if there is one.
    fn in_lease<R>(&self, look: impl FnOnce(&Lease<T, IxDyn>) -> R) -> Option<R> {
        let writer = crate::lock(&self.writer);
        let access = writer.upgrade()?;
        access.lease.as_ref().map(look)
    }
}

impl<T: Element> Buffer for Shared<T> {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn describe(&self, timeout: Duration) -> Result<Description> {
        let held = self.in_lease(|lease| Description {
            version: lease.version(),
            status: lease.status(),
            transfers: lease.transfers(),
        });
        if let Some(held) = held {
            return Ok(held);
        }
        let array = self.array.read(timeout)?;
        let (version, status) = (array.version(), array.status(0));
        Ok(Description { version, status, transfers: array.transfers() })
    }

    fn take(&self, how: How, on: Option<&Stream>, timeout: Duration) -> Result<Arc<dyn Loan>> {
        let lease = match how {
            How::Read => self.array.lease_read(on, timeout),
            How::ReadWrite => self.array.lease_read_write(on, timeout),
            How::Write => self.array.lease_write(on, timeout),
        }?;
        let access = Arc::new(Access {
            lease: Some(lease),
            strange: false.into(),
            failed: false.into(),
            writer: Arc::clone(&self.writer),
        });
        if how != How::Read {
            *crate::lock(&self.writer) = Arc::downgrade(&access);
        }
        Ok(access)
    }

    fn prefetch(&self, on: Option<&Stream>, timeout: Duration) -> Result<()> {
        let array = self.array.read(timeout)?;
        match on {
            Some(stream) => array.prefetch(stream),
            None => array.prefetch_host(),
        }
    }

    fn evict(&self, device: &Device, timeout: Duration) -> Result<()> {
        self.array.write(timeout)?.evict(device)
    }

    fn page_lock(&self, device: &Device, timeout: Duration) -> Result<()> {
        let mut array = self.array.write(timeout)?;
        if Arc::get_mut(&mut crate::lock(&self.shown)).is_none() {
            let message = "a NumPy array of an earlier access uses the host's memory";
            return Err(Error::new(ErrorKind::Conflict, "page_lock", message));
        }
        array.page_lock(device)
    }

    fn show(&self) -> Shown {
        Arc::clone(&crate::lock(&self.shown))
    }

    fn duplicate(&self, timeout: Duration) -> Result<Arc<dyn Buffer>> {
        Ok(shared(self.array.read(timeout)?.duplicate()?, self.dtype))
    }

    fn accessed_on(&self, stream: &Stream) {
        // Without an event, the wait for the access cannot be interrupted.
        if let Ok(end) = stream.record_event() {
            let mut ends = crate::lock(&self.ends);
            ends.retain(|(number, end)| {
                *number != stream.id() && !matches!(end.is_done(), Ok(true))
            });
            ends.push((stream.id(), end));
        }
    }

    fn wait_ahead(&self) -> Result<()> {
        let ends = crate::lock(&self.ends).clone();
        wait::ahead(ends.into_iter().map(|(_, end)| Ok(end)))
    }

    fn is_valid_on(&self, device: Option<&Device>, timeout: Duration) -> Result<bool> {
        if let Some(valid) = self.in_lease(|lease| lease.is_valid_on(device)) {
            return Ok(valid);
        }
        let array = self.array.read(timeout)?;
        Ok(match device {
            Some(device) => array.is_valid_on(device),
            None => array.is_valid_on_host(),
        })
    }
}

/// An access that Python code holds.
struct Access<T: Element> {
    // Taken when the access ends.
    lease: Option<Lease<T, IxDyn>>,
    /// Set if foreign code may have written the values.
    strange: AtomicBool,
    /// Set if the code that held the access failed.
    failed: AtomicBool,
    writer: Writer<T>,
}

impl<T: Element> Access<T> {
    fn lease(&self) -> Result<&Lease<T, IxDyn>> {
        self.lease.as_ref().ok_or_else(over)
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

impl<T: Element> Loan for Access<T> {
    fn view(&self) -> Result<AnyView<'_>> {
        match self.lease()?.values()? {
            Leased::Device(view) => Ok(view.erase()),
            Leased::Host(_) => Err(over()),
        }
    }

    fn view_mut(&self) -> Result<AnyViewMut<'_>> {
        // SAFETY: this crate makes no slice of the memory. Foreign code that has its address orders accesses with this
        // view's work, as the documentation of the protocols requires.
        let view = unsafe { self.lease()?.view_mut_shared() }?;
        Ok(view.erase())
    }

    fn shape(&self) -> &[usize] {
        self.lease.as_ref().map_or(&[], Lease::shape)
    }

    fn host_address(&self) -> Result<usize> {
        match self.lease()?.values()? {
            Leased::Host(first) => Ok(first.as_ptr().expose_provenance()),
            Leased::Device(_) => Err(over()),
        }
    }

    fn lend_to_consumers(&self) {
        self.strange.store(true, Ordering::Release);
    }

    fn finish(self: Arc<Self>, failed: bool) -> Result<()> {
        self.failed.fetch_or(failed, Ordering::AcqRel);
        let writer = Arc::clone(&self.writer);
        // Not while another thread inspects the access, or that thread would have to end it.
        let looked_at = crate::lock(&writer);
        let last = Arc::into_inner(self);
        drop(looked_at);
        // If another share exists, its owner ends the access.
        last.map_or(Ok(()), |mut access| access.end())
    }
}

impl<T: Element> Drop for Access<T> {
    fn drop(&mut self) {
        // Reading a lost array reports the loss.
        let _ended = self.end();
    }
}

/// The error for an access that has ended.
#[cold]
pub(super) fn over() -> Error {
    Error::new(ErrorKind::Conflict, "access", "the access to the array buffer has ended")
}
