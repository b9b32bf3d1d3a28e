//! Capsules of what is this program's: memory of devices, pinned and plain host memory.
#![expect(unsafe_code, reason = "a view's memory is kept by whatever the caller says")]

use std::any::Any;
use std::sync::Arc;

use runtime_core::{
    Device, DeviceKind, Element, Error, ErrorKind, Layout, Memory, MemoryView, NativeKind, Pinned,
    Result, Stream,
};

use crate::description::{Description, host, narrowed};
use crate::owner::{Fenced, Owner, Plain};
use crate::state::{Pending, Ready};
use crate::{Access, ArrayExchange, ContextBinding, DeviceToken, MemoryKind, Refused};

impl ArrayExchange {
    /// Hands over elements in host memory, in row-major order.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are not as many elements as `shape` has, or more than six dimensions.
    pub fn from_vec<T: Element>(
        mut elements: Vec<T>,
        shape: &[usize],
    ) -> Result<Self, Refused<Vec<T>>> {
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
            Err(error) => Err(Refused::new(elements, error)),
        }
    }
}

impl ArrayExchange {
    /// Hands over page-locked host memory, in row-major order. Blocks until what is enqueued on it is done.
    ///
    /// # Errors
    ///
    /// As [`from_vec`](Self::from_vec), and what that work reports.
    pub fn from_pinned<T: Element>(
        mut pinned: Pinned<T>,
        shape: &[usize],
    ) -> Result<Self, Refused<Pinned<T>>> {
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
            Err(error) => Err(Refused::new(pinned, error)),
        }
    }

    /// Hands over page-locked host memory of `device` by the address of its first element, with whatever keeps it.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if addresses wrap around.
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped, every element of the layout is there, and nobody uses them without being ordered with the
    /// consumer. What is enqueued on them by now is done.
    pub unsafe fn from_pinned_at<O: Any + Send + Sync>(
        device: &Device,
        address: usize,
        layout: &Layout,
        owner: O,
    ) -> Result<Self, Refused<O>> {
        match describe_pinned(device, address, *layout) {
            Ok(array) => {
                let owner = hold(owner, array.kind, device);
                Ok(Self { array: Box::new(array), state: Ready, owner })
            }
            Err(error) => Err(Refused::new(owner, error)),
        }
    }
}

impl ArrayExchange<Pending> {
    /// Hands over memory of a device, as elements of `shape` in row-major order. Its values are there when what is
    /// enqueued on `stream` by now is done; `stream` waits for other work on the memory, as
    /// [`Memory::order_before`] says.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are not as many elements as `shape` has, or more than six dimensions; `WrongDevice` if
    /// the stream is another device's.
    pub fn from_memory<T: Element>(
        memory: Memory<T>,
        shape: &[usize],
        stream: &Stream,
    ) -> Result<Self, Refused<Memory<T>>> {
        let described = describe_part(&memory, memory.view().reshape(shape), stream);
        match described {
            Ok(array) => Ok(Self::pending(array, Access::ReadWrite, memory, stream)),
            Err(error) => Err(Refused::new(memory, error)),
        }
    }

    /// As [`from_memory`](Self::from_memory), with a layout whose element `[0, …, 0]` lies `offset` bytes after the
    /// memory's beginning.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the layout's span leaves the memory; `InvalidArgument` if the offset is not aligned for the
    /// layout's type; `WrongDevice`.
    pub fn from_memory_with<T: Element>(
        memory: Memory<T>,
        offset: usize,
        layout: &Layout,
        stream: &Stream,
    ) -> Result<Self, Refused<Memory<T>>> {
        let view = memory.view().with_layout(offset, layout);
        let described = describe_part(&memory, view, stream);
        match described {
            Ok(array) => Ok(Self::pending(array, Access::ReadWrite, memory, stream)),
            Err(error) => Err(Refused::new(memory, error)),
        }
    }

    /// Hands over a share of a memory, to be read.
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
        let array = describe_part(memory, memory.view().with_layout(offset, layout), stream)?;
        Ok(Self::pending(array, Access::ReadOnly, Arc::clone(memory), stream))
    }

    /// Hands over what a view shows, with whatever keeps it.
    ///
    /// # Errors
    ///
    /// `WrongDevice` if the stream is not of the view's device.
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped the view's memory exists; nobody writes its elements, or, unless `access` is
    /// [`ReadOnly`](Access::ReadOnly), uses them without being ordered with the consumer; and if it is
    /// [`Copied`](Access::Copied), nobody else has them.
    pub unsafe fn from_view<O: Any + Send + Sync>(
        view: &MemoryView<'_>,
        access: Access,
        stream: &Stream,
        owner: O,
    ) -> Result<Self, Refused<O>> {
        match describe_on(view, stream) {
            Ok(array) => Ok(Self::pending(array, access, owner, stream)),
            Err(error) => Err(Refused::new(owner, error)),
        }
    }

    /// As [`from_view`](Self::from_view), of values that are there after all the work that `after` tells.
    ///
    /// # Errors
    ///
    /// None that a view which exists can have.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn from_view_after<O: Any + Send + Sync>(
        view: &MemoryView<'_>,
        access: Access,
        after: Pending,
        owner: O,
    ) -> Result<Self, Refused<O>> {
        match describe(view) {
            Ok(array) => {
                let owner = hold(owner, array.kind, view.device());
                let access = narrowed(access, &array.layout);
                Ok(Self { array: Box::new(Description { access, ..array }), state: after, owner })
            }
            Err(error) => Err(Refused::new(owner, error)),
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

/// An owner of memory of that kind.
fn hold(owner: impl Any + Send + Sync, kind: MemoryKind, device: &Device) -> Owner {
    match kind {
        // A consumer of host memory is done with it when it gives it back.
        MemoryKind::Host => Arc::new(Plain::new(owner)),
        _ => Arc::new(Fenced::new(owner, device)),
    }
}

/// Page-locked memory of a device.
fn describe_pinned(device: &Device, address: usize, layout: Layout) -> Result<Description> {
    // Devices in host memory lock nothing.
    let (api, kind, token) = match device.info().kind {
        DeviceKind::Host | DeviceKind::Simulated => ("host", MemoryKind::Host, host()),
        _ => (device.native().api, MemoryKind::Pinned, DeviceToken::of(device)),
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

/// What a view of the stream's device shows.
fn describe_on(view: &MemoryView<'_>, stream: &Stream) -> Result<Description> {
    let device = view.device();
    if !device.is_same(stream.device()) {
        let message = format!("memory of {}", device.id());
        let error = Error::new(ErrorKind::WrongDevice, "exchange", message);
        return Err(error.on(stream.device().id()));
    }
    describe(view)
}

/// What a view of a memory shows once `stream` is done with what is enqueued now, and all other work on the memory too.
fn describe_part<T: Element>(
    memory: &Memory<T>,
    view: Result<MemoryView<'_>>,
    stream: &Stream,
) -> Result<Description> {
    let array = describe_on(&view?, stream)?;
    memory.order_before(stream)?;
    Ok(array)
}

/// What a view shows, as far as the view says it.
pub(crate) fn describe(view: &MemoryView<'_>) -> Result<Description> {
    let device = view.device();
    let memory = view.native();
    let range = view.byte_range();
    let object = memory.is_some_and(|memory| memory.kind == NativeKind::Object);
    let kind = match device.info().kind {
        DeviceKind::Host | DeviceKind::Simulated => MemoryKind::Host,
        _ if object => MemoryKind::Object,
        _ if view.is_host_visible() && memory.is_some() => MemoryKind::Shared,
        _ => MemoryKind::Device,
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
