//! In-order queues of tasks.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::{ptr, thread};

use runtime_core::{Error, ErrorKind, Result};
use smallvec::SmallVec;

use crate::{Event, Failures, Identity, Reaper, Reclaim, guarded, lock};

struct Task {
    run: Box<dyn FnOnce() -> Result<()> + Send>,
    /// Whether it runs behind a failure too.
    always: bool,
}

/// An in-order queue of tasks with a thread of its own.
///
/// Tasks run one after the other, in the order of [`submit`](Self::submit), on the queue's thread, which starts with
/// the first task. A thread that must wait for the queue takes a [`turn`](Self::turn) in the same order. While it
/// waits it runs the tasks ahead of it that nobody has begun, which spares two hand-overs between threads.
///
/// Behind a task that failed no other runs until the failure is reported: they end at once.
///
/// Dropping the queue does not block: its tasks run to the end, then its thread ends.
pub struct Queue {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    identity: Identity,
    state: Mutex<State>,
    /// Where the queue's thread waits for tasks.
    tasks: Condvar,
    /// Where threads wait for their turn.
    turns: Condvar,
    /// Where threads wait for what others do.
    ends: Condvar,
    failures: Failures,
    /// Where a failure goes that nobody asked this queue for.
    device_failures: Arc<Failures>,
}

struct State {
    entries: VecDeque<Entry>,
    /// Whether some thread runs a task or has its turn.
    running: bool,
    /// Tasks and turns that are over.
    ended: u64,
    /// How many have to be over before somebody who waits at `ends` goes on.
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
    /// Runs `task` after everything submitted so far. Does not wait for it. Its failure, or its panic as a
    /// `DeviceFault`, is kept for [`synchronize`](Self::synchronize).
    ///
    /// # Errors
    ///
    /// `Driver` if the system does not give the queue its thread; the task is dropped then.
    pub fn submit(&self, task: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        self.push(Task { run: Box::new(task), always: false })
    }

    /// As [`submit`](Self::submit), of a task that runs behind a failure too: one that others wait for.
    pub(crate) fn submit_always(
        &self,
        task: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.push(Task { run: Box::new(task), always: true })
    }

    fn push(&self, task: Task) -> Result<()> {
        let mut state = self.shared.lock();
        if state.worker == Worker::Absent {
            self.start()?;
            state.worker = Worker::Awake;
        }
        state.entries.push_back(Entry::Task(task));
        self.shared.unlock(state);
        Ok(())
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

    /// The queue for the caller alone, if it is idle. Never blocks.
    pub fn try_turn(&self) -> Option<Turn<'_>> {
        let mut state = self.shared.lock();
        if !state.is_idle() {
            return None;
        }
        state.running = true;
        Some(Turn { shared: &self.shared })
    }

    /// The queue for the caller alone, after everything submitted so far. Blocks until then.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` in a task of this queue, which would wait for itself.
    pub fn turn(&self) -> Result<Turn<'_>> {
        self.shared.check_wait()?;
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
    /// The first failure that was not reported yet; `InvalidArgument` in a task of this queue, which would wait for
    /// itself.
    pub fn synchronize(&self) -> Result<()> {
        self.shared.synchronize()
    }

    /// Reports a failure without waiting for anything.
    ///
    /// # Errors
    ///
    /// The first failure that was not reported yet.
    pub fn report(&self) -> Result<()> {
        self.shared.failures.report()
    }

    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// An address that no other queue alive has.
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

/// A queue in the hands of one thread: what it does now comes after everything submitted before and before everything
/// submitted later. Dropping it lets the queue go on.
pub struct Turn<'a> {
    shared: &'a Shared,
}

impl Turn<'_> {
    /// Runs `task` in this thread as if it had been submitted: its failure is kept, and behind a failure it does not run.
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

    /// Tasks and turns up to now.
    fn submitted(&self) -> u64 {
        self.ended + u64::from(self.running) + self.entries.len() as u64
    }

    /// Takes the next task if it can begin.
    fn begin(&mut self) -> Option<Task> {
        if self.running || !matches!(self.entries.front(), Some(Entry::Task(_))) {
            return None;
        }
        match self.entries.pop_front() {
            Some(Entry::Task(task)) => {
                self.running = true;
                Some(task)
            }
            _ => None,
        }
    }
}

thread_local! {
    /// The addresses of the queues whose tasks this thread is running, one inside the other. It is never destroyed, since
    /// destructors of other thread-locals may wait for queues, and holds no heap memory while no task runs.
    static RUNNING: ManuallyDrop<RefCell<SmallVec<[usize; 4]>>> = ManuallyDrop::default();
}

impl Shared {
    /// Refuses a wait of a task, a kernel's for instance, for the queue that it is in.
    pub(crate) fn check_wait(&self) -> Result<()> {
        let address = ptr::from_ref(self).addr();
        if !RUNNING.with(|running| running.borrow().contains(&address)) {
            return Ok(());
        }
        let message = "a kernel waits for the stream that it runs on";
        let refused = Error::new(ErrorKind::InvalidArgument, "wait", message);
        Err(refused.on(&self.identity.device))
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

    /// Unlocks the state, and wakes whoever is to go on if nobody has the queue: after unlocking, or a thread that is
    /// woken would at once wait for the lock.
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let wake = match state.entries.front() {
            _ if state.running => None,
            Some(Entry::Turn) => Some(&self.turns),
            // Waking a thread that is awake would be a system call for nothing.
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

    /// Waits for `condition`. Somebody else's turn may have come by the tasks just run.
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

    /// What the queue's thread does.
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

    /// Runs tasks that can begin, one after the other, while `go_on` says so.
    fn run_tasks<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        go_on: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        while go_on(&state) {
            let Some(task) = state.begin() else { break };
            drop(state);
            self.run(task.run, task.always);
            state = self.lock();
            self.end(&mut state);
        }
        state
    }

    /// Notes that the task or the turn is over that somebody had.
    fn end(&self, state: &mut State) {
        state.running = false;
        state.ended += 1;
        if state.awaited.is_some_and(|awaited| awaited <= state.ended) {
            state.awaited = None;
            self.ends.notify_all();
        }
    }

    /// Runs tasks that nobody has begun until `done` says that it is enough, or somebody else has the queue.
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
        self.check_wait()?;
        self.wait();
        self.failures.report()
    }

    /// Blocks until everything submitted so far is done. Is nothing that others would wait for, unlike a turn.
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

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = self.failures.report() {
            self.device_failures.keep(error);
        }
    }
}

/// The queues of one device.
#[derive(Debug)]
pub struct Queues {
    identity: Identity,
    queues: Mutex<Vec<Weak<Shared>>>,
    failures: Arc<Failures>,
    reaper: Reaper<NoDriver>,
}

/// The driver of devices in host memory, which takes back nothing: what they have goes by being dropped.
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
    /// No queues yet.
    pub fn new(identity: Identity) -> Self {
        let failures = Arc::default();
        let reaper = Reaper::new(&identity.device, &Arc::new(NoDriver), &failures);
        Self { identity, queues: Mutex::default(), failures, reaper }
    }

    /// Drops what may run a program's own code when it is dropped, once the queues in `after` are done with what they have now:
    /// at once if they are, else in a thread of its own, and never in a queue, which that code may wait for. Does not
    /// block. A panic is kept for [`synchronize`](Self::synchronize).
    pub fn retire<'a>(
        &self,
        owner: Box<dyn Any + Send + Sync>,
        after: impl IntoIterator<Item = &'a Queue>,
    ) {
        let mark = |queue: &Queue| {
            let event = Event::new();
            let Err(_) = event.record(queue) else { return Some(event) };
            // The system gives the queue no thread, so this one has to wait.
            drop(queue.turn());
            None
        };
        self.reaper.retire_owner(owner, after.into_iter().filter_map(mark).collect());
    }

    /// A new queue.
    pub fn create(&self) -> Queue {
        let state = State {
            entries: VecDeque::new(),
            running: false,
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
            failures: Failures::default(),
            device_failures: Arc::clone(&self.failures),
        });
        let mut queues = lock(&self.queues);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&shared));
        Queue { shared }
    }

    /// Blocks until everything submitted so far to any queue is done, also to queues that were dropped, and everything
    /// [retired](Self::retire) is dropped.
    ///
    /// # Errors
    ///
    /// The first failure that was not reported yet, of a queue or [kept](Self::failures) for the device. If several
    /// queues failed, the others' failures stay for the next call. `InvalidArgument` in a task of one of the queues.
    pub fn synchronize(&self) -> Result<()> {
        let queues: Vec<Arc<Shared>> =
            lock(&self.queues).iter().filter_map(Weak::upgrade).collect();
        queues.iter().try_for_each(|queue| queue.check_wait())?;
        for queue in &queues {
            queue.wait();
        }
        self.reaper.drain();
        self.failures.report().map_err(|error| self.identity.complete(error))?;
        queues.iter().try_for_each(|queue| queue.failures.report())
    }

    /// Failures that no queue has to report, of destructors for instance.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// Whose queues they are.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // Closing a device waits for no work.
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
    fn who_waits_for_a_queue_does_not_keep_it_busy() {
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
    fn behind_a_failure_nothing_runs_until_it_is_reported_once() {
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
        let error = queue.synchronize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceFault);
        assert!(
            error.to_string().contains("test:0") && error.message().contains("bad cell 7"),
            "{error}"
        );
        assert_eq!(error.driver().unwrap().to_string(), "TEST_FAULT (1)");
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        queue.synchronize().unwrap();
        queue.submit(count()).unwrap();
        queue.synchronize().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn dropping_a_queue_blocks_nobody_and_loses_nothing() {
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
        // Whether the queue is still there or already gone, its failure reaches the device.
        let error = loop {
            match queues.synchronize() {
                Ok(()) => thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(error.message(), "after the drop");
        result.recv().unwrap();
        queues.synchronize().unwrap();
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
