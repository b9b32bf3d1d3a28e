//! Streams: queues of work, each with a thread that executes the work in order.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};

use crate::capture::Captured;
use crate::clock::{Clock, Stamp};
use crate::code::{Code, Result};
use crate::context::Context;
use crate::mark::Mark;
use crate::pause::Random;
use crate::state::EngineState;
use crate::work::Work;

/// A stream.
#[derive(Debug)]
pub struct Stream {
    pub(crate) number: u64,
    pub(crate) context: Arc<Context>,
    /// Whether it is a default stream of the driver.
    pub(crate) is_default: bool,
    engine: Arc<EngineState>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Task>,
    submitted: u64,
    finished: u64,
    /// The work that is ordered before the next work.
    clock: Clock,
    has_worker: bool,
    closed: bool,
    captured: Option<Captured>,
}

/// Work in the queue.
#[derive(Debug)]
struct Task {
    work: Work,
    /// The planned failure of the work.
    fault: Option<Code>,
    /// The work that the host sees to be finished when this runs.
    seen_by_host: Option<Clock>,
}

impl Stream {
    pub(crate) fn new(
        number: u64,
        context: &Arc<Context>,
        is_default: bool,
        engine: &Arc<EngineState>,
    ) -> Self {
        let (context, engine) = (Arc::clone(context), Arc::clone(engine));
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { number, context, is_default, engine, state, changed }
    }

    /// The context in which it was created.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Calls `f` with the stream's position in a capture, if it is captured.
    pub(crate) fn with_capture<R>(&self, f: impl FnOnce(&mut Option<Captured>) -> R) -> R {
        f(&mut self.state.lock().captured)
    }

    /// Enqueues work, or captures it.
    pub(crate) fn submit(self: &Arc<Self>, work: Work, fault: Option<Code>) -> Result<()> {
        let state = &mut *self.state.lock();
        if let Some(captured) = &mut state.captured {
            return captured.add(work, fault);
        }
        self.enqueue(state, work, fault)
    }

    /// Enqueues a mark.
    pub(crate) fn mark(self: &Arc<Self>) -> Result<Arc<Mark>> {
        let state = &mut *self.state.lock();
        state.clock.join(&self.engine.host.lock());
        let mut clock = state.clock.clone();
        clock.add(Stamp { stream: self.number, place: state.submitted + 1 });
        let mark = Arc::new(Mark::new(&self.context, clock));
        self.enqueue(state, Work::Record(Arc::clone(&mark)), None)?;
        Ok(mark)
    }

    fn enqueue(self: &Arc<Self>, state: &mut State, work: Work, fault: Option<Code>) -> Result<()> {
        let stamp = Stamp { stream: self.number, place: state.submitted + 1 };
        state.clock.join(&self.engine.host.lock());
        if let Work::Wait(mark) = &work {
            state.clock.join(&mark.clock);
        }
        work.note(stamp, &state.clock, &self.engine.report)?;
        if !state.has_worker {
            let stream = Arc::clone(self);
            let worker = thread::Builder::new().name(format!("stream {}", self.number));
            worker.spawn(move || stream.work()).map_err(|_| Code::OPERATING_SYSTEM)?;
            state.has_worker = true;
        }
        state.submitted += 1;
        state.clock.add(stamp);
        let seen_by_host = matches!(work, Work::Call(_)).then(|| state.clock.clone());
        state.queue.push_back(Task { work, fault, seen_by_host });
        self.changed.notify_all();
        Ok(())
    }

    /// Executes work until the stream is closed and its queue is empty.
    fn work(&self) {
        let seed = self.engine.config.seed;
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
            task.seen_by_host.iter().for_each(|clock| self.engine.host_saw(clock));
            let run = || task.work.run(&self.context, &self.engine);
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                // Without a failure, other threads would wait for ever.
                self.engine.report.violation("engine", format!("{:?} panicked", task.work));
                self.context.fail(Code::UNKNOWN);
            }
            // Frees memory that only this task refers to, before the task counts as finished.
            drop(task);
            self.state.lock().finished += 1;
            self.changed.notify_all();
        }
    }

    /// Checks that all work is finished.
    pub(crate) fn query(&self) -> Result<()> {
        let state = self.state.lock();
        if let Some(captured) = &state.captured {
            return Err(captured.invalidate());
        }
        let is_idle = state.finished == state.submitted;
        if is_idle {
            self.engine.host_saw(&state.clock);
        }
        self.context.check()?;
        is_idle.then_some(()).ok_or(Code::NOT_READY)
    }

    /// Waits for the work enqueued so far.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(captured) = &state.captured {
            return Err(captured.invalidate());
        }
        let (until, clock) = (state.submitted, state.clock.clone());
        self.changed.wait_while(&mut state, |state| state.finished < until);
        drop(state);
        self.engine.host_saw(&clock);
        self.context.check()
    }

    /// Waits for the work enqueued so far. For the order of work, the host does not count as having seen its end.
    pub(crate) fn drain(&self) {
        let mut state = self.state.lock();
        let until = state.submitted;
        self.changed.wait_while(&mut state, |state| state.finished < until);
    }

    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.finished == state.submitted
    }

    /// Ends the thread once the queue is empty.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}
