//! The buffers that messages are sent from and received into.

use std::fmt;

use runtime_core::{Device, Error, ErrorKind, Memory, Pinned, Result, Stream, StreamOptions};

/// The bytes of a message: memory with one owner.
#[derive(Debug)]
pub struct Buffer {
    storage: Storage,
    message_id: u64,
    token: u64,
}

/// The whole memory of a [`Buffer`].
pub enum Storage {
    /// Ordinary host memory.
    Host(Vec<u8>),
    /// Pinned (page-locked) host memory. Access from the host waits for the copies that use it.
    Pinned(Pinned<u8>),
    /// Memory of a device. If the host can address it, access from the host waits for the streams that used it.
    Device(Memory<u8>),
}

impl Storage {
    /// The size of the memory in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Host(bytes) => bytes.len(),
            Self::Pinned(pinned) => pinned.len(),
            Self::Device(memory) => memory.len(),
        }
    }

    /// Whether one storage can replace the other: same kind, same device, same size.
    fn is_like(&self, other: &Self) -> bool {
        self.len() == other.len()
            && match (self, other) {
                (Self::Host(_), Self::Host(_)) => true,
                (Self::Pinned(one), Self::Pinned(two)) => one.device().is_same(two.device()),
                (Self::Device(one), Self::Device(two)) => one.device().is_same(two.device()),
                _ => false,
            }
    }
}

impl Buffer {
    /// A buffer of all these bytes.
    pub fn host(bytes: Vec<u8>) -> Self {
        Self::from(Storage::Host(bytes))
    }

    /// A buffer of all of this pinned memory.
    pub fn pinned(pinned: Pinned<u8>) -> Self {
        Self::from(Storage::Pinned(pinned))
    }

    /// A buffer of all of this device memory.
    pub fn device(memory: Memory<u8>) -> Self {
        Self::from(Storage::Device(memory))
    }

    /// The number of bytes: of the message to send, or of the message to receive.
    pub fn len(&self) -> usize {
        self.storage.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the same buffer with this message ID. The ID is a number that is sent with the message, in addition to
    /// its bytes. It distinguishes the message from others with the same source and tag. It is 0 unless it is set.
    #[must_use]
    pub fn with_message_id(mut self, message_id: u64) -> Self {
        self.message_id = message_id;
        self
    }

    /// The message ID of the message to send or to receive.
    pub fn message_id(&self) -> u64 {
        self.message_id
    }

    /// Returns the same buffer with the [token](crate::HaloExchange::set_token) of its exchange. Message IDs of
    /// different tokens differ, so a transport that carries the token, too, can name it in its error. It is 0 unless it
    /// is set.
    #[must_use]
    pub fn with_token(mut self, token: u64) -> Self {
        self.token = token;
        self
    }

    /// The token of the exchange.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The memory of the buffer.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The memory, for work that fills or reads it.
    pub fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }

    /// Returns the memory.
    pub fn into_storage(self) -> Storage {
        self.storage
    }

    /// The device of the memory; `None` for ordinary host memory.
    pub fn owner(&self) -> Option<&Device> {
        match &self.storage {
            Storage::Host(_) => None,
            Storage::Pinned(pinned) => Some(pinned.device()),
            Storage::Device(memory) => Some(memory.device()),
        }
    }

    /// Returns the bytes, if the host can address them. Blocks until work that writes them is done.
    ///
    /// # Errors
    ///
    /// The errors that the streams of that work report.
    pub fn as_slice(&self) -> Result<Option<&[u8]>> {
        Ok(match &self.storage {
            Storage::Host(bytes) => Some(&bytes[..]),
            Storage::Pinned(pinned) => Some(pinned.as_slice()?),
            Storage::Device(memory) if !memory.is_host_visible() => None,
            Storage::Device(memory) => Some(memory.as_slice()?),
        })
    }

    /// Returns the bytes for writing, if the host can address them. Blocks until work that uses them is done.
    ///
    /// # Errors
    ///
    /// The errors that the streams of that work report.
    pub fn as_mut_slice(&mut self) -> Result<Option<&mut [u8]>> {
        Ok(match &mut self.storage {
            Storage::Host(bytes) => Some(&mut bytes[..]),
            Storage::Pinned(pinned) => Some(pinned.as_mut_slice()?),
            Storage::Device(memory) if !memory.is_host_visible() => None,
            Storage::Device(memory) => Some(memory.as_mut_slice()?),
        })
    }

    /// Returns a copy of the bytes. Blocks until all work that was enqueued on the memory before, and then the copy, is
    /// done.
    ///
    /// # Errors
    ///
    /// The errors of the copy from the device.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        match (self.as_slice()?, &self.storage) {
            (None, Storage::Device(memory)) => memory.to_vec(&stream_behind(memory)?),
            (bytes, _) => Ok(bytes.unwrap_or_default().to_vec()),
        }
    }

    /// Replaces the bytes. Blocks until that is done, and all work that was enqueued on the memory before.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` unless the numbers of bytes are equal. The errors of the copy to the device.
    pub fn copy_from_slice(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() != self.len() {
            let message = format!("{} bytes into {}", bytes.len(), self.len());
            return Err(Error::new(ErrorKind::OutOfBounds, "copy_from_slice", message));
        }
        if let Some(own) = self.as_mut_slice()? {
            own.copy_from_slice(bytes);
        } else if let Storage::Device(memory) = &mut self.storage {
            memory.copy_from_slice(&stream_behind(memory)?, bytes)?;
        }
        Ok(())
    }

    /// Takes the bytes of a buffer of the same length; the bytes of that buffer are then unspecified. Exchanges the
    /// memories if they are of one kind, and copies the bytes otherwise.
    pub(crate) fn exchange_or_copy(&mut self, source: &mut Self) -> Result<()> {
        if self.storage.is_like(&source.storage) {
            std::mem::swap(&mut self.storage, &mut source.storage);
            return Ok(());
        }
        match source.as_slice()? {
            Some(bytes) => self.copy_from_slice(bytes),
            None => self.copy_from_slice(&source.to_vec()?),
        }
    }
}

/// A stream of its own that waits for the work on the memory. Streams of the program would hold the copy up with other
/// work, and would report the failures of that work here, perhaps to another rank.
fn stream_behind(memory: &Memory<u8>) -> Result<Stream> {
    let stream = memory.device().stream_create(&StreamOptions::default())?;
    memory.order_before(&stream)?;
    Ok(stream)
}

impl From<Storage> for Buffer {
    /// A buffer of all of this memory.
    fn from(storage: Storage) -> Self {
        Self { storage, message_id: 0, token: 0 }
    }
}

impl Default for Buffer {
    /// An empty buffer.
    fn default() -> Self {
        Self::host(Vec::new())
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(bytes) => write!(f, "Host({})", bytes.len()),
            Self::Pinned(pinned) => pinned.fmt(f),
            Self::Device(memory) => memory.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use backend_sim::{SimConfig, SimDevice};

    use super::*;

    fn storages() -> Vec<Buffer> {
        let host = Device::new(backend_host::HostDevice::new(0)).unwrap();
        let sim = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
        vec![
            Buffer::host(vec![0; 4]),
            Buffer::pinned(sim.pinned_allocate(4).unwrap()),
            Buffer::device(sim.memory_allocate(4).unwrap()),
            Buffer::device(host.memory_allocate(4).unwrap()),
        ]
    }

    #[test]
    fn bytes_pass_between_every_two_kinds_of_memory() {
        for from in 0..storages().len() {
            for to in 0..storages().len() {
                let (mut source, mut destination) =
                    (storages().swap_remove(from), storages().swap_remove(to));
                source.copy_from_slice(&[9, 8, 7, 6]).unwrap();
                destination.exchange_or_copy(&mut source).unwrap();
                assert_eq!(destination.to_vec().unwrap(), [9, 8, 7, 6], "{from} to {to}");
                assert_eq!((source.len(), destination.len()), (4, 4));
            }
        }
    }

    #[test]
    fn like_memories_are_exchanged_and_not_copied() {
        let (mut one, mut two) = (Buffer::host(vec![1; 8]), Buffer::host(vec![2; 8]));
        let address = two.as_slice().unwrap().unwrap().as_ptr();
        one.exchange_or_copy(&mut two).unwrap();
        assert_eq!(one.as_slice().unwrap().unwrap().as_ptr(), address);
    }

    #[test]
    fn another_number_of_bytes_is_refused() {
        let mut buffer = Buffer::host(vec![0; 3]);
        assert_eq!(buffer.copy_from_slice(&[1; 2]).unwrap_err().kind(), ErrorKind::OutOfBounds);
    }
}
