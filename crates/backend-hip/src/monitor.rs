//! How much memory of a device is free. How busy it is the runtime does not tell.
#![expect(unsafe_code, reason = "asks the runtime")]

use runtime_core::Result;
use runtime_core::contract::{DeviceLoad, Monitor};

use crate::context::ok;
use crate::device::HipDevice;

impl Monitor for HipDevice {
    fn load(&self) -> Result<DeviceLoad> {
        let shared = &self.shared;
        shared.check("load")?;
        let (mut free, mut total) = (0_usize, 0_usize);
        let asked = shared.context.bind().and_then(|()| {
            // SAFETY: the numbers are written to where they may be.
            ok(unsafe { (shared.context.hip.hipMemGetInfo)(&mut free, &mut total) })
        });
        asked.map_err(|code| shared.error("load", code, "how much memory is free"))?;
        Ok(DeviceLoad {
            memory_free: Some(free as u64),
            memory_used: Some(total.saturating_sub(free) as u64),
            processor_busy: None,
            memory_busy: None,
        })
    }
}
