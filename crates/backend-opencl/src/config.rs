//! The options with which a device is opened.

use std::fmt;
use std::path::PathBuf;

use backend_support::options::{BuildOptions, refused};
use runtime_core::{Error, ErrorKind, Result};

/// The kind of memory that a device allocates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryKind {
    /// Unified shared memory if the device has it, otherwise buffers.
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

/// How work-items divide the elements of a region copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegionMapping {
    /// Runs on CPUs, lanes on all other devices.
    #[default]
    Auto,
    /// Each work-item copies consecutive elements.
    Runs,
    /// Neighbouring work-items copy neighbouring elements.
    Lanes,
}

/// The options with which a device is opened. A selector can set them: `opencl:0?memory=svm&cache=off`.
///
/// | option | values | effect |
/// |---|---|---|
/// | `memory` | `auto`, `buffer`, `svm`, `usm` | [`MemoryKind`] |
/// | `regions` | `auto`, `runs`, `lanes` | [`RegionMapping`] |
/// | `options` | text | compiler options for every module, before the module's own |
/// | `cache` | `on`, `off` | whether built programs are kept on disk; programs whose source includes files or has assembly never are |
/// | `cache-dir` | folder | the cache folder; by default in the user's cache folder |
/// | `work-dir` | folder | writes source, options, log and binary of each module to a private folder there, which is removed with the module; the cache is not used then |
/// | `keep` | `on`, `off` | does not remove these folders; only with `work-dir` |
/// | `verbose` | `on`, `off` | emits logs of successful builds as `tracing` events of level `INFO` instead of `DEBUG` |
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
    /// The kind of memory.
    pub memory: MemoryKind,
    /// How work-items divide region copies.
    pub regions: RegionMapping,
    /// Compiler options for every module that is built from source, before the module's own.
    pub build_options: String,
    /// Whether built programs are cached on disk.
    pub cache: bool,
    /// The cache folder. If `None`, it is `device-runtime/opencl` in the user's cache folder.
    pub cache_dir: Option<PathBuf>,
    /// The folder for intermediate files of builds. If `None`, they are not written.
    pub work_dir: Option<PathBuf>,
    /// Whether intermediate files are kept when their module is unloaded.
    pub keep: bool,
    /// Whether compiler logs of successful builds are emitted as `tracing` events of level `INFO`.
    pub verbose: bool,
}

impl OpenClConfig {
    /// The defaults: `memory=auto`, `regions=auto`, `cache=on`, no intermediate files.
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

    /// Sets one option from text, as it occurs in a selector.
    ///
    /// # Errors
    ///
    /// `UnknownDevice` for an option that does not exist. `InvalidArgument` for a value that the option does not
    /// accept.
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
    fn errors_of_options_name_the_option_and_the_value() {
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
