//! The threads of a block: turns, barriers, exchanges within warps.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Fault;
use super::instruction::{Exchange, ExchangeKind, Reduction, Shuffle, Vote};
use super::memory::{Memory, POISON};
use super::thread::{Pause, Place, Thread};

/// The number of operations that a thread executes in a turn.
const TURN: u32 = 1 << 14;

/// The properties that all blocks of a launch share.
pub(super) struct Launch<'a> {
    pub(super) function: usize,
    pub(super) params: &'a [u8],
    /// Set from outside, or once another block has failed.
    pub(super) stops: [&'a AtomicBool; 2],
}

/// Executes blocks. Threads and their memory are reused.
pub(super) struct Blocks<'a, 'm> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) memory: Memory<'a>,
    pub(super) make: &'a dyn Fn() -> Thread<'m>,
    pub(super) idle: Vec<Thread<'m>>,
}

impl<'m> Blocks<'_, 'm> {
    /// Executes a block to its end.
    pub(super) fn run(&mut self, place: &Place<'_>) -> Result<(), Fault> {
        let mut live = self.start(place)?;
        while !live.is_empty() {
            self.proceed(&mut live, place)?;
        }
        Ok(())
    }

    /// Executes blocks in turns, so that each can wait for the others.
    pub(super) fn run_together<'p>(
        &mut self,
        places: impl Iterator<Item = Place<'p>>,
    ) -> Result<(), Fault> {
        let mut blocks = Vec::new();
        for place in places {
            let live = self.start(&place)?;
            blocks.push((place, live, mem::take(&mut self.memory.shared)));
        }
        while !blocks.is_empty() {
            for (place, live, shared) in &mut blocks {
                mem::swap(&mut self.memory.shared, shared);
                self.proceed(live, place)?;
                mem::swap(&mut self.memory.shared, shared);
            }
            blocks.retain(|(_, live, _)| !live.is_empty());
        }
        Ok(())
    }

    /// Starts a block: each thread has its first turn. Returns the threads that have not ended.
    fn start(&mut self, place: &Place<'_>) -> Result<Vec<Thread<'m>>, Fault> {
        self.memory.shared.clear();
        let shared = place.static_shared.next_multiple_of(16) + place.dynamic_shared;
        self.memory.shared.resize(shared, POISON);
        let mut live = Vec::new();
        for linear in 0..place.block.iter().product() {
            let mut thread = self.idle.pop().unwrap_or_else(self.make);
            thread.start(linear, self.launch.function, self.launch.params, place);
            self.turn(&mut thread, place)?;
            match thread.pause {
                Pause::Exited => self.idle.push(thread),
                _ => live.push(thread),
            }
        }
        Ok(live)
    }

    /// Gives each thread that does not wait a turn.
    fn proceed(&mut self, live: &mut Vec<Thread<'m>>, place: &Place<'_>) -> Result<(), Fault> {
        if live.is_empty() {
            return Ok(());
        }
        release(live)?;
        for thread in live.iter_mut().filter(|thread| matches!(thread.pause, Pause::Ready)) {
            self.turn(thread, place)?;
        }
        self.idle.extend(live.extract_if(.., |thread| matches!(thread.pause, Pause::Exited)));
        Ok(())
    }

    fn turn(&mut self, thread: &mut Thread<'m>, place: &Place<'_>) -> Result<(), Fault> {
        if self.launch.stops.iter().any(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Fault::Stopped);
        }
        thread.run(&mut self.memory, place, TURN)
    }
}

/// Lets threads continue that have waited for each other.
fn release(live: &mut [Thread<'_>]) -> Result<(), Fault> {
    for warp in live.chunk_by_mut(|a, b| a.linear / 32 == b.linear / 32) {
        exchange(warp);
    }
    barrier(live);
    if live.iter().any(|thread| matches!(thread.pause, Pause::Ready)) {
        return Ok(());
    }
    let message = "all threads of a block wait, and not for the same";
    Err(Fault::IllegalInstruction(message.to_owned()))
}

/// Releases the threads of a block if all that have not ended wait at the same barrier.
fn barrier(live: &mut [Thread<'_>]) {
    let number = |thread: &Thread<'_>| match thread.pause {
        Pause::Barrier(barrier) => Some(thread.slot(barrier.number) & 0xffff_ffff),
        _ => None,
    };
    let first = live.first().and_then(number);
    if first.is_none() || live.iter().any(|thread| number(thread) != first) {
        return;
    }
    let mut members: Vec<&mut Thread<'_>> = live.iter_mut().collect();
    vote(&mut members, |pause| match pause {
        Pause::Barrier(barrier) => barrier.reduction.as_ref(),
        _ => None,
    });
    members.iter_mut().for_each(|thread| thread.pause = Pause::Ready);
}

/// Performs the exchanges of a warp at which all members have arrived.
fn exchange(warp: &mut [Thread<'_>]) {
    for first in 0..warp.len() {
        let Some(exchange) = wanted(&warp[first]) else { continue };
        let mask = warp[first].slot(exchange.members);
        let is_member = |thread: &Thread<'_>| mask >> (thread.linear % 32) & 1 == 1;
        let is_there =
            |thread: &Thread<'_>| wanted(thread).is_some_and(|other| ptr::eq(other, exchange));
        if warp.iter().any(|thread| is_member(thread) && !is_there(thread)) {
            continue;
        }
        let mut members: Vec<&mut Thread<'_>> =
            warp.iter_mut().filter(|thread| is_member(thread)).collect();
        carry_out(&mut members, exchange);
        members.iter_mut().for_each(|thread| thread.pause = Pause::Ready);
    }
}

fn wanted<'m>(thread: &Thread<'m>) -> Option<&'m Exchange> {
    match thread.pause {
        Pause::Exchange(exchange) => Some(exchange),
        _ => None,
    }
}

fn carry_out<'m>(members: &mut [&mut Thread<'m>], exchange: &'m Exchange) {
    match &exchange.kind {
        ExchangeKind::Barrier => {}
        ExchangeKind::Vote(reduction) => vote(members, |_| Some(reduction)),
        ExchangeKind::Shuffle { mode, to, valid, value, lane, clamp } => {
            let mut values = [0; 32];
            for thread in &*members {
                values[lane_of(thread)] = thread.slot(*value);
            }
            for thread in members {
                let (own, clamp) = (lane_of(thread), thread.slot(*clamp));
                let (from, is_valid) = source(*mode, own, low5(thread.slot(*lane)), clamp);
                thread.set(*to, values[from]);
                thread.set(*valid, is_valid.into());
            }
        }
    }
}

fn lane_of(thread: &Thread<'_>) -> usize {
    thread.linear as usize % 32
}

fn low5(value: u64) -> usize {
    (value & 31) as usize
}

/// The lane whose value a lane gets, and whether the clamp admits that lane.
fn source(mode: Shuffle, own: usize, lane: usize, clamp: u64) -> (usize, bool) {
    let (segment, clamp) = (low5(clamp >> 8), low5(clamp));
    let lowest = own & segment;
    let highest = lowest | (clamp & !segment);
    let (from, is_valid) = match mode {
        Shuffle::Up => (own.wrapping_sub(lane), own >= highest + lane),
        Shuffle::Down => (own + lane, own + lane <= highest),
        Shuffle::Butterfly => (own ^ lane, own ^ lane <= highest),
        Shuffle::Index => {
            let from = lowest | (lane & !segment);
            (from, from <= highest)
        }
    };
    if is_valid { (from, true) } else { (own, false) }
}

/// Gives every thread the reduction of all predicates.
fn vote<'m>(
    members: &mut [&mut Thread<'m>],
    reduction: impl Fn(Pause<'m>) -> Option<&'m Reduction>,
) {
    let mut lanes = 0_u64;
    let mut count = 0;
    for thread in &*members {
        let Some(reduction) = reduction(thread.pause) else { continue };
        if (thread.slot(reduction.predicate) & 1 == 1) != reduction.negated {
            lanes |= 1 << lane_of(thread);
            count += 1;
        }
    }
    let all = members.len() as u64;
    for thread in members {
        let Some(reduction) = reduction(thread.pause) else { continue };
        let result = match reduction.kind {
            Vote::All => (count == all).into(),
            Vote::Any => (count > 0).into(),
            Vote::Ballot => lanes,
            Vote::Count => count,
        };
        thread.set(reduction.to, result);
    }
}
