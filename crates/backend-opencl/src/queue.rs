//! Command queues, and the state of the commands in them.
#![expect(unsafe_code, reason = "enqueues commands through the driver")]

use std::collections::VecDeque;
use std::mem;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard};

use backend_support::{Failures, lock};
use cl3::info_type::InfoType;
use opencl3::command_queue::{enqueue_marker_with_wait_list, finish, flush};
use opencl3::event::{
    CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_PROFILING_COMMAND_END,
    CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START, get_event_info,
    get_event_profiling_info, wait_for_events,
};
use opencl3::types::{cl_command_queue, cl_event, cl_int, cl_profiling_info};
use runtime_core::{DeviceId, Error, Result};

use crate::codes;
use crate::handle::{CommandQueue, Event, Handle};

/// The number of unchecked commands above which finished commands are removed.
const SWEEP_AT: usize = 64;

/// An in-order command queue that stores every command until it has seen how the command ended.
#[derive(Debug)]
pub(crate) struct Queue {
    raw: Handle<CommandQueue>,
    pending: Mutex<Pending>,
    failures: Arc<Failures>,
    keep: Arc<Failures>,
    device: DeviceId,
}

/// Commands in the order in which they were enqueued.
#[derive(Debug, Default)]
struct Pending {
    commands: VecDeque<Command>,
    /// Whether the driver may still hold some of them back.
    unflushed: bool,
    /// Whether other code may enqueue here too, through the driver's own handle.
    shared: bool,
    /// Whether the last command is a marker after everything that other code may have enqueued.
    probed: bool,
    /// The commands whose trace events have not been emitted.
    untold: Vec<Times>,
}

/// How long a command waited and ran, in nanoseconds.
#[derive(Debug)]
struct Times {
    label: Label,
    waited_ns: u64,
    ran_ns: u64,
}

#[derive(Debug)]
struct Command {
    event: Handle<Event>,
    label: Label,
}

/// The kind of a command: an operation, or a launch of this kernel.
#[derive(Clone, Debug)]
enum Label {
    Operation(&'static str),
    Launch(Arc<str>),
}

impl Label {
    fn operation(&self) -> &'static str {
        match self {
            Self::Operation(operation) => operation,
            Self::Launch(_) => "launch",
        }
    }

    fn kernel(&self) -> &str {
        match self {
            Self::Operation(_) => "",
            Self::Launch(kernel) => kernel,
        }
    }

    fn fault(&self, status: cl_int) -> Error {
        match self {
            Self::Operation(operation) => codes::fault(operation, status, "a command"),
            Self::Launch(kernel) => codes::fault("launch", status, &format!("kernel {kernel:?}")),
        }
    }
}

impl Queue {
    /// Wraps a queue. Failures of later releases are stored in `keep`.
    pub(crate) fn new(raw: Handle<CommandQueue>, keep: Arc<Failures>, device: DeviceId) -> Self {
        Self { raw, pending: Mutex::default(), failures: Arc::default(), keep, device }
    }

    pub(crate) fn raw(&self) -> cl_command_queue {
        self.raw.raw()
    }

    /// Enqueues a command through `enqueue`. Commands from all threads run in the order of the calls.
    ///
    /// # Safety
    ///
    /// `enqueue` returns the event of a command in this queue, and passes on one reference to it.
    pub(crate) unsafe fn submit(
        &self,
        operation: &'static str,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> Result<(), cl_int> {
        // SAFETY: the caller guarantees the event.
        unsafe { self.add(&mut self.lock(), Label::Operation(operation), enqueue) }
    }

    /// As [`submit`](Self::submit), for a launch of a kernel.
    ///
    /// # Safety
    ///
    /// As [`submit`](Self::submit).
    pub(crate) unsafe fn submit_kernel(
        &self,
        kernel: &Arc<str>,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> Result<(), cl_int> {
        // SAFETY: the caller guarantees the event.
        unsafe { self.add(&mut self.lock(), Label::Launch(Arc::clone(kernel)), enqueue) }
    }

    /// As [`submit`](Self::submit), and returns a reference to the event.
    ///
    /// # Safety
    ///
    /// As [`submit`](Self::submit).
    pub(crate) unsafe fn submit_marked(
        &self,
        operation: &'static str,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> Result<Handle<Event>, cl_int> {
        let mut pending = self.lock();
        // SAFETY: the caller guarantees the event.
        unsafe { self.add(&mut pending, Label::Operation(operation), enqueue) }?;
        self.last_of(&pending)
    }

    /// # Safety
    ///
    /// As [`submit`](Self::submit).
    unsafe fn add(
        &self,
        pending: &mut Pending,
        label: Label,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> Result<(), cl_int> {
        if pending.commands.len() >= SWEEP_AT {
            self.sweep_and_see(pending);
        }
        let raw = enqueue(self.raw())?;
        // SAFETY: the caller guarantees the event.
        let event = unsafe { Handle::own(raw, &self.keep) };
        pending.commands.push_back(Command { event, label });
        pending.unflushed = true;
        pending.probed = false;
        Ok(())
    }

    fn last_of(&self, pending: &Pending) -> Result<Handle<Event>, cl_int> {
        let last = pending.commands.back().map(|command| command.event.raw());
        // SAFETY: the event is alive: the queue holds a reference.
        unsafe { Handle::retain(last.unwrap_or_default(), &self.keep) }
    }

    /// Declares that other code may enqueue here from now on. Markers detect its work.
    pub(crate) fn share(&self) {
        self.lock().shared = true;
    }

    /// Enqueues a marker after everything that was enqueued by any code.
    fn mark(&self, pending: &mut Pending, operation: &'static str) -> Result<(), cl_int> {
        let enqueue = |queue| {
            // SAFETY: a marker accesses no memory.
            unsafe { enqueue_marker_with_wait_list(queue, 0, ptr::null()) }
        };
        // SAFETY: the event is that of the marker.
        unsafe { self.add(pending, Label::Operation(operation), enqueue) }
    }

    /// Enqueues a command that does nothing, and returns its event.
    pub(crate) fn marker(&self, operation: &'static str) -> Result<Handle<Event>, cl_int> {
        let mut pending = self.lock();
        self.mark(&mut pending, operation)?;
        self.last_of(&pending)
    }

    /// Returns the last command, unless it is known to be over.
    pub(crate) fn last(&self) -> Option<Handle<Event>> {
        let mut pending = self.lock();
        if pending.shared {
            self.mark(&mut pending, "mark").ok()?;
        }
        if pending.commands.is_empty() { None } else { self.last_of(&pending).ok() }
    }

    /// Makes the driver start the enqueued commands.
    pub(crate) fn flush(&self) -> Result<(), cl_int> {
        let mut pending = self.lock();
        if mem::take(&mut pending.unflushed) { flush(self.raw()) } else { Ok(()) }
    }

    /// Whether every command is over. Returns `false` while another thread is enqueueing.
    pub(crate) fn is_idle(&self) -> Result<bool, cl_int> {
        let Ok(mut pending) = self.pending.try_lock() else { return Ok(false) };
        self.sweep_and_see(&mut pending);
        if pending.commands.is_empty() {
            if !pending.shared || mem::take(&mut pending.probed) {
                return Ok(true);
            }
            self.mark(&mut pending, "mark")?;
            pending.probed = true;
        }
        if mem::take(&mut pending.unflushed) {
            flush(self.raw())?;
        }
        Ok(false)
    }

    /// Blocks until every command enqueued so far is over. Emits their trace events.
    pub(crate) fn finish(&self, operation: &'static str) {
        // Reset before the wait, because another thread may enqueue commands that this wait does not cover.
        self.lock().unflushed = false;
        if let Err(code) = finish(self.raw()) {
            self.failures.keep(codes::fault(operation, code, "the work of the stream"));
        }
        self.emit();
    }

    /// Blocks until the command is over, whether it succeeded or failed.
    pub(crate) fn wait(&self, event: &Handle<Event>) -> Result<(), cl_int> {
        self.lock().unflushed = false;
        // If the command failed, the queue records that.
        wait_until_over(event)
    }

    /// The failures that are not taken yet.
    pub(crate) fn failures(&self) -> &Arc<Failures> {
        &self.failures
    }

    /// Whether there is a failure to take.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures.any()
    }

    /// Takes the first failure of a command that was not taken before.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.sweep(&mut self.lock());
        self.failures.take()
    }

    /// Emits the trace events of the commands that are known to be over. Call it without any lock, because a subscriber
    /// may use the device.
    pub(crate) fn emit(&self) {
        if !is_traced() {
            return;
        }
        let mut pending = self.lock();
        self.sweep(&mut pending);
        let untold = mem::take(&mut pending.untold);
        drop(pending);
        for Times { label, waited_ns, ran_ns } in untold {
            tracing::trace!(
                target: "backend_opencl::profile",
                device = %self.device,
                operation = label.operation(),
                kernel = label.kernel(),
                waited_ns,
                ran_ns,
                "command over"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        lock(&self.pending)
    }

    /// Removes the commands that are over, and returns the last of them. They are at the front, because the queue is in
    /// order.
    fn sweep(&self, pending: &mut Pending) -> Option<Command> {
        let mut last = None;
        let traced = is_traced();
        while let Some(Command { event, label }) = pending.commands.front() {
            match status(event.raw()) {
                Ok(CL_COMPLETE) if traced => pending.untold.extend(times(event.raw(), label)),
                Ok(CL_COMPLETE) => {}
                Ok(failed) if failed < CL_COMPLETE => self.failures.keep(label.fault(failed)),
                Ok(_) => break,
                Err(code) => {
                    let what = "the state of a command cannot be asked for";
                    self.failures.keep(codes::error(label.operation(), code, what));
                }
            }
            last = pending.commands.pop_front();
        }
        last
    }

    /// Removes the commands that are over, and makes their writes visible to code that relies on their end.
    fn sweep_and_see(&self, pending: &mut Pending) {
        if let Some(Command { event, .. }) = self.sweep(pending) {
            // Only a wait makes writes visible; it does not block here.
            let _ = wait_for_events(&[event.raw()]);
        }
    }

    /// Adds a command that is over and was never stored to those that [`emit`](Self::emit) emits.
    pub(crate) fn note_over(&self, event: &Handle<Event>, operation: &'static str) {
        if is_traced() {
            let times = times(event.raw(), &Label::Operation(operation));
            self.lock().untold.extend(times);
        }
    }
}

/// Whether a subscriber wants the times of commands.
fn is_traced() -> bool {
    tracing::enabled!(target: "backend_opencl::profile", tracing::Level::TRACE)
}

/// How long a command that is over waited and ran, if the driver reports it.
fn times(event: cl_event, label: &Label) -> Option<Times> {
    let [queued, started, ended] =
        [CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_END]
            .map(|which| stamp(event, which).ok());
    let (queued, started, ended) = (queued?, started?, ended?);
    let (waited_ns, ran_ns) = (started.saturating_sub(queued), ended.saturating_sub(started));
    Some(Times { label: label.clone(), waited_ns, ran_ns })
}

/// Blocks until the command is over, whether it succeeded or failed.
pub(crate) fn wait_until_over(event: &Handle<Event>) -> Result<(), cl_int> {
    match wait_for_events(&[event.raw()]) {
        Err(code) if status(event.raw()).is_ok_and(|status| status > CL_COMPLETE) => Err(code),
        _ => Ok(()),
    }
}

/// The execution status of a command: 0 when it is over, negative if it failed.
pub(crate) fn status(event: cl_event) -> Result<cl_int, cl_int> {
    match get_event_info(event, CL_EVENT_COMMAND_EXECUTION_STATUS)? {
        InfoType::Int(status) => Ok(status),
        _ => Ok(CL_COMPLETE),
    }
}

/// A time stamp of a command in nanoseconds of the device's clock.
pub(crate) fn stamp(event: cl_event, which: cl_profiling_info) -> Result<u64, cl_int> {
    match get_event_profiling_info(event, which)? {
        InfoType::Ulong(nanoseconds) => Ok(nanoseconds),
        _ => Ok(0),
    }
}
