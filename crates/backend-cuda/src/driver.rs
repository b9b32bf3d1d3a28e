//! Opening devices by selector.

use runtime_core::{Device, DeviceInfo, Driver, Result, Selector};

use crate::CudaConfig;
use crate::device::CudaDevice;
use crate::info::describe;
use crate::library::library;

/// The backend `cuda`: the devices of the CUDA driver, in its order.
///
/// `cuda` and `cuda:0` are the first, `cuda:1` is the second; the driver's variable `CUDA_VISIBLE_DEVICES` chooses and
/// orders them. Options follow a question mark, see [`CudaConfig`].
///
/// Listing devices makes no context, and so does not tell the priorities of streams, which an opened device does.
#[derive(Debug, Default)]
pub struct CudaDriver {
    config: CudaConfig,
}

impl CudaDriver {
    /// A driver whose devices are opened with the default [`CudaConfig`] and the options of their selectors.
    pub fn new() -> Self {
        Self::default()
    }

    /// A driver whose devices are opened with `config` and the options of their selectors.
    pub fn with_config(config: CudaConfig) -> Self {
        Self { config }
    }
}

impl Driver for CudaDriver {
    fn name(&self) -> &str {
        "cuda"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let library = library()?;
        (0..library.devices).map(|ordinal| Ok(describe(library, ordinal)?.info)).collect()
    }

    fn open(&self, selector: &Selector) -> Result<Device> {
        let set =
            |config: CudaConfig, (option, value): &(String, String)| config.set(option, value);
        let config = selector.options().iter().try_fold(self.config.clone(), set)?;
        Device::new(CudaDevice::open(selector.index()?, &config)?)
    }
}
