//! Data for rules: pseudorandom, and the same in every run.

use runtime_core::{Element, bytemuck};

/// A generator of 64 bits at a time (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = limit as u64;
        usize::try_from(self.next() % limit).unwrap_or(0)
    }

    pub(crate) fn chance(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub(crate) fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last + 1));
        }
    }
}

/// `len` elements with arbitrary bits, including NaNs; each seed gives other bits.
pub(crate) fn elements<T: Element>(seed: u64, len: usize) -> Vec<T> {
    let mut random = Random::new(seed);
    let mut out = vec![T::zeroed(); len];
    for chunk in bytemuck::cast_slice_mut::<T, u8>(&mut out).chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_ne_bytes()[..chunk.len()]);
    }
    out
}

/// Calls a generic function, which returns an [`Outcome`](crate::Outcome), for every element type.
macro_rules! each_element {
    ($function:ident($($arg:expr),*)) => {{
        $function::<runtime_core::Bool>($($arg),*)?;
        $function::<i8>($($arg),*)?;
        $function::<i16>($($arg),*)?;
        $function::<i32>($($arg),*)?;
        $function::<i64>($($arg),*)?;
        $function::<u8>($($arg),*)?;
        $function::<u16>($($arg),*)?;
        $function::<u32>($($arg),*)?;
        $function::<u64>($($arg),*)?;
        $function::<runtime_core::f16>($($arg),*)?;
        $function::<runtime_core::bf16>($($arg),*)?;
        $function::<f32>($($arg),*)?;
        $function::<f64>($($arg),*)?;
        $function::<runtime_core::Complex<f32>>($($arg),*)?;
        $function::<runtime_core::Complex<f64>>($($arg),*)
    }};
}

pub(crate) use each_element;
