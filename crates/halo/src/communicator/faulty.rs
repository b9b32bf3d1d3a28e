//! Fault injection into messages, for tests.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use runtime_core::{Device, Error, Result};

use super::{
    Buffer, COLLECTIVE_TAG, Collectives, Communicator, Direct, Envelope, Request, Way, complete,
    deadline,
};

/// A fault of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It is sent late, or its receive completes late. It stays in order with others of its line, which are the
    /// messages between the same ranks with the same tag.
    Delay,
    /// It is sent late, and others of its line overtake it.
    Reorder,
    /// It arrives twice.
    Duplicate,
    /// It arrives without its last bytes.
    Truncate,
    /// It does not arrive.
    Drop,
    /// Its receive completes before it has arrived: the buffer still has its earlier bytes.
    Early,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 6] =
        [Self::Delay, Self::Reorder, Self::Duplicate, Self::Truncate, Self::Drop, Self::Early];
}

/// How often which faults occur.
///
/// ```
/// use std::time::Duration;
/// use halo::communicator::{Fault, Faults};
///
/// let faults = Faults::new(7).with(Fault::Delay, 0.5).with(Fault::Drop, 0.01);
/// let faults = faults.longest(Duration::from_millis(5));
/// # let _ = faults;
/// ```
#[derive(Clone, Debug)]
pub struct Faults {
    seed: u64,
    chances: [f64; Fault::ALL.len()],
    longest: Duration,
}

impl Faults {
    /// No faults yet, with this seed. With the same seed, the same calls of a rank have the same faults.
    pub fn new(seed: u64) -> Self {
        Self { seed, chances: [0.0; Fault::ALL.len()], longest: Duration::from_millis(2) }
    }

    /// Applies this fault to this fraction of the messages, between 0 and 1.
    #[must_use]
    pub fn with(mut self, fault: Fault, chance: f64) -> Self {
        self.chances[fault as usize] = chance;
        self
    }

    /// Sets the longest delay; 2 ms by default.
    #[must_use]
    pub fn longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }
}

/// A communicator that applies [`Faults`] to its messages. Each rank's faults apply to the messages that it sends and
/// receives.
///
/// Messages of collective calls have no faults.
///
/// ```
/// use std::time::Duration;
/// use halo::ErrorKind;
/// use halo::communicator::{
///     Buffer, Communicator, Fault, Faults, FaultyCommunicator, ThreadCommunicator,
/// };
///
/// ThreadCommunicator::run(1, |ranks| {
///     let ranks = FaultyCommunicator::new(ranks, Faults::new(0).with(Fault::Truncate, 1.0));
///     let sent = ranks.send(0, 1, Buffer::host(vec![1; 8])).unwrap();
///     let received = ranks.receive(0, 1, Buffer::host(vec![0; 8])).unwrap();
///     let error = ranks.wait(received, Duration::from_secs(1)).unwrap_err();
///     assert_eq!(error.kind(), ErrorKind::InvalidArgument);
///     assert_eq!(ranks.count(Fault::Truncate), 1);
/// })?;
/// # Ok::<(), halo::Error>(())
/// ```
#[derive(Debug)]
pub struct FaultyCommunicator<C: Communicator + 'static> {
    transport: Arc<Transport<C>>,
}

#[derive(Debug)]
struct Transport<C> {
    inner: C,
    faults: Faults,
    numbers: Mutex<fastrand::Rng>,
    counts: [AtomicU64; Fault::ALL.len()],
    delayed: Mutex<Late>,
}

/// Messages that are not yet sent.
#[derive(Debug, Default)]
struct Late {
    messages: VecDeque<Delayed>,
    /// Whether a call sends those whose delay is over. Other calls leave them to it, which keeps their order.
    is_sending: bool,
}

#[derive(Debug)]
struct Delayed {
    envelope: Envelope,
    /// The end of the delay; `None` if it is over.
    until: Option<Instant>,
    /// Whether later messages of its line stay behind it.
    in_order: bool,
    progress: Arc<Mutex<Progress>>,
}

/// The state of a send.
#[derive(Debug)]
enum Progress {
    Delayed(Buffer),
    /// A call of the inner communicator sends it.
    Sending,
    Sent(Box<dyn Request>),
    Failed(Error),
    Over,
}

/// The longest time that a rank sleeps while messages may be late.
const TICK: Duration = Duration::from_micros(100);

impl<C: Communicator + 'static> FaultyCommunicator<C> {
    /// Applies faults to the messages of a communicator.
    pub fn new(inner: C, faults: Faults) -> Self {
        let seed = faults.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ inner.rank() as u64;
        let numbers = Mutex::new(fastrand::Rng::with_seed(seed));
        let counts = Default::default();
        Self {
            transport: Arc::new(Transport {
                inner,
                faults,
                numbers,
                counts,
                delayed: Mutex::default(),
            }),
        }
    }

    /// The number of messages of this rank to which this fault was applied.
    pub fn count(&self, fault: Fault) -> u64 {
        self.transport.counts[fault as usize].load(Ordering::Relaxed)
    }
}

impl<C: Communicator + 'static> Transport<C> {
    /// Chooses the fault of a message, if any.
    fn draw(&self, among: &[Fault]) -> Option<Fault> {
        let mut numbers = self.numbers.lock();
        let happens = |fault: &&Fault| numbers.f64() < self.faults.chances[**fault as usize];
        let fault = among.iter().find(happens).copied()?;
        self.counts[fault as usize].fetch_add(1, Ordering::Relaxed);
        Some(fault)
    }

    fn later(&self) -> Instant {
        deadline(self.faults.longest.mul_f64(self.numbers.lock().f64()))
    }

    /// Sends a message now, or after its delay and the delay of earlier messages on its line.
    fn delay(
        self: &Arc<Self>,
        envelope: Envelope,
        buffer: Buffer,
        until: Instant,
        in_order: bool,
    ) -> DelayedSend<C> {
        let progress = Arc::new(Mutex::new(Progress::Delayed(buffer)));
        let delayed =
            Delayed { envelope, until: Some(until), in_order, progress: Arc::clone(&progress) };
        self.delayed.lock().messages.push_back(delayed);
        DelayedSend { envelope, progress, transport: Arc::clone(self) }
    }

    /// Sends messages whose delay is over. No lock is held while the inner communicator sends, because it may run code
    /// of the program, as may the destructor of a request.
    fn release(&self, now: Instant) {
        if mem::replace(&mut self.delayed.lock().is_sending, true) {
            return;
        }
        let mut sending = Sending { transport: self, is_over: false };
        while let Some(message) = sending.next(now) {
            let Envelope { peer, tag, .. } = message.envelope;
            let delayed = mem::replace(&mut *message.progress.lock(), Progress::Sending);
            if let Progress::Delayed(buffer) = delayed {
                let sent = match self.inner.send(peer, tag, buffer) {
                    Ok(request) => Progress::Sent(request),
                    Err(error) => Progress::Failed(error),
                };
                *message.progress.lock() = sent;
            }
        }
    }

    /// Sends a copy of the first bytes behind the late messages of its line, without waiting for it.
    fn send_copy(self: &Arc<Self>, envelope: Envelope, buffer: &Buffer, len: usize) -> Result<()> {
        let mut bytes = buffer.to_vec()?;
        bytes.truncate(len);
        let copy =
            Buffer::host(bytes).with_message_id(buffer.message_id()).with_token(buffer.token());
        drop(self.delay(Envelope { len, ..envelope }, copy, Instant::now(), true));
        Ok(())
    }
}

/// Ends the sending of late messages, also by a panic.
struct Sending<'a, C> {
    transport: &'a Transport<C>,
    is_over: bool,
}

impl<C> Sending<'_, C> {
    /// Takes the first message whose delay is over. If there is none, other calls may send.
    fn next(&mut self, now: Instant) -> Option<Delayed> {
        let mut late = self.transport.delayed.lock();
        let mut waiting = Vec::new();
        let is_due = |message: &Delayed| {
            let line = (message.envelope.peer, message.envelope.tag);
            let is_due = message.until.is_none_or(|until| until <= now) && !waiting.contains(&line);
            if !is_due && message.in_order {
                waiting.push(line);
            }
            is_due
        };
        let index = late.messages.iter().position(is_due);
        late.is_sending = index.is_some();
        self.is_over = index.is_none();
        late.messages.remove(index?)
    }
}

impl<C> Drop for Sending<'_, C> {
    fn drop(&mut self) {
        if !self.is_over {
            self.transport.delayed.lock().is_sending = false;
        }
    }
}

impl<C: Communicator + 'static> Communicator for FaultyCommunicator<C> {
    fn rank(&self) -> usize {
        self.transport.inner.rank()
    }

    fn size(&self) -> usize {
        self.transport.inner.size()
    }

    fn max_tag(&self) -> u32 {
        self.transport.inner.max_tag()
    }

    fn passes_memory_of(&self, device: &Device) -> bool {
        self.transport.inner.passes_memory_of(device)
    }

    fn collectives(&self) -> &Collectives {
        self.transport.inner.collectives()
    }

    /// Returns `None`: faults apply to messages only.
    fn direct(&self) -> Option<Direct<'_>> {
        None
    }

    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        const FAULTS: [Fault; 5] =
            [Fault::Drop, Fault::Duplicate, Fault::Reorder, Fault::Delay, Fault::Truncate];
        let transport = &self.transport;
        if tag == COLLECTIVE_TAG {
            return transport.inner.send(to, tag, buffer);
        }
        let envelope = Envelope::new(self, Way::Send, to, tag, &buffer)?;
        // A message without bytes cannot lose any.
        let among = if buffer.is_empty() { &FAULTS[..4] } else { &FAULTS[..] };
        let fault = transport.draw(among);
        let (until, in_order) = match fault {
            Some(Fault::Drop) => return Ok(complete(envelope, Ok(buffer))),
            Some(Fault::Truncate) => {
                let len = transport.numbers.lock().usize(..buffer.len());
                transport.send_copy(envelope, &buffer, len)?;
                transport.release(Instant::now());
                return Ok(complete(envelope, Ok(buffer)));
            }
            Some(Fault::Duplicate) => {
                transport.send_copy(envelope, &buffer, buffer.len())?;
                (Instant::now(), true)
            }
            Some(Fault::Reorder) => (transport.later(), false),
            Some(Fault::Delay) => (transport.later(), true),
            _ => (Instant::now(), true),
        };
        let late = transport.delay(envelope, buffer, until, in_order);
        transport.release(Instant::now());
        Ok(Box::new(late))
    }

    fn receive(&self, from: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        let transport = &self.transport;
        if tag == COLLECTIVE_TAG {
            return transport.inner.receive(from, tag, buffer);
        }
        let envelope = Envelope::new(self, Way::Receive, from, tag, &buffer)?;
        match transport.draw(&[Fault::Early, Fault::Delay]) {
            Some(Fault::Early) => {
                let other = Buffer::host(vec![0; buffer.len()])
                    .with_message_id(buffer.message_id())
                    .with_token(buffer.token());
                drop(transport.inner.receive(from, tag, other)?);
                Ok(complete(envelope, Ok(buffer)))
            }
            delay => {
                let until = if delay.is_some() { transport.later() } else { Instant::now() };
                let inner = transport.inner.receive(from, tag, buffer)?;
                Ok(Box::new(DelayedReceive { inner, until, transport: Arc::clone(transport) }))
            }
        }
    }

    /// Messages that are delayed are not yet sent, and therefore not discarded.
    fn discard(&self, tags: Range<u32>) -> Result<()> {
        self.transport.inner.discard(tags)
    }

    fn progress(&self) -> u64 {
        self.transport.inner.progress()
    }

    fn wait_beyond(&self, seen: u64, deadline: Instant) {
        let now = Instant::now();
        self.transport.release(now);
        self.transport.inner.wait_beyond(seen, deadline.min(now + TICK));
    }
}

impl<C: Communicator + 'static> Drop for FaultyCommunicator<C> {
    fn drop(&mut self) {
        // The message is late, but not lost.
        self.transport.delayed.lock().messages.iter_mut().for_each(|message| message.until = None);
        self.transport.release(Instant::now());
    }
}

/// A receive that may complete late.
struct DelayedReceive<C> {
    inner: Box<dyn Request>,
    until: Instant,
    transport: Arc<Transport<C>>,
}

impl<C: Communicator + 'static> Request for DelayedReceive<C> {
    fn envelope(&self) -> Envelope {
        self.inner.envelope()
    }

    fn test(&mut self) -> Result<Option<Buffer>> {
        let now = Instant::now();
        self.transport.release(now);
        if now < self.until { Ok(None) } else { self.inner.test() }
    }
}

/// A send that may be delayed.
struct DelayedSend<C> {
    envelope: Envelope,
    progress: Arc<Mutex<Progress>>,
    transport: Arc<Transport<C>>,
}

impl<C: Communicator + 'static> Request for DelayedSend<C> {
    fn envelope(&self) -> Envelope {
        self.envelope
    }

    fn test(&mut self) -> Result<Option<Buffer>> {
        self.transport.release(Instant::now());
        let mut progress = self.progress.lock();
        match &mut *progress {
            Progress::Delayed(_) | Progress::Sending => return Ok(None),
            Progress::Sent(request) => return request.test(),
            Progress::Failed(_) | Progress::Over => {}
        }
        match mem::replace(&mut *progress, Progress::Over) {
            Progress::Failed(error) => Err(error),
            _ => Err(self.envelope.over()),
        }
    }
}
