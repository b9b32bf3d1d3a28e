//! The state of elements that were in several parts and become one part.

use super::plan::forget_origins;
use super::set::Set;
use super::state::{Bytes, Health, Lane, PartId, PartState, Refusal, ReplicaId, Role};

/// Old parts, by number, that have elements of one new part.
pub type Pieces<'a> = &'a [(PartId, &'a PartState)];

/// What is lost if the pieces become one part with this role; `None` if nothing is. A ghost part made of ghosts loses
/// nothing: an exchange fills it again.
pub fn loss(pieces: Pieces<'_>, role: Role) -> Option<Refusal> {
    let is_exchanged = role == Role::Ghost && pieces.iter().all(|(_, of)| of.role == Role::Ghost);
    let pending =
        pieces.iter().find_map(|(part, of)| of.pending.map(|op| Refusal::Pending(*part, op)));
    if pending.is_some() || is_exchanged || alike(pieces) {
        return pending;
    }
    pieces.iter().find_map(|(part, of)| match kept(of.health) {
        Health::Uninit => Some(Refusal::Uninit(*part)),
        Health::Good if of.valid.is_empty() => Some(Refusal::Stale(*part)),
        Health::Good => None,
        _ => Some(Refusal::Poisoned(*part)),
    })
}

/// Whether no piece, or each, has values.
fn alike(pieces: Pieces<'_>) -> bool {
    let mut healths = pieces.iter().map(|(_, of)| (kept(of.health), of.valid.is_empty()));
    let first = healths.next();
    healths.all(|other| Some(other) == first) && first != Some((Health::Good, true))
}

/// The health of a part without a guard. A guard that still shows was forgotten.
pub fn kept(health: Health) -> Health {
    match health {
        Health::Writing { .. } | Health::Exchanging { .. } => Health::Poisoned,
        known => known,
    }
}

/// The replicas where all pieces have values.
pub fn common(pieces: Pieces<'_>) -> Set {
    pieces.iter().map(|(_, of)| of.valid).reduce(Set::and).unwrap_or(Set::EMPTY)
}

/// The replicas of which a piece has records.
fn places(pieces: Pieces<'_>) -> impl Iterator<Item = ReplicaId> + use<> {
    let count = pieces.iter().map(|(_, of)| of.bytes.iter().count()).max();
    (0..).take(count.unwrap_or(0))
}

/// Who must wait for whom in a replica before the pieces become one part: a lane that wrote some of them, for all other
/// lanes that used any. `None` if no lane wrote, and for one piece alone, whose record stays as it is.
pub fn waits(pieces: Pieces<'_>, at: ReplicaId) -> Option<(Lane, Set)> {
    let bytes = || pieces.iter().map(|(_, of)| of.bytes(at));
    if pieces.len() < 2 {
        return None;
    }
    let first = bytes().find_map(|bytes| bytes.writer)?;
    let mut others: Set = bytes().filter_map(|bytes| bytes.writer).collect();
    for bytes in bytes() {
        others = others.union(bytes.readers);
    }
    others.remove(first);
    Some((first, others))
}

/// The pieces as one part, if [`loss`] finds none and the [`waits`] are enqueued.
///
/// # Panics
///
/// If the pieces have values, but no replica has the values of all of them.
pub fn merge(pieces: Pieces<'_>, role: Role) -> PartState {
    if let [(_, whole)] = pieces {
        return PartState { role, health: kept(whole.health), ..(*whole).clone() };
    }
    let mut part = PartState::new(role);
    part.valid = common(pieces);
    let has_values = |(_, of): &(PartId, &PartState)| !of.valid.is_empty();
    assert!(!part.valid.is_empty() || !pieces.iter().all(has_values), "pieces in different places");
    part.health = match pieces {
        [(_, first), ..] if alike(pieces) => kept(first.health),
        _ => Health::Good,
    };
    for at in places(pieces) {
        let waits = waits(pieces, at);
        let is_valid = part.valid.contains(at);
        let merged = part.bytes_mut(at);
        merged.writer = waits.map(|(first, _)| first);
        for (_, of) in pieces {
            let Bytes { writer, readers, origins } = *of.bytes(at);
            // Without a writer, no lane has waited for the readers.
            merged.readers =
                if waits.is_none() { merged.readers.union(readers) } else { Set::EMPTY };
            if is_valid {
                merged.origins = merged.origins.union(origins);
                merged.origins.extend(writer.filter(|lane| merged.writer != Some(*lane)));
            }
        }
        merged.writer.iter().for_each(|lane| merged.origins.remove(*lane));
    }
    part
}

/// A part that was cut into `pieces`, in which copies may have begun since, as one part again.
pub fn rejoin(whole: &PartState, pieces: Pieces<'_>) -> PartState {
    let mut part = whole.clone();
    for (_, piece) in pieces {
        part.valid = part.valid.and(piece.valid);
        if piece.health != whole.health {
            part.health = piece.health;
        }
        for at in places(pieces) {
            let (bytes, new) = (part.bytes_mut(at), piece.bytes(at));
            // A lane that wrote a piece has waited for the earlier writer of the part.
            if new.writer != whole.bytes(at).writer && new.writer.is_some() {
                bytes.writer = new.writer;
            }
            bytes.readers = bytes.readers.union(new.readers);
            bytes.writer.iter().for_each(|lane| bytes.readers.remove(*lane));
            bytes.origins = bytes.origins.union(new.origins);
        }
    }
    if part.health == Health::Good && part.role == Role::Owned && part.valid.is_empty() {
        // Failures have left the pieces in different places.
        part.health = Health::Poisoned;
    }
    forget_origins(&mut part);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_failures_left_in_different_places_are_lost_as_a_whole() {
        for (role, health) in [(Role::Owned, Health::Poisoned), (Role::Ghost, Health::Good)] {
            let part = |valid| PartState { valid, health: Health::Good, ..PartState::new(role) };
            let (whole, first, second) =
                (part(Set::below(2)), part(Set::one(0)), part(Set::one(1)));
            let rejoined = rejoin(&whole, &[(0, &first), (1, &second)]);
            assert_eq!((rejoined.health, rejoined.valid), (health, Set::EMPTY));
        }
    }
}
