//! Streams: queues of host copies and calls on the device.
#![expect(unsafe_code, reason = "implements the contract's unsafe stream trait")]

use std::sync::Arc;

use backend_support::{Cores, Queue, Span};
use runtime_core::contract::{
    CallValue, DeviceEvent, DeviceKernel, DeviceStream, MemoryAt, ParamInfo, PinnedAt, RawArg, own,
};
use runtime_core::{DType, Embedded, Error, ErrorKind, Launch, NativeHandle, NativeKind, Result};

use super::event::EmbeddedEvent;
use super::heap::Range;
use super::memory::{Part, part, pinned_span};
use super::module::EmbeddedKernel;
use super::shared::OpenDevice;

/// The size of `struct launch` in `kernel.h`.
pub(crate) const LAUNCH_BYTES: u64 = 24;
/// The number of bytes that are copied at a time through a host buffer.
const PIECE_BYTES: usize = 1 << 20;

/// A stream. Its own range of memory holds the geometry of its launches.
#[derive(Debug)]
pub(crate) struct EmbeddedStream {
    queue: Queue,
    geometry: Arc<Range>,
    shared: Arc<OpenDevice>,
}

impl EmbeddedStream {
    pub(crate) fn new(queue: Queue, geometry: Range, shared: &Arc<OpenDevice>) -> Self {
        Self { queue, geometry: Arc::new(geometry), shared: Arc::clone(shared) }
    }

    fn enqueue(&self, work: impl FnOnce(&OpenDevice) -> Result<()> + Send + 'static) -> Result<()> {
        self.shared.check("enqueue")?;
        let shared = Arc::clone(&self.shared);
        self.queue.submit(move || work(&shared))
    }
}

/// Calls `f` with the offset and length of each piece of `bytes`.
fn pieces(bytes: usize, f: impl FnMut((usize, usize)) -> Result<()>) -> Result<()> {
    let piece = |start| (start, PIECE_BYTES.min(bytes - start));
    (0..bytes).step_by(PIECE_BYTES).map(piece).try_for_each(f)
}

fn copy(device: &Embedded, src: &Part, dst: &Part) -> Result<()> {
    let mut buffer = vec![0; src.bytes.min(PIECE_BYTES)];
    pieces(src.bytes, |(start, length)| {
        device.memory_read(src.address + start as u64, &mut buffer[..length])?;
        device.memory_write(dst.address + start as u64, &buffer[..length])
    })
}

fn fill(device: &Embedded, dst: &Part, pattern: &[u8]) -> Result<()> {
    let whole = dst.bytes.min(PIECE_BYTES).next_multiple_of(pattern.len().max(1));
    let buffer: Vec<u8> = pattern.iter().copied().cycle().take(whole).collect();
    pieces(dst.bytes, |(start, length)| {
        device.memory_write(dst.address + start as u64, &buffer[..length])
    })
}

/// The arguments of a call, and the memory that they point to.
fn arguments(
    kernel: &EmbeddedKernel,
    geometry: &Range,
    args: &[RawArg<'_>],
) -> Result<(Vec<CallValue>, Vec<Part>)> {
    let mut values = vec![CallValue::Address(geometry.address)];
    let mut parts = Vec::new();
    for (arg, parameter) in args.iter().zip(kernel.parameters.iter()) {
        values.push(match *arg {
            RawArg::Memory { memory, origin, bytes, .. } => {
                let part = part(MemoryAt::new(memory, origin), bytes)?;
                let address = part.address;
                parts.push(part);
                CallValue::Address(address)
            }
            RawArg::Empty { .. } => CallValue::Address(0),
            RawArg::Value { bytes, .. } => value(bytes, parameter)?,
        });
    }
    Ok((values, parts))
}

/// A value with the type of its parameter, extended as in C.
fn value(bytes: &[u8], parameter: &ParamInfo) -> Result<CallValue> {
    let wrong = || {
        let message = format!("a value of {} bytes for {parameter:?}", bytes.len());
        Error::new(ErrorKind::InvalidArgument, "launch", message)
    };
    macro_rules! number {
        ($type:ty) => {
            <$type>::from_le_bytes(bytes.try_into().map_err(|_| wrong())?)
        };
    }
    Ok(match parameter.dtype {
        Some(DType::I8) => CallValue::I32(number!(i8).into()),
        Some(DType::U8 | DType::Bool) => CallValue::I32(number!(u8).into()),
        Some(DType::I16) => CallValue::I32(number!(i16).into()),
        Some(DType::U16) => CallValue::I32(number!(u16).into()),
        Some(DType::I32 | DType::U32) => CallValue::I32(number!(i32)),
        Some(DType::I64 | DType::U64) => CallValue::I64(number!(i64)),
        Some(DType::F32) => CallValue::F32(number!(f32)),
        Some(DType::F64) => CallValue::F64(number!(f64)),
        _ => return Err(wrong()),
    })
}

fn geometry_bytes(launch: &Launch) -> Vec<u8> {
    launch.grid.iter().chain(&launch.block).flat_map(|extent| extent.to_le_bytes()).collect()
}

/// Calls a kernel. If it hangs, the processor is reset before other work uses it.
fn run(shared: &OpenDevice, kernel: &EmbeddedKernel, values: &[CallValue]) -> Result<()> {
    shared.exclusively(|device| {
        let called = device.call_at(kernel.address, values, shared.timeout);
        let name = &kernel.name;
        match called {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Timeout => {
                let hung = format!("kernel {name:?} did not return within {:?}", shared.timeout);
                device.reset().map_err(|error| {
                    let message =
                        format!("{hung}, and the reset failed: {error}; open the device again");
                    Error::new(ErrorKind::DeviceLost, "launch", message).with_source(error)
                })?;
                let message = format!("{hung}; the processor was reset");
                Err(Error::new(ErrorKind::DeviceFault, "launch", message)
                    .with_driver("LAUNCH_TIMEOUT", 0)
                    .with_source(error))
            }
            Err(error) if error.kind() == ErrorKind::DeviceFault => {
                let message = format!("kernel {name:?}: {}", error.message());
                let fault = Error::new(ErrorKind::DeviceFault, "launch", message);
                let code = error.driver().cloned();
                let fault = match code {
                    Some(code) => fault.with_driver(code.name, code.code),
                    None => fault,
                };
                Err(fault.with_source(error))
            }
            Err(error) => Err(error),
        }
    })
}

// SAFETY: parts lie inside memories, work accesses only its parts, a queue runs it in order, and blocking copies end
// before they return their slice. The system or a debug server copies bytes, so unordered copies only leave the bytes
// unspecified.
unsafe impl DeviceStream for EmbeddedStream {
    unsafe fn memory_copy(&self, src: MemoryAt<'_>, dst: MemoryAt<'_>, bytes: usize) -> Result<()> {
        let (src, dst) = (part(src, bytes)?, part(dst, bytes)?);
        self.enqueue(move |shared| shared.access(|device| copy(device, &src, &dst)))
    }

    unsafe fn memory_copy_to(&self, dst: MemoryAt<'_>, src: &[u8]) -> Result<()> {
        let dst = part(dst, src.len())?;
        let _turn = self.queue.turn()?;
        self.shared.access(|device| device.memory_write(dst.address, src))
    }

    unsafe fn memory_copy_from(&self, src: MemoryAt<'_>, dst: &mut [u8]) -> Result<()> {
        let src = part(src, dst.len())?;
        let _turn = self.queue.turn()?;
        self.shared.access(|device| device.memory_read(src.address, dst))
    }

    unsafe fn pinned_copy_to(
        &self,
        src: PinnedAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        let (src, dst) = (pinned_span(src, bytes)?, part(dst, bytes)?);
        self.enqueue(move |shared| from_pinned(shared, &src, &dst))
    }

    unsafe fn pinned_copy_from(
        &self,
        src: MemoryAt<'_>,
        dst: PinnedAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        let (src, dst) = (part(src, bytes)?, pinned_span(dst, bytes)?);
        self.enqueue(move |shared| to_pinned(shared, &src, &dst))
    }

    unsafe fn memory_fill(&self, dst: MemoryAt<'_>, bytes: usize, pattern: &[u8]) -> Result<()> {
        let (dst, pattern) = (part(dst, bytes)?, pattern.to_vec());
        self.enqueue(move |shared| shared.access(|device| fill(device, &dst, &pattern)))
    }

    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        let kernel = own::<EmbeddedKernel>(kernel, "launch")?.clone();
        let (values, parts) = arguments(&kernel, &self.geometry, args)?;
        let (geometry, bytes) = (Arc::clone(&self.geometry), geometry_bytes(launch));
        self.enqueue(move |shared| {
            shared.access(|device| device.memory_write(geometry.address, &bytes))?;
            let done = run(shared, &kernel, &values);
            drop(parts);
            done
        })
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<()> {
        self.shared.check("record")?;
        own::<EmbeddedEvent>(event, "record")?.event.record(&self.queue)
    }

    fn wait(&self, event: &dyn DeviceEvent) -> Result<()> {
        self.shared.check("wait")?;
        own::<EmbeddedEvent>(event, "wait")?.event.hold_up(&self.queue)
    }

    fn query(&self) -> Result<bool> {
        self.shared.check("query")?;
        Ok(self.queue.is_idle())
    }

    fn synchronize(&self) -> Result<()> {
        self.queue.synchronize()?;
        self.shared.check("synchronize")
    }

    fn take_failure(&self) -> Option<Error> {
        self.queue.take_failure()
    }

    fn native(&self) -> NativeHandle {
        NativeHandle { api: "embedded", kind: NativeKind::Stream, raw: self.queue.address() }
    }
}

fn from_pinned(shared: &OpenDevice, src: &Span, dst: &Part) -> Result<()> {
    let mut buffer = vec![0; src.len()];
    src.copy_out(&mut buffer, Cores::SERIAL)?;
    shared.access(|device| device.memory_write(dst.address, &buffer))
}

fn to_pinned(shared: &OpenDevice, src: &Part, dst: &Span) -> Result<()> {
    let mut buffer = vec![0; src.bytes];
    shared.access(|device| device.memory_read(src.address, &mut buffer))?;
    dst.copy_in(&buffer, Cores::SERIAL)
}
