//! Ranks that read each other's memory directly.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use backend_sim::{SimConfig, SimDevice};
use halo::ErrorKind;
use halo::communicator::{
    Communicator, LentViews, Loan, LoanEvents, LoanSession, ThreadCommunicator,
};
use runtime_core::{Device, Memory, Stream};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

/// A device whose streams run with a real delay.
fn device() -> Device {
    Device::new(SimDevice::new(0, SimConfig::new())).unwrap()
}

/// The memory that a rank lends.
struct Rank {
    own: Memory<u64>,
    stream: Stream,
    events: LoanEvents,
}

impl Rank {
    fn new(device: &Device, value: u64) -> Self {
        let stream = device.stream_create(&Default::default()).unwrap();
        let mut own = device.memory_allocate(16).unwrap();
        own.fill(&stream, value).unwrap();
        let events = LoanEvents::new(&stream).unwrap();
        Self { own, stream, events }
    }

    /// Lends its memory, and calls `f` with the peers' views.
    fn lend(
        &self,
        ranks: &ThreadCommunicator,
        peers: &[usize],
        timeout: Duration,
        f: impl FnOnce(&[LentViews<'_>]) -> halo::Result<()>,
    ) -> halo::Result<()> {
        let Self { own, events, .. } = self;
        let loan = Loan { tag: 5, peers, views: &[own.view().erase()], events, timeout };
        ranks.direct().unwrap().lend(&loan, |session| session.read(f))
    }

    /// One exchange, in which a rank copies an element of each peer's memory. Returns the copied elements.
    fn exchange(
        &mut self,
        ranks: &ThreadCommunicator,
        peers: &[usize],
        value: u64,
    ) -> halo::Result<Vec<u64>> {
        self.own.fill(&self.stream, value)?;
        let mut got: Memory<u64> = self.stream.device().memory_allocate(peers.len())?;
        self.lend(ranks, peers, LONG, |lent| {
            for (index, lent) in lent.iter().enumerate() {
                assert_eq!(lent.rank, peers[index]);
                let mut place = got.view_mut().slice(index..index + 1)?;
                place
                    .copy_from(&self.stream, &lent.views().next().unwrap().slice(3..4)?.typed()?)?;
            }
            Ok(())
        })?;
        // The next fill must not overtake the peers' copies.
        got.to_vec(&self.stream)
    }
}

#[test]
fn neighbours_read_the_values_of_each_step() {
    let device = device();
    for (size, distances) in [(2, vec![1]), (3, vec![1, 2]), (5, vec![1, 4]), (4, vec![1, 2, 3])] {
        ThreadCommunicator::run(size, |ranks| {
            let peers: Vec<usize> = distances.iter().map(|d| (ranks.rank() + d) % size).collect();
            let mut own = Rank::new(&device, 0);
            for step in 0..40 {
                let value = |rank: usize| 1000 * step + rank as u64;
                let got = own.exchange(&ranks, &peers, value(ranks.rank()));
                assert_eq!(got.unwrap(), peers.iter().map(|p| value(*p)).collect::<Vec<_>>());
            }
        })
        .unwrap();
    }
}

#[test]
fn no_rank_returns_while_another_reads() {
    let device = device();
    let reading = AtomicUsize::new(0);
    ThreadCommunicator::run(2, |ranks| {
        let own = Rank::new(&device, 1);
        let ended = own.lend(&ranks, &[1 - ranks.rank()], LONG, |_| {
            reading.fetch_add(1, Ordering::SeqCst);
            if ranks.rank() == 0 {
                thread::sleep(SHORT);
            }
            reading.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        });
        ended.unwrap();
        assert_eq!(reading.load(Ordering::SeqCst), 0);
    })
    .unwrap();
}

#[test]
fn waits_for_a_rank_that_panics_are_errors() {
    let device = device();
    let read = AtomicUsize::new(0);
    let run = AssertUnwindSafe(|| {
        ThreadCommunicator::run(3, |ranks| {
            let own = Rank::new(&device, 1);
            let peers = [(ranks.rank() + 1) % 3, (ranks.rank() + 2) % 3];
            if ranks.rank() == 2 {
                // Never joins: 0 and 1 have met, and wait for it.
                thread::sleep(SHORT);
                panic!("on purpose");
            }
            let start = Instant::now();
            let error = own.lend(&ranks, &peers, LONG, |_| {
                read.fetch_add(1, Ordering::SeqCst);
                Ok(())
            });
            assert_eq!(error.unwrap_err().kind(), ErrorKind::PeerLost);
            assert!(start.elapsed() < LONG);
        })
    });
    assert_eq!(*catch_unwind(run).unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    assert_eq!(read.into_inner(), 0);
}

/// Rank 1 fails in some way after rank 0 has enqueued its copy of the memory that rank 1 lends. Rank 1 then changes
/// that memory. The device is so late that the copy has not run yet.
fn fails_after_a_peer_has_copied(
    peers: &[usize],
    fail: impl Fn(&LoanSession<'_>, &Barrier) -> halo::Result<()> + Sync,
) {
    let config = SimConfig::new().jitter(Duration::from_millis(20));
    let device = Device::new(SimDevice::new(0, config)).unwrap();
    let (copied, changed) = (Barrier::new(2), Barrier::new(2));
    ThreadCommunicator::run(3, |ranks| {
        let mut own = Rank::new(&device, ranks.rank() as u64);
        if ranks.rank() == 0 {
            let mut got: Memory<u64> = device.memory_allocate(16).unwrap();
            let Rank { own, stream, events } = &own;
            let views = [own.view().erase()];
            let loan = Loan { tag: 5, peers: &[1], views: &views, events, timeout: LONG };
            let lent = ranks.direct().unwrap().lend(&loan, |session| {
                session.read(|lent| {
                    (0..20).try_for_each(|_| got.fill(stream, 7))?;
                    got.view_mut().erase().copy_from(stream, &lent[0].views().next().unwrap())
                })?;
                copied.wait();
                Ok(())
            });
            lent.unwrap();
            changed.wait();
            assert_eq!(got.to_vec(stream).unwrap(), [1; 16]);
        } else if ranks.rank() == 1 {
            let Rank { own: memory, events, .. } = &own;
            let views = [memory.view().erase()];
            let loan = Loan { tag: 5, peers, views: &views, events, timeout: SHORT };
            let lend = || ranks.direct().unwrap().lend(&loan, |session| fail(session, &copied));
            let failed = catch_unwind(AssertUnwindSafe(lend));
            assert!(!matches!(failed, Ok(Ok(()))));
            own.own.fill(&own.stream, 999).unwrap();
            own.stream.synchronize().unwrap();
            changed.wait();
        }
    })
    .unwrap();
}

#[test]
fn changes_after_a_timeout_do_not_reach_readers() {
    fails_after_a_peer_has_copied(&[0, 2], |session, copied| {
        copied.wait();
        session.read(|_| panic!("without rank 2"))
    });
}

#[test]
fn changes_after_a_panic_do_not_reach_readers() {
    fails_after_a_peer_has_copied(&[0], |session, copied| {
        session.read(|_| Ok(()))?;
        copied.wait();
        // Without printing the location of the panic, which would take longer than the copy.
        resume_unwind(Box::new("on purpose"))
    });
}

/// A rank that has read goes on to a loan of another stream before the lender has waited for the event of its reading.
#[test]
fn a_loan_of_another_stream_changes_no_event() {
    let config = SimConfig::new().jitter(Duration::from_millis(20));
    let device = Device::new(SimDevice::new(0, config)).unwrap();
    let (went_on, changed) = (Barrier::new(2), Barrier::new(2));
    ThreadCommunicator::run(3, |ranks| {
        let mut own = Rank::new(&device, 1);
        if ranks.rank() == 0 {
            let Rank { own: memory, events, .. } = &own;
            let views = [memory.view().erase()];
            let loan = Loan { tag: 5, peers: &[1], views: &views, events, timeout: LONG };
            let lent = ranks.direct().unwrap().lend(&loan, |session| {
                session.read(|_| Ok(()))?;
                went_on.wait();
                Ok(())
            });
            lent.unwrap();
            own.own.fill(&own.stream, 999).unwrap();
            own.stream.synchronize().unwrap();
            changed.wait();
        } else if ranks.rank() == 1 {
            let mut got: Memory<u64> = device.memory_allocate(16).unwrap();
            let read = own.lend(&ranks, &[0], LONG, |lent| {
                (0..20).try_for_each(|_| got.fill(&own.stream, 7))?;
                got.view_mut().erase().copy_from(&own.stream, &lent[0].views().next().unwrap())
            });
            read.unwrap();
            Rank::new(&device, 2).lend(&ranks, &[2], LONG, |_| Ok(())).unwrap();
            went_on.wait();
            changed.wait();
            assert_eq!(got.to_vec(&own.stream).unwrap(), [1; 16]);
        } else {
            own.lend(&ranks, &[1], LONG, |_| Ok(())).unwrap();
        }
    })
    .unwrap();
}

#[test]
fn a_failed_reading_cannot_be_repeated() {
    let device = device();
    let outcomes = ThreadCommunicator::run(2, |ranks| {
        let own = Rank::new(&device, 1);
        let Rank { own, events, .. } = &own;
        let (peers, views) = ([1 - ranks.rank()], [own.view().erase()]);
        let loan = Loan { tag: 1, peers: &peers, views: &views, events, timeout: LONG };
        ranks.direct().unwrap().lend(&loan, |session| {
            let start = Instant::now();
            let failed =
                session.read(|lent| lent[0].views().next().unwrap().slice(0..99).map(drop));
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::OutOfBounds);
            assert_eq!(session.try_read(|_| Ok(())).unwrap_err().kind(), ErrorKind::Conflict);
            let again = session.read(|_| Ok(())).unwrap_err();
            assert!(start.elapsed() < LONG);
            Err::<(), _>(again)
        })
    });
    for outcome in outcomes.unwrap() {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.message().contains("failed to read before"), "{error}");
    }
}

/// A rank goes on to work after its reading failed. It works until its peer is done, or has waited too long.
#[test]
fn a_reading_that_failed_delays_no_peer() {
    let device = device();
    type Fail = fn(&[LentViews<'_>]) -> halo::Result<()>;
    let fail: [Fail; 2] = [
        |lent| lent[0].views().next().unwrap().slice(0..99).map(drop),
        |_| resume_unwind(Box::new("on purpose")),
    ];
    for fail in fail {
        let (done, is_done) = mpsc::channel();
        let is_done = Mutex::new(is_done);
        ThreadCommunicator::run(2, |ranks| {
            let own = Rank::new(&device, 1);
            if ranks.rank() == 0 {
                own.lend(&ranks, &[1], LONG, |_| Ok(())).unwrap();
                done.send(()).unwrap();
                return;
            }
            let Rank { own, events, .. } = &own;
            let views = [own.view().erase()];
            let loan = Loan { tag: 5, peers: &[0], views: &views, events, timeout: LONG };
            let lent = ranks.direct().unwrap().lend(&loan, |session| {
                let read = catch_unwind(AssertUnwindSafe(|| session.read(fail)));
                assert!(!matches!(read, Ok(Ok(()))));
                assert!(!session.has_read());
                Ok(is_done.lock().unwrap().recv_timeout(LONG / 3))
            });
            lent.unwrap().expect("rank 0 waits for the end of the reading");
        })
        .unwrap();
    }
}

/// Records what has been read when the memory next to it is dropped.
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
fn a_reader_that_panics_keeps_its_memory_until_others_have_read() {
    let device = device();
    let (read, at_end, both) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(2));
    let run = AssertUnwindSafe(|| {
        ThreadCommunicator::run(2, |ranks| {
            let own = Rank::new(&device, 1);
            let _beside = (ranks.rank() == 0).then(|| Beside { read: &read, at_end: &at_end });
            let ended = own.lend(&ranks, &[1 - ranks.rank()], LONG, |lent| {
                both.wait();
                assert!(ranks.rank() == 1, "in reading");
                thread::sleep(SHORT);
                read.store(lent[0].views().next().unwrap().len(), Ordering::SeqCst);
                Ok(())
            });
            ended.unwrap();
        })
    });
    assert_eq!(*catch_unwind(run).unwrap_err().downcast::<&str>().unwrap(), "in reading");
    assert_eq!(at_end.into_inner(), 16);
}

#[test]
fn a_late_peer_is_a_timeout_and_may_exchange_later() {
    let device = device();
    ThreadCommunicator::run(2, |ranks| {
        let peer = 1 - ranks.rank();
        let mut own = Rank::new(&device, 0);
        if ranks.rank() == 0 {
            let late = own.lend(&ranks, &[peer], SHORT, |_| Ok(()));
            let error = late.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert!(error.message().starts_with("rank 0 waited 50ms for rank 1"), "{error}");
        }
        ranks.barrier(LONG).unwrap();
        for step in 0..3 {
            let value = |rank: usize| 10 * step + rank as u64;
            let got = own.exchange(&ranks, &[peer], value(ranks.rank())).unwrap();
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
        let own = Rank::new(&device, 1);
        let outcome = own.lend(&ranks, &[1 - ranks.rank()], LONG, |lent| {
            both.wait();
            if ranks.rank() == 0 {
                lent[0].views().next().unwrap().slice(0..99)?;
            }
            Ok(())
        });
        outcome.map_err(|error| error.kind())
    });
    assert_eq!(outcomes.unwrap(), [Err(ErrorKind::OutOfBounds), Ok(())]);
}

#[test]
fn wrong_peers_and_a_second_loan_are_refused() {
    let device = device();
    let [one, _two] = ThreadCommunicator::group(2).unwrap().try_into().unwrap();
    let own = Rank::new(&device, 1);
    for peers in [&[2][..], &[0], &[1, 1]] {
        let refused = own.lend(&one, peers, LONG, |_| Ok(()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let inner = own.lend(&one, &[], LONG, |_| own.lend(&one, &[], LONG, |_| Ok(())));
    assert_eq!(inner.unwrap_err().kind(), ErrorKind::Conflict);
    own.lend(&one, &[], LONG, |_| Ok(())).unwrap();
}

/// A loan that has ended leaves a later one with its tag alone, also if it is dropped after that one began.
#[test]
fn a_loan_ends_once() {
    /// Calls a function when it is dropped.
    struct OnDrop<F: FnMut()>(F);

    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            self.0();
        }
    }

    let device = device();
    let ranks = ThreadCommunicator::group(2).unwrap();
    let (late, waits) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let later = scope.spawn(|| {
            let own = Rank::new(&device, 7);
            late.wait();
            own.lend(&ranks[0], &[1], LONG, |_| {
                waits.wait();
                Ok(())
            })
        });
        // The peer is not there, so this ends by a timeout. Its result is dropped while the later loan is there.
        let own = Rank::new(&device, 1);
        let views = [own.own.view().erase()];
        let timeout = Duration::from_millis(20);
        let loan = Loan { tag: 5, peers: &[1], views: &views, events: &own.events, timeout };
        let mut peer = None;
        let in_between = OnDrop(|| {
            late.wait();
            let (ranks, device, waits) = (&ranks, &device, &waits);
            peer = Some(scope.spawn(move || {
                let Rank { own, stream, events } = &Rank::new(device, 9);
                let views = [own.view().erase()];
                let loan = Loan { tag: 5, peers: &[0], views: &views, events, timeout: LONG };
                ranks[1].direct().unwrap().lend(&loan, |session| {
                    waits.wait();
                    let mut seen = Vec::new();
                    session.read(|lent| {
                        let view = lent[0].views().next().unwrap();
                        seen = view.typed::<u64>()?.to_vec(stream)?;
                        Ok(())
                    })?;
                    Ok(seen)
                })
            }));
            waits.wait();
        });
        let outcome = ranks[0].direct().unwrap().lend(&loan, |_| Ok(in_between));
        assert_eq!(outcome.map(drop).unwrap_err().kind(), ErrorKind::Timeout);
        waits.wait();
        assert_eq!(peer.unwrap().join().unwrap().unwrap(), [7; 16]);
        later.join().unwrap().unwrap();
    });
}

/// One rank works during the exchange. The others read its views meanwhile, and it ends after they have read.
#[test]
fn a_rank_that_works_does_not_delay_readers() {
    let device = device();
    let read = Barrier::new(2);
    ThreadCommunicator::run(2, |ranks| {
        let own = Rank::new(&device, ranks.rank() as u64);
        let Rank { own, stream, events } = &own;
        let peers = [1 - ranks.rank()];
        let views = [own.view().erase()];
        let loan = Loan { tag: 1, peers: &peers, views: &views, events, timeout: LONG };
        ranks.direct().unwrap().lend(&loan, |session| {
            if ranks.rank() == 0 {
                // Rank 1 reads before this rank does.
                read.wait();
                assert!(!session.has_read());
            }
            session.read(|lent| {
                let copy: Vec<u64> = lent[0].views().next().unwrap().typed()?.to_vec(stream)?;
                assert_eq!(copy, [peers[0] as u64; 16]);
                Ok(())
            })?;
            if ranks.rank() == 1 {
                read.wait();
            }
            assert!(session.try_read(|_| panic!("a second time"))?);
            Ok(())
        })
    })
    .unwrap()
    .into_iter()
    .for_each(Result::unwrap);
}

/// Loans with different tags do not mix, in any order.
#[test]
fn tags_distinguish_loans() {
    let device = device();
    ThreadCommunicator::run(2, |ranks| {
        let peers = [1 - ranks.rank()];
        thread::scope(|scope| {
            for tag in if ranks.rank() == 0 { [1, 2] } else { [2, 1] } {
                let (ranks, device) = (&ranks, &device);
                scope.spawn(move || {
                    let own = Rank::new(device, tag);
                    let Rank { own, stream, events } = &own;
                    let views = [own.view().erase()];
                    let loan = Loan { tag, peers: &peers, views: &views, events, timeout: LONG };
                    let read = ranks.direct().unwrap().lend(&loan, |session| {
                        let mut copy = Vec::new();
                        session.read(|lent| {
                            copy =
                                lent[0].views().next().unwrap().typed::<u64>()?.to_vec(stream)?;
                            Ok(())
                        })?;
                        Ok(copy)
                    });
                    assert_eq!(read.unwrap(), [tag; 16]);
                });
                thread::sleep(SHORT / 5);
            }
        });
    })
    .unwrap();
}

#[test]
fn failures_at_random_leave_nothing_behind() {
    let device = device();
    ThreadCommunicator::run(3, |ranks| {
        let rank = ranks.rank();
        let peers = [(rank + 1) % 3, (rank + 2) % 3];
        let mut own = Rank::new(&device, 0);
        for step in 0..60_u64 {
            // One of them fails in every other step, before or after the others have joined.
            let fails = (step % 2 == 1).then_some((step / 2 % 3) as usize);
            if (step / 6) % 3 == rank as u64 {
                thread::sleep(Duration::from_millis(1));
            }
            let lender = Rank::new(&device, step);
            let outcome = lender.lend(&ranks, &peers, SHORT / 5, |lent| {
                assert_eq!(lent.len(), 2);
                if fails == Some(rank) {
                    lent[0].views().next().unwrap().slice(0..99)?;
                }
                Ok(())
            });
            match outcome {
                Ok(()) => assert_ne!(fails, Some(rank)),
                Err(error) if error.kind() == ErrorKind::OutOfBounds => {
                    assert_eq!(fails, Some(rank));
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
            }
            ranks.barrier(LONG).unwrap();
            let value = |rank: usize| 1000 * step + rank as u64;
            let got = own.exchange(&ranks, &peers, value(rank)).unwrap();
            assert_eq!(got, peers.map(value));
        }
    })
    .unwrap();
}
