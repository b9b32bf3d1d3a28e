//! Arrays whose ghosts accesses refresh by a halo exchange of ranks.
#![cfg(all(feature = "array", feature = "halo", feature = "host"))]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "lends an exchange a view of more than it writes")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ndarray::{Array1, Ix1};
use runtime::array::{ArrayBuffer, PartStatus, Partition, Parts, Reduce};
use runtime::halo::communicator::{Communicator, ThreadCommunicator};
use runtime::halo::{
    Combine, Dim, Field, FieldSpec, HaloExchange, HaloOptions, Quantity, Topology,
};
use runtime::host::HostDevice;
use runtime::{DType, Device, ErrorKind, Result};

type Line = ArrayBuffer<f64, Ix1>;

/// Three cells on each rank of a ring, with a ghost at either end.
fn line(
    ranks: ThreadCommunicator,
    device: &Device,
    direct: bool,
    timeout: Duration,
) -> Result<Line> {
    let size = ranks.size();
    let topology = Topology::cartesian(&[3 * size], &[size], &[true])?;
    let cells = FieldSpec::new("cells", DType::F64, &[Dim::axis(0, 3).halo(1, 1)])?;
    let options = HaloOptions { direct, timeout, ..Default::default() };
    let quantities = [Quantity::scalar(cells)];
    let mut halo = HaloExchange::new(Arc::new(ranks), &topology, &quantities, device, &options)?;
    let partition = Partition::with_ghosts(&[5], &[(1, 1)])?;
    let mut array = ArrayBuffer::from_array_with(Array1::zeros(5), partition)?;
    array.on_stale_ghosts(&device.default_stream(), move |exchange| {
        let (stream, ghosts) = (exchange.stream(), exchange.partition().ghosts());
        halo.set_token(exchange.sequence());
        let reduction = exchange.reduction();
        // SAFETY: the exchange fills these ghosts from owned values, or adds them to owned values.
        let (own, all) = unsafe { exchange.whole(ghosts)? };
        match reduction {
            None => halo.exchange(stream, &mut [Field::split(own, all)?]),
            Some(_) => halo.reduce(stream, &mut [all.into()], Combine::Sum),
        }
    })?;
    Ok(array)
}

/// Runs `f` on ranks with their arrays, whether they read each other's fields or send messages.
fn on_ranks(sizes: &[usize], timeout: Duration, f: impl Fn(usize, usize, Line) + Sync) {
    let device = Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap();
    for size in sizes {
        for direct in [true, false] {
            ThreadCommunicator::run(*size, |ranks| {
                let rank = ranks.rank();
                f(rank, *size, line(ranks, &device, direct, timeout).unwrap());
            })
            .unwrap();
        }
    }
}

fn fill(array: &mut Line, rank: usize, step: usize) {
    array.write_host().unwrap().fill((100 * step + rank) as f64);
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn reads_fill_ghosts_from_other_ranks() {
    on_ranks(&[1, 2, 4], LONG, |rank, size, mut array| {
        for step in 0..4 {
            fill(&mut array, rank, step);
            let of = |rank: usize| (100 * step + rank % size) as f64;
            let own = of(rank);
            for _ in 0..2 {
                let found = array.read_host().unwrap().to_vec();
                assert_eq!(found, [of(rank + size - 1), own, own, own, of(rank + 1)]);
            }
        }
        assert_eq!(array.transfers().refreshes()[0].count, 4);
    });
}

#[test]
fn reads_add_contributions_of_other_ranks() {
    on_ranks(&[1, 2, 4], LONG, |rank, _, mut array| {
        fill(&mut array, rank, 0);
        let mut all = array.accumulate_host(Reduce::Sum).unwrap();
        all.iter_mut().for_each(|value| *value += 10.0);
        all.commit().unwrap();
        let found = array.read_host().unwrap().to_vec();
        let own = rank as f64 + 10.0;
        assert_eq!(found[1..4], [own + 10.0, own, own + 10.0]);
    });
}

/// One rank writes once more than the others, without `write_local`.
#[test]
fn ranks_that_differ_in_their_writes_get_an_error() {
    on_ranks(&[2], LONG, |rank, _, mut array| {
        fill(&mut array, rank, 0);
        if rank == 0 {
            fill(&mut array, rank, 1);
        }
        let error = array.read_host().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        for part in ["token 1", "token 2", "broadcast of part", "read"] {
            assert!(error.message().contains(part), "{part:?} in {error}");
        }
        // No wrong ghosts are accepted, and the rank's own values are there.
        assert_ne!(array.status(1), PartStatus::Valid);
        assert_eq!(array.part(Parts::one(0)).unwrap().read_host().unwrap().len(), 3);
    });
}

/// One rank does not exchange at all.
#[test]
fn a_rank_that_finds_ghosts_valid_lets_others_time_out() {
    on_ranks(&[2], Duration::from_millis(200), |rank, _, mut array| {
        fill(&mut array, rank, 0);
        array.read_host().unwrap();
        if rank == 0 {
            fill(&mut array, rank, 1);
            let error = array.read_host().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        } else {
            array.read_host().unwrap();
            thread::sleep(Duration::from_millis(600));
        }
    });
}

#[test]
fn a_rank_that_writes_alone_marks_ghosts_as_stale_on_all_ranks() {
    on_ranks(&[2, 4], LONG, |rank, size, mut array| {
        fill(&mut array, rank, 0);
        array.read_host().unwrap();
        let own = array.partition().owned();
        if rank == 0 {
            array
                .write_local(own, |part| {
                    part.write_host()?.fill(50.0);
                    Ok(())
                })
                .unwrap();
            let error = array.read_host().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
        }
        array.mark_stale();
        let found = array.read_host().unwrap().to_vec();
        let of = |rank: usize| if rank.is_multiple_of(size) { 50.0 } else { (rank % size) as f64 };
        assert_eq!((found[0], found[4]), (of(rank + size - 1), of(rank + 1)));
    });
}
