//! The properties that a device reports.

use opencl3::device::{
    CL_DEVICE_ADDRESS_BITS, CL_DEVICE_COMPILER_AVAILABLE, CL_DEVICE_EXTENSIONS,
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_IL_VERSION, CL_DEVICE_LOCAL_MEM_SIZE,
    CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MAX_PARAMETER_SIZE,
    CL_DEVICE_MAX_WORK_GROUP_SIZE, CL_DEVICE_MAX_WORK_ITEM_SIZES, CL_DEVICE_MEM_BASE_ADDR_ALIGN,
    CL_DEVICE_NAME, CL_DEVICE_PCI_BUS_INFO_KHR, CL_DEVICE_SVM_CAPABILITIES,
    CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, CL_DEVICE_SVM_FINE_GRAIN_BUFFER, CL_DEVICE_UUID_KHR,
    CL_DEVICE_VENDOR, CL_DEVICE_VERSION, CL_DRIVER_VERSION, get_device_data,
};
use opencl3::platform::platform::{CL_PLATFORM_EXTENSIONS, get_platform_data};
use opencl3::types::cl_device_info;
use runtime_core::{DeviceId, DeviceInfo, ImageFormat, Limits, PciAddress, Result};

use crate::codes;
use crate::platform::{DeviceEntry, integer, text};
use crate::pointers::{HostMemory, Pointers, Usm};

const CL_DEVICE_WARP_SIZE_NV: cl_device_info = 0x4003;
const CL_DEVICE_WAVEFRONT_WIDTH_AMD: cl_device_info = 0x4043;
const CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV: cl_device_info = 0x4000;
const CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV: cl_device_info = 0x4001;
const CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL: cl_device_info = 0x4190;
const CL_DEVICE_MEM_CAPABILITIES_INTEL: cl_device_info = 0x4191;
const CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL: cl_device_info = 0x4192;
/// A kind of unified shared memory that the device can read and write.
const CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL: u64 = 1;
/// The host can use it at the same time.
const CL_UNIFIED_SHARED_MEMORY_CONCURRENT_ACCESS_INTEL: u64 = 1 << 2;

/// The largest alignment that a device can require and OpenCL still guarantees: that of the widest vector type.
const LEAST_ALIGNMENT: usize = 128;

/// The properties of a device that the backend needs, and those that it reports to users.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) info: DeviceInfo,
    /// Whether kernels can use double precision.
    pub(crate) doubles: bool,
    /// Whether queues can have a priority.
    pub(crate) priorities: bool,
    /// The ways to address memory by pointers.
    pub(crate) svm: Option<Pointers>,
    pub(crate) usm: Option<Pointers>,
    pub(crate) host: Option<HostMemory>,
}

/// Queries all properties from the driver.
pub(crate) fn describe(found: &DeviceEntry) -> Result<Description> {
    let data = |what: cl_device_info| {
        get_device_data(found.id(), what).map_err(|code| {
            codes::error(
                "devices",
                code,
                format!("{} does not report property {what:#x}", found.name),
            )
        })
    };
    let word = |what| data(what).map(text);
    let number = |what| data(what).map(|bytes| integer(&bytes));
    let optional = |what| get_device_data(found.id(), what).ok();
    let extensions = word(CL_DEVICE_EXTENSIONS)?;
    let has = |name: &str| extensions.split_whitespace().any(|extension| extension == name);

    let arguments = saturate(number(CL_DEVICE_MAX_PARAMETER_SIZE)?);
    let pointer = saturate(number(CL_DEVICE_ADDRESS_BITS)?) / 8;
    let block: Vec<u32> = data(CL_DEVICE_MAX_WORK_ITEM_SIZES)?
        .chunks_exact(size_of::<usize>())
        .map(|size| u32::try_from(integer(size)).unwrap_or(u32::MAX))
        .collect();
    let align = base_alignment(found)?;
    // The number of work-items must fit the device's own size type for every block size.
    let grid = if pointer < 8 { u32::from(u16::MAX) } else { i32::MAX.unsigned_abs() };
    let (least, greatest) = if has("cl_khr_priority_hints") { (-1, 1) } else { (0, 0) };
    let limits = Limits::new(
        saturate(number(CL_DEVICE_MAX_MEM_ALLOC_SIZE)?),
        [grid; 3],
        std::array::from_fn(|dim| block.get(dim).copied().unwrap_or(1)),
        u32::try_from(number(CL_DEVICE_MAX_WORK_GROUP_SIZE)?).unwrap_or(u32::MAX),
    )
    .with_allocation_alignment(align.clamp(16, LEAST_ALIGNMENT))
    .with_max_shared_bytes(u32::try_from(number(CL_DEVICE_LOCAL_MEM_SIZE)?).unwrap_or(u32::MAX))
    .with_max_arguments(arguments, arguments)
    .with_priorities(least, greatest);
    let mut formats = Vec::new();
    let il = optional(CL_DEVICE_IL_VERSION).map(text).unwrap_or_default();
    // In earlier versions, SPIR-V programs need functions of an extension.
    if found.version >= (2, 1) && il.contains("SPIR-V") {
        formats.push(ImageFormat::SpirV);
    }
    if number(CL_DEVICE_COMPILER_AVAILABLE)? != 0 {
        formats.push(ImageFormat::OpenClC);
    }
    let subgroup = [
        ("cl_nv_device_attribute_query", CL_DEVICE_WARP_SIZE_NV),
        ("cl_amd_device_attribute_query", CL_DEVICE_WAVEFRONT_WIDTH_AMD),
    ]
    .into_iter()
    .filter(|(extension, _)| has(extension))
    .find_map(|(_, what)| optional(what));
    let uuid = has("cl_khr_device_uuid").then(|| optional(CL_DEVICE_UUID_KHR)).flatten();
    let pci_info =
        has("cl_khr_pci_bus_info").then(|| optional(CL_DEVICE_PCI_BUS_INFO_KHR)).flatten();
    let id = DeviceId::new("opencl", found.index);
    let info = DeviceInfo::new(id, found.kind, &found.name, limits)
        .with_vendor(word(CL_DEVICE_VENDOR)?)
        .with_architecture(architecture(found, &extensions))
        .with_driver_version(format!("{} ({})", word(CL_DRIVER_VERSION)?, found.platform.name))
        .with_uuid(uuid.and_then(|bytes| bytes.try_into().ok()))
        .with_pci(pci_info.and_then(|bytes| pci(&bytes)))
        .with_memory_bytes(number(CL_DEVICE_GLOBAL_MEM_SIZE)?)
        .with_compute_units(u32::try_from(number(CL_DEVICE_MAX_COMPUTE_UNITS)?).unwrap_or(u32::MAX))
        .with_subgroup_size(
            subgroup.map_or(1, |bytes| u32::try_from(integer(&bytes)).unwrap_or(1).max(1)),
        )
        .with_formats(formats);
    let svm = match optional(CL_DEVICE_SVM_CAPABILITIES).map(|bytes| integer(&bytes)) {
        Some(bits) if found.version >= (2, 0) && bits & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER != 0 => {
            Some(Pointers::Svm { fine: bits & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0 })
        }
        _ => None,
    };
    let platform = get_platform_data(found.platform.id(), CL_PLATFORM_EXTENSIONS).map(text);
    // Some platforms report the extension for the platform, some for each device.
    let advertised = has(Usm::EXTENSION)
        || platform.is_ok_and(|all| all.split_whitespace().any(|name| name == Usm::EXTENSION));
    let can = |what, access| optional(what).is_some_and(|bits| integer(&bits) & access == access);
    let accessible = |what| can(what, CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL);
    let functions = Usm::load(found.platform.id()).filter(|_| advertised);
    let host = functions.filter(|_| accessible(CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL));
    let usm = match functions {
        Some(functions) if accessible(CL_DEVICE_MEM_CAPABILITIES_INTEL) => {
            let concurrent = CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL
                | CL_UNIFIED_SHARED_MEMORY_CONCURRENT_ACCESS_INTEL;
            let shared = can(CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL, concurrent);
            Some(Pointers::Usm { functions, shared })
        }
        _ => None,
    };
    Ok(Description {
        info,
        doubles: has("cl_khr_fp64") || has("cl_amd_fp64"),
        priorities: has("cl_khr_priority_hints"),
        svm,
        usm,
        host: host.map(Usm::host_memory),
    })
}

/// The instruction set, as far as the platform reports it.
fn architecture(found: &DeviceEntry, extensions: &str) -> String {
    let number = |what| get_device_data(found.id(), what).ok().map(|bytes| integer(&bytes));
    if extensions.contains("cl_nv_device_attribute_query")
        && let (Some(major), Some(minor)) = (
            number(CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV),
            number(CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV),
        )
    {
        return format!("sm_{major}{minor}");
    }
    if extensions.contains("cl_amd_device_attribute_query") && found.name.starts_with("gfx") {
        return found.name.clone();
    }
    let version = get_device_data(found.id(), CL_DEVICE_VERSION).map(text).unwrap_or_default();
    match version.split_once("HSTR: ") {
        // PoCL reports the target of its compiler.
        Some((_, target)) => target.to_owned(),
        None if number(CL_DEVICE_ADDRESS_BITS) == Some(32) => "spir".to_owned(),
        None => "spir64".to_owned(),
    }
}

fn pci(bytes: &[u8]) -> Option<PciAddress> {
    let mut words = bytes
        .chunks_exact(4)
        .map(|word| word.try_into().map(u32::from_ne_bytes).unwrap_or_default());
    Some(PciAddress { domain: words.next()?, bus: words.next()?, device: words.next()? })
}

/// The required alignment of a sub-buffer's start, in bytes.
pub(crate) fn base_alignment(found: &DeviceEntry) -> Result<usize> {
    let bits = get_device_data(found.id(), CL_DEVICE_MEM_BASE_ADDR_ALIGN)
        .map_err(|code| codes::error("open", code, "the alignment of buffers"))?;
    Ok((saturate(integer(&bits)) / 8).max(1))
}

fn saturate(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The device's name from the driver, to distinguish builds for different devices.
pub(crate) fn fingerprint(found: &DeviceEntry) -> String {
    let data = |what| get_device_data(found.id(), what).map(text).unwrap_or_default();
    let [name, version, driver] = [CL_DEVICE_NAME, CL_DEVICE_VERSION, CL_DRIVER_VERSION].map(data);
    let platform = &found.platform;
    [&platform.name, &platform.version, &platform.vendor, &name, &version, &driver]
        .map(String::as_str)
        .join("\n")
}
