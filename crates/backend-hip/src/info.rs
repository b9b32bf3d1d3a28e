//! The description of a device.
#![expect(unsafe_code, reason = "queries the runtime")]

use std::ffi::{CStr, c_char, c_int};

use backend_gpu::{ALIGNMENT, Description, error, ok};
use hip_sys::hiprt::{hipDevice_t, hipDeviceAttribute_t as Attribute, hipUUID};
use runtime_core::{DeviceId, DeviceInfo, DeviceKind, ImageFormat, Limits, PciAddress, Result};

use crate::code_object;
use crate::hip::Hip;
use crate::hiprtc::compiler;
use crate::library::{Functions, Library, Version};
use crate::program::Target;

/// The maximum size of a kernel's arguments in bytes.
const ARGUMENT_BYTES: usize = 4096;

/// Queries all properties that the runtime reports for any device. It reports priorities of streams only for the
/// current one.
pub(crate) fn describe(library: &Library, ordinal: usize) -> Result<Description<Hip>> {
    let id = DeviceId::new("hip", ordinal);
    let failed = |code| {
        let what = "the device does not describe itself";
        error::<Hip>(library, "devices", code, what).on(&id)
    };
    let asked = AttributeQuery::new(library, ordinal).map_err(failed)?;
    asked.describe(&id, library).map_err(failed)
}

/// A device whose properties are queried.
struct AttributeQuery<'a> {
    hip: &'a Functions,
    version: Version,
    device: hipDevice_t,
}

impl<'a> AttributeQuery<'a> {
    fn new(library: &'a Library, ordinal: usize) -> Result<Self, u32> {
        let hip = &library.functions;
        let mut device = 0;
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: the number is written to a valid place.
        ok(unsafe { (hip.hipDeviceGet)(&mut device, number) })?;
        Ok(Self { hip, version: library.version, device })
    }

    fn number(&self, attribute: Attribute) -> Result<u32, u32> {
        let mut value: c_int = 0;
        let function = self.hip.hipDeviceGetAttribute;
        // SAFETY: the number is written to a valid place.
        ok(unsafe { function(&mut value, attribute, self.device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    fn has(&self, attribute: Attribute) -> bool {
        self.number(attribute).is_ok_and(|value| value != 0)
    }

    fn dimensions(&self, attributes: [Attribute; 3]) -> Result<[u32; 3], u32> {
        let [x, y, z] = attributes.map(|attribute| self.number(attribute));
        Ok([x?, y?, z?])
    }

    fn name(&self) -> Result<String, u32> {
        let mut name = [0 as c_char; 256];
        let len = c_int::try_from(name.len()).unwrap_or(c_int::MAX);
        let function = self.hip.hipDeviceGetName;
        // SAFETY: the array has room for `len` bytes.
        ok(unsafe { function(name.as_mut_ptr(), len, self.device) })?;
        // SAFETY: the runtime ends the name with a NUL within the array.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    fn uuid(&self) -> Option<[u8; 16]> {
        let mut uuid = hipUUID { bytes: [0; 16] };
        let function = self.hip.hipDeviceGetUuid?;
        // SAFETY: the bytes are written to a valid place.
        ok(unsafe { function(&mut uuid, self.device) }).ok()?;
        Some(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    /// The PCI address of the device. It is queried as text, because before HIP 6 no attribute has the domain.
    fn pci(&self) -> Option<PciAddress> {
        let function = self.hip.hipDeviceGetPCIBusId?;
        let mut text = [0 as c_char; 64];
        let len = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
        // SAFETY: the array has room for `len` bytes.
        ok(unsafe { function(text.as_mut_ptr(), len, self.device) }).ok()?;
        // SAFETY: the runtime ends the text with a NUL within the array.
        pci_address(unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok()?)
    }

    fn memory_bytes(&self) -> Result<usize, u32> {
        let mut bytes = 0;
        // SAFETY: the number is written to a valid place.
        ok(unsafe { (self.hip.hipDeviceTotalMem)(&mut bytes, self.device) })?;
        Ok(bytes)
    }

    /// The architecture. HIP 6 and later report it; for earlier versions it is read from compiled code.
    fn architecture(&self) -> Option<String> {
        self.reported_architecture().or_else(|| self.compiled_architecture())
    }

    fn reported_architecture(&self) -> Option<String> {
        /// The size of the structure in the layout of HIP 6.0, which the function's name stands for, and the range of
        /// its member `gcnArchName`.
        const BYTES: usize = 1472;
        const NAME: std::ops::Range<usize> = 1160..1160 + 256;
        let function = self.hip.hipGetDevicePropertiesR0600?;
        let mut properties = [0_u64; BYTES / size_of::<u64>()];
        // SAFETY: the function writes a structure of `BYTES` bytes, and the array has that size and the right
        // alignment.
        ok(unsafe { function(properties.as_mut_ptr().cast(), self.device) }).ok()?;
        let bytes: Vec<u8> = properties.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let name = CStr::from_bytes_until_nul(&bytes[NAME]).ok()?.to_str().ok()?;
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// The default architecture of the compiler while the device is current.
    fn compiled_architecture(&self) -> Option<String> {
        let compiler = compiler(self.version).ok()?;
        let mut current = 0;
        // SAFETY: the number is written to a valid place.
        ok(unsafe { (self.hip.hipGetDevice)(&mut current) }).ok()?;
        // SAFETY: the device exists.
        ok(unsafe { (self.hip.hipSetDevice)(self.device) }).ok()?;
        let compiled = compiler.compile(c"extern \"C\" __global__ void none() {}", &[]);
        // SAFETY: this device was current before.
        let _ = unsafe { (self.hip.hipSetDevice)(current) };
        let target = code_object::read(&compiled.ok()?.code, "").ok()?.target;
        (!target.is_empty()).then_some(target)
    }

    fn describe(&self, id: &DeviceId, library: &Library) -> Result<Description<Hip>, u32> {
        let architecture = self.architecture();
        let memory_bytes = self.memory_bytes()?;
        let (formats, absent_formats) = formats(self.version);
        let compiles = formats.contains(&ImageFormat::HipC);
        let limits = self.limits(memory_bytes)?;
        let info = DeviceInfo::new(id.clone(), DeviceKind::Gpu, self.name()?, limits)
            .with_vendor(vendor(architecture.as_deref()))
            .with_architecture(architecture.as_deref().unwrap_or("unknown"))
            .with_driver_version(self.version.to_string())
            .with_uuid(self.uuid())
            .with_pci(self.pci())
            .with_memory_bytes(memory_bytes as u64)
            .with_compute_units(self.number(Attribute::hipDeviceAttributeMultiprocessorCount)?)
            .with_subgroup_size(self.number(Attribute::hipDeviceAttributeWarpSize)?)
            .with_formats(formats)
            .with_absent_formats(absent_formats);
        Ok(Description {
            info,
            target: Target { architecture, runtime: self.version },
            cooperative: self.hip.hipModuleLaunchCooperativeKernel.is_some()
                && self.has(Attribute::hipDeviceAttributeCooperativeLaunch),
            pools: library.pools.is_some()
                && self.has(Attribute::hipDeviceAttributeMemoryPoolsSupported),
            managed: self.hip.hipMallocManaged.is_some()
                && self.has(Attribute::hipDeviceAttributeManagedMemory)
                && self.has(Attribute::hipDeviceAttributeConcurrentManagedAccess),
            // The kernel for region copies must be compiled.
            regions: compiles,
            graphs: library.graphs.is_some(),
            peers: library.devices > 1 && library.peers.is_some(),
        })
    }

    fn limits(&self, memory_bytes: usize) -> Result<Limits, u32> {
        Ok(Limits::new(
            memory_bytes,
            self.dimensions([
                Attribute::hipDeviceAttributeMaxGridDimX,
                Attribute::hipDeviceAttributeMaxGridDimY,
                Attribute::hipDeviceAttributeMaxGridDimZ,
            ])?,
            self.dimensions([
                Attribute::hipDeviceAttributeMaxBlockDimX,
                Attribute::hipDeviceAttributeMaxBlockDimY,
                Attribute::hipDeviceAttributeMaxBlockDimZ,
            ])?,
            self.number(Attribute::hipDeviceAttributeMaxThreadsPerBlock)?,
        )
        .with_allocation_alignment(ALIGNMENT)
        .with_max_shared_bytes(self.number(Attribute::hipDeviceAttributeMaxSharedMemoryPerBlock)?)
        // Every argument has at least one byte.
        .with_max_arguments(ARGUMENT_BYTES, ARGUMENT_BYTES))
    }
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
