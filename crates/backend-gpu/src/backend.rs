//! Opening devices by selector.

use runtime_core::{DeviceInfo, Result, Selector};

use crate::config::Config;
use crate::device::Device;
use crate::vendor::Vendor;

/// A backend for the devices of a vendor's library, in the library's order.
///
/// Listing devices creates no context. Listed devices therefore do not report the priorities of streams; opened devices
/// do.
#[derive(Debug)]
pub struct Backend<V: Vendor> {
    config: Config<V>,
}

impl<V: Vendor> Backend<V> {
    /// Creates a backend that opens devices with the default [`Config`] and the options of their selectors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a backend that opens devices with `config` and the options of their selectors.
    pub fn with_config(config: Config<V>) -> Self {
        Self { config }
    }
}

impl<V: Vendor> Default for Backend<V> {
    fn default() -> Self {
        Self::with_config(Config::new())
    }
}

impl<V: Vendor> runtime_core::Backend for Backend<V> {
    fn name(&self) -> &str {
        V::WORDS.backend
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let (api, devices) = V::library()?;
        (0..devices).map(|ordinal| Ok(V::describe(api, ordinal)?.info)).collect()
    }

    fn open(&self, selector: &Selector) -> Result<runtime_core::Device> {
        let set = |config: Config<V>, (option, value): &(String, String)| config.set(option, value);
        let config = selector.options().iter().try_fold(self.config.clone(), set)?;
        runtime_core::Device::new(Device::open(selector.index()?, &config)?)
    }
}
