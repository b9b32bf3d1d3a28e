//! Opening devices by selector.

use runtime_core::{Device, DeviceInfo, Driver, Result, Selector};

use crate::HipConfig;
use crate::device::HipDevice;
use crate::info::describe;
use crate::library::library;

/// The backend `hip`: the devices of the HIP runtime, in its order.
///
/// `hip` and `hip:0` are the first, `hip:1` is the second; the runtime's variable `HIP_VISIBLE_DEVICES` chooses and
/// orders them. Options follow a question mark, see [`HipConfig`].
///
/// Listing devices does not make them current, and so does not tell the priorities of streams, which an opened device
/// does.
#[derive(Debug, Default)]
pub struct HipDriver {
    config: HipConfig,
}

impl HipDriver {
    /// A driver whose devices are opened with the default [`HipConfig`] and the options of their selectors.
    pub fn new() -> Self {
        Self::default()
    }

    /// A driver whose devices are opened with `config` and the options of their selectors.
    pub fn with_config(config: HipConfig) -> Self {
        Self { config }
    }
}

impl Driver for HipDriver {
    fn name(&self) -> &str {
        "hip"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let library = library()?;
        (0..library.devices).map(|ordinal| Ok(describe(library, ordinal)?.info)).collect()
    }

    fn open(&self, selector: &Selector) -> Result<Device> {
        let set = |config: HipConfig, (option, value): &(String, String)| config.set(option, value);
        let config = selector.options().iter().try_fold(self.config.clone(), set)?;
        Device::new(HipDevice::open(selector.index()?, &config)?)
    }
}
