const _: fn(i64) -> ::core::primitive::i64 = |value| value;
const _: fn(u32) -> ::core::primitive::u32 = |value| value;
const _: fn(i32) -> ::core::primitive::i32 = |value| value;
const _: fn(f32) -> ::core::primitive::f32 = |value| value;
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "named after the stencil")]
#[derive(:: core :: clone :: Clone, :: core :: marker :: Copy, :: core :: fmt :: Debug)]
#[repr(C)]
pub struct integers_args {
    pub double_first: ::core::primitive::i64,
    pub hash_first: ::core::primitive::i64,
    pub int_first: ::core::primitive::i64,
    pub extents: [::core::primitive::i64; 1],
    pub first: [::core::primitive::i64; 1],
    pub grid: [::core::primitive::i64; 1],
    pub seed_value: ::core::primitive::u32,
    pub pad: ::core::primitive::u32,
}
const _: () = ::core::assert!(::core::mem::size_of::<integers_args>() == 56);
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
fn integers_row(
    args: &integers_args,
    n: ::core::primitive::usize,
    row_double: &mut [::core::primitive::i64],
    row_hash: &mut [::core::primitive::u32],
    row0_int: &[::core::primitive::i32],
) {
    let s_seed: ::core::primitive::u32 = args.seed_value;
    let row_double = &mut row_double[..n];
    let row_hash = &mut row_hash[..n];
    let atm1_int = &row0_int[0..][..n];
    let atp0_int = &row0_int[1..][..n];
    for j in 0..n {
        let out_double: ::core::primitive::i64;
        let out_hash: ::core::primitive::u32;
        let v0_wide: ::core::primitive::i64 = ::core::primitive::i64::wrapping_add(
            ::core::primitive::i64::wrapping_mul(
                atm1_int[j] as ::core::primitive::i64,
                -9223372036854775808i64,
            ),
            args.first[0] + j as ::core::primitive::i64,
        );
        let v1_abs: ::core::primitive::i32 = atp0_int[j];
        let mut v2_bits: ::core::primitive::u32 = (s_seed
            ^ (((if v1_abs < 0i32 { ::core::primitive::i32::wrapping_neg(v1_abs) } else { v1_abs })
                as ::core::primitive::u32)
                & 65535u32))
            | 1u32;
        v2_bits = ::core::primitive::u32::wrapping_mul(v2_bits, 2654435761u32);
        v2_bits = v2_bits % 1000u32;
        let v3_scaled: ::core::primitive::i32 = ::core::primitive::i32::wrapping_sub(
            ::core::primitive::i32::wrapping_neg(
                ((atp0_int[j] as ::core::primitive::f32) * 0.1f32) as ::core::primitive::i32,
            ),
            -2147483648i32,
        );
        let v4_a: ::core::primitive::i64 = row_double[j];
        out_double = ::core::primitive::i64::wrapping_add(
            ::core::primitive::i64::wrapping_sub(
                (if v4_a > v0_wide { v4_a } else { v0_wide }) / 7i64,
                ::core::primitive::i64::wrapping_neg(v0_wide),
            ),
            v3_scaled as ::core::primitive::i64,
        );
        out_hash = !v2_bits;
        row_double[j] = out_double;
        row_hash[j] = out_hash;
    }
}
#[doc(hidden)]
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
pub unsafe fn integers_rows(
    args: &integers_args,
    p_double: *mut ::core::primitive::i64,
    p_hash: *mut ::core::primitive::u32,
    p_int: *const ::core::primitive::i32,
    rows: ::core::ops::Range<::core::primitive::usize>,
) {
    let n = args.extents[0] as ::core::primitive::usize;
    if n == 0 {
        return;
    }
    for row in rows {
        let row = row as ::core::primitive::i64;
        let row_double = unsafe {
            ::core::slice::from_raw_parts_mut(p_double.offset((args.double_first) as _), n)
        };
        let row_hash =
            unsafe { ::core::slice::from_raw_parts_mut(p_hash.offset((args.hash_first) as _), n) };
        let row0_int = unsafe {
            ::core::slice::from_raw_parts(p_int.offset((args.int_first + -1i64) as _), n + 1)
        };
        integers_row(args, n, row_double, row_hash, row0_int);
    }
}
