//! Helpers that all embedded devices of this crate use.

use runtime_core::contract::MemoryArea;
use runtime_core::{DeviceId, DeviceInfo, DeviceKind, Limits};

use crate::Processor;
use crate::processor::ARGUMENTS;

/// The identity of a device.
pub(crate) struct Identity<'a> {
    pub(crate) index: usize,
    pub(crate) name: &'a str,
    pub(crate) vendor: &'a str,
    pub(crate) version: &'a str,
}

/// Makes the properties that a device reports.
pub(crate) fn info(
    identity: &Identity<'_>,
    processor: Processor,
    map: &[MemoryArea],
) -> DeviceInfo {
    let bytes: u64 = map.iter().filter(|area| area.writable).map(|area| area.bytes).sum();
    let most = usize::try_from(bytes).unwrap_or(usize::MAX);
    let limits = Limits::new(most, [1; 3], [1; 3], 1).with_max_arguments(ARGUMENTS, 8 * ARGUMENTS);
    let id = DeviceId::new("embedded", identity.index);
    DeviceInfo::new(id, DeviceKind::Embedded, identity.name, limits)
        .with_vendor(identity.vendor)
        .with_architecture(processor.architecture().name)
        .with_driver_version(identity.version)
        .with_memory_bytes(bytes)
}
