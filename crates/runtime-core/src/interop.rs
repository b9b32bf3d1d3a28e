//! Streams, events and addresses that other libraries own, as programs adopt them.
#![expect(unsafe_code, reason = "takes native handles, for which the caller vouches")]

use std::fmt;

use crate::contract::{AcceleratorDevice, NativeInterop};
use crate::device::unsupported;
use crate::stream::StreamCore;
use crate::{Device, Error, ErrorKind, Event, NativeHandle, NativeKind, Origin, Result, Stream};

/// Use of native objects of other owners, where several libraries work with one device: see [`Device::interop`].
///
/// Handles that this crate returns, from [`Device::native`], [`Stream::native`], [`Event::native`] and
/// [`Memory::native`](crate::Memory::native), are borrowed in the same way. They are valid for as long as the object,
/// and the receiver must not destroy them.
///
/// ```
/// # fn example(device: &runtime_core::Device, theirs: runtime_core::NativeHandle) -> runtime_core::Result<()> {
/// // Work that another library enqueues on its stream from now on is ordered after our work.
/// let ours = device.default_stream();
/// if let Some(interop) = device.interop() {
///     // Sound if `theirs` is a stream of this device that its owner does not destroy in the meantime.
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

    /// Wraps a stream that another library owns. It is used like any other stream. Its work and the owner's work are in
    /// one order. It is never destroyed here.
    ///
    /// Waiting for the stream, or for its device, waits for the owner's work too. Dropping the last clone ends the use
    /// without waiting. Memory used on the stream is still freed after that work.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the handle is not of a stream, belongs to another interface, or is found to be of another
    /// device.
    ///
    /// # Safety
    ///
    /// The handle is of a stream of this device, in the context of [`Device::native`]. It stays valid until the last
    /// clone of the result is dropped. Until then, no code captures the stream into a graph.
    pub unsafe fn stream_from_native(&self, handle: NativeHandle) -> Result<Stream> {
        check(self.device.raw(), "stream_from_native", handle, &[NativeKind::Stream])?;
        // SAFETY: the caller guarantees the handle's validity until the last clone is dropped, which ends the use.
        let raw = unsafe { self.ability.stream(handle) }.map_err(|e| self.device.place(e))?;
        Ok(Stream::new(StreamCore::foreign(raw, self.device.reports()), self.device.clone()))
    }

    /// Wraps an event that another library owns and has recorded, for [`Stream::wait`], [`Event::wait`] and
    /// [`Event::is_done`]. It is never recorded or destroyed here, and has no timing.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the handle is null, is not of an event, belongs to another interface, or is found to be of
    /// another context.
    ///
    /// # Safety
    ///
    /// The handle is of an event that streams of this device can wait for. It stays valid until the last clone of the
    /// result is dropped. (Some protocols, such as Arrow, pass a pointer to the handle. Pass the handle itself here.)
    pub unsafe fn event_from_native(&self, handle: NativeHandle) -> Result<Event> {
        const OPERATION: &str = "event_from_native";
        check(self.device.raw(), OPERATION, handle, &[NativeKind::Event])?;
        if handle.raw == 0 {
            return Err(self.device.invalid(OPERATION, format!("{handle:?} is null")));
        }
        // SAFETY: the caller guarantees the handle's validity for as long as a clone, and therefore the object, exists.
        let raw = unsafe { self.ability.event(handle) }.map_err(|e| self.device.place(e))?;
        Ok(Event::foreign(raw, self.device.clone()))
    }

    /// Returns the allocation that contains an address or a memory object, whichever library made it. `None` if the
    /// driver does not know the address, as for ordinary host memory, or cannot report the allocation.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the handle is of another kind, or belongs to another interface.
    ///
    /// # Safety
    ///
    /// A handle of the kind [`NativeKind::Object`] is of a live memory object. An address may be any number.
    pub unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>> {
        check(self.device.raw(), "origin", handle, &[NativeKind::Pointer, NativeKind::Object])?;
        if handle.raw == 0 {
            return Ok(None);
        }
        // SAFETY: the caller guarantees that memory objects are alive.
        unsafe { self.ability.origin(handle) }.map_err(|e| self.device.place(e))
    }
}

/// Ends the use of a stream with another owner after its last handle was dropped.
pub(crate) fn end(stream: &StreamCore, device: &Device) {
    if let Some(ability) = device.raw().abilities().interop() {
        // SAFETY: the ability made it. Only handles enqueue, record and wait on a stream. Objects that still refer to
        // it only query whether it is done.
        unsafe { ability.stream_end(&*stream.raw) };
    }
}

/// Checks that a handle belongs to the device's interface and is of one of these kinds.
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
    /// As [`new`](Self::new), with a stream of another owner as the default stream. It is never destroyed here.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new) and [`Interop::stream_from_native`]. `Unsupported` if the device cannot use streams of
    /// other owners.
    ///
    /// # Safety
    ///
    /// As [`Interop::stream_from_native`], until the last clone of the device and all objects made by it are dropped.
    pub unsafe fn with_native_stream(
        raw: impl AcceleratorDevice,
        handle: NativeHandle,
    ) -> Result<Self> {
        const OPERATION: &str = "open";
        Self::with_stream(raw, |raw| {
            let Some(ability) = raw.abilities().interop() else {
                return Err(unsupported(OPERATION, "native streams"));
            };
            check(raw, OPERATION, handle, &[NativeKind::Stream])?;
            // SAFETY: the caller guarantees the handle's validity for as long as the device, which keeps its default
            // stream.
            unsafe { ability.stream(handle) }
        })
    }
}
