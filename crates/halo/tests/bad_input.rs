//! Refused input: it is refused before anything is sent, with errors that name what is wrong.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]
#![expect(unsafe_code, reason = "adopts memory and launches kernels")]

mod altered;

use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use altered::{Access, Altered};
use backend_host::HostDevice;
use backend_sim::{SimConfig, SimDevice};
use halo::communicator::{Buffer, Communicator, Storage, ThreadCommunicator};
use halo::{
    Combine, Dim, Error, ErrorKind, Field, FieldSpec, HaloExchange, HaloOptions, HaloTransformer,
    Link, MissingCorners, Quantity, Result, Side, Staging, Symmetry, Topology,
};
use runtime_core::{DType, Device, Grid, HostModule, Launch, Memory, NativeHandle, Stream, args};

fn device() -> Device {
    Device::new(SimDevice::new(0, SimConfig::new())).unwrap()
}

fn ring() -> Topology {
    Topology::cartesian(&[6], &[2], &[true]).unwrap()
}

fn field(halo: usize) -> Quantity {
    named("height", halo)
}

fn named(name: &str, halo: usize) -> Quantity {
    let dims = [Dim::axis(0, 3).halo(halo, halo), Dim::free(2)];
    Quantity::scalar(FieldSpec::new(name, DType::F64, &dims).unwrap())
}

fn plan(topology: &Topology, rank: usize, quantities: &[Quantity]) -> Result<HaloTransformer> {
    HaloTransformer::new(topology, rank, quantities, &device(), &HaloOptions::default())
}

fn refused<T>(outcome: Result<T>, message: &str) {
    let error = outcome.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(error.message(), message);
}

/// Refusals, and errors for ranks that disagree, name fields.
#[test]
fn two_fields_with_one_name_are_refused() {
    refused(
        plan(&ring(), 1, &[named("depth", 1), field(1), named("depth", 2)]),
        "fields 0 and 2 of rank 1 are both named depth",
    );
}

/// An exchange writes the ghosts of every field, by messages and by direct copies.
#[test]
fn a_field_that_is_lent_for_reading_is_refused() {
    let device = device();
    for direct in [false, true] {
        ThreadCommunicator::run(2, |ranks| {
            let options = HaloOptions { direct, ..Default::default() };
            let ranks = Arc::new(ranks);
            let mut halo =
                HaloExchange::new(ranks, &ring(), &[field(1)], &device, &options).unwrap();
            let stream = device.stream_create(&Default::default()).unwrap();
            let mut values = device.memory_from_slice(&stream, &[0.0_f64; 10]).unwrap();
            let mut read: Field<'_> = values.view().reshape(&[5, 2]).unwrap().into();
            assert_eq!(read.view_mut().unwrap_err().kind(), ErrorKind::Conflict);
            let error = halo.exchange(&stream, &mut [read]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert!(error.message().contains("lent for reading"), "{error}");
            // Other ranks have noticed nothing.
            let field = values.view_mut().reshape(&[5, 2]).unwrap().into();
            halo.exchange(&stream, &mut [field]).unwrap();
        })
        .unwrap();
    }
}

/// Elements at the same address would be written twice.
#[test]
fn strides_that_overlap_are_refused() {
    let field = FieldSpec::new("height", DType::F64, &[Dim::axis(0, 3).halo(2, 2), Dim::free(2)]);
    refused(
        field.unwrap().strided(&[1, 1]),
        "field height: strides [1, 1] let elements of [7, 2] overlap",
    );
}

/// Adopts ten elements of a memory, starting with this one. The memory outlives the adopted part.
fn adopted(memory: &Memory<f64>, first: usize) -> Memory<f64> {
    let native = memory.view().native().unwrap();
    let handle = NativeHandle { raw: native.raw + first * size_of::<f64>(), ..native };
    // SAFETY: elements of the memory, which are not accessed before the exchange of these fields is refused.
    unsafe { memory.device().memory_adopt(handle, 10, ()) }.unwrap()
}

/// For every operation, with messages and without; one memory adopted twice, or overlapping parts of a memory.
#[test]
fn fields_that_share_elements_are_refused() {
    type Use = fn(&mut HaloExchange, &Stream, &mut [Field<'_>]) -> Result<()>;
    let uses: [Use; 4] = [
        |halo, stream, fields| halo.start(stream, fields)?.finish(),
        |halo, stream, fields| halo.exchange(stream, fields),
        |halo, stream, fields| halo.reduce(stream, fields, Combine::Sum),
        |halo, stream, fields| halo.synchronize_shared(stream, fields),
    ];
    let words = "fields height and depth of rank 1 share elements";
    for (one_use, first) in uses.into_iter().zip([0, 9, 0, 5]) {
        let error = refusal(|halo, stream, _| {
            let memory = stream.device().memory_allocate::<f64>(20)?;
            let [mut one, mut two] = [0, first].map(|first| adopted(&memory, first));
            one_use(halo, stream, &mut [view(&mut one), view(&mut two)])
        });
        check(ErrorKind::InvalidArgument, &[words], &error);
    }
    let device = device();
    let stream = device.default_stream();
    let quantities = [named("height", 1), named("depth", 1)];
    let options = HaloOptions::default();
    let mut halo = HaloTransformer::new(&ring(), 1, &quantities, &device, &options).unwrap();
    let memory = device.memory_allocate::<f64>(20).unwrap();
    let [mut one, mut two] = [0, 5].map(|first| adopted(&memory, first));
    let mut fields = [view(&mut one), view(&mut two)];
    refused(halo.pack(&stream, &mut fields), words);
    let mut messages = halo.incoming().unwrap();
    messages.iter_mut().for_each(|message| drop(message.as_mut_slice()));
    refused(halo.unpack(&stream, &mut fields, messages), words);
    // If ranks read each other's fields, they lend nothing in this case.
    ThreadCommunicator::run(2, |ranks| {
        let (rank, ranks) = (ranks.rank(), Arc::new(ranks));
        let mut halo =
            HaloExchange::new(Arc::clone(&ranks) as _, &ring(), &quantities, &device, &options)
                .unwrap();
        let memory = device.memory_allocate::<f64>(20).unwrap();
        let [mut one, mut two] = [0, 5].map(|first| adopted(&memory, first));
        let mut fields = [view(&mut one), view(&mut two)];
        let words = format!("fields height and depth of rank {rank} share elements");
        refused(halo.exchange(&stream, &mut fields), &words);
    })
    .unwrap();
}

#[test]
fn a_rank_beyond_the_topology_is_refused() {
    refused(plan(&ring(), 2, &[field(1)]), "rank 2 of a topology of 2");
    // All ranks take part in the comparison, and all of them get the error.
    let made = ThreadCommunicator::run(3, |ranks| {
        let ranks = Arc::new(ranks);
        HaloExchange::new(ranks, &ring(), &[field(1)], &device(), &HaloOptions::default()).map(drop)
    });
    for (rank, made) in made.unwrap().into_iter().enumerate() {
        refused(made, &format!("rank {rank}: a topology of 2 ranks for a communicator of 3"));
    }
}

#[test]
fn averages_of_integers_are_refused() {
    let sphere = Topology::cubed_sphere(4, [1, 1]).unwrap();
    let dims = [Dim::axis(0, 4).halo(1, 1), Dim::axis(1, 4).halo(1, 1)];
    let count = Quantity::scalar(FieldSpec::new("count", DType::I32, &dims).unwrap());
    let options =
        HaloOptions { missing_corners: MissingCorners::Average, ..HaloOptions::default() };
    refused(
        HaloTransformer::new(&sphere, 4, &[count], &device(), &options),
        "rank 4: field count: averages of elements of i32",
    );
}

#[test]
fn topologies_without_ranks_are_refused() {
    refused(Topology::cartesian(&[6], &[0], &[true]), "0 ranks along an axis");
    refused(Topology::cubed_sphere(6, [0, 1]), "0 ranks along an axis");
    refused(Topology::of_blocks::<2>(&[], &[]), "0 blocks with 2 axes; 1 to 3");
}

/// A side of four cells and a side of six cannot be neighbours; rotating a block that is not square would join them.
#[test]
fn joined_sides_of_different_lengths_are_refused() {
    let link = |rank, side, neighbour, symmetry| Link { rank, side, neighbour, symmetry };
    let links = [
        link(0, Side::EAST, 1, Symmetry::QUARTER),
        link(1, Side::SOUTH, 0, Symmetry::THREE_QUARTERS),
    ];
    refused(
        Topology::of_blocks(&[[6, 4], [6, 4]], &links),
        "block 0, side east, joined to 1 by quarter: the sides differ in length, [6, 4] cells and [6, 4]",
    );
    Topology::of_blocks(&[[6, 4], [4, 6]], &links).unwrap();
}

/// The error of rank 1 of two for its two fields. No message was sent, no buffer was taken, and the exchange works
/// afterwards.
fn refusal(
    exchange: impl Fn(&mut HaloExchange, &Stream, &mut [Memory<f64>; 2]) -> Result<()> + Sync,
) -> Error {
    let errors = ThreadCommunicator::run(2, |ranks| {
        let rank = ranks.rank();
        let ranks = Arc::new(Altered { direct: Access::None, ..Altered::new(ranks) });
        let device = device();
        let stream = device.default_stream();
        let shared = Arc::clone(&ranks) as Arc<dyn Communicator>;
        let options = HaloOptions::default();
        let quantities = [named("height", 1), named("depth", 1)];
        let mut halo = HaloExchange::new(shared, &ring(), &quantities, &device, &options).unwrap();
        let mut values =
            [0, 1].map(|_| device.memory_from_slice(&stream, &[rank as f64; 10]).unwrap());
        halo.exchange(&stream, &mut values.each_mut().map(view)).unwrap();
        let (sent, pool) = (ranks.sent(), halo.pool_bytes());
        let error = (rank == 1).then(|| exchange(&mut halo, &stream, &mut values).unwrap_err());
        assert_eq!((ranks.sent(), halo.pool_bytes()), (sent, pool));
        halo.exchange(&stream, &mut values.each_mut().map(view)).unwrap();
        let (own, other) = (rank as f64, 1.0 - rank as f64);
        let halos = [other, other, own, own, own, own, own, own, other, other];
        values.iter().for_each(|values| assert_eq!(values.to_vec(&stream).unwrap(), halos));
        assert!(ranks.sent() > sent);
        error
    });
    errors.unwrap().swap_remove(1).unwrap()
}

fn view(values: &mut Memory<f64>) -> Field<'_> {
    values.view_mut().reshape(&[5, 2]).unwrap().into()
}

fn check(kind: ErrorKind, words: &[&str], error: &Error) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(words.iter().all(|word| error.message().contains(word)), "{words:?} in {error}");
}

/// A plan for one element type and shape accepts no other.
#[test]
fn a_field_unlike_its_spec_is_refused() {
    let error = refusal(|halo, stream, [height, _]| {
        let mut integers = stream.device().memory_allocate::<i32>(10)?;
        let integers = integers.view_mut().reshape(&[5, 2])?.into();
        halo.exchange(stream, &mut [view(height), integers])
    });
    let words = ["field depth of rank 1", "elements of i32, planned f64"];
    check(ErrorKind::InvalidArgument, &words, &error);
    let error = refusal(|halo, stream, [_, depth]| {
        let mut wide = stream.device().memory_allocate::<f64>(12)?;
        halo.exchange(stream, &mut [wide.view_mut().reshape(&[6, 2])?.into(), view(depth)])
    });
    let words = ["field height of rank 1", "shape [6, 2]", "planned [5, 2]", "FieldSpec::layout"];
    check(ErrorKind::InvalidArgument, &words, &error);
}

#[test]
fn a_field_bound_to_another_stream_is_refused() {
    let error = refusal(|halo, stream, [height, depth]| {
        let aside = stream.device().stream_create(&Default::default())?;
        let depth = depth.view_mut().reshape(&[5, 2])?.on_stream(&aside)?.into();
        halo.start(stream, &mut [view(height), depth])?.finish()
    });
    check(ErrorKind::WrongStream, &["field depth of rank 1"], &error);
}

/// Each rank sets its own limit of the pool.
#[test]
fn messages_beyond_the_limit_of_the_pool_are_refused() {
    let options = HaloOptions { pool_bytes: Some(8), ..HaloOptions::default() };
    let device = device();
    let mut halo = HaloTransformer::new(&ring(), 1, &[field(1)], &device, &options).unwrap();
    let mut values = device.memory_allocate::<f64>(10).unwrap();
    let error = halo.pack(&device.default_stream(), &mut [view(&mut values)]).unwrap_err();
    check(ErrorKind::LimitExceeded, &["rank 1: a message of", "of 8 are in use"], &error);
    let error = halo.incoming().unwrap_err();
    check(ErrorKind::LimitExceeded, &["rank 1: a message of", "of 8 are in use"], &error);
}

fn in_host_memory(buffer: Buffer) -> Result<Buffer> {
    Ok(Buffer::host(buffer.to_vec()?).with_message_id(buffer.message_id()))
}

/// Returns a buffer of the same kind that is 8 bytes longer.
fn too_long(buffer: Buffer) -> Result<Buffer> {
    let (bytes, message_id) = (buffer.len() + 8, buffer.message_id());
    let longer = match buffer.into_storage() {
        Storage::Host(_) => Buffer::host(vec![0; bytes]),
        Storage::Pinned(pinned) => Buffer::pinned(pinned.device().pinned_allocate(bytes)?),
        Storage::Device(memory) => Buffer::device(memory.device().memory_allocate(bytes)?),
    };
    Ok(longer.with_message_id(message_id))
}

/// Lets work use the buffer of a message.
fn used(mut buffer: Buffer) -> Result<Buffer> {
    fn nap(_: &Grid<'_>) {
        thread::sleep(Duration::from_millis(50));
    }
    let Storage::Device(memory) = buffer.storage_mut() else { return Ok(buffer) };
    let stream = memory.device().stream_create(&Default::default())?;
    let module = memory.device().module_load(&HostModule::new().with("nap", nap))?;
    // SAFETY: the kernel is safe Rust, without memory.
    unsafe { module.kernel("nap")?.launch(&stream, &Launch::cover(1, 1), args![]) }?;
    memory.fill(&stream, 0xee)?;
    Ok(buffer)
}

/// The host does not read its bytes.
#[test]
fn a_returned_buffer_that_work_still_uses_is_refused() {
    let device = Device::new(HostDevice::new(0)).unwrap();
    ThreadCommunicator::run(2, |ranks| {
        let ranks =
            Arc::new(Altered { direct: Access::None, received: used, ..Altered::new(ranks) });
        let (stream, options) = (device.default_stream(), HaloOptions::default());
        let mut halo = HaloExchange::new(ranks, &ring(), &[field(1)], &device, &options).unwrap();
        let mut values = device.memory_from_slice(&stream, &[1.0; 10]).unwrap();
        let error = halo.exchange(&stream, &mut [view(&mut values)]).unwrap_err();
        check(ErrorKind::Conflict, &["message from rank", "work uses the memory"], &error);
        // No rank leaves before the other has its message.
        halo
    })
    .unwrap();
}

/// With every staging of messages.
#[test]
fn a_returned_buffer_of_another_kind_or_length_is_refused() {
    type Change = fn(Buffer) -> Result<Buffer>;
    let host: (Change, [&str; 3]) = (in_host_memory, ["Host(40)", "receive", "from rank 0"]);
    let long: (Change, [&str; 3]) = (too_long, ["(48 u8", "receive of 40 bytes", "from rank 0"]);
    let stagings = [Staging::Pinned, Staging::Device];
    for (staging, (change, words)) in
        stagings.into_iter().flat_map(|way| [(way, host), (way, long)])
    {
        ThreadCommunicator::run(2, |ranks| {
            let (rank, device) = (ranks.rank(), device());
            let mut ranks = Altered { direct: Access::None, ..Altered::new(ranks) };
            if rank == 1 {
                ranks.received = change;
            }
            let ranks = Arc::new(ranks);
            let stream = device.default_stream();
            let options = HaloOptions { staging, ..Default::default() };
            let mut halo =
                HaloExchange::new(ranks, &ring(), &[field(1)], &device, &options).unwrap();
            let mut values = device.memory_from_slice(&stream, &[1.0; 10]).unwrap();
            let done = halo.exchange(&stream, &mut [view(&mut values)]);
            // Rank 0 sends a message that rank 1 refuses. Rank 1 may leave before it has sent everything that rank 0
            // waits for.
            if rank == 1 {
                check(ErrorKind::InvalidArgument, &words, &done.unwrap_err());
            }
        })
        .unwrap();
    }
}

#[test]
fn another_number_of_fields_is_refused() {
    for count in [0, 1, 3] {
        let error = refusal(|halo, stream, _| {
            let allocate = |_| stream.device().memory_allocate::<f64>(10);
            let mut others = (0..count).map(allocate).collect::<Result<Vec<_>>>()?;
            let views = others.iter_mut().map(|m| Ok(m.view_mut().reshape(&[5, 2])?.into()));
            halo.exchange(stream, &mut views.collect::<Result<Vec<Field<'_>>>>()?)
        });
        let words = format!("{count} fields of rank 1; 2 are planned");
        check(ErrorKind::InvalidArgument, &[&words], &error);
    }
}

#[test]
fn fields_and_streams_of_another_device_are_refused() {
    let error = refusal(|halo, stream, [_, depth]| {
        let other = Device::new(SimDevice::new(1, SimConfig::new()))?;
        let mut abroad = other.memory_allocate::<f64>(10)?;
        halo.exchange(stream, &mut [view(&mut abroad), view(depth)])
    });
    check(ErrorKind::WrongDevice, &["field height of rank 1", "memory of sim:1"], &error);
    let error = refusal(|halo, stream, [height, _]| {
        let mut abroad = device().memory_allocate::<f64>(10)?;
        halo.exchange(stream, &mut [view(height), view(&mut abroad)])
    });
    let words = ["field depth of rank 1", "memory of another opening of sim:0"];
    check(ErrorKind::WrongDevice, &words, &error);
    let error = refusal(|halo, _, values| {
        let stream = device().default_stream();
        halo.exchange(&stream, &mut values.each_mut().map(view))
    });
    let words = ["rank 1: a stream of another opening of sim:0"];
    check(ErrorKind::WrongDevice, &words, &error);
    let here = device();
    let options = HaloOptions::default();
    let mut halo = HaloTransformer::new(&ring(), 1, &[field(1)], &here, &options).unwrap();
    let mut values = here.memory_allocate::<f64>(10).unwrap();
    let error = halo.pack(&device().default_stream(), &mut [view(&mut values)]).unwrap_err();
    check(ErrorKind::WrongDevice, &words, &error);
}

#[test]
fn a_group_has_1_to_16777216_ranks() {
    for size in [0, 1 << 44, usize::MAX] {
        let words = [&*size.to_string(), "1 to 16777216"];
        let error = ThreadCommunicator::group(size).unwrap_err();
        check(ErrorKind::InvalidArgument, &words, &error);
        let error = ThreadCommunicator::run(size, |_| ()).unwrap_err();
        check(ErrorKind::InvalidArgument, &words, &error);
    }
}

#[test]
fn messages_of_2_to_the_63_bytes_are_refused() {
    let cells = 1 << 29;
    let topology = Topology::cubed_sphere(cells, [1, 1]).unwrap();
    let dims = [0, 1].map(|axis| Dim::axis(axis, cells).halo(cells, cells));
    let field = |number| FieldSpec::new(format!("f{number}"), DType::F16, &dims).unwrap();
    let corners = [MissingCorners::Untouched, MissingCorners::Fill(1.0), MissingCorners::Average];
    for missing_corners in corners {
        for fields in [5, 9] {
            let quantities: Vec<Quantity> =
                (0..fields).map(|n| Quantity::scalar(field(n))).collect();
            for staging in [Staging::Pinned, Staging::Device] {
                let options = HaloOptions { missing_corners, staging, ..Default::default() };
                let made = HaloTransformer::new(&topology, 0, &quantities, &device(), &options);
                assert!(made.unwrap_err().message().contains("rank 0"));
            }
        }
    }
}

fn alone() -> ThreadCommunicator {
    ThreadCommunicator::group(1).unwrap().remove(0)
}

#[test]
fn a_gather_of_another_number_of_bytes_is_refused() {
    let topology = Topology::cartesian(&[3], &[1], &[true]).unwrap();
    for gathered in [vec![], vec![1; 500]] {
        let words = [&*format!("{} bytes of 1 ranks", gathered.len())];
        let ranks = Altered { gathered: Some(gathered), ..Altered::new(alone()) };
        let options = HaloOptions::default();
        let made = HaloExchange::new(Arc::new(ranks), &topology, &[field(1)], &device(), &options);
        check(ErrorKind::Driver, &words, &made.unwrap_err());
    }
}

/// Also if it reports no ranks then, and gathers nothing.
#[test]
fn a_transport_whose_numbers_change_while_an_exchange_is_made_is_refused() {
    let topology = Topology::cartesian(&[3], &[1], &[true]).unwrap();
    for (gathered, later, words) in [
        (Some(vec![]), [0, 0], "0 bytes of 1 ranks"),
        (None, [0, 0], "rank 0 of 1 now calls itself rank 0 of 0"),
        (None, [7, 9], "rank 0 of 1 now calls itself rank 7 of 9"),
    ] {
        let ranks = Altered { gathered, later: (1, later), ..Altered::new(alone()) };
        let options = HaloOptions::default();
        let made = HaloExchange::new(Arc::new(ranks), &topology, &[field(1)], &device(), &options);
        check(ErrorKind::Driver, &[words], &made.unwrap_err());
    }
}

/// While ranks measure their messages, or later.
#[test]
fn numbers_that_change_after_ranks_agreed_are_not_used() {
    for gathers in 2..12 {
        ThreadCommunicator::run(2, |ranks| {
            let rank = ranks.rank();
            let later = (gathers, [7, 0]);
            let ranks = Arc::new(Altered { later, direct: Access::None, ..Altered::new(ranks) });
            let (device, options) = (device(), HaloOptions::default());
            let stream = device.default_stream();
            let mut halo =
                HaloExchange::new(ranks, &ring(), &[field(1)], &device, &options).unwrap();
            let mut values = device.memory_from_slice(&stream, &[rank as f64; 10]).unwrap();
            halo.exchange(&stream, &mut [view(&mut values)]).unwrap();
            assert_eq!(values.to_vec(&stream).unwrap()[9], (1 - rank) as f64);
        })
        .unwrap();
    }
}

#[test]
fn a_rank_beyond_the_size_of_its_communicator_is_refused() {
    for place in [[3, 0], [7, 2], [usize::MAX - 1, usize::MAX]] {
        let ranks = Altered { place, ..Altered::new(alone()) };
        let error = ranks.barrier(Duration::ZERO).unwrap_err();
        let words = [&*format!("rank {} of {}", place[0], place[1])];
        check(ErrorKind::InvalidArgument, &words, &error);
        check(ErrorKind::InvalidArgument, &words, &ranks.reset(Duration::ZERO).unwrap_err());
    }
}

/// An exchange goes by messages then.
#[test]
fn memory_of_another_group_is_not_read() {
    let device = device();
    ThreadCommunicator::run(2, |ranks| {
        let ranks = Altered { direct: Access::Other(Arc::new(alone())), ..Altered::new(ranks) };
        exchanges(Arc::new(ranks), &ring(), &device);
    })
    .unwrap();
}

/// The memory has the numbers from inside, by which fields of the wrong ranks would be read.
#[test]
fn memory_of_ranks_with_other_numbers_is_not_read() {
    let device = device();
    let topology = Topology::cartesian(&[12], &[4], &[true]).unwrap();
    let inside = |rank| (rank + 2) % 4;
    let exchange = |ranks: ThreadCommunicator| {
        let place = [inside(ranks.rank()), 4];
        exchanges(Arc::new(Altered { place, inside, ..Altered::new(ranks) }), &topology, &device);
    };
    ThreadCommunicator::run(4, exchange).unwrap();
}

/// The communicators give both exchanges the same numbers. The ranks then call different exchanges.
#[test]
fn exchanges_of_two_communicators_that_reach_the_same_memory_do_not_meet() {
    let device = device();
    let groups = [(); 2].map(|()| Mutex::new(ThreadCommunicator::group(2).unwrap()));
    let end = Barrier::new(2);
    ThreadCommunicator::run(2, |memory| {
        let (rank, memory) = (memory.rank(), Arc::new(memory));
        let options = HaloOptions { timeout: Duration::from_secs(1), ..Default::default() };
        let mut exchanges = groups.each_ref().map(|group| {
            let own = |ranks: &ThreadCommunicator| ranks.rank() == rank;
            let mut group = group.lock().unwrap();
            let index = group.iter().position(own).unwrap();
            let messages = group.remove(index);
            drop(group);
            let direct = Access::Other(Arc::clone(&memory));
            let ranks = Arc::new(Altered { direct, ..Altered::new(messages) });
            // All ranks make both in this order.
            HaloExchange::new(ranks, &ring(), &[field(1)], &device, &options).unwrap()
        });
        let stream = device.default_stream();
        let mut values = device.memory_from_slice(&stream, &[rank as f64; 10]).unwrap();
        let error = exchanges[rank].exchange(&stream, &mut [view(&mut values)]).unwrap_err();
        // A rank that has left would be another reason to fail.
        end.wait();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert_eq!(values.to_vec(&stream).unwrap(), [rank as f64; 10]);
    })
    .unwrap();
}

/// Fills the halos of a rank in a ring, each of whose cells has the rank's number.
fn exchanges(ranks: Arc<dyn Communicator>, topology: &Topology, device: &Device) {
    let (rank, size) = (ranks.rank(), ranks.size());
    let (stream, options) = (device.default_stream(), HaloOptions::default());
    let mut halo = HaloExchange::new(ranks, topology, &[field(1)], device, &options).unwrap();
    let mut values = device.memory_from_slice(&stream, &[rank as f64; 10]).unwrap();
    halo.exchange(&stream, &mut [view(&mut values)]).unwrap();
    let values = values.to_vec(&stream).unwrap();
    let ends = [values[0], values[2], values[9]];
    let neighbour = |distance: usize| ((rank + distance) % size) as f64;
    assert_eq!(ends, [neighbour(size - 1), rank as f64, neighbour(1)], "rank {rank}");
}

#[test]
fn different_field_names_of_any_characters_are_reported() {
    let cases = [
        (
            ["a\nb", "a\nc"],
            DType::F64,
            "another name of field 0 than rank 0: a\\nc on rank 1, a\\nb on rank 0",
        ),
        (
            ["q", "q\0"],
            DType::F64,
            "another name of field 0 than rank 0: q\\0 on rank 1, q on rank 0",
        ),
        (
            ["a\nb", "a\nb"],
            DType::F32,
            "element type of field 0, a\\nb than rank 0: f32 on rank 1, f64 on",
        ),
    ];
    for (names, of_second, words) in cases {
        let errors = ThreadCommunicator::run(2, |ranks| {
            let rank = ranks.rank();
            let dtype = if rank == 0 { DType::F64 } else { of_second };
            let field = FieldSpec::new(names[rank], dtype, &[Dim::axis(0, 3).halo(1, 1)]).unwrap();
            let (quantities, options) = ([Quantity::scalar(field)], HaloOptions::default());
            HaloExchange::new(Arc::new(ranks), &ring(), &quantities, &device(), &options)
                .unwrap_err()
        });
        for error in errors.unwrap() {
            check(ErrorKind::InvalidArgument, &[words], &error);
        }
    }
}

#[test]
fn a_peer_in_other_collective_calls_cannot_exhaust_memory() {
    let second = Duration::from_secs(1);
    let device = Device::new(HostDevice::new(0)).unwrap();
    let errors = ThreadCommunicator::run(2, |ranks| -> Result<_> {
        if ranks.rank() == 1 {
            // What a rank contributes that searches for the attribute that differs.
            for bytes in [&[7; 176][..], &[0; 8]] {
                ranks.all_gather(bytes, second)?;
            }
            for _ in 0..5 {
                ranks.all_gather(&[7; 16], second)?;
            }
            ranks.all_gather(&(1_u64 << 50).to_le_bytes(), second)?;
            return Ok(None);
        }
        let topology = Topology::cartesian(&[4], &[2], &[true])?;
        let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 2).halo(1, 1)])?;
        let options = HaloOptions { timeout: second, ..Default::default() };
        let quantities = [Quantity::scalar(field)];
        Ok(HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options).err())
    })
    .unwrap();
    let error = errors[0].as_ref().unwrap().as_ref().unwrap();
    assert!(error.message().contains("1125899906842624"), "{error}");
}

#[test]
fn halos_of_almost_2_to_the_63_cells_do_not_overflow() {
    let width = isize::MAX as usize - 7;
    let field = |dims: &[Dim]| Quantity::scalar(FieldSpec::new("f", DType::U8, dims).unwrap());
    // Beyond a physical boundary.
    let column = Topology::cartesian(&[4, 100], &[1, 100], &[false; 2]).unwrap();
    let wide = field(&[Dim::axis(0, 4).halo(width, 0), Dim::axis(1, 1)]);
    plan(&column, 50, &[wide]).unwrap();
    let row = Topology::cartesian(&[400], &[100], &[false]).unwrap();
    let message = "field f, side east of rank 50: a halo of 9223372036854775800 cells; its neighbour, rank 51, has 4";
    refused(plan(&row, 50, &[field(&[Dim::axis(0, 4).halo(0, width)])]), message);
}

#[test]
fn extreme_strides_of_empty_fields_do_not_overflow() {
    let dims = [Dim::free(0), Dim::axis(1, 4).halo(1, 1), Dim::axis(0, 4).halo(1, 1)];
    let field = FieldSpec::new("f", DType::F64, &dims).unwrap();
    field.strided(&[1, isize::MIN, isize::MIN]).unwrap();
}

#[test]
fn a_transport_whose_rank_changes_is_refused() {
    ThreadCommunicator::run(1, |ranks| {
        let mut ranks = Altered::new(ranks);
        Communicator::reset(&ranks, Duration::from_secs(1)).unwrap();
        ranks.place = [5, 9];
        let error = Communicator::reset(&ranks, Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.message(), "rank 0 of 1 now calls itself rank 5 of 9");
    })
    .unwrap();
}

/// No halo message shows the order here, because there are no ghosts. Messages of shared points do.
#[test]
fn ranks_whose_shared_points_have_another_order_get_an_error() {
    let topology = Topology::cartesian(&[8, 3], &[2, 1], &[false, false]).unwrap();
    let device = device();
    let errors = ThreadCommunicator::run(2, |communicator| {
        let dims = [Dim::axis(0, 4).staggered(), Dim::axis(1, 3), Dim::free(2)];
        let order: &[usize] = if communicator.rank() == 1 { &[0, 2, 1] } else { &[0, 1, 2] };
        let field = FieldSpec::new("u", DType::F64, &dims).unwrap().ordered(order).unwrap();
        let (ranks, options) = (Arc::new(communicator), HaloOptions::default());
        HaloExchange::new(ranks, &topology, &[Quantity::scalar(field)], &device, &options)
            .map(drop)
            .unwrap_err()
    });
    for error in errors.unwrap() {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let words = "another order of dimensions in memory of field 0, u than rank 0: [0, 2, 1]";
        assert!(error.message().contains(words), "{error}");
    }
}

#[test]
fn a_message_whose_memory_was_never_handed_out_was_not_received() {
    let device = device();
    let stream = device.default_stream();
    let options = HaloOptions { staging: Staging::Device, ..HaloOptions::default() };
    let mut halo = HaloTransformer::new(&ring(), 0, &[field(1)], &device, &options).unwrap();
    let mut memory = device.memory_from_slice(&stream, &[1.0; 10]).unwrap();
    let mut incoming = halo.incoming().unwrap();
    for message in &mut incoming {
        assert!(message.as_mut_slice().unwrap().is_none(), "the host cannot address the memory");
    }
    let view = memory.view_mut().reshape(&[5, 2]).unwrap();
    let error = halo.unpack(&stream, &mut [view.into()], incoming).unwrap_err();
    assert!(error.message().ends_with("the message of rank 1 was not received"), "{error}");
}

#[test]
fn fields_without_elements_may_have_any_strides_at_missing_corners() {
    let joined = [Side::EAST, Side::WEST, Side::NORTH, Side::SOUTH];
    let link = |side| Link { rank: 0, side, neighbour: 0, symmetry: Symmetry::IDENTITY };
    let topology = Topology::of_blocks(&[[4, 4]], &joined.map(link)).unwrap();
    let dims = [Dim::axis(1, 4).halo(1, 1), Dim::axis(0, 4).halo(1, 1), Dim::free(0)];
    for corners in [MissingCorners::Fill(1.0), MissingCorners::Average] {
        for stride in [1 << 59, isize::MAX / 2, isize::MIN] {
            let field = FieldSpec::new("empty", DType::F64, &dims).unwrap();
            let Ok(field) = field.strided(&[stride, stride, 1]) else { continue };
            let options = HaloOptions { missing_corners: corners, ..HaloOptions::default() };
            let [alone] = ThreadCommunicator::group(1).unwrap().try_into().unwrap();
            let quantities = [Quantity::scalar(field)];
            HaloExchange::new(Arc::new(alone), &topology, &quantities, &device(), &options)
                .unwrap();
        }
    }
}
