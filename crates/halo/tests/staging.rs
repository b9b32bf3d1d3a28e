//! The path of messages, measured if there are two.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod altered;
mod devices;
mod ring;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use altered::Altered;
use backend_sim::{Fault, SimConfig, SimDevice};
use devices::{host, sim};
use halo::communicator::{Buffer, Communicator, Storage, ThreadCommunicator};
use halo::{
    Dim, Error, ErrorKind, FieldSpec, HaloExchange, HaloOptions, Quantity, Result, Staging,
    StagingTimes, Topology,
};
use runtime_core::{DType, Device};

const RANKS: usize = 4;

/// A change of a message before it is sent.
type Before = fn(&Buffer) -> Result<()>;

fn at_once(_: &Buffer) -> Result<()> {
    Ok(())
}

const SLOW: Duration = Duration::from_millis(50);

fn slow_with_pinned(buffer: &Buffer) -> Result<()> {
    if let Storage::Pinned(_) = buffer.storage() {
        thread::sleep(SLOW);
    }
    Ok(())
}

fn slow_with_device(buffer: &Buffer) -> Result<()> {
    if let Storage::Device(_) = buffer.storage() {
        thread::sleep(SLOW);
    }
    Ok(())
}

/// The choice of a rank, its measurements, and the number of messages that it sent for them.
type Outcome = Result<(Staging, Option<StagingTimes>, u32)>;

/// Makes an exchange on a row of ranks, whose last rank has a special transport, then runs exchanges.
fn outcomes(
    last: Before,
    passes_memory: bool,
    options: &HaloOptions,
    device: impl Fn(usize) -> Device + Sync,
) -> Vec<Outcome> {
    let topology = Topology::cartesian(&[2 * RANKS], &[RANKS], &[false]).unwrap();
    let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 2).halo(1, 1)]).unwrap();
    ThreadCommunicator::run(RANKS, |inner| {
        let rank = inner.rank();
        let before_send = if rank == RANKS - 1 { last } else { at_once };
        let ranks = Arc::new(Altered { before_send, passes_memory, ..Altered::new(inner) });
        let device = device(rank);
        let quantities = [Quantity::scalar(field.clone())];
        let mut halo =
            HaloExchange::new(Arc::clone(&ranks) as _, &topology, &quantities, &device, options)?;
        let staging = halo.staging();
        let (times, sent) = (halo.statistics()?.staging, ranks.sent());

        let stream = device.default_stream();
        let first = 2.0 * f64::from(u32::try_from(rank).unwrap());
        let mut values = device.memory_from_slice(&stream, &[-1.0, first, first + 1.0, -1.0])?;
        halo.start(&stream, &mut [values.view_mut().into()])?.finish()?;
        let below = if rank == 0 { -1.0 } else { first - 1.0 };
        let above = if rank == RANKS - 1 { -1.0 } else { first + 2.0 };
        assert_eq!(values.to_vec(&stream)?, [below, first, first + 1.0, above]);
        Ok((staging, times, sent))
    })
    .unwrap()
}

fn sims(rank: usize) -> Device {
    sim(rank as u64)
}

#[test]
fn all_ranks_choose_the_staging_that_is_faster_on_the_slowest() {
    let options = HaloOptions { direct: false, ..Default::default() };
    for (last, choice) in
        [(slow_with_pinned as Before, Staging::Device), (slow_with_device, Staging::Pinned)]
    {
        let outcomes: Vec<_> =
            outcomes(last, true, &options, sims).into_iter().map(Result::unwrap).collect();
        let times = outcomes[0].1.unwrap();
        let (slow, fast) = match choice {
            Staging::Device => (times.pinned, times.device),
            _ => (times.device, times.pinned),
        };
        assert!(slow >= SLOW && fast < slow, "{times:?}");
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            // Four rounds each way.
            let neighbours = if rank == 0 || rank == RANKS - 1 { 1 } else { 2 };
            assert_eq!(outcome, (choice, Some(times), 2 * 4 * neighbours));
        }
    }
}

#[test]
fn nothing_is_measured_without_a_choice() {
    let all = HaloOptions { direct: false, ..Default::default() };
    let chosen = |staging| HaloOptions { staging, ..all.clone() };
    let one = sim(0);
    for (passes, options, choice, device) in [
        (false, &all, Staging::Pinned, &sims as &(dyn Fn(usize) -> Device + Sync)),
        (true, &all, Staging::Device, &|_| host()),
        (true, &chosen(Staging::Pinned), Staging::Pinned, &sims),
        (true, &chosen(Staging::Device), Staging::Device, &sims),
        // One rank does not have the choice.
        (true, &all, Staging::Device, &|rank| if rank == 1 { host() } else { sims(rank) }),
        // Ranks read each other's fields directly.
        (true, &HaloOptions::default(), Staging::Device, &|_| one.clone()),
    ] {
        for outcome in outcomes(at_once, passes, options, device) {
            assert_eq!(outcome.unwrap(), (choice, None, 0));
        }
    }
}

fn fails_with_device(buffer: &Buffer) -> Result<()> {
    match buffer.storage() {
        Storage::Device(_) => Err(Error::new(ErrorKind::Driver, "send", "on purpose")),
        _ => Ok(()),
    }
}

#[test]
fn a_rank_that_cannot_measure_is_an_error_on_all() {
    let timeout = Duration::from_secs(2);
    let options = HaloOptions { direct: false, timeout, ..Default::default() };
    let start = Instant::now();
    let errors: Vec<Error> = outcomes(fails_with_device, true, &options, sims)
        .into_iter()
        .map(Result::unwrap_err)
        .collect();
    assert!(start.elapsed() < Duration::from_secs(20));
    let message = "rank 3 measures its messages: on purpose";
    assert_eq!((errors[3].kind(), errors[3].message()), (ErrorKind::Driver, message));
    // Its neighbour waits for its message, and the other ranks get an error.
    assert!([ErrorKind::Timeout, ErrorKind::PeerLost].contains(&errors[2].kind()), "{}", errors[2]);
    for error in &errors[..2] {
        let is_reported = error.message().contains("ranks [2, 3] could not measure");
        assert!(is_reported || error.kind() == ErrorKind::PeerLost, "{error}");
    }
}

#[test]
fn ranks_with_an_unlimited_timeout_measure() {
    let options = HaloOptions { direct: false, timeout: Duration::MAX, ..Default::default() };
    for outcome in outcomes(at_once, true, &options, sims) {
        assert!(outcome.unwrap().1.is_some());
    }
}

/// The device of one rank is lost at some time while the exchange is made: all ranks succeed, or none.
#[test]
fn a_rank_that_cannot_make_its_launches_is_an_error_on_all() {
    let topology = Topology::cartesian(&[4], &[2], &[true]).unwrap();
    let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 2).halo(1, 1)]).unwrap();
    for direct in [true, false] {
        let mut reported = 0;
        for nth in 0..6 {
            let timeout = Duration::from_secs(20);
            let options =
                HaloOptions { direct, timeout, staging: Staging::Pinned, ..Default::default() };
            let made = ThreadCommunicator::run(2, |ranks| {
                let plain = SimConfig::new();
                let config = if ranks.rank() == 1 { plain.fault(Fault::lose(nth)) } else { plain };
                let device = Device::new(SimDevice::new(0, config)).unwrap();
                let quantities = [Quantity::scalar(field.clone())];
                let ranks = Arc::new(ranks);
                HaloExchange::new(
                    Arc::clone(&ranks) as _,
                    &topology,
                    &quantities,
                    &device,
                    &options,
                )
                .map(drop)
            })
            .unwrap();
            assert_eq!(made[0].is_ok(), made[1].is_ok(), "{made:?}");
            let names_it =
                |error: &Error| error.message().contains("ranks [1] could not make their");
            reported += usize::from(made[0].as_ref().is_err_and(names_it));
        }
        assert!(reported > 0);
    }
}

#[test]
fn a_transport_that_completes_a_message_that_there_is_not_is_an_error() {
    let topology = Topology::cartesian(&[4], &[2], &[true]).unwrap();
    let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 2).halo(1, 1)]).unwrap();
    let timeout = Duration::from_secs(5);
    let options = HaloOptions { direct: false, timeout, ..Default::default() };
    let errors = ThreadCommunicator::run(2, |inner| {
        let device = sims(inner.rank());
        let ranks = Arc::new(Altered { completed: |index| index + 100, ..Altered::new(inner) });
        let quantities = [Quantity::scalar(field.clone())];
        HaloExchange::new(ranks, &topology, &quantities, &device, &options).unwrap_err()
    });
    for error in errors.unwrap() {
        assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
        let names_it = |index| error.message().contains(&format!("request {index} of 2"));
        assert!(names_it(100) || names_it(101), "{error}");
    }
}

fn late(buffer: &Buffer) -> Result<()> {
    if let Storage::Pinned(_) = buffer.storage() {
        thread::sleep(Duration::from_secs(5));
    }
    Ok(())
}

#[test]
fn a_rank_that_is_late_in_measuring_is_an_error_on_all() {
    let timeout = Duration::from_secs(1);
    let options = HaloOptions { direct: false, timeout, ..Default::default() };
    let start = Instant::now();
    for outcome in outcomes(late, true, &options, sims) {
        let error = outcome.unwrap_err();
        assert!([ErrorKind::Timeout, ErrorKind::PeerLost].contains(&error.kind()), "{error}");
        assert!(error.to_string().contains("measures its messages"), "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// Fills halos until every tag of a generation was used.
fn works(rank: usize, halo: &mut HaloExchange) {
    let stream = halo.device().default_stream();
    for _ in 0..9 {
        let mut values = ring::values(rank, &stream);
        ring::exchange(halo, &stream, &mut values).unwrap();
        assert_eq!(values.to_vec(&stream).unwrap(), ring::expected(rank, 2));
    }
}

#[test]
fn messages_from_before_a_reset_do_not_meet_those_of_a_measurement() {
    let timeout = Duration::from_secs(5);
    let options = HaloOptions { direct: false, timeout, ..Default::default() };
    ThreadCommunicator::run(2, |ranks| {
        let (rank, ranks) = (ranks.rank(), Arc::new(ranks));
        let device = sims(rank);
        let stream = device.default_stream();
        let mut values = ring::values(rank, &stream);
        let make = || ring::join(Arc::clone(&ranks) as _, &device, &options);
        let mut halo = make().unwrap();
        // The number of resets grows faster than the number of exchange objects.
        for _ in 0..4 {
            // The fourth exchange has the tag of measurements.
            (0..3).for_each(|_| ring::exchange(&mut halo, &stream, &mut values).unwrap());
            if rank == 0 {
                drop(halo.start(&stream, &mut [values.view_mut().into()]).unwrap());
            }
            halo.reset().unwrap();
            works(rank, &mut make().unwrap());
            halo.reset().unwrap();
        }
    })
    .unwrap();
}

#[test]
fn a_failed_measurement_is_a_conflict_until_reset() {
    static FAILS: AtomicBool = AtomicBool::new(true);
    fn fails(buffer: &Buffer) -> Result<()> {
        if FAILS.load(Ordering::Relaxed) { fails_with_device(buffer) } else { Ok(()) }
    }
    let timeout = Duration::from_secs(2);
    let options = HaloOptions { direct: false, timeout, ..Default::default() };
    ThreadCommunicator::run(2, |inner| {
        let rank = inner.rank();
        let before_send = if rank == 1 { fails } else { at_once };
        let ranks = Arc::new(Altered { before_send, ..Altered::new(inner) });
        let device = sims(rank);
        let make = || ring::join(Arc::clone(&ranks) as _, &device, &options);
        make().unwrap_err();
        assert_eq!(make().unwrap_err().kind(), ErrorKind::Conflict);
        FAILS.store(false, Ordering::Relaxed);
        ranks.reset(Duration::from_secs(20)).unwrap();
        works(rank, &mut make().unwrap());
    })
    .unwrap();
}
