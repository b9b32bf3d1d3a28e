//! Elements that are structs.

use std::fmt;

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
pub trait Member: Pod + sealed::Sealed {
    /// The type of the elements.
    const ELEMENT: DType;
    /// The number of elements. `[[f64; 3]; 2]` has 6.
    const COUNT: usize;
}

mod sealed {
    use super::{Element, Member};

    #[expect(unnameable_types, reason = "programs implement it for no type")]
    pub trait Sealed {}

    impl<T: Element> Sealed for T {}
    impl<M: Member, const N: usize> Sealed for [M; N] {}
}

impl<T: Element> Member for T {
    const ELEMENT: DType = T::DTYPE;
    const COUNT: usize = 1;
}

impl<M: Member, const N: usize> Member for [M; N] {
    const ELEMENT: DType = M::ELEMENT;
    const COUNT: usize = N * M::COUNT;
}

/// The layout of a struct that [`record!`](crate::record) declares.
#[doc(hidden)]
pub trait HasLayout {
    const LAYOUT: Record;
}

impl Record {
    /// The greatest alignment of a record.
    const MAX_ALIGN: usize = 16;
    /// The greatest size of a record: copies in pieces move whole elements.
    const MAX_SIZE: usize = 1 << 16;

    /// The layout of the struct `S`.
    ///
    /// # Panics
    ///
    /// When the program is compiled: if the fields leave bytes of the struct out, or are not in the order of their
    /// offsets; if it has no bytes, or more than 65 536; or if it needs an alignment of more than 16 bytes.
    #[doc(hidden)]
    pub const fn of<S>(name: &'static str, fields: &'static [RecordField]) -> Self {
        let (size, align) = (size_of::<S>(), align_of::<S>());
        let (mut filled, mut index, mut has_gaps) = (0, 0, false);
        while index < fields.len() {
            let RecordField { offset, dtype, count, .. } = &fields[index];
            has_gaps |= *offset != filled;
            filled += dtype.size() * *count;
            index += 1;
        }
        assert!(
            !has_gaps && filled == size,
            "the record has padding: order its fields by size, or add fields that fill the gaps"
        );
        assert!(size > 0, "a record needs at least one byte");
        assert!(size <= Self::MAX_SIZE, "a record has at most 65536 bytes");
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

/// Its name and its fields: two records of one name may differ.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {{ ", self.name)?;
        for (index, field) in self.fields.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}: {}", field.name, field.dtype)?;
            if field.count != 1 {
                write!(f, " × {}", field.count)?;
            }
        }
        f.write_str(" }")
    }
}

impl RecordField {
    /// The field of `S` at this offset, whose type is that of what the function returns.
    #[doc(hidden)]
    pub const fn of<S, M: Member>(name: &'static str, offset: usize, _: fn(S) -> M) -> Self {
        let (dtype, count) = (M::ELEMENT, M::COUNT);
        assert!(
            size_of::<M>() == dtype.size() * count,
            "the field has another size than its elements"
        );
        let name = match name.as_bytes() {
            [b'r', b'#', ..] => name.split_at(2).1,
            _ => name,
        };
        Self { name, offset, dtype, count }
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
/// arrays of elements, or other records. They leave no gaps: a struct with padding does not compile. It has at most
/// 65 536 bytes. Its [`DType`](crate::DType) is a [`DType::Record`](crate::DType::Record), which describes the fields.
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
/// A gap is an error, because its bytes would have no values. So is a struct that is too large:
///
/// ```compile_fail,E0080
/// runtime_core::record! {
///     struct Gap { small: u8, large: f64 }
/// }
/// ```
///
/// ```compile_fail,E0080
/// runtime_core::record! {
///     struct Large { all: [f64; 8193] }
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

        // No name of this block is in scope of a field's type.
        const _: () = {
            impl $crate::HasLayout for $name {
                const LAYOUT: $crate::Record = $crate::Record::of::<$name>(
                    $crate::stringify!($name),
                    // The types are those that the fields have, whatever the tokens say.
                    &[$($crate::RecordField::of(
                        $crate::stringify!($field),
                        $crate::offset_of!($name, $field),
                        |record: $name| record.$field,
                    )),*],
                );
            }

            // SAFETY: all fields are `Pod`, and zero is a value of each.
            unsafe impl $crate::bytemuck::Zeroable for $name {}
            // SAFETY: all fields are `Pod`, and `Record::of` has checked that they leave no gaps.
            unsafe impl $crate::bytemuck::Pod for $name {}
            // SAFETY: the layout is that of the struct.
            unsafe impl $crate::Element for $name {
                const DTYPE: $crate::DType =
                    $crate::DType::Record(&<$name as $crate::HasLayout>::LAYOUT);
            }
        };
    };
}
