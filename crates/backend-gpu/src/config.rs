//! How a device is opened.

use std::marker::PhantomData;
use std::path::PathBuf;

use backend_support::options::{BuildOptions, refused};
use runtime_core::{Error, ErrorKind, Result};

use crate::vendor::Vendor;

/// Where device memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// A memory pool of the library where the device has them, else a cache.
    #[default]
    Auto,
    /// A memory pool of the library, in which allocating and freeing are ordered with streams.
    Driver,
    /// Plain allocations, of which 1 GiB at most is kept to be used again.
    Cache,
}

/// How a device is opened; the options of a selector: `cuda:0?pool=cache&cache=off`.
///
/// | option | values | effect |
/// |---|---|---|
/// | `pool` | `auto`, `driver`, `cache` | [`PoolKind`] |
/// | `options` | text | compiler options for every module that is compiled, before the module's own |
/// | `cache` | `on`, `off` | whether compiled programs are kept on disk; those whose source includes files never are |
/// | `cache-dir` | folder | where; the user's cache folder otherwise |
/// | `work-dir` | folder | puts source, options, log and results of each module there, in a private folder that is removed with the module; nothing is taken from the cache then |
/// | `keep` | `on`, `off` | leaves those folders behind; only with `work-dir` |
/// | `verbose` | `on`, `off` | compiler logs of successful builds as `tracing` events of level `INFO` instead of `DEBUG` |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config<V: Vendor> {
    /// Where device memory comes from.
    pub pool: PoolKind,
    /// Compiler options for every module that is compiled, before the module's own.
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
    vendor: PhantomData<V>,
}

impl<V: Vendor> Config<V> {
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
            vendor: PhantomData,
        }
    }

    /// Sets one option from text, as a selector gives it.
    ///
    /// # Errors
    ///
    /// `UnknownDevice` for an option that does not exist, `InvalidArgument` for a value it does not take.
    pub fn set(mut self, option: &str, value: &str) -> Result<Self> {
        if option == "pool" {
            self.pool = match value {
                "auto" => PoolKind::Auto,
                "driver" => PoolKind::Driver,
                "cache" => PoolKind::Cache,
                _ => return Err(refused(option, value, "auto, driver or cache")),
            };
        } else if !self.build_options_mut().set(option, value)? {
            let message = format!(
                "no option {option:?}; a {} device takes pool, options, cache, cache-dir, work-dir, keep and verbose",
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
