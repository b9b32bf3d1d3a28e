//! Laplace's equation on one rank's piece of a mesh: the Laplacian over a forest, and Jacobi's method.

use std::sync::Arc;

use runtime::halo::{Combine, FieldSpec, Forest, ForestOptions};
use runtime::ranks::Rank;
use runtime::{DType, Kernel, Launch, Memory, Result, Stream, StreamOptions, args};

use crate::elements;
use crate::partition::{Ordered, Piece};

/// The part of Jacobi's step that is taken. On every mesh, steps up to this one converge: on each triangle, the
/// Laplacian over its diagonal has the eigenvalues 0, `a` and `3 - a`, so those of all triangles together are below 3.
const DAMPING: f64 = 2.0 / 3.0;

/// Values of nodes that this rank owns, and of the corners of its triangles. Nodes are roots, and corners are leaves.
#[derive(Debug)]
pub(crate) struct Laplace {
    stream: Stream,
    forest: Forest,
    /// All nodes of all ranks are leaves of rank 0.
    gather: Forest,
    contributions: Kernel,
    relax: Kernel,
    /// Of nodes.
    values: Memory<f64>,
    sums: Memory<f64>,
    /// The step for each sum: 0 on the boundary, where values are fixed.
    weights: Memory<f64>,
    /// Of corners: places are pairs.
    places: Memory<f64>,
    corners: Memory<f64>,
    added: Memory<f64>,
}

/// All nodes, by number.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Nodes {
    pub(crate) values: Vec<f64>,
    /// Of each node: the sum of what its triangles add to the Laplacian.
    pub(crate) sums: Vec<f64>,
}

/// Kernels on hosts divide their work themselves.
const LAUNCH: Launch = Launch::new([1, 1, 1], [1, 1, 1]);

impl Laplace {
    /// Begins with these values of nodes. Collective.
    pub(crate) fn new(rank: &Rank, mesh: &Ordered, value: impl Fn(usize) -> f64) -> Result<Self> {
        let (device, ranks) = (&rank.device, &rank.communicator);
        let Piece { triangles, nodes } = mesh.piece(rank.number(), ranks.size());
        let own = nodes.start as u64..nodes.end as u64;
        let corners = mesh.triangles[triangles].as_flattened();
        let needed: Vec<u64> = corners.iter().map(|node| *node as u64).collect();
        let fields = [FieldSpec::new("values", DType::F64, &[])?];
        let options = ForestOptions { reductions: vec![Combine::Sum], ..Default::default() };
        let forest = Forest::from_global(
            Arc::clone(ranks),
            own.clone(),
            &needed,
            &fields,
            device,
            &options,
        )?;

        let all = if rank.number() == 0 { 0..mesh.nodes.len() as u64 } else { 0..0 };
        let all: Vec<u64> = all.collect();
        let fields = ["values", "sums"].map(|name| FieldSpec::new(name, DType::F64, &[]));
        let fields = fields.into_iter().collect::<Result<Vec<_>>>()?;
        let options = ForestOptions::default();
        let gather = Forest::from_global(Arc::clone(ranks), own, &all, &fields, device, &options)?;

        let stream = device.stream_create(&StreamOptions::default())?;
        let module = device.module_load(&elements::module())?;
        let places: Vec<[f64; 2]> = corners.iter().map(|node| mesh.nodes[*node]).collect();
        let values: Vec<f64> = nodes.clone().map(value).collect();
        let mut laplace = Self {
            contributions: module.kernel("contributions")?,
            relax: module.kernel("relax")?,
            values: device.memory_from_slice(&stream, &values)?,
            sums: device.memory_allocate(nodes.len())?,
            weights: device.memory_allocate(nodes.len())?,
            places: device.memory_from_slice(&stream, places.as_flattened())?,
            corners: device.memory_allocate(corners.len())?,
            added: device.memory_allocate(corners.len())?,
            stream,
            forest,
            gather,
        };
        let diagonals = module.kernel("diagonals")?;
        let args = args![&mut laplace.added, &laplace.places];
        diagonals.launch_checked(&laplace.stream, &LAUNCH, args)?;
        laplace.reduce()?;
        let diagonals = laplace.sums.to_vec(&laplace.stream)?;
        let weights = nodes
            .zip(diagonals)
            .map(|(node, diagonal)| if mesh.on_boundary[node] { 0.0 } else { DAMPING / diagonal });
        let weights: Vec<f64> = weights.collect();
        laplace.weights.copy_from_slice(&laplace.stream, &weights)?;
        Ok(laplace)
    }

    /// Sets the sums to the Laplacian of the values: of each node `i`, the integral of `grad u . grad p(i)`.
    fn apply(&mut self) -> Result<()> {
        let fields = &mut [[self.values.view().into(), self.corners.view_mut().into()]];
        self.forest.broadcast(&self.stream, fields)?;
        let args = args![&mut self.added, &self.corners, &self.places];
        self.contributions.launch_checked(&self.stream, &LAUNCH, args)?;
        self.reduce()
    }

    /// Sets the sums to those of what triangles add. A reduction begins with the value of the root, here 0.
    fn reduce(&mut self) -> Result<()> {
        self.sums.fill(&self.stream, 0.0)?;
        let fields = &mut [[self.sums.view_mut().into(), self.added.view().into()]];
        self.forest.reduce(&self.stream, fields, Combine::Sum)
    }

    /// A damped step of Jacobi's method. Collective.
    pub(crate) fn step(&mut self) -> Result<()> {
        self.apply()?;
        let args = args![&mut self.values, &self.sums, &self.weights];
        self.relax.launch_checked(&self.stream, &LAUNCH, args)
    }

    /// The values, and their Laplacian, on rank 0. Other ranks get nothing. Collective.
    pub(crate) fn nodes(&mut self) -> Result<Nodes> {
        self.apply()?;
        let (stream, leaves) = (&self.stream, self.gather.size().leaves);
        let device = self.gather.device();
        let [mut values, mut sums] =
            [device.memory_allocate::<f64>(leaves)?, device.memory_allocate(leaves)?];
        let fields = &mut [
            [self.values.view().into(), values.view_mut().into()],
            [self.sums.view().into(), sums.view_mut().into()],
        ];
        self.gather.broadcast(stream, fields)?;
        Ok(Nodes { values: values.to_vec(stream)?, sums: sums.to_vec(stream)? })
    }

    /// The numbers of messages and of their bytes that this rank sends in a step: to other ranks' corners, and to other
    /// ranks' nodes.
    pub(crate) fn sends(&self) -> [u64; 2] {
        let messages = self.forest.sends().chain(self.forest.receives());
        messages.fold([0; 2], |[count, all], (_, bytes)| [count + 1, all + bytes as u64])
    }
}
