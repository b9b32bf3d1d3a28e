//! Tables of addresses in device memory, for kernels that [bind](super::Binding::Table) any number of memories.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use runtime_core::Result;

use super::RegionKernel;
use crate::lock;

/// A value that is no memory's address.
const UNSET: u64 = u64::MAX;

/// The tables of one program: one table with memory `M` for every stream `S` that executes the program. Streams are in
/// order, so a stream may set its table again while earlier executions are in flight.
pub struct AddressTables<S, M> {
    slots: usize,
    tables: Mutex<Vec<AddressTable<S, M>>>,
}

/// The table of one stream.
#[derive(Debug)]
pub struct AddressTable<S, M> {
    stream: Weak<S>,
    /// Whether the stream is a capture, whose graph may set and read the table at any time.
    captured: bool,
    memory: M,
    /// The contents of the table once everything enqueued so far is done.
    addresses: Vec<u64>,
}

impl<S, M> AddressTables<S, M> {
    /// Creates tables of this many addresses.
    pub fn new(slots: usize) -> Self {
        Self { slots, tables: Mutex::default() }
    }

    /// Returns the table of a stream, locked until it is dropped. The caller that sets the table enqueues the work that
    /// reads it before another caller can set it.
    ///
    /// `allocate` allocates memory of the given number of bytes. The table of a dropped stream is reused, so streams
    /// may be dropped only when their work is done. The table of a capture is not reused, because its graph needs it.
    ///
    /// # Errors
    ///
    /// Errors of `allocate`.
    pub fn of(
        &self,
        stream: &Arc<S>,
        captured: bool,
        allocate: impl FnOnce(usize) -> Result<M>,
    ) -> Result<impl DerefMut<Target = AddressTable<S, M>>> {
        let mut tables = lock(&self.tables);
        let is_of_stream =
            |table: &AddressTable<S, M>| Weak::as_ptr(&table.stream) == Arc::as_ptr(stream);
        let is_free =
            |table: &AddressTable<S, M>| !table.captured && table.stream.strong_count() == 0;
        let index = match tables.iter().position(is_of_stream) {
            Some(index) => index,
            None => {
                let (stream, addresses) = (Arc::downgrade(stream), vec![UNSET; self.slots]);
                let free = tables.iter().position(is_free);
                let memory = match free {
                    Some(index) => tables.swap_remove(index).memory,
                    None => allocate(size_of_val(&*addresses))?,
                };
                tables.push(AddressTable { stream, captured, memory, addresses });
                tables.len() - 1
            }
        };
        Ok(Locked { tables, index })
    }

    /// The memory of all tables.
    pub fn into_memories(self) -> impl Iterator<Item = M> {
        let tables = self.tables.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        tables.into_iter().map(|table| table.memory)
    }
}

impl<S, M> AddressTable<S, M> {
    /// The memory of the table.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Sets the table to the addresses of slots. `enqueue` sets a part of the table. Its arguments are the memory, the
    /// index of the part's first address, the number of addresses, and a list that starts with them. It is called for
    /// parts that change, and for all parts at the first use.
    ///
    /// # Errors
    ///
    /// The first error of `address` or `enqueue`. A part for which it failed is set at the next use.
    pub fn set(
        &mut self,
        address: impl Fn(usize) -> Result<u64>,
        mut enqueue: impl FnMut(&M, usize, usize, &[u64; RegionKernel::MAX_LISTED]) -> Result<()>,
    ) -> Result<()> {
        let mut list = [0; RegionKernel::MAX_LISTED];
        let mut first = 0;
        for known in self.addresses.chunks_mut(list.len()) {
            let wanted = &mut list[..known.len()];
            for (slot, place) in (first..).zip(&mut *wanted) {
                *place = address(slot)?;
            }
            if wanted != known {
                let count = known.len();
                known.fill(UNSET);
                enqueue(&self.memory, first, count, &list)?;
                known.copy_from_slice(&list[..count]);
            }
            first += known.len();
        }
        Ok(())
    }
}

/// One of the locked tables.
struct Locked<'a, S, M> {
    tables: MutexGuard<'a, Vec<AddressTable<S, M>>>,
    index: usize,
}

impl<S, M> Deref for Locked<'_, S, M> {
    type Target = AddressTable<S, M>;

    fn deref(&self) -> &Self::Target {
        &self.tables[self.index]
    }
}

impl<S, M> DerefMut for Locked<'_, S, M> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.tables[self.index]
    }
}

impl<S, M> fmt::Debug for AddressTables<S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tables of {} addresses", lock(&self.tables).len(), self.slots)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use runtime_core::{Error, ErrorKind};

    use super::*;

    const SLOTS: usize = 1000;

    /// A table's number, and the start and length of each part that was set.
    type Set = (usize, Vec<(usize, usize)>);

    /// Sets the table of a stream to consecutive addresses from `base` on.
    fn set(
        tables: &AddressTables<u8, usize>,
        stream: &Arc<u8>,
        captured: bool,
        made: &Cell<usize>,
        base: u64,
    ) -> Set {
        let allocate = |bytes| {
            assert_eq!(bytes, 8 * SLOTS);
            made.set(made.get() + 1);
            Ok(made.get())
        };
        let mut table = tables.of(stream, captured, allocate).unwrap();
        let mut parts = Vec::new();
        let address = |slot| Ok(base + 8 * slot as u64);
        let enqueue = |_: &usize, first, count, list: &[u64; RegionKernel::MAX_LISTED]| {
            let wanted: Vec<u64> =
                (first..first + count).map(|slot| address(slot).unwrap()).collect();
            assert_eq!(list[..count], wanted);
            parts.push((first, count));
            Ok(())
        };
        table.set(address, enqueue).unwrap();
        (*table.memory(), parts)
    }

    #[test]
    fn a_table_is_set_where_addresses_change() {
        let (tables, stream, made) = (AddressTables::new(SLOTS), Arc::new(0), Cell::new(0));
        let all = vec![(0, 448), (448, 448), (896, 104)];
        assert_eq!(set(&tables, &stream, false, &made, 64), (1, all.clone()));
        assert_eq!(set(&tables, &stream, false, &made, 64), (1, vec![]));
        assert_eq!(set(&tables, &stream, false, &made, 128), (1, all));
        let mut table = tables.of(&stream, false, |_| unreachable!()).unwrap();
        let mut parts = Vec::new();
        let address = |slot| Ok(if slot == 500 { 7 } else { 128 + 8 * slot as u64 });
        let enqueue = |_: &usize, first, _, _: &_| {
            parts.push(first);
            Ok(())
        };
        table.set(address, enqueue).unwrap();
        assert_eq!(parts, [448]);
    }

    #[test]
    fn streams_have_tables_of_their_own() {
        let (tables, made) = (AddressTables::new(SLOTS), Cell::new(0));
        let streams = [0, 1].map(Arc::new);
        for base in [64, 128] {
            for (table, stream) in (1..).zip(&streams) {
                let (found, parts) = set(&tables, stream, false, &made, base);
                assert_eq!((found, parts.len()), (table, 3));
            }
        }
        assert_eq!(tables.into_memories().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn the_table_of_a_dropped_stream_is_used_again_but_not_that_of_a_capture() {
        let (tables, made) = (AddressTables::new(SLOTS), Cell::new(0));
        assert_eq!(set(&tables, &Arc::new(0), true, &made, 64).0, 1);
        for _ in 0..3 {
            // All is set, whatever the table contains.
            let (table, parts) = set(&tables, &Arc::new(1), false, &made, 64);
            assert_eq!((table, parts.len()), (2, 3));
        }
    }

    #[test]
    fn a_table_that_could_not_be_written_is_written_at_the_next_use() {
        let (tables, stream, made) = (AddressTables::new(SLOTS), Arc::new(0), Cell::new(0));
        set(&tables, &stream, false, &made, 64);
        let refuse = || Err(Error::new(ErrorKind::Driver, "test", "refused"));
        let mut table = tables.of(&stream, false, |_| unreachable!()).unwrap();
        table.set(|slot| Ok(slot as u64), |_, _, _, _| refuse()).unwrap_err();
        drop(table);
        assert_eq!(set(&tables, &stream, false, &made, 64).1, [(0, 448)]);
        let none: AddressTables<u8, usize> = AddressTables::new(SLOTS);
        assert!(none.of(&stream, false, |_| refuse().map(|()| 0)).is_err());
    }
}
