//! The operations behind the functions of a driver.

mod contexts;
mod copies;
mod events;
mod graphs;
mod launches;
mod memory;
mod modules;
mod objects;
mod pools;
mod streams;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::ThreadId;

use parking_lot::Mutex;

pub use copies::Endpoint;
pub use memory::AddressInfo;
pub use modules::LoadError;

use crate::capture::{Capture, CaptureMode};
use crate::clock::Clock;
use crate::code::{Code, Result};
use crate::config::Config;
use crate::context::{Context, Primary};
use crate::event::Event;
use crate::fault::{Class, Fate, FaultPlan};
use crate::kernel::{Function, Module};
use crate::pool::{Budget, Pool};
use crate::report::{Entry, Report};
use crate::space::Space;
use crate::state::EngineState;
use crate::stream::Stream;
use crate::table::Table;
use crate::work::{Executable, Graph};

/// A strict driver of devices in host memory.
///
/// Objects are named by handles: numbers that are never used twice. Calls that CUDA and HIP bind to a current context
/// take it as an argument. The thread of a stream executes what is enqueued on the stream.
#[derive(Debug)]
pub struct Engine {
    state: Arc<EngineState>,
    devices: Vec<Device>,
    contexts: Table<Context>,
    streams: Table<Stream>,
    events: Table<Event>,
    modules: Table<Module>,
    functions: Table<Function>,
    graphs: Table<Graph>,
    executables: Table<Executable>,
    pools: Table<Pool>,
    /// The captures that have not ended.
    captures: Mutex<Vec<Arc<Capture>>>,
    /// The handles of default streams, by context, and by thread if each thread has its own.
    default_streams: Mutex<HashMap<(u64, Option<ThreadId>), u64>>,
    /// Destroyed streams whose work may not be finished.
    closing: Mutex<Vec<Arc<Stream>>>,
    stream_count: Mutex<u64>,
}

/// A driver keeps one part in this number of a device's memory for itself.
const RESERVED_SHARE: usize = 64;

/// One device.
#[derive(Debug)]
struct Device {
    budget: Arc<Budget>,
    /// The handle of its default pool.
    pool: u64,
    primary: Mutex<Option<Primary>>,
}

impl Engine {
    /// Creates the devices.
    ///
    /// # Errors
    ///
    /// A message, if the plan of faults is invalid or there are not enough addresses.
    pub fn new(config: Config) -> Result<Self, String> {
        let faults = FaultPlan::parse(&config.faults)?;
        let space = Space::new(config.devices, config.alignment)
            .map_err(|_| format!("no addresses for {} devices", config.devices))?;
        let pools = Table::new("memory pool", 7);
        let device = |ordinal| {
            let budget = Arc::new(Budget::new(config.memory));
            let _reserved = budget.take(config.memory / RESERVED_SHARE);
            let (pool, _) = pools.insert_with(|handle| Pool::new(ordinal, handle, &budget, true));
            Device { budget, pool, primary: Mutex::default() }
        };
        let devices = (0..config.devices).map(device).collect();
        let (report, host) = (Report::default(), Mutex::default());
        Ok(Self {
            state: Arc::new(EngineState { config, faults, report, space, host }),
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
            default_streams: Mutex::default(),
            closing: Mutex::default(),
            stream_count: Mutex::new(0),
        })
    }

    /// The configuration of [`new`](Self::new).
    pub fn config(&self) -> &Config {
        &self.state.config
    }

    /// The free memory of a device in bytes.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn free_memory(&self, device: usize) -> Result<usize> {
        Ok(self.device(device)?.budget.free())
    }

    fn device(&self, device: usize) -> Result<&Device> {
        self.devices.get(device).ok_or(Code::INVALID_DEVICE)
    }

    /// Finds the object of a handle. An invalid handle is a violation.
    fn find<T>(&self, table: &Table<T>, handle: u64) -> Result<Arc<T>> {
        table.get(handle).map_err(|why| self.bad_handle(why))
    }

    /// As [`find`](Self::find). The handle is invalid from now on.
    fn remove<T>(&self, table: &Table<T>, handle: u64) -> Result<Arc<T>> {
        table.remove(handle).map_err(|why| self.bad_handle(why))
    }

    fn bad_handle(&self, why: String) -> Code {
        self.state.report.violation("bad handle", why);
        Code::INVALID_HANDLE
    }

    /// Counts a call that enqueues work. Returns the code with which the work must fail, if that is planned.
    fn admit_work(&self, class: Class, context: &Context) -> Result<Option<Code>> {
        context.check()?;
        match self.state.faults.next(class) {
            Fate::Run => Ok(None),
            Fate::Fail(code) => Err(code),
            Fate::FailLate(code) => Ok(Some(code)),
            Fate::Lose(code) => {
                context.fail(code);
                Err(code)
            }
        }
    }

    /// Counts a call that enqueues nothing.
    fn admit(&self, class: Class, context: &Context) -> Result<()> {
        self.admit_work(class, context)?.map_or(Ok(()), |code| {
            context.fail(code);
            Err(code)
        })
    }

    /// Counts a call that waits.
    fn admit_wait(&self, context: &Context) -> Result<()> {
        let admitted = self.admit(Class::Sync, context);
        if admitted == Err(Code::NOT_READY) {
            context.hang();
        }
        admitted.and_then(|()| context.check_progress())
    }

    /// Checks that a thread may make a call that may wait, or that uses a stream implicitly. A capture forbids such
    /// calls, unless the mode of the thread permits them.
    ///
    /// # Errors
    ///
    /// [`Code::STREAM_CAPTURE_UNSUPPORTED`]; the capture is invalid from now on.
    pub fn may_wait(&self, mode: CaptureMode) -> Result<()> {
        let captures = self.captures.lock();
        let mut forbidden = Ok(());
        for capture in captures.iter().filter(|capture| capture.forbids(mode)) {
            capture.invalidate();
            forbidden = Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        forbidden
    }

    /// All streams of a context whose work may not be finished, including destroyed streams.
    fn all_streams(&self, context: &Arc<Context>) -> Vec<Arc<Stream>> {
        let closing = &mut *self.closing.lock();
        closing.retain(|stream| !stream.is_idle());
        let alive = self.streams.all();
        let all = alive.iter().chain(&*closing);
        all.filter(|stream| Arc::ptr_eq(&stream.context, context)).cloned().collect()
    }

    /// Returns the mistakes and the live objects so far, and the number of calls of each class.
    pub fn report(&self) -> Vec<Entry> {
        let mut entries = self.state.report.entries();
        for context in self.contexts.all() {
            let (device, alive) = (context.device(), self.count_objects(&context).into_iter());
            entries.extend(alive.map(|(object, count)| Entry::Alive { device, object, count }));
        }
        let calls = self.state.faults.counts();
        entries.extend(calls.map(|(class, count)| Entry::Calls { class, count }));
        entries
    }

    /// Writes the report to its file, and mistakes to standard error.
    ///
    /// # Errors
    ///
    /// Errors of writing the file.
    pub fn write_report(&self) -> std::io::Result<()> {
        Report::write(&self.report(), self.state.config.report.as_deref())
    }

    /// Pools return memory above their thresholds to the device.
    fn trim_pools(&self, context: &Context) {
        let pools = self.pools.all();
        let here = pools.iter().filter(|pool| pool.device == context.device());
        here.for_each(|pool| pool.trim_to_threshold());
    }

    /// The work that the host knows to be finished.
    fn host_clock(&self) -> Clock {
        self.state.host.lock().clone()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for context in self.contexts.all() {
            context.stop().store(true, Ordering::Release);
            self.all_streams(&context).iter().for_each(|stream| stream.close());
        }
    }
}
