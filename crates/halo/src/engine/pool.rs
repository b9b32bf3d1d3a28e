//! The pool of message buffers: bounded in bytes, and reused once a buffer is no longer in use.

use std::time::Instant;

use runtime_core::{Device, Error, ErrorKind, Event, Result, Stream};

use crate::communicator::Storage;

/// Buffers in memory of one device, or in host memory pinned for it.
#[derive(Debug)]
pub(crate) struct Pool {
    device: Device,
    pinned: bool,
    limit: usize,
    /// The bytes of all buffers, in use or idle.
    bytes: usize,
    idle: Vec<Idle>,
    /// Whether others see the buffers in use, and may enqueue work that uses them.
    shown: bool,
}

#[derive(Debug)]
struct Idle {
    buffer: Storage,
    /// The event after its last use.
    after: Option<Event>,
}

impl Idle {
    fn is_free(&self) -> Result<bool> {
        self.after.as_ref().map_or(Ok(true), Event::is_done)
    }
}

impl Pool {
    pub(crate) fn new(device: &Device, pinned: bool, limit: usize) -> Self {
        Self { device: device.clone(), pinned, limit, bytes: 0, idle: Vec::new(), shown: false }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Makes the limit at least this many bytes.
    pub(crate) fn raise_limit(&mut self, bytes: usize) {
        self.limit = self.limit.max(bytes);
    }

    /// Notes that others see the buffers.
    pub(crate) fn show(&mut self) {
        self.shown = true;
    }

    /// Returns a buffer of each of these sizes, or an error and no buffer. If a stream is given, its work comes after
    /// all work of others that uses the buffers.
    pub(crate) fn take_all(
        &mut self,
        mut sizes: impl Iterator<Item = usize>,
        stream: Option<&Stream>,
        deadline: Instant,
    ) -> Result<Vec<Storage>> {
        let mut buffers = Vec::new();
        let taken = sizes.try_for_each(|bytes| {
            buffers.push(self.take(bytes, deadline)?);
            match (stream, buffers.last()) {
                // Page-locked memory orders its uses by itself.
                (Some(stream), Some(Storage::Device(memory))) if self.shown => {
                    memory.order_before(stream)
                }
                _ => Ok(()),
            }
        });
        if let Err(error) = taken {
            buffers.into_iter().for_each(|buffer| self.give(buffer, None));
            return Err(error);
        }
        Ok(buffers)
    }

    /// Returns a buffer of exactly `bytes` bytes that is not in use. Blocks only if the limit leaves no other choice
    /// than to wait for an earlier use to end.
    fn take(&mut self, bytes: usize, deadline: Instant) -> Result<Storage> {
        for index in 0..self.idle.len() {
            if self.idle[index].buffer.len() == bytes && self.idle[index].is_free()? {
                return Ok(self.idle.swap_remove(index).buffer);
            }
        }
        // Other buffers make room. Free buffers go first, then those that must be waited for.
        while self.bytes.saturating_add(bytes) > self.limit {
            let mut next = None;
            for (index, idle) in self.idle.iter().enumerate() {
                if idle.is_free()? {
                    next = Some(index);
                    break;
                }
                next.get_or_insert(index);
            }
            let Some(index) = next else {
                let message = format!(
                    "a message of {bytes} bytes; {} of {} are in use",
                    self.bytes, self.limit
                );
                return Err(
                    Error::new(ErrorKind::LimitExceeded, "pool", message).on(self.device.id())
                );
            };
            if let Some(event) = &self.idle[index].after {
                event.wait_for(deadline.saturating_duration_since(Instant::now()))?;
            }
            let idle = self.idle.swap_remove(index);
            if idle.buffer.len() == bytes {
                return Ok(idle.buffer);
            }
            self.bytes -= idle.buffer.len();
        }
        let buffer = match self.pinned {
            true => Storage::Pinned(self.device.pinned_allocate(bytes)?),
            false => Storage::Device(self.device.memory_allocate(bytes)?),
        };
        self.bytes += bytes;
        Ok(buffer)
    }

    /// Takes back a buffer whose last use ends at the event.
    pub(crate) fn give(&mut self, buffer: Storage, after: Option<Event>) {
        self.idle.push(Idle { buffer, after });
    }

    /// Forgets all buffers: those in use will not return.
    pub(crate) fn clear(&mut self) {
        self.idle.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use backend_sim::{SimConfig, SimDevice};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn buffers_are_reused_and_counted() {
        let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
        let mut pool = Pool::new(&device, false, 100);
        let one = pool.take(60, soon()).unwrap();
        let two = pool.take(40, soon()).unwrap();
        assert_eq!(pool.bytes(), 100);
        let error = pool.take(1, soon()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        assert!(error.message().contains("100 of 100"), "{error}");
        pool.give(one, None);
        drop(pool.take(60, soon()).unwrap());
        pool.give(two, None);
        // A buffer of another size replaces an idle one.
        let three = pool.take(30, soon()).unwrap();
        assert_eq!((three.len(), pool.bytes()), (30, 90));
        pool.clear();
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn a_buffer_in_use_is_waited_for_only_at_the_bound() {
        let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
        let stream = device.default_stream();
        let mut pool = Pool::new(&device, false, 128);
        let mut buffers: Vec<_> = (0..2).map(|_| pool.take(64, soon()).unwrap()).collect();
        let mut last = None;
        for buffer in &mut buffers {
            let Storage::Device(memory) = buffer else { panic!("not of the device") };
            memory.fill(&stream, 1).unwrap();
            last = Some(stream.record_event().unwrap());
        }
        buffers.drain(..).for_each(|buffer| pool.give(buffer, last.clone()));
        for _ in 0..2 {
            drop(pool.take(64, soon()).unwrap());
            assert!(pool.bytes() <= 128);
        }
        assert!(last.unwrap().is_done().unwrap());
    }
}
