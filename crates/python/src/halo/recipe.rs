//! How the description of an exchange was made: what `repr` shows, and what `pickle` and `copy` make it from.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The call that made an object.
#[derive(Clone)]
pub(super) struct Recipe(Arc<Call>);

struct Call {
    class: &'static str,
    /// The static method; none for the constructor.
    method: Option<&'static str>,
    arguments: Py<PyTuple>,
    keywords: Py<PyDict>,
}

impl Recipe {
    /// A call with keyword arguments that are not None.
    pub(super) fn new<'py>(
        class: &'static str,
        method: Option<&'static str>,
        arguments: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
        keywords: &[(&str, Option<Bound<'py, PyAny>>)],
        py: Python<'py>,
    ) -> PyResult<Self> {
        let given = PyDict::new(py);
        for (name, value) in keywords {
            if let Some(value) = value {
                given.set_item(name, value)?;
            }
        }
        let arguments = arguments.into_pyobject(py)?.unbind();
        Ok(Self(Arc::new(Call { class, method, arguments, keywords: given.unbind() })))
    }

    /// The call as text.
    pub(super) fn repr(&self, py: Python<'_>) -> PyResult<String> {
        let Call { class, method, arguments, keywords } = &*self.0;
        let mut texts = Vec::new();
        for argument in arguments.bind(py) {
            texts.push(argument.repr()?.to_string());
        }
        for (name, value) in keywords.bind(py) {
            texts.push(format!("{name}={}", value.repr()?));
        }
        let method = method.map_or(String::new(), |method| format!(".{method}"));
        Ok(format!("{class}{method}({})", texts.join(", ")))
    }

    /// A function and its arguments, as `__reduce__` returns them.
    pub(super) fn reduce<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Call { class, method, arguments, keywords } = &*self.0;
        let make = py.import("device_runtime.halo")?.getattr("_made")?;
        let parts = (*class, *method, arguments.bind(py), keywords.bind(py));
        Ok((make, parts).into_pyobject(py)?.into_any())
    }
}
