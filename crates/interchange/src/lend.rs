//! Capsules for memory of this program: device memory, pinned memory and plain host memory.
#![expect(unsafe_code, reason = "the caller names what keeps a view's memory alive")]

use std::any::Any;
use std::sync::Arc;

use runtime_core::{
    AnyView, Device, DeviceKind, Element, Error, ErrorKind, Layout, Memory, NativeKind, Pinned,
    Result, Stream,
};

use crate::description::{Description, host, narrowed};
use crate::owner::{Fenced, Owner, Plain};
use crate::state::{Pending, Ready};
use crate::{Access, ArrayExchange, ContextBinding, ConversionError, DeviceToken, MemoryKind};

impl ArrayExchange {
    /// Exports elements in host memory, in row-major order.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number of elements does not match `shape`, or for more than six dimensions.
    pub fn from_vec<T: Element>(
        mut elements: Vec<T>,
        shape: &[usize],
    ) -> Result<Self, ConversionError<Vec<T>>> {
        let raw = elements.as_mut_ptr().expose_provenance();
        let described = row_major::<T>(elements.len(), shape).and_then(|layout| {
            Description::at(raw, "host", layout, MemoryKind::Host, host(), Access::ReadWrite)
        });
        match described {
            Ok(array) => Ok(Self {
                array: Box::new(array),
                state: Ready,
                owner: Arc::new(Plain::new(elements)),
            }),
            Err(error) => Err(ConversionError::new(elements, error)),
        }
    }
}

impl ArrayExchange {
    /// Exports pinned host memory, in row-major order. Blocks until work already enqueued on it has finished.
    ///
    /// # Errors
    ///
    /// As [`from_vec`](Self::from_vec). Errors of that work.
    pub fn from_pinned<T: Element>(
        mut pinned: Pinned<T>,
        shape: &[usize],
    ) -> Result<Self, ConversionError<Pinned<T>>> {
        let device = pinned.device().clone();
        let described = row_major::<T>(pinned.len(), shape).and_then(|layout| {
            let raw = pinned.as_mut_slice()?.as_mut_ptr().expose_provenance();
            describe_pinned(&device, raw, layout)
        });
        match described {
            Ok(array) => {
                let owner = hold(pinned, array.kind, &device);
                Ok(Self { array: Box::new(array), state: Ready, owner })
            }
            Err(error) => Err(ConversionError::new(pinned, error)),
        }
    }

    /// Exports pinned host memory of `device` by the address of its first element. `owner` keeps the memory alive.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if addresses wrap around.
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped, all elements of the layout exist, and other uses of them are ordered with those of the
    /// consumer. Work already enqueued on them has finished.
    pub unsafe fn from_pinned_at<O: Any + Send + Sync>(
        device: &Device,
        address: usize,
        layout: &Layout,
        owner: O,
    ) -> Result<Self, ConversionError<O>> {
        match describe_pinned(device, address, *layout) {
            Ok(array) => {
                let owner = hold(owner, array.kind, device);
                Ok(Self { array: Box::new(array), state: Ready, owner })
            }
            Err(error) => Err(ConversionError::new(owner, error)),
        }
    }
}

impl ArrayExchange<Pending> {
    /// Exports device memory as elements of `shape` in row-major order. Its values are ready when the work already
    /// enqueued on `stream` has finished. `stream` waits for other work on the memory, as [`Memory::order_before`]
    /// describes.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number of elements does not match `shape`, or for more than six dimensions.
    /// `WrongDevice` if the stream belongs to another device.
    pub fn from_memory<T: Element>(
        memory: Memory<T>,
        shape: &[usize],
        stream: &Stream,
    ) -> Result<Self, ConversionError<Memory<T>>> {
        let described = describe_part(&memory, memory.view().erase().reshape(shape), stream);
        match described {
            Ok(array) => Ok(Self::pending(array, Access::ReadWrite, memory, stream)),
            Err(error) => Err(ConversionError::new(memory, error)),
        }
    }

    /// As [`from_memory`](Self::from_memory), with a layout of any element type. Element `[0, …, 0]` lies `offset`
    /// bytes after the start of the memory.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the layout exceeds the memory. `InvalidArgument` if the offset is not aligned for the layout's
    /// type. `WrongDevice` if the stream belongs to another device.
    pub fn from_memory_with<T: Element>(
        memory: Memory<T>,
        offset: usize,
        layout: &Layout,
        stream: &Stream,
    ) -> Result<Self, ConversionError<Memory<T>>> {
        let view = memory.view().reinterpret(offset, layout);
        let described = describe_part(&memory, view, stream);
        match described {
            Ok(array) => Ok(Self::pending(array, Access::ReadWrite, memory, stream)),
            Err(error) => Err(ConversionError::new(memory, error)),
        }
    }

    /// Exports shared memory as read-only.
    ///
    /// # Errors
    ///
    /// As [`from_memory_with`](Self::from_memory_with).
    pub fn from_shared<T: Element>(
        memory: &Arc<Memory<T>>,
        offset: usize,
        layout: &Layout,
        stream: &Stream,
    ) -> Result<Self> {
        let array = describe_part(memory, memory.view().reinterpret(offset, layout), stream)?;
        Ok(Self::pending(array, Access::ReadOnly, Arc::clone(memory), stream))
    }

    /// Exports the elements of a view. `owner` keeps the memory alive.
    ///
    /// # Errors
    ///
    /// `WrongDevice` if the stream does not belong to the view's device.
    ///
    /// # Safety
    ///
    /// The view's memory exists until `owner` is dropped. Until then, writes of its elements are ordered with the
    /// consumer. Unless `access` is [`ReadOnly`](Access::ReadOnly), all other uses are ordered with the consumer too.
    /// If `access` is [`Copied`](Access::Copied), no other code uses the elements.
    pub unsafe fn from_view<'v, O: Any + Send + Sync>(
        view: impl Into<AnyView<'v>>,
        access: Access,
        stream: &Stream,
        owner: O,
    ) -> Result<Self, ConversionError<O>> {
        match describe_on(&view.into(), stream) {
            Ok(array) => Ok(Self::pending(array, access, owner, stream)),
            Err(error) => Err(ConversionError::new(owner, error)),
        }
    }

    /// As [`from_view`](Self::from_view), for values that are ready after all the work in `after`.
    ///
    /// # Errors
    ///
    /// None for an existing view.
    ///
    /// # Safety
    ///
    /// As for [`from_view`](Self::from_view).
    pub unsafe fn from_view_after<'v, O: Any + Send + Sync>(
        view: impl Into<AnyView<'v>>,
        access: Access,
        after: Pending,
        owner: O,
    ) -> Result<Self, ConversionError<O>> {
        let view = view.into();
        match describe(&view) {
            Ok(array) => {
                let owner = hold(owner, array.kind, view.device());
                let access = narrowed(access, &array.layout);
                Ok(Self { array: Box::new(Description { access, ..array }), state: after, owner })
            }
            Err(error) => Err(ConversionError::new(owner, error)),
        }
    }

    fn pending(
        array: Description,
        access: Access,
        owner: impl Any + Send + Sync,
        stream: &Stream,
    ) -> Self {
        let access = narrowed(access, &array.layout);
        let owner = hold(owner, array.kind, stream.device());
        Self { array: Box::new(Description { access, ..array }), state: Pending::on(stream), owner }
    }
}

/// An owner for memory of this kind.
fn hold(owner: impl Any + Send + Sync, kind: MemoryKind, device: &Device) -> Owner {
    match kind {
        // When a consumer returns host memory, its work on it has finished.
        MemoryKind::Host => Arc::new(Plain::new(owner)),
        _ => Arc::new(Fenced::new(owner, device)),
    }
}

/// Describes pinned memory of a device.
fn describe_pinned(device: &Device, address: usize, layout: Layout) -> Result<Description> {
    // Devices in host memory pin nothing.
    let (api, kind, token) = match device.has_host_addresses() {
        true => ("host", MemoryKind::Host, host()),
        false => (device.native().api, MemoryKind::Pinned, DeviceToken::of(device)),
    };
    let array = Description::at(address, api, layout, kind, token, Access::ReadWrite)?;
    Ok(Description { context: ContextBinding::Explicit(device.native()), ..array })
}

/// The layout of `len` elements as an array of `shape`.
fn row_major<T: Element>(len: usize, shape: &[usize]) -> Result<Layout> {
    let layout = Layout::contiguous(T::DTYPE, shape)?;
    if layout.len() == len {
        return Ok(layout);
    }
    Err(invalid(format!("{len} elements for shape {shape:?}")))
}

/// Describes the elements of a view of the stream's device.
fn describe_on(view: &AnyView<'_>, stream: &Stream) -> Result<Description> {
    let device = view.device();
    if !device.is_same(stream.device()) {
        let message = format!("memory of {}", device.id());
        let error = Error::new(ErrorKind::WrongDevice, "exchange", message);
        return Err(error.on(stream.device().id()));
    }
    describe(view)
}

/// Describes the elements of a view of `memory`. They are ready once the work already on `stream`, and all other work
/// on the memory, has finished.
fn describe_part<T: Element>(
    memory: &Memory<T>,
    view: Result<AnyView<'_>>,
    stream: &Stream,
) -> Result<Description> {
    let array = describe_on(&view?, stream)?;
    memory.order_before(stream)?;
    Ok(array)
}

/// Describes the elements of a view, from the data in the view.
pub(crate) fn describe(view: &AnyView<'_>) -> Result<Description> {
    let device = view.device();
    let memory = view.native();
    let range = view.byte_range();
    let object = memory.is_some_and(|memory| memory.kind == NativeKind::Object);
    let is_host = matches!(device.info().kind, DeviceKind::Host | DeviceKind::Simulated);
    let kind = match view.is_host_visible() && memory.is_some() {
        _ if object => MemoryKind::Object,
        _ if device.has_host_addresses() => MemoryKind::Host,
        true if is_host => MemoryKind::Host,
        true => MemoryKind::Shared,
        false => MemoryKind::Device,
    };
    let array = Description {
        memory,
        extent: view.memory_bytes(),
        offset: range.start.wrapping_add_signed(-view.layout().span_bytes().start),
        layout: *view.layout(),
        kind,
        device: DeviceToken::of(device),
        context: ContextBinding::Explicit(device.native()),
        access: Access::ReadOnly,
    };
    array.check()
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "exchange", message)
}
