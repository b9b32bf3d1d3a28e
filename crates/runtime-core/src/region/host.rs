//! Runs a program in host memory.
#![expect(unsafe_code, reason = "moves elements through raw pointers")]

use std::ptr;

use super::host_slot::HostSlot;
use super::loops::{Dim, Plane};
use super::schedule::{Job, MAX_TOGETHER, Part, Schedule};
use super::{MAX_REGION_RANK, RegionProgram, SlotUse};

/// A loop nest, outermost dimension first.
type Dims = [Dim; MAX_REGION_RANK];

/// The destination and source address of a copy's first element.
type End = (*mut u8, *const u8);

impl Job {
    /// # Safety
    ///
    /// As [`RegionProgram::run`].
    unsafe fn run(&self, slots: &[HostSlot]) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.run_box(slots, &self.choice.dims, 0, 0) };
    }

    /// Runs a box of each copy. Its first element is at the given byte distances from that of the whole. Skips copies
    /// with an absent slot.
    ///
    /// # Safety
    ///
    /// As [`RegionProgram::run`]; the box is inside the copies'.
    unsafe fn run_box(&self, slots: &[HostSlot], dims: &Dims, to: isize, from: isize) {
        let mut ends = [(ptr::null_mut(), ptr::null()); MAX_TOGETHER];
        let mut present = 0;
        for place in &self.places {
            let [target, source] =
                [place.destination_slot, place.source_slot].map(|slot| slots[slot].base);
            if !target.is_null() && !source.is_null() {
                let target = target.wrapping_add(place.destination_offset);
                let source = source.cast_const().wrapping_add(place.source_offset);
                ends[present] = (target, source);
                present += 1;
            }
        }
        let first = dims.iter().position(|dim| dim.extent > 1).unwrap_or(MAX_REGION_RANK);
        // SAFETY: the slots satisfy the program's requirements, so the box is inside them at each place.
        unsafe { self.walk(first, dims, &ends[..present], to, from) };
    }

    /// Runs the dimensions from `level` on, at the given byte distances from each of the ends.
    ///
    /// # Safety
    ///
    /// As [`Kernel`](super::loops::Kernel) for the box of these dimensions at each of them.
    unsafe fn walk(&self, level: usize, dims: &Dims, ends: &[End], to: isize, from: isize) {
        let (blocked, block) = self.choice.block;
        if level + 1 == blocked && dims[blocked].extent > block {
            let mut part = *dims;
            for first in (0..dims[blocked].extent).step_by(block) {
                part[blocked].extent = block.min(dims[blocked].extent - first);
                let (to, from) = dims[blocked].steps(to, from, first);
                // SAFETY: a block of the box.
                unsafe { self.walk(level, &part, ends, to, from) };
            }
            return;
        }
        if level + 2 >= MAX_REGION_RANK {
            let [.., outer, inner] = *dims;
            // SAFETY: guaranteed by the caller.
            return unsafe { self.take_turns([outer, inner], ends, to, from) };
        }
        for index in 0..dims[level].extent {
            let (to, from) = dims[level].steps(to, from, index);
            // SAFETY: a part of the box.
            unsafe { self.walk(level + 1, dims, ends, to, from) };
        }
    }

    /// Runs a plane. If there are several copies, runs a few rows of each in turn.
    ///
    /// # Safety
    ///
    /// As [`walk`](Self::walk).
    unsafe fn take_turns(&self, [outer, inner]: Plane, ends: &[End], to: isize, from: isize) {
        let turn = if ends.len() > 1 { self.turn } else { outer.extent };
        for first in (0..outer.extent).step_by(turn) {
            let rows = Dim { extent: turn.min(outer.extent - first), ..outer };
            let (to, from) = outer.steps(to, from, first);
            for (target, source) in ends {
                let (to, from) = (target.wrapping_offset(to), source.wrapping_offset(from));
                // SAFETY: guaranteed by the caller; `choose` made the dimensions, and only dimensions that may be cut
                // were cut.
                unsafe { (self.choice.kernel)(to, from, &[rows, inner]) };
            }
        }
    }
}

impl RegionProgram {
    /// Runs all phases in host memory, on this thread, without allocating. `slots[i]` is the memory of slot `i`.
    ///
    /// # Safety
    ///
    /// There are as many slots as the program [has](Self::slots). For each slot that the program touches, `base` is
    /// either null or points to the required number of initialised bytes; these are aligned as required, valid for
    /// reads, and valid for writes if the slot is written. Bytes that the program touches through a slot that it writes
    /// are touched through no other slot. Until this returns, no other code writes bytes that the program touches or
    /// reads bytes that it writes.
    pub unsafe fn run(&self, slots: &[HostSlot]) {
        self.debug_check(slots);
        for phase in self.phases() {
            for job in &phase.schedule.jobs {
                // SAFETY: guaranteed by the caller.
                unsafe { job.run(slots) };
            }
            for (items, kernel) in phase.items().iter().zip(&phase.schedule.item_kernels) {
                // SAFETY: guaranteed by the caller; the kernel is that of the items.
                unsafe { kernel(items, slots, 0..items.count()) };
            }
        }
    }

    /// The number of parts that a phase is cut into, so that several threads can share it. 0 if there is no such phase.
    ///
    /// Parts cost about the same. If the phase is large enough, each part costs at least as much as copying 64 KiB. An
    /// element that is alone in its cache line costs as much as a whole line.
    pub fn parts(&self, phase: usize) -> usize {
        self.phases().get(phase).map_or(0, |phase| phase.schedule.parts.len())
    }

    /// Runs one part of one phase, as [`run`](Self::run) does. Does nothing if there is no such part.
    ///
    /// Parts of a phase touch different bytes, or only read them, so they may run concurrently and in any order. A
    /// phase must be complete before the next one begins.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run), except that other parts of the same phase may run at the same time.
    pub unsafe fn run_part(&self, phase: usize, part: usize, slots: &[HostSlot]) {
        let Some(phase) = self.phases().get(phase) else { return };
        let Schedule { jobs, item_kernels, parts } = &phase.schedule;
        self.debug_check(slots);
        match parts.get(part) {
            None => {}
            Some(Part::Jobs(range)) => {
                for job in &jobs[range.clone()] {
                    // SAFETY: guaranteed by the caller.
                    unsafe { job.run(slots) };
                }
            }
            Some(Part::Piece { job, dim, range }) => {
                let job = &jobs[*job];
                let mut dims = job.choice.dims;
                let start = range.start.cast_signed();
                let (to, from) = (start * dims[*dim].to, start * dims[*dim].from);
                dims[*dim].extent = range.len();
                // SAFETY: guaranteed by the caller; the range is inside the extent.
                unsafe { job.run_box(slots, &dims, to, from) };
            }
            Some(Part::Items { copy, range }) => {
                // SAFETY: guaranteed by the caller; the kernel is that of the items, and the range is one of them.
                unsafe { item_kernels[*copy](&phase.items()[*copy], slots, range.clone()) };
            }
        }
    }

    /// Checks the requirements on slots as far as possible, in debug builds.
    fn debug_check(&self, slots: &[HostSlot]) {
        debug_assert_eq!(slots.len(), self.slots().len());
        let is_touched = |slot: &HostSlot, used: &SlotUse| used.bytes > 0 && !slot.base.is_null();
        let bound = slots.iter().zip(self.slots());
        for (slot, used) in bound.filter(|(slot, used)| is_touched(slot, used)) {
            debug_assert!(slot.len >= used.bytes, "{} bytes of {}", slot.len, used.bytes);
            debug_assert_eq!(slot.base.align_offset(used.align), 0);
        }
    }
}
