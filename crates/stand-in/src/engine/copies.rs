//! Copies and fills.
#![expect(unsafe_code, reason = "copies from and to memory of the program")]

use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Engine;
use crate::code::{Code, Result};
use crate::context::Context;
use crate::fault::Class;
use crate::host::stage;
use crate::work::{Copy, Fill, Place, Work};

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
pub enum Endpoint {
    /// An address of memory that a device can access.
    Device(u64),
    /// A pointer of the host.
    Host(*mut u8),
}

impl Engine {
    /// Copies bytes.
    ///
    /// Pinned memory is read or written when the work runs. Other host memory is read before the call returns; a copy
    /// to such memory is finished when the call returns.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] if a range is in no allocation.
    ///
    /// # Safety
    ///
    /// An endpoint on the host has `bytes` bytes. Pinned memory has them until the work is finished.
    pub unsafe fn copy(
        &self,
        context: &Arc<Context>,
        to: Endpoint,
        from: Endpoint,
        bytes: usize,
        stream: u64,
    ) -> Result<()> {
        let fault = self.admit_work(Class::Copy, context)?;
        let stream = self.stream_in(context, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let source = match (self.place(from, bytes)?, from) {
            (Some(place), _) => place,
            // SAFETY: the caller guarantees the bytes.
            (None, Endpoint::Host(start)) => Place::Staged(unsafe { stage(start, bytes) }.into()),
            (None, Endpoint::Device(_)) => return Err(Code::INVALID_VALUE),
        };
        let (received, target) = match self.place(to, bytes)? {
            Some(place) => (None, place),
            None => {
                let received = Arc::new(Mutex::new(vec![0; bytes]));
                (Some(Arc::clone(&received)), Place::Caller(received))
            }
        };
        stream.submit(Work::Copy(Arc::new(Copy { to: target, from: source, bytes })), fault)?;
        if let (Some(received), Endpoint::Host(start)) = (received, to) {
            stream.synchronize()?;
            let received = received.lock();
            // SAFETY: the caller guarantees the bytes until this returns.
            unsafe { ptr::copy_nonoverlapping(received.as_ptr(), start, bytes) };
        }
        Ok(())
    }

    /// The memory of an endpoint; `None` for host memory that is not pinned.
    fn place(&self, end: Endpoint, bytes: usize) -> Result<Option<Place>> {
        let address = match end {
            Endpoint::Device(address) => address,
            Endpoint::Host(start) => {
                let first = start.addr() as u64;
                let last = first.checked_add(bytes as u64).ok_or(Code::INVALID_VALUE)?;
                if start.is_null() || self.state.space.is_reserved(first) {
                    return Err(Code::INVALID_VALUE);
                }
                if !self.state.space.touches(first..last) {
                    return Ok(None);
                }
                first
            }
        };
        let (memory, at) = self.range(address, bytes)?;
        Ok(Some(Place::Memory(memory, at)))
    }

    /// Fills memory with a pattern of 1, 2 or 4 bytes.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] if the range is in no allocation, or the address is not a multiple of the pattern's
    /// size.
    pub fn fill(
        &self,
        context: &Arc<Context>,
        address: u64,
        pattern: &[u8],
        count: usize,
        stream: u64,
    ) -> Result<()> {
        let fault = self.admit_work(Class::Fill, context)?;
        let stream = self.stream_in(context, stream)?;
        if count == 0 {
            return Ok(());
        }
        let bytes = count.checked_mul(pattern.len()).ok_or(Code::INVALID_VALUE)?;
        if !address.is_multiple_of(pattern.len() as u64) {
            return Err(Code::INVALID_VALUE);
        }
        let (memory, at) = self.range(address, bytes)?;
        let fill = Fill { memory, at, bytes, pattern: pattern.to_vec() };
        stream.submit(Work::Fill(Arc::new(fill)), fault)
    }
}
