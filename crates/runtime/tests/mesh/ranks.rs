//! The Laplacian and its solution: their values, and their bits on several ranks.

use runtime::Result;
use runtime::ranks;

use crate::gmsh;
use crate::laplace::{Laplace, Nodes};
use crate::partition::Ordered;
use crate::problem::{ANNULUS, exact, start};

fn annulus() -> Ordered {
    Ordered::new(&gmsh::read(ANNULUS).unwrap())
}

fn bits(nodes: &Nodes) -> Vec<u64> {
    nodes.values.iter().chain(&nodes.sums).map(|value| value.to_bits()).collect()
}

/// Values and their Laplacian, after some steps on this many ranks.
fn steps(
    mesh: &Ordered,
    (ranks, device): (usize, &str),
    value: impl Fn(usize) -> f64 + Sync,
    steps: usize,
) -> Nodes {
    let nodes = ranks::run(Some(ranks), Some(device), |rank| -> Result<Nodes> {
        let mut laplace = Laplace::new(rank, mesh, &value)?;
        for _ in 0..steps {
            laplace.step()?;
        }
        laplace.nodes()
    });
    nodes.unwrap().unwrap()
}

/// The Laplacian by a plain loop over triangles in this order.
fn plain(mesh: &Ordered, values: &[f64], order: impl Iterator<Item = usize>) -> Vec<f64> {
    let mut sums = vec![0.0; values.len()];
    for triangle in order {
        let corners = mesh.triangles[triangle];
        let side = |corner: usize| {
            let [next, last] = [1, 2].map(|by| mesh.nodes[corners[(corner + by) % 3]]);
            [next[1] - last[1], last[0] - next[0]]
        };
        let sides = [side(0), side(1), side(2)];
        let area = (sides[0][0] * sides[1][1] - sides[1][0] * sides[0][1]).abs() / 2.0;
        let mut gradient = [0.0; 2];
        for axis in [0, 1] {
            for corner in 0..3 {
                gradient[axis] += values[corners[corner]] * sides[corner][axis];
            }
        }
        for (node, side) in corners.into_iter().zip(sides) {
            sums[node] += (gradient[0] * side[0] + gradient[1] * side[1]) / (4.0 * area);
        }
    }
    sums
}

fn waves(mesh: &Ordered) -> impl Fn(usize) -> f64 {
    |node| {
        let [x, y] = mesh.nodes[node];
        (3.0 * x).sin() * (2.0 * y).cos() + 0.1 * x
    }
}

#[test]
fn the_laplacian_has_the_bits_of_a_plain_loop() {
    let (mesh, count) = (annulus(), annulus().triangles.len());
    let values: Vec<f64> = (0..mesh.nodes.len()).map(waves(&mesh)).collect();
    let expected = plain(&mesh, &values, 0..count);
    // The order matters, so that the comparison can fail.
    assert_ne!(expected, plain(&mesh, &values, (0..count).rev()));
    let expected = bits(&Nodes { values, sums: expected });
    // Each triangle alone, and ranks without triangles, too.
    for ranks in [1, 2, 3, 4, 5, 6, 13, count + 2] {
        let nodes = steps(&mesh, (ranks, "host:0?threads=1"), waves(&mesh), 0);
        assert!(bits(&nodes) == expected, "{ranks} ranks");
    }
}

#[test]
fn any_number_of_ranks_gives_the_same_bits() {
    let mesh = annulus();
    let expected = bits(&steps(&mesh, (1, "host"), start(&mesh, exact), 50));
    let devices = if cfg!(feature = "sim") { &["host", "sim?seed=5"][..] } else { &["host"] };
    for device in devices {
        for ranks in [1, 2, 4, 6] {
            let nodes = steps(&mesh, (ranks, device), start(&mesh, exact), 50);
            assert!(bits(&nodes) == expected, "{ranks} ranks on {device}");
        }
    }
}

#[test]
fn a_linear_function_is_found_exactly() {
    let mesh = annulus();
    let linear = |[x, y]: [f64; 2]| 1.0 + 2.0 * x - 3.0 * y;
    let found = steps(&mesh, (3, "host"), start(&mesh, linear), 400);
    for (place, value) in mesh.nodes.iter().zip(found.values) {
        assert!((value - linear(*place)).abs() < 1e-12, "{value} at {place:?}");
    }
}

#[test]
fn triangles_of_either_orientation_give_the_same() {
    let mut mesh = gmsh::read(ANNULUS).unwrap();
    let solve = |mesh: &Ordered| steps(mesh, (2, "host"), start(mesh, exact), 200);
    let one = Ordered::new(&mesh);
    let expected = solve(&one);
    mesh.triangles.iter_mut().step_by(3).for_each(|corners| corners.swap(0, 1));
    let other = Ordered::new(&mesh);
    let found = solve(&other);
    // Nodes are numbered in another order.
    for (place, value) in one.nodes.iter().zip(expected.values) {
        let node = other.nodes.iter().position(|other| other == place).unwrap();
        assert!((found.values[node] - value).abs() < 1e-12, "{place:?}");
    }
}

#[test]
fn each_rank_owns_the_nodes_of_which_it_is_the_lowest() {
    let mesh = annulus();
    for ranks in [1, 2, 4, 6, 400] {
        let mut lowest = vec![None; mesh.nodes.len()];
        let pieces: Vec<_> = (0..ranks).map(|rank| mesh.piece(rank, ranks)).collect();
        for (rank, piece) in pieces.iter().enumerate() {
            for node in mesh.triangles[piece.triangles.clone()].as_flattened() {
                lowest[*node].get_or_insert(rank);
            }
        }
        let owner = |node| pieces.iter().position(|piece| piece.nodes.contains(&node));
        let owners: Vec<_> = (0..mesh.nodes.len()).map(owner).collect();
        assert_eq!(owners, lowest, "{ranks} ranks");
        // As many triangles on each rank, or one more.
        let share = mesh.triangles.len() / ranks;
        assert!(pieces.iter().all(|piece| (share..=share + 1).contains(&piece.triangles.len())));
    }
}

#[test]
fn the_boundary_is_the_two_circles() {
    let mesh = annulus();
    for ([x, y], on_boundary) in mesh.nodes.iter().zip(&mesh.on_boundary) {
        let radius = x.hypot(*y);
        let is_on_circle = [1.0, 2.0].iter().any(|circle| (radius - circle).abs() < 1e-3);
        assert_eq!(*on_boundary, is_on_circle, "{x}, {y}");
    }
}

#[test]
fn a_step_sends_each_corner_whose_node_another_rank_owns_both_ways() {
    let mesh = annulus();
    let pieces = [0, 1, 2, 3].map(|rank| mesh.piece(rank, 4));
    let (mut messages, mut corners) = (0, 0);
    for rank in &pieces {
        let needed = mesh.triangles[rank.triangles.clone()].as_flattened();
        for owner in pieces.iter().filter(|owner| *owner != rank) {
            let shared = needed.iter().filter(|node| owner.nodes.contains(node)).count() as u64;
            messages += 2 * u64::from(shared > 0);
            corners += 2 * shared;
        }
    }
    assert!(corners > 0);
    let sent = ranks::run(Some(4), Some("host"), |rank| -> Result<[u64; 2]> {
        rank.sum(Laplace::new(rank, &mesh, |_| 0.0)?.sends())
    });
    // A message ends with a stamp of eight bytes.
    assert_eq!(sent.unwrap(), Some([messages, 8 * corners + 8 * messages]));
}
