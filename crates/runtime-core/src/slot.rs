//! Memory bound to a region plan for an execution.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use crate::view::{Dynamic, Untyped};
use crate::{AnyView, AnyViewMut, MemoryView, MemoryViewMut};

/// Memory bound to one slot of a plan. Offsets of the slot's copies count from the lowest byte bound. Copies touch only
/// bytes of elements: a plan that would touch bytes between the elements of a view is refused.
///
/// `From` makes a slot of a view with any element type.
#[derive(Debug)]
pub enum Slot<'a> {
    /// Memory that the plan reads.
    Read(AnyView<'a>),
    /// Memory that the plan writes, or reads and writes.
    Write(AnyViewMut<'a>),
    /// Two parts of one memory: one that is only read, and one that is written, or read and written. Offsets count from
    /// the lower start of the two.
    Both {
        /// The part that is read.
        read: AnyView<'a>,
        /// The part that is written.
        write: AnyViewMut<'a>,
    },
    /// The elements of a view outside a box, for plans that are made for the [split](crate::RegionPlan::with_split).
    Outside(AnyViewOutside<'a>),
    /// No memory. The copies that read or write the slot are left out of this execution.
    Absent,
}

impl<'a, T> From<MemoryView<'a, T>> for Slot<'a> {
    fn from(view: MemoryView<'a, T>) -> Self {
        Self::Read(view.erase())
    }
}

impl<'a, T> From<MemoryViewMut<'a, T>> for Slot<'a> {
    fn from(view: MemoryViewMut<'a, T>) -> Self {
        Self::Write(view.erase())
    }
}

impl<'a, T> From<MemoryViewOutside<'a, T>> for Slot<'a> {
    fn from(outside: MemoryViewOutside<'a, T>) -> Self {
        Self::Outside(outside.erase())
    }
}

impl Slot<'_> {
    /// The bound memory, in one part or two. `None` if the slot is absent.
    pub(crate) fn views(&self) -> Option<(&Untyped<'_>, Option<&Untyped<'_>>)> {
        match self {
            Self::Read(view) => Some((view.untyped(), None)),
            Self::Write(view) => Some((view.untyped().view(), None)),
            Self::Both { read, write } => Some((read.untyped(), Some(write.untyped().view()))),
            Self::Outside(outside) => Some((outside.whole.untyped().view(), None)),
            Self::Absent => None,
        }
    }

    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self, Self::Read(_))
    }

    /// Whether both slots have elements bound, and at least one of them may be written.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        if !(self.is_writable() || other.is_writable()) {
            return false;
        }
        let others = other.parts();
        self.parts().iter().any(|one| others.iter().any(|other| one.overlaps(other)))
    }

    pub(crate) fn parts(&self) -> SmallVec<[&Untyped<'_>; 2]> {
        let views = self.views().into_iter();
        views.flat_map(|(first, second)| [Some(first), second]).flatten().collect()
    }

    /// Reports to the lender of the memory whether a write was enqueued or failed.
    pub(crate) fn report_write(&self, enqueued: bool) {
        match self {
            Self::Read(_) | Self::Absent => {}
            Self::Write(view) | Self::Both { write: view, .. } => {
                view.untyped().report_write(enqueued);
            }
            Self::Outside(outside) => outside.whole.untyped().report_write(enqueued),
        }
    }

    /// The box of a split, if either part of the split is bound.
    pub(crate) fn split_box(&self) -> Option<&Untyped<'_>> {
        match self {
            Self::Read(view) => Some(view.untyped()),
            Self::Outside(outside) => Some(outside.inside.untyped()),
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

/// The elements of a view outside one of its boxes, made by [`MemoryViewMut::split_off_box`]. Other code may read the
/// box at the same time. Only region plans that are made for the [split](crate::RegionPlan::with_split) write the
/// elements.
pub struct MemoryViewOutside<'a, T> {
    /// Only operations that leave out the box write through it.
    whole: MemoryViewMut<'a, T>,
    inside: MemoryView<'a, T>,
}

/// The elements outside a box, with an element type known only at run time.
pub type AnyViewOutside<'a> = MemoryViewOutside<'a, Dynamic>;

impl<'a, T> MemoryViewOutside<'a, T> {
    pub(crate) fn new(whole: MemoryViewMut<'a, T>, inside: MemoryView<'a, T>) -> Self {
        Self { whole, inside }
    }

    /// The elements inside the box.
    pub fn inside(&self) -> MemoryView<'a, T> {
        self.inside
    }

    /// All elements, including those of the box, for reading.
    pub fn as_view(&self) -> MemoryView<'_, T> {
        self.whole.as_view()
    }

    /// The same part with a shorter lifetime.
    pub fn reborrow(&mut self) -> MemoryViewOutside<'_, T> {
        MemoryViewOutside { whole: self.whole.reborrow(), inside: self.inside }
    }

    /// As [`MemoryViewMut::erase`].
    pub fn erase(self) -> AnyViewOutside<'a> {
        MemoryViewOutside { whole: self.whole.erase(), inside: self.inside.erase() }
    }
}

impl<T> fmt::Debug for MemoryViewOutside<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} outside a box of shape {:?}", self.whole, self.inside.layout().shape())
    }
}
