//! The cores of a device, and distribution of loops over them.
#![expect(unsafe_code, reason = "vouches for the loop that a thread pool runs")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use backend_support::{Cores, Work, lock};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use runtime_core::{DeviceId, Result};

/// A loop that ends within this time is not worth waking a thread for.
const ALONE: Duration = Duration::from_micros(4);
/// Loops with fewer indices per thread are distributed at once, because a single index may take long.
const FEW_INDICES: usize = 64;

/// The threads that a device's loops run on. They start when a loop first needs them.
#[derive(Debug)]
pub(crate) struct CorePool {
    threads: usize,
    name: String,
    // `None` if the system provides no threads. Loops then run in the calling thread.
    pool: OnceLock<Option<ThreadPool>>,
}

impl CorePool {
    pub(crate) fn new(device: &DeviceId, threads: usize) -> Self {
        Self { threads, name: format!("{device} core"), pool: OnceLock::new() }
    }

    /// Performs `work` in this thread, with its loops distributed over the cores.
    ///
    /// A kernel begins in this thread and not in the pool. Therefore a kernel that is too small to be distributed is
    /// not handed to another thread. Also, no thread of the pool waits for the lock of a memory. The holder of the lock
    /// may be waiting for that thread.
    pub(crate) fn perform(&self, work: &Work) -> Result<()> {
        let held = work.hold();
        self.with(|cores| held.perform(cores))
    }

    /// Calls `f` in this thread with the cores.
    pub(crate) fn with<R>(&self, f: impl FnOnce(Cores<'_>) -> R) -> R {
        let spread = |count: usize, body: &(dyn Fn(usize) + Sync)| self.spread(count, body);
        // SAFETY: the indices before some number run here. A parallel iterator yields each of the others once, unless a
        // call panics. Its `for_each` returns or unwinds after everything that it began has ended.
        f(unsafe { Cores::new(&spread) })
    }

    fn spread(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        let done = self.begin_alone(count, body);
        match self.pool() {
            Some(pool) if done < count => {
                // Rayon drops all panics but one, and a payload that panics when dropped would abort the process.
                let (first, stopped) = (Mutex::new(None), AtomicBool::new(false));
                pool.install(|| {
                    (done..count).into_par_iter().for_each(|index| {
                        // The loop ends with the first panic. Further panics would only be printed.
                        if stopped.load(Ordering::Relaxed) {
                            return;
                        }
                        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(index))) {
                            stopped.store(true, Ordering::Relaxed);
                            let mut first = lock(&first);
                            match &*first {
                                None => *first = Some(payload),
                                Some(_) => std::mem::forget(payload),
                            }
                        }
                    });
                });
                if let Some(payload) = first.into_inner().unwrap_or_else(PoisonError::into_inner) {
                    resume_unwind(payload);
                }
            }
            _ => (done..count).for_each(body),
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Arc, Mutex};
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
