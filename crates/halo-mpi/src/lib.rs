//! Halo exchange over any MPI that `rsmpi` supports.
//!
//! The feature `mpi` enables the binding. It needs an MPI and libclang to build. Without the feature this crate is
//! empty and builds anywhere.
#![cfg_attr(
    feature = "mpi",
    doc = r#"
[`MpiCommunicator`] is a [`Communicator`](halo::communicator::Communicator), and [`run`] is the frame of a program's rank:

```no_run
use std::time::Duration;
use halo::communicator::Communicator;

fn main() -> halo::Result<()> {
    halo_mpi::run(|ranks| {
        let all = ranks.all_gather(&[ranks.rank() as u8], Duration::from_secs(10))?;
        assert_eq!(all.len(), ranks.size());
        Ok::<(), halo::Error>(())
    })
}
```

An exchange of halos takes the communicator:

```no_run
use std::sync::Arc;
use backend_host::HostDevice;
use halo::communicator::Communicator;
use halo::{Dim, FieldSpec, HaloExchange, HaloOptions, Quantity, Topology};
use runtime_core::{DType, Device};

fn main() -> halo::Result<()> {
    halo_mpi::run(|ranks| -> halo::Result<()> {
        // A ring with three cells on each rank, and one ghost at each end.
        let (rank, size) = (ranks.rank(), ranks.size());
        let topology = Topology::cartesian(&[3 * size], &[size], &[true])?;
        let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 3).halo(1, 1)])?;
        let device = Device::new(HostDevice::new(0))?;
        let stream = device.default_stream();
        let (quantities, options) = ([Quantity::scalar(field)], HaloOptions::default());
        let mut halo = HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)?;

        let mut values = device.memory_from_slice(&stream, &[rank as f64; 5])?;
        halo.exchange(&stream, &mut [values.view_mut().into()])?;
        let values = values.to_vec(&stream)?;
        assert_eq!(values[0], ((rank + size - 1) % size) as f64);
        assert_eq!(values[4], ((rank + 1) % size) as f64);
        Ok(())
    })
}
```

# What ends a job

| event | end |
|---|---|
| a rank panics | the job, with code 101 |
| [`run`]'s closure returns an error | the job, with code 1; the error is printed |
| a rank dies | the job, by `mpiexec` |
| a rank stops answering | waits of others are `Timeout`: theirs to handle |
| a rank comes to its end after a wait in vain, and others do not within 10 seconds | the job, with code 1 |
| MPI reports an error | the call's error; later calls on this communicator are `PeerLost` |

# Marks

The [mark](halo::communicator::Buffer::marked) of a message travels in its tag, and costs nothing: as much of it as the
library's tags have room for above 32767, which are 16 bits in Open MPI. Marks that differ are taken for each other as
seldom as that says; in a library whose tags end there, always.

# Device memory

Messages are staged through host memory unless the program or `HALO_MPI_DEVICE_AWARE=1` says that this MPI takes device
addresses: MPI itself cannot be asked, and one that does not take them crashes. Where it does,
[`Staging::Auto`](halo::Staging::Auto) measures which way is faster.
"#
)]
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
