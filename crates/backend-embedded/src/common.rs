//! Helpers that all embedded devices of this crate use.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use runtime_core::contract::MemoryArea;
use runtime_core::{DeviceId, DeviceInfo, DeviceKind, Error, ErrorKind, Limits, ModuleImage};

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
    DeviceInfo {
        id: DeviceId::new("embedded", identity.index),
        kind: DeviceKind::Embedded,
        name: identity.name.to_owned(),
        vendor: identity.vendor.to_owned(),
        architecture: processor.architecture().to_owned(),
        driver_version: identity.version.to_owned(),
        uuid: None,
        pci: None,
        memory_bytes: Some(bytes),
        compute_units: 1,
        lockstep_width: 1,
        limits: Limits {
            allocation_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            allocation_alignment: NonZeroUsize::MIN,
            argument_alignment: NonZeroUsize::MIN,
            grid: [1; 3],
            block: [1; 3],
            block_size: 1,
            shared_bytes: 0,
            arguments: ARGUMENTS,
            argument_bytes: 8 * ARGUMENTS,
            priorities: (0, 0),
        },
        // Modules are loaded by an accelerator on top of the device.
        formats: Vec::new(),
        absent_formats: Vec::new(),
    }
}

/// The error of loading a module, which embedded devices do not support themselves.
#[cold]
pub(crate) fn no_modules(image: &ModuleImage<'_>) -> Error {
    let message =
        format!("{}: programs are flashed; an EmbeddedAccelerator loads modules", image.format());
    Error::new(ErrorKind::InvalidModule, "module_load", message)
}

/// Locks even if a thread panicked while it held the lock: every critical section here leaves its data consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
