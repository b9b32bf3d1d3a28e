//! Events: recorded points in queues. Threads and other queues wait until a queue reaches them.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use runtime_core::Result;

use crate::lock;
use crate::queue::{Point, Queue};

/// A recorded point in a queue. Recording the event again replaces the earlier point. A wait refers to the point that
/// was the latest when the wait began.
#[derive(Debug, Default)]
pub struct Event {
    latest: Mutex<Option<Point>>,
}

/// A recorded point in a queue.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    reached: OnceLock<Instant>,
    waiting: Mutex<usize>,
    changed: Condvar,
}

impl Mark {
    fn reach(&self) {
        let waiting = lock(&self.waiting);
        // Set under the lock, so that no thread goes to sleep between its check and being counted.
        let _ = self.reached.set(Instant::now());
        if *waiting > 0 {
            self.changed.notify_all();
        }
    }

    pub(crate) fn wait(&self) {
        if self.is_reached() {
            return;
        }
        let mut waiting = lock(&self.waiting);
        *waiting += 1;
        while !self.is_reached() {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        *waiting -= 1;
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.reached.get().is_some()
    }
}

/// Sets its point as reached when it is dropped, so that a task that never ran does not block waiters.
pub(crate) struct Reach(pub(crate) Arc<Mark>);

impl Drop for Reach {
    fn drop(&mut self) {
        self.0.reach();
    }
}

impl Event {
    /// An event that was never recorded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the end of everything submitted to `queue` so far. This point replaces the one recorded earlier.
    ///
    /// # Errors
    ///
    /// As [`Queue::submit`]. The earlier point is then kept.
    pub fn record(&self, queue: &Queue) -> Result<()> {
        let point = queue.record()?;
        *lock(&self.latest) = Some(point);
        Ok(())
    }

    /// Makes tasks submitted to `queue` from now on wait for the latest point. Does not block.
    ///
    /// # Errors
    ///
    /// As [`Queue::submit`].
    pub fn hold_up(&self, queue: &Queue) -> Result<()> {
        match self.latest() {
            Some(point) if !point.mark.is_reached() => queue.wait_for(point),
            _ => Ok(()),
        }
    }

    /// Blocks until the latest point is reached. Returns at once if the event was never recorded. Runs the tasks before
    /// the point that no thread has begun, as [`Queue::turn`] does.
    ///
    /// # Errors
    ///
    /// As [`Queue::turn`].
    pub fn wait(&self) -> Result<()> {
        let Some(point) = self.latest() else { return Ok(()) };
        point.check_wait()?;
        if let Some(queue) = point.queue() {
            queue.assist_until(|| point.mark.is_reached());
        }
        point.mark.wait();
        Ok(())
    }

    /// Runs copies, fills and region copies before the latest point that no thread has begun, as
    /// [`wait`](Self::wait) does, but stops at anything that may take longer: kernels, waits, and memory that other
    /// operations use. Waits for nothing.
    pub fn assist(&self) {
        let unreached = self.latest().filter(|point| point.check_wait().is_ok());
        if let Some((queue, point)) = unreached.and_then(|point| Some((point.queue()?, point))) {
            queue.assist_briefly(|| point.mark.is_reached());
        }
    }

    /// Whether the latest point is reached. `true` if the event was never recorded.
    pub fn is_done(&self) -> bool {
        lock(&self.latest).as_ref().is_none_or(|latest| latest.mark.is_reached())
    }

    /// The time from the point of `earlier` to the point of this event. Zero if either point is not reached, or if this
    /// point was reached first.
    pub fn elapsed_since(&self, earlier: &Self) -> Duration {
        let reached =
            |event: &Self| event.latest().and_then(|latest| latest.mark.reached.get().copied());
        match (reached(earlier), reached(self)) {
            (Some(begin), Some(end)) => end.saturating_duration_since(begin),
            _ => Duration::ZERO,
        }
    }

    fn latest(&self) -> Option<Point> {
        lock(&self.latest).clone()
    }
}

impl crate::Mark for Event {
    /// Runs no tasks, because the thread that waits here drops owners.
    fn wait(&self) -> bool {
        if let Some(latest) = self.latest() {
            latest.mark.wait();
        }
        true
    }

    fn is_over(&self) -> bool {
        self.is_done()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc;

    use runtime_core::DeviceId;

    use super::*;
    use crate::{Identity, Move, Queues};

    fn queue(index: usize) -> Queue {
        Queues::new(Identity { device: DeviceId::new("test", index), fault: ("TEST_FAULT", 1) })
            .create()
    }

    fn blocked(queue: &Queue) -> mpsc::Sender<()> {
        let (open, gate) = mpsc::channel::<()>();
        queue
            .submit(move || {
                let _closed = gate.recv();
                Ok(())
            })
            .unwrap();
        open
    }

    #[test]
    fn an_event_without_a_mark_holds_nothing_up() {
        let (event, queue) = (Event::new(), queue(0));
        event.wait().unwrap();
        assert!(event.is_done());
        event.hold_up(&queue).unwrap();
        assert!(queue.is_idle());
    }

    #[test]
    fn a_queue_waits_for_another() {
        let (first, second, event) = (queue(0), queue(1), Event::new());
        let open = blocked(&first);
        event.record(&first).unwrap();
        event.hold_up(&second).unwrap();
        let (done, result) = mpsc::channel();
        second
            .submit(move || {
                done.send(()).ok();
                Ok(())
            })
            .unwrap();
        assert!(result.recv_timeout(Duration::from_millis(20)).is_err());
        assert!(!event.is_done());
        drop(open);
        result.recv().unwrap();
        event.wait().unwrap();
        assert!(event.is_done());
    }

    /// Counts its runs if its memory is free.
    struct Counted(Arc<AtomicUsize>, Arc<AtomicBool>);

    impl Move for Counted {
        fn run(&self) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn try_run(&self) -> Option<Result<()>> {
            self.1.load(Ordering::Relaxed).then(|| self.run())
        }
    }

    #[test]
    fn a_thread_that_assists_runs_moves_and_waits_for_nothing() {
        let (queue, event, early) = (queue(0), Event::new(), Event::new());
        let (runs, is_free) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let counted = || Counted(Arc::clone(&runs), Arc::clone(&is_free));
        let ran = || runs.load(Ordering::Relaxed);
        event.assist();
        // The queue's own thread has begun this task.
        let (open, held) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let hold = move || {
            begin.send(()).ok();
            let _closed = held.recv();
            Ok(())
        };
        queue.submit(hold).unwrap();
        begun.recv().unwrap();
        queue.submit_move(counted()).unwrap();
        event.record(&queue).unwrap();
        event.assist();
        assert_eq!(ran(), 0, "a thread runs the task before");
        drop(open);
        event.wait().unwrap();
        assert_eq!(ran(), 1);

        let turn = queue.turn().unwrap();
        queue.submit_move(counted()).unwrap();
        early.record(&queue).unwrap();
        let open = blocked(&queue);
        queue.submit_move(counted()).unwrap();
        event.record(&queue).unwrap();
        event.assist();
        assert_eq!(ran(), 1, "a thread has its turn");
        drop(turn);
        event.assist();
        assert!(!event.is_done());
        early.wait().unwrap();
        assert_eq!(ran(), 2);
        drop(open);
        event.wait().unwrap();
        assert_eq!(ran(), 3);
        queue.synchronize().unwrap();
    }

    #[test]
    fn a_move_that_would_wait_is_left_to_the_queue() {
        let (queue, event) = (queue(0), Event::new());
        let (runs, is_free) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        for free in [false, true] {
            is_free.store(free, Ordering::Relaxed);
            queue.submit_move(Counted(Arc::clone(&runs), Arc::clone(&is_free))).unwrap();
            event.record(&queue).unwrap();
            event.assist();
            event.wait().unwrap();
        }
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_wait_is_for_the_mark_of_its_time() {
        let (first, second, third, event) = (queue(0), queue(1), queue(2), Event::new());
        let open_first = blocked(&first);
        let open_second = blocked(&second);
        event.record(&first).unwrap();
        event.hold_up(&third).unwrap();
        event.record(&second).unwrap();
        drop(open_first);
        third.synchronize().unwrap();
        assert!(!event.is_done());
        drop(open_second);
        event.wait().unwrap();
    }

    /// The wait would end only after the task that waits, however many queues are between.
    #[test]
    fn a_task_is_refused_to_wait_for_what_comes_after_it() {
        let (first, second, third) = (queue(0), queue(1), queue(2));
        let [own, through, last] = [(); 3].map(|()| Arc::new(Event::new()));
        let (begin, begun) = mpsc::channel::<()>();
        let (said, heard) = mpsc::channel();
        let (early, waits, last_queue) =
            (Arc::new(Event::new()), Arc::clone(&last), third.downgrade());
        early.record(&third).unwrap();
        let earlier = Arc::clone(&early);
        // A point of the second queue that the task may wait for comes before one that it may not wait for.
        let (open, before) = (blocked(&second), Event::new());
        before.record(&second).unwrap();
        before.hold_up(&third).unwrap();
        first
            .submit(move || {
                begun.recv().unwrap();
                said.send(waits.wait().is_err_and(|error| error.is_refused_wait())).unwrap();
                said.send(earlier.wait().is_ok() && last_queue.upgrade().is_some()).unwrap();
                Ok(())
            })
            .unwrap();
        own.record(&first).unwrap();
        own.hold_up(&second).unwrap();
        through.record(&second).unwrap();
        through.hold_up(&third).unwrap();
        last.record(&third).unwrap();
        begin.send(()).unwrap();
        assert!(heard.recv().unwrap() && heard.recv().unwrap());
        drop(open);
        [first, second, third].iter().for_each(|queue| queue.synchronize().unwrap());
    }

    #[test]
    fn an_event_completes_after_its_queue_is_dropped() {
        let (first, event) = (queue(0), Event::new());
        let open = blocked(&first);
        event.record(&first).unwrap();
        drop(first);
        assert!(!event.is_done());
        drop(open);
        event.wait().unwrap();
    }

    #[test]
    fn time_passes_between_marks() {
        let (queue, begin, end) = (queue(0), Event::new(), Event::new());
        begin.record(&queue).unwrap();
        queue
            .submit(|| {
                std::thread::sleep(Duration::from_millis(5));
                Ok(())
            })
            .unwrap();
        end.record(&queue).unwrap();
        end.wait().unwrap();
        assert!(end.elapsed_since(&begin) >= Duration::from_millis(5));
        assert_eq!(begin.elapsed_since(&end), Duration::ZERO);
        assert_eq!(begin.elapsed_since(&Event::new()), Duration::ZERO);
    }
}
