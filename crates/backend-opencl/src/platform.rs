//! The platforms and devices of this machine, and their selection by a selector.

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;

use backend_support::lock;
use cl3::info_type::InfoType;
use opencl3::device::{
    CL_DEVICE_NAME, CL_DEVICE_PARENT_DEVICE, CL_DEVICE_TYPE, CL_DEVICE_TYPE_ACCELERATOR,
    CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_CUSTOM, CL_DEVICE_TYPE_GPU,
    CL_DEVICE_VERSION, get_device_data, get_device_ids, get_device_info,
};
use opencl3::error_codes::{
    CL_DEVICE_NOT_FOUND, CL_PLATFORM_NOT_FOUND_KHR, DLOPEN_FUNCTION_NOT_AVAILABLE,
    DLOPEN_RUNTIME_LOAD_FAILED,
};
use opencl3::platform::platform::{
    CL_PLATFORM_NAME, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION, get_platform_data, get_platform_ids,
};
use opencl3::types::{cl_device_id, cl_int, cl_platform_id};
use runtime_core::{DeviceKind, Error, ErrorKind, Result, Selector};

use crate::codes;

/// The minimum version of OpenCL that a device must support.
const LEAST_VERSION: (u32, u32) = (1, 2);

/// An installed implementation of OpenCL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    id: usize,
    pub(crate) name: String,
    pub(crate) vendor: String,
    pub(crate) version: String,
}

/// A device of a platform.
#[derive(Clone, Debug)]
pub(crate) struct DeviceEntry {
    /// Its index among the devices of all platforms.
    pub(crate) index: usize,
    pub(crate) platform: Platform,
    pub(crate) name: String,
    pub(crate) kind: DeviceKind,
    /// The supported major and minor version of OpenCL.
    pub(crate) version: (u32, u32),
    id: usize,
}

impl Platform {
    pub(crate) fn id(&self) -> cl_platform_id {
        ptr::with_exposed_provenance_mut::<c_void>(self.id)
    }

    /// Whether a word of a selector matches it.
    fn is_called(&self, word: &str) -> bool {
        [&self.name, &self.vendor].into_iter().any(|text| has_word(text, word))
    }
}

impl DeviceEntry {
    pub(crate) fn id(&self) -> cl_device_id {
        ptr::with_exposed_provenance_mut::<c_void>(self.id)
    }
}

/// Returns every device of every platform, in the loader's order.
///
/// A platform that fails is left out if another platform has devices.
///
/// # Errors
///
/// `Unavailable` if there is no loader, no platform or no device; the error says which. If no platform works, the error
/// that a platform reports.
pub(crate) fn discover() -> Result<Vec<DeviceEntry>> {
    // Some platforms initialize themselves at the first call. This is not safe if several threads call at once.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let one = lock(&ONE_AT_A_TIME);
    let mut left_out = Vec::new();
    let found = discover_alone(&mut left_out);
    drop(one);
    // Without the lock, because a subscriber may list devices too.
    for left_out in left_out {
        match left_out {
            LeftOut::Platform { error } => {
                tracing::warn!(error, "an OpenCL platform does not work");
            }
            LeftOut::Device { platform, version } => {
                tracing::warn!(platform, ?version, "a device is too old for this backend");
            }
        }
    }
    found
}

/// A device or platform that a list lacks, and the reason.
enum LeftOut {
    /// A platform that does not work.
    Platform { error: String },
    /// A device that is too old.
    Device { platform: String, version: (u32, u32) },
}

/// As [`discover`], while no other thread does. Emits no events.
fn discover_alone(left_out: &mut Vec<LeftOut>) -> Result<Vec<DeviceEntry>> {
    let platforms = get_platform_ids().map_err(unavailable)?;
    if platforms.is_empty() {
        return Err(unavailable(CL_PLATFORM_NOT_FOUND_KHR));
    }
    let mut found = Vec::new();
    let mut names = Vec::new();
    let mut broken = None;
    for id in platforms {
        match devices_of(id, found.len(), left_out) {
            Ok((platform, devices)) => {
                names.push(platform.name);
                found.extend(devices);
            }
            Err(error) => {
                left_out.push(LeftOut::Platform { error: error.to_string() });
                broken = Some(error);
            }
        }
    }
    match broken {
        _ if !found.is_empty() => Ok(found),
        Some(error) => Err(error),
        None => Err(Error::new(
            ErrorKind::Unavailable,
            "devices",
            format!("no OpenCL device; the platforms without any: {}", names.join(", ")),
        )
        .with_driver("CL_DEVICE_NOT_FOUND", CL_DEVICE_NOT_FOUND.into())),
    }
}

/// Returns the device of a driver's handle. The handle is one of the devices of all platforms, or a sub-device, which
/// has the index of its device.
///
/// # Errors
///
/// As for [`discover`]. `InvalidArgument` if this backend cannot use the device.
pub(crate) fn of_handle(id: cl_device_id) -> Result<DeviceEntry> {
    let whole = root(id);
    let found = discover()?.into_iter().find(|found| found.id() == whole).ok_or_else(|| {
        let message = format!("{id:p} is no device that this backend can use");
        Error::new(ErrorKind::InvalidArgument, "open", message)
    })?;
    Ok(DeviceEntry { id: id.expose_provenance(), ..found })
}

/// The device that a device of the driver is a part of, or the device itself.
pub(crate) fn root(id: cl_device_id) -> cl_device_id {
    match get_device_info(id, CL_DEVICE_PARENT_DEVICE) {
        Ok(InfoType::Ptr(parent)) if parent != 0 => {
            root(ptr::with_exposed_provenance_mut(parent.cast_unsigned()))
        }
        _ => id,
    }
}

/// The index of a device among those of all platforms.
pub(crate) fn index_of(id: usize) -> Option<usize> {
    let all = discover().ok()?;
    all.iter().find(|found| found.id == id).map(|found| found.index)
}

fn unavailable(code: cl_int) -> Error {
    let what = match code {
        DLOPEN_RUNTIME_LOAD_FAILED => "no OpenCL loader: libOpenCL.so.1 cannot be loaded",
        DLOPEN_FUNCTION_NOT_AVAILABLE => {
            "the library loaded as OpenCL loader has no clGetPlatformIDs; OPENCL_DYLIB_PATH may name something else"
        }
        CL_PLATFORM_NOT_FOUND_KHR => {
            "an OpenCL loader, but no platform: no driver is installed for it"
        }
        _ => "the OpenCL platforms cannot be listed",
    };
    codes::error("devices", code, what)
}

fn devices_of(
    id: cl_platform_id,
    first: usize,
    left_out: &mut Vec<LeftOut>,
) -> Result<(Platform, Vec<DeviceEntry>)> {
    let text = |what| {
        get_platform_data(id, what)
            .map(text)
            .map_err(|code| codes::error("devices", code, "a platform does not answer"))
    };
    let platform = Platform {
        id: id.expose_provenance(),
        name: text(CL_PLATFORM_NAME)?,
        vendor: text(CL_PLATFORM_VENDOR)?,
        version: text(CL_PLATFORM_VERSION)?,
    };
    let ids = match get_device_ids(id, CL_DEVICE_TYPE_ALL) {
        Ok(ids) => ids,
        Err(CL_DEVICE_NOT_FOUND) => Vec::new(),
        Err(code) => {
            return Err(codes::error("devices", code, format!("platform {}", platform.name)));
        }
    };
    let mut devices = Vec::new();
    for id in ids {
        let query = |what| {
            get_device_data(id, what).map_err(|code| {
                codes::error("devices", code, format!("a device of platform {}", platform.name))
            })
        };
        let bits = integer(&query(CL_DEVICE_TYPE)?);
        let kind = match bits {
            // Custom devices have fixed functions and cannot run kernels.
            _ if bits & CL_DEVICE_TYPE_CUSTOM != 0 => continue,
            _ if bits & CL_DEVICE_TYPE_GPU != 0 => DeviceKind::Gpu,
            _ if bits & CL_DEVICE_TYPE_ACCELERATOR != 0 => DeviceKind::Accelerator,
            _ if bits & CL_DEVICE_TYPE_CPU != 0 => DeviceKind::Cpu,
            _ => DeviceKind::Accelerator,
        };
        let version = version(&self::text(query(CL_DEVICE_VERSION)?));
        if version < LEAST_VERSION {
            left_out.push(LeftOut::Device { platform: platform.name.clone(), version });
            continue;
        }
        devices.push(DeviceEntry {
            index: first + devices.len(),
            platform: platform.clone(),
            name: self::text(query(CL_DEVICE_NAME)?),
            kind,
            version,
            id: id.expose_provenance(),
        });
    }
    Ok((platform, devices))
}

/// Returns the device that a selector names. Words for the kind, the platform or the device each narrow the choice. A
/// number selects among the remaining devices.
///
/// # Errors
///
/// `UnknownDevice` if a word matches nothing or the number is too large; the error lists the existing devices.
pub(crate) fn select(found: &[DeviceEntry], selector: &Selector) -> Result<DeviceEntry> {
    let (words, number) = match selector.parts() {
        [words @ .., last] if last.bytes().all(|b| b.is_ascii_digit()) => {
            let too_large = || unknown(selector, found, &format!("no number {last}"));
            (words, last.parse().map_err(|_| too_large())?)
        }
        words => (words, 0),
    };
    let mut left: Vec<&DeviceEntry> = found.iter().collect();
    for word in words {
        if word.trim().is_empty() {
            return Err(unknown(selector, found, "a blank is no word"));
        }
        if word.bytes().all(|b| b.is_ascii_digit()) {
            let why = format!("the number {word} is not the last part");
            return Err(unknown(selector, found, &why));
        }
        left = narrow(&left, &word.to_lowercase());
        if left.is_empty() {
            return Err(unknown(selector, found, &format!("nothing is called {word:?}")));
        }
    }
    match left.get(number) {
        Some(device) => Ok((*device).clone()),
        None => {
            let fit = match left.len() {
                0 => "no device fits".to_owned(),
                1 => "1 device fits, number 0".to_owned(),
                n => format!("{n} devices fit, numbers 0 to {}", n - 1),
            };
            Err(unknown(selector, found, &format!("no number {number}: {fit}")))
        }
    }
}

/// A word is compared with the kinds of devices first, then with platforms, and then with device names. Device names
/// come last because they can contain the name of a CPU vendor on any platform.
fn narrow<'a>(from: &[&'a DeviceEntry], word: &str) -> Vec<&'a DeviceEntry> {
    let those = |fits: &dyn Fn(&DeviceEntry) -> bool| -> Vec<&'a DeviceEntry> {
        from.iter().copied().filter(|found| fits(found)).collect()
    };
    if ["cpu", "gpu", "accelerator"].contains(&word) {
        return those(&|found| found.kind.name() == word);
    }
    let by_platform = those(&|found| found.platform.is_called(word));
    if by_platform.is_empty() {
        return those(&|found| has_word(&found.name, word));
    }
    by_platform
}

fn unknown(selector: &Selector, found: &[DeviceEntry], why: &str) -> Error {
    let list: Vec<String> = found
        .iter()
        .map(|f| format!("opencl:{} ({}, {} of {})", f.index, f.name, f.kind, f.platform.name))
        .collect();
    let message = format!("{selector}: {why}; there is {}", list.join(", "));
    Error::new(ErrorKind::UnknownDevice, "open", message)
}

/// Whether a text contains the word or words, in lower case, without a letter or digit before or after.
fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_lowercase();
    let ends = |(at, found): (usize, &str)| {
        let before = text[..at].chars().next_back();
        let after = text[at + found.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    };
    text.match_indices(word).any(ends)
}

/// Converts a text from the driver: it has a NUL at the end, and possibly blanks at both ends.
pub(crate) fn text(bytes: Vec<u8>) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

/// Converts an integer from the driver, of any size.
pub(crate) fn integer(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    let len = bytes.len().min(8);
    if cfg!(target_endian = "little") {
        wide[..len].copy_from_slice(&bytes[..len]);
    } else {
        wide[8 - len..].copy_from_slice(&bytes[..len]);
    }
    u64::from_ne_bytes(wide)
}

/// The version in a text such as `OpenCL 3.0 PoCL …`; 1.0 if the text has no version.
pub(crate) fn version(text: &str) -> (u32, u32) {
    let parse = |word: &str| {
        let (major, minor) = word.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    text.split_whitespace().find_map(parse).unwrap_or((1, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Vec<DeviceEntry> {
        let platform = |name: &str, vendor: &str| Platform {
            id: 0,
            name: name.to_owned(),
            vendor: vendor.to_owned(),
            version: "OpenCL 3.0".to_owned(),
        };
        let pocl = platform("Portable Computing Language", "The pocl project");
        let intel = platform("Intel(R) OpenCL", "Intel(R) Corporation");
        let nvidia = platform("NVIDIA CUDA", "NVIDIA Corporation");
        let device = |index, platform: &Platform, name: &str, kind| DeviceEntry {
            index,
            platform: platform.clone(),
            name: name.to_owned(),
            kind,
            version: (3, 0),
            id: 0,
        };
        vec![
            device(0, &pocl, "pthread-Intel(R) Xeon(R)", DeviceKind::Cpu),
            device(1, &pocl, "pthread-Intel(R) Xeon(R)", DeviceKind::Cpu),
            device(2, &intel, "Intel(R) Xeon(R)", DeviceKind::Cpu),
            device(3, &nvidia, "Tesla T4", DeviceKind::Gpu),
        ]
    }

    fn index(selector: &str) -> Result<usize> {
        select(&found(), &selector.parse()?).map(|found| found.index)
    }

    #[test]
    fn each_word_of_a_selector_narrows_the_choice() {
        for (selector, expected) in [
            ("opencl", 0),
            ("opencl:3", 3),
            ("opencl:pocl:1", 1),
            ("opencl:intel", 2),
            ("opencl:gpu:0", 3),
            ("opencl:cpu:2", 2),
            ("opencl:Tesla T4", 3),
            ("opencl:NVIDIA:gpu:0", 3),
        ] {
            assert_eq!(index(selector).unwrap(), expected, "{selector}");
        }
    }

    #[test]
    fn the_error_of_a_selector_without_match_lists_the_devices() {
        for selector in [
            "opencl:4",
            "opencl:pocl:2",
            "opencl:amd:0",
            "opencl:gpu:pocl:0",
            "opencl:0:1",
            "opencl:0:pocl",
            "opencl:p:0",
            "opencl: ",
            "opencl:Tesla T",
        ] {
            let error = index(selector).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownDevice, "{selector}");
            assert!(error.message().contains("opencl:3 (Tesla T4"), "{error}");
        }
        assert!(index("opencl:99999999999999999999").is_err());
        for (selector, why) in [
            (
                "opencl:7",
                "opencl:7: no number 7: 4 devices fit, numbers 0 to 3; there is opencl:0 (",
            ),
            ("opencl:gpu:1", "opencl:gpu:1: no number 1: 1 device fits, number 0; there is"),
        ] {
            let error = index(selector).unwrap_err();
            assert!(error.message().starts_with(why), "{error}");
        }
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(version("OpenCL 3.0 PoCL HSTR: x"), (3, 0));
        assert_eq!(version("OpenCL C 1.2 PoCL"), (1, 2));
        assert_eq!(version(""), (1, 0));
    }

    #[test]
    fn integers_of_any_size() {
        assert_eq!(integer(&7_u32.to_ne_bytes()), 7);
        assert_eq!(integer(&(1_u64 << 40).to_ne_bytes()), 1 << 40);
    }
}
