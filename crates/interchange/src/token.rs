//! Names of devices and contexts that are the same in every library.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use runtime_core::{Device, DeviceKind, Error, ErrorKind, NativeHandle, Result, Selector};

/// The name of a device, `backend:kind:index`, from which a runtime finds its own object. It includes the device's
/// unique identifier if that is known.
///
/// Indices differ between libraries; identifiers do not. The text format is that of SYCL's filter selectors with all
/// three parts. It is not a device selector of this runtime.
///
/// ```
/// use interchange::DeviceToken;
/// use runtime_core::DeviceKind;
///
/// let token: DeviceToken = "opencl:gpu:1".parse()?;
/// assert_eq!((token.backend(), token.kind(), token.index()), ("opencl", Some(DeviceKind::Gpu), 1));
/// assert_eq!(token.to_string(), "opencl:gpu:1");
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceToken {
    backend: Cow<'static, str>,
    kind: Option<DeviceKind>,
    index: usize,
    uuid: Option<[u8; 16]>,
}

impl DeviceToken {
    /// The device number `index` of `backend`, counted among devices of its kind if a kind is given.
    pub fn new(
        backend: impl Into<Cow<'static, str>>,
        kind: Option<DeviceKind>,
        index: usize,
    ) -> Self {
        Self { backend: backend.into(), kind, index, uuid: None }
    }

    /// The token of an opened device.
    pub fn of(device: &Device) -> Self {
        let info = device.info();
        // Backends name their handles by a static string.
        let backend = match device.native().api {
            api if api == info.id.backend() => Cow::Borrowed(api),
            _ => Cow::Owned(info.id.backend().to_owned()),
        };
        Self { backend, kind: Some(info.kind), index: info.id.index(), uuid: info.uuid }
    }

    /// Adds the device's unique identifier.
    #[must_use]
    pub fn with_uuid(self, uuid: [u8; 16]) -> Self {
        Self { uuid: Some(uuid), ..self }
    }

    /// The interface of the device: `cuda`, `hip`, `opencl`, `level_zero`, `host`, …
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// The kind of device, if it is known.
    pub fn kind(&self) -> Option<DeviceKind> {
        self.kind
    }

    /// The number of the device among the backend's devices.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The device's unique identifier, if it is known.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid
    }

    /// Whether this token names `device`. Compares identifiers if both have one; else backend, kind (if it is known)
    /// and index.
    pub fn is(&self, device: &Device) -> bool {
        let info = device.info();
        if self.backend != info.id.backend() {
            return false;
        }
        match (self.uuid, info.uuid) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.index == info.id.index() && self.kind.is_none_or(|kind| kind == info.kind),
        }
    }

    /// Returns the opened device that this token names.
    ///
    /// # Errors
    ///
    /// `UnknownDevice` if the token names none of them.
    pub fn resolve<'a>(&self, devices: impl IntoIterator<Item = &'a Device>) -> Result<&'a Device> {
        devices.into_iter().find(|device| self.is(device)).ok_or_else(|| {
            let message = format!("none of the opened devices is {self}");
            Error::new(ErrorKind::UnknownDevice, "resolve", message)
        })
    }
}

impl fmt::Display for DeviceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{}:{kind}:{}", self.backend, self.index),
            None => write!(f, "{}:{}", self.backend, self.index),
        }
    }
}

impl FromStr for DeviceToken {
    type Err = Error;

    /// Parses `backend:kind:index`. Kind and index may be missing; a missing index is 0.
    fn from_str(text: &str) -> Result<Self> {
        let refuse = |why: &str| {
            let message = format!("{text:?}: {why}; expected backend:kind:index");
            Err(Error::new(ErrorKind::UnknownDevice, "device token", message))
        };
        let (mut backend, mut kind, mut index) = (None, None, None);
        for part in text.split(':') {
            match part {
                "cpu" if kind.is_none() => kind = Some(DeviceKind::Cpu),
                "gpu" if kind.is_none() => kind = Some(DeviceKind::Gpu),
                "accelerator" if kind.is_none() => kind = Some(DeviceKind::Accelerator),
                "cuda" | "hip" | "opencl" | "level_zero" | "host" | "sim" if backend.is_none() => {
                    backend = Some(part);
                }
                number if index.is_none() && !number.is_empty() => match Selector::number(number) {
                    Some(number) => index = Some(number),
                    None => return refuse(&format!("{part:?} is no backend, kind or index")),
                },
                _ => return refuse(&format!("{part:?} is one part too many")),
            }
        }
        match backend {
            Some(backend) => Ok(Self::new(backend.to_owned(), kind, index.unwrap_or(0))),
            None => refuse("no backend"),
        }
    }
}

/// The context of memory, if the interface has contexts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ContextBinding {
    /// The default context that the platform's runtime keeps for all users. A textual name can refer to it.
    PlatformDefault,
    /// This context. A textual name cannot refer to it.
    Explicit(NativeHandle),
}
