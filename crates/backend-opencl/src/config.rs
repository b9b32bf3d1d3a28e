//! How a device is opened.

use std::fmt;
use std::path::PathBuf;

use backend_support::options::{BuildOptions, refused};
use runtime_core::{Error, ErrorKind, Result};

/// What a device's memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryKind {
    /// Unified shared memory where the platform has it, else buffers.
    #[default]
    Auto,
    /// Memory objects (`cl_mem`).
    Buffer,
    /// Shared virtual memory of OpenCL 2.
    Svm,
    /// Device memory of `cl_intel_unified_shared_memory`.
    Usm,
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Buffer => "buffer",
            Self::Svm => "svm",
            Self::Usm => "usm",
        })
    }
}

/// How work-items share the elements of a region copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegionMapping {
    /// Runs on processors, lanes on everything else.
    #[default]
    Auto,
    /// A work-item moves consecutive elements.
    Runs,
    /// Neighbouring work-items move neighbouring elements.
    Lanes,
}

/// How a device is opened; the options of a selector: `opencl:0?memory=svm&cache=off`.
///
/// | option | values | effect |
/// |---|---|---|
/// | `memory` | `auto`, `buffer`, `svm`, `usm` | [`MemoryKind`] |
/// | `regions` | `auto`, `runs`, `lanes` | [`RegionMapping`] |
/// | `options` | text | compiler options for every module, before the module's own |
/// | `cache` | `on`, `off` | whether built programs are kept on disk; those whose source includes files never are |
/// | `cache-dir` | folder | where; the user's cache folder otherwise |
/// | `work-dir` | folder | puts source, options, log and binary of each module there, in a private folder that is removed with the module; nothing is taken from the cache then |
/// | `keep` | `on`, `off` | leaves those folders behind; only with `work-dir` |
/// | `verbose` | `on`, `off` | compiler logs of successful builds as `tracing` events of level `INFO` instead of `DEBUG` |
///
/// ```
/// use backend_opencl::{MemoryKind, OpenClConfig};
///
/// let config = OpenClConfig::new().set("memory", "svm")?.set("cache", "off")?;
/// assert_eq!(config.memory, MemoryKind::Svm);
/// assert!(OpenClConfig::new().set("memory", "paper").is_err());
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenClConfig {
    /// What memory is made of.
    pub memory: MemoryKind,
    /// How work-items share region copies.
    pub regions: RegionMapping,
    /// Compiler options for every module that is built from source, before the module's own.
    pub build_options: String,
    /// Whether built programs are kept on disk.
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

impl OpenClConfig {
    /// The defaults: `memory=auto`, `regions=auto`, `cache=on`, no intermediates.
    pub fn new() -> Self {
        Self {
            memory: MemoryKind::Auto,
            regions: RegionMapping::Auto,
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
        match option {
            "memory" => {
                self.memory = match value {
                    "auto" => MemoryKind::Auto,
                    "buffer" => MemoryKind::Buffer,
                    "svm" => MemoryKind::Svm,
                    "usm" => MemoryKind::Usm,
                    _ => return Err(refused(option, value, "auto, buffer, svm or usm")),
                }
            }
            "regions" => {
                self.regions = match value {
                    "auto" => RegionMapping::Auto,
                    "runs" => RegionMapping::Runs,
                    "lanes" => RegionMapping::Lanes,
                    _ => return Err(refused(option, value, "auto, runs or lanes")),
                }
            }
            _ if self.build_options_mut().set(option, value)? => {}
            _ => {
                let message = format!(
                    "no option {option:?}; an OpenCL device takes memory, regions, options, cache, cache-dir, work-dir, keep and verbose"
                );
                return Err(Error::new(ErrorKind::UnknownDevice, "open", message));
            }
        }
        Ok(self)
    }

    pub(crate) fn build_options_mut(&mut self) -> BuildOptions<'_> {
        BuildOptions {
            options: &mut self.build_options,
            cache: &mut self.cache,
            cache_dir: &mut self.cache_dir,
            work_dir: &mut self.work_dir,
            keep: &mut self.keep,
            verbose: &mut self.verbose,
        }
    }
}

impl Default for OpenClConfig {
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
            ("memory", "paper", ErrorKind::InvalidArgument),
            ("regions", "rows", ErrorKind::InvalidArgument),
            ("cache", "yes", ErrorKind::InvalidArgument),
            ("work-dir", "", ErrorKind::InvalidArgument),
            ("platform", "x", ErrorKind::UnknownDevice),
        ] {
            let error = OpenClConfig::new().set(option, value).unwrap_err();
            assert_eq!(error.kind(), kind, "{option}");
            assert!(error.message().contains(option), "{error}");
        }
    }
}
