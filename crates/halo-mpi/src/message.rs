//! A single message that MPI sends or receives.
//!
//! A receive is posted only when its message has arrived and is known to have the right length. MPI does not report a
//! message that is too long safely: Open MPI 4.1, when it copies directly from the sender's memory, reports the error
//! only after it has written beyond the buffer.
#![expect(unsafe_code, reason = "lends MPI the bytes of buffers")]

use std::ffi::{c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;

use halo::communicator::{Buffer, Envelope, Storage};
use mpi::ffi;
use runtime_core::{Error, ErrorKind, NativeKind, Result};

use crate::library::{Handle, Turn, outcome};
use crate::tag::{Digest, Tags};

/// A buffer, with its address and length for MPI.
pub(crate) struct Bytes {
    buffer: Buffer,
    address: *mut c_void,
    count: c_int,
}

// SAFETY: the address is that of memory that the buffer owns, and that moves with the buffer.
unsafe impl Send for Bytes {}

impl Bytes {
    /// Blocks until work that uses the bytes is done, if the host can address them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for too many bytes, or for memory that this MPI does not accept.
    pub(crate) fn new(envelope: &Envelope, mut buffer: Buffer, device_aware: bool) -> Result<Self> {
        let count = int(envelope, "bytes", envelope.len)?;
        let address = if let Some(bytes) = buffer.as_mut_slice()? {
            bytes.as_mut_ptr().cast()
        } else {
            let native = match buffer.storage() {
                Storage::Device(memory) if device_aware => memory.native(),
                _ => None,
            };
            match native.filter(|native| native.kind == NativeKind::Pointer) {
                Some(native) => ptr::with_exposed_provenance_mut(native.raw),
                None => {
                    let storage = buffer.storage();
                    return Err(
                        envelope.invalid(format!("{storage:?}, which this MPI does not accept"))
                    );
                }
            }
        };
        Ok(Self { buffer, address, count })
    }

    /// Makes space for a message that no request waits for.
    fn scratch(envelope: &Envelope, found: &Found) -> Result<Self> {
        let envelope = Envelope { len: found.len, ..*envelope };
        Self::new(&envelope, Buffer::host(vec![0; found.len]), false)
    }
}

fn int(envelope: &Envelope, what: &str, value: usize) -> Result<c_int> {
    c_int::try_from(value)
        .map_err(|_| envelope.invalid(format!("{what}: {value}; MPI's limit is {}", c_int::MAX)))
}

/// A message that has arrived and that no other receive can match.
pub(crate) struct Found {
    handle: ffi::MPI_Message,
    pub(crate) tag: u32,
    pub(crate) len: usize,
    digest: Digest,
}

// SAFETY: the handle identifies an object of the library, which any thread may use while it holds the turn.
unsafe impl Send for Found {}

impl Found {
    /// Returns the error if this is not the message of a receive.
    pub(crate) fn mismatch(&self, tags: Tags, envelope: &Envelope) -> Option<Error> {
        if self.digest != tags.digest(envelope.message_id) {
            return Some(envelope.wrong_message_id());
        }
        (self.len != envelope.len).then(|| envelope.wrong_length(self.len))
    }
}

/// Looks for the earliest message from a peer. It accepts any tag, because tags contain digests of message IDs.
pub(crate) fn find(turn: &Turn, on: Handle, tags: Tags, peer: usize) -> Result<Option<Found>> {
    const OPERATION: &str = "receive";
    let failed = |message| Error::new(ErrorKind::Driver, OPERATION, message);
    let peer = c_int::try_from(peer).map_err(|_| failed(format!("rank {peer}")))?;
    let mut found = 0;
    // SAFETY: a constant of the library.
    let mut handle = unsafe { ffi::RSMPI_MESSAGE_NULL };
    let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
    // SAFETY: the communicator lasts as long as MPI runs, which it does in this turn.
    let code = unsafe {
        let status = status.as_mut_ptr();
        ffi::MPI_Improbe(peer, ffi::MPI_ANY_TAG, on.0, &mut found, &mut handle, status)
    };
    outcome(turn, OPERATION, code)?;
    if found == 0 {
        return Ok(None);
    }
    let mut count = 0;
    // SAFETY: MPI has filled the status, and the type is its own.
    let code = unsafe { ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut count) };
    outcome(turn, OPERATION, code)?;
    let len = usize::try_from(count).map_err(|_| failed(format!("a message of {count} bytes")))?;
    // SAFETY: an all-zero status is valid, and MPI has filled it since.
    let (tag, digest) = tags.split(unsafe { status.assume_init() }.MPI_TAG);
    Ok(Some(Found { handle, tag, len, digest }))
}

/// A message that MPI is processing.
pub(crate) struct Message {
    handle: ffi::MPI_Request,
    operation: &'static str,
    /// Taken when MPI no longer uses them.
    bytes: Option<Bytes>,
}

// SAFETY: the handle identifies an object of the library, which any thread may use while it holds the turn.
unsafe impl Send for Message {}

impl Message {
    pub(crate) fn send(
        turn: &Turn,
        on: Handle,
        tags: Tags,
        envelope: &Envelope,
        bytes: Bytes,
    ) -> Result<Self> {
        let peer = int(envelope, "rank", envelope.peer)?;
        let tag = tags.join(envelope.tag, envelope.message_id);
        // SAFETY: constants of the library.
        let (unit, mut handle) = unsafe { (ffi::RSMPI_UINT8_T, ffi::RSMPI_REQUEST_NULL) };
        // SAFETY: the address is the start of `count` bytes that the buffer owns. The buffer stays in this message
        // until MPI no longer uses it, and is leaked if that never becomes known.
        let code = unsafe {
            ffi::MPI_Isend(bytes.address, bytes.count, unit, peer, tag, on.0, &mut handle)
        };
        outcome(turn, envelope.operation(), code)?;
        Ok(Self { handle, operation: envelope.operation(), bytes: Some(bytes) })
    }

    /// Receives a message into a buffer of the same length. Without a buffer the message is received and discarded.
    pub(crate) fn receive(
        turn: &Turn,
        envelope: &Envelope,
        mut found: Found,
        bytes: Option<Bytes>,
    ) -> Result<Self> {
        let bytes = match bytes {
            Some(bytes) if bytes.buffer.len() == found.len => bytes,
            _ => Bytes::scratch(envelope, &found)?,
        };
        // SAFETY: constants of the library.
        let (unit, mut handle) = unsafe { (ffi::RSMPI_UINT8_T, ffi::RSMPI_REQUEST_NULL) };
        // SAFETY: as in `send`; the message has exactly `count` bytes, and no other code can use the bytes of the
        // buffer.
        let code = unsafe {
            ffi::MPI_Imrecv(bytes.address, bytes.count, unit, &mut found.handle, &mut handle)
        };
        outcome(turn, envelope.operation(), code)?;
        Ok(Self { handle, operation: envelope.operation(), bytes: Some(bytes) })
    }

    /// Returns the buffer if MPI no longer uses it.
    pub(crate) fn test(&mut self, turn: &Turn) -> Result<Option<Buffer>> {
        let mut done = 0;
        // SAFETY: the handle is that of a started request, or null if the request was found complete.
        let code = unsafe { ffi::MPI_Test(&mut self.handle, &mut done, ffi::RSMPI_STATUS_IGNORE) };
        outcome(turn, self.operation, code)?;
        let done = if done == 0 { None } else { self.bytes.take() };
        Ok(done.map(|bytes| bytes.buffer))
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // MPI may still use them.
        mem::forget(self.bytes.take());
    }
}
