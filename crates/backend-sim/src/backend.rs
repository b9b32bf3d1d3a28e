//! Opening simulated devices by selector.

use std::sync::Arc;

use runtime_core::{Backend, Device, DeviceId, DeviceInfo, Error, ErrorKind, Result, Selector};

use crate::device::info;
use crate::open_device::Group;
use crate::{SimConfig, SimDevice};

/// The backend `sim`: simulated devices that reach each other.
///
/// Selectors are `sim:0`, `sim:1`, …, with the options that [`SimConfig::set`] lists: `sim:1?seed=7&fail-launch=50`.
/// Every opening is an independent device with its own memory, counts and faults.
#[derive(Clone, Debug)]
pub struct SimBackend {
    configs: Vec<SimConfig>,
    group: Arc<Group>,
}

impl SimBackend {
    /// Two devices with the behaviour of [`SimConfig::new`].
    pub fn new() -> Self {
        Self::with_devices([SimConfig::new(), SimConfig::new()])
    }

    /// One device for each config. Options of a selector change a copy of the config.
    pub fn with_devices(configs: impl IntoIterator<Item = SimConfig>) -> Self {
        Self { configs: configs.into_iter().collect(), group: Arc::default() }
    }
}

impl Default for SimBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for SimBackend {
    fn name(&self) -> &str {
        "sim"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let devices = self.configs.iter().enumerate();
        Ok(devices.map(|(index, config)| info(&DeviceId::new("sim", index), config)).collect())
    }

    fn open(&self, selector: &Selector) -> Result<Device> {
        let index = selector.index()?;
        let config = self.configs.get(index).ok_or_else(|| {
            let message = format!(
                "{selector}: there are {} simulated devices; `SimBackend::with_devices` makes more",
                self.configs.len()
            );
            Error::new(ErrorKind::UnknownDevice, "open", message)
        })?;
        let set = |config: SimConfig, (option, value): &(String, String)| config.set(option, value);
        let config = selector.options().iter().try_fold(config.clone(), set)?;
        Device::new(SimDevice::in_group(index, config, &self.group))
    }
}
