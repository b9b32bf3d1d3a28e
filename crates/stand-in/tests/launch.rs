//! The engine with kernels: what they may touch, and what becomes of those that fail.
#![expect(clippy::unwrap_used, reason = "a rig that cannot be made fails its test")]

use std::sync::Arc;

use stand_in::ptx::Geometry;
use stand_in::{Code, Config, Context, End, Engine, Entry, Pitch, Result};

const PTX: &str = "
.version 8.0
.target sm_60
.address_size 64

.visible .entry store(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [out];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d2, %r2, 4;
    add.s64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r1;
    ret;
}

.visible .entry count(.param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [out];
    atom.global.add.u32 %r1, [%d1], 1;
    ret;
}

.visible .entry spin()
{
again:
    bra again;
}

.visible .entry stop()
{
    trap;
}
";
const THREADS: u32 = 64;
const LEN: usize = 4 * THREADS as usize;

/// An engine, and a context and a module on each of two devices.
struct Rig {
    engine: Engine,
    contexts: [Arc<Context>; 2],
    modules: [u64; 2],
}

impl Rig {
    fn new() -> Self {
        let engine = Engine::new(Config::default()).unwrap();
        let contexts = [0, 1].map(|d| engine.context(engine.retain(d).unwrap()).unwrap());
        let modules =
            [0, 1].map(|d: usize| engine.module_load(&contexts[d], PTX, ((8, 4), 90)).unwrap());
        Self { engine, contexts, modules }
    }

    fn stream(&self, device: usize) -> u64 {
        self.engine.stream_create(&self.contexts[device], 1, 0).unwrap()
    }

    fn launch(&self, device: usize, kernel: &str, params: &[u8], stream: u64) -> Result<()> {
        let function = self.engine.function(self.modules[device], kernel)?;
        let function = self.engine.kernel(function)?;
        let geometry = Geometry { grid: [1; 3], block: [THREADS, 1, 1], dynamic_shared: 0 };
        let context = &self.contexts[device];
        self.engine.launch(context, &function, geometry, params.into(), stream)
    }

    /// Lets a kernel of one device store at an address, and waits for it.
    fn store(&self, device: usize, address: u64, value: u32) -> Result<()> {
        let params = [address.to_le_bytes(), u64::from(value).to_le_bytes()].concat();
        let stream = self.stream(device);
        self.launch(device, "store", &params[..12], stream)?;
        self.engine.stream_synchronize(stream)
    }

    fn read(&self, device: usize, address: u64) -> Vec<u32> {
        let mut bytes = vec![0; LEN];
        let to = (End::Host(bytes.as_mut_ptr()), Pitch::default());
        let from = (End::Device(address), Pitch::default());
        let (context, stream) = (&self.contexts[device], self.stream(device));
        // SAFETY: there are so many bytes, and the copy has been made when the call returns.
        unsafe { self.engine.copy(context, to, from, [LEN, 1, 1], stream) }.unwrap();
        bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    fn rules(&self) -> Vec<&'static str> {
        let rule = |entry| match entry {
            Entry::Violation { rule, .. } => Some(rule),
            _ => None,
        };
        self.engine.report().into_iter().filter_map(rule).collect()
    }
}

#[test]
fn kernels_write_memory_of_every_kind() {
    let rig = Rig::new();
    let context = &rig.contexts[0];
    let stream = rig.stream(0);
    let pool = rig.engine.default_pool(0).unwrap();
    let pooled = rig.engine.allocate_in(context, pool, LEN, stream).unwrap();
    rig.engine.stream_synchronize(stream).unwrap();
    for memory in [
        rig.engine.allocate(context, LEN).unwrap(),
        rig.engine.allocate_managed(context, LEN).unwrap(),
        rig.engine.allocate_pinned(context, LEN).unwrap(),
        pooled,
    ] {
        rig.store(0, memory, 7).unwrap();
        assert_eq!(rig.read(0, memory), [7; THREADS as usize]);
    }
    assert!(rig.rules().is_empty(), "{:?}", rig.rules());
}

#[test]
fn memory_of_a_peer_must_be_opened_to_kernels() {
    let rig = Rig::new();
    let memory = rig.engine.allocate(&rig.contexts[1], LEN).unwrap();
    rig.contexts[0].enable_peer(1).unwrap();
    assert_eq!(rig.contexts[0].enable_peer(1), Err(Code::PEER_ACCESS_ALREADY_ENABLED));
    rig.store(0, memory, 3).unwrap();
    assert_eq!(rig.read(1, memory), [3; THREADS as usize]);
    rig.contexts[0].disable_peer(1).unwrap();
    assert_eq!(rig.store(0, memory, 4), Err(Code::ILLEGAL_ADDRESS));
    rig.contexts[1].check().unwrap();
}

#[test]
fn memory_of_a_peer_s_pool_is_opened_by_the_pool() {
    let rig = Rig::new();
    rig.contexts[0].enable_peer(1).unwrap();
    let (pool, stream) = (rig.engine.default_pool(1).unwrap(), rig.stream(1));
    let memory = rig.engine.allocate_in(&rig.contexts[1], pool, LEN, stream).unwrap();
    rig.engine.stream_synchronize(stream).unwrap();
    rig.engine.pool(pool).unwrap().open_to(0, true);
    rig.store(0, memory, 3).unwrap();
    rig.engine.pool(pool).unwrap().open_to(0, false);
    assert_eq!(rig.store(0, memory, 4), Err(Code::ILLEGAL_ADDRESS));
}

#[test]
fn a_kernel_that_fails_ends_its_context() {
    let rig = Rig::new();
    let stream = rig.stream(0);
    rig.launch(0, "stop", &[], stream).unwrap();
    assert_eq!(rig.engine.stream_synchronize(stream), Err(Code::LAUNCH_FAILED));
    assert_eq!(rig.launch(0, "stop", &[], stream), Err(Code::LAUNCH_FAILED));
    assert_eq!(rig.engine.allocate(&rig.contexts[0], LEN), Err(Code::LAUNCH_FAILED));
    let beyond = rig.engine.allocate(&rig.contexts[1], LEN).unwrap() + 4;
    assert_eq!(rig.store(1, beyond, 1), Err(Code::ILLEGAL_ADDRESS));
    let failures = rig.engine.report().into_iter();
    let failures = failures.filter(|entry| matches!(entry, Entry::Failure { .. }));
    assert_eq!(failures.count(), 2);
}

#[test]
fn a_reset_stops_a_kernel_that_runs_for_ever() {
    let rig = Rig::new();
    let stream = rig.stream(0);
    rig.launch(0, "spin", &[], stream).unwrap();
    assert_eq!(rig.engine.stream_query(stream), Err(Code::NOT_READY));
    rig.engine.reset(0).unwrap();
    rig.engine.allocate(&rig.contexts[0], LEN).unwrap();
}

#[test]
fn atomics_of_unordered_kernels_lose_nothing() {
    let rig = Rig::new();
    let streams = [rig.stream(0), rig.stream(0)];
    let memory = rig.engine.allocate(&rig.contexts[0], LEN).unwrap();
    rig.engine.fill(&rig.contexts[0], memory, &[0], LEN, streams[0]).unwrap();
    rig.engine.stream_synchronize(streams[0]).unwrap();
    for turn in 0..40 {
        rig.launch(0, "count", &memory.to_le_bytes(), streams[turn % 2]).unwrap();
    }
    streams.iter().for_each(|stream| rig.engine.stream_synchronize(*stream).unwrap());
    assert_eq!(rig.read(0, memory)[0], 40 * THREADS);
}

#[test]
fn a_module_stays_until_its_launches_are_over() {
    let rig = Rig::new();
    let memory = rig.engine.allocate(&rig.contexts[0], LEN).unwrap();
    rig.store(0, memory, 1).unwrap();
    rig.engine.module_unload(rig.modules[0]).unwrap();
    assert!(rig.rules().is_empty());
    let stream = rig.stream(1);
    let other = rig.engine.allocate(&rig.contexts[1], LEN).unwrap();
    rig.launch(1, "count", &other.to_le_bytes(), stream).unwrap();
    rig.engine.module_unload(rig.modules[1]).unwrap();
    assert_eq!(rig.rules(), ["unload in use"]);
}

#[test]
fn launches_of_impossible_shapes_are_refused() {
    let rig = Rig::new();
    let function = rig.engine.function(rig.modules[0], "stop").unwrap();
    let function = rig.engine.kernel(function).unwrap();
    let stream = rig.stream(0);
    let possible = Geometry { grid: [1; 3], block: [32, 1, 1], dynamic_shared: 0 };
    for geometry in [
        Geometry { grid: [0, 1, 1], ..possible },
        Geometry { grid: [1, 65536, 1], ..possible },
        Geometry { block: [1025, 1, 1], ..possible },
        Geometry { block: [32, 64, 1], ..possible },
        Geometry { dynamic_shared: (48 << 10) + 1, ..possible },
    ] {
        let launched = rig.engine.launch(&rig.contexts[0], &function, geometry, [].into(), stream);
        assert_eq!(launched, Err(Code::INVALID_VALUE), "{geometry:?}");
    }
    function.set_dynamic_shared(100 << 10).unwrap();
    assert_eq!(function.set_dynamic_shared(1 << 20), Err(Code::INVALID_VALUE));
    let large = Geometry { dynamic_shared: 100 << 10, ..possible };
    rig.engine.launch(&rig.contexts[0], &function, large, [].into(), stream).unwrap();
}

#[test]
fn modules_for_newer_drivers_or_devices_are_refused() {
    let rig = Rig::new();
    let load = |text: &str| rig.engine.module_load(&rig.contexts[0], text, ((8, 4), 90));
    let code = |text: &str| load(text).unwrap_err().code;
    assert_eq!(code(&PTX.replace("sm_60", "sm_100")), Code::UNSUPPORTED_PTX_VERSION);
    assert_eq!(code(&PTX.replace("8.0", "9.0")), Code::UNSUPPORTED_PTX_VERSION);
    load(&PTX.replace("8.0", "8.4")).unwrap();
    let error = load(&PTX.replace("trap", "tarp")).unwrap_err();
    assert_eq!(error.code, Code::INVALID_PTX);
    assert!(error.log.contains("tarp"), "{}", error.log);
}
