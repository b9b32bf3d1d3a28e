//! Ranks that read each other's memory.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use backend_sim::{SimConfig, SimDevice};
use halo::ErrorKind;
use halo::communicator::{Communicator, ThreadCommunicator};
use runtime_core::{Device, Event, Memory, Stream};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

/// A device whose streams are really late.
fn device() -> Device {
    Device::new(SimDevice::new(0, SimConfig::new())).unwrap()
}

fn filled(device: &Device, stream: &Stream, value: u64) -> (Memory<u64>, Event) {
    let mut memory = device.memory_allocate(16).unwrap();
    memory.fill(stream, value).unwrap();
    (memory, stream.record_event().unwrap())
}

/// One exchange, in which a rank copies the first elements of each peer's memory. Gives what it got.
fn exchange(
    ranks: &ThreadCommunicator,
    peers: &[usize],
    stream: &Stream,
    own: &mut Memory<u64>,
    value: u64,
) -> halo::Result<Vec<u64>> {
    own.fill(stream, value)?;
    let ready = stream.record_event()?;
    let mut got: Memory<u64> = stream.device().memory_allocate(peers.len())?;
    let read = ranks.direct().unwrap().lend(peers, &[own.view()], &ready, LONG, |lent| {
        for (index, lent) in lent.iter().enumerate() {
            assert_eq!(lent.rank, peers[index]);
            stream.wait(lent.ready)?;
            let mut place = got.view_mut().slice(index..index + 1)?;
            place.copy_from(stream, &lent.views[0].slice(3..4)?)?;
        }
        stream.record_event()
    })?;
    // The next fill must not overtake the peers' copies.
    read.iter().try_for_each(|event| stream.wait(event))?;
    got.to_vec(stream)
}

#[test]
fn neighbours_read_what_is_there_step_by_step() {
    let device = device();
    for (size, distances) in [(2, vec![1]), (3, vec![1, 2]), (5, vec![1, 4]), (4, vec![1, 2, 3])] {
        ThreadCommunicator::run(size, |ranks| {
            let stream = device.stream_create(&Default::default()).unwrap();
            let peers: Vec<usize> = distances.iter().map(|d| (ranks.rank() + d) % size).collect();
            let mut own = device.memory_allocate(16).unwrap();
            for step in 0..40 {
                let value = |rank: usize| 1000 * step + rank as u64;
                let got = exchange(&ranks, &peers, &stream, &mut own, value(ranks.rank()));
                assert_eq!(got.unwrap(), peers.iter().map(|p| value(*p)).collect::<Vec<_>>());
            }
        })
        .unwrap();
    }
}

#[test]
fn nobody_returns_while_another_reads() {
    let device = device();
    let reading = AtomicUsize::new(0);
    ThreadCommunicator::run(2, |ranks| {
        let (own, ready) = filled(&device, &device.default_stream(), 1);
        let direct = ranks.direct().unwrap();
        let peer = 1 - ranks.rank();
        let ended = direct.lend(&[peer], &[own.view()], &ready, LONG, |_| {
            reading.fetch_add(1, Ordering::SeqCst);
            if ranks.rank() == 0 {
                thread::sleep(SHORT);
            }
            reading.fetch_sub(1, Ordering::SeqCst);
            Ok(ready.clone())
        });
        assert_eq!(ended.unwrap().len(), 1);
        assert_eq!(reading.load(Ordering::SeqCst), 0);
    })
    .unwrap();
}

#[test]
fn a_rank_that_panics_instead_is_missed() {
    let device = device();
    let read = AtomicUsize::new(0);
    let run = AssertUnwindSafe(|| {
        ThreadCommunicator::run(3, |ranks| {
            let (own, ready) = filled(&device, &device.default_stream(), 1);
            let direct = ranks.direct().unwrap();
            let peers = [(ranks.rank() + 1) % 3, (ranks.rank() + 2) % 3];
            if ranks.rank() == 2 {
                // Never comes: 0 and 1 have each other, and wait for it.
                thread::sleep(SHORT);
                panic!("on purpose");
            }
            let start = Instant::now();
            let error = direct.lend(&peers, &[own.view()], &ready, LONG, |_| {
                read.fetch_add(1, Ordering::SeqCst);
                Ok(ready.clone())
            });
            assert_eq!(error.unwrap_err().kind(), ErrorKind::PeerLost);
            assert!(start.elapsed() < LONG);
        })
    });
    assert_eq!(*catch_unwind(run).unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    assert_eq!(read.into_inner(), 0);
}

/// Notes what has been read when the memory beside it goes.
struct Beside<'a> {
    read: &'a AtomicUsize,
    at_end: &'a AtomicUsize,
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.at_end.store(self.read.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

#[test]
fn a_reader_that_panics_keeps_its_own_memory_for_the_others() {
    let device = device();
    let (read, at_end, both) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(2));
    let run = AssertUnwindSafe(|| {
        ThreadCommunicator::run(2, |ranks| {
            let (own, ready) = filled(&device, &device.default_stream(), 1);
            let direct = ranks.direct().unwrap();
            let peer = 1 - ranks.rank();
            let _beside = (ranks.rank() == 0).then(|| Beside { read: &read, at_end: &at_end });
            let ended = direct.lend(&[peer], &[own.view()], &ready, LONG, |lent| {
                both.wait();
                assert!(ranks.rank() == 1, "in reading");
                thread::sleep(SHORT);
                read.store(lent[0].views[0].len(), Ordering::SeqCst);
                Ok(ready.clone())
            });
            assert!(ended.unwrap().is_empty());
        })
    });
    assert_eq!(*catch_unwind(run).unwrap_err().downcast::<&str>().unwrap(), "in reading");
    assert_eq!(at_end.into_inner(), 16);
}

#[test]
fn a_peer_that_does_not_come_is_a_timeout_and_may_come_later() {
    let device = device();
    ThreadCommunicator::run(2, |ranks| {
        let stream = device.stream_create(&Default::default()).unwrap();
        let peer = 1 - ranks.rank();
        let (mut own, ready) = filled(&device, &stream, 0);
        if ranks.rank() == 0 {
            let direct = ranks.direct().unwrap();
            let late = direct.lend(&[peer], &[own.view()], &ready, SHORT, |_| Ok(ready.clone()));
            let error = late.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert!(error.message().starts_with("rank 0 waited 50ms for rank 1"), "{error}");
        }
        ranks.barrier(LONG).unwrap();
        for step in 0..3 {
            let value = |rank: usize| 10 * step + rank as u64;
            let got = exchange(&ranks, &[peer], &stream, &mut own, value(ranks.rank())).unwrap();
            assert_eq!(got, [value(peer)]);
        }
    })
    .unwrap();
}

#[test]
fn a_failed_reading_is_its_own_error() {
    let device = device();
    let both = Barrier::new(2);
    let outcomes = ThreadCommunicator::run(2, |ranks| {
        let (own, ready) = filled(&device, &device.default_stream(), 1);
        let direct = ranks.direct().unwrap();
        let outcome = direct.lend(&[1 - ranks.rank()], &[own.view()], &ready, LONG, |lent| {
            both.wait();
            if ranks.rank() == 0 {
                lent[0].views[0].slice(0..99)?;
            }
            Ok(ready.clone())
        });
        outcome.map(|events| events.len()).map_err(|error| error.kind())
    });
    assert_eq!(outcomes.unwrap(), [Err(ErrorKind::OutOfBounds), Ok(0)]);
}

#[test]
fn wrong_peers_and_a_second_loan_are_refused() {
    let device = device();
    let [one, _two] = ThreadCommunicator::group(2).unwrap().try_into().unwrap();
    let (own, ready) = filled(&device, &device.default_stream(), 1);
    let direct = one.direct().unwrap();
    for peers in [&[2][..], &[0], &[1, 1]] {
        let refused = direct.lend(peers, &[], &ready, LONG, |_| Ok(ready.clone()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let inner = direct.lend(&[], &[own.view()], &ready, LONG, |_| {
        direct.lend(&[], &[own.view()], &ready, LONG, |_| Ok(ready.clone()))?;
        Ok(ready.clone())
    });
    assert_eq!(inner.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(direct.lend(&[], &[own.view()], &ready, LONG, |_| Ok(ready.clone())).is_ok());
}

#[test]
fn failures_at_random_leave_nothing_behind() {
    let device = device();
    ThreadCommunicator::run(3, |ranks| {
        let stream = device.stream_create(&Default::default()).unwrap();
        let rank = ranks.rank();
        let peers = [(rank + 1) % 3, (rank + 2) % 3];
        let mut own = device.memory_allocate(16).unwrap();
        for step in 0..60_u64 {
            // One of them fails in every other step, before or after the others came.
            let fails = (step % 2 == 1).then_some((step / 2 % 3) as usize);
            if (step / 6) % 3 == rank as u64 {
                thread::sleep(Duration::from_millis(1));
            }
            let (lender, ready) = filled(&device, &stream, step);
            let direct = ranks.direct().unwrap();
            let outcome = direct.lend(&peers, &[lender.view()], &ready, SHORT / 5, |lent| {
                assert_eq!(lent.len(), 2);
                if fails == Some(rank) {
                    lent[0].views[0].slice(0..99)?;
                }
                stream.record_event()
            });
            match outcome {
                Ok(events) => assert!(events.len() <= 2 && fails != Some(rank)),
                Err(error) if error.kind() == ErrorKind::OutOfBounds => {
                    assert_eq!(fails, Some(rank));
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
            }
            ranks.barrier(LONG).unwrap();
            let value = |rank: usize| 1000 * step + rank as u64;
            let got = exchange(&ranks, &peers, &stream, &mut own, value(rank)).unwrap();
            assert_eq!(got, peers.map(value));
        }
    })
    .unwrap();
}
