//! Devices for the tests, and work that every device can do.
#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::env;
use std::io::{Write, stderr};
use std::time::Duration;

use array_buffer::{ArrayBuffer, Partition, Parts, Result, WriteGuard};
use backend_cuda::CudaBackend;
use backend_hip::HipBackend;
use backend_host::HostDevice;
use backend_opencl::OpenClBackend;
use backend_sim::{Fault, Operation, SimBackend, SimConfig, SimHandle};
use ndarray::{Dimension, Ix1};
use runtime_core::{
    Backend, Combine, DType, Device, DeviceKind, DeviceRegistry, ErrorKind, RegionCopy, RegionSide,
    Slot, Stream, Support,
};

/// Two devices, and one stream on each.
pub(crate) struct Setup {
    pub(crate) a: Device,
    pub(crate) b: Device,
    pub(crate) s: Stream,
    pub(crate) t: Stream,
}

impl Setup {
    pub(crate) fn new(a: Device, b: Device) -> Self {
        let (s, t) = (a.default_stream(), b.default_stream());
        Self { a, b, s, t }
    }

    /// Simulated devices with this `config`, in one group.
    pub(crate) fn sim(config: SimConfig) -> Self {
        let mut registry = DeviceRegistry::new();
        let other = config.clone().seed(99);
        registry.register(SimBackend::with_devices([config, other])).unwrap();
        Self::new(registry.open("sim:0").unwrap(), registry.open("sim:1").unwrap())
    }

    /// Simulated devices that reach each other.
    pub(crate) fn peers() -> Self {
        Self::sim(quick())
    }

    /// Simulated devices that neither reach each other nor copy regions.
    pub(crate) fn apart() -> Self {
        Self::sim(quick().peers(false).region_copies(false))
    }

    /// The host, twice.
    pub(crate) fn host() -> Self {
        let open = |index| Device::new(HostDevice::with_threads(index, 2).unwrap()).unwrap();
        Self::new(open(0), open(1))
    }

    /// Two OpenCL devices of one platform: the first platform, or the one that the environment names. Their memory is
    /// of the given kind.
    pub(crate) fn opencl(memory: &str) -> Option<Self> {
        let backend = OpenClBackend::new();
        let platform = env::var("OPENCL_TEST_PLATFORM").unwrap_or_default();
        Self::found(|index| {
            let words = if platform.is_empty() { String::new() } else { format!("{platform}:") };
            backend.open(&format!("opencl:{words}{index}?memory={memory}").parse()?)
        })
    }

    /// Two CUDA devices.
    pub(crate) fn cuda() -> Option<Self> {
        let backend = CudaBackend::new();
        Self::found(|index| backend.open(&format!("cuda:{index}").parse()?))
    }

    /// Two HIP devices.
    pub(crate) fn hip() -> Option<Self> {
        let backend = HipBackend::new();
        Self::found(|index| backend.open(&format!("hip:{index}").parse()?))
    }

    /// Two devices of the stand-in for CUDA, with gates. Gates are not tested on GPUs, where programs with them may
    /// hang.
    pub(crate) fn cuda_with_gates() -> Option<Self> {
        let backend = CudaBackend::new();
        Self::on_stand_in(|index| backend.open(&format!("cuda:{index}?gates=on").parse()?))
    }

    /// Two devices of the stand-in for HIP, with gates.
    pub(crate) fn hip_with_gates() -> Option<Self> {
        let backend = HipBackend::new();
        Self::on_stand_in(|index| backend.open(&format!("hip:{index}?gates=on").parse()?))
    }

    /// As `found`, but `None`, with a message, unless the devices are those of a stand-in.
    fn on_stand_in(open: impl Fn(usize) -> Result<Device>) -> Option<Self> {
        let setup = Self::found(open)?;
        let name = &setup.a.info().name;
        if !name.starts_with("stand-in") {
            drop(writeln!(stderr(), "skipped: gates are tested on stand-ins, and not on {name}"));
            return None;
        }
        assert_eq!(setup.a.capabilities().gates, Support::Native, "{name}");
        Some(setup)
    }

    /// Two devices that reach each other; otherwise two instances of the first device. `None`, with a message, if there
    /// is no such device.
    fn found(open: impl Fn(usize) -> Result<Device>) -> Option<Self> {
        let first = match open(0) {
            Ok(device) => device,
            Err(error)
                if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::InvalidArgument) =>
            {
                // Not by `eprintln!`, which the test harness hides when the test passes.
                drop(writeln!(stderr(), "skipped: {error}"));
                return None;
            }
            Err(error) => panic!("{error:?}"),
        };
        let second = match open(1) {
            Err(error) if error.kind() == ErrorKind::UnknownDevice => None,
            second => Some(second.unwrap()).filter(|second| first.reaches(second)),
        };
        let second = second.unwrap_or_else(|| open(0).unwrap());
        Some(Self::new(first, second))
    }

    /// Whether the first device works in the host's own memory.
    pub(crate) fn shares(&self) -> bool {
        self.a.info().kind == DeviceKind::Host
    }

    /// Makes the first device the one that works in host memory, if it can. This copies nothing.
    pub(crate) fn claim<D: Dimension>(&self, array: &ArrayBuffer<f64, D>) {
        if self.shares() {
            array.prefetch(&self.s).unwrap();
        }
    }

    pub(crate) fn stream(&self) -> Stream {
        self.a.stream_create(&Default::default()).unwrap()
    }
}

/// Simulated devices with short pauses, and unified memory.
pub(crate) fn quick() -> SimConfig {
    SimConfig::new().jitter(Duration::from_micros(200)).unified_memory(true)
}

/// The bytes that the device has copied to and from itself.
pub(crate) fn moved(device: &Device) -> (u64, u64) {
    let counts = SimHandle::of(device).unwrap().counts();
    let to = counts.to_device.bytes + counts.from_peers.bytes;
    (to, counts.from_device.bytes)
}

/// A row of parts that end at the cuts, of which the first is 0.
pub(crate) fn row(cuts: &[usize]) -> Result<Partition> {
    let ranges: Vec<_> = cuts.windows(2).map(|cut| cut[0]..cut[1]).collect();
    let owned: Vec<_> = ranges.iter().map(std::slice::from_ref).collect();
    Partition::new(&[*cuts.last().unwrap()], &owned, &[])
}

/// Adds `by` to all elements of one part, on the stream's device.
pub(crate) fn add_part(
    array: &mut ArrayBuffer<f64, Ix1>,
    part: usize,
    stream: &Stream,
    by: f64,
) -> Result<()> {
    let [mut part] = array.split([Parts::one(part)]).unwrap();
    add(&mut part.read_write(stream)?, stream, by)
}

/// As `add_part`, by 1.
pub(crate) fn add_to(
    array: &mut ArrayBuffer<f64, Ix1>,
    part: usize,
    stream: &Stream,
) -> Result<()> {
    add_part(array, part, stream, 1.0)
}

/// Adds `by` to all elements of the guard's box, on its device.
pub(crate) fn add<D: Dimension>(
    guard: &mut WriteGuard<'_, f64, D>,
    stream: &Stream,
    by: f64,
) -> Result<()> {
    combine(guard, stream, by, Combine::Sum)
}

/// Overwrites all elements of the guard's box, on its device.
pub(crate) fn set<D: Dimension>(
    guard: &mut WriteGuard<'_, f64, D>,
    stream: &Stream,
    to: f64,
) -> Result<()> {
    combine(guard, stream, to, Combine::Replace)
}

/// Combines all elements of the guard's box with a value, using a region copy from one element.
fn combine<D: Dimension>(
    guard: &mut WriteGuard<'_, f64, D>,
    stream: &Stream,
    value: f64,
    combine: Combine,
) -> Result<()> {
    let one = stream.device().memory_from_slice(stream, &[value])?;
    let view = guard.view_mut()?;
    let extents = view.layout().shape().to_vec();
    let destination = view.as_view().region_side(0);
    let source = RegionSide { slot: 1, offset: 0, strides: vec![0; extents.len()] };
    let dtype = DType::F64;
    let copy = RegionCopy { dtype, extents, source, destination, negate: false, combine };
    let plan = stream.device().plan_regions(&[copy])?;
    plan.execute(stream, &mut [Slot::from(view), one.view().into()])
}

/// `[0, 1, 2, …]`.
pub(crate) fn counting(len: u32) -> ArrayBuffer<f64, Ix1> {
    let values = (0..len).map(f64::from).collect();
    ArrayBuffer::from_vec(values, len as usize).unwrap()
}

/// The values, read on the host.
pub(crate) fn values<D: Dimension, A>(array: &ArrayBuffer<f64, D, A>) -> Vec<f64> {
    array.read_host().unwrap().iter().copied().collect()
}

/// The values, read on a device.
pub(crate) fn values_on<D: Dimension, A>(
    array: &ArrayBuffer<f64, D, A>,
    stream: &Stream,
) -> Vec<f64> {
    array.read(stream).unwrap().view().unwrap().to_vec(stream).unwrap()
}

/// One test for each rule and each pair of devices.
#[macro_export]
macro_rules! on_all_devices {
    ($($rule:ident),* $(,)?) => {
        mod peers { $(#[test] fn $rule() { super::$rule(&super::common::Setup::peers()); })* }
        mod apart { $(#[test] fn $rule() { super::$rule(&super::common::Setup::apart()); })* }
        mod host { $(#[test] fn $rule() { super::$rule(&super::common::Setup::host()); })* }
        on_all_devices! { opencl_buffers (Setup::opencl("buffer")) $($rule)* }
        on_all_devices! { opencl_addresses (Setup::opencl("svm")) $($rule)* }
        on_all_devices! { cuda (Setup::cuda()) $($rule)* }
        on_all_devices! { hip (Setup::hip()) $($rule)* }
    };
    // Also the stand-ins with gates. A run of the modules `cuda` or `hip` includes these.
    (also_with_gates: $($rule:ident),* $(,)?) => {
        on_all_devices! { $($rule),* }
        on_stand_ins_with_gates! { $($rule),* }
    };
    ($name:ident ($setup:expr) $($rule:ident)*) => {
        mod $name {
            use super::common::Setup;
            $(#[test] fn $rule() {
                if let Some(setup) = $setup {
                    super::$rule(&setup);
                }
            })*
        }
    };
}

/// One test for each rule and each stand-in, with gates.
#[macro_export]
macro_rules! on_stand_ins_with_gates {
    ($($rule:ident),* $(,)?) => {
        mod gates {
            use super::*;
            on_all_devices! { cuda (Setup::cuda_with_gates()) $($rule)* }
            on_all_devices! { hip (Setup::hip_with_gates()) $($rule)* }
        }
    };
}

/// Lets a copy of the setup's first device fail when its turn comes; the next copy is number 1.
pub(crate) fn fail_late(setup: &Setup, number: u64) {
    let sim = SimHandle::of(&setup.a).unwrap();
    sim.inject(Fault::fail_late(Operation::Copy, copies(&sim) + number));
}

/// A copy fails when its array is gone: `bring` drops it. Its stream reports this once, and works on: the `own` stream
/// of the array, for which the device reports it, or else the given one. What another array has written behind the copy
/// is then lost.
#[track_caller]
pub(crate) fn fails_after_the_drop(setup: &Setup, s: &Stream, own: bool, bring: impl FnOnce()) {
    let mut other = counting(3);
    add(&mut other.read_write(s).unwrap(), s, 1.0).unwrap();
    setup.a.synchronize().unwrap();
    setup.b.synchronize().unwrap();
    bring();
    add(&mut other.read_write(s).unwrap(), s, 1.0).unwrap();
    let error = if own {
        s.synchronize().unwrap();
        assert_eq!(values(&other), [2.0, 3.0, 4.0]);
        s.device().synchronize().unwrap_err()
    } else {
        s.synchronize().unwrap_err()
    };
    let found = (error.kind(), error.device());
    assert_eq!(found, (ErrorKind::Driver, Some(s.device().id())), "{error}");
    s.synchronize().unwrap();
    if !own {
        assert_eq!(other.read_host().unwrap_err().kind(), ErrorKind::Poisoned);
    }
    other.write_host().unwrap().fill(1.0);
    add(&mut other.read_write(s).unwrap(), s, 1.0).unwrap();
    assert_eq!(values(&other), [2.0; 3]);
}

/// The number of copies so far.
pub(crate) fn copies(sim: &SimHandle) -> u64 {
    let counts = sim.counts();
    let past = [counts.to_device, counts.from_device, counts.on_device, counts.from_peers];
    past.iter().map(|traffic| traffic.count).sum()
}
