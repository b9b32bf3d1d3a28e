//! The capsule: one array on its way from one library to another.
#![expect(unsafe_code, reason = "what a capsule says of itself is a caller's word")]

use std::fmt;
use std::ops::Range;

use runtime_core::{DType, Device, Error, ErrorKind, Layout, NativeHandle, Result};

use crate::description::{Description, narrowed};
use crate::owner::{Keeper, Owner};
use crate::state::{Ready, State};
use crate::{Access, ContextBinding, DeviceToken, MemoryKind, Refused};

/// An array between two libraries: memory, layout, device, what may be done with it, and when its values are there.
///
/// It is handed over once: conversions take it (`into_…`), and one that is refused gives it back with the reason. What
/// owns the memory is dropped once, after all else, on whichever thread the last consumer ends. Make one capsule for each
/// consumer, over an owner that is shared.
///
/// The state `S` says whether the values are there: [`Ready`], [`Pending`](crate::Pending), or
/// [`Ordered`](crate::Ordered) for one stream. Protocols without synchronisation are methods of `ArrayExchange<Ready>` alone.
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
pub struct ArrayExchange<S = Ready> {
    // Boxed, since a capsule moves from one conversion to the next.
    pub(crate) array: Box<Description>,
    pub(crate) state: S,
    // Dropped last.
    pub(crate) owner: Owner,
}

impl<S: State> ArrayExchange<S> {
    /// The same in another state, or as it was.
    pub(crate) fn with_state<N>(self, state: Result<N>) -> Result<ArrayExchange<N>, Refused<Self>> {
        match state {
            Ok(state) => Ok(ArrayExchange { array: self.array, state, owner: self.owner }),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// What keeps the memory, for consumers that learn its address elsewhere.
    pub fn into_keeper(self) -> Keeper {
        Keeper::lend(self.owner, None)
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

    /// The same, said to be a copy that nobody else has.
    ///
    /// # Safety
    ///
    /// Nobody else has it, and its elements may be written.
    #[must_use]
    pub unsafe fn assume_copied(mut self) -> Self {
        self.array.access = narrowed(Access::Copied, &self.array.layout);
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

impl<S: State> fmt::Debug for ArrayExchange<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayExchange")
            .field("array", &self.array)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
