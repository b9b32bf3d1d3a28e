//! Exchanges of ranks that are threads: concurrent work, failures of ranks, and statistics.
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; small numbers"
)]
#![expect(unsafe_code, reason = "launches kernels")]

mod ring;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use backend_host::HostDevice;
use backend_sim::{SimConfig, SimDevice, SimHandle};
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{
    Combine, Dim, Error, ErrorKind, FieldSpec, HaloExchange, HaloOptions, MissingCorners, Quantity,
    Result, Staging, Topology,
};
use ring::{expected, values};
use runtime_core::{
    DType, Device, Grid, HostModule, Launch, Layout, Memory, MemoryViewMut, RegionCopy, Stream,
    args,
};

const LONG: Duration = Duration::from_secs(30);

fn join(ranks: Arc<ThreadCommunicator>, device: &Device, options: &HaloOptions) -> HaloExchange {
    ring::join(ranks, device, options).unwrap()
}

fn sim() -> Device {
    Device::new(SimDevice::new(0, SimConfig::new().jitter(Duration::from_micros(100)))).unwrap()
}

fn each(ranks: usize, options: &HaloOptions, f: impl Fn(usize, HaloExchange, Stream) + Sync) {
    let device = sim();
    ThreadCommunicator::run(ranks, |communicator| {
        let rank = communicator.rank();
        let stream = device.stream_create(&Default::default()).unwrap();
        f(rank, join(Arc::new(communicator), &device, options), stream);
    })
    .unwrap();
}

/// Owned values can be read during the exchange, by messages and directly, and halos are filled when it ends.
#[test]
fn owned_values_can_be_read_during_an_exchange() {
    for direct in [false, true] {
        let options = HaloOptions { direct, ..Default::default() };
        each(3, &options, |rank, mut halo, stream| {
            let mut values = values(rank, &stream);
            for _ in 0..10 {
                let fields = &mut [values.view_mut().into()];
                let (owned, none) = halo
                    .overlap(&stream, fields, |progress| {
                        let start = Instant::now();
                        while !progress.poll()? && start.elapsed() < LONG {
                            thread::yield_now();
                        }
                        assert!(progress.poll()?);
                        let none = progress.owned(1).map(drop).unwrap_err();
                        Ok((progress.owned(0)?.typed::<f64>()?.to_vec(&stream)?, none))
                    })
                    .unwrap();
                assert_eq!(owned, expected(rank, 3)[1..4]);
                assert_eq!(none.kind(), ErrorKind::InvalidArgument);
                assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 3));
            }
        });
    }
}

/// Rust functions get the owned box of a two-dimensional field as a row, by messages and directly.
#[test]
fn the_owned_box_is_lent_to_rust_functions() {
    fn copy(_: &Grid<'_>, out: &mut [f64], owned: &[f64]) {
        for (out, owned) in out.chunks_mut(2).zip(owned.chunks(4)) {
            out.copy_from_slice(&owned[..2]);
        }
    }
    for direct in [false, true] {
        let device = Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap();
        ThreadCommunicator::run(2, |communicator| {
            let topology = Topology::cartesian(&[4, 3], &[2, 1], &[true, true]).unwrap();
            let dims = [Dim::axis(1, 3).halo(1, 1), Dim::axis(0, 2).halo(1, 1)];
            let quantities = [Quantity::scalar(FieldSpec::new("f", DType::F64, &dims).unwrap())];
            let options = HaloOptions { direct, ..Default::default() };
            let ranks = Arc::new(communicator);
            let mut halo =
                HaloExchange::new(ranks, &topology, &quantities, &device, &options).unwrap();
            let stream = device.stream_create(&Default::default()).unwrap();
            let module = device.module_load(&HostModule::new().with("copy", copy)).unwrap();
            let kernel = module.kernel("copy").unwrap();
            let numbers: Vec<f64> = (0..20_u8).map(f64::from).collect();
            let mut values = device.memory_from_slice(&stream, &numbers).unwrap();
            let mut out = device.memory_allocate::<f64>(6).unwrap();
            let fields = &mut [values.view_mut().reshape(&[5, 4]).unwrap().into()];
            let strides = halo
                .overlap(&stream, fields, |progress| {
                    let owned = progress.owned(0)?;
                    assert_eq!(owned.layout().shape(), [3, 2]);
                    // SAFETY: the kernel reads two of four columns, which belong to the box.
                    let args = args![out.view_mut(), unsafe { owned.span() }?];
                    // SAFETY: the kernel is safe Rust.
                    unsafe { kernel.launch(&stream, &Launch::cover(1, 1), args) }?;
                    Ok(owned.layout().strides().to_vec())
                })
                .unwrap();
            assert_eq!(strides, [4, 1]);
            assert_eq!(out.to_vec(&stream).unwrap(), [5.0, 6.0, 9.0, 10.0, 13.0, 14.0]);
        })
        .unwrap();
    }
}

/// If polling fails, the error is returned unchanged, by messages and directly, whatever the work does with it.
#[test]
fn the_first_failure_of_polling_is_returned() {
    let returns_it = |failure: Error| Err(failure);
    let ignores_it = |_: Error| Ok(());
    let returns_another = |_: Error| Err(Error::new(ErrorKind::LimitExceeded, "work", "too much"));
    let works: [fn(Error) -> Result<()>; 3] = [returns_it, ignores_it, returns_another];
    for (direct, work) in [false, true].into_iter().flat_map(|d| works.map(|work| (d, work))) {
        let options = HaloOptions { direct, ..Default::default() };
        let has_begun = Barrier::new(2);
        each(2, &options, |rank, mut halo, stream| {
            if rank == 1 {
                // It leaves.
                has_begun.wait();
                return;
            }
            let mut values = values(rank, &stream);
            let fields = &mut [values.view_mut().into()];
            let outcome = halo.overlap(&stream, fields, |progress| {
                has_begun.wait();
                let start = Instant::now();
                let failure = loop {
                    match progress.poll() {
                        Ok(_) => assert!(start.elapsed() < LONG),
                        Err(failure) => break failure,
                    }
                    thread::yield_now();
                };
                assert_eq!(progress.poll().unwrap_err().to_string(), failure.to_string());
                work(failure)
            });
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
            assert!(error.message().contains("rank 1 has left"), "{error}");
            let next = halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap_err();
            assert_eq!(next.kind(), ErrorKind::Conflict);
        });
    }
}

/// The capturing rank takes no part, so the other rank notices nothing.
#[test]
fn a_stream_that_captures_is_refused() {
    for direct in [true, false] {
        let options = HaloOptions { direct, timeout: LONG, ..Default::default() };
        each(2, &options, |rank, mut halo, stream| {
            let mut values = values(rank, &stream);
            if rank == 0 {
                let graphs = stream.device().graphs().unwrap();
                let captured = graphs.capture(|capture| {
                    let error =
                        halo.exchange(capture, &mut [values.view_mut().into()]).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                    assert!(error.message().contains("rank 0: a stream that captures"), "{error}");
                    Ok(())
                });
                // A graph would leave the exchange out.
                assert_eq!(captured.unwrap_err().kind(), ErrorKind::InvalidArgument);
            }
            halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap();
            assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 2));
        });
    }
}

/// Work that fails does not affect the other ranks, and the next exchange works.
#[test]
fn failed_work_does_not_fail_the_exchange() {
    for direct in [false, true] {
        let options = HaloOptions { direct, ..Default::default() };
        each(2, &options, |rank, mut halo, stream| {
            let mut values = values(rank, &stream);
            let fields = &mut [values.view_mut().into()];
            let outcome = halo.overlap(&stream, fields, |progress| progress.owned(rank).map(drop));
            assert_eq!(outcome.is_err(), rank == 1);
            assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 2));
            halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap();
        });
    }
}

/// The result is the same if messages have already arrived: a single rank waits for none.
#[test]
fn an_exchange_that_was_not_polled_to_its_end_was_abandoned() {
    each(1, &HaloOptions::default(), |rank, mut halo, stream| {
        let mut values = values(rank, &stream);
        drop(halo.start(&stream, &mut [values.view_mut().into()]).unwrap());
        let error = halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        halo.reset().unwrap();
        assert!(halo.start(&stream, &mut [values.view_mut().into()]).unwrap().poll().unwrap());
        halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap();
        assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 1));
    });
}

/// The timeout limits the waiting, not the work.
#[test]
fn work_may_take_longer_than_the_timeout() {
    for direct in [false, true] {
        let timeout = Duration::from_millis(600);
        let options = HaloOptions { direct, timeout, ..Default::default() };
        let both = Barrier::new(2);
        each(2, &options, |rank, mut halo, stream| {
            let mut values = values(rank, &stream);
            let fields = &mut [values.view_mut().into()];
            let worked = halo.overlap(&stream, fields, |_| {
                thread::sleep(timeout + timeout / 4);
                both.wait();
                Ok(())
            });
            worked.unwrap();
            assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 2));
        });
    }
}

/// A rank that reads directly and a rank that sends messages do not match: both get an error at once, in any order.
#[test]
fn ranks_that_call_different_methods_get_an_error() {
    for late in 0..2 {
        let (device, begun) = (sim(), Barrier::new(2));
        ThreadCommunicator::run(2, |communicator| {
            let rank = communicator.rank();
            let options = HaloOptions { timeout: LONG, ..Default::default() };
            let mut halo = join(Arc::new(communicator), &device, &options);
            let stream = device.default_stream();
            let mut values = values(rank, &stream);
            let fields = &mut [values.view_mut().into()];
            if rank == late {
                begun.wait();
            }
            if rank == 0 {
                let start = Instant::now();
                let error = halo.overlap(&stream, fields, |_| {
                    if late == 1 {
                        begun.wait();
                    }
                    Ok(())
                });
                let error = error.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                assert!(error.message().contains("rank 1 exchanges by messages"), "{error}");
                assert!(start.elapsed() < LONG);
            } else {
                let flight = halo.start(&stream, fields).unwrap();
                if late == 0 {
                    begun.wait();
                }
                // Until rank 0 has left.
                assert_eq!(flight.finish().unwrap_err().kind(), ErrorKind::PeerLost);
            }
        })
        .unwrap();
    }
}

/// The panic of a rank is noticed at once, and no rank reads its memory after it is freed.
#[test]
fn a_panic_during_an_exchange_is_an_error_on_the_other_ranks() {
    let missed = AtomicUsize::new(0);
    let run = AssertUnwindSafe(|| {
        each(3, &HaloOptions::default(), |rank, mut halo, stream| {
            let mut values = values(rank, &stream);
            let start = Instant::now();
            let outcome = halo.overlap(&stream, &mut [values.view_mut().into()], |_| {
                assert!(rank != 1, "on purpose");
                Ok(())
            });
            // This rank may have read before rank 1 failed.
            match outcome {
                Ok(()) => assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 3)),
                Err(error) => assert_eq!(error.kind(), ErrorKind::PeerLost),
            }
            let again = halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap_err();
            assert!(matches!(again.kind(), ErrorKind::PeerLost | ErrorKind::Conflict), "{again}");
            assert!(start.elapsed() < LONG);
            missed.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(*catch_unwind(run).unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    assert_eq!(missed.into_inner(), 2);
}

#[test]
fn a_late_rank_is_a_timeout_and_exchanges_after_a_reset() {
    for direct in [false, true] {
        let timeout = Duration::from_secs(1);
        let options = HaloOptions { timeout, direct, ..Default::default() };
        let late = Barrier::new(3);
        each(3, &options, |rank, mut halo, stream| {
            let mut values = values(rank, &stream);
            if rank != 2 {
                let start = Instant::now();
                let error = halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Timeout);
                assert!(start.elapsed() < LONG);
                // If it reads directly, it may wait for a rank that stopped waiting for rank 2.
                let words = match direct {
                    false => "from ranks [2]".to_owned(),
                    true => format!("rank {rank} waited 1s for rank"),
                };
                assert!(error.message().contains(&words), "{error}");
                let error = halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Conflict);
            }
            late.wait();
            halo.reset().unwrap();
            halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap();
            assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 3));
        });
    }
}

/// Two exchanges of one communicator on one channel, each with its own values.
fn two(
    timeout: [Duration; 2],
    options: &HaloOptions,
    f: impl Fn(usize, [HaloExchange; 2], [Memory<f64>; 2], Stream) + Sync,
) {
    let device = sim();
    ThreadCommunicator::run(2, |communicator| {
        let (rank, ranks) = (communicator.rank(), Arc::new(communicator));
        let stream = device.stream_create(&Default::default()).unwrap();
        let exchanges = timeout.map(|timeout| {
            let options = HaloOptions { timeout, ..options.clone() };
            join(Arc::clone(&ranks), &device, &options)
        });
        let memories = [values(rank, &stream), values(rank + 10, &stream)];
        f(rank, exchanges, memories, stream);
    })
    .unwrap();
}

#[test]
fn a_late_rank_does_not_read_the_fields_of_another_exchange() {
    let is_late = Barrier::new(2);
    let timeouts = [Duration::from_millis(100), LONG];
    two(timeouts, &HaloOptions::default(), |rank, [mut a, mut b], [mut of_a, mut of_b], stream| {
        if rank == 1 {
            is_late.wait();
        }
        let missed = a.exchange(&stream, &mut [of_a.view_mut().into()]).unwrap_err();
        assert_eq!(missed.kind(), ErrorKind::Timeout);
        if rank == 0 {
            is_late.wait();
        }
        b.exchange(&stream, &mut [of_b.view_mut().into()]).unwrap();
        let other = 3.0 * (11 - rank) as f64;
        let halos = of_b.to_vec(&stream).unwrap();
        assert_eq!([halos[0], halos[4]], [other + 2.0, other]);
    });
}

/// In any memory.
#[test]
fn messages_of_another_exchange_are_refused() {
    for staging in [Staging::Device, Staging::Pinned] {
        let options = HaloOptions { direct: false, staging, ..HaloOptions::default() };
        let both = Barrier::new(2);
        two([LONG, LONG], &options, |rank, mut exchanges, mut memories, stream| {
            let fields = &mut [memories[rank].view_mut().into()];
            let exchanged = exchanges[rank].exchange(&stream, fields);
            both.wait();
            let error = exchanged.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{staging:?}");
            let peer = 1 - rank;
            let words = format!("exchange 1 of rank {rank}: another message came from rank {peer}");
            assert!(error.message().starts_with(&words), "{error}");
        });
    }
}

/// Two fields of two ranks in one memory, one after the other or interleaved. Neighbours read them directly, or they
/// are sent.
#[test]
fn fields_may_be_parts_of_one_memory() {
    let devices = [sim(), Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap()];
    let along = Dim::axis(0, 3).halo(1, 1);
    let rows = FieldSpec::new("f", DType::F64, &[Dim::free(1), along]).unwrap();
    let columns = rows.clone().strided(&[1, 2]).unwrap();
    for (device, direct) in devices.iter().flat_map(|device| [(device, true), (device, false)]) {
        for spec in [&rows, &columns] {
            let stream = device.default_stream();
            let mut memory = device.memory_from_slice(&stream, &[-1.0_f64; 20]).unwrap();
            stream.synchronize().unwrap();
            let (low, high) = memory.view_mut().split_at(10).unwrap();
            let halves = parking_lot::Mutex::new([Some(low), Some(high)]);
            ThreadCommunicator::run(2, |communicator| {
                let rank = communicator.rank();
                let half = halves.lock()[rank].take().unwrap();
                let stream = device.stream_create(&Default::default()).unwrap();
                let both = Layout::new(
                    DType::F64,
                    &[2, 5],
                    match spec.layout().strides() {
                        [1, 2] => &[1, 2],
                        _ => &[5, 1],
                    },
                );
                let mut half = half.with_layout(0, &both.unwrap()).unwrap();
                let fill = |view: MemoryViewMut<'_, f64>, first: f64| {
                    let values = [-1.0, first, first + 1.0, first + 2.0, -1.0];
                    let from = device.memory_from_slice(&stream, &values).unwrap();
                    let entry = RegionCopy {
                        dtype: DType::F64,
                        extents: vec![1, 5],
                        source: from.view().reshape(&[1, 5]).unwrap().region_side(0),
                        destination: view.as_view().region_side(1),
                        negate: false,
                        combine: Combine::Replace,
                    };
                    let plan = device.plan_regions(&[entry]).unwrap();
                    plan.execute(&stream, &mut [from.view().into(), view.into()]).unwrap();
                };
                let own = 3.0 * rank as f64;
                let (one, two) = half.reborrow().split_at(1).unwrap();
                fill(one, own);
                fill(two, 100.0 + own);
                let options = HaloOptions { direct, ..Default::default() };
                let quantities = ["f", "g"].map(|name| {
                    let named = FieldSpec::new(name, DType::F64, spec.dims()).unwrap();
                    Quantity::scalar(named.strided(spec.layout().strides()).unwrap())
                });
                let topology = Topology::cartesian(&[6], &[2], &[true]).unwrap();
                let ranks = Arc::new(communicator);
                let mut halo =
                    HaloExchange::new(ranks, &topology, &quantities, device, &options).unwrap();
                let (one, two) = half.split_at(1).unwrap();
                halo.exchange(&stream, &mut [one.into(), two.into()]).unwrap();
                stream.synchronize().unwrap();
            })
            .unwrap();
            let found = memory.to_vec(&stream).unwrap();
            for rank in 0..2 {
                for (field, first) in [(0, 0.0), (1, 100.0)] {
                    let place = |i: usize| match spec.layout().strides() {
                        [1, 2] => 10 * rank + field + 2 * i,
                        _ => 10 * rank + 5 * field + i,
                    };
                    let row: Vec<f64> = (0..5).map(|i| found[place(i)] - first).collect();
                    assert_eq!(row, expected(rank, 2), "rank {rank}, field {field}, {found:?}");
                }
            }
        }
    }
}

/// Each rank has its own field layout, on its own device or on a common device.
#[test]
fn ranks_may_have_different_layouts() {
    for common in [true, false] {
        let shared = Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap();
        ThreadCommunicator::run(2, |communicator| {
            let rank = communicator.rank();
            let device = if common { shared.clone() } else { sim() };
            let topology = Topology::cartesian(&[8, 3], &[2, 1], &[true, true]).unwrap();
            let cells = topology.block(rank).unwrap().cells;
            // One rank's field is padded, the other's runs backwards.
            let around = if rank == 0 { [2, 3] } else { [1, 1] };
            let dims = [0, 1].map(|axis| {
                Dim::axis(axis, cells[axis]).halo(1, 1).allocated(around[0], around[1])
            });
            let mut spec = FieldSpec::new("f", DType::F64, &dims).unwrap();
            let [rows, columns] = [dims[0].allocation(), dims[1].allocation()];
            if rank == 1 {
                spec = spec.strided(&[2 * columns.cast_signed(), -2]).unwrap();
            }
            let layout = *spec.layout();
            let offset = layout.span_bytes().start.unsigned_abs();
            let len = layout.span_bytes().len() / 8;
            let at = |row: usize, column: usize| {
                let strides = layout.strides();
                let index = row.cast_signed() * strides[0] + column.cast_signed() * strides[1];
                (offset / 8).wrapping_add_signed(index)
            };
            let value = |row: usize, column: usize| {
                let x = (4 * rank + row + 8 - around[0]) % 8;
                let y = (column + 3 - around[0]) % 3;
                (10 * x + y) as f64
            };
            let mut before = vec![-1.0; len];
            for row in dims[0].owned() {
                dims[1].owned().for_each(|column| before[at(row, column)] = value(row, column));
            }
            let stream = device.default_stream();
            let mut memory = device.memory_from_slice(&stream, &before).unwrap();
            let ranks = Arc::new(communicator);
            let quantities = [Quantity::scalar(spec)];
            let options = HaloOptions::default();
            let mut halo =
                HaloExchange::new(ranks, &topology, &quantities, &device, &options).unwrap();
            let view = memory.view_mut().with_layout(offset, &layout).unwrap();
            halo.exchange(&stream, &mut [view.into()]).unwrap();
            for row in around[0] - 1..rows + 1 - around[1] {
                for column in around[0] - 1..columns + 1 - around[1] {
                    before[at(row, column)] = value(row, column);
                }
            }
            assert_eq!(memory.to_vec(&stream).unwrap(), before);
            let neighbours = halo.statistics().unwrap().neighbours;
            let others = neighbours.iter().filter(|neighbour| neighbour.rank != rank);
            let copied: u64 = others.map(|neighbour| neighbour.copied.count).sum();
            assert_eq!(copied, u64::from(common));
        })
        .unwrap();
    }
}

/// The stride of a dimension with one element is never used.
#[test]
fn a_dimension_of_one_element_may_have_any_stride() {
    let device = sim();
    for direct in [true, false] {
        ThreadCommunicator::run(2, |ranks| {
            let rank = ranks.rank();
            let stream = device.stream_create(&Default::default()).unwrap();
            let topology = Topology::cartesian(&[6], &[2], &[true]).unwrap();
            let dims = [Dim::axis(0, 3).halo(1, 1), Dim::free(1)];
            let spec = FieldSpec::new("f", DType::F64, &dims).unwrap().ordered(&[1, 0]).unwrap();
            let planned = *spec.layout();
            let options = HaloOptions { direct, ..Default::default() };
            let quantities = [Quantity::scalar(spec)];
            let ranks = Arc::new(ranks);
            let mut halo =
                HaloExchange::new(ranks, &topology, &quantities, &device, &options).unwrap();
            let mut values = values(rank, &stream);
            let view = values.view_mut().reshape(&[5, 1]).unwrap();
            assert_ne!(view.layout().strides(), planned.strides());
            halo.exchange(&stream, &mut [view.into()]).unwrap();
            assert_eq!(values.to_vec(&stream).unwrap(), expected(rank, 2));
        })
        .unwrap();
    }
}

/// A single rank, its own neighbour, has a field without elements whose offsets would lie before its memory.
#[test]
fn a_field_without_elements_may_run_backwards() {
    let device = sim();
    for direct in [true, false] {
        ThreadCommunicator::run(1, |ranks| {
            let stream = device.default_stream();
            let topology = Topology::cartesian(&[3], &[1], &[true]).unwrap();
            let along = Dim::axis(0, 3).halo(1, 1);
            let empty = FieldSpec::new("e", DType::F64, &[along, Dim::free(0)]).unwrap();
            let empty = empty.strided(&[-1, 1]).unwrap();
            let layout = *empty.layout();
            let full = FieldSpec::new("f", DType::F64, &[along]).unwrap();
            let quantities = [empty, full].map(Quantity::scalar);
            let options = HaloOptions { direct, ..Default::default() };
            let ranks = Arc::new(ranks);
            let mut halo =
                HaloExchange::new(ranks, &topology, &quantities, &device, &options).unwrap();
            let (mut nothing, mut values) =
                (device.memory_allocate::<f64>(0).unwrap(), values(0, &stream));
            let nothing = nothing.view_mut().with_layout(0, &layout).unwrap();
            halo.exchange(&stream, &mut [nothing.into(), values.view_mut().into()]).unwrap();
            assert_eq!(values.to_vec(&stream).unwrap(), expected(0, 1));
        })
        .unwrap();
    }
}

/// Also for a caller that stops when polling reports completion.
#[test]
fn corners_are_averaged_when_polling_ends() {
    let device = sim();
    let topology = Topology::cubed_sphere(3, [1, 1]).unwrap();
    let options = HaloOptions {
        missing_corners: MissingCorners::Average,
        direct: false,
        ..Default::default()
    };
    ThreadCommunicator::run(6, |ranks| {
        let first = 100 * ranks.rank();
        let stream = device.stream_create(&Default::default()).unwrap();
        let dims = [0, 1].map(|axis| Dim::axis(axis, 3).halo(1, 1));
        let quantities = [Quantity::scalar(FieldSpec::new("f", DType::F64, &dims).unwrap())];
        let ranks = Arc::new(ranks);
        let mut halo = HaloExchange::new(ranks, &topology, &quantities, &device, &options).unwrap();
        let cells: Vec<f64> = (first..first + 25).map(|cell| cell as f64).collect();
        let mut values = device.memory_from_slice(&stream, &cells).unwrap();
        let fields = &mut [values.view_mut().reshape(&[5, 5]).unwrap().into()];
        let start = Instant::now();
        let mut flight = halo.start(&stream, fields).unwrap();
        while !flight.poll().unwrap() {
            assert!(start.elapsed() < LONG);
            thread::yield_now();
        }
        drop(flight);
        let found = values.to_vec(&stream).unwrap();
        let near = |index: usize| index.clamp(1, 3);
        for [i, j] in [[0, 0], [0, 4], [4, 0], [4, 4]] {
            let mean = 0.5 * (found[5 * i + near(j)] + found[5 * near(i) + j]);
            assert_eq!(found[5 * i + j].to_bits(), mean.to_bits(), "corner {i}, {j}");
        }
    })
    .unwrap();
}

const STEPS: u64 = 8;

/// Times come from events that nothing waits for: the host synchronizes equally often with and without them.
#[test]
fn timers_do_not_synchronize() {
    // Ranks that read each other's fields do not synchronize at all.
    for timing in [false, true] {
        assert_eq!(synchronizations_of_reading(timing), 0);
    }
    for staging in [Staging::Device, Staging::Pinned] {
        let counts = [false, true].map(|timing| synchronizations_of_messages(staging, timing));
        assert_eq!(counts[0], counts[1], "{staging:?}");
        // Access to pinned memory waits for its copies.
        assert_eq!(counts[0] > 0, staging == Staging::Pinned, "{staging:?}: {counts:?}");
    }
}

/// The error of a rank whose wait times out names the exchange, both when making it and when reading.
#[test]
fn timeouts_name_the_exchange_and_the_rank() {
    let late = |error: Error, words: &str| {
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.message().starts_with(words), "{error}");
    };
    let timeout = Duration::from_secs(1);
    let options = HaloOptions { timeout, channel: 3, ..Default::default() };
    let both = Barrier::new(2);
    each(2, &options, |rank, mut halo, stream| {
        let mut values = values(rank, &stream);
        if rank == 0 {
            let error = halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap_err();
            assert_eq!(error.operation(), "exchange");
            late(error, "exchange 1 of rank 0: rank 0 waited");
        }
        both.wait();
    });
    let ranks = ThreadCommunicator::group(2).unwrap();
    let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 3).halo(1, 1)]).unwrap();
    let topology = Topology::cartesian(&[6], &[2], &[true]).unwrap();
    let [first, _second]: [_; 2] = ranks.try_into().unwrap();
    let quantities = [Quantity::scalar(field)];
    let made = HaloExchange::new(Arc::new(first), &topology, &quantities, &sim(), &options);
    late(made.unwrap_err(), "rank 0 makes its exchange of channel 3: rank 0 waited");
}

/// Data that a rank exchanges with itself is counted as its own, with messages and without, and also in the reverse
/// exchange.
#[test]
fn bytes_that_a_rank_copies_to_itself_are_counted() {
    for direct in [false, true] {
        each(1, &HaloOptions { direct, ..Default::default() }, |rank, mut halo, stream| {
            let mut values = values(rank, &stream);
            halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap();
            halo.reduce(&stream, &mut [values.view_mut().into()], Combine::Sum).unwrap();
            let [own] = halo.statistics().unwrap().neighbours[..] else { panic!("one rank") };
            // Two elements each time.
            assert_eq!((own.rank, own.copied.count, own.copied.bytes), (0, 2, 2 * 16));
            assert_eq!((own.sent.count, own.received.count), (0, 0));
        });
    }
}

/// The time since a failed exchange does not count for the next exchange.
#[test]
fn a_failed_exchange_does_not_count_in_the_next() {
    let timeout = Duration::from_secs(2);
    let options = HaloOptions { direct: false, timing: true, timeout, ..Default::default() };
    // Ranks take part in all exchanges except the one that fails.
    let both = Barrier::new(2);
    each(2, &options, |rank, mut halo, stream| {
        let mut values = values(rank, &stream);
        if rank == 0 {
            let error = halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
        both.wait();
        halo.reset().unwrap();
        assert_eq!(halo.statistics().unwrap().wire.count, 0);
        let begin = Instant::now();
        halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap();
        let wire = halo.statistics().unwrap().wire;
        assert!(wire.count == 1 && wire.total <= begin.elapsed(), "{wire:?}");
    });
}

fn synchronizations(device: &Device) -> u64 {
    SimHandle::of(device).unwrap().counts().synchronizations
}

fn synchronizations_of_reading(timing: bool) -> u64 {
    let device = sim();
    let options = HaloOptions { timing, ..Default::default() };
    let both = Barrier::new(2);
    let counts = ThreadCommunicator::run(2, |communicator| {
        let rank = communicator.rank();
        let stream = device.stream_create(&Default::default()).unwrap();
        let mut halo = join(Arc::new(communicator), &device, &options);
        let mut values = values(rank, &stream);
        for _ in 0..STEPS {
            halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap();
        }
        both.wait();
        let count = synchronizations(&device);
        both.wait();
        stream.synchronize().unwrap();
        counts_of(&halo, rank, true, timing);
        count
    });
    counts.unwrap().into_iter().max().unwrap()
}

/// One thread runs the steps of both ranks in turn, each after the device has finished the step before. Packing is held
/// back until both have started. The result therefore does not depend on time: neither whether a buffer is free, nor
/// whether a message is packed or has arrived, nor the count.
fn synchronizations_of_messages(staging: Staging, timing: bool) -> u64 {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    fn held_up(_: &Grid<'_>, until: u64) {
        let start = Instant::now();
        while STARTED.load(Ordering::Acquire) < until && start.elapsed() < LONG {
            thread::sleep(Duration::from_micros(100));
        }
    }
    let device = sim();
    let module = device.module_load(&HostModule::new().with("held_up", held_up)).unwrap();
    let kernel = module.kernel("held_up").unwrap();
    let options = HaloOptions { direct: false, staging, timing, ..Default::default() };
    let joined = ThreadCommunicator::run(2, |ranks| join(Arc::new(ranks), &device, &options));
    let [mut first, mut second]: [HaloExchange; 2] =
        joined.unwrap().try_into().unwrap_or_else(|_| panic!("two ranks"));
    let streams = [0, 1].map(|_| device.stream_create(&Default::default()).unwrap());
    let at_rest = || {
        let start = Instant::now();
        while !streams.iter().all(|stream| stream.is_done().unwrap()) {
            assert!(start.elapsed() < LONG);
            thread::yield_now();
        }
    };
    let mut of_first = values(0, &streams[0]);
    let mut of_second = values(1, &streams[1]);
    at_rest();
    let before = synchronizations(&device);
    for _ in 0..STEPS {
        let next = STARTED.load(Ordering::Acquire) + 1;
        for stream in &streams {
            // SAFETY: the kernel is safe Rust and has no memory arguments.
            unsafe { kernel.launch(stream, &Launch::cover(1, 1), args![next]) }.unwrap();
        }
        let mut fields = [[of_first.view_mut().into()], [of_second.view_mut().into()]];
        let [of_first, of_second] = &mut fields;
        let mut flights = [
            first.start(&streams[0], of_first).unwrap(),
            second.start(&streams[1], of_second).unwrap(),
        ];
        STARTED.store(next, Ordering::Release);
        // In turn: the first rank sends; the second receives and sends; the first receives; the second sees that its
        // send is complete.
        let mut done = [false; 2];
        for _round in 0..4 {
            for (done, flight) in done.iter_mut().zip(&mut flights) {
                at_rest();
                *done = flight.poll().unwrap();
            }
        }
        assert_eq!(done, [true; 2]);
        at_rest();
        for halo in [&first, &second] {
            halo.statistics().unwrap();
        }
    }
    let count = synchronizations(&device) - before;
    counts_of(&first, 0, false, timing);
    counts_of(&second, 1, false, timing);
    for (rank, values) in [of_first, of_second].iter().enumerate() {
        assert_eq!(values.to_vec(&streams[rank]).unwrap(), expected(rank, 2));
    }
    count
}

/// The statistics of one of two ranks when the device is done.
fn counts_of(halo: &HaloExchange, rank: usize, direct: bool, timing: bool) {
    let statistics = halo.statistics().unwrap();
    let [neighbour] = statistics.neighbours[..] else { panic!("one neighbour") };
    assert_eq!(neighbour.rank, 1 - rank);
    let (messages, copies) = if direct { (0, STEPS) } else { (STEPS, 0) };
    // Two elements each way, and a stamp in each message.
    for (traffic, count, bytes) in [
        (neighbour.sent, messages, 32),
        (neighbour.received, messages, 32),
        (neighbour.copied, copies, 16),
    ] {
        assert_eq!((traffic.count, traffic.bytes), (count, count * bytes));
    }
    let expected = |are: bool| if are && timing { STEPS } else { 0 };
    assert_eq!(statistics.copy.count, expected(direct));
    assert_eq!(statistics.pack.count, expected(!direct));
    assert_eq!(statistics.wire.count, expected(!direct));
    assert_eq!(statistics.unpack.count, expected(!direct));
    let times = [statistics.copy, statistics.pack, statistics.wire, statistics.unpack];
    assert!(times.iter().all(|time| (time.total > Duration::ZERO) == (time.count > 0)));
}
