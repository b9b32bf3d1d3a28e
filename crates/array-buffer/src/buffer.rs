//! The array type, [`ArrayBuffer`].

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

use coherence::{Access, Action, HOST, PartSet, Reduce, ReplicaId};
use ndarray::{Array, ArrayViewMut, Dimension, IntoDimension, ShapeBuilder};
use runtime_core::{DType, Device, Element, Error, ErrorKind, Memory, Result, Stream};

use crate::core::{Core, Exclusive, Request};
use crate::guard::{HostReadGuard, HostWriteGuard, ReadGuard, StreamRef, WriteGuard};
use crate::part::{PartMut, PartRef};
use crate::poison::Verdict;
use crate::report::TransferReport;
use crate::scope::here;
use crate::status::PartStatus;
use crate::storage::zeroed;
use crate::{ConversionError, Home, MemoryBudget, Partition, Parts, Priority};

/// The type parameter of an [`ArrayBuffer`] that can be written.
#[derive(Clone, Copy, Debug)]
pub enum Mutable {}

/// The type parameter of an [`ArrayBuffer`] that cannot be written on any device: see [`ArrayBuffer::freeze`].
#[derive(Clone, Copy, Debug)]
pub enum Constant {}

/// An n-dimensional array with replicas on any number of devices and the host. It is in row-major order, unless its
/// [`Partition`] says [otherwise](Partition::with_order).
///
/// Each access says where it happens, and whether it reads, writes or does both. The access copies exactly the values
/// that are out of date in that place. See the [crate] for examples, and [`Partition`] for arrays whose parts have
/// separate validity.
///
/// Metadata calls, such as [`shape`](Self::shape) and [`version`](Self::version), copy nothing. A replica's memory is
/// allocated when it is first needed. It keeps its address until it is [evicted](Self::evict).
pub struct ArrayBuffer<T: Element, D: Dimension, A = Mutable> {
    pub(crate) core: Arc<Core<T, D>>,
    marker: PhantomData<fn() -> A>,
}

/// A guard on the current device of this thread: see [`offload`](crate::offload).
#[derive(Debug)]
pub enum Here<G, H> {
    /// On the current stream.
    Device(G),
    /// On the host.
    Host(H),
}

impl<G, H> Here<G, H> {
    /// Whether the guard is on a device.
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Device(_))
    }

    /// Whether the guard is on the host.
    pub fn is_host(&self) -> bool {
        matches!(self, Self::Host(_))
    }
}

impl<T: Element, D: Dimension> ArrayBuffer<T, D> {
    /// Creates an array of `shape` without values. Reading it returns `Uninitialized` until it is written. Allocates
    /// nothing.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for more than six dimensions, or for more bytes than the address space has.
    pub fn uninit<S: IntoDimension<Dim = D>>(shape: S) -> Result<Self> {
        let shape = shape.into_dimension();
        let partition = Partition::whole(shape.slice())?;
        Self::build(shape, partition)
    }

    /// As [`uninit`](Self::uninit), divided into the parts of `partition`.
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit). `InvalidArgument` if the number of dimensions is not that of `D`.
    pub fn with_partition(partition: Partition) -> Result<Self> {
        if D::NDIM.is_some_and(|ndim| ndim != partition.shape().len()) {
            let message = format!("a partition of shape {:?}", partition.shape());
            return Err(invalid("with_partition", message));
        }
        let mut shape = D::zeros(partition.shape().len());
        shape.slice_mut().copy_from_slice(partition.shape());
        Self::build(shape, partition)
    }

    /// Creates an array in row-major order from `array`. A row-major array is moved, not copied. For other orders, see
    /// [`Partition::with_order`].
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit).
    pub fn from_array(array: Array<T, D>) -> Result<Self> {
        let partition = Partition::whole(array.shape())?;
        Self::from_array_with(array, partition)
    }

    /// As [`from_array`](Self::from_array), divided into the parts of `partition`, and in its order. An array that has
    /// this order, without gaps, is moved. Ghost parts count as filled.
    ///
    /// # Errors
    ///
    /// As [`from_array`](Self::from_array). `InvalidArgument` if the shapes differ. `OutOfMemory`.
    pub fn from_array_with(array: Array<T, D>, partition: Partition) -> Result<Self> {
        if array.shape() != partition.shape() {
            let shapes = format!("{:?} for a partition of {:?}", array.shape(), partition.shape());
            return Err(invalid("from_array", format!("an array of {shapes}")));
        }
        let shape = array.raw_dim();
        let len = array.len();
        let strides = || partition.strides().iter().map(|stride| stride.cast_signed());
        let array = match array.is_standard_layout() {
            true if partition.is_row_major() => array,
            false if !partition.has_gaps() && array.strides().iter().copied().eq(strides()) => {
                array
            }
            _ => return Self::from_array_of_other_order(&array, partition),
        };
        let elements = match array.into_raw_vec_and_offset() {
            (elements, offset) if elements.len() > len => {
                let first = offset.unwrap_or(0);
                elements[first..first + len].to_vec()
            }
            (elements, _) => elements,
        };
        Self::from_vec_with(elements, shape, partition)
    }

    /// Creates an array from elements in row-major order, without a copy.
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit). `InvalidArgument` if the number of elements does not match `shape`.
    pub fn from_vec<S: IntoDimension<Dim = D>>(elements: Vec<T>, shape: S) -> Result<Self> {
        let shape = shape.into_dimension();
        let partition = Partition::whole(shape.slice())?;
        Self::from_vec_with(elements, shape, partition)
    }

    /// Creates an array over host memory that the caller manages, without a copy. The elements are in row-major order,
    /// starting at `first`. `owner` is dropped once the array and everything else that uses the memory are gone.
    /// [`evict_host`](Self::evict_host) also drops it, and holds the array until the destructor returns, unless the
    /// memory is [page-locked](Self::page_lock). For destructors that use arrays, see [`Lease`](crate::Lease).
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit).
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped, the memory has as many initialised and writable elements as `shape`. Until then, any
    /// other use of them is ordered with the accesses to the array on the host.
    #[expect(unsafe_code, reason = "the caller vouches for the memory")]
    pub unsafe fn from_host_memory<S: IntoDimension<Dim = D>>(
        first: NonNull<T>,
        shape: S,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        let buffer = Self::uninit(shape)?;
        // SAFETY: as the caller promises.
        unsafe { buffer.core.storage.adopt_host_of(first, Box::new(owner)) };
        buffer.core.begin_with(*buffer.all(), HOST, None, &[])?;
        Ok(buffer)
    }

    fn from_array_of_other_order(array: &Array<T, D>, partition: Partition) -> Result<Self> {
        let mut strides = array.raw_dim();
        strides.slice_mut().copy_from_slice(partition.strides());
        let mut elements = zeroed(partition.memory_len::<T>()?)?;
        if !array.is_empty() {
            let target = ArrayViewMut::from_shape(array.raw_dim().strides(strides), &mut elements);
            let mut target = target.map_err(|error| invalid("from_array", error.to_string()))?;
            target.assign(array);
        }
        Self::from_vec_with(elements, array.raw_dim(), partition)
    }

    fn from_vec_with(elements: Vec<T>, shape: D, partition: Partition) -> Result<Self> {
        let buffer = Self::build(shape, partition)?;
        if elements.len() != buffer.core.storage.len() {
            let message = format!("{} elements for shape {:?}", elements.len(), buffer.shape());
            return Err(invalid("from_vec", message));
        }
        buffer.core.storage.adopt_host(elements);
        buffer.core.begin_with(*buffer.all(), HOST, None, &[])?;
        Ok(buffer)
    }

    /// Creates an array from memory of a device, without a copy. Work already enqueued on the memory, on `stream` or on
    /// others, comes before every access to the array. `stream` waits for the other streams, as
    /// [`Memory::order_before`] describes. The array detects failures on `stream`; the other streams report their own
    /// failures.
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit). `InvalidArgument` if the number of elements does not match `shape`, or if the
    /// stream is capturing. `WrongDevice` if the stream belongs to another device. Errors of the driver. The error
    /// returns the memory.
    pub fn from_memory<S: IntoDimension<Dim = D>>(
        memory: Memory<T>,
        shape: S,
        stream: &Stream,
    ) -> Result<Self, ConversionError<Memory<T>>> {
        let prepared = Self::uninit(shape).and_then(|buffer| {
            let at = buffer.prepare_for(&memory, stream)?;
            Ok((buffer, at))
        });
        let (buffer, at) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err(ConversionError::new(memory, error)),
        };
        buffer.core.storage.adopt_memory(at, memory);
        // A new state has a lane for the stream.
        let begun = buffer.core.begin_with(*buffer.all(), at, Some(stream), &[]);
        debug_assert!(begun.is_ok(), "{begun:?}");
        Ok(buffer)
    }

    /// Checks that the memory can become the array's on the stream's device, whose replica is returned, and orders
    /// earlier work on it before the stream's.
    fn prepare_for(&self, memory: &Memory<T>, stream: &Stream) -> Result<ReplicaId> {
        if memory.len() != self.len() {
            let message = format!("{} elements for shape {:?}", memory.len(), self.shape());
            return Err(invalid("from_memory", message));
        }
        if !memory.device().is_same(stream.device()) {
            let message = format!("memory of {}", memory.device().id());
            let error = Error::new(ErrorKind::WrongDevice, "from_memory", message);
            return Err(error.on(stream.device().id()));
        }
        let at = self.core.introduce(stream)?;
        memory.order_before(stream)?;
        Ok(at)
    }

    fn build(shape: D, partition: Partition) -> Result<Self> {
        Ok(Self { core: Arc::new(Core::new(shape, partition)?), marker: PhantomData })
    }

    /// Borrows the values to read and write on `stream`. Values that are out of date there are copied first.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read) and [`write`](Self::write).
    #[track_caller]
    #[inline]
    pub fn read_write<'a>(&'a mut self, stream: &'a Stream) -> Result<WriteGuard<'a, T, D>> {
        self.exclusive().forget_idle_if_crowded()?;
        let stream = StreamRef::Borrowed(stream);
        WriteGuard::take(
            &self.core,
            self.all(),
            stream,
            Access::ReadWrite,
            Location::caller(),
            true,
        )
    }

    /// Borrows the array to overwrite it on `stream`. Nothing is copied. The caller must write every element. This
    /// method checks that only after [`set_check_writes`](Self::set_check_writes). The call works even if the values
    /// are poisoned or were never written. A pending reduction is dropped.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; the array is unchanged. The failure of an earlier writer, if the array must stop tracking that
    /// writer's stream to make room for this one.
    #[track_caller]
    #[inline]
    pub fn write<'a>(&'a mut self, stream: &'a Stream) -> Result<WriteGuard<'a, T, D>> {
        self.exclusive().forget_idle_if_crowded()?;
        let stream = StreamRef::Borrowed(stream);
        WriteGuard::take(&self.core, self.all(), stream, Access::Write, Location::caller(), true)
    }

    /// Borrows the array to add contributions to it on `stream`. Owned parts keep their values. Ghost parts begin with
    /// the neutral value of `op`, unless contributions of the same kind are already pending. Contributions to ghosts
    /// stay there until a [reduction](Self::begin_exchange); until then, owned values cannot be read.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). `Stale` if another reduction is pending. `InvalidArgument` if the element type does not
    /// support the operation.
    #[track_caller]
    #[inline]
    pub fn accumulate<'a>(
        &'a mut self,
        stream: &'a Stream,
        op: Reduce,
    ) -> Result<WriteGuard<'a, T, D>> {
        self.exclusive().forget_idle_if_crowded()?;
        let stream = StreamRef::Borrowed(stream);
        WriteGuard::take(
            &self.core,
            self.all(),
            stream,
            Access::Accumulate(op),
            Location::caller(),
            true,
        )
    }

    /// As [`read_write`](Self::read_write), on the host. Blocks until all other uses of the host's replica have
    /// finished.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    #[track_caller]
    #[inline]
    pub fn read_write_host(&mut self) -> Result<HostWriteGuard<'_, T, D>> {
        self.exclusive().forget_idle_if_crowded()?;
        HostWriteGuard::take(&self.core, self.all(), Access::ReadWrite, Location::caller(), true)
    }

    /// As [`write`](Self::write), on the host. Blocks until all other uses of the host's replica have finished. Fresh
    /// host memory is zero.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write). Failures of copies from or to [page-locked](Self::page_lock) memory that the call
    /// waits for. These are reported once; the next call succeeds.
    #[track_caller]
    #[inline]
    pub fn write_host(&mut self) -> Result<HostWriteGuard<'_, T, D>> {
        self.exclusive().forget_idle_if_crowded()?;
        HostWriteGuard::take(&self.core, self.all(), Access::Write, Location::caller(), true)
    }

    /// As [`accumulate`](Self::accumulate), on the host.
    ///
    /// # Errors
    ///
    /// As [`accumulate`](Self::accumulate).
    #[track_caller]
    #[inline]
    pub fn accumulate_host(&mut self, op: Reduce) -> Result<HostWriteGuard<'_, T, D>> {
        self.exclusive().forget_idle_if_crowded()?;
        HostWriteGuard::take(
            &self.core,
            self.all(),
            Access::Accumulate(op),
            Location::caller(),
            true,
        )
    }

    /// As [`read_write`](Self::read_write), on the current device of this thread.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    #[track_caller]
    #[inline]
    pub fn read_write_here(
        &mut self,
    ) -> Result<Here<WriteGuard<'_, T, D>, HostWriteGuard<'_, T, D>>> {
        self.write_access_here(Access::ReadWrite)
    }

    /// As [`write`](Self::write), on the current device of this thread.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    #[track_caller]
    #[inline]
    pub fn write_here(&mut self) -> Result<Here<WriteGuard<'_, T, D>, HostWriteGuard<'_, T, D>>> {
        self.write_access_here(Access::Write)
    }

    #[track_caller]
    fn write_access_here(
        &mut self,
        access: Access,
    ) -> Result<Here<WriteGuard<'_, T, D>, HostWriteGuard<'_, T, D>>> {
        let call_site = Location::caller();
        self.exclusive().forget_idle_if_crowded()?;
        let all = self.all();
        match here() {
            Some(stream) => {
                WriteGuard::take(&self.core, all, StreamRef::Owned(stream), access, call_site, true)
                    .map(Here::Device)
            }
            None => HostWriteGuard::take(&self.core, all, access, call_site, true).map(Here::Host),
        }
    }

    /// Splits the array into sets of parts that can be borrowed separately.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if two sets have a part in common, or if the array does not have a part. The failure of an
    /// earlier writer, if the array must stop tracking that writer's stream.
    pub fn split<const N: usize>(&mut self, sets: [Parts; N]) -> Result<[PartMut<'_, T, D>; N]> {
        let mut taken = PartSet::EMPTY;
        for parts in sets {
            self.check(parts)?;
            if !taken.and(parts.set).is_empty() {
                return Err(invalid("split", format!("{parts:?} after {taken:?}: a part twice")));
            }
            taken = taken.union(parts.set);
        }
        self.exclusive().forget_idle_if_crowded()?;
        Ok(sets.map(|parts| PartMut { core: &self.core, set: parts.set }))
    }

    /// Keeps the host's values in memory that is page-locked for `device`, from now on. Copies between that memory and
    /// the device are then enqueued, and the host does not wait for them: [`prefetch`](Self::prefetch) and
    /// [`prefetch_host`](Self::prefetch_host) return at once, and an access of the host waits for the copies of the
    /// accessed parts alone. A part with gaps that has more than 64 rows is copied as before: see
    /// [blocking](crate#blocking).
    ///
    /// Values that the host has already are locked where they are, and [`into_inner`](Self::into_inner) returns the
    /// same memory. They are copied instead, by both calls, if the device cannot [lock](Device::pin_vec) memory that it
    /// did not allocate, or if another page-locked vector shares a memory page with them. Host memory that is made
    /// later is allocated page-locked, and `into_inner` copies the values out of it. Blocks until prefetched copies
    /// from and to the host are done. Does nothing for a device that works in host memory.
    ///
    /// [Memory of another owner](Self::from_host_memory) is locked where it is, or not at all. It must begin at a
    /// memory page. It stays locked until the array is dropped or the host is [evicted](Self::evict_host), and the
    /// copies are done. Its owner is dropped after that, usually by a thread of the device. For lent memory, there is
    /// [`lend_page_locked`](crate::lend_page_locked).
    ///
    /// ```
    /// # fn example(device: &runtime_core::Device) -> array_buffer::Result<()> {
    /// use array_buffer::ArrayBuffer;
    ///
    /// let stream = device.default_stream();
    /// let mut field = ArrayBuffer::<f64, _>::uninit([1024, 1024])?;
    /// field.page_lock(device)?;
    /// field.write_host()?.fill(1.0);
    /// // Returns at once, also while the stream is busy.
    /// field.prefetch(&stream)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the device cannot lock as much; if the memory is made later, ordinary memory takes its place,
    /// with a warning. `Conflict` if another device works in the host's values, or if they are page-locked for another
    /// device. For memory of another owner: `InvalidArgument` if it does not begin at a memory page, `Unsupported` if
    /// the device cannot lock memory that it did not allocate, `Conflict` if a page of it is locked already.
    /// `LimitExceeded` for a device too many. Errors of copies that were prefetched. The array is then as before.
    pub fn page_lock(&mut self, device: &Device) -> Result<()> {
        self.exclusive().page_lock(device)
    }

    /// Gives the array a home, or takes it away. Each committed write elsewhere, by a guard, a lease or an exchange, is
    /// copied to the home at once. So an eviction elsewhere copies nothing, and the loss of a device loses no values
    /// whose copies have arrived on the host. An eviction from the home itself ends this for the evicted parts, until
    /// they are written or prefetched again: by [`evict`](Self::evict), by [`evict_host`](Self::evict_host), or by a
    /// [memory budget](Self::set_memory_budget) with less room than the array needs. The end of a write waits for its
    /// copy to a host that is not page-locked: see [Blocking](crate#blocking). This call copies the values that exist.
    ///
    /// The report of transfers names these copies `write_through`, with the line of the write. As prefetches, they do
    /// not count for a [`TransferBudget`](crate::TransferBudget). If a copy fails, the write is committed nevertheless:
    /// [`commit`](WriteGuard::commit) returns the error of the copy, and dropping a guard logs it. The next write of
    /// the part copies again. A failure of an enqueued copy is reported by its stream. A [`duplicate`](Self::duplicate)
    /// has no home.
    ///
    /// ```
    /// use array_buffer::{ArrayBuffer, Home, TransferBudget};
    /// use backend_sim::{SimConfig, SimDevice};
    /// use runtime_core::Device;
    ///
    /// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
    /// let stream = device.default_stream();
    /// let mut array = ArrayBuffer::<f64, _>::uninit(4)?;
    /// array.set_home(Some(Home::Host))?;
    /// let mut guard = array.write(&stream)?;
    /// guard.view_mut()?.fill(&stream, 1.0)?;
    /// guard.commit()?; // copies to the host
    ///
    /// let _nothing = TransferBudget::forbid();
    /// array.evict(&device)?;
    /// assert_eq!(array.read_host()?[3], 1.0);
    /// # Ok::<(), array_buffer::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`prefetch`](Self::prefetch); the home is then as before. So a device on which a memory budget has less room
    /// than all values need is refused with `OutOfMemory`.
    #[track_caller]
    pub fn set_home(&mut self, home: Option<Home>) -> Result<()> {
        self.exclusive().forget_idle_if_crowded()?;
        self.core.set_home(home, Location::caller())
    }

    /// Lets host and device share one replica from now on, in [unified](Device::unified_memory) memory. No copies are
    /// made between the two: an access of the host waits for the device's work on the accessed parts, and the device's
    /// work waits for accesses of the host.
    ///
    /// This saves copies if host and device take turns often. It is slower if the device works long between two
    /// accesses of the host, and its kernels reach unified memory more slowly than its own. It is also slower if the
    /// driver moves whole memory pages of which an access needs little.
    ///
    /// The call moves the values, and blocks for that as [`evict`](Self::evict) does, and until prefetched copies from
    /// and to the host are done. From then on the device has no memory of its own for this array, and the host's memory
    /// stays: [`evict_host`](Self::evict_host) is refused, and so is [`into_memory`](Self::into_memory) of the device;
    /// [`into_inner`](Self::into_inner) copies the values. A [home](Self::set_home) in this replica is no second copy
    /// of the values. [Duplicates](Self::duplicate) have two replicas and no home. The device's former replica still
    /// counts for the limit of replicas. The call does nothing for a device that works in host memory.
    ///
    /// ```
    /// use array_buffer::{ArrayBuffer, ErrorKind};
    /// use backend_sim::{SimConfig, SimDevice};
    /// use runtime_core::Device;
    ///
    /// let device = Device::new(SimDevice::new(0, SimConfig::new().unified_memory(true)))?;
    /// let stream = device.default_stream();
    /// let mut field = ArrayBuffer::from_array(ndarray::Array1::<f64>::zeros(1000))?;
    /// match field.unify(&device) {
    ///     Err(error) if error.kind() == ErrorKind::Unsupported => {} // The array works as before.
    ///     unified => unified?,
    /// }
    /// field.write(&stream)?.view_mut()?.fill(&stream, 7.0)?;
    /// assert_eq!(field.read_host()?[999], 7.0);
    /// assert_eq!(field.transfers().total().bytes, 0);
    /// # Ok::<(), array_buffer::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` if the driver does not say that host and device may use such memory at the same time. `Conflict`
    /// if another device works in the host's memory, if that memory is [page-locked](Self::page_lock), lent or belongs
    /// to another owner, or if the array has a [memory budget](Self::set_memory_budget) on the device. `OutOfMemory`.
    /// `LimitExceeded` for a device too many. Errors of the copies, also of prefetched ones. The array is then as
    /// before.
    #[track_caller]
    pub fn unify(&mut self, device: &Device) -> Result<()> {
        let call_site = Location::caller();
        self.exclusive().unify(device, call_site)
    }

    /// Checks from now on, or no longer, that each write is complete: [`write`](Self::write), `write_host` and so on,
    /// of the array, its parts, leases and owners that share it. With the environment variable
    /// `ARRAY_BUFFER_CHECK_WRITES=1`, the writes of all arrays of the process are checked. This is for debugging: a
    /// checked write costs two copies of its parts, and its end blocks until its work is done.
    ///
    /// When a write begins, its memory is filled with random bytes. When it ends, elements that still hold them were
    /// left out. The parts are then poisoned: [`commit`](WriteGuard::commit) returns the error, and so does the next
    /// access. The error names the first such element, the place of the write and its source line.
    ///
    /// A complete write is not accused, whatever its values: the chance is that of guessing 64 random bits. Therefore
    /// the check does not see omissions of less than 8 bytes in a row, unless they are many: five `f32`, or half of a
    /// hundred bytes. It never sees omissions in a part of less than 8 bytes. Nor does it see whether values are right,
    /// or come from memory that the writer did not write. [`check_write`](Self::check_write) sees each byte, but runs
    /// the writer twice. Exchanges, [`read_write`](Self::read_write) and [`accumulate`](Self::accumulate) promise no
    /// complete write and are not checked. An array that is made from this one is not checked unless the variable is
    /// set.
    ///
    /// ```
    /// use array_buffer::{ArrayBuffer, ErrorKind};
    ///
    /// let mut array = ArrayBuffer::<f64, _>::uninit(4)?;
    /// array.set_check_writes(true);
    /// let mut guard = array.write_host()?;
    /// guard.slice_mut(ndarray::s![..3]).fill(1.0);
    /// let error = guard.commit().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Poisoned);
    /// assert!(error.message().contains("element [3] was not written"), "{error}");
    /// # Ok::<(), array_buffer::Error>(())
    /// ```
    pub fn set_check_writes(&mut self, on: bool) {
        self.core.set_check_writes(on);
    }

    /// Limits the array's memory on the budget's device, from now on. Each part then has memory of its own there, from
    /// its first use, and leaves the device when other accesses need its memory: see [`MemoryBudget`].
    ///
    /// On that device, each part is accessed by itself: views of several parts are refused with `InvalidArgument`, as
    /// are [`StarForest`](crate::StarForest)s and [`into_memory`](Self::into_memory) of several parts. The memory of a
    /// part has no gaps between rows, whatever the [strides](Partition::strides) of the array. So `into_memory` refuses
    /// an array with gaps, too. Does nothing for a device that works in host memory.
    ///
    /// # Errors
    ///
    /// `Conflict` if the array has memory on the device already, or another budget for it. `LimitExceeded` for a device
    /// too many. The array is then as before.
    pub fn set_memory_budget(&mut self, budget: &MemoryBudget) -> Result<()>
    where
        D: 'static,
    {
        let core = Arc::downgrade(&self.core);
        self.exclusive().set_memory_budget(budget, core)
    }

    /// Divides the array into other parts. Its values stay, and so do their places: elements that become one part are
    /// copied only if no replica has all of them, and then to the replica that lacks the fewest. If the parts of both
    /// partitions meet in more than 256 boxes, whole parts are copied. Blocks until these copies are done, and also
    /// those that prefetches, and accesses to [page-locked](Self::page_lock) memory, have enqueued between devices and
    /// the host. Does not block if there are none. If other work that was enqueued earlier on an element fails later,
    /// the part that has the element then is lost.
    ///
    /// Owned elements that become ghosts keep their values until owned values are written. A ghost part that is made of
    /// ghosts is stale if one of them is. The elements keep their order in memory, whatever the order of `partition`.
    ///
    /// ```
    /// use array_buffer::{ArrayBuffer, Partition, Parts};
    /// use backend_sim::{SimConfig, SimDevice};
    /// use runtime_core::Device;
    ///
    /// let one = Device::new(SimDevice::new(0, SimConfig::new()))?.default_stream();
    /// let two = Device::new(SimDevice::new(1, SimConfig::new()))?.default_stream();
    /// let halves = Partition::new(&[100, 8], &[&[0..50, 0..8], &[50..100, 0..8]], &[])?;
    /// let mut array = ArrayBuffer::<f64, ndarray::Ix2>::with_partition(halves)?;
    /// let [mut upper, mut lower] = array.split([Parts::one(0), Parts::one(1)])?;
    /// upper.write(&one)?.view_mut()?.fill(&one, 1.0)?;
    /// lower.write(&two)?.view_mut()?.fill(&two, 2.0)?;
    ///
    /// // The first device is faster: ten rows move to it, and nothing else.
    /// let uneven = Partition::new(&[100, 8], &[&[0..60, 0..8], &[60..100, 0..8]], &[])?;
    /// array.repartition(uneven)?;
    /// assert_eq!(array.transfers().between("sim:1", "sim:0").bytes, 10 * 8 * 8);
    /// # Ok::<(), array_buffer::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a partition of another shape. `Uninitialized`, `Poisoned` or `Stale` if values would be
    /// lost, because elements with values and elements without would be one owned part. `Stale` while a reduction is
    /// pending. `Conflict` under a [memory budget](Self::set_memory_budget). Errors of the copies, also of those
    /// that it waits for. `DeviceFault` if streams fail again and again meanwhile. The array is then as before, but
    /// values that were copied may be in more places.
    #[track_caller]
    pub fn repartition(&mut self, partition: Partition) -> Result<()> {
        let call_site = Location::caller();
        self.exclusive().forget_idle_if_crowded()?;
        // Only memory budgets know the array, too.
        let Some(core) = Arc::get_mut(&mut self.core) else {
            let message = "the parts have separate memory under a memory budget".to_owned();
            return Err(Error::new(ErrorKind::Conflict, "repartition", message));
        };
        core.repartition(partition, call_site)
    }

    /// Frees the replica's memory on `device`. Values that exist nowhere else are copied to the host first, which
    /// blocks. If they exist elsewhere only by copies that are still running, the call waits for one of these.
    ///
    /// Does nothing for a device that works in host memory, because it has no memory of its own.
    ///
    /// # Errors
    ///
    /// Errors of the copies; nothing is freed then.
    #[track_caller]
    #[inline]
    pub fn evict(&mut self, device: &Device) -> Result<()> {
        self.exclusive().evict(Some(device), Location::caller())
    }

    /// Frees the host's memory. If values exist elsewhere only by copies that are still running, the call waits for one
    /// of these.
    ///
    /// # Errors
    ///
    /// `Conflict` if values exist nowhere else, or if a device works in that memory. Errors of the copies. Nothing is
    /// freed then.
    #[track_caller]
    #[inline]
    pub fn evict_host(&mut self) -> Result<()> {
        self.exclusive().evict(None, Location::caller())
    }

    /// Converts the array into one that cannot be written.
    #[must_use]
    pub fn freeze(mut self) -> ArrayBuffer<T, D, Constant> {
        self.exclusive().freeze();
        ArrayBuffer { core: self.core, marker: PhantomData }
    }
}

impl<T: Element, D: Dimension, A> ArrayBuffer<T, D, A> {
    /// Borrows the values to read on `stream`, on the stream's device. Values that are out of date there are copied
    /// first. The stream waits, on the device, for the work that writes them. A copy from the host, or from a device
    /// that this one does not reach, may [block](crate#blocking).
    ///
    /// # Errors
    ///
    /// `Uninitialized`, `Poisoned` or `Stale`; the error names the part. `OutOfMemory`. `LimitExceeded` under a
    /// [`TransferBudget`](crate::TransferBudget). Errors of the copy; the array is unchanged.
    #[track_caller]
    #[inline]
    pub fn read<'a>(&'a self, stream: &'a Stream) -> Result<ReadGuard<'a, T, D>> {
        ReadGuard::take(
            &self.core,
            self.all(),
            StreamRef::Borrowed(stream),
            Location::caller(),
            true,
        )
    }

    /// Borrows the values to read on the host. Blocks until they are there.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). Failures of the work that wrote the values; values that exist nowhere else are then
    /// poisoned.
    #[track_caller]
    #[inline]
    pub fn read_host(&self) -> Result<HostReadGuard<'_, T, D>> {
        HostReadGuard::take(&self.core, self.all(), Location::caller(), true)
    }

    /// Borrows the values to read on the current device of this thread.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    #[track_caller]
    #[inline]
    pub fn read_here(&self) -> Result<Here<ReadGuard<'_, T, D>, HostReadGuard<'_, T, D>>> {
        let call_site = Location::caller();
        match here() {
            Some(stream) => {
                ReadGuard::take(&self.core, self.all(), StreamRef::Owned(stream), call_site, true)
                    .map(Here::Device)
            }
            None => HostReadGuard::take(&self.core, self.all(), call_site, true).map(Here::Host),
        }
    }

    /// Borrows some parts to read.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the array does not have all of the parts.
    pub fn part(&self, parts: Parts) -> Result<PartRef<'_, T, D>> {
        self.check(parts)?;
        Ok(PartRef { core: &self.core, set: parts.set })
    }

    /// Sets how long parts stay on a device with a [memory budget](Self::set_memory_budget).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there is no budget for the device, or if the array does not have all of the parts.
    /// `LimitExceeded` if the parts to [keep](Priority::Keep) have more bytes than the budget. After an error, all
    /// priorities are as before.
    pub fn set_priority(&self, device: &Device, parts: Parts, priority: Priority) -> Result<()> {
        self.check(parts)?;
        self.core.set_priority(device, parts.set, priority)
    }

    /// Copies values to the stream's device before they are needed. The copies are enqueued on the stream, and a thread
    /// prepares those from the host and from devices that this one does not reach. Does not block on devices with gates:
    /// see [blocking](crate#blocking).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    #[track_caller]
    #[inline]
    pub fn prefetch(&self, stream: &Stream) -> Result<()> {
        let request = self.request(Some(stream), "prefetch", Location::caller());
        self.core.prefetch(&Request { defers: true, ..request })
    }

    /// Copies values to the host before they are needed. The copies are enqueued, and the next access of the host waits
    /// for them. Does not block on devices with gates: see [blocking](crate#blocking).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    #[track_caller]
    #[inline]
    pub fn prefetch_host(&self) -> Result<()> {
        let request = self.request(None, "prefetch", Location::caller());
        self.core.prefetch(&Request { defers: true, ..request })
    }

    /// Copies the array into a new, independent array. The copy is made where the values are: on the stream of a device
    /// [for copies](crate#blocking), or on the host. On the host, the call waits for the values as
    /// [`read_host`](Self::read_host) does, also if they are there by a prefetch that is still running. On a device, it
    /// blocks only if region copies are [emulated](runtime_core::RegionPlan). Ghost parts that are not valid are not
    /// copied. They are not valid in the copy either, and their elements there have unspecified values until they are
    /// written. If there are such parts, the device copies the others one by one.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read) of the owned parts. Errors of the copy.
    #[track_caller]
    #[inline]
    pub fn duplicate(&self) -> Result<ArrayBuffer<T, D>> {
        let call_site = Location::caller();
        let copy = ArrayBuffer::build(self.core.shape.clone(), self.core.partition.clone())?;
        let readable: PartSet = self.core.readable().union(self.core.partition.owned().set);
        // Parts with separate memory are copied on the host.
        let stream = self.core.common_stream(readable).filter(|_| self.core.is_private());
        let by = stream.as_ref();
        let request =
            Request { may_refresh: true, ..Request::new(&readable, by, "duplicate", call_site) };
        let (at, mut origins) = self.core.read_with_origins(&request)?;
        let (target, by) = match by {
            Some(stream) if at != HOST => {
                // The host's replica, if no other device of the copy works in host memory.
                let target = copy.core.introduce(stream)?;
                let memory = stream.device().memory_allocate(self.core.storage.len())?;
                copy.core.storage.adopt_memory(target, memory);
                let source = self.core.storage.view(at)?;
                let mut values = copy.core.storage.view_mut(target)?;
                if readable == *self.all() {
                    values.copy_from(stream, &source)?;
                } else {
                    // The stream does not wait for the writers of other parts.
                    let layout = &self.core.layout;
                    let source = source.with_layout(0, layout)?;
                    for part in readable.iter() {
                        let ranges = self.core.partition.ranges(part.into());
                        let mut target =
                            values.reborrow().with_layout(0, layout)?.region(ranges)?;
                        target.copy_from(stream, &source.region(ranges)?)?;
                    }
                }
                (target, by)
            }
            _ => {
                let set = Request { stream: None, ..request };
                self.core.read(&set)?;
                copy.core.storage.adopt_host(self.core.host_copy(readable)?);
                // The host has waited for them.
                origins.clear();
                (HOST, None)
            }
        };
        copy.core.begin_with(readable, target, by, &origins)?;
        Ok(copy)
    }

    /// Returns the values as an `ndarray` array. Does not copy if the values are already on the host and this array
    /// alone owns that memory, without gaps between rows.
    ///
    /// # Errors
    ///
    /// As [`read_host`](Self::read_host), and `OutOfMemory` if the values must be copied. The error returns the array.
    #[track_caller]
    pub fn into_inner(mut self) -> Result<Array<T, D>, ConversionError<Self>> {
        // As for a write, the host waits for all uses of its replica.
        let request = self.request(None, "into_inner", Location::caller());
        let acquired =
            self.core.act(&request, |at, by| Action::Acquire { at, by, access: Access::ReadWrite });
        if let Err(error) = acquired {
            return Err(ConversionError::new(self, error));
        }
        self.exclusive().take_array().map_err(|error| {
            // This cannot be refused: the parts were just taken.
            let _kept = self.core.end(self.all(), false, true, Verdict::Keep);
            ConversionError::new(self, error)
        })
    }

    /// Returns the values as memory of the stream's device, in the order of the [partition](Partition::strides). Values
    /// that are out of date there are copied first. Earlier work that uses the values comes before work enqueued on the
    /// stream from now on.
    ///
    /// The memory does not know the other streams that the values came through. So the call blocks until their work is
    /// done.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). Failures of that work. `InvalidArgument` for a device that works in host memory; use
    /// [`into_inner`](Self::into_inner) there. `InvalidArgument` under a [memory budget](Self::set_memory_budget), if
    /// the array has several parts or gaps between rows. The error returns the array.
    #[track_caller]
    pub fn into_memory(mut self, stream: &Stream) -> Result<Memory<T>, ConversionError<Self>> {
        let request = self.request(Some(stream), "into_memory", Location::caller());
        if let Err(error) = self.core.check_whole(stream.device()) {
            return Err(ConversionError::new(self, error));
        }
        let acquire = |at, by| Action::Acquire { at, by, access: Access::ReadWrite };
        let seen = self.core.see_origins(&request);
        match seen.and_then(|()| self.core.act(&request, acquire)) {
            Ok((HOST, _)) => {
                // This cannot be refused: the parts were just taken.
                let _kept = self.core.end(self.all(), false, true, Verdict::Keep);
                let message =
                    format!("{} works in host memory; use into_inner", stream.device().id());
                Err(ConversionError::new(self, invalid("into_memory", message)))
            }
            Ok((at, _)) => {
                self.exclusive().take_memory(at).map_err(|error| ConversionError::new(self, error))
            }
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }

    /// The extents of the array.
    pub fn shape(&self) -> &[usize] {
        self.core.partition.shape()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self.core.partition.is_row_major() {
            true => self.core.storage.len(),
            false => self.core.partition.volume(),
        }
    }

    /// Whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        T::DTYPE
    }

    /// The partition of the array into parts.
    pub fn partition(&self) -> &Partition {
        &self.core.partition
    }

    /// The version number. It increases with every committed write of owned values, and only then. So a result that was
    /// computed from the array stays correct while the version stays the same.
    #[inline]
    pub fn version(&self) -> u64 {
        self.core.version()
    }

    /// The status of a part; `Uninitialized` for a part that the array does not have.
    pub fn status(&self, part: usize) -> PartStatus {
        self.core.status(part)
    }

    /// The array's [home](Self::set_home).
    pub fn home(&self) -> Option<Home> {
        self.core.home()
    }

    /// Whether all values are valid on the device. If so, reading there copies nothing.
    pub fn is_valid_on(&self, device: &Device) -> bool {
        self.core.is_valid_on(Some(device))
    }

    /// Whether all values are valid on the host.
    pub fn is_valid_on_host(&self) -> bool {
        self.core.is_valid_on(None)
    }

    /// Returns all transfers so far and their causes.
    pub fn transfers(&self) -> TransferReport {
        self.core.report()
    }

    /// The number of bytes of bookkeeping for this array. Elements, transfer report and staging memory are not counted.
    pub fn bookkeeping_bytes(&self) -> usize {
        self.core.bookkeeping_bytes()
    }

    #[inline]
    pub(crate) fn exclusive(&mut self) -> Exclusive<'_, T, D> {
        Exclusive::new(&mut self.core)
    }

    #[inline]
    pub(crate) fn all(&self) -> &PartSet {
        self.core.partition.every()
    }

    fn request<'a>(
        &'a self,
        stream: Option<&'a Stream>,
        access: &'static str,
        call_site: &'static Location<'static>,
    ) -> Request<'a> {
        Request { may_refresh: true, ..Request::new(self.all(), stream, access, call_site) }
    }

    fn check(&self, parts: Parts) -> Result<()> {
        if parts.are_in(*self.all()) {
            return Ok(());
        }
        let count = self.core.partition.count();
        Err(invalid("part", format!("{parts:?} of an array in {count} parts")))
    }
}

fn invalid(operation: &'static str, message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, operation, message)
}

impl<T: Element, D: Dimension, A> fmt::Debug for ArrayBuffer<T, D, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArrayBuffer({} {:?}, version {})", T::DTYPE, self.shape(), self.version())
    }
}
