//! The shared rules, run on this device.

use foreign_device::ForeignDevice;
use runtime_core::Device;

conformance::accelerator! {
    name: "foreign",
    open: |index| Device::new(ForeignDevice::new(index)),
    kernels: conformance::kernels::host_functions(),
    abilities: [Fault, HostFunctions, Parameters, SecondDevice],
}
