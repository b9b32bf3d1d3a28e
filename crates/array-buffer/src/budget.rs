//! Limits on implicit transfers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;

use runtime_core::{Error, ErrorKind, Result};

use crate::call_site::At;

/// Which transfers a [`TransferBudget`] limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// All transfers.
    #[default]
    Any,
    /// Transfers into host memory.
    ToHost,
    /// Transfers to a device.
    ToDevice,
}

/// A limit on the bytes that accesses in this thread may move while it is in scope.
///
/// An access that would move more is refused with `LimitExceeded`. The error names the access, and nothing has moved.
/// Explicit transfers (prefetches and evictions) do not count. Budgets nest: every limit applies. No limit applies
/// while a thread that ends drops its thread-local values.
///
/// What [refreshes of ghosts](crate::ArrayBuffer::on_stale_ghosts) move counts, also those that a prefetch runs. The
/// refresh comes first: if the access is refused after it, the ghosts have been refreshed. A budget may also forbid
/// refreshes.
///
/// ```
/// use array_buffer::{ArrayBuffer, ErrorKind, TransferBudget};
/// use backend_sim::{SimConfig, SimDevice};
/// use runtime_core::Device;
///
/// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
/// let array = ArrayBuffer::from_vec(vec![0_u8; 100], 100)?;
/// {
///     let _budget = TransferBudget::forbid();
///     let error = array.read(&device.default_stream()).unwrap_err();
///     assert_eq!(error.kind(), ErrorKind::LimitExceeded);
/// }
/// array.read(&device.default_stream())?;
/// # Ok::<(), array_buffer::Error>(())
/// ```
#[must_use = "the limit ends when this is dropped"]
pub struct TransferBudget {
    limit: Rc<Limit>,
    // It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

struct Limit {
    direction: Direction,
    bytes: u64,
    allows_refreshes: bool,
    used: Cell<u64>,
}

impl Limit {
    fn counts(&self, to_host: bool) -> bool {
        match self.direction {
            Direction::Any => true,
            Direction::ToHost => to_host,
            Direction::ToDevice => !to_host,
        }
    }
}

thread_local! {
    static LIMITS: RefCell<Vec<Rc<Limit>>> = const { RefCell::new(Vec::new()) };
}

impl TransferBudget {
    /// Forbids all implicit transfers, and refreshes.
    pub fn forbid() -> Self {
        Self::new(0, Direction::Any, false)
    }

    /// Forbids refreshes. They are collective, so this makes sure that a section of the program is not.
    pub fn forbid_refreshes() -> Self {
        Self::new(u64::MAX, Direction::Any, false)
    }

    /// Allows at most `bytes` bytes in one direction.
    pub fn bytes(bytes: u64, direction: Direction) -> Self {
        Self::new(bytes, direction, true)
    }

    fn new(bytes: u64, direction: Direction, allows_refreshes: bool) -> Self {
        let limit = Rc::new(Limit { direction, bytes, allows_refreshes, used: Cell::new(0) });
        // A thread that ends may have dropped its limits already; the same below.
        let _gone = LIMITS.try_with(|limits| limits.borrow_mut().push(Rc::clone(&limit)));
        Self { limit, _thread: PhantomData }
    }

    /// The number of bytes that were moved under the budget so far.
    pub fn used(&self) -> u64 {
        self.limit.used.get()
    }
}

impl Drop for TransferBudget {
    fn drop(&mut self) {
        // Removes its own entry, so the order of drops does not matter.
        let _gone = LIMITS.try_with(|limits| {
            limits.borrow_mut().retain(|limit| !Rc::ptr_eq(limit, &self.limit));
        });
    }
}

impl fmt::Debug for TransferBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransferBudget({} of {} bytes)", self.used(), self.limit.bytes)
    }
}

/// Refuses transfers that exceed a limit. Each transfer is a number of bytes, and whether it goes to the host.
pub(crate) fn check(
    transfers: impl Iterator<Item = (usize, bool)> + Clone,
    access: &'static str,
    call_site: &'static Location<'static>,
) -> Result<()> {
    let checked = LIMITS.try_with(|limits| {
        for limit in limits.borrow().iter() {
            let counted = transfers.clone().filter(|(_, to_host)| limit.counts(*to_host));
            let wanted: u64 = counted.map(|(bytes, _)| bytes as u64).sum();
            let used = limit.used.get();
            if wanted > 0 && used.saturating_add(wanted) > limit.bytes {
                let message = format!(
                    "{wanted} bytes for the {access}{}; {used} of {} are used",
                    At(call_site),
                    limit.bytes
                );
                return Err(Error::new(ErrorKind::LimitExceeded, access, message));
            }
        }
        Ok(())
    });
    checked.unwrap_or(Ok(()))
}

/// Refuses refreshes of ghosts if a limit forbids them.
pub(crate) fn check_refresh(
    access: &'static str,
    call_site: &'static Location<'static>,
) -> Result<()> {
    let allows = |limits: &RefCell<Vec<Rc<Limit>>>| {
        limits.borrow().iter().all(|limit| limit.allows_refreshes)
    };
    if LIMITS.try_with(allows).unwrap_or(true) {
        return Ok(());
    }
    let message = format!("one refresh for the {access}{}; 0 are allowed", At(call_site));
    Err(Error::new(ErrorKind::LimitExceeded, access, message))
}

/// Charges a transfer that was made.
pub(crate) fn charge(bytes: usize, to_host: bool) {
    let _gone = LIMITS.try_with(|limits| {
        for limit in limits.borrow().iter().filter(|limit| limit.counts(to_host)) {
            limit.used.set(limit.used.get().saturating_add(bytes as u64));
        }
    });
}
