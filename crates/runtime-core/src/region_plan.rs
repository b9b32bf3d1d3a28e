//! Region plans: checked batches of strided or indexed copies, bound to memory at each execution.
#![expect(
    unsafe_code,
    reason = "calls the device's unsafe region copies after checking what they demand"
)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock, Weak};

use smallvec::SmallVec;

use crate::contract::{DeviceRegions, RawSlot, Released};
use crate::mark::{InUses, Marks};
use crate::region::Bound;
use crate::region::distinct::{self, Piece};
use crate::region::emulation::{self, Staging};
use crate::uses::{Used, Uses};
use crate::view::{Untyped, reported};
use crate::{
    DType, Device, Error, ErrorKind, Layout, RegionProgram, Result, Slot, SlotUse, Stream,
};

/// A batch of strided or indexed copies prepared for one device, to be executed many times on different memory.
///
/// On a device with native region copies, an execution is enqueued and does not block. On other devices it is
/// *emulated*: exactly the bytes that the plan reads are copied to the host, in batches, and the bytes that it writes
/// are copied back. This blocks, and counts as copies from and to the device.
/// [`Capabilities::region_copy`](crate::Capabilities::region_copy) says which case applies.
pub struct RegionPlan {
    program: RegionProgram,
    // `None` if the device lacks the ability.
    native: Option<Arc<Prepared>>,
    /// For each slot, the first few earlier bindings with gaps that passed the check.
    known: Vec<[OnceLock<Box<Bound>>; KNOWN]>,
    /// The host buffers of emulated executions.
    staging: Staging,
    /// For each slot, the box of the [split](Self::with_split) that the plan was checked for, with the byte offset of
    /// the box's lowest byte from the slot's start.
    boxes: Vec<Option<(usize, Layout)>>,
    device: Device,
}

/// The number of layouts cached for one slot.
const KNOWN: usize = 4;

/// The device's prepared form of the program.
struct Prepared {
    raw: ManuallyDrop<Box<dyn DeviceRegions>>,
    uses: Uses,
    device: Device,
}

impl RegionPlan {
    pub(crate) fn new(device: &Device, program: RegionProgram) -> Result<Self> {
        let native = match device.raw().abilities().region_copy() {
            Some(ability) => {
                let raw = ability.prepare(&program).map_err(|e| device.place(e))?;
                Some(Prepared::new(raw, device))
            }
            None => None,
        };
        let slots = program.slots().len();
        let known = (0..slots).map(|_| Default::default()).collect();
        let (boxes, staging) = (vec![None; slots], Staging::default());
        Ok(Self { program, native, known, staging, boxes, device: device.clone() })
    }

    /// The same plan, to which one part of a [split](crate::MemoryViewMut::split_off_box) may also be bound. The box
    /// that was split off consists of the elements of `layout`, whose lowest byte lies `start` bytes after that of the
    /// slot. If the plan writes the slot, it must write no element of the box; [`Slot::Outside`] can then be bound. If
    /// the plan only reads the slot, it must read only elements of the box.
    ///
    /// Executions that bind the two parts of one split in this way do not wait for each other on devices that lock
    /// memory.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there is no such slot, if the plan writes into the box or reads beyond it, or if that
    /// cannot be decided.
    pub fn with_split(mut self, slot: usize, start: usize, layout: &Layout) -> Result<Self> {
        self.program.respects(slot, start, layout).map_err(|e| self.device.place(e))?;
        self.boxes[slot] = Some((start, *layout));
        Ok(self)
    }

    /// The device that it was made for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The requirements on the memory bound to each slot.
    pub fn slots(&self) -> &[SlotUse] {
        self.program.slots()
    }

    /// The number of bytes that one execution moves.
    pub fn bytes(&self) -> u64 {
        self.program.bytes()
    }

    /// The number of steps that run one after the other. It exceeds 1 only if several accumulations write the same
    /// element.
    pub fn phases(&self) -> usize {
        self.program.phases().len()
    }

    /// The number of launches that one execution makes on the device. 0 if it is emulated.
    ///
    /// Each phase makes one launch if the device finds memories by their addresses. If memories are arguments, a phase
    /// makes as many launches as are needed to bind all of them. Where this depends on whether
    /// [adopted](Device::memory_adopt) memory is bound, the number is that of the latest execution, or before the first
    /// one that of an execution without adopted memory. Launches that set the addresses of very many memories are not
    /// counted.
    pub fn launches(&self) -> usize {
        self.native.as_ref().map_or(0, |native| native.raw.launches())
    }

    /// Executes the copies in stream order, with `bind[i]` bound to slot `i`. Copies that read or write an
    /// [absent](Slot::Absent) slot are left out. One memory can be bound to several slots, by views that share no
    /// elements or that are all for reading.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` in these cases:
    ///
    /// - the number of slots differs;
    /// - a slot that is written is bound for reading;
    /// - a view's type differs from the slot's, or its start is not aligned for it;
    /// - elements of one memory are bound to two slots, and not only for reading;
    /// - the two parts of [`Slot::Both`] belong to different memories;
    /// - [`Slot::Outside`] is bound outside another box than that of the plan's [split](Self::with_split);
    /// - the strides are so complex that four million steps do not decide whether the plan touches bytes between
    ///   elements.
    ///
    /// `OutOfBounds` if a view is shorter than the slot needs, or the plan touches bytes between its elements.
    /// `WrongDevice`. `WrongStream`. In all these cases nothing was enqueued. Otherwise errors of the driver. For an
    /// emulated plan also `OutOfMemory`, the first failure of earlier work on the stream that was not reported before,
    /// and `DeviceFault` if a failure on the stream was reported to another caller during the call.
    pub fn execute(&self, stream: &Stream, bind: &mut [Slot<'_>]) -> Result<()> {
        self.device.check_same("execute", stream.device())?;
        self.check(stream, bind)?;
        let mut in_use = InUses::new(stream);
        let raw: SmallVec<[RawSlot<'_>; 16]> = bind
            .iter()
            .zip(&self.boxes)
            .map(|(slot, of)| begin(slot, of.as_ref(), stream, &mut in_use))
            .collect();
        let is_bound = |slot: usize| !matches!(bind[slot], Slot::Absent);
        let note = |enqueued| {
            for index in self.program.written_among(is_bound) {
                bind[index].report_write(enqueued);
            }
        };
        let done =
            reported(note, || match (&self.native, self.device.raw().abilities().region_copy()) {
                _ if self.program.phases().is_empty() => Ok(()),
                (Some(native), Some(ability)) => {
                    native.mark(stream);
                    // SAFETY: all objects belong to this device, and the slots agree with the program, as checked.
                    stream.core.enqueue(|to| unsafe { ability.execute(to, &**native.raw, &raw) })
                }
                _ => emulation::execute(&self.program, stream, &raw, &self.staging),
            });
        in_use.end();
        stream.core.or_end_capture(done).map_err(|e| self.device.place(e))?;
        if self.native.is_none() {
            return Ok(());
        }
        let bytes = self.program.bytes_among(is_bound);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "bytes of memory that exists fit usize"
        )]
        stream.counts().copied_on_device(bytes as usize);
        tracing::trace!(device = %self.device.id(), bytes, "region copies enqueued");
        Ok(())
    }

    fn check(&self, stream: &Stream, bind: &[Slot<'_>]) -> Result<()> {
        let slots = self.slots();
        if bind.len() != slots.len() {
            return Err(self.refuse(format!("{} memories for {} slots", bind.len(), slots.len())));
        }
        for (index, (slot, used)) in bind.iter().zip(slots).enumerate() {
            let Some((first, second)) = slot.views() else { continue };
            for view in [Some(first), second].into_iter().flatten() {
                view.check_stream("execute", stream)?;
                self.check_dtype(index, view.dtype(), used)?;
            }
            if second.is_some_and(|second| !first.shares_memory(second)) {
                return Err(self.refuse(format!("slot {index}: two parts of different memories")));
            }
            if used.written && !slot.is_writable() {
                return Err(
                    self.refuse(format!("slot {index} is written, and bound to a view to read"))
                );
            }
            let range = slot.range();
            let respected = self.boxes[index].as_ref();
            if let (Slot::Outside(_), Some(inside), true) = (slot, slot.split_box(), used.written)
                && !is_box(respected, inside, range.start)
            {
                let message = format!(
                    "slot {index} is bound outside a box that the plan was not made for: see with_split"
                );
                return Err(self.refuse(message));
            }
            if range.len() < used.bytes {
                let message = format!(
                    "slot {index} needs {} bytes, the view has {}",
                    used.bytes,
                    range.len()
                );
                return Err(
                    Error::new(ErrorKind::OutOfBounds, "execute", message).on(self.device.id())
                );
            }
            let aligned =
                range.start.is_multiple_of(used.align) && first.allocation().align() >= used.align;
            if used.bytes > 0 && !aligned {
                let message = format!(
                    "slot {index} begins at byte {} of its memory, not aligned to {}",
                    range.start, used.align
                );
                return Err(self.refuse(message));
            }
            if second.is_some() || !first.layout().is_contiguous() {
                self.check_elements(index, range.start, (first, second))?;
            }
        }
        self.check_distinct(bind)
    }

    /// Refuses a plan that touches bytes between the elements of the views bound to a slot. The slot starts at byte
    /// `start` of the memory.
    fn check_elements(
        &self,
        index: usize,
        start: usize,
        (first, second): (&Untyped<'_>, Option<&Untyped<'_>>),
    ) -> Result<()> {
        let part = |view: &Untyped<'_>| {
            let after = if view.is_empty() { 0 } else { view.byte_range().start - start };
            (after, *view.layout())
        };
        let bound = Bound { first: part(first), written: second.map(part) };
        let free = self.known[index].iter().find(|known| match known.get() {
            None => true,
            Some(known) => **known == bound,
        });
        if free.is_some_and(|known| known.get().is_some()) {
            return Ok(());
        }
        self.program.stays_within(index, &bound).map_err(|e| self.device.place(e))?;
        if let Some(free) = free {
            // Another thread may have set it first.
            let _known = free.set(Box::new(bound));
        }
        Ok(())
    }

    /// Refuses elements of one memory in two slots, unless both are bound for reading.
    fn check_distinct(&self, bind: &[Slot<'_>]) -> Result<()> {
        let mut pieces: SmallVec<[Piece<'_>; 16]> = SmallVec::new();
        for (slot, bound) in bind.iter().enumerate() {
            for view in bound.parts().into_iter().filter(|view| !view.is_empty()) {
                let ((space, start), range) = (view.place(), view.byte_range());
                let (end, is_written) = (start.saturating_add(range.len()), bound.is_writable());
                pieces.push(Piece { space, start, end, layout: view.layout(), is_written, slot });
            }
        }
        match distinct::meeting(&mut pieces, |one, other| bind[one].meets(&bind[other])) {
            None => Ok(()),
            Some((one, other)) => {
                let message = format!("slots {one} and {other} are bound to the same elements");
                Err(self.refuse(message))
            }
        }
    }

    /// Bytes are accepted for any type, so that one wire buffer can hold several types.
    fn check_dtype(&self, index: usize, given: DType, used: &SlotUse) -> Result<()> {
        match used.dtype {
            Some(expected) if given != expected && given != DType::U8 => {
                Err(self.refuse(format!("slot {index} holds {expected}, the view {given}")))
            }
            _ => Ok(()),
        }
    }

    fn refuse(&self, message: String) -> Error {
        self.device.invalid("execute", message)
    }
}

/// Whether `part` is the box that a plan respects, in a slot that starts at byte `start` of the memory.
fn is_box(respected: Option<&(usize, Layout)>, part: &Untyped<'_>, start: usize) -> bool {
    respected.is_some_and(|(offset, layout)| {
        is_alike(layout, part.layout()) && part.byte_range().start.wrapping_sub(start) == *offset
    })
}

/// Whether two layouts describe the same elements. The stride of a dimension with one element is irrelevant.
fn is_alike(one: &Layout, other: &Layout) -> bool {
    let stepped = |dim: &usize| one.shape()[*dim] > 1;
    one.dtype() == other.dtype()
        && one.shape() == other.shape()
        && (0..one.rank()).filter(stepped).all(|dim| one.strides()[dim] == other.strides()[dim])
}

/// Registers the use of a slot's memory and converts it for the backend.
fn begin<'a>(
    slot: &'a Slot<'_>,
    respected: Option<&(usize, Layout)>,
    stream: &'a Stream,
    in_use: &mut InUses<'a>,
) -> RawSlot<'a> {
    let Some((first, second)) = slot.views() else {
        return RawSlot { memory: None, offset: 0, bytes: 0, split: 0 };
    };
    let begun = first.begin(stream, in_use);
    let memory = begun.or_else(|| second.and_then(|view| view.begin(stream, in_use)));
    let range = slot.range();
    let part = slot.split_box().filter(|part| is_box(respected, part, range.start));
    let split = part.map_or(0, |part| part.split());
    RawSlot { memory, offset: range.start, bytes: range.len(), split }
}

impl fmt::Debug for RegionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionPlan")
            .field("device", self.device.id())
            .field("slots", &self.slots().len())
            .field("bytes", &self.bytes())
            .field("phases", &self.phases())
            .field("native", &self.native.is_some())
            .finish()
    }
}

impl Prepared {
    fn new(raw: Box<dyn DeviceRegions>, device: &Device) -> Arc<Self> {
        Arc::new_cyclic(|prepared: &Weak<Self>| {
            let uses = Uses::of(prepared.clone());
            Self { raw: ManuallyDrop::new(raw), uses, device: device.clone() }
        })
    }
}

impl Used for Prepared {
    fn mark(&self, stream: &Stream) {
        self.uses.mark(stream, &self.device);
    }

    fn marks(&self) -> Option<&Marks> {
        None
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        // SAFETY: this device prepared it, and every stream on which it was executed is registered.
        unsafe { self.uses.release(&self.device, Released::Regions(raw)) };
    }
}
