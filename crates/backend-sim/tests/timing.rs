//! Streams are asynchronous, and a missing wait is detected.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::sync::mpsc;
use std::time::{Duration, Instant};

use backend_sim::{Fault, SimConfig, SimDevice};
use runtime_core::{Device, ErrorKind, Grid, HostModule, Launch, StreamOptions, args};

const SEEDS: u64 = 40;

fn device(config: SimConfig) -> Device {
    Device::new(SimDevice::new(0, config)).unwrap()
}

fn kernels() -> HostModule {
    HostModule::new().with("set", |_: &Grid<'_>, out: &mut [u32], value: u32| out.fill(value)).with(
        "double",
        |_: &Grid<'_>, out: &mut [u32], x: &[u32]| {
            out.iter_mut().zip(x).for_each(|(out, x)| *out = 2 * x);
        },
    )
}

/// A producer and a consumer on two streams. Returns whether the result was right.
fn pipeline(seed: u64, wait: bool) -> bool {
    let device = device(SimConfig::new().seed(seed));
    let produce = device.stream_create(&StreamOptions::default()).unwrap();
    let consume = device.stream_create(&StreamOptions::default()).unwrap();
    let module = device.module_load(&kernels()).unwrap();
    let (set, double) = (module.kernel("set").unwrap(), module.kernel("double").unwrap());
    let mut x = device.memory_from_slice(&produce, &[0_u32; 16]).unwrap();
    let mut y = device.memory_from_slice(&consume, &[0_u32; 16]).unwrap();
    let geometry = Launch::cover(16, 16);
    for value in 1..6_u32 {
        set.launch_checked(&produce, &geometry, args![&mut x, value]).unwrap();
        if wait {
            consume.wait(&produce.record_event().unwrap()).unwrap();
        }
        double.launch_checked(&consume, &geometry, args![&mut y, &x]).unwrap();
        if wait {
            produce.wait(&consume.record_event().unwrap()).unwrap();
        }
    }
    y.view().to_vec(&consume).unwrap() == [10; 16]
}

#[test]
fn without_a_wait_some_seed_gives_a_wrong_answer() {
    assert!((0..SEEDS).any(|seed| !pipeline(seed, false)));
}

#[test]
fn with_the_wait_no_seed_does() {
    for seed in 0..SEEDS {
        assert!(pipeline(seed, true), "seed {seed}");
    }
}

#[test]
fn enqueueing_does_not_wait_and_a_hang_ends() {
    let config = SimConfig::new().fault(Fault::hang(1, Duration::from_millis(200)));
    let device = device(config);
    let stream = device.default_stream();
    let kernel = device.module_load(&kernels()).unwrap().kernel("set").unwrap();
    let mut x = device.memory_allocate::<u32>(4).unwrap();
    let began = Instant::now();
    kernel.launch_checked(&stream, &Launch::cover(4, 4), args![&mut x, 3_u32]).unwrap();
    x.view_mut().slice(0..1).unwrap().fill(&stream, 9_u32).unwrap();
    let event = stream.record_event().unwrap();
    assert!(began.elapsed() < Duration::from_millis(150), "enqueueing took {:?}", began.elapsed());
    let late = event.wait_for(Duration::from_millis(10)).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    event.wait().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert_eq!(x.view().to_vec(&stream).unwrap(), [9, 3, 3, 3]);
}

#[test]
fn dropping_everything_with_work_in_flight_lets_it_end() {
    let (ran, seen) = mpsc::channel();
    let module = HostModule::new().with("read", move |_: &Grid<'_>, x: &[u32]| {
        ran.send(x.to_vec()).ok();
    });
    {
        let device = device(SimConfig::new().fault(Fault::hang(1, Duration::from_millis(50))));
        let stream = device.stream_create(&StreamOptions::default()).unwrap();
        let x = device.memory_from_slice(&stream, &[7_u32; 3]).unwrap();
        let kernel = device.module_load(&module).unwrap().kernel("read").unwrap();
        kernel.launch_checked(&stream, &Launch::cover(3, 1), args![&x]).unwrap();
    }
    assert_eq!(seen.recv_timeout(Duration::from_secs(10)).unwrap(), [7; 3]);
}
