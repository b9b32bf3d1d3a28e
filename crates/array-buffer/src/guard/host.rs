//! Guards for accesses on the host.
#![expect(unsafe_code, reason = "host memory is shown as arrays, by part")]

use std::fmt;
use std::ops::{Deref, DerefMut};

use coherence::{Access, PartSet};
use ndarray::{ArrayRef, ArrayView, ArrayViewMut, Dimension};
use runtime_core::{Element, Error, ErrorKind, Result};

use super::{WriteAccess, check_access, name};
use crate::call_site::CallSite;
use crate::core::{Core, Request};

/// A guard for reading values on the host, as an `ndarray` array. The work that writes the values has finished.
pub struct HostReadGuard<'b, T, D> {
    view: ArrayView<'b, T, D>,
}

impl<'b, T: Element, D: Dimension> HostReadGuard<'b, T, D> {
    #[inline]
    pub(crate) fn take(
        core: &'b Core<T, D>,
        set: &PartSet,
        call_site: CallSite,
        may_refresh: bool,
    ) -> Result<Self> {
        let ranges = tiled(core, set)?;
        core.read(&Request { may_refresh, ..Request::new(set, None, "read", call_site) })?;
        // SAFETY: the parts are valid on the host, and the work that wrote them has finished. While the borrow of the
        // parts lasts, which the guard shares, the state lets no access write them.
        let view =
            unsafe { core.storage.host_view(&core.shape, &core.partition, ranges.as_deref()) }?;
        Ok(Self { view })
    }
}

impl<T, D: Dimension> Deref for HostReadGuard<'_, T, D> {
    type Target = ArrayRef<T, D>;

    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

/// A guard for writing parts on the host, as an `ndarray` array.
///
/// It ends as a [`WriteGuard`](crate::WriteGuard) does. Borrowing it mutably counts as writing. If it was taken to
/// overwrite, the elements first hold the old contents of the memory, or zeros.
pub struct HostWriteGuard<'b, T: Element, D> {
    view: ArrayViewMut<'b, T, D>,
    held: WriteAccess<'b, T, D>,
}

impl<'b, T: Element, D: Dimension> HostWriteGuard<'b, T, D> {
    /// As [`WriteGuard::take`](super::WriteGuard::take).
    #[inline(always)]
    pub(crate) fn take(
        core: &'b Core<T, D>,
        set: &PartSet,
        access: Access,
        call_site: CallSite,
        alone: bool,
    ) -> Result<Self> {
        check_access::<T>(access)?;
        let (may_refresh, alone) = (alone, alone && core.is_private());
        let ranges = tiled(core, set)?;
        let access_name = name(access);
        let request = Request { may_refresh, ..Request::new(set, None, access_name, call_site) };
        let quick = core.acquire_host(&request, access, alone)?;
        let mut held = WriteAccess::new(core, *set, access, quick, alone);
        if !quick {
            held.begin_extras()?;
        }
        // SAFETY: the state has given the parts to this guard alone, and earlier uses of them have finished.
        let view =
            unsafe { core.storage.host_view_mut(&core.shape, &core.partition, ranges.as_deref()) }?;
        Ok(Self { view, held })
    }

    /// Ends the access as dropping does, and returns an error if the values were not committed.
    ///
    /// # Errors
    ///
    /// `Poisoned` if the guard was taken to overwrite and nothing was written.
    pub fn commit(self) -> Result<()> {
        self.held.commit()
    }

    /// Ends the access as failed; the parts are poisoned.
    pub fn abort(self) {
        self.held.abort();
    }
}

impl<T: Element, D: Dimension> Deref for HostWriteGuard<'_, T, D> {
    type Target = ArrayRef<T, D>;

    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

impl<T: Element, D: Dimension> DerefMut for HostWriteGuard<'_, T, D> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.held.wrote = true;
        &mut self.view
    }
}

/// The box of the parts, for an array view; `None` for the whole array.
#[inline]
fn tiled<T: Element, D>(
    core: &Core<T, D>,
    set: &PartSet,
) -> Result<Option<impl Deref<Target = [std::ops::Range<usize>]> + use<T, D>>> {
    if core.partition.is_all(set) {
        return Ok(None);
    }
    let (ranges, tiles) = core.partition.hull(*set);
    if !tiles {
        let message = format!("parts {set:?} tile no box; take each by itself");
        return Err(Error::new(ErrorKind::InvalidArgument, "host access", message));
    }
    Ok(Some(ranges))
}

impl<T: fmt::Debug, D: Dimension> fmt::Debug for HostReadGuard<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

impl<T: Element + fmt::Debug, D: Dimension> fmt::Debug for HostWriteGuard<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}
