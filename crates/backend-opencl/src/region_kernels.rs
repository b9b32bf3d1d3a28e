//! The kernels of region copies that a device supports.

use std::sync::OnceLock;

use backend_support::{Binding, Mapping, RegionKernel, RegionLimits};
use runtime_core::{DeviceInfo, DeviceKind, ImageFormat};

use crate::RegionMapping;
use crate::module::OpenClModule;

/// The numbers of memory arguments for which there are kernels: fewer arguments are set faster.
const SLOTS: [usize; 3] = [2, 8, RegionKernel::MAX_SLOTS];

/// The bytes of the parameters that every kernel has, and of the parameters for each slot.
const FIXED_BYTES: usize = 16;
const SLOT_BYTES: usize = 16;

/// The kernels of region copies. Each is built on first use.
#[derive(Debug)]
pub(crate) struct RegionKernels {
    /// The kernels that the device supports, fewest slots first. Empty if there is no compiler.
    kernels: Vec<Source>,
    /// The kernel for any number of memories that have addresses.
    pub(crate) by_address: Option<Source>,
    pub(crate) limits: RegionLimits,
}

/// A kernel, and its built module.
pub(crate) type Source = (RegionKernel, OnceLock<OpenClModule>);

impl RegionKernels {
    pub(crate) fn new(info: &DeviceInfo, doubles: bool, mapping: RegionMapping) -> Self {
        let compiles = info.formats.contains(&ImageFormat::OpenClC);
        let most = info.limits.max_argument_bytes.saturating_sub(FIXED_BYTES) / SLOT_BYTES;
        let (mapping, group) = match (mapping, info.kind) {
            // A CPU runs the work-items of a group one after the other.
            (RegionMapping::Auto, DeviceKind::Cpu) | (RegionMapping::Runs, _) => (Mapping::Runs, 1),
            (RegionMapping::Auto | RegionMapping::Lanes, _) => (Mapping::Lanes, 256),
        };
        let group = group.min(info.limits.max_block_threads).min(info.limits.max_block[0]);
        let make = |binding| RegionKernel::new(mapping, binding, doubles).ok().filter(|_| compiles);
        let bindings = SLOTS.map(|slots| Binding::Parameters(slots.min(most)));
        let mut kernels: Vec<RegionKernel> = bindings.into_iter().filter_map(make).collect();
        kernels.dedup();
        let source = |kernel| (kernel, OnceLock::new());
        Self {
            kernels: kernels.into_iter().map(source).collect(),
            by_address: make(Binding::Table).map(source),
            limits: RegionLimits {
                compute_units: info.compute_units as usize,
                group_size: group as usize,
                max_groups: (info.limits.max_grid[0] / group.max(1)).into(),
                slab: RegionLimits::MAX_SLAB,
            },
        }
    }

    pub(crate) fn is_supported(&self) -> bool {
        !self.kernels.is_empty()
    }

    /// The kernel with the fewest arguments that fits a program, or else the kernel with the most arguments.
    pub(crate) fn for_slots(&self, slots: usize) -> Option<&Source> {
        self.kernels.iter().find(|(kernel, _)| kernel.slots() >= slots).or(self.kernels.last())
    }
}
