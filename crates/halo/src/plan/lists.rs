//! The lists of a forest: which items of a rank's arrays are in which message.

use std::sync::Arc;

use runtime_core::Result;

use super::Message;
use super::fingerprint::{Hasher, mix};
use super::transfer::refuse;
use crate::field::{Dim, FieldSpec};

/// The items of one array that a message holds, in its order: the order of the leaves on their rank.
#[derive(Clone, Debug)]
pub(crate) struct Items {
    pub(crate) field: usize,
    pub(crate) list: Arc<[u64]>,
}

/// The leaves of one rank whose roots are on one other rank, or on the same rank.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The rank of the roots.
    pub(crate) rank: usize,
    /// The items of the array of leaves, in ascending order.
    pub(crate) leaves: Arc<[u64]>,
    /// The item of the array of roots for each leaf.
    pub(crate) roots: Arc<[u64]>,
}

/// The numbers of items of the arrays of roots and of leaves.
pub(crate) type Sizes = [usize; 2];

/// The place of the roots of a field among all arrays.
pub(crate) const fn roots_of(field: usize) -> usize {
    2 * field
}

/// The place of the leaves of a field among all arrays.
pub(crate) const fn leaves_of(field: usize) -> usize {
    2 * field + 1
}

/// The forest of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    /// The items of each field.
    pub(crate) items: Vec<FieldSpec>,
    /// The arrays: for each field its roots, then its leaves.
    pub(crate) arrays: Vec<FieldSpec>,
    /// The roots for the leaves of other ranks, by rank.
    pub(crate) sends: Vec<Message<Items>>,
    /// The leaves for the roots of other ranks, by rank.
    pub(crate) receives: Vec<Message<Items>>,
    /// The leaves whose roots are on this rank.
    pub(crate) local: Option<Group>,
    /// As [`Plan::balance`](super::Plan::balance).
    pub(crate) balance: u128,
}

impl Lists {
    /// `own` holds the leaves of this rank. `others` holds the roots of this rank for the leaves of each other rank.
    /// Both are in ascending order of ranks.
    pub(crate) fn new(
        rank: usize,
        items: &[FieldSpec],
        arrays: Vec<FieldSpec>,
        own: Vec<Group>,
        others: Vec<(usize, Arc<[u64]>)>,
    ) -> Result<Self> {
        let mut balance = 0_u128;
        let mut sends = Vec::new();
        for (peer, list) in others {
            balance = balance.wrapping_add(hash(rank, peer, &list));
            sends.extend(message(rank, items, peer, &list)?);
        }
        let (mut receives, mut local) = (Vec::new(), None);
        for group in own {
            if group.rank == rank {
                local = Some(group);
                continue;
            }
            balance = balance.wrapping_sub(hash(group.rank, rank, &group.roots));
            receives.extend(message(rank, items, group.rank, &group.leaves)?);
        }
        Ok(Self { items: items.to_vec(), arrays, sends, receives, local, balance })
    }

    /// The number of bytes that the rank exchanges with itself.
    pub(crate) fn own_bytes(&self) -> usize {
        let leaves = self.local.as_ref().map_or(0, |local| local.leaves.len());
        self.items.iter().map(|item| bytes_of(item) * leaves).fold(0, usize::saturating_add)
    }
}

/// Checks the items of the fields, and returns the arrays: for each field its roots, then its leaves.
pub(crate) fn arrays(rank: usize, items: &[FieldSpec], sizes: Sizes) -> Result<Vec<FieldSpec>> {
    let mut arrays = Vec::with_capacity(2 * items.len());
    for (index, item) in items.iter().enumerate() {
        let (name, layout) = (item.name(), item.layout());
        let no_item = |why: &str| {
            Err(refuse(format!("field {name} of rank {rank}: an item of a forest {why}")))
        };
        if let Some(axis) = item.dims().iter().find_map(Dim::along) {
            return no_item(&format!("has no dimension along an axis, and this has axis {axis}"));
        }
        if !layout.is_contiguous() {
            return no_item(&format!("has no gaps, and this has strides {:?}", layout.strides()));
        }
        if let Some(first) = items[..index].iter().position(|other| other.name() == name) {
            let message =
                format!("fields {first} and {index} of rank {rank} are both named {name}");
            return Err(refuse(message));
        }
        for (what, count) in ["roots", "leaves"].iter().zip(sizes) {
            let dims: Vec<Dim> =
                [Dim::free(count)].into_iter().chain(item.dims().iter().copied()).collect();
            arrays.push(FieldSpec::new(format!("{name} ({what})"), item.dtype(), &dims)?);
        }
    }
    Ok(arrays)
}

pub(crate) fn bytes_of(item: &FieldSpec) -> usize {
    item.layout().len() * item.dtype().size()
}

/// The message with these items of all fields. `None` if it has no bytes.
fn message(
    rank: usize,
    items: &[FieldSpec],
    peer: usize,
    list: &Arc<[u64]>,
) -> Result<Option<Message<Items>>> {
    let mut message = Message::new(peer, 0);
    for (field, item) in items.iter().enumerate() {
        let too_long = || {
            let (name, count) = (item.name(), list.len());
            refuse(format!("field {name} of rank {rank}: {count} items in a message of 2^63 bytes"))
        };
        let bytes = list.len().checked_mul(bytes_of(item)).ok_or_else(too_long)?;
        if bytes > 0 {
            let items = Items { field, list: Arc::clone(list) };
            message.push(items, bytes).ok_or_else(too_long)?;
        }
    }
    message.close();
    Ok((!message.blocks.is_empty()).then_some(message))
}

/// A hash of the roots for the leaves of one rank, the same on both ranks.
fn hash(from: usize, to: usize, roots: &[u64]) -> u128 {
    let mut hash = Hasher::new();
    hash.number(from);
    hash.number(to);
    hash.number(roots.len());
    let of_list = roots
        .iter()
        .fold(0, |hash: u64, root| mix(hash.rotate_left(23) ^ mix(root.wrapping_add(1))));
    hash.word(of_list);
    hash.value()
}
