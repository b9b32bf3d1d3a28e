//! Streams: work in order, each by a thread of its own.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};

use crate::clock::{Clock, Stamp};
use crate::code::{Code, Result};
use crate::context::Context;
use crate::event::Mark;
use crate::graph::Captured;
use crate::pause::Random;
use crate::shared::Shared;
use crate::work::Work;

/// A stream.
#[derive(Debug)]
pub struct Stream {
    pub(crate) number: u64,
    pub(crate) context: Arc<Context>,
    /// As it was made.
    pub flags: u32,
    /// As it was made.
    pub priority: i32,
    /// Whether it is the driver's own.
    pub(crate) is_default: bool,
    shared: Arc<Shared>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    queue: VecDeque<Task>,
    submitted: u64,
    finished: u64,
    /// What the next work comes after.
    clock: Clock,
    has_worker: bool,
    closed: bool,
    pub(crate) capture: Option<Captured>,
}

/// Work, and the code that it fails with if that is planned.
#[derive(Debug)]
struct Task {
    work: Work,
    fault: Option<Code>,
    /// What the host knows when this runs.
    tells: Option<Clock>,
}

impl Stream {
    pub(crate) fn new(
        number: u64,
        context: &Arc<Context>,
        flags: u32,
        priority: i32,
        shared: &Arc<Shared>,
    ) -> Self {
        Self {
            number,
            context: Arc::clone(context),
            flags,
            priority,
            is_default: false,
            shared: Arc::clone(shared),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The context it was made in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What is captured instead of done, if anything.
    pub(crate) fn with_capture<R>(&self, f: impl FnOnce(&mut Option<Captured>) -> R) -> R {
        f(&mut self.state.lock().capture)
    }

    /// Enqueues work, or captures it.
    pub(crate) fn submit(self: &Arc<Self>, work: Work, fault: Option<Code>) -> Result<()> {
        let state = &mut *self.state.lock();
        if let Some(captured) = &mut state.capture {
            return fault.map_or_else(|| captured.add(work), Err);
        }
        self.enqueue(state, work, fault)
    }

    /// Enqueues a place that others can wait for.
    pub(crate) fn mark(self: &Arc<Self>) -> Result<Arc<Mark>> {
        let state = &mut *self.state.lock();
        state.clock.join(&self.shared.host.lock());
        let mut clock = state.clock.clone();
        clock.add(Stamp { stream: self.number, place: state.submitted + 1 });
        let mark = Arc::new(Mark::new(&self.context, clock));
        self.enqueue(state, Work::Record(Arc::clone(&mark)), None)?;
        Ok(mark)
    }

    fn enqueue(self: &Arc<Self>, state: &mut State, work: Work, fault: Option<Code>) -> Result<()> {
        let stamp = Stamp { stream: self.number, place: state.submitted + 1 };
        let report = &self.shared.report;
        state.clock.join(&self.shared.host.lock());
        if let Work::Wait(mark) = &work {
            state.clock.join(&mark.clock);
        }
        work.note(stamp, &state.clock, report)?;
        if !state.has_worker {
            let stream = Arc::clone(self);
            let worker = thread::Builder::new().name(format!("stream {}", self.number));
            worker.spawn(move || stream.work()).map_err(|_| Code::OPERATING_SYSTEM)?;
            state.has_worker = true;
        }
        state.submitted += 1;
        state.clock.add(stamp);
        let tells = matches!(work, Work::Call(_)).then(|| state.clock.clone());
        state.queue.push_back(Task { work, fault, tells });
        self.changed.notify_all();
        Ok(())
    }

    /// What the worker does.
    fn work(&self) {
        let seed = self.shared.config.seed;
        let mut random = Random::new(seed, self.number);
        loop {
            let task = {
                let mut state = self.state.lock();
                self.changed
                    .wait_while(&mut state, |state| state.queue.is_empty() && !state.closed);
                let Some(task) = state.queue.pop_front() else { return };
                task
            };
            if seed != 0 {
                random.pause();
            }
            if let Some(code) = task.fault {
                self.context.fail(code);
            }
            task.tells.iter().for_each(|clock| self.shared.learn(clock));
            let run = || task.work.run(&self.context, &self.shared);
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                // Whoever waits must not do so for ever.
                self.shared.report.violation("engine", format!("{:?} panicked", task.work));
                self.context.fail(Code::UNKNOWN);
            }
            // Memory that only this work kept goes before anybody is told.
            drop(task);
            self.state.lock().finished += 1;
            self.changed.notify_all();
        }
    }

    /// Whether all work is over.
    pub(crate) fn query(&self) -> Result<()> {
        let state = self.state.lock();
        if let Some(captured) = &state.capture {
            return Err(captured.spoil());
        }
        let over = state.finished == state.submitted;
        if over {
            self.shared.learn(&state.clock);
        }
        self.context.check()?;
        over.then_some(()).ok_or(Code::NOT_READY)
    }

    /// Waits for the work enqueued so far.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(captured) = &state.capture {
            return Err(captured.spoil());
        }
        let (until, clock) = (state.submitted, state.clock.clone());
        self.changed.wait_while(&mut state, |state| state.finished < until);
        drop(state);
        self.shared.learn(&clock);
        self.context.check()
    }

    /// Waits for the work enqueued so far, of which the host learns nothing.
    pub(crate) fn drain(&self) {
        let mut state = self.state.lock();
        let until = state.submitted;
        self.changed.wait_while(&mut state, |state| state.finished < until);
    }

    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.finished == state.submitted
    }

    /// Takes no more work; what was enqueued is done.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}
