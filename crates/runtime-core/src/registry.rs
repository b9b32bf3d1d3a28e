//! Selectors, backends and their registry.

use std::env;
use std::fmt;
use std::str::FromStr;

use crate::{Device, DeviceInfo, Error, ErrorKind, Result};

/// Names the device to open, as text: `backend[:part…][?key=value[&key=value…]]`.
///
/// The backend defines the meaning of parts and options: `host`, `cuda:0`, `opencl:pocl:1`, `sim:0?seed=7`,
/// `embedded:qemu-riscv64`. Numbers are digits alone. Colons in square brackets do not divide parts, so an IPv6 address
/// is one part: `embedded:gdb:[::1]:3333`. An option is given once.
///
/// ```
/// use runtime_core::Selector;
///
/// let selector: Selector = "sim:1?seed=7&peers=off".parse()?;
/// assert_eq!(selector.backend(), "sim");
/// assert_eq!(selector.index()?, 1);
/// assert_eq!(selector.options()[1], ("peers".to_owned(), "off".to_owned()));
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    backend: String,
    parts: Vec<String>,
    options: Vec<(String, String)>,
}

impl Selector {
    /// The backend's name.
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// The parts between the backend and the options, split at colons outside of square brackets.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// The options, in order.
    pub fn options(&self) -> &[(String, String)] {
        &self.options
    }

    /// The device index, for backends that identify devices only by number: the number in the single part, or 0 without
    /// parts.
    ///
    /// # Errors
    ///
    /// `UnknownDevice` if there are several parts, or if the single part is not a number.
    pub fn index(&self) -> Result<usize> {
        match self.parts.as_slice() {
            [] => Some(0),
            [part] => Self::number(part),
            _ => None,
        }
        .ok_or_else(|| unknown(format!("{self}: {} takes one device number", self.backend)))
    }

    /// The number that `digits` is, for drivers. `None` for anything but digits, and for a number beyond the range of
    /// the type.
    ///
    /// ```
    /// use runtime_core::Selector;
    ///
    /// assert_eq!(Selector::number("12"), Some(12_u8));
    /// assert_eq!(Selector::number::<u8>("+12"), None);
    /// assert_eq!(Selector::number::<u8>("256"), None);
    /// ```
    pub fn number<N: FromStr>(digits: &str) -> Option<N> {
        // The standard library's parser also accepts a sign.
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    }
}

impl FromStr for Selector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (place, options) = text.split_once('?').map_or((text, None), |(p, o)| (p, Some(o)));
        let mut bracketed = false;
        let divides = |letter: char| {
            bracketed = letter == '[' || bracketed && letter != ']';
            letter == ':' && !bracketed
        };
        let mut words = place.split(divides).map(str::to_owned);
        let backend = words.next().unwrap_or_default();
        let parts: Vec<String> = words.collect();
        if backend.is_empty() || parts.iter().any(String::is_empty) {
            return Err(unknown(format!(
                "{text:?} is no selector; expected backend[:part…][?key=value…]"
            )));
        }
        let option = |pair: &str| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(unknown(format!("{pair:?} in {text:?} is no option; expected key=value"))),
        };
        let options = options.map(|o| o.split('&').map(option).collect()).transpose()?;
        let options: Vec<(String, String)> = options.unwrap_or_default();
        for (index, (key, value)) in options.iter().enumerate() {
            if let Some((_, first)) = options[..index].iter().find(|(known, _)| known == key) {
                return Err(unknown(format!(
                    "{key}={value} after {key}={first} in {text:?}; an option is given once"
                )));
            }
        }
        Ok(Self { backend, parts, options })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.backend)?;
        self.parts.iter().try_for_each(|part| write!(f, ":{part}"))?;
        for (index, (key, value)) in self.options.iter().enumerate() {
            write!(f, "{}{key}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// A backend as the registry sees it. Lists its devices and opens them.
pub trait Backend: Send + Sync {
    /// The first word of its selectors.
    fn name(&self) -> &str;

    /// Returns the devices that can be opened now, without keeping them open.
    ///
    /// # Errors
    ///
    /// `Unavailable` with the reason if the backend cannot be used on this machine. Any other kind means that the
    /// backend is broken.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Opens a device. Opening one device twice returns two independent devices.
    ///
    /// # Errors
    ///
    /// As [`devices`](Self::devices). `UnknownDevice` for a selector that names no device; the message lists the
    /// devices.
    fn open(&self, selector: &Selector) -> Result<Device>;
}

/// The backends that a program uses. The program registers them explicitly.
///
/// ```no_run
/// # fn backend() -> impl runtime_core::Backend { struct D; impl runtime_core::Backend for D {
/// # fn name(&self) -> &str { "d" } fn devices(&self) -> runtime_core::Result<Vec<runtime_core::DeviceInfo>> { Ok(vec![]) }
/// # fn open(&self, _: &runtime_core::Selector) -> runtime_core::Result<runtime_core::Device> {
/// # Err(runtime_core::Error::new(runtime_core::ErrorKind::Unavailable, "open", "an example")) } } D }
/// use runtime_core::DeviceRegistry;
///
/// let mut registry = DeviceRegistry::new();
/// registry.register(backend())?;
/// let device = registry.open("d:0")?;
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Default)]
pub struct DeviceRegistry {
    backends: Vec<Box<dyn Backend>>,
    /// Backends that this program lacks, with the reason.
    left_out: Vec<(String, String)>,
}

/// The devices that one backend reported.
#[derive(Debug)]
pub struct Listing {
    /// The backend's name.
    pub backend: String,
    /// Its devices, or the reason why it has none.
    pub devices: Result<Vec<DeviceInfo>>,
}

impl DeviceRegistry {
    /// The environment variable that [`open_default`](Self::open_default) reads.
    pub const VARIABLE: &str = "RUNTIME_DEVICE";

    /// A registry without backends.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a backend.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a backend of this name is already registered.
    pub fn register(&mut self, backend: impl Backend + 'static) -> Result<()> {
        let name = backend.name();
        if self.backends.iter().any(|known| known.name() == name) {
            let message = format!("a backend named {name:?} is registered already");
            return Err(Error::new(ErrorKind::InvalidArgument, "register", message));
        }
        self.backends.push(Box::new(backend));
        Ok(())
    }

    /// Stores the reason why this program lacks a backend, for instance a disabled feature. Opening one of its devices
    /// returns an error with this reason.
    pub fn leave_out(&mut self, name: impl Into<String>, why: impl Into<String>) {
        self.left_out.push((name.into(), why.into()));
    }

    /// Lists the devices of every backend, in the order of registration.
    pub fn list(&self) -> Vec<Listing> {
        let backends = self.backends.iter();
        backends.map(|d| Listing { backend: d.name().to_owned(), devices: d.devices() }).collect()
    }

    /// Opens the device that a selector names.
    ///
    /// # Errors
    ///
    /// `UnknownDevice` if no backend has the selector's name. The message lists the backends, and says why this backend
    /// is [left out](Self::leave_out) if the reason is known. Otherwise errors of the backend.
    pub fn open(&self, selector: &str) -> Result<Device> {
        let selector: Selector = selector.parse()?;
        match self.backends.iter().find(|backend| backend.name() == selector.backend) {
            Some(backend) => backend.open(&selector),
            None => {
                let known: Vec<&str> = self.backends.iter().map(|backend| backend.name()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let why = self.left_out.iter().find(|(name, _)| *name == selector.backend);
                let why = why.map(|(_, why)| format!(": {why}")).unwrap_or_default();
                Err(unknown(format!(
                    "{selector}: no backend {:?}{why}; there is {known}",
                    selector.backend
                )))
            }
        }
    }

    /// Opens the device that the environment variable [`VARIABLE`](Self::VARIABLE) names, or `otherwise` if the
    /// variable is unset or empty.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_default(&self, otherwise: &str) -> Result<Device> {
        let variable = Self::VARIABLE;
        match env::var(variable) {
            Ok(selector) if !selector.is_empty() => self.open(&selector).map_err(|error| {
                let message = format!("{variable}={selector}: {}", error.message());
                Error::new(error.kind(), "open", message).with_source(error)
            }),
            Err(env::VarError::NotUnicode(value)) => {
                Err(unknown(format!("{variable}={value:?} is not Unicode")))
            }
            _ => self.open(otherwise),
        }
    }
}

impl fmt::Debug for DeviceRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.backends.iter().map(|backend| backend.name())).finish()
    }
}

fn unknown(message: String) -> Error {
    Error::new(ErrorKind::UnknownDevice, "open", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_round_trip() {
        for text in [
            "host",
            "cuda:0",
            "opencl:pocl:1",
            "sim:1?seed=7&peers=off",
            "embedded:a?x=",
            "embedded:gdb:[fe80::1%eth0]:3333",
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_address_in_brackets_is_one_part() {
        let selector: Selector = "embedded:gdb:[::1]:3333?board=a:b".parse().unwrap();
        assert_eq!(selector.parts(), ["gdb", "[::1]", "3333"]);
        assert_eq!(selector.options()[0].1, "a:b");
    }

    #[test]
    fn an_option_is_given_once() {
        let error = "sim?seed=7&peers=on&seed=8".parse::<Selector>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownDevice);
        assert!(error.message().contains("seed=8 after seed=7"), "{error}");
    }

    #[test]
    fn malformed_selectors_are_refused() {
        for text in ["", ":0", "cuda:", "sim?seed", "sim?=1", "sim?a=1&&b=2", "cuda::1"] {
            assert_eq!(
                text.parse::<Selector>().unwrap_err().kind(),
                ErrorKind::UnknownDevice,
                "{text:?}"
            );
        }
        for text in ["cuda:x", "cuda:0:1", "cuda:-1", "cuda:+1", "cuda:99999999999999999999"] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.index().unwrap_err().kind(), ErrorKind::UnknownDevice, "{text:?}");
        }
    }

    struct Absent(&'static str);

    impl Backend for Absent {
        fn name(&self) -> &str {
            self.0
        }

        fn devices(&self) -> Result<Vec<DeviceInfo>> {
            Err(Error::new(ErrorKind::Unavailable, "devices", "no driver library"))
        }

        fn open(&self, _: &Selector) -> Result<Device> {
            self.devices()?;
            Err(unknown("never".to_owned()))
        }
    }

    #[test]
    fn an_unknown_backend_names_those_there_are() {
        let mut registry = DeviceRegistry::new();
        registry.register(Absent("a")).unwrap();
        registry.register(Absent("b")).unwrap();
        assert_eq!(registry.register(Absent("a")).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let error = registry.open("c:0").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownDevice);
        assert!(error.message().contains("a, b"), "{error}");
        registry.leave_out("d", "the feature `d` is off");
        let error = registry.open("d:1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownDevice);
        let message = "d:1: no backend \"d\": the feature `d` is off; there is a, b";
        assert_eq!(error.message(), message);
        registry.register(Absent("d")).unwrap();
        assert_eq!(registry.open("d:1").unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(registry.open("a").unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(registry.list().iter().all(|listing| listing.devices.is_err()));
    }
}
