//! The single error type of the workspace.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::DeviceId;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The class of a failure. A caller can act on it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The backend cannot be used on this machine: no driver library, no device, or the driver is too old. A test may
    /// be skipped only for this kind.
    Unavailable,
    /// The selector names no known backend, device or option.
    UnknownDevice,
    /// The device, or its pinned host memory, has no room for the request.
    OutOfMemory,
    /// The operation does not accept this value: a size, type, shape, alignment or launch geometry.
    InvalidArgument,
    /// The operation needs an ability that the device lacks: see [`Capabilities`](crate::Capabilities).
    Unsupported,
    /// The range extends beyond the memory or view that it addresses.
    OutOfBounds,
    /// The object belongs to another opened device.
    WrongDevice,
    /// A view bound to one stream was used on another stream.
    WrongStream,
    /// The device does not support the module image, or the image does not compile.
    InvalidModule,
    /// The module has no kernel of that name.
    KernelNotFound,
    /// The time limit expired. The work continues.
    Timeout,
    /// The device stopped its program because of a fault: a bad address, a trap, or a panic in a host function.
    DeviceFault,
    /// The device no longer responds. Every later call on this opened instance returns this kind again. An embedded
    /// device can be reset.
    DeviceLost,
    /// A rank that this rank communicates with has ended, or the connection to it is broken. Every later call on this
    /// communicator that needs that rank returns this kind again.
    PeerLost,
    /// Any other failure that the driver reported.
    Driver,
    /// The operation reads values that were never written.
    Uninitialized,
    /// The operation reads values whose last write failed. A complete overwrite makes them valid again.
    Poisoned,
    /// The operation reads values that are out of date until they are exchanged with the values they depend on.
    Stale,
    /// The requested resource is in use elsewhere.
    Conflict,
    /// The operation would exceed a limit that the program set itself.
    LimitExceeded,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "unavailable",
            Self::UnknownDevice => "unknown device",
            Self::OutOfMemory => "out of memory",
            Self::InvalidArgument => "invalid argument",
            Self::Unsupported => "unsupported",
            Self::OutOfBounds => "out of bounds",
            Self::WrongDevice => "wrong device",
            Self::WrongStream => "wrong stream",
            Self::InvalidModule => "invalid module",
            Self::KernelNotFound => "kernel not found",
            Self::Timeout => "timeout",
            Self::DeviceFault => "device fault",
            Self::DeviceLost => "device lost",
            Self::PeerLost => "peer lost",
            Self::Driver => "driver error",
            Self::Uninitialized => "uninitialized",
            Self::Poisoned => "poisoned",
            Self::Stale => "stale",
            Self::Conflict => "conflict",
            Self::LimitExceeded => "limit exceeded",
        })
    }
}

/// A vendor's own error code with its symbolic name, such as `CUDA_ERROR_OUT_OF_MEMORY (2)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCode {
    /// The name in the vendor's headers.
    pub name: Cow<'static, str>,
    /// The number the driver returned.
    pub code: i64,
}

impl fmt::Display for DriverCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.code)
    }
}

/// A failed operation: its kind, the operation, the device, the vendor's code and the cause, as far as they are known.
///
/// Displays as one line: `operation on device: kind: message [driver code]`. A compiler's log is not part of the line;
/// see [`log`](Self::log).
///
/// ```
/// use runtime_core::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::OutOfBounds, "copy_to_slice", "bytes 8..24 of a 16-byte view");
/// assert_eq!(error.kind(), ErrorKind::OutOfBounds);
/// assert_eq!(error.to_string(), "copy_to_slice: out of bounds: bytes 8..24 of a 16-byte view");
/// ```
#[derive(Clone, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Box<Detail>);

// Private, so that a `Result<()>` stays one machine word and fields can be added.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.line())]
struct Detail {
    kind: ErrorKind,
    operation: Cow<'static, str>,
    message: String,
    device: Option<DeviceId>,
    driver: Option<DriverCode>,
    log: Option<String>,
    earlier: bool,
    refused_wait: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Detail {
    fn line(&self) -> String {
        let mut line = self.operation.to_string();
        if let Some(device) = &self.device {
            line += &format!(" on {device}");
        }
        line += &format!(": {}: {}", self.kind, self.message);
        if let Some(driver) = &self.driver {
            line += &format!(" [{driver}]");
        }
        line
    }
}

impl Error {
    /// Creates an error of `kind` in `operation`. `message` names the offending value and the limit.
    #[cold]
    pub fn new(
        kind: ErrorKind,
        operation: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self(Box::new(Detail {
            kind,
            operation: operation.into(),
            message: message.into(),
            device: None,
            driver: None,
            log: None,
            earlier: false,
            refused_wait: false,
            source: None,
        }))
    }

    /// Adds the device on which the error occurred, unless the error names one already.
    #[must_use]
    pub fn on(mut self, device: &DeviceId) -> Self {
        self.0.device.get_or_insert_with(|| device.clone());
        self
    }

    /// Puts the subject in front of the message: `rank 1: 8 bytes for 4`.
    #[must_use]
    pub fn about(mut self, what: impl fmt::Display) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    /// Adds the driver's own code and its symbolic name.
    #[must_use]
    pub fn with_driver(mut self, name: impl Into<Cow<'static, str>>, code: i64) -> Self {
        self.0.driver = Some(DriverCode { name: name.into(), code });
        self
    }

    /// Adds the log of a compiler or loader, unless it is blank.
    #[must_use]
    pub fn with_log(mut self, log: impl Into<String>) -> Self {
        self.0.log = Some(log.into()).filter(|log| !log.trim().is_empty());
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Says that it is a failure of work enqueued before the operation that reports it.
    #[must_use]
    pub(crate) fn of_earlier_work(mut self) -> Self {
        self.0.earlier = true;
        self
    }

    /// Whether it is known to be a failure of work enqueued before the operation that reports it.
    pub fn is_of_earlier_work(&self) -> bool {
        self.0.earlier || matches!(self.kind(), ErrorKind::DeviceFault | ErrorKind::DeviceLost)
    }

    /// Says that a wait was refused because it would never end. For implementors of devices whose kernels can wait.
    #[must_use]
    pub fn of_refused_wait(mut self) -> Self {
        self.0.refused_wait = true;
        self
    }

    /// Whether a wait was refused because it would never end: a kernel may not wait for the stream that it runs on. No
    /// work has failed.
    pub fn is_refused_wait(&self) -> bool {
        self.0.refused_wait
    }

    /// The kind of the error, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed.
    pub fn operation(&self) -> &str {
        &self.0.operation
    }

    /// A description of the failure.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The device on which the error occurred, if a device was involved.
    pub fn device(&self) -> Option<&DeviceId> {
        self.0.device.as_ref()
    }

    /// The vendor's own code, if a driver reported one.
    pub fn driver(&self) -> Option<&DriverCode> {
        self.0.driver.as_ref()
    }

    /// The log of the compiler or loader that refused a module, if there is any output.
    pub fn log(&self) -> Option<&str> {
        self.0.log.as_deref()
    }
}

impl AsRef<dyn std::error::Error + Send + Sync> for Error {
    fn as_ref(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        self
    }
}

impl fmt::Debug for Error {
    /// Writes the line, the log and the causes, for a program that terminates with the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        if let Some(log) = self.log() {
            write!(f, "\n{log}")?;
        }
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, "\ncaused by: {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn the_line_names_operation_device_kind_and_code() {
        let error = Error::new(ErrorKind::OutOfMemory, "memory_allocate", "1024 bytes, 512 free")
            .on(&DeviceId::new("cuda", 1))
            .with_driver("CUDA_ERROR_OUT_OF_MEMORY", 2);
        assert_eq!(
            error.to_string(),
            "memory_allocate on cuda:1: out of memory: 1024 bytes, 512 free [CUDA_ERROR_OUT_OF_MEMORY (2)]"
        );
    }

    #[test]
    fn an_error_begins_with_its_subject() {
        let error = Error::new(ErrorKind::LimitExceeded, "pool", "100 of 100 are in use");
        let error = error.about("rank 1").about(format_args!("step {}", 3));
        let line = "pool: limit exceeded: step 3: rank 1: 100 of 100 are in use";
        assert_eq!(error.to_string(), line);
    }

    #[test]
    fn the_cause_is_reachable_as_source() {
        let cause = std::io::Error::other("disk on fire");
        let error = Error::new(ErrorKind::Driver, "load", "cache").with_source(cause);
        assert_eq!(error.source().unwrap().to_string(), "disk on fire");
        assert_eq!(format!("{:?}", error.clone()), format!("{error:?}"));
    }

    #[test]
    fn debug_shows_the_log_and_the_causes() {
        let error = Error::new(ErrorKind::InvalidModule, "module_load", "2 errors")
            .with_log("line 3: what?")
            .with_source(std::io::Error::other("disk on fire"));
        let shown = "module_load: invalid module: 2 errors\nline 3: what?\ncaused by: disk on fire";
        assert_eq!(format!("{error:?}"), shown);
    }

    #[test]
    fn a_blank_log_is_none() {
        let error = |log| Error::new(ErrorKind::InvalidModule, "module_load", "").with_log(log);
        assert_eq!(error("why").log(), Some("why"));
        assert_eq!([error("").log(), error("\n ").log()], [None, None]);
    }

    #[test]
    fn a_result_has_the_size_of_a_pointer() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
