//! Limits on the memory of arrays on a device.

mod ledger;
mod policy;

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use runtime_core::{
    Device, Element, Error, ErrorKind, Memory, Result, Stream, StreamOptions, Traffic,
};

pub use policy::{Candidate, LatestNextUse, LeastRecentlyUsed, Policy, Priority};

use crate::call_site::{At, CallSite};
use crate::coherence::{PartId, ReplicaId, Set};
use ledger::{Key, Ledger, Missing, Owner, Use};

/// How long an access waits for calls in other threads that use all parts that could leave.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many accesses ahead parts are copied to the device.
const WINDOW: usize = 2;
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
    is_recording: bool,
    /// Set while a step is repeated.
    ahead: Option<Arc<Ahead>>,
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

    /// Whether a stream can copy a part from the host to a replica without the host.
    fn can_fetch(&self, part: PartId, at: ReplicaId) -> bool;

    /// Begins to copy a part from the host to a replica, if the budget has memory for it. Returns whether it had.
    fn fetch(&self, part: PartId, at: ReplicaId, on: &Stream, cause: RoomCause) -> Result<bool>;

    /// Begins to copy a part from a replica to the host, if a stream can do that without the host.
    fn write_back(&self, part: PartId, at: ReplicaId, on: &Stream, cause: RoomCause) -> Result<()>;
}

/// A part that could leave.
struct Known {
    key: Key,
    of: Candidate,
    array: Weak<dyn Resident>,
    at: ReplicaId,
}

impl Known {
    /// Whether the part can leave, and its array.
    fn standing(&self) -> Option<(Standing, Arc<dyn Resident>)> {
        let array = self.array.upgrade()?;
        Some((array.standing(self.key.1, self.at), array))
    }
}

/// The streams of copies that a repeated step needs later.
struct Ahead {
    /// Used in turn: a kernel that waits for a stream waits for all copies that are on it by then. When a part is used,
    /// later copies are on the other streams.
    up: [Stream; WINDOW + 1],
    down: Stream,
}

/// A recording of uses: see [`MemoryBudget::record`].
#[must_use = "the recording ends when this is dropped"]
#[derive(Debug)]
pub struct Recording {
    budget: MemoryBudget,
}

impl Recording {
    /// Ends the recording.
    pub fn finish(self) -> RecordedStep {
        let uses = self.budget.account().ledger.record(false).unwrap_or_default();
        RecordedStep { budget: self.budget.clone(), uses: uses.into() }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut account = self.budget.account();
        account.ledger.record(false);
        account.is_recording = false;
    }
}

/// The uses of parts in a step of a program, in their order: see [`MemoryBudget::repeat`].
///
/// A use is an access to a part on the budget's device. A step knows arrays, and not variables: if a program swaps two
/// arrays after each step, record two steps as one.
#[derive(Clone)]
pub struct RecordedStep {
    budget: MemoryBudget,
    uses: Arc<[Use]>,
}

impl RecordedStep {
    /// The number of uses.
    pub fn len(&self) -> usize {
        self.uses.len()
    }

    /// Whether no part was used.
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }
}

impl fmt::Debug for RecordedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordedStep({} uses)", self.len())
    }
}

/// The time in which a step is repeated: see [`MemoryBudget::repeat`].
#[must_use = "the step is no longer expected when this is dropped"]
#[derive(Debug)]
pub struct Repeat {
    budget: MemoryBudget,
}

impl Drop for Repeat {
    fn drop(&mut self) {
        let ahead = {
            let mut account = self.budget.account();
            account.ledger.repeat(None);
            account.ahead.take()
        };
        drop(ahead);
    }
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

enum Reserved<T: Element> {
    Memory(Memory<T>, Reservation),
    Bytes(Reservation),
}

/// The limit is reached.
struct Full;

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

    /// Memory for `len` elements that other parts have left, or the right to allocate as much.
    fn reserve<T: Element>(&self, len: usize) -> Result<Reserved<T>, Full> {
        let bytes = bytes_of::<T>(len);
        let reserved = || Reservation { budget: self.clone(), bytes };
        loop {
            let mut account = self.account();
            if let Some(memory) = account.take_idle::<T>(len) {
                return Ok(Reserved::Memory(memory, reserved()));
            }
            if account.ledger.reserve(bytes) {
                return Ok(Reserved::Bytes(reserved()));
            }
            let Some(idle) = account.idle.pop() else { return Err(Full) };
            account.ledger.release(idle.bytes);
            // Freed without the lock.
            drop(account);
            drop(idle);
        }
    }

    /// Begins to record which parts are used, until [`Recording::finish`].
    ///
    /// # Errors
    ///
    /// `Conflict` while another recording goes on.
    pub fn record(&self) -> Result<Recording> {
        let mut account = self.account();
        if account.is_recording {
            return Err(Error::new(ErrorKind::Conflict, "record", "a recording goes on already"));
        }
        account.is_recording = true;
        account.ledger.record(true);
        Ok(Recording { budget: self.clone() })
    }

    /// Until the result is dropped, the program is expected to use the same parts in the same order as in the step, again
    /// and again. The default [policy](LatestNextUse) then lets the parts leave that are used latest.
    ///
    /// For arrays whose host memory is [page-locked](crate::ArrayBuffer::page_lock), each access also begins to copy the
    /// part that will be missing next to the device, and the values of the part that will leave next to the host. These
    /// copies are on streams of their own. So they run while the device computes.
    ///
    /// Every value is right in any case: other uses than expected only cost time.
    ///
    /// ```
    /// # use array_buffer::{ArrayBuffer, MemoryBudget};
    /// # fn sweep() -> array_buffer::Result<()> { Ok(()) }
    /// # fn example(budget: &MemoryBudget) -> array_buffer::Result<()> {
    /// let recording = budget.record()?;
    /// sweep()?;
    /// let step = recording.finish();
    /// let _expected = budget.repeat(&step)?;
    /// for _ in 1..100 {
    ///     sweep()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Conflict` while another step is repeated. `InvalidArgument` for the step of another budget. Errors of making the
    /// streams.
    pub fn repeat(&self, step: &RecordedStep) -> Result<Repeat> {
        if !self.is_same(&step.budget) {
            let message = "a step that was recorded with another budget";
            return Err(Error::new(ErrorKind::InvalidArgument, "repeat", message));
        }
        let make = || self.0.device.stream_create(&StreamOptions::default());
        let ahead = Arc::new(Ahead { up: [make()?, make()?, make()?], down: make()? });
        let mut account = self.account();
        if account.ahead.is_some() {
            return Err(Error::new(ErrorKind::Conflict, "repeat", "a step is repeated already"));
        }
        account.ahead = Some(ahead);
        account.ledger.repeat(Some(Arc::clone(&step.uses)));
        Ok(Repeat { budget: self.clone() })
    }

    /// The parts that could leave, with their arrays, beside those that `wanted` needs.
    fn candidates(&self, owner: Owner, needed: Set) -> Vec<Known> {
        let account = self.account();
        let candidates = account.ledger.candidates(owner, needed);
        let array = |(key, of): (Key, Candidate)| {
            let (array, at) = account.arrays.get(&key.0)?;
            Some(Known { key, of, array: array.clone(), at: *at })
        };
        candidates.into_iter().filter_map(array).collect()
    }

    /// Lets one part leave, for parts that `owner` needs.
    fn evict_one(&self, wanted: &Wanted, turned_down: &mut BTreeSet<Key>) -> Result<()> {
        let known = self.candidates(wanted.owner, wanted.needed);
        let began = Instant::now();
        loop {
            let mut is_busy = false;
            let mut free = Vec::new();
            for known in known.iter().filter(|known| !turned_down.contains(&known.key)) {
                let Some((standing, array)) = known.standing() else { continue };
                match standing {
                    Standing::Busy => is_busy = true,
                    Standing::Held => {}
                    Standing::Free { must_copy } => {
                        free.push((Candidate { must_copy, ..known.of }, known, array));
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
            let Some((_, known, array)) = free.get(chosen) else {
                let message = format!("the policy chose candidate {chosen} of {}", offered.len());
                return Err(wanted.error(ErrorKind::InvalidArgument, message));
            };
            if !self.evict(known, &**array, wanted.cause)? {
                turned_down.insert(known.key);
            }
            return Ok(());
        }
    }

    /// Lets a part leave. Returns whether it did.
    fn evict(&self, known: &Known, array: &dyn Resident, cause: RoomCause) -> Result<bool> {
        let Some(idle) = array.make_room(known.key.1, known.at, cause)? else { return Ok(false) };
        let mut account = self.account();
        account.idle.push(idle);
        account.evicted.count += 1;
        account.evicted.bytes += known.of.bytes;
        Ok(true)
    }

    /// Begins the copies that the repeated step needs next. An access on `needed` parts of `owner` is about to begin.
    fn look_ahead(&self, owner: Owner, needed: Set, cause: RoomCause) -> Result<()> {
        let (ahead, missing) = {
            let account = self.account();
            let Some(ahead) = &account.ahead else { return Ok(()) };
            let array = |of: Missing| {
                let (array, at) = account.arrays.get(&of.key.0)?;
                Some((of, array.upgrade()?, *at))
            };
            let missing = account.ledger.missing(WINDOW).into_iter();
            (Arc::clone(ahead), missing.filter_map(array).collect::<Vec<_>>())
        };
        // Otherwise nothing has to leave.
        let Some((first, ..)) = missing.first() else { return Ok(()) };
        let is_later = |known: &Known, than: u64| known.of.next_use.is_none_or(|of| of > than);
        let mut later = self.candidates(owner, needed);
        later.retain(|known| is_later(known, first.next_use));
        later.sort_by_key(|known| Reverse(known.of.next_use.unwrap_or(u64::MAX)));
        let offers = |known| Some((known, Known::standing(known)?));
        let offered: Vec<_> = later.iter().filter_map(offers).collect();
        let free = |must_copy: bool| {
            let free = Standing::Free { must_copy };
            offered.iter().filter(move |(_, (standing, _))| *standing == free)
        };
        // The values of the next part to leave go to the host before its memory is needed.
        if let Some((known, (_, victim))) = free(true).next() {
            victim.write_back(known.key.1, known.at, &ahead.down, cause)?;
        }
        let mut victims = free(false);
        for (of, array, at) in missing {
            let up = &ahead.up[of.access % ahead.up.len()];
            while array.can_fetch(of.key.1, at) && !array.fetch(of.key.1, at, up, cause)? {
                match victims.next() {
                    Some((known, (_, victim))) if is_later(known, of.next_use) => {
                        self.evict(known, &**victim, cause)?;
                    }
                    _ => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Frees idle memory, and waits until no work uses it. Returns whether there was any.
    fn free_idle(&self) -> Result<bool> {
        let Some(idle) = self.account().idle.pop() else { return Ok(false) };
        let stream = self.0.device.stream_create(&StreamOptions::default())?;
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
            match budget.reserve::<T>(len) {
                Ok(Reserved::Memory(memory, reserved)) => {
                    return Ok(Room { part, memory, reserved });
                }
                Ok(Reserved::Bytes(reserved)) => break reserved,
                Err(Full) => budget.evict_one(&wanted, &mut turned_down)?,
            }
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

    /// As `room`, but lets no part leave. `None` if there is no memory.
    pub(crate) fn free_room<T: Element>(
        &self,
        part: PartId,
        len: usize,
    ) -> Result<Option<Room<T>>> {
        let (memory, reserved) = match self.budget.reserve::<T>(len) {
            Ok(Reserved::Memory(memory, reserved)) => (memory, reserved),
            Ok(Reserved::Bytes(reserved)) => match self.budget.0.device.memory_allocate(len) {
                Ok(memory) => (memory, reserved),
                Err(error) if error.kind() == ErrorKind::OutOfMemory => return Ok(None),
                Err(error) => return Err(error),
            },
            Err(Full) => return Ok(None),
        };
        Ok(Some(Room { part, memory, reserved }))
    }

    /// Begins copies that a repeated step needs later. An access on `needed` parts is about to begin.
    pub(crate) fn look_ahead(&self, needed: Set, cause: RoomCause) -> Result<()> {
        self.budget.look_ahead(self.owner, needed, cause)
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

    /// The parts are used; `reads` says whether their values are needed. Returns whether a step is repeated.
    pub(crate) fn touch(&self, parts: Set, reads: bool) -> bool {
        let mut account = self.budget.account();
        account.ledger.touch(self.owner, parts, reads);
        account.ahead.is_some()
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
