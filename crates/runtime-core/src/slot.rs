//! Memory bound to a region plan for an execution.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use crate::{MemoryView, MemoryViewMut};

/// Memory bound to one slot of a plan. Offsets of the slot's copies count from the lowest byte bound. Copies touch only
/// bytes of elements: a plan that would touch bytes between the elements of a view is refused.
#[derive(Debug)]
pub enum Slot<'a> {
    /// Memory that the plan reads.
    Read(MemoryView<'a>),
    /// Memory that the plan writes, or reads and writes.
    Write(MemoryViewMut<'a>),
    /// Two parts of one memory: one that is only read, and one that is written, or read and written. Offsets count from
    /// the lower start of the two.
    Both {
        /// The part that is read.
        read: MemoryView<'a>,
        /// The part that is written.
        write: MemoryViewMut<'a>,
    },
    /// A memory with one box that is not written, for plans that [respect](crate::RegionPlan::with_box) the box.
    Around(AroundMut<'a>),
    /// No memory. The copies that read or write the slot are left out of this execution.
    Absent,
}

impl<'a> From<MemoryView<'a>> for Slot<'a> {
    fn from(view: MemoryView<'a>) -> Self {
        Self::Read(view)
    }
}

impl<'a> From<MemoryViewMut<'a>> for Slot<'a> {
    fn from(view: MemoryViewMut<'a>) -> Self {
        Self::Write(view)
    }
}

impl<'a> From<AroundMut<'a>> for Slot<'a> {
    fn from(around: AroundMut<'a>) -> Self {
        Self::Around(around)
    }
}

impl Slot<'_> {
    /// The bound memory, in one part or two. `None` if the slot is absent.
    pub(crate) fn views(&self) -> Option<(MemoryView<'_>, Option<MemoryView<'_>>)> {
        match self {
            Self::Read(view) => Some((*view, None)),
            Self::Write(view) => Some((view.as_view(), None)),
            Self::Both { read, write } => Some((*read, Some(write.as_view()))),
            Self::Around(around) => Some((around.whole.as_view(), None)),
            Self::Absent => None,
        }
    }

    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self, Self::Read(_))
    }

    /// The position of the lowest bound byte: see [`MemoryView::place`]. `None` if the slot is absent.
    pub(crate) fn place(&self) -> Option<(usize, usize)> {
        let (first, second) = self.views()?;
        let second = second.filter(|view| !view.is_empty()).map(|view| view.place());
        let first = Some(first).filter(|view| !view.is_empty()).map(|view| view.place());
        first.into_iter().chain(second).min()
    }

    /// Whether both slots have elements bound, and at least one of them may be written.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        if !(self.is_writable() || other.is_writable()) {
            return false;
        }
        let parts = |slot| -> SmallVec<[MemoryView<'_>; 2]> {
            let views = Slot::views(slot);
            views.into_iter().flat_map(|(first, second)| [Some(first), second]).flatten().collect()
        };
        let others = parts(other);
        parts(self).iter().any(|one| others.iter().any(|other| one.overlaps(other)))
    }

    /// Reports to the lender of the memory whether a write was enqueued or failed.
    pub(crate) fn report_write(&self, enqueued: bool) {
        match self {
            Self::Read(_) | Self::Absent => {}
            Self::Write(view) | Self::Both { write: view, .. } => view.report_write(enqueued),
            Self::Around(around) => around.whole.report_write(enqueued),
        }
    }

    /// The box of a split, if either part of the split is bound.
    pub(crate) fn part(&self) -> Option<MemoryView<'_>> {
        match self {
            Self::Read(view) => Some(*view),
            Self::Around(around) => Some(around.inner()),
            Self::Write(_) | Self::Both { .. } | Self::Absent => None,
        }
    }

    /// The byte range of the memory that is bound.
    pub(crate) fn range(&self) -> Range<usize> {
        let Some((first, second)) = self.views() else { return 0..0 };
        let range = first.byte_range();
        match second.map(|view| view.byte_range()) {
            Some(other) if range.is_empty() => other,
            Some(other) if !other.is_empty() => {
                range.start.min(other.start)..range.end.max(other.end)
            }
            _ => range,
        }
    }
}

/// The elements of a view around one of its boxes; other code may have a view of the box for reading at the same time.
/// Made by [`MemoryViewMut::split_box`]. Written by region plans that [respect](crate::RegionPlan::with_box) the box.
pub struct AroundMut<'a> {
    /// Only operations that respect the box write through it.
    whole: MemoryViewMut<'a>,
    inner: MemoryView<'a>,
}

impl<'a> AroundMut<'a> {
    pub(crate) fn new(whole: MemoryViewMut<'a>, inner: MemoryView<'a>) -> Self {
        Self { whole, inner }
    }

    /// The elements of the box.
    pub fn inner(&self) -> MemoryView<'a> {
        self.inner
    }

    /// All elements, including those of the box, for reading.
    pub fn as_view(&self) -> MemoryView<'_> {
        self.whole.as_view()
    }

    /// The same part with a shorter lifetime.
    pub fn reborrow(&mut self) -> AroundMut<'_> {
        AroundMut { whole: self.whole.reborrow(), inner: self.inner }
    }
}

impl fmt::Debug for AroundMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} around shape {:?}", self.whole, self.inner.layout().shape())
    }
}
