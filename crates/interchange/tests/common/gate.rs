//! Device work that ends when a test allows it.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use runtime_core::{Grid, HostModule, Launch, Memory, Stream, args};

/// A gate that the work waits for.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Opens the gate after a while, from another thread.
    pub(crate) fn open_later(&self) {
        self.open_after(Duration::from_millis(30));
    }

    pub(crate) fn open_after(&self, time: Duration) {
        let gate = self.clone();
        thread::spawn(move || {
            thread::sleep(time);
            gate.open();
        });
    }

    /// Blocks until the gate is open, but not forever.
    fn pass(&self) {
        let closed = self.0.0.lock().unwrap();
        let timeout = Duration::from_secs(60);
        let (_open, waited) = self.0.1.wait_timeout_while(closed, timeout, |open| !*open).unwrap();
        assert!(!waited.timed_out(), "the gate was not opened");
    }
}

/// Starts work that fills the memory with sevens once the gate is open.
pub(crate) fn start(memory: &mut Memory<f64>, stream: &Stream) -> Gate {
    let gate = Gate::default();
    let passed = gate.clone();
    let work = move |_: &Grid<'_>, x: &mut [f64]| {
        passed.pass();
        x.fill(7.0);
    };
    let module = stream.device().module_load(&HostModule::new().with("work", work)).unwrap();
    let kernel = module.kernel("work").unwrap();
    // SAFETY: the kernel is safe Rust that accesses only its argument.
    unsafe { kernel.launch(stream, &Launch::cover(1, 1), args![memory.view_mut()]) }.unwrap();
    gate
}
