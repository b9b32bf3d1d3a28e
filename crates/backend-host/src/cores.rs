//! The cores of a device, and distribution of loops over them.
#![expect(unsafe_code, reason = "vouches for the loop that a thread pool runs")]

use std::any::Any;
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use backend_support::{Cores, Work, lock};
use rayon::{ThreadPool, ThreadPoolBuilder};
use runtime_core::{DeviceId, Result};

/// A loop that ends within this time is not worth waking a thread for.
const ALONE: Duration = Duration::from_micros(4);
/// Loops with fewer indices per thread are distributed at once, because a single index may take long.
const FEW_INDICES: usize = 64;
/// A thread takes this fraction of its share of the indices that are left.
const PORTIONS: usize = 4;
/// The number of requests for help per thread that may wait until a thread is free.
const REQUESTS: usize = 4;

/// The threads that a device's loops run on. They start when a loop first needs them.
#[derive(Debug)]
pub(crate) struct CorePool {
    threads: usize,
    name: String,
    // `None` if the system provides no threads. Loops then run in the calling thread.
    pool: OnceLock<Option<ThreadPool>>,
    /// The number of requests for help that no thread has taken.
    requests: Arc<AtomicUsize>,
}

impl CorePool {
    pub(crate) fn new(device: &DeviceId, threads: usize) -> Self {
        let name = format!("{device} core");
        Self { threads, name, pool: OnceLock::new(), requests: Arc::default() }
    }

    /// Performs `work` in this thread, with its loops distributed over the cores.
    pub(crate) fn perform(&self, work: &Work) -> Result<()> {
        let held = work.hold();
        self.with(|cores| held.perform(cores))
    }

    /// Calls `f` in this thread with the cores.
    pub(crate) fn with<R>(&self, f: impl FnOnce(Cores<'_>) -> R) -> R {
        let spread = |count: usize, body: &(dyn Fn(usize) + Sync)| self.spread(count, body);
        // SAFETY: the indices before some number run here. A `Loop` yields each of the others once, unless a call
        // panics, and `run` ends after every call.
        f(unsafe { Cores::new(&spread) })
    }

    fn spread(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        let done = self.begin_alone(count, body);
        match self.pool() {
            Some(pool) if done < count => self.run(pool, done..count, body),
            _ => (done..count).for_each(body),
        }
    }

    /// Runs a loop in this thread, with the help of threads of the pool that are free.
    ///
    /// This thread holds locks of memory and streams. Therefore it must not wait for a thread that has not begun, and
    /// must not run other jobs while it waits, as `ThreadPool::install` does in a thread of another pool: the job could
    /// need the locks.
    fn run(&self, pool: &ThreadPool, indices: Range<usize>, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes. Nothing below unwinds before `Loop::end`, which returns after the last use
        // of the body.
        let body = unsafe {
            mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(body)
        };
        let shared = Arc::new(Loop::new(body, &indices, self.threads));
        for _ in 0..indices.len().min(self.threads) - 1 {
            if self.requests.load(Ordering::Relaxed) >= REQUESTS * self.threads {
                break;
            }
            self.requests.fetch_add(1, Ordering::Relaxed);
            let (shared, requests) = (Arc::clone(&shared), Arc::clone(&self.requests));
            pool.spawn(move || {
                requests.fetch_sub(1, Ordering::Relaxed);
                shared.help();
            });
        }
        shared.take_part();
        if let Some(payload) = shared.end() {
            resume_unwind(payload);
        }
    }

    /// Calls the body for the first indices, until the loop proves worth distributing. Returns the number of these
    /// indices.
    fn begin_alone(&self, count: usize, body: &(dyn Fn(usize) + Sync)) -> usize {
        if count / FEW_INDICES < self.threads {
            return 0;
        }
        let began = Instant::now();
        // The stretches grow, because reading the time takes longer than a small body. No stretch is so long that this
        // thread would be the last to end.
        let (mut done, mut stretch, longest) = (0, 1, count / self.threads / 8);
        while done < count && began.elapsed() < ALONE {
            let end = count.min(done + stretch);
            (done..end).for_each(body);
            done = end;
            stretch = longest.min(stretch * 2);
        }
        done
    }

    fn pool(&self) -> Option<&ThreadPool> {
        let build = || {
            let name = self.name.clone();
            let builder = ThreadPoolBuilder::new().num_threads(self.threads);
            builder.thread_name(move |index| format!("{name} {index}")).build().ok()
        };
        match self.threads {
            1 => None,
            _ => self.pool.get_or_init(build).as_ref(),
        }
    }
}

/// A loop that several threads run.
struct Loop {
    /// Not used after `end`.
    body: &'static (dyn Fn(usize) + Sync),
    /// The first index that no thread has taken.
    next: AtomicUsize,
    end: usize,
    threads: usize,
    helpers: Mutex<Helpers>,
    left: Condvar,
    /// The first panic of the body.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Default)]
struct Helpers {
    /// The number of threads that take part, beside the one that began the loop.
    active: usize,
    /// No thread joins any more.
    closed: bool,
}

impl Loop {
    fn new(body: &'static (dyn Fn(usize) + Sync), indices: &Range<usize>, threads: usize) -> Self {
        Self {
            body,
            next: AtomicUsize::new(indices.start),
            end: indices.end,
            threads,
            helpers: Mutex::default(),
            left: Condvar::new(),
            panic: Mutex::default(),
        }
    }

    /// Takes part, unless the loop has ended.
    fn help(&self) {
        {
            let mut helpers = lock(&self.helpers);
            if helpers.closed {
                return;
            }
            helpers.active += 1;
        }
        self.take_part();
        let mut helpers = lock(&self.helpers);
        helpers.active -= 1;
        if helpers.active == 0 {
            self.left.notify_all();
        }
    }

    /// Calls the body with indices until none are left. Does not unwind.
    fn take_part(&self) {
        while let Some(indices) = self.take() {
            let Err(payload) = catch_unwind(AssertUnwindSafe(|| indices.for_each(self.body)))
            else {
                continue;
            };
            // The loop ends with the first panic. Further panics would only be printed.
            self.next.store(self.end, Ordering::Relaxed);
            let mut first = lock(&self.panic);
            match &*first {
                None => *first = Some(payload),
                // A payload that panics when dropped would unwind.
                Some(_) => mem::forget(payload),
            }
        }
    }

    /// The next indices to call the body with. The ranges shrink, so that all threads end at about the same time.
    fn take(&self) -> Option<Range<usize>> {
        let mut start = self.next.load(Ordering::Relaxed);
        loop {
            let left = self.end.checked_sub(start).filter(|left| *left > 0)?;
            let end = start + (left / self.threads / PORTIONS).max(1);
            match self.next.compare_exchange_weak(start, end, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(start..end),
                Err(now) => start = now,
            }
        }
    }

    /// Waits until no other thread uses the body. Returns the panic of a call.
    fn end(&self) -> Option<Box<dyn Any + Send>> {
        let mut helpers = lock(&self.helpers);
        helpers.closed = true;
        while helpers.active > 0 {
            helpers = self.left.wait(helpers).unwrap_or_else(PoisonError::into_inner);
        }
        lock(&self.panic).take()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use backend_support::{Block, Span};

    use super::*;

    fn pool(threads: usize) -> CorePool {
        CorePool::new(&DeviceId::new("host", 0), threads)
    }

    fn add_one(to: &AtomicUsize) {
        to.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn every_index_runs_once() {
        for threads in [1, 2, 3, 8] {
            let pool = pool(threads);
            for count in [0, 1, 2, 3, 7, 63, 64, 1000, 100_000] {
                let counts: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                pool.with(|cores| cores.for_each(count, &|index| add_one(&counts[index])));
                assert!(
                    counts.iter().all(|n| n.load(Ordering::Relaxed) == 1),
                    "{count} on {threads}"
                );
            }
        }
    }

    #[test]
    fn slow_loops_run_on_several_threads_and_short_ones_on_none_else() {
        let threads_of = |count: usize, time: Duration| {
            let seen = Mutex::new(HashSet::new());
            let body = |_| {
                seen.lock().unwrap().insert(thread::current().id());
                thread::sleep(time);
            };
            pool(4).with(|cores| cores.for_each(count, &body));
            seen.into_inner().unwrap()
        };
        assert!(threads_of(64, Duration::from_millis(2)).len() >= 4);
        assert_eq!(threads_of(1, Duration::ZERO), HashSet::from([thread::current().id()]));
    }

    #[test]
    fn loops_nest() {
        let (pool, total) = (pool(3), AtomicUsize::new(0));
        pool.with(|cores| {
            cores.for_each(20, &|_| pool.with(|cores| cores.for_each(20, &|_| add_one(&total))));
        });
        assert_eq!(total.into_inner(), 400);
    }

    /// Its thread holds locks that the other job may need.
    #[test]
    fn a_loop_in_a_thread_of_another_pool_runs_no_job_of_that_pool() {
        let (ours, theirs) = (pool(2), ThreadPoolBuilder::new().num_threads(1).build().unwrap());
        let ended = AtomicBool::new(false);
        let body = |_| thread::sleep(Duration::from_millis(1));
        let first = || {
            ours.with(|cores| cores.for_each(64, &body));
            ended.store(true, Ordering::Relaxed);
        };
        theirs.install(|| rayon::join(first, || assert!(ended.load(Ordering::Relaxed))));
    }

    /// All threads of the pool are busy, and wait for the loop.
    #[test]
    fn a_loop_ends_without_the_help_of_the_pool() {
        let (pool, ended) = (pool(2), Arc::new((Mutex::new(false), Condvar::new())));
        for _ in 0..2 {
            let ended = Arc::clone(&ended);
            pool.pool().unwrap().spawn(move || {
                let timeout = Duration::from_secs(60);
                let waited = ended.1.wait_timeout_while(lock(&ended.0), timeout, |ended| !*ended);
                assert!(!waited.unwrap().1.timed_out());
            });
        }
        for _ in 0..100 {
            let total = AtomicUsize::new(0);
            pool.with(|cores| cores.for_each(50, &|_| add_one(&total)));
            assert_eq!(total.into_inner(), 50);
        }
        assert!(pool.requests.load(Ordering::Relaxed) <= REQUESTS * 2, "requests pile up");
        *lock(&ended.0) = true;
        ended.1.notify_all();
    }

    #[test]
    fn a_panic_is_resumed_after_all_workers_have_ended() {
        let (pool, inside) = (pool(4), AtomicUsize::new(0));
        for bad in [0, 13, 199] {
            let body = |index: usize| {
                inside.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_micros(100));
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(index != bad, "index {index}");
            };
            let run = || pool.with(|cores| cores.for_each(200, &body));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            assert_eq!(inside.load(Ordering::SeqCst), 0);
        }
    }

    #[test]
    fn large_copies_are_right_on_several_cores() {
        let len = (9 << 20) + 5;
        let (src, dst) = (Block::zeroed(len, None).unwrap(), Block::zeroed(len, None).unwrap());
        let span = |block: &Arc<Block>| Span::new(block, 0, len).unwrap();
        let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
        let pool = pool(2);
        pool.with(|cores| span(&src).copy_in(&bytes, cores)).unwrap();
        pool.perform(&Work::Copy { src: span(&src), dst: span(&dst) }).unwrap();
        let mut back = vec![0; len];
        pool.with(|cores| span(&dst).copy_out(&mut back, cores)).unwrap();
        assert!(bytes == back);
    }
}
