//! A heat equation on several ranks, compared with a plain loop.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

#[path = "../../halo/tests/altered/mod.rs"]
mod altered;
#[path = "../../halo/tests/devices/mod.rs"]
#[macro_use]
mod devices;
mod messages;

use std::mem::swap;
use std::sync::Arc;

use halo::communicator::{Communicator, ThreadCommunicator};
use messages::mostly_by_messages;
use runtime_core::Device;
use stencil::{Boundary, Grid, In, Out, Result, stencil};

/// One explicit step of dT/dt = κ ∇²T.
#[stencil]
fn diffuse(next: Out<f64, 2>, t: In<f64, 2>, ax: f64, ay: f64) {
    let c = t.at(0, 0);
    next.set(
        c + ax * (t.at(-1, 0) - 2.0 * c + t.at(1, 0)) + ay * (t.at(0, -1) - 2.0 * c + t.at(0, 1)),
    );
}

/// The indices of points, and their values.
type Values = Vec<([usize; 2], f64)>;

const N: [usize; 2] = [23, 17];

fn initial([i, j]: [usize; 2]) -> f64 {
    (i as f64 * 0.3).sin() + (j as f64 * 0.7).cos()
}

fn run(ranks: Arc<dyn Communicator>, device: &Device, steps: usize) -> Result<(Values, u64)> {
    let stream = device.default_stream();
    let grid = Grid::cartesian(N).periodic([true, false]).ranks(ranks).build(device)?;
    let mut t = grid.field("T").boundary(Boundary::Mirror).from_fn(initial)?;
    let mut next = t.like("next")?;
    for _ in 0..steps {
        diffuse(&mut next, &t, 0.1, 0.2).run(&stream)?;
        swap(&mut t, &mut next);
    }
    let first = t.first();
    let values = t
        .read_host()?
        .indexed_iter()
        .map(|(at, value)| ([first[0] + at[0], first[1] + at[1]], *value))
        .collect();
    Ok((values, grid.exchanges()))
}

fn plain(steps: usize) -> Vec<f64> {
    let [n, m] = N;
    let mut t: Vec<f64> = (0..n * m).map(|at| initial([at / m, at % m])).collect();
    for _ in 0..steps {
        let at = |i: usize, j: usize| t[i * m + j];
        let mut next = vec![0.0; n * m];
        for i in 0..n {
            for j in 0..m {
                let c = at(i, j);
                let (west, east) = (at((i + n - 1) % n, j), at((i + 1) % n, j));
                let (south, north) = (at(i, j.saturating_sub(1)), at(i, (j + 1).min(m - 1)));
                next[i * m + j] =
                    c + 0.1 * (west - 2.0 * c + east) + 0.2 * (south - 2.0 * c + north);
            }
        }
        t = next;
    }
    t
}

fn all_ranks_have_the_bits_of_a_plain_loop(device: &Device) {
    let expected = plain(7);
    for ranks in [1, 2, 3, 4, 6] {
        let results =
            ThreadCommunicator::run(ranks, |rank| run(mostly_by_messages(rank), device, 7))
                .unwrap();
        let mut count = 0;
        for result in results {
            let (values, exchanges) = result.unwrap();
            assert_eq!(exchanges, 7);
            for ([i, j], value) in values {
                let expected = expected[i * N[1] + j];
                assert_eq!(value.to_bits(), expected.to_bits(), "{i} {j} of {ranks} ranks");
                count += 1;
            }
        }
        assert_eq!(count, expected.len());
    }
}

on_all_devices!(all_ranks_have_the_bits_of_a_plain_loop);
