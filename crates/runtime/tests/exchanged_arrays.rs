//! Halo exchanges of arrays: the guards of arrays learn whether an exchange was completed.
#![cfg(all(feature = "array", feature = "halo", feature = "host"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use runtime::array::{ArrayBuffer, PartStatus};
use runtime::halo::communicator::{Communicator, ThreadCommunicator};
use runtime::halo::{Dim, FieldSpec, HaloExchange, HaloOptions, Quantity, Topology};
use runtime::host::HostDevice;
use runtime::{DType, Device, ErrorKind, Result};

/// Ranks 0 and 1 get the message of each other, and none of rank 2. The program returns the error, and so drops the
/// guard. Without messages nothing is written.
#[test]
fn an_array_with_half_an_exchange_is_poisoned() {
    let device = Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap();
    let topology = Topology::cartesian(&[9], &[3], &[true]).unwrap();
    for (direct, expected) in [(false, PartStatus::Poisoned), (true, PartStatus::Valid)] {
        let timeout = Duration::from_millis(500);
        let options = HaloOptions { direct, timeout, ..Default::default() };
        let failed = AtomicUsize::new(0);
        let statuses = ThreadCommunicator::run(3, |ranks| {
            let rank = ranks.rank();
            let field = FieldSpec::new("f", DType::F64, &[Dim::axis(0, 3).halo(1, 1)]).unwrap();
            let quantities = [Quantity::scalar(field)];
            let mut halo =
                HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)
                    .unwrap();
            let mut array = ArrayBuffer::from_vec(vec![1.0; 5], 5).unwrap();
            let stream = device.default_stream();
            let mut step = || -> Result<()> {
                let mut guard = array.read_write(&stream)?;
                halo.exchange(&stream, &mut [guard.view_mut()?.into()])?;
                guard.commit()
            };
            if rank < 2 {
                assert_eq!(step().unwrap_err().kind(), ErrorKind::Timeout);
                failed.fetch_add(1, Ordering::Release);
            }
            for _ in 0..20_000 {
                if failed.load(Ordering::Acquire) == 2 {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
            array.status(0)
        });
        assert_eq!(statuses.unwrap(), [expected, expected, PartStatus::Valid], "direct: {direct}");
    }
}
