//! The host device conforms to the contract.

use backend_host::HostDevice;
use runtime_core::Device;

conformance::accelerator! {
    name: "host",
    open: |index| Device::new(HostDevice::with_threads(index, 2)?),
    kernels: conformance::kernels::host_functions(),
    // Counters need the permission of the system.
    abilities: [
        Fault, Gates, Graphs, HostFunctions, HostRegistration, HostVisibleMemory, MemoryAdoption, MemoryPool, Monitor, Parameters,
        RegionCopy, SecondDevice, UnifiedMemory,
    ],
}
