//! Exchanges with a token: ranks whose tokens differ get an error, and no values of each other.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod ring;

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use backend_host::HostDevice;
use backend_sim::{SimConfig, SimDevice};
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{Combine, ErrorKind, HaloExchange, HaloOptions, Result, Staging};
use ring::{exchange, expected, join, values};
use runtime_core::{Device, Memory, Stream};

const LONG: Duration = Duration::from_secs(60);

fn devices() -> [Device; 2] {
    let sim = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
    [Device::new(HostDevice::with_threads(0, 2).unwrap()).unwrap(), sim]
}

fn options(direct: bool, staging: Staging, timeout: Duration) -> HaloOptions {
    HaloOptions { direct, staging, timeout, ..Default::default() }
}

/// Every path of values between ranks.
const PATHS: [(bool, Staging); 3] =
    [(true, Staging::Auto), (false, Staging::Pinned), (false, Staging::Device)];

#[test]
fn ranks_with_equal_tokens_exchange() {
    for device in devices() {
        for ((direct, staging), ranks) in
            PATHS.into_iter().flat_map(|path| [(path, 1), (path, 2), (path, 4)])
        {
            ThreadCommunicator::run(ranks, |communicator| {
                let (rank, stream) = (communicator.rank(), device.default_stream());
                let options = options(direct, staging, LONG);
                let mut halo = join(Arc::new(communicator), &device, &options).unwrap();
                for token in [0, 7, u64::MAX, 7] {
                    halo.set_token(token);
                    let mut field = values(rank, &stream);
                    exchange(&mut halo, &stream, &mut field).unwrap();
                    assert_eq!(field.to_vec(&stream).unwrap(), expected(rank, ranks));
                }
            })
            .unwrap();
        }
    }
}

#[test]
fn ranks_with_other_tokens_get_an_error_that_names_both_and_no_values() {
    type Method = fn(&mut HaloExchange, &Stream, &mut Memory<f64>) -> Result<()>;
    let methods: [Method; 3] = [
        exchange,
        |halo, stream, field| halo.start(stream, &mut [field.view_mut().into()])?.finish(),
        |halo, stream, field| halo.reduce(stream, &mut [field.view_mut().into()], Combine::Sum),
    ];
    for device in devices() {
        for ((direct, staging), method) in
            PATHS.into_iter().flat_map(|path| methods.map(|method| (path, method)))
        {
            ThreadCommunicator::run(2, |communicator| {
                let (rank, stream) = (communicator.rank(), device.default_stream());
                let options = options(direct, staging, LONG);
                let mut halo = join(Arc::new(communicator), &device, &options).unwrap();
                halo.set_token(1000 + rank as u64);
                let mut field = values(rank, &stream);
                let before = field.to_vec(&stream).unwrap();
                let start = Instant::now();
                let error = method(&mut halo, &stream, &mut field).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                assert!(start.elapsed() < LONG / 2, "{error}");
                for part in ["token 1000", "token 1001", &format!("rank {rank}")] {
                    assert!(error.message().contains(part), "{part:?} in {error}");
                }
                assert_eq!(field.to_vec(&stream).unwrap(), before);
                halo.reset().unwrap();
                halo.set_token(5);
                exchange(&mut halo, &stream, &mut field).unwrap();
                assert_eq!(field.to_vec(&stream).unwrap(), expected(rank, 2));
            })
            .unwrap();
        }
    }
}

/// The ranks on both sides of the one with another token learn of it; the fourth has no values of it.
#[test]
fn one_rank_with_another_token_is_found_by_its_neighbours() {
    for device in devices() {
        for (direct, staging) in PATHS {
            let end = Barrier::new(4);
            ThreadCommunicator::run(4, |communicator| {
                let (rank, stream) = (communicator.rank(), device.default_stream());
                // Only rank 2 waits until its time is over.
                let timeout = if rank == 2 { Duration::from_secs(2) } else { LONG };
                let options = options(direct, staging, timeout);
                let mut halo = join(Arc::new(communicator), &device, &options).unwrap();
                halo.set_token(u64::from(rank == 0));
                let mut field = values(rank, &stream);
                let result = exchange(&mut halo, &stream, &mut field);
                // A rank that has left would be another reason to fail.
                end.wait();
                match result {
                    Ok(()) => {
                        assert_eq!(rank, 2);
                        assert_eq!(field.to_vec(&stream).unwrap(), expected(2, 4));
                    }
                    Err(error) if rank == 2 => {
                        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                        assert!(error.message().contains("token 1"), "{error}");
                        assert!(error.message().contains("token 0"), "{error}");
                    }
                }
                stream.synchronize().unwrap();
            })
            .unwrap();
        }
    }
}

/// A rank that comes late learns of it, although other exchanges have failed in the same way meanwhile.
#[test]
fn a_late_rank_gets_the_error_of_each_exchange_with_another_token() {
    const EXCHANGES: usize = 3;
    for device in devices() {
        let (begun, end) = (Barrier::new(3), Barrier::new(3));
        ThreadCommunicator::run(3, |communicator| {
            let (rank, stream) = (communicator.rank(), device.default_stream());
            let communicator: Arc<dyn Communicator> = Arc::new(communicator);
            let mut halos = [const { None }; EXCHANGES].map(|_: Option<()>| {
                let options = options(true, Staging::Auto, LONG / 6);
                join(Arc::clone(&communicator), &device, &options).unwrap()
            });
            let mut field = values(rank, &stream);
            if rank == 2 {
                begun.wait();
            }
            let failed = halos.each_mut().map(|halo| {
                halo.set_token(u64::from(rank == 0));
                exchange(halo, &stream, &mut field)
            });
            if rank < 2 {
                begun.wait();
            }
            end.wait();
            for error in failed.map(Result::unwrap_err) {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                assert!(error.message().contains("token 1"), "{error}");
            }
            stream.synchronize().unwrap();
        })
        .unwrap();
    }
}
