//! Halo exchange.

mod describe;
mod exchange;
mod mpi;

use std::sync::Arc;

use pyo3::prelude::*;
use runtime::halo::communicator::{Communicator as Ranks, ThreadCommunicator};

pub(crate) use self::describe::{Dim, FieldSpec, Quantity, Topology};
pub(crate) use self::exchange::{HaloExchange, Progress};
use crate::error::Result;
use crate::stream::seconds;

/// A group of ranks that exchange messages, as seen from one rank. The ranks are threads of this process or processes
/// of an MPI job.
///
/// A rank leaves the group when its communicator, and every exchange made with it, is deleted. Ranks that wait for it
/// then get PeerLostError.
#[pyclass(frozen, module = "device_runtime.halo")]
pub(crate) struct Communicator(pub(super) Arc<dyn Ranks>);

#[pymethods]
impl Communicator {
    /// Creates the communicators of a new group of ranks in this process, in order. Give each communicator to its own
    /// thread.
    #[staticmethod]
    fn threads(size: usize) -> Result<Vec<Self>> {
        let ranks = ThreadCommunicator::group(size)?.into_iter();
        Ok(ranks.map(|rank| Self(Arc::new(rank))).collect())
    }

    /// A rank of an mpi4py communicator, used through its Python methods. Its messages must not mix with others: pass
    /// ``comm.Dup()`` if other code uses the communicator too. An exception that a method raises is the cause of a
    /// DriverError. KeyboardInterrupt and SystemExit are raised themselves.
    #[staticmethod]
    fn mpi(comm: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(Arc::new(mpi::MpiCommunicator::new(comm)?)))
    }

    /// The number of this rank.
    #[getter]
    fn rank(&self) -> usize {
        self.0.rank()
    }

    /// The number of ranks.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    /// Blocks until every rank has called it, for at most ``timeout`` seconds.
    #[pyo3(signature = (timeout = 60.0))]
    fn barrier(&self, py: Python<'_>, timeout: f64) -> Result<()> {
        let timeout = seconds("barrier", timeout)?;
        Ok(py.detach(|| self.0.barrier(timeout))?)
    }

    /// Returns the bytes of all ranks in rank order. Every rank passes the same number of bytes. Blocks until every
    /// rank has called it, for at most ``timeout`` seconds.
    #[pyo3(signature = (mine, timeout = 60.0))]
    fn all_gather<'py>(
        &self,
        py: Python<'py>,
        mine: Vec<u8>,
        timeout: f64,
    ) -> Result<Bound<'py, pyo3::types::PyBytes>> {
        let timeout = seconds("all_gather", timeout)?;
        let all = py.detach(|| self.0.all_gather(&mine, timeout))?;
        Ok(pyo3::types::PyBytes::new(py, &all))
    }

    /// Makes collective calls (``barrier``, ``all_gather``, creating a ``HaloExchange``) possible again after a
    /// failure, for example after a rank was late. Until then they raise ConflictError. All ranks call it, also those
    /// without a failure. Blocks until every rank has called it, for at most ``timeout`` seconds. After a TimeoutError,
    /// call it again.
    #[pyo3(signature = (timeout = 60.0))]
    fn reset(&self, py: Python<'_>, timeout: f64) -> Result<()> {
        let timeout = seconds("reset", timeout)?;
        Ok(py.detach(|| self.0.reset(timeout))?)
    }

    fn __repr__(&self) -> String {
        format!("<Communicator: rank {} of {}>", self.0.rank(), self.0.size())
    }
}
