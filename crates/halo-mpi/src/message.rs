//! A single message that MPI sends or receives.
//!
//! A receive is posted only when its message has arrived and is known to have the right length. MPI does not report a
//! message that is too long safely: Open MPI 4.1, when it copies directly from the sender's memory, reports the error
//! only after it has written beyond the buffer.
#![expect(unsafe_code, reason = "lends MPI the bytes of buffers")]

use std::ffi::{c_int, c_void};
use std::{env, mem, ptr};

use halo::communicator::{Buffer, Envelope, Storage};
use runtime_core::{Error, ErrorKind, NativeKind, Result};

use crate::library::{Comm, Handle, Raw, Status, Turn, call, test};
use crate::tag::{Digest, Tags};

/// The interfaces whose device memory MPI takes by its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceMemory {
    cuda: bool,
    hip: bool,
}

impl DeviceMemory {
    const NONE: Self = Self { cuda: false, hip: false };

    /// As the user says, or else as the library says.
    pub(crate) fn of(turn: &Turn) -> Self {
        let said = env::var("HALO_MPI_DEVICE_AWARE").ok();
        let is_taken = |api| match said.as_deref() {
            Some("1") => true,
            Some("0") => false,
            _ => turn.mpi.takes_memory_of(api),
        };
        Self { cuda: is_taken("cuda"), hip: is_taken("hip") }
    }

    /// Whether MPI takes memory of this interface.
    pub(crate) fn includes(self, api: &str) -> bool {
        api == "cuda" && self.cuda || api == "hip" && self.hip
    }
}

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
    pub(crate) fn new(
        envelope: &Envelope,
        mut buffer: Buffer,
        taken: DeviceMemory,
    ) -> Result<Self> {
        let count = int(envelope, "bytes", envelope.len)?;
        let address = if let Some(bytes) = buffer.as_mut_slice()? {
            bytes.as_mut_ptr().cast()
        } else {
            let native = match buffer.storage() {
                Storage::Device(memory) if taken.includes(memory.device().native().api) => {
                    memory.native()
                }
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
        Self::new(&envelope, Buffer::host(vec![0; found.len]), DeviceMemory::NONE)
    }
}

fn int(envelope: &Envelope, what: &str, value: usize) -> Result<c_int> {
    c_int::try_from(value)
        .map_err(|_| envelope.invalid(format!("{what}: {value}; MPI's limit is {}", c_int::MAX)))
}

/// A message that has arrived and that no other receive can match.
pub(crate) struct Found {
    handle: Raw,
    pub(crate) tag: u32,
    pub(crate) len: usize,
    digest: Digest,
}

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
pub(crate) fn find(turn: &Turn, on: &Comm, tags: Tags, peer: usize) -> Result<Option<Found>> {
    const OPERATION: &str = "receive";
    let failed = |message| Error::new(ErrorKind::Driver, OPERATION, message);
    let peer = c_int::try_from(peer).map_err(|_| failed(format!("rank {peer}")))?;
    let (on, constants) = (on.raw(OPERATION)?, &turn.mpi.constants);
    let (mut found, mut status) = (0, Status::EMPTY);
    let (handle, code) = call!(turn.mpi, t => {
        // MPI sets it if there is a message.
        let mut handle = Handle::down(Raw(0));
        // SAFETY: the communicator is valid, and MPI is running.
        let code = unsafe {
            let any = constants.any_tag;
            (t.improbe)(peer, any, Handle::down(on), &mut found, &mut handle, &mut status)
        };
        (Handle::up(handle), code)
    });
    turn.outcome(OPERATION, code)?;
    if found == 0 {
        return Ok(None);
    }
    let mut count = 0;
    let byte = constants.byte;
    let code = call!(turn.mpi, t => {
        // SAFETY: MPI has filled the status, and the type is its own.
        unsafe { (t.get_count)(&status, Handle::down(byte), &mut count) }
    });
    turn.outcome(OPERATION, code)?;
    let len = usize::try_from(count).map_err(|_| failed(format!("a message of {count} bytes")))?;
    let (tag, digest) = tags.split(status.0[constants.tag_in_status]);
    Ok(Some(Found { handle, tag, len, digest }))
}

/// A message that MPI is processing.
pub(crate) struct Message {
    handle: Raw,
    operation: &'static str,
    /// Taken when MPI no longer uses them.
    bytes: Option<Bytes>,
}

impl Message {
    pub(crate) fn send(
        turn: &Turn,
        on: &Comm,
        tags: Tags,
        envelope: &Envelope,
        bytes: Bytes,
    ) -> Result<Self> {
        let operation = envelope.operation();
        let peer = int(envelope, "rank", envelope.peer)?;
        let tag = tags.join(envelope.tag, envelope.message_id);
        let (on, constants) = (on.raw(operation)?, &turn.mpi.constants);
        let (handle, code) = call!(turn.mpi, t => {
            let (on, byte) = (Handle::down(on), Handle::down(constants.byte));
            let mut handle = Handle::down(constants.request_null);
            // SAFETY: the address is the start of `count` bytes that the buffer owns. The buffer stays in this message
            // until MPI no longer uses it, and is leaked if that never becomes known.
            let code = unsafe {
                (t.isend)(bytes.address, bytes.count, byte, peer, tag, on, &mut handle)
            };
            (Handle::up(handle), code)
        });
        // If the call has failed, MPI may still use them.
        let message = Self { handle, operation, bytes: Some(bytes) };
        turn.outcome(operation, code)?;
        Ok(message)
    }

    /// Receives a message into a buffer of the same length. Without a buffer the message is received and discarded.
    pub(crate) fn receive(
        turn: &Turn,
        envelope: &Envelope,
        found: Found,
        bytes: Option<Bytes>,
    ) -> Result<Self> {
        let bytes = match bytes {
            Some(bytes) if bytes.buffer.len() == found.len => bytes,
            _ => Bytes::scratch(envelope, &found)?,
        };
        let (operation, constants) = (envelope.operation(), &turn.mpi.constants);
        let (handle, code) = call!(turn.mpi, t => {
            let (byte, mut message) = (Handle::down(constants.byte), Handle::down(found.handle));
            let mut handle = Handle::down(constants.request_null);
            // SAFETY: as in `send`; the message has exactly `count` bytes, and no other code can use the bytes of the
            // buffer.
            let code = unsafe {
                (t.imrecv)(bytes.address, bytes.count, byte, &mut message, &mut handle)
            };
            (Handle::up(handle), code)
        });
        // If the call has failed, MPI may still use them.
        let message = Self { handle, operation, bytes: Some(bytes) };
        turn.outcome(operation, code)?;
        Ok(message)
    }

    /// Returns the buffer if MPI no longer uses it.
    pub(crate) fn test(&mut self, turn: &Turn) -> Result<Option<Buffer>> {
        let is_done = test(turn, self.operation, &mut self.handle)?;
        let done = if is_done { self.bytes.take() } else { None };
        Ok(done.map(|bytes| bytes.buffer))
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // MPI may still use them.
        mem::forget(self.bytes.take());
    }
}
