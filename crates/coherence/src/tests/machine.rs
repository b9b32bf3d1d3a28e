//! The effects of steps: which operation is ordered after which other, and which bytes are current.

use super::super::{HOST, PartId, ReplicaId, Step, Who};
use super::*;

/// Streams and the host, by number.
const ACTORS: usize = 6;
const HOST_ACTOR: usize = 5;

fn actor(who: Who) -> usize {
    who.map_or(HOST_ACTOR, usize::from)
}

/// An operation on one replica of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) part: PartId,
    pub(super) at: ReplicaId,
    pub(super) lane: Lane,
    pub(super) writes: bool,
}

/// Operations that may be running, and the actors that are ordered after each.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    pub(super) ops: Vec<Op>,
    /// For each actor, the operations that its next operation comes after, as bits.
    after: [u128; ACTORS],
    /// For each operation, itself and the operations that it comes after, as bits.
    until: Vec<u128>,
}

impl Machine {
    /// Adds an operation that was enqueued earlier; the actors in `also` are already ordered after it.
    pub(super) fn assume(&mut self, op: Op, also: impl Iterator<Item = Lane>) {
        let bit = self.push(op);
        for lane in also {
            self.after[usize::from(lane)] |= bit;
        }
    }

    fn push(&mut self, op: Op) -> u128 {
        assert!(self.ops.len() < 128, "too many operations at once");
        let bit = 1 << self.ops.len();
        self.ops.push(op);
        self.after[usize::from(op.lane)] |= bit;
        self.until.push(self.after[usize::from(op.lane)]);
        bit
    }

    pub(super) fn is_after(&self, who: Who, op: usize) -> bool {
        self.after[actor(who)] & (1 << op) != 0
    }

    /// Drops operations that the host has seen finish.
    pub(super) fn forget_done(&mut self) {
        let done = self.after[HOST_ACTOR];
        self.retain(|index, _| done & (1 << index) == 0);
    }

    /// Drops the work on memory that is evicted: the memory is freed after that work, and new memory has no work.
    pub(super) fn evict(&mut self, set: PartSet, at: ReplicaId) {
        self.retain(|_, op| op.at != at || !set.contains(op.part));
    }

    fn retain(&mut self, keep: impl Fn(usize, &Op) -> bool) {
        let kept: Vec<usize> = (0..self.ops.len()).filter(|op| keep(*op, &self.ops[*op])).collect();
        let pack = |bits: u128| {
            let bit = |(new, old): (usize, &usize)| u128::from(bits & (1 << old) != 0) << new;
            kept.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
        };
        self.after = self.after.map(pack);
        self.until = kept.iter().map(|op| pack(self.until[*op])).collect();
        self.ops = kept.iter().map(|op| self.ops[*op]).collect();
    }

    /// Accesses the bytes. The error names an operation that the access is not ordered with.
    pub(super) fn touch(
        &mut self,
        who: Who,
        part: PartId,
        at: ReplicaId,
        writes: bool,
    ) -> Result<(), String> {
        // Work that the host enqueues comes after the work that the host has seen finish.
        self.after[actor(who)] |= self.after[HOST_ACTOR];
        for (index, op) in self.ops.iter().enumerate() {
            let conflict = op.part == part && op.at == at && (writes || op.writes);
            if conflict && !self.is_after(who, index) {
                return Err(format!("{who:?} writes={writes} is not ordered after {op:?}"));
            }
        }
        if let Some(lane) = who {
            self.push(Op { part, at, lane, writes });
        }
        Ok(())
    }

    /// Does one step. A copy between devices orders their lanes. A copy through the host blocks the host until the
    /// source is read.
    pub(super) fn step(&mut self, step: Step, paths: &Paths) -> Result<(), String> {
        match step {
            Step::Wait { who, on } => self.join(actor(who), usize::from(on)),
            Step::See { part, on, .. } => {
                // What a copy reads may have been read long before the copy runs, and before what it waits for.
                for (index, (op, until)) in self.ops.iter().zip(&self.until).enumerate() {
                    if (op.part, op.at, op.lane) == (part, HOST, on) {
                        self.after[HOST_ACTOR] |= if op.writes { *until } else { 1 << index };
                    }
                }
            }
            Step::Fill { part, at, by, .. } => self.touch(by, part, at, true)?,
            Step::Copy { part, from, to, reads, writes } => {
                let staged = paths.staged(part, from, to);
                let relayed = paths.relayed(from, to);
                assert!(!staged || reads.is_none() || !paths.host.contains(from));
                if !staged && !relayed {
                    self.join(actor(writes), actor(reads));
                }
                self.touch(reads, part, from, false)?;
                if staged {
                    self.join(HOST_ACTOR, actor(reads));
                }
                if relayed {
                    // The copy to the target comes after the one from the source, which does not wait for it.
                    self.join(actor(writes), actor(reads));
                }
                self.touch(writes, part, to, true)?;
                if !staged && !relayed {
                    self.join(actor(reads), actor(writes));
                }
            }
        }
        Ok(())
    }

    fn join(&mut self, who: usize, on: usize) {
        self.after[who] |= self.after[on];
    }

    /// The host waits for everything on `lane`.
    pub(super) fn drain(&mut self, lane: Lane) {
        self.join(HOST_ACTOR, usize::from(lane));
    }
}
