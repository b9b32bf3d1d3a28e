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

/// A group of ranks that send each other messages, seen from one of them: threads of this process, or an MPI job.
///
/// A rank leaves when its communicator, and every exchange made with it, is gone; who waits for it gets PeerLostError then.
#[pyclass(frozen, module = "device_runtime.halo")]
pub(crate) struct Communicator(pub(super) Arc<dyn Ranks>);

#[pymethods]
impl Communicator {
    /// The communicators of a new group of ranks in this process, in order: give each to a thread of its own.
    #[staticmethod]
    fn threads(size: usize) -> Result<Vec<Self>> {
        let ranks = ThreadCommunicator::group(size)?.into_iter();
        Ok(ranks.map(|rank| Self(Arc::new(rank))).collect())
    }

    /// The rank of an mpi4py communicator, by calling its methods. Its messages are not to be mixed with others: give it
    /// ``comm.Dup()`` where other code uses the communicator too.
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

    /// The bytes of all ranks in their order, each of which brings equally many. Blocks until every rank has called it, for at most
    /// ``timeout`` seconds.
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

    /// Makes collective calls (``barrier``, ``all_gather``, making a ``HaloExchange``) possible again after one that failed, such as
    /// by a rank that was late: until then they raise ConflictError. All ranks call it, also those where none failed. Blocks until every
    /// rank has called it, for at most ``timeout`` seconds; after a TimeoutError, call it again.
    #[pyo3(signature = (timeout = 60.0))]
    fn reset(&self, py: Python<'_>, timeout: f64) -> Result<()> {
        let timeout = seconds("reset", timeout)?;
        Ok(py.detach(|| self.0.reset(timeout))?)
    }

    fn __repr__(&self) -> String {
        format!("<Communicator: rank {} of {}>", self.0.rank(), self.0.size())
    }
}
