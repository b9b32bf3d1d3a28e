//! Halo exchanges of fields.
#![expect(
    unsafe_code,
    reason = "lends the progress of an exchange to Python code for the length of a call"
)]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use runtime::halo::{self, Combine, Field, HaloOptions, MissingCorners, Reach};
use runtime::{Error, ErrorKind};

use super::{Communicator, Quantity, Topology};
use crate::array::{Asked, BlockMemory, Chosen, DeviceArray, Hold, Part, Work};
use crate::device::Device;
use crate::error::{Failure, Result};
use crate::fork;
use crate::mutex::CallbackMutex;
use crate::stream::{Stream, seconds};

/// Fills the halos of a set of fields with the values that the neighbours own there. It can be used repeatedly.
///
/// All ranks create it together, with the same topology, quantities and options, and call the same methods in the same
/// order. If a rank is late, all ranks call ``Communicator.reset`` and create it again. ``fields`` are DeviceArrays,
/// one for each component of each quantity, in order. They must not share elements. Work is enqueued on ``stream``:
/// packing comes after earlier work there, and later work sees the filled halos. Without a stream, the work comes after
/// all unfinished work on the fields. Until the call returns, other threads that use the fields get ConflictError: an
/// operation of this package, another exchange, or an export. Other libraries are not seen.
///
/// ``reach`` is full, or faces for stencils without diagonals. ``missing_corners`` says what happens where tiles meet
/// without a cell: these corners are left unchanged (None), set to a number, or set to an ``"average"``. Exchanges that
/// use one communicator at the same time need different ``channel`` numbers.
#[pyclass(frozen, weakref, module = "device_runtime.halo")]
pub(crate) struct HaloExchange {
    exchange: Mutex<halo::HaloExchange>,
    device: runtime::Device,
}

/// The treatment of corners without cells, from Python.
fn corners(given: Option<&Bound<'_, PyAny>>) -> Result<MissingCorners> {
    let Some(given) = given else { return Ok(MissingCorners::Untouched) };
    match given.extract::<&str>() {
        Ok("average") => Ok(MissingCorners::Average),
        Err(_) if !given.is_instance_of::<PyBool>() => Ok(MissingCorners::Fill(given.extract()?)),
        _ => {
            let message =
                format!("missing_corners {given:?}; there are None, 'average' and numbers");
            Err(Failure::invalid("exchange", message))
        }
    }
}

impl HaloExchange {
    /// Locks the exchange for one call. The call may run Python code that calls the exchange again.
    fn alone(&self) -> runtime::Result<MutexGuard<'_, halo::HaloExchange>> {
        match self.exchange.try_lock() {
            Ok(exchange) => Ok(exchange),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let message = "another call of this exchange is running";
                Err(Error::new(ErrorKind::Conflict, "exchange", message))
            }
        }
    }

    /// Runs `f` with the exchange and its fields, and lets other Python threads run. Other operations on the fields are
    /// refused meanwhile, or those that write, if others may read.
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        fields: &[Bound<'_, DeviceArray>],
        stream: Option<&Stream>,
        others_may_read: bool,
        f: impl FnOnce(
            &mut halo::HaloExchange,
            &runtime::Stream,
            &mut [Field<'_>],
        ) -> runtime::Result<R>
        + Send,
    ) -> Result<R> {
        let parts: Vec<Part> = fields.iter().map(|field| field.get().part.clone()).collect();
        let asked = Asked::new(py, stream, false)?;
        py.detach(|| {
            let mut exchange = self.alone()?;
            // The exchange refuses a field of another device, and names it.
            let is_own = |part: &&Part| part.block.device().is_same(&self.device);
            let own: Vec<Part> = parts.iter().filter(is_own).cloned().collect();
            let works: Vec<&Work> = own.iter().map(|part| &part.block.work).collect();
            let on = Chosen::new(asked, &self.device, &works);
            let _hold = Hold::new(&on, &own, others_may_read)?;
            let held = parts.iter().map(Part::hold).collect::<Result<Vec<BlockMemory<'_>>>>()?;
            let bound =
                parts.iter().zip(&held).map(|(part, held)| Ok(Field::from(part.view_mut(held)?)));
            let mut bound = bound.collect::<Result<Vec<_>>>()?;
            Ok(f(&mut exchange, &on.stream, &mut bound)?)
        })
    }
}

#[pymethods]
impl HaloExchange {
    #[new]
    #[pyo3(signature = (communicator, topology, quantities, device, *, timeout = 60.0, reach = "full",
        missing_corners = None, direct = true, timing = false, channel = 0))]
    #[expect(clippy::too_many_arguments, reason = "the options of an exchange, by name")]
    fn new(
        py: Python<'_>,
        communicator: &Communicator,
        topology: &Topology,
        quantities: Vec<Quantity>,
        device: &Device,
        timeout: f64,
        reach: &str,
        missing_corners: Option<&Bound<'_, PyAny>>,
        direct: bool,
        timing: bool,
        channel: i64,
    ) -> Result<Self> {
        fork::check("exchange")?;
        let reach = match reach {
            "full" => Reach::Full,
            "faces" => Reach::Faces,
            "by_axis" => Reach::ByAxis,
            other => {
                let message = format!("reach {other:?}; there are full, faces and by_axis");
                return Err(Failure::invalid("exchange", message));
            }
        };
        let options = HaloOptions {
            timeout: seconds("exchange", timeout)?,
            reach,
            missing_corners: corners(missing_corners)?,
            direct,
            timing,
            channel: u32::try_from(channel)
                .map_err(|_| Failure::invalid("exchange", format!("channel {channel}")))?,
            ..HaloOptions::default()
        };
        let quantities: Vec<halo::Quantity> = quantities.into_iter().map(|q| q.0).collect();
        let (ranks, device) = (Arc::clone(&communicator.0), device.0.clone());
        let made = py
            .detach(|| halo::HaloExchange::new(ranks, &topology.0, &quantities, &device, &options));
        Ok(Self { exchange: Mutex::new(made?), device })
    }

    /// Fills the halos. Blocks until the messages have arrived, but not until the device has unpacked them.
    #[pyo3(signature = (fields, stream = None))]
    fn exchange(
        &self,
        py: Python<'_>,
        fields: Vec<Bound<'_, DeviceArray>>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        self.run(py, &fields, stream, false, |exchange, stream, fields| {
            exchange.exchange(stream, fields)
        })
    }

    /// Fills the halos while ``work(progress)`` runs, and returns the result of ``work``. The work enqueues operations
    /// that need no ghosts, and calls ``progress.poll()`` regularly to advance the messages. It may read the fields.
    /// Operations that write them raise ConflictError, and other libraries get them read-only. A kernel that does not
    /// declare what it writes must not write them.
    #[pyo3(signature = (fields, work, stream = None))]
    fn overlap(
        &self,
        py: Python<'_>,
        fields: Vec<Bound<'_, DeviceArray>>,
        work: Py<PyAny>,
        stream: Option<&Stream>,
    ) -> Result<Py<PyAny>> {
        let done = self.run(py, &fields, stream, true, |exchange, stream, fields| {
            exchange.overlap(stream, fields, |progress| {
                Ok(Python::attach(|py| {
                    let lent = Py::new(py, Progress::lend(progress))?;
                    let done = work.call1(py, (&lent,));
                    // Another thread that polls may need the interpreter to finish.
                    py.detach(|| lent.get().take_back());
                    done
                }))
            })
        });
        Ok(done??)
    }

    /// Combines each owned element with all ghosts that are copies of it, by ``op``: replace, sum, min or max. This is
    /// the reverse of an exchange.
    #[pyo3(signature = (fields, op, stream = None))]
    fn reduce(
        &self,
        py: Python<'_>,
        fields: Vec<Bound<'_, DeviceArray>>,
        op: &str,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let combine = match op {
            "replace" => Combine::Replace,
            "sum" => Combine::Sum,
            "min" => Combine::Min,
            "max" => Combine::Max,
            other => {
                let message = format!("operation {other:?}; there are replace, sum, min and max");
                return Err(Failure::invalid("reduce", message));
            }
        };
        self.run(py, &fields, stream, false, |exchange, stream, fields| {
            exchange.reduce(stream, fields, combine)
        })
    }

    /// Makes the points that two ranks share equal on both, for staggered fields.
    #[pyo3(signature = (fields, stream = None))]
    fn synchronize_shared(
        &self,
        py: Python<'_>,
        fields: Vec<Bound<'_, DeviceArray>>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        self.run(py, &fields, stream, false, |exchange, stream, fields| {
            exchange.synchronize_shared(stream, fields)
        })
    }

    /// Makes exchanges and their collective calls possible again after a failure. All ranks call it together. After a
    /// TimeoutError, call it again. Messages from before do not disturb later exchanges, unless they are 15 resets
    /// late: then an exchange fails, and must be reset too.
    fn reset(&self, py: Python<'_>) -> Result<()> {
        fork::check("reset")?;
        Ok(py.detach(|| self.alone()?.reset())?)
    }

    /// The number of messages and bytes sent, received and copied so far for each neighbour rank, as a dict of pairs.
    fn statistics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let statistics = py.detach(|| self.alone()?.statistics())?;
        let all = PyDict::new(py);
        for neighbour in statistics.neighbours {
            let dict = PyDict::new(py);
            for (name, traffic) in [
                ("sent", neighbour.sent),
                ("received", neighbour.received),
                ("copied", neighbour.copied),
            ] {
                dict.set_item(name, (traffic.count, traffic.bytes))?;
            }
            all.set_item(neighbour.rank, dict)?;
        }
        Ok(all)
    }
}

/// An exchange in flight, lent to the overlapping work.
#[pyclass(frozen, weakref, module = "device_runtime.halo")]
pub(crate) struct Progress(CallbackMutex<Option<Loan>>);

struct Loan(NonNull<halo::Progress<'static, 'static>>);

// SAFETY: every use holds the lock, and `take_back` takes it before the thread of the exchange continues.
unsafe impl Send for Loan {}

impl Progress {
    fn lend(progress: &mut halo::Progress<'_, '_>) -> Self {
        Self(CallbackMutex::new(Some(Loan(NonNull::from(progress).cast()))))
    }

    /// Ends the loan.
    fn take_back(&self) {
        self.0.wait().take();
    }
}

#[pymethods]
impl Progress {
    /// Advances the exchange without waiting. Returns whether nothing is left to do.
    fn poll(&self, py: Python<'_>) -> Result<bool> {
        py.detach(|| match self.0.lock("poll")?.as_mut() {
            // SAFETY: the loan is valid while it is stored here, and only one thread uses it at a time.
            Some(lent) => Ok(unsafe { lent.0.as_mut() }.poll()?),
            None => {
                let message = "the work beside the exchange is over";
                Err(Error::new(ErrorKind::Conflict, "poll", message).into())
            }
        })
    }
}
