//! Collective calls after the failure of any one request.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]
#![expect(clippy::cast_possible_truncation, reason = "bytes are made of small numbers")]

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use halo::communicator::{
    Buffer, Collectives, Communicator, Direct, Envelope, Request, ThreadCommunicator,
};
use halo::{Error, ErrorKind, Result};
use runtime_core::Device;

/// How a request fails. In each case but the second and the fourth, a message is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    /// `send` sends nothing.
    Send,
    /// `send` sends the message.
    SendAfterwards,
    /// `receive` posts a receive, which takes a message that comes later.
    Receive,
    ReceiveNothing,
    /// The first test of a request: its message may come later.
    FirstTest,
    /// The test that would have returned the buffer.
    LastTest,
}

const FAILURES: [Failure; 6] = [
    Failure::Send,
    Failure::SendAfterwards,
    Failure::Receive,
    Failure::ReceiveNothing,
    Failure::FirstTest,
    Failure::LastTest,
];

/// A number of requests of one kind, the last of which fails.
#[derive(Debug)]
struct Plan {
    failure: Failure,
    error: ErrorKind,
    left: AtomicU32,
}

impl Plan {
    /// An error if this is the request that fails.
    fn check(&self, failure: Failure) -> Result<()> {
        if self.failure == failure && self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            return Err(Error::new(self.error, "transport", "on purpose"));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Failing {
    inner: ThreadCommunicator,
    plan: Arc<Plan>,
    /// The last message that was sent, and whether each receive of as many bytes returns it.
    last: Mutex<(Vec<u8>, bool)>,
}

impl Failing {
    fn new(inner: ThreadCommunicator, plan: Arc<Plan>) -> Self {
        Self { inner, plan, last: Mutex::default() }
    }
    fn request(&self, inner: Box<dyn Request>) -> Box<dyn Request> {
        Box::new(Tested { inner, plan: Arc::clone(&self.plan), is_first: true })
    }
}

impl Communicator for Failing {
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn size(&self) -> usize {
        self.inner.size()
    }
    fn max_tag(&self) -> u32 {
        self.inner.max_tag()
    }
    fn passes_memory_of(&self, device: &Device) -> bool {
        self.inner.passes_memory_of(device)
    }
    fn collectives(&self) -> &Collectives {
        self.inner.collectives()
    }
    fn direct(&self) -> Option<Direct<'_>> {
        None
    }
    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        self.plan.check(Failure::Send)?;
        let mut last = self.last.lock().unwrap();
        if !last.1 {
            last.0 = buffer.to_vec()?;
        }
        drop(last);
        let request = self.inner.send(to, tag, buffer)?;
        self.plan.check(Failure::SendAfterwards)?;
        Ok(self.request(request))
    }
    fn receive(&self, from: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        self.plan.check(Failure::ReceiveNothing)?;
        let last = self.last.lock().unwrap();
        if last.1 && last.0.len() == buffer.len() {
            let envelope = self.inner.receive(from, UNUSED_TAG, buffer)?.envelope();
            return Ok(Box::new(Received(envelope, Some(Buffer::host(last.0.clone())))));
        }
        drop(last);
        let request = self.inner.receive(from, tag, buffer)?;
        self.plan.check(Failure::Receive)?;
        Ok(self.request(request))
    }
    fn discard(&self, tags: Range<u32>) -> Result<()> {
        self.inner.discard(tags)
    }
    fn progress(&self) -> u64 {
        self.inner.progress()
    }
    fn wait_beyond(&self, seen: u64, deadline: Instant) {
        self.inner.wait_beyond(seen, deadline);
    }
}

struct Tested {
    inner: Box<dyn Request>,
    plan: Arc<Plan>,
    is_first: bool,
}

impl Request for Tested {
    fn envelope(&self) -> Envelope {
        self.inner.envelope()
    }
    fn test(&mut self) -> Result<Option<Buffer>> {
        if std::mem::take(&mut self.is_first) {
            self.plan.check(Failure::FirstTest)?;
        }
        let tested = self.inner.test()?;
        if tested.is_some() {
            self.plan.check(Failure::LastTest)?;
        }
        Ok(tested)
    }
}

/// A receive that has completed.
struct Received(Envelope, Option<Buffer>);

impl Request for Received {
    fn envelope(&self) -> Envelope {
        self.0
    }
    fn test(&mut self) -> Result<Option<Buffer>> {
        Ok(self.1.take())
    }
}

const UNUSED_TAG: u32 = 99;

/// The timeout of each call.
const CALL: Duration = Duration::from_secs(2);

/// The attempts until all ranks must have succeeded. The first attempt may fail, and the reset or the calls after it.
const ATTEMPTS: usize = 6;

/// All ranks gather until all succeed, and reset before each new attempt. Returns whether the request failed that was
/// to.
fn recover(size: usize, bad: usize, failure: Failure, number: u32, error: ErrorKind) -> bool {
    let plan = |rank| {
        let left = AtomicU32::new(if rank == bad { number } else { 0 });
        Arc::new(Plan { failure, error, left })
    };
    let plans: Vec<_> = (0..size).map(plan).collect();
    let barrier = Barrier::new(size);
    let succeeded = AtomicUsize::new(0);
    let problems = Mutex::new(Vec::new());
    ThreadCommunicator::run(size, |inner| {
        let rank = inner.rank();
        let ranks = Failing::new(inner, Arc::clone(&plans[rank]));
        let note = |problem| problems.lock().unwrap().push(format!("rank {rank}: {problem}"));
        for attempt in 0..ATTEMPTS {
            let try_reset =
                |_| ranks.reset(CALL).inspect_err(|error| note(error.to_string())).is_ok();
            // At most one reset fails by itself.
            if attempt > 0 && !(0..2).any(try_reset) {
                note("no reset succeeded".into());
            }
            let gather = |step: usize| {
                let own = |rank: usize| [rank, attempt, step].map(|number| number as u8);
                let expected: Vec<u8> = (0..size).flat_map(own).collect();
                let gathered = ranks.all_gather(&own(rank), CALL);
                if gathered.as_ref().is_ok_and(|gathered| *gathered != expected) {
                    note(format!("WRONG {gathered:?} in attempt {attempt}"));
                }
                gathered.is_ok()
            };
            if (0..3).all(gather) {
                succeeded.fetch_add(1, Ordering::SeqCst);
            }
            barrier.wait();
            let is_over = succeeded.load(Ordering::SeqCst) == size;
            barrier.wait();
            succeeded.store(0, Ordering::SeqCst);
            // At least one reset.
            if is_over && attempt > 0 {
                return;
            }
            barrier.wait();
        }
        note("no attempt succeeded".into());
    })
    .unwrap();
    let problems = problems.into_inner().unwrap();
    let is_fatal = |problem: &String| problem.contains("WRONG") || problem.contains("succeeded");
    let case = format!("{failure:?} {number} of rank {bad} of {size}, {error:?}");
    assert!(!problems.iter().any(is_fatal), "{case}: {problems:#?}");
    // One that is not left was counted down beyond 0 or to 0.
    !(1..=number).contains(&plans[bad].left.load(Ordering::SeqCst))
}

fn recover_from_all(size: usize) {
    for error in [ErrorKind::Driver, ErrorKind::InvalidArgument, ErrorKind::Timeout] {
        for (failure, bad) in FAILURES.into_iter().flat_map(|f| (0..size).map(move |bad| (f, bad)))
        {
            let mut number = 1;
            while recover(size, bad, failure, number, error) {
                number += 1;
            }
            assert!(number > 10, "{failure:?}: {number}");
        }
    }
}

#[test]
fn two_ranks_recover_from_the_failure_of_any_one_request() {
    recover_from_all(2);
}

#[test]
fn three_ranks_recover_from_the_failure_of_any_one_request() {
    recover_from_all(3);
}

#[test]
fn old_messages_without_end_do_not_hold_a_call_up_for_longer_than_its_timeout() {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        ThreadCommunicator::run(2, |inner| {
            let none = Plan { failure: Failure::Send, error: ErrorKind::Driver, left: 0.into() };
            let ranks = Failing::new(inner, Arc::new(none));
            ranks.barrier(CALL).unwrap();
            let old = ranks.last.lock().unwrap().0.clone();
            ranks.reset(CALL).unwrap();
            ranks.barrier(CALL).unwrap();
            if ranks.rank() == 0 {
                *ranks.last.lock().unwrap() = (old, true);
            }
            // The messages of this call may have arrived before.
            let result = ranks.barrier(Duration::from_millis(100));
            assert!(result.is_ok() || ranks.rank() == 0);
        })
        .unwrap();
        sender.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).unwrap();
}
