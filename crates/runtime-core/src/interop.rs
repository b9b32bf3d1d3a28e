//! Streams, events and addresses that other libraries own, as users take them up.
#![expect(unsafe_code, reason = "takes native handles, for which the caller vouches")]

use std::fmt;

use crate::contract::{AcceleratorDevice, NativeInterop};
use crate::stream::StreamCore;
use crate::{
    Device, Error, ErrorKind, Event, NativeHandle, NativeKind, Origin, Result, Stream, Support,
};

/// Use of native objects that others own, where several libraries work with one device: see [`Device::interop`].
///
/// What this crate gives out, by [`Device::native`], [`Stream::native`], [`Event::native`] and
/// [`Memory::native`](crate::Memory::native), is lent likewise: it is valid for as long as the object, and not to be
/// destroyed.
///
/// ```
/// # fn example(device: &runtime_core::Device, theirs: runtime_core::NativeHandle) -> runtime_core::Result<()> {
/// // What another library enqueues on its stream from here on comes after our work.
/// let ours = device.default_stream();
/// if let Some(interop) = device.interop() {
///     // Sound if `theirs` is a stream of this device that its owner keeps meanwhile.
///     let theirs = unsafe { interop.stream_from_native(theirs) }?;
///     theirs.wait(&ours.record_event()?)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Interop<'a> {
    ability: &'a dyn NativeInterop,
    device: &'a Device,
}

impl<'a> Interop<'a> {
    pub(crate) fn new(ability: &'a dyn NativeInterop, device: &'a Device) -> Self {
        Self { ability, device }
    }

    /// Takes up a stream that somebody else owns. It is used as any other, in one order with what the owner enqueues, and
    /// is never destroyed.
    ///
    /// Waiting for the stream, or for its device, waits for the owner's work too. Dropping the last clone lets go of it
    /// without waiting; memory used on it is still freed after that work.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the handle is not a stream's, not of this device's interface, or is seen to be of another
    /// device.
    ///
    /// # Safety
    ///
    /// The handle is of a stream of this device, in the context of [`Device::native`], and stays valid until the last
    /// clone of the result is dropped. Nobody captures the stream into a graph meanwhile.
    pub unsafe fn stream_from_native(&self, handle: NativeHandle) -> Result<Stream> {
        check(self.device.raw(), "stream_from_native", handle, &[NativeKind::Stream])?;
        // SAFETY: the caller vouches for the handle until the last clone is dropped, which ends the use.
        let raw = unsafe { self.ability.stream(handle) }.map_err(|e| self.device.place(e))?;
        Ok(Stream::new(StreamCore::lent(raw, self.device.reports()), self.device.clone()))
    }

    /// Takes up an event that somebody else owns and has recorded, for [`Stream::wait`], [`Event::wait`] and
    /// [`Event::is_done`]. It is never recorded here, nor destroyed, and has no time.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the handle is null, not an event's, not of this device's interface, or is seen to be of
    /// another context.
    ///
    /// # Safety
    ///
    /// The handle is of an event that streams of this device can wait for, and stays valid until the last clone of the
    /// result is dropped. (Where a protocol gives a pointer to the handle, as Arrow does, this takes what it points to.)
    pub unsafe fn event_from_native(&self, handle: NativeHandle) -> Result<Event> {
        const OPERATION: &str = "event_from_native";
        check(self.device.raw(), OPERATION, handle, &[NativeKind::Event])?;
        if handle.raw == 0 {
            return Err(self.device.invalid(OPERATION, format!("{handle:?} is null")));
        }
        // SAFETY: the caller vouches for the handle for as long as there is a clone, and so the object.
        let raw = unsafe { self.ability.event(handle) }.map_err(|e| self.device.place(e))?;
        Ok(Event::lent(raw, self.device.clone()))
    }

    /// Which allocation an address or a memory object is in, whoever made it. `None` if the driver does not know it, as
    /// for ordinary host memory, or cannot tell.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the handle is of neither kind, or not of this device's interface.
    ///
    /// # Safety
    ///
    /// A handle of the kind [`NativeKind::Object`] is of a memory object that is alive. An address may be any number.
    pub unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>> {
        check(self.device.raw(), "origin", handle, &[NativeKind::Pointer, NativeKind::Object])?;
        if handle.raw == 0 {
            return Ok(None);
        }
        // SAFETY: the caller vouches for memory objects.
        unsafe { self.ability.origin(handle) }.map_err(|e| self.device.place(e))
    }
}

/// Ends the use of a stream that somebody else owns, whose last handle is gone.
pub(crate) fn end(stream: &StreamCore, device: &Device) {
    if let Some(ability) = device.raw().interop() {
        // SAFETY: the ability made it. Only handles enqueue, record and wait on a stream; objects that remember it ask
        // whether it is done.
        unsafe { ability.stream_end(&*stream.raw) };
    }
}

/// Whether a handle is of the device's interface, and of one of these kinds.
fn check(
    raw: &dyn AcceleratorDevice,
    operation: &'static str,
    handle: NativeHandle,
    kinds: &[NativeKind],
) -> Result<()> {
    let api = raw.native().api;
    if handle.api == api && kinds.contains(&handle.kind) {
        return Ok(());
    }
    let message = format!("{handle:?}; this takes {kinds:?} of {api}");
    Err(Error::new(ErrorKind::InvalidArgument, operation, message).on(&raw.info().id))
}

impl fmt::Debug for Interop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interop({})", self.device.id())
    }
}

impl Device {
    /// As [`new`](Self::new), with a stream that somebody else owns as the default one. It is never destroyed.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new) and [`Interop::stream_from_native`]; `InvalidArgument` if the device cannot use others'
    /// streams.
    ///
    /// # Safety
    ///
    /// As [`Interop::stream_from_native`], until the last clone of the device, and whatever it made, is dropped.
    pub unsafe fn with_native_stream(
        raw: impl AcceleratorDevice,
        handle: NativeHandle,
    ) -> Result<Self> {
        const OPERATION: &str = "open";
        Self::with_stream(raw, |raw| {
            check(raw, OPERATION, handle, &[NativeKind::Stream])?;
            let Some(ability) = raw.interop() else {
                let message = format!("{handle:?}: interop is {}", Support::Absent);
                return Err(Error::new(ErrorKind::InvalidArgument, OPERATION, message));
            };
            // SAFETY: the caller vouches for the handle for as long as the device, which keeps its default stream.
            unsafe { ability.stream(handle) }
        })
    }
}
