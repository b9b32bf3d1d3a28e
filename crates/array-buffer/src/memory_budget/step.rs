//! Recorded steps: the uses of parts that a program repeats.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use coherence::PartSet;
use runtime_core::{Error, ErrorKind, Result, StreamOptions};

use super::budget::{Ahead, MemoryBudget, RoomCause, Standing, WINDOW};
use super::forecast::Event;
use super::ledger::{Owner, Use};

impl MemoryBudget {
    /// Begins to record which parts are used, until [`Recording::finish`].
    ///
    /// # Errors
    ///
    /// `Conflict` while another recording goes on.
    pub fn record(&self) -> Result<Recording> {
        let mut account = self.account();
        if account.is_recording {
            return Err(Error::new(ErrorKind::Conflict, "record", "a recording goes on already"));
        }
        account.is_recording = true;
        account.ledger.record(true);
        Ok(Recording { budget: self.clone() })
    }

    /// Until the result is dropped, the program is expected to use the same parts in the same order as in the step,
    /// again and again. The default [policy](super::LatestNextUse) then lets the parts leave that are used latest.
    ///
    /// For arrays whose host memory is [page-locked](crate::ArrayBuffer::page_lock), each access also begins to copy
    /// the parts that the next two accesses will miss to the device, and the values of the parts that will leave next
    /// to the host. These copies are on streams of their own. So they run while the device computes. They use memory
    /// that is free. A budget leaves memory for one or two parts free for them, if the step then copies at most an
    /// eighth more: in a sweep over many parts, of which some fit. Then several parts leave soon. Of these, that part
    /// leaves first whose values are on the host, or on the way. The policy is also asked for what the next accesses
    /// will do.
    ///
    /// Every value is right in any case: other uses than expected only cost time.
    ///
    /// ```
    /// # use array_buffer::{ArrayBuffer, MemoryBudget};
    /// # fn sweep() -> array_buffer::Result<()> { Ok(()) }
    /// # fn example(budget: &MemoryBudget) -> array_buffer::Result<()> {
    /// let recording = budget.record()?;
    /// sweep()?;
    /// let step = recording.finish();
    /// let _expected = budget.repeat(&step)?;
    /// for _ in 1..100 {
    ///     sweep()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Conflict` while another step is repeated. `InvalidArgument` for the step of another budget. Errors of making
    /// the streams.
    pub fn repeat(&self, step: &RecordedStep) -> Result<Repeat> {
        if !self.is_same(&step.budget) {
            let message = "a step that was recorded with another budget";
            return Err(Error::new(ErrorKind::InvalidArgument, "repeat", message));
        }
        let make = || self.device().stream_create(&StreamOptions::default());
        let ahead = Arc::new(Ahead { up: [make()?, make()?, make()?], down: make()? });
        let mut account = self.account();
        if account.ahead.is_some() {
            return Err(Error::new(ErrorKind::Conflict, "repeat", "a step is repeated already"));
        }
        account.ahead = Some(ahead);
        account.ledger.repeat(Some(Arc::clone(&step.uses)));
        let trial = account.ledger.trial(account.refused, 0);
        drop(account);
        let repeat = Repeat { budget: self.clone() };
        // A policy may ask the budget.
        let spare = trial.spare(self.policy());
        self.account().spare = spare;
        Ok(repeat)
    }

    /// Begins the copies that the repeated step needs next. An access on `needed` parts of `owner` is about to begin.
    /// If a copy cannot begin, the access that needs it makes it, and returns the error if there is one.
    pub(super) fn look_ahead(&self, owner: Owner, needed: PartSet, cause: RoomCause) {
        if let Err(error) = self.try_look_ahead(owner, needed, cause) {
            tracing::debug!(%error, "a copy ahead of its use did not begin");
        }
    }

    fn try_look_ahead(&self, owner: Owner, needed: PartSet, cause: RoomCause) -> Result<()> {
        let (ahead, mut ledger) = {
            let account = self.account();
            let Some(ahead) = &account.ahead else { return Ok(()) };
            (Arc::clone(ahead), account.ledger.trial(account.refused, account.spare))
        };
        let known = self.candidates(owner, needed);
        let free: Vec<_> = known.iter().filter_map(|of| Some((of, of.standing()?))).collect();
        let must_copy = |key| {
            let copied = Standing::Free { must_copy: true };
            free.iter().any(|(known, (standing, _))| known.key == key && *standing == copied)
        };
        let events = ledger.forecast((owner, needed), WINDOW, self.policy(), must_copy);
        let waits = Cell::new(0);
        let mut leaving = VecDeque::new();
        for event in events {
            match event {
                // It can leave only after that use.
                Event::Leaves { is_used: true, .. } => {}
                Event::Leaves { key, .. } => {
                    let found = free.iter().find(|(known, _)| known.key == key);
                    let Some((known, (standing, array))) = found else { return Ok(()) };
                    // Its values go to the host before its memory is needed.
                    match *standing == (Standing::Free { must_copy: true }) {
                        true => array.write_back(key.1, known.at, &ahead.down, cause)?,
                        false => leaving.push_back((known, array)),
                    }
                }
                // Its memory is needed only then.
                Event::Comes { reads: false, .. } => leaving.clear(),
                Event::Comes { key, access, .. } => {
                    let of = self.account().arrays.get(&key.0).cloned();
                    let Some((array, at)) = of.and_then(|(of, at)| Some((of.upgrade()?, at)))
                    else {
                        return Ok(());
                    };
                    let up = &ahead.up[access % ahead.up.len()];
                    while !array.fetch(key.1, at, up, cause)? {
                        let Some((known, leaves)) = leaving.pop_front() else { return Ok(()) };
                        if !self.evict(known, &**leaves, cause, &waits)? {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// A recording of uses: see [`MemoryBudget::record`].
#[must_use = "the recording ends when this is dropped"]
#[derive(Debug)]
pub struct Recording {
    budget: MemoryBudget,
}

impl Recording {
    /// Ends the recording.
    pub fn finish(self) -> RecordedStep {
        let uses = self.budget.account().ledger.record(false).unwrap_or_default();
        RecordedStep { budget: self.budget.clone(), uses: uses.into() }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut account = self.budget.account();
        account.ledger.record(false);
        account.is_recording = false;
    }
}

/// The uses of parts in a step of a program, in their order: see [`MemoryBudget::repeat`].
///
/// A use is an access to a part on the budget's device. A step knows arrays, and not variables: if a program swaps two
/// arrays after each step, record two steps as one.
#[derive(Clone)]
pub struct RecordedStep {
    budget: MemoryBudget,
    uses: Arc<[Use]>,
}

impl RecordedStep {
    /// The number of uses.
    pub fn len(&self) -> usize {
        self.uses.len()
    }

    /// Whether no part was used.
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }
}

impl fmt::Debug for RecordedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordedStep({} uses)", self.len())
    }
}

/// The time in which a step is repeated: see [`MemoryBudget::repeat`].
#[must_use = "the step is no longer expected when this is dropped"]
#[derive(Debug)]
pub struct Repeat {
    budget: MemoryBudget,
}

impl Drop for Repeat {
    fn drop(&mut self) {
        let ahead = {
            let mut account = self.budget.account();
            account.ledger.repeat(None);
            account.spare = 0;
            account.ahead.take()
        };
        drop(ahead);
    }
}
