//! The common address space of host and devices, and its allocations.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::bytes::Bytes;
use crate::clock::{Clock, Stamp};
use crate::code::{Code, Result};
use crate::context::Context;
use crate::host::Host;
use crate::pool::{Budget, Pool};
use crate::report::Report;

/// The value of each byte of fresh memory.
pub const FRESH: u8 = 0xAB;
/// The value of each byte of freed memory.
pub const FREED: u8 = 0xDD;

/// The number of addresses of each device. No address is used twice, so that the use of an old one is noticed.
const SPAN: u64 = 1 << 40;
/// The default alignment of allocations, and the least distance between them.
const ALIGNMENT: u64 = 512;

/// The kind of an allocation.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Device memory.
    Device(Arc<Budget>),
    /// Device memory, allocated and freed in the order of a stream.
    Pool(Arc<Pool>),
    /// Memory that the host and devices can access. It counts against a device.
    Managed(Arc<Budget>),
    /// Host memory that devices can access.
    Pinned,
    /// Memory of the program that devices can access.
    Registered,
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) range: Range<u64>,
    pub(crate) kind: Kind,
    pub(crate) context: Arc<Context>,
    pub(crate) bytes: Bytes,
    /// False once its free has run.
    alive: AtomicBool,
    order: Mutex<Order>,
}

/// The uses of an allocation, for checks of their order.
#[derive(Debug, Default)]
struct Order {
    allocated: Option<Stamp>,
    used: Clock,
    freed: bool,
}

impl Allocation {
    pub(crate) fn len(&self) -> usize {
        to_usize(self.range.end - self.range.start)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Whether it is pinned host memory.
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.kind, Kind::Pinned | Kind::Registered)
    }

    /// Whether it is memory of the program.
    pub(crate) fn is_registered(&self) -> bool {
        matches!(self.kind, Kind::Registered)
    }

    /// Whether it is unified memory.
    pub(crate) fn is_managed(&self) -> bool {
        matches!(self.kind, Kind::Managed(_))
    }

    /// Notes that this work allocates it.
    pub(crate) fn allocated_by(&self, stamp: Stamp) {
        let order = &mut *self.order.lock();
        order.allocated = Some(stamp);
        order.used.add(stamp);
    }

    /// Notes work on it. The work in `clock` is ordered before it.
    pub(crate) fn used(&self, stamp: Stamp, clock: &Clock, report: &Report) {
        let order = &mut *self.order.lock();
        order.used.add(stamp);
        let what = || {
            format!(
                "memory {:#x} by work {} of stream {}",
                self.range.start, stamp.place, stamp.stream
            )
        };
        if order.freed {
            report.violation("use after free", what());
        } else if order.allocated.is_some_and(|allocated| !clock.covers(allocated)) {
            report.violation("use before allocation", what());
        }
    }

    /// Notes that it is freed, by work of a stream or by the host. The work in `clock` is ordered before the free.
    pub(crate) fn freed(&self, stamp: Option<Stamp>, clock: &Clock, report: &Report) -> Result<()> {
        let order = &mut *self.order.lock();
        if order.freed {
            report.violation("double free", format!("memory {:#x}", self.range.start));
            return Err(Code::INVALID_VALUE);
        }
        order.freed = true;
        if let Some(use_) = order.used.not_covered_by(clock) {
            let message = format!(
                "memory {:#x}, where work {} of stream {} is not ordered before the free",
                self.range.start, use_.place, use_.stream
            );
            report.violation("unordered free", message);
        }
        stamp.into_iter().for_each(|stamp| order.used.add(stamp));
        Ok(())
    }

    /// The handle of its pool, if it belongs to one.
    pub(crate) fn pool(&self) -> Option<u64> {
        match &self.kind {
            Kind::Pool(pool) => Some(pool.handle),
            _ => None,
        }
    }

    /// Forgets its uses, because all of them have finished.
    pub(crate) fn forget_uses(&self) {
        self.order.lock().used = Clock::default();
    }

    pub(crate) fn was_freed(&self) -> bool {
        self.order.lock().freed
    }

    /// Fills it with the value of fresh memory.
    pub(crate) fn fill_fresh(&self) {
        self.bytes.fill(0, self.len(), &[FRESH]);
    }

    /// Ends its life, and returns its bytes to the device or pool.
    fn end(&self) {
        if !self.alive.swap(false, Ordering::AcqRel) {
            return;
        }
        if !self.is_registered() {
            self.bytes.fill(0, self.len(), &[FREED]);
        }
        match &self.kind {
            Kind::Device(budget) | Kind::Managed(budget) => budget.give(self.len()),
            Kind::Pool(pool) => pool.give(self.len()),
            Kind::Pinned | Kind::Registered => {}
        }
    }
}

/// All allocations, sorted by address.
pub(crate) type Snapshot = Arc<[Arc<Allocation>]>;

/// The address space.
#[derive(Debug)]
pub(crate) struct Space {
    reserved: Host,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The next address of each device.
    next: Vec<u64>,
    alive: BTreeMap<u64, Arc<Allocation>>,
    snapshot: Option<Snapshot>,
}

impl Space {
    /// Reserves the addresses of the devices. No allocation is aligned to more than `alignment`.
    pub(crate) fn new(devices: usize, alignment: u64) -> Result<Self> {
        let reserved = Host::reserve(to_usize(SPAN) * devices.max(1))?;
        let first = (reserved.address() as u64).next_multiple_of(ALIGNMENT) + ALIGNMENT;
        let first = first + alignment % ALIGNMENT;
        let next = (0..devices as u64).map(|device| first + device * SPAN).collect();
        let state = State { next, alive: BTreeMap::new(), snapshot: None };
        Ok(Self { reserved, state: Mutex::new(state) })
    }

    /// Allocates memory that the host cannot access. Its size is already taken from the device or pool.
    pub(crate) fn allocate(
        &self,
        len: usize,
        kind: Kind,
        context: &Arc<Context>,
    ) -> Result<Arc<Allocation>> {
        let device = context.device();
        let bytes = Bytes::device(len, FRESH);
        let len = len as u64;
        let step = len.next_multiple_of(ALIGNMENT) + ALIGNMENT;
        let start = {
            let state = &mut *self.state.lock();
            let end = self.reserved.address() as u64 + SPAN * (device as u64 + 1);
            if end - state.next[device] < step {
                return Err(Code::OUT_OF_MEMORY);
            }
            state.next[device] += step;
            state.next[device] - step
        };
        Ok(self.insert(start..start + len, kind, context, bytes))
    }

    /// Adds memory that the host can access.
    pub(crate) fn insert_host(
        &self,
        host: Host,
        len: usize,
        kind: Kind,
        context: &Arc<Context>,
    ) -> Arc<Allocation> {
        let start = host.address() as u64;
        self.insert(start..start + len as u64, kind, context, Bytes::Host(host))
    }

    fn insert(
        &self,
        range: Range<u64>,
        kind: Kind,
        context: &Arc<Context>,
        bytes: Bytes,
    ) -> Arc<Allocation> {
        let start = range.start;
        let allocation = Arc::new(Allocation {
            range,
            kind,
            context: Arc::clone(context),
            bytes,
            alive: AtomicBool::new(true),
            order: Mutex::default(),
        });
        let state = &mut *self.state.lock();
        state.alive.insert(start, Arc::clone(&allocation));
        state.snapshot = None;
        allocation
    }

    /// The allocation that contains an address.
    pub(crate) fn at(&self, address: u64) -> Option<Arc<Allocation>> {
        let state = self.state.lock();
        let (_, allocation) = state.alive.range(..=address).next_back()?;
        allocation.range.contains(&address).then(|| Arc::clone(allocation))
    }

    /// Whether a range touches an allocation.
    pub(crate) fn touches(&self, range: Range<u64>) -> bool {
        let state = self.state.lock();
        let last = state.alive.range(..range.end).next_back();
        last.is_some_and(|(_, allocation)| allocation.range.end > range.start)
    }

    /// Whether an address belongs to device memory.
    pub(crate) fn is_reserved(&self, address: u64) -> bool {
        let start = self.reserved.address() as u64;
        (start..start + SPAN * self.state.lock().next.len() as u64).contains(&address)
    }

    /// Removes an allocation.
    pub(crate) fn remove(&self, allocation: &Allocation) {
        allocation.end();
        let state = &mut *self.state.lock();
        state.alive.remove(&allocation.range.start);
        state.snapshot = None;
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = &mut *self.state.lock();
        let State { alive, snapshot, .. } = state;
        Arc::clone(snapshot.get_or_insert_with(|| alive.values().cloned().collect()))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the hosts have 64-bit addresses")]
pub(crate) fn to_usize(value: u64) -> usize {
    value as usize
}
