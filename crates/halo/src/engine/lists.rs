//! What a forest exchanges, and the launches for it.

use std::sync::Arc;

use runtime_core::{Combine, Device, IndexedCopy, IndexedSide, Indices, Result};

use super::route::{Direction, Launches, Peer, Placed, Route, check_combine, peers, placed};
use crate::field::{Access, FieldSpec};
use crate::options::ForestOptions;
use crate::plan::attributes::Attributes;
use crate::plan::fingerprint::PlanFingerprint;
use crate::plan::lists::{Items, Lists, bytes_of, leaves_of, roots_of};

/// The lists of one rank. The slots of its launches are the arrays, then the messages.
#[derive(Debug)]
pub(crate) struct ForestSource {
    pub(crate) lists: Lists,
    options: ForestOptions,
}

impl ForestSource {
    pub(crate) fn new(lists: Lists, options: &ForestOptions) -> Self {
        Self { lists, options: options.clone() }
    }

    pub(crate) fn fingerprint(&self) -> PlanFingerprint {
        let Lists { items, balance, .. } = &self.lists;
        PlanFingerprint::new(&self.attributes(), items.len(), *balance, None)
    }

    pub(crate) fn attributes(&self) -> Attributes {
        Attributes::of_forest(&self.options, &self.lists.items)
    }

    /// How an exchange uses an array.
    pub(crate) fn access(array: usize, direction: Direction) -> Access {
        let are_leaves = array % 2 == leaves_of(0);
        match are_leaves == (direction == Direction::Fill) {
            true => Access::Write,
            false => Access::Read,
        }
    }

    /// Makes the route of a direction.
    pub(crate) fn route(
        &self,
        device: &Device,
        direction: Direction,
        staged: bool,
    ) -> Result<Route> {
        let Lists { sends, receives, .. } = &self.lists;
        let (outgoing, incoming) = match direction.reduction() {
            None => (sends, receives),
            Some(_) => (receives, sends),
        };
        let messages = [peers(outgoing)?, peers(incoming)?];
        let launches = match direction.reduction() {
            None => self.broadcast(device, &messages, staged)?,
            Some(combine) => self.reduction(device, combine, &messages, staged)?,
        };
        let own_bytes = self.lists.own_bytes();
        Route::new(device, messages, direction, staged, own_bytes, None, launches)
    }

    fn broadcast(
        &self,
        device: &Device,
        [sends, receives]: &[Vec<Peer>; 2],
        staged: bool,
    ) -> Result<Launches> {
        let Lists { items, arrays, local, .. } = &self.lists;
        let roots = |Items { field, list }: &Items| self.side(roots_of(*field), list);
        let leaves = |Items { field, list }: &Items| self.side(leaves_of(*field), list);
        let mut entries: Vec<IndexedCopy> = placed(arrays.len(), &self.lists.sends, sends, staged)
            .map(|at| self.copy(at.block.field, roots(at.block), self.in_message(&at)))
            .collect();
        let own = local.iter().flat_map(|local| (0..items.len()).map(move |field| (field, local)));
        for (field, local) in own {
            let [from, to] = [(roots_of(field), &local.roots), (leaves_of(field), &local.leaves)]
                .map(|(array, list)| self.side(array, list));
            entries.push(self.copy(field, from, to));
        }
        let pack = device.plan_indexed(&entries)?;
        let make = |staged| {
            let arrivals = placed(arrays.len(), &self.lists.receives, receives, staged);
            let copies: Vec<IndexedCopy> = arrivals
                .map(|at| self.copy(at.block.field, self.in_message(&at), leaves(at.block)))
                .collect();
            device.plan_indexed(&copies)
        };
        let unpack = vec![make(staged)?];
        let unpack_some = if staged && receives.len() > 1 { Some(make(false)?) } else { None };
        Ok(Launches { pack, unpack, unpack_some })
    }

    /// Contributions of this rank are combined in their turn among those that arrive.
    fn reduction(
        &self,
        device: &Device,
        combine: Combine,
        [sends, receives]: &[Vec<Peer>; 2],
        staged: bool,
    ) -> Result<Launches> {
        let Lists { items, arrays, local, .. } = &self.lists;
        check_combine(items, combine)?;
        let departures = placed(arrays.len(), &self.lists.receives, sends, staged);
        let entries: Vec<IndexedCopy> = departures
            .map(|at| {
                let leaves = self.side(leaves_of(at.block.field), &at.block.list);
                self.copy(at.block.field, leaves, self.in_message(&at))
            })
            .collect();
        let pack = device.plan_indexed(&entries)?;
        let arrivals = placed(arrays.len(), &self.lists.sends, receives, staged).map(|at| {
            let roots = self.side(roots_of(at.block.field), &at.block.list);
            (at.peer, self.copy(at.block.field, self.in_message(&at), roots))
        });
        let own = local.iter().flat_map(|local| (0..items.len()).map(move |field| (field, local)));
        let own = own.map(|(field, local)| {
            let [from, to] = [(leaves_of(field), &local.leaves), (roots_of(field), &local.roots)]
                .map(|(array, list)| self.side(array, list));
            (local.rank, self.copy(field, from, to))
        });
        let mut entries: Vec<(usize, IndexedCopy)> = arrivals.chain(own).collect();
        // Several leaves meet in one root: a plan combines them in this order, whichever message arrives first.
        entries.sort_by_key(|(rank, _)| *rank);
        let combined =
            entries.into_iter().map(|(_, copy)| IndexedCopy { combine, repeats: true, ..copy });
        let unpack = vec![device.plan_indexed(&combined.collect::<Vec<_>>())?];
        Ok(Launches { pack, unpack, unpack_some: None })
    }

    fn copy(&self, field: usize, source: IndexedSide, destination: IndexedSide) -> IndexedCopy {
        let layout = self.lists.items[field].layout();
        IndexedCopy {
            dtype: layout.dtype(),
            components: layout.len(),
            source,
            destination,
            combine: Combine::Replace,
            repeats: false,
        }
    }

    /// Items of an array.
    fn side(&self, array: usize, list: &Arc<[u64]>) -> IndexedSide {
        let count = self.lists.arrays[array].layout().shape()[0] as u64;
        self.items_at(array / 2, array, 0, count, Indices::List(Arc::clone(list)))
    }

    /// The items of a message.
    fn in_message(&self, at: &Placed<'_, Items>) -> IndexedSide {
        let count = at.block.list.len() as u64;
        self.items_at(at.block.field, at.slot, at.start, count, (0..count).into())
    }

    fn items_at(
        &self,
        field: usize,
        slot: usize,
        offset: usize,
        items: u64,
        indices: Indices,
    ) -> IndexedSide {
        let item: &FieldSpec = &self.lists.items[field];
        let (stride, component_stride) = (bytes_of(item), item.dtype().size());
        IndexedSide { slot, offset, items, stride, component_stride, indices }
    }
}
