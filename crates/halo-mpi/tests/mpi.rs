//! Jobs of several ranks.
//!
//! Each test is also the program of its ranks: it starts `mpiexec` on itself, once for each number of ranks.
//! `HALO_MPI_TEST` names the test that a process is a rank of. `HALO_MPI_MPIEXEC` is the launcher, and every job that
//! succeeds must report a library whose description contains `HALO_MPI_EXPECTED`.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

#[path = "../../halo/tests/common/mod.rs"]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod common;
#[path = "../../halo/tests/forests/mod.rs"]
mod forests;
mod launcher;
#[path = "../../halo/tests/rules/mod.rs"]
mod rules;

use std::env;
use std::fmt::{self, Debug};
use std::io::{Write, stderr};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend_host::HostDevice;
use backend_sim::{SimConfig, SimDevice};
use common::world::{Cube, Flat, World};
use common::{Case, Shape};
use forests::{Woods, all_reductions, check_over};
use halo::communicator::{Buffer, Communicator};
use halo::{
    Dim, ErrorKind, FieldSpec, Forest, ForestOptions, ForestSize, HaloExchange, HaloOptions, Kind,
    Leaf, Quantity, Reach, Result, Staging, Topology,
};
use halo_mpi::MpiCommunicator;
use launcher::{mpiexec, output};
use nix::sys::signal::{Signal, raise};
use parking_lot::Mutex;
use rules::{LONG, RULES};
use runtime_core::{DType, Device};

/// Jobs take turns: a single job has more ranks than there are cores.
static TURN: Mutex<()> = Mutex::new(());

/// Any exit code of a job that fails: launchers report a killed process in different ways.
const ANY: i32 = 0;

/// Whether this process is a rank of the test `name`.
fn is_rank(name: &str) -> bool {
    env::var_os("HALO_MPI_TEST").is_some_and(|test| test == name)
}

/// The output of a rank that has reached its end.
const DONE: &str = "this rank is done";

fn done(library: &str) -> ! {
    println!("{DONE}: {library}");
    // Without the test harness's report.
    std::process::exit(0);
}

/// In a rank, runs `program` and never returns. Otherwise starts a job of `size` ranks of the test `name`. Returns
/// `None` if MPI is missing.
fn job<E: Debug>(
    name: &str,
    size: usize,
    program: impl FnOnce(MpiCommunicator) -> Result<(), E>,
) -> Option<Output> {
    if is_rank(name) {
        let mut library = String::new();
        let with_library = |ranks: MpiCommunicator| {
            library = ranks.library().unwrap();
            program(ranks)
        };
        halo_mpi::run(with_library).unwrap();
        done(&library);
    }
    let _turn = TURN.lock();
    let mut job = mpiexec(size);
    job.arg(env::current_exe().unwrap());
    job.args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    output(job.env("HALO_MPI_TEST", name), name)
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A job that succeeds.
fn passes(name: &str, size: usize, program: impl FnOnce(MpiCommunicator) -> Result<()>) {
    if let Some(output) = job(name, size, program) {
        let text = text_of(&output);
        assert!(output.status.success(), "{size} ranks: {}\n{text}", output.status);
        assert_eq!(text.matches(DONE).count(), size, "{text}");
        if let Ok(expected) = env::var("HALO_MPI_EXPECTED") {
            assert!(text.contains(&expected), "{expected} is missing in {text}");
        }
    }
}

/// The output of a rank with the time that it waited for a timeout of 2 seconds.
fn in_time(start: Instant) -> &'static str {
    // On a busy machine the wait is longer.
    match start.elapsed().as_secs() {
        2..20 => "in time",
        _ => "at another time",
    }
}

/// A job that ends with this code before its time limit, after printing these words.
fn ends(
    name: &str,
    size: usize,
    code: i32,
    words: &[&str],
    program: impl FnOnce(MpiCommunicator) -> Result<()>,
) {
    ends_by(name, size, code, words, program);
}

/// The same with errors of any type.
fn ends_by<E: Debug>(
    name: &str,
    size: usize,
    code: i32,
    words: &[&str],
    program: impl FnOnce(MpiCommunicator) -> Result<(), E>,
) {
    let start = Instant::now();
    if let Some(output) = job(name, size, program) {
        let text = text_of(&output);
        match code {
            ANY => assert!(!output.status.success(), "{text}"),
            code => assert!(has_ended(output.status, code), "{}: {text}", output.status),
        }
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} in: {text}");
        assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    }
}

/// Whether a job has ended with this code. The launcher of Intel MPI may end by SIGPIPE instead: a part of it has ended
/// to which it writes.
fn has_ended(status: ExitStatus, code: i32) -> bool {
    status.code() == Some(code) || status.signal() == Some(Signal::SIGPIPE as i32)
}

fn all_rules(ranks: MpiCommunicator) -> Result<()> {
    for (name, rule) in RULES {
        if ranks.rank() == 0 {
            eprintln!("{name}");
        }
        rule(&ranks);
    }
    Ok(())
}

#[test]
fn every_rule_holds_on_1_rank() {
    passes("every_rule_holds_on_1_rank", 1, all_rules);
}

#[test]
fn every_rule_holds_on_2_ranks() {
    passes("every_rule_holds_on_2_ranks", 2, all_rules);
}

#[test]
fn every_rule_holds_on_4_ranks() {
    passes("every_rule_holds_on_4_ranks", 4, all_rules);
}

#[test]
fn every_rule_holds_on_6_ranks() {
    passes("every_rule_holds_on_6_ranks", 6, all_rules);
}

/// Exchanges of scalars and vectors of two element types, on a host device and on a device with separate memory. Every
/// byte is compared.
fn halos(topology: &Topology, world: &dyn World, ranks: MpiCommunicator) -> Result<()> {
    let field = |dtype| Shape { free: vec![2], ..Shape::new(dtype, 2) };
    let quantities = vec![
        (Kind::Scalar, vec![field(DType::I16)]),
        (Kind::Vector, vec![field(DType::F64), field(DType::F64)]),
    ];
    let case = Case { topology, world, quantities, options: HaloOptions::default() };
    let ranks: Arc<dyn Communicator> = Arc::new(ranks);
    for device in [
        Device::new(HostDevice::with_threads(0, 1)?)?,
        Device::new(SimDevice::new(0, SimConfig::new()))?,
    ] {
        case.exchange_over(Arc::clone(&ranks), &device);
    }
    Ok(())
}

/// Six blocks on each rank, with corners in the same message and axis by axis.
fn halos_of_many_blocks(ranks: MpiCommunicator) -> Result<()> {
    let owners: Vec<usize> = (0..12).map(|block| block * 5 % ranks.size()).collect();
    let topology = Topology::cartesian(&[9, 8], &[3, 4], &[true, false])?.on_ranks(&owners)?;
    let world = Flat { cells: [9, 8, 1], periodic: [true, false, false] };
    let quantities = vec![(Kind::Scalar, vec![Shape::new(DType::F64, 2)])];
    let ranks: Arc<dyn Communicator> = Arc::new(ranks);
    for reach in [Reach::Full, Reach::ByAxis] {
        let options = HaloOptions { reach, ..Default::default() };
        let case =
            Case { topology: &topology, world: &world, quantities: quantities.clone(), options };
        case.exchange_over(Arc::clone(&ranks), &Device::new(SimDevice::new(0, SimConfig::new()))?);
    }
    Ok(())
}

#[test]
fn halos_of_many_blocks_are_right_on_2_ranks() {
    passes("halos_of_many_blocks_are_right_on_2_ranks", 2, halos_of_many_blocks);
}

fn halos_of_a_box(ranks: MpiCommunicator) -> Result<()> {
    let columns = ranks.size().min(2);
    let layout = [columns, ranks.size() / columns];
    let topology = Topology::cartesian(&[7, 6], &layout, &[true, false])?;
    halos(&topology, &Flat { cells: [7, 6, 1], periodic: [true, false, false] }, ranks)
}

#[test]
fn halos_are_right_on_1_rank() {
    passes("halos_are_right_on_1_rank", 1, halos_of_a_box);
}

#[test]
fn halos_are_right_on_2_ranks() {
    passes("halos_are_right_on_2_ranks", 2, halos_of_a_box);
}

#[test]
fn halos_are_right_on_4_ranks() {
    passes("halos_are_right_on_4_ranks", 4, halos_of_a_box);
}

#[test]
fn halos_of_a_sphere_are_right_on_6_ranks() {
    passes("halos_of_a_sphere_are_right_on_6_ranks", 6, |ranks| {
        halos(&Topology::cubed_sphere(5, [1, 1])?, &Cube { cells: 5 }, ranks)
    });
}

/// Broadcasts and reductions of random forests, on a host device and on a device with separate memory. Every bit is
/// compared with a model.
fn forests_are_right(ranks: MpiCommunicator) -> Result<()> {
    let ranks: Arc<dyn Communicator> = Arc::new(ranks);
    for seed in 0..4 {
        let woods = Woods::random(ranks.size(), seed);
        for device in [
            Device::new(HostDevice::with_threads(0, 1)?)?,
            Device::new(SimDevice::new(0, SimConfig::new()))?,
        ] {
            check_over(Arc::clone(&ranks), &woods, &device, &all_reductions(), seed);
        }
    }
    Ok(())
}

#[test]
fn forests_are_right_on_1_rank() {
    passes("forests_are_right_on_1_rank", 1, forests_are_right);
}

#[test]
fn forests_are_right_on_2_ranks() {
    passes("forests_are_right_on_2_ranks", 2, forests_are_right);
}

#[test]
fn forests_are_right_on_4_ranks() {
    passes("forests_are_right_on_4_ranks", 4, forests_are_right);
}

#[test]
fn a_leaf_without_a_root_is_an_error_on_every_rank() {
    passes("a_leaf_without_a_root_is_an_error_on_every_rank", 2, |ranks| {
        let device = Device::new(HostDevice::with_threads(0, 1)?)?;
        let fields = [FieldSpec::new("f", DType::F64, &[])?];
        let root = if ranks.rank() == 1 { 3 } else { 2 };
        let leaves = [Leaf { at: 0, rank: 1 - ranks.rank(), root }];
        let size = ForestSize { roots: 3, leaves: 1 };
        let ranks = Arc::new(ranks);
        let options = ForestOptions::default();
        let made = Forest::new(Arc::clone(&ranks) as _, size, &leaves, &fields, &device, &options);
        let error = made.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let words = "rank 1, leaf 0: root 3 of rank 0, which has 3 roots";
        assert!(error.message().contains(words), "{error}");
        Forest::new(ranks, size, &[], &fields, &device, &options).map(drop)
    });
}

/// The fields of rank 1 are in memory that MPI does not accept, so it stages its messages.
#[test]
fn ranks_on_different_devices_exchange_halos() {
    passes("ranks_on_different_devices_exchange_halos", 2, |ranks| {
        let rank = ranks.rank();
        let device = match rank {
            0 => Device::new(HostDevice::with_threads(0, 1)?)?,
            _ => Device::new(SimDevice::new(0, SimConfig::new()))?,
        };
        let stream = device.default_stream();
        let topology = Topology::cartesian(&[2], &[2], &[true])?;
        let field = FieldSpec::new("f", DType::U8, &[Dim::axis(0, 1).halo(1, 1)])?;
        let quantities = [Quantity::scalar(field)];
        let ranks = Arc::new(ranks);
        let make = |staging| {
            let options = HaloOptions { staging, ..Default::default() };
            HaloExchange::new(Arc::clone(&ranks) as _, &topology, &quantities, &device, &options)
        };
        // MPI does not take the memory of rank 1.
        let refused = make(Staging::Device).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        let words = ["ranks [1] could not", "passes no memory of sim:0"][rank];
        assert!(refused.message().contains(words), "{refused}");
        let mut halo = make(Staging::Auto)?;
        let own = if rank == 0 { 10 } else { 20 };
        let mut values = device.memory_from_slice(&stream, &[0_u8, own, 0])?;
        halo.exchange(&stream, &mut [values.view_mut().into()])?;
        assert_eq!(values.to_vec(&stream)?, [30 - own, own, 30 - own]);
        Ok(())
    });
}

/// The ranks that were in time, the late rank, and all ranks after a reset, on the same channel and on another.
#[test]
fn a_late_rank_is_an_error_until_reset() {
    passes("a_late_rank_is_an_error_until_reset", 3, |ranks| {
        let ranks = Arc::new(ranks);
        let rank = ranks.rank();
        let device = Device::new(HostDevice::with_threads(0, 1)?)?;
        let stream = device.default_stream();
        let topology = Topology::cartesian(&[3], &[3], &[true])?;
        let field = FieldSpec::new("f", DType::U8, &[Dim::axis(0, 1).halo(1, 1)])?;
        let quantities = [Quantity::scalar(field)];
        let make = |channel, timeout| {
            let options = HaloOptions { channel, timeout, ..Default::default() };
            HaloExchange::new(Arc::clone(&ranks) as _, &topology, &quantities, &device, &options)
        };
        if rank == 2 {
            for other in [0, 1] {
                let is_over = ranks.receive(other, 1, Buffer::default())?;
                ranks.wait(is_over, LONG)?;
            }
            assert_eq!(make(0, LONG).unwrap_err().kind(), ErrorKind::Timeout);
        } else {
            assert_eq!(make(0, Duration::from_millis(200)).unwrap_err().kind(), ErrorKind::Timeout);
            assert_eq!(make(1, LONG).unwrap_err().kind(), ErrorKind::Conflict);
            let is_over = ranks.send(2, 1, Buffer::default())?;
            ranks.wait(is_over, LONG)?;
        }
        ranks.reset(LONG)?;
        for channel in [0, 1] {
            let mut halo = make(channel, LONG)?;
            let own = rank.to_le_bytes()[0];
            let mut values = device.memory_from_slice(&stream, &[9, own, 9])?;
            halo.exchange(&stream, &mut [values.view_mut().into()])?;
            assert_eq!(values.to_vec(&stream)?, [(own + 2) % 3, own, (own + 1) % 3]);
        }
        Ok(())
    });
}

/// In each of more rounds than there are sets of tags, a rank may send messages that no rank receives, or may begin to
/// receive messages that no rank sends.
#[test]
fn failed_exchanges_disturb_no_exchange_when_their_tags_are_used_again() {
    const NAME: &str = "failed_exchanges_disturb_no_exchange_when_their_tags_are_used_again";
    passes(NAME, 3, |ranks| {
        let rank = ranks.rank();
        let device = Device::new(HostDevice::with_threads(0, 1)?)?;
        let stream = device.default_stream();
        let topology = Topology::cartesian(&[3], &[3], &[true])?;
        let field = FieldSpec::new("f", DType::U8, &[Dim::axis(0, 1).halo(1, 1)])?;
        let quantities = [Quantity::scalar(field)];
        let options = HaloOptions { timeout: LONG, ..Default::default() };
        let mut halo =
            HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)?;
        let mut values = device.memory_from_slice(&stream, &[9_u8, 0, 9])?;
        for round in 0..40_u8 {
            let own = |rank: usize| 3 * round + rank.to_le_bytes()[0];
            values.view_mut().slice(1..2)?.copy_from_slice(&stream, &[own(rank)])?;
            let mut fields = [values.view_mut().into()];
            if round >= 20 {
                halo.exchange(&stream, &mut fields)?;
                assert_eq!(values.to_vec(&stream)?, [rank + 2, rank, rank + 1].map(|r| own(r % 3)));
            } else if usize::from(round) % 3 != rank {
                let mut flight = halo.start(&stream, &mut fields)?;
                stream.synchronize()?;
                drop(flight.poll());
            }
            halo.reset()?;
        }
        Ok(())
    });
}

/// Two exchanges of one communicator that ranks use in different orders: no message of one is mistaken for a message of
/// the other.
fn different_orders(ranks: &Arc<MpiCommunicator>, device: &Device) -> Result<()> {
    let rank = ranks.rank();
    let stream = device.default_stream();
    let topology = Topology::cartesian(&[2], &[2], &[true])?;
    let field = FieldSpec::new("f", DType::U8, &[Dim::axis(0, 1).halo(1, 1)])?;
    let quantities = [Quantity::scalar(field)];
    let options = HaloOptions { timeout: Duration::from_secs(2), ..Default::default() };
    let join =
        || HaloExchange::new(Arc::clone(ranks) as _, &topology, &quantities, device, &options);
    let mut exchanges = [join()?, join()?];
    let mut values = device.memory_from_slice(&stream, &[0_u8, 1, 0])?;
    let error = exchanges[rank].exchange(&stream, &mut [values.view_mut().into()]).unwrap_err();
    let words = format!("exchange 1 of rank {rank}: another message came from rank {}", 1 - rank);
    assert!(error.message().starts_with(&words), "{error}");
    // Until the other rank has its error, too.
    ranks.barrier(LONG)?;
    Ok(())
}

/// In device memory, and in pinned memory.
#[test]
fn messages_of_another_exchange_are_refused() {
    passes("messages_of_another_exchange_are_refused", 2, |ranks| {
        let ranks = Arc::new(ranks);
        different_orders(&ranks, &Device::new(HostDevice::with_threads(0, 1)?)?)?;
        different_orders(&ranks, &Device::new(SimDevice::new(0, SimConfig::new()))?)
    });
}

/// Stops rank 1 once it has a message of rank 0, which then waits for nothing of it.
fn stop_rank_1(ranks: &MpiCommunicator) -> Result<()> {
    let go = || Buffer::host(vec![0]);
    if ranks.rank() == 0 {
        return ranks.wait(ranks.send(1, 2, go())?, LONG).map(drop);
    }
    ranks.wait(ranks.receive(0, 2, go())?, LONG)?;
    raise(Signal::SIGSTOP).unwrap();
    Ok(())
}

/// A rank that has a timeout and ends normally still ends the job: MPI would wait for the other rank forever.
#[test]
fn a_stopped_rank_does_not_delay_the_end_of_the_job() {
    let words = ["timeout: after 10s, other ranks have not reached their end"];
    ends("a_stopped_rank_does_not_delay_the_end_of_the_job", 2, 1, &words, |ranks| {
        stop_rank_1(&ranks)?;
        let received = ranks.receive(1, 1, Buffer::host(vec![0; 4]))?;
        let error = ranks.wait(received, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        Ok(())
    });
}

#[test]
fn an_exchange_with_a_rank_that_stops_answering_is_a_timeout() {
    let words = ["rank 0: waited 2s for messages from ranks [1]", "Timeout in time"];
    ends("an_exchange_with_a_rank_that_stops_answering_is_a_timeout", 2, 1, &words, |ranks| {
        let rank = ranks.rank();
        let device = Device::new(HostDevice::with_threads(0, 1)?)?;
        let stream = device.default_stream();
        let topology = Topology::cartesian(&[6], &[2], &[true])?;
        let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 3).halo(1, 1)])?;
        let options = HaloOptions { timeout: Duration::from_secs(2), ..Default::default() };
        let quantities = [Quantity::scalar(field)];
        let mut halo =
            HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)?;
        let mut values = device.memory_from_slice(&stream, &[0.0_f64; 5])?;
        halo.exchange(&stream, &mut [values.view_mut().into()])?;
        if rank == 1 {
            raise(Signal::SIGSTOP).unwrap();
        }
        let start = Instant::now();
        let error = halo.exchange(&stream, &mut [values.view_mut().into()]).unwrap_err();
        // In one piece, because the job's end writes, too.
        let text = format!("{error}; {:?} {}\n", error.kind(), in_time(start));
        stderr().write_all(text.as_bytes()).unwrap();
        Err(error)
    });
}

#[test]
fn a_rank_that_stops_answering_is_a_timeout() {
    let words = ["Timeout in time", "rank 0 waited", "receive of 4 bytes from rank 1, tag 1"];
    ends("a_rank_that_stops_answering_is_a_timeout", 2, 1, &words, |ranks| {
        stop_rank_1(&ranks)?;
        let start = Instant::now();
        let received = ranks.receive(1, 1, Buffer::host(vec![0; 4]))?;
        let error = ranks.wait(received, Duration::from_secs(2)).unwrap_err();
        // As above.
        let text = format!("{:?} {}\n", error.kind(), in_time(start));
        stderr().write_all(text.as_bytes()).unwrap();
        Err(error)
    });
}

#[test]
fn a_large_message_to_a_rank_that_stopped_is_a_timeout() {
    let words = ["send of 8000000 bytes to rank 1, tag 1"];
    ends("a_large_message_to_a_rank_that_stopped_is_a_timeout", 2, 1, &words, |ranks| {
        stop_rank_1(&ranks)?;
        let sent = ranks.send(1, 1, Buffer::host(vec![0; 8_000_000]))?;
        ranks.wait(sent, Duration::from_secs(1)).map(drop)
    });
}

#[test]
fn a_panic_ends_the_job_with_its_code() {
    ends("a_panic_ends_the_job_with_its_code", 4, 101, &["on purpose"], |ranks| {
        assert!(ranks.rank() != 2, "on purpose");
        ranks.barrier(Duration::MAX)
    });
}

#[test]
fn an_error_ends_the_job_with_its_code() {
    ends(
        "an_error_ends_the_job_with_its_code",
        3,
        1,
        &["rank 1: send: invalid argument"],
        |ranks| {
            if ranks.rank() == 1 {
                ranks.send(3, 1, Buffer::default()).map(drop)
            } else {
                ranks.barrier(Duration::MAX)
            }
        },
    );
}

/// An error that cannot be printed.
struct Unprintable;

impl Debug for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("unprintable")
    }
}

#[test]
fn an_error_that_cannot_be_printed_ends_the_job() {
    ends_by("an_error_that_cannot_be_printed_ends_the_job", 2, 1, &["unprintable"], |ranks| {
        if ranks.rank() == 1 {
            return Err(Unprintable);
        }
        ranks.barrier(Duration::MAX).map_err(|_| Unprintable)
    });
}

#[test]
fn a_rank_that_dies_ends_the_job() {
    ends("a_rank_that_dies_ends_the_job", 3, ANY, &[], |ranks| {
        ranks.barrier(LONG)?;
        if ranks.rank() == 1 {
            raise(Signal::SIGKILL).unwrap();
        }
        ranks.barrier(Duration::MAX)
    });
}

#[test]
fn a_rank_that_exits_ends_the_job() {
    ends("a_rank_that_exits_ends_the_job", 3, ANY, &[], |ranks| {
        ranks.barrier(LONG)?;
        if ranks.rank() == 1 {
            std::process::exit(7);
        }
        ranks.barrier(Duration::MAX)
    });
}

#[test]
fn dropped_requests_do_not_delay_the_end_of_the_job() {
    passes("dropped_requests_do_not_delay_the_end_of_the_job", 2, |ranks| {
        drop(ranks.receive(1 - ranks.rank(), 1, Buffer::host(vec![0; 10]))?);
        drop(ranks.receive(ranks.rank(), 1, Buffer::host(vec![0; 10]))?);
        drop(ranks.send(ranks.rank(), 1, Buffer::host(vec![0; 8_000_000]))?);
        // Small enough to be sent ahead of a receive that never comes.
        drop(ranks.send(1 - ranks.rank(), 2, Buffer::host(vec![0; 10]))?);
        Ok(())
    });
}

#[test]
fn a_send_without_a_receive_is_an_error_at_the_end() {
    let output = job("a_send_without_a_receive_is_an_error_at_the_end", 2, |ranks| {
        if ranks.rank() == 0 {
            drop(ranks.send(1, 2, Buffer::host(vec![0; 8_000_000]))?);
        }
        Ok::<(), halo::Error>(())
    });
    let Some(output) = output else { return };
    let text = text_of(&output);
    // Intel MPI takes the whole message without a receive.
    if !(output.status.success() && text.contains("Intel")) {
        let words = "timeout: after 10s, 1 messages of dropped requests are in transit";
        assert!(text.contains(words) && has_ended(output.status, 1), "{text}");
    }
}

#[test]
fn calls_after_the_job_are_errors() {
    let name = "calls_after_the_job_are_errors";
    let kept = Mutex::new(None);
    if is_rank(name) {
        let mut library = String::new();
        let keep = |ranks: MpiCommunicator| {
            library = ranks.library()?;
            let request = ranks.receive(0, 1, Buffer::host(vec![0]))?;
            *kept.lock() = Some((ranks, request));
            Ok::<(), halo::Error>(())
        };
        halo_mpi::run(keep).unwrap();
        let (ranks, mut request) = kept.into_inner().unwrap();
        let late = request.test().unwrap_err();
        let again = halo_mpi::run(|_| Ok::<(), halo::Error>(())).unwrap_err();
        let send = ranks.send(0, 1, Buffer::default()).unwrap_err();
        let kinds = [late, send, again].map(|error| error.kind());
        assert_eq!(kinds, [ErrorKind::PeerLost, ErrorKind::PeerLost, ErrorKind::Conflict]);
        done(&library);
    }
    passes(name, 1, |_| Ok(()));
}

#[test]
fn a_wait_sleeps() {
    passes("a_wait_sleeps", 1, |ranks| {
        let received = ranks.receive(0, 1, Buffer::host(vec![0]))?;
        let before = processor_time();
        ranks.wait(received, Duration::from_secs(1)).unwrap_err();
        let used = processor_time() - before;
        assert!(used < Duration::from_millis(200), "{used:?} of processor time");
        Ok(())
    });
}

/// The CPU time that this thread has used.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn ranks_of_a_node_take_its_devices_in_turn() {
    passes("ranks_of_a_node_take_its_devices_in_turn", 4, |ranks| {
        assert_eq!((ranks.local_size(), ranks.local_rank()), (4, ranks.rank()));
        let devices = ["cuda:0", "cuda:1", "cuda:2"];
        assert_eq!(ranks.choose(&devices), Some(&devices[ranks.rank() % 3]));
        assert_eq!(ranks.choose::<u8>(&[]), None);
        Ok(())
    });
}

#[test]
fn memory_that_the_host_cannot_address_is_refused() {
    passes("memory_that_the_host_cannot_address_is_refused", 1, |ranks| {
        let sim = Device::new(SimDevice::new(0, SimConfig::new()))?;
        assert!(!ranks.passes_memory_of(&sim));
        let error = ranks.send(0, 1, Buffer::device(sim.memory_allocate(8)?)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("sim:0"), "{error}");

        let host = Device::new(HostDevice::new(0))?;
        assert!(ranks.passes_memory_of(&host));
        let memory = host.memory_from_slice(&host.default_stream(), &[5_u8; 8])?;
        let sent = ranks.send(0, 1, Buffer::device(memory))?;
        let received = ranks.receive(0, 1, Buffer::pinned(sim.pinned_allocate(8)?))?;
        assert_eq!(ranks.wait(received, LONG)?.to_vec()?, [5; 8]);
        ranks.wait(sent, LONG).map(drop)
    });
}
