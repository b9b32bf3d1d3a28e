//! Ranks that call different methods of one exchange.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod devices;
mod ring;

use std::sync::{Arc, Barrier};
use std::time::Duration;

use devices::{host, sim};
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{
    Combine, Dim, Error, ErrorKind, Field, FieldSpec, HaloExchange, HaloOptions, Quantity, Result,
    Staging,
};
use ring::ring;
use runtime_core::{DType, Device, Stream};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Method {
    Exchange,
    Start,
    Reduce(Combine),
    Shared,
}

use Method::{Exchange, Reduce, Shared, Start};

const METHODS: [Method; 7] = [
    Exchange,
    Start,
    Reduce(Combine::Replace),
    Reduce(Combine::Sum),
    Reduce(Combine::Min),
    Reduce(Combine::Max),
    Shared,
];

const REFUSED: [Option<ErrorKind>; 2] = [Some(ErrorKind::InvalidArgument); 2];

impl Method {
    fn call(
        self,
        halo: &mut HaloExchange,
        stream: &Stream,
        fields: &mut [Field<'_>],
    ) -> Result<()> {
        match self {
            Exchange => halo.exchange(stream, fields),
            Start => halo.start(stream, fields)?.finish(),
            Reduce(combine) => halo.reduce(stream, fields, combine),
            Shared => halo.synchronize_shared(stream, fields),
        }
    }

    /// Whether ranks may call one and the other for one exchange.
    fn fits(self, other: Self) -> bool {
        let fills = |method| matches!(method, Exchange | Start);
        self == other || fills(self) && fills(other)
    }
}

/// Two ranks call these methods. Returns the first error of each rank. Messages of all methods have the same length.
fn errors(
    device: &Device,
    options: &HaloOptions,
    methods: [&[Method]; 2],
) -> Vec<Option<ErrorKind>> {
    let both = Barrier::new(2);
    let ranks = ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let dims = [Dim::axis(0, 3).staggered().halo(1, 0)];
        let quantities = [Quantity::scalar(FieldSpec::new("u", DType::F64, &dims).unwrap())];
        let ranks = Arc::new(ranks);
        let mut halo = HaloExchange::new(ranks, &ring(2), &quantities, device, options).unwrap();
        let stream = device.stream_create(&Default::default()).unwrap();
        let mut values = device.memory_from_slice(&stream, &[1.0; 5]).unwrap();
        let mut call = |method: &Method| {
            method.call(&mut halo, &stream, &mut [values.view_mut().into()]).map_err(|e| e.kind())
        };
        let called = methods[rank].iter().try_for_each(&mut call);
        // A rank that leaves earlier could be the error of the other.
        both.wait();
        called.err()
    });
    ranks.unwrap()
}

fn options(staging: Staging) -> HaloOptions {
    let timeout = Duration::MAX;
    HaloOptions { timeout, staging, direct: false, ..Default::default() }
}

#[test]
fn ranks_that_exchange_by_different_methods_get_an_error() {
    for device in [host(), sim(3)] {
        for staging in [Staging::Pinned, Staging::Device] {
            for one in METHODS {
                for two in METHODS {
                    let errors = errors(&device, &options(staging), [&[one], &[two]]);
                    if one.fits(two) {
                        assert_eq!(errors, [None, None], "{one:?}, {two:?}");
                    } else {
                        assert_eq!(errors, REFUSED, "{one:?}, {two:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn ranks_that_call_two_methods_in_different_orders_get_an_error() {
    for [one, two] in [
        [Exchange, Shared],
        [Start, Reduce(Combine::Sum)],
        [Reduce(Combine::Min), Reduce(Combine::Max)],
    ] {
        let errors = errors(&sim(3), &options(Staging::Pinned), [&[one, two], &[two, one]]);
        assert_eq!(errors, REFUSED, "{one:?}, {two:?}");
    }
}

/// The rank that synchronizes shared points has none, sends nothing, and goes on to its next exchange.
#[test]
fn a_rank_that_does_not_read_is_an_error_after_it_has_gone_on() {
    let device = sim(3);
    let ranks = ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let options = HaloOptions { timeout: Duration::MAX, ..Default::default() };
        let mut halo = ring::join(Arc::new(ranks), &device, &options).unwrap();
        let stream = device.stream_create(&Default::default()).unwrap();
        let mut values = ring::values(rank, &stream);
        let methods: &[Method] = [&[Exchange][..], &[Shared, Shared, Exchange]][rank];
        let mut call =
            |method: &Method| method.call(&mut halo, &stream, &mut [values.view_mut().into()]);
        methods.iter().try_for_each(&mut call).unwrap_err()
    });
    let kinds: Vec<ErrorKind> = ranks.unwrap().iter().map(Error::kind).collect();
    assert_eq!(kinds, [ErrorKind::Conflict, ErrorKind::PeerLost]);
}
