//! An opened device, as programs use it.
#![expect(
    unsafe_code,
    reason = "adopting and registering memory calls the backend's unsafe functions"
)]

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::contract::{
    Abilities, AcceleratorDevice, Counters, DeviceMemory, DeviceStream, EventOptions, MemoryPool,
    Monitor, PinnedOptions, StreamOptions, UnifiedMemory,
};
use crate::memory::Allocation;
use crate::statistics::Counts;
use crate::stream::{DeviceReports, StreamCore};
use crate::{
    Capabilities, ConversionError, DeviceId, DeviceInfo, Element, Error, ErrorKind, Event, Graphs,
    ImageCode, IndexedCopy, Interop, Limits, Memory, Module, ModuleBundle, ModuleImage,
    NativeHandle, NativeKind, Owner, Pinned, RegionCopy, RegionPlan, RegionProgram, Result,
    Statistics, Stream, Support,
};

/// An opened device. Cheap to clone; clones are the same device.
///
/// *The same device* means the same opened instance. A device opened twice is two devices with one [`DeviceId`]; each
/// refuses objects of the other with `WrongDevice`.
///
/// All checks are made here and in the types that this type returns, once for all backends. Methods that take native
/// handles are unsafe: [`memory_adopt`](Self::memory_adopt), [`with_native_stream`](Self::with_native_stream) and those
/// of [`interop`](Self::interop). So are [`Kernel::launch`](crate::Kernel::launch) and
/// [`Graph::launch`](crate::Graph::launch).
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    // Dropped before the device it belongs to.
    default_stream: Arc<StreamCore>,
    capabilities: Capabilities,
    limits: Limits,
    counts: Counts,
    reports: Arc<DeviceReports>,
    raw: Box<dyn AcceleratorDevice>,
}

/// Every allocation's address is a multiple of at least this number, so that it can hold any element type.
const LEAST_ALIGNMENT: usize = 16;

/// The most bytes of a slice. Pinned and unified memory may be larger than the device's own memory; the driver reports
/// when a request is too large.
const HOST_LIMIT: usize = isize::MAX.unsigned_abs();

#[inline]
pub(crate) fn same_device(a: &Device, b: &Device) -> bool {
    Arc::ptr_eq(&a.0, &b.0)
}

/// Why no device can have these limits.
fn unusable(limits: &Limits) -> Option<String> {
    let align = limits.allocation_alignment;
    if align.get() < LEAST_ALIGNMENT {
        return Some(format!(
            "allocations aligned to {align} bytes; at least {LEAST_ALIGNMENT} are needed"
        ));
    }
    let Limits { max_grid, max_block, max_block_threads, .. } = *limits;
    let geometry = [
        ("max_grid", max_grid),
        ("max_block", max_block),
        ("max_block_threads", [max_block_threads; 3]),
    ];
    let zero = geometry.iter().find(|(_, extents)| extents.contains(&0));
    zero.map(|(name, _)| format!("the limit {name} is 0; at least 1 is needed"))
}

impl Device {
    /// Wraps a backend's device in the checked front.
    ///
    /// # Errors
    ///
    /// Errors of creating the default stream. `InvalidArgument` if the device's allocations are aligned to less than 16
    /// bytes, which some element types need, and if a limit of the launch geometry is 0.
    pub fn new(raw: impl AcceleratorDevice) -> Result<Self> {
        Self::with_stream(raw, |raw| raw.stream_create(&StreamOptions::default()))
    }

    /// As [`new`](Self::new), with the default stream that `stream` returns.
    pub(crate) fn with_stream(
        raw: impl AcceleratorDevice,
        stream: impl FnOnce(&dyn AcceleratorDevice) -> Result<Box<dyn DeviceStream>>,
    ) -> Result<Self> {
        let raw: Box<dyn AcceleratorDevice> = Box::new(raw);
        if let Some(message) = unusable(&raw.info().limits) {
            return Err(Error::new(ErrorKind::InvalidArgument, "open", message).on(&raw.info().id));
        }
        let stream = stream(&*raw).map_err(|e| e.on(&raw.info().id))?;
        tracing::info!(device = %raw.info().id, name = raw.info().name, "device opened");
        let reports = Arc::default();
        Ok(Self(Arc::new(Inner {
            default_stream: StreamCore::lasting(stream, &reports),
            capabilities: capabilities(&raw.abilities()),
            limits: raw.info().limits.clone(),
            counts: Counts::default(),
            reports,
            raw,
        })))
    }

    /// Backend and index, such as `cuda:0`.
    pub fn id(&self) -> &DeviceId {
        &self.info().id
    }

    /// Identity and limits. They do not change.
    pub fn info(&self) -> &DeviceInfo {
        self.0.raw.info()
    }

    /// The optional abilities and how each is supported. They do not change.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// The data moved and the kernels launched through this device since it was opened.
    pub fn statistics(&self) -> Statistics {
        self.0.counts.snapshot()
    }

    /// Whether `other` is the same opened device.
    pub fn is_same(&self, other: &Self) -> bool {
        same_device(self, other)
    }

    /// Allocates memory for `len` elements. Their values are unspecified until written.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, after the device's pool was trimmed and a second attempt failed too.
    pub fn memory_allocate<T: Element>(&self, len: usize) -> Result<Memory<T>> {
        let limit = self.limits().max_allocation_bytes;
        self.allocate_with("memory_allocate", len, limit, |bytes| self.0.raw.memory_allocate(bytes))
    }

    /// Allocates memory of the slice's length and copies the slice to it, in stream order. Blocks until the slice is no
    /// longer used.
    ///
    /// # Errors
    ///
    /// As [`memory_allocate`](Self::memory_allocate), and errors of the copy.
    pub fn memory_from_slice<T: Element>(&self, stream: &Stream, slice: &[T]) -> Result<Memory<T>> {
        let mut memory = self.memory_allocate(slice.len())?;
        memory.view_mut().copy_from_slice(stream, slice)?;
        Ok(memory)
    }

    /// Allocates page-locked host memory for `len` elements, zeroed. It may be larger than the device's memory.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub fn pinned_allocate<T: Element>(&self, len: usize) -> Result<Pinned<T>> {
        self.pinned_allocate_with(len, &PinnedOptions::default())
    }

    /// As [`pinned_allocate`](Self::pinned_allocate), with the given options where the device supports them.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    ///
    /// ```
    /// # fn example(device: &runtime_core::Device) -> runtime_core::Result<()> {
    /// use runtime_core::PinnedOptions;
    ///
    /// let options = PinnedOptions::default().with_write_combined(true);
    /// let mut pinned = device.pinned_allocate_with::<f32>(1 << 20, &options)?;
    /// pinned.as_mut_slice()?.fill(1.0); // written and never read by the host
    /// let mut memory = device.memory_allocate::<f32>(1 << 20)?;
    /// memory.view_mut().copy_from_pinned(&device.default_stream(), &pinned)
    /// # }
    /// ```
    pub fn pinned_allocate_with<T: Element>(
        &self,
        len: usize,
        options: &PinnedOptions,
    ) -> Result<Pinned<T>> {
        let bytes = self.bytes_within::<T>("pinned_allocate", len, HOST_LIMIT)?;
        let raw = match bytes {
            0 => None,
            _ => Some(self.retry_trimmed(|| self.0.raw.pinned_allocate(bytes, options))?),
        };
        self.check_length("pinned_allocate", raw.as_ref().map_or(0, |raw| raw.len()), bytes)?;
        tracing::debug!(device = %self.id(), bytes, ?options, "pinned memory allocated");
        Ok(Pinned::new(raw, len, self.clone()))
    }

    /// Page-locks the elements of `vec` where they are, without a copy. [`Pinned::into_vec`] gives the vector back.
    ///
    /// Locking takes about as long as the first writes to as many fresh bytes, so it pays for memory that is copied
    /// more than once. A device locks whole memory pages, and some devices lock a page only once. Small vectors may
    /// share a page; use [`pinned_allocate`](Self::pinned_allocate) for them.
    ///
    /// ```
    /// # fn example(device: &runtime_core::Device) -> runtime_core::Result<()> {
    /// let stream = device.default_stream();
    /// let mut memory = device.memory_allocate::<f32>(1 << 20)?;
    /// let values = vec![1.0_f32; 1 << 20];
    /// let pinned = device.pin_vec(values)?;
    /// memory.view_mut().copy_from_pinned(&stream, &pinned)?; // does not wait for the copy
    /// let values = pinned.into_vec()?; // waits for it
    /// assert_eq!(values[0], 1.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device lacks the ability. `OutOfMemory` if the driver cannot lock as much. `Conflict` if a
    /// page of the memory is registered already, on devices that register a page only once. The error returns the
    /// vector.
    pub fn pin_vec<T: Element>(
        &self,
        mut vec: Vec<T>,
    ) -> Result<Pinned<T>, ConversionError<Vec<T>>> {
        const OPERATION: &str = "pin_vec";
        let Some(ability) = self.abilities().host_registration() else {
            let error = self.unsupported(OPERATION, "registration of host memory");
            return Err(ConversionError::new(vec, error));
        };
        let bytes = size_of_val(&*vec);
        let first = NonNull::new(vec.as_mut_ptr()).unwrap_or(NonNull::dangling());
        let raw = match bytes {
            0 => None,
            // SAFETY: the elements are initialised, and stay where they are until `Pinned` has ended the registration.
            // `Pinned` orders all use of them.
            _ => match unsafe { ability.register(first.cast(), bytes) } {
                Ok(raw) => Some(raw),
                Err(error) => return Err(ConversionError::new(vec, self.place(error))),
            },
        };
        tracing::debug!(device = %self.id(), bytes, "host memory registered");
        let len = vec.len();
        Ok(Pinned::registered(raw, vec, len, self.clone()))
    }

    /// Page-locks `len` elements of host memory that `owner` keeps, without a copy. They begin at a memory page, so
    /// that no two such memories share a page. Locking takes as long as by [`pin_vec`](Self::pin_vec).
    ///
    /// When the memory is dropped and all copies from and to it are done, the registration ends. After that, `owner` is
    /// dropped, usually by a thread of the device; what its destructor may do is said at
    /// [`memory_adopt`](Self::memory_adopt). [`Pinned::end`] waits for all this. If the driver fails to end the
    /// registration, `owner` is never dropped.
    ///
    /// ```
    /// # fn example(device: &runtime_core::Device) -> runtime_core::Result<()> {
    /// use std::ptr::NonNull;
    ///
    /// #[repr(align(4096))]
    /// #[derive(Clone)]
    /// struct Page([f32; 1024]);
    ///
    /// let mut pages = vec![Page([1.0; 1024]); 100];
    /// let first = NonNull::from(&mut pages[..]).cast();
    /// // SAFETY: the vector keeps as many elements, and no other code uses them.
    /// let pinned = unsafe { device.pinned_adopt(first, 100 * 1024, pages) }?;
    /// let mut memory = device.memory_allocate::<f32>(100 * 1024)?;
    /// memory.view_mut().copy_from_pinned(&device.default_stream(), &pinned)?;
    /// pinned.end()
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device lacks the ability. `InvalidArgument` if `first` is not the address of a memory page.
    /// `OutOfMemory` if the driver cannot lock as much. `Conflict` if a page of the memory is registered already, on
    /// devices that register a page only once. `owner` is then dropped.
    ///
    /// # Safety
    ///
    /// The elements are initialised and writable, and stay where they are until `owner` is dropped. All other use of
    /// them is ordered with the copies from and to them, and with accesses through the result.
    pub unsafe fn pinned_adopt<T: Element>(
        &self,
        first: NonNull<T>,
        len: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<Pinned<T>> {
        const OPERATION: &str = "pinned_adopt";
        let Some(ability) = self.abilities().host_registration() else {
            return Err(self.unsupported(OPERATION, "registration of host memory"));
        };
        let bytes = self.bytes_within::<T>(OPERATION, len, HOST_LIMIT)?;
        let (address, page) = (first.addr(), page_size::get());
        if bytes > 0 && !address.get().is_multiple_of(page) {
            let message = format!(
                "{bytes} bytes at {address:#x}, a multiple of {}, do not begin at a memory page of {page} bytes",
                1_u64 << address.trailing_zeros()
            );
            return Err(self.invalid(OPERATION, message));
        }
        let raw = match bytes {
            0 => None,
            // SAFETY: the caller guarantees the elements, until the owner is dropped. `Pinned` keeps it.
            _ => Some(unsafe { ability.register(first.cast(), bytes) }.map_err(|e| self.place(e))?),
        };
        tracing::debug!(device = %self.id(), bytes, "host memory of another owner registered");
        Ok(Pinned::registered(raw, Owner::new(owner), len, self.clone()))
    }

    /// Adopts memory that was allocated elsewhere. After the memory is dropped and all work on it is done, `owner` is
    /// dropped, which releases the memory.
    ///
    /// If the work is already done when the memory is dropped, the same thread drops `owner`. Otherwise a thread of the
    /// device drops it later. The owner's destructor may wait for streams and devices. It must not wait for a thread
    /// that synchronises this device, because that thread waits for the destructor. Owners that own one another are
    /// dropped without recursion: see [`Owner`].
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device lacks the ability. `InvalidArgument` if the handle belongs to another interface, or
    /// an address is not aligned for `T`.
    ///
    /// # Safety
    ///
    /// The handle names `len` initialised elements that this device can address. They are valid until `owner` is
    /// dropped. All other use of them is ordered with the work of this device.
    pub unsafe fn memory_adopt<T: Element>(
        &self,
        handle: NativeHandle,
        len: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<Memory<T>> {
        const OPERATION: &str = "memory_adopt";
        let Some(ability) = self.abilities().memory_adoption() else {
            return Err(self.unsupported(OPERATION, "adoption of memory"));
        };
        if handle.kind == NativeKind::Pointer
            && !handle.raw.is_multiple_of(T::DTYPE.align().max(align_of::<T>()))
        {
            let message = format!("{handle:?} is not aligned for {}", T::DTYPE);
            return Err(self.invalid(OPERATION, message));
        }
        let limit = self.limits().max_allocation_bytes;
        let bytes = self.bytes_within::<T>(OPERATION, len, limit)?;
        let raw = match bytes {
            0 => None,
            _ => {
                // SAFETY: the caller guarantees the handle's validity.
                let adopted = unsafe { ability.adopt(handle, bytes, Box::new(Owner::new(owner))) };
                Some(adopted.map_err(|e| self.place(e))?)
            }
        };
        let align = match handle.kind {
            // The largest power of two that divides the address.
            NativeKind::Pointer if handle.raw != 0 => 1 << handle.raw.trailing_zeros(),
            _ => self.limits().allocation_alignment.get(),
        };
        let allocation = Allocation::new(raw, bytes, align, self.clone());
        allocation.share();
        Ok(Memory::new(allocation, len))
    }

    /// Allocation of memory that both the host and the device can address, if the device supports it.
    pub fn unified_memory(&self) -> Option<Unified<'_>> {
        self.abilities().unified_memory().map(|ability| Unified { ability, device: self })
    }

    /// Use of streams, events and addresses that other libraries own, if the device supports it.
    pub fn interop(&self) -> Option<Interop<'_>> {
        self.abilities().interop().map(|ability| Interop::new(ability, self))
    }

    /// Capture of work into graphs, if the device supports it.
    pub fn graphs(&self) -> Option<Graphs<'_>> {
        self.abilities().graphs().map(|ability| Graphs::new(ability, self))
    }

    /// The pool from which memory is allocated, if the device has a pool.
    pub fn memory_pool(&self) -> Option<&dyn MemoryPool> {
        self.abilities().memory_pool()
    }

    /// Free memory and utilisation, if the device reports them.
    pub fn monitor(&self) -> Option<&dyn Monitor> {
        self.abilities().monitor()
    }

    /// Event counters, if the device has any.
    pub fn counters(&self) -> Option<&dyn Counters> {
        self.abilities().counters()
    }

    /// The device's default stream: an ordinary stream that exists from the start.
    pub fn default_stream(&self) -> Stream {
        Stream::new(Arc::clone(&self.0.default_stream), self.clone())
    }

    /// Creates a stream that is not ordered with any other stream.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a priority outside [`Limits::priorities`](crate::Limits::priorities).
    pub fn stream_create(&self, options: &StreamOptions) -> Result<Stream> {
        let (least, greatest) = self.info().limits.priorities;
        if !(least..=greatest).contains(&options.priority) {
            let message =
                format!("priority {}; the device has {least} to {greatest}", options.priority);
            return Err(self.invalid("stream_create", message));
        }
        let raw = self.0.raw.stream_create(options).map_err(|e| self.place(e))?;
        Ok(Stream::new(StreamCore::new(raw, self.reports()), self.clone()))
    }

    /// Creates an event. [`Event::elapsed_since`] needs two events that were created with `timing`.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    pub fn event_create(&self, timing: bool) -> Result<Event> {
        let options = EventOptions::default().with_timing(timing);
        let raw = self.0.raw.event_create(&options).map_err(|e| self.place(e))?;
        Ok(Event::new(raw, timing, self.clone()))
    }

    /// Loads code.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if the device does not support the format or the code does not compile. In the first case the
    /// message lists the supported formats and, if the format needs something that is not installed, says what. The
    /// compiler's log is in [`Error::log`]. `InvalidArgument` for options that the format does not support, and for a
    /// Rust function with parameters that no launch on this device can have.
    pub fn module_load<'a>(&self, image: impl Into<ModuleImage<'a>>) -> Result<Module> {
        let image = image.into();
        self.load(&ModuleBundle::new().with(image))
    }

    /// Loads the image of a bundle whose format this device prefers.
    ///
    /// # Errors
    ///
    /// As [`module_load`](Self::module_load).
    pub fn module_load_bundle(&self, bundle: &ModuleBundle<'_>) -> Result<Module> {
        self.load(bundle)
    }

    fn load(&self, bundle: &ModuleBundle<'_>) -> Result<Module> {
        let DeviceInfo { formats, absent_formats, .. } = self.info();
        let image = bundle.best_of(formats, absent_formats).map_err(|e| self.place(e))?;
        if let Some(option) = image.options().first()
            && !image.format().takes_options()
        {
            let message = format!("an image of {} takes no options: {option:?}", image.format());
            return Err(self.invalid("module_load", message));
        }
        if let ImageCode::Functions(module) = image.code() {
            let fits = module.check(&self.info().limits);
            fits.map_err(|message| self.invalid("module_load", message))?;
        }
        let raw = self.0.raw.module_load(image).map_err(|e| self.place(e))?;
        tracing::debug!(device = %self.id(), format = %image.format(), "module loaded");
        Ok(Module::new(raw, image.format(), self.clone()))
    }

    /// Checks and prepares a batch of strided copies. The plan can be executed many times.
    ///
    /// # Errors
    ///
    /// As [`RegionProgram::new`], and errors of preparing the program on the device.
    pub fn plan_regions(&self, entries: &[RegionCopy]) -> Result<RegionPlan> {
        self.plan(RegionProgram::new(entries))
    }

    /// Checks and prepares a batch of indexed copies: gathers, and scatters with and without repeated targets. Lists of
    /// indices go to the device once. The plan can be executed many times, in one launch on a device with native
    /// [region copies](crate::Capabilities::region_copy).
    ///
    /// # Errors
    ///
    /// As [`RegionProgram::indexed`], and errors of preparing the program on the device.
    pub fn plan_indexed(&self, entries: &[IndexedCopy]) -> Result<RegionPlan> {
        self.plan(RegionProgram::indexed(entries))
    }

    fn plan(&self, program: Result<RegionProgram>) -> Result<RegionPlan> {
        RegionPlan::new(self, program.map_err(|error| self.place(error))?)
    }

    /// Whether this device can copy from `other` and wait for its events without the host.
    pub fn reaches(&self, other: &Self) -> bool {
        same_device(self, other)
            || self.abilities().peer().is_some_and(|peer| peer.reaches(other.raw()))
    }

    /// Blocks until all work enqueued on any stream of this device is done, and until everything that was dropped
    /// before the call is released: memory is free again, and the owners of adopted memory are dropped. There is no
    /// limit, as for [`Stream::synchronize`].
    ///
    /// # Errors
    ///
    /// The first failure that was not reported before: of asynchronous work, or of the release of a dropped object.
    pub fn synchronize(&self) -> Result<()> {
        let waited = self.0.raw.synchronize();
        let take = || self.0.raw.take_failure();
        self.0.reports.settle(waited, take, DeviceReports::count).map_err(|e| self.place(e))
    }

    /// The counter of reported failures.
    pub(crate) fn reports(&self) -> &Arc<DeviceReports> {
        &self.0.reports
    }

    /// Whether the addresses of the device's memory are addresses of the host, even if the host may not use them: that
    /// of the backends `host` and `sim`.
    pub fn has_host_addresses(&self) -> bool {
        matches!(self.native().api, "host" | "sim")
    }

    /// The vendor's handle of the device or context, valid for as long as a clone of this device lives.
    pub fn native(&self) -> NativeHandle {
        self.0.raw.native()
    }

    /// The backend's own device, for functions beyond the contract. `None` unless it is a `B`.
    pub fn backend<B: AcceleratorDevice>(&self) -> Option<&B> {
        let any: &dyn Any = &*self.0.raw;
        any.downcast_ref()
    }

    #[inline]
    pub(crate) fn raw(&self) -> &dyn AcceleratorDevice {
        &*self.0.raw
    }

    pub(crate) fn abilities(&self) -> Abilities<'_> {
        self.0.raw.abilities()
    }

    /// The limits of [`info`](Self::info), without a call to the backend.
    #[inline]
    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    #[inline]
    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    pub(crate) fn place(&self, error: Error) -> Error {
        error.on(self.id())
    }

    #[cold]
    pub(crate) fn invalid(&self, operation: &'static str, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, operation, message).on(self.id())
    }

    #[cold]
    pub(crate) fn unsupported(&self, operation: &'static str, what: &str) -> Error {
        unsupported(operation, what).on(self.id())
    }

    #[inline]
    pub(crate) fn check_same(&self, operation: &'static str, other: &Self) -> Result<()> {
        if same_device(self, other) { Ok(()) } else { Err(self.wrong_device(operation, other)) }
    }

    #[cold]
    fn wrong_device(&self, operation: &'static str, other: &Self) -> Error {
        let hint = if self.id() == other.id() { ", opened separately" } else { "" };
        let message = format!("an object of {}{hint}", other.id());
        Error::new(ErrorKind::WrongDevice, operation, message).on(self.id())
    }

    fn allocate_with<T: Element>(
        &self,
        operation: &'static str,
        len: usize,
        limit: usize,
        allocate: impl Fn(usize) -> Result<Box<dyn DeviceMemory>>,
    ) -> Result<Memory<T>> {
        let bytes = self.bytes_within::<T>(operation, len, limit)?;
        let raw = match bytes {
            0 => None,
            _ => Some(self.retry_trimmed(|| allocate(bytes))?),
        };
        self.check_length(operation, raw.as_ref().map_or(0, |raw| raw.len()), bytes)?;
        self.counts().allocated();
        tracing::debug!(device = %self.id(), bytes, "memory allocated");
        let align = self.limits().allocation_alignment.get();
        Ok(Memory::new(Allocation::new(raw, bytes, align, self.clone()), len))
    }

    /// The size of `len` elements in bytes, at most `limit`.
    fn bytes_within<T: Element>(
        &self,
        operation: &'static str,
        len: usize,
        limit: usize,
    ) -> Result<usize> {
        match len.checked_mul(size_of::<T>()) {
            Some(bytes) if bytes <= limit => Ok(bytes),
            _ => Err(Error::new(
                ErrorKind::OutOfMemory,
                operation,
                format!("{len} elements of {}; one allocation can have {limit} bytes", T::DTYPE),
            )
            .on(self.id())),
        }
    }

    /// Returns an error if the backend allocated fewer bytes than requested, before any code relies on the length.
    fn check_length(&self, operation: &'static str, given: usize, bytes: usize) -> Result<()> {
        if given >= bytes {
            return Ok(());
        }
        let message = format!("the backend gave {given} bytes for {bytes}");
        Err(Error::new(ErrorKind::Driver, operation, message).on(self.id()))
    }

    fn retry_trimmed<R>(&self, allocate: impl Fn() -> Result<R>) -> Result<R> {
        let first = match allocate() {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => error,
            outcome => return outcome.map_err(|e| self.place(e)),
        };
        match self.abilities().memory_pool().map(|pool| pool.trim(0)) {
            Some(Ok(())) => allocate().map_err(|e| self.place(e)),
            _ => Err(self.place(first)),
        }
    }
}

/// The error of an operation that needs an ability that the device lacks.
pub(crate) fn unsupported(operation: &'static str, what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, operation, format!("the device does not support {what}"))
}

fn capabilities(abilities: &Abilities<'_>) -> Capabilities {
    let present = |there: bool| Support::native_or(there, Support::Absent);
    Capabilities {
        region_copy: Support::native_or(abilities.region_copy().is_some(), Support::Emulated),
        peer: Support::native_or(abilities.peer().is_some(), Support::Emulated),
        graphs: present(abilities.graphs().is_some()),
        unified_memory: present(abilities.unified_memory().is_some()),
        memory_adoption: present(abilities.memory_adoption().is_some()),
        host_registration: present(abilities.host_registration().is_some()),
        gates: present(abilities.gates().is_some()),
        interop: present(abilities.interop().is_some()),
        memory_pool: present(abilities.memory_pool().is_some()),
        monitor: present(abilities.monitor().is_some()),
        counters: present(abilities.counters().is_some()),
        cooperative_launch: present(abilities.cooperative_launch()),
    }
}

/// Allocates memory that both the host and the device can address: see [`Device::unified_memory`].
#[derive(Clone, Copy)]
pub struct Unified<'a> {
    ability: &'a dyn UnifiedMemory,
    device: &'a Device,
}

impl Unified<'_> {
    /// Allocates memory for `len` elements that the host can access with [`Memory::as_slice`]. It may be larger than
    /// the device's memory, if the driver supports that.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub fn allocate<T: Element>(&self, len: usize) -> Result<Memory<T>> {
        let allocate = |bytes| self.ability.allocate(bytes);
        self.device.allocate_with("unified_allocate", len, HOST_LIMIT, allocate)
    }
}

impl fmt::Debug for Unified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unified({})", self.device.id())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {})", self.id(), self.info().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_can_launch_nothing_is_refused() {
        let unusable = |grid, block, threads| unusable(&Limits::new(0, grid, block, threads));
        assert_eq!(unusable([1; 3], [1; 3], 1), None);
        for (limits, name) in [
            (unusable([1, 0, 1], [1; 3], 1), "max_grid "),
            (unusable([1; 3], [1, 1, 0], 1), "max_block "),
            (unusable([1; 3], [1; 3], 0), "max_block_threads "),
        ] {
            assert!(limits.as_ref().is_some_and(|text| text.contains(name)), "{name}: {limits:?}");
        }
        let narrow = Limits::new(0, [1; 3], [1; 3], 1).with_allocation_alignment(8);
        assert!(super::unusable(&narrow).is_some_and(|text| text.contains("8 bytes")));
    }
}
