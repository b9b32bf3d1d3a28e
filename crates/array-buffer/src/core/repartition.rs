//! Divides an array into other parts.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use coherence::{
    Action, HOST, Health, LANES, PARTS, PartId, PartSet, PartState, REPLICAS, ReplicaId, Role, Set,
    common, kept, loss, merge, rejoin, waits,
};
use runtime_core::{Element, Error, ErrorKind, Result};

use super::exclusive::direct_parts;
use super::{Core, Request, State, Writer};
use crate::call_site::CallSite;
use crate::mirror::Mirror;
use crate::partition::{Partition, Ranges};
use crate::poison::Poison;

/// How often values are copied to one place, if failures that other callers received make it necessary again.
const ATTEMPTS: usize = 4;

/// A part to be made, and the parts that have its elements now.
struct Goal {
    pieces: PartSet,
    /// Where the pieces must be brought to, since no replica has all of their values.
    place: Option<ReplicaId>,
}

/// What belongs to the parts of an array.
type Divided = (Partition, Vec<PartState>, Vec<Writer>);

impl<T: Element, D> Core<T, D> {
    /// Divides the array into the parts of `target`. No guard is alive.
    pub(crate) fn repartition(&mut self, target: Partition, call_site: CallSite) -> Result<()> {
        if target.shape() != self.partition.shape() {
            let shapes = (target.shape(), self.partition.shape());
            let message = format!("a partition of shape {:?} for shape {:?}", shapes.0, shapes.1);
            return Err(Error::new(ErrorKind::InvalidArgument, "repartition", message));
        }
        let target = target.ordered_as(&self.partition)?;
        if target == self.partition {
            return Ok(());
        }
        let mut state = self.lock();
        // A refused call does not wait.
        self.goals(&state, &target, call_site)?;
        // Streams of different devices may not be able to wait for each other's copies, and a copy that fails later
        // would cost more than its own part.
        state.end_direct_copies(&self.mirror)?;
        let before = (self.partition.clone(), state.parts.clone(), state.writers.clone());
        drop(state);
        // A log subscriber, for instance, may panic.
        let done = catch_unwind(AssertUnwindSafe(|| {
            let mut attempts = 0..ATTEMPTS;
            while let Some(goals) = self.join(&target, call_site)? {
                if attempts.next().is_none() {
                    let message = format!("streams failed during each of {ATTEMPTS} attempts");
                    return Err(Error::new(ErrorKind::DeviceFault, "repartition", message));
                }
                self.bring(&target, &goals, call_site)?;
            }
            Ok(())
        }));
        if !matches!(done, Ok(Ok(()))) && self.partition != before.0 {
            self.rejoin(before);
        }
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// How each part of `target` is to be made. Refuses parts in which values would be lost.
    fn goals(
        &self,
        state: &State<T>,
        target: &Partition,
        call_site: CallSite,
    ) -> Result<Vec<Goal>> {
        let goal = |(part, role): (usize, Role)| {
            let numbers = self.partition.meeting(target.ranges(part));
            let pieces = state.pieces(numbers);
            if let Some(why) = loss(&pieces, role) {
                return Err(state.refused(why, "repartition", Some(call_site), &self.partition));
            }
            let is_apart =
                common(&pieces).is_empty() && pieces.iter().all(|(_, of)| !of.valid.is_empty());
            // The number of elements to copy.
            let cost = |at: &ReplicaId| -> usize {
                let lacking = pieces.iter().filter(|(_, of)| !of.valid.contains(*at));
                lacking
                    .map(|(of, _)| self.partition.common((*of).into(), target.ranges(part)))
                    .sum()
            };
            let places = pieces.iter().map(|(_, of)| of.valid).fold(Set::EMPTY, Set::union);
            let place = places.iter().min_by_key(cost).filter(|_| is_apart);
            Ok(Goal { pieces: numbers, place })
        };
        target.roles().enumerate().map(goal).collect()
    }

    /// Copies what is to become one part to one place: only the elements that are missing there, unless these are in
    /// more boxes than an array has parts.
    fn bring(&mut self, target: &Partition, goals: &[Goal], call_site: CallSite) -> Result<()> {
        let cut: Vec<(Ranges, [PartId; 2])> = self.partition.cut(target).take(PARTS + 1).collect();
        let is_cut = cut.len() <= PARTS;
        if is_cut {
            let boxes = cut.iter().map(|(ranges, [old, _])| (ranges.clone(), *old));
            let refined = self.partition.refined(boxes);
            let state = self.state.get_mut();
            let of = |(_, [old, _]): &(Ranges, [PartId; 2])| usize::from(*old);
            let parts = cut.iter().map(|cut| state.parts[of(cut)].clone()).collect();
            let writers = cut.iter().map(|cut| state.writers[of(cut)]).collect();
            self.install((refined, parts, writers));
        }
        for (part, goal) in (0..=PartId::MAX).zip(goals) {
            let Some(at) = goal.place else { continue };
            let cut = (0..=PartId::MAX).zip(&cut).filter(|(_, (_, [_, new]))| *new == part);
            let set = if is_cut { cut.map(|(piece, _)| piece).collect() } else { goal.pieces };
            let stream = (at != HOST).then(|| self.lock().copy_stream(at));
            let (stream, access) = (stream.as_ref(), "repartition");
            let request = Request::new(&set, stream, access, call_site);
            self.act(&request, |at, by| Action::Prefetch { at, by })?;
            self.see(set, at)?;
        }
        Ok(())
    }

    /// Waits until the copies of parts to a replica are done. If one fails later, the part that they join would be lost
    /// as a whole.
    fn see(&self, set: PartSet, at: ReplicaId) -> Result<()> {
        let mut state = self.lock();
        let sources = |part: PartId| state.parts[usize::from(part)].bytes(at).sources();
        let lanes = set.iter().map(sources).fold(Set::EMPTY, Set::union);
        for lane in lanes.iter() {
            if let Err(error) = state.lanes[usize::from(lane)].synchronize() {
                state.waited(lane, Some(&error));
                self.mirror.show(&mut state.parts);
                return Err(error);
            }
            state.forget(lane)?;
        }
        self.mirror.show(&mut state.parts);
        Ok(())
    }

    /// Makes each part of `target`, or returns what must be copied first. A failure that is reported meanwhile makes
    /// more copies necessary.
    fn join(&mut self, target: &Partition, call_site: CallSite) -> Result<Option<Vec<Goal>>> {
        let state = self.lock();
        let goals = self.goals(&state, target, call_site)?;
        if goals.iter().any(|goal| goal.place.is_some()) {
            return Ok(Some(goals));
        }
        let lost = state.lost();
        let made = || goals.iter().map(|goal| state.pieces(goal.pieces));
        for pieces in made() {
            for (first, others) in (0..).take(REPLICAS).filter_map(|at| waits(&pieces, at)) {
                let stream = |lane: u8| &state.lanes[usize::from(lane)].stream;
                for other in others.iter() {
                    stream(first).wait(&stream(other).record_event()?)?;
                }
            }
        }
        let parts = made().zip(target.roles()).map(|(pieces, role)| match pieces.is_empty() {
            false => merge(&pieces, role),
            true => state.empty(role, lost),
        });
        let parts = parts.collect();
        let largest = |(part, goal): (usize, &Goal)| {
            let common = |of: &PartId| self.partition.common((*of).into(), target.ranges(part));
            let of = goal.pieces.iter().max_by_key(common).or(lost);
            of.map_or(Writer::new(None), |of| state.writers[usize::from(of)])
        };
        let writers = goals.iter().enumerate().map(largest).collect();
        drop(state);
        self.install((target.clone(), parts, writers));
        Ok(None)
    }

    /// Undoes a division into smaller parts.
    fn rejoin(&mut self, (partition, parts, writers): Divided) {
        let state = self.lock();
        let whole = |part: usize| {
            let pieces = state.pieces(self.partition.meeting(partition.ranges(part)));
            rejoin(&parts[part], &pieces)
        };
        let rejoined = (0..parts.len()).map(whole).collect();
        drop(state);
        self.install((partition, parts, writers));
        let state = self.state.get_mut();
        state.replace(rejoined, Poison::Work);
        self.mirror.show(&mut state.parts);
    }

    fn install(&mut self, (partition, parts, writers): Divided) {
        let mirror = Mirror::new(parts.len());
        mirror.take_extras(&self.mirror);
        let state = self.state.get_mut();
        for (lane, known) in (0..).zip(&state.lanes).take(LANES) {
            let stream = known.stream.id();
            // A free lane keeps its last stream, which may have got another lane since.
            if let Some((_, at)) = self.mirror.lane(stream).filter(|(of, _)| *of == lane) {
                mirror.set_lane(lane, stream, at);
            }
        }
        mirror.set_crowded(state.is_crowded());
        state.transfers.forget_parts();
        if state.paths.locked.is_some() {
            state.paths.direct = direct_parts(&partition);
        }
        state.changes = vec![0; parts.len()];
        let all = PartSet::below(parts.len());
        state.running.iter_mut().for_each(|known| known.parts = all);
        mirror.set_running(if state.running.is_empty() { PartSet::EMPTY } else { all });
        (state.parts, state.writers) = (parts, writers);
        (self.partition, self.mirror) = (partition, mirror);
        self.mirror.show(&mut state.parts);
    }
}

impl<T: Element> State<T> {
    fn pieces(&self, numbers: PartSet) -> Vec<(PartId, &PartState)> {
        numbers.iter().map(|part| (part, &self.parts[usize::from(part)])).collect()
    }

    /// A part without elements. It has values wherever another part has, and is lost if all values are.
    fn empty(&self, role: Role, lost: Option<PartId>) -> PartState {
        let valid = self.valid();
        let health = match lost {
            Some(_) => Health::Poisoned,
            None if valid.is_empty() => Health::Uninit,
            None => Health::Good,
        };
        PartState { valid, health, ..PartState::new(role) }
    }

    /// A part whose values are lost, if there are no others.
    fn lost(&self) -> Option<PartId> {
        let is_lost =
            |part: &PartId| kept(self.parts[usize::from(*part)].health) == Health::Poisoned;
        PartSet::below(self.parts.len()).iter().find(is_lost).filter(|_| self.valid().is_empty())
    }

    /// The replicas in which any part has values.
    fn valid(&self) -> Set {
        self.parts.iter().map(|part| part.valid).fold(Set::EMPTY, Set::union)
    }
}
