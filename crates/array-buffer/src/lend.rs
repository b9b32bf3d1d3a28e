//! Arrays over memory that somebody lends.
#![expect(unsafe_code, reason = "host memory is borrowed for the length of a call")]

use std::panic::Location;
use std::ptr::NonNull;

use ndarray::{ArrayViewMut, Dimension};
use runtime_core::{Element, Error, ErrorKind, Result};

use crate::coherence::{Access, Action, HOST};
use crate::core::{Core, Request};
use crate::{PartMut, Partition};

/// Runs `f` with an array whose host replica is `array` itself. When it returns, or panics, the values are brought back
/// there, and no device uses the memory any more.
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
/// `InvalidArgument` if the array is not in row-major order without gaps; what bringing the values back reports, the
/// elements being unspecified then.
#[track_caller]
pub fn lend<T: Element, D: Dimension, R>(
    mut array: ArrayViewMut<'_, T, D>,
    f: impl for<'s> FnOnce(PartMut<'s, T, D>) -> R,
) -> Result<R> {
    if !array.is_standard_layout() {
        let message = format!("an array of shape {:?} that is not row-major", array.shape());
        return Err(Error::new(ErrorKind::InvalidArgument, "lend", message));
    }
    let core = Core::new(array.raw_dim(), Partition::whole(array.shape())?)?;
    let first = NonNull::new(array.as_mut_ptr()).unwrap_or(NonNull::dangling());
    // SAFETY: the view is row-major and borrowed exclusively until this function returns. `Loan` is dropped before
    // that, waits for all work on the memory, and nothing that was made of the core can leave `f`.
    unsafe { core.storage.borrow_host(first) };
    let set = core.partition.all().0;
    core.begin_with(set, HOST, None, &[])?;
    let mut loan = Loan { core, site: Location::caller(), returned: false };
    let result = f(PartMut { core: &loan.core, set });
    loan.give_back()?;
    Ok(result)
}

/// Brings the values back, on a panic too.
struct Loan<T: Element, D> {
    core: Core<T, D>,
    site: &'static Location<'static>,
    returned: bool,
}

impl<T: Element, D> Loan<T, D> {
    fn give_back(&mut self) -> Result<()> {
        let set = self.core.partition.all().0;
        let request = Request { set, stream: None, access: "lend", site: self.site };
        let brought =
            self.core.act(&request, |at, by| Action::Acquire { at, by, access: Access::ReadWrite });
        let drained = self.core.drain();
        // Not before: after a panic the memory is still in use.
        self.returned = true;
        brought.map(drop).and(drained)
    }
}

impl<T: Element, D> Drop for Loan<T, D> {
    fn drop(&mut self) {
        if !self.returned {
            // A panic is on its way; the values are what it left.
            let _back = self.give_back();
        }
    }
}
