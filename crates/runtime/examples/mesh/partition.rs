//! Divides a mesh among ranks, so that sums over triangles have the same bits for any number of ranks.
//!
//! A sum of floating-point numbers depends on the order of its terms. This order must not depend on the ranks:
//!
//! 1. Bisection goes on down to single triangles, so it puts all triangles in one order. Ranks take no part in it. The
//!    number of ranks only says where this order is cut: each rank has a contiguous piece, and pieces follow one
//!    another by rank.
//! 2. A rank's leaves are the corners of its triangles, in the order of the triangles.
//! 3. A forest adds the leaves of a root by rank, then by leaf. By 1 and 2, this is the order of the corners in the
//!    uncut order, wherever the cuts are. So each node has the same terms in the same order on any number of ranks.
//!
//! Nodes are numbered as the ordered triangles name them first. The lowest rank with a triangle of a node is the one
//! that names it first, and owns it. So the nodes of a rank are a range of numbers, as `Forest::from_global` needs it.

use std::collections::HashMap;
use std::ops::Range;

use crate::gmsh::Mesh;

/// A mesh in the order of bisection.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    /// The nodes of the triangles, by number. Nodes without a triangle have no number.
    pub(crate) nodes: Vec<[f64; 2]>,
    /// Whether a node is on the boundary: on a side that only one triangle has.
    pub(crate) on_boundary: Vec<bool>,
    /// The three nodes of each triangle.
    pub(crate) triangles: Vec<[usize; 3]>,
}

/// What one rank has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    /// Its triangles, as places in [`Ordered::triangles`].
    pub(crate) triangles: Range<usize>,
    /// The numbers of the nodes that it owns.
    pub(crate) nodes: Range<usize>,
}

impl Ordered {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let mut numbers = vec![None; mesh.nodes.len()];
        let mut nodes = Vec::new();
        let mut number = |node: usize| {
            *numbers[node].get_or_insert_with(|| {
                nodes.push(mesh.nodes[node]);
                nodes.len() - 1
            })
        };
        let triangles = order(mesh).into_iter().map(|at| mesh.triangles[at].map(&mut number));
        let triangles: Vec<_> = triangles.collect();

        let mut sides = HashMap::new();
        for side in triangles.iter().flat_map(|[a, b, c]| [[a, b], [b, c], [c, a]]) {
            *sides.entry([*side[0].min(side[1]), *side[0].max(side[1])]).or_insert(0_usize) += 1;
        }
        let mut on_boundary = vec![false; nodes.len()];
        for (side, triangles) in sides {
            if triangles == 1 {
                side.into_iter().for_each(|node| on_boundary[node] = true);
            }
        }
        Self { nodes, on_boundary, triangles }
    }

    /// What a rank has, of this many. It may be nothing if there are more ranks than triangles.
    pub(crate) fn piece(&self, rank: usize, ranks: usize) -> Piece {
        // As `u128`, because the product may not fit in `usize`.
        let cut = |rank: usize| {
            let cut = self.triangles.len() as u128 * rank as u128 / ranks as u128;
            usize::try_from(cut).unwrap_or(self.triangles.len())
        };
        let triangles = cut(rank)..cut(rank + 1);
        // Numbers are given in order, so those before a cut are all up to the greatest.
        let named = |cut: usize| {
            let named = self.triangles[..cut].as_flattened();
            named.iter().max().map_or(0, |greatest| greatest + 1)
        };
        Piece { nodes: named(triangles.start)..named(triangles.end), triangles }
    }
}

/// The triangles in the order of recursive coordinate bisection of their centres.
fn order(mesh: &Mesh) -> Vec<usize> {
    // Dividing first keeps the sums finite.
    let centres = mesh.triangles.iter().map(|corners| {
        let corners = corners.map(|node| mesh.nodes[node]);
        [0, 1].map(|axis| corners.iter().map(|place| place[axis] / 3.0).sum())
    });
    let centres: Vec<[f64; 2]> = centres.collect();
    let mut order: Vec<usize> = (0..centres.len()).collect();
    bisect(&mut order, &centres);
    order
}

/// Sorts along the axis of greater extent, and does the same with each half.
fn bisect(part: &mut [usize], centres: &[[f64; 2]]) {
    if part.len() < 2 {
        return;
    }
    let [x, y] = [0, 1].map(|axis| {
        let along = part.iter().map(|triangle| centres[*triangle][axis]);
        let [low, high] = [f64::min, f64::max].map(|f| along.clone().reduce(f).unwrap_or(0.0));
        high - low
    });
    let axis = usize::from(y > x);
    // Where centres are equal, the file decides.
    let by = |a: &usize, b: &usize| centres[*a][axis].total_cmp(&centres[*b][axis]).then(a.cmp(b));
    part.sort_unstable_by(by);
    let (low, high) = part.split_at_mut(part.len() / 2);
    bisect(low, centres);
    bisect(high, centres);
}
