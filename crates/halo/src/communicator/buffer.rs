//! The buffers that messages are sent from and received into.

use std::fmt;

use runtime_core::{Device, Error, ErrorKind, Memory, Pinned, Result};

/// The bytes of a message: memory with one owner, whose first [`len`](Self::len) bytes are in use.
///
/// ```
/// use halo::communicator::Buffer;
///
/// let mut buffer = Buffer::host(vec![1, 2, 3, 4]);
/// buffer.set_len(2)?;
/// assert_eq!((buffer.len(), buffer.capacity(), buffer.to_vec()?), (2, 4, vec![1, 2]));
/// assert!(buffer.set_len(5).is_err());
/// # Ok::<(), halo::Error>(())
/// ```
#[derive(Debug)]
pub struct Buffer {
    storage: Storage,
    len: usize,
    mark: u64,
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
    fn capacity(&self) -> usize {
        match self {
            Self::Host(bytes) => bytes.len(),
            Self::Pinned(pinned) => pinned.len(),
            Self::Device(memory) => memory.len(),
        }
    }

    /// Whether one storage can replace the other: same kind, same device, same size.
    fn is_like(&self, other: &Self) -> bool {
        self.capacity() == other.capacity()
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
        Self::new(Storage::Host(bytes))
    }

    /// A buffer of all of this pinned memory.
    pub fn pinned(pinned: Pinned<u8>) -> Self {
        Self::new(Storage::Pinned(pinned))
    }

    /// A buffer of all of this device memory.
    pub fn device(memory: Memory<u8>) -> Self {
        Self::new(Storage::Device(memory))
    }

    fn new(storage: Storage) -> Self {
        Self { len: storage.capacity(), storage, mark: 0 }
    }

    /// The number of bytes in use: the bytes to send, or the length of the message to receive.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the same buffer with this mark: a number that is sent with the message, in addition to its bytes, to
    /// distinguish it from others with the same source and tag. The mark of a message is 0 unless it is set.
    #[must_use]
    pub fn marked(mut self, mark: u64) -> Self {
        self.mark = mark;
        self
    }

    /// The mark of the message to send or to receive.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// The size of the memory in bytes.
    pub fn capacity(&self) -> usize {
        self.storage.capacity()
    }

    /// Sets how many bytes are in use, starting with the first.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) -> Result<()> {
        if len > self.capacity() {
            let message = format!("{len} bytes of a buffer for {}", self.capacity());
            return Err(Error::new(ErrorKind::OutOfBounds, "set_len", message));
        }
        self.len = len;
        Ok(())
    }

    /// The memory of the buffer.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Calls `f` with the memory, to lend it to work that fills or reads it.
    ///
    /// If `f` replaces the memory, the number of bytes in use is limited to the new capacity.
    pub fn with_storage<R>(&mut self, f: impl FnOnce(&mut Storage) -> R) -> R {
        let result = f(&mut self.storage);
        self.len = self.len.min(self.storage.capacity());
        result
    }

    /// Returns the memory, without the number of bytes in use.
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

    /// Returns the bytes in use, if the host can address them. Blocks until work that writes them is done.
    ///
    /// # Errors
    ///
    /// The errors that the streams of that work report.
    pub fn as_slice(&self) -> Result<Option<&[u8]>> {
        let all = match &self.storage {
            Storage::Host(bytes) => Some(&bytes[..]),
            Storage::Pinned(pinned) => Some(pinned.as_slice()?),
            Storage::Device(memory) if !memory.is_host_visible() => None,
            Storage::Device(memory) => Some(memory.as_slice()?),
        };
        Ok(all.map(|all| &all[..self.len]))
    }

    /// Returns the bytes in use for writing, if the host can address them. Blocks until work that uses them is done.
    ///
    /// # Errors
    ///
    /// The errors that the streams of that work report.
    pub fn as_mut_slice(&mut self) -> Result<Option<&mut [u8]>> {
        let all = match &mut self.storage {
            Storage::Host(bytes) => Some(&mut bytes[..]),
            Storage::Pinned(pinned) => Some(pinned.as_mut_slice()?),
            Storage::Device(memory) if !memory.is_host_visible() => None,
            Storage::Device(memory) => Some(memory.as_mut_slice()?),
        };
        Ok(all.map(|all| &mut all[..self.len]))
    }

    /// Returns a copy of the bytes in use. Blocks until all work that was enqueued on the memory before, and then the copy,
    /// is done.
    ///
    /// # Errors
    ///
    /// The errors of the copy from the device.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        match (self.as_slice()?, &self.storage) {
            (None, Storage::Device(memory)) => {
                let stream = memory.device().default_stream();
                memory.order_before(&stream)?;
                memory.view().slice(0..self.len)?.to_vec(&stream)
            }
            (bytes, _) => Ok(bytes.unwrap_or_default().to_vec()),
        }
    }

    /// Replaces the bytes in use. Blocks until that is done, and all work that was enqueued on the memory before.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` unless the number of bytes equals the number in use. The errors of the copy to the device.
    pub fn copy_from_slice(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() != self.len {
            let message = format!("{} bytes into {} in use", bytes.len(), self.len);
            return Err(Error::new(ErrorKind::OutOfBounds, "copy_from_slice", message));
        }
        if let Some(own) = self.as_mut_slice()? {
            own.copy_from_slice(bytes);
        } else if let Storage::Device(memory) = &mut self.storage {
            let stream = memory.device().default_stream();
            memory.order_before(&stream)?;
            memory.view_mut().slice(0..bytes.len())?.copy_from_slice(&stream, bytes)?;
        }
        Ok(())
    }

    /// Takes the bytes of a buffer of the same length; the bytes of that buffer are then unspecified. Copies nothing if
    /// the memories can be exchanged.
    pub(crate) fn take_from(&mut self, source: &mut Self) -> Result<()> {
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
            Buffer::host(vec![0; 6]),
            Buffer::pinned(sim.pinned_allocate(6).unwrap()),
            Buffer::device(sim.memory_allocate(6).unwrap()),
            Buffer::device(host.memory_allocate(6).unwrap()),
            Buffer::host(vec![0; 9]),
            Buffer::device(sim.memory_allocate(9).unwrap()),
        ]
    }

    #[test]
    fn bytes_pass_between_every_two_kinds_of_memory() {
        for from in 0..storages().len() {
            for to in 0..storages().len() {
                let (mut source, mut destination) =
                    (storages().swap_remove(from), storages().swap_remove(to));
                source.set_len(4).unwrap();
                destination.set_len(4).unwrap();
                source.copy_from_slice(&[9, 8, 7, 6]).unwrap();
                destination.take_from(&mut source).unwrap();
                assert_eq!(destination.to_vec().unwrap(), [9, 8, 7, 6], "{from} to {to}");
                assert_eq!((source.len(), destination.len()), (4, 4));
            }
        }
    }

    #[test]
    fn like_memories_are_exchanged_and_not_copied() {
        let (mut one, mut two) = (Buffer::host(vec![1; 8]), Buffer::host(vec![2; 8]));
        let address = two.as_slice().unwrap().unwrap().as_ptr();
        one.take_from(&mut two).unwrap();
        assert_eq!(one.as_slice().unwrap().unwrap().as_ptr(), address);
    }

    #[test]
    fn a_length_beyond_the_memory_is_refused() {
        let mut buffer = Buffer::host(vec![0; 3]);
        assert_eq!(buffer.set_len(4).unwrap_err().kind(), ErrorKind::OutOfBounds);
        assert_eq!(buffer.copy_from_slice(&[1; 2]).unwrap_err().kind(), ErrorKind::OutOfBounds);
        buffer.with_storage(|storage| *storage = Storage::Host(vec![5]));
        assert_eq!(buffer.len(), 1);
    }
}
