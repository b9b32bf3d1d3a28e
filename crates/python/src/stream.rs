//! Streams, events and timers.

use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;

use crate::device::Device;
use crate::error::{Failure, Result};
use crate::{fork, wait};

/// An in-order queue of work on a device, made by ``Device.stream``.
///
/// Work on one stream runs in the order in which it was enqueued. Only events order different streams. As a context
/// manager, the stream synchronizes at the end of the block.
#[pyclass(frozen, weakref, eq, module = "device_runtime")]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Stream(pub(crate) runtime::Stream);

impl Stream {
    /// The stream for work on `device`: the given one, or the current stream if it belongs to that device, or the
    /// device's default stream.
    pub(crate) fn choose(
        given: Option<&Self>,
        here: Option<runtime::Stream>,
        device: &runtime::Device,
    ) -> runtime::Stream {
        given
            .map(|stream| stream.0.clone())
            .or_else(|| here.filter(|here| here.device().is_same(device)))
            .unwrap_or_else(|| device.default_stream())
    }
}

/// Converts seconds from Python.
///
/// # Errors
///
/// `InvalidArgument` for a number that is not a time span.
pub(crate) fn seconds(operation: &'static str, seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|why| Failure::invalid(operation, format!("{seconds} seconds: {why}")))
}

#[pymethods]
impl Stream {
    /// The device of the stream.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device().clone())
    }

    /// A number that is unique among the streams of the process.
    #[getter]
    fn id(&self) -> u64 {
        self.0.id()
    }

    /// The vendor's handle as an int, such as a ``cudaStream_t``; valid while this object lives.
    #[getter]
    fn handle(&self) -> usize {
        self.0.native().raw
    }

    /// Blocks until all work enqueued so far has finished, for at most ``timeout`` seconds. Raises the first failure of
    /// asynchronous work that was not reported before.
    #[pyo3(signature = (timeout = None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<f64>) -> Result<()> {
        fork::check("synchronize")?;
        let timeout = timeout.map(|timeout| seconds("synchronize", timeout)).transpose()?;
        py.detach(|| match timeout {
            None => wait::stream(&self.0),
            Some(timeout) => self.0.synchronize_for(timeout),
        })?;
        Ok(())
    }

    /// Raises the first failure of finished work that was not reported before. Never blocks.
    fn check(&self) -> Result<()> {
        fork::check("check")?;
        Ok(self.0.check()?)
    }

    /// Whether all work enqueued so far has finished or failed. Never blocks.
    #[getter]
    fn is_done(&self) -> Result<bool> {
        fork::check("is_done")?;
        Ok(self.0.is_done()?)
    }

    /// Records ``event``, or a new event, after all work enqueued so far, and returns it.
    #[pyo3(signature = (event = None))]
    fn record(&self, event: Option<Event>) -> Result<Event> {
        fork::check("record")?;
        let event = match event {
            Some(event) => event,
            None => Event(self.0.device().event_create(true)?),
        };
        self.0.record(&event.0)?;
        Ok(event)
    }

    /// Makes work that is enqueued from now on wait for the event, on the device.
    fn wait(&self, event: &Event) -> Result<()> {
        fork::check("wait")?;
        Ok(self.0.wait(&event.0)?)
    }

    /// Measures the work that is enqueued in a ``with`` block. It measures device time, not host time.
    fn timer(&self) -> Timer {
        Timer { stream: self.0.clone(), marks: Mutex::default() }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> Result<()> {
        self.synchronize(py, None)
    }

    fn __hash__(&self) -> u64 {
        self.0.id()
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.0)
    }
}

/// A mark in a stream that other streams can wait for, made by ``Device.event`` or ``Stream.record``.
#[pyclass(frozen, weakref, from_py_object, module = "device_runtime")]
#[derive(Clone)]
pub(crate) struct Event(pub(crate) runtime::Event);

#[pymethods]
impl Event {
    /// The device of the event.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device().clone())
    }

    /// The vendor's handle as an int, such as a ``cudaEvent_t``; valid while this object lives.
    #[getter]
    fn handle(&self) -> usize {
        self.0.native().raw
    }

    /// Records the event after all work enqueued so far on the stream.
    fn record(&self, stream: &Stream) -> Result<()> {
        fork::check("record")?;
        Ok(stream.0.record(&self.0)?)
    }

    /// Blocks until the work before the latest mark has finished, for at most ``timeout`` seconds.
    #[pyo3(signature = (timeout = None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<f64>) -> Result<()> {
        fork::check("synchronize")?;
        let timeout = timeout.map(|timeout| seconds("synchronize", timeout)).transpose()?;
        py.detach(|| match timeout {
            None => wait::event(&self.0),
            Some(timeout) => self.0.wait_for(timeout),
        })?;
        Ok(())
    }

    /// Whether the work before the latest mark has finished. Never blocks.
    #[getter]
    fn is_done(&self) -> Result<bool> {
        fork::check("is_done")?;
        Ok(self.0.is_done()?)
    }

    /// The seconds on the device from the mark of ``earlier`` to the mark of this event. Blocks until both are reached.
    fn elapsed_since(&self, py: Python<'_>, earlier: &Self) -> Result<f64> {
        fork::check("elapsed")?;
        Ok(py.detach(|| elapsed(&earlier.0, &self.0))?.as_secs_f64())
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.0)
    }
}

/// The time between two events, once both are reached.
fn elapsed(start: &runtime::Event, end: &runtime::Event) -> runtime::Result<Duration> {
    wait::event(start)?;
    wait::event(end)?;
    end.elapsed_since(start)
}

/// Measures the time that work takes on a device: ``with stream.timer() as timer: …``.
#[pyclass(frozen, weakref, module = "device_runtime")]
pub(crate) struct Timer {
    stream: runtime::Stream,
    marks: Mutex<(Option<runtime::Event>, Option<runtime::Event>)>,
}

impl Timer {
    fn mark(&self) -> Result<runtime::Event> {
        fork::check("timer")?;
        let event = self.stream.device().event_create(true)?;
        self.stream.record(&event)?;
        Ok(event)
    }
}

#[pymethods]
impl Timer {
    /// The seconds on the device from the start of the block to its end. Blocks until the end is reached.
    fn elapsed(&self, py: Python<'_>) -> Result<f64> {
        let marks = crate::lock(&self.marks).clone();
        let (Some(start), Some(end)) = marks else {
            return Err(Failure::invalid("elapsed", "the timer's block has not ended"));
        };
        fork::check("elapsed")?;
        Ok(py.detach(|| elapsed(&start, &end))?.as_secs_f64())
    }

    fn __enter__(slf: Py<Self>) -> Result<Py<Self>> {
        let start = slf.get().mark()?;
        *crate::lock(&slf.get().marks) = (Some(start), None);
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) -> Result<()> {
        let end = self.mark()?;
        crate::lock(&self.marks).1 = Some(end);
        Ok(())
    }
}
