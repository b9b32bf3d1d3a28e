//! The description of a device.

use std::ffi::c_uint;

use backend_gpu::{Attributes, Description, Properties, described};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use runtime_core::{DeviceId, ImageFormat, PciAddress, Result};

use crate::cuda::Cuda;
use crate::library::{Library, Version};
use crate::nvrtc::compiler;
use crate::program::Target;

const ATTRIBUTES: Attributes = Attributes {
    grid: [
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X as c_uint,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y as c_uint,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z as c_uint,
    ],
    block: [
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X as c_uint,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y as c_uint,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z as c_uint,
    ],
    threads: Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK as c_uint,
    shared: Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK as c_uint,
    units: Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as c_uint,
    subgroup: Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE as c_uint,
};

/// Queries all properties that the driver reports without a context. Priorities of streams are not among them.
pub(crate) fn describe(library: &Library, ordinal: usize) -> Result<Description<Cuda>> {
    described::<Cuda, _>(library, ordinal, |id, device| description(library, id, device))
}

fn description(
    library: &Library,
    id: &DeviceId,
    device: &Properties<'_, Library>,
) -> Result<Description<Cuda>, u32> {
    let number = |attribute: Attribute| device.number(attribute as c_uint);
    let has = |attribute: Attribute| device.has(attribute as c_uint);
    let architecture = 10 * number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
        + number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let version = library.version;
    let (formats, absent_formats) = formats(version);
    let pci = PciAddress {
        domain: number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        bus: number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        device: number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
    };
    let limits = device.limits(&ATTRIBUTES, argument_bytes(architecture, version))?;
    // What a kernel may use on request.
    let most = number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    let shared = most.unwrap_or(0).max(limits.max_shared_bytes);
    let info = device
        .info(id, &ATTRIBUTES, limits.with_max_shared_bytes(shared))?
        .with_vendor("NVIDIA")
        .with_architecture(format!("sm_{architecture}"))
        .with_driver_version(version.to_string())
        .with_pci(pci)
        .with_formats(formats)
        .with_absent_formats(absent_formats);
    Ok(Description {
        info,
        target: Target { architecture, driver: version },
        cooperative: has(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
        pools: has(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
        managed: has(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
        registration: library.functions.cuMemHostRegister_v2.is_some()
            && library.functions.cuMemHostUnregister.is_some()
            && has(Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED),
        // The driver has no attribute for waits for 32 bits, which are the least that these operations need.
        gates: library.functions.cuStreamWaitValue32_v2.is_some()
            && has(Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS),
        regions: true,
        graphs: true,
        // Even of one device there may be a second context, of another library.
        peers: true,
    })
}

/// The maximum size of a kernel's arguments in bytes. CUDA 12.1 raised it for Volta and later devices.
fn argument_bytes(architecture: u32, driver: Version) -> usize {
    if driver >= Version(12_010) && architecture >= 70 { 32_764 } else { 4096 }
}

/// The supported formats, best first: binaries need no compilation, and a compiler generates code for the exact device.
/// Then the missing formats and the reasons.
fn formats(driver: Version) -> (Vec<ImageFormat>, Vec<(ImageFormat, String)>) {
    match compiler(driver) {
        Ok(_) => (vec![ImageFormat::Cubin, ImageFormat::CudaC, ImageFormat::Ptx], Vec::new()),
        Err(why) => {
            (vec![ImageFormat::Cubin, ImageFormat::Ptx], vec![(ImageFormat::CudaC, why.to_owned())])
        }
    }
}
