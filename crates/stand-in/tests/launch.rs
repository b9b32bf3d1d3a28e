//! The engine with kernels: the memory that they may access, and their failures.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::sync::Arc;

use stand_in::ptx::Geometry;
use stand_in::{Code, Config, Context, Endpoint, Engine, Entry, Result};

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
struct Setup {
    engine: Engine,
    contexts: [Arc<Context>; 2],
    modules: [u64; 2],
}

impl Setup {
    fn new() -> Self {
        let engine = Engine::new(Config::default()).unwrap();
        let contexts = [0, 1].map(|d| engine.context(engine.retain(d).unwrap()).unwrap());
        let modules =
            [0, 1].map(|d: usize| engine.module_load(&contexts[d], PTX, ((8, 4), 90)).unwrap());
        Self { engine, contexts, modules }
    }

    fn stream(&self, device: usize) -> u64 {
        self.engine.stream_create(&self.contexts[device]).unwrap()
    }

    fn launch(&self, device: usize, kernel: &str, params: &[u8], stream: u64) -> Result<()> {
        let function = self.engine.function(self.modules[device], kernel)?;
        let function = self.engine.kernel(function)?;
        let geometry = Geometry::new([1; 3], [THREADS, 1, 1]);
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
        let (to, from) = (Endpoint::Host(bytes.as_mut_ptr()), Endpoint::Device(address));
        let (context, stream) = (&self.contexts[device], self.stream(device));
        // SAFETY: there are as many bytes, and the copy is finished when the call returns.
        unsafe { self.engine.copy(context, to, from, LEN, stream) }.unwrap();
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
    let setup = Setup::new();
    let context = &setup.contexts[0];
    let stream = setup.stream(0);
    let pool = setup.engine.default_pool(0).unwrap();
    let pooled = setup.engine.allocate_in(context, pool, LEN, stream).unwrap();
    setup.engine.stream_synchronize(stream).unwrap();
    for memory in [
        setup.engine.allocate(context, LEN).unwrap(),
        setup.engine.allocate_managed(context, LEN).unwrap(),
        setup.engine.allocate_pinned(context, LEN).unwrap(),
        pooled,
    ] {
        setup.store(0, memory, 7).unwrap();
        assert_eq!(setup.read(0, memory), [7; THREADS as usize]);
    }
    assert!(setup.rules().is_empty(), "{:?}", setup.rules());
}

#[test]
fn kernels_access_memory_of_a_peer_only_if_it_is_enabled() {
    let setup = Setup::new();
    let memory = setup.engine.allocate(&setup.contexts[1], LEN).unwrap();
    setup.contexts[0].enable_peer(1).unwrap();
    assert_eq!(setup.contexts[0].enable_peer(1), Err(Code::PEER_ACCESS_ALREADY_ENABLED));
    setup.store(0, memory, 3).unwrap();
    assert_eq!(setup.read(1, memory), [3; THREADS as usize]);
    let memory = setup.engine.allocate(&setup.contexts[0], LEN).unwrap();
    assert_eq!(setup.store(1, memory, 4), Err(Code::ILLEGAL_ADDRESS), "access has one direction");
    setup.contexts[0].check().unwrap();
}

#[test]
fn a_pool_controls_the_access_of_peers_to_its_memory() {
    let setup = Setup::new();
    setup.contexts[0].enable_peer(1).unwrap();
    let (pool, stream) = (setup.engine.default_pool(1).unwrap(), setup.stream(1));
    let memory = setup.engine.allocate_in(&setup.contexts[1], pool, LEN, stream).unwrap();
    setup.engine.stream_synchronize(stream).unwrap();
    setup.engine.pool(pool).unwrap().open_to(0, true);
    setup.store(0, memory, 3).unwrap();
    setup.engine.pool(pool).unwrap().open_to(0, false);
    assert_eq!(setup.store(0, memory, 4), Err(Code::ILLEGAL_ADDRESS));
}

#[test]
fn a_failed_kernel_fails_its_context() {
    let setup = Setup::new();
    let stream = setup.stream(0);
    setup.launch(0, "stop", &[], stream).unwrap();
    assert_eq!(setup.engine.stream_synchronize(stream), Err(Code::LAUNCH_FAILED));
    assert_eq!(setup.launch(0, "stop", &[], stream), Err(Code::LAUNCH_FAILED));
    assert_eq!(setup.engine.allocate(&setup.contexts[0], LEN), Err(Code::LAUNCH_FAILED));
    let beyond = setup.engine.allocate(&setup.contexts[1], LEN).unwrap() + 4;
    assert_eq!(setup.store(1, beyond, 1), Err(Code::ILLEGAL_ADDRESS));
    let failures = setup.engine.report().into_iter();
    let failures = failures.filter(|entry| matches!(entry, Entry::Failure { .. }));
    assert_eq!(failures.count(), 2);
}

#[test]
fn a_reset_stops_an_endless_kernel() {
    let setup = Setup::new();
    let stream = setup.stream(0);
    setup.launch(0, "spin", &[], stream).unwrap();
    assert_eq!(setup.engine.stream_query(stream), Err(Code::NOT_READY));
    setup.engine.reset(0).unwrap();
    setup.engine.allocate(&setup.contexts[0], LEN).unwrap();
}

#[test]
fn atomics_of_unordered_kernels_lose_nothing() {
    let setup = Setup::new();
    let streams = [setup.stream(0), setup.stream(0)];
    let memory = setup.engine.allocate(&setup.contexts[0], LEN).unwrap();
    setup.engine.fill(&setup.contexts[0], memory, &[0], LEN, streams[0]).unwrap();
    setup.engine.stream_synchronize(streams[0]).unwrap();
    for turn in 0..40 {
        setup.launch(0, "count", &memory.to_le_bytes(), streams[turn % 2]).unwrap();
    }
    streams.iter().for_each(|stream| setup.engine.stream_synchronize(*stream).unwrap());
    assert_eq!(setup.read(0, memory)[0], 40 * THREADS);
}

#[test]
fn unloading_a_module_during_a_launch_is_a_violation() {
    let setup = Setup::new();
    let memory = setup.engine.allocate(&setup.contexts[0], LEN).unwrap();
    setup.store(0, memory, 1).unwrap();
    setup.engine.module_unload(setup.modules[0]).unwrap();
    assert!(setup.rules().is_empty());
    let stream = setup.stream(1);
    let other = setup.engine.allocate(&setup.contexts[1], LEN).unwrap();
    setup.launch(1, "count", &other.to_le_bytes(), stream).unwrap();
    setup.engine.module_unload(setup.modules[1]).unwrap();
    assert_eq!(setup.rules(), ["unload in use"]);
}

#[test]
fn launches_beyond_the_limits_of_the_device_are_refused() {
    let setup = Setup::new();
    let function = setup.engine.function(setup.modules[0], "stop").unwrap();
    let function = setup.engine.kernel(function).unwrap();
    let stream = setup.stream(0);
    let possible = Geometry::new([1; 3], [32, 1, 1]);
    for geometry in [
        Geometry { grid: [0, 1, 1], ..possible },
        Geometry { grid: [1, 65536, 1], ..possible },
        Geometry { block: [1025, 1, 1], ..possible },
        Geometry { block: [32, 64, 1], ..possible },
        Geometry { dynamic_shared: (48 << 10) + 1, ..possible },
    ] {
        let launched =
            setup.engine.launch(&setup.contexts[0], &function, geometry, [].into(), stream);
        assert_eq!(launched, Err(Code::INVALID_VALUE), "{geometry:?}");
    }
    function.set_dynamic_shared(100 << 10).unwrap();
    assert_eq!(function.set_dynamic_shared(1 << 20), Err(Code::INVALID_VALUE));
    let large = Geometry { dynamic_shared: 100 << 10, ..possible };
    setup.engine.launch(&setup.contexts[0], &function, large, [].into(), stream).unwrap();
}

#[test]
fn modules_for_newer_drivers_or_devices_are_refused() {
    let setup = Setup::new();
    let load = |text: &str| setup.engine.module_load(&setup.contexts[0], text, ((8, 4), 90));
    let code = |text: &str| load(text).unwrap_err().code;
    assert_eq!(code(&PTX.replace("sm_60", "sm_100")), Code::UNSUPPORTED_PTX_VERSION);
    assert_eq!(code(&PTX.replace("8.0", "9.0")), Code::UNSUPPORTED_PTX_VERSION);
    load(&PTX.replace("8.0", "8.4")).unwrap();
    let error = load(&PTX.replace("trap", "tarp")).unwrap_err();
    assert_eq!(error.code, Code::INVALID_PTX);
    assert!(error.log.contains("tarp"), "{}", error.log);
}
