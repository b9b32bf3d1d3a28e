//! Halo exchange over MPI. The library is found at run time, so one program runs under any MPI. The facade `runtime`
//! has this crate as `runtime::mpi`, and `runtime::ranks::run` uses it.
//!
//! [`MpiCommunicator`] is a [`Communicator`](halo::communicator::Communicator), and [`run`] runs a program as one rank:
//!
//! ```no_run
//! use std::time::Duration;
//! use halo::communicator::Communicator;
//!
//! fn main() -> halo::Result<()> {
//!     halo_mpi::run(|ranks| -> halo::Result<()> {
//!         let all = ranks.all_gather(&[ranks.rank() as u8], Duration::from_secs(10))?;
//!         assert_eq!(all.len(), ranks.size());
//!         Ok(())
//!     })
//! }
//! ```
//!
//! An exchange of halos takes the communicator:
//!
//! ```no_run
//! use std::sync::Arc;
//! use backend_host::HostDevice;
//! use halo::communicator::Communicator;
//! use halo::{Dim, FieldSpec, HaloExchange, HaloOptions, Quantity, Topology};
//! use runtime_core::{DType, Device};
//!
//! fn main() -> halo::Result<()> {
//!     halo_mpi::run(|ranks| -> halo::Result<()> {
//!         // A ring with three cells on each rank, and one ghost at each end.
//!         let (rank, size) = (ranks.rank(), ranks.size());
//!         let topology = Topology::cartesian(&[3 * size], &[size], &[true])?;
//!         let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 3).halo(1, 1)])?;
//!         let device = Device::new(HostDevice::new(0))?;
//!         let stream = device.default_stream();
//!         let (quantities, options) = ([Quantity::scalar(field)], HaloOptions::default());
//!         let mut halo = HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)?;
//!
//!         let mut values = device.memory_from_slice(&stream, &[rank as f64; 5])?;
//!         halo.exchange(&stream, &mut [values.view_mut().into()])?;
//!         let values = values.to_vec(&stream)?;
//!         assert_eq!(values[0], ((rank + size - 1) % size) as f64);
//!         assert_eq!(values[4], ((rank + 1) % size) as f64);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # The library
//!
//! The first of these that is there is used:
//!
//! 1. the library that is loaded already, because the program is linked with it or uses mpi4py;
//! 2. the one that the variable `HALO_MPI_LIBRARY` names, which is an error if another one is loaded already;
//! 3. the one beside the launcher (`mpiexec`) that has started the process, or in `I_MPI_ROOT`;
//! 4. `libmpi_abi.so.1`, `libmpi.so.40`, `libmpi.so.12` and `libmpich.so.12`, where the system looks for libraries. The
//!    one of the launcher's kind comes first.
//!
//! These ABIs are known: the standard one of MPI 5.0, that of MPICH 3.4 and later, which Intel MPI has as well, and
//! that of Open MPI 4 and 5. The library itself says which one it has. Any other is an error that names the library.
//!
//! # What ends a job
//!
//! | event | end |
//! |---|---|
//! | a rank panics | the job, with code 101 |
//! | [`run`]'s closure returns an error | the job, with code 1; the error is printed |
//! | a rank dies | the job, by `mpiexec` |
//! | a rank calls `std::process::exit` | the job, by `mpiexec`; the code differs, and under MPICH may be 0 |
//! | a rank never starts MPI | the job: at once by Open MPI, after 10 minutes with code 1 otherwise |
//! | a rank stops answering | none: waits of other ranks return `Timeout` |
//! | a rank reaches its end after a timeout, and other ranks do not within 10 seconds | the job, with code 1 |
//! | MPI reports an error | none: the call returns it, and later calls on this communicator return `PeerLost` |
//!
//! # Message IDs
//!
//! The tag of a message also carries a digest of its [message ID](halo::communicator::Buffer::with_message_id), at no
//! cost. The digest has as many bits as the library's tags have above 32767: 16 in Open MPI. Two different message IDs
//! have the same digest in about one of 65536 cases there, and always in a library whose tags end at 32767.
//!
//! # Device memory
//!
//! Messages are staged through host memory unless the library says that it takes addresses of device memory
//! (`MPIX_Query_cuda_support`, `MPIX_Query_hip_support` or `MPIX_Query_rocm_support`). The variable
//! `HALO_MPI_DEVICE_AWARE` decides instead: `1` that it does, `0` that it does not. An MPI that is given such addresses
//! and does not take them crashes. If it takes them, [`Staging::Auto`](halo::Staging::Auto) measures which way is
//! faster.
#![deny(unsafe_code)]

mod communicator;
mod job;
mod library;
mod matching;
mod message;
mod request;
mod run;
mod tag;

pub use communicator::MpiCommunicator;
pub use run::run;
