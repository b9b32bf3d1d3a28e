//! Building modules: the cache of what was built before, and the folders for people who look at builds.

use std::fs;

use runtime_core::{DeviceId, Error, ErrorKind, Result};
use tempfile::TempDir;

use crate::options::BuildOptions;
use crate::{CacheKey, DiskCache};

/// How the modules of a device are built, as its options say.
#[derive(Debug)]
pub struct Builds {
    id: DeviceId,
    cache: Option<DiskCache>,
    work_dir: Option<std::path::PathBuf>,
    keep: bool,
    verbose: bool,
}

/// A private folder with what a module was built from and what came out, which is removed with this, unless a user
/// keeps it.
#[derive(Debug)]
pub struct Intermediates(TempDir);

impl Builds {
    /// Reads `options`, for a device of the backend that its identity names.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a folder that cannot be made, and where there is nothing to keep.
    pub fn new(id: &DeviceId, options: &BuildOptions<'_>) -> Result<Self> {
        let refuse = |message: String| Error::new(ErrorKind::InvalidArgument, "open", message);
        match &*options.work_dir {
            Some(folder) => fs::create_dir_all(folder).map_err(|error| {
                refuse(format!("work-dir={}: the folder cannot be created", folder.display()))
                    .with_source(error)
            })?,
            None if *options.keep => {
                return Err(refuse("keep=on: nothing to keep without work-dir".to_owned()));
            }
            None => {}
        }
        let cache = match &*options.cache_dir {
            _ if !*options.cache => None,
            Some(folder) => Some(DiskCache::new(folder)),
            None => DiskCache::of_user(id.backend()),
        };
        let (work_dir, keep, verbose) = (options.work_dir.clone(), *options.keep, *options.verbose);
        Ok(Self { id: id.clone(), cache, work_dir, keep, verbose })
    }

    /// The cache of programs that were built before, if it is on.
    pub fn cache(&self) -> Option<&DiskCache> {
        self.cache.as_ref()
    }

    /// Puts what was built into the cache. That this cannot be done costs time alone.
    pub fn keep(&self, key: &CacheKey, content: &[u8]) {
        if let Some(cache) = &self.cache
            && let Err(error) = cache.put(key, content)
        {
            tracing::warn!(%error, folder = %cache.folder().display(), "a program could not be cached");
        }
    }

    /// A folder with these files, if a user wants one.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` where none can be made.
    pub fn intermediates(&self, files: &[(&str, &[u8])]) -> Result<Option<Intermediates>> {
        let Some(parent) = &self.work_dir else { return Ok(None) };
        let prefix = format!("{}-", self.id.backend());
        let mut named = tempfile::Builder::new();
        named.prefix(&prefix);
        #[cfg(unix)]
        named.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let mut folder = named.tempdir_in(parent).map_err(|error| {
            let message = format!("no folder for intermediates in {}", parent.display());
            Error::new(ErrorKind::InvalidArgument, "module_load", message).with_source(error)
        })?;
        folder.disable_cleanup(self.keep);
        let folder = Intermediates(folder);
        files.iter().for_each(|(name, content)| folder.write(name, content));
        Ok(Some(folder))
    }

    /// Tells what a compiler said of a program that it built.
    pub fn report(&self, log: &str) {
        match (log.is_empty(), self.verbose) {
            (true, _) => {}
            (false, true) => tracing::info!(device = %self.id, log, "compiler log"),
            (false, false) => tracing::debug!(device = %self.id, log, "compiler log"),
        }
    }
}

impl Intermediates {
    /// Writes a file. It is for people to look at: one that cannot be written does not fail the build.
    pub fn write(&self, name: &str, content: &[u8]) {
        if let Err(error) = fs::write(self.0.path().join(name), content) {
            tracing::warn!(%error, name, "an intermediate could not be written");
        }
    }
}

/// Whatever a library calls it, code that it does not take is an invalid module: the error of a library's code, with
/// that kind and what it is `about`, unless its own kind says more.
pub fn not_taken(error: Error, about: &str, id: &DeviceId) -> Error {
    match (error.kind(), error.driver()) {
        (ErrorKind::OutOfMemory | ErrorKind::DeviceLost | ErrorKind::InvalidModule, _)
        | (_, None) => error,
        (_, Some(driver)) => Error::new(ErrorKind::InvalidModule, "module_load", about)
            .with_driver(driver.name.clone(), driver.code)
            .on(id),
    }
}

/// The line of a compiler's log that says most.
pub fn headline(log: &str) -> &str {
    let is_error = |line: &&str| line.to_ascii_lowercase().contains("error");
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.clone().find(is_error).or_else(|| lines.next()).unwrap_or("the compiler printed nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logs_headline_is_its_first_error() {
        let log = "program.cu(1): warning #1: a\nprogram.cu(2): error: b\n1 error detected\n";
        assert_eq!(headline(log), "program.cu(2): error: b");
        assert_eq!(headline("Invalid build option: -x"), "Invalid build option: -x");
        assert_eq!(headline("\n"), "the compiler printed nothing");
    }
}
