//! Launches: arguments, and memory whose address OpenCL cannot express.
#![expect(unsafe_code, reason = "sets arguments and enqueues kernels through the driver")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::ptr;
use std::sync::atomic::Ordering;

use opencl3::command_queue::{enqueue_copy_buffer, enqueue_nd_range_kernel};
use opencl3::kernel::set_kernel_arg;
use opencl3::memory::{CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_READ_WRITE, create_sub_buffer};
use opencl3::types::{cl_buffer_region, cl_int, cl_kernel, cl_mem, cl_uint};
use runtime_core::contract::{RawArg, own};
use runtime_core::{Error, ErrorKind, Launch, Result};
use smallvec::SmallVec;

use crate::arguments::{set_buffer, set_memory};
use crate::handle::{Handle, Mem};
use crate::memory::{OpenClMemory, Place, new_buffer};
use crate::module::OpenClKernel;
use crate::open_device::OpenDevice;
use crate::stream::OpenClStream;

const OPERATION: &str = "launch";

/// Memory that a launch uses instead of the argument's own memory.
struct Stand {
    buffer: Handle<Mem>,
    /// The part to copy back, if the kernel may write it.
    back: Option<Part>,
    /// The argument's bytes and where it begins, if it was copied here because it is not aligned.
    copied: Option<(usize, usize)>,
}

/// A part of a buffer, and its position in the buffer that replaces it.
#[derive(Clone, Copy)]
struct Part {
    whole: cl_mem,
    start: usize,
    at: usize,
    bytes: usize,
}

impl OpenClKernel {
    /// Sets the arguments and enqueues the kernel.
    ///
    /// # Safety
    ///
    /// As `DeviceStream::launch`.
    pub(crate) unsafe fn launch(
        &self,
        stream: &OpenClStream,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        let shared = stream.shared();
        self.check(shared, launch)?;
        let mut stands: SmallVec<[Stand; 4]> = SmallVec::new();
        let mut copied: SmallVec<[usize; 4]> = SmallVec::new();
        let kernel = self.lock();
        let raw = kernel.raw();
        let indices = (0..).filter(|index| Some(*index) != self.local);
        for (number, (index, arg)) in indices.zip(args).enumerate() {
            let (aligned, known) = (self.check_alignment(shared, number, arg), stands.len());
            // SAFETY: the kernel is locked, and the caller guarantees the argument.
            let bound =
                aligned.and_then(|()| unsafe { bind(stream, raw, index, arg, &mut stands) });
            bound.map_err(|error| self.named(error, &format!("argument {number}")))?;
            if stands[known..].iter().any(|stand| stand.copied.is_some()) {
                copied.push(number);
            }
        }
        check_copies(shared, args, &copied)?;
        if let Some(index) = self.local {
            // SAFETY: the kernel is locked; local memory has a size and no value.
            unsafe { set_kernel_arg(raw, index, launch.shared_bytes as usize, ptr::null()) }
                .map_err(|code| {
                    let what = format!("{} bytes of shared memory", launch.shared_bytes);
                    shared.error(OPERATION, code, what)
                })?;
        }
        let local = launch.block.map(|extent| extent as usize);
        let global: [usize; 3] = std::array::from_fn(|dim| local[dim] * launch.grid[dim] as usize);
        // SAFETY: the caller guarantees the kernel; its arguments are set, and copied during the call.
        let enqueued = unsafe {
            stream.submit_kernel(&self.name, |queue| {
                enqueue_nd_range_kernel(
                    queue,
                    raw,
                    3,
                    ptr::null(),
                    global.as_ptr(),
                    local.as_ptr(),
                    0,
                    ptr::null(),
                )
            })
        };
        drop(kernel);
        // Without the kernel's lock, because a subscriber may launch the kernel.
        for (bytes, begins) in stands.iter().filter_map(|stand| stand.copied) {
            tell_of_copy(shared, bytes, begins);
        }
        enqueued.map_err(|error| self.refused(error, launch))?;
        for Stand { buffer, back, .. } in &stands {
            let Some(Part { whole, start, at, bytes }) = *back else { continue };
            // SAFETY: the ranges lie inside both buffers.
            unsafe {
                stream.submit("launch: copy from an aligned buffer", |queue| {
                    enqueue_copy_buffer(
                        queue,
                        buffer.raw(),
                        whole,
                        at,
                        start,
                        bytes,
                        0,
                        ptr::null(),
                    )
                })
            }?;
        }
        Ok(())
    }

    /// Returns an error for a block that is larger than this kernel supports, which may be less than the device's
    /// limit, and for local memory of 0 bytes, which some drivers accept.
    fn check(&self, shared: &OpenDevice, launch: &Launch) -> Result<()> {
        let block: u64 = launch.block.iter().map(|extent| u64::from(*extent)).product();
        let shared_bytes = self.static_bytes + u64::from(launch.shared_bytes);
        let what = match self.local {
            _ if block > self.most => {
                format!("block size of {block}; this kernel has at most {}", self.most)
            }
            _ if self.required.is_some_and(|required| required != launch.block.map(u64::from)) => {
                format!(
                    "a block of {:?}; this kernel takes {:?} alone",
                    launch.block,
                    self.required.unwrap_or_default()
                )
            }
            _ if shared_bytes > shared.local_bytes => format!(
                "{} bytes of shared memory and {} that the kernel declares; the device has {}",
                launch.shared_bytes, self.static_bytes, shared.local_bytes
            ),
            Some(index) if launch.shared_bytes == 0 => {
                format!("0 bytes of shared memory for parameter {index}, which is in local memory")
            }
            _ => return Ok(()),
        };
        let message = format!("kernel {:?}: {what}", self.name);
        Err(Error::new(ErrorKind::InvalidArgument, OPERATION, message).on(&shared.id))
    }

    /// Refuses an address that is not aligned for the kernel's vector loads and stores.
    fn check_alignment(&self, shared: &OpenDevice, number: usize, arg: &RawArg<'_>) -> Result<()> {
        let RawArg::Memory { memory, origin, .. } = *arg else { return Ok(()) };
        let align = self.alignments.get(number).copied().unwrap_or(1);
        match own::<OpenClMemory>(memory, OPERATION)?.place() {
            Place::Pointer(address) if !(address + origin).is_multiple_of(align) => {
                let message = format!(
                    "a view that begins at byte {origin}, not aligned to the {align} bytes of what the kernel's pointer points to"
                );
                Err(Error::new(ErrorKind::InvalidArgument, OPERATION, message).on(&shared.id))
            }
            _ => Ok(()),
        }
    }

    /// Adds the launch that was refused to the error.
    #[cold]
    fn refused(&self, error: Error, launch: &Launch) -> Error {
        self.named(error, &format!("grid {:?}, block {:?}", launch.grid, launch.block))
    }

    /// Adds the kernel's name and the subject to the error.
    #[cold]
    fn named(&self, error: Error, what: &str) -> Error {
        let message = format!("kernel {:?}, {what}: {}", self.name, error.message());
        let again = Error::new(error.kind(), OPERATION, message);
        match error.driver() {
            Some(driver) => again.with_driver(driver.name.clone(), driver.code),
            None => again,
        }
    }
}

/// Sets one argument.
///
/// # Safety
///
/// The kernel is locked, and memory is of the stream's context.
unsafe fn bind(
    stream: &OpenClStream,
    kernel: cl_kernel,
    index: cl_uint,
    arg: &RawArg<'_>,
    stands: &mut SmallVec<[Stand; 4]>,
) -> Result<()> {
    let shared = stream.shared();
    let failed = |code: cl_int| shared.error(OPERATION, code, format!("{arg:?}"));
    match *arg {
        RawArg::Value { bytes, .. } => {
            // SAFETY: the value is copied during the call.
            unsafe { set_kernel_arg(kernel, index, bytes.len(), bytes.as_ptr().cast()) }
                .map_err(failed)
        }
        RawArg::Empty { .. } => {
            // SAFETY: memory without elements is a null pointer in the kernel.
            unsafe { set_kernel_arg(kernel, index, size_of::<cl_mem>(), ptr::null()) }
                .map_err(failed)
        }
        RawArg::Memory { memory, origin, start, bytes, dense, writes, .. } => {
            let memory = own::<OpenClMemory>(memory, OPERATION)?;
            let span = Span { origin, start, bytes, dense, writes };
            match memory.place() {
                Place::Buffer(_) => {
                    // SAFETY: the caller guarantees kernel and memory.
                    unsafe { bind_buffer(stream, kernel, index, memory, span, stands) }
                }
                place => {
                    // SAFETY: as above.
                    unsafe { set_memory(shared, kernel, index, place, origin) }.map_err(failed)
                }
            }
        }
    }
}

/// Refuses a copied argument that shares bytes with another one if either is written: the copy back would overwrite
/// what the kernel writes to the other, or the kernel would read old bytes.
fn check_copies(shared: &OpenDevice, args: &[RawArg<'_>], copied: &[usize]) -> Result<()> {
    let place = |arg: &RawArg<'_>| match *arg {
        RawArg::Memory { memory, start, bytes, writes, .. } => {
            Some((ptr::from_ref(memory).addr(), start..start + bytes, writes))
        }
        RawArg::Empty { .. } | RawArg::Value { .. } => None,
    };
    for &one in copied {
        for other in (0..args.len()).filter(|other| *other != one) {
            let (Some(a), Some(b)) = (place(&args[one]), place(&args[other])) else { continue };
            let overlap = a.0 == b.0 && a.1.start < b.1.end && b.1.start < a.1.end;
            if overlap && (a.2 || b.2) {
                let message = format!(
                    "arguments {one} and {other} overlap, and argument {one} does not begin at a multiple of {} \
                     bytes, so it is copied; memory=svm or memory=usm has no such limit",
                    shared.alignment
                );
                let error = Error::new(ErrorKind::InvalidArgument, OPERATION, message);
                return Err(error.on(&shared.id));
            }
        }
    }
    Ok(())
}

/// The bytes of an argument, and the position of the kernel's pointer in them.
#[derive(Clone, Copy)]
struct Span {
    origin: usize,
    start: usize,
    bytes: usize,
    dense: bool,
    writes: bool,
}

/// Sets a part of a buffer as an argument. An argument cannot point into a buffer. A part needs a sub-buffer of its
/// own, whose start must be aligned. A part that is not aligned is copied to an aligned buffer, and back if the kernel
/// may write it.
///
/// # Safety
///
/// The kernel is locked, and the span lies inside the memory.
unsafe fn bind_buffer(
    stream: &OpenClStream,
    kernel: cl_kernel,
    index: cl_uint,
    memory: &OpenClMemory,
    span: Span,
    stands: &mut SmallVec<[Stand; 4]>,
) -> Result<()> {
    let shared = stream.shared();
    let failed =
        |code: cl_int| shared.error(OPERATION, code, format!("bytes from {} on", span.start));
    let Some((whole, base)) = memory.whole() else { return Ok(()) };
    let lead = span.origin - span.start;
    if span.origin == 0 {
        // SAFETY: the caller holds the kernel's lock.
        return unsafe { set_memory(shared, kernel, index, memory.place(), 0) }.map_err(failed);
    }
    let from = base + span.origin;
    if lead == 0 && from.is_multiple_of(shared.alignment) {
        let part = sub_buffer(shared, whole, from, span.bytes).map_err(failed)?;
        // SAFETY: as above; the driver keeps the part until the kernel has run.
        unsafe { set_buffer(kernel, index, part.raw()) }.map_err(failed)?;
        stands.push(Stand { buffer: part, back: None, copied: None });
        return Ok(());
    }
    if span.writes && !span.dense {
        let message = format!(
            "a view that is written, has gaps and begins at byte {}: a buffer's views with gaps must begin at a multiple of {} bytes; memory=svm or memory=usm has no such limit",
            span.origin, shared.alignment
        );
        return Err(Error::new(ErrorKind::InvalidArgument, OPERATION, message).on(&shared.id));
    }
    let at = lead.next_multiple_of(shared.alignment) - lead;
    let stand = new_buffer(shared, CL_MEM_READ_WRITE, at + span.bytes).map_err(failed)?;
    let part = Part { whole, start: base + span.start, at, bytes: span.bytes };
    // SAFETY: the ranges lie inside both buffers.
    unsafe {
        stream.submit("launch: copy to an aligned buffer", |queue| {
            enqueue_copy_buffer(
                queue,
                whole,
                stand.raw(),
                part.start,
                at,
                part.bytes,
                0,
                ptr::null(),
            )
        })
    }?;
    let argument = match lead {
        0 => None,
        _ => Some(sub_buffer(shared, stand.raw(), at + lead, span.bytes - lead).map_err(failed)?),
    };
    let raw = argument.as_ref().map_or(stand.raw(), Handle::raw);
    // SAFETY: as above.
    unsafe { set_buffer(kernel, index, raw) }.map_err(failed)?;
    if let Some(buffer) = argument {
        stands.push(Stand { buffer, back: None, copied: None });
    }
    let copied = Some((span.bytes, span.origin));
    stands.push(Stand { buffer: stand, back: span.writes.then_some(part), copied });
    Ok(())
}

/// Emits the event of an argument that is copied for a launch: a warning for the first one on a device.
fn tell_of_copy(shared: &OpenDevice, bytes: usize, begins: usize) {
    if shared.has_realigned.swap(true, Ordering::Relaxed) {
        tracing::debug!(device = %shared.id, bytes, "a misaligned view is copied for a launch");
    } else {
        tracing::warn!(
            device = %shared.id,
            bytes,
            begins,
            alignment = shared.alignment,
            "a view that begins where no pointer may is copied for each launch: rows of a multiple of the alignment need no copy, nor does memory=svm or memory=usm; later copies are reported at level DEBUG"
        );
    }
}

/// Creates a sub-buffer for a part of a buffer.
fn sub_buffer(
    shared: &OpenDevice,
    whole: cl_mem,
    start: usize,
    bytes: usize,
) -> Result<Handle<Mem>, cl_int> {
    let region = cl_buffer_region { origin: start, size: bytes };
    // SAFETY: the region lies inside the buffer, and is only read during the call.
    let raw = unsafe {
        create_sub_buffer(
            whole,
            // The flags of the whole buffer.
            0,
            CL_BUFFER_CREATE_TYPE_REGION,
            (&raw const region).cast(),
        )
    }?;
    // SAFETY: the part was just created.
    Ok(unsafe { Handle::own(raw, &shared.failures) })
}
