//! Halo exchange over MPI: [`MpiCommunicator`], a [`Communicator`](halo::communicator::Communicator) for any MPI that
//! `rsmpi` finds.
//!
//! The binding comes with the feature `mpi`, which needs an MPI and a libclang to build. Without it this crate is empty and
//! builds anywhere.
//!
//! [`run`] is the frame of a program's rank:
//!
//! ```no_run
//! use std::time::Duration;
//! use halo::communicator::Communicator;
//!
//! fn main() -> halo::Result<()> {
//!     halo_mpi::run(|ranks| {
//!         let all = ranks.all_gather(&[ranks.rank() as u8], Duration::from_secs(10))?;
//!         assert_eq!(all.len(), ranks.size());
//!         Ok::<(), halo::Error>(())
//!     })
//! }
//! ```
//!
//! # What ends a job
//!
//! | event | end |
//! |---|---|
//! | a rank panics | the job, with code 101 |
//! | [`run`]'s closure returns an error | the job, with code 1; the error is printed |
//! | a rank dies | the job, by `mpiexec` |
//! | a rank stops answering | waits of others are `Timeout`: theirs to handle |
//! | a rank comes to its end after a wait in vain, and others do not within 10 seconds | the job, with code 1 |
//! | MPI reports an error | the call's error; later calls on this communicator are `PeerLost` |
//!
//! # Marks
//!
//! The [mark](halo::communicator::Buffer::marked) of a message travels in its tag, and costs nothing: as much of it as the
//! library's tags have room for above 32767, which are 16 bits in Open MPI. Marks that differ are taken for each other as
//! seldom as that says; in a library whose tags end there, always.
//!
//! # Device memory
//!
//! Messages are staged through host memory unless the program or `HALO_MPI_DEVICE_AWARE=1` says that this MPI takes device
//! addresses: MPI itself cannot be asked, and one that does not take them crashes. Where it does,
//! [`Staging::Auto`](halo::Staging::Auto) measures which way is faster.
#![cfg(feature = "mpi")]
#![deny(unsafe_code)]

mod communicator;
mod library;
mod message;
mod request;
mod run;
mod tag;

pub use communicator::MpiCommunicator;
pub use run::run;
