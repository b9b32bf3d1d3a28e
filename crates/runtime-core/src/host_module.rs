//! Kernels that are Rust functions, for devices whose memory the host can address.
#![expect(unsafe_code, reason = "typed slices are made of the memory a device lends for a launch")]

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytemuck::Pod;
use smallvec::SmallVec;

use crate::contract::{ParamAccess, ParamInfo, ParamKind};
use crate::element::check_representation;
use crate::{DType, Element, Error, ErrorKind, Launch, Limits, Owner, Result};

/// A module whose kernels are Rust functions.
///
/// A kernel takes a [`Grid`] and up to twelve parameters. `&[T]` is memory that it reads and `&mut [T]` is memory that
/// it writes; both are passed as contiguous views. Any other [`Element`] is a value, and so is a struct in [`Plain`].
/// Launches are checked against the signature, so that [`Kernel::launch_checked`](crate::Kernel::launch_checked) is
/// safe.
///
/// A kernel may return `Result<(), String>` to report a fault. A panic is a fault too. The stream reports the fault
/// with the kernel's name. Until then it skips the work enqueued behind the fault. Once a call of a loop has panicked,
/// no further call of the loop begins. Calls that run in other threads at this time may panic too. Therefore a launch
/// may print one panic for each thread of the device, or more if its loops nest, and the stream reports one of them.
///
/// A kernel cannot wait for the stream that it runs on, nor for the device: `host` and `sim` refuse that in the thread
/// that the kernel began in. A kernel must not wait for any other work of its own device either: devices lock memory
/// while a kernel runs, and large copies use the threads that the kernel occupies, so that such a wait may never end.
/// The same holds for a wait for another stream that waits for the kernel's stream by an event.
///
/// A kernel must not use a thread pool of the program, such as rayon's, if a thread of that pool may wait for the
/// kernel's device. It would wait for a thread that waits for it. In a thread that waits for the stream, the pool could
/// also run another of its jobs within the kernel. [`Grid::chunks_mut`] uses the device's own threads instead.
///
/// A kernel runs in a thread of the device, or in a thread that waits for the stream, and on the stack of that thread.
/// Thread-local values, such as the scopes and transfer budgets of arrays, are those of the thread that it happens to
/// run in. So a kernel must not depend on them, and needs little stack.
///
/// What a kernel captured is dropped with the last clone of the kernel and after its launches, as an [`Owner`]: without
/// recursion, and a destructor that panics is logged and is no fault.
///
/// The function runs once per launch and spreads its work over the device's cores with [`Grid::chunks_mut`] or
/// [`Grid::for_each`].
///
/// ```
/// use runtime_core::{Grid, HostModule};
///
/// fn saxpy(grid: &Grid<'_>, y: &mut [f32], x: &[f32], a: f32) {
///     grid.chunks_mut(y, 4096, |chunk, y| {
///         for (y, x) in y.iter_mut().zip(&x[chunk * 4096..]) {
///             *y += a * x;
///         }
///     });
/// }
///
/// let module = HostModule::new().with("saxpy", saxpy);
/// assert_eq!(module.kernel("saxpy").unwrap().parameters().len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct HostModule {
    kernels: BTreeMap<String, HostKernel>,
}

impl HostModule {
    /// A module without kernels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kernel. Replaces a kernel of the same name.
    #[must_use]
    pub fn with<P, F: KernelFunction<P>>(mut self, name: impl Into<String>, function: F) -> Self {
        let name = name.into();
        let HostKernel { signature, body } = function.into_kernel();
        let parameters = signature.parameters.clone();
        let signature = Arc::new(Signature { name: name.clone(), parameters });
        self.kernels.insert(name, HostKernel { signature, body });
        self
    }

    /// Refuses a kernel with parameters that no launch on a device with these limits can have.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), String> {
        let check = |kernel: &HostKernel| kernel.signature.check(limits);
        self.kernels.iter().try_for_each(|(name, kernel)| {
            check(kernel).map_err(|why| format!("kernel {name:?}: {why}"))
        })
    }

    /// Returns the kernel of that name.
    ///
    /// # Errors
    ///
    /// `KernelNotFound`. The message names the module's kernels.
    pub fn kernel(&self, name: &str) -> Result<HostKernel> {
        self.kernels.get(name).cloned().ok_or_else(|| {
            let known: Vec<String> = self.kernels.keys().map(|name| format!("{name:?}")).collect();
            let message = match known.is_empty() {
                true => format!("{name:?}: the module has no kernels"),
                false => format!("{name:?} is not one of {}", known.join(", ")),
            };
            Error::new(ErrorKind::KernelNotFound, "kernel", message)
        })
    }
}

/// A Rust function with the signature that its launches are checked against.
#[derive(Clone)]
pub struct HostKernel {
    signature: Arc<Signature>,
    body: Arc<Body>,
}

struct Signature {
    name: String,
    parameters: Vec<ParamInfo>,
}

impl Signature {
    fn check(&self, limits: &Limits) -> Result<(), String> {
        const ADDRESS: usize = size_of::<usize>();
        let count = self.parameters.len();
        if count > limits.max_arguments {
            return Err(format!("{count} parameters; the device takes {}", limits.max_arguments));
        }
        let mut all = 0_usize;
        for (index, parameter) in self.parameters.iter().enumerate() {
            let refuse = |why: String| Err(format!("parameter {index}: {why}"));
            let bytes = match (parameter.kind, parameter.size) {
                (ParamKind::Unknown, _) => {
                    return refuse("is neither memory nor a value".to_owned());
                }
                (ParamKind::Memory, Some(size)) if size != ADDRESS => {
                    return refuse(format!("memory of size {size}; only a value has a size"));
                }
                (ParamKind::Value, Some(0)) => return refuse("a value of no byte".to_owned()),
                (ParamKind::Memory, _) => ADDRESS,
                (ParamKind::Value, Some(size)) => size,
                (ParamKind::Value, None) => parameter.dtype.map_or(1, DType::size),
            };
            all = all.saturating_add(bytes);
        }
        if all > limits.max_argument_bytes {
            let most = limits.max_argument_bytes;
            return Err(format!("{all} bytes of parameters; the device takes {most}"));
        }
        Ok(())
    }
}

type Function = dyn Fn(&Grid<'_>, &[HostArg<'_>]) -> Result<(), String> + Send + Sync;

/// A function and what it captured, which may be other modules without limit: dropped as an [`Owner`].
struct Body(Box<Function>);

impl Drop for Body {
    fn drop(&mut self) {
        // The empty function in its place needs no memory.
        drop(Owner::new(mem::replace(&mut self.0, Box::new(|_, _| Ok(())))));
    }
}

impl HostKernel {
    /// A kernel whose signature is known only at run time. For types that implement [`KernelFunction`].
    ///
    /// A launch calls `body` with arguments that fit `parameters`. Their memory is as [`run`](Self::run) requires. If no
    /// launch on a device can have these parameters, [`Device::module_load`](crate::Device::module_load) refuses the
    /// kernel: a parameter of unknown kind, a value of no byte, memory with a size other than that of an address, or
    /// more parameters or bytes than the device takes.
    pub fn new(
        parameters: Vec<ParamInfo>,
        body: impl Fn(&Grid<'_>, &[HostArg<'_>]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            signature: Arc::new(Signature { name: String::new(), parameters }),
            body: Arc::new(Body(Box::new(body))),
        }
    }

    /// Its name in the module. Empty for a kernel that is in no module.
    pub fn name(&self) -> &str {
        &self.signature.name
    }

    /// The parameters, in order.
    pub fn parameters(&self) -> &[ParamInfo] {
        &self.signature.parameters
    }

    /// Runs the function in this thread. For implementors of devices.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `args` do not fit the signature, or if memory that is written overlaps other memory, which
    /// Rust slices cannot express. `DeviceFault` if the function reports a fault. A panic propagates to the caller.
    ///
    /// # Safety
    ///
    /// Each memory argument is initialised and valid for its length until this returns. While the function runs, no
    /// other code writes the memory. If the kernel writes it, no other code accesses it at all.
    pub unsafe fn run(&self, grid: &Grid<'_>, args: &[HostArg<'_>]) -> Result<()> {
        let invalid = |message| Error::new(ErrorKind::InvalidArgument, "launch", message);
        if args.len() != self.parameters().len() {
            return Err(invalid(format!(
                "{} arguments for {} parameters",
                args.len(),
                self.parameters().len()
            )));
        }
        for (index, (parameter, arg)) in self.parameters().iter().zip(args).enumerate() {
            arg.check(parameter).map_err(|why| invalid(format!("argument {index}: {why}")))?;
            let writes = |at: usize| self.parameters()[at].access == Some(ParamAccess::Write);
            let clash = (0..index)
                .find(|other| (writes(*other) || writes(index)) && arg.overlaps(&args[*other]));
            if let Some(other) = clash {
                return Err(invalid(format!(
                    "arguments {other} and {index} overlap and one of them is written"
                )));
            }
        }
        (self.body.0)(grid, args)
            .map_err(|message| Error::new(ErrorKind::DeviceFault, "launch", message))
    }
}

impl fmt::Debug for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKernel")
            .field("name", &self.name())
            .field("parameters", &self.parameters())
            .finish_non_exhaustive()
    }
}

/// One argument of a host kernel.
#[derive(Clone, Copy, Debug)]
pub enum HostArg<'a> {
    /// Memory: the address of its first element and its length in bytes.
    Memory {
        /// Address of the lowest byte, which is element `[0, …, 0]`. Unused if `bytes` is 0.
        pointer: *mut u8,
        /// Length in bytes.
        bytes: usize,
    },
    /// A value's bytes.
    Value(&'a [u8]),
}

impl HostArg<'_> {
    fn check(&self, parameter: &ParamInfo) -> Result<(), String> {
        let size = parameter.dtype.map_or(1, DType::size);
        let size = parameter.size.unwrap_or(size);
        match (parameter.kind, self) {
            (ParamKind::Memory, Self::Memory { pointer, bytes }) => {
                let aligned = pointer.addr() % parameter.dtype.map_or(1, DType::align) == 0;
                if *bytes == 0 || (bytes.is_multiple_of(size) && aligned && !pointer.is_null()) {
                    return Ok(());
                }
                Err(format!("{bytes} bytes at {pointer:p} are no elements of {size} bytes"))
            }
            (ParamKind::Value, Self::Value(bytes)) if bytes.len() == size => Ok(()),
            (kind, other) => Err(format!("{other:?} for a {kind:?} parameter of {size} bytes")),
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (Self::Memory { pointer: a, bytes: m }, Self::Memory { pointer: b, bytes: n }) =
            (self, other)
        else {
            return false;
        };
        let overlap = a.addr() < b.addr() + n && b.addr() < a.addr() + m;
        overlap && *m > 0 && *n > 0
    }
}

/// The launch that a host kernel runs in: its geometry, and the cores of its device.
pub struct Grid<'a> {
    launch: Launch,
    parallel: &'a ParallelFor<'a>,
}

/// Spreads indices over the cores of a device. It calls the function once for each index below the number, in any order
/// and from any thread, and returns when all calls have returned.
pub type ParallelFor<'a> = dyn Fn(usize, &(dyn Fn(usize) + Sync)) + Sync + 'a;

impl<'a> Grid<'a> {
    /// The grid of a launch. `parallel` spreads its work. For implementors of devices.
    pub fn new(launch: Launch, parallel: &'a ParallelFor<'a>) -> Self {
        Self { launch, parallel }
    }

    /// The launch.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// The number of work-items along x, y, z: blocks times work-items per block.
    pub fn threads(&self) -> [usize; 3] {
        std::array::from_fn(|dim| {
            (self.launch.grid[dim] as usize).saturating_mul(self.launch.block[dim] as usize)
        })
    }

    /// Calls `f` once for each index below `count`, on all cores and in any order. Blocks until all calls have
    /// returned.
    pub fn for_each(&self, count: usize, f: impl Fn(usize) + Sync) {
        match count {
            0 => {}
            1 => f(0),
            _ => (self.parallel)(count, &f),
        }
    }

    /// Cuts `slice` into chunks of `len` elements; the last chunk may be shorter. Calls `f` with the number of each
    /// chunk and the chunk, on all cores and in any order. A `len` of 0 counts as 1.
    pub fn chunks_mut<T: Send>(
        &self,
        slice: &mut [T],
        len: usize,
        f: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let len = len.max(1);
        let total = slice.len();
        let chunks = total.div_ceil(len);
        let base = SharedBase(slice.as_mut_ptr());
        // Each chunk is lent only once, whichever indices a device passes. If one bit per chunk needs little memory, an
        // index gets the chunk of that number, so that neighbouring chunks stay on one core. Otherwise it gets the next
        // free chunk.
        let marked = if chunks <= MARKED_CHUNKS { chunks } else { 0 };
        let taken: SmallVec<[AtomicU64; 16]> =
            (0..marked.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let next = AtomicUsize::new(0);
        let take = |index: usize| {
            if marked == 0 {
                return Some(next.fetch_add(1, Ordering::Relaxed));
            }
            let bit = 1 << (index % 64);
            let before = taken.get(index / 64)?.fetch_or(bit, Ordering::Relaxed);
            (before & bit == 0).then_some(index)
        };
        self.for_each(chunks, |index| {
            let Some(chunk) = take(index).filter(|chunk| *chunk < chunks) else { return };
            let start = chunk * len;
            // SAFETY: `start` is inside the slice, because it is less than `chunks * len` and chunks are not empty.
            let first = unsafe { base.get().add(start) };
            // SAFETY: the chunk ends inside the slice, which is borrowed exclusively for the whole call, and chunks
            // with different numbers do not overlap.
            let part = unsafe { std::slice::from_raw_parts_mut(first, len.min(total - start)) };
            f(chunk, part);
        });
    }
}

impl fmt::Debug for Grid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grid").field("launch", &self.launch).finish_non_exhaustive()
    }
}

/// The most chunks that are marked as taken individually.
const MARKED_CHUNKS: usize = 1 << 16;

struct SharedBase<T>(*mut T);

impl<T> SharedBase<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: threads get disjoint chunks of `T: Send`, as if the slice had been split and its parts sent to them.
unsafe impl<T: Send> Sync for SharedBase<T> {}

/// A parameter of a host kernel: `&[T]`, `&mut [T]` or `T`, with any [`Element`] `T`, or [`Plain`].
///
/// # Safety
///
/// `extract` *must* create only a value or slice of the argument that [`info`](Self::info) describes.
pub unsafe trait KernelParameter {
    /// The parameter with the lifetime of one launch.
    type Item<'a>;

    /// The properties that launches are checked against.
    fn info() -> ParamInfo;

    /// Creates the parameter from an argument.
    ///
    /// # Safety
    ///
    /// The argument fits [`info`](Self::info), and its memory is valid as [`HostKernel::run`] requires.
    unsafe fn extract<'a>(arg: &'a HostArg<'_>) -> Self::Item<'a>;
}

/// A Rust function that can be a kernel: `Fn(&Grid, …)` with up to twelve [`KernelParameter`]s.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a kernel",
    label = "not a kernel",
    note = "write `fn kernel(grid: &Grid<'_>, …)` or `|grid: &Grid<'_>, …|` with the type of each of up to twelve parameters: `&[T]`, `&mut [T]` or `T` with `T: Element`, without a lifetime such as `'static`",
    note = "a kernel returns nothing or `Result<(), String>`; what it captures is `Send`, `Sync` and `'static`",
    note = "sizes are `u64` or `u32` and truth values are `Bool`, since `usize` and `bool` are no elements",
    note = "more than twelve parameters go into a struct that derives `Pod`, as `Plain<S>`"
)]
pub trait KernelFunction<P>: Send + Sync + 'static {
    /// Converts the function to a kernel with its signature.
    fn into_kernel(self) -> HostKernel;
}

/// The return type of a host kernel: nothing, or a result whose error is a fault.
pub trait KernelResult {
    /// Converts the return value to a result.
    ///
    /// # Errors
    ///
    /// The fault's message.
    fn into_result(self) -> Result<(), String>;
}

impl KernelResult for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl KernelResult for Result<(), String> {
    fn into_result(self) -> Result<(), String> {
        self
    }
}

fn memory<T: Element>(access: ParamAccess) -> ParamInfo {
    const { check_representation::<T>() };
    ParamInfo { kind: ParamKind::Memory, size: None, dtype: Some(T::DTYPE), access: Some(access) }
}

fn parts<T>(arg: &HostArg<'_>) -> (*mut T, usize) {
    match arg {
        HostArg::Memory { pointer, bytes } if *bytes > 0 => {
            (pointer.cast(), bytes / size_of::<T>())
        }
        _ => (std::ptr::dangling_mut(), 0),
    }
}

// SAFETY: `extract` creates a slice of exactly the argument's memory.
unsafe impl<T: Element> KernelParameter for &[T] {
    type Item<'a> = &'a [T];
    fn info() -> ParamInfo {
        memory::<T>(ParamAccess::Read)
    }
    unsafe fn extract<'a>(arg: &'a HostArg<'_>) -> &'a [T] {
        let (pointer, len) = parts(arg);
        // SAFETY: the caller guarantees the memory; its length and alignment were checked against `info`.
        unsafe { std::slice::from_raw_parts(pointer, len) }
    }
}

// SAFETY: `extract` creates a slice of exactly the argument's memory.
unsafe impl<T: Element> KernelParameter for &mut [T] {
    type Item<'a> = &'a mut [T];
    fn info() -> ParamInfo {
        memory::<T>(ParamAccess::Write)
    }
    unsafe fn extract<'a>(arg: &'a HostArg<'_>) -> &'a mut [T] {
        let (pointer, len) = parts(arg);
        // SAFETY: as above, and no other argument overlaps memory that is written.
        unsafe { std::slice::from_raw_parts_mut(pointer, len) }
    }
}

// SAFETY: `extract` copies the argument's bytes.
unsafe impl<T: Element> KernelParameter for T {
    type Item<'a> = T;
    fn info() -> ParamInfo {
        ParamInfo {
            kind: ParamKind::Value,
            size: Some(size_of::<T>()),
            dtype: Some(T::DTYPE),
            access: None,
        }
    }
    unsafe fn extract(arg: &HostArg<'_>) -> T {
        match arg {
            HostArg::Value(bytes) => bytemuck::pod_read_unaligned(bytes),
            HostArg::Memory { .. } => T::zeroed(),
        }
    }
}

/// A struct of plain data as a single argument of a launch and a single parameter of a kernel. Useful when there are
/// more values than a kernel may have parameters, and for values that belong together.
///
/// A launch takes `&Plain(value)`. A C kernel gets it as a struct of the same fields, and a Rust kernel as `Plain<S>`.
/// `S` has no padding and is laid out as in C; [`Pod`](bytemuck::Pod) ensures both. Its bytes count towards
/// [`Limits::max_argument_bytes`](crate::Limits::max_argument_bytes).
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use runtime_core::{Device, Grid, HostModule, Launch, Plain, Result, args};
///
/// /// In C: `struct Wave { float amplitude, length, phase; };`
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Wave {
///     amplitude: f32,
///     length: f32,
///     phase: f32,
/// }
///
/// fn wave(_: &Grid<'_>, out: &mut [f32], Plain(wave): Plain<Wave>) {
///     for (x, out) in out.iter_mut().enumerate() {
///         *out = wave.amplitude * (x as f32 / wave.length + wave.phase).sin();
///     }
/// }
///
/// fn example(device: &Device) -> Result<()> {
///     let kernel = device.module_load(&HostModule::new().with("wave", wave))?.kernel("wave")?;
///     let mut out = device.memory_allocate::<f32>(100)?;
///     let wave = Plain(Wave { amplitude: 2.0, length: 8.0, phase: 0.5 });
///     kernel.launch_checked(&device.default_stream(), &Launch::cover(100, 64), args![&mut out, &wave])
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain<S>(pub S);

// SAFETY: `extract` copies the argument's bytes.
unsafe impl<S: Pod> KernelParameter for Plain<S> {
    type Item<'a> = Self;
    fn info() -> ParamInfo {
        ParamInfo { kind: ParamKind::Value, size: Some(size_of::<S>()), dtype: None, access: None }
    }
    unsafe fn extract(arg: &HostArg<'_>) -> Self {
        Self(match arg {
            HostArg::Value(bytes) => bytemuck::pod_read_unaligned(bytes),
            HostArg::Memory { .. } => S::zeroed(),
        })
    }
}

macro_rules! kernel_functions {
    ($(($($parameter:ident $index:tt),*))*) => {$(
        impl<F, R, $($parameter),*> KernelFunction<(R, $($parameter,)*)> for F
        where
            F: Send + Sync + 'static,
            R: KernelResult,
            $($parameter: KernelParameter,)*
            // The compiler infers the parameter types from the first bound and calls the second.
            for<'f> &'f F: Fn(&Grid<'_>, $($parameter),*) -> R
                + Fn(&Grid<'_>, $($parameter::Item<'_>),*) -> R,
        {
            fn into_kernel(self) -> HostKernel {
                fn call<R: KernelResult, $($parameter: KernelParameter),*>(
                    f: impl Fn(&Grid<'_>, $($parameter::Item<'_>),*) -> R,
                    grid: &Grid<'_>,
                    _args: &[HostArg<'_>],
                ) -> Result<(), String> {
                    f(
                        grid,
                        $(
                            // SAFETY: `HostKernel::run`, the only caller, has checked the arguments against `info`, and
                            // its own caller guarantees the memory.
                            unsafe { $parameter::extract(&_args[$index]) },
                        )*
                    )
                    .into_result()
                }
                HostKernel::new(vec![$($parameter::info()),*], move |grid, args| {
                    call::<R, $($parameter),*>(&self, grid, args)
                })
            }
        }
    )*};
}

kernel_functions! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, G 5)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7, J 8)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7, J 8, K 9)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7, J 8, K 9, L 10)
    (A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7, J 8, K 9, L 10, M 11)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serial(count: usize, f: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(f);
    }

    fn memory<T: Element>(slice: &mut [T]) -> HostArg<'static> {
        HostArg::Memory { pointer: slice.as_mut_ptr().cast(), bytes: size_of_val(slice) }
    }

    fn scale(grid: &Grid<'_>, out: &mut [f64], by: f64) {
        grid.chunks_mut(out, 3, |_, part| part.iter_mut().for_each(|x| *x *= by));
    }

    #[test]
    fn an_unknown_kernel_is_an_error_that_names_the_others() {
        let message = |module: &HostModule| module.kernel("zz").unwrap_err().message().to_owned();
        let module = HostModule::new();
        assert_eq!(message(&module), "\"zz\": the module has no kernels");
        let module = module.with("a b", scale);
        assert_eq!(message(&module), "\"zz\" is not one of \"a b\"");
    }

    #[test]
    fn signatures_become_parameters() {
        let module = HostModule::new()
            .with("scale", scale)
            .with("nothing", |_: &Grid<'_>| {})
            .with("closure", |_: &Grid<'_>, _a: &[u8], _b: &mut [i32], _c: u64| {});
        let kinds = |name: &str| {
            let kernel = module.kernel(name).unwrap();
            kernel.parameters().iter().map(|p| (p.kind, p.access)).collect::<Vec<_>>()
        };
        assert_eq!(
            kinds("closure"),
            [
                (ParamKind::Memory, Some(ParamAccess::Read)),
                (ParamKind::Memory, Some(ParamAccess::Write)),
                (ParamKind::Value, None)
            ]
        );
        assert!(kinds("nothing").is_empty());
        let error = module.kernel("scael").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KernelNotFound);
        assert!(error.message().contains("scale"), "{error}");
    }

    #[test]
    fn a_kernel_sees_its_arguments() {
        let kernel = HostModule::new().with("scale", scale).kernel("scale").unwrap();
        let mut data = [1.0_f64, 2.0, 3.0, 4.0];
        let args = [memory(&mut data), HostArg::Value(&2.0_f64.to_ne_bytes())];
        let grid = Grid::new(Launch::cover(4, 1), &serial);
        // SAFETY: `data` lives through the call and nothing else uses it.
        unsafe { kernel.run(&grid, &args) }.unwrap();
        assert_eq!(data, [2.0, 4.0, 6.0, 8.0]);
    }

    #[test]
    fn wrong_arguments_and_overlaps_are_refused() {
        let kernel = HostModule::new()
            .with("k", |_: &Grid<'_>, _a: &[u32], _b: &mut [u32]| {})
            .kernel("k")
            .unwrap();
        let mut data = [0_u32; 8];
        let all = memory(&mut data);
        let HostArg::Memory { pointer, .. } = all else { unreachable!() };
        let odd = HostArg::Memory { pointer: pointer.wrapping_add(1), bytes: 4 };
        let ragged = HostArg::Memory { pointer, bytes: 6 };
        let null = HostArg::Memory { pointer: std::ptr::null_mut(), bytes: 4 };
        let value = HostArg::Value(&[0; 4]);
        let grid = Grid::new(Launch::cover(1, 1), &serial);
        for args in [
            vec![],
            vec![all, all],
            vec![odd, all],
            vec![ragged, all],
            vec![null, all],
            vec![value, all],
        ] {
            // SAFETY: the call is refused before memory is touched.
            let error = unsafe { kernel.run(&grid, &args) }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{args:?}");
        }
    }

    #[test]
    fn a_struct_is_one_parameter() {
        #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C)]
        struct Many {
            small: u8,
            odd: [u8; 7],
            numbers: [f64; 13],
        }
        let sum = |_: &Grid<'_>, out: &mut [f64], Plain(many): Plain<Many>, by: f64| {
            out[0] = by * (f64::from(many.small + many.odd[6]) + many.numbers.iter().sum::<f64>());
        };
        let kernel = HostModule::new().with("sum", sum).kernel("sum").unwrap();
        let many = Many { small: 1, odd: [2; 7], numbers: [3.0; 13] };
        // Not aligned, as values among others are not.
        let bytes = [&[0], bytemuck::bytes_of(&many)].concat();
        let mut out = [0.0_f64];
        let grid = Grid::new(Launch::cover(1, 1), &serial);
        let by = 2.0_f64.to_ne_bytes();
        let args = [memory(&mut out), HostArg::Value(&bytes[1..]), HostArg::Value(&by)];
        // SAFETY: `out` lives through the call and nothing else uses it.
        unsafe { kernel.run(&grid, &args) }.unwrap();
        assert_eq!(out, [84.0]);
        let short = [memory(&mut out), HostArg::Value(&bytes[2..]), HostArg::Value(&by)];
        // SAFETY: as above.
        let error = unsafe { kernel.run(&grid, &short) }.unwrap_err();
        assert!(error.message().contains("of 112 bytes"), "{error}");
    }

    #[test]
    fn memory_that_is_only_read_may_be_given_twice() {
        let sum = |_: &Grid<'_>, out: &mut [u32], a: &[u32], b: &[u32]| out[0] = a[0] + b[0];
        let kernel = HostModule::new().with("sum", sum).kernel("sum").unwrap();
        let (mut out, mut data) = ([0_u32], [21_u32]);
        let args = [memory(&mut out), memory(&mut data), memory(&mut data)];
        // SAFETY: both arrays live through the call and nothing else uses them.
        unsafe { kernel.run(&Grid::new(Launch::cover(1, 1), &serial), &args) }.unwrap();
        assert_eq!(out, [42]);
    }

    #[test]
    fn a_chunk_is_passed_once_even_if_the_device_repeats_its_index() {
        let twice_and_beyond = |count: usize, f: &(dyn Fn(usize) + Sync)| {
            (0..count + 70).chain(0..count).chain([usize::MAX]).for_each(f);
        };
        let grid = Grid::new(Launch::cover(1, 1), &twice_and_beyond);
        let mut data = [0; 150];
        grid.chunks_mut(&mut data, 2, |chunk, part| part.iter_mut().for_each(|x| *x += chunk + 1));
        assert!(data.iter().enumerate().all(|(i, x)| *x == i / 2 + 1), "{data:?}");
        let mut many = vec![0_u8; MARKED_CHUNKS + 1];
        grid.chunks_mut(&mut many, 1, |_, part| part[0] += 1);
        assert!(many.iter().all(|x| *x == 1));
    }

    #[test]
    fn a_long_chain_of_modules_takes_little_stack() {
        let mut last = HostModule::new();
        for _ in 0..200_000 {
            let before = last;
            last = HostModule::new().with("k", move |_: &Grid<'_>| {
                let _held = &before;
            });
        }
        let small = std::thread::Builder::new().stack_size(64 << 10);
        small.spawn(|| drop(last)).unwrap().join().unwrap();
    }

    #[test]
    fn a_reported_fault_is_a_device_fault() {
        let kernel = HostModule::new()
            .with("k", |_: &Grid<'_>| Err::<(), _>("singular matrix".to_owned()))
            .kernel("k")
            .unwrap();
        let grid = Grid::new(Launch::cover(1, 1), &serial);
        // SAFETY: there are no memory arguments.
        let error = unsafe { kernel.run(&grid, &[]) }.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::DeviceFault, "singular matrix"));
    }
}
