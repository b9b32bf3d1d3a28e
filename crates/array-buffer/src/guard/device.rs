//! Guards for accesses on a stream.

use std::fmt;

use coherence::{Access, PartSet, ReplicaId};
use runtime_core::{
    DType, Device, Element, Error, ErrorKind, Layout, MemoryView, MemoryViewMut, Result, Stream,
};

use super::{WriteAccess, check_access, name};
use crate::Parts;
use crate::call_site::CallSite;
use crate::core::{Core, Request};
use crate::storage::Hold;

/// The stream of a guard: borrowed from the caller, or the current stream of this thread.
pub(crate) enum StreamRef<'b> {
    Borrowed(&'b Stream),
    Owned(Stream),
}

impl StreamRef<'_> {
    #[inline]
    pub(crate) fn get(&self) -> &Stream {
        match self {
            Self::Borrowed(stream) => stream,
            Self::Owned(stream) => stream,
        }
    }
}

/// A guard for reading values on a stream. Work that is enqueued on the stream from now on finds the values valid.
///
/// The read counts as running for as long as the stream has work: the next writer of these values waits for all of that
/// work. So dropping the guard does nothing, and forgetting it (`mem::forget`) is harmless. Under a
/// [`MemoryBudget`](crate::MemoryBudget), the values stay on the device until the guard is dropped.
pub struct ReadGuard<'b, T: Element, D> {
    core: &'b Core<T, D>,
    stream: StreamRef<'b>,
    set: PartSet,
    at: ReplicaId,
    _hold: Option<Hold>,
}

impl<'b, T: Element, D> ReadGuard<'b, T, D> {
    #[inline]
    pub(crate) fn take(
        core: &'b Core<T, D>,
        set: &PartSet,
        stream: StreamRef<'b>,
        call_site: CallSite,
        may_refresh: bool,
    ) -> Result<Self> {
        let by = Some(stream.get());
        let (at, hold) =
            core.read(&Request { may_refresh, ..Request::new(set, by, "read", call_site) })?;
        Ok(Self { core, stream, set: *set, at, _hold: hold })
    }

    /// The values as a view, bound to the guard's stream. Using it on another stream is refused with `WrongStream`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the guard's parts do not tile a box: see [`part`](Self::part) and [`whole`](Self::whole).
    pub fn view(&self) -> Result<MemoryView<'_, T>> {
        self.core.view(&self.set, self.at, self.stream.get())
    }

    /// The values of one part.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the guard does not have the part.
    pub fn part(&self, part: usize) -> Result<MemoryView<'_, T>> {
        let set = one(self.set, part)?;
        self.core.view(&set, self.at, self.stream.get())
    }

    /// The whole array as a view, for kernels and exchanges that find the guard's parts by their position in the array.
    ///
    /// # Errors
    ///
    /// Errors of making the view.
    ///
    /// # Safety
    ///
    /// Only elements of the guard's parts are accessed through the view. Other elements may be in use elsewhere, or
    /// have no values.
    #[expect(unsafe_code, reason = "the array may contain elements that other guards hold")]
    pub unsafe fn whole(&self) -> Result<MemoryView<'_, T>> {
        let all = self.core.partition.all().set;
        self.core.view(&all, self.at, self.stream.get())
    }

    /// All elements in memory from the first to the last of the guard's parts, as a one-dimensional view. This is for
    /// kernels that are Rust functions, which do not take views with gaps.
    ///
    /// # Errors
    ///
    /// Errors of making the view.
    ///
    /// # Safety
    ///
    /// As [`whole`](Self::whole).
    #[expect(unsafe_code, reason = "the row may contain elements that other guards hold")]
    pub unsafe fn span(&self) -> Result<MemoryView<'_, T>> {
        self.core.span(&self.set, self.at)?.on_stream(self.stream.get())
    }

    /// The parts of the guard.
    pub fn parts(&self) -> Parts {
        Parts::of(self.set)
    }

    /// The device on which the values are read.
    pub fn device(&self) -> &Device {
        self.stream.get().device()
    }
}

/// A guard for writing parts on a stream.
///
/// Dropping the guard *commits* the work that was enqueued through its views: the written values become the values of
/// the array. The drop *poisons* the parts instead in three cases: a panic that began while the guard lived causes the
/// drop, an operation through the guard's views failed, or the guard was taken to overwrite and nothing was written. If
/// it was taken to read and write and nothing was written, nothing changes. If it was taken to accumulate and nothing
/// was written, ghost values become stale, unless contributions to them were already pending. A forgotten guard
/// (`mem::forget`) leaves its parts poisoned.
///
/// If a destructor takes a guard while its thread is already panicking, a second panic is not detected, and the drop
/// commits. The locks of the standard library have the same exception.
pub struct WriteGuard<'b, T: Element, D> {
    held: WriteAccess<'b, T, D>,
    stream: StreamRef<'b>,
    at: ReplicaId,
    hold: Option<Hold>,
}

impl<'b, T: Element, D> WriteGuard<'b, T, D> {
    /// Takes parts for writing. `alone` says whether the whole array is borrowed exclusively, and not only some parts.
    #[inline]
    pub(crate) fn take(
        core: &'b Core<T, D>,
        set: &PartSet,
        stream: StreamRef<'b>,
        access: Access,
        call_site: CallSite,
        alone: bool,
    ) -> Result<Self> {
        check_access::<T>(access)?;
        let (may_refresh, alone) = (alone, alone && core.is_private());
        let by = Some(stream.get());
        let request = Request { may_refresh, ..Request::new(set, by, name(access), call_site) };
        let (at, quick, hold) = core.acquire(&request, access, alone)?;
        let mut held = WriteAccess::new(core, *set, access, quick, alone);
        if !quick {
            held.begin_extras()?;
        }
        Ok(Self { held, stream, at, hold })
    }

    /// The values, to read. They are unspecified if the guard was taken to overwrite.
    ///
    /// # Errors
    ///
    /// As [`ReadGuard::view`].
    pub fn view(&self) -> Result<MemoryView<'_, T>> {
        self.held.core.view(&self.held.set, self.at, self.stream.get())
    }

    /// The values, to read and write.
    ///
    /// # Errors
    ///
    /// As [`ReadGuard::view`].
    pub fn view_mut(&mut self) -> Result<MemoryViewMut<'_, T>> {
        self.lend(self.held.set)
    }

    /// The values of one part, to read and write.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the guard does not have the part.
    pub fn part_mut(&mut self, part: usize) -> Result<MemoryViewMut<'_, T>> {
        self.lend(one(self.held.set, part)?)
    }

    /// The whole array, to read and write, for kernels and exchanges that find the guard's parts by their position in
    /// the array. An operation enqueued through the view counts as writing all of the guard's parts.
    ///
    /// # Errors
    ///
    /// Errors of making the view.
    ///
    /// # Safety
    ///
    /// As [`ReadGuard::whole`].
    #[expect(unsafe_code, reason = "the array may contain elements that other guards hold")]
    pub unsafe fn whole_mut(&mut self) -> Result<MemoryViewMut<'_, T>> {
        self.lend(self.held.core.partition.all().set)
    }

    /// All elements in memory from the first to the last of the guard's parts, as a one-dimensional view, to read and
    /// write.
    ///
    /// # Errors
    ///
    /// Errors of making the view.
    ///
    /// # Safety
    ///
    /// As [`ReadGuard::whole`].
    #[expect(unsafe_code, reason = "the row may contain elements that other guards hold")]
    pub unsafe fn span_mut(&mut self) -> Result<MemoryViewMut<'_, T>> {
        let view = self.held.core.span_mut(&self.held.set, self.at)?;
        view.on_stream(self.stream.get())?.reporting_to(&self.held.report)
    }

    #[inline]
    fn lend(&mut self, set: PartSet) -> Result<MemoryViewMut<'_, T>> {
        let view = self.held.core.view_mut(&set, self.at)?;
        view.on_stream(self.stream.get())?.reporting_to(&self.held.report)
    }

    /// Fills the memory of the guard's box with a byte. The byte is not a value: the guard then poisons its parts,
    /// unless [`commit_over_pattern`](Self::commit_over_pattern) ends it.
    pub(crate) fn fill_bytes(&mut self, byte: u8) -> Result<()> {
        (self.held.patterned, self.held.checked, self.held.extras) = (true, false, true);
        // This includes the gaps between the elements, which have no values.
        let view = self.held.core.span_mut(&self.held.set, self.at)?;
        let row = Layout::row(DType::U8, view.as_view().byte_range().len())?;
        view.reinterpret(0, &row)?.typed()?.fill(self.stream.get(), byte)
    }

    /// The parts of the guard.
    pub fn parts(&self) -> Parts {
        Parts::of(self.held.set)
    }

    /// The device on which the values are written.
    pub fn device(&self) -> &Device {
        self.stream.get().device()
    }

    /// Splits the guard into two: one for the parts in `parts`, one for the others. Earlier writes and failures count
    /// for both.
    #[must_use]
    pub fn split_off(self, parts: Parts) -> (Self, Self) {
        let (one, other) = self.held.split(parts.set);
        let stream = StreamRef::Owned(self.stream.get().clone());
        let hold = self.hold.clone();
        (Self { held: one, ..self }, Self { held: other, stream, at: self.at, hold })
    }

    /// Ends the access as dropping does, and returns an error if the values were not committed.
    ///
    /// # Errors
    ///
    /// `Poisoned` if an operation failed, or if the guard was taken to overwrite and nothing was written. `Poisoned`
    /// also if earlier work on these parts failed and the values are lost.
    pub fn commit(self) -> Result<()> {
        self.held.commit().map_err(|error| error.on(self.stream.get().device().id()))
    }

    /// As [`commit`](Self::commit), for a guard whose pattern was overwritten everywhere.
    pub(crate) fn commit_over_pattern(mut self) -> Result<()> {
        self.held.patterned = false;
        self.commit()
    }

    /// Whether it is a guard of that array.
    pub(crate) fn is_of(&self, core: &Core<T, D>) -> bool {
        std::ptr::eq(self.held.core, core)
    }

    /// Ends the access as failed; the parts are poisoned.
    pub fn abort(self) {
        self.held.abort();
    }
}

fn one(set: PartSet, part: usize) -> Result<PartSet> {
    let parts = Parts::one(part);
    if !parts.are_in(set) {
        let message = format!("part {part} of a guard of parts {set:?}");
        return Err(Error::new(ErrorKind::OutOfBounds, "part", message));
    }
    Ok(parts.set)
}

impl<T: Element, D> fmt::Debug for ReadGuard<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadGuard(parts {:?} on {})", self.set, self.device().id())
    }
}

impl<T: Element, D> fmt::Debug for WriteGuard<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteGuard(parts {:?} on {})", self.held.set, self.device().id())
    }
}
