//! What a reduction accumulates: integers, which are the same in any order of the values.
//!
//! A sum of floats is a number of 46-bit digits in 64-bit integers, as in R. Hallberg and A. Adcroft, *An
//! order-invariant real-to-integer conversion sum*, 2014. Its unit is a quantum, of which each value is a multiple
//! after it was cut off there. The last integer takes the carries, so that no number of values overflows. A sum of
//! integers has digits of 32 bits. The least and the greatest value are kept as integers of the same order.
//!
//! Beside these, a *mark* has the first point with a value that cannot be accumulated.

use runtime_core::{DType, Element};

/// The integers of an accumulator at most.
pub(crate) const WORDS: usize = 8;

/// The mark where all values could be accumulated.
pub(crate) const UNMARKED: i64 = i64::MAX;

/// Why a value cannot be accumulated: the last two bits of a mark. The others are the number of the point.
pub(crate) const NAN: i64 = 0;
pub(crate) const INFINITE: i64 = 1;
pub(crate) const LARGE: i64 = 2;

/// After so many values, digits are carried, long before one overflows.
pub(crate) const CARRY_AFTER: usize = 1 << 16;

/// What is made of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Their sum.
    Sum,
    /// The least of them.
    Min,
    /// The greatest of them.
    Max,
}

/// What is made of values of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    pub(crate) op: Op,
    pub(crate) dtype: DType,
}

/// The integers of an accumulator.
pub(crate) type Accumulator = [i64; WORDS];

/// How the bits of floats are digits of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// The bits of the fraction.
    pub(crate) fraction: u32,
    /// The largest exponent, that of NaN and infinity, as it is stored.
    pub(crate) greatest: u64,
    /// The least exponent of values that cannot be added, as it is stored.
    pub(crate) limit: u64,
    /// The exponent of values of which the last bit is a quantum, as it is stored.
    pub(crate) unit: u64,
    /// The quantum is two to the power of this.
    pub(crate) quantum: i32,
}

impl Format {
    /// Values below 2¹³⁸, in quanta of 2⁻¹³⁸.
    const F64: Self = Self { fraction: 52, greatest: 2047, limit: 1161, unit: 937, quantum: -138 };
    /// All finite values, in quanta of the least of them.
    const F32: Self = Self { fraction: 23, greatest: 255, limit: 255, unit: 1, quantum: -149 };
}

impl Fold {
    /// How floats are added. `None` for integers.
    pub(crate) fn format(self) -> Option<Format> {
        match self.dtype {
            DType::F64 => Some(Format::F64),
            DType::F32 => Some(Format::F32),
            _ => None,
        }
    }

    /// The number of digits, without the mark.
    pub(crate) fn digits(self) -> usize {
        match (self.op, self.format()) {
            (Op::Sum, Some(_)) => 7,
            (Op::Sum, None) => 3,
            (Op::Min | Op::Max, _) => 1,
        }
    }

    /// The number of integers.
    pub(crate) fn words(self) -> usize {
        self.digits() + 1
    }

    /// The bits of a digit.
    pub(crate) fn bits(self) -> u32 {
        if self.format().is_some() { 46 } else { 32 }
    }

    /// What no values accumulate to.
    pub(crate) fn identity(self) -> Accumulator {
        let digit = match self.op {
            Op::Sum => 0,
            Op::Min => i64::MAX,
            Op::Max => i64::MIN,
        };
        let mut words = [digit; WORDS];
        words[self.digits()] = UNMARKED;
        words
    }

    /// Accumulates what other values accumulated to.
    pub(crate) fn combine(self, words: &mut Accumulator, other: &[i64]) {
        let (digits, mark) = (self.digits(), self.words() - 1);
        for (word, other) in words[..digits].iter_mut().zip(other) {
            *word = match self.op {
                Op::Sum => word.wrapping_add(*other),
                Op::Min => *other.min(word),
                Op::Max => *other.max(word),
            };
        }
        words[mark] = other.get(mark).map_or(words[mark], |other| words[mark].min(*other));
    }

    /// Carries, so that no digit but the last has more than its bits.
    pub(crate) fn carry(self, words: &mut Accumulator) {
        if self.op == Op::Sum {
            carry(&mut words[..self.digits()], self.bits());
        }
    }

    /// The bits of the result, or the number of the first point that has none and why.
    pub(crate) fn finish(self, mut words: Accumulator) -> Result<[u8; 8], Unfinished> {
        let mark = words[self.digits()];
        if mark != UNMARKED {
            return Err(Unfinished::Marked { point: mark >> 2, why: mark & 3 });
        }
        self.carry(&mut words);
        let mut bytes = [0; 8];
        let mut put = |value: &[u8]| bytes[..value.len()].copy_from_slice(value);
        match (self.op, self.dtype) {
            (Op::Sum, DType::F64) => {
                let (digits, exponent) = leading(&words[..7]);
                let value = digits as f64 * power(exponent + Format::F64.quantum);
                put(&value.copysign(sign(&words)).to_ne_bytes());
            }
            (Op::Sum, DType::F32) => {
                let (digits, exponent) = leading(&words[..7]);
                // The digits are rounded here; the product has no more of them.
                let wide = f64::from(digits as f32) * power(exponent + Format::F32.quantum);
                #[expect(clippy::cast_possible_truncation, reason = "an infinity is refused below")]
                let value = wide.copysign(sign(&words)) as f32;
                if value.is_infinite() {
                    return Err(Unfinished::Overflow(format!("{:e}", wide.copysign(sign(&words)))));
                }
                put(&value.to_ne_bytes());
            }
            (Op::Sum, dtype) => {
                let [low, middle, high, ..] = words.map(i128::from);
                let sum = (high << 64) + (middle << 32) + low;
                let overflow = |_| Unfinished::Overflow(sum.to_string());
                match dtype {
                    DType::I32 => put(&i32::try_from(sum).map_err(overflow)?.to_ne_bytes()),
                    DType::U32 => put(&u32::try_from(sum).map_err(overflow)?.to_ne_bytes()),
                    _ => put(&i64::try_from(sum).map_err(overflow)?.to_ne_bytes()),
                }
            }
            (Op::Min | Op::Max, DType::F64) => {
                put(&turn(words[0], i64::MAX).to_ne_bytes());
            }
            (Op::Min | Op::Max, DType::F32) => {
                put(&narrow(turn(words[0], i64::from(i32::MAX))).to_ne_bytes());
            }
            (Op::Min | Op::Max, DType::I64) => put(&words[0].to_ne_bytes()),
            (Op::Min | Op::Max, DType::U32) => {
                put(&u32::try_from(words[0]).unwrap_or(0).to_ne_bytes());
            }
            (Op::Min | Op::Max, _) => put(&narrow(words[0]).to_ne_bytes()),
        }
        Ok(bytes)
    }
}

/// Why a reduction has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// A value cannot be accumulated: the number of its point, and why.
    Marked { point: i64, why: i64 },
    /// The type does not have this sum.
    Overflow(String),
}

/// Carries from each digit to the next one.
fn carry(digits: &mut [i64], bits: u32) {
    for place in 1..digits.len() {
        let carried = digits[place - 1] >> bits;
        digits[place - 1] -= carried << bits;
        digits[place] = digits[place].wrapping_add(carried);
    }
}

/// The sign of a sum after it was carried.
fn sign(words: &Accumulator) -> f64 {
    if words[6] < 0 { -1.0 } else { 1.0 }
}

/// The leading 64 bits of the absolute value of a sum, and how many bits follow. The last bit of the 64 is set if any
/// of the bits that follow is, which rounds as all of them would.
fn leading(digits: &[i64]) -> (u64, i32) {
    let mut digits: [i64; 7] = std::array::from_fn(|place| digits[place]);
    if digits[6] < 0 {
        digits = digits.map(|digit| -digit);
        carry(&mut digits, 46);
    }
    let Some(top) = digits.iter().rposition(|digit| *digit != 0) else { return (0, 0) };
    let mut bits = digits[top].unsigned_abs();
    let mut place = 46 * top;
    // Digits below move in until the 64 bits are full.
    for digit in digits[..top].iter().rev() {
        let free = bits.leading_zeros().min(46);
        let digit = digit.unsigned_abs();
        if free == 0 {
            bits |= u64::from(digit != 0);
            continue;
        }
        bits = (bits << free) | (digit >> (46 - free));
        place -= free as usize;
        bits |= u64::from(digit & ((1 << (46 - free)) - 1) != 0);
    }
    (bits, i32::try_from(place).unwrap_or(i32::MAX))
}

/// A power of two that an `f64` has.
fn power(exponent: i32) -> f64 {
    f64::from_bits(u64::from((exponent + 1023).cast_unsigned()) << 52)
}

/// An integer that was an `i32`.
fn narrow(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(0)
}

/// From the bits of a float to an integer of the same order, and back.
fn turn(bits: i64, magnitude: i64) -> i64 {
    if bits < 0 { bits ^ magnitude } else { bits }
}

/// Values that can be accumulated.
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub trait Value: Element {
    /// Adds values of points that follow one another. `point` is the number of the first.
    #[doc(hidden)]
    fn add(words: &mut [i64; WORDS], values: &[Self], point: i64);

    /// An integer of the same order. `None` for NaN.
    #[doc(hidden)]
    fn key(self) -> Option<i64>;
}

/// Accumulates values of points that follow one another. `point` is the number of the first.
pub(crate) fn accumulate<T: Value>(op: Op, words: &mut Accumulator, values: &[T], point: i64) {
    let extreme = |words: &mut Accumulator, choose: fn(i64, i64) -> i64| {
        for (value, point) in values.iter().zip(point..) {
            match value.key() {
                Some(key) => words[0] = choose(words[0], key),
                None => words[1] = words[1].min(point << 2 | NAN),
            }
        }
    };
    match op {
        Op::Sum => {
            let fold = Fold { op, dtype: T::DTYPE };
            for (values, point) in values.chunks(CARRY_AFTER).zip((point..).step_by(CARRY_AFTER)) {
                T::add(words, values, point);
                fold.carry(words);
            }
        }
        Op::Min => extreme(words, i64::min),
        Op::Max => extreme(words, i64::max),
    }
}

macro_rules! floats {
    ($($ty:ident, $signed:ty, $format:ident;)*) => {$(
        impl Value for $ty {
            #[inline]
            fn add(words: &mut [i64; WORDS], values: &[Self], point: i64) {
                const FORMAT: Format = Format::$format;
                const MASK: u64 = (1 << 46) - 1;
                for (value, point) in values.iter().zip(point..) {
                    let bits = u64::from(value.to_bits());
                    let fraction = bits & ((1 << FORMAT.fraction) - 1);
                    let exponent = (bits >> FORMAT.fraction) & FORMAT.greatest;
                    if exponent >= FORMAT.limit {
                        let why = if exponent < FORMAT.greatest {
                            LARGE
                        } else if fraction == 0 {
                            INFINITE
                        } else {
                            NAN
                        };
                        words[7] = words[7].min(point << 2 | why);
                        continue;
                    }
                    let mut digits = fraction | u64::from(exponent > 0) << FORMAT.fraction;
                    let exponent = exponent.max(1);
                    let cut = FORMAT.unit.saturating_sub(exponent).min(64);
                    digits = digits.checked_shr(u32::try_from(cut).unwrap_or(64)).unwrap_or(0);
                    let shift = exponent.saturating_sub(FORMAT.unit);
                    let (place, by) = (usize::try_from(shift / 46).unwrap_or(0), shift % 46);
                    let parts = [
                        (digits << by) & MASK,
                        (digits >> (46 - by)) & MASK,
                        (digits >> (46 - by)) >> 46,
                    ];
                    let is_negative = value.is_sign_negative();
                    for (word, part) in words[..7][place..].iter_mut().zip(parts) {
                        *word += if is_negative { -part.cast_signed() } else { part.cast_signed() };
                    }
                }
            }

            #[inline]
            fn key(self) -> Option<i64> {
                let bits = i64::from(self.to_bits().cast_signed());
                (!self.is_nan()).then(|| turn(bits, i64::from(<$signed>::MAX)))
            }
        }
    )*};
}

macro_rules! integers {
    ($($ty:ident)*) => {$(
        impl Value for $ty {
            #[inline]
            fn add(words: &mut [i64; WORDS], values: &[Self], _: i64) {
                for value in values {
                    let value = i64::from(*value);
                    words[0] += value & 0xffff_ffff;
                    words[1] += value >> 32;
                }
            }

            #[inline]
            fn key(self) -> Option<i64> {
                Some(i64::from(self))
            }
        }
    )*};
}

floats! {
    f32, i32, F32;
    f64, i64, F64;
}

integers!(i32 i64 u32);

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers are small, or words of others"
)]
mod tests {
    use super::*;

    /// An integer of 704 bits in two's complement, lowest first.
    #[derive(Clone, Copy)]
    struct Big([u64; 11]);

    /// The place of the bit of value 1.
    const ONE: i32 = 200;

    impl Big {
        fn add(&mut self, value: f64) {
            let bits = value.abs().to_bits();
            let exponent = (bits >> 52).max(1) as i32 - 1075 + ONE;
            let mantissa = bits & ((1 << 52) - 1) | u64::from(bits >> 52 > 0) << 52;
            // Bits below the least one are zeros in these tests.
            let mantissa = mantissa.checked_shr((-exponent).max(0).cast_unsigned()).unwrap_or(0);
            let shift = exponent.max(0) as usize;
            let wide = u128::from(mantissa) << (shift % 64);
            let mut term = [0; 11];
            (term[shift / 64], term[shift / 64 + 1]) = (wide as u64, (wide >> 64) as u64);
            if value < 0.0 {
                term = negated(term);
            }
            let mut carry = 0;
            for (word, term) in self.0.iter_mut().zip(term) {
                let sum = u128::from(*word) + u128::from(term) + carry;
                (*word, carry) = (sum as u64, sum >> 64);
            }
        }

        /// Rounded once.
        fn to_f64(self) -> f64 {
            let is_negative = self.0[10] >> 63 == 1;
            let digits = if is_negative { negated(self.0) } else { self.0 };
            let Some(top) = (0..704).rev().find(|bit| digits[bit / 64] >> (bit % 64) & 1 == 1)
            else {
                return 0.0;
            };
            let bit =
                |place: i32| place >= 0 && digits[place as usize / 64] >> (place % 64) & 1 == 1;
            let top = top as i32;
            let mut mantissa = (0..53).fold(0_u64, |all, n| all << 1 | u64::from(bit(top - n)));
            let rest = (0..top - 53).any(bit);
            if bit(top - 53) && (rest || mantissa & 1 == 1) {
                mantissa += 1;
            }
            let value = mantissa as f64 * 2_f64.powi(top - 52 - ONE);
            if is_negative { -value } else { value }
        }
    }

    fn negated(words: [u64; 11]) -> [u64; 11] {
        let mut carry = true;
        words.map(|word| {
            let (word, more) = (!word).overflowing_add(u64::from(carry));
            carry = more;
            word
        })
    }

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 ^ self.0 >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 8
        }

        /// A float with an exponent in this range.
        fn float(&mut self, exponents: std::ops::Range<i32>) -> f64 {
            let size = (self.next() % exponents.len() as u64) as i32 + exponents.start;
            let value = (self.next() % (1 << 53)) as f64 * 2_f64.powi(size - 53);
            if self.next().is_multiple_of(2) { -value } else { value }
        }
    }

    fn sum<T: Value>(values: &[T]) -> Result<T, Unfinished> {
        made(Op::Sum, values)
    }

    /// Of two halves, in another order, so that all ways are used.
    fn made<T: Value>(op: Op, values: &[T]) -> Result<T, Unfinished> {
        let fold = Fold { op, dtype: T::DTYPE };
        let (mut first, mut second) = (fold.identity(), fold.identity());
        let (low, high) = values.split_at(values.len() / 2);
        accumulate(op, &mut first, high, low.len() as i64);
        accumulate(op, &mut second, low, 0);
        fold.combine(&mut first, &second);
        fold.carry(&mut first);
        let bytes = fold.finish(first)?;
        Ok(bytemuck::pod_read_unaligned(&bytes[..size_of::<T>()]))
    }

    #[test]
    fn a_sum_of_f64_is_the_exact_sum_of_the_multiples_of_the_quantum() {
        let mut random = Random(7);
        for (round, exponents) in [-85..138, -80..-60, 100..138, 0..3, -60..60, -85..-80]
            .into_iter()
            .cycle()
            .take(600)
            .enumerate()
        {
            let values: Vec<f64> =
                (0..round % 50).map(|_| random.float(exponents.clone())).collect();
            let mut exact = Big([0; 11]);
            values.iter().for_each(|value| exact.add(*value));
            assert_eq!(sum(&values).unwrap().to_bits(), exact.to_f64().to_bits(), "{values:?}");
            // What cancels leaves what is small.
            let mut more = values.clone();
            more.push(1.25);
            more.extend(values.iter().map(|value| -value));
            assert_eq!(sum(&more), Ok(1.25));
        }
    }

    #[test]
    fn values_are_cut_off_at_the_quantum_towards_zero() {
        let quantum = 2_f64.powi(-138);
        for (value, is) in
            [(1.0, 1.0), (1.9, 1.0), (-1.9, -1.0), (0.9, 0.0), (-0.9, 0.0), (2.5, 2.0)]
        {
            assert_eq!(sum(&[value * quantum]), Ok(is * quantum), "{value}");
        }
        assert_eq!(sum(&[f64::from_bits(1), f64::MIN_POSITIVE]), Ok(0.0));
        assert_eq!(sum(&[-0.0_f64, -0.0]).unwrap().to_bits(), 0);
    }

    #[test]
    fn a_sum_of_f32_is_the_exact_sum() {
        let mut random = Random(3);
        for exponents in [-149..127, -149..-120, 100..127, 0..5] {
            for count in 0..60 {
                let values: Vec<f32> =
                    (0..count).map(|_| random.float(exponents.clone()) as f32).collect();
                let mut exact = Big([0; 11]);
                values.iter().for_each(|value| exact.add(f64::from(*value)));
                // The exact sum to odd, then to f32: no double rounding.
                let mut odd = exact.to_f64();
                let mut rest = exact;
                rest.add(-odd);
                if rest.to_f64() != 0.0 && odd.to_bits() & 1 == 0 {
                    let toward = (rest.to_f64() > 0.0) == (odd > 0.0);
                    odd =
                        f64::from_bits(if toward { odd.to_bits() + 1 } else { odd.to_bits() - 1 });
                }
                assert_eq!(sum(&values).unwrap().to_bits(), (odd as f32).to_bits(), "{values:?}");
            }
        }
        assert_eq!(sum(&[f32::from_bits(1); 3]), Ok(f32::from_bits(3)));
        assert_eq!(sum(&[f32::MAX, f32::MAX, -f32::MAX]), Ok(f32::MAX));
        assert_eq!(
            sum(&[-f32::MAX, -f32::MAX]),
            Err(Unfinished::Overflow("-6.805646932770577e38".to_owned()))
        );
    }

    #[test]
    fn sums_of_integers_are_exact() {
        assert_eq!(sum(&[i32::MAX, i32::MAX, i32::MIN, i32::MIN + 1]), Ok(-1));
        assert_eq!(sum(&[i64::MIN, i64::MAX, i64::MAX, i64::MIN + 2, 5]), Ok(5));
        assert_eq!(sum(&[u32::MAX - 1, 1]), Ok(u32::MAX));
        let overflow = |sum: &str| Unfinished::Overflow(sum.to_owned());
        assert_eq!(sum(&[u32::MAX, 1]), Err(overflow("4294967296")));
        assert_eq!(sum(&[i32::MIN, -1]), Err(overflow("-2147483649")));
        assert_eq!(sum(&[i64::MAX, 1]), Err(overflow("9223372036854775808")));
        assert_eq!(sum(&[i64::MIN; 100_000]), Err(overflow("-922337203685477580800000")));
    }

    #[test]
    fn no_number_of_values_overflows_digits() {
        let greatest = f64::from_bits(2_f64.powi(138).to_bits() - 1);
        let fold = Fold { op: Op::Sum, dtype: DType::F64 };
        let mut all = fold.identity();
        accumulate(Op::Sum, &mut all, &vec![greatest; CARRY_AFTER + 3], 0);
        for _ in 0..40 {
            let same = all;
            fold.combine(&mut all, &same);
            fold.carry(&mut all);
        }
        let expected = greatest * (CARRY_AFTER as f64 + 3.0) * 2_f64.powi(40);
        let found = f64::from_ne_bytes(fold.finish(all).unwrap());
        assert!((found / expected - 1.0).abs() < 1e-15);
        let mut all = fold.identity();
        accumulate(Op::Sum, &mut all, &[-greatest; 200_001], 0);
        assert!(all[..6].iter().all(|digit| (0..1 << 46).contains(digit)));
    }

    #[test]
    fn the_least_and_the_greatest_are_found_in_any_order() {
        let values = [1.5_f64, -0.0, 0.0, -3.0, f64::INFINITY, 2.0];
        assert_eq!(made(Op::Min, &values), Ok(-3.0));
        assert_eq!(made(Op::Max, &values), Ok(f64::INFINITY));
        assert_eq!(made(Op::Min, &[0.0_f32, -0.0]).unwrap().to_bits(), (-0.0_f32).to_bits());
        assert_eq!(made(Op::Max, &[0.0_f64, -0.0]).unwrap().to_bits(), 0);
        assert_eq!(made(Op::Min, &[-1.5_f32, f32::NEG_INFINITY]), Ok(f32::NEG_INFINITY));
        assert_eq!(made(Op::Max, &[-1.5_f32, -2.5]), Ok(-1.5));
        assert_eq!(made(Op::Max, &[u32::MAX, 0]), Ok(u32::MAX));
        assert_eq!(made(Op::Min, &[i32::MIN, i32::MAX]), Ok(i32::MIN));
        assert_eq!(made(Op::Max, &[i64::MIN, i64::MIN]), Ok(i64::MIN));
    }

    #[test]
    fn the_first_value_that_cannot_be_accumulated_is_marked() {
        fn marked<T>(point: i64, why: i64) -> Result<T, Unfinished> {
            Err(Unfinished::Marked { point, why })
        }
        assert_eq!(sum(&[1.0, f64::NAN, f64::INFINITY, f64::NAN]), marked(1, NAN));
        assert_eq!(sum(&[1.0, 2.0, f64::NEG_INFINITY, f64::NAN]), marked(2, INFINITE));
        assert_eq!(sum(&[-2_f64.powi(138)]), marked(0, LARGE));
        assert_eq!(sum(&[f32::NAN]), marked(0, NAN));
        assert_eq!(sum(&[1.0, f32::NEG_INFINITY]), marked(1, INFINITE));
        assert_eq!(made(Op::Max, &[1.0, 2.0, -f64::NAN]), marked(2, NAN));
        assert_eq!(made(Op::Min, &[f32::NAN, f32::NAN]), marked(0, NAN));
    }
}
