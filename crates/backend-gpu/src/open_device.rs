//! The state that a device shares with its streams, memory and modules.

use std::any::Any;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use backend_support::{BlockCache, Failures, Reaper, Reclaim, lock};
use runtime_core::contract::DeviceStream;
use runtime_core::{DeviceId, DeviceInfo, Error, ErrorKind, Result};

use crate::api::Api;
use crate::config::PoolKind;
use crate::context::Context;
use crate::gate::Signals;
use crate::pool::{DriverPool, Pool};
use crate::raw_stream::{Mark, RawStream};
use crate::reaper::Object;
use crate::stream::Stream;
use crate::vendor::{Vendor, error};

/// An opened device, shared by all of its objects.
#[derive(Debug)]
pub struct OpenDevice<V: Vendor> {
    pub(crate) id: DeviceId,
    /// The number of the device's processors.
    pub compute_units: u32,
    /// The maximum number of blocks of a launch in one dimension.
    pub(crate) max_blocks: u32,
    // The reaper comes first, so that objects are released before the state that they came from.
    reaper: Reaper<Context<V>>,
    pub(crate) pool: Pool<V>,
    /// The backend's own kernels.
    pub kernels: V::Builtin,
    /// The device's own stream. It holds only short work, so a wait for it is short.
    pub(crate) service: Arc<RawStream<V>>,
    /// All streams. Dropped ones stay until their work is done.
    streams: Mutex<Vec<Arc<RawStream<V>>>>,
    pub(crate) failures: Arc<Failures>,
    pub(crate) signals: Signals,
    /// Whether this instance has reported the fault that broke its context.
    reported: AtomicBool,
    /// The context of the library's calls.
    pub context: Arc<Context<V>>,
}

impl<V: Vendor> OpenDevice<V> {
    pub(crate) fn new(info: &DeviceInfo, context: Arc<Context<V>>, pool: PoolKind) -> Result<Self> {
        let failed = |code| {
            let what = "the device's own streams and pool";
            error::<V>(context.api, "open", code, what).on(&info.id)
        };
        let service = Arc::new(context.new_stream(0).map_err(failed)?);
        let mut streams = vec![Arc::clone(&service)];
        let pool = match pool {
            PoolKind::Cache => Pool::Cache(BlockCache::new(&context)),
            PoolKind::Auto | PoolKind::Driver => {
                let freeing = Arc::new(context.new_stream(0).map_err(failed)?);
                streams.push(Arc::clone(&freeing));
                Pool::Driver(DriverPool::new(&service, freeing).map_err(failed)?)
            }
        };
        let failures = Arc::default();
        Ok(Self {
            id: info.id.clone(),
            compute_units: info.compute_units,
            max_blocks: info.limits.max_grid[0],
            reaper: Reaper::new(&info.id, &context, &failures),
            pool,
            kernels: V::builtin_kernels(&context),
            service,
            streams: Mutex::new(streams),
            failures,
            signals: Signals::default(),
            reported: AtomicBool::new(false),
            context,
        })
    }

    /// Creates the error for a `code` that the library returned. Records a code that shows that the device is lost.
    #[cold]
    pub fn error(&self, operation: &'static str, code: u32, what: impl Display) -> Error {
        self.context.note(Err::<(), _>(code));
        match self.context.fault() {
            Some(fault) if !V::is_sticky(code) => self.lost(operation, fault),
            _ => error::<V>(self.context.api, operation, code, what).on(&self.id),
        }
    }

    /// As [`error`](Self::error), for a call that involves another device. If the context of one of the two devices
    /// turns out to be broken, the error says that this device is lost.
    #[cold]
    pub(crate) fn error_between(
        &self,
        other: &Self,
        operation: &'static str,
        code: u32,
        what: impl Display,
    ) -> Error {
        let lost = [self, other].into_iter().find_map(|shared| {
            shared.context.note(shared.context.probe());
            shared.check(operation).err()
        });
        lost.unwrap_or_else(|| error::<V>(self.context.api, operation, code, what).on(&self.id))
    }

    /// Refuses operations of a lost device.
    ///
    /// # Errors
    ///
    /// `DeviceLost` if the device is lost.
    #[inline]
    pub fn check(&self, operation: &'static str) -> Result<()> {
        match self.context.fault() {
            None => Ok(()),
            Some(code) => Err(self.lost(operation, code)),
        }
    }

    #[cold]
    fn lost(&self, operation: &'static str, code: u32) -> Error {
        Error::new(ErrorKind::DeviceLost, operation, V::WORDS.lost)
            .with_driver(self.context.api.name(code), code.into())
            .on(&self.id)
    }

    /// The outcome of a wait for work. After a fault, the first wait reports it as a `DeviceFault`; later waits report
    /// that the device is lost.
    #[inline]
    pub(crate) fn waited(&self, operation: &'static str, outcome: Result<(), u32>) -> Result<()> {
        if outcome.is_ok() && self.context.fault().is_none() {
            return Ok(());
        }
        self.fault(operation, outcome)
    }

    #[cold]
    fn fault(&self, operation: &'static str, outcome: Result<(), u32>) -> Result<()> {
        let error = match outcome {
            Err(code) => Some(self.error(operation, code, "waiting for a stream")),
            Ok(()) => None,
        };
        match (self.context.fault(), error) {
            (Some(code), _) if !self.reported.swap(true, Ordering::AcqRel) => {
                let message = "a program on the device was stopped";
                Err(Error::new(ErrorKind::DeviceFault, operation, message)
                    .with_driver(self.context.api.name(code), code.into())
                    .on(&self.id))
            }
            (Some(code), _) => Err(self.lost(operation, code)),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(()),
        }
    }

    /// Whether a fault is known and not yet reported.
    pub(crate) fn has_unreported_fault(&self) -> bool {
        self.context.fault().is_some() && !self.reported.load(Ordering::Acquire)
    }

    /// Takes a fault that is known and not yet reported. Later waits report that the device is lost.
    pub(crate) fn take_fault(&self) -> Option<Error> {
        let fault = self.has_unreported_fault().then(|| self.fault("check", Ok(())));
        fault.and_then(Result::err)
    }

    /// Takes the first failure that was not taken before, of a stream or of a release.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        let of_a_stream = || lock(&self.streams).iter().find_map(|s| s.failures().take());
        self.failures.take().or_else(of_a_stream).map(|failure| failure.on(&self.id))
    }

    /// Keeps a stream until its work is done and its failures are taken, which may be after the stream was dropped.
    pub(crate) fn add_stream(&self, stream: &Arc<RawStream<V>>) {
        let mut streams = lock(&self.streams);
        streams.retain(|s| {
            Arc::strong_count(s) > 1 || s.finished() != Some(true) || s.failures().any()
        });
        streams.push(Arc::clone(stream));
    }

    /// Blocks until everything on every stream is done, and the objects that waited for it are released.
    pub(crate) fn drain(&self) -> Result<(), u32> {
        let streams = lock(&self.streams).clone();
        let first = streams.iter().map(|stream| stream.synchronize()).fold(Ok(()), Result::and);
        self.reaper.drain();
        first
    }

    /// Blocks until everything on every stream is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let drained = self.drain();
        self.waited("synchronize", drained)
    }

    /// Makes an allocation. If memory is short, drains the device and tries once more.
    pub(crate) fn with_allocation<R>(
        &self,
        attempt: impl Fn() -> Result<R, u32>,
    ) -> Result<R, u32> {
        match attempt() {
            Err(code) if code == V::OUT_OF_MEMORY => {
                self.drain()?;
                attempt()
            }
            done => done,
        }
    }

    /// Releases an object once everything enqueued on the streams is done.
    pub(crate) fn retire(&self, object: Object, after: &[&dyn DeviceStream]) {
        self.reaper.retire(object, marks(after));
    }

    /// Releases an object that is no longer used, before this returns.
    pub(crate) fn reclaim(&self, object: Object) {
        if let Err(error) = self.context.reclaim(object) {
            self.failures.keep(error.on(&self.id));
        }
    }

    /// Drops the owner of adopted memory once everything enqueued on the streams is done.
    pub(crate) fn retire_owner(
        &self,
        owner: Box<dyn Any + Send + Sync>,
        after: &[&dyn DeviceStream],
    ) {
        self.reaper.retire_owner(owner, marks(after));
    }

    /// Keeps a failure for the next synchronization, because no caller receives it.
    pub(crate) fn keep(&self, operation: &'static str, outcome: Result<(), u32>) {
        if let Err(code) = outcome
            && self.context.fault().is_none()
        {
            self.failures.keep(self.error(operation, code, "it could not be given back"));
        }
    }
}

/// Recorded points at the ends of streams.
fn marks<V: Vendor>(after: &[&dyn DeviceStream]) -> Vec<Mark<V>> {
    streams(after).map(RawStream::mark).collect()
}

/// The library's streams that belong to the contract's streams.
pub(crate) fn streams<'a, V: Vendor>(
    streams: &'a [&'a dyn DeviceStream],
) -> impl Iterator<Item = &'a Arc<RawStream<V>>> {
    streams.iter().filter_map(|stream| {
        let any: &dyn Any = *stream;
        any.downcast_ref::<Stream<V>>().map(Stream::raw)
    })
}

impl<V: Vendor> Drop for OpenDevice<V> {
    fn drop(&mut self) {
        // The backend's own kernels may still run on streams that were dropped.
        for stream in &*lock(&self.streams) {
            stream.wait_before_close();
        }
        self.reaper.drain();
        self.signals.free(&self.context);
    }
}
