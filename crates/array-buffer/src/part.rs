//! Parts of an array that are borrowed separately.

use std::fmt;
use std::panic::Location;

use coherence::{Access, PartSet, Reduce};
use ndarray::Dimension;
use runtime_core::{Element, Result, Stream};

use crate::Parts;
use crate::call_site::CallSite;
use crate::core::{Core, Request};
use crate::guard::{HostReadGuard, HostWriteGuard, ReadGuard, StreamRef, WriteGuard};

/// Some parts of an array, borrowed separately to read and write. [`ArrayBuffer::split`](crate::ArrayBuffer::split)
/// makes it.
pub struct PartMut<'b, T: Element, D> {
    pub(crate) core: &'b Core<T, D>,
    pub(crate) set: PartSet,
}

/// Some parts of an array, borrowed to read. [`ArrayBuffer::part`](crate::ArrayBuffer::part) makes it.
pub struct PartRef<'b, T: Element, D> {
    pub(crate) core: &'b Core<T, D>,
    pub(crate) set: PartSet,
}

impl<'b, T: Element, D: Dimension> PartRef<'b, T, D> {
    /// As [`ArrayBuffer::read`](crate::ArrayBuffer::read), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read`](crate::ArrayBuffer::read).
    #[track_caller]
    pub fn read(&self, stream: &'b Stream) -> Result<ReadGuard<'b, T, D>> {
        ReadGuard::take(self.core, &self.set, StreamRef::Borrowed(stream), Location::caller(), true)
    }

    /// As [`ArrayBuffer::read_host`](crate::ArrayBuffer::read_host), for these parts only. They must tile a box.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read_host`](crate::ArrayBuffer::read_host). `InvalidArgument` if the parts do not tile a box.
    #[track_caller]
    pub fn read_host(&self) -> Result<HostReadGuard<'b, T, D>> {
        HostReadGuard::take(self.core, &self.set, Location::caller(), true)
    }

    /// As [`ArrayBuffer::prefetch`](crate::ArrayBuffer::prefetch), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::prefetch`](crate::ArrayBuffer::prefetch).
    #[track_caller]
    pub fn prefetch(&self, stream: &Stream) -> Result<()> {
        prefetch(self.core, self.set, Some(stream), Location::caller(), true)
    }

    /// As [`ArrayBuffer::prefetch_host`](crate::ArrayBuffer::prefetch_host), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::prefetch_host`](crate::ArrayBuffer::prefetch_host).
    #[track_caller]
    pub fn prefetch_host(&self) -> Result<()> {
        prefetch(self.core, self.set, None, Location::caller(), true)
    }

    /// The parts.
    pub fn parts(&self) -> Parts {
        Parts::of(self.set)
    }
}

impl<'b, T: Element, D: Dimension> PartMut<'b, T, D> {
    /// As [`ArrayBuffer::read`](crate::ArrayBuffer::read), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read`](crate::ArrayBuffer::read).
    #[track_caller]
    pub fn read<'a>(&'a self, stream: &'a Stream) -> Result<ReadGuard<'a, T, D>> {
        ReadGuard::take(
            self.core,
            &self.set,
            StreamRef::Borrowed(stream),
            Location::caller(),
            false,
        )
    }

    /// As [`ArrayBuffer::read_host`](crate::ArrayBuffer::read_host), for these parts only. They must tile a box.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read_host`](crate::ArrayBuffer::read_host). `InvalidArgument` if the parts do not tile a box.
    #[track_caller]
    pub fn read_host(&self) -> Result<HostReadGuard<'_, T, D>> {
        HostReadGuard::take(self.core, &self.set, Location::caller(), false)
    }

    /// As [`ArrayBuffer::read_write`](crate::ArrayBuffer::read_write), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read_write`](crate::ArrayBuffer::read_write).
    #[track_caller]
    pub fn read_write<'a>(&'a mut self, stream: &'a Stream) -> Result<WriteGuard<'a, T, D>> {
        let stream = StreamRef::Borrowed(stream);
        WriteGuard::take(self.core, &self.set, stream, Access::ReadWrite, Location::caller(), false)
    }

    /// As [`ArrayBuffer::write`](crate::ArrayBuffer::write), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::write`](crate::ArrayBuffer::write).
    #[track_caller]
    pub fn write<'a>(&'a mut self, stream: &'a Stream) -> Result<WriteGuard<'a, T, D>> {
        let stream = StreamRef::Borrowed(stream);
        WriteGuard::take(self.core, &self.set, stream, Access::Write, Location::caller(), false)
    }

    /// As [`ArrayBuffer::accumulate`](crate::ArrayBuffer::accumulate), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::accumulate`](crate::ArrayBuffer::accumulate).
    #[track_caller]
    pub fn accumulate<'a>(
        &'a mut self,
        stream: &'a Stream,
        op: Reduce,
    ) -> Result<WriteGuard<'a, T, D>> {
        let stream = StreamRef::Borrowed(stream);
        WriteGuard::take(
            self.core,
            &self.set,
            stream,
            Access::Accumulate(op),
            Location::caller(),
            false,
        )
    }

    /// As [`ArrayBuffer::read_write_host`](crate::ArrayBuffer::read_write_host), for these parts only. They must tile a
    /// box.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read_write_host`](crate::ArrayBuffer::read_write_host). `InvalidArgument` if the parts do not
    /// tile a box.
    #[track_caller]
    pub fn read_write_host(&mut self) -> Result<HostWriteGuard<'_, T, D>> {
        HostWriteGuard::take(self.core, &self.set, Access::ReadWrite, Location::caller(), false)
    }

    /// As [`ArrayBuffer::write_host`](crate::ArrayBuffer::write_host), for these parts only. They must tile a box.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::write_host`](crate::ArrayBuffer::write_host). `InvalidArgument` if the parts do not tile a
    /// box.
    #[track_caller]
    pub fn write_host(&mut self) -> Result<HostWriteGuard<'_, T, D>> {
        HostWriteGuard::take(self.core, &self.set, Access::Write, Location::caller(), false)
    }

    /// As [`read_write_host`](Self::read_write_host), for as long as the array is borrowed.
    ///
    /// # Errors
    ///
    /// As [`read_write_host`](Self::read_write_host).
    #[track_caller]
    pub fn into_read_write_host(self) -> Result<HostWriteGuard<'b, T, D>> {
        HostWriteGuard::take(self.core, &self.set, Access::ReadWrite, Location::caller(), false)
    }

    /// As [`write_host`](Self::write_host), for as long as the array is borrowed.
    ///
    /// # Errors
    ///
    /// As [`write_host`](Self::write_host).
    #[track_caller]
    pub fn into_write_host(self) -> Result<HostWriteGuard<'b, T, D>> {
        HostWriteGuard::take(self.core, &self.set, Access::Write, Location::caller(), false)
    }

    /// As [`ArrayBuffer::prefetch`](crate::ArrayBuffer::prefetch), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::prefetch`](crate::ArrayBuffer::prefetch).
    #[track_caller]
    pub fn prefetch(&self, stream: &Stream) -> Result<()> {
        prefetch(self.core, self.set, Some(stream), Location::caller(), false)
    }

    /// As [`ArrayBuffer::prefetch_host`](crate::ArrayBuffer::prefetch_host), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::prefetch_host`](crate::ArrayBuffer::prefetch_host).
    #[track_caller]
    pub fn prefetch_host(&self) -> Result<()> {
        prefetch(self.core, self.set, None, Location::caller(), false)
    }

    /// The parts.
    pub fn parts(&self) -> Parts {
        Parts::of(self.set)
    }
}

fn prefetch<T: Element, D>(
    core: &Core<T, D>,
    set: PartSet,
    stream: Option<&Stream>,
    call_site: CallSite,
    may_refresh: bool,
) -> Result<()> {
    core.prefetch(&Request {
        may_refresh,
        defers: true,
        ..Request::new(&set, stream, "prefetch", call_site)
    })
}

impl<T: Element, D> fmt::Debug for PartMut<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartMut({:?})", self.set)
    }
}

impl<T: Element, D> fmt::Debug for PartRef<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartRef({:?})", self.set)
    }
}
