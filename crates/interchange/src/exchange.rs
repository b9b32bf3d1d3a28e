//! The capsule: one array on its way from one library to another.
#![expect(unsafe_code, reason = "memory is named by address, for which a caller vouches")]

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use runtime_core::{
    DType, Device, DeviceKind, Element, Error, ErrorKind, Layout, Memory, MemoryView, NativeHandle,
    NativeKind, Result, Stream,
};

use crate::owner::{Fenced, Owner, Plain};
use crate::state::{Pending, Ready, State};
use crate::{ContextBinding, DeviceToken, Refused};

/// What kind of memory an array lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// The host's; that of the devices which work in it, too.
    Host,
    /// The host's, locked for a device by its vendor's runtime.
    Pinned,
    /// A device's own.
    Device,
    /// Addressed by host and device: managed, or shared.
    Shared,
    /// Behind a memory object, which is not an address: `cl_mem`.
    Object,
}

impl MemoryKind {
    /// Whether the host can follow a pointer to it.
    pub fn is_host_readable(self) -> bool {
        matches!(self, Self::Host | Self::Pinned | Self::Shared)
    }
}

/// What may be done with an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// They are read.
    ReadOnly,
    /// They are read and written.
    ReadWrite,
    /// They are a copy that nobody else has.
    Copied,
}

impl Access {
    /// Whether elements may be written.
    pub fn is_writable(self) -> bool {
        self != Self::ReadOnly
    }
}

/// Where an array is and how it lies there: what every protocol says in its own way.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    /// The allocation as far as it is known: its lowest byte, or the memory object; `None` if it has no byte.
    pub(crate) memory: Option<NativeHandle>,
    /// Bytes of it.
    pub(crate) extent: usize,
    /// Bytes from its beginning to element `[0, …, 0]`.
    pub(crate) offset: usize,
    pub(crate) layout: Layout,
    pub(crate) kind: MemoryKind,
    pub(crate) device: DeviceToken,
    pub(crate) context: ContextBinding,
    pub(crate) access: Access,
}

impl Description {
    /// An array at an address, of which no more is known than that its elements are there.
    pub(crate) fn at(
        address: usize,
        api: &'static str,
        layout: Layout,
        kind: MemoryKind,
        device: DeviceToken,
        access: Access,
    ) -> Result<Self> {
        let span = layout.span_bytes();
        if address == 0 && !layout.is_empty() {
            let message = format!("a null pointer for {} elements", layout.len());
            return Err(invalid(message));
        }
        let low = address.checked_add_signed(span.start);
        let high = address.checked_add_signed(span.end);
        let (Some(low), Some(_)) = (low, high) else {
            let message = format!("bytes {span:?} around {address:#x} wrap around");
            return Err(Error::new(ErrorKind::OutOfBounds, "exchange", message));
        };
        let memory = NativeHandle { api, kind: NativeKind::Pointer, raw: low };
        Ok(Self {
            memory: (address != 0).then_some(memory),
            extent: span.end.abs_diff(span.start),
            offset: span.start.unsigned_abs(),
            layout,
            kind,
            device,
            context: ContextBinding::PlatformDefault,
            access: narrowed(access, &layout),
        })
    }

    /// Refuses what does not lie inside its allocation.
    fn check(self) -> Result<Self> {
        let bytes = self.layout.span_bytes();
        let low = self.offset.checked_add_signed(bytes.start);
        let high = self.offset.checked_add_signed(bytes.end).filter(|high| *high <= self.extent);
        if low.is_some() && high.is_some() && (self.memory.is_some() || self.layout.is_empty()) {
            return Ok(self);
        }
        let message = format!(
            "bytes {bytes:?} around byte {} of an allocation of {} bytes",
            self.offset, self.extent
        );
        Err(Error::new(ErrorKind::OutOfBounds, "exchange", message))
    }

    /// The address of element `[0, …, 0]`; `None` for memory objects and where there is no byte.
    pub(crate) fn pointer(&self) -> Option<usize> {
        let memory = self.memory.filter(|memory| memory.kind == NativeKind::Pointer)?;
        // Inside the allocation, by `check` or `at`.
        Some(memory.raw.wrapping_add(self.offset))
    }

    /// As [`pointer`](Self::pointer), for protocols of addresses; `empty` where there is no byte.
    pub(crate) fn address(&self, protocol: &'static str, empty: usize) -> Result<usize> {
        match (self.kind, self.memory) {
            (MemoryKind::Object, _) => {
                let message = "a memory object, where the protocol has an address";
                Err(Error::new(ErrorKind::InvalidArgument, protocol, message))
            }
            _ => Ok(self.pointer().unwrap_or(empty)),
        }
    }
}

/// What an array may be used for at most: elements that are several indices' are never written.
pub(crate) fn narrowed(access: Access, layout: &Layout) -> Access {
    if layout.is_nested() { access } else { Access::ReadOnly }
}

/// An array between two libraries: memory, layout, device, what may be done with it, and when its values are there.
///
/// It is handed over once: conversions take it (`into_…`), and one that is refused gives it back with the reason. What
/// owns the memory is dropped once, after all else, on whichever thread the last consumer ends. Make one capsule for each
/// consumer, over an owner that is shared.
///
/// The state `S` says whether the values are there: [`Ready`], [`Pending`] or [`Ordered`](crate::Ordered) for one stream.
/// Protocols without synchronisation are methods of `ArrayExchange<Ready>` alone.
///
/// ```
/// use interchange::{ArrayExchange, ByteStrides};
///
/// let capsule = ArrayExchange::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
/// let exported = capsule.into_array_interface()?;
/// assert_eq!(exported.interface.typestr, "<f4");
/// assert_eq!(exported.interface.strides, Some(ByteStrides::from([12, 4])));
/// drop(exported.keeper); // the vector is freed
/// # Ok::<(), runtime_core::Error>(())
/// ```
///
/// What is pending is not ready, and what is ordered for a stream is not ready for everybody:
///
/// ```compile_fail
/// # fn example(memory: runtime_core::Memory<f64>, stream: &runtime_core::Stream) {
/// let pending = interchange::ArrayExchange::from_memory(memory, &[4], stream).unwrap();
/// pending.into_array_interface();
/// # }
/// ```
pub struct ArrayExchange<S = Ready> {
    pub(crate) array: Description,
    pub(crate) state: S,
    // Dropped last.
    pub(crate) owner: Owner,
}

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
        let layout = Layout::contiguous(T::DTYPE, shape).and_then(|layout| {
            if layout.len() == elements.len() {
                return Ok(layout);
            }
            Err(invalid(format!("{} elements for shape {shape:?}", elements.len())))
        });
        let layout = match layout {
            Ok(layout) => layout,
            Err(error) => return Err(Refused::new(elements, error)),
        };
        let raw = elements.as_mut_ptr().expose_provenance();
        let array = Description {
            memory: (!layout.is_empty()).then_some(NativeHandle {
                api: "host",
                kind: NativeKind::Pointer,
                raw,
            }),
            extent: size_of_val(&*elements),
            offset: 0,
            layout,
            kind: MemoryKind::Host,
            device: host(),
            context: ContextBinding::PlatformDefault,
            access: Access::ReadWrite,
        };
        Ok(Self { array, state: Ready, owner: Arc::new(Plain(elements)) })
    }
}

impl ArrayExchange<Pending> {
    /// Hands over memory of a device, as elements of `shape` in row-major order. Its values are there when what is
    /// enqueued on `stream` by now is done.
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
        let described = memory.view().reshape(shape).and_then(|view| describe(&view, stream));
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
        let view = memory.view();
        let described = view.with_layout(offset, layout).and_then(|view| describe(&view, stream));
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
        let view = memory.view().with_layout(offset, layout)?;
        let array = describe(&view, stream)?;
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
        match describe(view, stream) {
            Ok(array) => Ok(Self::pending(array, access, owner, stream)),
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
        // A consumer that has host memory is done with it when it gives it back.
        let owner: Owner = match array.kind {
            MemoryKind::Host => Arc::new(Plain(owner)),
            _ => Arc::new(Fenced::new(owner, stream.device())),
        };
        Self { array: Description { access, ..array }, state: Pending::on(stream), owner }
    }
}

impl<S: State> ArrayExchange<S> {
    /// The same in another state, or as it was.
    pub(crate) fn with_state<N>(self, state: Result<N>) -> Result<ArrayExchange<N>, Refused<Self>> {
        match state {
            Ok(state) => Ok(ArrayExchange { array: self.array, state, owner: self.owner }),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// Element type, shape, and strides in elements.
    pub fn layout(&self) -> &Layout {
        &self.array.layout
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.array.layout.dtype()
    }

    /// The address of element `[0, …, 0]`; `None` where there is no memory, and for memory objects.
    pub fn pointer(&self) -> Option<usize> {
        self.array.pointer()
    }

    /// The allocation as far as it is known, by its lowest address or as a memory object. Of an address from somebody
    /// else nothing is known but that the array's own elements are there.
    pub fn memory(&self) -> Option<NativeHandle> {
        self.array.memory
    }

    /// Bytes of the [allocation](Self::memory).
    pub fn memory_bytes(&self) -> usize {
        self.array.extent
    }

    /// The array's bytes in the [allocation](Self::memory): from the lowest to past the highest of any element.
    pub fn byte_range(&self) -> Range<usize> {
        let span = self.array.layout.span_bytes();
        // Inside the allocation.
        self.array.offset.wrapping_add_signed(span.start)
            ..self.array.offset.wrapping_add_signed(span.end)
    }

    /// What kind of memory it is in.
    pub fn kind(&self) -> MemoryKind {
        self.array.kind
    }

    /// The device that the memory is of.
    pub fn device(&self) -> &DeviceToken {
        &self.array.device
    }

    /// The context that the memory belongs to.
    pub fn context(&self) -> &ContextBinding {
        &self.array.context
    }

    /// What may be done with the elements.
    pub fn access(&self) -> Access {
        self.array.access
    }

    /// When the values are there.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The same, to be read and not written.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.array.access = Access::ReadOnly;
        self
    }

    /// The same, to be written too: for an array that came by a protocol that cannot say so, the old DLPack. Elements that
    /// are several indices' stay to be read.
    ///
    /// # Safety
    ///
    /// The elements may be written, and nobody uses them meanwhile without being ordered with who does.
    #[must_use]
    pub unsafe fn assume_writable(mut self) -> Self {
        self.array.access = narrowed(Access::ReadWrite, &self.array.layout);
        self
    }

    /// The same, said to be memory of `device`: for arrays of an interface that this runtime reaches by another, and whose
    /// index is another there.
    ///
    /// # Safety
    ///
    /// `device` can use the memory's address, or object, as one of its own.
    #[must_use]
    pub unsafe fn assume_of(mut self, device: &Device) -> Self {
        let native = device.native();
        self.array.device = DeviceToken::of(device);
        self.array.context = ContextBinding::Explicit(native);
        self.array.memory =
            self.array.memory.map(|memory| NativeHandle { api: native.api, ..memory });
        self
    }

    /// The same, known to lie in an allocation of `bytes` bytes at `address`: what a driver says of an address.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if it does not lie there; `InvalidArgument` for a memory object.
    pub fn within(mut self, address: usize, bytes: usize) -> Result<Self, Refused<Self>> {
        let span = self.array.layout.span_bytes();
        let refuse =
            |array, kind, message| Err(Refused::new(array, Error::new(kind, "within", message)));
        let Some(first) = self.array.pointer() else {
            let message = "an array without an address".to_owned();
            return refuse(self, ErrorKind::InvalidArgument, message);
        };
        let offset = first.checked_sub(address);
        let inside = |offset: usize| {
            let low = offset.checked_add_signed(span.start);
            let high = offset.checked_add_signed(span.end);
            low.is_some() && high.is_some_and(|high| high <= bytes)
        };
        match (offset, &mut self.array.memory) {
            (Some(offset), Some(memory)) if inside(offset) => {
                memory.raw = address;
                (self.array.extent, self.array.offset) = (bytes, offset);
                Ok(self)
            }
            _ => {
                let message =
                    format!("bytes {span:?} around {first:#x}, and {bytes} bytes at {address:#x}");
                refuse(self, ErrorKind::OutOfBounds, message)
            }
        }
    }

    /// The same, said to belong to a context of the SYCL runtime: the platform's default one, on the device that SYCL's
    /// filter selectors call `device`, or another one, whose handle is given.
    ///
    /// # Safety
    ///
    /// The memory was allocated in that context.
    #[must_use]
    pub unsafe fn assume_bound(mut self, device: DeviceToken, context: ContextBinding) -> Self {
        self.array.device = device;
        self.array.context = context;
        self
    }
}

/// What a view shows, as far as the view says it.
fn describe(view: &MemoryView<'_>, stream: &Stream) -> Result<Description> {
    let device = view.device();
    if !device.is_same(stream.device()) {
        let message = format!("memory of {}", device.id());
        let error = Error::new(ErrorKind::WrongDevice, "exchange", message);
        return Err(error.on(stream.device().id()));
    }
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

/// The host, as it calls itself everywhere.
pub(crate) fn host() -> DeviceToken {
    DeviceToken::new("host", Some(DeviceKind::Host), 0)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "exchange", message)
}

impl<S: State> fmt::Debug for ArrayExchange<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayExchange")
            .field("array", &self.array)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
