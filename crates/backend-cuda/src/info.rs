//! The description of a device.
#![expect(unsafe_code, reason = "queries the driver")]

use std::ffi::{CStr, c_char, c_int};

use backend_gpu::{ALIGNMENT, Description, error, ok};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUuuid};
use runtime_core::{DeviceId, DeviceInfo, DeviceKind, ImageFormat, Limits, PciAddress, Result};

use crate::cuda::Cuda;
use crate::library::{Library, Version};
use crate::nvrtc::compiler;
use crate::program::Target;

/// Queries all properties that the driver reports without a context. Priorities of streams are not among them.
pub(crate) fn describe(library: &Library, ordinal: usize) -> Result<Description<Cuda>> {
    let id = DeviceId::new("cuda", ordinal);
    let failed = |code| {
        let what = "the device does not describe itself";
        error::<Cuda>(library, "devices", code, what).on(&id)
    };
    let asked = AttributeQuery::new(library, ordinal).map_err(failed)?;
    asked.describe(&id).map_err(failed)
}

/// A device whose properties are queried.
struct AttributeQuery<'a> {
    library: &'a Library,
    device: CUdevice,
}

impl<'a> AttributeQuery<'a> {
    fn new(library: &'a Library, ordinal: usize) -> Result<Self, u32> {
        let mut device = 0;
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: the number is written to a valid place.
        ok(unsafe { (library.functions.cuDeviceGet)(&mut device, number) })?;
        Ok(Self { library, device })
    }

    fn number(&self, attribute: Attribute) -> Result<u32, u32> {
        let mut value: c_int = 0;
        let function = self.library.functions.cuDeviceGetAttribute;
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
        let function = self.library.functions.cuDeviceGetName;
        // SAFETY: the array has room for `len` bytes.
        ok(unsafe { function(name.as_mut_ptr(), len, self.device) })?;
        // SAFETY: the driver ends the name with a NUL within the array.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    fn uuid(&self) -> Option<[u8; 16]> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        let function = self.library.functions.cuDeviceGetUuid_v2;
        // SAFETY: the bytes are written to a valid place.
        ok(unsafe { function(&mut uuid, self.device) }).ok()?;
        Some(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    fn memory_bytes(&self) -> Result<usize, u32> {
        let mut bytes = 0;
        // SAFETY: the number is written to a valid place.
        ok(unsafe { (self.library.functions.cuDeviceTotalMem_v2)(&mut bytes, self.device) })?;
        Ok(bytes)
    }

    fn describe(&self, id: &DeviceId) -> Result<Description<Cuda>, u32> {
        let architecture = 10
            * self.number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + self.number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let memory_bytes = self.memory_bytes()?;
        let version = self.library.version;
        let (formats, absent_formats) = formats(version);
        let pci = PciAddress {
            domain: self.number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            bus: self.number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            device: self.number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
        };
        let limits = self.limits(memory_bytes, argument_bytes(architecture, version))?;
        let units = self.number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let info = DeviceInfo::new(id.clone(), DeviceKind::Gpu, self.name()?, limits)
            .with_vendor("NVIDIA")
            .with_architecture(format!("sm_{architecture}"))
            .with_driver_version(version.to_string())
            .with_uuid(self.uuid())
            .with_pci(pci)
            .with_memory_bytes(memory_bytes as u64)
            .with_compute_units(units)
            .with_subgroup_size(self.number(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?)
            .with_formats(formats)
            .with_absent_formats(absent_formats);
        Ok(Description {
            info,
            target: Target { architecture, driver: version },
            cooperative: self.has(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
            pools: self.has(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
            managed: self.has(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
            regions: true,
            graphs: true,
            peers: self.library.devices > 1,
        })
    }

    fn limits(&self, memory_bytes: usize, argument_bytes: usize) -> Result<Limits, u32> {
        let shared = self.number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?;
        let most = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        Ok(Limits::new(
            memory_bytes,
            self.dimensions([
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            ])?,
            self.dimensions([
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            ])?,
            self.number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        )
        .with_allocation_alignment(ALIGNMENT)
        .with_max_shared_bytes(self.number(most).unwrap_or(0).max(shared))
        // Every argument has at least one byte.
        .with_max_arguments(argument_bytes, argument_bytes))
    }
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
