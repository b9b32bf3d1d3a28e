//! The description of a device.
#![expect(unsafe_code, reason = "queries the runtime")]

use std::ffi::{CStr, c_char, c_int, c_uint};

use backend_gpu::{Attributes, Description, Properties, described, ok};
use hip_sys::hiprt::hipDeviceAttribute_t as Attribute;
use runtime_core::{DeviceId, ImageFormat, PciAddress, Result};

use crate::code_object;
use crate::hip::Hip;
use crate::hiprtc::compiler;
use crate::library::{Library, Version};
use crate::program::Target;

/// The maximum size of a kernel's arguments in bytes.
const ARGUMENT_BYTES: usize = 4096;

const ATTRIBUTES: Attributes = Attributes {
    grid: [
        Attribute::hipDeviceAttributeMaxGridDimX as c_uint,
        Attribute::hipDeviceAttributeMaxGridDimY as c_uint,
        Attribute::hipDeviceAttributeMaxGridDimZ as c_uint,
    ],
    block: [
        Attribute::hipDeviceAttributeMaxBlockDimX as c_uint,
        Attribute::hipDeviceAttributeMaxBlockDimY as c_uint,
        Attribute::hipDeviceAttributeMaxBlockDimZ as c_uint,
    ],
    threads: Attribute::hipDeviceAttributeMaxThreadsPerBlock as c_uint,
    shared: Attribute::hipDeviceAttributeMaxSharedMemoryPerBlock as c_uint,
    units: Attribute::hipDeviceAttributeMultiprocessorCount as c_uint,
    subgroup: Attribute::hipDeviceAttributeWarpSize as c_uint,
};

/// Queries all properties that the runtime reports for any device. It reports priorities of streams only for the
/// current one.
pub(crate) fn describe(library: &Library, ordinal: usize) -> Result<Description<Hip>> {
    described::<Hip, _>(library, ordinal, |id, device| description(library, id, device))
}

fn description(
    library: &Library,
    id: &DeviceId,
    device: &Properties<'_, Library>,
) -> Result<Description<Hip>, u32> {
    let (functions, version) = (&library.functions, library.version);
    let has = |attribute: Attribute| device.has(attribute as c_uint);
    let architecture = architecture(library, device.device);
    let (formats, absent_formats) = formats(version);
    let compiles = formats.contains(&ImageFormat::HipC);
    let info = device
        .info(id, &ATTRIBUTES, device.limits(&ATTRIBUTES, ARGUMENT_BYTES)?)?
        .with_vendor(vendor(architecture.as_deref()))
        .with_architecture(architecture.as_deref().unwrap_or("unknown"))
        .with_driver_version(version.to_string())
        .with_pci(pci(library, device.device))
        .with_formats(formats)
        .with_absent_formats(absent_formats);
    Ok(Description {
        info,
        target: Target { architecture, runtime: version },
        cooperative: functions.hipModuleLaunchCooperativeKernel.is_some()
            && has(Attribute::hipDeviceAttributeCooperativeLaunch),
        pools: library.pools.is_some() && has(Attribute::hipDeviceAttributeMemoryPoolsSupported),
        managed: functions.hipMallocManaged.is_some()
            && has(Attribute::hipDeviceAttributeManagedMemory)
            && has(Attribute::hipDeviceAttributeConcurrentManagedAccess),
        registration: functions.hipHostRegister.is_some() && functions.hipHostUnregister.is_some(),
        gates: functions.hipStreamWaitValue32.is_some()
            && functions.hipExtMallocWithFlags.is_some()
            && has(Attribute::hipDeviceAttributeCanUseStreamWaitValue),
        // The kernel for region copies must be compiled.
        regions: compiles,
        graphs: library.graphs.is_some(),
        peers: library.devices > 1 && library.peers.is_some(),
    })
}

/// The PCI address of the device. It is queried as text, because before HIP 6 no attribute has the domain.
fn pci(library: &Library, device: c_int) -> Option<PciAddress> {
    let function = library.functions.hipDeviceGetPCIBusId?;
    let mut text = [0 as c_char; 64];
    let len = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
    // SAFETY: the array has room for `len` bytes.
    ok(unsafe { function(text.as_mut_ptr(), len, device) }).ok()?;
    // SAFETY: the runtime ends the text with a NUL within the array.
    pci_address(unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok()?)
}

/// The architecture. HIP 6 and later report it; for earlier versions it is read from compiled code.
fn architecture(library: &Library, device: c_int) -> Option<String> {
    reported_architecture(library, device).or_else(|| compiled_architecture(library, device))
}

fn reported_architecture(library: &Library, device: c_int) -> Option<String> {
    /// The size of the structure in the layout of HIP 6.0, which the function's name stands for, and the range of
    /// its member `gcnArchName`.
    const BYTES: usize = 1472;
    const NAME: std::ops::Range<usize> = 1160..1160 + 256;
    let function = library.functions.hipGetDevicePropertiesR0600?;
    let mut properties = [0_u64; BYTES / size_of::<u64>()];
    // SAFETY: the function writes a structure of `BYTES` bytes, and the array has that size and the right
    // alignment.
    ok(unsafe { function(properties.as_mut_ptr().cast(), device) }).ok()?;
    let bytes: Vec<u8> = properties.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = CStr::from_bytes_until_nul(&bytes[NAME]).ok()?.to_str().ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// The default architecture of the compiler while the device is current.
fn compiled_architecture(library: &Library, device: c_int) -> Option<String> {
    let compiler = compiler(library.version).ok()?;
    let mut current = 0;
    // SAFETY: the number is written to a valid place.
    ok(unsafe { (library.functions.hipGetDevice)(&mut current) }).ok()?;
    // SAFETY: the device exists.
    ok(unsafe { (library.functions.hipSetDevice)(device) }).ok()?;
    let compiled = compiler.compile(c"extern \"C\" __global__ void none() {}", &[]);
    // SAFETY: this device was current before.
    let _ = unsafe { (library.functions.hipSetDevice)(current) };
    let target = code_object::read(&compiled.ok()?.code, "").ok()?.target;
    (!target.is_empty()).then_some(target)
}

/// The supported formats, best first: binaries need no compilation. Then the missing formats and the reasons.
fn formats(runtime: Version) -> (Vec<ImageFormat>, Vec<(ImageFormat, String)>) {
    match compiler(runtime) {
        Ok(_) => (vec![ImageFormat::CodeObject, ImageFormat::HipC], Vec::new()),
        Err(why) => (vec![ImageFormat::CodeObject], vec![(ImageFormat::HipC, why.to_owned())]),
    }
}

/// Parses a domain, bus and device such as `0000:03:00.0`, in which all numbers are hexadecimal.
fn pci_address(text: &str) -> Option<PciAddress> {
    let mut numbers = text.split([':', '.']).map(|number| u32::from_str_radix(number, 16).ok());
    let mut next = || numbers.next().flatten();
    Some(PciAddress { domain: next()?, bus: next()?, device: next()? })
}

/// The vendor of the device. HIP has no query for it, but in LLVM only AMD's architectures have such names.
fn vendor(architecture: Option<&str>) -> &'static str {
    if architecture.is_some_and(|name| name.starts_with("gfx")) { "AMD" } else { "unknown" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_read() {
        let address = PciAddress { domain: 0x1_0000, bus: 0xc3, device: 0x1f };
        assert_eq!(pci_address("10000:c3:1f.1"), Some(address));
        assert_eq!(pci_address("0000:03"), None);
        assert_eq!(pci_address(""), None);
    }

    #[test]
    fn only_amd_devices_have_amd_as_vendor() {
        assert_eq!(vendor(Some("gfx90a:sramecc+:xnack-")), "AMD");
        assert_eq!(vendor(Some("x86-64")), "unknown");
        assert_eq!(vendor(None), "unknown");
    }
}
