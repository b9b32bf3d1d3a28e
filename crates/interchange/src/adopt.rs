//! Imports arrays of other libraries as device memory.
#![expect(unsafe_code, reason = "adopts memory that the capsule's maker vouched for")]

use std::fmt;
use std::sync::Arc;

use runtime_core::{
    Device, Element, Error, ErrorKind, Layout, Memory, MemoryView, MemoryViewMut, NativeHandle,
    NativeKind, Result, Stream,
};

use crate::description::Description;
use crate::owner::To;
use crate::state::{Ordered, Ready, State};
use crate::{Access, ArrayExchange, ContextBinding, ConversionError, MemoryKind};

/// An array of another library as memory of a device of this runtime, without a copy.
///
/// When it is dropped, the array returns to its owner once all work enqueued on it has finished.
pub struct Adopted<T: Element> {
    memory: Memory<T>,
    layout: Layout,
    /// The number of bytes from the start of the memory to element `[0, …, 0]`.
    offset: usize,
    access: Access,
    /// If the values are ready only for work of one stream: that stream, which the views are bound to.
    ordered: Option<Ordered>,
}

impl<T: Element> Adopted<T> {
    /// The element type, the shape, and the strides in elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The permitted access to the elements.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The device of the memory.
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    /// The elements, to read. If they were ordered for a stream, the view can be used on that stream only.
    ///
    /// # Errors
    ///
    /// None for an adopted array.
    pub fn view(&self) -> Result<MemoryView<'_, T>> {
        let view = self.memory.view().with_layout(self.offset, &self.layout)?;
        match self.ordered.as_ref().and_then(State::stream) {
            Some(stream) => view.on_stream(stream),
            None => Ok(view),
        }
    }

    /// The elements, to read and write. If they were ordered for a stream, the view can be used on that stream only.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the array is read-only.
    pub fn view_mut(&mut self) -> Result<MemoryViewMut<'_, T>> {
        self.check_writable("view_mut")?;
        let view = self.memory.view_mut().with_layout(self.offset, &self.layout)?;
        match self.ordered.as_ref().and_then(State::stream) {
            Some(stream) => view.on_stream(stream),
            None => Ok(view),
        }
    }

    /// Returns the memory itself, if the array fills it in row-major order. If the values are ready for one stream
    /// only, this call blocks until that stream is done, because memory can be used on all streams and by the host.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the array is read-only, or if it is not in row-major order without gaps; use
    /// [`to_memory`](Self::to_memory) to copy such an array. Errors of the wait, as
    /// [`host_wait`](ArrayExchange::host_wait) of the ordered array.
    pub fn into_memory(mut self) -> Result<Memory<T>, ConversionError<Self>> {
        let checked = self.check_writable("into_memory").and_then(|()| self.check_compact());
        let ready =
            checked.and_then(|()| self.ordered.as_mut().map_or(Ok(()), Ordered::synchronize));
        match ready {
            Ok(()) => Ok(self.memory),
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }

    /// Copies the elements into memory of the same device, in row-major order. The copy is enqueued on `stream`.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`. `WrongStream` if the values are ready for another stream only. Errors of the copy.
    pub fn to_memory(&self, stream: &Stream) -> Result<Memory<T>> {
        let view = self.view()?;
        let mut memory = self.device().memory_allocate::<T>(self.layout.len())?;
        memory.view_mut().reshape(self.layout.shape())?.copy_from(stream, &view)?;
        Ok(memory)
    }

    fn check_writable(&self, operation: &'static str) -> Result<()> {
        if self.access.is_writable() {
            return Ok(());
        }
        let message = "an array that is only to be read";
        Err(Error::new(ErrorKind::InvalidArgument, operation, message).on(self.device().id()))
    }

    fn check_compact(&self) -> Result<()> {
        if self.layout.is_contiguous() && self.layout.len() == self.memory.len() {
            return Ok(());
        }
        let message = format!(
            "strides {:?} of shape {:?} are not row-major without gaps",
            self.layout.strides(),
            self.layout.shape()
        );
        let error = Error::new(ErrorKind::InvalidArgument, "into_memory", message);
        Err(error.on(self.device().id()))
    }
}

/// An array of another library as bytes of a device: see [`ArrayExchange::into_bytes`].
#[derive(Debug)]
pub struct AdoptedBytes {
    /// The bytes from the lowest to the highest of any element, or a whole memory object.
    pub memory: Memory<u8>,
    /// The number of bytes from the start of the memory to element `[0, …, 0]`.
    pub offset: usize,
    /// The element type, the shape, and the strides in elements.
    pub layout: Layout,
    /// The permitted access to the elements.
    pub access: Access,
}

impl ArrayExchange<Ready> {
    /// Imports the array as memory of `device`, without a copy. Host memory can be imported on devices that work in
    /// host memory. Addresses and memory objects can be imported on devices of their own interface, if the driver
    /// accepts them.
    ///
    /// # Errors
    ///
    /// `WrongDevice` if the device cannot use such memory. `InvalidArgument` if the element type is not `T`, or if the
    /// address is not aligned for it. `Unsupported` if the device cannot adopt memory. Errors of the driver.
    pub fn into_adopted<T: Element>(
        self,
        device: &Device,
    ) -> Result<Adopted<T>, ConversionError<Self>> {
        self.adopt(device, None)
    }
}

impl ArrayExchange<Ordered> {
    /// As [`into_adopted`](ArrayExchange::into_adopted) of a ready array, on the device of [`stream`](Self::stream).
    /// The views are bound to that stream.
    ///
    /// # Errors
    ///
    /// As [`into_adopted`](ArrayExchange::into_adopted) of a ready array.
    pub fn into_adopted<T: Element>(self) -> Result<Adopted<T>, ConversionError<Self>> {
        let (device, ordered) = (self.stream().device().clone(), self.state.clone());
        self.adopt(&device, Some(ordered))
    }
}

impl<S: State> ArrayExchange<S> {
    /// Imports the array as memory of `device`, for an element type known only at run time. Does not wait for the
    /// values.
    ///
    /// # Errors
    ///
    /// As [`into_adopted`](ArrayExchange::into_adopted).
    ///
    /// # Safety
    ///
    /// Only the layout's elements are accessed. They are written only if the access allows it. Every use, also by the
    /// host, comes after the work that the [state](Self::state) names, because the memory does not track that work.
    pub unsafe fn into_bytes(self, device: &Device) -> Result<AdoptedBytes, ConversionError<Self>> {
        match self.adopted_as::<u8>(device) {
            Ok((memory, offset)) => {
                self.owner.lend(To::Device);
                let (layout, access) = (self.array.layout, self.array.access);
                Ok(AdoptedBytes { memory, offset, layout, access })
            }
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }

    fn adopt<T: Element>(
        self,
        device: &Device,
        ordered: Option<Ordered>,
    ) -> Result<Adopted<T>, ConversionError<Self>> {
        match self.adopted(device) {
            Ok((memory, offset)) => {
                self.owner.lend(To::Device);
                Ok(Adopted {
                    memory,
                    layout: self.array.layout,
                    offset,
                    access: self.array.access,
                    ordered,
                })
            }
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }

    /// The memory around the array, and the offset of the array's first element in it.
    pub(crate) fn adopted<T: Element>(&self, device: &Device) -> Result<(Memory<T>, usize)> {
        let dtype = self.array.layout.dtype();
        if T::DTYPE == dtype {
            return self.adopted_as(device);
        }
        let message = format!("{dtype} elements as {}", T::DTYPE);
        Err(Error::new(ErrorKind::InvalidArgument, "adopt", message).on(device.id()))
    }

    /// As `adopted`, for memory counted in `T`. The size of `T` divides the size of the elements.
    fn adopted_as<T: Element>(&self, device: &Device) -> Result<(Memory<T>, usize)> {
        let array = &self.array;
        let refuse =
            |kind, message: String| Err(Error::new(kind, "adopt", message).on(device.id()));
        let (Some(memory), false) = (array.memory, array.layout.is_empty()) else {
            return Ok((device.memory_allocate(0)?, 0));
        };
        let Some(api) = api_on(array, memory, device) else {
            let message = format!("{:?} memory of {}, {memory:?}", array.kind, array.device);
            return refuse(ErrorKind::WrongDevice, message);
        };
        let span = self.byte_range();
        // For an address, only the array's own bytes are adopted; a memory object is adopted as a whole.
        let (raw, bytes) = match memory.kind {
            NativeKind::Object => (memory.raw, 0..span.end),
            _ => (memory.raw.wrapping_add(span.start), span.clone()),
        };
        let offset = array.offset - bytes.start;
        let dtype = array.layout.dtype();
        let is_aligned = |place: usize| place.is_multiple_of(dtype.align());
        if !(memory.kind == NativeKind::Object || is_aligned(raw)) || !is_aligned(offset) {
            let message = format!("byte {offset} from {raw:#x} on is not aligned for {dtype}");
            return refuse(ErrorKind::InvalidArgument, message);
        }
        let len = bytes.len().div_ceil(size_of::<T>());
        let handle = NativeHandle { api, kind: memory.kind, raw };
        let owner = Arc::clone(&self.owner);
        // SAFETY: the maker of the capsule promised that its elements are initialised and stay until the owner is
        // dropped. The capsule's state says that they are ready. Only the elements are accessed: views have the array's
        // layout, and the memory itself is given out only if it has no gaps, or to callers that promise the same.
        let adopted = unsafe { device.memory_adopt::<T>(handle, len, owner) }?;
        Ok((adopted, offset))
    }
}

/// The interface through which `device` uses the memory, if it can.
fn api_on(array: &Description, memory: NativeHandle, device: &Device) -> Option<&'static str> {
    let api = device.native().api;
    let usable = match array.kind {
        MemoryKind::Host | MemoryKind::Pinned | MemoryKind::Shared
            if device.has_host_addresses() =>
        {
            true
        }
        MemoryKind::Host => false,
        // Kernels of OpenCL take addresses of their own context only, and no addresses of mapped buffers.
        MemoryKind::Pinned if api == "opencl" => false,
        _ if memory.kind == NativeKind::Pointer && memory.api == "opencl" => {
            array.context == ContextBinding::Explicit(device.native())
        }
        _ => memory.api == api,
    };
    usable.then_some(api)
}

impl<T: Element> fmt::Debug for Adopted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adopted")
            .field("layout", &self.layout)
            .field("access", &self.access)
            .field("device", self.device().id())
            .finish_non_exhaustive()
    }
}
