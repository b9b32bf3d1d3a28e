//! Parts of an array that are borrowed separately.

use std::fmt;
use std::panic::Location;

use ndarray::Dimension;
use runtime_core::{Element, Result, Stream};

use crate::Parts;
use crate::coherence::{Access, Reduce, Set};
use crate::core::{Core, Request, check_reduce};
use crate::guard::{HostReadGuard, HostWriteGuard, ReadGuard, StreamRef, WriteGuard};
use crate::site::Site;

/// Some parts of an array, borrowed separately to read and write. [`ArrayBuffer::split`](crate::ArrayBuffer::split)
/// makes it.
pub struct PartMut<'b, T: Element, D> {
    pub(crate) core: &'b Core<T, D>,
    pub(crate) set: Set,
}

/// Some parts of an array, borrowed to read. [`ArrayBuffer::part`](crate::ArrayBuffer::part) makes it.
pub struct PartRef<'b, T: Element, D> {
    pub(crate) core: &'b Core<T, D>,
    pub(crate) set: Set,
}

impl<'b, T: Element, D: Dimension> PartRef<'b, T, D> {
    /// As [`ArrayBuffer::read`](crate::ArrayBuffer::read), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read`](crate::ArrayBuffer::read).
    #[track_caller]
    pub fn read(&self, stream: &'b Stream) -> Result<ReadGuard<'b, T, D>> {
        read(self.core, self.set, StreamRef::Borrowed(stream), Location::caller())
    }

    /// As [`ArrayBuffer::read_host`](crate::ArrayBuffer::read_host), for these parts only. They must tile a box.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read_host`](crate::ArrayBuffer::read_host). `InvalidArgument` if the parts do not tile a box.
    #[track_caller]
    pub fn read_host(&self) -> Result<HostReadGuard<'b, T, D>> {
        read_host(self.core, self.set, Location::caller())
    }

    /// The parts.
    pub fn parts(&self) -> Parts {
        Parts(self.set)
    }
}

impl<T: Element, D: Dimension> PartMut<'_, T, D> {
    /// As [`ArrayBuffer::read`](crate::ArrayBuffer::read), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read`](crate::ArrayBuffer::read).
    #[track_caller]
    pub fn read<'a>(&'a self, stream: &'a Stream) -> Result<ReadGuard<'a, T, D>> {
        read(self.core, self.set, StreamRef::Borrowed(stream), Location::caller())
    }

    /// As [`ArrayBuffer::read_host`](crate::ArrayBuffer::read_host), for these parts only. They must tile a box.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read_host`](crate::ArrayBuffer::read_host). `InvalidArgument` if the parts do not tile a box.
    #[track_caller]
    pub fn read_host(&self) -> Result<HostReadGuard<'_, T, D>> {
        read_host(self.core, self.set, Location::caller())
    }

    /// As [`ArrayBuffer::read_write`](crate::ArrayBuffer::read_write), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::read_write`](crate::ArrayBuffer::read_write).
    #[track_caller]
    pub fn read_write<'a>(&'a mut self, stream: &'a Stream) -> Result<WriteGuard<'a, T, D>> {
        let stream = StreamRef::Borrowed(stream);
        write(self.core, self.set, stream, Access::ReadWrite, Location::caller(), false)
    }

    /// As [`ArrayBuffer::write`](crate::ArrayBuffer::write), for these parts only.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::write`](crate::ArrayBuffer::write).
    #[track_caller]
    pub fn write<'a>(&'a mut self, stream: &'a Stream) -> Result<WriteGuard<'a, T, D>> {
        let stream = StreamRef::Borrowed(stream);
        write(self.core, self.set, stream, Access::Write, Location::caller(), false)
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
        write(self.core, self.set, stream, Access::Accumulate(op), Location::caller(), false)
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
        write_host(self.core, self.set, Access::ReadWrite, Location::caller(), false)
    }

    /// As [`ArrayBuffer::write_host`](crate::ArrayBuffer::write_host), for these parts only. They must tile a box.
    ///
    /// # Errors
    ///
    /// As [`ArrayBuffer::write_host`](crate::ArrayBuffer::write_host). `InvalidArgument` if the parts do not tile a
    /// box.
    #[track_caller]
    pub fn write_host(&mut self) -> Result<HostWriteGuard<'_, T, D>> {
        write_host(self.core, self.set, Access::Write, Location::caller(), false)
    }

    /// The parts.
    pub fn parts(&self) -> Parts {
        Parts(self.set)
    }
}

fn name(access: Access) -> &'static str {
    match access {
        Access::ReadWrite => "read_write",
        Access::Write => "write",
        Access::Accumulate(_) => "accumulate",
    }
}

#[inline]
pub(crate) fn read<'a, T: Element, D>(
    core: &'a Core<T, D>,
    set: Set,
    stream: StreamRef<'a>,
    site: Site,
) -> Result<ReadGuard<'a, T, D>> {
    let at = core.read(&Request { set, stream: Some(stream.get()), access: "read", site })?;
    Ok(ReadGuard { core, stream, set, at })
}

#[inline]
pub(crate) fn read_host<T: Element, D: Dimension>(
    core: &Core<T, D>,
    set: Set,
    site: Site,
) -> Result<HostReadGuard<'_, T, D>> {
    HostReadGuard::take(core, &Request { set, stream: None, access: "read", site })
}

/// Takes parts for writing. `alone`: the whole array is borrowed exclusively, not by parts.
#[inline]
pub(crate) fn write<'a, T: Element, D>(
    core: &'a Core<T, D>,
    set: Set,
    stream: StreamRef<'a>,
    access: Access,
    site: Site,
    alone: bool,
) -> Result<WriteGuard<'a, T, D>> {
    if let Access::Accumulate(op) = access {
        check_reduce::<T>(op)?;
    }
    let request = Request { set, stream: Some(stream.get()), access: name(access), site };
    let taken = core.acquire(&request, access, alone)?;
    Ok(WriteGuard::new(core, stream, set, access, taken, alone))
}

#[inline(always)]
pub(crate) fn write_host<T: Element, D: Dimension>(
    core: &Core<T, D>,
    set: Set,
    access: Access,
    site: Site,
    alone: bool,
) -> Result<HostWriteGuard<'_, T, D>> {
    if let Access::Accumulate(op) = access {
        check_reduce::<T>(op)?;
    }
    let request = Request { set, stream: None, access: name(access), site };
    HostWriteGuard::take(core, &request, access, alone)
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
