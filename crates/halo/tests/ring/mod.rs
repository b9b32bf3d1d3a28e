//! A ring of ranks with three cells on each, and one ghost cell at each end.
#![allow(dead_code, reason = "each test crate uses what it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

use std::sync::Arc;

use halo::communicator::Communicator;
use halo::{Dim, FieldSpec, HaloExchange, HaloOptions, Quantity, Result, Topology};
use runtime_core::{DType, Device, Memory, Stream};

pub(crate) fn ring(ranks: usize) -> Topology {
    Topology::cartesian(&[3 * ranks], &[ranks], &[true]).unwrap()
}

pub(crate) fn spec(name: &str) -> FieldSpec {
    FieldSpec::new(name, DType::F64, &[Dim::axis(0, 3).halo(1, 1)]).unwrap()
}

/// The exchange of one field.
pub(crate) fn join(
    ranks: Arc<dyn Communicator>,
    device: &Device,
    options: &HaloOptions,
) -> Result<HaloExchange> {
    let topology = ring(ranks.size());
    HaloExchange::new(ranks, &topology, &[Quantity::scalar(spec("f"))], device, options)
}

/// The values before an exchange.
pub(crate) fn values(rank: usize, stream: &Stream) -> Memory<f64> {
    let first = 3.0 * rank as f64;
    let values = [-1.0, first, first + 1.0, first + 2.0, -1.0];
    stream.device().memory_from_slice(stream, &values).unwrap()
}

/// The values after an exchange.
pub(crate) fn expected(rank: usize, ranks: usize) -> Vec<f64> {
    let cells = 3 * ranks;
    (0..5).map(|i| ((3 * rank + cells + i - 1) % cells) as f64).collect()
}

pub(crate) fn exchange(
    halo: &mut HaloExchange,
    stream: &Stream,
    values: &mut Memory<f64>,
) -> Result<()> {
    halo.exchange(stream, &mut [values.view_mut().into()])
}
