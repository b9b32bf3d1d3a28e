//! Measurement of the time that enqueued work takes.

use std::time::{Duration, Instant};

use crate::{Result, Stream};

/// How to measure: how often to run the work, and which counters to read.
///
/// Each of the `repeat` samples runs the work `number` times between two events on the device, followed by a
/// synchronisation on the host. `number` is doubled until a sample takes at least `min_repeat`; shorter samples are
/// discarded. The timed region contains the runs and the synchronisation, but neither `setup` nor reading counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasureOptions {
    /// Runs before the first sample.
    pub warm_up: usize,
    /// Samples to take.
    pub repeat: usize,
    /// Runs per sample, at least 1.
    pub number: usize,
    /// Minimum time of a sample.
    pub min_repeat: Duration,
    /// Counters to read, of the device's [`Counters`](crate::contract::Counters).
    pub counters: Vec<String>,
}

impl Default for MeasureOptions {
    /// One warm-up run and 10 samples of at least 10 ms.
    fn default() -> Self {
        Self {
            warm_up: 1,
            repeat: 10,
            number: 1,
            min_repeat: Duration::from_millis(10),
            counters: Vec::new(),
        }
    }
}

/// One sample. Times and counts are per run.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Number of runs averaged.
    pub number: usize,
    /// Seconds between the two events on the device.
    pub device: f64,
    /// Seconds on the host, including synchronisation.
    pub wall: f64,
    /// Counts in the order of [`MeasureOptions::counters`].
    pub counts: Vec<f64>,
}

/// Every sample of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The samples, in the order in which they were taken, as many as requested.
    pub samples: Vec<Sample>,
}

impl Measurement {
    /// Median device time per run, in seconds.
    pub fn median_device(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.device).collect())
    }

    /// Median host time per run, in seconds.
    pub fn median_wall(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.wall).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// Measures `work`, which enqueues the timed operations on `stream`.
///
/// Outputs are not reset between runs. Work that accumulates therefore runs on changing data, unless [`measure_with`]
/// resets it. Blocks until all samples are taken.
///
/// # Errors
///
/// `InvalidArgument` for options without samples or runs, or for counters that the device does not have. `Unsupported`
/// for counters of a device that has none at all. Errors of the work or of the device.
///
/// ```no_run
/// # fn example(stream: &runtime_core::Stream, view: &mut runtime_core::MemoryViewMut<'_, f64>) -> runtime_core::Result<()> {
/// use runtime_core::{MeasureOptions, measure};
///
/// let filled = measure(stream, &MeasureOptions::default(), || view.fill_zero(stream))?;
/// println!("{:.1} µs", 1e6 * filled.median_device());
/// # Ok(())
/// # }
/// ```
pub fn measure(
    stream: &Stream,
    options: &MeasureOptions,
    work: impl FnMut() -> Result<()>,
) -> Result<Measurement> {
    measure_with(stream, options, || Ok(()), work)
}

/// As [`measure`], but calls `setup` before the warm-up and before each sample, outside the timed region. With `number`
/// 1 and `min_repeat` 0 it is called before every timed run.
///
/// # Errors
///
/// As [`measure`].
pub fn measure_with(
    stream: &Stream,
    options: &MeasureOptions,
    mut setup: impl FnMut() -> Result<()>,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Measurement> {
    let device = stream.device();
    if options.repeat == 0 || options.number == 0 {
        let message = format!(
            "{} samples of {} runs; both must be at least 1",
            options.repeat, options.number
        );
        return Err(device.invalid("measure", message));
    }
    let mut counters = match (options.counters.as_slice(), device.counters()) {
        ([], _) => None,
        (names, Some(ability)) => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Some(ability.open(&names).map_err(|e| device.place(e))?)
        }
        (names, None) => {
            return Err(device.unsupported("measure", &format!("counters {names:?}")));
        }
    };
    let (start, end) = (device.event_create(true)?, device.event_create(true)?);
    setup()?;
    (0..options.warm_up).try_for_each(|_| work())?;
    stream.synchronize()?;

    let mut number = options.number;
    let mut samples = Vec::with_capacity(options.repeat.min(1024));
    let mut before = vec![0_u64; options.counters.len()];
    let mut after = before.clone();
    while samples.len() < options.repeat {
        setup()?;
        stream.synchronize()?;
        if let Some(counters) = &mut counters {
            counters.read(&mut before).map_err(|e| device.place(e))?;
        }
        let clock = Instant::now();
        stream.record(&start)?;
        (0..number).try_for_each(|_| work())?;
        stream.record(&end)?;
        stream.synchronize()?;
        let wall = clock.elapsed();
        if let Some(counters) = &mut counters {
            counters.read(&mut after).map_err(|e| device.place(e))?;
        }
        if wall < options.min_repeat && number <= usize::MAX / 2 {
            number *= 2;
            continue;
        }
        #[expect(clippy::cast_precision_loss, reason = "an average does not need 53 bits")]
        let per_run = |value: u64| value as f64 / number as f64;
        #[expect(clippy::cast_precision_loss, reason = "as above")]
        let runs = number as f64;
        samples.push(Sample {
            number,
            device: end.elapsed_since(&start)?.as_secs_f64() / runs,
            wall: wall.as_secs_f64() / runs,
            counts: before.iter().zip(&after).map(|(b, a)| per_run(a.saturating_sub(*b))).collect(),
        });
    }
    Ok(Measurement { samples })
}
