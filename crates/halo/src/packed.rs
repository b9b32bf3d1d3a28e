//! Packed and incoming messages, for programs with their own transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use runtime_core::{Event, Result};

use crate::communicator::Buffer;
use crate::engine::pool::Pool;

/// Messages that are packed, or will be packed when the device reaches the launch. Their buffers return to the pool
/// when this is dropped.
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
    /// The errors that the device reports.
    pub fn ready(&self) -> Result<bool> {
        self.event.is_done()
    }

    /// Blocks until the messages are packed.
    ///
    /// # Errors
    ///
    /// `Timeout`. Other errors that the device reports.
    pub fn synchronize(&self, timeout: Duration) -> Result<()> {
        self.event.wait_for(timeout)
    }

    /// The messages: destination rank and buffer. The bytes are valid once the messages are packed. Messages to one
    /// rank are in the order of its [`incoming`](crate::HaloTransformer::incoming).
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

/// A message to receive. Its buffer returns to the pool when this is dropped.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) index: usize,
    pub(crate) rank: usize,
    pub(crate) buffer: Option<Buffer>,
    /// Whether bytes were copied into it, or its memory was handed out for writing.
    pub(crate) is_filled: AtomicBool,
    pub(crate) pool: Arc<Mutex<Pool>>,
}

impl Incoming {
    /// The rank that sends the message.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Sets the bytes of the message. Blocks until they are copied.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` unless the number of bytes is that of the message. Errors of the copy to the device.
    pub fn copy_from_slice(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.as_mut().map_or(Ok(()), |buffer| buffer.copy_from_slice(bytes))?;
        *self.is_filled.get_mut() = true;
        Ok(())
    }

    /// Returns the bytes of the message to receive into, if the host can address them.
    ///
    /// # Errors
    ///
    /// Errors of earlier uses of the buffer.
    pub fn as_mut_slice(&mut self) -> Result<Option<&mut [u8]>> {
        *self.is_filled.get_mut() = true;
        self.buffer.as_mut().map_or(Ok(None), Buffer::as_mut_slice)
    }

    /// Returns the buffer, possibly on the device, for transports that identify such memory by its handle.
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
