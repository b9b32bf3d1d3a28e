//! Measurements, and the statistics of a device.

use std::cell::Cell;
use std::time::{Duration, Instant};

use runtime_core::{ErrorKind, MeasureOptions, Slot, Support, measure, measure_with};

use crate::Fixture;
use crate::outcome::{Outcome, check, check_eq, refused};

fn options(repeat: usize, number: usize) -> MeasureOptions {
    let min_repeat = Duration::ZERO;
    MeasureOptions { warm_up: 1, repeat, number, min_repeat, counters: Vec::new() }
}

/// A measurement has as many samples as requested, with and without counters, and each sample has one count per
/// counter.
pub fn a_measurement_has_every_sample(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut memory = setup.upload(&[0_u32; 1000])?;
    let names = setup.device.counters().map(|counters| counters.names()).unwrap_or_default();
    let few = names.into_iter().take(2).collect::<Vec<_>>();
    for counters in [Vec::new(), few] {
        let (repeat, number) = (5, 3);
        let runs = Cell::new(0);
        let options = MeasureOptions { counters: counters.clone(), ..options(repeat, number) };
        let measured = measure(&setup.stream, &options, || {
            runs.set(runs.get() + 1);
            setup.kernels.add_one(&setup.stream, memory.view_mut())
        })?;
        check_eq!(measured.samples.len(), repeat, "samples with {} counters", counters.len());
        check_eq!(runs.get(), 1 + repeat * number, "runs, one warm-up among them");
        for sample in &measured.samples {
            check_eq!(sample.number, number, "runs of a sample");
            check_eq!(sample.counts.len(), counters.len(), "counts of a sample");
            check!(sample.wall > 0.0 && sample.device >= 0.0, "times of {sample:?}");
            check!(sample.counts.iter().all(|count| *count >= 0.0), "counts of {sample:?}");
        }
        check!(measured.median_wall() > 0.0, "a median of {}", measured.median_wall());
    }
    Ok(())
}

/// Samples shorter than the minimum time are repeated with more runs.
pub fn short_samples_are_run_more_often(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut memory = setup.upload(&[0_u32; 16])?;
    let least = Duration::from_millis(4);
    let options = MeasureOptions { min_repeat: least, ..options(3, 1) };
    let measured = measure(&setup.stream, &options, || {
        setup.kernels.add_one(&setup.stream, memory.view_mut())
    })?;
    check_eq!(measured.samples.len(), 3, "samples");
    for sample in &measured.samples {
        #[expect(clippy::cast_precision_loss, reason = "a few thousand runs are exact")]
        let took = sample.wall * sample.number as f64;
        check!(took >= 0.999 * least.as_secs_f64(), "a sample of {took} s, {least:?} is the least");
        check!(sample.number.is_power_of_two(), "{} runs, not doubled from 1", sample.number);
    }
    Ok(())
}

/// The setup runs before each sample. The time of a sample covers the work, but not the setup.
pub fn the_time_covers_the_work_and_not_the_setup(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let work = setup.spin(&setup.stream, Duration::from_millis(20))?;
    let least = work.at_least().as_secs_f64();
    let (mut shortest, setup_time) = (f64::INFINITY, Cell::new(f64::INFINITY));
    // On a busy machine the work can take longer, but not every time.
    for _ in 0..8 {
        let setups = Cell::new(0);
        let measured = measure_with(
            &setup.stream,
            &options(3, 1),
            || {
                setups.set(setups.get() + 1);
                let began = Instant::now();
                spin_until_done(&setup, 80)?;
                // On a simulated clock the setup takes no host time.
                setup_time.set(setup_time.get().min(began.elapsed().as_secs_f64().max(0.08)));
                Ok(())
            },
            || spin(&setup, 20),
        )?;
        check_eq!(setups.get(), 4, "setups, one before the warm-up");
        for sample in &measured.samples {
            check!(sample.device >= least, "{sample:?} for work that takes {least} s or more");
            check!(sample.wall >= least, "{sample:?} for work that takes {least} s or more");
            shortest = shortest.min(sample.device);
        }
        if shortest < setup_time.get() {
            break;
        }
    }
    let setup_time = setup_time.get();
    check!(
        shortest < setup_time,
        "{shortest} s for work of 20 ms behind a setup of {setup_time} s or more"
    );
    work.was_done(&setup.stream)
}

fn spin(setup: &crate::setup::Setup, milliseconds: u64) -> runtime_core::Result<()> {
    match setup.spin(&setup.stream, Duration::from_millis(milliseconds)) {
        Ok(_) => Ok(()),
        Err(stop) => Err(runtime_core::Error::new(ErrorKind::Driver, "spin", stop.to_string())),
    }
}

fn spin_until_done(setup: &crate::setup::Setup, milliseconds: u64) -> runtime_core::Result<()> {
    spin(setup, milliseconds)?;
    setup.stream.synchronize()
}

/// Options without samples or runs, and unknown counters, are refused.
pub fn measurements_of_nothing_are_refused(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let kind = ErrorKind::InvalidArgument;
    for (repeat, number) in [(0, 1), (1, 0), (0, 0)] {
        let measured = measure(&setup.stream, &options(repeat, number), || Ok(()));
        refused(measured, kind, format_args!("{repeat} samples of {number} runs"))?;
    }
    let unknown = MeasureOptions { counters: vec!["no such counter".to_owned()], ..options(1, 1) };
    let kind = if setup.device.counters().is_some() { kind } else { ErrorKind::Unsupported };
    let error = refused(measure(&setup.stream, &unknown, || Ok(())), kind, "an unknown counter")?;
    check!(error.message().contains("no such counter"), "{error} does not name the counter");
    let nothing = measure(&setup.stream, &options(2, 1), || Ok(()))?;
    check_eq!(nothing.samples.len(), 2, "samples of no work");
    Ok(())
}

/// The device counts copies by direction with their bytes, launches and allocations.
pub fn statistics_count_operations_and_bytes(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    let stream = &setup.stream;
    let zero = setup.device.statistics();
    let mut memory = setup.upload(&[0_u32; 100])?;
    let mut other = setup.device.memory_allocate::<u32>(100)?;
    let mut pinned = setup.device.pinned_allocate::<u32>(100)?;
    memory.view_mut().copy_from_pinned(stream, &pinned)?;
    memory.view_mut().slice(0..10)?.copy_from_slice(stream, &[1_u32; 10])?;
    memory.view().copy_to_pinned(stream, &mut pinned)?;
    setup.download(&memory)?;
    other.view_mut().copy_from(stream, &memory.view())?;
    other.view_mut().fill(stream, 4_u32)?;
    setup.kernels.add_one(stream, other.view_mut())?;
    setup.kernels.add_one(stream, other.view_mut())?;
    let plan = setup.device.plan_regions(&[super::regions::row_copy::<u32>(0, 1, 3)])?;
    plan.execute(stream, &mut [Slot::from(memory.view()), Slot::from(other.view_mut())])?;
    let refused_copy = memory.view_mut().copy_from_slice(stream, &[1_u32; 10]);
    refused(refused_copy, ErrorKind::OutOfBounds, "a copy that is too short")?;
    memory.view_mut().copy_from_slice(&setup.stream, &[0_u32; 100])?;
    let now = setup.device.statistics();
    // A plan of 3 elements copies on the device, or through the host.
    let native = setup.device.capabilities().region_copy == Support::Native;
    let (on_device, through_host) = if native { ((1, 12), (0, 0)) } else { ((0, 0), (1, 12)) };
    for (what, before, after, (count, bytes), plan) in [
        ("to the device", zero.to_device, now.to_device, (4, 400 + 400 + 40 + 400), through_host),
        ("from the device", zero.from_device, now.from_device, (2, 800), through_host),
        ("on the device", zero.on_device, now.on_device, (2, 400 + 400), on_device),
        ("from peers", zero.from_peers, now.from_peers, (0, 0), (0, 0)),
    ] {
        let expected = (count + plan.0, bytes + plan.1);
        let counted = (after.count - before.count, after.bytes - before.bytes);
        check_eq!(counted, expected, "copies and bytes {what}");
    }
    check_eq!(now.launches - zero.launches, 2, "launches");
    check_eq!(now.allocations - zero.allocations, 2, "allocations");
    Ok(())
}
