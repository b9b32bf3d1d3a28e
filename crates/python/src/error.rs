//! Errors as exceptions: one class for each kind, with the driver's details.

use std::error::Error as StdError;
use std::iter;
use std::sync::Arc;

use pyo3::exceptions::{
    PyException, PyIndexError, PyLookupError, PyMemoryError, PyTimeoutError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use runtime::{Error, ErrorKind};

use crate::wait::Interrupted;
use crate::words;

/// The result type of Python functions in this crate.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// A failure of the runtime, or of Python code that it called.
#[derive(Debug)]
pub(crate) enum Failure {
    Runtime(Error),
    Python(PyErr),
}

impl Failure {
    /// The error for a value that an operation does not accept.
    #[cold]
    pub(crate) fn invalid(operation: &'static str, message: impl Into<String>) -> Self {
        Self::Runtime(Error::new(ErrorKind::InvalidArgument, operation, message))
    }
}

impl Failure {
    /// This failure as another exception, unless it ends programs or is that of a signal handler: these are raised as
    /// they are.
    pub(crate) fn replaced(self, py: Python<'_>, by: impl FnOnce(PyErr) -> PyErr) -> PyErr {
        if let Self::Runtime(error) = &self
            && let Some(raised) = raised_by_handler(error)
        {
            return raised;
        }
        let cause = PyErr::from(self);
        if is_exit(py, &cause) { cause } else { by(cause) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Runtime(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            Failure::Runtime(error) => Python::attach(|py| raise(py, &error)),
        }
    }
}

/// A Python exception that one of our classes also extends.
type Also = for<'py> fn(Python<'py>) -> Bound<'py, PyType>;

/// A kind, the name of its class, and the other base class, if any.
type Row = (ErrorKind, &'static str, Option<Also>);

const KINDS: [Row; 20] = [
    (ErrorKind::Unavailable, "UnavailableError", None),
    (ErrorKind::UnknownDevice, "UnknownDeviceError", Some(|py| py.get_type::<PyValueError>())),
    (ErrorKind::OutOfMemory, "OutOfMemoryError", Some(|py| py.get_type::<PyMemoryError>())),
    (ErrorKind::InvalidArgument, "InvalidArgumentError", Some(|py| py.get_type::<PyValueError>())),
    (ErrorKind::Unsupported, "UnsupportedError", None),
    (ErrorKind::OutOfBounds, "OutOfBoundsError", Some(|py| py.get_type::<PyIndexError>())),
    (ErrorKind::WrongDevice, "WrongDeviceError", Some(|py| py.get_type::<PyValueError>())),
    (ErrorKind::WrongStream, "WrongStreamError", Some(|py| py.get_type::<PyValueError>())),
    (ErrorKind::InvalidModule, "InvalidModuleError", Some(|py| py.get_type::<PyValueError>())),
    (ErrorKind::KernelNotFound, "KernelNotFoundError", Some(|py| py.get_type::<PyLookupError>())),
    (ErrorKind::Timeout, "TimeoutError", Some(|py| py.get_type::<PyTimeoutError>())),
    (ErrorKind::DeviceFault, "DeviceFaultError", None),
    (ErrorKind::DeviceLost, "DeviceLostError", None),
    (ErrorKind::PeerLost, "PeerLostError", None),
    (ErrorKind::Driver, "DriverError", None),
    (ErrorKind::Uninitialized, "UninitializedError", None),
    (ErrorKind::Poisoned, "PoisonedError", None),
    (ErrorKind::Stale, "StaleError", None),
    (ErrorKind::Conflict, "ConflictError", None),
    (ErrorKind::LimitExceeded, "LimitExceededError", None),
];

/// The base class, and the classes in the order of [`KINDS`].
struct Classes {
    base: Py<PyType>,
    kinds: Vec<Py<PyType>>,
}

const DOC: &str = "A failed operation.

``kind`` is the kind of failure. ``operation`` and ``device`` say where it happened. ``code`` and ``name`` are the
vendor's code and its symbolic name. ``log`` is a compiler's log. Each is None if it does not apply.";

fn classes(py: Python<'_>) -> PyResult<&Classes> {
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let dict = PyDict::new(py);
        for attribute in ["kind", "operation", "device", "code", "name", "log"] {
            dict.set_item(attribute, py.None())?;
        }
        dict.set_item("__doc__", DOC)?;
        let base = class(py, "Error", vec![py.get_type::<PyException>()], &dict)?;
        let kinds = KINDS.iter().map(|(kind, name, also)| {
            let dict = PyDict::new(py);
            dict.set_item("kind", kind.to_string())?;
            dict.set_item("__doc__", format!("An Error of the kind {kind}."))?;
            let bases = iter::once(base.clone()).chain(also.map(|also| also(py))).collect();
            class(py, name, bases, &dict).map(Bound::unbind)
        });
        let kinds = kinds.collect::<PyResult<_>>()?;
        Ok(Classes { base: base.unbind(), kinds })
    })
}

/// Creates a class.
fn class<'py>(
    py: Python<'py>,
    name: &str,
    bases: Vec<Bound<'py, PyType>>,
    dict: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyType>> {
    dict.set_item("__module__", "device_runtime")?;
    let made = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, dict))?;
    Ok(made.cast_into::<PyType>()?)
}

/// Adds the classes to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let classes = classes(module.py())?;
    for class in iter::once(&classes.base).chain(&classes.kinds) {
        let class = class.bind(module.py());
        module.add(class.name()?, class)?;
    }
    Ok(())
}

/// Makes the exception for an error.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    if let Some(raised) = raised_by_handler(error) {
        return raised;
    }
    let cause = python_cause(error).map(|cause| cause.clone_ref(py));
    if let Some(exit) = cause.as_ref().filter(|cause| is_exit(py, cause)) {
        return exit.clone_ref(py);
    }
    let raised = exception(py, error).unwrap_or_else(|failure| failure);
    if cause.is_some() {
        raised.set_cause(py, cause);
    }
    raised
}

/// The Python exception that caused an error.
pub(crate) fn python_cause(error: &Error) -> Option<&PyErr> {
    cause_of(error)
}

/// The exception of a signal handler that ended a wait. It is raised once.
fn raised_by_handler(error: &Error) -> Option<PyErr> {
    cause_of::<Interrupted>(error).and_then(Interrupted::take)
}

fn cause_of<C: StdError + 'static>(error: &Error) -> Option<&C> {
    let causes = iter::successors(error.source(), |cause| (**cause).source());
    // An error shares its cause.
    causes
        .filter_map(|cause| cause.downcast_ref::<Arc<dyn StdError + Send + Sync>>())
        .find_map(|cause| cause.downcast_ref())
}

/// Whether the exception is one that ends programs, such as `KeyboardInterrupt`. It is raised as it is.
pub(crate) fn is_exit(py: Python<'_>, exception: &PyErr) -> bool {
    !exception.is_instance_of::<PyException>(py)
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let classes = classes(py)?;
    let place = KINDS.iter().position(|row| row.0 == error.kind());
    let class = place.map_or(&classes.base, |place| &classes.kinds[place]);
    // Includes the compiler's log, which stays as it is, and the causes.
    let whole = format!("{error:?}");
    let text = match error.log().and_then(|log| whole.split_once(log).map(|around| (log, around))) {
        Some((log, (before, after))) => {
            format!("{}{log}{}", words::of_python(before), words::of_python(after))
        }
        None => words::of_python(&whole),
    };
    let value = class.bind(py).call1((text,))?;
    value.setattr("kind", error.kind().to_string())?;
    value.setattr("operation", error.operation())?;
    value.setattr("device", error.device().map(ToString::to_string))?;
    value.setattr("code", error.driver().map(|driver| driver.code))?;
    value.setattr("name", error.driver().map(|driver| driver.name.as_ref()))?;
    value.setattr("log", error.log())?;
    Ok(PyErr::from_value(value))
}
