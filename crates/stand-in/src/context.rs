//! Contexts, to which the work and the objects of a device belong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::code::{Code, Result};

/// A context of a device: the primary context, from the first retain to the last release, or a context of the program.
#[derive(Debug)]
pub struct Context {
    device: usize,
    handle: u64,
    /// The code that every call returns once work has failed; 0 until then.
    failed: AtomicU32,
    /// Whether waits and queries answer for ever that work is not ready.
    hangs: AtomicBool,
    /// Set to stop kernels.
    stopped: AtomicBool,
    /// The devices whose memory kernels may access.
    peers: Mutex<BTreeSet<usize>>,
}

impl Context {
    pub(crate) fn new(device: usize, handle: u64) -> Self {
        let (failed, hangs, stopped, peers) = Default::default();
        Self { device, handle, failed, hangs, stopped, peers }
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// The number of its device.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Checks that no work of the context has failed.
    ///
    /// # Errors
    ///
    /// The code of the work that failed first.
    pub fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    /// Notes that work has failed. The first code stays.
    pub(crate) fn fail(&self, code: Code) {
        let _first = self.failed.compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// From now on, waits and queries answer that work is not ready.
    pub(crate) fn hang(&self) {
        self.hangs.store(true, Ordering::Release);
    }

    /// Checks that waits and queries may answer that work is ready.
    pub(crate) fn check_progress(&self) -> Result<()> {
        if self.hangs.load(Ordering::Acquire) { Err(Code::NOT_READY) } else { Ok(()) }
    }

    pub(crate) fn stop(&self) -> &AtomicBool {
        &self.stopped
    }

    /// Ends the failure, and disables access to other devices.
    pub(crate) fn renew(&self) {
        self.peers.lock().clear();
        self.failed.store(0, Ordering::Release);
        self.hangs.store(false, Ordering::Release);
        self.stopped.store(false, Ordering::Release);
    }

    /// Lets kernels access the memory of another device.
    ///
    /// # Errors
    ///
    /// [`Code::PEER_ACCESS_ALREADY_ENABLED`], or [`Code::INVALID_DEVICE`] for its own device.
    pub fn enable_peer(&self, device: usize) -> Result<()> {
        if device == self.device {
            return Err(Code::INVALID_DEVICE);
        }
        let new = self.peers.lock().insert(device);
        new.then_some(()).ok_or(Code::PEER_ACCESS_ALREADY_ENABLED)
    }

    pub(crate) fn reaches(&self, device: usize) -> bool {
        device == self.device || self.peers.lock().contains(&device)
    }
}

/// The primary context of a device, and how often it was retained.
#[derive(Debug)]
pub(crate) struct Primary {
    pub(crate) context: Arc<Context>,
    pub(crate) retains: usize,
}
