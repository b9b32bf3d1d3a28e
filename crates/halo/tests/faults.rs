//! Messages with faults.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod altered;
mod rules;

use std::cell::RefCell;
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use altered::Altered;
use halo::communicator::{
    Buffer, Communicator, Fault, Faults, FaultyCommunicator, ThreadCommunicator,
};
use halo::{ErrorKind, Result};
use rules::{LONG, RULES};

const SHORT: Duration = Duration::from_millis(20);

/// Runs two ranks, both with these faults.
fn two<T: Send>(
    faults: &Faults,
    f: impl Fn(FaultyCommunicator<ThreadCommunicator>) -> T + Sync,
) -> Vec<T> {
    ThreadCommunicator::run(2, |ranks| f(FaultyCommunicator::new(ranks, faults.clone()))).unwrap()
}

/// Rank 0 sends `count` messages of 8 bytes. Each contains its number. Returns the messages that rank 1 receives.
fn messages(faults: &Faults, count: u8, timeout: Duration) -> Vec<Result<u8>> {
    let mut received = two(faults, |ranks| {
        let mut outcomes = Vec::new();
        if ranks.rank() == 0 {
            let send = |i| ranks.send(1, 1, Buffer::host(vec![i; 8])).unwrap();
            let sent: Vec<_> = (0..count).map(send).collect();
            // Stays until rank 1 is done: it sends late messages, and leaving would be another fault.
            thread::sleep(2 * SHORT);
            ranks.barrier(LONG).unwrap();
            drop(sent);
        } else {
            for _ in 0..count {
                let received = ranks.receive(0, 1, Buffer::host(vec![255; 8])).unwrap();
                let received = ranks.wait(received, timeout).and_then(|buffer| buffer.to_vec());
                outcomes.push(received.map(|bytes| {
                    assert!(bytes.len() == 8 && bytes.iter().all(|byte| *byte == bytes[0]));
                    bytes[0]
                }));
            }
            ranks.barrier(LONG).unwrap();
        }
        outcomes
    });
    received.swap_remove(1)
}

fn kind<T>(outcome: &Result<T>) -> Option<ErrorKind> {
    outcome.as_ref().err().map(halo::Error::kind)
}

#[test]
fn every_rule_holds_if_messages_are_late() {
    for seed in 0..3 {
        let faults = Faults::new(seed).with(Fault::Delay, 0.6);
        for size in [1, 2, 4] {
            for (name, rule) in RULES {
                println!("{name}, {size} ranks, seed {seed}");
                let run = |ranks| rule(&FaultyCommunicator::new(ranks, faults.clone()));
                ThreadCommunicator::run(size, run).unwrap();
            }
        }
    }
}

#[test]
fn without_faults_all_messages_arrive() {
    let received = messages(&Faults::new(0), 50, LONG);
    let numbers: Vec<u8> = received.into_iter().map(Result::unwrap).collect();
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
}

#[test]
fn late_messages_stay_in_order_and_overtaken_ones_do_not() {
    let ordered: Vec<u8> = (0..60).collect();
    for (fault, in_order) in [(Fault::Delay, true), (Fault::Reorder, false)] {
        let received = messages(&Faults::new(4).with(fault, 0.5), 60, LONG);
        let mut numbers: Vec<u8> = received.into_iter().map(Result::unwrap).collect();
        assert_eq!(numbers == ordered, in_order, "{numbers:?}");
        numbers.sort_unstable();
        assert_eq!(numbers, ordered);
    }
}

/// Of messages with other faults, too.
#[test]
fn nothing_overtakes_a_late_message_of_its_line() {
    for seed in 0..5 {
        let faults = Faults::new(seed).with(Fault::Delay, 0.5);
        let received = messages(&faults.clone().with(Fault::Truncate, 0.5), 60, LONG);
        let is_in_place = |(outcome, i): (&Result<u8>, u8)| match outcome {
            Ok(number) => *number == i,
            Err(error) => error.kind() == ErrorKind::InvalidArgument,
        };
        assert!(received.iter().zip(0..).all(is_in_place), "{received:?}");
        let received = messages(&faults.with(Fault::Duplicate, 0.5), 60, LONG);
        let numbers: Vec<u8> = received.into_iter().map(Result::unwrap).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
}

#[test]
fn a_dropped_message_is_a_timeout() {
    let received = messages(&Faults::new(1).with(Fault::Drop, 1.0), 1, SHORT);
    assert_eq!(kind(&received[0]), Some(ErrorKind::Timeout));
}

#[test]
fn a_truncated_message_is_an_error() {
    let received = messages(&Faults::new(1).with(Fault::Truncate, 1.0), 5, LONG);
    assert!(received.iter().all(|r| kind(r) == Some(ErrorKind::InvalidArgument)), "{received:?}");
}

#[test]
fn a_duplicate_arrives_right_after_its_message() {
    let received = messages(&Faults::new(1).with(Fault::Duplicate, 1.0), 6, LONG);
    let numbers: Vec<u8> = received.into_iter().map(Result::unwrap).collect();
    assert_eq!(numbers, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn an_early_receive_returns_the_bytes_of_before() {
    let faults = Faults::new(3).with(Fault::Early, 0.5);
    let received = messages(&faults, 40, LONG);
    let numbers: Vec<u8> = received.into_iter().map(Result::unwrap).collect();
    // Messages that arrived are at their places: the message of an early receive is never delivered to another receive.
    let early = numbers.iter().filter(|number| **number == 255).count();
    assert!((5..35).contains(&early), "{numbers:?}");
    assert!(numbers.iter().zip(0..).all(|(number, i)| *number == 255 || *number == i));
}

#[test]
fn the_same_seed_has_the_same_faults() {
    let run = |seed| {
        let faults = Fault::ALL.iter().fold(Faults::new(seed), |all, fault| all.with(*fault, 0.1));
        two(&faults, |ranks| {
            for tag in 1..100 {
                drop(ranks.send(1 - ranks.rank(), tag, Buffer::host(vec![0; 4])).unwrap());
                drop(ranks.receive(1 - ranks.rank(), tag, Buffer::host(vec![0; 4])).unwrap());
            }
            ranks.barrier(LONG).unwrap();
            Fault::ALL.map(|fault| ranks.count(fault))
        })
    };
    let counts = run(5);
    assert_eq!(counts, run(5));
    assert_ne!(counts, run(6));
    assert_ne!(counts[0], counts[1]);
    assert!(counts[0].iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn collective_calls_have_no_faults() {
    let faults = Fault::ALL.iter().fold(Faults::new(1), |all, fault| all.with(*fault, 1.0));
    let all = two(&faults, |ranks| ranks.all_gather(&[ranks.rank() == 1].map(u8::from), LONG));
    assert!(all.into_iter().all(|all| all.unwrap() == [0, 1]));
}

#[test]
fn nothing_hangs_with_any_faults() {
    let start = Instant::now();
    for seed in 0..20 {
        let faults = Fault::ALL.iter().fold(Faults::new(seed), |all, fault| all.with(*fault, 0.15));
        two(&faults, |ranks| {
            let peer = 1 - ranks.rank();
            for step in 0..10 {
                let received = ranks.receive(peer, 1, Buffer::host(vec![0; 64])).unwrap();
                let sent = match ranks.send(peer, 1, Buffer::host(vec![step; 64])) {
                    Ok(sent) => sent,
                    // The other rank has finished its steps.
                    Err(error) => return assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}"),
                };
                let mut requests = [Some(received), Some(sent)];
                let mut open = 2;
                while open > 0 {
                    match ranks.wait_any(&mut requests, SHORT / 2) {
                        Ok(Some(_)) => open -= 1,
                        Ok(None) => break,
                        Err(error) if error.kind() == ErrorKind::Timeout => break,
                        Err(error) => {
                            let kinds = [ErrorKind::InvalidArgument, ErrorKind::PeerLost];
                            assert!(kinds.contains(&error.kind()), "{error}");
                        }
                    }
                }
            }
        });
    }
    assert!(start.elapsed() < LONG);
}

thread_local! {
    static OUTER: RefCell<Weak<FaultyCommunicator<Altered>>> = const { RefCell::new(Weak::new()) };
}

/// A transport may run code of the program, which uses the communicator with faults.
#[test]
fn a_transport_may_use_the_communicator_that_sends_through_it() {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let sent = ThreadCommunicator::run(1, |ranks| {
            let before_send = |_: &Buffer| {
                if let Some(outer) = OUTER.with_borrow(Weak::upgrade) {
                    outer.wait_beyond(outer.progress(), Instant::now());
                }
                Ok(())
            };
            let inner = Altered { before_send, ..Altered::new(ranks) };
            let ranks = Arc::new(FaultyCommunicator::new(inner, Faults::new(0)));
            OUTER.set(Arc::downgrade(&ranks));
            let sent = ranks.send(0, 1, Buffer::host(vec![7; 8])).unwrap();
            let received = ranks.receive(0, 1, Buffer::host(vec![0; 8])).unwrap();
            assert_eq!(ranks.wait(received, LONG).unwrap().to_vec().unwrap(), [7; 8]);
            ranks.wait(sent, LONG).map(drop)
        });
        done.send(sent.unwrap()).unwrap();
    });
    ended.recv_timeout(LONG).unwrap()[0].as_ref().unwrap();
}
