//! Opening host devices by selector.

use runtime_core::{Device, DeviceId, DeviceInfo, Driver, Error, ErrorKind, Result, Selector};

use crate::HostDevice;
use crate::device::{default_threads, info};

/// The backend `host`.
///
/// `host` is `host:0`; any other index opens as well. Each opening is an independent device. The option `threads=N`
/// gives it `N` threads instead of one for each core: `host?threads=4`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostDriver;

impl HostDriver {
    /// The driver.
    pub fn new() -> Self {
        Self
    }
}

impl Driver for HostDriver {
    fn name(&self) -> &str {
        "host"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(vec![info(&DeviceId::new("host", 0), default_threads())])
    }

    fn open(&self, selector: &Selector) -> Result<Device> {
        let index = selector.index()?;
        let mut threads = default_threads();
        for (key, value) in selector.options() {
            if key != "threads" {
                let message = format!("{selector}: no option {key:?}; a host device takes threads");
                return Err(Error::new(ErrorKind::UnknownDevice, "open", message));
            }
            threads = value.parse().map_err(|error| {
                let message =
                    format!("threads={value}: not a number from 1 to {}", HostDevice::MAX_THREADS);
                Error::new(ErrorKind::InvalidArgument, "open", message).with_source(error)
            })?;
        }
        Device::new(HostDevice::with_threads(index, threads)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(selector: &str) -> Result<Device> {
        HostDriver::new().open(&selector.parse()?)
    }

    #[test]
    fn any_index_opens() {
        assert_eq!(open("host").unwrap().id().to_string(), "host:0");
        let device = open("host:17?threads=3").unwrap();
        assert_eq!(device.id().to_string(), "host:17");
        assert_eq!(device.info().compute_units, 3);
        assert!(!device.is_same(&open("host:17").unwrap()));
    }

    #[test]
    fn the_listed_device_is_the_one_that_opens() {
        assert_eq!(HostDriver::new().devices().unwrap(), [open("host").unwrap().info().clone()]);
    }

    #[test]
    fn wrong_selectors_name_what_is_wrong() {
        for (selector, kind, named) in [
            ("host:x", ErrorKind::UnknownDevice, "host:x"),
            ("host?cores=2", ErrorKind::UnknownDevice, "cores"),
            ("host?threads=0", ErrorKind::InvalidArgument, "threads=0"),
            ("host?threads=4097", ErrorKind::InvalidArgument, "4096"),
            ("host?threads=many", ErrorKind::InvalidArgument, "threads=many"),
            ("host?threads=", ErrorKind::InvalidArgument, "threads="),
        ] {
            let error = open(selector).unwrap_err();
            assert_eq!(error.kind(), kind, "{selector}");
            assert!(error.message().contains(named), "{error}");
        }
    }
}
