//! The state that streams, events and handles share with a simulated device.
#![expect(unsafe_code, reason = "takes host memory that the program allocated")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use backend_support::{Block, Event};
use runtime_core::Result;

use crate::alive::Alive;
use crate::codes;
use crate::counts::Tally;
use crate::fault::{Fate, FaultPlan};
use crate::link::Link;
use crate::memory::{Pool, SimMemory, SimPinned};
use crate::timing::{Lane, Timing};
use crate::{Operation, SimConfig};

/// The shared state of a device.
#[derive(Debug)]
pub(crate) struct OpenDevice {
    pub(crate) config: SimConfig,
    index: usize,
    group: Arc<Group>,
    lost: AtomicBool,
    pub(crate) faults: FaultPlan,
    pub(crate) pool: Arc<Pool>,
    streams: AtomicU64,
    /// The live objects that native handles can refer to.
    pub(crate) lanes: Alive<Lane>,
    pub(crate) events: Alive<Event>,
    pub(crate) blocks: Alive<Block>,
    pub(crate) unified: Alive<Block>,
    pub(crate) pinned: Alive<Block>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) link: Link,
}

/// Devices that can reach each other: those of one backend. Not of size zero, so that each group has its own address.
#[derive(Debug, Default)]
pub(crate) struct Group {
    _address: u8,
}

impl OpenDevice {
    pub(crate) fn new(index: usize, config: SimConfig, group: &Arc<Group>) -> Self {
        Self {
            index,
            group: Arc::clone(group),
            lost: AtomicBool::new(false),
            faults: FaultPlan::new(&config.faults),
            pool: Pool::new(config.memory_bytes),
            streams: AtomicU64::new(0),
            lanes: Alive::default(),
            events: Alive::default(),
            blocks: Alive::default(),
            unified: Alive::default(),
            pinned: Alive::default(),
            tally: Arc::default(),
            link: Link::new(config.link),
            config,
        }
    }

    /// The timing of the next stream.
    pub(crate) fn next_timing(&self) -> Timing {
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        Timing::new(self.config.seed, self.index, number, self.config.jitter)
    }

    /// Loses the device now.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Refuses every call on a lost device.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if self.is_lost() { Err(codes::device_lost(operation)) } else { Ok(()) }
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn is_peer_of(&self, other: &Self) -> bool {
        self.config.peers && other.config.peers && Arc::ptr_eq(&self.group, &other.group)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Counts an operation and makes it fail at once if that is planned.
    pub(crate) fn begin(&self, operation: Operation) -> Result<Fate> {
        self.check("enqueue")?;
        match self.faults.next(operation) {
            Fate::Fail(operation, nth) => Err(Fate::error(operation, nth)),
            Fate::Lose => {
                self.lose();
                Err(codes::device_lost("enqueue"))
            }
            fate => Ok(fate),
        }
    }

    /// Performs an operation with its planned fate, unless the device was lost in the meantime.
    pub(crate) fn carry_out(&self, fate: Fate, work: impl FnOnce() -> Result<()>) -> Result<()> {
        match fate {
            Fate::FailLate(operation, nth) if !self.is_lost() => {
                return Err(Fate::error(operation, nth));
            }
            Fate::Run(time) => self.hang(time),
            _ => {}
        }
        if self.is_lost() { Ok(()) } else { work() }
    }

    /// Waits for `time`, but returns early if the device is lost.
    fn hang(&self, time: Duration) {
        let began = Instant::now();
        while let Some(left) = time.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            if self.is_lost() {
                return;
            }
            thread::sleep(left.min(Duration::from_millis(5)));
        }
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<SimMemory> {
        let memory = self.allocate_with("memory_allocate", bytes)?;
        memory.note_in(&self.blocks);
        Ok(memory)
    }

    /// Allocates memory that the host can address.
    pub(crate) fn allocate_unified(&self, bytes: usize) -> Result<SimMemory> {
        let memory = self.allocate_with("unified_allocate", bytes)?.unify();
        memory.note_in(&self.unified);
        Ok(memory)
    }

    fn allocate_with(&self, operation: &'static str, bytes: usize) -> Result<SimMemory> {
        self.check(operation)?;
        self.plan_allocation(bytes)?;
        let memory = self.pool.allocate(bytes)?;
        self.tally.add(|counts| counts.allocations += 1);
        Ok(memory)
    }

    pub(crate) fn allocate_pinned(&self, bytes: usize) -> Result<SimPinned> {
        self.check("pinned_allocate")?;
        self.plan_allocation(bytes)?;
        let memory = SimPinned::allocate(bytes)?;
        memory.note_in(&self.pinned);
        self.tally.add(|counts| counts.pinned_allocations += 1);
        Ok(memory)
    }

    /// Page-locks host memory.
    ///
    /// # Safety
    ///
    /// As [`HostRegistration::register`](runtime_core::contract::HostRegistration::register).
    pub(crate) unsafe fn register(&self, first: NonNull<u8>, bytes: usize) -> Result<SimPinned> {
        self.check("register")?;
        self.plan_allocation(bytes)?;
        // SAFETY: the caller guarantees the bytes.
        let memory = unsafe { SimPinned::registered(first, bytes) };
        memory.note_in(&self.pinned);
        self.tally.add(|counts| counts.registrations += 1);
        Ok(memory)
    }

    /// Makes an allocation fail if that is planned, and again when it is retried.
    fn plan_allocation(&self, bytes: usize) -> Result<()> {
        if self.pool.is_refused_again(bytes) {
            return Err(codes::out_of_memory(
                "allocate",
                format!("{bytes} bytes fail as planned, again"),
            ));
        }
        let failed = match self.begin(Operation::Allocation) {
            Ok(Fate::FailLate(operation, nth)) => Err(Fate::error(operation, nth)),
            fate => fate,
        };
        if failed.is_err() {
            self.pool.refuse(bytes);
        }
        failed.map(drop)
    }
}
