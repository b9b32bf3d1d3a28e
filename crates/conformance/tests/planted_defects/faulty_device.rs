//! A device that works, except for one defect.
#![expect(unsafe_code, reason = "implements the contract's unsafe traits by handing calls on")]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::mem;
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use runtime_core::contract::{
    Abilities, AcceleratorDevice, CommonRuntime, CounterSet, Counters, DeviceEvent, DeviceGate,
    DeviceGraph, DeviceKernel, DeviceLoad, DeviceMemory, DeviceModule, DevicePinned, DeviceRegions,
    DeviceStream, EventOptions, Gates, GraphCapture, HostRegistration, MemoryAdoption, MemoryAt,
    MemoryPool, Monitor, NativeInterop, PeerAccess, PinnedAt, PinnedOptions, RawArg, RawSlot,
    RegionCopyAbility, Released, UnifiedMemory, own, own_box,
};
use runtime_core::{
    DeviceInfo, Error, ErrorKind, Grid, HostModule, Launch, ModuleImage, NativeHandle, Origin,
    OriginKind, RegionProgram, Result, StreamOptions,
};

/// Longer than a thread that waits for the same stream needs to return.
const MOMENT: Duration = Duration::from_millis(20);

/// The defect of a faulty device. Unless stated otherwise, the method does nothing and reports success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    // Streams.
    MemoryCopy,
    MemoryCopyTo,
    /// No defect: copies behind a failure are skipped until the failure is taken.
    MemoryCopyToIsSkipped,
    MemoryCopyFrom,
    PinnedCopyTo,
    PinnedCopyFrom,
    /// Copies from the start of pinned memory.
    PinnedOffsetIsZero,
    /// Copies to the device wait until they are done.
    PinnedCopiesBlock,
    /// Panics when the copy is enqueued.
    PinnedCopyPanics,
    /// Panics when anything that writes device memory is enqueued.
    WritesPanic,
    /// These panic once after [`arm`], without an effect.
    RecordPanics,
    WaitPanics,
    QueryPanics,
    SynchronizePanics,
    EventWaitPanics,
    EventQueryPanics,
    MemoryFill,
    Launch,
    LaunchBlocks,
    Record,
    Wait,
    QueryIsTrue,
    QueryIsFalse,
    Synchronize,
    /// Takes the failure itself, and returns it a moment later.
    SynchronizeTakesFailures,
    FailuresAreForgotten,
    /// No defect: takes a failure, and returns it a moment later.
    FailuresAreTakenSlowly,
    FillIsTooLong,
    CopyIsShifted,
    // Gates.
    GatesHoldNothing,
    /// Opens as failed.
    GatesCannotBeOpened,
    GatesOpenByThemselves,
    /// Opens instead of failing.
    FailuresOfGatesAreLost,
    /// Returns each failure of a stream once more.
    FailuresRepeat,
    /// Holds streams up for a while even if it is open.
    OpenGatesHoldUp,
    // Events.
    EventWait,
    EventQueryIsTrue,
    EventQueryIsFalse,
    /// Waits instead of running a part of the work.
    AssistWaits,
    NoTimeElapses,
    // The device.
    DeviceSynchronize,
    /// Returns all abilities when it is first asked, and none afterwards.
    AbilitiesVanish,
    MemoryIsLeaked,
    PinnedMemoryIsLeaked,
    /// Page-locks a copy of the elements.
    RegistrationIsACopy,
    /// Never ends a registration.
    RegistrationIsKept,
    /// Overwrites the memory at once when a registration is to end later.
    RegistrationEndsAtOnce,
    /// Refuses every second registration as an invalid argument.
    RegistrationIsInvalid,
    ModulesAreLeaked,
    /// Releases everything without waiting for the streams.
    ReleasesAtOnce,
    FreeingBlocks,
    RegionsExecute,
    /// No defect: the device lacks the ability.
    RegionsAreAbsent,
    AbsentSlotsEndAll,
    FewSlots,
    MemoryInOneSlot,
    GraphLaunch,
    GraphIsUnordered,
    GraphLaunchBlocks,
    /// Panics when the work is enqueued.
    GraphLaunchPanics,
    PeerCopy,
    PeersReachNobody,
    PeersReachEverybody,
    PoolTrim,
    PoolUsesNothing,
    PoolReservesTooLittle,
    BlocksDoNotMeet,
    MonitorIsConstant,
    MonitorReportsNothing,
    CountersRead,
    CountersAreConstant,
    CountersCountReads,
    CountersHaveNoNames,
    /// Are 0 once the device was dropped.
    CountersEndWithTheDevice,
    UnifiedMemoryIsHidden,
    OwnersAreLeaked,
    OwnersAreDroppedInTheStream,
    TakenStreamIsAnother,
    TakenEventIsAnother,
    OriginIsTooShort,
    OriginOfEverything,
}

/// Forwards every call to a working device, except for the defect.
pub(crate) struct FaultyDevice {
    inner: Box<dyn AcceleratorDevice>,
    broken: Broken,
    /// The handle of the memory adopted last and its owner, if the owner is to be dropped in a stream.
    adopted: Mutex<Option<(NativeHandle, Owner)>>,
    /// Whether it was asked for its abilities.
    asked: AtomicBool,
    /// The number of registrations.
    registrations: AtomicUsize,
    /// Dropped with the device.
    open: Arc<()>,
}

type Owner = Box<dyn Any + Send + Sync>;
type Hook = Box<dyn FnOnce()>;

impl FaultyDevice {
    pub(crate) fn new(inner: impl AcceleratorDevice, broken: Broken) -> Self {
        let (adopted, asked, registrations, open) = Default::default();
        Self { inner: Box::new(inner), broken, adopted, asked, registrations, open }
    }

    fn is(&self, broken: Broken) -> bool {
        self.broken == broken
    }

    fn lacks(&self, ability: &str) -> bool {
        self.is(Broken::RegionsAreAbsent) && ability == "region_copy"
    }

    /// Drops the owner of the memory in the last stream that used it, if it is kept for that.
    fn drop_owner(&self, memory: NativeHandle, after: &[&dyn DeviceStream]) {
        let mut adopted = self.adopted.lock().expect("no panic under the lock");
        let adopted = adopted.take_if(|(adopted, _)| *adopted == memory);
        if let (Some((_, owner)), Some(last)) = (adopted, after.last()) {
            self.drop_in(*last, owner);
        }
    }

    /// Launches a kernel that drops an owner.
    fn drop_in(&self, on: &dyn DeviceStream, owner: Owner) {
        let owner = Mutex::new(Some(owner));
        let take = move |_: &Grid<'_>| {
            let taken = owner.lock().expect("no panic under the lock").take();
            drop(taken);
        };
        let module = HostModule::new().with("take", take);
        let module = self.inner.module_load(&ModuleImage::functions(&module)).expect("a module");
        let kernel = module.kernel("take").expect("the kernel");
        let on = stream(on).expect("a stream of the faulty device");
        // SAFETY: the kernel has no arguments and belongs to this device.
        unsafe { on.launch(&*kernel, &Launch::cover(1, 1), &[]) }.expect("a launch");
    }
}

thread_local! {
    /// The number of enqueues of this thread before the hook is called, and the hook.
    static HOOK: RefCell<Option<(usize, Hook)>> = RefCell::default();
}

/// Calls `hook` in this thread once, behind its copy, fill, launch or region copy with that index.
pub(crate) fn hook_behind(index: usize, hook: impl FnOnce() + 'static) {
    HOOK.set(Some((index, Box::new(hook))));
}

/// Calls the hook if its time has come.
fn enqueued() {
    match HOOK.take() {
        Some((0, hook)) => hook(),
        left => HOOK.set(left.map(|(index, hook)| (index - 1, hook))),
    }
}

struct Stream {
    inner: Box<dyn DeviceStream>,
    broken: Broken,
    /// A failure that skips copies.
    failure: Mutex<Option<Error>>,
}

struct Event {
    inner: Box<dyn DeviceEvent>,
    broken: Broken,
}

/// Counters that do not count, or that forward the call.
struct Count {
    inner: Box<dyn CounterSet>,
    broken: Broken,
    reads: u64,
    device: Weak<()>,
}

/// Unified memory that reports that the host cannot address it.
struct Hidden(Box<dyn DeviceMemory>);

fn stream(wrapped: &dyn DeviceStream) -> Result<&dyn DeviceStream> {
    own::<Stream>(wrapped, "faulty device").map(|stream| &*stream.inner)
}

fn event(wrapped: &dyn DeviceEvent) -> Result<&dyn DeviceEvent> {
    own::<Event>(wrapped, "faulty device").map(|event| &*event.inner)
}

/// If freeing should block, blocks until the streams have finished. Then unwraps the streams.
fn streams<'a>(broken: Broken, after: &[&'a dyn DeviceStream]) -> Vec<&'a dyn DeviceStream> {
    let inner: Vec<_> = after.iter().filter_map(|wrapped| stream(*wrapped).ok()).collect();
    if broken == Broken::FreeingBlocks {
        inner.iter().for_each(|stream| drop(stream.synchronize()));
    }
    inner
}

impl CommonRuntime for FaultyDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
}

// SAFETY: objects belong to the inner device, or hold such an object and forward every call. A defect leaves work out,
// or does it at other places of the same memory, or frees memory later or never. What is released early is kept by the
// work that uses it.
unsafe impl AcceleratorDevice for FaultyDevice {
    fn abilities(&self) -> Abilities<'_> {
        if self.is(Broken::AbilitiesVanish) && self.asked.swap(true, Ordering::Relaxed) {
            return Abilities::none();
        }
        let inner = self.inner.abilities();
        let mut abilities = Abilities::none();
        macro_rules! with {
            ($($ability:ident $with:ident,)*) => {$(
                if inner.$ability().is_some() && !self.lacks(stringify!($ability)) {
                    abilities = abilities.$with(self);
                }
            )*};
        }
        with! {
            region_copy with_region_copy,
            graphs with_graphs,
            peer with_peer,
            unified_memory with_unified_memory,
            memory_adoption with_memory_adoption,
            host_registration with_host_registration,
            gates with_gates,
            interop with_interop,
            memory_pool with_memory_pool,
            monitor with_monitor,
            counters with_counters,
        }
        let claims = self.is(Broken::BlocksDoNotMeet) || inner.cooperative_launch();
        if claims { abilities.with_cooperative_launch() } else { abilities }
    }

    fn native(&self) -> NativeHandle {
        self.inner.native()
    }

    fn module_load(&self, image: &ModuleImage<'_>) -> Result<Box<dyn DeviceModule>> {
        self.inner.module_load(image)
    }

    fn memory_allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        self.inner.memory_allocate(bytes)
    }

    fn pinned_allocate(
        &self,
        bytes: usize,
        options: &PinnedOptions,
    ) -> Result<Box<dyn DevicePinned>> {
        self.inner.pinned_allocate(bytes, options)
    }

    fn stream_create(&self, options: &StreamOptions) -> Result<Box<dyn DeviceStream>> {
        let inner = self.inner.stream_create(options)?;
        Ok(Box::new(Stream::new(inner, self.broken)))
    }

    fn event_create(&self, options: &EventOptions) -> Result<Box<dyn DeviceEvent>> {
        let inner = self.inner.event_create(options)?;
        Ok(Box::new(Event { inner, broken: self.broken }))
    }

    unsafe fn release(&self, object: Released, after: &[&dyn DeviceStream]) {
        let leaked = match (&object, self.broken) {
            (Released::Memory(_), Broken::MemoryIsLeaked | Broken::OwnersAreLeaked)
            | (Released::Pinned(_), Broken::PinnedMemoryIsLeaked)
            | (Released::Module(_), Broken::ModulesAreLeaked) => true,
            (Released::Memory(memory), _) => {
                RELEASED_AFTER.set(after.iter().map(|stream| stream.native()).collect());
                self.drop_owner(memory.native(), after);
                false
            }
            _ => false,
        };
        if leaked {
            return mem::forget(object);
        }
        let after = if self.is(Broken::ReleasesAtOnce) { &[] } else { after };
        // SAFETY: forwarded.
        unsafe { self.inner.release(object, &streams(self.broken, after)) }
    }

    fn synchronize(&self) -> Result<()> {
        if self.is(Broken::DeviceSynchronize) { Ok(()) } else { self.inner.synchronize() }
    }

    fn take_failure(&self) -> Option<Error> {
        self.inner.take_failure()
    }
}

// SAFETY: forwarded, or left out.
unsafe impl RegionCopyAbility for FaultyDevice {
    fn prepare(&self, program: &RegionProgram) -> Result<Box<dyn DeviceRegions>> {
        self.inner.abilities().region_copy().expect("the ability").prepare(program)
    }

    unsafe fn execute(
        &self,
        on: &dyn DeviceStream,
        regions: &dyn DeviceRegions,
        slots: &[RawSlot<'_>],
    ) -> Result<()> {
        if self.is(Broken::RegionsExecute) {
            return Ok(());
        }
        if self.is(Broken::AbsentSlotsEndAll) && slots.iter().any(|slot| slot.memory.is_none()) {
            return Ok(());
        }
        let ability = self.inner.abilities().region_copy().expect("the ability");
        let mut slots = slots.to_vec();
        if self.is(Broken::FewSlots) {
            slots.iter_mut().skip(448).for_each(|slot| slot.memory = None);
        }
        if self.is(Broken::MemoryInOneSlot) {
            let mut bound = HashSet::new();
            let again = |slot: &&mut RawSlot<'_>| {
                slot.memory.is_some_and(|memory| !bound.insert(memory.native().raw))
            };
            slots.iter_mut().filter(again).for_each(|slot| slot.memory = None);
        }
        // SAFETY: forwarded, or with slots absent.
        unsafe { ability.execute(stream(on)?, regions, &slots) }?;
        enqueued();
        panic_if(self.is(Broken::WritesPanic));
        Ok(())
    }
}

// SAFETY: forwarded, left out, or launched on a stream that does not order it.
unsafe impl GraphCapture for FaultyDevice {
    fn begin(&self) -> Result<Box<dyn DeviceStream>> {
        let inner = self.inner.abilities().graphs().expect("the ability").begin()?;
        Ok(Box::new(Stream::new(inner, self.broken)))
    }

    fn end(&self, captured: Box<dyn DeviceStream>) -> Result<Box<dyn DeviceGraph>> {
        let captured: Stream = own_box(captured, "faulty device")?;
        self.inner.abilities().graphs().expect("the ability").end(captured.inner)
    }

    unsafe fn launch(&self, graph: &mut dyn DeviceGraph, on: &dyn DeviceStream) -> Result<()> {
        let ability = self.inner.abilities().graphs().expect("the ability");
        let aside = self.inner.stream_create(&StreamOptions::default())?;
        let inner = match self.broken {
            Broken::GraphLaunch => return Ok(()),
            Broken::GraphIsUnordered => &*aside,
            _ => stream(on)?,
        };
        // SAFETY: forwarded.
        unsafe { ability.launch(graph, inner) }?;
        panic_if(self.is(Broken::GraphLaunchPanics));
        if self.is(Broken::GraphLaunchBlocks) { inner.synchronize() } else { Ok(()) }
    }
}

// SAFETY: forwarded, or left out.
unsafe impl PeerAccess for FaultyDevice {
    fn reaches(&self, other: &dyn AcceleratorDevice) -> bool {
        let any: &dyn Any = other;
        match (self.broken, any.downcast_ref::<Self>()) {
            (Broken::PeersReachNobody, _) => false,
            (Broken::PeersReachEverybody, _) => true,
            (_, Some(other)) => {
                self.inner.abilities().peer().is_some_and(|peer| peer.reaches(&*other.inner))
            }
            (_, None) => false,
        }
    }

    unsafe fn memory_copy(
        &self,
        on: &dyn DeviceStream,
        peer: &dyn AcceleratorDevice,
        src: MemoryAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        if self.is(Broken::PeerCopy) {
            return Ok(());
        }
        let ability = self.inner.abilities().peer().expect("the ability");
        let peer = &*own::<Self>(peer, "faulty device")?.inner;
        // SAFETY: forwarded.
        unsafe { ability.memory_copy(stream(on)?, peer, src, dst, bytes) }?;
        panic_if(self.is(Broken::WritesPanic));
        Ok(())
    }
}

// SAFETY: forwarded, or another stream or event that is equally valid.
unsafe impl NativeInterop for FaultyDevice {
    unsafe fn stream(&self, handle: NativeHandle) -> Result<Box<dyn DeviceStream>> {
        let ability = self.inner.abilities().interop().expect("the ability");
        let inner = match self.broken {
            Broken::TakenStreamIsAnother => self.inner.stream_create(&StreamOptions::default())?,
            // SAFETY: forwarded.
            _ => unsafe { ability.stream(handle) }?,
        };
        Ok(Box::new(Stream::new(inner, self.broken)))
    }

    unsafe fn stream_end(&self, ended: &dyn DeviceStream) {
        if let Ok(inner) = stream(ended) {
            // SAFETY: forwarded.
            unsafe { self.inner.abilities().interop().expect("the ability").stream_end(inner) };
        }
    }

    unsafe fn event(&self, handle: NativeHandle) -> Result<Box<dyn DeviceEvent>> {
        let ability = self.inner.abilities().interop().expect("the ability");
        let inner = match self.broken {
            Broken::TakenEventIsAnother => self.inner.event_create(&EventOptions::default())?,
            // SAFETY: forwarded.
            _ => unsafe { ability.event(handle) }?,
        };
        Ok(Box::new(Event { inner, broken: self.broken }))
    }

    unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>> {
        // SAFETY: forwarded.
        let origin =
            unsafe { self.inner.abilities().interop().expect("the ability").origin(handle) }?;
        let short = |mut origin: Origin| {
            origin.bytes -= 1;
            origin
        };
        let any = Origin::new(OriginKind::Device, handle.raw, 0, 1);
        Ok(match self.broken {
            Broken::OriginIsTooShort => origin.map(short),
            Broken::OriginOfEverything => origin.or(Some(any)),
            _ => origin,
        })
    }
}

/// A gate of the inner device.
struct Gate {
    inner: Box<dyn DeviceGate>,
    broken: Broken,
    /// Whether the host has opened it.
    open: AtomicBool,
    /// Another gate, for a defect.
    other: Box<dyn DeviceGate>,
}

// SAFETY: forwarded. A defect does not hold streams up, or for another time; the memory is locked.
unsafe impl Gates for FaultyDevice {
    fn create(&self) -> Result<Box<dyn DeviceGate>> {
        let ability = self.inner.abilities().gates().expect("the ability");
        let (inner, other) = (ability.create()?, ability.create()?);
        Ok(Box::new(Gate { inner, broken: self.broken, open: AtomicBool::new(false), other }))
    }
}

impl DeviceGate for Gate {
    fn hold_up(&self, on: &dyn DeviceStream) -> Result<()> {
        match self.broken {
            Broken::GatesHoldNothing => return Ok(()),
            Broken::OpenGatesHoldUp if self.open.load(Ordering::Relaxed) => {
                return self.other.hold_up(stream(on)?);
            }
            _ => {}
        }
        self.inner.hold_up(stream(on)?)?;
        if self.broken == Broken::GatesOpenByThemselves {
            self.inner.open();
        }
        Ok(())
    }

    fn open(&self) {
        self.open.store(true, Ordering::Relaxed);
        if self.broken == Broken::GatesCannotBeOpened {
            self.inner.fail()
        } else {
            self.inner.open()
        }
    }

    fn fail(&self) {
        if self.broken == Broken::FailuresOfGatesAreLost {
            self.inner.open()
        } else {
            self.inner.fail()
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.other.open();
    }
}

impl UnifiedMemory for FaultyDevice {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        let memory =
            self.inner.abilities().unified_memory().expect("the ability").allocate(bytes)?;
        Ok(if self.is(Broken::UnifiedMemoryIsHidden) { Box::new(Hidden(memory)) } else { memory })
    }
}

// SAFETY: describes the memory that it holds; no work uses it.
unsafe impl DeviceMemory for Hidden {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        None
    }

    fn native(&self) -> NativeHandle {
        self.0.native()
    }
}

impl MemoryAdoption for FaultyDevice {
    unsafe fn adopt(
        &self,
        handle: NativeHandle,
        bytes: usize,
        owner: Owner,
    ) -> Result<Box<dyn DeviceMemory>> {
        let owner = match self.broken {
            Broken::OwnersAreDroppedInTheStream => {
                *self.adopted.lock().expect("no panic under the lock") = Some((handle, owner));
                Box::new(())
            }
            _ => owner,
        };
        // SAFETY: forwarded; an owner that is kept here outlives the use of the memory.
        unsafe {
            self.inner
                .abilities()
                .memory_adoption()
                .expect("the ability")
                .adopt(handle, bytes, owner)
        }
    }
}

// SAFETY: forwarded. Memory that is a copy is pinned memory. A registration that does not end keeps its owner. Memory
// that is overwritten too early is still there, and the copies of it have not begun.
unsafe impl HostRegistration for FaultyDevice {
    unsafe fn register(&self, first: NonNull<u8>, bytes: usize) -> Result<Box<dyn DevicePinned>> {
        let number = self.registrations.fetch_add(1, Ordering::Relaxed);
        if self.is(Broken::RegistrationIsInvalid) && number % 2 == 1 {
            return Err(Error::new(ErrorKind::InvalidArgument, "register", "on purpose"));
        }
        if self.is(Broken::RegistrationIsACopy) {
            let copy = self.inner.pinned_allocate(bytes, &PinnedOptions::default())?;
            // SAFETY: both have as many bytes.
            unsafe { copy.ptr().copy_from_nonoverlapping(first.as_ptr(), bytes) };
            return Ok(copy);
        }
        let ability = self.inner.abilities().host_registration().expect("the ability");
        // SAFETY: forwarded.
        unsafe { ability.register(first, bytes) }
    }

    unsafe fn unregister(
        &self,
        memory: Box<dyn DevicePinned>,
        after: &[&dyn DeviceStream],
        owner: Owner,
    ) {
        if self.is(Broken::RegistrationIsKept) {
            return mem::forget((memory, owner));
        }
        if self.is(Broken::RegistrationEndsAtOnce) && !after.is_empty() {
            // SAFETY: the owner keeps the memory, and the copies wait for work before them.
            unsafe { memory.ptr().write_bytes(0xDD, memory.len()) };
        }
        let ability = self.inner.abilities().host_registration().expect("the ability");
        // SAFETY: forwarded.
        unsafe { ability.unregister(memory, &streams(self.broken, after), owner) }
    }
}

impl MemoryPool for FaultyDevice {
    fn reserved_bytes(&self) -> usize {
        let pool = self.inner.abilities().memory_pool().expect("the ability");
        if self.is(Broken::PoolReservesTooLittle) { 1 } else { pool.reserved_bytes() }
    }

    fn used_bytes(&self) -> usize {
        let pool = self.inner.abilities().memory_pool().expect("the ability");
        if self.is(Broken::PoolUsesNothing) { 0 } else { pool.used_bytes() }
    }

    fn trim(&self, keep_bytes: usize) -> Result<()> {
        let pool = self.inner.abilities().memory_pool().expect("the ability");
        if self.is(Broken::PoolTrim) { Ok(()) } else { pool.trim(keep_bytes) }
    }
}

impl Monitor for FaultyDevice {
    fn load(&self) -> Result<DeviceLoad> {
        let monitor = self.inner.abilities().monitor().expect("the ability");
        match self.broken {
            Broken::MonitorReportsNothing => Ok(DeviceLoad::default()),
            Broken::MonitorIsConstant => Ok(DeviceLoad::default().with_memory(1 << 20, 0)),
            _ => monitor.load(),
        }
    }
}

impl Counters for FaultyDevice {
    fn names(&self) -> Vec<String> {
        let counters = self.inner.abilities().counters().expect("the ability");
        if self.is(Broken::CountersHaveNoNames) { Vec::new() } else { counters.names() }
    }

    fn open(&self, names: &[&str]) -> Result<Box<dyn CounterSet>> {
        let inner = self.inner.abilities().counters().expect("the ability").open(names)?;
        Ok(Box::new(Count {
            inner,
            broken: self.broken,
            reads: 0,
            device: Arc::downgrade(&self.open),
        }))
    }
}

impl CounterSet for Count {
    fn read(&mut self, values: &mut [u64]) -> Result<()> {
        self.reads += 1;
        match self.broken {
            Broken::CountersRead => {}
            Broken::CountersAreConstant => values.fill(7),
            Broken::CountersCountReads => values.fill(self.reads),
            Broken::CountersEndWithTheDevice if self.device.strong_count() == 0 => values.fill(0),
            _ => return self.inner.read(values),
        }
        Ok(())
    }
}

impl Stream {
    fn new(inner: Box<dyn DeviceStream>, broken: Broken) -> Self {
        Self { inner, broken, failure: Mutex::default() }
    }

    /// Whether a copy is skipped because work before it has failed.
    fn skips(&self) -> Result<bool> {
        if self.broken != Broken::MemoryCopyToIsSkipped {
            return Ok(false);
        }
        self.inner.synchronize()?;
        let mut failure = self.failure.lock().expect("no panic under the lock");
        *failure = failure.take().or_else(|| self.inner.take_failure());
        Ok(failure.is_some())
    }

    /// Does the work, unless the defect leaves it out.
    fn unless(&self, broken: Broken, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.broken == broken { Ok(()) } else { work() }
    }

    fn write(&self, broken: Broken, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.unless(broken, work)?;
        enqueued();
        panic_if(self.broken == Broken::WritesPanic);
        Ok(())
    }
}

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static RELEASED_AFTER: RefCell<Vec<NativeHandle>> = const { RefCell::new(Vec::new()) };
}

/// The streams after which this thread released memory last.
pub(crate) fn released_after() -> Vec<NativeHandle> {
    RELEASED_AFTER.take()
}

/// Lets the next call of a method that panics once panic, or no longer.
pub(crate) fn arm(armed: bool) {
    ARMED.set(armed);
}

fn panic_once(broken: bool) {
    panic_if(broken && ARMED.take());
}

fn panic_if(broken: bool) {
    if broken {
        resume_unwind(Box::new("on purpose"));
    }
}

// SAFETY: forwarded, left out, or done at other places of the same memory.
unsafe impl DeviceStream for Stream {
    unsafe fn memory_copy(
        &self,
        mut src: MemoryAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        src.offset -= usize::from(self.broken == Broken::CopyIsShifted && src.offset > 0);
        self.write(Broken::MemoryCopy, || {
            // SAFETY: forwarded.
            unsafe { self.inner.memory_copy(src, dst, bytes) }
        })
    }

    unsafe fn memory_copy_to(&self, dst: MemoryAt<'_>, src: &[u8]) -> Result<()> {
        let skips = self.skips()?;
        self.write(Broken::MemoryCopyTo, || {
            if skips {
                return Ok(());
            }
            // SAFETY: forwarded.
            unsafe { self.inner.memory_copy_to(dst, src) }
        })
    }

    unsafe fn memory_copy_from(&self, src: MemoryAt<'_>, dst: &mut [u8]) -> Result<()> {
        self.unless(Broken::MemoryCopyFrom, || {
            // SAFETY: forwarded.
            unsafe { self.inner.memory_copy_from(src, dst) }
        })?;
        enqueued();
        Ok(())
    }

    unsafe fn pinned_copy_to(
        &self,
        mut src: PinnedAt<'_>,
        dst: MemoryAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        if self.broken == Broken::PinnedOffsetIsZero {
            src.offset = 0;
        }
        self.write(Broken::PinnedCopyTo, || {
            // SAFETY: forwarded.
            unsafe { self.inner.pinned_copy_to(src, dst, bytes) }
        })?;
        if self.broken == Broken::PinnedCopiesBlock { self.inner.synchronize() } else { Ok(()) }
    }

    unsafe fn pinned_copy_from(
        &self,
        src: MemoryAt<'_>,
        dst: PinnedAt<'_>,
        bytes: usize,
    ) -> Result<()> {
        self.unless(Broken::PinnedCopyFrom, || {
            // SAFETY: forwarded.
            unsafe { self.inner.pinned_copy_from(src, dst, bytes) }
        })?;
        enqueued();
        panic_if(self.broken == Broken::PinnedCopyPanics);
        Ok(())
    }

    unsafe fn memory_fill(&self, dst: MemoryAt<'_>, bytes: usize, pattern: &[u8]) -> Result<()> {
        let room = dst.offset + bytes + pattern.len() <= dst.object.len();
        let too_long = self.broken == Broken::FillIsTooLong && room;
        let bytes = bytes + if too_long { pattern.len() } else { 0 };
        self.write(Broken::MemoryFill, || {
            // SAFETY: forwarded; a longer range is still inside the memory.
            unsafe { self.inner.memory_fill(dst, bytes, pattern) }
        })
    }

    unsafe fn launch(
        &self,
        kernel: &dyn DeviceKernel,
        launch: &Launch,
        args: &[RawArg<'_>],
    ) -> Result<()> {
        self.write(Broken::Launch, || {
            // SAFETY: forwarded.
            unsafe { self.inner.launch(kernel, launch, args) }
        })?;
        if self.broken == Broken::LaunchBlocks { self.inner.synchronize() } else { Ok(()) }
    }

    fn record(&self, marked: &dyn DeviceEvent) -> Result<()> {
        panic_once(self.broken == Broken::RecordPanics);
        self.unless(Broken::Record, || self.inner.record(event(marked)?))
    }

    fn wait(&self, marked: &dyn DeviceEvent) -> Result<()> {
        panic_once(self.broken == Broken::WaitPanics);
        self.unless(Broken::Wait, || self.inner.wait(event(marked)?))
    }

    fn query(&self) -> Result<bool> {
        panic_once(self.broken == Broken::QueryPanics);
        match self.broken {
            Broken::QueryIsTrue => Ok(true),
            Broken::QueryIsFalse => Ok(false),
            _ => self.inner.query(),
        }
    }

    fn synchronize(&self) -> Result<()> {
        panic_once(self.broken == Broken::SynchronizePanics);
        self.unless(Broken::Synchronize, || self.inner.synchronize())?;
        if self.broken != Broken::SynchronizeTakesFailures {
            return Ok(());
        }
        self.inner.take_failure().map_or(Ok(()), |failure| {
            thread::sleep(MOMENT);
            Err(failure)
        })
    }

    fn take_failure(&self) -> Option<Error> {
        let kept = self.failure.lock().expect("no panic under the lock").take();
        let failure = kept
            .or_else(|| self.inner.take_failure())
            .filter(|_| self.broken != Broken::FailuresAreForgotten);
        if let (Some(failure), Broken::FailuresRepeat) = (&failure, self.broken)
            && failure.operation() != "again"
        {
            let again = Error::new(failure.kind(), "again", "the same failure");
            *self.failure.lock().expect("no panic under the lock") = Some(again);
        }
        if failure.is_some() && self.broken == Broken::FailuresAreTakenSlowly {
            thread::sleep(MOMENT);
        }
        failure
    }

    fn native(&self) -> NativeHandle {
        self.inner.native()
    }
}

// SAFETY: the defect breaks the promise of the event, which is what the test is about. Memory that is read too early is
// nevertheless valid and initialised.
unsafe impl DeviceEvent for Event {
    fn wait(&self) -> Result<()> {
        panic_once(self.broken == Broken::EventWaitPanics);
        if self.broken == Broken::EventWait { Ok(()) } else { self.inner.wait() }
    }

    fn assist(&self) {
        if self.broken == Broken::AssistWaits {
            let _waited = self.inner.wait();
        }
        self.inner.assist();
    }

    fn query(&self) -> Result<bool> {
        panic_once(self.broken == Broken::EventQueryPanics);
        match self.broken {
            Broken::EventQueryIsTrue => Ok(true),
            Broken::EventQueryIsFalse => Ok(false),
            _ => self.inner.query(),
        }
    }

    fn elapsed_since(&self, earlier: &dyn DeviceEvent) -> Result<Duration> {
        match self.broken {
            Broken::NoTimeElapses => Ok(Duration::ZERO),
            _ => self.inner.elapsed_since(event(earlier)?),
        }
    }

    fn native(&self) -> NativeHandle {
        self.inner.native()
    }
}
