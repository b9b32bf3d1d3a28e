//! The properties of a device.

use std::ffi::{CStr, c_int, c_uint};

use runtime_core::{DeviceId, DeviceInfo, DeviceKind, Limits, Result};

use crate::allocation::ALIGNMENT;
use crate::api::Api;
use crate::vendor::{Vendor, error};

/// A device whose properties are queried.
#[derive(Debug)]
pub struct Properties<'a, A> {
    api: &'a A,
    /// The number of the device.
    pub device: c_int,
}

/// The vendor's numbers of the attributes that all devices have.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// The maximum number of blocks in each dimension.
    pub grid: [c_uint; 3],
    /// The maximum number of threads of a block in each dimension.
    pub block: [c_uint; 3],
    /// The maximum number of threads of a block.
    pub threads: c_uint,
    /// The number of bytes of shared memory that any kernel may use.
    pub shared: c_uint,
    /// The number of processors.
    pub units: c_uint,
    /// The number of threads that run together.
    pub subgroup: c_uint,
}

/// Queries the device with this place in the library's order.
///
/// # Errors
///
/// Errors of the library.
pub fn described<V: Vendor, R>(
    api: &V::Api,
    ordinal: usize,
    describe: impl FnOnce(&DeviceId, &Properties<'_, V::Api>) -> Result<R, u32>,
) -> Result<R> {
    let id = DeviceId::new(V::WORDS.backend, ordinal);
    let device = api.device(c_int::try_from(ordinal).unwrap_or(c_int::MAX));
    let described = device.and_then(|device| describe(&id, &Properties { api, device }));
    described.map_err(|code| {
        error::<V>(api, "devices", code, "the device does not describe itself").on(&id)
    })
}

#[expect(clippy::missing_errors_doc, reason = "all return the library's code")]
impl<A: Api> Properties<'_, A> {
    /// An attribute that is a number.
    pub fn number(&self, attribute: c_uint) -> Result<u32, u32> {
        Ok(u32::try_from(self.api.device_attribute(self.device, attribute)?).unwrap_or(0))
    }

    /// Whether the device has an attribute that is not 0.
    pub fn has(&self, attribute: c_uint) -> bool {
        self.number(attribute).is_ok_and(|value| value != 0)
    }

    /// The limits, with that many bytes of arguments.
    pub fn limits(&self, attributes: &Attributes, argument_bytes: usize) -> Result<Limits, u32> {
        let dimensions = |attributes: [c_uint; 3]| {
            let [x, y, z] = attributes.map(|attribute| self.number(attribute));
            Ok::<_, u32>([x?, y?, z?])
        };
        let memory = self.api.device_memory(self.device)?;
        let (grid, block) = (dimensions(attributes.grid)?, dimensions(attributes.block)?);
        Ok(Limits::new(memory, grid, block, self.number(attributes.threads)?)
            .with_allocation_alignment(ALIGNMENT)
            .with_max_shared_bytes(self.number(attributes.shared)?)
            // Every argument has at least one byte.
            .with_max_arguments(argument_bytes, argument_bytes))
    }

    /// The properties that the attributes, the name and the UUID give.
    pub fn info(
        &self,
        id: &DeviceId,
        attributes: &Attributes,
        limits: Limits,
    ) -> Result<DeviceInfo, u32> {
        let mut name = [0; 256];
        self.api.device_name(self.device, &mut name)?;
        let bytes = name.map(|byte| byte.to_ne_bytes()[0]);
        let name = CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy();
        let memory = self.api.device_memory(self.device)?;
        Ok(DeviceInfo::new(id.clone(), DeviceKind::Gpu, name, limits)
            .with_uuid(self.api.device_uuid(self.device).ok())
            .with_memory_bytes(memory as u64)
            .with_compute_units(self.number(attributes.units)?)
            .with_subgroup_size(self.number(attributes.subgroup)?))
    }
}
