//! Limits on the memory of arrays on a device.

mod ledger;
mod policy;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use runtime_core::{Device, Element, Error, ErrorKind, Memory, Result, Stream, Traffic};

pub use policy::{Candidate, LeastRecentlyUsed, Policy, Priority};

use crate::call_site::{At, CallSite};
use crate::coherence::{PartId, ReplicaId, Set};
use ledger::{Key, Ledger, Owner};

/// How long an access waits for calls in other threads that use all parts that could leave.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two attempts.
const PAUSE: Duration = Duration::from_micros(200);

/// A limit on the memory that arrays have on one device.
///
/// Arrays take part by [`ArrayBuffer::set_memory_budget`](crate::ArrayBuffer::set_memory_budget). Each part of such an
/// array has memory of its own on the device, from its first use there. If an access needs memory and the limit is
/// reached, or the device has none left, then parts that are not in use leave the device: the [`Policy`] chooses which.
/// Values that exist nowhere else are copied to the host first. So the arrays together may be much larger than the
/// device's memory, as long as each single access fits.
///
/// A part is in use while a guard, a lease or an exchange uses it on the device. Work that was enqueued earlier may still
/// run: its memory is used again, or freed, only after that work.
///
/// ```
/// use array_buffer::{ArrayBuffer, MemoryBudget, Partition, Parts};
/// use backend_sim::{SimConfig, SimDevice};
/// use runtime_core::Device;
///
/// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
/// let stream = device.default_stream();
/// // Four parts of 80 bytes each. Two fit.
/// let rows = |part| vec![10 * part..10 * part + 10];
/// let parts: Vec<_> = (0..4).map(rows).collect();
/// let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
/// let budget = MemoryBudget::new(&device, 160);
/// let mut array = ArrayBuffer::<f64, _>::with_partition(Partition::new(&[40], &parts, &[])?)?;
/// array.set_memory_budget(&budget)?;
/// for part in 0..4 {
///     let [mut part] = array.split([Parts::one(part)])?;
///     part.write(&stream)?.view_mut()?.fill(&stream, 1.0)?;
/// }
/// assert_eq!((budget.used(), budget.evicted().count), (160, 2));
/// assert_eq!(array.read_host()?.sum(), 40.0);
/// # Ok::<(), array_buffer::Error>(())
/// ```
///
/// A budget is a handle; clones are the same budget.
#[derive(Clone)]
pub struct MemoryBudget(Arc<Inner>);

struct Inner {
    device: Device,
    policy: Box<dyn Policy>,
    account: Mutex<Account>,
}

#[derive(Default)]
struct Account {
    ledger: Ledger,
    next: Owner,
    /// The arrays, and the replica on the device in each.
    arrays: BTreeMap<Owner, (Weak<dyn Resident>, ReplicaId)>,
    /// Memory of parts that have left, which other parts can use.
    idle: Vec<Idle>,
    evicted: Traffic,
}

/// Memory that no part uses. Work may still use it.
pub(crate) struct Idle {
    bytes: u64,
    memory: Box<dyn AnyMemory>,
}

/// Memory of elements of any type.
trait AnyMemory: Any + Send {
    fn order_before(&self, stream: &Stream) -> Result<()>;
}

impl<T: Element> AnyMemory for Memory<T> {
    fn order_before(&self, stream: &Stream) -> Result<()> {
        Self::order_before(self, stream)
    }
}

/// An array whose parts have memory under a budget.
pub(crate) trait Resident: Send + Sync {
    /// Whether a part's memory in a replica can be freed.
    fn standing(&self, part: PartId, at: ReplicaId) -> Standing;

    /// Frees a part's memory in a replica, for an access. `None` if it is in use by now.
    fn make_room(&self, part: PartId, at: ReplicaId, cause: RoomCause) -> Result<Option<Idle>>;
}

/// Whether a part's memory can be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A call in another thread uses the array.
    Busy,
    /// A guard, a lease or an exchange uses the memory.
    Held,
    Free {
        must_copy: bool,
    },
}

/// The access that needs memory.
#[derive(Clone, Copy)]
pub(crate) struct RoomCause {
    pub(crate) access: &'static str,
    pub(crate) call_site: CallSite,
}

/// Memory for a part, which the budget has reserved.
pub(crate) struct Room<T: Element> {
    pub(crate) part: PartId,
    memory: Memory<T>,
    reserved: Reservation,
}

struct Reservation {
    budget: MemoryBudget,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.account().ledger.release(self.bytes);
    }
}

impl Idle {
    pub(crate) fn new<T: Element>(memory: Memory<T>) -> Self {
        Self { bytes: bytes_of::<T>(memory.len()), memory: Box::new(memory) }
    }
}

impl MemoryBudget {
    /// A budget of `bytes` bytes on `device`. Parts leave in the order of [`LeastRecentlyUsed`].
    pub fn new(device: &Device, bytes: u64) -> Self {
        Self::with_policy(device, Some(bytes), LeastRecentlyUsed)
    }

    /// A budget of `bytes` bytes, or, with `None`, of what the device has: parts then leave only if the device refuses
    /// memory.
    pub fn with_policy(device: &Device, bytes: Option<u64>, policy: impl Policy) -> Self {
        let account = Account { ledger: Ledger::new(bytes), ..Account::default() };
        Self(Arc::new(Inner {
            device: device.clone(),
            policy: Box::new(policy),
            account: Mutex::new(account),
        }))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The limit in bytes; `None` if only the device limits the memory.
    pub fn limit(&self) -> Option<u64> {
        self.account().ledger.limit()
    }

    /// The bytes in use: the memory of all parts on the device, and memory that waits to be used again.
    pub fn used(&self) -> u64 {
        self.account().ledger.used()
    }

    /// How many parts have left the device to make room, and how many bytes they had there.
    pub fn evicted(&self) -> Traffic {
        self.account().evicted
    }

    /// Frees memory that waits to be used again. Does not block: work that still uses it ends first.
    pub fn trim(&self) {
        let idle = std::mem::take(&mut self.account().idle);
        self.account().ledger.release(idle.iter().map(|idle| idle.bytes).sum());
    }

    /// Whether `other` is the same budget.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Lets an array take part.
    pub(crate) fn join(&self, array: Weak<dyn Resident>, at: ReplicaId) -> Membership {
        let mut account = self.account();
        let owner = account.next;
        account.next += 1;
        account.arrays.insert(owner, (array, at));
        Membership { budget: self.clone(), owner }
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.0.account.lock()
    }

    /// Lets one part leave, for parts that `owner` needs.
    fn evict_one(&self, wanted: &Wanted, turned_down: &mut BTreeSet<Key>) -> Result<()> {
        let known = {
            let account = self.account();
            let candidates = account.ledger.candidates(wanted.owner, wanted.needed);
            let array = |(key, of): (Key, Candidate)| {
                let (array, at) = account.arrays.get(&key.0)?;
                Some((key, of, array.clone(), *at))
            };
            candidates.into_iter().filter_map(array).collect::<Vec<_>>()
        };
        let began = Instant::now();
        loop {
            let mut is_busy = false;
            let mut free = Vec::new();
            for (key, of, array, at) in known.iter().filter(|(key, ..)| !turned_down.contains(key))
            {
                let Some(array) = array.upgrade() else { continue };
                match array.standing(key.1, *at) {
                    Standing::Busy => is_busy = true,
                    Standing::Held => {}
                    Standing::Free { must_copy } => {
                        free.push((Candidate { must_copy, ..*of }, *key, array, *at));
                    }
                }
            }
            if free.is_empty() && is_busy && began.elapsed() < PATIENCE {
                thread::sleep(PAUSE);
                continue;
            }
            if free.is_empty() {
                return Err(self.full(wanted));
            }
            let offered: Vec<Candidate> = free.iter().map(|(of, ..)| *of).collect();
            let chosen = self.0.policy.choose(&offered);
            let Some((of, key, array, at)) = free.get(chosen) else {
                let message = format!("the policy chose candidate {chosen} of {}", offered.len());
                return Err(wanted.error(ErrorKind::InvalidArgument, message));
            };
            match array.make_room(key.1, *at, wanted.cause)? {
                Some(idle) => {
                    let mut account = self.account();
                    account.idle.push(idle);
                    account.evicted.count += 1;
                    account.evicted.bytes += of.bytes;
                }
                None => {
                    turned_down.insert(*key);
                }
            }
            return Ok(());
        }
    }

    /// Frees idle memory, and waits until no work uses it. Returns whether there was any.
    fn free_idle(&self) -> Result<bool> {
        let Some(idle) = self.account().idle.pop() else { return Ok(false) };
        let stream = self.0.device.stream_create(&Default::default())?;
        let done = idle.memory.order_before(&stream).and_then(|()| stream.record_event()?.wait());
        self.account().ledger.release(idle.bytes);
        done.map(|()| true)
    }

    fn full(&self, wanted: &Wanted) -> Error {
        let (used, limit) = (self.used(), self.limit());
        let of = limit.map_or(String::new(), |limit| format!(" of {limit}"));
        let message = format!(
            "{} bytes for part {}: {used}{of} bytes of the memory budget are in use, and no part can leave",
            wanted.bytes, wanted.part
        );
        wanted.error(ErrorKind::OutOfMemory, message).on(self.0.device.id())
    }
}

/// A part that needs memory, for an access.
pub(crate) struct Wanted {
    owner: Owner,
    part: PartId,
    /// All parts that the access needs.
    needed: Set,
    bytes: u64,
    cause: RoomCause,
}

impl Wanted {
    fn error(&self, kind: ErrorKind, message: String) -> Error {
        let RoomCause { access, call_site } = self.cause;
        let at = At(call_site).to_string();
        let at = if at.is_empty() { at } else { format!(" (access{at})") };
        Error::new(kind, access, message + &at)
    }
}

/// The part that an array takes in a budget.
pub(crate) struct Membership {
    budget: MemoryBudget,
    owner: Owner,
}

impl Membership {
    pub(crate) fn is_of(&self, budget: &MemoryBudget) -> bool {
        self.budget.is_same(budget)
    }

    /// Reserves memory for a part with `len` elements. Other parts than `needed` may leave the device. Call it without
    /// the lock of an array.
    pub(crate) fn room<T: Element>(
        &self,
        part: PartId,
        needed: Set,
        len: usize,
        cause: RoomCause,
    ) -> Result<Room<T>> {
        let Self { budget, owner } = self;
        let bytes = bytes_of::<T>(len);
        let wanted = Wanted { owner: *owner, part, needed, bytes, cause };
        let mut turned_down = BTreeSet::new();
        let reserved = loop {
            {
                let mut account = budget.account();
                if let Some(memory) = account.take_idle::<T>(len) {
                    let reserved = Reservation { budget: budget.clone(), bytes };
                    return Ok(Room { part, memory, reserved });
                }
                if account.ledger.reserve(bytes) {
                    break Reservation { budget: budget.clone(), bytes };
                }
                if let Some(idle) = account.idle.pop() {
                    account.ledger.release(idle.bytes);
                    drop(account);
                    continue;
                }
            }
            budget.evict_one(&wanted, &mut turned_down)?;
        };
        loop {
            match budget.0.device.memory_allocate::<T>(len) {
                Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                    if budget.free_idle()? {
                        continue;
                    }
                    let evicted = budget.evict_one(&wanted, &mut turned_down);
                    evicted.map_err(|full| full.with_source(error))?;
                }
                allocated => return allocated.map(|memory| Room { part, memory, reserved }),
            }
        }
    }

    /// The part has the memory from now on. Returns it.
    pub(crate) fn settle<T: Element>(&self, room: Room<T>) -> Memory<T> {
        let Room { part, memory, mut reserved } = room;
        let bytes = std::mem::take(&mut reserved.bytes);
        self.budget.account().ledger.settle((self.owner, part), bytes);
        memory
    }

    /// The part has no memory any more, which goes to the budget.
    pub(crate) fn leave(&self, part: PartId) {
        self.budget.account().ledger.leave((self.owner, part));
    }

    /// The part's memory was freed.
    pub(crate) fn free(&self, part: PartId) {
        let mut account = self.budget.account();
        let bytes = account.ledger.leave((self.owner, part));
        account.ledger.release(bytes);
    }

    /// The parts were used.
    pub(crate) fn touch(&self, parts: Set) {
        self.budget.account().ledger.touch(self.owner, parts);
    }

    pub(crate) fn set_priority(
        &self,
        part: PartId,
        priority: Priority,
        bytes: usize,
    ) -> Result<()> {
        let mut account = self.budget.account();
        let set = account.ledger.set_priority((self.owner, part), priority, bytes as u64);
        set.map_err(|kept| {
            let limit = account.ledger.limit().unwrap_or_default();
            let message = format!("{kept} bytes to keep under a memory budget of {limit}");
            let error = Error::new(ErrorKind::LimitExceeded, "set_priority", message);
            error.on(self.budget.0.device.id())
        })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut account = self.budget.account();
        account.arrays.remove(&self.owner);
        account.ledger.forget(self.owner);
    }
}

impl Account {
    /// Memory for `len` elements that other parts have left.
    fn take_idle<T: Element>(&mut self, len: usize) -> Option<Memory<T>> {
        let fits = |idle: &Idle| {
            let memory: &dyn Any = &*idle.memory;
            memory.downcast_ref::<Memory<T>>().is_some_and(|memory| memory.len() == len)
        };
        let index = self.idle.iter().position(fits)?;
        let memory: Box<dyn Any> = self.idle.swap_remove(index).memory;
        memory.downcast().ok().map(|memory| *memory)
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = self.account();
        let (used, id) = (account.ledger.used(), self.0.device.id());
        match account.ledger.limit() {
            Some(limit) => write!(f, "MemoryBudget({used} of {limit} bytes on {id})"),
            None => write!(f, "MemoryBudget({used} bytes on {id})"),
        }
    }
}

fn bytes_of<T>(len: usize) -> u64 {
    (len * size_of::<T>()) as u64
}
