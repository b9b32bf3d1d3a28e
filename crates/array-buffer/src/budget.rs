//! Limits on implicit transfers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;

use runtime_core::{Error, ErrorKind, Result};

use crate::site::At;

/// Which transfers a [`TransferBudget`] limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// All of them.
    #[default]
    Any,
    /// Those into host memory.
    ToHost,
    /// Those to a device.
    ToDevice,
}

/// A limit on the bytes that accesses in this thread may move as long as it is in scope.
///
/// An access that would move more is refused with `LimitExceeded`, which names the access; nothing has moved then.
/// Transfers that are asked for by name, prefetches and evictions, are free. Budgets nest: each limit holds. None holds in
/// a thread that is ending, once its thread-local values are being dropped.
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
    // Belongs to its thread.
    _thread: PhantomData<*const ()>,
}

struct Limit {
    direction: Direction,
    bytes: u64,
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
    /// No implicit transfer at all.
    pub fn forbid() -> Self {
        Self::bytes(0, Direction::Any)
    }

    /// At most so many bytes in one direction.
    pub fn bytes(bytes: u64, direction: Direction) -> Self {
        let limit = Rc::new(Limit { direction, bytes, used: Cell::new(0) });
        // A thread that ends may have dropped its limits already; the same below.
        let _gone = LIMITS.try_with(|limits| limits.borrow_mut().push(Rc::clone(&limit)));
        Self { limit, _thread: PhantomData }
    }

    /// Bytes that were moved under it so far.
    pub fn used(&self) -> u64 {
        self.limit.used.get()
    }
}

impl Drop for TransferBudget {
    fn drop(&mut self) {
        // Its own entry, so that the order of drops does not matter.
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

/// Refuses transfers, each given as bytes and whether it goes to the host, that all limits do not have room for.
pub(crate) fn check(
    transfers: impl Iterator<Item = (usize, bool)> + Clone,
    access: &'static str,
    site: &'static Location<'static>,
) -> Result<()> {
    let checked = LIMITS.try_with(|limits| {
        for limit in limits.borrow().iter() {
            let counted = transfers.clone().filter(|(_, to_host)| limit.counts(*to_host));
            let wanted: u64 = counted.map(|(bytes, _)| bytes as u64).sum();
            let used = limit.used.get();
            if wanted > 0 && used.saturating_add(wanted) > limit.bytes {
                let message = format!(
                    "{wanted} bytes for the {access}{}; {used} of {} are used",
                    At(site),
                    limit.bytes
                );
                return Err(Error::new(ErrorKind::LimitExceeded, access, message));
            }
        }
        Ok(())
    });
    checked.unwrap_or(Ok(()))
}

/// Charges a transfer that was made.
pub(crate) fn charge(bytes: usize, to_host: bool) {
    let _gone = LIMITS.try_with(|limits| {
        for limit in limits.borrow().iter().filter(|limit| limit.counts(to_host)) {
            limit.used.set(limit.used.get().saturating_add(bytes as u64));
        }
    });
}
