//! The engine: devices, their contexts, and everything that lives in them.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::code::{Code, Result};
use crate::config::Config;
use crate::context::Context;
use crate::event::Event;
use crate::fault::{Class, Fate, FaultPlan};
use crate::graph::{Capture, CaptureMode, Executable, Graph};
use crate::kernel::{Function, Module};
use crate::pool::{Budget, Pool};
use crate::report::{Entry, Report};
use crate::shared::Shared;
use crate::space::{Allocation, Space};
use crate::stream::Stream;
use crate::table::Table;

/// Devices in host memory, and a driver of them that is strict.
///
/// Objects are named by handles: numbers that are never used twice. Calls that CUDA and HIP bind to a current context take
/// it as an argument. What a call enqueues is done later by the thread of its stream.
#[derive(Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    devices: Vec<Device>,
    pub(crate) contexts: Table<Context>,
    pub(crate) streams: Table<Stream>,
    pub(crate) events: Table<Event>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Table<Function>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) executables: Table<Executable>,
    pub(crate) pools: Table<Pool>,
    pub(crate) captures: Mutex<Vec<Arc<Capture>>>,
    /// Handles of default streams, by context, and by thread where each has its own.
    pub(crate) defaults: Mutex<HashMap<(u64, Option<ThreadId>), u64>>,
    /// Streams that were destroyed, perhaps before their work was over.
    pub(crate) closing: Mutex<Vec<Arc<Stream>>>,
    numbers: Mutex<u64>,
}

/// The part of a device's memory that its driver keeps.
const KEPT_SHARE: usize = 64;

/// One device.
#[derive(Debug)]
struct Device {
    budget: Arc<Budget>,
    /// Handle of its default pool.
    pool: u64,
    primary: Mutex<Option<Primary>>,
}

/// The context of a device, and how often it was retained.
#[derive(Debug)]
struct Primary {
    context: Arc<Context>,
    retains: usize,
}

impl Engine {
    /// New devices.
    ///
    /// # Errors
    ///
    /// A message, when the plan of faults is none or the addresses are not to be had.
    pub fn new(config: Config) -> Result<Self, String> {
        let faults = FaultPlan::parse(&config.faults)?;
        let space = Space::new(config.devices, config.alignment)
            .map_err(|_| format!("no addresses for {} devices", config.devices))?;
        let pools = Table::new("memory pool", 7);
        let device = |ordinal| {
            let budget = Arc::new(Budget::new(config.memory));
            // As on a real device, some of it is never to be had.
            let _kept = budget.take(config.memory / KEPT_SHARE);
            let (pool, _) = pools.insert_with(|handle| Pool::new(ordinal, handle, &budget, true));
            Device { budget, pool, primary: Mutex::default() }
        };
        let devices = (0..config.devices).map(device).collect();
        let (report, host) = (Report::default(), Mutex::default());
        Ok(Self {
            shared: Arc::new(Shared { config, faults, report, space, host }),
            devices,
            contexts: Table::new("context", 0),
            streams: Table::new("stream", 1),
            events: Table::new("event", 2),
            modules: Table::new("module", 3),
            functions: Table::new("function", 4),
            graphs: Table::new("graph", 5),
            executables: Table::new("executable graph", 6),
            pools,
            captures: Mutex::default(),
            defaults: Mutex::default(),
            closing: Mutex::default(),
            numbers: Mutex::new(0),
        })
    }

    /// As it was made.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Bytes of memory of a device that are free.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn free_memory(&self, device: usize) -> Result<usize> {
        Ok(self.device(device)?.budget.free())
    }

    /// Handle of the pool that a device has from the first.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn default_pool(&self, device: usize) -> Result<u64> {
        Ok(self.device(device)?.pool)
    }

    pub(crate) fn budget(&self, device: usize) -> Result<Arc<Budget>> {
        Ok(Arc::clone(&self.device(device)?.budget))
    }

    fn device(&self, device: usize) -> Result<&Device> {
        self.devices.get(device).ok_or(Code::INVALID_DEVICE)
    }

    /// Retains the context of a device, and returns its handle.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn retain(&self, device: usize) -> Result<u64> {
        let slot = &mut *self.device(device)?.primary.lock();
        let primary = slot.get_or_insert_with(|| self.new_primary(device));
        primary.retains += 1;
        Ok(primary.context.handle())
    }

    /// The context of a device, retained once and for all by the first call: for drivers whose programs know of none.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn primary(&self, device: usize) -> Result<Arc<Context>> {
        let slot = &mut *self.device(device)?.primary.lock();
        let primary =
            slot.get_or_insert_with(|| Primary { retains: 1, ..self.new_primary(device) });
        Ok(Arc::clone(&primary.context))
    }

    fn new_primary(&self, device: usize) -> Primary {
        Primary { context: self.new_context(device), retains: 0 }
    }

    fn new_context(&self, device: usize) -> Arc<Context> {
        self.contexts.insert_with(|handle| Context::new(device, handle)).1
    }

    /// Makes a context beside the primary one, and returns its handle.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn context_create(&self, device: usize) -> Result<u64> {
        self.device(device)?;
        Ok(self.new_context(device).handle())
    }

    /// Ends a context that a program made, and all that lives in it.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_CONTEXT`] for what is none, or a primary one.
    pub fn context_destroy(&self, handle: u64) -> Result<()> {
        let context = self.context(handle)?;
        let slot = self.device(context.device())?.primary.lock();
        if slot.as_ref().is_some_and(|primary| Arc::ptr_eq(&primary.context, &context)) {
            return Err(Code::INVALID_CONTEXT);
        }
        drop(slot);
        self.end(&context);
        Ok(())
    }

    /// Ends a context. Memory of pools is no part of it.
    fn end(&self, context: &Arc<Context>) {
        self.empty(context, |memory| memory.pool().is_none());
        let _gone = self.contexts.remove(context.handle());
    }

    /// Releases the context of a device. The last release ends all that lives in it, except for memory of pools.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`], or [`Code::INVALID_CONTEXT`] if it was not retained.
    pub fn release(&self, device: usize) -> Result<()> {
        let slot = &mut *self.device(device)?.primary.lock();
        let primary = slot.as_mut().ok_or(Code::INVALID_CONTEXT)?;
        primary.retains -= 1;
        if primary.retains == 0 {
            self.end(&primary.context);
            *slot = None;
        }
        Ok(())
    }

    /// Ends all that lives in the context of a device, and its pools, failures included. Whoever retained it still has it.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn reset(&self, device: usize) -> Result<()> {
        if let Some(primary) = &*self.device(device)?.primary.lock() {
            primary.context.stop().store(true, std::sync::atomic::Ordering::Release);
            self.empty(&primary.context, |_| true);
            let here = |pool: &Pool| pool.device == device;
            self.pools.all().iter().filter(|pool| here(pool)).for_each(|pool| pool.trim(0));
            self.pools.take(|pool| here(pool) && !pool.is_default);
            primary.context.renew();
        }
        Ok(())
    }

    /// Whether the context of a device is retained.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn is_active(&self, device: usize) -> Result<bool> {
        Ok(self.device(device)?.primary.lock().is_some())
    }

    /// The context of a handle.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_CONTEXT`].
    pub fn context(&self, handle: u64) -> Result<Arc<Context>> {
        self.contexts.get(handle).map_err(|why| {
            self.shared.report.violation("bad handle", why);
            Code::INVALID_CONTEXT
        })
    }

    /// The object of a handle; a bad one is a violation.
    pub(crate) fn find<T>(&self, table: &Table<T>, handle: u64) -> Result<Arc<T>> {
        table.get(handle).map_err(|why| self.bad_handle(why))
    }

    /// As [`find`](Self::find), and the handle names it no longer.
    pub(crate) fn forget<T>(&self, table: &Table<T>, handle: u64) -> Result<Arc<T>> {
        table.remove(handle).map_err(|why| self.bad_handle(why))
    }

    fn bad_handle(&self, why: String) -> Code {
        self.shared.report.violation("bad handle", why);
        Code::INVALID_HANDLE
    }

    pub(crate) fn number(&self) -> u64 {
        let mut numbers = self.numbers.lock();
        *numbers += 1;
        *numbers
    }

    /// Counts a call that enqueues work. A code is what the work is to fail with.
    pub(crate) fn admit_work(&self, class: Class, context: &Context) -> Result<Option<Code>> {
        context.check()?;
        match self.shared.faults.next(class) {
            Fate::Run => Ok(None),
            Fate::Fail(code) => Err(code),
            Fate::FailLate(code) => Ok(Some(code)),
            Fate::Lose(code) => {
                context.fail(code);
                Err(code)
            }
        }
    }

    /// Counts a call.
    pub(crate) fn admit(&self, class: Class, context: &Context) -> Result<()> {
        self.admit_work(class, context)?.map_or(Ok(()), |code| {
            context.fail(code);
            Err(code)
        })
    }

    /// Whether a thread may make a call that may wait or use a stream behind the scenes: not while a graph is captured, unless
    /// the mode of the thread says that it knows.
    ///
    /// # Errors
    ///
    /// [`Code::STREAM_CAPTURE_UNSUPPORTED`], and the capture is spoilt.
    pub fn may_wait(&self, mode: CaptureMode) -> Result<()> {
        let captures = self.captures.lock();
        let mut forbidden = Ok(());
        for capture in captures.iter().filter(|capture| capture.forbids(mode)) {
            capture.spoil();
            forbidden = Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        forbidden
    }

    /// Work that the host can no longer wait for by handles, or may not have: all of a context.
    pub(crate) fn all_streams(&self, context: &Arc<Context>) -> Vec<Arc<Stream>> {
        let closing = &mut *self.closing.lock();
        closing.retain(|stream| !stream.is_over());
        let alive = self.streams.all();
        let all = alive.iter().chain(&*closing);
        all.filter(|stream| Arc::ptr_eq(&stream.context, context)).cloned().collect()
    }

    /// How many objects of each kind live in a context.
    fn census(&self, context: &Arc<Context>) -> Vec<(&'static str, usize)> {
        let here = |of: &Arc<Context>| Arc::ptr_eq(of, context);
        let memory = self.shared.space.snapshot();
        let count = |pinned| {
            let alive = memory.iter().filter(|m| here(&m.context) && !m.was_freed());
            alive.filter(|memory| memory.is_pinned() == pinned).count()
        };
        let own = |pool: &&Arc<Pool>| pool.device == context.device() && !pool.is_default;
        let made = |stream: &&Arc<Stream>| here(&stream.context) && !stream.is_default;
        // Pools are their device's: the last context that it has tells of them.
        let is_last =
            self.contexts.all().iter().filter(|c| c.device() == context.device()).count() < 2;
        let pools = if is_last { self.pools.all().iter().filter(own).count() } else { 0 };
        let counts = [
            (self.pools.kind(), pools),
            ("memory", count(false)),
            ("pinned memory", count(true)),
            (self.streams.kind(), self.streams.all().iter().filter(made).count()),
            (self.events.kind(), self.events.all().iter().filter(|e| here(&e.context)).count()),
            (self.modules.kind(), self.modules.all().iter().filter(|m| here(&m.context)).count()),
            (self.graphs.kind(), self.graphs.all().iter().filter(|g| here(&g.context)).count()),
            (
                self.executables.kind(),
                self.executables.all().iter().filter(|g| here(&g.context)).count(),
            ),
        ];
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Ends all that lives in a context, of its memory that which goes with it.
    fn empty(&self, context: &Arc<Context>, goes: impl Fn(&Allocation) -> bool) {
        // After a failure nothing can be given back by itself.
        if context.check().is_ok() {
            for (object, count) in self.census(context) {
                self.shared.report.add(Entry::Leak { device: context.device(), object, count });
            }
        }
        for stream in self.all_streams(context) {
            let capture = stream.with_capture(|captured| {
                captured.as_ref().map(|captured| Arc::clone(&captured.capture))
            });
            if let Some(capture) = capture {
                capture.leave();
                self.captures.lock().retain(|other| !Arc::ptr_eq(other, &capture));
            }
            stream.close();
            stream.drain();
        }
        let here = |of: &Arc<Context>| Arc::ptr_eq(of, context);
        self.streams.take(|stream| here(&stream.context));
        self.events.take(|event| here(&event.context));
        self.functions.take(|function| here(&function.module.context));
        self.modules.take(|module| here(&module.context));
        self.graphs.take(|graph| here(&graph.context));
        self.executables.take(|graph| here(&graph.context));
        let memory = self.shared.space.snapshot();
        for memory in memory.iter().filter(|m| here(&m.context)) {
            if goes(memory) {
                self.shared.space.remove(memory);
            } else {
                memory.settle();
            }
        }
    }

    /// What was done wrong and left behind so far, and how often calls were made.
    pub fn report(&self) -> Vec<Entry> {
        let mut entries = self.shared.report.entries();
        for context in self.contexts.all() {
            let (device, alive) = (context.device(), self.census(&context).into_iter());
            entries.extend(alive.map(|(object, count)| Entry::Alive { device, object, count }));
        }
        let calls = self.shared.faults.counts();
        entries.extend(calls.map(|(class, count)| Entry::Calls { class, count }));
        entries
    }

    /// Writes the report to its file, and mistakes to standard error.
    ///
    /// # Errors
    ///
    /// As of the file.
    pub fn write_report(&self) -> std::io::Result<()> {
        Report::write(&self.report(), self.shared.config.report.as_deref())
    }

    /// The host waits for all streams of a context.
    ///
    /// # Errors
    ///
    /// [`Code::STREAM_CAPTURE_UNSUPPORTED`] while one is captured, or how work has failed.
    pub fn synchronize(&self, context: &Arc<Context>) -> Result<()> {
        self.admit(Class::Sync, context)?;
        self.all_streams(context).iter().try_for_each(|stream| stream.synchronize())?;
        self.settle(context);
        context.check()
    }

    /// Pools give back what they need not keep.
    pub(crate) fn settle(&self, context: &Context) {
        let pools = self.pools.all();
        let here = pools.iter().filter(|pool| pool.device == context.device());
        here.for_each(|pool| pool.settle());
    }

    pub(crate) fn known(&self) -> Clock {
        self.shared.host.lock().clone()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for context in self.contexts.all() {
            context.stop().store(true, std::sync::atomic::Ordering::Release);
            self.all_streams(&context).iter().for_each(|stream| stream.close());
        }
    }
}
