//! Reductions from ghosts to owners, and points that ranks share.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod common;
mod devices;

use std::collections::BTreeMap;

use common::world::{Cube, Flat, World};
use common::{Case, Shape, Store};
use devices::{host, sim};
use halo::{Combine, Field, HaloExchange, HaloOptions, Kind, Messages, Topology};
use runtime_core::{DType, Device, Stream};

/// The values of a field of one rank, by index, without elements that must not be accessed.
type Values = Vec<Vec<f64>>;

/// The width of the halo, and of a field's allocation around its cells.
const W: usize = 2;

fn case<'a>(
    topology: &'a Topology,
    world: &'a dyn World,
    kind: Kind,
    staggered: [[bool; 3]; 2],
) -> Case<'a> {
    let shapes = (0..kind.components()).map(|c| Shape::new(DType::F64, W).staggered(staggered[c]));
    let quantities = vec![(kind, shapes.collect())];
    Case { topology, world, quantities, options: HaloOptions::default() }
}

/// The value of a rank at an index. Magnitudes differ, so that the order of sums affects the result.
fn noise(rank: usize, component: usize, index: usize) -> f64 {
    let hash =
        (rank * 7919 + component * 104_729 + index * 31 + 17).wrapping_mul(0x9e37_79b9) % 1009;
    (hash as f64 + 1.0) * 3.0_f64.powi((hash % 21) as i32 - 10)
}

/// Fills all elements, calls `act`, and returns the values before and after.
fn run(
    case: &Case<'_>,
    device: &Device,
    act: impl Fn(&mut HaloExchange, &Stream, &mut [Field<'_>]) + Sync,
) -> Vec<(Values, Values)> {
    case.with_ranks(device, |rank, mut exchange, stream| {
        let mut stores = case.stores(rank, &stream);
        let mut before = Values::new();
        for (component, store) in stores.iter_mut().enumerate() {
            let count = store.spec.layout().len();
            let values: Vec<f64> = (0..count).map(|index| noise(rank, component, index)).collect();
            store.view_mut().typed().unwrap().copy_from_slice(&stream, &values).unwrap();
            before.push(values);
        }
        let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
        act(&mut exchange, &stream, &mut fields);
        drop(fields);
        let after = stores
            .iter_mut()
            .map(|store| store.view_mut().typed().unwrap().as_view().to_vec(&stream).unwrap());
        (before, after.collect())
    })
}

/// The elements of a two-dimensional field of a rank: index, position in half cells of the tile, and the distance
/// outside of the owned part along x and y.
fn elements(case: &Case<'_>, rank: usize, component: usize) -> Vec<(usize, [i64; 3], [i8; 2])> {
    let block = case.topology.block(rank).unwrap();
    let staggered = case.quantities[0].1[component].staggered;
    let points = [0, 1].map(|axis| block.cells[axis] + usize::from(staggered[axis]));
    let mut elements = Vec::new();
    for i in 0..points[0] + 2 * W {
        for j in 0..points[1] + 2 * W {
            let end = |index: usize, points: usize| match index {
                _ if index < W => -1,
                _ if index >= W + points => 1,
                _ => 0,
            };
            let at = [i, j].map(|index| index as i64 - W as i64);
            let at = std::array::from_fn(|axis| match axis {
                0 | 1 => 2 * (block.start[axis] as i64 + at[axis]) + i64::from(!staggered[axis]),
                _ => 1,
            });
            elements.push((
                i * (points[1] + 2 * W) + j,
                at,
                [end(i, points[0]), end(j, points[1])],
            ));
        }
    }
    elements
}

/// The direction of a component in space, for a vector along the tile's directions.
fn direction(
    case: &Case<'_>,
    rank: usize,
    component: usize,
    at: [i64; 3],
) -> Option<([i64; 3], [i64; 3])> {
    let tile = case.topology.block(rank).unwrap().tile;
    let place = case.world.place(tile, at)?;
    let direction =
        if case.quantities[0].0 == Kind::Vector { place.basis[component] } else { [1, 0, 0] };
    Some((place.at, direction))
}

/// A place, and the axis along which a component lies at the place.
type Key = ([i64; 3], usize);

/// The rank, side and component of a contribution.
type Order = (usize, i8, usize);

/// The contributions of ghosts to each place along each axis, in the order of rank, side and component, found by a
/// search through space.
fn contributions(case: &Case<'_>, results: &[(Values, Values)]) -> BTreeMap<Key, Vec<f64>> {
    let mut all: BTreeMap<Key, Vec<(Order, f64)>> = BTreeMap::new();
    for (rank, (before, _)) in results.iter().enumerate() {
        for (component, values) in before.iter().enumerate() {
            for (index, at, ends) in elements(case, rank, component) {
                if ends == [0, 0] {
                    continue;
                }
                let Some((place, along)) = direction(case, rank, component, at) else { continue };
                let axis = along.iter().position(|c| *c != 0).unwrap();
                let side = (ends[0] + 1) + 3 * (ends[1] + 1);
                let value = along[axis] as f64 * values[index];
                all.entry((place, axis)).or_default().push(((rank, side, component), value));
            }
        }
    }
    let ordered = all.into_iter().map(|(key, mut list)| {
        list.sort_by_key(|(order, _)| *order);
        (key, list.into_iter().map(|(_, value)| value).collect())
    });
    ordered.collect()
}

fn check_reduction(case: &Case<'_>, device: &Device, combine: Combine) {
    let results = run(case, device, |exchange, stream, fields| {
        exchange.reduce(stream, fields, combine).unwrap();
    });
    let contributions = contributions(case, &results);
    for (rank, (before, after)) in results.iter().enumerate() {
        for component in 0..before.len() {
            for (index, at, ends) in elements(case, rank, component) {
                let mut expected = before[component][index];
                if ends == [0, 0] {
                    let (place, along) = direction(case, rank, component, at).unwrap();
                    let axis = along.iter().position(|c| *c != 0).unwrap();
                    for value in contributions.get(&(place, axis)).into_iter().flatten() {
                        let value = along[axis] as f64 * value;
                        expected = match combine {
                            Combine::Replace => value,
                            Combine::Sum => expected + value,
                            Combine::Min => expected.min(value),
                            Combine::Max => expected.max(value),
                        };
                    }
                }
                // Equal in every bit: sums are computed in this order.
                let found = after[component][index];
                assert_eq!(
                    found.to_bits(),
                    expected.to_bits(),
                    "rank {rank} {component} {at:?}: {found} {expected}"
                );
            }
        }
    }
}

const ALL: [Combine; 4] = [Combine::Sum, Combine::Min, Combine::Max, Combine::Replace];

fn reductions_on_boxes(device: &Device) {
    for ranks in [[1, 1], [2, 1], [2, 2]] {
        let topology = Topology::cartesian(&[6, 5], &ranks, &[true, false]).unwrap();
        let world = Flat { cells: [6, 5, 1], periodic: [true, false, false] };
        for combine in ALL {
            check_reduction(
                &case(&topology, &world, Kind::Scalar, [[false; 3]; 2]),
                device,
                combine,
            );
        }
    }
}

fn reductions_of_vectors_on_spheres(device: &Device) {
    for layout in [[1, 1], [1, 2]] {
        let topology = Topology::cubed_sphere(4, layout).unwrap();
        let world = Cube { cells: 4 };
        for combine in [Combine::Sum, Combine::Replace] {
            check_reduction(
                &case(&topology, &world, Kind::Vector, [[false; 3]; 2]),
                device,
                combine,
            );
        }
    }
}

/// Points that two ranks share have one value afterwards: that of the rank that has them at its low end. All other
/// points keep their values.
fn shared_points_of_spheres(device: &Device) {
    let [x, y] = [[true, false, false], [false, true, false]];
    for grid in [[x, y], [y, x]] {
        for layout in [[1, 1], [2, 1]] {
            let topology = Topology::cubed_sphere(4, layout).unwrap();
            let world = Cube { cells: 4 };
            let case = case(&topology, &world, Kind::Vector, grid);
            let results = run(&case, device, |exchange, stream, fields| {
                exchange.synchronize_shared(stream, fields).unwrap();
            });
            let mut held: BTreeMap<Key, Vec<(bool, f64, f64)>> = BTreeMap::new();
            let mut kept = 0;
            for (rank, (before, after)) in results.iter().enumerate() {
                let block = topology.block(rank).unwrap();
                for component in 0..2 {
                    let axis = usize::from(!grid[component][0]);
                    for (index, at, ends) in elements(&case, rank, component) {
                        let from_low = at[axis] / 2 - block.start[axis] as i64;
                        let is_low = from_low == 0;
                        let is_shared = is_low || from_low == block.cells[axis] as i64;
                        if ends != [0, 0] || !is_shared {
                            assert_eq!(
                                before[component][index].to_bits(),
                                after[component][index].to_bits()
                            );
                            kept += 1;
                            continue;
                        }
                        let (place, along) = direction(&case, rank, component, at).unwrap();
                        // A component across an edge of the cube has different directions in space on the two sides,
                        // but it leaves at a high end and enters at a low end.
                        let crosses = axis == component;
                        let along_axis =
                            if crosses { 3 } else { along.iter().position(|c| *c != 0).unwrap() };
                        let sign = if crosses { 1.0 } else { along[along_axis] as f64 };
                        let values = (
                            is_low,
                            sign * before[component][index],
                            sign * after[component][index],
                        );
                        held.entry((place, along_axis)).or_default().push(values);
                    }
                }
            }
            assert!(kept > 0 && !held.is_empty());
            for (place, holders) in held {
                assert_eq!(holders.len(), 2, "{place:?}");
                let owner = holders.iter().find(|(is_low, ..)| *is_low).unwrap();
                assert!(holders.iter().any(|(is_low, ..)| !is_low), "{place:?}");
                for (_, _, after) in &holders {
                    assert_eq!(after.to_bits(), owner.1.to_bits(), "{place:?}");
                }
            }
        }
    }
}

on_all_devices!(reductions_on_boxes, reductions_of_vectors_on_spheres, shared_points_of_spheres);

/// Sums are the same for any timing of ranks and devices.
#[test]
fn sums_depend_neither_on_timing_nor_on_messages() {
    let topology = Topology::cubed_sphere(4, [1, 1]).unwrap();
    let world = Cube { cells: 4 };
    let mut seen = Vec::new();
    for seed in 0..6 {
        let mut case = case(&topology, &world, Kind::Vector, [[false; 3]; 2]);
        case.options.messages = [Messages::Aggregate, Messages::Separate][seed as usize % 2];
        let results = run(&case, &sim(seed), |exchange, stream, fields| {
            exchange.reduce(stream, fields, Combine::Sum).unwrap();
        });
        let bits: Vec<u64> =
            results.iter().flat_map(|(_, after)| after.concat()).map(f64::to_bits).collect();
        seen.push(bits);
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
}

/// The inner product of x with the halo of y equals that of the sums of x with y.
#[test]
fn sums_are_the_adjoint_of_exchanges() {
    let topology = Topology::cubed_sphere(5, [1, 2]).unwrap();
    let world = Cube { cells: 5 };
    let case = case(&topology, &world, Kind::Vector, [[false; 3]; 2]);
    let filled = run(&case, &host(), |exchange, stream, fields| {
        exchange.exchange(stream, fields).unwrap();
    });
    let summed = run(&case, &host(), |exchange, stream, fields| {
        exchange.reduce(stream, fields, Combine::Sum).unwrap();
    });
    let (mut there, mut back, mut size) = (0.0, 0.0, 0.0);
    for rank in 0..topology.ranks() {
        for component in 0..2 {
            let [values, halo] = [&filled[rank].0, &filled[rank].1].map(|v| &v[component]);
            let sums = &summed[rank].1[component];
            for (index, at, ends) in elements(&case, rank, component) {
                if ends == [0, 0] {
                    back += (sums[index] - values[index]) * values[index];
                } else if direction(&case, rank, component, at).is_some() {
                    there += values[index] * halo[index];
                    size += (values[index] * halo[index]).abs();
                }
            }
        }
    }
    assert!((there - back).abs() < 1e-12 * size && size > 0.0, "{there} and {back}");
}

#[test]
fn unsupported_reductions_and_shared_points_are_refused() {
    let topology = Topology::cartesian(&[4, 4], &[1, 1], &[true, true]).unwrap();
    let world = Flat { cells: [4, 4, 1], periodic: [true; 3] };
    let both = [true, true, false];
    let options = HaloOptions::default();
    let corners = vec![(Kind::Scalar, vec![Shape::new(DType::C64, 1).staggered(both)])];
    let case = Case { topology: &topology, world: &world, quantities: corners, options };
    case.with_ranks(&host(), |rank, mut exchange, stream| {
        let mut stores = case.stores(rank, &stream);
        let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
        let error = exchange.reduce(&stream, &mut fields, Combine::Max).unwrap_err();
        assert!(error.message().contains("rank 0: field q0.0: Max of elements of c64"), "{error}");
        let error = exchange.synchronize_shared(&stream, &mut fields).unwrap_err();
        assert!(
            error.message().contains("field q0.0 of rank 0 is staggered along 2 axes"),
            "{error}"
        );
        exchange.reduce(&stream, &mut fields, Combine::Sum).unwrap();
        exchange.exchange(&stream, &mut fields).unwrap();
    });
}
