//! Rules for every transport. Each rule runs on all ranks at once, on any number of ranks.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(clippy::cast_possible_truncation, reason = "bytes are made of numbers")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use halo::ErrorKind;
use halo::communicator::{Buffer, COLLECTIVE_TAG, Communicator, Envelope, Request, Way};

/// Far longer than any operation takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

/// More than a transport may send ahead of its receive.
const LARGE: usize = 300_000;

type Rule = (&'static str, fn(&dyn Communicator));

pub(crate) const RULES: &[Rule] = &[
    ("a ring passes both ways", a_ring_passes_both_ways),
    ("messages of one tag arrive in order", messages_of_one_tag_arrive_in_order),
    ("tags distinguish messages", tags_distinguish_messages),
    ("empty messages arrive", empty_messages_arrive),
    ("another length is an error", another_length_is_an_error),
    ("another message ID is an error", another_message_id_is_an_error),
    ("an abandoned receive takes its message", an_abandoned_receive_takes_its_message),
    ("an abandoned send arrives", an_abandoned_send_arrives),
    ("what is discarded meets nothing later", what_is_discarded_meets_nothing_later),
    ("a timeout leaves requests as they were", a_timeout_leaves_requests_as_they_were),
    ("ranks and tags are bounded", ranks_and_tags_are_bounded),
    ("a request is over once", a_request_is_over_once),
    ("a barrier is a barrier", a_barrier_is_a_barrier),
    ("all gather in order", all_gather_in_order),
    ("a failed call is an error on a late rank", a_failed_call_is_an_error_on_a_late_rank),
    ("unequal bytes are an error on all ranks", unequal_bytes_are_an_error_on_all_ranks),
    ("a reset ends the calls of others", a_reset_ends_the_calls_of_others),
    ("a reset can be repeated", a_reset_can_be_repeated),
    ("messages of no call are discarded", messages_of_no_call_are_discarded),
    ("several threads use one communicator", several_threads_use_one_communicator),
    ("large messages arrive", large_messages_arrive),
    ("all requests make progress in any wait", all_requests_make_progress_in_any_wait),
    ("random programs deliver every message", random_programs_deliver_every_message),
];

/// The ranks at a distance before and after this rank.
fn beside(ranks: &dyn Communicator, distance: usize) -> (usize, usize) {
    let (rank, size) = (ranks.rank(), ranks.size());
    ((rank + size - distance % size) % size, (rank + distance) % size)
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + seed * 17) % 251) as u8).collect()
}

fn receive(ranks: &dyn Communicator, from: usize, tag: u32, len: usize) -> Box<dyn Request> {
    ranks.receive(from, tag, Buffer::host(vec![0xAA; len])).unwrap()
}

fn send(ranks: &dyn Communicator, to: usize, tag: u32, bytes: Vec<u8>) -> Box<dyn Request> {
    ranks.send(to, tag, Buffer::host(bytes)).unwrap()
}

fn finish(ranks: &dyn Communicator, request: Box<dyn Request>) -> Vec<u8> {
    ranks.wait(request, LONG).unwrap().to_vec().unwrap()
}

fn a_ring_passes_both_ways(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    for round in 0..20 {
        let mut requests = [
            Some(receive(ranks, left, 1, 100)),
            Some(receive(ranks, right, 2, 60)),
            Some(send(ranks, right, 1, bytes(100, ranks.rank() + round))),
            Some(send(ranks, left, 2, bytes(60, ranks.rank() + round))),
        ];
        let mut seen = [false; 4];
        while let Some((index, buffer)) = ranks.wait_any(&mut requests, LONG).unwrap() {
            assert!(!seen[index]);
            seen[index] = true;
            match index {
                0 => assert_eq!(buffer.to_vec().unwrap(), bytes(100, left + round)),
                1 => assert_eq!(buffer.to_vec().unwrap(), bytes(60, right + round)),
                _ => assert_eq!(buffer.len(), if index == 2 { 100 } else { 60 }),
            }
        }
        assert_eq!(seen, [true; 4]);
    }
}

/// A send may need that the other rank takes the message, and that rank waits for something else.
fn all_requests_make_progress_in_any_wait(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    for len in [16, LARGE] {
        for first_in_a_barrier in [false, true] {
            let received = receive(ranks, left, 6, len);
            let sent = send(ranks, right, 6, bytes(len, 4));
            if first_in_a_barrier && ranks.rank() == 0 {
                ranks.barrier(LONG).unwrap();
                finish(ranks, sent);
            } else {
                finish(ranks, sent);
                ranks.barrier(LONG).unwrap();
            }
            assert_eq!(finish(ranks, received), bytes(len, 4));
        }
    }
}

fn messages_of_one_tag_arrive_in_order(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    let sent: Vec<_> = (0..50).map(|i| send(ranks, right, 5, vec![i; 9])).collect();
    for i in 0..50 {
        let request = receive(ranks, left, 5, 9);
        assert_eq!(finish(ranks, request), [i; 9]);
    }
    sent.into_iter().for_each(|request| drop(finish(ranks, request)));
}

fn tags_distinguish_messages(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    let tags = [1, ranks.max_tag(), 77, 32767];
    let sent: Vec<_> = tags.iter().map(|tag| send(ranks, right, *tag, vec![*tag as u8])).collect();
    // `max_tag` may be 32767; these two messages then have one tag and arrive in order.
    for tag in [77, ranks.max_tag(), 32767, 1] {
        let request = receive(ranks, left, tag, 1);
        assert_eq!(finish(ranks, request), [tag as u8]);
    }
    sent.into_iter().for_each(|request| drop(finish(ranks, request)));
}

fn empty_messages_arrive(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    let received = receive(ranks, left, 1, 0);
    let sent = send(ranks, right, 1, Vec::new());
    assert!(finish(ranks, received).is_empty());
    assert!(finish(ranks, sent).is_empty());
}

fn another_length_is_an_error(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    for len in [16, LARGE] {
        let mut sent = Vec::new();
        for (kind, expected) in [(None, len), (Some(()), len - 1), (Some(()), len + 1), (None, len)]
        {
            let received = receive(ranks, left, 4, expected);
            sent.push(send(ranks, right, 4, bytes(len, 3)));
            let outcome = ranks.wait(received, LONG);
            match kind {
                None => assert_eq!(outcome.unwrap().to_vec().unwrap(), bytes(len, 3)),
                Some(()) => {
                    let error = outcome.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                    let words = format!("{len} bytes came from rank {left}, tag 4, for {expected}");
                    assert_eq!(error.message(), words);
                }
            }
        }
        sent.into_iter().for_each(|request| drop(finish(ranks, request)));
    }
}

fn another_message_id_is_an_error(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    let mut sent = Vec::new();
    for (message_id, expected) in [(0, 0), (7, 7), (7, 8), (0, 7), (7, 0), (u64::MAX, u64::MAX)] {
        let received = Buffer::host(vec![0; 16]).with_message_id(expected);
        let received = ranks.receive(left, 4, received).unwrap();
        assert_eq!(received.envelope().message_id, expected);
        sent.push(
            ranks.send(right, 4, Buffer::host(bytes(16, 5)).with_message_id(message_id)).unwrap(),
        );
        let outcome = ranks.wait(received, LONG);
        if message_id == expected {
            let buffer = outcome.unwrap();
            assert_eq!((buffer.to_vec().unwrap(), buffer.message_id()), (bytes(16, 5), message_id));
        } else {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            let words = format!(
                "another message came from rank {left}, tag 4, than the one with message ID {expected:#x}"
            );
            assert_eq!(error.message(), words);
        }
    }
    sent.into_iter().for_each(|request| drop(finish(ranks, request)));
}

fn an_abandoned_receive_takes_its_message(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    for len in [8, LARGE] {
        drop(receive(ranks, left, 6, len));
        let received = receive(ranks, left, 6, len);
        let first = send(ranks, right, 6, bytes(len, 1));
        let second = send(ranks, right, 6, bytes(len, 2));
        assert_eq!(finish(ranks, received), bytes(len, 2));
        finish(ranks, first);
        finish(ranks, second);
    }
}

fn an_abandoned_send_arrives(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    for len in [8, LARGE] {
        drop(send(ranks, right, 6, bytes(len, ranks.rank())));
        let received = receive(ranks, left, 6, len);
        assert_eq!(finish(ranks, received), bytes(len, left));
        // No rank stops making progress before the others are done.
        ranks.barrier(LONG).unwrap();
    }
}

/// Messages without a receive, and dropped receives without a message; but no others, nor those with other tags.
fn what_is_discarded_meets_nothing_later(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    let start = |tag, seed| send(ranks, right, tag, bytes(LARGE, seed));
    let mut sent = vec![start(10, 1), start(13, 2)];
    let mut unwanted = Some(start(11, 3));
    drop(receive(ranks, left, 12, LARGE));
    let open = receive(ranks, left, 12, LARGE);
    // A large message may be sent only when its bytes have been taken.
    let begun = Instant::now();
    while ranks.all_gather(&[u8::from(unwanted.is_none())], LONG).unwrap().contains(&0) {
        assert!(begun.elapsed() < LONG);
        ranks.discard(11..13).unwrap();
        unwanted.take_if(|request| request.test().unwrap().is_some());
    }
    // It has arrived once a later one has.
    let later = send(ranks, right, 14, bytes(8, 6));
    let received = receive(ranks, left, 14, 8);
    assert_eq!(finish(ranks, received), bytes(8, 6));
    finish(ranks, later);
    ranks.discard(11..13).unwrap();
    ranks.barrier(LONG).unwrap();
    sent.extend([start(11, 4), start(12, 5)]);
    for (tag, seed) in [(10, 1), (11, 4), (13, 2)] {
        let received = receive(ranks, left, tag, LARGE);
        assert!(finish(ranks, received) == bytes(LARGE, seed), "tag {tag}");
    }
    assert!(finish(ranks, open) == bytes(LARGE, 5));
    sent.into_iter().for_each(|request| drop(finish(ranks, request)));
}

fn a_timeout_leaves_requests_as_they_were(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    let mut requests = [None, Some(receive(ranks, left, 8, 5))];
    for timeout in [Duration::ZERO, SHORT] {
        let start = Instant::now();
        let error = ranks.wait_any(&mut requests, timeout).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let which = format!("receive of 5 bytes from rank {left}, tag 8");
        assert!(error.message().ends_with(&which), "{error}");
        assert!(start.elapsed() >= timeout);
    }
    ranks.barrier(LONG).unwrap();
    drop(send(ranks, right, 8, bytes(5, 9)));
    let (index, buffer) = ranks.wait_any(&mut requests, Duration::MAX).unwrap().unwrap();
    assert_eq!((index, buffer.to_vec().unwrap()), (1, bytes(5, 9)));
    assert!(ranks.wait_any(&mut requests, LONG).unwrap().is_none());
}

fn ranks_and_tags_are_bounded(ranks: &dyn Communicator) {
    assert!(ranks.max_tag() >= 32767 && ranks.rank() < ranks.size());
    let outcomes = [
        ranks.send(ranks.size(), 1, Buffer::default()),
        ranks.receive(ranks.size(), 1, Buffer::default()),
        ranks.send(0, ranks.max_tag() + 1, Buffer::default()),
        ranks.receive(0, ranks.max_tag() + 1, Buffer::default()),
    ];
    for outcome in outcomes {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

fn a_request_is_over_once(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    let mut received = receive(ranks, left, 9, 3);
    let expected =
        Envelope { way: Way::Receive, peer: left, tag: 9, len: 3, message_id: 0, token: 0 };
    assert_eq!(received.envelope(), expected);
    let sent = send(ranks, right, 9, vec![1, 2, 3]);
    let start = Instant::now();
    let buffer = loop {
        if let Some(buffer) = received.test().unwrap() {
            break buffer;
        }
        assert!(start.elapsed() < LONG);
        std::thread::yield_now();
    };
    assert_eq!(buffer.to_vec().unwrap(), [1, 2, 3]);
    assert_eq!(received.test().unwrap_err().kind(), ErrorKind::InvalidArgument);
    finish(ranks, sent);
}

fn a_barrier_is_a_barrier(ranks: &dyn Communicator) {
    // Ranks may be processes, which share only the system clock.
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    for late in 0..ranks.size() {
        ranks.barrier(LONG).unwrap();
        if ranks.rank() == late {
            std::thread::sleep(Duration::from_millis(40));
        }
        let came = now();
        ranks.barrier(LONG).unwrap();
        let left = now();
        let all = ranks.all_gather(&came.to_le_bytes(), LONG).unwrap();
        for (rank, came) in all.as_chunks().0.iter().enumerate() {
            let came = u128::from_le_bytes(*came);
            assert!(came <= left, "rank {} did not wait for {rank}", ranks.rank());
        }
    }
}

fn all_gather_in_order(ranks: &dyn Communicator) {
    for len in [0, 1, 32] {
        let all = ranks.all_gather(&bytes(len, ranks.rank()), LONG).unwrap();
        let expected: Vec<u8> = (0..ranks.size()).flat_map(|rank| bytes(len, rank)).collect();
        assert_eq!(all, expected);
    }
}

/// The kind of error of an `all_gather`.
fn refused(ranks: &dyn Communicator, mine: &[u8], timeout: Duration) -> ErrorKind {
    ranks.all_gather(mine, timeout).unwrap_err().kind()
}

/// Resets, and checks that nothing of earlier calls remains.
fn check_reset(ranks: &dyn Communicator) {
    ranks.reset(LONG).unwrap();
    for _ in 0..3 {
        all_gather_in_order(ranks);
        ranks.barrier(LONG).unwrap();
    }
}

/// One rank calls after all others have timed out.
fn others_time_out(ranks: &dyn Communicator, late: usize, time_out: impl FnOnce()) {
    let rank = ranks.rank();
    if rank == late {
        for other in (0..ranks.size()).filter(|other| *other != late) {
            let request = receive(ranks, other, 1, 0);
            finish(ranks, request);
        }
    } else {
        time_out();
        let request = send(ranks, late, 1, Vec::new());
        finish(ranks, request);
    }
}

fn a_failed_call_is_an_error_on_a_late_rank(ranks: &dyn Communicator) {
    for late in 0..if ranks.size() > 1 { ranks.size() } else { 0 } {
        others_time_out(ranks, late, || {
            assert_eq!(refused(ranks, b"A", SHORT), ErrorKind::Timeout);
            assert_eq!(refused(ranks, b"B", SHORT), ErrorKind::Conflict);
        });
        if ranks.rank() == late {
            // Not the contributions of the others from before they timed out.
            assert_eq!(refused(ranks, b"x", LONG), ErrorKind::Timeout);
        }
        let error = ranks.barrier(LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.message().contains("Communicator::reset"), "{error}");
        check_reset(ranks);
    }
}

fn unequal_bytes_are_an_error_on_all_ranks(ranks: &dyn Communicator) {
    if ranks.size() > 1 {
        let mine = vec![7; if ranks.rank() == 0 { 5 } else { 4 }];
        assert_eq!(refused(ranks, &mine, LONG), ErrorKind::InvalidArgument);
    }
    check_reset(ranks);
}

fn a_reset_ends_the_calls_of_others(ranks: &dyn Communicator) {
    if ranks.rank() > 0 {
        let error = ranks.barrier(LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    check_reset(ranks);
}

fn a_reset_can_be_repeated(ranks: &dyn Communicator) {
    let late = ranks.size() - 1;
    others_time_out(ranks, late, || {
        for timeout in [Duration::ZERO, SHORT] {
            assert_eq!(ranks.reset(timeout).unwrap_err().kind(), ErrorKind::Timeout);
            assert_eq!(refused(ranks, b"A", LONG), ErrorKind::Conflict);
        }
    });
    check_reset(ranks);
}

/// Messages with the tag of collective calls, which is not allowed.
fn messages_of_no_call_are_discarded(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    for len in [40, 3].into_iter().filter(|_| ranks.size() > 1) {
        // The other rank is in no call.
        let is_ready = send(ranks, right, 1, Vec::new());
        let request = receive(ranks, left, 1, 0);
        finish(ranks, request);
        let sent = send(ranks, left, COLLECTIVE_TAG, vec![0xFF; len]);
        let error = ranks.barrier(LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        check_reset(ranks);
        finish(ranks, sent);
        finish(ranks, is_ready);
    }
}

fn several_threads_use_one_communicator(ranks: &dyn Communicator) {
    let (left, right) = beside(ranks, 1);
    std::thread::scope(|scope| {
        for tag in 1..=4 {
            scope.spawn(move || {
                for round in 0..100_u32 {
                    let sent = send(ranks, right, tag, round.to_le_bytes().into());
                    let received = receive(ranks, left, tag, 4);
                    assert_eq!(finish(ranks, received), round.to_le_bytes());
                    finish(ranks, sent);
                }
            });
        }
    });
}

fn large_messages_arrive(ranks: &dyn Communicator) {
    let len = 1 << 20;
    for distance in [1, ranks.size()] {
        let (from, to) = beside(ranks, distance);
        let received = receive(ranks, from, 2, len);
        let sent = send(ranks, to, 2, bytes(len, ranks.rank()));
        assert!(finish(ranks, received) == bytes(len, from));
        finish(ranks, sent);
    }
}

/// The same numbers on every rank.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit
    }
}

/// All ranks draw the same list of messages. Each posts its own ends in a different order, which keeps the list's order
/// for each peer and tag, and finishes some in between.
fn random_programs_deliver_every_message(ranks: &dyn Communicator) {
    for seed in 0..8 {
        let mut drawn = Numbers(seed);
        let (size, rank) = (ranks.size(), ranks.rank());
        let messages: Vec<_> = (0..40 * size)
            .map(|id| {
                let len = match drawn.below(10) {
                    0 => 70_000,
                    _ => drawn.below(200),
                };
                (id, drawn.below(size), drawn.below(size), 1 + drawn.below(3) as u32, len)
            })
            .collect();
        let mut own = Numbers(seed * 1000 + rank as u64 + 1);
        let mut lines: Vec<Vec<(Line, _)>> = Vec::new();
        for message in &messages {
            let (_, from, to, tag, _) = *message;
            for (mine, key) in [(from == rank, (true, to, tag)), (to == rank, (false, from, tag))] {
                if !mine {
                    continue;
                }
                match lines.iter_mut().find(|line| line[0].0 == key) {
                    Some(line) => line.push((key, message)),
                    None => lines.push(vec![(key, message)]),
                }
            }
        }
        lines.iter_mut().for_each(|line| line.reverse());
        let (mut requests, mut ids) = (Vec::new(), Vec::new());
        let mut open = 0_usize;
        while !lines.is_empty() {
            let chosen = own.below(lines.len());
            let ((sends, peer, tag), (id, .., len)) = lines[chosen].pop().unwrap();
            if lines[chosen].is_empty() {
                lines.swap_remove(chosen);
            }
            requests.push(Some(if sends {
                send(ranks, peer, tag, bytes(*len, *id))
            } else {
                receive(ranks, peer, tag, *len)
            }));
            ids.push((sends, *id, *len));
            open += 1;
            if open > 0 && own.below(4) == 0 {
                match ranks.wait_any(&mut requests, Duration::ZERO) {
                    Ok(finished) => {
                        let (index, buffer) = finished.unwrap();
                        arrived(ids[index], &buffer);
                        open -= 1;
                    }
                    // It does not wait until it completes: that may depend on messages that this rank posts later.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
                }
            }
        }
        while let Some((index, buffer)) = ranks.wait_any(&mut requests, LONG).unwrap() {
            arrived(ids[index], &buffer);
            open -= 1;
        }
        assert_eq!(open, 0);
    }
}

/// Whether a rank sends, with the peer and the tag.
type Line = (bool, usize, u32);

fn arrived((sends, id, len): (bool, usize, usize), buffer: &Buffer) {
    assert_eq!(buffer.len(), len);
    assert!(sends || buffer.to_vec().unwrap() == bytes(len, id), "message {id}");
}
