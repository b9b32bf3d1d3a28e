//! Parsing of selector options, for backends with options of the same kinds.

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
