//! The check that a write overwrites every element.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use coherence::{HOST, Health, PartId, ReplicaId};
use runtime_core::{DType, Element, Error, ErrorKind, Result, Stream, bytemuck};

use super::{Core, PartSet};
use crate::mirror::CHECKS;
use crate::pattern::Pattern;
use crate::poison::{Poison, Position, Verdict};
use crate::storage::zeroed;

impl<T: Element, D> Core<T, D> {
    /// Whether writes do more than usual.
    #[inline]
    pub(crate) fn has_extras(&self) -> bool {
        self.mirror.has_extras()
    }

    pub(crate) fn checks_writes(&self) -> bool {
        self.mirror.has_extra(CHECKS)
    }

    pub(crate) fn set_check_writes(&self, on: bool) {
        self.set_extra(CHECKS, on);
    }

    /// The pattern of the array's memory. No program knows it.
    fn pattern(&self) -> Pattern {
        static RANDOM: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Pattern::new(RANDOM.hash_one(std::ptr::from_ref(self).addr()))
    }

    /// The replica and the stream, if it is not the host, of an access that writes a part. `None` if the part was lost.
    fn writer(&self, part: PartId) -> Option<(ReplicaId, Option<Stream>)> {
        let state = self.lock();
        let known = &state.parts[usize::from(part)];
        let Health::Writing { at, .. } = known.health else { return None };
        let lane = known.bytes(at).writer;
        let stream = lane.map(|lane| state.lanes[usize::from(lane)].stream.clone());
        (at == HOST || stream.is_some()).then_some((at, stream))
    }

    /// Writes the pattern to parts that an access has just taken to overwrite.
    #[cold]
    pub(crate) fn begin_check(&self, set: PartSet) -> Result<()> {
        for part in set.iter().filter(|part| self.partition.len(*part) > 0) {
            let Some((at, stream)) = self.writer(part) else { continue };
            let mut values = zeroed::<T>(self.partition.len(part))?;
            self.pattern().fill(bytemuck::cast_slice_mut(&mut values));
            match &stream {
                Some(stream) => {
                    self.view_mut(&PartSet::one(part), at)?.copy_from_slice(stream, &values)?;
                }
                None => self.partition.packed_runs(part).try_for_each(|(run, own)| {
                    // SAFETY: the state has given the part to the access that is checked.
                    unsafe { self.storage.write_host(run.start, &values[own]) }
                })?,
            }
        }
        Ok(())
    }

    /// Ends an access of these parts by `end`, as its verdict says, with what writes do beside. The write `is_checked` if
    /// it began with a check. Returns the verdict.
    pub(crate) fn finish(
        &self,
        set: PartSet,
        is_checked: bool,
        verdict: Verdict,
        end: impl FnOnce(Verdict) -> Result<()>,
    ) -> Result<Verdict> {
        let (verdict, checked) = match verdict {
            Verdict::Commit if is_checked => self.judge(set),
            verdict => (verdict, Ok(())),
        };
        // If the work has failed, the parts are lost already.
        let ended = end(verdict);
        checked.and(ended)?;
        if verdict == Verdict::Commit && self.has_extras() {
            self.write_through(set)?;
        }
        Ok(verdict)
    }

    /// The verdict for a checked write that seems good. If the values cannot be read, they are lost, and the error says
    /// why.
    fn judge(&self, set: PartSet) -> (Verdict, Result<()>) {
        for part in set.iter() {
            match self.first_left(part) {
                Ok(None) => {}
                Ok(Some(element)) => {
                    let left = Poison::Unwritten(Position::new(element));
                    return (Verdict::Abort(left), Ok(()));
                }
                Err(error) => return (Verdict::Abort(Poison::Work), Err(error)),
            }
        }
        (Verdict::Commit, Ok(()))
    }

    /// The first element of a part that still holds the pattern, as its position in the array.
    fn first_left(&self, part: PartId) -> Result<Option<usize>> {
        let len = self.partition.len(part);
        let Some((at, stream)) = self.writer(part).filter(|_| len > 0) else { return Ok(None) };
        let is_on_host = stream.is_none();
        let values = match &stream {
            Some(stream) => self.view(&PartSet::one(part), at, stream)?.to_vec(stream)?,
            None => {
                let mut values = zeroed::<T>(len)?;
                self.partition.packed_runs(part).try_for_each(|(run, own)| {
                    // SAFETY: as above; the borrower of its guard has ended.
                    unsafe { self.storage.read_host(run.start, &mut values[own]) }
                })?;
                values
            }
        };
        let numbers = match T::DTYPE {
            DType::C64 | DType::C128 => 2,
            // A field may be left out.
            DType::Record(record) => record.size(),
            _ => 1,
        };
        let size = size_of::<T>() / numbers;
        let left = self.pattern().first_left(size, bytemuck::cast_slice(&values));
        // Views are read in row-major order, and the host's memory in its own order.
        Ok(left.map(|number| number / numbers).and_then(|number| match is_on_host {
            true => self.partition.runs(part).flatten().nth(number),
            false => Some(self.partition.position(part, number)),
        }))
    }

    /// The error for parts that the last writer has lost.
    pub(crate) fn lost_by_writer(&self, set: PartSet) -> Error {
        let writer = self.lock().last_writer(set.first().unwrap_or(0), &self.partition);
        let message = format!("parts {set:?} were lost {writer}; overwrite them as a whole");
        Error::new(ErrorKind::Poisoned, "commit", message)
    }
}
