//! Copies that run while the host goes on. The failure of one is an error of the next access to its part.

use coherence::{Lane, PartSet, Paths, Set, Step};
use runtime_core::{Element, ErrorKind, Result};

use super::in_progress::Running;
use super::{Core, State};

impl<T: Element> State<T> {
    /// Notes a copy that was enqueued.
    pub(super) fn note_running(&mut self, paths: &Paths, step: &Step) -> Result<()> {
        let Step::Copy { part, from, to, reads, writes: Some(lane) } = *step else { return Ok(()) };
        if paths.staged(part, from, to) {
            return Ok(());
        }
        let end = self.lanes[usize::from(lane)].stream.record_event()?;
        let lanes = Set::one(lane).union(reads.map_or(Set::EMPTY, Set::one));
        let same = |known: &&mut Running| (known.parts, known.lanes) == (PartSet::one(part), lanes);
        match self.running.iter_mut().find(same) {
            Some(known) => known.end = end,
            None => self.running.push(Running { parts: PartSet::one(part), lanes, end }),
        }
        Ok(())
    }

    /// The lane is another stream's from now on.
    pub(super) fn forget_running(&mut self, lane: Lane) {
        self.running.retain(|known| !known.lanes.contains(lane));
    }
}

impl<T: Element, D> Core<T, D> {
    /// Returns the failure of an earlier copy of these parts, if it was not reported yet. Does not wait for copies.
    ///
    /// Until a part's copies have ended, the mirror serves no readers of it.
    pub(super) fn check_copies(&self, state: &mut State<T>, set: PartSet) -> Result<()> {
        let mut failed = Ok(());
        let has_ended = |known: &Running| {
            !set.and(known.parts).is_empty() && matches!(known.end.is_done(), Ok(true) | Err(_))
        };
        while failed.is_ok()
            && let Some(index) = state.running.iter().position(has_ended)
        {
            let Running { parts, lanes, .. } = state.running.swap_remove(index);
            for lane in lanes.iter() {
                let Err(error) = state.lanes[usize::from(lane)].stream.check() else { continue };
                state.waited(lane, Some(&error));
                // Whatever uses a lost device fails. The copies may have succeeded before.
                if error.kind() != ErrorKind::DeviceLost {
                    let part = self.named(parts.and(set).first().unwrap_or(0));
                    let error = error.about(format_args!("on a stream that copied {part}"));
                    failed = failed.and(Err(error));
                }
            }
        }
        self.show_running(state);
        failed
    }

    /// Lets the mirror serve readers of the parts whose copies have ended.
    pub(super) fn show_running(&self, state: &mut State<T>) {
        let running = state.running.iter().map(|known| known.parts);
        let running = running.fold(PartSet::EMPTY, PartSet::union);
        if self.mirror.set_running(running) {
            self.mirror.show(&mut state.parts);
        }
    }
}
