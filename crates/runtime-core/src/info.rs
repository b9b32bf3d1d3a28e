//! Information that a device reports about itself.

use std::fmt;
use std::num::NonZeroUsize;

use crate::{DeviceId, ImageFormat};

/// The kind of machine that a device is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// The processor that this program runs on.
    Host,
    /// A processor reached through a vendor's runtime.
    Cpu,
    /// A graphics processor.
    Gpu,
    /// Any other accelerator.
    Accelerator,
    /// A processor with its own memory and program.
    Embedded,
    /// A device simulated in host memory.
    Simulated,
}

impl DeviceKind {
    /// The name used in reports and device tokens, such as `gpu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::Accelerator => "accelerator",
            Self::Embedded => "embedded",
            Self::Simulated => "simulated",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The address of a device on the PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// The PCI domain.
    pub domain: u32,
    /// The bus within the domain.
    pub bus: u32,
    /// The device on the bus.
    pub device: u32,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}", self.domain, self.bus, self.device)
    }
}

/// Identity and limits of a device. Constant for as long as it is open.
///
/// A backend makes it with [`new`](Self::new) and sets what it knows beyond that. More fields may be added later.
///
/// The texts, the identifiers, `memory_bytes`, `compute_units` and `subgroup_size` are informational: the conformance
/// rules check only that they are plausible and constant, and no result depends on them. `limits` and `formats` are
/// proven by rules.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Backend and index, such as `cuda:0`.
    pub id: DeviceId,
    /// The kind of machine.
    pub kind: DeviceKind,
    /// The product's name, such as `NVIDIA H200`.
    pub name: String,
    /// The manufacturer, such as `NVIDIA`.
    pub vendor: String,
    /// The instruction set that kernels are compiled for, such as `sm_90`, `gfx90a` or `x86_64`.
    pub architecture: String,
    /// Version of the driver in use, such as `13.0`.
    pub driver_version: String,
    /// The device's own unique identifier, if it has one.
    pub uuid: Option<[u8; 16]>,
    /// The address on the PCI bus, if the device is on one.
    pub pci: Option<PciAddress>,
    /// Memory in bytes, if known.
    pub memory_bytes: Option<u64>,
    /// Cores, multiprocessors or compute units.
    pub compute_units: u32,
    /// The number of work-items that execute together: warp, wavefront or sub-group size. 1 if there is no such unit.
    pub subgroup_size: u32,
    /// The limits on launches and allocations.
    pub limits: Limits,
    /// Supported module formats, best first.
    pub formats: Vec<ImageFormat>,
    /// Formats that the backend supports where everything they need is installed, and the reason why they are
    /// unavailable here. None of them is in [`formats`](Self::formats).
    pub absent_formats: Vec<(ImageFormat, String)>,
}

impl DeviceInfo {
    /// A device with one compute unit, sub-groups of 1 work-item and no module formats. Vendor, architecture and driver
    /// version are `unknown`.
    pub fn new(id: DeviceId, kind: DeviceKind, name: impl Into<String>, limits: Limits) -> Self {
        let unknown = || "unknown".to_owned();
        Self {
            id,
            kind,
            name: name.into(),
            vendor: unknown(),
            architecture: unknown(),
            driver_version: unknown(),
            uuid: None,
            pci: None,
            memory_bytes: None,
            compute_units: 1,
            subgroup_size: 1,
            limits,
            formats: Vec::new(),
            absent_formats: Vec::new(),
        }
    }

    /// Sets the manufacturer.
    #[must_use]
    pub fn with_vendor(mut self, vendor: impl Into<String>) -> Self {
        self.vendor = vendor.into();
        self
    }

    /// Sets the instruction set that kernels are compiled for.
    #[must_use]
    pub fn with_architecture(mut self, architecture: impl Into<String>) -> Self {
        self.architecture = architecture.into();
        self
    }

    /// Sets the version of the driver in use.
    #[must_use]
    pub fn with_driver_version(mut self, version: impl Into<String>) -> Self {
        self.driver_version = version.into();
        self
    }

    /// Sets the device's own unique identifier.
    #[must_use]
    pub fn with_uuid(mut self, uuid: impl Into<Option<[u8; 16]>>) -> Self {
        self.uuid = uuid.into();
        self
    }

    /// Sets the address on the PCI bus.
    #[must_use]
    pub fn with_pci(mut self, pci: impl Into<Option<PciAddress>>) -> Self {
        self.pci = pci.into();
        self
    }

    /// Sets the memory in bytes.
    #[must_use]
    pub fn with_memory_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.memory_bytes = bytes.into();
        self
    }

    /// Sets the number of compute units.
    #[must_use]
    pub fn with_compute_units(mut self, units: u32) -> Self {
        self.compute_units = units;
        self
    }

    /// Sets the number of work-items that execute together.
    #[must_use]
    pub fn with_subgroup_size(mut self, size: u32) -> Self {
        self.subgroup_size = size;
        self
    }

    /// Sets the supported module formats, best first.
    #[must_use]
    pub fn with_formats(mut self, formats: impl IntoIterator<Item = ImageFormat>) -> Self {
        self.formats = formats.into_iter().collect();
        self
    }

    /// Sets the formats that something missing keeps from being supported, with the reasons.
    #[must_use]
    pub fn with_absent_formats(
        mut self,
        formats: impl IntoIterator<Item = (ImageFormat, String)>,
    ) -> Self {
        self.absent_formats = formats.into_iter().collect();
        self
    }
}

/// Limits that the checked front enforces before a driver sees a call.
///
/// A backend makes them with [`new`](Self::new) and sets what differs. More limits may be added later.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest single allocation of the device's own memory in bytes. Pinned and unified memory may be larger.
    pub max_allocation_bytes: usize,
    /// Every allocation starts at a multiple of this many bytes, at least 16.
    pub allocation_alignment: NonZeroUsize,
    /// A kernel's pointer can point into an allocation at multiples of this many bytes; 1 if it can point anywhere. A
    /// view that begins at another address is copied for each launch.
    /// [`Statistics::realigned`](crate::Statistics::realigned) counts these copies.
    pub argument_alignment: NonZeroUsize,
    /// Most blocks along each dimension of a launch.
    pub max_grid: [u32; 3],
    /// Most work-items along each dimension of a block.
    pub max_block: [u32; 3],
    /// Most work-items in a block.
    pub max_block_threads: u32,
    /// Most bytes of dynamic shared memory per block.
    pub max_shared_bytes: u32,
    /// Most kernel arguments.
    pub max_arguments: usize,
    /// Most bytes of all kernel arguments together.
    pub max_argument_bytes: usize,
    /// Range of stream priorities, `least..=greatest`. A larger number is more urgent. 0 is the default.
    pub priorities: (i32, i32),
}

impl Limits {
    /// The limits of allocations and of the launch geometry. Allocations are aligned to 16 bytes, and arguments can
    /// point anywhere. There is no dynamic shared memory and one stream priority. The number and size of arguments are
    /// not limited. [`Device::new`](crate::Device::new) refuses a limit of the launch geometry that is 0.
    pub const fn new(
        max_allocation_bytes: usize,
        max_grid: [u32; 3],
        max_block: [u32; 3],
        max_block_threads: u32,
    ) -> Self {
        Self {
            max_allocation_bytes,
            allocation_alignment: at_least_one(16),
            argument_alignment: NonZeroUsize::MIN,
            max_grid,
            max_block,
            max_block_threads,
            max_shared_bytes: 0,
            max_arguments: usize::MAX,
            max_argument_bytes: usize::MAX,
            priorities: (0, 0),
        }
    }

    /// Sets the alignment of allocations in bytes. [`Device::new`](crate::Device::new) refuses less than 16.
    #[must_use]
    pub const fn with_allocation_alignment(mut self, bytes: usize) -> Self {
        self.allocation_alignment = at_least_one(bytes);
        self
    }

    /// Sets the alignment of kernel arguments in bytes. 0 counts as 1.
    #[must_use]
    pub const fn with_argument_alignment(mut self, bytes: usize) -> Self {
        self.argument_alignment = at_least_one(bytes);
        self
    }

    /// Sets the most bytes of dynamic shared memory per block.
    #[must_use]
    pub const fn with_max_shared_bytes(mut self, bytes: u32) -> Self {
        self.max_shared_bytes = bytes;
        self
    }

    /// Sets the most kernel arguments, and the most bytes of all of them together.
    #[must_use]
    pub const fn with_max_arguments(mut self, arguments: usize, bytes: usize) -> Self {
        self.max_arguments = arguments;
        self.max_argument_bytes = bytes;
        self
    }

    /// Sets the range of stream priorities.
    #[must_use]
    pub const fn with_priorities(mut self, least: i32, greatest: i32) -> Self {
        self.priorities = (least, greatest);
        self
    }
}

const fn at_least_one(bytes: usize) -> NonZeroUsize {
    match NonZeroUsize::new(bytes) {
        Some(bytes) => bytes,
        None => NonZeroUsize::MIN,
    }
}

/// How an optional ability is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Support {
    /// By the device itself.
    Native,
    /// By the same call, through the host.
    Emulated,
    /// Not at all.
    Absent,
}

impl Support {
    pub(crate) fn native_or(native: bool, otherwise: Self) -> Self {
        if native { Self::Native } else { otherwise }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "native",
            Self::Emulated => "emulated",
            Self::Absent => "absent",
        })
    }
}

/// The optional abilities of a device. They are computed from the [`Abilities`](crate::contract::Abilities) that the
/// device returns, so the report agrees with the calls.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Region copies and indexed copies on the device; otherwise emulated through the host.
    pub region_copy: Support,
    /// Copies between devices without the host; otherwise staged through the host.
    pub peer: Support,
    /// Work captured once and launched many times.
    pub graphs: Support,
    /// Memory that host and device both address.
    pub unified_memory: Support,
    /// Adoption of memory that was allocated elsewhere.
    pub memory_adoption: Support,
    /// Page-locking of host memory that the program allocated.
    pub host_registration: Support,
    /// Gates, at which streams wait for the host.
    pub gates: Support,
    /// Use of streams, events and addresses that other libraries own.
    pub interop: Support,
    /// A memory pool that reports its bytes and can be trimmed.
    pub memory_pool: Support,
    /// Free memory and utilisation.
    pub monitor: Support,
    /// Event counters.
    pub counters: Support,
    /// Cooperative launches, in which all blocks are resident at once.
    pub cooperative_launch: Support,
}

impl Capabilities {
    /// Name and support of each ability, for reports.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Support)> {
        [
            ("region_copy", self.region_copy),
            ("peer", self.peer),
            ("graphs", self.graphs),
            ("unified_memory", self.unified_memory),
            ("memory_adoption", self.memory_adoption),
            ("host_registration", self.host_registration),
            ("gates", self.gates),
            ("interop", self.interop),
            ("memory_pool", self.memory_pool),
            ("monitor", self.monitor),
            ("counters", self.counters),
            ("cooperative_launch", self.cooperative_launch),
        ]
        .into_iter()
    }
}
