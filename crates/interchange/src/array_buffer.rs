//! Exports coherent arrays, and makes coherent arrays from imported memory.
#![expect(unsafe_code, reason = "adopts memory that the maker of a capsule described")]

use std::fmt;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use array_buffer::{ArrayBuffer, Constant, Lease, Leased, SharedArrayBuffer};
use ndarray::Dimension;
use runtime_core::{Device, Element, Error, ErrorKind, Layout, Result, Stream};

use crate::description::{Description, host};
use crate::lend::describe;
use crate::owner::{Hold, Owner, To, finish};
use crate::state::{Ordered, Pending, Ready, State};
use crate::{Access, ArrayExchange, ConversionError, MemoryKind};

impl ArrayExchange<Pending> {
    /// Exports an array's values on the device of `stream`. Values that are out of date there are copied first. They
    /// are ready when the work already enqueued on the stream has finished. A wait of the host, such as
    /// [`host_wait`](ArrayExchange::host_wait), also returns the failure of another stream through which the values
    /// came. A stream that is ordered after the export does not learn of it.
    ///
    /// The capsule, and then its consumer, holds the array. While it is exported [`ReadOnly`](Access::ReadOnly), others
    /// can read it. While it is exported [`ReadWrite`](Access::ReadWrite), no other code can use it. When the consumer
    /// returns it, the call waits for all work of the device, because no protocol says when the consumer's own work has
    /// finished. A writable export is then committed, or, if work failed, poisoned. A consumer that is a device of this
    /// runtime returns the array when its work on it is done. The write is then committed as work of `stream`: if work
    /// on `stream` fails, the array is poisoned. A failure on another stream is reported by that stream only. A capsule
    /// that was never handed over changes nothing. [`Copied`](Access::Copied) exports a duplicate, and does not hold
    /// the array.
    ///
    /// To export an array that is not shared, wrap it: `&SharedArrayBuffer::new(array)`. The capsule becomes the owner.
    ///
    /// # Errors
    ///
    /// `Timeout` and `Conflict`; these name the holder of the array. As reading the array. Until the array is back, the
    /// calling thread is its holder: a conflicting access of this thread is a `Conflict` at once.
    #[track_caller]
    pub fn export<T: Element, D: Dimension + 'static>(
        array: &SharedArrayBuffer<T, D>,
        stream: &Stream,
        access: Access,
        timeout: Duration,
    ) -> Result<Self> {
        let lease = lease(array, Some(stream), access, timeout)?;
        let state = Pending::on(stream).with_origins(lease.origins()?);
        let (array, owner) = export_lease(lease, access)?;
        Ok(Self { array: Box::new(array), state, owner })
    }
}

impl ArrayExchange<Ready> {
    /// As [`export`](ArrayExchange::export), on the host. Blocks until the values are ready.
    ///
    /// # Errors
    ///
    /// As [`export`](ArrayExchange::export).
    #[track_caller]
    pub fn export_host<T: Element, D: Dimension + 'static>(
        array: &SharedArrayBuffer<T, D>,
        access: Access,
        timeout: Duration,
    ) -> Result<Self> {
        let (array, owner) = export_lease(lease(array, None, access, timeout)?, access)?;
        Ok(Self { array: Box::new(array), state: Ready, owner })
    }

    /// Makes an array from the capsule, without a copy. The memory becomes the array's replica on the device of
    /// `stream`, or on the host if that device works in host memory. When the array is dropped, the memory returns to
    /// its owner.
    ///
    /// The owner sees writes made elsewhere once the values were copied back: with
    /// [`prefetch_host`](ArrayBuffer::prefetch_host), or with [`prefetch`](ArrayBuffer::prefetch) and waiting for the
    /// stream.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the capsule is read-only; use [`into_read_replica`](Self::into_read_replica).
    /// `InvalidArgument` if it is not in row-major order without gaps; use
    /// [`Adopted::to_memory`](crate::Adopted::to_memory) to copy it. `InvalidArgument` if the number of dimensions is
    /// not that of `D`. As [`into_adopted`](Self::into_adopted).
    pub fn into_array_buffer<T: Element, D: Dimension>(
        self,
        stream: &Stream,
    ) -> Result<ArrayBuffer<T, D>, ConversionError<Self>> {
        let checked = writable(&self.array);
        self.replica(stream, checked)
    }

    /// Makes an array from the capsule, without a copy. The memory becomes the array's replica on the host. When the
    /// array is dropped, the memory returns to its owner. The owner sees writes made elsewhere after the next access on
    /// the host.
    ///
    /// # Errors
    ///
    /// As [`into_array_buffer`](Self::into_array_buffer). `InvalidArgument` if the host cannot dereference a pointer to
    /// the memory.
    pub fn into_host_array_buffer<T: Element, D: Dimension>(
        self,
    ) -> Result<ArrayBuffer<T, D>, ConversionError<Self>> {
        match self.host_array() {
            Ok(array) => {
                self.owner.lend(To::Device);
                Ok(array)
            }
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }

    fn host_array<T: Element, D: Dimension>(&self) -> Result<ArrayBuffer<T, D>> {
        writable(&self.array)?;
        let shape = self.row_major_shape::<D>()?;
        if T::DTYPE != self.dtype() {
            return Err(invalid(format!("{} elements as {}", self.dtype(), T::DTYPE)));
        }
        let address = self.pointer().filter(|_| self.kind().is_host_readable());
        let first = address.and_then(|at| NonNull::new(ptr::with_exposed_provenance_mut::<T>(at)));
        let Some(first) = first.filter(|first| first.is_aligned()) else {
            let message = format!(
                "memory of {} that the host does not address, or not aligned",
                self.device()
            );
            return Err(invalid(message));
        };
        // SAFETY: the maker of the capsule promised that the elements are initialised and writable, that they stay
        // until the owner is dropped, and that accesses are ordered.
        unsafe { ArrayBuffer::from_host_memory(first, shape, Arc::clone(&self.owner)) }
    }

    /// As [`into_array_buffer`](Self::into_array_buffer), for a read-only capsule. The result cannot be written, and
    /// its memory cannot be taken out of it.
    ///
    /// # Errors
    ///
    /// As [`into_array_buffer`](Self::into_array_buffer), except that a read-only capsule is accepted.
    pub fn into_read_replica<T: Element, D: Dimension>(
        self,
        stream: &Stream,
    ) -> Result<ReadReplica<T, D>, ConversionError<Self>> {
        self.replica(stream, Ok(())).map(|array| ReadReplica(array.freeze()))
    }
}

impl ArrayExchange<Ordered> {
    /// As [`into_array_buffer`](ArrayExchange::into_array_buffer) of a ready array, on the device of
    /// [`stream`](Self::stream). The host does not block.
    ///
    /// # Errors
    ///
    /// As [`into_array_buffer`](ArrayExchange::into_array_buffer) of a ready array.
    pub fn into_array_buffer<T: Element, D: Dimension>(
        self,
    ) -> Result<ArrayBuffer<T, D>, ConversionError<Self>> {
        let (stream, checked) = (self.stream().clone(), writable(&self.array));
        self.replica(&stream, checked)
    }

    /// As [`into_read_replica`](ArrayExchange::into_read_replica) of a ready array, on the device of
    /// [`stream`](Self::stream).
    ///
    /// # Errors
    ///
    /// As [`into_read_replica`](ArrayExchange::into_read_replica) of a ready array.
    pub fn into_read_replica<T: Element, D: Dimension>(
        self,
    ) -> Result<ReadReplica<T, D>, ConversionError<Self>> {
        let stream = self.stream().clone();
        self.replica(&stream, Ok(())).map(|array| ReadReplica(array.freeze()))
    }
}

impl<S: State> ArrayExchange<S> {
    /// Makes the array with the capsule's memory as a replica. The caller does not write a read-only one.
    fn replica<T: Element, D: Dimension>(
        self,
        stream: &Stream,
        checked: Result<()>,
    ) -> Result<ArrayBuffer<T, D>, ConversionError<Self>> {
        let made = checked.and_then(|()| self.array_on(stream));
        match made {
            Ok(array) => {
                self.owner.lend(To::Device);
                Ok(array)
            }
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }

    fn array_on<T: Element, D: Dimension>(&self, stream: &Stream) -> Result<ArrayBuffer<T, D>> {
        let shape = self.row_major_shape::<D>()?;
        let (memory, _) = self.adopted::<T>(stream.device())?;
        Ok(ArrayBuffer::from_memory(memory, shape, stream)?)
    }

    /// The extents; the layout must be row-major without gaps.
    fn row_major_shape<D: Dimension>(&self) -> Result<D> {
        let layout = &self.array.layout;
        if !layout.is_contiguous() {
            let message = format!(
                "strides {:?} of shape {:?} are not row-major without gaps",
                layout.strides(),
                layout.shape()
            );
            return Err(invalid(message));
        }
        if D::NDIM.is_some_and(|rank| rank != layout.rank()) {
            let message =
                format!("shape {:?} for {} dimensions", layout.shape(), D::NDIM.unwrap_or(0));
            return Err(invalid(message));
        }
        let mut shape = D::zeros(layout.rank());
        shape.slice_mut().copy_from_slice(layout.shape());
        Ok(shape)
    }
}

/// A read-only array over foreign memory. It can be read on every device. It cannot be converted into its memory.
pub struct ReadReplica<T: Element, D: Dimension>(ArrayBuffer<T, D, Constant>);

impl<T: Element, D: Dimension> Deref for ReadReplica<T, D> {
    type Target = ArrayBuffer<T, D, Constant>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T: Element, D: Dimension> fmt::Debug for ReadReplica<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadReplica").field(&self.0).finish()
    }
}

#[track_caller]
fn lease<T: Element, D: Dimension>(
    array: &SharedArrayBuffer<T, D>,
    stream: Option<&Stream>,
    access: Access,
    timeout: Duration,
) -> Result<Lease<T, D>> {
    match access {
        Access::ReadOnly => array.lease_read(stream, timeout),
        Access::ReadWrite => array.lease_read_write(stream, timeout),
        Access::Copied => {
            let copy = SharedArrayBuffer::new(array.read(timeout)?.duplicate()?);
            copy.lease_read_write(stream, timeout)
        }
    }
}

/// Makes a lease the owner of an exported array.
fn export_lease<T: Element, D: Dimension + 'static>(
    lease: Lease<T, D>,
    access: Access,
) -> Result<(Description, Owner)> {
    let array = match lease.values()? {
        Leased::Device(view) => Description { access, ..describe(&view.erase())? },
        Leased::Host(first) => {
            let strides: Vec<_> = lease.strides().iter().map(|step| step.cast_signed()).collect();
            let layout = Layout::new(T::DTYPE, lease.shape(), &strides)?;
            let address = first.as_ptr().expose_provenance();
            Description::at(address, "host", layout, MemoryKind::Host, host(), access)?
        }
    };
    // When a consumer returns host memory, its work on it has finished.
    let fence = lease.device().filter(|_| array.kind != MemoryKind::Host).cloned();
    let lender = Lender { lease: Some(lease), fence, with: AtomicU8::new(KEPT) };
    Ok((array, Arc::new(lender)))
}

/// Values of `Lender::with`: still in the capsule; handed to a device of this runtime; handed to foreign code.
const KEPT: u8 = 0;
const WITH_DEVICE: u8 = 1;
const WITH_CONSUMER: u8 = 2;

/// Holds an array's values while they are exported.
struct Lender<T: Element, D: Dimension> {
    // Taken in `drop`.
    lease: Option<Lease<T, D>>,
    /// The device where foreign work may continue when the memory is returned.
    fence: Option<Device>,
    with: AtomicU8,
}

impl<T: Element, D: Dimension> Hold for Lender<T, D> {
    fn lend(&self, to: To) {
        let with = match to {
            To::Device => WITH_DEVICE,
            To::Consumer => WITH_CONSUMER,
        };
        self.with.fetch_max(with, Ordering::AcqRel);
    }
}

impl<T: Element, D: Dimension> Drop for Lender<T, D> {
    fn drop(&mut self) {
        let Some(mut lease) = self.lease.take() else { return };
        let done = match (self.with.load(Ordering::Acquire), &self.fence) {
            (KEPT, _) => return,
            (WITH_CONSUMER, Some(device)) => finish(device),
            _ => Ok(()),
        };
        match done {
            Ok(()) => lease.mark_written(),
            Err(error) => {
                tracing::warn!(%error, "a consumer's work failed, or earlier work");
                lease.abort();
            }
        }
    }
}

fn writable(array: &Description) -> Result<()> {
    if array.access.is_writable() {
        return Ok(());
    }
    Err(invalid("an array that is only to be read; into_read_replica takes it".into()))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "array", message)
}

#[cfg(test)]
mod tests {
    use array_buffer::PartStatus;
    use backend_sim::{Fault, Operation, SimConfig, SimDevice};
    use ndarray::Ix1;

    use super::*;
    use crate::owner::tests::strange_work;

    /// An array that was exported to foreign code on a device with its own memory, like a GPU.
    fn lent(device: &Device) -> (SharedArrayBuffer<f64, Ix1>, Lender<f64, Ix1>) {
        let shared = SharedArrayBuffer::new(ArrayBuffer::from_vec(vec![1.0, 2.0], 2).unwrap());
        let stream = device.default_stream();
        let lease = lease(&shared, Some(&stream), Access::ReadWrite, Duration::ZERO).unwrap();
        let fence = Some(device.clone());
        let lender = Lender { lease: Some(lease), fence, with: AtomicU8::new(KEPT) };
        lender.lend(To::Consumer);
        (shared, lender)
    }

    #[test]
    fn a_write_is_committed_when_the_consumer_is_done() {
        let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
        let (shared, lender) = lent(&device);
        let (_memory, stream, gate) = strange_work(&device);
        gate.open_later();
        drop(lender);
        assert!(stream.is_done().unwrap());
        let array = shared.read(Duration::ZERO).unwrap();
        assert_eq!((array.version(), array.status(0)), (1, PartStatus::Valid));
    }

    #[test]
    fn a_write_is_aborted_when_work_failed() {
        let config = SimConfig::new().fault(Fault::fail_late(Operation::Launch, 1));
        let device = Device::new(SimDevice::new(0, config)).unwrap();
        let (shared, lender) = lent(&device);
        let (_memory, _stream, gate) = strange_work(&device);
        gate.open();
        drop(lender);
        let array = shared.read(Duration::ZERO).unwrap();
        assert_eq!((array.version(), array.status(0)), (0, PartStatus::Poisoned));
    }
}
