const _: fn(f64) -> ::core::primitive::f64 = |value| value;
const _: fn(i64) -> ::core::primitive::i64 = |value| value;
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "named after the stencil")]
#[derive(:: core :: clone :: Clone, :: core :: marker :: Copy, :: core :: fmt :: Debug)]
#[repr(C)]
pub struct moments_args {
    pub density_first: ::core::primitive::i64,
    pub density_strides: [::core::primitive::i64; 1],
    pub momentum_first: ::core::primitive::i64,
    pub momentum_strides: [::core::primitive::i64; 1],
    pub f_first: ::core::primitive::i64,
    pub f_strides: [::core::primitive::i64; 1],
    pub extents: [::core::primitive::i64; 2],
    pub first: [::core::primitive::i64; 2],
    pub grid: [::core::primitive::i64; 2],
}
const _: () = ::core::assert!(::core::mem::size_of::<moments_args>() == 96);
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
fn moments_row(
    args: &moments_args,
    n: ::core::primitive::usize,
    i0: ::core::primitive::i64,
    row_density: &mut [::core::primitive::f64],
    row_momentum: &mut [::core::primitive::f64],
    row0_f: &[::core::primitive::f64],
    row1_f: &[::core::primitive::f64],
    row2_f: &[::core::primitive::f64],
) {
    let row_density = &mut row_density[..n];
    let row_momentum = &mut row_momentum[..n];
    let atm1m1_f = &row0_f[0..][..n];
    let atm1p0_f = &row0_f[1..][..n];
    let atm1p1_f = &row0_f[2..][..n];
    let atp0m1_f = &row1_f[0..][..n];
    let atp0p0_f = &row1_f[1..][..n];
    let atp0p1_f = &row1_f[2..][..n];
    let atp1m1_f = &row2_f[0..][..n];
    let atp1p0_f = &row2_f[1..][..n];
    let atp1p1_f = &row2_f[2..][..n];
    for j in 0..n {
        let out_density: ::core::primitive::f64;
        let out_momentum: ::core::primitive::f64;
        let mut v0_sum: ::core::primitive::f64 = 0.0f64;
        let mut v1_along: ::core::primitive::f64 = 0.0f64;
        let v2_value: ::core::primitive::f64 = 0.4444444444444444f64 * atp0p0_f[j];
        v0_sum = v0_sum + v2_value;
        let v3_value: ::core::primitive::f64 = 0.1111111111111111f64 * atm1p0_f[j];
        v0_sum = v0_sum + v3_value;
        v1_along = v1_along + ((1i64 as ::core::primitive::f64) * v3_value);
        let v4_value: ::core::primitive::f64 = 0.1111111111111111f64 * atp0m1_f[j];
        v0_sum = v0_sum + v4_value;
        let v5_value: ::core::primitive::f64 = 0.1111111111111111f64 * atp1p0_f[j];
        v0_sum = v0_sum + v5_value;
        v1_along = v1_along + (((-1i64) as ::core::primitive::f64) * v5_value);
        let v6_value: ::core::primitive::f64 = 0.1111111111111111f64 * atp0p1_f[j];
        v0_sum = v0_sum + v6_value;
        let v7_value: ::core::primitive::f64 = 0.027777777777777776f64 * atm1m1_f[j];
        v0_sum = v0_sum + v7_value;
        v1_along = v1_along + ((1i64 as ::core::primitive::f64) * v7_value);
        let v8_value: ::core::primitive::f64 = 0.027777777777777776f64 * atp1m1_f[j];
        v0_sum = v0_sum + v8_value;
        v1_along = v1_along + (((-1i64) as ::core::primitive::f64) * v8_value);
        let v9_value: ::core::primitive::f64 = 0.027777777777777776f64 * atp1p1_f[j];
        v0_sum = v0_sum + v9_value;
        v1_along = v1_along + (((-1i64) as ::core::primitive::f64) * v9_value);
        let v10_value: ::core::primitive::f64 = 0.027777777777777776f64 * atm1p1_f[j];
        v0_sum = v0_sum + v10_value;
        v1_along = v1_along + ((1i64 as ::core::primitive::f64) * v10_value);
        out_density = v0_sum;
        out_momentum = v1_along;
        row_density[j] = out_density;
        row_momentum[j] = out_momentum;
    }
}
#[doc(hidden)]
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
pub unsafe fn moments_rows(
    args: &moments_args,
    p_density: *mut ::core::primitive::f64,
    p_momentum: *mut ::core::primitive::f64,
    p_f: *const ::core::primitive::f64,
    rows: ::core::ops::Range<::core::primitive::usize>,
) {
    let n = args.extents[1] as ::core::primitive::usize;
    if n == 0 {
        return;
    }
    for row in rows {
        let row = row as ::core::primitive::i64;
        let i0 = row;
        let row_density = unsafe {
            ::core::slice::from_raw_parts_mut(
                p_density.offset((args.density_first + i0 * args.density_strides[0]) as _),
                n,
            )
        };
        let row_momentum = unsafe {
            ::core::slice::from_raw_parts_mut(
                p_momentum.offset((args.momentum_first + i0 * args.momentum_strides[0]) as _),
                n,
            )
        };
        let row0_f = unsafe {
            ::core::slice::from_raw_parts(
                p_f.offset((args.f_first + (i0 + -1i64) * args.f_strides[0] + -1i64) as _),
                n + 2,
            )
        };
        let row1_f = unsafe {
            ::core::slice::from_raw_parts(
                p_f.offset((args.f_first + i0 * args.f_strides[0] + -1i64) as _),
                n + 2,
            )
        };
        let row2_f = unsafe {
            ::core::slice::from_raw_parts(
                p_f.offset((args.f_first + (i0 + 1i64) * args.f_strides[0] + -1i64) as _),
                n + 2,
            )
        };
        moments_row(args, n, i0, row_density, row_momentum, row0_f, row1_f, row2_f);
    }
}
