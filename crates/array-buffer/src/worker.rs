//! Copies between ordinary host memory and a device, and between devices that do not reach each other, that do not hold
//! the caller: a thread fills and empties pieces of pinned memory, and the streams wait for it at gates.
//!
//! All copies are enqueued on the streams at once. Each copy to a device waits behind a gate, which the thread opens
//! when it has filled the copy's piece. The thread waits only for copies that were enqueued before the gates that it
//! still has to open. So the oldest work can always run, whatever else a device holds back meanwhile.
#![expect(unsafe_code, reason = "pieces are filled while copies from them are enqueued")]

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread;

use parking_lot::{Condvar, Mutex};
use runtime_core::{Element, Error, ErrorKind, Event, Gate, Opener, Pinned, Result, Stream};

use crate::storage::HostRows;

/// The number of pieces of a stream: the thread fills one while the device empties the other.
const PIECES: usize = 2;
/// The least and the greatest size of a piece in bytes.
const PIECE_BYTES: Range<usize> = 2 << 20..16 << 20;
/// A prefetch enqueues about as many copies, unless the pieces would be too large.
const COPIES: usize = 64;
/// The caller copies as few bytes itself, if a piece is free: that takes less time than to wake a thread.
const INLINE_BYTES: usize = 64 << 10;

/// A range of bytes of pinned memory to copy from or to.
pub(crate) struct PieceOf<'a> {
    pub(crate) pinned: &'a Pinned<u8>,
    pub(crate) bytes: usize,
}

/// The pieces of a stream and their thread, which all arrays share that use the stream. The thread starts with the first
/// job, and ends when no array has the worker any more and its jobs are done.
pub(crate) struct Worker {
    stream: u64,
    line: Mutex<Line>,
    /// The number of jobs that are not finished.
    pending: Arc<AtomicUsize>,
    doing: Arc<Doing>,
}

/// Locked while the copies of a job are enqueued, so that jobs begin in the order of the stream.
#[derive(Default)]
struct Line {
    pieces: Pieces,
    /// Pieces that the threads of other streams fill. They do not know when this stream's thread has emptied a piece.
    from_others: Pieces,
    jobs: Option<mpsc::Sender<Job>>,
}

/// Pieces of one size that are used in turns.
#[derive(Default)]
struct Pieces {
    all: [Option<Piece>; PIECES],
    /// The number of pieces used so far.
    used: usize,
}

type Job = Box<dyn FnOnce() + Send>;

struct Piece {
    pinned: Arc<Pinned<u8>>,
    /// The end of the latest copy from or to it.
    end: Option<Event>,
}

/// What the thread does with one piece.
struct Turn {
    pinned: Arc<Pinned<u8>>,
    /// What it waits for first: the copy before it that used the piece, or the copy that fills it.
    after: Option<Event>,
    len: usize,
    /// Opened when the thread has filled or emptied the piece.
    opener: Opener,
}

/// The progress of a job in the host's memory.
pub(crate) struct Progress {
    /// How the job ended, once it needs the host's memory no longer.
    done: OnceLock<Result<()>>,
    thread: Arc<Doing>,
}

/// What a thread does at the moment. Its jobs run one after the other, so all of them wait for this.
#[derive(Default)]
struct Doing {
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Default)]
struct Now {
    /// The number of changes so far.
    step: u64,
    waits: Option<Waits>,
}

/// What a thread waits for.
#[derive(Clone)]
enum Waits {
    /// Copies of its stream.
    Until(Event),
    /// A job of another thread.
    For(Arc<Progress>),
}

impl Doing {
    /// Waits for copies.
    fn until(&self, end: Event) -> Result<()> {
        self.set(Some(Waits::Until(end.clone())));
        let waited = end.wait();
        self.set(None);
        waited
    }

    fn set(&self, waits: Option<Waits>) {
        let mut now = self.now.lock();
        now.step += 1;
        // An event may have the last handle of its device.
        let before = mem::replace(&mut now.waits, waits);
        self.changed.notify_all();
        drop(now);
        drop(before);
    }
}

impl Progress {
    fn end(&self, outcome: Result<()>) {
        let _ended_before = self.done.set(outcome);
        self.thread.set(None);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.done.get().is_some()
    }

    /// Blocks until the job needs the host's memory no longer. Returns an error if it has not copied everything.
    ///
    /// Waits for what the thread waits for, as long as it does. So a kernel is refused a wait that needs its own end.
    pub(crate) fn wait(&self) -> Result<()> {
        loop {
            let mut now = self.thread.now.lock();
            if let Some(outcome) = self.done.get() {
                return outcome.clone();
            }
            let step = now.step;
            if let Some(waits) = now.waits.clone() {
                drop(now);
                let waited = match waits {
                    Waits::Until(end) => end.wait(),
                    Waits::For(job) => job.wait(),
                };
                // The thread meets any other error itself.
                waited
                    .or_else(|error| if error.is_refused_wait() { Err(error) } else { Ok(()) })?;
                now = self.thread.now.lock();
            }
            while now.step == step {
                self.thread.changed.wait(&mut now);
            }
        }
    }

    /// As `wait`, but the only error is that of a kernel that would wait for itself. The access that needs the values
    /// returns the others.
    pub(crate) fn wait_for_end(&self) -> Result<()> {
        self.wait().or_else(|error| if error.is_refused_wait() { Err(error) } else { Ok(()) })
    }

    /// As `wait`, for a thread that prepares copies: a wait for an event could run kernels of another stream in it.
    fn ended(&self) -> Result<()> {
        let mut now = self.thread.now.lock();
        loop {
            match self.done.get() {
                Some(outcome) => return outcome.clone(),
                None => self.thread.changed.wait(&mut now),
            }
        }
    }
}

/// A job of the thread. The fields are dropped in this order: gates open, and the end is known, when the job no longer
/// uses the host's memory.
struct Rows<T: Element> {
    host: Option<HostRows<T>>,
    /// What writes the host's memory first.
    before: Vec<Arc<Progress>>,
    turns: VecDeque<Turn>,
    progress: Ended,
    _pending: Pending,
}

struct Ended(Arc<Progress>);

impl Drop for Ended {
    fn drop(&mut self) {
        // A panic is the only other reason.
        let message = "a thread panicked that copied between host memory and a device";
        self.0.end(Err(Error::new(ErrorKind::DeviceFault, "prefetch", message)));
    }
}

struct Pending(Arc<AtomicUsize>);

impl Pending {
    fn one(pending: &Arc<AtomicUsize>) -> Self {
        pending.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(pending))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<T: Element> Rows<T> {
    /// Copies piece after piece by `copy`, which gets the first elements of the piece and their number.
    fn run(mut self, copy: impl Fn(&mut HostRows<T>, *mut T, usize)) {
        let thread = Arc::clone(&self.progress.0.thread);
        let written = self.before.iter().try_for_each(|write| {
            thread.set(Some(Waits::For(Arc::clone(write))));
            write.ended()
        });
        thread.set(None);
        if let Err(error) = written {
            return self.give_up(error);
        }
        while let (Some(turn), Some(host)) = (self.turns.pop_front(), &mut self.host) {
            if let Err(error) = turn.after.map_or(Ok(()), |after| thread.until(after)) {
                // The device does not work any more.
                drop(turn.opener);
                return self.give_up(error);
            }
            copy(host, turn.pinned.host_ptr().as_ptr().cast(), turn.len);
            let mut last = None;
            if self.turns.is_empty() {
                // Before the last gate opens: what follows may take the host's memory.
                last = self.release();
                self.progress.0.end(Ok(()));
            }
            turn.opener.open();
            drop(last);
        }
    }

    /// Lets go of the host's memory. The owner of foreign memory must not be dropped before the gates are open, for
    /// which its destructor may wait.
    fn release(&mut self) -> Option<HostRows<T>> {
        self.host.take().filter(HostRows::is_foreign)
    }

    fn give_up(mut self, error: Error) {
        let last = self.release();
        self.progress.0.end(Err(error));
        self.turns.clear();
        drop(last);
    }
}

/// A job that copies from one stream's pieces to another's.
struct Relay {
    turns: VecDeque<Relayed>,
    progress: Ended,
    _pending: Pending,
}

/// What the thread copies from one piece to another.
struct Relayed {
    from: Arc<Pinned<u8>>,
    /// The copy that fills `from`.
    filled: Event,
    to: Arc<Pinned<u8>>,
    /// The copy before that used `to`.
    free: Option<Event>,
    bytes: usize,
    /// Opened when `from` can be filled again. Its stream works on, whatever happens to the other one.
    emptied: Opener,
    /// Opened when `to` has the bytes.
    copied: Opener,
}

impl Relay {
    fn run(mut self) {
        let thread = Arc::clone(&self.progress.0.thread);
        while let Some(turn) = self.turns.pop_front() {
            let Relayed { from, filled, to, free, bytes, emptied, copied } = turn;
            let ready = thread.until(filled);
            if let Err(error) = ready.and_then(|()| free.map_or(Ok(()), |free| thread.until(free)))
            {
                // A device does not work any more.
                self.progress.0.end(Err(error));
                emptied.open();
                self.turns.drain(..).for_each(|turn| turn.emptied.open());
                return;
            }
            let (from, to) = (from.host_ptr().as_ptr(), to.host_ptr().as_ptr());
            // SAFETY: both pieces are at least as long. The copy to the first one has run, and the next one waits at a
            // gate. The copy from the second one has run, and the next one waits at a gate, too.
            unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.cast::<u8>(), bytes) };
            if self.turns.is_empty() {
                self.progress.0.end(Ok(()));
            }
            emptied.open();
            copied.open();
        }
        self.progress.0.end(Ok(()));
    }
}

impl Worker {
    /// The worker of a stream.
    pub(crate) fn of(stream: &Stream) -> Arc<Self> {
        static ALL: Mutex<Vec<Weak<Worker>>> = Mutex::new(Vec::new());
        let mut all = ALL.lock();
        all.retain(|worker| worker.strong_count() > 0);
        let known =
            all.iter().filter_map(Weak::upgrade).find(|worker| worker.stream == stream.id());
        known.unwrap_or_else(|| {
            let (line, pending, doing) = (Mutex::default(), Arc::default(), Arc::default());
            let worker = Arc::new(Self { stream: stream.id(), line, pending, doing });
            all.push(Arc::downgrade(&worker));
            worker
        })
    }

    pub(crate) fn is_of(&self, stream: &Stream) -> bool {
        self.stream == stream.id()
    }

    /// Copies rows of the host's memory to the device, after what writes them `before`. `enqueue` enqueues the copy of
    /// the next bytes on the stream. Sets `job` to what is left to be done in the host's memory, also on an error.
    pub(crate) fn upload<T: Element>(
        &self,
        stream: &Stream,
        mut host: HostRows<T>,
        before: Vec<Arc<Progress>>,
        job: &mut Option<Arc<Progress>>,
        mut enqueue: impl FnMut(&PieceOf<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut line = self.line.lock();
        let room = line.pieces.prepare(stream, host.len() * size_of::<T>())? / size_of::<T>();
        let mut left = host.len();
        let is_alone = before.is_empty() && self.pending.load(Ordering::Acquire) == 0;
        if left * size_of::<T>() <= INLINE_BYTES && is_alone {
            let piece = line.pieces.next()?;
            let is_free = |end: &Event| matches!(end.is_done(), Ok(true));
            if piece.end.as_ref().is_none_or(is_free) {
                let pinned = Arc::clone(&piece.pinned);
                // SAFETY: no copy uses the piece, and neither does the thread, which has no job.
                unsafe { host.read(pinned.host_ptr().as_ptr().cast(), left) };
                let done = enqueue(&PieceOf { pinned: &pinned, bytes: left * size_of::<T>() });
                return line.pieces.ended(stream).and(done).map(drop);
            }
        }
        line.start(stream)?;
        let mut rows = self.job(host, before);
        let enqueued = (|| {
            while left > 0 {
                let len = left.min(room);
                let piece = line.pieces.next()?;
                let pinned = Arc::clone(&piece.pinned);
                let (gate, opener) = stream.device().gate()?;
                stream.hold_until(&gate)?;
                let after = piece.end.take();
                rows.turns.push_back(Turn { pinned: Arc::clone(&pinned), after, len, opener });
                let done = enqueue(&PieceOf { pinned: &pinned, bytes: len * size_of::<T>() });
                line.pieces.ended(stream).and(done)?;
                left -= len;
            }
            Ok(())
        })();
        // SAFETY: the copy that used the piece before has run, and the next one waits at the gate.
        let copy = |host: &mut HostRows<T>, piece, len| unsafe { host.read(piece, len) };
        *job = Some(line.submit(rows, copy));
        enqueued
    }

    /// Copies from the device to rows of the host's memory. `enqueue` enqueues the copy of the next bytes on the stream.
    /// Work enqueued on the stream afterwards comes after everything. Sets `job` to what is left to be done in the
    /// host's memory, also on an error.
    pub(crate) fn download<T: Element>(
        &self,
        stream: &Stream,
        host: HostRows<T>,
        job: &mut Option<Arc<Progress>>,
        mut enqueue: impl FnMut(&PieceOf<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut line = self.line.lock();
        let room = line.pieces.prepare(stream, host.len() * size_of::<T>())? / size_of::<T>();
        line.start(stream)?;
        let mut left = host.len();
        let mut rows = self.job(host, Vec::new());
        let mut full: VecDeque<Gate> = VecDeque::new();
        let enqueued = (|| {
            while left > 0 {
                let len = left.min(room);
                if full.len() == PIECES
                    && let Some(emptied) = full.pop_front()
                {
                    stream.hold_until(&emptied)?;
                }
                let pinned = Arc::clone(&line.pieces.next()?.pinned);
                let (gate, opener) = stream.device().gate()?;
                let done = enqueue(&PieceOf { pinned: &pinned, bytes: len * size_of::<T>() });
                let after = Some(line.pieces.ended(stream).and_then(|end| done.map(|()| end))?);
                rows.turns.push_back(Turn { pinned, after, len, opener });
                full.push_back(gate);
                left -= len;
            }
            Ok(())
        })();
        let held = full.iter().try_for_each(|emptied| stream.hold_until(emptied));
        if held.is_err() {
            // A later copy could fill a piece that is not empty.
            line.pieces = Pieces::default();
        }
        // SAFETY: the copy to the piece has run, and the next one waits at the gate.
        let copy = |host: &mut HostRows<T>, piece: *mut T, len| unsafe { host.write(piece, len) };
        *job = Some(line.submit(rows, copy));
        enqueued.and(held)
    }

    /// Copies bytes to the stream of another worker, whose device this one does not reach. `fill` enqueues the copy of
    /// the next bytes to pinned memory, and `empty` the copy of all bytes in pinned memory. Sets `job` to what is left to
    /// be done, also on an error.
    pub(crate) fn relay(
        &self,
        (source, mut fill): (&Stream, impl FnMut(&PieceOf<'_>) -> Result<()>),
        (other, target, mut empty): (&Self, &Stream, impl FnMut(&PieceOf<'_>) -> Result<()>),
        mut left: usize,
        job: &mut Option<Arc<Progress>>,
    ) -> Result<()> {
        let (mut out, mut into);
        // In one order, for arrays that are copied both ways at once.
        if self.stream < other.stream {
            out = self.line.lock();
            into = other.line.lock();
        } else {
            into = other.line.lock();
            out = self.line.lock();
        }
        out.start(source)?;
        let Line { pieces: out, jobs, .. } = &mut *out;
        let into = &mut into.from_others;
        let room = out.prepare(source, left)?.min(into.prepare(target, left)?);
        let mut relay = Relay {
            turns: VecDeque::new(),
            progress: self.progress(),
            _pending: Pending::one(&self.pending),
        };
        let mut full: VecDeque<Gate> = VecDeque::new();
        let enqueued = (|| {
            while left > 0 {
                let bytes = left.min(room);
                if full.len() == PIECES
                    && let Some(emptied) = full.pop_front()
                {
                    source.hold_until(&emptied)?;
                }
                let from = Arc::clone(&out.next()?.pinned);
                let done = fill(&PieceOf { pinned: &from, bytes });
                let filled = out.ended(source).and_then(|end| done.map(|()| end))?;
                let piece = into.next()?;
                let to = Arc::clone(&piece.pinned);
                let (is_empty, emptied) = source.device().gate()?;
                let (is_full, copied) = target.device().gate()?;
                target.hold_until(&is_full)?;
                full.push_back(is_empty);
                relay.turns.push_back(Relayed {
                    from,
                    filled,
                    to: Arc::clone(&to),
                    free: piece.end.take(),
                    bytes,
                    emptied,
                    copied,
                });
                let done = empty(&PieceOf { pinned: &to, bytes });
                into.ended(target).and(done)?;
                left -= bytes;
            }
            Ok(())
        })();
        let held = full.iter().try_for_each(|emptied| source.hold_until(emptied));
        if held.is_err() {
            // A later copy could fill a piece that is not empty.
            *out = Pieces::default();
        }
        *job = Some(Arc::clone(&relay.progress.0));
        if let Some(jobs) = jobs {
            let _sent = jobs.send(Box::new(move || relay.run()));
        }
        enqueued.and(held)
    }

    fn job<T: Element>(&self, host: HostRows<T>, before: Vec<Arc<Progress>>) -> Rows<T> {
        Rows {
            host: Some(host),
            before,
            turns: VecDeque::new(),
            progress: self.progress(),
            _pending: Pending::one(&self.pending),
        }
    }

    fn progress(&self) -> Ended {
        Ended(Arc::new(Progress { done: OnceLock::new(), thread: Arc::clone(&self.doing) }))
    }
}

impl Pieces {
    /// Makes pieces for a copy of that many bytes, and returns the size of a piece.
    fn prepare(&mut self, stream: &Stream, bytes: usize) -> Result<usize> {
        let share = bytes.div_ceil(COPIES).next_power_of_two();
        let most = share.clamp(PIECE_BYTES.start, PIECE_BYTES.end);
        let wanted = bytes.next_power_of_two().clamp(INLINE_BYTES, most);
        for piece in &mut self.all {
            if piece.as_ref().is_none_or(|piece| piece.pinned.len() < wanted) {
                // Jobs and copies keep the old memory as long as they need it.
                let pinned = Arc::new(stream.device().pinned_allocate(wanted)?);
                *piece = Some(Piece { pinned, end: None });
            }
        }
        let sizes = self.all.iter().flatten().map(|piece| piece.pinned.len());
        Ok(sizes.min().unwrap_or(wanted))
    }

    /// The next piece.
    fn next(&mut self) -> Result<&mut Piece> {
        self.used += 1;
        self.all[self.used % PIECES].as_mut().ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "prefetch", "a stream has no pinned memory")
        })
    }

    /// Notes that the latest piece is used by everything enqueued so far. Gives the piece up if that is not possible.
    fn ended(&mut self, stream: &Stream) -> Result<Event> {
        let piece = &mut self.all[self.used % PIECES];
        match stream.record_event() {
            Ok(end) => {
                piece.iter_mut().for_each(|piece| piece.end = Some(end.clone()));
                Ok(end)
            }
            Err(error) => {
                *piece = None;
                Err(error)
            }
        }
    }
}

impl Line {
    /// Starts the thread.
    fn start(&mut self, stream: &Stream) -> Result<()> {
        if self.jobs.is_some() {
            return Ok(());
        }
        let (jobs, queue) = mpsc::channel::<Job>();
        let work = move || {
            for job in queue {
                // A panic drops the job, whose gates then open as failed.
                let _panicked = catch_unwind(AssertUnwindSafe(job));
            }
        };
        let name = format!("{} copies", stream.device().id());
        thread::Builder::new().name(name).spawn(work).map_err(|error| {
            let message = "no thread that prepares copies";
            Error::new(ErrorKind::Driver, "prefetch", message).with_source(error)
        })?;
        self.jobs = Some(jobs);
        Ok(())
    }

    /// Lets the thread do what was enqueued. If there is no thread, the gates open as failed.
    fn submit<T: Element>(
        &mut self,
        job: Rows<T>,
        copy: impl Fn(&mut HostRows<T>, *mut T, usize) + Send + 'static,
    ) -> Arc<Progress> {
        let progress = Arc::clone(&job.progress.0);
        if job.turns.is_empty() {
            progress.end(Ok(()));
        }
        if let Some(jobs) = &self.jobs {
            let _sent = jobs.send(Box::new(move || job.run(copy)));
        }
        progress
    }
}
