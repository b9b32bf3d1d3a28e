//! Opening host devices by selector.

use runtime_core::{Backend, Device, DeviceId, DeviceInfo, Error, ErrorKind, Result, Selector};

use crate::HostDevice;
use crate::device::{default_threads, info};

/// The backend `host`.
///
/// `host` is `host:0`. `host:1` also exists and uses the same cores. It is for testing two-device programs on one
/// machine; no list of devices contains it. Each opening is an independent device. The option `threads=N` sets the
/// number of threads, which is otherwise one per core: `host?threads=4`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostBackend;

impl HostBackend {
    /// The number of devices that its selectors can name.
    pub const DEVICES: usize = 2;

    /// The backend.
    pub fn new() -> Self {
        Self
    }
}

impl Backend for HostBackend {
    fn name(&self) -> &str {
        "host"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(vec![info(&DeviceId::new("host", 0), default_threads())])
    }

    fn open(&self, selector: &Selector) -> Result<Device> {
        let index = selector.index()?;
        if index >= Self::DEVICES {
            let message =
                format!("{selector}: there are {} host devices, host:0 and host:1", Self::DEVICES);
            return Err(Error::new(ErrorKind::UnknownDevice, "open", message));
        }
        let mut threads = default_threads();
        for (key, value) in selector.options() {
            if key != "threads" {
                let message = format!("{selector}: no option {key:?}; a host device takes threads");
                return Err(Error::new(ErrorKind::UnknownDevice, "open", message));
            }
            threads = Selector::number(value).ok_or_else(|| {
                let message =
                    format!("threads={value}: not a number from 1 to {}", HostDevice::MAX_THREADS);
                Error::new(ErrorKind::InvalidArgument, "open", message)
            })?;
        }
        Device::new(HostDevice::with_threads(index, threads)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(selector: &str) -> Result<Device> {
        HostBackend::new().open(&selector.parse()?)
    }

    #[test]
    fn every_opening_is_another_device() {
        assert_eq!(open("host").unwrap().id().to_string(), "host:0");
        let device = open("host:1?threads=3").unwrap();
        assert_eq!(device.id().to_string(), "host:1");
        assert_eq!(device.info().compute_units, 3);
        assert!(!device.is_same(&open("host:1").unwrap()));
    }

    #[test]
    fn the_listed_device_is_the_one_that_opens() {
        assert_eq!(HostBackend::new().devices().unwrap(), [open("host").unwrap().info().clone()]);
    }

    #[test]
    fn errors_of_selectors_name_the_cause() {
        for (selector, kind, named) in [
            ("host:x", ErrorKind::UnknownDevice, "host:x"),
            ("host:+1", ErrorKind::UnknownDevice, "host:+1"),
            ("host:2", ErrorKind::UnknownDevice, "host:2: there are 2 host devices"),
            ("host:9", ErrorKind::UnknownDevice, "host:0 and host:1"),
            ("host?cores=2", ErrorKind::UnknownDevice, "cores"),
            ("host?threads=0", ErrorKind::InvalidArgument, "threads=0"),
            ("host?threads=4097", ErrorKind::InvalidArgument, "4096"),
            ("host?threads=+2", ErrorKind::InvalidArgument, "threads=+2"),
            ("host?threads=many", ErrorKind::InvalidArgument, "threads=many"),
            ("host?threads=", ErrorKind::InvalidArgument, "threads="),
        ] {
            let error = open(selector).unwrap_err();
            assert_eq!(error.kind(), kind, "{selector}");
            assert!(error.message().contains(named), "{error}");
        }
    }
}
