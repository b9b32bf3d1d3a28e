//! How a device is opened.

use std::path::PathBuf;

use backend_support::options::{refused, switch};
use runtime_core::{Error, ErrorKind, Result};

/// Where device memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// A memory pool of the runtime where the device has them, else a cache.
    #[default]
    Auto,
    /// A memory pool of the runtime, in which allocating and freeing are ordered with streams.
    Driver,
    /// Plain allocations, of which 1 GiB at most is kept to be used again.
    Cache,
}

/// How a device is opened; the options of a selector: `hip:0?pool=cache&cache=off`.
///
/// | option | values | effect |
/// |---|---|---|
/// | `pool` | `auto`, `driver`, `cache` | [`PoolKind`] |
/// | `options` | text | compiler options for every module of HIP C, before the module's own |
/// | `cache` | `on`, `off` | whether compiled programs are kept on disk; those whose source includes files never are |
/// | `cache-dir` | folder | where; the user's cache folder otherwise |
/// | `work-dir` | folder | puts source, options, log and results of each module there, in a private folder that is removed with the module; nothing is taken from the cache then |
/// | `keep` | `on`, `off` | leaves those folders behind; only with `work-dir` |
/// | `verbose` | `on`, `off` | compiler logs of successful builds as `tracing` events of level `INFO` instead of `DEBUG` |
///
/// ```
/// use backend_hip::{HipConfig, PoolKind};
///
/// let config = HipConfig::new().set("pool", "cache")?.set("cache", "off")?;
/// assert_eq!(config.pool, PoolKind::Cache);
/// assert!(HipConfig::new().set("pool", "paper").is_err());
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HipConfig {
    /// Where device memory comes from.
    pub pool: PoolKind,
    /// Compiler options for every module of HIP C, before the module's own.
    pub build_options: String,
    /// Whether compiled programs are kept on disk.
    pub cache: bool,
    /// Where they are kept; in the user's cache folder if `None`.
    pub cache_dir: Option<PathBuf>,
    /// Where intermediates of builds are put; nowhere if `None`.
    pub work_dir: Option<PathBuf>,
    /// Whether intermediates are left behind when their module is unloaded.
    pub keep: bool,
    /// Whether compiler logs of successful builds are worth a `tracing` event of level `INFO`.
    pub verbose: bool,
}

impl HipConfig {
    /// The defaults: `pool=auto`, `cache=on`, no intermediates.
    pub fn new() -> Self {
        Self {
            pool: PoolKind::Auto,
            build_options: String::new(),
            cache: true,
            cache_dir: None,
            work_dir: None,
            keep: false,
            verbose: false,
        }
    }

    /// Sets one option from text, as a selector gives it.
    ///
    /// # Errors
    ///
    /// `UnknownDevice` for an option that does not exist, `InvalidArgument` for a value it does not take.
    pub fn set(mut self, option: &str, value: &str) -> Result<Self> {
        let folder = || Some(PathBuf::from(value));
        match option {
            "pool" => {
                self.pool = match value {
                    "auto" => PoolKind::Auto,
                    "driver" => PoolKind::Driver,
                    "cache" => PoolKind::Cache,
                    _ => return Err(refused(option, value, "auto, driver or cache")),
                }
            }
            "options" => value.clone_into(&mut self.build_options),
            "cache" => self.cache = switch(option, value)?,
            "cache-dir" if !value.is_empty() => self.cache_dir = folder(),
            "work-dir" if !value.is_empty() => self.work_dir = folder(),
            "cache-dir" | "work-dir" => return Err(refused(option, value, "a folder")),
            "keep" => self.keep = switch(option, value)?,
            "verbose" => self.verbose = switch(option, value)?,
            _ => {
                let message = format!(
                    "no option {option:?}; a HIP device takes pool, options, cache, cache-dir, work-dir, keep and verbose"
                );
                return Err(Error::new(ErrorKind::UnknownDevice, "open", message));
            }
        }
        Ok(self)
    }
}

impl Default for HipConfig {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_options_name_what_is_wrong() {
        for (option, value, kind) in [
            ("pool", "paper", ErrorKind::InvalidArgument),
            ("cache", "yes", ErrorKind::InvalidArgument),
            ("work-dir", "", ErrorKind::InvalidArgument),
            ("memory", "x", ErrorKind::UnknownDevice),
        ] {
            let error = HipConfig::new().set(option, value).unwrap_err();
            assert_eq!(error.kind(), kind, "{option}");
            assert!(error.message().contains(option), "{error}");
        }
    }
}
