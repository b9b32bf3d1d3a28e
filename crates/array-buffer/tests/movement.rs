//! The bytes that are moved are exactly the necessary ones, and the array stays consistent after failures.
#![expect(
    clippy::unwrap_used,
    clippy::single_range_in_vec_init,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; boxes of one dimension; small numbers"
)]
#![expect(unsafe_code, reason = "launches kernels")]

#[macro_use]
mod common;

use std::time::Duration;

use array_buffer::{
    ArrayBuffer, Direction, ErrorKind, Exchange, PartStatus, Partition, Parts, Reduce,
    TransferBudget,
};
use backend_sim::{Fault, Operation, SimHandle};
use common::{Setup, add, counting, moved, quick, set, values, values_on};
use ndarray::{Array1, Array2, Ix1, Ix2};
use runtime_core::{
    Combine, DType, Grid, HostModule, Launch, RegionCopy, RegionSide, Slot, Stream, Support, args,
    record,
};

on_all_devices! {
    also_with_gates:
    host_devices_use_the_hosts_memory,
    duplicates_stay_where_the_values_are,
    stale_ghosts_are_not_duplicated,
    memory_is_taken_up_and_given_back,
    eviction_saves_what_is_nowhere_else,
    reports_name_both_ends,
    budgets_hold,
    large_arrays_go_in_pieces,
    lent_memory_has_the_values_afterwards,
    write_guards_split,
    records_move_as_numbers_do,
}

record! {
    /// 24 bytes, which no kernel for numbers moves at once.
    #[derive(Debug, Default, PartialEq)]
    struct Sample {
        place: [f32; 3],
        kind: u32,
        value: f64,
    }
}

/// Copies of boxes have gaps on both sides here.
fn records_move_as_numbers_do(setup: &Setup) {
    let sample =
        |i: usize, j: usize| Sample { place: [i as f32, j as f32, 0.5], kind: 7, value: -0.0 };
    let values = Array2::from_shape_fn((4, 6), |(i, j)| sample(i, j));
    let left = [0..4, 0..2];
    let right = [0..4, 2..6];
    for order in [[0, 1], [1, 0]] {
        let partition = Partition::new(&[4, 6], &[&left, &right], &[]).unwrap();
        let partition = partition.with_order(&order).unwrap().with_row_alignment(8).unwrap();
        let mut array = ArrayBuffer::from_array_with(values.clone(), partition).unwrap();
        let other = Sample { value: 2.0, ..Sample::default() };
        {
            let [mut part] = array.split([Parts::one(1)]).unwrap();
            let mut guard = part.read_write(&setup.s).unwrap();
            let found = guard.view().unwrap().to_vec(&setup.s).unwrap();
            assert_eq!(found[5], sample(1, 3));
            guard.view_mut().unwrap().fill(&setup.s, other).unwrap();
            guard.commit().unwrap();
        }
        drop(array.read(&setup.t).unwrap());
        let expected = |i: usize, j: usize| if j < 2 { sample(i, j) } else { other };
        assert!(array.read_host().unwrap().indexed_iter().all(|((i, j), x)| *x == expected(i, j)));
        let refused = array.accumulate(&setup.s, Reduce::Sum).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(
            refused.message().contains("a sum reduction of Sample { place: f32 × 3"),
            "{refused}"
        );
    }
    // Memory without gaps.
    let mut memory = setup.a.memory_from_slice(&setup.s, &[sample(1, 2); 5]).unwrap();
    memory.view_mut().fill(&setup.s, sample(3, 4)).unwrap();
    assert_eq!(memory.to_vec(&setup.s).unwrap(), [sample(3, 4); 5]);
}

fn host_devices_use_the_hosts_memory(setup: &Setup) {
    let mut array = counting(100);
    let before = array.read_host().unwrap().as_ptr();
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    assert_eq!(values(&array)[99], 100.0);
    array.write_host().unwrap().fill(2.0);
    assert_eq!(values_on(&array, &setup.s), [2.0; 100]);
    assert_eq!(array.read_host().unwrap().as_ptr(), before, "the vector that was given");
    let expected = if setup.shares() { 0 } else { 3 };
    assert_eq!(array.transfers().total().count, expected);
    let elements = array.into_inner().unwrap();
    assert_eq!(elements.as_ptr(), before, "and it is given back");
}

fn duplicates_stay_where_the_values_are(setup: &Setup) {
    let mut array = counting(1000);
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    let moved = array.transfers().total();
    let copy = array.duplicate().unwrap();
    assert_eq!(array.transfers().total(), moved);
    assert_eq!(copy.transfers().total().count, 0);
    assert_eq!(values(&copy)[999], 1000.0);
}

/// The duplicate does not wait for their writer.
fn stale_ghosts_are_not_duplicated(setup: &Setup) {
    let partition = Partition::with_ghosts(&[4, 5], &[(1, 1), (1, 1)]).unwrap();
    let (owned, ghosts) = (partition.owned(), partition.ghosts());
    let mut array = ArrayBuffer::from_array_with(Array2::zeros((4, 5)), partition).unwrap();
    let [mut own] = array.split([owned]).unwrap();
    set(&mut own.write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    let before = setup.a.statistics().on_device;
    let copy = array.duplicate().unwrap();
    let copied = setup.a.statistics().on_device.bytes - before.bytes;
    let native = setup.a.capabilities().region_copy == Support::Native && !setup.shares();
    assert_eq!(copied, if native { 2 * 3 * 8 } else { 0 });
    assert!(ghosts.iter().all(|part| copy.status(part) == PartStatus::Stale));
    assert_eq!(*copy.part(owned).unwrap().read_host().unwrap(), Array2::from_elem((2, 3), 1.0));
}

fn memory_is_taken_up_and_given_back(setup: &Setup) {
    let mut memory = setup.a.memory_allocate::<f64>(6).unwrap();
    memory.fill(&setup.s, 3.0).unwrap();
    let native = memory.native();
    let mut array = ArrayBuffer::from_memory(memory, (2, 3), &setup.s).unwrap();
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    assert_eq!(values(&array), [4.0; 6]);
    match array.into_memory(&setup.s) {
        Ok(memory) => {
            assert_eq!(memory.native(), native);
            assert_eq!(memory.to_vec(&setup.s).unwrap(), [4.0; 6]);
        }
        Err(error) => {
            assert!(setup.shares());
            assert_eq!(error.error().kind(), ErrorKind::InvalidArgument);
        }
    }
    let memory = setup.a.memory_allocate::<f64>(6).unwrap();
    let failed = ArrayBuffer::from_memory(memory, (2, 4), &setup.s).unwrap_err();
    let (memory, error) = failed.into_parts();
    assert_eq!(memory.len(), 6);
    assert!(error.message().contains("6 elements") && error.message().contains("[2, 4]"));
    let failed = ArrayBuffer::from_memory(memory, 6, &setup.t).unwrap_err();
    assert_eq!(failed.error().kind(), ErrorKind::WrongDevice);
}

fn eviction_saves_what_is_nowhere_else(setup: &Setup) {
    let mut array = counting(10);
    setup.claim(&array);
    array.evict(&setup.b).unwrap();
    assert_eq!(array.evict_host().unwrap_err().kind(), ErrorKind::Conflict);
    set(&mut array.write(&setup.t).unwrap(), &setup.t, 6.0).unwrap();
    array.evict(&setup.b).unwrap();
    assert!(array.is_valid_on_host() && !array.is_valid_on(&setup.b));
    assert_eq!(array.transfers().total().bytes, 80);
    assert_eq!(values_on(&array, &setup.t), [6.0; 10]);
    if !setup.shares() {
        array.evict_host().unwrap();
        assert!(!array.is_valid_on_host());
        assert_eq!(values(&array), [6.0; 10]);
    }
}

fn reports_name_both_ends(setup: &Setup) {
    let mut array = counting(10);
    setup.claim(&array);
    set(&mut array.write(&setup.t).unwrap(), &setup.t, 6.0).unwrap();
    let written = line!() - 1;
    for _ in 0..2 {
        array.read_host().unwrap();
    }
    let read = line!() - 2;
    let report = array.transfers();
    let [transfer] = report.transfers() else { panic!("{report}") };
    assert_eq!((transfer.traffic.count, transfer.traffic.bytes), (1, 80));
    assert_eq!(
        (transfer.to.as_str(), transfer.from.as_str()),
        ("host", &*setup.b.id().to_string())
    );
    assert_eq!((transfer.wanted_by.access, transfer.wanted_by.call_site.line()), ("read", read));
    let writer = transfer.invalidated_by.as_ref().unwrap();
    assert_eq!((writer.access, writer.call_site.line()), ("write", written));
    let table = report.to_string();
    assert!(table.contains("movement.rs") && table.contains("80"), "{table}");
    assert_eq!(report.between("host", "nowhere").count, 0);
    let all = array_buffer::transfer_totals();
    let key = (transfer.from.clone(), transfer.to.clone());
    assert!(all[&key].bytes >= 80);
}

fn budgets_hold(setup: &Setup) {
    let mut array = counting(10);
    setup.claim(&array);
    {
        let _none = TransferBudget::forbid();
        let error = array.read(&setup.t).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        assert!(error.message().contains("movement.rs"), "{error}");
        array.prefetch(&setup.t).unwrap();
        array.read(&setup.t).unwrap();
    }
    let down = TransferBudget::bytes(80, Direction::ToHost);
    set(&mut array.write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
    array.read_host().unwrap();
    array.read_host().unwrap();
    assert_eq!(down.used(), 80);
    set(&mut array.write(&setup.t).unwrap(), &setup.t, 2.0).unwrap();
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::LimitExceeded);
    drop(down);
    assert_eq!(values(&array), [2.0; 10]);
}

fn large_arrays_go_in_pieces(setup: &Setup) {
    let len = 700_001;
    let mut array = counting(len);
    setup.claim(&array);
    add(&mut array.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
    let values = values(&array);
    assert!(values.iter().zip(1..).all(|(value, index)| *value == f64::from(index)));
    assert_eq!(array.transfers().total().bytes, 2 * 8 * u64::from(len));
}

fn lent_memory_has_the_values_afterwards(setup: &Setup) {
    let mut values = ndarray::array![[1.0, 2.0], [3.0, 4.0]];
    array_buffer::lend(values.view_mut(), |mut array| {
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        add(&mut array.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
    })
    .unwrap();
    assert_eq!(values, ndarray::array![[3.0, 4.0], [5.0, 6.0]]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        array_buffer::lend(values.view_mut(), |mut array| {
            set(&mut array.write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
            panic!("in the middle");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(values, Array2::from_elem((2, 2), 1.0));
    let error = array_buffer::lend(values.view_mut().reversed_axes(), |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

fn write_guards_split(setup: &Setup) {
    let partition = Partition::new(&[6], &[&[0..2], &[2..6]], &[]).unwrap();
    let mut array = ArrayBuffer::from_array_with(Array1::zeros(6), partition).unwrap();
    let guard = array.read_write(&setup.s).unwrap();
    let (mut one, other) = guard.split_off(Parts::one(0));
    set(&mut one, &setup.s, 1.0).unwrap();
    one.commit().unwrap();
    other.abort();
    assert_eq!(array.part(Parts::one(0)).unwrap().read_host().unwrap().to_vec(), [1.0, 1.0]);
    let error = array.part(Parts::one(1)).unwrap().read_host().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(array.split([Parts::one(0), Parts::one(0)]).is_err());
    assert!(array.split([Parts::one(2)]).is_err());
}

/// Replaces the interior by the mean of the four neighbours: one region copy and three sums on the device.
fn step(
    next: &mut ArrayBuffer<f64, Ix2>,
    field: &ArrayBuffer<f64, Ix2>,
    stream: &Stream,
) -> array_buffer::Result<()> {
    let (rows, columns) = (field.shape()[0], field.shape()[1]);
    let around = [(0, 1), (2, 1), (1, 0), (1, 2)];
    let source = field.read(stream)?;
    let [mut inner] = next.split([Parts::one(0)])?;
    let mut target = inner.write(stream)?;
    let view = target.view_mut()?;
    let row = (columns * 8).cast_signed();
    let copy = |index: usize, (i, j): (usize, usize)| RegionCopy {
        dtype: DType::F64,
        extents: vec![rows - 2, columns - 2],
        source: RegionSide { slot: 1, offset: (i * columns + j) * 8, strides: vec![row, 8] },
        destination: view.as_view().region_side(0),
        negate: false,
        combine: if index == 0 { Combine::Replace } else { Combine::Sum },
    };
    let copies: Vec<RegionCopy> =
        around.into_iter().enumerate().map(|(index, at)| copy(index, at)).collect();
    let mut view = view;
    for copy in copies {
        let plan = stream.device().plan_regions(&[copy])?;
        plan.execute(stream, &mut [Slot::from(view.reborrow()), source.view()?.into()])?;
    }
    target.commit()
}

/// A kernel that is a Rust function takes no view with gaps. The span of a part has no gaps.
#[test]
fn a_rust_function_writes_a_part_through_its_span() {
    // Two rows of three elements, in rows of five.
    fn add(_: &Grid<'_>, to: &mut [f64], from: &[f64]) {
        for row in 0..2 {
            (0..3).for_each(|column| to[5 * row + column] += from[5 * row + column]);
        }
    }
    let setup = Setup::peers();
    let add =
        setup.a.module_load(&HostModule::new().with("add", add)).unwrap().kernel("add").unwrap();
    let partition = Partition::with_ghosts(&[4, 5], &[(1, 1), (1, 1)]).unwrap();
    let start = Array2::from_shape_fn((4, 5), |(i, j)| (10 * i + j) as f64);
    let make = || ArrayBuffer::from_array_with(start.clone(), partition.clone()).unwrap();
    let (mut to, from) = (make(), make());
    {
        let [mut own] = to.split([Parts::one(0)]).unwrap();
        let mut guard = own.read_write(&setup.s).unwrap();
        let source = from.part(Parts::one(0)).unwrap().read(&setup.s).unwrap();
        // SAFETY: the function accesses only elements of the part.
        let row = unsafe { guard.span_mut() }.unwrap();
        // SAFETY: as above.
        let other = unsafe { source.span() }.unwrap();
        assert_eq!((row.len(), other.len()), (8, 8));
        // SAFETY: the function is safe Rust.
        unsafe { add.launch(&setup.s, &Launch::cover(1, 1), args![row, other]) }.unwrap();
        guard.commit().unwrap();
    }
    let own = to.part(Parts::one(0)).unwrap();
    assert_eq!(*own.read_host().unwrap(), 2.0 * &start.slice(ndarray::s![1..3, 1..4]));
}

/// A stencil whose halo is filled by the host at every step, as messages would do. Each step copies the halo to the
/// device and the edge that messages need to the host, and nothing else.
#[test]
fn a_stencil_with_a_halo_moves_the_optimum() {
    let setup = Setup::peers();
    let (rows, columns, steps) = (12_usize, 10_usize, 7_u32);
    let shape = [rows, columns];
    // The owned interior, divided into an edge of width one and the inner cells; part 0 is the interior without the
    // edge's parts.
    let partition = Partition::with_ghosts(&shape, &[(1, 1), (1, 1)]).unwrap();
    let start = Array2::from_shape_fn((rows, columns), |(i, j)| ((7 * i + 3 * j) % 5) as f64);
    let mut oracle = start.clone();
    let make = |values: Array2<f64>| ArrayBuffer::from_array_with(values, partition.clone());
    let (mut field, mut next) = (make(start.clone()).unwrap(), make(start).unwrap());
    for round in 0..steps {
        let halo = |i: usize, j: usize| f64::from(round) + (i + j) as f64;
        let ghosts: Vec<usize> = partition.ghosts().iter().collect();
        for &part in &ghosts {
            let [mut ghost] = field.split([Parts::one(part)]).unwrap();
            let ranges = partition.ranges(part);
            let mut guard = ghost.write_host().unwrap();
            for ((i, j), value) in guard.indexed_iter_mut() {
                let (i, j) = (i + ranges[0].start, j + ranges[1].start);
                *value = halo(i, j);
                oracle[(i, j)] = *value;
            }
        }
        step(&mut next, &field, &setup.s).unwrap();
        std::mem::swap(&mut field, &mut next);
        let old = oracle.clone();
        for i in 1..rows - 1 {
            for j in 1..columns - 1 {
                oracle[(i, j)] =
                    old[(i - 1, j)] + old[(i + 1, j)] + old[(i, j - 1)] + old[(i, j + 1)];
            }
        }
    }
    let inner = field.part(Parts::one(0)).unwrap();
    let seen = inner.read_host().unwrap();
    assert_eq!(*seen, *oracle.slice(ndarray::s![1..rows - 1, 1..columns - 1]));
    let interior = ((rows - 2) * (columns - 2) * 8) as u64;
    let halo = (rows * columns * 8) as u64 - interior;
    // To the device: the first field's interior, and a halo for each step. To the host: the last interior.
    let up = interior + u64::from(steps) * halo;
    let (mine, other) = (field.transfers(), next.transfers());
    let sum = |from, to| mine.between(from, to).bytes + other.between(from, to).bytes;
    assert_eq!((sum("host", "sim:0"), sum("sim:0", "host")), (up, interior));
    assert_eq!(moved(&setup.a), (up, interior), "and the device saw no more");
}

#[test]
fn peers_copy_without_the_host() {
    let setup = Setup::peers();
    let mut array = counting(50);
    set(&mut array.write(&setup.s).unwrap(), &setup.s, 2.0).unwrap();
    assert_eq!(array.read(&setup.t).unwrap().view().unwrap().len(), 50);
    let counts = SimHandle::of(&setup.b).unwrap().counts();
    assert_eq!((counts.from_peers.bytes, counts.to_device.bytes), (400, 0));
    assert_eq!(SimHandle::of(&setup.a).unwrap().counts().from_device.bytes, 0);
    assert!(!array.is_valid_on_host());
}

#[test]
fn a_valid_replica_costs_the_driver_nothing() {
    let setup = Setup::peers();
    let mut array = counting(50);
    set(&mut array.read_write(&setup.s).unwrap(), &setup.s, 2.0).unwrap();
    array.read(&setup.s).unwrap();
    setup.s.synchronize().unwrap();
    let handle = SimHandle::of(&setup.a).unwrap();
    let before = handle.counts();
    for _ in 0..10 {
        array.read(&setup.s).unwrap();
        drop(array.read_write(&setup.s).unwrap());
    }
    assert_eq!(handle.counts(), before);
}

#[test]
fn a_failed_copy_leaves_the_array_as_it_was() {
    for late in [false, true] {
        let setup = Setup::peers();
        let array = counting(50);
        array.read(&setup.t).unwrap();
        let handle = SimHandle::of(&setup.a).unwrap();
        let fault = if late { Fault::fail_late } else { Fault::fail };
        handle.inject(fault(Operation::Copy, 1));
        let read = array.read(&setup.s).map(|guard| guard.view().unwrap().to_vec(&setup.s));
        let failed = match read {
            Err(error) => error,
            Ok(values) => values.unwrap_err(),
        };
        assert_eq!(failed.kind(), ErrorKind::Driver);
        assert_eq!(values(&array)[49], 49.0);
        if !late {
            assert!(!array.is_valid_on(&setup.a));
            assert_eq!(values_on(&array, &setup.s)[49], 49.0);
        }
    }
}

#[test]
fn a_failed_writer_poisons_only_the_parts_it_wrote() {
    let setup = Setup::apart();
    let mut array = counting(50);
    array.prefetch(&setup.t).unwrap();
    let handle = SimHandle::of(&setup.a).unwrap();
    array.prefetch(&setup.s).unwrap();
    setup.s.synchronize().unwrap();
    let mut guard = array.read_write(&setup.s).unwrap();
    handle.inject(Fault::fail_late(Operation::Copy, 2));
    guard.view_mut().unwrap().fill(&setup.s, 1.0).unwrap();
    guard.commit().unwrap();
    let error = array.read_host().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
    array.write_host().unwrap().fill(4.0);
    assert_eq!(values_on(&array, &setup.s), [4.0; 50]);
}

/// Fills the array on a stream, with work that fails when it runs.
fn fill_that_fails_late(setup: &Setup, array: &mut ArrayBuffer<f64, Ix1>) {
    let mut guard = array.write(&setup.s).unwrap();
    SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 1));
    guard.view_mut().unwrap().fill(&setup.s, 1.0).unwrap();
    guard.commit().unwrap();
}

#[test]
fn a_failure_reaches_the_replicas_of_peers() {
    let setup = Setup::peers();
    let mut array = counting(50);
    fill_that_fails_late(&setup, &mut array);
    array.prefetch(&setup.t).unwrap();
    assert_eq!(setup.s.synchronize().unwrap_err().kind(), ErrorKind::Driver);
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(array.prefetch(&setup.t).unwrap_err().kind(), ErrorKind::Poisoned);
    set(&mut array.write(&setup.t).unwrap(), &setup.t, 2.0).unwrap();
    assert_eq!(values(&array), [2.0; 50]);
}

#[test]
fn the_host_checks_every_stream_the_values_came_through() {
    // With a copy to a peer, and with a second stream that changes the values.
    for copied in [true, false] {
        let setup = Setup::peers();
        let mut array = counting(50);
        fill_that_fails_late(&setup, &mut array);
        let last = if copied { setup.t.clone() } else { setup.stream() };
        add(&mut array.read_write(&last).unwrap(), &last, 1.0).unwrap();
        last.synchronize().unwrap();
        let error = array.read_host().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver, "copied={copied}: {error}");
        assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned, "copied={copied}");
    }
}

#[test]
fn a_duplicate_depends_on_its_source() {
    let setup = Setup::peers();
    let mut array = counting(50);
    fill_that_fails_late(&setup, &mut array);
    add(&mut array.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
    let copy = array.duplicate().unwrap();
    assert!(copy.is_valid_on(&setup.b));
    assert_eq!(setup.s.synchronize().unwrap_err().kind(), ErrorKind::Driver);
    assert_eq!(copy.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn an_overwrite_does_not_depend_on_earlier_writers() {
    let setup = Setup::peers();
    let mut array = counting(50);
    fill_that_fails_late(&setup, &mut array);
    add(&mut array.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
    for _ in 0..2 {
        set(&mut array.write(&setup.t).unwrap(), &setup.t, 2.0).unwrap();
    }
    assert_eq!(setup.s.synchronize().unwrap_err().kind(), ErrorKind::Driver);
    assert_eq!(values(&array), [2.0; 50]);
}

#[test]
fn ghosts_are_lost_with_the_values_they_were_filled_from() {
    let setup = Setup::peers();
    let partition = Partition::with_ghosts(&[3], &[(1, 0)]).unwrap();
    let ghost = partition.ghosts();
    let mut array = ArrayBuffer::from_array_with(Array1::<f64>::zeros(3), partition).unwrap();
    SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 1));
    let [mut owned] = array.split([Parts::one(0)]).unwrap();
    let mut guard = owned.write(&setup.s).unwrap();
    guard.part_mut(0).unwrap().fill(&setup.s, 1.0).unwrap();
    guard.commit().unwrap();
    let second = setup.stream();
    let mut flight = array.begin_exchange(&second, Exchange::Broadcast).unwrap();
    for part in ghost.iter() {
        flight.target(part).unwrap().fill(&second, 1.0).unwrap();
    }
    flight.finish().unwrap();
    assert_eq!(setup.s.synchronize().unwrap_err().kind(), ErrorKind::Driver);
    array.prefetch_host().unwrap_err();
    for part in [0, 1] {
        assert_eq!(array.status(part), PartStatus::Poisoned, "part {part}");
    }
}

#[test]
fn a_failure_that_another_caller_received_poisons_too() {
    for who in ["the stream", "the device"] {
        let setup = Setup::apart();
        let (mut array, mut after) = (counting(50), counting(50));
        array.prefetch(&setup.s).unwrap();
        setup.s.synchronize().unwrap();
        let mut guard = array.read_write(&setup.s).unwrap();
        SimHandle::of(&setup.a).unwrap().inject(Fault::fail_late(Operation::Copy, 2));
        guard.view_mut().unwrap().fill(&setup.s, 1.0).unwrap();
        guard.commit().unwrap();
        let reported =
            if who == "the stream" { setup.s.synchronize() } else { setup.a.synchronize() };
        assert_eq!(reported.unwrap_err().kind(), ErrorKind::Driver);
        let error = array.read_host().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{who}: {error}");
        // Values that are written after the failure do not depend on it.
        set(&mut after.write(&setup.s).unwrap(), &setup.s, 2.0).unwrap();
        assert_eq!(values(&after), [2.0; 50], "{who}");
        set(&mut array.write(&setup.s).unwrap(), &setup.s, 3.0).unwrap();
        assert_eq!(values(&array), [3.0; 50], "{who}");
    }
}

#[test]
fn a_stream_that_captures_is_refused() {
    let setup = Setup::peers();
    let mut array = counting(4);
    let graph = setup.a.graphs().unwrap().capture(|capture| {
        for refused in [array.read(capture).map(drop), array.prefetch(capture)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(array.write(capture).unwrap_err().kind(), ErrorKind::InvalidArgument);
        Ok(())
    });
    assert_eq!(graph.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(values_on(&array, &setup.s)[3], 3.0);
    assert_eq!(values(&array)[3], 3.0);
}

#[test]
fn a_lost_device_takes_its_replica_alone() {
    let setup = Setup::peers();
    let mut array = counting(50);
    array.prefetch(&setup.s).unwrap();
    array.prefetch(&setup.t).unwrap();
    setup.s.synchronize().unwrap();
    setup.t.synchronize().unwrap();
    SimHandle::of(&setup.a).unwrap().lose();
    assert_eq!(values(&array)[49], 49.0);
    assert_eq!(values_on(&array, &setup.t)[49], 49.0);
    let mut small = counting(8);
    assert_eq!(small.read(&setup.s).unwrap_err().kind(), ErrorKind::DeviceLost);
    assert_eq!(values(&small)[7], 7.0);
    assert_eq!(small.read_write(&setup.s).unwrap_err().kind(), ErrorKind::DeviceLost);
    small.write_host().unwrap().fill(1.0);
    assert_eq!(values_on(&small, &setup.t), [1.0; 8]);
    set(&mut array.write(&setup.t).unwrap(), &setup.t, 5.0).unwrap();
    assert_eq!(values(&array), [5.0; 50]);
}

#[test]
fn running_out_of_memory_changes_nothing_and_suggests_a_remedy() {
    let setup = Setup::sim(quick().memory_bytes(1000));
    let mut large = counting(100);
    large.prefetch(&setup.s).unwrap();
    let mut array = counting(50);
    for error in [array.read(&setup.s).unwrap_err(), array.write(&setup.s).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.message().contains("evict"), "{error}");
    }
    assert_eq!((array.version(), values(&array)[49]), (0, 49.0));
    large.evict(&setup.a).unwrap();
    setup.a.synchronize().unwrap();
    assert_eq!(values_on(&array, &setup.s)[49], 49.0);
}

#[test]
fn an_incomplete_write_is_found_byte_for_byte() {
    let setup = Setup::peers();
    let mut array = ArrayBuffer::<u8, Ix2>::uninit((3, 5)).unwrap();
    array.check_write(&setup.s, |guard| guard.view_mut()?.fill(&setup.s, 0x55_u8)).unwrap();
    array.check_write(&setup.s, |guard| guard.view_mut()?.fill(&setup.s, 0xAA_u8)).unwrap();
    let error = array
        .check_write(&setup.s, |guard| {
            let row = guard.view_mut()?.reshape(&[15])?;
            let (mut first, last) = row.split_at(7)?;
            first.fill(&setup.s, 1_u8)?;
            last.slice(1..8)?.fill(&setup.s, 1_u8)
        })
        .unwrap_err();
    assert!(error.message().contains("[1, 2]"), "{error}");
    assert_eq!(array.read_host().unwrap_err().kind(), ErrorKind::Poisoned);

    let array = counting(4);
    array.check_read(&setup.s, |_| Ok(())).unwrap();
}

#[test]
fn bookkeeping_is_small() {
    let setup = Setup::sim(quick().jitter(Duration::ZERO));
    let other = Setup::peers();
    let mut array = counting(4);
    for stream in [&setup.s, &setup.t, &other.s] {
        set(&mut array.write(stream).unwrap(), stream, 1.0).unwrap();
        array.read_host().unwrap();
    }
    let bytes = array.bookkeeping_bytes();
    println!("{bytes} bytes with one part and three devices");
    assert!(bytes <= 3000, "{bytes}");
}

#[test]
fn a_reader_that_writes_is_found() {
    use runtime_core::{Grid, HostModule, Launch, args};
    let setup = Setup::peers();
    let array = counting(4);
    // A reader that writes through another address of the same memory.
    fn sneak(_: &Grid<'_>, x: &mut [f64]) {
        x[3] = -1.0;
    }
    let module = setup.a.module_load(&HostModule::new().with("sneak", sneak)).unwrap();
    let sneak = module.kernel("sneak").unwrap();
    let error = array
        .check_read(&setup.s, |guard| {
            let view = guard.view()?;
            let handle = view.native().expect("memory");
            // SAFETY: the array outlives this, and no other code uses it meanwhile.
            let mut alias = unsafe { setup.a.memory_adopt::<f64>(handle, view.len(), ()) }?;
            // SAFETY: the kernel is safe Rust.
            unsafe { sneak.launch(&setup.s, &Launch::cover(4, 4), args![&mut alias]) }
        })
        .unwrap_err();
    assert!(error.message().contains("element [3]"), "{error}");
}

#[test]
fn threads_share_a_valid_array() {
    let setup = Setup::peers();
    let array = counting(64);
    std::thread::scope(|scope| {
        for index in 0..4_u32 {
            let (array, device) = (&array, if index % 2 == 0 { &setup.a } else { &setup.b });
            scope.spawn(move || {
                let stream = device.stream_create(&Default::default()).unwrap();
                for _ in 0..50 {
                    assert_eq!(values_on(array, &stream)[63], 63.0);
                    assert_eq!(values(array)[1], 1.0);
                }
            });
        }
    });
    assert_eq!(array.transfers().total().count, 2);
    let mut parts = framed_rows();
    std::thread::scope(|scope| {
        let [mut top, mut bottom] = parts.split([Parts::one(0), Parts::one(1)]).unwrap();
        let (s, t) = (&setup.s, &setup.t);
        scope.spawn(move || {
            (0..40).for_each(|_| add(&mut top.read_write(s).unwrap(), s, 1.0).unwrap())
        });
        scope.spawn(move || {
            (0..40).for_each(|_| add(&mut bottom.read_write(t).unwrap(), t, 2.0).unwrap());
        });
    });
    assert_eq!(values(&parts), [40.0, 40.0, 80.0, 80.0]);
    assert_eq!(parts.version(), 80);
}

/// Two owned rows of two.
fn framed_rows() -> ArrayBuffer<f64, Ix2> {
    let partition = Partition::new(&[2, 2], &[&[0..1, 0..2], &[1..2, 0..2]], &[]).unwrap();
    ArrayBuffer::from_array_with(Array2::zeros((2, 2)), partition).unwrap()
}
