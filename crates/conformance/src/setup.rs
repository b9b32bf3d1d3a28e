//! The environment of a rule: an opened device with its kernels and a stream.
#![expect(
    unsafe_code,
    reason = "launches the suite's own kernels, whose behaviour their table fixes"
)]

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use runtime_core::{
    Arg, Device, DeviceKind, Element, Error, ErrorKind, Graph, Kernel, Launch, Memory, MemoryView,
    MemoryViewMut, Module, ModuleBundle, Result, Stream, StreamOptions, args,
};

use crate::kernels::spin_value;
use crate::outcome::{Outcome, check, check_eq};

/// The number of rounds of `spin` per millisecond, measured once for each of the fixture's devices.
pub(crate) type SpinRate = Arc<OnceLock<Outcome<u64>>>;

/// A device with the suite's kernels loaded on it, and a stream that only one rule uses.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) device: Device,
    pub(crate) stream: Stream,
    pub(crate) kernels: Kernels,
}

impl Setup {
    pub(crate) fn new(device: Device, bundle: &ModuleBundle<'_>, rate: SpinRate) -> Result<Self> {
        let kernels = Kernels { module: device.module_load_bundle(bundle)?, rate };
        let stream = device.stream_create(&StreamOptions::default())?;
        Ok(Self { device, stream, kernels })
    }

    /// The same device and kernels with a new stream.
    pub(crate) fn with_stream(&self) -> Result<Self> {
        Ok(Self { stream: self.new_stream()?, ..self.clone() })
    }

    pub(crate) fn new_stream(&self) -> Result<Stream> {
        self.device.stream_create(&StreamOptions::default())
    }

    /// Allocates memory with these elements.
    pub(crate) fn upload<T: Element>(&self, elements: &[T]) -> Result<Memory<T>> {
        self.device.memory_from_slice(&self.stream, elements)
    }

    /// Returns the elements as the setup's stream sees them.
    pub(crate) fn download<T: Element>(&self, memory: &Memory<T>) -> Result<Vec<T>> {
        memory.view().to_vec(&self.stream)
    }

    /// Keeps a stream busy for about `time`.
    pub(crate) fn spin(&self, stream: &Stream, time: Duration) -> Outcome<Busy> {
        self.kernels.spin(stream, time)
    }

    /// Fails unless the device works: for the end of a rule that misuses it.
    #[track_caller]
    pub(crate) fn is_usable(&self) -> Outcome {
        let stream = self.new_stream()?;
        let mut memory = self.device.memory_allocate::<u32>(257)?;
        self.kernels.fill_index(&stream, memory.view_mut(), 7)?;
        let found = memory.view().to_vec(&stream)?;
        let expected: Vec<u32> = (7..7 + 257).collect();
        check_eq!(found, expected, "the values the device computes afterwards");
        Ok(())
    }
}

/// A stream kept busy by `spin`.
#[derive(Debug)]
pub(crate) struct Busy {
    out: Memory<u32>,
    rounds: u64,
    since: Instant,
    at_least: Duration,
}

impl Busy {
    /// Fails if so little time has passed that the work cannot be finished. Call it after an operation that must have
    /// waited for the work.
    #[track_caller]
    pub(crate) fn must_be_over(&self, what: &str) -> Outcome {
        self.must_be_over_at(Instant::now(), what)
    }

    /// As [`must_be_over`](Self::must_be_over), for a time other than now.
    #[track_caller]
    pub(crate) fn must_be_over_at(&self, when: Instant, what: &str) -> Outcome {
        let passed = when.saturating_duration_since(self.since);
        let at_least = self.at_least;
        check!(
            passed >= at_least,
            "{what} after {passed:?}, but the work takes {at_least:?} or more"
        );
        Ok(())
    }

    /// The minimum time that the work takes.
    pub(crate) fn at_least(&self) -> Duration {
        self.at_least
    }

    /// Fails unless the work was done, as seen by `stream`.
    #[track_caller]
    pub(crate) fn was_done(&self, stream: &Stream) -> Outcome {
        let found = self.out.view().to_vec(stream)?;
        check_eq!(
            found,
            [spin_value(self.rounds)],
            "the value that spin computed in {} rounds",
            self.rounds
        );
        Ok(())
    }
}

/// Safe launches of the suite's kernels: the number of elements is that of the view.
#[derive(Clone, Debug)]
pub(crate) struct Kernels {
    module: Module,
    rate: SpinRate,
}

impl Kernels {
    pub(crate) fn module(&self) -> &Module {
        &self.module
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<Kernel> {
        self.module.kernel(name)
    }

    /// A launch with one work-item for each of `n` elements.
    pub(crate) fn cover(&self, n: usize) -> Launch {
        let limits = &self.module.device().info().limits;
        Launch::cover(n, limits.max_block[0].min(limits.max_block_threads).min(64))
    }

    pub(crate) fn fill_index(
        &self,
        stream: &Stream,
        out: MemoryViewMut<'_, u32>,
        start: u32,
    ) -> Result<()> {
        let n = count(out.len());
        self.run("fill_index", stream, out.len(), args![out, start, n])
    }

    pub(crate) fn add_one(&self, stream: &Stream, data: MemoryViewMut<'_, u32>) -> Result<()> {
        let n = count(data.len());
        self.run("add_one", stream, data.len(), args![data, n])
    }

    /// Launches `add`. All three views have the same length.
    pub(crate) fn add(
        &self,
        stream: &Stream,
        out: MemoryViewMut<'_, u32>,
        a: MemoryView<'_, u32>,
        b: MemoryView<'_, u32>,
    ) -> Result<()> {
        let len = out.len().min(a.len()).min(b.len());
        self.run("add", stream, len, args![out, a, b, count(len)])
    }

    pub(crate) fn saxpy(
        &self,
        stream: &Stream,
        y: MemoryViewMut<'_, f32>,
        x: MemoryView<'_, f32>,
        a: f32,
    ) -> Result<()> {
        let len = y.len().min(x.len());
        self.run("saxpy", stream, len, args![y, x, a, count(len)])
    }

    pub(crate) fn scale_f64(
        &self,
        stream: &Stream,
        y: MemoryViewMut<'_, f64>,
        x: MemoryView<'_, f64>,
        a: f64,
    ) -> Result<()> {
        let len = y.len().min(x.len());
        self.run("scale_f64", stream, len, args![y, x, a, count(len)])
    }

    /// Makes the device stop the program; `None` if the bundle has no such kernel.
    pub(crate) fn fault(&self, stream: &Stream, out: MemoryViewMut<'_, u32>) -> Option<Result<()>> {
        let kernel = self.kernel("fault").ok()?;
        Some(attempt(&kernel, stream, &Launch::cover(1, 1), args![out]))
    }

    fn run(&self, name: &str, stream: &Stream, len: usize, args: &[Arg<'_>]) -> Result<()> {
        attempt(&self.kernel(name)?, stream, &self.cover(len), args)
    }

    /// Keeps a stream busy for about `time`. It may take more than twice as long. It may take only a sixteenth of
    /// `time` if the machine was very busy when the kernel's speed was measured.
    pub(crate) fn spin(&self, stream: &Stream, time: Duration) -> Outcome<Busy> {
        let out = self.module.device().memory_allocate(1)?;
        Ok(self.spin_rounds(stream, self.rounds(time)?, out, time / 16)?)
    }

    /// As [`spin`](Self::spin), and writes the first element of a view.
    pub(crate) fn spin_on(
        &self,
        stream: &Stream,
        time: Duration,
        out: MemoryViewMut<'_, u32>,
    ) -> Outcome<Result<()>> {
        let (kernel, rounds) = (self.kernel("spin")?, self.rounds(time)?);
        Ok(attempt(&kernel, stream, &Launch::cover(1, 1), args![out, rounds]))
    }

    /// The number of rounds of `spin` that take about `time`.
    fn rounds(&self, time: Duration) -> Outcome<u64> {
        let rate = self.rate.get_or_init(|| self.calibrate()).clone()?;
        Ok(rate * u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    fn spin_rounds(
        &self,
        stream: &Stream,
        rounds: u64,
        mut out: Memory<u32>,
        at_least: Duration,
    ) -> Result<Busy> {
        let kernel = self.kernel("spin")?;
        let since = Instant::now();
        attempt(&kernel, stream, &Launch::cover(1, 1), args![&mut out, rounds])?;
        Ok(Busy { out, rounds, since, at_least })
    }

    /// Measures how many rounds of `spin` run in a millisecond. It times a copy to the host, which must wait for the
    /// kernel, so it does not rely on behaviour that other rules test.
    fn calibrate(&self) -> Outcome<u64> {
        const LONG_ENOUGH: Duration = Duration::from_millis(12);
        let stream = self.module.device().stream_create(&StreamOptions::default())?;
        let time = |rounds: u64| -> Outcome<Duration> {
            let out = self.module.device().memory_allocate(1)?;
            let busy = self.spin_rounds(&stream, rounds, out, Duration::ZERO)?;
            busy.was_done(&stream)?;
            Ok(busy.since.elapsed())
        };
        let mut rounds = 1 << 10;
        // The first launch may take longer than later ones, and GPUs raise their clocks while they work.
        let warm_up = match self.module.device().info().kind {
            DeviceKind::Gpu => Duration::from_millis(200),
            _ => Duration::ZERO,
        };
        let since = Instant::now();
        time(rounds)?;
        while since.elapsed() < warm_up {
            time(rounds)?;
            rounds = (rounds * 2).min(1 << 20);
        }
        rounds = 1 << 10;
        while time(rounds)? < LONG_ENOUGH {
            rounds *= 2;
            check!(rounds < 1 << 44, "{rounds} rounds of spin take less than {LONG_ENOUGH:?}");
        }
        // The shortest time is the least disturbed one.
        let mut shortest = Duration::MAX;
        for _ in 0..6 {
            shortest = shortest.min(time(rounds)?);
        }
        let micros = u64::try_from(shortest.as_micros()).unwrap_or(u64::MAX).max(1);
        Ok((rounds.saturating_mul(1000) / micros).max(1))
    }
}

/// Launches one of the suite's kernels, with correct arguments, or with arguments that the front must refuse before it
/// runs.
pub(crate) fn attempt(
    kernel: &Kernel,
    stream: &Stream,
    launch: &Launch,
    args: &[Arg<'_>],
) -> Result<()> {
    // SAFETY: the suite's kernels access only elements below the numbers that they are given, which the callers take
    // from the views, and write only mutable views. Wrong arguments are tried only if the device reports its parameters
    // or the launch is empty, so no kernel runs with them.
    unsafe { kernel.launch(stream, launch, args) }
}

/// Launches a graph that the suite captured.
pub(crate) fn replay(graph: &Graph, stream: &Stream) -> Result<()> {
    // SAFETY: rules keep no slice of memory that they capture work on. They capture the suite's kernels as `attempt`
    // launches them.
    unsafe { graph.launch(stream) }
}

/// A number of elements, as a kernel parameter.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Whether the error says that the device or its program is broken.
pub(crate) fn is_fault(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DeviceFault | ErrorKind::DeviceLost)
}
