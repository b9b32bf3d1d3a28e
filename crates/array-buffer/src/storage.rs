//! The memory of an array: host memory, and memory on devices.
#![expect(unsafe_code, reason = "host memory is shared out by part, which no slice can express")]

use std::any::Any;
use std::cell::UnsafeCell;
use std::mem;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use coherence::{HOST, PartId, PartSet, REPLICAS, ReplicaId};
use ndarray::{Array, ArrayView, ArrayViewMut, Dimension, Shape, ShapeBuilder, StrideShape};
use parking_lot::Mutex;
use runtime_core::contract::prefer_huge_pages;
use runtime_core::{
    ConversionError, Device, Element, Error, ErrorKind, Event, Memory, MemoryView, MemoryViewMut,
    NativeHandle, NativeKind, Owner, Pinned, Result, Stream, Support, bytemuck,
};
use smallvec::SmallVec;

use crate::Partition;
use crate::call_site::CallSite;

/// Elements in host memory, at a fixed address.
struct HostBytes<T: Element> {
    first: NonNull<T>,
    len: usize,
    holder: Holder<T>,
}

/// The elements of one part in host memory, which are read or written in order. It keeps the memory.
pub(crate) struct HostRows<T: Element> {
    bytes: Arc<HostBytes<T>>,
    partition: Partition,
    part: PartId,
    /// The contiguous runs that are left after the current one.
    left: Option<std::vec::IntoIter<Range<usize>>>,
    now: Range<usize>,
}

impl<T: Element> HostRows<T> {
    /// The number of elements of the part.
    pub(crate) fn len(&self) -> usize {
        self.partition.len(self.part)
    }

    /// Whether the memory has an owner that is dropped with it.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.bytes.holder, Holder::Foreign(_))
    }

    /// The next contiguous elements, at most `most`.
    fn next(&mut self, most: usize) -> Option<(NonNull<T>, usize)> {
        let (partition, part) = (&self.partition, self.part);
        let left =
            self.left.get_or_insert_with(|| partition.runs(part).collect::<Vec<_>>().into_iter());
        while self.now.is_empty() {
            self.now = left.next()?;
        }
        let (start, len) = (self.now.start, most.min(self.now.len()));
        self.now.start += len;
        debug_assert!(start + len <= self.bytes.len);
        // SAFETY: inside the elements, because the partition says so.
        Some((unsafe { self.bytes.first.add(start) }, len))
    }

    /// Copies the next elements to `to`.
    ///
    /// # Safety
    ///
    /// `to` has room for them. No other code writes the elements meanwhile.
    pub(crate) unsafe fn read(&mut self, to: *mut T, len: usize) {
        let mut done = 0;
        while let Some((from, count)) = (done < len).then(|| self.next(len - done)).flatten() {
            // SAFETY: the caller promises it.
            unsafe { from.as_ptr().copy_to_nonoverlapping(to.wrapping_add(done), count) };
            done += count;
        }
    }

    /// Copies the next elements from `from`.
    ///
    /// # Safety
    ///
    /// `from` has as many elements. No other code uses the elements meanwhile.
    pub(crate) unsafe fn write(&mut self, from: *const T, len: usize) {
        let mut done = 0;
        while let Some((to, count)) = (done < len).then(|| self.next(len - done)).flatten() {
            // SAFETY: the caller promises it.
            unsafe { to.as_ptr().copy_from_nonoverlapping(from.wrapping_add(done), count) };
            done += count;
        }
    }
}

/// What keeps elements in host memory alive.
enum Holder<T: Element> {
    /// This array, as a vector of this capacity.
    Vector(usize),
    /// Memory that is page-locked for a device. It may have another owner.
    PageLocked(Pinned<T>),
    /// The lender, for longer than this value lives.
    Lender,
    Foreign(#[expect(dead_code, reason = "is only dropped")] Owner<Box<dyn Any + Send + Sync>>),
    /// Nothing; the elements were moved out.
    Gone,
}

// SAFETY: the elements are owned, or lent exclusively for longer than this value lives; they are `Send` themselves.
unsafe impl<T: Element> Send for HostBytes<T> {}
// SAFETY: shared access is to disjoint elements or read-only; the coherence state ensures this.
unsafe impl<T: Element> Sync for HostBytes<T> {}

impl<T: Element> HostBytes<T> {
    fn owned(elements: Vec<T>) -> Self {
        let mut elements = mem::ManuallyDrop::new(elements);
        let first = NonNull::new(elements.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Self { first, len: elements.len(), holder: Holder::Vector(elements.capacity()) }
    }

    fn page_locked(elements: Pinned<T>) -> Self {
        let (first, len) = (elements.host_ptr(), elements.len());
        Self { first, len, holder: Holder::PageLocked(elements) }
    }

    /// Returns the elements, if they are an owned vector.
    fn take(&mut self) -> Option<Vec<T>> {
        let Holder::Vector(capacity) = self.holder else { return None };
        self.holder = Holder::Gone;
        // SAFETY: these are the parts of a vector that was taken apart, and no other code uses them from now on.
        Some(unsafe { Vec::from_raw_parts(self.first.as_ptr(), self.len, capacity) })
    }

    /// As [`take`](Self::take), or as a vector made of page-locked memory, if the copies on it can be waited for.
    fn unlock(&mut self) -> Option<Vec<T>> {
        let Holder::PageLocked(_) = self.holder else { return self.take() };
        let Holder::PageLocked(locked) = mem::replace(&mut self.holder, Holder::Gone) else {
            return None;
        };
        let unlocked = locked.into_vec().map_err(ConversionError::into_inner);
        unlocked.map_err(|locked| self.holder = Holder::PageLocked(locked)).ok()
    }
}

impl<T: Element> Drop for HostBytes<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The storage of one array. Each replica is made when it is first needed, and keeps its address until it is evicted.
pub(crate) struct Storage<T: Element> {
    len: usize,
    host: Slot<Arc<HostBytes<T>>>,
    /// Memory on devices; the first entry is for a device that works in host memory.
    memories: [Slot<Box<Memory<T>>>; REPLICAS],
    /// The memory of replicas whose parts have memory of their own; few arrays have any.
    divided: OnceLock<Box<[OnceLock<Divided<T>>; REPLICAS]>>,
}

/// A replica whose parts have memory of their own, contiguous and in the order of the array. The memory of a part can
/// be freed while others are in use.
pub(crate) struct Divided<T: Element> {
    memories: Box<[Slot<Box<PartMemory<T>>>]>,
    users: Arc<Users>,
}

/// Memory for one part.
pub(crate) struct PartMemory<T: Element> {
    pub(crate) memory: Memory<T>,
    /// The ends of the work of other parts, which had the memory before.
    pub(crate) before: Before,
    /// The end of a copy to the host that waits for all other work on the memory. `None` if there may be other work
    /// since.
    copied: Mutex<Option<Event>>,
}

impl<T: Element> PartMemory<T> {
    pub(crate) fn new(memory: Memory<T>, before: Before) -> Self {
        Self { memory, before, copied: Mutex::default() }
    }
}

/// The ends of work on memory.
pub(crate) type Before = SmallVec<[Event; 2]>;

/// The guards, leases and exchanges that may use parts' memory.
#[derive(Default)]
struct Users(Mutex<List>);

#[derive(Default)]
struct List {
    next: u64,
    all: Vec<(u64, PartSet, User)>,
}

/// A guard, a lease or an exchange.
#[derive(Clone, Copy)]
pub(crate) struct User {
    pub(crate) what: &'static str,
    pub(crate) access: &'static str,
    pub(crate) call_site: CallSite,
}

impl Users {
    fn add(users: &Arc<Self>, set: PartSet, user: User) -> Hold {
        let mut list = users.0.lock();
        let number = list.next;
        list.next += 1;
        list.all.push((number, set, user));
        drop(list);
        Hold(Box::new(Held { users: Arc::clone(users), number, set, user }))
    }
}

/// Keeps the memory of some parts on a device. It borrows nothing, so that a guard's borrow ends with its last use.
/// It is one pointer, because most guards have none.
pub(crate) struct Hold(Box<Held>);

struct Held {
    users: Arc<Users>,
    /// That of the entry in the list.
    number: u64,
    set: PartSet,
    user: User,
}

impl Hold {
    /// The same for a lease or an exchange.
    pub(crate) fn by(self, what: &'static str) -> Self {
        let Held { users, set, user, .. } = &*self.0;
        Users::add(users, *set, User { what, ..*user })
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        let Held { users, set, user, .. } = &*self.0;
        Users::add(users, *set, *user)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.users.0.lock().all.retain(|(number, ..)| *number != self.number);
    }
}

impl<T: Element> Divided<T> {
    fn slot(&self, part: PartId) -> &Slot<Box<PartMemory<T>>> {
        &self.memories[usize::from(part)]
    }

    fn known(&self, part: PartId) -> Result<&PartMemory<T>> {
        self.slot(part).get().map(|known| &**known).ok_or_else(|| {
            let message = format!("part {part} has no memory");
            Error::new(ErrorKind::InvalidArgument, "array", message)
        })
    }

    pub(crate) fn memory(&self, part: PartId) -> Result<&Memory<T>> {
        self.known(part).map(|known| &known.memory)
    }

    /// The end of a copy to the host after which all work on the part's memory is done, if there is one.
    pub(crate) fn copied(&self, part: PartId) -> Option<Event> {
        self.known(part).ok()?.copied.lock().clone()
    }

    /// All work on the part's memory is done at the end of a copy to the host, until it is used again. `None`: it is
    /// about to be used. Under the state's lock.
    pub(crate) fn set_copied(&self, part: PartId, end: Option<Event>) {
        if let Ok(known) = self.known(part) {
            *known.copied.lock() = end;
        }
    }

    /// Makes a stream wait for the work of other parts that had the part's memory before.
    pub(crate) fn wait_for_others(&self, part: PartId, stream: &Stream) -> Result<()> {
        self.known(part)?.before.iter().try_for_each(|end| stream.wait(end))
    }

    pub(crate) fn view_mut(&self, part: PartId) -> Result<MemoryViewMut<'_, T>> {
        let memory = self.memory(part)?;
        // SAFETY: as for `Storage::view_mut`.
        Ok(unsafe { memory.view_mut_shared() })
    }

    pub(crate) fn has_memory(&self, part: PartId) -> bool {
        self.slot(part).get().is_some()
    }

    /// Gives the part memory. It has none.
    pub(crate) fn set(&self, part: PartId, memory: PartMemory<T>) {
        self.slot(part).set(Box::new(memory));
    }

    /// Takes the part's memory.
    ///
    /// # Safety
    ///
    /// No other code uses the memory.
    pub(crate) unsafe fn take(&self, part: PartId) -> Option<PartMemory<T>> {
        // SAFETY: the caller promises it.
        unsafe { self.slot(part).take() }.map(|memory| *memory)
    }

    /// Holds the memory of some parts for a user, under the state's lock.
    pub(crate) fn hold(&self, set: PartSet, user: User) -> Hold {
        set.iter().for_each(|part| self.set_copied(part, None));
        Users::add(&self.users, set, user)
    }

    /// Whether anything may use the part's memory.
    pub(crate) fn is_held(&self, part: PartId) -> bool {
        self.user(part).is_some()
    }

    /// The first of those that may use the part's memory.
    pub(crate) fn user(&self, part: PartId) -> Option<User> {
        let list = self.users.0.lock();
        list.all.iter().find(|(_, set, _)| set.contains(part)).map(|(.., user)| *user)
    }
}

/// A value that is made once, and can be taken out again.
struct Slot<V>(UnsafeCell<OnceLock<V>>);

// SAFETY: users share the cell as a lock that is set once; `take` needs that there are no other users.
unsafe impl<V: Send + Sync> Sync for Slot<V> {}

impl<V> Default for Slot<V> {
    fn default() -> Self {
        Self(UnsafeCell::new(OnceLock::new()))
    }
}

impl<V> Slot<V> {
    #[inline]
    fn cell(&self) -> &OnceLock<V> {
        // SAFETY: only `take` borrows the content exclusively. Its caller promises that no other code uses it
        // meanwhile.
        unsafe { &*self.0.get() }
    }

    #[inline]
    fn get(&self) -> Option<&V> {
        self.cell().get()
    }

    /// Sets the value. An empty slot is expected.
    fn set(&self, value: V) {
        let kept = self.cell().set(value);
        debug_assert!(kept.is_ok(), "the slot is empty");
    }

    /// Takes the value out.
    ///
    /// # Safety
    ///
    /// No other code uses the slot or a reference to its value meanwhile.
    unsafe fn take(&self) -> Option<V> {
        // SAFETY: the caller promises it.
        unsafe { &mut *self.0.get() }.take()
    }
}

impl<T: Element> Storage<T> {
    /// Storage without a replica.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for more than six dimensions, or for more bytes than the address space has.
    pub(crate) fn new(partition: &Partition) -> Result<Self> {
        // Each view makes the layout again later. That cannot fail: this layout fits, and it is the largest one.
        let len = partition.memory_len::<T>()?;
        Ok(Self {
            len,
            host: Slot::default(),
            memories: Default::default(),
            divided: OnceLock::new(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Takes ownership of elements in the order of the array.
    pub(crate) fn adopt_host(&self, elements: Vec<T>) {
        self.host.set(Arc::new(HostBytes::owned(elements)));
    }

    /// Uses elements that the caller lends.
    ///
    /// # Safety
    ///
    /// The elements are `len` in number and in the order of the array. No other code uses them before this storage is
    /// gone. After that, nothing that was made from this storage uses them.
    pub(crate) unsafe fn borrow_host(&self, first: NonNull<T>) {
        let bytes = HostBytes { first, len: self.len(), holder: Holder::Lender };
        self.host.set(Arc::new(bytes));
    }

    /// Uses elements that `owner` keeps alive.
    ///
    /// # Safety
    ///
    /// The elements are `len` in number and in the order of the array. Until `owner` is dropped, any other use of them
    /// is ordered with this storage.
    pub(crate) unsafe fn adopt_host_of(
        &self,
        first: NonNull<T>,
        owner: Box<dyn Any + Send + Sync>,
    ) {
        let holder = Holder::Foreign(Owner::new(owner));
        let bytes = HostBytes { first, len: self.len(), holder };
        self.host.set(Arc::new(bytes));
    }

    pub(crate) fn adopt_memory(&self, at: ReplicaId, memory: Memory<T>) {
        self.memories[usize::from(at)].set(Box::new(memory));
    }

    /// Page-locks the host's elements, if there are any. If `device` cannot lock them where they are, moves them to
    /// page-locked memory, unless they have another owner.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`. For elements of another owner, those of [`Device::pinned_adopt`].
    ///
    /// # Safety
    ///
    /// No other code uses the host's replica meanwhile.
    pub(crate) unsafe fn page_lock(&self, device: &Device) -> Result<()> {
        let Some(bytes) = self.host.get() else { return Ok(()) };
        if let Holder::Lender | Holder::Foreign(_) = bytes.holder {
            let (first, len, bytes) = (bytes.first, bytes.len, Arc::clone(bytes));
            // SAFETY: `bytes` keeps the elements, which are initialised. The state orders all uses of them.
            let locked = unsafe { device.pinned_adopt(first, len, bytes) }?;
            // SAFETY: the caller says that no other code uses the replica.
            unsafe { self.host.take() };
            self.host.set(Arc::new(HostBytes::page_locked(locked)));
            return Ok(());
        }
        // SAFETY: the same.
        let locked = match unsafe { self.lock_in_place(device) } {
            Some(locked) => locked,
            None => {
                let mut locked = device.pinned_allocate::<T>(self.len)?;
                // SAFETY: the same.
                unsafe { self.read_host(0, locked.as_mut_slice()?) }?;
                // SAFETY: the same.
                unsafe { self.host.take() };
                locked
            }
        };
        self.host.set(Arc::new(HostBytes::page_locked(locked)));
        Ok(())
    }

    /// Ends the page-locking of elements that a caller lends. They are unlocked when this returns.
    ///
    /// # Errors
    ///
    /// Those of [`Pinned::end`].
    ///
    /// # Safety
    ///
    /// No other code uses the host's replica any more.
    pub(crate) unsafe fn end_lock(&self) -> Result<()> {
        if self.page_locked().is_err() {
            return Ok(());
        }
        // SAFETY: the caller promises it.
        let bytes = unsafe { self.host.take() };
        // The state makes no other reference to page-locked memory.
        match bytes
            .and_then(Arc::into_inner)
            .map(|mut bytes| mem::replace(&mut bytes.holder, Holder::Gone))
        {
            Some(Holder::PageLocked(locked)) => locked.end(),
            _ => Err(lost(HOST)),
        }
    }

    /// Takes the host's elements and page-locks them where they are, if the device can.
    ///
    /// # Safety
    ///
    /// As `page_lock`.
    unsafe fn lock_in_place(&self, device: &Device) -> Option<Pinned<T>> {
        if device.capabilities().host_registration == Support::Absent {
            return None;
        }
        // SAFETY: the caller promises it.
        let elements = unsafe { self.take_owned() }?;
        let refused = match device.pin_vec(elements) {
            Ok(locked) => return Some(locked),
            Err(refused) => refused,
        };
        let (elements, error) = refused.into_parts();
        tracing::debug!(%error, "the host's elements are copied to be page-locked");
        self.adopt_host(elements);
        None
    }

    /// Whether the host has a replica that is not page-locked.
    pub(crate) fn is_ordinary(&self) -> bool {
        self.host.get().is_some_and(|bytes| !matches!(bytes.holder, Holder::PageLocked(_)))
    }

    /// The elements of a part in the host's replica, which is no memory of a device.
    pub(crate) fn host_rows(&self, partition: &Partition, part: PartId) -> Result<HostRows<T>> {
        let bytes = self.host.get().map(Arc::clone).ok_or_else(|| lost(HOST))?;
        Ok(HostRows { bytes, partition: partition.clone(), part, left: None, now: 0..0 })
    }

    /// The host's replica, if it is page-locked.
    pub(crate) fn page_locked(&self) -> Result<&Pinned<T>> {
        match self.host.get().map(|bytes| &bytes.holder) {
            Some(Holder::PageLocked(elements)) => Ok(elements),
            _ => Err(lost(HOST)),
        }
    }

    /// Makes the replica if it does not exist. `device` is the replica's device. The host's replica has one if a device
    /// works in host memory; otherwise it is page-locked for `lock`.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub(crate) fn ensure(
        &self,
        at: ReplicaId,
        device: Option<&Device>,
        lock: Option<&Device>,
    ) -> Result<()> {
        let memory = &self.memories[usize::from(at)];
        if memory.get().is_some() || (at == HOST && self.host.get().is_some() && device.is_none()) {
            return Ok(());
        }
        match device {
            None => {
                let locked = lock.map(|device| device.pinned_allocate(self.len));
                let bytes = match locked {
                    Some(Ok(elements)) => HostBytes::page_locked(elements),
                    Some(Err(error)) => {
                        tracing::warn!(%error, "the host's replica is not page-locked");
                        HostBytes::owned(zeroed(self.len)?)
                    }
                    None => HostBytes::owned(zeroed(self.len)?),
                };
                self.host.set(Arc::new(bytes));
            }
            Some(device) if at == HOST => match self.host.get() {
                Some(bytes) => self.adopt_memory(at, share(bytes, device)?),
                None => {
                    let memory = match device.unified_memory() {
                        Some(unified) => unified.allocate(self.len())?,
                        None => device.memory_allocate(self.len())?,
                    };
                    self.adopt_memory(at, memory);
                }
            },
            Some(device) => self.adopt_memory(at, device.memory_allocate(self.len())?),
        }
        Ok(())
    }

    /// Frees a replica's memory.
    ///
    /// # Safety
    ///
    /// No other code uses the replica.
    pub(crate) unsafe fn evict(&self, at: ReplicaId) {
        // SAFETY: the caller promises it.
        unsafe { self.memories[usize::from(at)].take() };
        if at == HOST {
            // SAFETY: the same.
            unsafe { self.host.take() };
        }
    }

    /// Whether the host has elements that are no vector of this array.
    pub(crate) fn is_foreign(&self) -> bool {
        self.host.get().is_some_and(|bytes| !matches!(bytes.holder, Holder::Vector(_)))
    }

    /// Makes `memory`, which has `len` elements that the host can address, the host's replica. Copies the host's
    /// elements to it if they are `needed`. They stay until [`end_unify`](Self::end_unify).
    ///
    /// # Safety
    ///
    /// No other code uses the host's replica meanwhile.
    pub(crate) unsafe fn begin_unify(&self, memory: Memory<T>, needed: bool) {
        let bytes = self.host.get().filter(|_| needed);
        if let (Some(bytes), Some(target)) = (bytes, memory.host_ptr()) {
            // SAFETY: both have `len` elements and are separate. No other code uses either.
            unsafe { bytes.first.as_ptr().copy_to_nonoverlapping(target.as_ptr(), self.len) };
        }
        self.adopt_memory(HOST, memory);
    }

    /// Frees the host's former elements, or, if the change is not `kept`, the memory that was to take their place.
    ///
    /// # Safety
    ///
    /// As `begin_unify`.
    pub(crate) unsafe fn end_unify(&self, kept: bool) {
        if kept {
            // SAFETY: the caller promises it.
            drop(unsafe { self.host.take() });
        } else {
            // SAFETY: the same.
            drop(unsafe { self.memories[usize::from(HOST)].take() });
        }
    }

    /// Gives each part of a replica memory of its own from now on. The replica has no memory yet.
    pub(crate) fn divide(&self, at: ReplicaId, parts: usize) {
        let divided = Divided {
            memories: (0..parts).map(|_| Slot::default()).collect(),
            users: Arc::default(),
        };
        let kept = self.divided.get_or_init(Default::default)[usize::from(at)].set(divided);
        debug_assert!(kept.is_ok(), "a replica is divided once");
    }

    /// The memory of a replica whose parts have memory of their own.
    #[inline]
    pub(crate) fn divided(&self, at: ReplicaId) -> Option<&Divided<T>> {
        self.divided.get()?[usize::from(at)].get()
    }

    /// Whether the replica has memory.
    pub(crate) fn has_memory(&self, at: ReplicaId) -> bool {
        self.memories[usize::from(at)].get().is_some()
    }

    pub(crate) fn memory(&self, at: ReplicaId) -> Result<&Memory<T>> {
        self.memories[usize::from(at)].get().map(|memory| &**memory).ok_or_else(|| lost(at))
    }

    /// Moves the memory out.
    ///
    /// # Safety
    ///
    /// No other code uses the replica.
    pub(crate) unsafe fn take_memory(&self, at: ReplicaId) -> Result<Memory<T>> {
        // SAFETY: the caller promises it.
        let taken = unsafe { self.memories[usize::from(at)].take() };
        taken.map(|memory| *memory).ok_or_else(|| lost(at))
    }

    /// Moves the host's elements out, as an array of the same order. Copies only if this array does not own them, if a
    /// device still holds them, or if there are gaps between them.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, if the elements must be copied; nothing is moved then.
    ///
    /// # Safety
    ///
    /// No other code uses the host's replica, and work on it has finished.
    pub(crate) unsafe fn take_array<D: Dimension>(
        &self,
        shape: &D,
        partition: &Partition,
    ) -> Result<Array<T, D>> {
        if self.len() > partition.volume() {
            let mut copy = zeroed::<T>(partition.volume())?;
            // SAFETY: the caller promises that work on it has finished.
            let view = unsafe { self.host_view(shape, partition, None) }?;
            copy.iter_mut().zip(view).for_each(|(copy, value)| *copy = *value);
            // SAFETY: these are all elements of the array, in row-major order.
            return Ok(unsafe { Array::from_shape_vec_unchecked(shape.clone(), copy) });
        }
        // SAFETY: the caller promises it.
        let elements = match unsafe { self.take_owned() } {
            Some(elements) => elements,
            None => {
                let mut copy = zeroed::<T>(self.len())?;
                // SAFETY: the caller promises that work on it has finished.
                unsafe { self.read_host(0, &mut copy) }?;
                copy
            }
        };
        let (shape, _) = boxed(shape, partition, None);
        // SAFETY: these are all elements of the array, without gaps, and the strides are those of their order.
        Ok(unsafe { Array::from_shape_vec_unchecked(shape, elements) })
    }

    /// # Safety
    ///
    /// As `take_array`.
    unsafe fn take_owned(&self) -> Option<Vec<T>> {
        // SAFETY: the caller promises it.
        let bytes = unsafe { self.host.take() }?;
        // A device that works on these elements releases its hold.
        // SAFETY: the same.
        drop(unsafe { self.memories[usize::from(HOST)].take() });
        // Otherwise a device releases the elements a little later.
        let kept = match Arc::try_unwrap(bytes) {
            Ok(mut bytes) => match bytes.unlock() {
                Some(elements) => return Some(elements),
                None => Arc::new(bytes),
            },
            Err(bytes) => bytes,
        };
        self.host.set(kept);
        None
    }

    /// A whole replica on a device, as a one-dimensional view.
    #[inline]
    pub(crate) fn view(&self, at: ReplicaId) -> Result<MemoryView<'_, T>> {
        Ok(self.memory(at)?.view())
    }

    /// A whole replica on a device, to write, as a one-dimensional view.
    #[inline]
    pub(crate) fn view_mut(&self, at: ReplicaId) -> Result<MemoryViewMut<'_, T>> {
        let memory = self.memory(at)?;
        // SAFETY: no slice of the memory is ever made. The state keeps parts that host guards point to away from users
        // of this view. Host guards wait for work that was enqueued on their parts.
        Ok(unsafe { memory.view_mut_shared() })
    }

    /// The address of the host's elements.
    pub(crate) fn host_ptr(&self) -> Result<NonNull<T>> {
        match (self.memories[usize::from(HOST)].get(), self.host.get()) {
            (Some(memory), _) => memory.host_ptr().ok_or_else(|| lost(HOST)),
            (None, Some(bytes)) => Ok(bytes.first),
            (None, None) => Err(lost(HOST)),
        }
    }

    /// Reads the elements `start..start + out.len()` of the host's replica.
    ///
    /// # Safety
    ///
    /// No other code writes them meanwhile.
    pub(crate) unsafe fn read_host(&self, start: usize, out: &mut [T]) -> Result<()> {
        let first = self.host_ptr()?;
        debug_assert!(start + out.len() <= self.len());
        // SAFETY: inside the replica, because the caller's partition says so.
        let source = unsafe { first.add(start) };
        // SAFETY: initialised elements, which `out` cannot overlap.
        unsafe { source.as_ptr().copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Writes elements of the host's replica, starting at `start`.
    ///
    /// # Safety
    ///
    /// No other code uses them meanwhile.
    pub(crate) unsafe fn write_host(&self, start: usize, source: &[T]) -> Result<()> {
        let first = self.host_ptr()?;
        debug_assert!(start + source.len() <= self.len());
        // SAFETY: inside the replica, because the caller's partition says so.
        let target = unsafe { first.add(start) };
        // SAFETY: as in `read_host`.
        unsafe { target.as_ptr().copy_from_nonoverlapping(source.as_ptr(), source.len()) };
        Ok(())
    }

    /// A copy of the host's replica with the elements of some runs, and zeros elsewhere.
    ///
    /// # Safety
    ///
    /// No other code writes those elements meanwhile.
    pub(crate) unsafe fn host_copy(
        &self,
        mut runs: impl Iterator<Item = Range<usize>>,
    ) -> Result<Vec<T>> {
        let mut copy = zeroed::<T>(self.len())?;
        // SAFETY: the caller promises it.
        runs.try_for_each(|run| unsafe { self.read_host(run.start, &mut copy[run]) })?;
        Ok(copy)
    }

    /// Returns a box of the host's replica, or all of it.
    ///
    /// # Safety
    ///
    /// While the view lives, no other code writes the box.
    // Always inlined, as is `host_view_mut`: a call would return the view in memory, which costs as much as the access.
    #[inline(always)]
    pub(crate) unsafe fn host_view<'a, D: Dimension>(
        &'a self,
        shape: &D,
        partition: &Partition,
        ranges: Option<&[Range<usize>]>,
    ) -> Result<ArrayView<'a, T, D>> {
        if ranges.is_none() && partition.is_row_major() {
            let first = self.host_ptr()?.as_ptr();
            // SAFETY: the whole replica, initialised and row-major.
            return Ok(unsafe { ArrayView::from_shape_ptr(shape.clone(), first) });
        }
        let (shape, start) = boxed(shape, partition, ranges);
        // SAFETY: inside the replica: ranges were checked against the shape.
        let first = unsafe { self.host_ptr()?.add(start) };
        // SAFETY: initialised elements of the box, with the array's strides.
        Ok(unsafe { ArrayView::from_shape_ptr(shape, first.as_ptr()) })
    }

    /// Returns a box of the host's replica, or all of it, to write.
    ///
    /// # Safety
    ///
    /// While the view lives, no other code uses the box.
    #[inline(always)]
    pub(crate) unsafe fn host_view_mut<'a, D: Dimension>(
        &'a self,
        shape: &D,
        partition: &Partition,
        ranges: Option<&[Range<usize>]>,
    ) -> Result<ArrayViewMut<'a, T, D>> {
        if ranges.is_none() && partition.is_row_major() {
            let first = self.host_ptr()?.as_ptr();
            // SAFETY: as above.
            return Ok(unsafe { ArrayViewMut::from_shape_ptr(shape.clone(), first) });
        }
        let (shape, start) = boxed(shape, partition, ranges);
        // SAFETY: as above.
        let first = unsafe { self.host_ptr()?.add(start) };
        // SAFETY: as above.
        Ok(unsafe { ArrayViewMut::from_shape_ptr(shape, first.as_ptr()) })
    }
}

/// The shape with strides, and the first element, of a box of an array, or of all of it. An empty box begins at the
/// first element, and has the strides of an empty array.
fn boxed<D: Dimension>(
    shape: &D,
    partition: &Partition,
    ranges: Option<&[Range<usize>]>,
) -> (StrideShape<D>, usize) {
    let (mut extents, mut strides) = (shape.clone(), shape.clone());
    strides.slice_mut().copy_from_slice(partition.strides());
    let mut start = 0;
    for (dim, range) in ranges.unwrap_or_default().iter().enumerate() {
        extents[dim] = range.len();
        start += range.start * strides[dim];
    }
    let is_empty = extents.slice().contains(&0);
    let extents = Shape::from(extents);
    if is_empty { (extents.into(), 0) } else { (extents.strides(strides), start) }
}

/// The host's elements as memory of a device that works in host memory.
fn share<T: Element>(bytes: &Arc<HostBytes<T>>, device: &Device) -> Result<Memory<T>> {
    let raw = bytes.first.as_ptr().expose_provenance();
    let handle = NativeHandle { api: device.native().api, kind: NativeKind::Pointer, raw };
    // SAFETY: initialised elements that live as long as the reference passed here; the state orders all uses.
    unsafe { device.memory_adopt(handle, bytes.len, Arc::clone(bytes)) }
}

/// Returns zeroed elements; a request that is too large is an error.
pub(crate) fn zeroed<T: Element>(len: usize) -> Result<Vec<T>> {
    let mut elements = bytemuck::try_zeroed_vec(len).map_err(|()| {
        let message = format!("{len} elements of {} in host memory", T::DTYPE);
        Error::new(ErrorKind::OutOfMemory, "allocate", message)
    })?;
    prefer_huge_pages(NonNull::from(elements.as_mut_slice()).cast(), len * size_of::<T>());
    Ok(elements)
}

fn lost(at: ReplicaId) -> Error {
    Error::new(ErrorKind::InvalidArgument, "array", format!("replica {at} has no memory"))
}
