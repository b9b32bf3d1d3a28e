//! Arrays over memory that a caller lends.
#![expect(unsafe_code, reason = "host memory is borrowed for the length of a call")]

use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::process::abort;
use std::ptr::NonNull;

use coherence::{Access, Action, HOST};
use ndarray::{ArrayViewMut, Dimension};
use runtime_core::{Device, Element, Error, ErrorKind, Result};

use crate::core::{Core, Exclusive, Request};
use crate::{PartMut, Partition};

/// Runs `f` with an array whose host replica is the memory of `array` itself. When `f` returns or panics, the values
/// are copied back to that memory. After that, no device uses it.
///
/// ```
/// use backend_sim::{SimConfig, SimDevice};
/// use runtime_core::Device;
///
/// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
/// let stream = device.default_stream();
/// let mut values = ndarray::array![1.0, 2.0];
/// array_buffer::lend(values.view_mut(), |mut array| {
///     array.write(&stream)?.view_mut()?.fill(&stream, 7.0)
/// })??;
/// assert_eq!(values, ndarray::array![7.0, 7.0]);
/// # Ok::<(), array_buffer::Error>(())
/// ```
///
/// # Errors
///
/// `InvalidArgument` if the array is not in row-major order without gaps. Errors of copying the values back; the
/// elements are then unspecified.
///
/// # Aborts
///
/// Ends the process if a kernel lends an array and enqueues work on it to the stream that the kernel runs on. This work
/// starts only after the kernel has ended. The kernel cannot wait for it, and the owner of the array could free the
/// memory before the work runs.
#[track_caller]
pub fn lend<T: Element, D: Dimension, R>(
    array: ArrayViewMut<'_, T, D>,
    f: impl for<'s> FnOnce(PartMut<'s, T, D>) -> R,
) -> Result<R> {
    lend_locked(array, None, f)
}

/// As [`lend`], with memory that is [page-locked](crate::ArrayBuffer::page_lock) for `device` until this returns.
/// Copies between it and the device do not hold the host. Locking takes about as long as the first writes to as many
/// fresh bytes. Locks nothing for a device that works in host memory.
///
/// # Errors
///
/// As [`lend`]. Before `f` is called: `InvalidArgument` if the memory does not begin at a memory page, `Unsupported` if
/// the device cannot [lock](runtime_core::Device::pinned_adopt) memory that it did not allocate, `OutOfMemory` if it
/// cannot lock as much, and `Conflict` if a page is locked already. Afterwards: `Driver` if the driver fails to unlock
/// the memory. Do not free it then.
///
/// # Aborts
///
/// As [`lend`].
#[track_caller]
pub fn lend_page_locked<T: Element, D: Dimension, R>(
    array: ArrayViewMut<'_, T, D>,
    device: &Device,
    f: impl for<'s> FnOnce(PartMut<'s, T, D>) -> R,
) -> Result<R> {
    lend_locked(array, Some(device), f)
}

#[track_caller]
fn lend_locked<T: Element, D: Dimension, R>(
    mut array: ArrayViewMut<'_, T, D>,
    lock: Option<&Device>,
    f: impl for<'s> FnOnce(PartMut<'s, T, D>) -> R,
) -> Result<R> {
    if !array.is_standard_layout() {
        let message = format!("an array of shape {:?} that is not row-major", array.shape());
        return Err(Error::new(ErrorKind::InvalidArgument, "lend", message));
    }
    let mut core = Core::new(array.raw_dim(), Partition::whole(array.shape())?)?;
    let first = NonNull::new(array.as_mut_ptr()).unwrap_or(NonNull::dangling());
    // SAFETY: the view is row-major and borrowed exclusively until this function returns. `Loan` is dropped before that
    // and waits for all work on the memory. Nothing that was made from the core can leave `f`.
    unsafe { core.storage.borrow_host(first) };
    let set = core.partition.all().set;
    core.begin_with(set, HOST, None, &[])?;
    if let Some(device) = lock {
        Exclusive::of(&mut core).page_lock(device)?;
    }
    let mut loan = Loan { core, call_site: Location::caller(), returned: false };
    let result = f(PartMut { core: &loan.core, set });
    loan.give_back()?;
    Ok(result)
}

/// Copies the values back, also on a panic.
struct Loan<T: Element, D> {
    core: Core<T, D>,
    call_site: &'static Location<'static>,
    returned: bool,
}

impl<T: Element, D> Loan<T, D> {
    fn give_back(&mut self) -> Result<()> {
        let set = self.core.partition.all().set;
        let call_site = self.call_site;
        let request = Request::new(&set, None, "lend", call_site);
        let brought =
            self.core.act(&request, |at, by| Action::Acquire { at, by, access: Access::ReadWrite });
        let drained = self.drain();
        // Set only now: if the code above panics, the memory is still in use and `drop` must run it again.
        self.returned = true;
        brought.map(drop).and(drained)
    }

    /// Waits for all work on the memory, and unlocks it.
    fn drain(&self) -> Result<()> {
        let drained = self.core.drain();
        if drained.iter().any(|done| done.as_ref().is_err_and(Error::is_refused_wait)) {
            // Not by `eprintln!`, which may panic.
            drop(writeln!(
                io::stderr(),
                "lend: a kernel enqueued work on a lent array to its own stream"
            ));
            abort();
        }
        // SAFETY: all work on the memory is done, and no part is borrowed.
        let unlocked = unsafe { self.core.storage.end_lock() };
        drained.into_iter().chain([unlocked]).collect()
    }
}

impl<T: Element, D> Drop for Loan<T, D> {
    fn drop(&mut self) {
        if !self.returned {
            // The thread is panicking; the values are what the panic left. A log subscriber may panic again.
            let again = catch_unwind(AssertUnwindSafe(|| self.give_back()));
            if again.is_err() {
                let _drained = self.drain();
            }
        }
    }
}
