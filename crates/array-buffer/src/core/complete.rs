//! The check that a write overwrites every element.

use std::env;
use std::sync::LazyLock;

use runtime_core::{DType, Element, Error, ErrorKind, Result, Stream, bytemuck};

use super::{Core, Set};
use crate::coherence::{PartId, ReplicaId};
use crate::pattern::Pattern;
use crate::poison::{Poison, Position, Verdict};
use crate::storage::zeroed;

/// If this is `1`, the writes of all arrays of the process are checked.
const VARIABLE: &str = "ARRAY_BUFFER_CHECK_WRITES";

/// Whether the writes of a new array are checked.
pub(super) fn is_default() -> bool {
    static IS_ON: LazyLock<bool> = LazyLock::new(|| env::var(VARIABLE).is_ok_and(|on| on == "1"));
    *IS_ON
}

/// The check of one write: its memory held a pattern when it began.
#[derive(Clone)]
pub(crate) struct Check {
    pattern: Pattern,
    at: ReplicaId,
    /// `None` on the host.
    stream: Option<Stream>,
}

impl Check {
    pub(crate) fn new(at: ReplicaId, stream: Option<&Stream>) -> Self {
        Self { pattern: Pattern::fresh(), at, stream: stream.cloned() }
    }

    /// The verdict for a write that would end with `verdict`. If the values cannot be read, they are lost, and the error
    /// says why.
    #[cold]
    pub(crate) fn judge<T: Element, D>(
        &self,
        core: &Core<T, D>,
        set: Set,
        verdict: Verdict,
    ) -> (Verdict, Result<()>) {
        if verdict != Verdict::Commit {
            return (verdict, Ok(()));
        }
        for part in set.iter() {
            match core.first_left(part, self) {
                Ok(None) => {}
                Ok(Some(element)) => {
                    let left = Poison::Unwritten(Position::new(element));
                    return (Verdict::Abort(left), Ok(()));
                }
                Err(error) => return (Verdict::Abort(Poison::Work), Err(error)),
            }
        }
        (verdict, Ok(()))
    }
}

impl<T: Element, D> Core<T, D> {
    #[inline]
    pub(crate) fn checks_writes(&self) -> bool {
        self.mirror.checks_writes()
    }

    pub(crate) fn set_check_writes(&self, on: bool) {
        self.mirror.set_check_writes(on);
    }

    /// Writes the pattern to parts that an access has just taken to overwrite.
    #[cold]
    pub(crate) fn begin_check(&self, set: Set, check: &Check) -> Result<()> {
        set.iter().filter(|part| self.partition.len(*part) > 0).try_for_each(|part| {
            let mut values = zeroed::<T>(self.partition.len(part))?;
            check.pattern.fill(bytemuck::cast_slice_mut(&mut values));
            match &check.stream {
                Some(stream) => {
                    self.view_mut(Set::one(part), check.at)?.copy_from_slice(stream, &values)
                }
                None => self.each_run(part, |start, run| {
                    // SAFETY: the state has given the part to the access that the check belongs to.
                    unsafe { self.storage.write_host(start, &values[run]) }
                }),
            }
        })
    }

    /// The first element of a part that still holds the pattern, as its position in the array.
    fn first_left(&self, part: PartId, check: &Check) -> Result<Option<usize>> {
        let len = self.partition.len(part);
        if len == 0 {
            return Ok(None);
        }
        let is_on_host = check.stream.is_none();
        let values = match &check.stream {
            Some(stream) => self.view(Set::one(part), check.at, stream)?.to_vec(stream)?,
            None => {
                let mut values = zeroed::<T>(len)?;
                self.each_run(part, |start, run| {
                    // SAFETY: as above; the borrower of its guard has ended.
                    unsafe { self.storage.read_host(start, &mut values[run]) }
                })?;
                values
            }
        };
        let numbers = if matches!(T::DTYPE, DType::C64 | DType::C128) { 2 } else { 1 };
        let size = size_of::<T>() / numbers;
        let left = check.pattern.first_left(size, bytemuck::cast_slice(&values));
        // Views are read in row-major order, and the host's memory in its own order.
        Ok(left.map(|number| number / numbers).and_then(|number| match is_on_host {
            true => self.partition.runs(part).flatten().nth(number),
            false => Some(self.partition.position(part, number)),
        }))
    }

    /// Calls `act` for each run of a part, with its start in the array and its range in the part.
    fn each_run(
        &self,
        part: PartId,
        mut act: impl FnMut(usize, std::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let mut begin = 0;
        self.partition.runs(part).try_for_each(|run| {
            let end = begin + run.len();
            act(run.start, std::mem::replace(&mut begin, end)..end)
        })
    }

    /// The error for parts that the last writer has lost.
    pub(crate) fn lost_by_writer(&self, set: Set) -> Error {
        let writer = self.lock().last_writer(set.first().unwrap_or(0), &self.partition);
        let message = format!("parts {set:?} were lost {writer}; overwrite them as a whole");
        Error::new(ErrorKind::Poisoned, "commit", message)
    }
}
