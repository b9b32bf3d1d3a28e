//! Decides exactly whether the sides of indexed copies share bytes that one of them writes.

use super::footprint::Footprint;
use super::overlap::{self, Role, Span};
use super::program::refuse;
use crate::{Error, ErrorKind, Result};

/// Items that an entry reads or writes.
pub(super) struct Side<'a> {
    pub(super) entry: usize,
    pub(super) slot: usize,
    pub(super) writes: bool,
    /// All elements, if the distances between them are constant.
    pub(super) strided: Option<Footprint>,
    /// The number of places, or more.
    pub(super) count: usize,
    pub(super) places: ListPlaces<'a>,
}

/// Adds the bytes of all items of a side.
pub(super) type ListPlaces<'a> = Box<dyn Fn(&mut Vec<Place>) + 'a>;

/// Adjacent bytes of one item.
pub(super) struct Place {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) entry: usize,
    pub(super) position: usize,
    pub(super) index: u64,
}

/// Refuses two sides that share bytes, unless both read, and a side that writes bytes twice. There are `entries`
/// entries.
pub(super) fn check_apart(entries: usize, mut sides: Vec<Side<'_>>) -> Result<()> {
    sides.sort_by_key(|side| side.slot);
    for group in sides.chunk_by(|one, next| one.slot == next.slot) {
        if group.iter().any(|side| side.writes) {
            check_slot(entries, group)?;
        }
    }
    Ok(())
}

fn check_slot(entries: usize, sides: &[Side<'_>]) -> Result<()> {
    let mut spans = Vec::new();
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for side in sides {
        match &side.strided {
            Some(footprint) => spans.push(Span {
                entry: side.entry,
                slot: side.slot,
                role: if side.writes { Role::Replace } else { Role::Source },
                footprint: footprint.clone(),
            }),
            None => {
                let places = if side.writes { &mut written } else { &mut read };
                places.try_reserve(side.count).map_err(|source| {
                    let message = format!("entry {}: {} places: {source}", side.entry, side.count);
                    Error::new(ErrorKind::OutOfMemory, "plan_regions", message)
                })?;
                (side.places)(places);
            }
        }
    }
    overlap::phases(entries, &spans)?;
    read.sort_unstable_by_key(|place: &Place| place.start);
    written.sort_unstable_by_key(|place: &Place| place.start);
    let meeting = |(one, next): &(&Place, &Place)| one.end > next.start;
    if let Some((one, next)) = written.iter().zip(written.iter().skip(1)).find(meeting) {
        let (first, second) = in_order(one, next);
        return Err(clash(sides[0].slot, second, "written", first, "written"));
    }
    // Each is compared with those that end behind its start. Written places are apart, so few do.
    let mut next = 0;
    for one in &read {
        while written.get(next).is_some_and(|place| place.end <= one.start) {
            next += 1;
        }
        if let Some(place) = written.get(next).filter(|place| place.start < one.end) {
            return Err(clash(sides[0].slot, place, "written", one, "read"));
        }
    }
    for (places, does) in [(&read, "read"), (&written, "written")] {
        let longest = places.iter().map(|place| place.end - place.start).max().unwrap_or(0);
        for span in spans.iter().filter(|span| span.role == Role::Replace || does == "written") {
            let first = places.partition_point(|place| place.start + longest <= span.footprint.low);
            let near =
                places[first..].iter().take_while(|place| place.start < span.footprint.end());
            for place in near {
                if !is_apart(place, &span.footprint) {
                    let Place { entry, position, index, .. } = place;
                    let message = format_args!(
                        "item {index} at position {position}, which is {does}, overlaps those of entry {} in slot {}",
                        span.entry, span.slot
                    );
                    return Err(refuse(ErrorKind::InvalidArgument, *entry, message));
                }
            }
        }
    }
    Ok(())
}

/// Whether a place has no byte of a footprint. A place of which this cannot be decided counts as one that has.
fn is_apart(place: &Place, footprint: &Footprint) -> bool {
    let (Ok(start), Ok(len)) =
        (usize::try_from(place.start), usize::try_from(place.end - place.start))
    else {
        return false;
    };
    Footprint::new(len, start, &[], &[]).is_apart(footprint) == Some(true)
}

fn in_order<'a>(one: &'a Place, other: &'a Place) -> (&'a Place, &'a Place) {
    let order = |place: &Place| (place.entry, place.position);
    if order(one) <= order(other) { (one, other) } else { (other, one) }
}

#[cold]
fn clash(slot: usize, place: &Place, does: &str, other: &Place, other_does: &str) -> Error {
    let Place { entry, position, index, .. } = place;
    let message = format_args!(
        "item {index} at position {position}, which is {does}, overlaps item {} at position {} of entry {}, which is \
         {other_does}, in slot {slot}",
        other.index, other.position, other.entry
    );
    refuse(ErrorKind::InvalidArgument, *entry, message)
}
