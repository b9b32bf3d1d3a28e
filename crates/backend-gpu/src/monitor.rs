//! Free memory and load of a device.

use runtime_core::Result;
use runtime_core::contract::{DeviceLoad, Monitor};

use crate::device::Device;
use crate::vendor::{Busy, Vendor};

impl<V: Vendor> Monitor for Device<V> {
    fn load(&self) -> Result<DeviceLoad> {
        let shared = &self.shared;
        shared.check("load")?;
        let asked = shared.context.memory();
        let (free, total) =
            asked.map_err(|code| shared.error("load", code, "how much memory is free"))?;
        let Busy { processor, memory } = V::busy(&self.info);
        Ok(DeviceLoad::default()
            .with_memory(free as u64, total.saturating_sub(free) as u64)
            .with_busy(processor, memory))
    }
}
