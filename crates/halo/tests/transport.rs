//! Ranks as threads.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "adopts memory")]

mod rules;

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use backend_host::HostDevice;
use halo::communicator::{Buffer, Communicator, Storage, ThreadCommunicator};
use halo::{ErrorKind, Result};
use rules::{LONG, RULES};
use runtime_core::{Device, Memory};

#[test]
fn every_rule_holds_on_threads() {
    for size in [1, 2, 3, 4, 6] {
        for (name, rule) in RULES {
            println!("{name}, {size} ranks");
            ThreadCommunicator::run(size, |ranks| rule(&ranks)).unwrap();
        }
    }
}

#[test]
fn results_come_in_the_order_of_ranks() {
    let ranks = ThreadCommunicator::run(5, |ranks| ranks.rank() * 10).unwrap();
    assert_eq!(ranks, [0, 10, 20, 30, 40]);
}

/// Runs `f` on ranks of which one panics, and returns the panic that the run ends with.
fn panics(size: usize, f: impl Fn(ThreadCommunicator) + Sync) -> String {
    let run = AssertUnwindSafe(|| ThreadCommunicator::run(size, f));
    let panic = catch_unwind(run).unwrap_err();
    (*panic.downcast::<&str>().unwrap()).to_owned()
}

#[test]
fn a_panic_ends_the_waits_of_others_at_once() {
    let start = Instant::now();
    let lost = AtomicUsize::new(0);
    let panic = panics(5, |ranks| match ranks.rank() {
        1 => {
            thread::sleep(Duration::from_millis(50));
            panic!("on purpose")
        }
        rank => {
            // Including ranks that wait for a healthy rank that will not come.
            let from = if rank == 0 { 1 } else { 0 };
            let received = ranks.receive(from, 1, Buffer::host(vec![0])).unwrap();
            let error = ranks.wait(received, LONG).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerLost);
            assert!(error.message().starts_with("rank 1 panicked"), "{error}");
            // The error is permanent.
            let error = ranks.send(rank, 1, Buffer::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerLost);
            assert_eq!(ranks.barrier(LONG).unwrap_err().kind(), ErrorKind::PeerLost);
            lost.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(panic, "on purpose");
    assert_eq!(lost.into_inner(), 4);
    assert!(start.elapsed() < LONG);
}

#[test]
fn the_run_ends_with_the_first_panic() {
    let panic = panics(4, |ranks| {
        if ranks.rank() == 2 {
            panic!("the cause");
        }
        ranks.barrier(LONG).unwrap();
    });
    assert_eq!(panic, "the cause");
}

/// A panic, or a result, whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a destructor that panics");
    }
}

/// Where several panics end a run, all but the first are thrown away, and so are the results of other ranks.
#[test]
fn a_panic_in_a_destructor_does_not_abort_the_process() {
    let all = catch_unwind(|| ThreadCommunicator::run::<()>(3, |_| panic_any(Bomb)));
    let panic = all.unwrap_err();
    assert!(panic.is::<Bomb>());
    std::mem::forget(panic);

    let one = AssertUnwindSafe(|| {
        let results = ThreadCommunicator::run(3, |ranks| {
            assert!(ranks.rank() != 1, "the cause");
            Bomb
        });
        results.map(std::mem::forget)
    });
    assert_eq!(catch_unwind(one).unwrap_err().downcast_ref::<&str>(), Some(&"the cause"));
}

#[test]
fn waits_for_a_rank_that_has_left_are_errors() {
    let outcomes = ThreadCommunicator::run(3, |ranks| match ranks.rank() {
        0 => {
            drop(ranks.send(1, 1, Buffer::host(vec![7; 4])));
            Vec::new()
        }
        rank => {
            let other = 3 - rank;
            let sent = ranks.send(other, 2, Buffer::host(vec![8; 4])).unwrap();
            let mut outcomes = Vec::new();
            for (from, tag) in [(0, 1), (0, 1), (other, 2)] {
                let received = ranks.receive(from, tag, Buffer::host(vec![0; 4])).unwrap();
                let received = ranks.wait(received, LONG);
                outcomes.push(received.map(|b| b.to_vec().unwrap()[0]).map_err(|e| e.kind()));
            }
            ranks.wait(sent, LONG).unwrap();
            outcomes
        }
    });
    let outcomes = outcomes.unwrap();
    let lost = Err(ErrorKind::PeerLost);
    assert_eq!(outcomes[1], [Ok(7), lost, Ok(8)]);
    assert_eq!(outcomes[2], [lost, lost, Ok(8)]);
}

#[test]
fn a_send_to_a_rank_that_has_left_is_an_error() {
    let mut ranks = ThreadCommunicator::group(2).unwrap();
    let (two, one) = (ranks.pop().unwrap(), ranks.pop().unwrap());
    let sent = one.send(1, 1, Buffer::host(vec![1])).unwrap();
    drop(two);
    assert_eq!(one.wait(sent, LONG).unwrap_err().kind(), ErrorKind::PeerLost);
    assert_eq!(one.send(1, 1, Buffer::default()).unwrap_err().kind(), ErrorKind::PeerLost);
}

/// Two of them have waited, and one still waits.
#[test]
fn many_ranks_of_a_group_leave_in_a_short_time() {
    let mut ranks = ThreadCommunicator::group(10_000).unwrap();
    let last = ranks.pop().unwrap();
    let received = ranks[1].receive(2, 1, Buffer::host(vec![0])).unwrap();
    ranks[1].wait(received, Duration::from_millis(1)).unwrap_err();
    thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let received = last.receive(9998, 1, Buffer::host(vec![0])).unwrap();
            last.wait(received, LONG).unwrap_err()
        });
        thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        drop(ranks);
        let took = start.elapsed();
        assert!(took < Duration::from_millis(500), "{took:?}");
        let error = waits.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::PeerLost);
    });
}

#[test]
fn a_wait_sleeps() {
    ThreadCommunicator::run(1, |ranks| {
        let received = ranks.receive(0, 1, Buffer::host(vec![0])).unwrap();
        let before = processor_time();
        ranks.wait(received, Duration::from_millis(500)).unwrap_err();
        let used = processor_time() - before;
        assert!(used < Duration::from_millis(50), "{used:?} of processor time");
    })
    .unwrap();
}

/// The CPU time that this thread has used.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// Memory whose owner uses the communicator when it is dropped.
struct Owner {
    _memory: Memory<u8>,
    ranks: Arc<ThreadCommunicator>,
    dropped: mpsc::Sender<Result<()>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.dropped.send(self.ranks.discard(1..9)).unwrap();
    }
}

#[test]
fn the_owner_of_a_discarded_buffer_may_use_the_communicator() {
    let [one, _two] = ThreadCommunicator::group(2).unwrap().try_into().unwrap();
    let ranks = Arc::new(one);
    let device = Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap();
    let memory = device.memory_allocate::<u8>(16).unwrap();
    let handle = memory.native().unwrap();
    let (dropped, is_dropped) = mpsc::channel();
    let owner = Owner { _memory: memory, ranks: Arc::clone(&ranks), dropped };
    // SAFETY: the owner keeps the memory, and nothing else uses it.
    let adopted = unsafe { device.memory_adopt::<u8>(handle, 16, owner) }.unwrap();
    let storage = Storage::Device(adopted);
    drop(ranks.receive(1, 7, Buffer::from(storage)).unwrap());
    // A thread that waits for ever does not end the test.
    let discarded = thread::spawn(move || ranks.discard(1..9));
    is_dropped.recv_timeout(LONG).expect("the owner was dropped, and waits for nothing").unwrap();
    discarded.join().unwrap().unwrap();
}
