//! The event counters of the host device.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use backend_host::HostDevice;
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use perf_event::Builder;
use perf_event::events::Software;
use runtime_core::contract::{CounterSet, Counters};
use runtime_core::{Device, ErrorKind, Grid, HostModule, Launch, MeasureOptions, args, measure};

fn device() -> Device {
    Device::new(HostDevice::with_threads(0, 2).unwrap()).unwrap()
}

/// The device's counters. `None` only if the kernel refuses this process even the simplest event.
fn counters(device: &Device) -> Option<&dyn Counters> {
    let refused = Builder::new(Software::TASK_CLOCK).build().err();
    assert_eq!(device.counters().is_none(), refused.is_some(), "{refused:?}");
    device.counters()
}

fn read(open: &mut Box<dyn CounterSet>) -> u64 {
    let mut values = [0];
    open.read(&mut values).unwrap();
    values[0]
}

fn clock(id: ClockId) -> u64 {
    u64::try_from(Duration::from(clock_gettime(id).unwrap()).as_nanos()).unwrap()
}

/// Keeps this thread running for this much of its own CPU time.
fn burn(time: Duration) {
    let now = || clock(ClockId::CLOCK_THREAD_CPUTIME_ID);
    let end = now() + u64::try_from(time.as_nanos()).unwrap();
    while now() < end {}
}

/// The time that hypervisors took from all processors since the system started.
fn stolen() -> u64 {
    let counts = std::fs::read_to_string("/proc/stat").unwrap();
    let total = counts.lines().find(|line| line.starts_with("cpu ")).unwrap();
    // In hundredths of a second: user, nice, system, idle, waiting, two kinds of interrupts, stolen.
    total.split_whitespace().nth(8).map_or(0, |ticks| ticks.parse::<u64>().unwrap() * 10_000_000)
}

/// Does `work`, and checks that `open` counted on `task-clock` the CPU time of the process during it. Returns this
/// count.
fn ran(open: &mut Box<dyn CounterSet>, work: impl FnOnce()) -> u64 {
    let process = || clock(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    let before = stolen();
    let (a, first, b) = (process(), read(open), process());
    work();
    let (c, last, d) = (process(), read(open), process());
    let (counted, least, most) = (last - first, c - b, d - a);
    // The process's clock may lag by a tick for each running thread, and excludes time taken by a hypervisor.
    let ticks = 20_000_000;
    let most = most + stolen() - before;
    assert!(counted + ticks >= least / 10 * 9, "{counted} ns counted of {least} to {most}");
    assert!(counted <= most / 4 * 5 + ticks, "{counted} ns counted of {least} to {most}");
    counted
}

#[test]
fn the_clock_counts_kernels_and_all_threads_before_and_after() {
    const EACH: Duration = Duration::from_millis(40);
    let device = device();
    let Some(counters) = counters(&device) else { return };
    let (go, gate) = mpsc::channel::<()>();
    let earlier = thread::spawn(move || {
        gate.recv().unwrap();
        burn(EACH);
        thread::spawn(|| burn(EACH)).join().unwrap();
    });
    let mut open = counters.open(&["task-clock"]).unwrap();
    let stream = device.default_stream();
    let busy = |grid: &Grid<'_>| grid.for_each(2, |_| burn(EACH));
    let kernel = device.module_load(&HostModule::new().with("k", busy)).unwrap();
    let kernel = kernel.kernel("k").unwrap();
    let counted = ran(&mut open, || {
        kernel.launch_checked(&stream, &Launch::cover(1, 1), args![]).unwrap();
        go.send(()).unwrap();
        earlier.join().unwrap();
        thread::spawn(|| burn(EACH)).join().unwrap();
        stream.synchronize().unwrap();
    });
    let all = 5 * u64::try_from(EACH.as_nanos()).unwrap();
    assert!(counted >= all / 10 * 9, "{counted} ns of at least {all}");
}

#[test]
fn a_thread_started_while_counters_are_opened_is_counted_once() {
    let device = device();
    let Some(counters) = counters(&device) else { return };
    for before in [0, 1, 2, 4, 8, 16] {
        let (go, gate) = mpsc::channel::<()>();
        let (started, starting) = mpsc::channel();
        let start = thread::spawn(move || {
            started.send(()).unwrap();
            let brief = |count| (0..count).for_each(|_| thread::spawn(|| ()).join().unwrap());
            brief(before);
            let worker = thread::spawn(move || {
                gate.recv().unwrap();
                burn(Duration::from_millis(100));
            });
            brief(10);
            worker
        });
        starting.recv().unwrap();
        let mut open = counters.open(&["task-clock"]).unwrap();
        let worker = start.join().unwrap();
        let counted = ran(&mut open, || {
            go.send(()).unwrap();
            worker.join().unwrap();
        });
        assert!(counted >= 90_000_000, "{counted} ns counted of a thread that ran 100 ms");
    }
}

#[test]
fn fresh_memory_faults_pages_in() {
    const BYTES: usize = 64 << 20;
    /// The largest page size that common machines use for memory without a request.
    const LARGEST: usize = 2 << 20;
    let device = device();
    let Some(counters) = counters(&device) else { return };
    let mut open = counters.open(&["page-faults"]).unwrap();
    let usage = || {
        let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
        u64::try_from(usage.minor_page_faults() + usage.major_page_faults()).unwrap()
    };
    let (all, first) = (usage(), read(&mut open));
    let memory = std::hint::black_box(vec![1_u8; BYTES]);
    let (last, all) = (read(&mut open), usage() - all);
    let counted = last - first;
    assert!(counted >= (memory.len() / LARGEST) as u64, "{counted} page faults");
    assert!(counted <= all, "{counted} page faults in user mode of {all}");
}

#[test]
fn switches_are_counted_where_the_kernel_shows_them() {
    let device = device();
    let Some(counters) = counters(&device) else { return };
    let Ok(mut open) = counters.open(&["context-switches"]) else {
        let shown = Builder::new(Software::CONTEXT_SWITCHES).exclude_kernel(false).build();
        return assert!(shown.is_err(), "the kernel shows an event that the device does not");
    };
    let first = read(&mut open);
    (0..20).for_each(|_| thread::sleep(Duration::from_millis(1)));
    let counted = read(&mut open) - first;
    assert!(counted >= 20, "{counted} switches in 20 naps");
}

#[test]
fn all_names_open_together_and_wrong_ones_are_refused() {
    let device = device();
    let Some(counters) = counters(&device) else { return };
    let names = counters.names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut open = counters.open(&names).unwrap();
    let mut values = vec![0; names.len()];
    open.read(&mut values).unwrap();
    let error = open.read(&mut values[1..]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for (wrong, named) in [
        (vec!["task-clock", "no-such-event"], "\"no-such-event\"; there are "),
        (vec!["task-clock", "page-faults", "task-clock"], "\"task-clock\" is named twice"),
    ] {
        let error = counters.open(&wrong).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(named), "{error}");
    }
    counters.open(&[]).unwrap().read(&mut []).unwrap();
}

#[test]
fn a_measurement_reads_the_clock_of_its_kernel() {
    let device = device();
    if counters(&device).is_none() {
        return;
    }
    let stream = device.default_stream();
    let options = MeasureOptions {
        repeat: 3,
        counters: vec!["task-clock".to_owned(), "page-faults".to_owned()],
        ..MeasureOptions::default()
    };
    let mut x = device.memory_allocate::<u32>(1 << 20).unwrap();
    let measured = measure(&stream, &options, || x.view_mut().fill(&stream, 7_u32)).unwrap();
    for sample in &measured.samples {
        let busy = sample.counts[0] / 1e9;
        assert!(busy > 0.0 && sample.counts.len() == 2, "{sample:?}");
    }
}
