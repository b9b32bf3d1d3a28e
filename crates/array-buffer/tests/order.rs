//! Arrays in any order of dimensions, and with gaps between rows: every access sees the same values.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;

use array_buffer::{
    ArrayBuffer, Exchange, MemoryBudget, Partition, Parts, Reduce, StarForest, lend,
};
use common::{Setup, add};
use ndarray::{Array3, Ix3, ShapeBuilder, s};
use runtime_core::ErrorKind;

const SHAPE: [usize; 3] = [4, 5, 6];

/// Two owned parts, and the ghosts behind them along the last dimension.
fn parts() -> Partition {
    let owned: [&[_]; 2] = [&[0..4, 0..2, 0..5], &[0..4, 2..5, 0..5]];
    Partition::new(&SHAPE, &owned, &[&[0..4, 0..5, 5..6]]).unwrap()
}

/// Orders with and without gaps.
fn orders() -> impl Iterator<Item = Partition> {
    [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]].into_iter().flat_map(|order| {
        let ordered = parts().with_order(&order).unwrap();
        [ordered.clone().with_row_alignment(8).unwrap(), ordered]
    })
}

fn start() -> Array3<f64> {
    Array3::from_shape_fn(SHAPE, |(i, j, k)| (i * 100 + j * 10 + k) as f64)
}

fn accesses_see_the_same_values(setup: &Setup) {
    for (number, order) in orders().enumerate() {
        let mut array = ArrayBuffer::from_array_with(start(), order).unwrap();
        if number % 3 == 1 {
            array.page_lock(&setup.a).unwrap();
        }
        let mut expected = start();
        // The whole array and its parts, on the first device, the second and the host.
        add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        array.part(Parts::one(0)).unwrap().prefetch(&setup.t).unwrap();
        {
            let [mut one, mut two] = array.split([Parts::one(0), Parts::one(1)]).unwrap();
            add(&mut one.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
            two.read_write_host().unwrap()[[3, 0, 4]] = 7.0;
        }
        expected += 1.0;
        expected.slice_mut(s![.., ..2, ..5]).map_inplace(|value| *value += 1.0);
        expected[[3, 2, 4]] = 7.0;

        let mut forest = StarForest::new([(vec![0..4, 0..5, 5..6], vec![0..4, 0..5, 0..1])]);
        let mut flight = array.begin_exchange(&setup.s, Exchange::Broadcast).unwrap();
        flight.run(&mut forest).unwrap();
        flight.finish().unwrap();
        let first = expected.slice(s![.., .., 0]).to_owned();
        expected.slice_mut(s![.., .., 5]).assign(&first);
        assert_eq!(*array.read_host().unwrap(), expected);
        for stream in [&setup.s, &setup.t] {
            let guard = array.read(stream).unwrap();
            assert!(guard.view().unwrap().to_vec(stream).unwrap().iter().eq(&expected));
        }

        array
            .accumulate(&setup.s, Reduce::Sum)
            .and_then(|mut g| add(&mut g, &setup.s, 1.0))
            .unwrap();
        let mut flight = array.begin_exchange(&setup.s, Exchange::Reduce).unwrap();
        flight.run(&mut forest).unwrap();
        flight.finish().unwrap();
        expected.slice_mut(s![.., .., ..5]).map_inplace(|value| *value += 1.0);
        expected.slice_mut(s![.., .., 0]).map_inplace(|value| *value += 1.0);
        let owned = array.part(array.partition().owned()).unwrap();
        assert_eq!(*owned.read_host().unwrap(), expected.slice(s![.., .., ..5]));
        let copy = array.duplicate().unwrap();
        assert_eq!(copy.partition(), array.partition());
        let owned = copy.part(copy.partition().owned()).unwrap();
        assert_eq!(*owned.read_host().unwrap(), expected.slice(s![.., .., ..5]));
    }
}

fn arrays_are_moved_if_they_have_the_order(setup: &Setup) {
    let columns = Partition::whole(&SHAPE).unwrap().with_order(&[2, 1, 0]).unwrap();
    let mut source = Array3::zeros(SHAPE.f());
    source.assign(&start());
    let address = source.as_ptr();
    let mut array = ArrayBuffer::from_array_with(source, columns.clone()).unwrap();
    add(&mut array.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
    let back = array.into_inner().unwrap();
    assert_eq!((back.as_ptr(), back.strides()), (address, &[1, 4, 20][..]));
    assert_eq!(back, start() + 1.0);

    // Others are copied, there and back.
    for order in [columns.clone(), columns.clone().with_row_alignment(16).unwrap()] {
        let array = ArrayBuffer::from_array_with(start(), order).unwrap();
        array.prefetch(&setup.s).unwrap();
        assert_eq!(array.into_inner().unwrap(), start());
    }
    // The rows of a larger array have the strides, but not the gaps, of this partition.
    let mut rows = ndarray::Array2::from_shape_fn((4, 8), |(i, j)| (i * 10 + j) as f64);
    rows.slice_axis_inplace(ndarray::Axis(1), ndarray::Slice::from(..6));
    let aligned = Partition::whole(&[4, 6]).unwrap().with_row_alignment(8).unwrap();
    let array = ArrayBuffer::from_array_with(rows.clone(), aligned).unwrap();
    array.prefetch(&setup.s).unwrap();
    assert_eq!(array.into_inner().unwrap(), rows);
    if !setup.shares() {
        let array = ArrayBuffer::from_array_with(start(), columns).unwrap();
        let memory = array.into_memory(&setup.s).unwrap();
        let values = memory.to_vec(&setup.s).unwrap();
        assert!(start().t().iter().eq(&values), "in the order of the partition");
    }
}

fn parts_leave_and_return_in_any_order(setup: &Setup) {
    for order in orders() {
        let budget = MemoryBudget::new(&setup.a, 4 * 3 * 5 * 8);
        let mut array = ArrayBuffer::from_array_with(start(), order).unwrap();
        array.set_memory_budget(&budget).unwrap();
        for _ in 0..2 {
            for part in 0..2 {
                let [mut part] = array.split([Parts::one(part)]).unwrap();
                add(&mut part.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
            }
        }
        let owned = array.part(array.partition().owned()).unwrap();
        assert_eq!(*owned.read_host().unwrap(), start().slice(s![.., .., ..5]).to_owned() + 2.0);
    }
}

fn other_parts_keep_the_order(setup: &Setup) {
    let plain = Partition::new(&SHAPE, &[&[0..4, 0..5, 0..3], &[0..4, 0..5, 3..6]], &[]).unwrap();
    for order in orders() {
        let strides = order.strides().to_vec();
        let mut array = ArrayBuffer::from_array_with(start(), order).unwrap();
        array.prefetch(&setup.s).unwrap();
        array.repartition(plain.clone()).unwrap();
        assert_eq!(array.partition().strides(), strides);
        let [mut one, mut two] = array.split([Parts::one(0), Parts::one(1)]).unwrap();
        add(&mut one.read_write(&setup.s).unwrap(), &setup.s, 1.0).unwrap();
        add(&mut two.read_write(&setup.t).unwrap(), &setup.t, 1.0).unwrap();
        array.repartition(Partition::whole(&SHAPE).unwrap()).unwrap();
        assert_eq!(*array.read_host().unwrap(), start() + 1.0);
        let other = plain.clone().with_order(&[2, 0, 1]).unwrap();
        let error = array.repartition(other.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(&format!("{:?}", other.strides())), "{error}");
    }
}

fn incomplete_writes_are_found_in_any_order(setup: &Setup) {
    for order in orders() {
        let mut array = ArrayBuffer::<f64, Ix3>::with_partition(order).unwrap();
        array
            .check_write(&setup.s, |guard| {
                let mut view = guard.view_mut()?;
                view.reborrow().region(&[0..3, 0..5, 0..6])?.fill(&setup.s, 1.0)?;
                view.region(&[3..4, 0..5, 0..6])?.fill(&setup.s, 1.0)
            })
            .unwrap();
        let error = array
            .check_write(&setup.s, |guard| {
                guard.view_mut()?.region(&[0..4, 0..5, 0..4])?.fill(&setup.s, 1.0)
            })
            .unwrap_err();
        assert!(error.message().contains("[0, 0, 4]"), "{error}");

        array.set_check_writes(true);
        let [mut one] = array.split([Parts::one(1)]).unwrap();
        let mut guard = one.write(&setup.s).unwrap();
        guard.view_mut().unwrap().region(&[0..4, 0..3, 0..4]).unwrap().fill(&setup.s, 1.0).unwrap();
        let error = guard.commit().unwrap_err();
        assert!(error.message().contains("[0, 2, 4]"), "{error}");
        let mut guard = one.write_host().unwrap();
        guard.slice_mut(s![.., 1.., ..]).fill(1.0);
        let error = guard.commit().unwrap_err();
        assert!(error.message().contains("[0, 2, 0]"), "{error}");
    }
}

on_all_devices! {
    accesses_see_the_same_values,
    arrays_are_moved_if_they_have_the_order,
    parts_leave_and_return_in_any_order,
    other_parts_keep_the_order,
    incomplete_writes_are_found_in_any_order,
}

#[test]
fn arrays_without_elements_have_any_order() {
    for shape in [[0, 3], [3, 0], [1, 1]] {
        for order in [[0, 1], [1, 0]] {
            let partition = Partition::whole(&shape).unwrap().with_order(&order).unwrap();
            let partition = partition.with_row_alignment(4).unwrap();
            let array = ndarray::Array2::from_elem(shape, 1);
            let made = ArrayBuffer::from_array_with(array.clone(), partition).unwrap();
            assert_eq!(made.len(), array.len());
            assert_eq!(*made.read_host().unwrap(), array);
            assert_eq!(made.into_inner().unwrap(), array);
        }
    }
    let mut lent = ndarray::Array2::from_elem((2, 3), 1);
    lend(lent.view_mut(), |mut array| array.write_host().unwrap().fill(2)).unwrap();
    assert_eq!(lent, ndarray::Array2::from_elem((2, 3), 2));
}
