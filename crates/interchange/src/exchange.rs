//! The capsule: one array in transfer from one library to another.
#![expect(unsafe_code, reason = "the description of a capsule is trusted")]

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use runtime_core::{DType, Device, Error, ErrorKind, Layout, NativeHandle, Result};

use crate::description::{Description, narrowed};
use crate::owner::{Keeper, Owner, Plain};
use crate::state::{Ready, State};
use crate::{Access, ContextBinding, ConversionError, DeviceToken, MemoryKind};

/// An array in transfer between two libraries: its memory, layout, device, permitted access, and when its values are
/// ready.
///
/// It is exported once: conversions consume it (`into_…`), and a refused conversion returns it with the reason. The
/// owner of the memory is dropped once, after everything else, on the thread where the last consumer ends. Make one
/// capsule for each consumer, over a shared owner.
///
/// The state `S` says whether the values are ready: [`Ready`], [`Pending`](crate::Pending), or
/// [`Ordered`](crate::Ordered) for one stream. Protocols without synchronisation are methods of `ArrayExchange<Ready>`
/// only.
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
    // Boxed, because a capsule is moved from one conversion to the next.
    pub(crate) array: Box<Description>,
    pub(crate) state: S,
    // Dropped last.
    pub(crate) owner: Owner,
}

impl<S: State> ArrayExchange<S> {
    /// The capsule of an imported array, or its owner with the error.
    #[inline]
    pub(crate) fn imported<O: Any + Send + Sync>(
        described: Result<(Description, S)>,
        owner: O,
    ) -> Result<Self, ConversionError<O>> {
        match described {
            Ok((array, state)) => {
                Ok(Self { array: Box::new(array), state, owner: Arc::new(Plain::new(owner)) })
            }
            Err(error) => Err(ConversionError::new(owner, error)),
        }
    }

    /// The capsule in another state, or unchanged in the error.
    pub(crate) fn with_state<N>(
        self,
        state: Result<N>,
    ) -> Result<ArrayExchange<N>, ConversionError<Self>> {
        match state {
            Ok(state) => Ok(ArrayExchange { array: self.array, state, owner: self.owner }),
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }

    /// Returns an owner of the memory, for consumers that get its address in another way.
    pub fn into_keeper(self) -> Keeper {
        Keeper::lend(self.owner, None)
    }

    /// The element type, the shape, and the strides in elements.
    pub fn layout(&self) -> &Layout {
        &self.array.layout
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.array.layout.dtype()
    }

    /// The address of element `[0, …, 0]`; `None` if there is no memory, and for memory objects.
    pub fn pointer(&self) -> Option<usize> {
        self.array.pointer()
    }

    /// The allocation, as far as it is known: its lowest address, or a memory object. For an address from another
    /// library, only the array's own elements are known to be there.
    pub fn memory(&self) -> Option<NativeHandle> {
        self.array.memory
    }

    /// The number of bytes of the [allocation](Self::memory).
    pub fn memory_bytes(&self) -> usize {
        self.array.extent
    }

    /// The array's bytes in the [allocation](Self::memory), from the lowest byte of any element to past the highest.
    pub fn byte_range(&self) -> Range<usize> {
        let span = self.array.layout.span_bytes();
        // The array is inside the allocation.
        self.array.offset.wrapping_add_signed(span.start)
            ..self.array.offset.wrapping_add_signed(span.end)
    }

    /// The kind of memory that holds the array.
    pub fn kind(&self) -> MemoryKind {
        self.array.kind
    }

    /// The device of the memory.
    pub fn device(&self) -> &DeviceToken {
        &self.array.device
    }

    /// The context of the memory.
    pub fn context(&self) -> &ContextBinding {
        &self.array.context
    }

    /// The permitted access to the elements.
    pub fn access(&self) -> Access {
        self.array.access
    }

    /// The state: when the values are ready.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Makes the capsule read-only.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.array.access = Access::ReadOnly;
        self
    }

    /// Makes the capsule writable. This is for arrays imported by a protocol that cannot say whether they are writable
    /// (the old DLPack). An array in which several indices share an element stays read-only.
    ///
    /// # Safety
    ///
    /// The elements may be written. All other uses of them meanwhile are ordered with the uses through this capsule.
    #[must_use]
    pub unsafe fn assume_writable(mut self) -> Self {
        self.array.access = narrowed(Access::ReadWrite, &self.array.layout);
        self
    }

    /// Declares that the capsule is a copy that no other code uses.
    ///
    /// # Safety
    ///
    /// No other code uses the memory, and its elements may be written.
    #[must_use]
    pub unsafe fn assume_copied(mut self) -> Self {
        self.array.access = narrowed(Access::Copied, &self.array.layout);
        self
    }

    /// Declares that the memory belongs to `device`. This is for arrays of an interface whose device this runtime
    /// reaches through another interface, with another index.
    ///
    /// # Safety
    ///
    /// `device` can use the memory's address or object like its own.
    #[must_use]
    pub unsafe fn assume_of(mut self, device: &Device) -> Self {
        let native = device.native();
        self.array.device = DeviceToken::of(device);
        self.array.context = ContextBinding::Explicit(native);
        self.array.memory =
            self.array.memory.map(|memory| NativeHandle { api: native.api, ..memory });
        self
    }

    /// Declares that the array lies in an allocation of `bytes` bytes at `address`, as a driver reports it.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the array does not lie in this allocation. `InvalidArgument` for a memory object.
    pub fn within(mut self, address: usize, bytes: usize) -> Result<Self, ConversionError<Self>> {
        let span = self.array.layout.span_bytes();
        let refuse = |array, kind, message| {
            Err(ConversionError::new(array, Error::new(kind, "within", message)))
        };
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

    /// Declares that the memory belongs to a context of the SYCL runtime. The context is the default one of the
    /// platform of `device`, named as by SYCL's filter selectors, or another one, given by its handle.
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
