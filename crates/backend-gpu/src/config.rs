//! The options for opening a device.

use std::marker::PhantomData;
use std::path::PathBuf;

use backend_support::options::{BuildOptions, refused};
use runtime_core::{Error, ErrorKind, Result};

use crate::vendor::Vendor;

/// The source of device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// A memory pool of the library if the device supports pools, otherwise a cache.
    #[default]
    Auto,
    /// A memory pool of the library, which orders allocations and frees with streams.
    Driver,
    /// Plain allocations, of which at most 1 GiB is kept for reuse.
    Cache,
}

/// The options for opening a device. A selector can set them: `cuda:0?pool=cache&cache=off`.
///
/// | option | values | effect |
/// |---|---|---|
/// | `pool` | `auto`, `driver`, `cache` | [`PoolKind`] |
/// | `gates` | `off`, `on` | whether the device has [gates](Self::gates) |
/// | `options` | text | compiler options for every module that is compiled, before the module's own |
/// | `cache` | `on`, `off` | whether compiled programs are kept on disk; a program whose source or options read files, or whose source has assembly, is never kept |
/// | `cache-dir` | folder | the folder for compiled programs; the default is in the user's cache folder |
/// | `work-dir` | folder | puts source, options, log and results of each module into a private folder there, which is removed with the module; the cache is then not used |
/// | `keep` | `on`, `off` | whether these folders are kept; only with `work-dir` |
/// | `verbose` | `on`, `off` | whether compiler logs of successful builds are `tracing` events of level `INFO` instead of `DEBUG` |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config<V: Vendor> {
    /// The source of device memory.
    pub pool: PoolKind,
    /// Whether the device has gates. A device whose streams cannot wait for the host is then refused. Off by default:
    /// the library does not see which work a gate holds up, and its documentation warns of deadlocks.
    pub gates: bool,
    /// Compiler options for every module that is compiled, before the module's own.
    pub build_options: String,
    /// Whether compiled programs are kept on disk.
    pub cache: bool,
    /// The folder for compiled programs. `None` means the user's cache folder.
    pub cache_dir: Option<PathBuf>,
    /// The folder for intermediate files of builds. `None` means that they are not kept.
    pub work_dir: Option<PathBuf>,
    /// Whether intermediate files stay when their module is unloaded.
    pub keep: bool,
    /// Whether compiler logs of successful builds are `tracing` events of level `INFO` instead of `DEBUG`.
    pub verbose: bool,
    vendor: PhantomData<V>,
}

impl<V: Vendor> Config<V> {
    /// Returns the defaults: `pool=auto`, `cache=on`, no intermediate files.
    pub fn new() -> Self {
        Self {
            pool: PoolKind::Auto,
            gates: false,
            build_options: String::new(),
            cache: true,
            cache_dir: None,
            work_dir: None,
            keep: false,
            verbose: false,
            vendor: PhantomData,
        }
    }

    /// Sets one option from text, in the form that a selector uses.
    ///
    /// # Errors
    ///
    /// `UnknownDevice` for an option that does not exist, `InvalidArgument` for a value that the option does not take.
    pub fn set(mut self, option: &str, value: &str) -> Result<Self> {
        if option == "pool" {
            self.pool = match value {
                "auto" => PoolKind::Auto,
                "driver" => PoolKind::Driver,
                "cache" => PoolKind::Cache,
                _ => return Err(refused(option, value, "auto, driver or cache")),
            };
        } else if option == "gates" {
            self.gates = match value {
                "off" => false,
                "on" => true,
                _ => return Err(refused(option, value, "off or on")),
            };
        } else if !self.build_options_mut().set(option, value)? {
            let message = format!(
                "no option {option:?}; a {} device takes pool, gates, options, cache, cache-dir, work-dir, keep and verbose",
                V::WORDS.interface
            );
            return Err(Error::new(ErrorKind::UnknownDevice, "open", message));
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

impl<V: Vendor> Default for Config<V> {
    fn default() -> Self {
        Self::new()
    }
}
