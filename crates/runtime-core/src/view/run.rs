//! Copies and fills of views without gaps.

use std::ops::Range;

use super::report::{WriteReport, reported};
use super::untyped::{check_use, different};
use crate::contract::{DeviceMemory, MemoryAt, PinnedAt};
use crate::mark::InUses;
use crate::memory::Allocation;
use crate::pinned::PinnedPart;
use crate::{DType, Device, Error, ErrorKind, Result, Stream};

/// The bytes of a view without gaps. It leaves out the shape, so a call that makes a view for one operation need not
/// store it.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(super) allocation: &'a Allocation,
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) dtype: DType,
    /// The id of the only stream that may use it, or 0.
    pub(super) stream: u64,
}

impl<'a> Run<'a> {
    fn device(&self) -> &'a Device {
        self.allocation.device()
    }

    /// Number of elements.
    fn len(&self) -> usize {
        self.bytes / self.dtype.size()
    }

    /// `bytes` of the bytes, from number `first` on.
    fn part(&self, first: usize, bytes: usize) -> Self {
        Self { start: self.start + first, bytes, ..*self }
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    #[inline]
    fn check_stream(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        check_use(operation, self.device(), self.stream, stream)
    }

    /// Checks a copy between these and `bytes` bytes of host memory.
    #[inline]
    fn check_copy(&self, operation: &'static str, stream: &Stream, bytes: usize) -> Result<()> {
        self.check_stream(operation, stream)?;
        if bytes != self.bytes {
            return Err(self.other_length(operation, bytes / self.dtype.size()));
        }
        Ok(())
    }

    /// Checks a copy between these and the beginning of pinned memory.
    fn check_pinned(
        &self,
        operation: &'static str,
        stream: &Stream,
        pinned: &PinnedPart<'_>,
    ) -> Result<()> {
        stream.device().check_same(operation, pinned.block.device())?;
        self.check_stream(operation, stream)?;
        if pinned.bytes < self.bytes {
            return Err(self.other_length(operation, pinned.bytes / self.dtype.size()));
        }
        Ok(())
    }

    #[cold]
    fn other_length(&self, operation: &'static str, len: usize) -> Error {
        let message = format!("{len} elements for a view of {}", self.len());
        Error::new(ErrorKind::OutOfBounds, operation, message).on(self.device().id())
    }

    /// Registers a use until `in_use` is dropped, and returns the device's memory object. `None` if there is nothing to
    /// do.
    #[inline(always)]
    pub(super) fn begin<'b>(
        &self,
        stream: &'b Stream,
        in_use: &mut InUses<'b>,
    ) -> Option<&'b dyn DeviceMemory>
    where
        'a: 'b,
    {
        if self.bytes == 0 { None } else { self.allocation.begin(stream, in_use) }
    }

    /// Copies to the host for `operation`, which errors name.
    pub(super) fn copy_to_host(
        &self,
        operation: &'static str,
        stream: &Stream,
        out: &mut [u8],
    ) -> Result<()> {
        self.check_copy(operation, stream, out.len())?;
        let failures = stream.core.failures();
        let mut in_use = InUses::new(stream);
        let Some(raw) = self.begin(stream, &mut in_use) else { return Ok(()) };
        // SAFETY: the memory belongs to the stream's device and the view lies inside it.
        let copied =
            unsafe { stream.core.raw.memory_copy_from(MemoryAt::new(raw, self.start), out) };
        stream
            .core
            .copied_from(copied)
            .and_then(|()| stream.core.check_since(operation, failures))
            .map_err(|e| self.device().place(e))?;
        stream.counts().copied_from_device(self.bytes);
        tracing::trace!(device = %self.device().id(), bytes = self.bytes, "copied to the host");
        Ok(())
    }

    /// Enqueues a copy to the beginning of pinned memory.
    pub(super) fn copy_to_pinned(&self, stream: &Stream, pinned: &PinnedPart<'_>) -> Result<()> {
        self.check_pinned("copy_to_pinned", stream, pinned)?;
        let mut in_use = InUses::new(stream);
        let Some(raw) = self.begin(stream, &mut in_use) else { return Ok(()) };
        pinned.enqueue(stream, true, |raw_pinned| {
            // SAFETY: both ranges were checked. The pinned memory waits for its uses before the host can access it or
            // it is freed.
            unsafe {
                stream.core.raw.pinned_copy_from(
                    MemoryAt::new(raw, self.start),
                    PinnedAt::new(raw_pinned, pinned.offset),
                    self.bytes,
                )
            }
        })?;
        stream.counts().copied_from_device(self.bytes);
        tracing::trace!(device = %self.device().id(), bytes = self.bytes, "copy to pinned memory enqueued");
        Ok(())
    }

    /// Whether both have bytes in common. The devices of both are one, or have a common address space.
    pub(super) fn meets(&self, other: &Run<'_>) -> bool {
        let ((space, one), (another, two)) = (self.allocation.place(), other.allocation.place());
        let start = one.saturating_add(self.start).max(two.saturating_add(other.start));
        let (own_end, other_end) = (self.start + self.bytes, other.start + other.bytes);
        let end = one.saturating_add(own_end).min(two.saturating_add(other_end));
        space == another && start < end
    }
}

/// The bytes of a view to write, without gaps.
#[derive(Clone, Copy)]
pub(crate) struct RunMut<'a> {
    pub(super) run: Run<'a>,
    pub(super) report: Option<&'a WriteReport>,
}

impl RunMut<'_> {
    /// Copies from the host.
    pub(super) fn copy_from_host(
        &self,
        operation: &'static str,
        stream: &Stream,
        source: &[u8],
    ) -> Result<()> {
        let run = &self.run;
        run.check_copy(operation, stream, source.len())?;
        let mut in_use = InUses::new(stream);
        let Some(raw) = run.begin(stream, &mut in_use) else { return Ok(()) };
        self.enqueue(|| {
            // SAFETY: the memory belongs to the stream's device and the view lies inside it.
            stream.core.counted(unsafe {
                stream.core.raw.memory_copy_to(MemoryAt::new(raw, run.start), source)
            })
        })?;
        stream.counts().copied_to_device(run.bytes);
        tracing::trace!(device = %run.device().id(), bytes = run.bytes, "copied to the device");
        Ok(())
    }

    /// Enqueues a copy from the beginning of pinned memory.
    pub(super) fn copy_from_pinned(&self, stream: &Stream, pinned: &PinnedPart<'_>) -> Result<()> {
        let run = &self.run;
        run.check_pinned("copy_from_pinned", stream, pinned)?;
        let mut in_use = InUses::new(stream);
        let Some(raw) = run.begin(stream, &mut in_use) else { return Ok(()) };
        self.enqueue(|| {
            pinned.enqueue(stream, false, |raw_pinned| {
                // SAFETY: both ranges were checked. The pinned memory waits for its uses before the host can write to
                // it or it is freed.
                unsafe {
                    stream.core.raw.pinned_copy_to(
                        PinnedAt::new(raw_pinned, pinned.offset),
                        MemoryAt::new(raw, run.start),
                        run.bytes,
                    )
                }
            })
        })?;
        stream.counts().copied_to_device(run.bytes);
        tracing::trace!(device = %run.device().id(), bytes = run.bytes, "copy from pinned memory enqueued");
        Ok(())
    }

    /// Copies within the device for `operation`, which errors name.
    pub(super) fn copy_from(
        &self,
        operation: &'static str,
        stream: &Stream,
        source: &Run<'_>,
    ) -> Result<()> {
        let run = &self.run;
        run.check_stream(operation, stream)?;
        if !run.device().is_same(source.device()) {
            return Err(other_device(operation, run.device(), source.device()));
        }
        source.check_stream(operation, stream)?;
        if (source.bytes, source.dtype) != (run.bytes, run.dtype) {
            let (given, expected) = ((source.dtype, source.len()), (run.dtype, run.len()));
            return Err(different(operation, run.device(), given, expected));
        }
        if run.meets(source) {
            return Err(overlapping(operation, source, run));
        }
        let mut in_use = InUses::new(stream);
        let (Some(src), Some(dst)) =
            (source.begin(stream, &mut in_use), run.begin(stream, &mut in_use))
        else {
            return Ok(());
        };
        // SAFETY: both memories belong to the stream's device; the views lie inside them and do not overlap.
        self.enqueue(|| unsafe {
            stream.core.raw.memory_copy(
                MemoryAt::new(src, source.start),
                MemoryAt::new(dst, run.start),
                run.bytes,
            )
        })?;
        stream.counts().copied_on_device(run.bytes);
        tracing::trace!(device = %run.device().id(), bytes = run.bytes, "copied on the device");
        Ok(())
    }

    /// Copies from another device through a bounded host buffer, one piece after the other. The views were checked.
    pub(super) fn copy_staged(
        &self,
        stream: &Stream,
        source: &Run<'_>,
        source_stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "copy_from_device";
        const PIECE_BYTES: usize = 4 << 20;
        let failures = stream.core.failures();
        let mut buffer = vec![0_u8; self.run.bytes.min(PIECE_BYTES)];
        let mut done = 0;
        while done < self.run.bytes {
            let bytes = PIECE_BYTES.min(self.run.bytes - done);
            let buffer = &mut buffer[..bytes];
            source.part(done, bytes).copy_to_host(OPERATION, source_stream, buffer)?;
            let target = RunMut { run: self.run.part(done, bytes), ..*self };
            target.copy_from_host(OPERATION, stream, buffer)?;
            stream.core.check_since(OPERATION, failures)?;
            done += bytes;
        }
        Ok(())
    }

    /// Enqueues a copy from another device that this device reaches. The views were checked.
    pub(super) fn copy_from_peer(&self, stream: &Stream, source: &Run<'_>) -> Result<()> {
        let run = &self.run;
        let mut in_use = InUses::new(stream);
        let (Some(src), Some(dst)) =
            (source.begin(stream, &mut in_use), run.begin(stream, &mut in_use))
        else {
            return Ok(());
        };
        let peer = source.device().raw();
        self.enqueue(|| match run.device().raw().abilities().peer() {
            // SAFETY: the peer is reachable, the stream belongs to this device, and the ranges lie inside their
            // memories.
            Some(ability) => unsafe {
                ability.memory_copy(
                    &*stream.core.raw,
                    peer,
                    MemoryAt::new(src, source.start),
                    MemoryAt::new(dst, run.start),
                    run.bytes,
                )
            },
            None => Ok(()),
        })?;
        stream.counts().copied_from_peer(run.bytes);
        tracing::trace!(device = %run.device().id(), from = %source.device().id(), bytes = run.bytes, "copied between devices");
        Ok(())
    }

    /// Whether [`fill`](Self::fill) can fill with a pattern of that many bytes.
    #[inline(always)]
    pub(super) fn can_fill(&self, pattern: usize) -> bool {
        matches!(pattern, 1 | 2 | 4 | 8 | 16) && self.run.start.is_multiple_of(pattern)
    }

    /// Enqueues a fill with a pattern.
    pub(super) fn fill(
        &self,
        operation: &'static str,
        stream: &Stream,
        pattern: &[u8],
    ) -> Result<()> {
        let run = &self.run;
        run.check_stream(operation, stream)?;
        let mut in_use = InUses::new(stream);
        let Some(raw) = run.begin(stream, &mut in_use) else { return Ok(()) };
        // SAFETY: the memory belongs to the stream's device. The view consists of whole elements and lies inside the
        // memory.
        self.enqueue(|| unsafe {
            stream.core.raw.memory_fill(MemoryAt::new(raw, run.start), run.bytes, pattern)
        })?;
        stream.counts().copied_on_device(run.bytes);
        tracing::trace!(device = %run.device().id(), bytes = run.bytes, "fill enqueued");
        Ok(())
    }

    /// Enqueues a write, reports its outcome to the lender, and adds the device to an error.
    #[inline]
    fn enqueue(&self, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        let note = |enqueued| self.report.iter().for_each(|report| report.note(enqueued));
        reported(note, enqueue).map_err(|error| self.run.device().place(error))
    }
}

#[cold]
pub(super) fn other_device(operation: &'static str, device: &Device, source: &Device) -> Error {
    let message = format!("the source is on {}; use copy_from_device", source.id());
    Error::new(ErrorKind::WrongDevice, operation, message).on(device.id())
}

#[cold]
fn overlapping(operation: &'static str, source: &Run<'_>, target: &Run<'_>) -> Error {
    let (from, to) = (source.range(), target.range());
    let message =
        format!("bytes {from:?} of the source's memory and {to:?} of the target's overlap");
    target.device().invalid(operation, message)
}
