//! What a device's streams, memory and modules share with it.

use std::any::Any;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use backend_support::{BlockCache, Failures, Reaper, lock};
use runtime_core::contract::DeviceStream;
use runtime_core::{DeviceId, DeviceInfo, Error, ErrorKind, Result};

use crate::api::Api;
use crate::config::PoolKind;
use crate::context::Context;
use crate::pool::{DriverPool, Pool};
use crate::raw_stream::{Mark, RawStream};
use crate::reaper::Object;
use crate::stream::Stream;
use crate::vendor::{Vendor, error};

/// An opened device, shared by all of its objects.
#[derive(Debug)]
pub struct Shared<V: Vendor> {
    pub(crate) id: DeviceId,
    /// Its processors.
    pub compute_units: u32,
    /// Most blocks of a launch in one dimension.
    pub(crate) most_blocks: u32,
    // What is given back late goes before what it came from.
    reaper: Reaper<Context<V>>,
    pub(crate) pool: Pool<V>,
    /// Kernels of the backend's own.
    pub kernels: V::Own,
    /// The device's own stream. It holds nothing that takes time, so that waiting for it costs next to nothing.
    pub(crate) service: Arc<RawStream<V>>,
    /// Those of streams that were dropped stay until their work is done.
    streams: Mutex<Vec<Arc<RawStream<V>>>>,
    pub(crate) failures: Arc<Failures>,
    /// Whether this instance told of the fault that broke its context.
    told: AtomicBool,
    /// What its calls go through.
    pub context: Arc<Context<V>>,
}

impl<V: Vendor> Shared<V> {
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
            most_blocks: info.limits.grid[0],
            reaper: Reaper::new(&info.id, &context, &failures),
            pool,
            kernels: V::own(&context),
            service,
            streams: Mutex::new(streams),
            failures,
            told: AtomicBool::new(false),
            context,
        })
    }

    /// The error for a `code` that the library returned; remembers if it says that the device is lost.
    #[cold]
    pub fn error(&self, operation: &'static str, code: u32, what: impl Display) -> Error {
        self.context.note(Err::<(), _>(code));
        match self.context.fault() {
            Some(fault) if !V::is_sticky(code) => self.lost(operation, fault),
            _ => error::<V>(self.context.api, operation, code, what).on(&self.id),
        }
    }

    /// As [`error`](Self::error), for a call that another device had a part in: the one whose context turns out to be broken is
    /// lost.
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

    /// Refuses whatever is asked of a lost device.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
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

    /// The outcome of waiting for work: whoever waits first after a fault is told of it, everybody later that the device
    /// is lost.
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
            (Some(code), _) if !self.told.swap(true, Ordering::AcqRel) => {
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

    /// Whether a fault is known that nobody was told of.
    pub(crate) fn has_untold_fault(&self) -> bool {
        self.context.fault().is_some() && !self.told.load(Ordering::Acquire)
    }

    /// Remembers a stream until its work is done, which may be after it was dropped.
    pub(crate) fn add_stream(&self, stream: &Arc<RawStream<V>>) {
        let mut streams = lock(&self.streams);
        streams.retain(|s| Arc::strong_count(s) > 1 || s.told() != Some(true));
        streams.push(Arc::clone(stream));
    }

    /// Blocks until everything on every stream is done, and what waited for it is given back.
    pub(crate) fn drain(&self) -> Result<(), u32> {
        let streams = lock(&self.streams).clone();
        let first = streams.iter().map(|stream| stream.synchronize()).fold(Ok(()), Result::and);
        self.reaper.drain();
        first
    }

    /// Blocks until everything on every stream is done; reports the first failure not reported before.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let drained = self.drain();
        self.waited("synchronize", drained)?;
        self.failures.report()
    }

    /// Tries an allocation again, where there was no room, when everything given up so far is free.
    pub(crate) fn with_room<R>(&self, attempt: impl Fn() -> Result<R, u32>) -> Result<R, u32> {
        match attempt() {
            Err(code) if code == V::OUT_OF_MEMORY => {
                self.drain()?;
                attempt()
            }
            done => done,
        }
    }

    /// Gives an object back once everything enqueued on the streams is done.
    pub(crate) fn retire(&self, object: Object, after: &[&dyn DeviceStream]) {
        self.reaper.retire(object, marks(after));
    }

    /// Drops the owner of adopted memory once everything enqueued on the streams is done.
    pub(crate) fn retire_owner(
        &self,
        owner: Box<dyn Any + Send + Sync>,
        after: &[&dyn DeviceStream],
    ) {
        self.reaper.retire_owner(owner, marks(after));
    }

    /// Keeps the failure of something that nobody waits for.
    pub(crate) fn keep(&self, operation: &'static str, outcome: Result<(), u32>) {
        if let Err(code) = outcome
            && self.context.fault().is_none()
        {
            self.failures.keep(self.error(operation, code, "it could not be given back"));
        }
    }
}

/// Marks at the ends of streams.
fn marks<V: Vendor>(after: &[&dyn DeviceStream]) -> Vec<Mark<V>> {
    streams(after).map(RawStream::mark).collect()
}

/// The library's streams behind those of the contract.
pub(crate) fn streams<'a, V: Vendor>(
    streams: &'a [&'a dyn DeviceStream],
) -> impl Iterator<Item = &'a Arc<RawStream<V>>> {
    streams.iter().filter_map(|stream| {
        let any: &dyn Any = *stream;
        any.downcast_ref::<Stream<V>>().map(Stream::raw)
    })
}

impl<V: Vendor> Drop for Shared<V> {
    fn drop(&mut self) {
        // Kernels of the backend's own may still run on streams that were dropped.
        for stream in &*lock(&self.streams) {
            // Failures are remembered, and nobody is left to hear of them.
            let _ = stream.settle();
        }
        self.reaper.drain();
    }
}
