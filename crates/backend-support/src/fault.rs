//! Failures of asynchronous work, kept until they are taken.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use runtime_core::{DeviceId, Error, ErrorKind, Result};

use crate::lock;

/// The device that owns failures, and the backend's name for a fault of a kernel.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The device that errors name.
    pub device: DeviceId,
    /// Symbolic name and number of the driver code for a fault.
    pub fault: (&'static str, i64),
}

impl Identity {
    /// Adds missing information to an error: the device, and a driver code if it is a fault.
    #[must_use]
    pub fn complete(&self, error: Error) -> Error {
        let bare = error.kind() == ErrorKind::DeviceFault && error.driver().is_none();
        let error = if bare { error.with_driver(self.fault.0, self.fault.1) } else { error };
        error.on(&self.device)
    }
}

/// The first failure that was not taken yet.
#[derive(Debug, Default)]
pub struct Failures {
    // Avoids taking the lock while there is no failure.
    any: AtomicBool,
    first: Mutex<Option<Error>>,
}

impl Failures {
    /// Keeps a failure, unless an earlier one was not taken yet.
    pub fn keep(&self, error: Error) {
        let mut first = lock(&self.first);
        first.get_or_insert(error);
        self.any.store(true, Ordering::Release);
    }

    /// Whether there is a failure to take.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes the kept failure, if there is one.
    pub fn take(&self) -> Option<Error> {
        if !self.any() {
            return None;
        }
        let mut first = lock(&self.first);
        self.any.store(false, Ordering::Release);
        first.take()
    }
}

/// Calls `f` and converts a panic to a `DeviceFault` with the panic's message.
///
/// # Errors
///
/// The error of `f`, or the fault.
pub fn guarded(operation: &'static str, f: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let message = format!("panicked: {}", text(payload));
        Err(Error::new(ErrorKind::DeviceFault, operation, message))
    })
}

fn text(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            Err(other) => {
                // Dropping a payload of unknown type may panic again, outside of any guard.
                std::mem::forget(other);
                "with a value that is no text".to_owned()
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_taken_once() {
        let failures = Failures::default();
        for message in ["first", "second"] {
            failures.keep(Error::new(ErrorKind::Driver, "test", message));
        }
        assert_eq!(failures.take().unwrap().message(), "first");
        assert!(failures.take().is_none());
    }

    #[test]
    fn panics_of_any_payload_are_faults() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let identity = Identity { device: DeviceId::new("test", 3), fault: ("TEST_FAULT", 7) };
        let error = identity.complete(guarded("launch", || panic!("index {}", 4)).unwrap_err());
        assert_eq!(
            error.to_string(),
            "launch on test:3: device fault: panicked: index 4 [TEST_FAULT (7)]"
        );
        let error = guarded("launch", || std::panic::panic_any(Bomb)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceFault);
    }
}
