//! The leaves of all ranks when a forest is made: each rank checks its own, and sends each other rank the list of the
//! roots that it needs there.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime_core::{Error, ErrorKind, Result, bytemuck};

use super::agreement::{Ranks, share, words};
use super::channel::Channel;
use crate::communicator::{Buffer, Request, deadline};
use crate::plan::lists::Group;
use crate::plan::transfer::refuse;

/// One leaf of a [`Forest`](super::forest::Forest): an item of this rank's array of leaves, and the root that it points
/// to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leaf {
    /// The item of the array of leaves.
    pub at: u64,
    /// The rank of the root.
    pub rank: usize,
    /// The item of that rank's array of roots.
    pub root: u64,
}

/// The numbers of items of a rank's arrays. Any item of the array of leaves may be no leaf, and any root may have no
/// leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ForestSize {
    /// Items of the array of roots.
    pub roots: usize,
    /// Items of the array of leaves.
    pub leaves: usize,
}

/// The most leaves of a rank.
pub(super) const MOST_LEAVES: u64 = 1 << 31;

/// Refuses a list that is too long, before memory is allocated for it.
pub(super) fn check_length(rank: usize, leaves: usize) -> Result<()> {
    match leaves as u64 > MOST_LEAVES {
        true => Err(refuse(format!("rank {rank}: {leaves} leaves, limit {MOST_LEAVES}"))),
        false => Ok(()),
    }
}

/// Checks the leaves of a rank as far as the rank alone can, and groups them by the ranks of their roots.
pub(super) fn group(ranks: Ranks<'_>, size: ForestSize, leaves: &[Leaf]) -> Result<Vec<Group>> {
    let rank = ranks.rank;
    check_length(rank, leaves.len())?;
    for Leaf { at, rank: of, root } in leaves {
        if *of >= ranks.size {
            let message = format!(
                "rank {rank}, leaf {at}: root {root} of rank {of}; there are {} ranks",
                ranks.size
            );
            return Err(refuse(message));
        }
        if *at >= size.leaves as u64 {
            let message =
                format!("rank {rank}, leaf {at}: the array of leaves has {} items", size.leaves);
            return Err(refuse(message));
        }
    }
    let mut sorted: Vec<Leaf> = leaves.to_vec();
    sorted.sort_unstable_by_key(|leaf| leaf.at);
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].at == pair[1].at) {
        let (one, two, at) = (pair[0], pair[1], pair[0].at);
        let message = format!(
            "rank {rank}, leaf {at}: it occurs twice, with root {} of rank {} and root {} of rank {}",
            one.root, one.rank, two.root, two.rank
        );
        return Err(refuse(message));
    }
    // Stable: the leaves of each group stay in ascending order.
    sorted.sort_by_key(|leaf| leaf.rank);
    let groups = sorted.chunk_by(|one, next| one.rank == next.rank).map(|leaves| Group {
        rank: leaves[0].rank,
        leaves: leaves.iter().map(|leaf| leaf.at).collect(),
        roots: leaves.iter().map(|leaf| leaf.root).collect(),
    });
    Ok(groups.collect())
}

/// Checks the roots of this rank's leaves. `roots` holds the number of roots of each rank.
pub(super) fn check_roots(rank: usize, groups: &[Group], roots: &[u64]) -> Result<()> {
    for Group { rank: of, leaves, roots: wanted } in groups {
        let limit = roots[*of];
        if let Some(position) = wanted.iter().position(|root| *root >= limit) {
            let (at, root) = (leaves[position], wanted[position]);
            let message = format!(
                "rank {rank}, leaf {at}: root {root} of rank {of}, which has {limit} roots"
            );
            return Err(refuse(message));
        }
    }
    Ok(())
}

/// Sends each rank the roots that this rank's leaves have there. Returns the roots of this rank for the leaves of each
/// other rank, in ascending order of ranks. All ranks call this together.
///
/// Blocks until the lists have arrived and all ranks know it. After a failure, which all ranks get, collective calls
/// may be refused until a reset: messages may be left behind.
pub(super) fn exchange_lists(
    ranks: Ranks<'_>,
    channel: &Channel,
    groups: &[Group],
    roots: usize,
    timeout: Duration,
) -> Result<Vec<(usize, Arc<[u64]>)>> {
    let outgoing: Vec<&Group> = groups.iter().filter(|group| group.rank != ranks.rank).collect();
    let incoming = lengths(ranks, &outgoing, timeout)?;
    let passed =
        pass(ranks, channel, &outgoing, &incoming, roots, deadline(timeout)).map_err(|error| {
            error.about(format_args!("rank {} sends and receives lists of leaves", ranks.rank))
        });
    // Ranks that wait for a list need as long again.
    let shared = share(ranks, passed.map(|lists| (lists, [])), timeout.saturating_mul(2));
    let shared = shared.inspect_err(|error| ranks.communicator.collectives().fail(error));
    shared.map(|(lists, _)| lists)
}

/// The ranks that have leaves with roots on this rank, in ascending order, and the number of these leaves.
fn lengths(
    ranks: Ranks<'_>,
    outgoing: &[&Group],
    timeout: Duration,
) -> Result<Vec<(usize, usize)>> {
    let ((), all) = share(ranks, Ok(((), [outgoing.len() as u64])), timeout)?;
    let most = all.iter().map(|[groups]| *groups).max().unwrap_or(0);
    let Some(most) = usize::try_from(most).ok().filter(|most| *most < ranks.size) else {
        let message = format!("a rank needs roots of {most} other ranks, of {} in all", ranks.size);
        return Err(Error::new(ErrorKind::Driver, "all_gather", message));
    };
    let pairs = outgoing.iter().map(|group| [group.rank as u64, group.roots.len() as u64]);
    let none = std::iter::repeat([u64::MAX, 0]);
    let mine: Vec<u8> = pairs.chain(none).take(most).flatten().flat_map(u64::to_le_bytes).collect();
    let all = words(&ranks.gather(&mine, timeout)?);
    of_rank(ranks.rank, ranks.size, &all, most)
}

/// Finds the lengths for a rank among those of all ranks, each of which gave `most` pairs of a rank and a length.
fn of_rank(rank: usize, size: usize, all: &[u64], most: usize) -> Result<Vec<(usize, usize)>> {
    let mut incoming = Vec::new();
    for (from, pairs) in all.chunks_exact((2 * most).max(1)).enumerate() {
        for [to, length] in pairs.as_chunks().0 {
            if (*to, *length) == (u64::MAX, 0) {
                continue;
            }
            let is_valid = (1..=MOST_LEAVES).contains(length) && *to < size as u64;
            let Some(leaves) = usize::try_from(*length).ok().filter(|_| is_valid) else {
                let message = format!(
                    "rank {from} announces {length} leaves with roots of rank {to}; limits: {MOST_LEAVES} leaves, {size} ranks"
                );
                return Err(Error::new(ErrorKind::Driver, "forest", message));
            };
            if *to == rank as u64 {
                incoming.push((from, leaves));
            }
        }
    }
    Ok(incoming)
}

fn pass(
    ranks: Ranks<'_>,
    channel: &Channel,
    outgoing: &[&Group],
    incoming: &[(usize, usize)],
    roots: usize,
    end: Instant,
) -> Result<Vec<(usize, Arc<[u64]>)>> {
    let (communicator, tag) = (ranks.communicator, channel.tag());
    let mut requests: Vec<Option<Box<dyn Request>>> = Vec::new();
    for (from, length) in incoming {
        let bytes = length.checked_mul(size_of::<u64>());
        let zeroed = bytes.and_then(|bytes| bytemuck::try_zeroed_vec(bytes).ok());
        let bytes = zeroed.ok_or_else(|| {
            let message = format!("a list of {length} roots for rank {from}");
            Error::new(ErrorKind::OutOfMemory, "forest", message)
        })?;
        let buffer = Buffer::host(bytes).with_message_id(channel.list_id(*from));
        requests.push(Some(communicator.receive(*from, tag, buffer)?));
    }
    for Group { rank: to, roots, .. } in outgoing {
        let bytes = roots.iter().flat_map(|root| root.to_le_bytes()).collect();
        let buffer = Buffer::host(bytes).with_message_id(channel.list_id(ranks.rank));
        requests.push(Some(communicator.send(*to, tag, buffer)?));
    }
    let mut lists: Vec<Option<Arc<[u64]>>> = vec![None; incoming.len()];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let Some((index, buffer)) = communicator.wait_any(&mut requests, left)? else { break };
        let count = requests.len();
        if index >= count {
            let message = format!("the transport completed request {index} of {count}");
            return Err(Error::new(ErrorKind::Driver, "wait_any", message));
        }
        // A transport that returns a request again and again never says that none is left.
        if left.is_zero() {
            let message = format!("request {index} of {count} is over too late");
            return Err(Error::new(ErrorKind::Timeout, "wait_any", message));
        }
        if let Some((list, (from, length))) = lists.get_mut(index).zip(incoming.get(index)) {
            *list = Some(read(&buffer, *from, *length, roots)?);
        }
    }
    let complete = |(list, (from, _)): (Option<Arc<[u64]>>, &(usize, usize))| {
        let list = list.ok_or_else(|| {
            let message = format!("the list of rank {from} did not arrive");
            Error::new(ErrorKind::Driver, "wait_any", message)
        })?;
        Ok((*from, list))
    };
    lists.into_iter().zip(incoming).map(complete).collect()
}

/// Reads a list of `length` roots, of which this rank has `roots`.
fn read(buffer: &Buffer, from: usize, length: usize, roots: usize) -> Result<Arc<[u64]>> {
    let invalid = |message: String| Error::new(ErrorKind::Driver, "forest", message);
    let list = buffer.as_slice()?.map(words).unwrap_or_default();
    if list.len() != length {
        let message =
            format!("{} roots came from rank {from}, which announced {length}", list.len());
        return Err(invalid(message));
    }
    match list.iter().find(|root| **root >= roots as u64) {
        None => Ok(list.into()),
        Some(root) => {
            let message = format!("root {root} came from rank {from}; this rank has {roots} roots");
            Err(invalid(message))
        }
    }
}

/// Finds the owners of global numbers: the leaves of this rank, one for each number. All ranks call this together, each
/// with the range of numbers that it owns.
///
/// Blocks until all ranks have called it.
pub(super) fn locate(
    ranks: Ranks<'_>,
    owned: &Range<u64>,
    needed: &[u64],
    timeout: Duration,
) -> Result<(ForestSize, Vec<Leaf>)> {
    let rank = ranks.rank;
    let own = check_length(rank, needed.len()).and_then(|()| {
        let roots = owned.end.checked_sub(owned.start).ok_or_else(|| {
            refuse(format!(
                "rank {rank}: the range {owned:?} of global numbers ends before it starts"
            ))
        })?;
        let too_many = |_| refuse(format!("rank {rank}: {roots} roots, limit {}", usize::MAX));
        let roots = usize::try_from(roots).map_err(too_many)?;
        Ok((ForestSize { roots, leaves: needed.len() }, [owned.start, owned.end]))
    });
    let (size, all) = share(ranks, own, timeout)?;
    let mut owners: Vec<(Range<u64>, usize)> = all
        .iter()
        .enumerate()
        .map(|(rank, [start, end])| (*start..*end, rank))
        .filter(|(range, _)| !range.is_empty())
        .collect();
    owners.sort_unstable_by_key(|(range, _)| range.start);
    if let Some(pair) = owners.windows(2).find(|pair| pair[1].0.start < pair[0].0.end) {
        let [(one, first), (two, second)] = [&pair[0], &pair[1]];
        let message =
            format!("rank {first} owns the global numbers {one:?}, and rank {second} owns {two:?}");
        return Err(refuse(message));
    }
    let leaf = |(at, number): (u64, &u64)| {
        let after = owners.partition_point(|(range, _)| range.start <= *number);
        let owner = after.checked_sub(1).map(|index| &owners[index]);
        match owner.filter(|(range, _)| range.contains(number)) {
            Some((range, rank)) => Ok(Leaf { at, rank: *rank, root: number - range.start }),
            None => {
                Err(refuse(format!("rank {rank}, leaf {at}: no rank owns global number {number}")))
            }
        }
    };
    let leaves: Result<Vec<Leaf>> = (0..).zip(needed).map(leaf).collect();
    Ok((size, leaves?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = MOST_LEAVES;
    const MOST: usize = 1 << 31;

    #[test]
    fn lengths_are_found_by_rank() {
        let all = [1, 5, 2, 7, 0, 3, u64::MAX, 0, 0, 9, 1, LIMIT];
        assert_eq!(of_rank(0, 3, &all, 2).unwrap(), [(1, 3), (2, 9)]);
        assert_eq!(of_rank(1, 3, &all, 2).unwrap(), [(0, 5), (2, MOST)]);
        assert_eq!(of_rank(2, 3, &all, 2).unwrap(), [(0, 7)]);
        assert_eq!(of_rank(0, 3, &[], 0).unwrap(), []);
    }

    /// Every rank gets the error, and none allocates memory.
    #[test]
    fn an_announced_length_beyond_the_limit_is_refused() {
        for (to, length) in [(1, LIMIT + 1), (1, u64::MAX), (1, 0), (2, 5), (u64::MAX, 5)] {
            for rank in 0..2 {
                let error = of_rank(rank, 2, &[to, length, u64::MAX, 0], 1).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
                assert!(error.message().contains(&format!("{length} leaves")), "{error}");
                assert!(error.message().contains(&LIMIT.to_string()), "{error}");
            }
        }
    }

    #[test]
    fn a_list_beyond_the_limit_is_refused() {
        check_length(0, MOST).unwrap();
        let error = check_length(3, MOST + 1).unwrap_err();
        assert_eq!(error.message(), "rank 3: 2147483649 leaves, limit 2147483648");
    }

    #[test]
    fn a_list_that_was_changed_is_refused() {
        let list = |roots: &[u64]| {
            Buffer::host(roots.iter().flat_map(|root| root.to_le_bytes()).collect())
        };
        assert_eq!(&*read(&list(&[2, 0]), 1, 2, 3).unwrap(), [2, 0]);
        for (roots, words) in [(&[2, 3][..], "root 3"), (&[2], "1 roots"), (&[0, 1, 2], "3 roots")]
        {
            let error = read(&list(roots), 1, 2, 3).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Driver);
            assert!(error.message().starts_with(words), "{error}");
        }
    }
}
