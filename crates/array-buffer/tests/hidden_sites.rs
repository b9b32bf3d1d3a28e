//! Messages of a process that hides source lines. This is a separate test program, because hiding cannot be undone.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::thread;
use std::time::Duration;

use array_buffer::{ArrayBuffer, Error, SharedArrayBuffer, TransferBudget, hide_call_sites};
use backend_sim::{SimConfig, SimDevice};
use runtime_core::Device;

/// Errors that would contain source lines: of a holder, of a budget and of an access.
fn failures() -> [Error; 4] {
    let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
    let shared = SharedArrayBuffer::new(ArrayBuffer::from_vec(vec![1.0, 2.0], 2).unwrap());
    let held = shared.write(Duration::ZERO).unwrap();
    let own = shared.read(Duration::ZERO).unwrap_err();
    let other = thread::scope(|scope| {
        scope.spawn(|| shared.read(Duration::ZERO).unwrap_err()).join().unwrap()
    });
    drop(held);
    let budget = TransferBudget::forbid();
    let array = shared.read(Duration::ZERO).unwrap();
    let dear = array.read(&device.default_stream()).unwrap_err();
    drop(budget);
    let unwritten = ArrayBuffer::<f64, ndarray::Ix1>::uninit(2).unwrap().read_host().unwrap_err();
    [own, other, dear, unwritten]
}

#[test]
fn lines_are_in_messages_until_they_are_hidden() {
    for failure in failures() {
        assert!(failure.message().contains("hidden_sites.rs"), "{failure}");
    }
    hide_call_sites();
    let hidden = failures();
    for failure in &hidden {
        assert!(
            !failure.message().contains(".rs") && !failure.message().contains("Thread"),
            "{failure}"
        );
    }
    assert_eq!(hidden[0].message(), "it is held for writing by this thread");
    assert!(hidden[1].message().contains("held for writing by"), "{}", hidden[1]);
    assert_eq!(hidden[3].message(), "part 0 was never written");
}
