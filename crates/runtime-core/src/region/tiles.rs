//! Square tiles of elements that are transposed.
#![expect(unsafe_code, reason = "moves elements through raw pointers")]

use super::arithmetic::Operation;
use super::loops::{self, AVX2, Dim};

/// Number of elements along the edge of a tile of the operation.
pub(super) const fn edge<O: Operation, const TIER: u8>() -> usize {
    match size_of::<O::Element>() {
        1 => 16,
        8 if TIER == AVX2 => 4,
        2..=8 => 8,
        _ => 4,
    }
}

/// Moves a tile. `down` runs along contiguous elements of the source, forwards or backwards. `along` runs along
/// contiguous elements of the destination.
///
/// # Safety
///
/// As [`Kernel`](loops::Kernel), for a box of [`edge`] elements in both dimensions. Their extents are ignored.
#[inline(always)]
pub(super) unsafe fn tile<O: Operation, const TIER: u8>(
    to: *mut u8,
    from: *const u8,
    [down, along]: [Dim; 2],
) {
    let edge = const { edge::<O, TIER>() };
    let size = size_of::<O::Element>();
    #[cfg(target_arch = "x86_64")]
    if O::FLIPS.is_some() && TIER == AVX2 && (size == 4 || size == 8) {
        // The lowest element of each row of the source, and the row of the destination that it is copied to.
        let (mut to, mut from, mut pitch) = (to, from, down.to);
        if down.from < 0 {
            (to, from) = loops::at(to, from, down, edge - 1);
            pitch = -pitch;
        }
        // SAFETY: guaranteed by the caller; the tier ensures that the instructions are available.
        return unsafe { x86::transpose::<O>(to, pitch, from, along.from) };
    }
    for index in 0..edge {
        let (to, from) = loops::at(to, from, along, index);
        // SAFETY: the part of a row of the source that is in the tile.
        unsafe { loops::line::<O>(to, from, Dim { extent: edge, ..down }) };
    }
}

/// Stores adjacent elements.
///
/// # Safety
///
/// There is room for them. The processor supports the instructions of `TIER`.
#[inline(always)]
pub(super) unsafe fn store<T: Copy, const TIER: u8>(to: *mut u8, elements: [T; 8]) {
    #[cfg(target_arch = "x86_64")]
    if TIER == AVX2 && (size_of::<T>() == 4 || size_of::<T>() == 8) {
        // SAFETY: guaranteed by the caller.
        return unsafe { x86::store(to, elements) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { to.cast::<[T; 8]>().write(elements) };
}

/// Tiles in vector registers.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m256d, _mm256_castsi256_pd, _mm256_castsi256_ps, _mm256_loadu_pd,
        _mm256_loadu_ps, _mm256_permute2f128_pd, _mm256_permute2f128_ps, _mm256_set_epi32,
        _mm256_set_epi64x, _mm256_set1_epi64x, _mm256_shuffle_ps, _mm256_storeu_pd,
        _mm256_storeu_ps, _mm256_storeu_si256, _mm256_unpackhi_pd, _mm256_unpackhi_ps,
        _mm256_unpacklo_pd, _mm256_unpacklo_ps, _mm256_xor_pd, _mm256_xor_ps,
    };

    use super::Operation;

    /// Moves a tile of 8 × 8 elements of 4 bytes, or of 4 × 4 elements of 8 bytes, and flips the operation's bits.
    /// Pitches are in bytes.
    ///
    /// # Safety
    ///
    /// The rows of the tiles may be read and written.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn transpose<O: Operation>(
        to: *mut u8,
        to_pitch: isize,
        from: *const u8,
        from_pitch: isize,
    ) {
        let to = |row: isize| to.wrapping_offset(row * to_pitch);
        let from = |row: isize| from.wrapping_offset(row * from_pitch);
        let flips = _mm256_set1_epi64x(O::FLIPS.unwrap_or(0).cast_signed());
        if size_of::<O::Element>() == 8 {
            let load = |row: isize| {
                // SAFETY: a row of the source, as the caller guarantees; the load may be unaligned.
                let values = unsafe { _mm256_loadu_pd(from(row).cast()) };
                _mm256_xor_pd(values, _mm256_castsi256_pd(flips))
            };
            for (row, values) in (0..).zip(transpose_4x4([load(0), load(1), load(2), load(3)])) {
                // SAFETY: a row of the destination, as the caller guarantees; the store may be unaligned.
                unsafe { _mm256_storeu_pd(to(row).cast(), values) };
            }
        } else {
            let load = |row: isize| {
                // SAFETY: a row of the source, as the caller guarantees; the load may be unaligned.
                let values = unsafe { _mm256_loadu_ps(from(row).cast()) };
                _mm256_xor_ps(values, _mm256_castsi256_ps(flips))
            };
            let rows = [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)];
            for (row, values) in (0..).zip(transpose_8x8(rows)) {
                // SAFETY: a row of the destination, as the caller guarantees; the store may be unaligned.
                unsafe { _mm256_storeu_ps(to(row).cast(), values) };
            }
        }
    }

    /// Stores 8 elements of 4 or 8 bytes. The compiler would store them one by one.
    ///
    /// # Safety
    ///
    /// There is room for them.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn store<T: Copy>(to: *mut u8, elements: [T; 8]) {
        let elements = (&raw const elements).cast::<u8>();
        if size_of::<T>() == 8 {
            // SAFETY: the same number of bytes, and any bytes are valid integers.
            let [a, b, c, d, e, f, g, h] = unsafe { elements.cast::<[i64; 8]>().read_unaligned() };
            let (low, high) = (_mm256_set_epi64x(d, c, b, a), _mm256_set_epi64x(h, g, f, e));
            // SAFETY: room for the first half, as the caller guarantees; the store may be unaligned.
            unsafe { _mm256_storeu_si256(to.cast(), low) };
            // SAFETY: room for the second half.
            unsafe { _mm256_storeu_si256(to.wrapping_add(32).cast(), high) };
        } else {
            // SAFETY: the same number of bytes, and any bytes are valid integers.
            let [a, b, c, d, e, f, g, h] = unsafe { elements.cast::<[i32; 8]>().read_unaligned() };
            let all = _mm256_set_epi32(h, g, f, e, d, c, b, a);
            // SAFETY: room for all, as the caller guarantees; the store may be unaligned.
            unsafe { _mm256_storeu_si256(to.cast(), all) };
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn transpose_4x4([a, b, c, d]: [__m256d; 4]) -> [__m256d; 4] {
        let (ab_even, ab_odd) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
        let (cd_even, cd_odd) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
        [
            _mm256_permute2f128_pd::<0x20>(ab_even, cd_even),
            _mm256_permute2f128_pd::<0x20>(ab_odd, cd_odd),
            _mm256_permute2f128_pd::<0x31>(ab_even, cd_even),
            _mm256_permute2f128_pd::<0x31>(ab_odd, cd_odd),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn transpose_8x8([a, b, c, d, e, f, g, h]: [__m256; 8]) -> [__m256; 8] {
        let [abcd, efgh] =
            [[a, b, c, d], [e, f, g, h]].map(|[a, b, c, d]| transpose_halves(a, b, c, d));
        let low = |row: usize| _mm256_permute2f128_ps::<0x20>(abcd[row], efgh[row]);
        let high = |row: usize| _mm256_permute2f128_ps::<0x31>(abcd[row], efgh[row]);
        [low(0), low(1), low(2), low(3), high(0), high(1), high(2), high(3)]
    }

    /// Transposes the 4 × 4 elements in the low halves, and those in the high halves.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn transpose_halves(a: __m256, b: __m256, c: __m256, d: __m256) -> [__m256; 4] {
        let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
        [
            _mm256_shuffle_ps::<0x44>(ab_low, cd_low),
            _mm256_shuffle_ps::<0xEE>(ab_low, cd_low),
            _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
            _mm256_shuffle_ps::<0xEE>(ab_high, cd_high),
        ]
    }
}
