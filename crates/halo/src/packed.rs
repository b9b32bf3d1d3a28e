//! Messages in the hands of those who have a transport of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use runtime_core::{Event, Result};

use crate::communicator::Buffer;
use crate::pool::Pool;

/// Messages that are packed, or will be once the device gets there. Their buffers go back to the pool when this is
/// dropped.
#[derive(Debug)]
pub struct Packed {
    pub(crate) messages: Vec<(usize, Option<Buffer>)>,
    pub(crate) event: Event,
    pub(crate) pool: Arc<Mutex<Pool>>,
}

impl Packed {
    /// Whether the messages are packed. Does not block.
    ///
    /// # Errors
    ///
    /// What the device reports.
    pub fn ready(&self) -> Result<bool> {
        self.event.is_done()
    }

    /// Blocks until the messages are packed.
    ///
    /// # Errors
    ///
    /// `Timeout`; what the device reports.
    pub fn synchronize(&self, timeout: Duration) -> Result<()> {
        self.event.wait_for(timeout)
    }

    /// The messages: rank and buffer, whose bytes are there once they are packed. Several to one rank come in their order,
    /// which is that of its [`incoming`](crate::HaloTransformer::incoming).
    pub fn messages(&self) -> impl Iterator<Item = (usize, &Buffer)> {
        self.messages.iter().filter_map(|(rank, buffer)| Some((*rank, buffer.as_ref()?)))
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        let mut pool = self.pool.lock();
        for (_, buffer) in &mut self.messages {
            if let Some(buffer) = buffer.take() {
                pool.give(buffer.into_storage(), Some(self.event.clone()));
            }
        }
    }
}

/// A message to receive. Its buffer goes back to the pool when this is dropped.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) index: usize,
    pub(crate) rank: usize,
    pub(crate) buffer: Option<Buffer>,
    /// Whether it was given bytes, or its memory to whoever may write there.
    pub(crate) is_filled: AtomicBool,
    pub(crate) pool: Arc<Mutex<Pool>>,
}

impl Incoming {
    /// Whose message it is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Sets its bytes. Blocks until they are there.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` unless they are as many as the message has; what copying to the device reports.
    pub fn copy_from_slice(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.as_mut().map_or(Ok(()), |buffer| buffer.copy_from_slice(bytes))?;
        *self.is_filled.get_mut() = true;
        Ok(())
    }

    /// Its bytes to receive into, if the host can address them.
    ///
    /// # Errors
    ///
    /// What earlier uses of the buffer report.
    pub fn as_mut_slice(&mut self) -> Result<Option<&mut [u8]>> {
        *self.is_filled.get_mut() = true;
        self.buffer.as_mut().map_or(Ok(None), Buffer::as_mut_slice)
    }

    /// Its bytes, on the device perhaps, for transports that know such memory by its handle.
    pub fn buffer(&self) -> Option<&Buffer> {
        self.is_filled.store(true, Ordering::Relaxed);
        self.buffer.as_ref()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.lock().give(buffer.into_storage(), None);
        }
    }
}
