//! States of an array: its values are ready, ready for one stream, or pending.

use std::fmt;
use std::time::{Duration, Instant};

use runtime_core::{Device, Error, ErrorKind, Event, NativeHandle, Result, Stream};
use smallvec::{SmallVec, smallvec};

use crate::{ArrayExchange, ConversionError, MemoryKind};

/// The values are ready for all users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready;

/// The values will be ready once some work has finished.
#[derive(Clone, Debug)]
pub struct Pending {
    pub(crate) after: SmallVec<[After; 1]>,
    /// Streams through which the values came. The work in `after` comes after theirs, but only they report whether it
    /// has failed.
    origins: Vec<After>,
    /// The failure of a wait. Streams report a failure once.
    failed: Option<Error>,
}

/// The values are ready only for work that is enqueued on one stream from now on.
#[derive(Clone, Debug)]
pub struct Ordered {
    stream: Stream,
    /// Other streams through which the values came. Work on `stream` comes after theirs, but only they report whether
    /// it has failed.
    origins: SmallVec<[Stream; 1]>,
    /// As for [`Pending`].
    failed: Option<Error>,
}

/// Work that must finish first.
#[derive(Clone, Debug)]
pub enum After {
    /// All work that was enqueued on a stream when the capsule was made.
    Stream(Stream),
    /// The work that an event marks.
    Event(Event),
    /// A stream or event of another library, by the vendor's handle: see [`ArrayExchange::host_wait_on`].
    Foreign(NativeHandle),
}

impl After {
    /// The stream, if this is work of one.
    fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Event(_) | Self::Foreign(_) => None,
        }
    }

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

/// Why a wait did not make the values ready.
enum Unready {
    /// The wait was not possible, or it was not over in time. Another wait may succeed.
    Refused(Error),
    /// The work failed, so no other wait can make the values ready.
    Failed(Error),
}

/// One of [`Ready`], [`Pending`] and [`Ordered`].
pub trait State: fmt::Debug + Send + Sync + 'static {
    /// The only stream for which the values are ready, if the state has one.
    fn stream(&self) -> Option<&Stream>;

    /// Work that must finish first.
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
    /// Pending until all work already on `stream` has finished.
    pub fn on(stream: &Stream) -> Self {
        Self::after(smallvec![After::Stream(stream.clone())])
    }

    /// Pending until all of these events are complete.
    pub fn events(events: impl IntoIterator<Item = Event>) -> Self {
        Self::after(events.into_iter().map(After::Event).collect())
    }

    /// Pending until the work of another library's stream or event has finished.
    pub fn foreign(handle: NativeHandle) -> Self {
        Self::after(smallvec![After::Foreign(handle)])
    }

    fn after(after: SmallVec<[After; 1]>) -> Self {
        Self { after, origins: Vec::new(), failed: None }
    }

    /// Pending also for the reports of streams through which the values came.
    #[cfg(feature = "array-buffer")]
    pub(crate) fn with_origins(self, origins: impl IntoIterator<Item = Stream>) -> Self {
        Self { origins: origins.into_iter().map(After::Stream).collect(), ..self }
    }
}

impl Ordered {
    /// Ready for work that is enqueued on `stream` from now on.
    pub fn on(stream: &Stream) -> Self {
        Self { stream: stream.clone(), origins: SmallVec::new(), failed: None }
    }

    /// Waits, on the host, for the stream and the origins, unless a failure is known already.
    pub(crate) fn synchronize(&mut self) -> Result<()> {
        let waited = match self.failed.take() {
            Some(error) => Err(error),
            None => self.origins.iter().chain([&self.stream]).try_for_each(Stream::synchronize),
        };
        self.failed = waited.clone().err();
        waited
    }
}

impl ArrayExchange<Pending> {
    /// Whether there is nothing to wait for.
    pub fn is_ready(&self) -> bool {
        self.state.after.is_empty()
    }

    /// Replaces streams and events of other libraries by streams and events of this runtime. `take` makes them from the
    /// handles, for instance with [`Device::interop`].
    ///
    /// # Errors
    ///
    /// Errors of `take`. `InvalidArgument` if the handle of its result is not the one that it was called with.
    pub fn taking_up(
        mut self,
        mut take: impl FnMut(NativeHandle) -> Result<After>,
    ) -> Result<Self, ConversionError<Self>> {
        let after = self.state.after.iter().map(|after| match after {
            After::Foreign(handle) => take(*handle).and_then(|taken| taken.checked(*handle)),
            known => Ok(known.clone()),
        });
        match after.collect() {
            Ok(after) => {
                self.state.after = after;
                Ok(self)
            }
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }

    /// Waits, on the host, until the values are ready.
    ///
    /// # Errors
    ///
    /// Errors of the streams. The capsule keeps such an error: every later wait, and
    /// [`order_after`](Self::order_after), returns it again. A failure that a stream reported to another caller before
    /// is not known here (see [`Stream::failures`]), and an event reports no failures of work. `InvalidArgument` for a
    /// stream or event of another library; use [`host_wait_on`](Self::host_wait_on) for these.
    pub fn host_wait(self) -> Result<ArrayExchange, ConversionError<Self>> {
        self.ready_after(|after| {
            after.iter().try_for_each(|after| match after {
                After::Stream(stream) => stream.synchronize().map_err(Unready::Failed),
                After::Event(event) => event.wait().map_err(Unready::Failed),
                After::Foreign(handle) => Err(Unready::Refused(foreign(*handle))),
            })
        })
    }

    /// As [`host_wait`](Self::host_wait), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// `Timeout`; the capsule can be waited for again. Otherwise as [`host_wait`](Self::host_wait).
    pub fn host_wait_for(self, timeout: Duration) -> Result<ArrayExchange, ConversionError<Self>> {
        let start = Instant::now();
        let left = || timeout.saturating_sub(start.elapsed());
        self.ready_after(|after| {
            after.iter().try_for_each(|after| {
                // Work may also fail with `Timeout`. The stream then counts a failure.
                let failures = || match after {
                    After::Stream(stream) => stream.failures(),
                    After::Event(_) | After::Foreign(_) => 0,
                };
                let before = failures();
                let waited = match after {
                    After::Stream(stream) => stream.synchronize_for(left()),
                    After::Event(event) => event.wait_for(left()),
                    After::Foreign(handle) => return Err(Unready::Refused(foreign(*handle))),
                };
                waited.map_err(|error| match error.kind() {
                    ErrorKind::Timeout if failures() == before => Unready::Refused(error),
                    _ => Unready::Failed(error),
                })
            })
        })
    }

    /// Ready after `wait`, unless a failure is known already.
    fn ready_after(
        mut self,
        wait: impl FnOnce(&[After]) -> Result<(), Unready>,
    ) -> Result<ArrayExchange, ConversionError<Self>> {
        let waited = match self.state.failed.take() {
            Some(error) => Err(Unready::Failed(error)),
            None => wait(&[&*self.state.origins, &self.state.after].concat()),
        };
        let error = match waited {
            Ok(()) => return self.with_state(Ok(Ready)),
            Err(Unready::Refused(error)) => error,
            Err(Unready::Failed(error)) => self.state.failed.insert(error).clone(),
        };
        Err(ConversionError::new(self, error))
    }

    /// Waits, on the host, until all work of `device` has finished. This includes work of other libraries on the same
    /// device in the same context. It is for arrays that come with a stream or event of another library.
    ///
    /// # Errors
    ///
    /// As [`Device::synchronize`], and errors of the streams through which the values came, on any device. Every
    /// later wait returns the error again. `WrongDevice` if the work that the array waits for is not work of this
    /// device. An external stream or event is taken to be of the array's device. Protocols name no device for pinned or
    /// shared memory; such an array is taken to be of this device.
    pub fn host_wait_on(self, device: &Device) -> Result<ArrayExchange, ConversionError<Self>> {
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
        self.ready_after(|after| match strange {
            None => {
                let mut streams = after.iter().filter_map(After::stream);
                let waited = streams.try_for_each(Stream::synchronize);
                waited.and_then(|()| device.synchronize()).map_err(Unready::Failed)
            }
            Some(what) => {
                let message = format!("it waits for work of {what}");
                let error = Error::new(ErrorKind::WrongDevice, "host_wait_on", message);
                Err(Unready::Refused(error.on(device.id())))
            }
        })
    }

    /// Orders work that is enqueued on `consumer` from now on after the work that the values wait for. The host does
    /// not block.
    ///
    /// # Errors
    ///
    /// `WrongDevice` if the stream's device cannot wait for the device of that work (see [`Device::reaches`]).
    /// `InvalidArgument` as for [`host_wait`](Self::host_wait), and a failure that a wait returned before.
    pub fn order_after(
        self,
        consumer: &Stream,
    ) -> Result<ArrayExchange<Ordered>, ConversionError<Self>> {
        if let Some(error) = self.state.failed.clone() {
            return Err(ConversionError::new(self, error));
        }
        let ordered = self.state.after.iter().try_for_each(|after| match after {
            After::Stream(stream) if stream == consumer => Ok(()),
            After::Stream(stream) => consumer.wait(&stream.record_event()?),
            After::Event(event) => consumer.wait(event),
            After::Foreign(handle) => Err(foreign(*handle)),
        });
        let sources = self.state.origins.iter().chain(&self.state.after).filter_map(After::stream);
        let origins = sources.filter(|source| *source != consumer).cloned().collect();
        let stream = consumer.clone();
        self.with_state(ordered.map(|()| Ordered { stream, origins, failed: None }))
    }
}

impl ArrayExchange<Ordered> {
    /// Waits, on the host, until the values are ready for all users.
    ///
    /// # Errors
    ///
    /// Errors of the stream, and of the streams through which the values came. As for a
    /// [pending](ArrayExchange::host_wait) array, every later wait returns such an error again.
    pub fn host_wait(mut self) -> Result<ArrayExchange, ConversionError<Self>> {
        let waited = self.state.synchronize();
        self.with_state(waited.map(|()| Ready))
    }

    /// The stream for which the values are ready.
    pub fn stream(&self) -> &Stream {
        &self.state.stream
    }
}

fn foreign(handle: NativeHandle) -> Error {
    let message = format!("{handle:?} is not of this runtime; host_wait_on waits for its device");
    Error::new(ErrorKind::InvalidArgument, "wait", message)
}
