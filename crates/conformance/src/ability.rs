//! What a rule needs of a device, beyond the contract.

use std::fmt;

/// An ability that some rules need. On a device without it, these rules do not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ability {
    /// A console, which passes on what the program of an embedded device prints.
    Console,
    /// Cooperative launches.
    CooperativeLaunch,
    /// Counters.
    Counters,
    /// A kernel `fault`, which makes the device stop the program.
    Fault,
    /// Gates.
    Gates,
    /// Graphs.
    Graphs,
    /// Kernels that are Rust functions.
    HostFunctions,
    /// Registration of host memory.
    HostRegistration,
    /// Memory that the host can address: unified memory, or all memory.
    HostVisibleMemory,
    /// Streams, events and memory of other libraries.
    Interop,
    /// Adoption of memory.
    MemoryAdoption,
    /// A memory pool.
    MemoryPool,
    /// A monitor.
    Monitor,
    /// Kernels that report their parameters.
    Parameters,
    /// Region copies by the device.
    RegionCopy,
    /// A second device of the same backend.
    SecondDevice,
    /// Unified memory.
    UnifiedMemory,
}

impl Ability {
    pub(crate) const ALL: [Self; 17] = [
        Self::Console,
        Self::CooperativeLaunch,
        Self::Counters,
        Self::Fault,
        Self::Gates,
        Self::Graphs,
        Self::HostFunctions,
        Self::HostRegistration,
        Self::HostVisibleMemory,
        Self::Interop,
        Self::MemoryAdoption,
        Self::MemoryPool,
        Self::Monitor,
        Self::Parameters,
        Self::RegionCopy,
        Self::SecondDevice,
        Self::UnifiedMemory,
    ];

    /// The ability with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ability| ability.to_string() == name)
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Console => "a console",
            Self::CooperativeLaunch => "cooperative launches",
            Self::Counters => "counters",
            Self::Fault => "a kernel that faults",
            Self::Gates => "gates",
            Self::Graphs => "graphs",
            Self::HostFunctions => "kernels that are Rust functions",
            Self::HostRegistration => "registration of host memory",
            Self::HostVisibleMemory => "memory that the host can address",
            Self::Interop => "objects of other libraries",
            Self::MemoryAdoption => "adoption of memory",
            Self::MemoryPool => "a memory pool",
            Self::Monitor => "a monitor",
            Self::Parameters => "parameters of kernels",
            Self::RegionCopy => "region copies by the device",
            Self::SecondDevice => "a second device",
            Self::UnifiedMemory => "unified memory",
        })
    }
}
