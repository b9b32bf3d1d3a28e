//! Elements that are structs.

use bytemuck::Pod;

use crate::{DType, Element};

/// The layout of an element that is a struct: see [`record!`](crate::record).
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Record {
    name: &'static str,
    size: usize,
    align: usize,
    fields: &'static [RecordField],
}

/// One field of a [`Record`].
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RecordField {
    name: &'static str,
    offset: usize,
    dtype: DType,
    count: usize,
}

/// A type that a field of a [`record!`](crate::record) can have: an element, or an array of elements.
pub trait Member: Pod {
    /// The type of the elements.
    const DTYPE: DType;
    /// The number of elements. `[[f64; 3]; 2]` has 6.
    const COUNT: usize;
}

impl<T: Element> Member for T {
    const DTYPE: DType = <T as Element>::DTYPE;
    const COUNT: usize = 1;
}

impl<M: Member, const N: usize> Member for [M; N] {
    const DTYPE: DType = M::DTYPE;
    const COUNT: usize = N * M::COUNT;
}

impl Record {
    /// The greatest alignment of a record.
    const MAX_ALIGN: usize = 16;

    /// The layout of the struct `S`.
    ///
    /// # Panics
    ///
    /// When the program is compiled: if the fields leave bytes of the struct out, if it has no bytes, or if it needs an
    /// alignment of more than 16 bytes.
    #[doc(hidden)]
    pub const fn of<S>(name: &'static str, fields: &'static [RecordField]) -> Self {
        let (size, align) = (size_of::<S>(), align_of::<S>());
        let (mut filled, mut index) = (0, 0);
        while index < fields.len() {
            filled += fields[index].dtype.size() * fields[index].count;
            index += 1;
        }
        assert!(size > 0, "a record needs at least one byte");
        assert!(
            filled == size,
            "the record has padding: order its fields by size, or add fields that fill the gaps"
        );
        assert!(align <= Self::MAX_ALIGN, "a record is aligned to at most 16 bytes");
        Self { name, size, align, fields }
    }

    /// The name of the struct.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Size in bytes.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Alignment in bytes, at most 16.
    pub const fn align(&self) -> usize {
        self.align
    }

    /// The numbers as which its bytes are copied: the largest that divide it, and need no more alignment.
    pub(crate) const fn unit(&self) -> DType {
        match (self.align, self.size % 16, self.size % 8) {
            (8.., 0, _) => DType::C128,
            (8.., ..) => DType::U64,
            (4, _, 0) => DType::C64,
            (4, ..) => DType::U32,
            (2, ..) => DType::U16,
            _ => DType::U8,
        }
    }

    /// The fields in the order of the declaration, which is that of their offsets. Together they have all bytes.
    pub const fn fields(&self) -> &'static [RecordField] {
        self.fields
    }
}

impl RecordField {
    /// A field of type `M` at this offset.
    #[doc(hidden)]
    pub const fn of<M: Member>(name: &'static str, offset: usize) -> Self {
        Self { name, offset, dtype: M::DTYPE, count: M::COUNT }
    }

    /// The name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The distance in bytes from the start of the struct.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// The type of the field, or of the elements if it is an array.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements of an array; 1 for any other field.
    pub const fn count(&self) -> usize {
        self.count
    }
}

/// Declares a struct that can be an array element.
///
/// The struct has the layout of C, and is `Copy`, [`Pod`](bytemuck::Pod) and an [`Element`]. The fields are elements,
/// arrays of elements, or other records. They leave no gaps: a struct with padding does not compile. Its
/// [`DType`](crate::DType) is a [`DType::Record`](crate::DType::Record), which describes the fields.
///
/// ```
/// #![forbid(unsafe_code)]
/// use runtime_core::{DType, Element, record};
///
/// record! {
///     /// A charged particle.
///     #[derive(Debug, PartialEq)]
///     pub struct Particle {
///         pub position: [f64; 3],
///         pub charge: f32,
///         pub cell: u32,
///     }
/// }
///
/// let DType::Record(layout) = Particle::DTYPE else { unreachable!() };
/// assert_eq!((layout.name(), layout.size(), layout.align()), ("Particle", 32, 8));
/// let position = &layout.fields()[0];
/// assert_eq!((position.name(), position.dtype(), position.count()), ("position", DType::F64, 3));
/// ```
///
/// Memory, views, fills, copies, region copies without arithmetic, kernels, arrays and halos take records as they take
/// numbers. A kernel in C declares the same struct. A region copy moves a record as several numbers, so it has at most
/// five dimensions with gaps. To pass one record as a value, write `&Plain(record)`. DLPack and the array interfaces
/// refuse records.
///
/// A gap is an error, because its bytes would have no values:
///
/// ```compile_fail,E0080
/// runtime_core::record! {
///     struct Gap { small: u8, large: f64 }
/// }
/// ```
#[macro_export]
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        const _: () = {
            const LAYOUT: $crate::Record = $crate::Record::of::<$name>(
                ::core::stringify!($name),
                &[$($crate::RecordField::of::<$type>(
                    ::core::stringify!($field),
                    ::core::mem::offset_of!($name, $field),
                )),*],
            );

            // SAFETY: all fields are `Pod`, and zero is a value of each.
            unsafe impl $crate::bytemuck::Zeroable for $name {}
            // SAFETY: all fields are `Pod`, and `Record::of` has checked that they leave no gaps.
            unsafe impl $crate::bytemuck::Pod for $name {}
            // SAFETY: the layout is that of the struct.
            unsafe impl $crate::Element for $name {
                const DTYPE: $crate::DType = $crate::DType::Record(&LAYOUT);
            }
        };
    };
}
