//! Simulated devices conform to the contract: under several seeds, and without the abilities that can be disabled.

use backend_sim::{SimBackend, SimConfig};
use runtime_core::{Backend, Device, Result};

/// Opens a device of a group of two, which reach each other if the config allows it.
fn open(backend: &SimBackend, index: usize) -> Result<Device> {
    backend.open(&format!("sim:{index}").parse()?)
}

/// Two devices with little memory, so that running out of it takes no time.
fn devices(config: SimConfig) -> SimBackend {
    let config = config.memory_bytes(64 << 20);
    SimBackend::with_devices([config.clone(), config])
}

macro_rules! simulated {
    ($module:ident, $name:literal, $config:expr, $($ability:ident)*) => {
        mod $module {
            use super::*;

            conformance::accelerator! {
                name: $name,
                open: {
                    let backend = devices($config);
                    move |index| open(&backend, index)
                },
                kernels: conformance::kernels::host_functions(),
                abilities: [
                    Counters, Fault, HostFunctions, Interop, MemoryAdoption, MemoryPool, Monitor, Parameters,
                    SecondDevice, $($ability),*
                ],
            }
        }
    };
}

simulated!(plain, "sim", SimConfig::new(), Gates Graphs HostRegistration RegionCopy);
simulated!(
    seeded,
    "sim, seed 7",
    SimConfig::new().seed(7).unified_memory(true),
    Gates Graphs HostRegistration HostVisibleMemory RegionCopy UnifiedMemory
);
simulated!(
    bare,
    "sim, bare",
    SimConfig::new()
        .seed(9)
        .peers(false)
        .region_copies(false)
        .graphs(false)
        .registration(false)
        .gates(false),
);
