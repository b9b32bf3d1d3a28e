//! Parsing of selector options, for backends with options of the same kinds.

use std::path::PathBuf;

use runtime_core::{Error, ErrorKind, Result};

/// Parses the value of an option that is `on` or `off`.
///
/// # Errors
///
/// `InvalidArgument` for any other value.
///
/// ```
/// use backend_support::options::switch;
///
/// assert!(switch("cache", "on")?);
/// assert!(switch("cache", "perhaps").is_err());
/// # Ok::<(), runtime_core::Error>(())
/// ```
pub fn switch(option: &str, value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(refused(option, value, "on or off")),
    }
}

/// The error for an invalid option value: `InvalidArgument`, naming the value and the `admitted` values.
pub fn refused(option: &str, value: &str, admitted: &str) -> Error {
    let message = format!("{option}={value}: not {admitted}");
    Error::new(ErrorKind::InvalidArgument, "open", message)
}

/// The options of a device that builds modules.
#[derive(Debug)]
pub struct BuildOptions<'a> {
    /// `options`: those of the compiler for every module.
    pub options: &'a mut String,
    /// `cache`: whether what is built is kept on disk.
    pub cache: &'a mut bool,
    /// `cache-dir`: where; in the user's cache folder if `None`.
    pub cache_dir: &'a mut Option<PathBuf>,
    /// `work-dir`: where intermediates are put; nowhere if `None`.
    pub work_dir: &'a mut Option<PathBuf>,
    /// `keep`: whether intermediates are left behind.
    pub keep: &'a mut bool,
    /// `verbose`: whether logs of successful builds are worth an event of level `INFO`.
    pub verbose: &'a mut bool,
}

impl BuildOptions<'_> {
    /// Sets one option from text; `false` for one that is not among these.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a value that the option does not take.
    pub fn set(&mut self, option: &str, value: &str) -> Result<bool> {
        let folder = || match value {
            "" => Err(refused(option, value, "a folder")),
            folder => Ok(Some(PathBuf::from(folder))),
        };
        match option {
            "options" => value.clone_into(self.options),
            "cache" => *self.cache = switch(option, value)?,
            "cache-dir" => *self.cache_dir = folder()?,
            "work-dir" => *self.work_dir = folder()?,
            "keep" => *self.keep = switch(option, value)?,
            "verbose" => *self.verbose = switch(option, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}
