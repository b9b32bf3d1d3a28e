//! Opening devices by selector.

use std::sync::{Arc, Mutex, Weak};

use backend_support::lock;
use runtime_core::{Backend, Device, DeviceInfo, Result, Selector};

use crate::OpenClConfig;
use crate::device::OpenClDevice;
use crate::info::{Description, describe};
use crate::open_device::Context;
use crate::platform::{self, DeviceEntry, Platform};

/// The backend `opencl`: every device of every platform that the OpenCL loader finds.
///
/// | selector | device |
/// |---|---|
/// | `opencl`, `opencl:2` | the first, or the third, of the devices of all platforms |
/// | `opencl:gpu:0` | the first device of a kind: `cpu`, `gpu` or `accelerator` |
/// | `opencl:pocl:1` | the second device of the platforms with that word in their name or vendor |
/// | `opencl:Tesla T4:0` | the first device with those words in its own name, if no platform has them |
///
/// Case does not matter. Each word narrows the choice: `opencl:nvidia:gpu:0`. For the options, see [`OpenClConfig`].
/// Devices of one platform can use each other's memory and events, if they are opened through the same `OpenClBackend`
/// and at least one of them stays open meanwhile.
#[derive(Debug, Default)]
pub struct OpenClBackend {
    config: OpenClConfig,
    contexts: Mutex<Vec<(Platform, Weak<Context>)>>,
}

impl OpenClBackend {
    /// A backend that opens devices with the default [`OpenClConfig`] and the options of their selectors.
    pub fn new() -> Self {
        Self::default()
    }

    /// A backend that opens devices with `config` and the options of their selectors.
    pub fn with_config(config: OpenClConfig) -> Self {
        Self { config, contexts: Mutex::default() }
    }

    /// The context of a platform's open devices, or a new one.
    fn context(&self, all: &[DeviceEntry], found: &DeviceEntry) -> Result<Arc<Context>> {
        let mut contexts = lock(&self.contexts);
        contexts.retain(|(_, context)| context.upgrade().is_some_and(|c| !c.is_broken()));
        let open = contexts.iter().find(|(platform, _)| *platform == found.platform);
        if let Some(context) = open.and_then(|(_, context)| context.upgrade()) {
            return Ok(context);
        }
        let siblings: Vec<&DeviceEntry> =
            all.iter().filter(|other| other.platform == found.platform).collect();
        // Some platforms do not support one context for all of their devices.
        let context = Arc::new(Context::new(&siblings).or_else(|_| Context::new(&[found]))?);
        if context.holds(siblings.len()) {
            contexts.push((found.platform.clone(), Arc::downgrade(&context)));
        }
        Ok(context)
    }
}

impl Backend for OpenClBackend {
    fn name(&self) -> &str {
        "opencl"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let described: Vec<_> = platform::discover()?.iter().map(describe).collect();
        let works = described.iter().any(Result::is_ok);
        // A device that fails does not hide the others.
        let reported = |described: Result<Description>| match described {
            Err(error) if works => {
                tracing::warn!(%error, "an OpenCL device does not work");
                None
            }
            described => Some(described.map(|description| description.info)),
        };
        described.into_iter().filter_map(reported).collect()
    }

    fn open(&self, selector: &Selector) -> Result<Device> {
        let set =
            |config: OpenClConfig, (option, value): &(String, String)| config.set(option, value);
        let config = selector.options().iter().try_fold(self.config.clone(), set)?;
        let all = platform::discover()?;
        let found = platform::select(&all, selector)?;
        let description = describe(&found)?;
        let context = self.context(&all, &found)?;
        Device::new(OpenClDevice::open(&found, description, context, &config)?)
    }
}
