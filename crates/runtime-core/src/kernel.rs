//! Modules, kernels and launches, as programs use them.
#![expect(
    unsafe_code,
    reason = "launches call the stream's unsafe enqueue, and modules are given back to their device"
)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Weak};

use bytemuck::Pod;
use smallvec::SmallVec;

use crate::contract::{
    DeviceKernel, DeviceMemory, DeviceModule, ParamAccess, ParamInfo, ParamKind, RawArg, Released,
};
use crate::mark::{InUses, Marks};
use crate::memory::Allocation;
use crate::uses::{Used, Uses};
use crate::view::{Untyped, check_use, reported};
use crate::{
    DType, Device, Element, Error, ErrorKind, ImageFormat, Launch, Memory, MemoryView,
    MemoryViewMut, NativeKind, Plain, Result, Stream, Support, WriteReport,
};

/// Code loaded on a device. Cheap to clone. It is unloaded when the last clone and its last kernel are dropped and the
/// launches of its kernels are done.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

struct Loaded {
    raw: ManuallyDrop<Box<dyn DeviceModule>>,
    /// Whether the kernels are Rust functions, which take memory as slices.
    takes_slices: bool,
    uses: Uses,
    device: Device,
}

impl Module {
    pub(crate) fn new(raw: Box<dyn DeviceModule>, format: ImageFormat, device: Device) -> Self {
        let takes_slices = format == ImageFormat::HostFunctions;
        let raw = ManuallyDrop::new(raw);
        Self(Arc::new_cyclic(|loaded: &Weak<Loaded>| {
            let uses = Uses::of(loaded.clone());
            Loaded { raw, takes_slices, uses, device }
        }))
    }

    /// The device it is loaded on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns the kernel of that name.
    ///
    /// # Errors
    ///
    /// `KernelNotFound`. `InvalidArgument` for a name that contains a NUL, which no driver accepts.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        if name.contains('\0') {
            return Err(self.device().invalid("kernel", format!("{name:?} contains a NUL")));
        }
        let raw = self.0.raw.kernel(name).map_err(|e| self.device().place(e))?;
        let accepted = raw.parameters().map(|list| list.iter().map(Accepted::of).collect());
        let (name, module) = (name.to_owned(), self.clone());
        Ok(Kernel(Arc::new(Function { raw, accepted, name, module })))
    }
}

impl Used for Loaded {
    fn mark(&self, stream: &Stream) {
        self.uses.mark(stream, &self.device);
    }

    fn marks(&self) -> Option<&Marks> {
        None
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        // SAFETY: this device loaded it; kernels hold the module and are therefore dropped; and every stream on which
        // one of them was launched is registered.
        unsafe { self.uses.release(&self.device, Released::Module(raw)) };
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module(on {})", self.device().id())
    }
}

const LAUNCH: &str = "launch";
const OCCUPANCY: &str = "occupancy";

/// The arguments of a launch as a backend receives them, without an allocation for the usual number.
type RawArgs<'a> = SmallVec<[RawArg<'a>; 16]>;

/// A kernel of a loaded module. Cheap to clone; keeps its module loaded.
#[derive(Clone)]
pub struct Kernel(Arc<Function>);

struct Function {
    // Dropped before the module it belongs to.
    raw: Box<dyn DeviceKernel>,
    /// For each parameter, if the driver reports them.
    accepted: Option<Box<[Accepted]>>,
    name: String,
    module: Module,
}

impl Kernel {
    /// Its name in the module.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The device it is loaded on.
    pub fn device(&self) -> &Device {
        self.0.module.device()
    }

    /// The parameters of the loaded kernel, if the driver reports them.
    pub fn parameters(&self) -> Option<&[ParamInfo]> {
        self.0.raw.parameters()
    }

    /// The number of work-items in a one-dimensional block that suits the kernel best, with `shared_bytes` of dynamic
    /// shared memory per block. If the driver has no suggestion: 256, or the most that a block may have if that is
    /// less.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if no such block can be launched. Errors of the driver.
    pub fn suggested_block(&self, shared_bytes: u32) -> Result<u32> {
        const DEFAULT: u32 = 256;
        let limits = self.device().limits();
        self.check_shared(OCCUPANCY, shared_bytes)?;
        let most = limits.max_block[0].min(limits.max_block_threads);
        match self.0.raw.abilities().occupancy() {
            Some(occupancy) => {
                let block = occupancy.suggested_block(shared_bytes);
                Ok(block.map_err(|e| self.device().place(e))?.clamp(1, most))
            }
            None => Ok(DEFAULT.min(most)),
        }
    }

    /// The number of blocks that one multiprocessor holds at once, with `block` work-items and `shared_bytes` of
    /// dynamic shared memory each. 0 if such a block does not fit; `None` if the driver does not report it. A launch of
    /// [`compute_units`](crate::DeviceInfo::compute_units) times as many blocks fills the device. A cooperative launch
    /// may not have more blocks.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a block or shared memory beyond the device's limits. Errors of the driver.
    pub fn resident_blocks(&self, block: u32, shared_bytes: u32) -> Result<Option<u32>> {
        self.check_shared(OCCUPANCY, shared_bytes)?;
        let most = self.device().limits().max_block_threads;
        if block == 0 || block > most {
            let message = format!("a block of {block}; the device has 1 to {most}");
            return Err(self.refuse_as(OCCUPANCY, &message));
        }
        match self.0.raw.abilities().occupancy() {
            Some(occupancy) => {
                occupancy.resident_blocks(block, shared_bytes).map_err(|e| self.device().place(e))
            }
            None => Ok(None),
        }
    }

    /// A launch of enough blocks of the [suggested](Self::suggested_block) size to cover `items` in one dimension,
    /// without dynamic shared memory. Saturates as [`Launch::cover`] does.
    ///
    /// # Errors
    ///
    /// As [`suggested_block`](Self::suggested_block).
    ///
    /// ```
    /// # fn example(kernel: &runtime_core::Kernel, stream: &runtime_core::Stream) -> runtime_core::Result<()> {
    /// use runtime_core::args;
    ///
    /// let mut field = kernel.device().memory_allocate::<f32>(100_000)?;
    /// let launch = kernel.cover(field.len())?;
    /// // SAFETY: the kernel writes only those elements of its first argument whose index is below the second.
    /// unsafe { kernel.launch(stream, &launch, args![&mut field, 100_000_u32]) }
    /// # }
    /// ```
    pub fn cover(&self, items: usize) -> Result<Launch> {
        Ok(Launch::cover(items, self.suggested_block(0)?))
    }

    /// Enqueues the kernel. Values are copied before this returns.
    ///
    /// [`args!`](crate::args) creates the arguments. They are checked against the properties that the loaded kernel
    /// reports: the number of parameters, memory or value, element type, size, and write access. Properties that a
    /// driver does not report are not checked. A kernel gets the address of a view's element `[0, …, 0]`. A kernel that
    /// is a Rust function gets a slice instead and therefore accepts only contiguous views. A launch with a zero in its
    /// geometry checks its arguments and runs nothing.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` naming the argument, or the geometry and its limit; `Unsupported` for a cooperative launch;
    /// `WrongDevice`; `WrongStream`. In these cases nothing was enqueued. Otherwise errors of the driver.
    /// [`Stream::synchronize`] reports faults of the running kernel.
    ///
    /// # Safety
    ///
    /// The kernel touches only the memory that the arguments name, within their layouts. It writes only through mutable
    /// views. Where the driver cannot check parameter types, they agree with the arguments.
    pub unsafe fn launch(&self, stream: &Stream, launch: &Launch, args: &[Arg<'_>]) -> Result<()> {
        let device = self.device();
        device.check_same("launch", stream.device())?;
        self.check_geometry(launch)?;
        // Filled in place, because returning so large a value would copy it.
        let (mut raw, mut in_use) = (RawArgs::new(), InUses::new(stream));
        let reports = self.check_arguments(stream, args, &mut raw, &mut in_use)?;
        if launch.is_empty() {
            return Ok(());
        }
        self.0.module.0.uses.mark(stream, device);
        let note = |enqueued| {
            if reports {
                args.iter().filter_map(Arg::report).for_each(|report| report.note(enqueued));
            }
        };
        // SAFETY: objects are of this device, as checked, and the caller guarantees the behaviour of the kernel.
        let done = reported(note, || unsafe { stream.core.raw.launch(&*self.0.raw, launch, &raw) });
        in_use.end();
        done.map_err(|e| device.place(e))?;
        stream.counts().launched();
        let align = device.limits().argument_alignment.get();
        if align > 1 {
            raw.iter().for_each(|arg| count_realigned(arg, align, stream));
        }
        tracing::trace!(device = %device.id(), kernel = self.name(), grid = ?launch.grid, block = ?launch.block, "kernel launched");
        Ok(())
    }

    /// As [`launch`](Self::launch), for kernels that are Rust functions. It is safe: the compiler has checked the
    /// function, and the arguments are checked in full against its signature. Memory that is written overlaps no other
    /// argument.
    ///
    /// ```
    /// # fn example(device: &runtime_core::Device) -> runtime_core::Result<()> {
    /// use runtime_core::{Grid, HostModule, Launch, args};
    ///
    /// fn scale(grid: &Grid<'_>, x: &mut [f64], factor: f64) {
    ///     grid.chunks_mut(x, 4096, |_, x| x.iter_mut().for_each(|x| *x *= factor));
    /// }
    ///
    /// let kernel = device.module_load(&HostModule::new().with("scale", scale))?.kernel("scale")?;
    /// let stream = device.default_stream();
    /// let mut x = device.memory_from_slice(&stream, &[1.0, 2.0])?;
    /// kernel.launch_checked(&stream, &Launch::cover(2, 1), args![&mut x, 3.0])?;
    /// assert_eq!(x.to_vec(&stream)?, [3.0, 6.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch). `Unsupported` if the kernel is not a Rust function; nothing was enqueued then.
    /// [`Stream::synchronize`] reports `InvalidArgument` for memory that overlaps.
    pub fn launch_checked(&self, stream: &Stream, launch: &Launch, args: &[Arg<'_>]) -> Result<()> {
        if !self.0.module.0.takes_slices {
            let message = format!(
                "kernel {:?} is not a Rust function; `launch`, which is unsafe, starts it",
                self.name()
            );
            let error = Error::new(ErrorKind::Unsupported, "launch_checked", message);
            return Err(error.on(self.device().id()));
        }
        // SAFETY: the kernel is a Rust function without access to other memory than its arguments. Its device passes
        // only what fits its signature, see `HostKernel::run`.
        unsafe { self.launch(stream, launch, args) }
    }

    fn check_geometry(&self, launch: &Launch) -> Result<()> {
        let limits = self.device().limits();
        let within =
            |[x, y, z]: [u32; 3], most: [u32; 3]| x <= most[0] && y <= most[1] && z <= most[2];
        let fits = within(launch.grid, limits.max_grid)
            && within(launch.block, limits.max_block)
            && block_threads(launch) <= limits.max_block_threads.into()
            && launch.shared_bytes <= limits.max_shared_bytes;
        if fits && !launch.cooperative { Ok(()) } else { self.explain_geometry(launch) }
    }

    /// As [`check_geometry`](Self::check_geometry), in steps that find what to name in the error.
    #[cold]
    fn explain_geometry(&self, launch: &Launch) -> Result<()> {
        let limits = self.device().limits();
        let over = |what: &str, value: u64, limit: u64| {
            Err(self.refuse(format!("{what} of {value}; the device has at most {limit}")))
        };
        for (what, extents, most) in
            [("grid", launch.grid, limits.max_grid), ("block", launch.block, limits.max_block)]
        {
            for (dim, (extent, most)) in ["x", "y", "z"].iter().zip(extents.iter().zip(most)) {
                if *extent > most {
                    return over(&format!("{what} dimension {dim}"), (*extent).into(), most.into());
                }
            }
        }
        let block = block_threads(launch);
        if block > limits.max_block_threads.into() {
            return over("block size", block, limits.max_block_threads.into());
        }
        self.check_shared(LAUNCH, launch.shared_bytes)?;
        if launch.cooperative && self.device().capabilities().cooperative_launch == Support::Absent
        {
            let message = format!("cooperative launches, as of kernel {:?}", self.name());
            return Err(self.device().unsupported(LAUNCH, &message));
        }
        Ok(())
    }

    #[inline]
    fn check_shared(&self, operation: &'static str, bytes: u32) -> Result<()> {
        let limit = self.device().limits().max_shared_bytes;
        if bytes <= limit {
            return Ok(());
        }
        let message = format!("shared memory of {bytes}; the device has at most {limit}");
        Err(self.refuse_as(operation, &message))
    }

    /// Checks the arguments and converts them for the backend. Returns whether any of them reports writes to its
    /// lender. Registering a use that is then refused is harmless.
    fn check_arguments<'a>(
        &self,
        stream: &'a Stream,
        args: &'a [Arg<'_>],
        raw: &mut RawArgs<'a>,
        in_use: &mut InUses<'a>,
    ) -> Result<bool> {
        let limits = self.device().limits();
        let accepted = self.0.accepted.as_deref();
        if let Some(accepted) = accepted
            && accepted.len() != args.len()
        {
            return Err(self.refuse(format!(
                "{} arguments for {} parameters",
                args.len(),
                accepted.len()
            )));
        }
        if args.len() > limits.max_arguments {
            return Err(self.refuse(format!(
                "{} arguments; the device takes {}",
                args.len(),
                limits.max_arguments
            )));
        }
        let takes_slices = self.0.module.0.takes_slices;
        let (mut bytes, mut reports) = (0, false);
        raw.reserve(args.len());
        let accepted = accepted.unwrap_or_default();
        for (index, arg) in args.iter().enumerate() {
            let fits = match accepted.get(index) {
                None => true,
                Some(accepted) => accepted.takes(arg.class()) || arg.fits(self.parameter(index)),
            };
            if !fits {
                return Err(self.refuse_argument(index, arg));
            }
            match &arg.0 {
                Given::Memory(memory) => {
                    if takes_slices && !memory.contiguous {
                        return Err(self.refuse_argument(index, arg));
                    }
                    match memory.begin(stream, in_use) {
                        Ok(Some(begun)) => raw.push(memory.raw(begun)),
                        Ok(None) => raw.push(memory.empty()),
                        Err(error) => return Err(self.refuse_use(index, &error)),
                    }
                    reports |= memory.report.is_some();
                    bytes += size_of::<usize>();
                }
                Given::Scalar(value, dtype) => {
                    let value = &value[..dtype.size()];
                    raw.push(RawArg::Value { bytes: value, dtype: Some(*dtype) });
                    bytes += value.len();
                }
                Given::Bytes(value) => {
                    if value.is_empty() {
                        return Err(self.refuse_argument(index, arg));
                    }
                    raw.push(RawArg::Value { bytes: value, dtype: None });
                    bytes += value.len();
                }
            }
        }
        if bytes > limits.max_argument_bytes {
            return Err(self.refuse(format!(
                "{bytes} bytes of arguments; the device takes {}",
                limits.max_argument_bytes
            )));
        }
        Ok(reports)
    }

    fn parameter(&self, index: usize) -> Option<&ParamInfo> {
        self.0.raw.parameters()?.get(index)
    }

    #[cold]
    fn refuse_argument(&self, index: usize, arg: &Arg<'_>) -> Error {
        self.refuse(format!("argument {index}: {}", arg.misfit(self.parameter(index))))
    }

    /// The error for memory that cannot be used on the stream, naming the argument.
    #[cold]
    fn refuse_use(&self, index: usize, error: &Error) -> Error {
        let message = format!("kernel {:?}: argument {index}: {}", self.name(), error.message());
        Error::new(error.kind(), LAUNCH, message).on(self.device().id())
    }

    #[cold]
    fn refuse(&self, what: String) -> Error {
        self.refuse_as(LAUNCH, &what)
    }

    #[cold]
    fn refuse_as(&self, operation: &'static str, what: &str) -> Error {
        self.device().invalid(operation, format!("kernel {:?}: {what}", self.name()))
    }
}

/// The work-items of a block.
fn block_threads(launch: &Launch) -> u64 {
    let [x, y, z] = launch.block.map(u64::from);
    // The product of two cannot overflow; that of three can.
    (x * y).saturating_mul(z)
}

/// Counts the bytes that a device copied for an argument whose start its pointers cannot address.
fn count_realigned(arg: &RawArg<'_>, align: usize, stream: &Stream) {
    if let RawArg::Memory { memory, origin, start, bytes, writes, .. } = *arg
        && origin > 0
        && (origin != start || !origin.is_multiple_of(align))
        && memory.native().kind != NativeKind::Pointer
    {
        let copies = if writes { 2 } else { 1 };
        (0..copies).for_each(|_| stream.counts().realigned(bytes));
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({:?} on {})", self.name(), self.device().id())
    }
}

/// A kernel argument: memory to read, memory to write, or a value. Created by [`args!`](crate::args) or `From`.
pub struct Arg<'a>(Given<'a>);

enum Given<'a> {
    Memory(MemoryArg<'a>),
    /// One element. Only the first `DType::size` bytes are used.
    Scalar([u8; 16], DType),
    Bytes(&'a [u8]),
}

/// The part of a view that a launch needs. It leaves out the shape, because arguments are created for every launch.
struct MemoryArg<'a> {
    allocation: &'a Allocation,
    origin: usize,
    start: usize,
    bytes: usize,
    /// The id of the only stream that may use it, or 0.
    stream: u64,
    dtype: DType,
    /// What a parameter compares: see [`Accepted`].
    class: u32,
    contiguous: bool,
    dense: bool,
    writes: bool,
    report: Option<&'a WriteReport>,
}

impl<'a> Arg<'a> {
    /// A value given as bytes, for layouts known only at run time. For a struct there is [`Plain`].
    pub fn bytes(bytes: &'a [u8]) -> Self {
        Self(Given::Bytes(bytes))
    }

    #[inline(always)]
    fn memory(view: &Untyped<'a>, writes: bool, report: Option<&'a WriteReport>) -> Self {
        let range = view.byte_range();
        let (bytes, contiguous) = (range.end - range.start, view.layout().is_contiguous());
        let class = MEMORY | view.dtype().number() | if writes { WRITES } else { 0 };
        Self(Given::Memory(MemoryArg {
            allocation: view.allocation(),
            origin: view.origin(),
            start: range.start,
            bytes,
            stream: view.bound_stream(),
            dtype: view.dtype(),
            class,
            contiguous,
            dense: contiguous || bytes == view.len() * view.dtype().size(),
            writes,
            report,
        }))
    }

    /// Where writes through the argument are reported, if it has elements.
    fn report(&self) -> Option<&'a WriteReport> {
        match &self.0 {
            Given::Memory(MemoryArg { report, bytes: 1.., .. }) => *report,
            _ => None,
        }
    }

    fn size(&self) -> usize {
        match &self.0 {
            Given::Memory(_) => size_of::<usize>(),
            Given::Scalar(_, dtype) => dtype.size(),
            Given::Bytes(bytes) => bytes.len(),
        }
    }

    /// Memory or value, and the element type if there is one.
    fn kind(&self) -> (ParamKind, Option<DType>) {
        match &self.0 {
            Given::Memory(memory) => (ParamKind::Memory, Some(memory.dtype)),
            Given::Scalar(_, dtype) => (ParamKind::Value, Some(*dtype)),
            Given::Bytes(_) => (ParamKind::Value, None),
        }
    }

    /// What a parameter that takes memory compares.
    #[inline(always)]
    fn class(&self) -> u32 {
        match &self.0 {
            Given::Memory(memory) => memory.class,
            Given::Scalar(..) | Given::Bytes(_) => 0,
        }
    }

    /// Whether it fits the parameter, as far as that is known.
    fn fits(&self, parameter: Option<&ParamInfo>) -> bool {
        let Some(parameter) = parameter else { return true };
        let (kind, dtype) = self.kind();
        let writes = !matches!(&self.0, Given::Memory(memory) if !memory.writes);
        (parameter.kind == kind || parameter.kind == ParamKind::Unknown)
            && (parameter.dtype == dtype || parameter.dtype.is_none() || dtype.is_none())
            && parameter.size.is_none_or(|size| size == self.size())
            && (writes || parameter.access != Some(ParamAccess::Write))
    }

    /// The reason why the argument is refused.
    #[cold]
    fn misfit(&self, parameter: Option<&ParamInfo>) -> String {
        let (kind, dtype) = self.kind();
        if let Some(parameter) = parameter {
            if parameter.kind != ParamKind::Unknown && parameter.kind != kind {
                return format!("{} for a {} parameter", name(kind), name(parameter.kind));
            }
            match (parameter.dtype, dtype, parameter.size) {
                (Some(expected), Some(given), _) if expected != given => {
                    return format!("{given} for a parameter of {expected}");
                }
                (_, _, Some(size)) if size != self.size() => {
                    return format!("{} bytes for a parameter of {size}", self.size());
                }
                _ => {}
            }
        }
        let what = match &self.0 {
            Given::Memory(_) if self.fits(parameter) => {
                "a view that is not contiguous, which a Rust function cannot take"
            }
            Given::Memory(_) => "memory to read for a parameter that is written",
            Given::Scalar(..) | Given::Bytes(_) => "a value of no byte",
        };
        what.to_owned()
    }
}

impl<'a> MemoryArg<'a> {
    /// Checks the device and the stream, registers the use, and returns the device's memory object. `None` if the view
    /// has no elements.
    #[inline(always)]
    fn begin(
        &self,
        stream: &'a Stream,
        in_use: &mut InUses<'a>,
    ) -> Result<Option<&'a dyn DeviceMemory>> {
        check_use(LAUNCH, self.allocation.device(), self.stream, stream)?;
        Ok(if self.bytes > 0 { self.allocation.begin(stream, in_use) } else { None })
    }

    #[inline(always)]
    fn raw(&self, memory: &'a dyn DeviceMemory) -> RawArg<'a> {
        let &Self { origin, start, bytes, dense, dtype, writes, .. } = self;
        RawArg::Memory { memory, origin, start, bytes, dense, dtype, writes }
    }

    #[cold]
    fn empty(&self) -> RawArg<'a> {
        RawArg::Empty { dtype: self.dtype, writes: self.writes }
    }
}

/// The arguments that a parameter surely takes: those whose class has certain bits. It makes the check of most
/// arguments a comparison of numbers; [`Arg::fits`] decides about the others.
struct Accepted {
    mask: u32,
    bits: u32,
}

/// Bits of an argument's class. Those below are the number of the element type.
const MEMORY: u32 = 1 << 8;
const WRITES: u32 = 1 << 9;
/// Not in the class of any argument.
const NONE: u32 = 1 << 10;

impl Accepted {
    fn of(parameter: &ParamInfo) -> Self {
        let mut accepted = Self { mask: MEMORY, bits: MEMORY };
        match parameter.dtype {
            None => {}
            // Records are compared field by field.
            Some(DType::Record(_)) => accepted = Self { mask: NONE, bits: NONE },
            Some(dtype) => {
                accepted.mask |= MEMORY - 1;
                accepted.bits |= dtype.number();
            }
        }
        if parameter.access == Some(ParamAccess::Write) {
            accepted.mask |= WRITES;
            accepted.bits |= WRITES;
        }
        let size = parameter.size.is_none_or(|size| size == size_of::<usize>());
        if parameter.kind == ParamKind::Value || !size {
            accepted = Self { mask: NONE, bits: NONE };
        }
        accepted
    }

    #[inline(always)]
    fn takes(&self, class: u32) -> bool {
        class & self.mask == self.bits
    }
}

impl fmt::Debug for Arg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Given::Memory(memory) => {
                let access = if memory.writes { "write" } else { "read" };
                write!(f, "{access} {} memory, {} bytes", memory.dtype, memory.bytes)
            }
            Given::Scalar(bytes, dtype) => write!(f, "{dtype} value {:?}", &bytes[..dtype.size()]),
            Given::Bytes(bytes) => write!(f, "value of {} bytes", bytes.len()),
        }
    }
}

fn name(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::Memory => "memory",
        ParamKind::Value => "value",
        ParamKind::Unknown => "unknown",
    }
}

impl<'a, T> From<MemoryView<'a, T>> for Arg<'a> {
    #[inline(always)]
    fn from(view: MemoryView<'a, T>) -> Self {
        Self::memory(view.untyped(), false, None)
    }
}

impl<'a, T> From<MemoryViewMut<'a, T>> for Arg<'a> {
    #[inline(always)]
    fn from(view: MemoryViewMut<'a, T>) -> Self {
        let view = view.untyped();
        Self::memory(view.view(), true, view.report())
    }
}

impl<'a, T: Element> From<&'a Memory<T>> for Arg<'a> {
    #[inline(always)]
    fn from(memory: &'a Memory<T>) -> Self {
        memory.view().into()
    }
}

impl<'a, T: Element> From<&'a mut Memory<T>> for Arg<'a> {
    #[inline(always)]
    fn from(memory: &'a mut Memory<T>) -> Self {
        memory.view_mut().into()
    }
}

impl<'a, S: Pod> From<&'a Plain<S>> for Arg<'a> {
    #[inline]
    fn from(value: &'a Plain<S>) -> Self {
        Self::bytes(bytemuck::bytes_of(&value.0))
    }
}

impl<T: Element> From<T> for Arg<'_> {
    #[inline]
    fn from(value: T) -> Self {
        const { assert!(size_of::<T>() <= 16, "write `&Plain(record)` to pass a record as a value") };
        let mut bytes = [0; 16];
        bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        Self(Given::Scalar(bytes, T::DTYPE))
    }
}

/// Creates a list of kernel [`Arg`]uments from views, memories and values.
///
/// `&memory` is memory to read, `&mut memory` is memory to write. Views and elements are passed as they are.
/// `&Plain(value)` passes a struct.
///
/// ```
/// use runtime_core::args;
///
/// assert_eq!(format!("{:?}", args![2_u8]), "[u8 value [2]]");
/// ```
#[macro_export]
macro_rules! args {
    ($($arg:expr),* $(,)?) => {
        &[$($crate::Arg::from($arg)),*] as &[$crate::Arg<'_>]
    };
}
