//! Exchanges that failed on some ranks, and exchanges after a reset.
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod altered;
mod devices;
mod ring;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use altered::Altered;
use devices::sim;
use halo::communicator::{
    Buffer, COLLECTIVE_TAG, Communicator, Fault, Faults, FaultyCommunicator, ThreadCommunicator,
};
use halo::{Error, ErrorKind, HaloExchange, HaloOptions, Result};
use ring::{exchange, join};
use runtime_core::{Memory, Stream};

/// Runs `f` on two ranks of a ring that exchange messages, with three cells each and one ghost cell at each end.
fn two(timeout: Duration, f: impl Fn(usize, HaloExchange, Memory<f64>, Stream) + Sync) {
    let options = HaloOptions { timeout, direct: false, ..Default::default() };
    ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let device = sim(rank as u64);
        let halo = join(Arc::new(ranks), &device, &options).unwrap();
        let stream = device.default_stream();
        f(rank, halo, ring::values(rank, &stream), stream);
    })
    .unwrap();
}

/// Exchanges different values each time, so that values of an earlier message are detected.
fn check_exchanges(
    rank: usize,
    halo: &mut HaloExchange,
    values: &mut Memory<f64>,
    stream: &Stream,
) {
    for step in 0..9 {
        let own = [0, 1, 2].map(|cell| f64::from(10 * step) + (3 * rank + cell) as f64);
        values.view_mut().slice(1..4).unwrap().copy_from_slice(stream, &own).unwrap();
        exchange(halo, stream, values).unwrap();
        let found = values.to_vec(stream).unwrap();
        let ghosts = [(3 * rank + 5) % 6, (3 * rank + 3) % 6];
        let ghosts = ghosts.map(|cell| f64::from(10 * step) + cell as f64);
        assert_eq!([found[0], found[4]], ghosts, "rank {rank}, step {step}");
    }
}

/// One rank fails at once, the other when its exchange times out.
#[test]
fn a_reset_waits_until_the_others_have_failed() {
    let begin = Barrier::new(2);
    two(Duration::from_secs(2), |rank, mut halo, mut values, stream| {
        begin.wait();
        if rank == 1 {
            let error = exchange(&mut halo, &stream, &mut values).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
        halo.reset().unwrap();
        check_exchanges(rank, &mut halo, &mut values, &stream);
    });
}

#[test]
fn a_reset_that_timed_out_can_be_repeated() {
    let [late, through] = [Barrier::new(2), Barrier::new(2)];
    two(Duration::from_secs(1), |rank, mut halo, mut values, stream| {
        // Whether a rank fails once or twice, and whichever rank it is.
        for (first, times) in [(0, 1), (1, 2)] {
            if rank == first {
                drop(halo.start(&stream, &mut [values.view_mut().into()]).unwrap());
                for _ in 0..times {
                    assert_eq!(halo.reset().unwrap_err().kind(), ErrorKind::Timeout);
                    let error = exchange(&mut halo, &stream, &mut values).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Conflict);
                }
                late.wait();
                through.wait();
                halo.reset().unwrap();
            } else {
                late.wait();
                halo.reset().unwrap();
                through.wait();
            }
            check_exchanges(rank, &mut halo, &mut values, &stream);
        }
    });
}

/// If tags did not change, a message from before the reset would match a receive of a later exchange.
#[test]
fn messages_from_before_a_reset_match_no_later_receive() {
    two(Duration::from_secs(5), |rank, mut halo, mut values, stream| {
        for from in [0, 1, 0] {
            if rank == from {
                drop(halo.start(&stream, &mut [values.view_mut().into()]).unwrap());
            }
            halo.reset().unwrap();
            check_exchanges(rank, &mut halo, &mut values, &stream);
        }
    });
}

/// In each of more rounds than there are sets of tags, a rank may send messages that no rank receives, or may begin to
/// receive messages that no rank sends.
fn fail_and_go_on(ranks: Arc<dyn Communicator>) {
    let rank = ranks.rank();
    let device = sim(rank as u64);
    let options =
        HaloOptions { timeout: Duration::from_secs(5), direct: false, ..Default::default() };
    let mut halo = join(ranks, &device, &options).unwrap();
    let stream = device.default_stream();
    let mut values = ring::values(rank, &stream);
    // The same on both ranks.
    let mut numbers = fastrand::Rng::with_seed(7);
    for _ in 0..20 {
        if [(); 2].map(|()| numbers.bool())[rank] {
            let mut fields = [values.view_mut().into()];
            let mut flight = halo.start(&stream, &mut fields).unwrap();
            stream.synchronize().unwrap();
            drop(flight.poll());
        }
        halo.reset().unwrap();
    }
    for _ in 0..20 {
        check_exchanges(rank, &mut halo, &mut values, &stream);
        halo.reset().unwrap();
    }
}

#[test]
fn failed_exchanges_disturb_no_exchange_when_their_tags_are_used_again() {
    ThreadCommunicator::run(2, |ranks| fail_and_go_on(Arc::new(ranks))).unwrap();
}

#[test]
fn messages_that_are_late_disturb_no_exchange_when_their_tags_are_used_again() {
    let late = Faults::new(3).with(Fault::Delay, 0.5).longest(Duration::from_millis(3));
    let run = |ranks| fail_and_go_on(Arc::new(FaultyCommunicator::new(ranks, late.clone())));
    ThreadCommunicator::run(2, run).unwrap();
}

/// The ranks make the exchange again after each failure.
#[test]
fn failed_exchanges_disturb_no_exchange_that_is_made_later() {
    ThreadCommunicator::run(2, |ranks| {
        let (rank, ranks): (_, Arc<dyn Communicator>) = (ranks.rank(), Arc::new(ranks));
        let device = sim(rank as u64);
        let options =
            HaloOptions { timeout: Duration::from_secs(5), direct: false, ..Default::default() };
        let stream = device.default_stream();
        let mut values = ring::values(rank, &stream);
        for round in 0..40 {
            let mut halo = join(Arc::clone(&ranks), &device, &options).unwrap();
            if round >= 20 {
                check_exchanges(rank, &mut halo, &mut values, &stream);
            } else if round % 2 == rank {
                let mut fields = [values.view_mut().into()];
                let mut flight = halo.start(&stream, &mut fields).unwrap();
                stream.synchronize().unwrap();
                drop(flight.poll());
            }
            ranks.reset(LONG).unwrap();
        }
    })
    .unwrap();
}

/// Both ranks, with messages only and without messages.
fn ranks(
    f: impl Fn(&Arc<dyn Communicator>, &dyn Fn(u32, Duration) -> Result<HaloExchange>) + Sync,
) {
    let device = sim(0);
    for direct in [false, true] {
        ThreadCommunicator::run(2, |ranks| {
            let ranks: Arc<dyn Communicator> = Arc::new(ranks);
            let make = |channel, timeout| {
                let options = HaloOptions { timeout, direct, channel, ..Default::default() };
                join(Arc::clone(&ranks), &device, &options)
            };
            f(&ranks, &make);
        })
        .unwrap();
    }
}

fn works(ranks: &Arc<dyn Communicator>, mut halo: HaloExchange) {
    let device = halo.device().clone();
    let stream = device.stream_create(&Default::default()).unwrap();
    let mut values = device.memory_from_slice(&stream, &[-1.0; 5]).unwrap();
    check_exchanges(ranks.rank(), &mut halo, &mut values, &stream);
}

const LONG: Duration = Duration::from_secs(30);

/// On the same channel, and on others.
#[test]
fn a_late_rank_is_an_error_until_reset() {
    let early = Barrier::new(2);
    ranks(|ranks, make| {
        for _ in 0..3 {
            if ranks.rank() == 0 {
                let error = make(0, Duration::from_millis(100)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Timeout);
                assert!(error.message().starts_with("rank 0 makes its exchange"), "{error}");
                for channel in [0, 1] {
                    let error = make(channel, LONG).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Conflict);
                    assert!(error.message().contains("Communicator::reset"), "{error}");
                }
            }
            early.wait();
            if ranks.rank() == 1 {
                assert_eq!(make(0, LONG).unwrap_err().kind(), ErrorKind::Timeout);
            }
            ranks.reset(LONG).unwrap();
            for channel in [0, 1] {
                works(ranks, make(channel, LONG).unwrap());
            }
        }
    });
}

/// Collective calls work afterwards. The exchange only works after all ranks have reset it.
#[test]
fn ranks_that_reset_different_objects_get_an_error() {
    ranks(|ranks, make| {
        let [mut one, two] = [0, 1].map(|channel| make(channel, LONG).unwrap());
        let mut two = Some(two);
        match ranks.rank() {
            0 => {
                let error = one.reset().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                let words =
                    "rank 0 resets exchange number 1 of channel 0, rank 1 resets the communicator";
                assert_eq!(error.message(), words);
                let error = one.reset().unwrap_err();
                assert!(error.message().contains("exchange number 2 of channel 1"), "{error}");
            }
            _ => {
                ranks.reset(LONG).unwrap();
                let error = two.as_mut().unwrap().reset().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            }
        }
        ranks.barrier(LONG).unwrap();
        one.reset().unwrap();
        works(ranks, one);
    });
}

/// Also if both exchanges use one channel.
#[test]
fn ranks_that_reset_different_exchanges_of_a_channel_get_an_error() {
    ranks(|ranks, make| {
        let [one, two] = [0, 0].map(|channel| make(channel, LONG).unwrap());
        let [mut own, other] = if ranks.rank() == 0 { [one, two] } else { [two, one] };
        let error = own.reset().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let words = "rank 0 resets exchange number 1 of channel 0";
        let others = "rank 1 resets exchange number 2 of channel 0";
        assert!([words, others].iter().all(|words| error.message().contains(words)), "{error}");
        ranks.barrier(LONG).unwrap();
        let [first, second] = if ranks.rank() == 0 { [own, other] } else { [other, own] };
        for mut halo in [first, second] {
            halo.reset().unwrap();
            works(ranks, halo);
        }
    });
}

/// A reset that timed out is repeated, or the whole communicator is reset; not another exchange.
#[test]
fn a_reset_of_one_exchange_does_not_continue_as_that_of_another() {
    let [early, through] = [Barrier::new(2), Barrier::new(2)];
    ranks(|ranks, make| {
        let [mut one, mut two] =
            [0, 1].map(|channel| make(channel, Duration::from_secs(2)).unwrap());
        if ranks.rank() == 0 {
            assert_eq!(one.reset().unwrap_err().kind(), ErrorKind::Timeout);
            let error = two.reset().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert!(
                error.message().contains("a reset of exchange number 1 of channel 0"),
                "{error}"
            );
            early.wait();
            through.wait();
            ranks.reset(LONG).unwrap();
        } else {
            early.wait();
            one.reset().unwrap();
            through.wait();
        }
        ranks.barrier(LONG).unwrap();
        drop(two);
        // It makes no difference that only rank 1 has reset it before.
        one.reset().unwrap();
        works(ranks, one);
        works(ranks, make(0, LONG).unwrap());
    });
}

/// One thread enters the call, and the others get an error.
#[test]
fn collective_calls_of_one_rank_take_turns() {
    let [one, two]: [_; 2] = ThreadCommunicator::group(2).unwrap().try_into().unwrap();
    std::thread::scope(|scope| {
        let (sender, outcomes) = std::sync::mpsc::channel();
        for _ in 0..4 {
            let (sender, one) = (sender.clone(), &one);
            scope.spawn(move || sender.send(one.barrier(LONG)).unwrap());
        }
        for _ in 0..3 {
            let error = outcomes.recv().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert!(error.message().contains("another thread of rank 0"), "{error}");
        }
        two.barrier(LONG).unwrap();
        outcomes.recv().unwrap().unwrap();
    });
}

/// No other rank depends on their order.
#[test]
fn collective_calls_of_a_single_rank_wait_for_each_other() {
    let [one]: [_; 1] = ThreadCommunicator::group(1).unwrap().try_into().unwrap();
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                for call in 0..=u8::MAX {
                    let own = [call; 3];
                    assert_eq!(one.all_gather(&own, LONG).unwrap(), own);
                }
            });
        }
    });
}

/// The time that a reset with a timeout of 100 ms takes while the peer does something else.
fn late_reset(ranks: &dyn Communicator) -> Duration {
    let start = Instant::now();
    let error = ranks.reset(Duration::from_millis(100)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    start.elapsed()
}

/// The peer sends messages that are not part of a collective call, faster than they are discarded.
#[test]
fn a_reset_ends_after_its_timeout_while_a_peer_sends_other_messages() {
    let is_over = AtomicBool::new(false);
    ThreadCommunicator::run(2, |ranks| {
        if ranks.rank() == 0 {
            let took = late_reset(&ranks);
            is_over.store(true, Ordering::Relaxed);
            assert!(took < Duration::from_secs(2), "{took:?}");
        }
        let start = Instant::now();
        while !is_over.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(4) {
            for _ in 0..64 {
                drop(ranks.send(0, COLLECTIVE_TAG, Buffer::host(vec![0; 40])));
            }
        }
    })
    .unwrap();
}

/// No receive can be started, until some time after the timeout.
#[test]
fn a_reset_ends_after_its_timeout_while_receives_fail() {
    let [one, _two] = ThreadCommunicator::group(2).unwrap().try_into().unwrap();
    let end = Instant::now() + Duration::from_secs(4);
    let before_receive = move || match Instant::now() < end {
        true => Err(Error::new(ErrorKind::InvalidArgument, "receive", "on purpose")),
        false => Ok(()),
    };
    let ranks = Altered { before_receive: Box::new(before_receive), ..Altered::new(one) };
    let took = late_reset(&ranks);
    assert!(took < Duration::from_secs(2), "{took:?}");
}
