//! Halo exchange.

mod describe;
mod exchange;
mod recipe;

use std::ptr;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use runtime::halo::communicator::{Communicator as Ranks, ThreadCommunicator};
use runtime::mpi::MpiCommunicator;

use self::describe::Count;
pub(crate) use self::describe::{Dim, FieldSpec, Quantity, Topology};
pub(crate) use self::exchange::{HaloExchange, Progress};
use crate::error::Result;
use crate::fork;
use crate::stream::seconds;

/// A group of ranks that exchange messages, as seen from one rank. The ranks are threads of this process or processes
/// of an MPI job.
///
/// A rank leaves the group when its communicator, and every exchange made with it, is deleted. Ranks that wait for it
/// then get PeerLostError.
#[pyclass(frozen, weakref, module = "device_runtime.halo")]
pub(crate) struct Communicator(pub(super) Arc<dyn Ranks>);

#[pymethods]
impl Communicator {
    /// Creates the communicators of a new group of ranks in this process, in order. Give each communicator to its own
    /// thread.
    #[staticmethod]
    fn threads(size: Count) -> Result<Vec<Self>> {
        fork::enter("communicator")?;
        let ranks = ThreadCommunicator::group(size.0)?.into_iter();
        Ok(ranks.map(|rank| Self(Arc::new(rank))).collect())
    }

    /// The ranks of an mpi4py communicator. Messages use a duplicate of it, so they do not mix with those of other
    /// code. Every rank calls it; blocks for at most ``timeout`` seconds. The same communicator gives the same ranks
    /// again.
    ///
    /// After a timeout, another call continues; until then the program makes no collective call on ``comm``. When
    /// ``comm`` is freed, or MPI is finalized, calls that pass messages raise PeerLostError. No thread may free it
    /// while another thread uses the result. mpi4py must have started MPI with ``MPI.THREAD_MULTIPLE``, its default.
    #[staticmethod]
    #[pyo3(signature = (comm, timeout = 60.0))]
    #[expect(unsafe_code, reason = "hands over the handle of an mpi4py communicator")]
    fn mpi(comm: &Bound<'_, PyAny>, timeout: f64) -> Result<Self> {
        let py = comm.py();
        fork::enter("communicator")?;
        let timeout = seconds("communicator", timeout)?;
        let mpi = py.import("mpi4py.MPI")?;
        if !comm.is_instance(&mpi.getattr("Comm")?)? {
            let message = format!("{} is no mpi4py communicator", comm.get_type().name()?);
            return Err(PyTypeError::new_err(message).into());
        }
        let address: usize = mpi.call_method1("_addressof", (comm,))?.extract()?;
        let adopt = move || {
            let handle = ptr::with_exposed_provenance(address);
            // SAFETY: it is the address of the handle in `comm`, which is borrowed here. mpi4py has loaded the library.
            // That no other thread frees the communicator is asked of the caller above.
            unsafe { MpiCommunicator::adopt(handle, timeout) }
        };
        Ok(Self(Arc::new(py.detach(adopt)?)))
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
        fork::check("barrier")?;
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
        fork::check("all_gather")?;
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
        fork::check("reset")?;
        let timeout = seconds("reset", timeout)?;
        Ok(py.detach(|| self.0.reset(timeout))?)
    }

    fn __repr__(&self) -> String {
        format!("<Communicator: rank {} of {}>", self.0.rank(), self.0.size())
    }
}
