const _: fn(f64) -> ::core::primitive::f64 = |value| value;
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "named after the stencil")]
#[derive(:: core :: clone :: Clone, :: core :: marker :: Copy, :: core :: fmt :: Debug)]
#[repr(C)]
pub struct thomas_args {
    pub c_first: ::core::primitive::i64,
    pub c_strides: [::core::primitive::i64; 1],
    pub d_first: ::core::primitive::i64,
    pub d_strides: [::core::primitive::i64; 1],
    pub t_first: ::core::primitive::i64,
    pub t_strides: [::core::primitive::i64; 1],
    pub r_first: ::core::primitive::i64,
    pub r_strides: [::core::primitive::i64; 1],
    pub extents: [::core::primitive::i64; 2],
    pub first: [::core::primitive::i64; 2],
    pub grid: [::core::primitive::i64; 2],
}
const _: () = ::core::assert!(::core::mem::size_of::<thomas_args>() == 112);
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
fn thomas_row0(
    args: &thomas_args,
    n: ::core::primitive::usize,
    i0: ::core::primitive::i64,
    row_c: &mut [::core::primitive::f64],
    row_d: &mut [::core::primitive::f64],
    previous_c: &[::core::primitive::f64],
    previous_d: &[::core::primitive::f64],
    row0_t: &[::core::primitive::f64],
    row1_r: &[::core::primitive::f64],
    row2_r: &[::core::primitive::f64],
) {
    let row_c = &mut row_c[..n];
    let row_d = &mut row_d[..n];
    let previous_c = &previous_c[..n];
    let previous_d = &previous_d[..n];
    let atp0p0_t = &row0_t[0..][..n];
    let atp0p0_r = &row1_r[0..][..n];
    let atp1p0_r = &row2_r[0..][..n];
    for j in 0..n {
        let out_c: ::core::primitive::f64;
        let out_d: ::core::primitive::f64;
        let v0_below: ::core::primitive::f64 = atp0p0_r[j];
        let v1_above: ::core::primitive::f64 = atp1p0_r[j];
        let v2_b: ::core::primitive::f64 =
            ((1.0f64 + v0_below) + v1_above) + (v0_below * previous_c[j]);
        out_c = (-v1_above) / v2_b;
        out_d = (atp0p0_t[j] + (v0_below * previous_d[j])) / v2_b;
        row_c[j] = out_c;
        row_d[j] = out_d;
    }
}
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
fn thomas_row1(
    args: &thomas_args,
    n: ::core::primitive::usize,
    i0: ::core::primitive::i64,
    row_c: &mut [::core::primitive::f64],
    row_d: &mut [::core::primitive::f64],
    row0_t: &[::core::primitive::f64],
    row1_r: &[::core::primitive::f64],
) {
    let row_c = &mut row_c[..n];
    let row_d = &mut row_d[..n];
    let atp0p0_t = &row0_t[0..][..n];
    let atp1p0_r = &row1_r[0..][..n];
    for j in 0..n {
        let out_c: ::core::primitive::f64;
        let out_d: ::core::primitive::f64;
        let v0_b: ::core::primitive::f64 = 1.0f64 + atp1p0_r[j];
        out_c = (-atp1p0_r[j]) / v0_b;
        out_d = atp0p0_t[j] / v0_b;
        row_c[j] = out_c;
        row_d[j] = out_d;
    }
}
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
fn thomas_row2(
    args: &thomas_args,
    n: ::core::primitive::usize,
    i0: ::core::primitive::i64,
    row_c: &mut [::core::primitive::f64],
    row_d: &mut [::core::primitive::f64],
    previous_c: &[::core::primitive::f64],
    previous_d: &[::core::primitive::f64],
    row0_t: &[::core::primitive::f64],
    row1_r: &[::core::primitive::f64],
) {
    let row_c = &mut row_c[..n];
    let row_d = &mut row_d[..n];
    let previous_c = &previous_c[..n];
    let previous_d = &previous_d[..n];
    let atp0p0_t = &row0_t[0..][..n];
    let atp0p0_r = &row1_r[0..][..n];
    for j in 0..n {
        let out_c: ::core::primitive::f64;
        let out_d: ::core::primitive::f64;
        let v0_below: ::core::primitive::f64 = atp0p0_r[j];
        let v1_above: ::core::primitive::f64 = 0.0f64;
        let v2_b: ::core::primitive::f64 =
            ((1.0f64 + v0_below) + v1_above) + (v0_below * previous_c[j]);
        out_c = (-v1_above) / v2_b;
        out_d = (atp0p0_t[j] + (v0_below * previous_d[j])) / v2_b;
        row_c[j] = out_c;
        row_d[j] = out_d;
    }
}
#[doc(hidden)]
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
pub unsafe fn thomas_rows(
    args: &thomas_args,
    p_c: *mut ::core::primitive::f64,
    p_d: *mut ::core::primitive::f64,
    p_t: *const ::core::primitive::f64,
    p_r: *const ::core::primitive::f64,
    rows: ::core::ops::Range<::core::primitive::usize>,
) {
    let n = args.extents[1] as ::core::primitive::usize;
    if n == 0 {
        return;
    }
    let levels = args.extents[0];
    for level in 0..levels {
        let i0 = level;
        for row in ::core::clone::Clone::clone(&rows) {
            if level == 0 {
                let row_c = unsafe {
                    ::core::slice::from_raw_parts_mut(
                        p_c.offset((args.c_first + i0 * args.c_strides[0]) as _),
                        n,
                    )
                };
                let row_d = unsafe {
                    ::core::slice::from_raw_parts_mut(
                        p_d.offset((args.d_first + i0 * args.d_strides[0]) as _),
                        n,
                    )
                };
                let row0_t = unsafe {
                    ::core::slice::from_raw_parts(
                        p_t.offset((args.t_first + i0 * args.t_strides[0]) as _),
                        n + 0,
                    )
                };
                let row1_r = unsafe {
                    ::core::slice::from_raw_parts(
                        p_r.offset((args.r_first + (i0 + 1i64) * args.r_strides[0]) as _),
                        n + 0,
                    )
                };
                thomas_row1(args, n, i0, row_c, row_d, row0_t, row1_r);
            } else if level + 1 == levels {
                let previous_c = unsafe {
                    ::core::slice::from_raw_parts(
                        p_c.offset((args.c_first + (i0 + -1i64) * args.c_strides[0]) as _),
                        n,
                    )
                };
                let previous_d = unsafe {
                    ::core::slice::from_raw_parts(
                        p_d.offset((args.d_first + (i0 + -1i64) * args.d_strides[0]) as _),
                        n,
                    )
                };
                let row_c = unsafe {
                    ::core::slice::from_raw_parts_mut(
                        p_c.offset((args.c_first + i0 * args.c_strides[0]) as _),
                        n,
                    )
                };
                let row_d = unsafe {
                    ::core::slice::from_raw_parts_mut(
                        p_d.offset((args.d_first + i0 * args.d_strides[0]) as _),
                        n,
                    )
                };
                let row0_t = unsafe {
                    ::core::slice::from_raw_parts(
                        p_t.offset((args.t_first + i0 * args.t_strides[0]) as _),
                        n + 0,
                    )
                };
                let row1_r = unsafe {
                    ::core::slice::from_raw_parts(
                        p_r.offset((args.r_first + i0 * args.r_strides[0]) as _),
                        n + 0,
                    )
                };
                thomas_row2(args, n, i0, row_c, row_d, previous_c, previous_d, row0_t, row1_r);
            } else {
                let previous_c = unsafe {
                    ::core::slice::from_raw_parts(
                        p_c.offset((args.c_first + (i0 + -1i64) * args.c_strides[0]) as _),
                        n,
                    )
                };
                let previous_d = unsafe {
                    ::core::slice::from_raw_parts(
                        p_d.offset((args.d_first + (i0 + -1i64) * args.d_strides[0]) as _),
                        n,
                    )
                };
                let row_c = unsafe {
                    ::core::slice::from_raw_parts_mut(
                        p_c.offset((args.c_first + i0 * args.c_strides[0]) as _),
                        n,
                    )
                };
                let row_d = unsafe {
                    ::core::slice::from_raw_parts_mut(
                        p_d.offset((args.d_first + i0 * args.d_strides[0]) as _),
                        n,
                    )
                };
                let row0_t = unsafe {
                    ::core::slice::from_raw_parts(
                        p_t.offset((args.t_first + i0 * args.t_strides[0]) as _),
                        n + 0,
                    )
                };
                let row1_r = unsafe {
                    ::core::slice::from_raw_parts(
                        p_r.offset((args.r_first + i0 * args.r_strides[0]) as _),
                        n + 0,
                    )
                };
                let row2_r = unsafe {
                    ::core::slice::from_raw_parts(
                        p_r.offset((args.r_first + (i0 + 1i64) * args.r_strides[0]) as _),
                        n + 0,
                    )
                };
                thomas_row0(
                    args, n, i0, row_c, row_d, previous_c, previous_d, row0_t, row1_r, row2_r,
                );
            }
        }
    }
}
