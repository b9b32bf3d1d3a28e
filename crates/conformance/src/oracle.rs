//! The definition of region copies and indexed copies: a simple implementation, element by element.

use runtime_core::{
    Bool, Combine, Complex, DType, IndexedCopy, IndexedSide, Indices, RegionCopy, RegionSide, bf16,
    bytemuck, f16,
};

use crate::data::Random;

/// Executes the entries one after the other, each element separately.
pub(crate) fn run(entries: &[RegionCopy], slots: &mut [Vec<u8>]) {
    for entry in entries {
        let size = entry.dtype.size();
        for_each_index(&entry.extents, |index| {
            let from = position(&entry.source, index);
            let to = position(&entry.destination, index);
            let new = slots[entry.source.slot][from..from + size].to_vec();
            let cell = &mut slots[entry.destination.slot][to..to + size];
            store(entry, cell, &new);
        });
    }
}

/// Executes indexed copies one after the other, each component of each item separately.
pub(crate) fn run_indexed(entries: &[IndexedCopy], slots: &mut [Vec<u8>]) {
    for entry in entries {
        let len = usize::try_from(entry.source.indices.len()).unwrap_or(0);
        for (position, component) in (0..len)
            .flat_map(|position| (0..entry.components).map(move |component| (position, component)))
        {
            let element = |side: &IndexedSide| RegionSide {
                slot: side.slot,
                offset: side.offset
                    + index(&side.indices, position) * side.stride
                    + component * side.component_stride,
                strides: Vec::new(),
            };
            let copy = RegionCopy {
                dtype: entry.dtype,
                extents: Vec::new(),
                source: element(&entry.source),
                destination: element(&entry.destination),
                negate: false,
                combine: entry.combine,
            };
            run(&[copy], slots);
        }
    }
}

fn index(indices: &Indices, position: usize) -> usize {
    let index = match indices {
        Indices::Range(range) => range.start + position as u64,
        Indices::List(list) => list[position],
    };
    usize::try_from(index).unwrap_or(usize::MAX)
}

fn for_each_index(extents: &[usize], mut f: impl FnMut(&[usize])) {
    let total: usize = extents.iter().product();
    let mut index = vec![0; extents.len()];
    for mut number in 0..total {
        for dim in (0..extents.len()).rev() {
            index[dim] = number % extents[dim];
            number /= extents[dim];
        }
        f(&index);
    }
}

fn position(side: &RegionSide, index: &[usize]) -> usize {
    index.iter().zip(&side.strides).fold(side.offset, |place, (index, stride)| {
        place.wrapping_add_signed(stride.wrapping_mul(index.cast_signed()))
    })
}

fn store(entry: &RegionCopy, cell: &mut [u8], new: &[u8]) {
    match entry.dtype {
        DType::Bool => combine::<Bool>(entry, cell, new),
        DType::I8 => combine::<i8>(entry, cell, new),
        DType::I16 => combine::<i16>(entry, cell, new),
        DType::I32 => combine::<i32>(entry, cell, new),
        DType::I64 => combine::<i64>(entry, cell, new),
        DType::U8 => combine::<u8>(entry, cell, new),
        DType::U16 => combine::<u16>(entry, cell, new),
        DType::U32 => combine::<u32>(entry, cell, new),
        DType::U64 => combine::<u64>(entry, cell, new),
        DType::F16 => combine::<f16>(entry, cell, new),
        DType::BF16 => combine::<bf16>(entry, cell, new),
        DType::F32 => combine::<f32>(entry, cell, new),
        DType::F64 => combine::<f64>(entry, cell, new),
        DType::C64 => combine::<Complex<f32>>(entry, cell, new),
        DType::C128 => combine::<Complex<f64>>(entry, cell, new),
        DType::Record(_) => cell.copy_from_slice(new),
    }
}

fn combine<T: Number>(entry: &RegionCopy, cell: &mut [u8], new: &[u8]) {
    let old: T = bytemuck::pod_read_unaligned(cell);
    let new: T = bytemuck::pod_read_unaligned(new);
    let new = if entry.negate { new.negated() } else { new };
    let result = match entry.combine {
        Combine::Replace => new,
        Combine::Sum => old.plus(new),
        Combine::Min if new.less(old) || new.is_nan() => new,
        Combine::Max if old.less(new) || new.is_nan() => new,
        Combine::Min | Combine::Max => old,
    };
    cell.copy_from_slice(bytemuck::bytes_of(&result));
}

/// The arithmetic that the table of [`DType`] specifies. Operations that a type does not support are never called.
trait Number: bytemuck::Pod {
    fn negated(self) -> Self;
    fn plus(self, other: Self) -> Self;
    fn less(self, other: Self) -> bool;
    fn is_nan(self) -> bool;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn negated(self) -> Self {
                self.wrapping_neg()
            }
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn less(self, other: Self) -> bool {
                self < other
            }
            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($type:ty, $sign:expr, $sum:expr;)*) => {$(
        impl Number for $type {
            fn negated(self) -> Self {
                Self::from_bits(self.to_bits() ^ $sign)
            }
            fn plus(self, other: Self) -> Self {
                let sum: fn(Self, Self) -> Self = $sum;
                sum(self, other)
            }
            fn less(self, other: Self) -> bool {
                self < other
            }
            fn is_nan(self) -> bool {
                Self::is_nan(self)
            }
        }
    )*};
}

floats! {
    f16, 1 << 15, |a, b| Self::from_f32(a.to_f32() + b.to_f32());
    bf16, 1 << 15, |a, b| Self::from_f32(a.to_f32() + b.to_f32());
    f32, 1 << 31, |a, b| a + b;
    f64, 1 << 63, |a, b| a + b;
}

macro_rules! complex {
    ($($part:ty)*) => {$(
        impl Number for Complex<$part> {
            fn negated(self) -> Self {
                Self::new(self.re.negated(), self.im.negated())
            }
            fn plus(self, other: Self) -> Self {
                Self::new(self.re + other.re, self.im + other.im)
            }
            fn less(self, _: Self) -> bool {
                false
            }
            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}

complex!(f32 f64);

impl Number for Bool {
    fn negated(self) -> Self {
        self
    }

    fn plus(self, _: Self) -> Self {
        self
    }

    fn less(self, _: Self) -> bool {
        false
    }

    fn is_nan(self) -> bool {
        false
    }
}

/// `count` numbers of a type as bytes; floating-point numbers are finite and of moderate size.
pub(crate) fn numbers(dtype: DType, seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut out = Vec::with_capacity(count * dtype.size());
    for _ in 0..count {
        // Multiples of 1/8 up to 16 are exact in every floating-point type.
        let mut small = || {
            let number = i16::try_from(random.below(257)).unwrap_or(0) - 128;
            f32::from(number) / 8.0
        };
        match dtype {
            DType::F16 => out.extend(f16::from_f32(small()).to_ne_bytes()),
            DType::BF16 => out.extend(bf16::from_f32(small()).to_ne_bytes()),
            DType::F32 => out.extend(small().to_ne_bytes()),
            DType::F64 => out.extend(f64::from(small()).to_ne_bytes()),
            DType::C64 => out.extend([small(), small()].iter().flat_map(|x| x.to_ne_bytes())),
            DType::C128 => {
                out.extend([small(), small()].iter().flat_map(|x| f64::from(*x).to_ne_bytes()));
            }
            _ => {
                for _ in 0..dtype.size().div_ceil(8) {
                    out.extend(&random.next().to_ne_bytes()[..dtype.size().min(8)]);
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined<T: Number>(old: T, new: T, negate: bool, combine: Combine) -> T {
        let side = |slot| RegionSide { slot, offset: 0, strides: vec![] };
        let entry = RegionCopy {
            dtype: DType::U8,
            extents: vec![],
            source: side(0),
            destination: side(1),
            negate,
            combine,
        };
        let mut cell = bytemuck::bytes_of(&old).to_vec();
        super::combine::<T>(&entry, &mut cell, bytemuck::bytes_of(&new));
        bytemuck::pod_read_unaligned(&cell)
    }

    #[test]
    fn arithmetic_is_that_of_the_table() {
        assert_eq!(combined(200_u8, 100, false, Combine::Sum), 44);
        assert_eq!(combined(0_i8, -128, true, Combine::Replace), -128);
        assert_eq!(combined(-1_i32, 1, false, Combine::Max), 1);
        let kept = combined(0.0_f32, -0.0, false, Combine::Min);
        assert!(kept == 0.0 && kept.is_sign_positive());
        assert!(combined(f64::NAN, 1.0, false, Combine::Max).is_nan());
        assert!(combined(1.0_f64, f64::NAN, false, Combine::Min).is_nan());
        let nan = f32::from_bits(0x7FC0_0001);
        assert_eq!(combined(0.0, nan, true, Combine::Replace).to_bits(), 0xFFC0_0001);
    }

    #[test]
    fn elements_are_at_their_indices() {
        let mut slots = vec![vec![1, 2, 3, 4, 5, 6], vec![0; 6]];
        let turned = RegionCopy {
            dtype: DType::U8,
            extents: vec![3, 2],
            source: RegionSide { slot: 0, offset: 3, strides: vec![1, -3] },
            destination: RegionSide { slot: 1, offset: 0, strides: vec![2, 1] },
            negate: false,
            combine: Combine::Replace,
        };
        run(&[turned], &mut slots);
        assert_eq!(slots[1], [4, 1, 5, 2, 6, 3]);
    }
}
