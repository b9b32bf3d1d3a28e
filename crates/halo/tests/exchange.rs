//! Exchanges over time: the order of streams, the arrival of messages, failures, and recovery from them.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]
#![expect(unsafe_code, reason = "lends parts of a memory")]

mod altered;
mod common;
mod devices;
mod ring;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use altered::Altered;
use backend_sim::SimHandle;
use common::world::{Cube, Flat};
use common::{Case, Shape, Store};
use devices::{host, sim};
use halo::communicator::{
    Communicator, Fault, Faults, FaultyCommunicator, Storage, ThreadCommunicator,
};
use halo::{
    Dim, Error, ErrorKind, Field, FieldSpec, HaloExchange, HaloOptions, HaloTransformer, Kind,
    Link, Messages, MissingCorners, Quantity, Reach, Result, Side, Staging, Symmetry, Topology,
};
use ring::{exchange, expected, join, ring, spec, values};
use runtime_core::{DType, Device, Element, Grid, HostModule, Launch, Stream, args, record};

/// Runs `f` on each rank of a ring. Each rank has its own device.
fn on_ring<R: Send>(
    ranks: usize,
    options: &HaloOptions,
    f: impl Fn(usize, HaloExchange, Stream) -> R + Sync,
) -> Vec<R> {
    ThreadCommunicator::run(ranks, |communicator| {
        let rank = communicator.rank();
        let device = sim(rank as u64);
        let halo = join(Arc::new(communicator), &device, options).unwrap();
        f(rank, halo, device.default_stream())
    })
    .unwrap()
}

/// Waits until the flag is set, with a time limit.
fn wait_for(flag: &AtomicBool) {
    let start = Instant::now();
    while !flag.load(Ordering::Acquire) && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

record! {
    #[derive(Debug, Default, PartialEq)]
    struct Cell {
        flow: [f32; 2],
        kind: u32,
    }
}

/// Also records of one name are different if their fields are.
mod other {
    use runtime_core::{DType, Element, record};

    record! {
        struct Cell {
            flow: [i32; 2],
            kind: u32,
        }
    }

    pub(crate) const CELL: DType = <Cell as Element>::DTYPE;
}

fn cells(ranks: ThreadCommunicator, dtype: DType) -> Result<(HaloExchange, Device)> {
    let device = sim(ranks.rank() as u64);
    let topology = Topology::cartesian(&[2 * ranks.size(), 3], &[ranks.size(), 1], &[true; 2])?;
    let dims = [Dim::axis(0, 2).halo(1, 1), Dim::axis(1, 3).halo(1, 1)];
    let fields = [FieldSpec::new("c", dtype, &dims)?, FieldSpec::new("h", DType::U8, &dims)?];
    let options = HaloOptions { timeout: Duration::from_secs(20), ..Default::default() };
    let fields = fields.map(Quantity::scalar);
    Ok((HaloExchange::new(Arc::new(ranks), &topology, &fields, &device, &options)?, device))
}

#[test]
fn records_are_exchanged_beside_numbers() {
    const SHAPE: [usize; 2] = [4, 5];
    let halos = ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let (mut halo, device) = cells(ranks, Cell::DTYPE).unwrap();
        let stream = device.default_stream();
        let cell = |i: usize, j: usize| {
            let (i, j) = ((2 * rank + i + 3) % 4, (j + 2) % 3);
            Cell { flow: [i as f32, j as f32], kind: (i * 3 + j) as u32 }
        };
        let inside = |i: usize, j: usize| (1..3).contains(&i) && (1..4).contains(&j);
        let all = || (0..SHAPE[0]).flat_map(|i| (0..SHAPE[1]).map(move |j| (i, j)));
        let start = |(i, j)| if inside(i, j) { cell(i, j) } else { Cell::default() };
        let start: Vec<Cell> = all().map(start).collect();
        let bytes: Vec<u8> = start.iter().map(|cell| cell.kind as u8).collect();
        let mut memory = device.memory_from_slice(&stream, &start).unwrap();
        let mut heights = device.memory_from_slice(&stream, &bytes).unwrap();
        let cells = memory.view_mut().reshape(&SHAPE).unwrap();
        let view = heights.view_mut().reshape(&SHAPE).unwrap();
        halo.exchange(&stream, &mut [cells.into(), view.into()]).unwrap();
        let expected: Vec<Cell> = all().map(|(i, j)| cell(i, j)).collect();
        assert_eq!(memory.to_vec(&stream).unwrap(), expected);
        let kinds: Vec<u8> = expected.iter().map(|cell| cell.kind as u8).collect();
        assert_eq!(heights.to_vec(&stream).unwrap(), kinds);
    });
    halos.unwrap();
}

#[test]
fn ranks_whose_records_have_other_fields_are_refused() {
    let errors = ThreadCommunicator::run(2, |ranks| {
        let dtype = [Cell::DTYPE, other::CELL][ranks.rank()];
        cells(ranks, dtype).map(drop).unwrap_err()
    });
    for error in errors.unwrap() {
        assert!(error.message().contains("Cell { flow: i32 × 2, kind: u32 }"), "{error}");
    }
}

#[test]
fn start_does_not_block_host() {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    fn held_up(_: &Grid<'_>, x: &mut [f64]) {
        let start = Instant::now();
        while STARTED.load(Ordering::Acquire) < 2 && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_micros(200));
        }
        x[1] += 100.0;
        x[3] += 100.0;
    }
    on_ring(2, &HaloOptions::default(), |rank, mut halo, stream| {
        let module =
            stream.device().module_load(&HostModule::new().with("held_up", held_up)).unwrap();
        let kernel = module.kernel("held_up").unwrap();
        let mut values = values(rank, &stream);
        kernel.launch_checked(&stream, &Launch::cover(1, 1), args![values.view_mut()]).unwrap();
        let mut fields = [values.view_mut().into()];
        let mut flight = halo.start(&stream, &mut fields).unwrap();
        assert!(!flight.poll().unwrap(), "packed before the kernel");
        assert!(!stream.is_done().unwrap(), "start waited for the kernel");
        STARTED.fetch_add(1, Ordering::AcqRel);
        flight.finish().unwrap();
        let mut expected = expected(rank, 2);
        // wait_for_producer_stream: the values that the kernel wrote have arrived.
        [0, 1, 3, 4].into_iter().for_each(|i| expected[i] += 100.0);
        assert_eq!(values.to_vec(&stream).unwrap(), expected);
    });
}

#[test]
fn wait_for_producer_stream() {
    fn slow(_: &Grid<'_>, x: &mut [f64]) {
        std::thread::sleep(Duration::from_millis(5));
        x.iter_mut().for_each(|x| *x += 10.0);
    }
    on_ring(2, &HaloOptions::default(), |rank, mut halo, stream| {
        let module = stream.device().module_load(&HostModule::new().with("slow", slow)).unwrap();
        let kernel = module.kernel("slow").unwrap();
        let mut values = values(rank, &stream);
        for step in 1..=5 {
            kernel.launch_checked(&stream, &Launch::cover(1, 1), args![values.view_mut()]).unwrap();
            exchange(&mut halo, &stream, &mut values).unwrap();
            let expected: Vec<f64> =
                expected(rank, 2).iter().map(|x| x + 10.0 * f64::from(step)).collect();
            assert_eq!(values.to_vec(&stream).unwrap(), expected);
        }
    });
}

/// The two exchanges share staging memory.
#[test]
fn launches_come_after_those_on_other_streams() {
    static OPEN: AtomicBool = AtomicBool::new(false);
    fn gate(_: &Grid<'_>, _: &mut [f64]) {
        wait_for(&OPEN);
    }
    let device = sim(1);
    let module = device.module_load(&HostModule::new().with("gate", gate)).unwrap();
    let kernel = module.kernel("gate").unwrap();
    let [one, two] = [(); 2].map(|()| device.stream_create(&Default::default()).unwrap());
    let [mut first, mut second] = [values(0, &one), values(0, &two)];
    let quantities = [Quantity::scalar(spec("f"))];
    let mut halo =
        HaloTransformer::new(&ring(2), 0, &quantities, &device, &HaloOptions::default()).unwrap();
    let mut held = device.memory_allocate::<f64>(1).unwrap();
    kernel.launch_checked(&one, &Launch::cover(1, 1), args![held.view_mut()]).unwrap();
    let early = halo.pack(&one, &mut [first.view_mut().into()]).unwrap();
    let late = halo.pack(&two, &mut [second.view_mut().into()]).unwrap();
    let error = late.synchronize(Duration::from_millis(300)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    OPEN.store(true, Ordering::Release);
    for packed in [early, late] {
        packed.synchronize(Duration::from_secs(20)).unwrap();
    }
}

/// A kernel still reads the halo of the last step when the messages of the next step have arrived.
#[test]
fn early_receive_completion() {
    static GO: AtomicBool = AtomicBool::new(false);
    fn late_reader(_: &Grid<'_>, x: &[f64], out: &mut [f64]) {
        wait_for(&GO);
        out.copy_from_slice(x);
    }
    on_ring(2, &HaloOptions::default(), |rank, mut halo, stream| {
        let device = stream.device().clone();
        let module =
            device.module_load(&HostModule::new().with("late_reader", late_reader)).unwrap();
        let kernel = module.kernel("late_reader").unwrap();
        let mut values = values(rank, &stream);
        let before = values.to_vec(&stream).unwrap();
        let mut out = device.memory_from_slice(&stream, &[0.0_f64; 5]).unwrap();
        if rank == 0 {
            let args = args![values.view(), out.view_mut()];
            kernel.launch_checked(&stream, &Launch::cover(1, 1), args).unwrap();
        }
        let mut fields = [values.view_mut().into()];
        let flight = halo.start(&stream, &mut fields).unwrap();
        if rank == 1 {
            // Its message is in transit.
            std::thread::sleep(Duration::from_millis(20));
            GO.store(true, Ordering::Release);
        }
        flight.finish().unwrap();
        assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 2));
        if rank == 0 {
            assert_eq!(out.to_vec(&stream).unwrap(), before);
        }
    });
}

/// The message of one neighbour is unpacked while that of another is not yet sent.
#[test]
fn unpack_on_arrival() {
    static SEEN: AtomicBool = AtomicBool::new(false);
    on_ring(3, &HaloOptions::default(), |rank, mut halo, stream| {
        let mut values = values(rank, &stream);
        if rank == 2 {
            wait_for(&SEEN);
            assert!(SEEN.load(Ordering::Acquire), "nothing was unpacked before the last message");
        }
        let mut fields = [Field::new(values.view_mut())];
        let mut flight = halo.start(&stream, &mut fields).unwrap();
        if rank == 0 {
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(20) && flight.unpacked() == 0 {
                assert!(!flight.poll().unwrap(), "the message of rank 2 is not sent yet");
            }
            assert_eq!(flight.unpacked(), 1);
            SEEN.store(true, Ordering::Release);
        }
        flight.finish().unwrap();
        assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 3));
    });
}

#[test]
fn a_dropped_or_forgotten_exchange_is_a_conflict_until_reset() {
    for forget in [false, true] {
        on_ring(3, &HaloOptions::default(), |rank, mut halo, stream| {
            let mut values = values(rank, &stream);
            exchange(&mut halo, &stream, &mut values).unwrap();
            let mut fields = [values.view_mut().into()];
            let flight = halo.start(&stream, &mut fields).unwrap();
            if forget {
                let _ = std::mem::ManuallyDrop::new(flight);
            } else {
                let _ = flight;
            }
            let error = exchange(&mut halo, &stream, &mut values).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert!(error.message().contains("was not finished"), "{error}");
            halo.reset().unwrap();
            for _ in 0..3 {
                exchange(&mut halo, &stream, &mut values).unwrap();
                assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 3));
            }
        });
    }
}

/// For any property that differs on one rank, all ranks get an error, and no rank has to wait for it.
#[test]
fn ranks_disagree() {
    let device = host();
    let disagree =
        |make: &(dyn Fn(usize, ThreadCommunicator) -> Result<HaloExchange> + Sync)| -> Vec<Error> {
            let made =
                ThreadCommunicator::run(3, |ranks| make(ranks.rank(), ranks).map(drop)).unwrap();
            made.into_iter().map(|made| made.unwrap_err()).collect()
        };
    let with = |ranks: ThreadCommunicator, field: Result<FieldSpec>, topology: &Topology| {
        let quantities = [Quantity::scalar(field?)];
        HaloExchange::new(Arc::new(ranks), topology, &quantities, &device, &HaloOptions::default())
    };
    let dim = |halo| Dim::axis(0, 3).halo(halo, halo);
    let width = disagree(&|rank, ranks| {
        let field = FieldSpec::new("f", DType::F64, &[dim(if rank == 1 { 2 } else { 1 })]);
        with(ranks, field, &ring(3))
    });
    let dtype = disagree(&|rank, ranks| {
        let dtype = if rank == 2 { DType::F32 } else { DType::F64 };
        with(ranks, FieldSpec::new("f", dtype, &[dim(1)]), &ring(3))
    });
    let order = disagree(&|rank, ranks| {
        let field = FieldSpec::new("f", DType::F64, &[dim(2), Dim::free(2)]);
        with(
            ranks,
            field.and_then(|f| f.ordered(if rank == 0 { &[1, 0] } else { &[0, 1] })),
            &ring(3),
        )
    });
    let topology = disagree(&|rank, ranks| {
        let (open, closed) = (Topology::cartesian(&[9], &[3], &[false])?, ring(3));
        with(
            ranks,
            FieldSpec::new("f", DType::F64, &[dim(1)]),
            if rank == 1 { &open } else { &closed },
        )
    });
    let named = |ranks, names: &[&str]| {
        let field =
            |name: &&str| Ok(Quantity::scalar(FieldSpec::new(*name, DType::F64, &[dim(1)])?));
        let quantities = names.iter().map(field).collect::<Result<Vec<_>>>()?;
        HaloExchange::new(Arc::new(ranks), &ring(3), &quantities, &device, &HaloOptions::default())
    };
    // Fields of one type in a different order would be swapped.
    let names =
        disagree(&|rank, ranks| named(ranks, &if rank == 2 { ["v", "u"] } else { ["u", "v"] }));
    let second = disagree(&|rank, ranks| named(ranks, &["u", if rank == 1 { "w" } else { "v" }]));
    let count = disagree(&|rank, ranks| named(ranks, &["u", "v"][..if rank == 2 { 1 } else { 2 }]));
    let corners = disagree(&|rank, ranks| {
        let missing_corners = MissingCorners::Fill(if rank == 1 { 1.0 } else { 0.0 });
        join(Arc::new(ranks), &device, &HaloOptions { missing_corners, ..Default::default() })
    });
    let with_options = |rank, odd: [usize; 2], other: &HaloOptions, ranks: ThreadCommunicator| {
        let options = if odd.contains(&rank) { other } else { &HaloOptions::default() };
        join(Arc::new(ranks), &device, options)
    };
    let reach = disagree(&|rank, ranks| {
        let other = HaloOptions { reach: Reach::Faces, ..Default::default() };
        with_options(rank, [2, 2], &other, ranks)
    });
    let messages = disagree(&|rank, ranks| {
        let other = HaloOptions { messages: Messages::Auto, ..Default::default() };
        with_options(rank, [1, 2], &other, ranks)
    });
    let channel = disagree(&|rank, ranks| {
        let other = HaloOptions { channel: 7, ..Default::default() };
        with_options(rank, [1, 1], &other, ranks)
    });
    let kind = disagree(&|rank, ranks| {
        let field = spec("f");
        let quantity =
            if rank == 1 { Quantity::pseudo_scalar(field) } else { Quantity::scalar(field) };
        HaloExchange::new(Arc::new(ranks), &ring(3), &[quantity], &device, &Default::default())
    });
    let dims = disagree(&|rank, ranks| {
        let dims = [dim(1), Dim::free(2)];
        with(ranks, FieldSpec::new("f", DType::F64, &dims[..1 + usize::from(rank == 1)]), &ring(3))
    });
    let free = disagree(&|rank, ranks| {
        let dims = [dim(1), Dim::free(if rank == 2 { 3 } else { 2 })];
        with(ranks, FieldSpec::new("f", DType::F64, &dims), &ring(3))
    });
    let staggered = disagree(&|rank, ranks| {
        let dims = [if rank == 1 { dim(1).staggered() } else { dim(1) }];
        with(ranks, FieldSpec::new("f", DType::F64, &dims), &ring(3))
    });
    let division = disagree(&|rank, ranks| {
        let cells = if rank == 2 { 2 } else { 3 };
        let topology = Topology::cartesian(&[3 * cells], &[3], &[true])?;
        let dims = [Dim::axis(0, cells).halo(1, 1)];
        with(ranks, FieldSpec::new("f", DType::F64, &dims), &topology)
    });
    for (errors, words) in [
        (
            width,
            "[1] have another halo along dimension 0 of field 0, f than rank 0: 2 below and 2 above on rank 1, 1 below and 1 above on rank 0",
        ),
        (names, "[2] have another name of field 0 than rank 0: v on rank 2, u on rank 0"),
        (second, "[1] have another name of field 1 than rank 0: w on rank 1, v on rank 0"),
        (count, "[2] have another number of fields than rank 0: 1 on rank 2, 2 on rank 0"),
        (
            corners,
            "[1] have another choice of missing corners than rank 0: Fill(1.0) on rank 1, Fill(0.0) on rank 0",
        ),
        (reach, "[2] have another reach than rank 0: Faces on rank 2, Full on rank 0"),
        (
            messages,
            "[1, 2] have another limit of fields that share a message than rank 0: 262144 bytes on rank 1, any number of bytes on rank 0",
        ),
        (channel, "[1] have another channel than rank 0: 7 on rank 1, 0 on rank 0"),
        (
            dtype,
            "[2] have another element type of field 0, f than rank 0: f32 on rank 2, f64 on rank 0",
        ),
        (
            kind,
            "[1] have another kind of field 0, f than rank 0: PseudoScalar on rank 1, Scalar on rank 0",
        ),
        (
            dims,
            "[1] have another number of dimensions of field 0, f than rank 0: 2 on rank 1, 1 on rank 0",
        ),
        (
            free,
            "[2] have another axis of dimension 1 of field 0, f than rank 0: no axis, with 3 elements on rank 2, no axis, with 2 elements on rank 0",
        ),
        (
            staggered,
            "[1] have another place of values along dimension 0 of field 0, f than rank 0: points on rank 1, cells on rank 0",
        ),
        (
            order,
            "[1, 2] have another order of dimensions in memory of field 0, f than rank 0: [0, 1] on rank 1, [1, 0] on rank 0",
        ),
        (topology, "[1] have another number of joined sides than rank 0: 0 on rank 1, 2 on rank 0"),
        (
            division,
            "[2] have another division of tile 0 along axis 0 than rank 0: cells [0, 2, 4, 6] on rank 2, cells [0, 3, 6, 9] on rank 0",
        ),
    ] {
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert_eq!(error.message(), format!("ranks {words}"));
        }
    }
    // One rank cannot make its plan: its error gives the reason, and the other ranks' errors say that it failed.
    let own = disagree(&|rank, ranks| {
        let field = FieldSpec::new("f", DType::F64, &[dim(if rank == 1 { 4 } else { 1 })]);
        with(ranks, field, &ring(3))
    });
    assert!(own[1].message().contains("halo of 4 cells"), "{}", own[1]);
    assert!(own[0].message().contains("ranks [1] could not make their plans"), "{}", own[0]);
    let count =
        disagree(&|_, ranks| with(ranks, FieldSpec::new("f", DType::F64, &[dim(1)]), &ring(2)));
    let message = "a topology of 2 ranks for a communicator of 3";
    assert!(count.iter().all(|error| error.message().contains(message)));
}

/// Each rank has a different device, or its messages in different memory: all combinations occur.
#[test]
fn ranks_on_unlike_devices() {
    let kinds = [
        (true, Staging::Auto),
        (false, Staging::Auto),
        (false, Staging::Device),
        (true, Staging::Pinned),
    ];
    for first in 0..kinds.len() {
        for second in 0..kinds.len() {
            ThreadCommunicator::run(3, |communicator| {
                let rank = communicator.rank();
                let (on_host, staging) = kinds[[first, second, first][rank]];
                let device = if on_host { host() } else { sim(rank as u64) };
                let options = HaloOptions { staging, direct: false, ..Default::default() };
                let mut halo = join(Arc::new(communicator), &device, &options).unwrap();
                let stream = device.default_stream();
                for _ in 0..2 {
                    let mut values = values(rank, &stream);
                    exchange(&mut halo, &stream, &mut values).unwrap();
                    assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 3));
                }
            })
            .unwrap();
        }
    }
}

#[test]
fn tags_are_bounded() {
    let device = host();
    ThreadCommunicator::run(2, |ranks| {
        let (rank, ranks) = (ranks.rank(), Arc::new(Altered::new(ranks)));
        let make = |channel| {
            let options = HaloOptions { channel, direct: false, ..Default::default() };
            join(Arc::clone(&ranks) as _, &device, &options)
        };
        let error = make(511).unwrap_err();
        assert!(error.message().contains("channel 511; there are 511"), "{error}");
        let mut halo = make(510).unwrap();
        let stream = device.default_stream();
        let mut values = values(rank, &stream);
        for _ in 0..100 {
            exchange(&mut halo, &stream, &mut values).unwrap();
            halo.reset().unwrap();
        }
        assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 2));
        assert!((32_641..=32_767).contains(&ranks.largest_tag.load(Ordering::Relaxed)));
    })
    .unwrap();
}

#[test]
fn exchanges_on_different_channels_may_overlap() {
    let device = host();
    ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let ranks: Arc<dyn Communicator> = Arc::new(ranks);
        let make = |channel| {
            let options = HaloOptions { channel, ..Default::default() };
            join(Arc::clone(&ranks), &device, &options).unwrap()
        };
        let mut halos = [make(0), make(1)];
        let stream = device.default_stream();
        let mut one = values(rank, &stream);
        let mut two = values(rank, &stream);
        let [a, b] = &mut halos;
        let (mut first, mut second) = ([one.view_mut().into()], [two.view_mut().into()]);
        // Each rank starts with a different exchange; all finish them in the same order.
        let (first, second) = if rank == 0 {
            let first = a.start(&stream, &mut first).unwrap();
            (first, b.start(&stream, &mut second).unwrap())
        } else {
            let second = b.start(&stream, &mut second).unwrap();
            (a.start(&stream, &mut first).unwrap(), second)
        };
        first.finish().unwrap();
        second.finish().unwrap();
        assert_eq!(one.to_vec(&stream).unwrap(), expected(rank, 2));
        assert_eq!(two.to_vec(&stream).unwrap(), expected(rank, 2));
    })
    .unwrap();
}

/// Plans differ if their fields differ only in the order of their dimensions, or only in their kind.
#[test]
fn plan_key_is_complete() {
    let topology = Topology::cubed_sphere(4, [1, 1]).unwrap();
    let field = |order: [usize; 2]| Shape { order: order.to_vec(), ..Shape::new(DType::F64, 2) };
    let quantities = vec![
        (Kind::Scalar, vec![field([0, 1])]),
        (Kind::Scalar, vec![field([1, 0])]),
        (Kind::Vector, vec![field([0, 1]), field([1, 0])]),
        (Kind::UnsignedPair, vec![field([1, 0]), field([0, 1])]),
    ];
    let options = HaloOptions::default();
    Case { topology: &topology, world: &Cube { cells: 4 }, quantities, options }.exchange(&host());
}

/// More elements than launches of some libraries can index.
#[test]
fn launch_limits_checked() {
    let topology = Topology::cartesian(&[4], &[2], &[true]).unwrap();
    let field = Shape { free: vec![600_000], ..Shape::new(DType::U8, 1) };
    let quantities = vec![(Kind::Scalar, vec![field])];
    let world = Flat { cells: [4, 1, 1], periodic: [true, false, false] };
    Case { topology: &topology, world: &world, quantities, options: HaloOptions::default() }
        .carry(&host());
}

/// With any fault of messages, an exchange returns the right values or an error, within its timeout. With two fields in
/// one message or in two, for all memory that the host can address.
#[test]
fn faults_of_the_transport_never_give_wrong_values() {
    let staging = |seed| match seed % 3 {
        0 => (sim(seed), Staging::Pinned),
        1 => (host(), Staging::Pinned),
        _ => (host(), Staging::Device),
    };
    for fault in Fault::ALL {
        // Faults that lose nothing.
        let harmless = matches!(fault, Fault::Delay | Fault::Reorder);
        let (mut happened, mut reported) = (0, 0);
        for seed in 0..6 {
            let messages = if seed < 3 { Messages::Aggregate } else { Messages::Separate };
            let counts = ThreadCommunicator::run(3, |ranks| {
                let rank = ranks.rank();
                let (device, staging) = staging(seed);
                let faults = Faults::new(seed + 100 * rank as u64).with(fault, 0.2);
                let ranks = Arc::new(FaultyCommunicator::new(ranks, faults));
                // Late messages still arrive within this timeout.
                let timeout = Duration::from_millis(if harmless { 20_000 } else { 1_000 });
                let options = HaloOptions { staging, messages, timeout, ..Default::default() };
                let shared = Arc::clone(&ranks) as Arc<dyn Communicator>;
                let done = steps_of_two_fields(shared, &device, &options);
                if let (Err(error), true) = (&done, harmless) {
                    // If messages of one line overtake each other, a receive gets another message.
                    assert_eq!((fault, messages), (Fault::Reorder, Messages::Separate), "{error}");
                }
                (ranks.count(fault), done.is_err())
            });
            for (count, is_error) in counts.unwrap() {
                happened += count;
                reported += u32::from(is_error);
            }
        }
        assert!(happened > 0, "{fault:?} never happened");
        assert!(harmless || reported > 0, "{fault:?}: no rank got an error");
    }
}

/// Reading the end of a message in host-addressable memory waits for packing, but not for later work.
#[test]
fn stamps_wait_for_no_later_work() {
    static FINISHED: AtomicU32 = AtomicU32::new(0);
    fn held_up(_: &Grid<'_>, ranks: u64) {
        let start = Instant::now();
        while u64::from(FINISHED.load(Ordering::Acquire)) < ranks
            && start.elapsed() < Duration::from_secs(20)
        {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let options = HaloOptions { direct: false, ..Default::default() };
    // A single device, so messages move from rank to rank without a copy.
    let device = host();
    ThreadCommunicator::run(2, |communicator| {
        let rank = communicator.rank();
        let stream = device.stream_create(&Default::default()).unwrap();
        let module = device.module_load(&HostModule::new().with("held_up", held_up)).unwrap();
        let kernel = module.kernel("held_up").unwrap();
        let mut halo = join(Arc::new(communicator), &device, &options).unwrap();
        let mut values = values(rank, &stream);
        let mut fields = [values.view_mut().into()];
        let flight = halo.start(&stream, &mut fields).unwrap();
        kernel.launch_checked(&stream, &Launch::cover(1, 1), args![2_u64]).unwrap();
        flight.finish().unwrap();
        assert!(!stream.is_done().unwrap(), "finish waited for the kernel");
        FINISHED.fetch_add(1, Ordering::AcqRel);
        assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 2));
    })
    .unwrap();
}

/// Narrow rows go by messages on a host device, so that no cache line moves back and forth. Long rows, few rows and
/// many rows are copied directly.
#[test]
fn narrow_rows_are_sent_on_a_host_and_others_are_read() {
    // The extent of the divided dimension, that of the other dimension, and whether the divided one is the faster.
    let cases = [
        ((host(), 8, 4000, true), true),
        ((host(), 8, 4000, false), false),
        ((host(), 8, 400, true), false),
        ((host(), 8, 60_000, true), false),
        ((sim(1), 8, 4000, true), false),
    ];
    for ((device, cells, rows, is_faster), sends) in cases {
        let topology = Topology::cartesian(&[2 * cells, rows], &[2, 1], &[true, false]).unwrap();
        let dims = [Dim::axis(0, cells).halo(2, 2), Dim::axis(1, rows)];
        let spec = FieldSpec::new("f", DType::F64, &dims).unwrap();
        let spec = if is_faster { spec.ordered(&[1, 0]).unwrap() } else { spec };
        let width = cells + 4;
        let place = |cell: usize, row: usize| match is_faster {
            true => row * width + cell,
            false => cell * rows + row,
        };
        let value = |cell: usize, row: usize| (cell % (2 * cells) * 100_000 + row) as f64;
        ThreadCommunicator::run(2, |ranks| {
            let rank = ranks.rank();
            let stream = device.stream_create(&Default::default()).unwrap();
            let mut start = vec![f64::NAN; width * rows];
            let mut expected = start.clone();
            for (cell, row) in (0..width).flat_map(|cell| (0..rows).map(move |row| (cell, row))) {
                expected[place(cell, row)] = value(rank * cells + 2 * cells + cell - 2, row);
                if (2..cells + 2).contains(&cell) {
                    start[place(cell, row)] = expected[place(cell, row)];
                }
            }
            let quantities = [Quantity::scalar(spec.clone())];
            let options = HaloOptions::default();
            let mut halo =
                HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)
                    .unwrap();
            let mut values = device.memory_from_slice(&stream, &start).unwrap();
            let view = values.view_mut().with_layout(0, spec.layout()).unwrap();
            halo.exchange(&stream, &mut [view.into()]).unwrap();
            assert_eq!(values.to_vec(&stream).unwrap(), expected);
            let neighbours = halo.statistics().unwrap().neighbours;
            let (sent, copied) = (neighbours[0].sent.count, neighbours[0].copied.count);
            assert_eq!((sent, copied), if sends { (1, 0) } else { (0, 1) }, "{rows} rows");
        })
        .unwrap();
    }
}

/// Exchanges two fields on a ring of three ranks a few times, with different values each time, and compares the
/// results.
fn steps_of_two_fields(
    ranks: Arc<dyn Communicator>,
    device: &Device,
    options: &HaloOptions,
) -> Result<()> {
    let (rank, stream) = (ranks.rank(), device.default_stream());
    let quantities = ["f", "g"].map(|name| Quantity::scalar(spec(name)));
    let mut halo = HaloExchange::new(ranks, &ring(3), &quantities, device, options)?;
    for step in 0..12 {
        let shifts = [0.0, 1e6].map(|shift| shift + f64::from(100 * step));
        let mut fields = shifts.map(|shift| {
            let mut memory = values(rank, &stream);
            let shifted: Vec<f64> =
                memory.to_vec(&stream).unwrap().iter().map(|x| x + shift).collect();
            memory.copy_from_slice(&stream, &shifted).unwrap();
            memory
        });
        let start = Instant::now();
        let views: &mut [Field<'_>] = &mut fields.each_mut().map(|field| field.view_mut().into());
        let done = halo.exchange(&stream, views);
        assert!(start.elapsed() < Duration::from_secs(20));
        done?;
        for (memory, shift) in fields.iter().zip(shifts) {
            let expected: Vec<f64> = expected(rank, 3).iter().map(|x| x + shift).collect();
            assert_eq!(memory.to_vec(&stream).unwrap(), expected, "{options:?}, step {step}");
        }
    }
    Ok(())
}

fn plan_error(topology: &Topology, quantity: Result<Quantity>) -> Error {
    let made = quantity.and_then(|quantity| {
        HaloTransformer::new(topology, 0, &[quantity], &host(), &HaloOptions::default())
    });
    let error = made.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    error
}

#[test]
fn unsupported_dtype_raises() {
    let sphere = Topology::cubed_sphere(4, [1, 1]).unwrap();
    let dims = [Dim::axis(0, 4).halo(1, 1), Dim::axis(1, 4).halo(1, 1)];
    for dtype in [DType::Bool, DType::U32] {
        let field = |name: &str| FieldSpec::new(name, dtype, &dims).unwrap();
        let error = plan_error(&sphere, Quantity::vector(field("u"), field("v")));
        assert!(error.message().contains(&format!("elements of {dtype}")), "{error}");
        assert!(error.message().contains("field u, side north of rank 0"), "{error}");
    }
}

#[test]
fn staggered_scalar_across_rotation() {
    let sphere = Topology::cubed_sphere(4, [1, 1]).unwrap();
    let dims = [Dim::axis(0, 4).halo(1, 1).staggered(), Dim::axis(1, 4).halo(1, 1)];
    let field = FieldSpec::new("flux", DType::F64, &dims).unwrap();
    let error = plan_error(&sphere, Ok(Quantity::scalar(field)));
    assert!(error.message().contains("field flux, side west of rank 0"), "{error}");
    assert!(error.message().contains("needs a partner along the other, in a vector or"), "{error}");
    // Partners along the same axis.
    let field = |name| FieldSpec::new(name, DType::F64, &dims).unwrap();
    let error = plan_error(&sphere, Quantity::vector(field("u"), field("v")));
    assert!(error.message().contains("field u, side west of rank 0"), "{error}");
    assert!(error.message().contains("as components of one Vector they change places"), "{error}");
    assert!(!error.message().contains("unsigned pair"), "{error}");
}

#[test]
fn plans_name_field_side_and_rank() {
    let flat = Topology::cartesian(&[6, 3], &[2, 1], &[true, true]).unwrap();
    let field = |x: Dim, y: Dim| FieldSpec::new("t", DType::F64, &[x, y]).map(Quantity::scalar);
    for (quantity, words) in [
        (
            field(Dim::axis(0, 3).halo(4, 0), Dim::axis(1, 3)),
            "field t, side west of rank 0: a halo of 4 cells; its neighbour, rank 1, has 3",
        ),
        (
            field(Dim::axis(0, 4), Dim::axis(1, 3)),
            "field t of rank 0 has 4 cells along axis 0; its block (Topology::block) has 3",
        ),
        (
            field(Dim::axis(0, 3), Dim::axis(2, 3)),
            "field t of rank 0 has no dimension along axis 1",
        ),
        (field(Dim::axis(0, 3), Dim::free(3)), "field t of rank 0 has no dimension along axis 1"),
    ] {
        let error = plan_error(&flat, quantity);
        assert_eq!(error.message(), words);
    }
}

#[test]
fn missing_cube_corners() {
    let topology = Topology::cubed_sphere(3, [1, 1]).unwrap();
    let world = Cube { cells: 3 };
    let options = HaloOptions { missing_corners: MissingCorners::Fill(7.5), ..Default::default() };
    let quantities = vec![
        (Kind::Scalar, vec![Shape::new(DType::F64, 2)]),
        (Kind::Vector, vec![Shape::new(DType::I16, 1), Shape::new(DType::I16, 1)]),
    ];
    let case = Case { topology: &topology, world: &world, quantities, options };
    for device in [host(), sim(3)] {
        case.with_ranks(&device, |rank, mut exchange, stream| {
            let mut stores = case.stores(rank, &stream);
            let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
            exchange.exchange(&stream, &mut fields).unwrap();
            drop(fields);
            let edges = exchange.edges();
            assert!(edges.iter().all(|edge| edge.missing_corner));
            assert_eq!(edges.len(), 4 * 3);
            for (number, mut image) in case.image(rank, true).into_iter().enumerate() {
                let (n, size, fill) = if number == 0 {
                    (7, 8, 7.5_f64.to_ne_bytes().to_vec())
                } else {
                    (5, 2, 7_i16.to_ne_bytes().to_vec())
                };
                for edge in edges.iter().filter(|edge| edge.field == number) {
                    for i in edge.ranges[0].clone() {
                        for j in edge.ranges[1].clone() {
                            let at = 16 + (i * n + j) * size;
                            image[at..at + size].copy_from_slice(&fill);
                        }
                    }
                }
                assert_eq!(stores[number].memory.to_vec(&stream).unwrap(), image, "field {number}");
            }
        });
    }
}

#[test]
fn missing_corners_are_averaged() {
    const N: usize = 7;
    let topology = Topology::cubed_sphere(3, [1, 1]).unwrap();
    let world = Cube { cells: 3 };
    let options = HaloOptions { missing_corners: MissingCorners::Average, ..Default::default() };
    // One component runs fastest along y, the other along x.
    let turned = Shape { order: vec![1, 0], ..Shape::new(DType::F32, 2) };
    let quantities =
        vec![(Kind::Scalar, vec![Shape::new(DType::F32, 2)]), (Kind::Scalar, vec![turned])];
    let case = Case { topology: &topology, world: &world, quantities, options };
    for device in [host(), sim(3)] {
        case.with_ranks(&device, |rank, mut exchange, stream| {
            let mut stores = case.stores(rank, &stream);
            let mut fields: Vec<Field<'_>> = stores.iter_mut().map(Store::field).collect();
            exchange.exchange(&stream, &mut fields).unwrap();
            for (number, image) in case.image(rank, true).into_iter().enumerate() {
                let place =
                    |i: usize, j: usize| 16 + 4 * if number == 0 { i * N + j } else { j * N + i };
                let read = |image: &[u8], i, j| {
                    f32::from_ne_bytes(image[place(i, j)..][..4].try_into().unwrap())
                };
                let mut expected = image.clone();
                let near = |index: usize| index.clamp(2, 4);
                for i in [0, 1, 5, 6] {
                    for j in [0, 1, 5, 6] {
                        let mean = 0.5 * (read(&image, i, near(j)) + read(&image, near(i), j));
                        let at = place(i, j);
                        expected[at..at + 4].copy_from_slice(&mean.to_ne_bytes());
                    }
                }
                assert_eq!(
                    stores[number].memory.to_vec(&stream).unwrap(),
                    expected,
                    "field {number}"
                );
            }
        });
    }
}

/// Owned values and ghosts of one memory, lent separately as by a type that keeps account of them.
#[test]
fn owned_values_stay_readable_in_flight() {
    on_ring(2, &HaloOptions::default(), |rank, mut halo, stream| {
        let values = values(rank, &stream);
        // SAFETY: the exchange writes only ghosts, and the view below contains only owned cells.
        let ghosts = unsafe { values.view_mut_shared() };
        let owned = values.view().slice(1..4).unwrap();
        let mut fields = [Field::split(owned, ghosts).unwrap()];
        let flight = halo.start(&stream, &mut fields).unwrap();
        let first = 3.0 * rank as f64;
        assert_eq!(owned.to_vec(&stream).unwrap(), [first, first + 1.0, first + 2.0]);
        flight.finish().unwrap();
        let error = halo.reduce(&stream, &mut fields, halo::Combine::Sum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let named = format!("field f of rank {rank}: ");
        assert!(error.message().starts_with(&named), "{error}");
        assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 2));
        let other = self::values(rank, &stream);
        let mut third = self::values(rank, &stream);
        assert!(Field::split(other.view(), third.view_mut()).is_err());
        // Two of three owned values, and a value before the field that belongs to other code.
        let long = stream.device().memory_from_slice(&stream, &[0.0; 6]).unwrap();
        for (read, bytes) in [(2..4, "16..32"), (0..5, "0..40")] {
            // SAFETY: the call is refused before anything is read or written.
            let ghosts = unsafe { long.view_mut_shared() }.slice(1..6).unwrap();
            let read = long.view().slice(read).unwrap();
            let error =
                halo.start(&stream, &mut [Field::split(read, ghosts).unwrap()]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            let words = format!("{named}a view to read of bytes {bytes} of the memory");
            assert!(error.message().starts_with(&words), "{error}");
        }
    });
}

/// A plan uses no device memory, for any number of elements.
#[test]
fn plans_have_no_index_arrays() {
    let device = sim(0);
    let used = || SimHandle::of(&device).unwrap().used_bytes();
    let before = used();
    let sphere = Topology::cubed_sphere(48, [1, 1]).unwrap();
    let dims = [Dim::axis(1, 48).halo(3, 3), Dim::axis(0, 48).halo(3, 3), Dim::free(79)];
    let quantity = Quantity::scalar(FieldSpec::new("f", DType::F64, &dims).unwrap());
    let options = HaloOptions { staging: Staging::Device, ..Default::default() };
    let halo = HaloTransformer::new(&sphere, 0, &[quantity], &device, &options).unwrap();
    assert_eq!(halo.sends().count(), 4);
    assert_eq!(used(), before);
}

/// One launch packs, one launch for each batch of messages unpacks, and no data goes through the host unless it must.
#[test]
fn launches_and_copies_are_few() {
    const STEPS: u64 = 5;
    for (ranks, staging, direct) in [
        (1, Staging::Auto, false),
        (3, Staging::Device, false),
        (3, Staging::Pinned, false),
        (1, Staging::Auto, true),
        (3, Staging::Auto, true),
    ] {
        let options = HaloOptions { staging, direct, ..Default::default() };
        let device = sim(2);
        let before = SimHandle::of(&device).unwrap().counts();
        ThreadCommunicator::run(ranks, |communicator| {
            let rank = communicator.rank();
            let mut halo = join(Arc::new(communicator), &device, &options).unwrap();
            let stream = device.stream_create(&Default::default()).unwrap();
            let mut values = values(rank, &stream);
            for _ in 0..STEPS {
                exchange(&mut halo, &stream, &mut values).unwrap();
            }
            stream.synchronize().unwrap();
            let peers: Vec<_> =
                (0..ranks).filter(|peer| *peer != rank).map(|peer| (peer, 16)).collect();
            assert_eq!(halo.sends().collect::<Vec<_>>(), peers);
            assert_eq!(halo.receives().collect::<Vec<_>>(), peers);
        })
        .unwrap();
        let after = SimHandle::of(&device).unwrap().counts();
        let ranks = ranks as u64;
        let launches = after.on_device.count - before.on_device.count;
        let most = if ranks == 1 || direct { 1 } else { 3 };
        let possible = most.min(2) * ranks * STEPS..=most * ranks * STEPS;
        assert!(possible.contains(&launches), "{launches} launches, {possible:?} possible");
        // Two messages each way, and the values themselves.
        let messages = if staging == Staging::Pinned { 2 * ranks * STEPS } else { 0 };
        assert_eq!(after.from_device.count - before.from_device.count, messages);
        assert_eq!(after.to_device.count - before.to_device.count, messages + ranks);
    }
}

#[test]
fn nothing_to_exchange_is_an_exchange() {
    let open = Topology::cartesian(&[3], &[1], &[false]).unwrap();
    ThreadCommunicator::run(1, |ranks| {
        let ranks: Arc<dyn Communicator> = Arc::new(ranks);
        let device = sim(1);
        let stream = device.default_stream();
        for quantities in [vec![], vec![Quantity::scalar(spec("f"))]] {
            let options = HaloOptions { channel: 1, ..Default::default() };
            let mut halo =
                HaloExchange::new(Arc::clone(&ranks), &open, &quantities, &device, &options)
                    .unwrap();
            let mut values = values(0, &stream);
            let before = values.to_vec(&stream).unwrap();
            let mut fields: Vec<Field<'_>> = Vec::new();
            if !quantities.is_empty() {
                fields.push(values.view_mut().into());
            }
            halo.exchange(&stream, &mut fields).unwrap();
            halo.reduce(&stream, &mut fields, halo::Combine::Sum).unwrap();
            halo.reduce(&stream, &mut fields, halo::Combine::Replace).unwrap();
            halo.synchronize_shared(&stream, &mut fields).unwrap();
            assert_eq!(values.to_vec(&stream).unwrap(), before);
            assert!(halo.edges().iter().all(|edge| !edge.missing_corner));
            assert_eq!(halo.edges().len(), 2 * quantities.len());
        }
    })
    .unwrap();
}

/// For custom transports: buffers return to the pool in every case.
#[test]
fn messages_of_a_transformer_return_to_its_pool() {
    let device = sim(4);
    let stream = device.default_stream();
    let make = |rank| {
        let quantities = [Quantity::scalar(spec("f"))];
        let options = HaloOptions::default();
        HaloTransformer::new(&ring(3), rank, &quantities, &device, &options).unwrap()
    };
    let (mut halo, mut other) = (make(0), make(1));
    let mut values = values(0, &stream);
    for _ in 0..20 {
        let packed = halo.pack(&stream, &mut [values.view_mut().into()]).unwrap();
        packed.synchronize(Duration::from_secs(20)).unwrap();
        assert!(packed.ready().unwrap());
        assert_eq!(
            packed.messages().map(|(rank, buffer)| (rank, buffer.len())).collect::<Vec<_>>(),
            [(1, 16), (2, 16)]
        );
        drop(packed);
        let mut fields = [values.view_mut().into()];
        let foreign = other.incoming().unwrap();
        let error = halo.unpack(&stream, &mut fields, foreign).unwrap_err();
        assert!(error.message().contains("of another transformer"), "{error}");
        let mut twice = halo.incoming().unwrap();
        twice.pop();
        twice.extend(halo.incoming().unwrap());
        let error = halo.unpack(&stream, &mut fields, twice).unwrap_err();
        assert!(error.message().contains("the message of rank 1 twice"), "{error}");
        let mut messages = halo.incoming().unwrap();
        assert!(messages[0].copy_from_slice(&[0; 15]).is_err());
        let error = halo.unpack(&stream, &mut fields, messages).unwrap_err();
        assert!(error.message().contains("the message of rank 1 was not received"), "{error}");
        let mut message = halo.incoming().unwrap().remove(1);
        assert_eq!(message.rank(), 2);
        message.as_mut_slice().unwrap().unwrap()[..8].copy_from_slice(&42.0_f64.to_ne_bytes());
        halo.unpack(&stream, &mut fields, vec![message]).unwrap();
        let (held, limit) = halo.pool_bytes();
        assert!(held <= limit, "{held} of {limit}");
    }
    assert_eq!(values.to_vec(&stream).unwrap(), [42.0, 0.0, 1.0, 2.0, -1.0]);
}

/// Work that a program enqueued on a packed message comes before the next message in its buffer.
#[test]
fn a_message_is_not_packed_over_one_that_is_being_read() {
    static PACKED: AtomicBool = AtomicBool::new(false);
    fn held_up(_: &Grid<'_>) {
        wait_for(&PACKED);
    }
    let device = host();
    let [stream, reader] = [0, 1].map(|_| device.stream_create(&Default::default()).unwrap());
    let module = device.module_load(&HostModule::new().with("held_up", held_up)).unwrap();
    let kernel = module.kernel("held_up").unwrap();
    let (quantities, options) = ([Quantity::scalar(spec("f"))], HaloOptions::default());
    let mut halo = HaloTransformer::new(&ring(2), 0, &quantities, &device, &options).unwrap();
    let mut values = values(0, &stream);
    let packed = halo.pack(&stream, &mut [values.view_mut().into()]).unwrap();
    packed.synchronize(Duration::from_secs(20)).unwrap();
    let (_, message) = packed.messages().next().unwrap();
    let Storage::Device(memory) = message.storage() else { panic!("not of the device") };
    let (first, mut copy) = (message.to_vec().unwrap(), device.memory_allocate::<u8>(32).unwrap());
    kernel.launch_checked(&reader, &Launch::cover(1, 1), args![]).unwrap();
    copy.view_mut().copy_from(&reader, &memory.view()).unwrap();
    drop(packed);
    values.fill(&stream, 7.0).unwrap();
    let packed = halo.pack(&stream, &mut [values.view_mut().into()]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!packed.ready().unwrap(), "packed over a message that is being read");
    PACKED.store(true, Ordering::Release);
    packed.synchronize(Duration::from_secs(20)).unwrap();
    assert_eq!(copy.to_vec(&reader).unwrap(), first);
    let (_, message) = packed.messages().next().unwrap();
    assert_eq!(message.to_vec().unwrap()[..8], 7.0_f64.to_ne_bytes());
}

/// The pool keeps its limit, and reuses its buffers.
#[test]
fn buffers_are_bounded() {
    // Two messages out and two in, each with one value and one stamp.
    let errors = ThreadCommunicator::run(3, |ranks| {
        let pool_bytes = Some(if ranks.rank() == 1 { 63 } else { 64 });
        let options = HaloOptions { pool_bytes, ..Default::default() };
        join(Arc::new(ranks), &sim(0), &options).map(drop).unwrap_err()
    });
    let own = "rank 1: pool_bytes is 63, and the messages of one exchange have 64";
    let others = "ranks [1] could not make their plans";
    for (error, words) in errors.unwrap().iter().zip([others, own, others]) {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(words), "{error}");
    }
    let options = HaloOptions { pool_bytes: Some(64), ..Default::default() };
    on_ring(3, &options, |rank, mut halo, stream| {
        let mut values = values(rank, &stream);
        exchange(&mut halo, &stream, &mut values).unwrap();
    });
    on_ring(3, &HaloOptions::default(), |rank, mut halo, stream| {
        let mut values = values(rank, &stream);
        for _ in 0..200 {
            exchange(&mut halo, &stream, &mut values).unwrap();
        }
        let (held, limit) = halo.pool_bytes();
        assert_eq!(limit, 4 * 64);
        assert!((1..=limit).contains(&held), "{held} of {limit}");
    });
}

#[test]
fn shared_points_of_a_field_without_ghosts_have_room_in_the_pool() {
    let device = host();
    let all = ThreadCommunicator::run(2, |ranks| -> Result<Vec<f64>> {
        let rank = ranks.rank();
        let topology = Topology::cartesian(&[4], &[2], &[false])?;
        let field = FieldSpec::new("u", DType::F64, &[Dim::axis(0, 2).staggered()])?;
        let (quantities, options) = ([Quantity::scalar(field)], HaloOptions::default());
        let mut halo =
            HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)?;
        let stream = device.stream_create(&Default::default())?;
        let mut values = device.memory_from_slice(&stream, &[rank as f64; 3])?;
        halo.synchronize_shared(&stream, &mut [values.view_mut().into()])?;
        values.to_vec(&stream)
    })
    .unwrap();
    let [one, two] = &all[..] else { panic!("two ranks") };
    assert_eq!(one.as_ref().unwrap()[2], two.as_ref().unwrap()[0]);
}

/// The numbers of the two exchanges differ by 2^16, and fields that share no message are numbered from 1.
#[test]
fn ranks_that_use_two_exchanges_in_different_orders_get_an_error() {
    const BETWEEN: u32 = (1 << 16) - 1;
    let device = host();
    let errors = ThreadCommunicator::run(2, |communicator| {
        let rank = communicator.rank();
        let ranks: Arc<dyn Communicator> = Arc::new(communicator);
        let make = |messages, channel| {
            let timeout = Duration::from_secs(20);
            let options =
                HaloOptions { messages, channel, timeout, direct: false, ..Default::default() };
            let fields = [Quantity::scalar(spec("f"))];
            HaloExchange::new(ranks.clone(), &ring(2), &fields, &device, &options)
        };
        let mut first = make(Messages::Separate, 0).unwrap();
        for _ in 0..BETWEEN {
            // It counts as an exchange, although there is no such channel.
            make(Messages::Separate, u32::MAX).unwrap_err();
        }
        let mut second = make(Messages::Aggregate, 0).unwrap();
        let stream = device.default_stream();
        let mut memory = values(rank, &stream);
        let halo = if rank == 0 { &mut first } else { &mut second };
        halo.exchange(&stream, &mut [memory.view_mut().into()]).map_err(|error| error.kind())
    });
    assert!(errors.unwrap().contains(&Err(ErrorKind::InvalidArgument)));
}

/// In three dimensions, two sides meet in an edge, and three in a corner.
#[test]
fn averages_are_over_all_sides_that_meet() {
    const CELLS: usize = 3;
    let sides = [Side::EAST, Side::WEST, Side::NORTH, Side::SOUTH, Side::ABOVE, Side::BELOW];
    let link = |side| Link { rank: 0, side, neighbour: 0, symmetry: Symmetry::IDENTITY };
    let topology = Topology::of_blocks(&[[CELLS; 3]], &sides.map(link)).unwrap();
    let device = host();
    let stream = device.default_stream();
    for width in [1, 2] {
        let dims = [0, 1, 2].map(|axis| Dim::axis(axis, CELLS).halo(width, width));
        let field = Quantity::scalar(FieldSpec::new("f", DType::F32, &dims).unwrap());
        let options =
            HaloOptions { missing_corners: MissingCorners::Average, ..HaloOptions::default() };
        let [alone] = ThreadCommunicator::group(1).unwrap().try_into().unwrap();
        let mut halo =
            HaloExchange::new(Arc::new(alone), &topology, &[field], &device, &options).unwrap();
        let extent = CELLS + 2 * width;
        let at = |[x, y, z]: [usize; 3]| (x * extent + y) * extent + z;
        let cells: Vec<f32> = (0..extent.pow(3)).map(|i| (i * 7 % 64) as f32).collect();
        let mut memory = device.memory_from_slice(&stream, &cells).unwrap();
        let view = memory.view_mut().reshape(&[extent; 3]).unwrap();
        halo.exchange(&stream, &mut [view.into()]).unwrap();
        let found = memory.to_vec(&stream).unwrap();
        for index in 0..extent.pow(3) {
            let place = [index / extent / extent, index / extent % extent, index % extent];
            let beyond: Vec<usize> =
                (0..3).filter(|axis| !(width..width + CELLS).contains(&place[*axis])).collect();
            if beyond.len() < 2 {
                continue;
            }
            let near = |side: &usize| {
                let mut near = place;
                for axis in beyond.iter().filter(|axis| *axis != side) {
                    near[*axis] = near[*axis].clamp(width, width + CELLS - 1);
                }
                found[at(near)]
            };
            let mean = beyond.iter().map(near).sum::<f32>() / beyond.len() as f32;
            assert!((found[index] - mean).abs() < 1e-5, "{place:?}: {} for {mean}", found[index]);
        }
    }
}
