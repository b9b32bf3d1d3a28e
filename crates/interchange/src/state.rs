//! Whether an array's values are there: for everybody, for one stream, or not yet.

use std::fmt;
use std::time::{Duration, Instant};

use runtime_core::{Device, Error, ErrorKind, Event, NativeHandle, Result, Stream};
use smallvec::{SmallVec, smallvec};

use crate::{ArrayExchange, MemoryKind, Refused};

/// The values are there, for everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready;

/// The values are there once some work is done.
#[derive(Clone, Debug)]
pub struct Pending {
    pub(crate) after: SmallVec<[After; 1]>,
}

/// The values are there for what is enqueued on one stream from now on, and for nobody else.
#[derive(Clone, Debug)]
pub struct Ordered {
    stream: Stream,
}

/// Work that comes first.
#[derive(Clone, Debug)]
pub enum After {
    /// All that was enqueued on a stream when the capsule was made.
    Stream(Stream),
    /// What an event marks.
    Event(Event),
    /// A stream or event of somebody else's, by the vendor's handle: see [`ArrayExchange::host_wait_on`].
    Foreign(NativeHandle),
}

impl After {
    /// This, if it is what `handle` is of.
    fn checked(self, handle: NativeHandle) -> Result<Self> {
        let own = match &self {
            Self::Stream(stream) => stream.native(),
            Self::Event(event) => event.native(),
            Self::Foreign(handle) => *handle,
        };
        if own == handle {
            return Ok(self);
        }
        let message = format!("{own:?} in the place of {handle:?}");
        Err(Error::new(ErrorKind::InvalidArgument, "taking_up", message))
    }
}

/// One of [`Ready`], [`Pending`] and [`Ordered`].
pub trait State: fmt::Debug + Send + Sync + 'static {
    /// The stream for which alone the values are there.
    fn stream(&self) -> Option<&Stream>;

    /// Work that comes first.
    fn after(&self) -> &[After];
}

impl State for Ready {
    fn stream(&self) -> Option<&Stream> {
        None
    }

    fn after(&self) -> &[After] {
        &[]
    }
}

impl State for Pending {
    fn stream(&self) -> Option<&Stream> {
        None
    }

    fn after(&self) -> &[After] {
        &self.after
    }
}

impl State for Ordered {
    fn stream(&self) -> Option<&Stream> {
        Some(&self.stream)
    }

    fn after(&self) -> &[After] {
        &[]
    }
}

impl Pending {
    /// Until all that is on `stream` by now is done.
    pub fn on(stream: &Stream) -> Self {
        Self { after: smallvec![After::Stream(stream.clone())] }
    }

    /// Until all of these are done.
    pub fn events(events: impl IntoIterator<Item = Event>) -> Self {
        Self { after: events.into_iter().map(After::Event).collect() }
    }

    /// Until what somebody else's stream or event stands for is done.
    pub fn foreign(handle: NativeHandle) -> Self {
        Self { after: smallvec![After::Foreign(handle)] }
    }
}

impl Ordered {
    /// Ready for what is enqueued on `stream` from now on.
    pub fn on(stream: &Stream) -> Self {
        Self { stream: stream.clone() }
    }
}

impl ArrayExchange<Pending> {
    /// Whether there is nothing to wait for.
    pub fn is_ready(&self) -> bool {
        self.state.after.is_empty()
    }

    /// The same, with streams and events of this runtime in the place of somebody else's, which `take` makes of their
    /// handles: by [`Device::interop`], for instance.
    ///
    /// # Errors
    ///
    /// What `take` reports; `InvalidArgument` if what it gives has another handle than the one it was asked for.
    pub fn taking_up(
        mut self,
        mut take: impl FnMut(NativeHandle) -> Result<After>,
    ) -> Result<Self, Refused<Self>> {
        let after = self.state.after.iter().map(|after| match after {
            After::Foreign(handle) => take(*handle).and_then(|taken| taken.checked(*handle)),
            known => Ok(known.clone()),
        });
        match after.collect() {
            Ok(after) => {
                self.state.after = after;
                Ok(self)
            }
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// Waits, on the host, until the values are there.
    ///
    /// # Errors
    ///
    /// What the streams report; `InvalidArgument` for a stream or event of somebody else's, which
    /// [`host_wait_on`](Self::host_wait_on) waits for.
    pub fn host_wait(self) -> Result<ArrayExchange, Refused<Self>> {
        let waited = self.state.after.iter().try_for_each(|after| match after {
            After::Stream(stream) => stream.synchronize(),
            After::Event(event) => event.wait(),
            After::Foreign(handle) => Err(foreign(*handle)),
        });
        self.with_state(waited.map(|()| Ready))
    }

    /// As [`host_wait`](Self::host_wait), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// `Timeout`, and as there.
    pub fn host_wait_for(self, timeout: Duration) -> Result<ArrayExchange, Refused<Self>> {
        let start = Instant::now();
        let left = || timeout.saturating_sub(start.elapsed());
        let waited = self.state.after.iter().try_for_each(|after| match after {
            After::Stream(stream) => stream.synchronize_for(left()),
            After::Event(event) => event.wait_for(left()),
            After::Foreign(handle) => Err(foreign(*handle)),
        });
        self.with_state(waited.map(|()| Ready))
    }

    /// Waits, on the host, until all work of `device` is done, the work of others on the same device included, as far as
    /// they work in the same context: for arrays that come with a stream or event of somebody else's.
    ///
    /// # Errors
    ///
    /// What [`Device::synchronize`] reports; `WrongDevice` if what it waits for is not the device's. A stream or event of
    /// somebody else's counts as of the array's device; an array in pinned or shared memory, which protocols give no device,
    /// is believed to be of this one.
    pub fn host_wait_on(self, device: &Device) -> Result<ArrayExchange, Refused<Self>> {
        let nowhere = matches!(self.array.kind, MemoryKind::Pinned | MemoryKind::Shared);
        let is_here = nowhere || self.array.device.is(device);
        let strange = self.state.after.iter().find_map(|after| match after {
            After::Stream(stream) if !stream.device().is_same(device) => {
                Some(stream.device().id().to_string())
            }
            After::Event(event) if !event.device().is_same(device) => {
                Some(event.device().id().to_string())
            }
            After::Foreign(handle) if handle.api != device.native().api || !is_here => {
                Some(format!("{handle:?}, of {}", self.array.device))
            }
            _ => None,
        });
        let waited = match strange {
            None => device.synchronize(),
            Some(what) => {
                let message = format!("it waits for work of {what}");
                Err(Error::new(ErrorKind::WrongDevice, "host_wait_on", message).on(device.id()))
            }
        };
        self.with_state(waited.map(|()| Ready))
    }

    /// Orders what is enqueued on `consumer` from now on after what the values wait for. The host does not block.
    ///
    /// # Errors
    ///
    /// `WrongDevice` if the stream's device cannot wait for the work's (see [`Device::reaches`]); `InvalidArgument` as
    /// for [`host_wait`](Self::host_wait).
    pub fn order_after(self, consumer: &Stream) -> Result<ArrayExchange<Ordered>, Refused<Self>> {
        let ordered = self.state.after.iter().try_for_each(|after| match after {
            After::Stream(stream) if stream == consumer => Ok(()),
            After::Stream(stream) => consumer.wait(&stream.record_event()?),
            After::Event(event) => consumer.wait(event),
            After::Foreign(handle) => Err(foreign(*handle)),
        });
        self.with_state(ordered.map(|()| Ordered::on(consumer)))
    }
}

impl ArrayExchange<Ordered> {
    /// Waits, on the host, until the values are there for everybody.
    ///
    /// # Errors
    ///
    /// What the stream reports.
    pub fn host_wait(self) -> Result<ArrayExchange, Refused<Self>> {
        let waited = self.state.stream.synchronize();
        self.with_state(waited.map(|()| Ready))
    }

    /// The stream that it is ready for.
    pub fn stream(&self) -> &Stream {
        &self.state.stream
    }
}

fn foreign(handle: NativeHandle) -> Error {
    let message = format!("{handle:?} is not of this runtime; host_wait_on waits for its device");
    Error::new(ErrorKind::InvalidArgument, "wait", message)
}
