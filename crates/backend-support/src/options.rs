//! Reading the options of a selector, for backends that take the same kinds of values.

use runtime_core::{Error, ErrorKind, Result};

/// The value of an option that is `on` or `off`.
///
/// # Errors
///
/// `InvalidArgument` for another value.
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

/// The error of a value that an option does not take: `InvalidArgument`, naming it and what is `admitted`.
pub fn refused(option: &str, value: &str, admitted: &str) -> Error {
    let message = format!("{option}={value}: not {admitted}");
    Error::new(ErrorKind::InvalidArgument, "open", message)
}
