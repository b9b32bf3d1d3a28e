//! The region copies of a halo exchange by messages: what is packed, and what is unpacked.

use std::ops::Range;

use runtime_core::{Combine, Device, RegionCopy, RegionPlan, RegionSide, Result, Stream};

use super::corner;
use super::devices::{Devices, Relay};
use super::route::{Direction, Launches, Peer, check_combine, placed};
use crate::plan::copies::Ends;
use crate::plan::transfer::{Fields, Transfer, refuse};
use crate::plan::{ALIGN, Message, Plan};

/// What a rank exchanges in one direction, and where.
pub(crate) struct Job<'a> {
    pub(crate) device: &'a Device,
    pub(crate) devices: &'a Devices,
    pub(crate) fields: &'a Fields,
    pub(crate) plan: &'a Plan,
    pub(crate) direction: Direction,
    /// The messages to send, and those to receive.
    pub(crate) messages: &'a [Vec<Peer>; 2],
    pub(crate) staged: bool,
    pub(crate) sets_constants: bool,
}

/// What blocks on another device than the first give and take.
#[derive(Default)]
struct Passing<'a> {
    /// The bytes that they give, and those that they take.
    bytes: [usize; 2],
    pack: Vec<RegionCopy>,
    unpack: Vec<(&'a Transfer, RegionCopy)>,
}

impl<'a> Job<'a> {
    /// Makes the launches of the first device, and those of the others.
    pub(crate) fn launches(&self) -> Result<(Launches, Vec<Relay>)> {
        let Self { device, devices, fields, plan, direction, staged, .. } = *self;
        let reduction = direction.reduction();
        if let Some(combine) = reduction {
            check_combine(fields.specs(), combine)?;
        }
        let [sends, receives] = self.messages;
        let (outgoing, incoming) = match reduction {
            None => (&plan.sends, &plan.receives),
            Some(_) => (&plan.receives, &plan.sends),
        };
        let count = fields.specs().len();
        let mut passing: Vec<Passing<'a>> =
            (0..devices.others()).map(|_| Passing::default()).collect();

        let memories = if staged { usize::from(!sends.is_empty()) } else { sends.len() };
        let mut first = count + memories;
        let mut entries = Vec::new();
        if self.sets_constants {
            entries.extend(corner::fills(fields.specs(), &plan.edges, first));
            first += 1;
        }
        for (transfer, ends, place) in in_messages(fields, outgoing, sends, staged) {
            let (near, negate) = self.give(&mut passing, transfer, &ends, first)?;
            entries.push(ends.copy(near, place, negate, Combine::Replace));
        }
        // The first memory of other devices when messages are unpacked.
        let next = count + if staged { 1 } else { receives.len() };
        let (mut taken, mut passed) = (Vec::new(), Vec::new());
        for transfer in &plan.local {
            let ends = Ends::new(fields, transfer);
            let combine = reduction.unwrap_or_default();
            let ([giver, taker], [from, to]) = (self.ends(transfer), self.sides(&ends));
            let direct = |from| ends.copy(from, to.clone(), transfer.negate, combine);
            match (giver == taker, reduction) {
                (true, None) if giver == 0 => entries.push(direct(from)),
                (true, None) => passing[giver - 1].pack.push(direct(from)),
                (true, Some(_)) if giver == 0 => taken.push((transfer, direct(from))),
                (true, Some(_)) => passing[giver - 1].unpack.push((transfer, direct(from))),
                (false, _) if taker > 0 => {
                    let (near, negate) = self.give(&mut passing, transfer, &ends, first)?;
                    let far = self.take(&mut passing, transfer, &ends, first)?;
                    entries.push(ends.copy(near, far, negate, Combine::Replace));
                }
                (false, None) => {
                    let (near, negate) = self.give(&mut passing, transfer, &ends, first)?;
                    entries.push(ends.copy(near, to, negate, Combine::Replace));
                }
                (false, Some(_)) => {
                    let (near, negate) = self.give(&mut passing, transfer, &ends, next)?;
                    taken.push((transfer, ends.copy(near, to, negate, combine)));
                }
            }
        }
        let pack = device.plan_regions(&entries)?;

        for (transfer, ends, place) in in_messages(fields, incoming, receives, staged) {
            match self.ends(transfer)[1] {
                0 => {
                    let [_, to] = self.sides(&ends);
                    let copy = ends.copy(place, to, false, reduction.unwrap_or_default());
                    taken.push((transfer, copy));
                }
                _ => {
                    let far = self.take(&mut passing, transfer, &ends, next)?;
                    passed.push(ends.copy(place, far, false, Combine::Replace));
                }
            }
        }
        let mut unpack = Vec::new();
        for entries in self.ordered(taken, passed) {
            unpack.push(device.plan_regions(&entries)?);
        }
        let mut unpack_some = None;
        if staged && reduction.is_none() && incoming.len() > 1 && passing.is_empty() {
            let arrivals = in_messages(fields, incoming, receives, false);
            let copy = |(_, ends, place): (_, Ends<'_>, _)| {
                ends.copy(place, ends.target(), false, Combine::Replace)
            };
            unpack_some = Some(device.plan_regions(&arrivals.map(copy).collect::<Vec<_>>())?);
        }
        let relays = passing.into_iter().enumerate().filter_map(|(number, passing)| {
            devices.stream(number + 1).map(|stream| self.relay(stream, passing))
        });
        Ok((Launches { pack, unpack, unpack_some }, relays.collect::<Result<_>>()?))
    }

    /// The numbers of the devices that give and take a transfer; 0 for a device of another rank.
    fn ends(&self, transfer: &Transfer) -> [usize; 2] {
        let device = |block| {
            let place = self.fields.blocks().binary_search(&block);
            place.map_or(0, |place| self.devices.of(place))
        };
        let [from, to] = [device(transfer.from), device(transfer.to)];
        if self.direction.reduction().is_some() { [to, from] } else { [from, to] }
    }

    /// The elements that are given, and those that are taken.
    fn sides(&self, ends: &Ends<'_>) -> [RegionSide; 2] {
        let [from, to] = [ends.source(), ends.target()];
        if self.direction.reduction().is_some() { [to, from] } else { [from, to] }
    }

    /// The place on the first device of the elements that are given, and whether they must be negated there. `first`
    /// is the slot of the first memory of other devices.
    fn give(
        &self,
        passing: &mut [Passing<'a>],
        transfer: &'a Transfer,
        ends: &Ends<'_>,
        first: usize,
    ) -> Result<(RegionSide, bool)> {
        let ([giver, _], [near, _]) = (self.ends(transfer), self.sides(ends));
        let Some(other) = giver.checked_sub(1) else { return Ok((near, transfer.negate)) };
        let Passing { bytes: [given, _], pack, .. } = &mut passing[other];
        let start = reserve(given, ends)?;
        let own = ends.in_message(self.fields.specs().len(), start);
        pack.push(ends.copy(near, own, transfer.negate, Combine::Replace));
        Ok((ends.in_message(first + 2 * other, start), false))
    }

    /// The place on the first device from which another device takes elements.
    fn take(
        &self,
        passing: &mut [Passing<'a>],
        transfer: &'a Transfer,
        ends: &Ends<'_>,
        first: usize,
    ) -> Result<RegionSide> {
        let ([_, taker], [_, far]) = (self.ends(transfer), self.sides(ends));
        let other = taker - 1;
        let Passing { bytes: [_, taken], unpack, .. } = &mut passing[other];
        let start = reserve(taken, ends)?;
        let own = ends.in_message(self.fields.specs().len(), start);
        let combine = self.direction.reduction().unwrap_or_default();
        unpack.push((transfer, ends.copy(own, far, false, combine)));
        Ok(ends.in_message(first + 2 * other + 1, start))
    }

    /// The copies in the order in which they are combined, in lists that run one after the other. `others` may run at
    /// any time.
    fn ordered(
        &self,
        mut copies: Vec<(&Transfer, RegionCopy)>,
        others: Vec<RegionCopy>,
    ) -> Vec<Vec<RegionCopy>> {
        let mut lists = match self.direction.reduction() {
            None => vec![copies.into_iter().map(|(_, copy)| copy).collect()],
            Some(combine) => {
                // Several contributions meet in one element: they are combined in this order, whichever arrives first.
                copies
                    .sort_by_key(|(transfer, _)| (transfer.to, transfer.side.id(), transfer.field));
                layers(self.fields, copies, combine)
            }
        };
        match lists.first_mut() {
            Some(list) => list.extend(others),
            None if others.is_empty() => {}
            None => lists.push(others),
        }
        lists
    }

    fn relay(&self, stream: &Stream, passing: Passing<'a>) -> Result<Relay> {
        let own = stream.device();
        let pack = own.plan_regions(&passing.pack)?;
        let mut unpack: Vec<RegionPlan> = Vec::new();
        for entries in self.ordered(passing.unpack, Vec::new()) {
            unpack.push(own.plan_regions(&entries)?);
        }
        Relay::new(self.device, stream, pack, unpack, passing.bytes)
    }
}

/// The byte at which the elements of a transfer start in memory that holds `bytes`, to which they are added.
fn reserve(bytes: &mut usize, ends: &Ends<'_>) -> Result<usize> {
    let start = bytes.next_multiple_of(ALIGN);
    let end = ends.bytes().and_then(|bytes| bytes.checked_add(start));
    let Some(end) = end.filter(|end| *end <= isize::MAX as usize - 2 * ALIGN) else {
        return Err(refuse("2^63 bytes or more between devices of a rank".to_owned()));
    };
    *bytes = end;
    Ok(start)
}

/// The transfers in messages, each with the place of its elements in its message.
fn in_messages<'a>(
    fields: &'a Fields,
    messages: &'a [Message],
    peers: &'a [Peer],
    staged: bool,
) -> impl Iterator<Item = (&'a Transfer, Ends<'a>, RegionSide)> {
    placed(fields.specs().len(), messages, peers, staged).map(|at| {
        let ends = Ends::new(fields, at.block);
        let place = ends.in_message(at.slot, at.start);
        (at.block, ends, place)
    })
}

/// Splits copies into layers that run one after the other: one layer if the device orders copies into the same
/// elements, otherwise as many layers as needed so that no two copies of a layer write the same elements.
fn layers(
    fields: &Fields,
    copies: Vec<(&Transfer, RegionCopy)>,
    combine: Combine,
) -> Vec<Vec<RegionCopy>> {
    if combine != Combine::Replace {
        return vec![copies.into_iter().map(|(_, copy)| copy).collect()];
    }
    let mut layers: Vec<Vec<RegionCopy>> = Vec::new();
    let mut placed: Vec<([usize; 2], [Range<isize>; 3], usize)> = Vec::new();
    for (transfer, copy) in copies {
        let owned = Ends::new(fields, transfer).source_box();
        let meets = |other: &[Range<isize>; 3]| {
            owned.iter().zip(other).all(|(a, b)| a.start < b.end && b.start < a.end)
        };
        let source = [transfer.from, transfer.source];
        let below = placed.iter().filter(|(of, other, _)| *of == source && meets(other));
        let layer = below.map(|(_, _, layer)| layer + 1).max().unwrap_or(0);
        if layers.len() <= layer {
            layers.push(Vec::new());
        }
        layers[layer].push(copy);
        placed.push((source, owned, layer));
    }
    layers
}
