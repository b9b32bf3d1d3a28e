//! Limits on the memory of arrays on a device.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use coherence::{PartId, PartSet, ReplicaId};
use parking_lot::{Mutex, MutexGuard};
use runtime_core::{Device, Element, Error, ErrorKind, Event, Memory, Result, Stream, Traffic};

use super::ledger::{Key, Ledger, Owner};
use super::policy::{Candidate, LatestNextUse, Policy};
use crate::call_site::{At, CallSite};
use crate::storage::{Before, PartMemory, User};

/// How many accesses ahead parts are copied to the device.
pub(super) const WINDOW: usize = 2;

/// A limit on the memory that arrays have on one device.
///
/// Arrays take part by [`ArrayBuffer::set_memory_budget`](crate::ArrayBuffer::set_memory_budget). Each part of such an
/// array has memory of its own on the device, from its first use there. If an access needs memory and the limit is
/// reached, or the device has none left, then parts that are not in use leave the device: the [`Policy`] chooses which.
/// Values that exist nowhere else are copied to the host first. So the arrays together may be much larger than the
/// device's memory, as long as each single access fits.
///
/// A part is in use while a guard, a lease or an exchange uses it on the device. Work that was enqueued earlier may
/// still run: its memory is used again, or freed, only after that work. If calls in other threads use all arrays whose
/// parts could leave, an access waits for them, for at most ten seconds; it holds no memory for itself while it waits.
/// If no part can leave, it returns `OutOfMemory`, and at once if its parts are larger than the limit. The message
/// names what uses the parts that stay, with the lines of its calls.
///
/// ```
/// use array_buffer::{ArrayBuffer, MemoryBudget, Partition, Parts};
/// use backend_sim::{SimConfig, SimDevice};
/// use runtime_core::Device;
///
/// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
/// let stream = device.default_stream();
/// // Four parts of 80 bytes each. Two fit.
/// let rows = |part: usize| vec![10 * part..10 * part + 10];
/// let parts: Vec<_> = (0..4).map(rows).collect();
/// let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
/// let partition = Partition::new(&[40], &parts, &[])?;
/// let budget = MemoryBudget::new(&device, 160);
/// let mut array = ArrayBuffer::<f64, ndarray::Ix1>::with_partition(partition)?;
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
pub(super) struct Account {
    pub(super) ledger: Ledger,
    pub(super) next: Owner,
    /// The arrays, and the replica on the device in each.
    pub(super) arrays: BTreeMap<Owner, (Weak<dyn Resident>, ReplicaId)>,
    /// Memory of parts that have left, which other parts can use.
    pub(super) idle: Vec<Idle>,
    pub(super) evicted: Traffic,
    /// How often making room has held a call up.
    pub(super) waits: u64,
    /// The bytes in use when the device refused memory last.
    pub(super) refused: Option<u64>,
    /// How much memory is neither free nor that of a part; see [`InTransit`].
    pub(super) in_transit: usize,
    pub(super) is_recording: bool,
    /// Set while a step is repeated.
    pub(super) ahead: Option<Arc<Ahead>>,
    /// How many bytes of the limit the repeated step leaves free for copies ahead.
    pub(super) spare: u64,
}

/// Memory that no part uses. Work may still use it.
pub(crate) struct Idle {
    pub(super) bytes: u64,
    before: Before,
    /// A `Memory` of elements of any type.
    memory: Box<dyn Any + Send>,
}

/// The memory of a part that has left a device.
pub(crate) struct Left {
    pub(crate) memory: Idle,
    /// Whether the call has waited, for instance until the values were copied to the host.
    pub(crate) waited: bool,
}

/// An array whose parts have memory under a budget.
pub(crate) trait Resident: Send + Sync {
    /// Whether a part's memory in a replica can be freed.
    fn standing(&self, part: PartId, at: ReplicaId) -> Standing;

    /// What may use a part's memory in a replica.
    fn user(&self, part: PartId, at: ReplicaId) -> Option<User>;

    /// Frees a part's memory in a replica, for an access. `None` if it is in use by now.
    fn make_room(&self, part: PartId, at: ReplicaId, cause: RoomCause) -> Result<Option<Left>>;

    /// Begins to copy a part from the host to a replica, if that is needed and a stream can do it without the host.
    /// `false` if the budget has no memory for it.
    fn fetch(&self, part: PartId, at: ReplicaId, on: &Stream, cause: RoomCause) -> Result<bool>;

    /// Begins to copy a part from a replica to the host, if a stream can do that without the host.
    fn write_back(&self, part: PartId, at: ReplicaId, on: &Stream, cause: RoomCause) -> Result<()>;
}

/// A part that could leave.
pub(super) struct Known {
    pub(super) key: Key,
    pub(super) of: Candidate,
    array: Weak<dyn Resident>,
    pub(super) at: ReplicaId,
}

impl Known {
    /// Whether the part can leave, and its array.
    pub(super) fn standing(&self) -> Option<(Standing, Arc<dyn Resident>)> {
        let array = self.array.upgrade()?;
        Some((array.standing(self.key.1, self.at), array))
    }
}

/// The streams of copies that a repeated step needs later.
pub(super) struct Ahead {
    /// Used in turn: a kernel that waits for a stream waits for all copies that are on it by then. When a part is used,
    /// later copies are on the other streams.
    pub(super) up: [Stream; WINDOW + 1],
    pub(super) down: Stream,
}

/// Whether a part's memory can be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A call in another thread uses the array, or has just let the part leave.
    Busy,
    /// A guard, a lease or an exchange uses the memory.
    Held,
    Free {
        must_copy: bool,
    },
}

/// Counts memory that is neither free nor that of a part.
pub(super) struct InTransit(MemoryBudget);

impl InTransit {
    fn new(budget: &MemoryBudget) -> Self {
        budget.account().begin_transit(budget)
    }
}

impl Drop for InTransit {
    fn drop(&mut self) {
        self.0.account().in_transit -= 1;
    }
}

impl Account {
    /// The parts that could leave, with their arrays, beside `needed` parts of `owner`.
    fn candidates(&self, owner: Owner, needed: PartSet) -> Vec<Known> {
        let array = |(key, of): (Key, Candidate)| {
            let (array, at) = self.arrays.get(&key.0)?;
            Some(Known { key, of, array: array.clone(), at: *at })
        };
        self.ledger.candidates(owner, needed).into_iter().filter_map(array).collect()
    }

    /// Memory for `len` elements that other parts have left.
    pub(super) fn take_idle<T: Element>(&mut self, len: usize) -> Option<PartMemory<T>> {
        let memory = |idle: &Idle| idle.memory.downcast_ref().map(Memory::<T>::len);
        let index = self.idle.iter().position(|idle| memory(idle) == Some(len))?;
        let Idle { before, memory, .. } = self.idle.swap_remove(index);
        memory.downcast().ok().map(|memory| PartMemory::new(*memory, before))
    }

    pub(super) fn begin_transit(&mut self, budget: &MemoryBudget) -> InTransit {
        self.in_transit += 1;
        InTransit(budget.clone())
    }
}

/// The access that needs memory.
#[derive(Clone, Copy)]
pub(crate) struct RoomCause {
    pub(crate) access: &'static str,
    pub(crate) call_site: CallSite,
    /// Whether copies for it count for limits on transfers.
    pub(crate) is_charged: bool,
}

impl Idle {
    pub(crate) fn new<T: Element>(PartMemory { memory, before, .. }: PartMemory<T>) -> Self {
        Self { bytes: bytes_of::<T>(memory.len()), before, memory: Box::new(memory) }
    }
}

impl MemoryBudget {
    /// A budget of `bytes` bytes on `device`. Its policy is [`LatestNextUse`].
    pub fn new(device: &Device, bytes: u64) -> Self {
        Self::with_policy(device, Some(bytes), LatestNextUse)
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

    /// How often accesses have waited for room: until the values of a part that left were copied to the host, until the
    /// device freed memory, or until calls in other threads let parts go.
    pub fn waits(&self) -> u64 {
        self.account().waits
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

    pub(super) fn account(&self) -> MutexGuard<'_, Account> {
        self.0.account.lock()
    }

    /// The parts that could leave, with their arrays, beside those that `wanted` needs.
    pub(super) fn candidates(&self, owner: Owner, needed: PartSet) -> Vec<Known> {
        self.account().candidates(owner, needed)
    }

    /// Tries to let one part leave, for parts that `wanted` needs. `false` if another thread uses what could help: try
    /// again. An error if all parts are in use or kept.
    pub(super) fn evict_one(&self, wanted: &Wanted<'_>) -> Result<bool> {
        let (all, mut is_busy) = {
            let account = self.account();
            // Memory that other accesses are about to get or give is that of no part.
            let is_busy = account.in_transit > wanted.held || !account.idle.is_empty();
            (account.candidates(wanted.owner, wanted.needed), is_busy)
        };
        let mut free = Vec::new();
        for known in all {
            let Some((standing, array)) = known.standing() else {
                // The array was dropped.
                is_busy = true;
                continue;
            };
            match standing {
                Standing::Busy => is_busy = true,
                Standing::Held => {}
                Standing::Free { must_copy } => {
                    free.push((Candidate { must_copy, ..known.of }, known, array));
                }
            }
        }
        let offered: Vec<Candidate> = free.iter().map(|(of, ..)| *of).collect();
        if offered.is_empty() {
            return if is_busy { Ok(false) } else { Err(self.full(wanted)) };
        }
        let chosen = self.choose(&offered, wanted.bytes);
        let Some((_, known, array)) = free.get(chosen) else {
            let message = format!("the policy chose candidate {chosen} of {}", offered.len());
            return Err(wanted.error(ErrorKind::InvalidArgument, message));
        };
        // Otherwise another thread has begun to use the part.
        self.evict(known, &**array, wanted.cause, wanted.waits)
    }

    /// The index of the part that leaves to make room for `bytes` bytes.
    ///
    /// A repeated step leaves memory free for copies ahead, so several parts of the policy's order leave soon. Of
    /// these, that part leaves now whose copy to the host began first. In a sweep, the policy's first choice is the part
    /// that was used last, and the access would wait for the work on it.
    fn choose(&self, candidates: &[Candidate], bytes: u64) -> usize {
        let excess = {
            let account = self.account();
            let ledger = &account.ledger;
            let room = ledger.limit().or(account.refused).unwrap_or(u64::MAX);
            let wanted = ledger.used().saturating_add(bytes).saturating_add(account.spare);
            wanted.saturating_sub(room)
        };
        let first = self.0.policy.choose(candidates);
        let Some(Candidate { priority, bytes, .. }) = candidates.get(first) else { return first };
        if *bytes >= excess {
            return first;
        }
        let mut leaving = vec![first];
        let mut others: Vec<usize> =
            (0..candidates.len()).filter(|index| *index != first).collect();
        let mut freed = *bytes;
        while freed < excess && !others.is_empty() {
            let offered: Vec<Candidate> = others.iter().map(|index| candidates[*index]).collect();
            let chosen = self.0.policy.choose(&offered);
            let Some(next) = offered.get(chosen).filter(|next| next.priority == *priority) else {
                break;
            };
            freed = freed.saturating_add(next.bytes);
            leaving.push(others.remove(chosen));
        }
        let soonest = leaving.into_iter().min_by_key(|index| {
            let Candidate { must_copy, last_use, .. } = candidates[*index];
            (must_copy, last_use)
        });
        soonest.unwrap_or(first)
    }

    /// Lets a part leave. Returns whether it did.
    pub(super) fn evict(
        &self,
        known: &Known,
        array: &dyn Resident,
        cause: RoomCause,
        waits: &Cell<u64>,
    ) -> Result<bool> {
        let _in_transit = InTransit::new(self);
        let Some(left) = array.make_room(known.key.1, known.at, cause)? else { return Ok(false) };
        let mut account = self.account();
        account.idle.push(left.memory);
        account.evicted.count += 1;
        account.evicted.bytes += known.of.bytes;
        drop(account);
        if left.waited {
            self.count_wait(waits);
        }
        Ok(true)
    }

    /// The device has refused memory that is reserved.
    pub(super) fn note_refusal(&self, bytes: u64) {
        let mut account = self.account();
        account.refused = Some(account.ledger.used().saturating_sub(bytes));
    }

    pub(super) fn policy(&self) -> &dyn Policy {
        &*self.0.policy
    }

    /// Counts that an access is held up.
    pub(super) fn count_wait(&self, waits: &Cell<u64>) {
        waits.update(|waits| waits + 1);
        self.account().waits += 1;
    }

    /// Frees idle memory, and waits until no work uses it. Returns whether there was any.
    pub(super) fn free_idle(&self, waits: &Cell<u64>) -> Result<bool> {
        let Some(idle) = self.account().idle.pop() else { return Ok(false) };
        self.count_wait(waits);
        let done = idle.before.iter().try_for_each(Event::wait);
        self.account().ledger.release(idle.bytes);
        done.map(|()| true)
    }
}

/// A part that needs memory, for an access.
pub(super) struct Wanted<'a> {
    pub(super) owner: Owner,
    pub(super) part: PartId,
    /// All parts that the access needs.
    pub(super) needed: PartSet,
    /// How many parts the access has got memory for already.
    pub(super) held: usize,
    pub(super) bytes: u64,
    pub(super) cause: RoomCause,
    /// Counts how often the access has waited.
    pub(super) waits: &'a Cell<u64>,
}

impl Wanted<'_> {
    pub(super) fn error(&self, kind: ErrorKind, message: String) -> Error {
        let RoomCause { access, call_site, .. } = self.cause;
        let at = At(call_site).to_string();
        let at = if at.is_empty() { at } else { format!(" (access{at})") };
        Error::new(kind, access, message + &at)
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

pub(super) fn bytes_of<T>(len: usize) -> u64 {
    (len * size_of::<T>()) as u64
}
