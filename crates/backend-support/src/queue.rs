//! In-order queues of tasks.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::{ptr, thread};

use runtime_core::contract::Released;
use runtime_core::{Error, ErrorKind, Result};
use smallvec::SmallVec;

use crate::event::{Mark, Reach};
use crate::{Event, Failures, Identity, Reaper, Reclaim, guarded, lock};

/// Work that takes as long as it moves bytes, but may first wait for memory that other operations use.
pub trait Move: Send {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn run(&self) -> Result<()>;

    /// Runs it, or returns `None` if it would have to wait.
    fn try_run(&self) -> Option<Result<()>>;
}

enum Run {
    Once(Box<dyn FnOnce() -> Result<()> + Send>),
    Move(Box<dyn Move>),
    Reach(Reach),
}

impl Run {
    fn now(self) -> Result<()> {
        match self {
            Self::Once(run) => run(),
            Self::Move(moves) => moves.run(),
            Self::Reach(reach) => {
                drop(reach);
                Ok(())
            }
        }
    }
}

struct Task {
    run: Run,
    /// Whether it runs even after a failure.
    always: bool,
    /// What it waits for.
    after: Option<Point>,
}

/// A recorded point in a queue, as long as the queue exists.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) mark: Arc<Mark>,
    queue: Weak<Shared>,
    /// The number of tasks and turns up to the point.
    count: u64,
}

impl Point {
    /// The point's queue, if the point is not reached.
    pub(crate) fn queue(&self) -> Option<Arc<Shared>> {
        self.queue.upgrade().filter(|_| !self.mark.is_reached())
    }

    /// Refuses a wait by a task (of a kernel, for instance) for a point that comes after the task.
    pub(crate) fn check_wait(&self) -> Result<()> {
        self.queue().map_or(Ok(()), |queue| queue.check_wait(self.count))
    }
}

/// An in-order queue of tasks with its own thread.
///
/// Tasks run one after the other, in the order of [`submit`](Self::submit), on the queue's thread, which starts with
/// the first task. A thread that must wait for the queue takes a [`turn`](Self::turn) in the same order. While it
/// waits, it runs the tasks ahead of it that no thread has begun. This saves two hand-overs between threads.
///
/// After a task failed, no other task runs until the failure is reported; such tasks end at once.
///
/// Dropping the queue does not block. Its tasks run to completion, then its thread ends.
pub struct Queue {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    identity: Identity,
    state: Mutex<State>,
    /// The queue's thread waits here for tasks.
    tasks: Condvar,
    /// Threads wait here for their turn.
    turns: Condvar,
    /// Threads wait here for tasks and turns of other threads to end.
    ends: Condvar,
    failures: Arc<Failures>,
}

struct State {
    entries: VecDeque<Entry>,
    /// Whether a thread runs a task or has its turn.
    running: bool,
    /// What the running task waits for.
    after: Option<Point>,
    /// The number of tasks and turns that have ended.
    ended: u64,
    /// The smallest value of `ended` that a thread at `ends` waits for.
    awaited: Option<u64>,
    worker: Worker,
    closed: bool,
}

enum Entry {
    Task(Task),
    Turn,
}

#[derive(PartialEq)]
enum Worker {
    Absent,
    Awake,
    Parked,
}

impl Queue {
    /// Runs `task` after everything submitted so far. Does not wait for it. Its failure is kept for
    /// [`synchronize`](Self::synchronize); a panic becomes a `DeviceFault`.
    ///
    /// # Errors
    ///
    /// `Driver` if the system cannot start the queue's thread. The task is then dropped.
    pub fn submit(&self, task: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        self.push(Task { run: Run::Once(Box::new(task)), always: false, after: None }).map(drop)
    }

    /// As [`submit`](Self::submit), for a task that a thread with a time limit may run, too:
    /// [`Event::assist`](crate::Event::assist).
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    pub fn submit_move(&self, task: impl Move + 'static) -> Result<()> {
        self.push(Task { run: Run::Move(Box::new(task)), always: false, after: None }).map(drop)
    }

    /// As [`submit`](Self::submit), for a task that runs even after a failure, because other threads or queues wait for
    /// it.
    pub(crate) fn submit_always(
        &self,
        task: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.push(Task { run: Run::Once(Box::new(task)), always: true, after: None }).map(drop)
    }

    /// Records the end of everything submitted so far.
    pub(crate) fn record(&self) -> Result<Point> {
        let mark = Arc::<Mark>::default();
        let reach = Reach(Arc::clone(&mark));
        let queue = self.downgrade();
        if let Some(turn) = self.try_turn() {
            drop(reach);
            drop(turn);
            return Ok(Point { mark, queue, count: 0 });
        }
        let count = self.push(Task { run: Run::Reach(reach), always: true, after: None })?;
        Ok(Point { mark, queue, count })
    }

    /// Makes tasks submitted from now on wait for a point of another queue.
    pub(crate) fn wait_for(&self, point: Point) -> Result<()> {
        let mark = Arc::clone(&point.mark);
        let run = Run::Once(Box::new(move || {
            mark.wait();
            Ok(())
        }));
        self.push(Task { run, always: true, after: Some(point) }).map(drop)
    }

    /// Returns the number of tasks and turns submitted so far, with this one.
    fn push(&self, task: Task) -> Result<u64> {
        let mut state = self.shared.lock();
        if state.worker == Worker::Absent {
            self.start()?;
            state.worker = Worker::Awake;
        }
        state.entries.push_back(Entry::Task(task));
        let count = state.submitted();
        self.shared.unlock(state);
        Ok(count)
    }

    fn start(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let builder =
            thread::Builder::new().name(format!("{} stream", self.shared.identity.device));
        match builder.spawn(move || shared.work()) {
            Ok(_detached) => Ok(()),
            Err(error) => {
                let code = i64::from(error.raw_os_error().unwrap_or(0));
                let name = if code == 12 { "ENOMEM" } else { "EAGAIN" };
                let refused = Error::new(ErrorKind::Driver, "submit", "no thread for the stream");
                Err(refused
                    .with_driver(name, code)
                    .with_source(error)
                    .on(&self.shared.identity.device))
            }
        }
    }

    /// Gives the queue to the caller exclusively, if it is idle. Never blocks.
    pub fn try_turn(&self) -> Option<Turn<'_>> {
        let mut state = self.shared.lock();
        if !state.is_idle() {
            return None;
        }
        state.running = true;
        Some(Turn { shared: &self.shared })
    }

    /// Gives the queue to the caller exclusively, after everything submitted so far. Blocks until then.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` in a task of this queue, because the task would wait for itself.
    pub fn turn(&self) -> Result<Turn<'_>> {
        self.shared.check_wait(u64::MAX)?;
        Ok(self.shared.turn())
    }

    /// Whether everything submitted so far is done. Never blocks.
    pub fn is_idle(&self) -> bool {
        self.shared.lock().is_idle()
    }

    /// Blocks until everything submitted so far is done.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` in a task of this queue, because the task would wait for itself.
    pub fn synchronize(&self) -> Result<()> {
        self.shared.synchronize()
    }

    /// Takes the first failure that was not taken yet, without waiting.
    pub fn take_failure(&self) -> Option<Error> {
        self.shared.failures.take()
    }

    /// The failures that were not taken yet.
    pub(crate) fn failures(&self) -> Arc<Failures> {
        Arc::clone(&self.shared.failures)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// An address that no other live queue has.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.unlock(state);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Queue({}, {} waiting)",
            self.shared.identity.device,
            self.shared.lock().entries.len()
        )
    }
}

/// Exclusive use of a queue by one thread. Operations of that thread now come after everything submitted before and
/// before everything submitted later. When it is dropped, the queue continues.
pub struct Turn<'a> {
    shared: &'a Shared,
}

impl Turn<'_> {
    /// Runs `task` in this thread as if it had been submitted: its failure is kept, and it does not run after a
    /// failure.
    pub fn run(self, task: impl FnOnce() -> Result<()>) {
        self.shared.run(task, false);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        self.shared.end(&mut state);
        self.shared.unlock(state);
    }
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turn({})", self.shared.identity.device)
    }
}

impl State {
    fn is_idle(&self) -> bool {
        !self.running && self.entries.is_empty()
    }

    /// The number of tasks and turns submitted so far.
    fn submitted(&self) -> u64 {
        self.ended + u64::from(self.running) + self.entries.len() as u64
    }

    /// Takes the next task if it can begin.
    fn begin(&mut self) -> Option<Task> {
        if self.running || !matches!(self.entries.front(), Some(Entry::Task(_))) {
            return None;
        }
        match self.entries.pop_front() {
            Some(Entry::Task(mut task)) => {
                self.running = true;
                self.after = task.after.take();
                Some(task)
            }
            _ => None,
        }
    }
}

thread_local! {
    /// The addresses of the queues whose tasks this thread is running, nested from outermost to innermost. It is never
    /// destroyed, because destructors of other thread-locals may wait for queues. It holds no heap memory while no task
    /// runs.
    static RUNNING: ManuallyDrop<RefCell<SmallVec<[usize; 4]>>> = ManuallyDrop::default();
}

impl Shared {
    /// Refuses a wait by a task (of a kernel, for instance) for the first `count` tasks and turns, if these come after
    /// the task.
    fn check_wait(&self, count: u64) -> Result<()> {
        let is_in_task = RUNNING.with(|running| !running.borrow().is_empty());
        if !is_in_task || !self.comes_after_caller(count, &mut SmallVec::new()) {
            return Ok(());
        }
        let message = "a kernel waits for the stream that it runs on";
        let refused = Error::new(ErrorKind::InvalidArgument, "wait", message);
        Err(refused.on(&self.identity.device).of_refused_wait())
    }

    /// Whether the first `count` tasks and turns end only after a task that this thread runs: one of this queue, or of
    /// a queue that one of them waits for.
    fn comes_after_caller(&self, count: u64, seen: &mut SmallVec<[(usize, u64); 4]>) -> bool {
        let address = ptr::from_ref(self).addr();
        if RUNNING.with(|running| running.borrow().contains(&address)) {
            return true;
        }
        match seen.iter_mut().find(|(known, _)| *known == address) {
            Some((_, known)) if *known >= count => return false,
            Some((_, known)) => *known = count,
            None => seen.push((address, count)),
        }
        let points: SmallVec<[Point; 4]> = {
            let state = self.lock();
            let first = state.ended + u64::from(state.running);
            let entries = (first..count).zip(&state.entries);
            let waits = entries.filter_map(|(_, entry)| match entry {
                Entry::Task(task) => task.after.clone(),
                Entry::Turn => None,
            });
            state.after.iter().cloned().chain(waits).collect()
        };
        points.iter().any(|point| {
            point.queue().is_some_and(|queue| queue.comes_after_caller(point.count, seen))
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn run(&self, task: impl FnOnce() -> Result<()>, always: bool) {
        if !always && self.failures.any() {
            return;
        }
        RUNNING.with(|running| running.borrow_mut().push(ptr::from_ref(self).addr()));
        let done = guarded("task", task);
        RUNNING.with(|running| {
            let mut running = running.borrow_mut();
            running.pop();
            if running.is_empty() {
                running.shrink_to_fit();
            }
        });
        if let Err(error) = done {
            self.failures.keep(self.identity.complete(error));
        }
    }

    /// Unlocks the state and, if no thread is using the queue, wakes the thread that continues. It wakes after
    /// unlocking, because the woken thread would otherwise wait for the lock at once.
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let wake = match state.entries.front() {
            _ if state.running => None,
            Some(Entry::Turn) => Some(&self.turns),
            // Waking a thread that is awake would be a useless system call.
            Some(Entry::Task(_)) if state.worker != Worker::Parked => None,
            None if !state.closed || state.worker != Worker::Parked => None,
            Some(Entry::Task(_)) | None => {
                state.worker = Worker::Awake;
                Some(&self.tasks)
            }
        };
        drop(state);
        if let Some(sleepers) = wake {
            sleepers.notify_all();
        }
    }

    /// Waits for `condition`. The tasks just run may have made it another thread's turn, so that thread is notified.
    fn sleep<'a>(
        &self,
        condition: &Condvar,
        state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        if !state.running && matches!(state.entries.front(), Some(Entry::Turn)) {
            self.turns.notify_all();
        }
        condition.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// The main loop of the queue's thread.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            state = self.run_tasks(state, |_| true);
            if state.closed && state.is_idle() {
                return;
            }
            state.worker = Worker::Parked;
            while state.worker == Worker::Parked {
                state = self.sleep(&self.tasks, state);
            }
        }
    }

    /// Runs tasks that can begin, one after the other, while `go_on` returns `true`.
    fn run_tasks<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        go_on: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        while go_on(&state) {
            let Some(task) = state.begin() else { break };
            drop(state);
            self.run(|| task.run.now(), task.always);
            state = self.lock();
            self.end(&mut state);
        }
        state
    }

    /// As [`assist_until`](Self::assist_until), but stops at a task that may take longer than moving bytes.
    pub(crate) fn assist_briefly(&self, done: impl Fn() -> bool) {
        let is_brief = |state: &State| {
            let first = state.entries.front();
            let Some(Entry::Task(Task { run, .. })) = first else { return false };
            !matches!(run, Run::Once(_))
        };
        let mut state = self.lock();
        while is_brief(&state)
            && !done()
            && let Some(task) = state.begin()
        {
            drop(state);
            let left = self.try_run(task);
            state = self.lock();
            if let Some(task) = left {
                state.running = false;
                state.entries.push_front(Entry::Task(task));
                break;
            }
            self.end(&mut state);
        }
        self.unlock(state);
    }

    /// Runs a brief task. Returns it if it would have to wait.
    fn try_run(&self, task: Task) -> Option<Task> {
        let Run::Move(moves) = &task.run else {
            self.run(|| task.run.now(), task.always);
            return None;
        };
        let mut waits = false;
        let run = || {
            moves.try_run().unwrap_or_else(|| {
                waits = true;
                Ok(())
            })
        };
        self.run(run, task.always);
        waits.then_some(task)
    }

    /// Marks the current task or turn as ended.
    fn end(&self, state: &mut State) {
        state.running = false;
        state.after = None;
        state.ended += 1;
        if state.awaited.is_some_and(|awaited| awaited <= state.ended) {
            state.awaited = None;
            self.ends.notify_all();
        }
    }

    /// Runs tasks that no thread has begun until `done` returns `true` or another thread uses the queue.
    pub(crate) fn assist_until(&self, done: impl Fn() -> bool) {
        self.unlock(self.run_tasks(self.lock(), |_| !done()));
    }

    fn turn(&self) -> Turn<'_> {
        let mut state = self.lock();
        if !state.is_idle() {
            let before = state.submitted();
            state.entries.push_back(Entry::Turn);
            loop {
                state = self.run_tasks(state, |_| true);
                if state.ended == before {
                    state.entries.pop_front();
                    break;
                }
                state = self.sleep(&self.turns, state);
            }
        }
        state.running = true;
        Turn { shared: self }
    }

    fn synchronize(&self) -> Result<()> {
        self.check_wait(u64::MAX)?;
        self.wait();
        Ok(())
    }

    /// Blocks until everything submitted so far is done. Unlike a turn, other threads do not wait for this wait.
    fn wait(&self) {
        let mut state = self.lock();
        let all = state.submitted();
        loop {
            state = self.run_tasks(state, |state| state.ended < all);
            if state.ended >= all {
                return self.unlock(state);
            }
            state.awaited = Some(state.awaited.map_or(all, |awaited| awaited.min(all)));
            state = self.sleep(&self.ends, state);
        }
    }
}

/// The queues of one device.
#[derive(Debug)]
pub struct Queues {
    identity: Identity,
    queues: Mutex<Known>,
    failures: Arc<Failures>,
    reaper: Reaper<NoDriver>,
}

/// Queues, and failures that may outlive them.
#[derive(Debug, Default)]
struct Known {
    queues: Vec<(Weak<Shared>, Arc<Failures>)>,
    /// Failures of queues that are gone.
    left: VecDeque<Error>,
    /// The number of queues at which those that are gone are looked for.
    prune_at: usize,
}

impl Known {
    fn add(&mut self, queue: &Arc<Shared>) {
        if self.queues.len() >= self.prune_at {
            let Self { queues, left, .. } = self;
            queues.retain(|(queue, failures)| {
                let is_there = queue.strong_count() > 0;
                if !is_there {
                    left.extend(failures.take());
                }
                is_there
            });
            // So that a queue is looked at a few times only, however many there are.
            self.prune_at = (2 * queues.len()).max(16);
        }
        self.queues.push((Arc::downgrade(queue), Arc::clone(&queue.failures)));
    }

    fn take_failure(&mut self) -> Option<Error> {
        let left = self.left.pop_front();
        left.or_else(|| self.queues.iter().find_map(|(_, failures)| failures.take()))
    }
}

/// The driver of devices in host memory. It takes back no objects, because they are freed by being dropped.
#[derive(Debug)]
struct NoDriver;

impl Reclaim for NoDriver {
    type Object = Infallible;
    type Mark = Event;

    fn reclaim(&self, object: Infallible) -> Result<()> {
        match object {}
    }
}

impl Queues {
    /// Creates an empty set of queues.
    pub fn new(identity: Identity) -> Self {
        let failures = Arc::default();
        let reaper = Reaper::new(&identity.device, &Arc::new(NoDriver), &failures);
        Self { identity, queues: Mutex::default(), failures, reaper }
    }

    /// Drops `owner`, whose destructor may run code of the program, once the work now submitted to the queues in
    /// `after` is done. If it already is, drops `owner` at once; otherwise in a separate thread. It never drops `owner`
    /// in a queue's task, because the destructor may wait for the queue. Does not block. A panic of the destructor
    /// is logged, and is no failure of the device.
    pub fn retire<'a>(
        &self,
        owner: Box<dyn Any + Send + Sync>,
        after: impl IntoIterator<Item = &'a Queue>,
    ) {
        let mark = |queue: &Queue| {
            let event = Event::new();
            let Err(_) = event.record(queue) else { return Some(event) };
            // The system cannot start the queue's thread, so this thread has to wait.
            drop(queue.turn());
            None
        };
        self.reaper.retire_owner(owner, after.into_iter().filter_map(mark).collect());
    }

    /// Drops an object that enqueued work holds itself for as long as it needs it. A panic of the destructor is kept
    /// for [`synchronize`](Self::synchronize). What runs code of the program is [retired](Self::retire) instead.
    pub fn release(&self, object: Released) {
        let dropped = guarded("release", || {
            drop(object);
            Ok(())
        });
        if let Err(error) = dropped {
            self.failures.keep(self.identity.complete(error));
        }
    }

    /// Creates a queue.
    pub fn create(&self) -> Queue {
        let state = State {
            entries: VecDeque::new(),
            running: false,
            after: None,
            ended: 0,
            awaited: None,
            worker: Worker::Absent,
            closed: false,
        };
        let shared = Arc::new(Shared {
            identity: self.identity.clone(),
            state: Mutex::new(state),
            tasks: Condvar::new(),
            turns: Condvar::new(),
            ends: Condvar::new(),
            failures: Arc::default(),
        });
        lock(&self.queues).add(&shared);
        Queue { shared }
    }

    /// Blocks until everything submitted so far to any queue is done, including queues that were dropped, and
    /// everything [retired](Self::retire) is dropped.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` in a task of one of the queues.
    pub fn synchronize(&self) -> Result<()> {
        let queues: Vec<Arc<Shared>> =
            lock(&self.queues).queues.iter().filter_map(|(queue, _)| queue.upgrade()).collect();
        queues.iter().try_for_each(|queue| queue.check_wait(u64::MAX))?;
        for queue in &queues {
            queue.wait();
        }
        self.reaper.drain();
        Ok(())
    }

    /// Takes the first failure that was not taken yet, of a queue or [kept](Self::failures) for the device. If several
    /// queues failed, the other failures are kept for the next call.
    pub fn take_failure(&self) -> Option<Error> {
        if let Some(error) = self.failures.take() {
            return Some(self.identity.complete(error));
        }
        lock(&self.queues).take_failure()
    }

    /// Failures that no queue reports, for instance of destructors.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// The identity of the device that owns the queues.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // Closing a device does not wait for work.
        self.reaper.detach();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({})", self.identity.device)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use runtime_core::DeviceId;

    use super::*;

    fn queues() -> Queues {
        Queues::new(Identity { device: DeviceId::new("test", 0), fault: ("TEST_FAULT", 1) })
    }

    /// A task that ends when the sender does.
    fn gate() -> (mpsc::Sender<()>, impl FnOnce() -> Result<()> + Send) {
        let (open, gate) = mpsc::channel::<()>();
        let wait = move || {
            let _closed = gate.recv();
            Ok(())
        };
        (open, wait)
    }

    #[test]
    fn tasks_and_turns_come_in_order() {
        let queue = queues().create();
        let log = Arc::new(Mutex::new(Vec::new()));
        for round in 0..50 {
            for step in 0..3 {
                let log = Arc::clone(&log);
                queue
                    .submit(move || {
                        lock(&log).push((round, step));
                        Ok(())
                    })
                    .unwrap();
            }
            let turn = queue.turn().unwrap();
            lock(&log).push((round, 3));
            drop(turn);
        }
        let expected: Vec<_> =
            (0..50).flat_map(|round| (0..4).map(move |step| (round, step))).collect();
        assert_eq!(*lock(&log), expected);
    }

    #[test]
    fn submitting_does_not_wait() {
        let queue = queues().create();
        let (open, wait) = gate();
        queue.submit(wait).unwrap();
        for _ in 0..1000 {
            queue.submit(|| Ok(())).unwrap();
        }
        assert!(!queue.is_idle());
        assert!(queue.try_turn().is_none());
        drop(open);
        queue.synchronize().unwrap();
        assert!(queue.is_idle());
    }

    #[test]
    fn waiting_for_a_queue_does_not_make_it_busy() {
        let queue = queues().create();
        for _ in 0..200 {
            let (open, gate) = mpsc::channel::<()>();
            let task = move || {
                let _ = gate.recv();
                Ok(())
            };
            queue.submit(task).unwrap();
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        queue.synchronize().unwrap();
                        assert!(queue.is_idle(), "others wait for it too");
                    });
                }
                thread::yield_now();
                drop(open);
            });
        }
    }

    #[test]
    fn threads_share_a_queue() {
        let queue = queues().create();
        let (count, alone) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let counted = Arc::clone(&count);
                        queue
                            .submit(move || {
                                counted.fetch_add(1, Ordering::Relaxed);
                                Ok(())
                            })
                            .unwrap();
                        let turn = queue.turn().unwrap();
                        assert_eq!(alone.fetch_add(1, Ordering::SeqCst), 0);
                        alone.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 800);
    }

    #[test]
    fn nothing_runs_after_a_failure_until_it_is_taken() {
        let queue = queues().create();
        let ran = Arc::new(AtomicUsize::new(0));
        let count = || {
            let ran = Arc::clone(&ran);
            move || {
                ran.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        let (open, wait) = gate();
        queue.submit(wait).unwrap();
        queue.submit(|| panic!("bad cell {}", 7)).unwrap();
        queue.submit(|| Err(Error::new(ErrorKind::Driver, "late", "second"))).unwrap();
        queue.submit(count()).unwrap();
        queue.submit_always(count()).unwrap();
        drop(open);
        drop(queue.turn().unwrap());
        queue.try_turn().unwrap().run(count());
        queue.synchronize().unwrap();
        let error = queue.take_failure().unwrap();
        assert_eq!(error.kind(), ErrorKind::DeviceFault);
        assert!(
            error.to_string().contains("test:0") && error.message().contains("bad cell 7"),
            "{error}"
        );
        assert_eq!(error.driver().unwrap().to_string(), "TEST_FAULT (1)");
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        assert!(queue.take_failure().is_none());
        queue.submit(count()).unwrap();
        queue.synchronize().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn dropping_a_queue_does_not_block_and_runs_its_tasks() {
        let queues = queues();
        let queue = queues.create();
        let (open, wait) = gate();
        let (done, result) = mpsc::channel();
        queue.submit(wait).unwrap();
        queue
            .submit(move || {
                done.send(()).ok();
                Err(Error::new(ErrorKind::Driver, "late", "after the drop"))
            })
            .unwrap();
        let began = Instant::now();
        drop(queue);
        assert!(began.elapsed() < Duration::from_secs(1));
        assert!(result.try_recv().is_err());
        drop(open);
        // Whether the queue is still there or already gone, the device has its failure.
        queues.synchronize().unwrap();
        assert_eq!(queues.take_failure().unwrap().message(), "after the drop");
        result.recv().unwrap();
        assert!(queues.take_failure().is_none());
    }

    #[test]
    fn failures_of_dropped_queues_are_taken_one_by_one() {
        let queues = queues();
        for number in 0..100 {
            let message = format!("failure {number}");
            let fail = move || Err(Error::new(ErrorKind::Driver, "late", message));
            let queue = queues.create();
            queue.try_turn().unwrap().run(fail);
        }
        let found: BTreeSet<String> = std::iter::from_fn(|| queues.take_failure())
            .map(|error| error.message().to_owned())
            .collect();
        assert_eq!(found.len(), 100);
        drop(queues.create());
        assert!(lock(&queues.queues).queues.len() <= 16 + 1, "{queues:?}");
    }

    #[test]
    fn threads_end_with_their_queues() {
        let queues = queues();
        let busy = queues.create();
        busy.submit(|| Ok(())).unwrap();
        let shared = Arc::downgrade(&busy.shared);
        drop(busy);
        let began = Instant::now();
        while shared.strong_count() > 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "the thread still has the queue");
            thread::yield_now();
        }
    }

    #[test]
    fn an_idle_queue_has_no_thread() {
        let queue = queues().create();
        drop(queue.try_turn().unwrap());
        queue.synchronize().unwrap();
        assert!(queue.shared.lock().worker == Worker::Absent);
    }

    /// Waits when it is dropped.
    struct Waits(Arc<Queue>);

    impl Drop for Waits {
        fn drop(&mut self) {
            let ran = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&ran);
            self.0.try_turn().unwrap().run(|| Ok(()));
            self.0
                .submit(move || {
                    thread::sleep(Duration::from_millis(10));
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
                .unwrap();
            drop(self.0.turn().unwrap());
            self.0.synchronize().unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 1);
        }
    }

    thread_local! {
        static AT_THE_END: RefCell<Option<Waits>> = const { RefCell::new(None) };
    }

    #[test]
    fn a_thread_that_is_ending_waits_too() {
        let queue = Arc::new(queues().create());
        let last = Arc::clone(&queue);
        let ended = thread::spawn(move || {
            // Known before the queue's own local, and so dropped after it.
            AT_THE_END.set(Some(Waits(Arc::clone(&last))));
            last.try_turn().unwrap().run(|| Ok(()));
        });
        ended.join().unwrap();
        queue.synchronize().unwrap();
    }

    #[test]
    fn a_task_does_not_wait_for_its_own_queue() {
        let queues = Arc::new(queues());
        let queue = Arc::new(queues.create());
        let (ours, all) = (Arc::clone(&queue), Arc::clone(&queues));
        let (send, waits) = mpsc::channel();
        let task = move || {
            let event = Event::new();
            event.record(&ours)?;
            send.send(ours.synchronize()).ok();
            send.send(ours.turn().map(drop)).ok();
            send.send(all.synchronize()).ok();
            send.send(event.wait()).ok();
            Ok(())
        };
        queue.submit(task).unwrap();
        for _ in 0..4 {
            let refused = waits.recv_timeout(Duration::from_secs(10)).unwrap().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
            assert!(refused.to_string().contains("test:0"), "{refused}");
        }
        queue.synchronize().unwrap();
        queues.synchronize().unwrap();
    }
}
