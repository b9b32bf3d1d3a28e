const _: fn(Real) -> ::core::primitive::f32 = |value| value;
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "named after the stencil")]
#[derive(:: core :: clone :: Clone, :: core :: marker :: Copy, :: core :: fmt :: Debug)]
#[repr(C)]
pub struct gray_scott_args {
    pub u1_first: ::core::primitive::i64,
    pub u1_strides: [::core::primitive::i64; 1],
    pub v1_first: ::core::primitive::i64,
    pub v1_strides: [::core::primitive::i64; 1],
    pub u_first: ::core::primitive::i64,
    pub u_strides: [::core::primitive::i64; 1],
    pub v_first: ::core::primitive::i64,
    pub v_strides: [::core::primitive::i64; 1],
    pub extents: [::core::primitive::i64; 2],
    pub first: [::core::primitive::i64; 2],
    pub grid: [::core::primitive::i64; 2],
    pub feed_value: ::core::primitive::f32,
    pub kill_value: ::core::primitive::f32,
}
const _: () = ::core::assert!(::core::mem::size_of::<gray_scott_args>() == 120);
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
fn gray_scott_row(
    args: &gray_scott_args,
    n: ::core::primitive::usize,
    i0: ::core::primitive::i64,
    row_u1: &mut [::core::primitive::f32],
    row_v1: &mut [::core::primitive::f32],
    row0_u: &[::core::primitive::f32],
    row1_u: &[::core::primitive::f32],
    row2_u: &[::core::primitive::f32],
    row3_v: &[::core::primitive::f32],
    row4_v: &[::core::primitive::f32],
    row5_v: &[::core::primitive::f32],
) {
    let s_feed: ::core::primitive::f32 = args.feed_value;
    let s_kill: ::core::primitive::f32 = args.kill_value;
    let row_u1 = &mut row_u1[..n];
    let row_v1 = &mut row_v1[..n];
    let atm1p0_u = &row0_u[0..][..n];
    let atp0m1_u = &row1_u[0..][..n];
    let atp0p0_u = &row1_u[1..][..n];
    let atp0p1_u = &row1_u[2..][..n];
    let atp1p0_u = &row2_u[0..][..n];
    let atm1p0_v = &row3_v[0..][..n];
    let atp0m1_v = &row4_v[0..][..n];
    let atp0p0_v = &row4_v[1..][..n];
    let atp0p1_v = &row4_v[2..][..n];
    let atp1p0_v = &row5_v[0..][..n];
    for j in 0..n {
        let out_u1: ::core::primitive::f32;
        let out_v1: ::core::primitive::f32;
        let v0_reaction: ::core::primitive::f32 = (atp0p0_u[j] * atp0p0_v[j]) * atp0p0_v[j];
        let v1_laplacian: ::core::primitive::f32 =
            (((atm1p0_u[j] + atp1p0_u[j]) + atp0m1_u[j]) + atp0p1_u[j]) - (4.0f32 * atp0p0_u[j]);
        out_u1 = ((atp0p0_u[j] + (0.2f32 * v1_laplacian)) - v0_reaction)
            + (s_feed * (1.0f32 - atp0p0_u[j]));
        let v2_laplacian: ::core::primitive::f32 =
            (((atm1p0_v[j] + atp1p0_v[j]) + atp0m1_v[j]) + atp0p1_v[j]) - (4.0f32 * atp0p0_v[j]);
        out_v1 = ((atp0p0_v[j] + (0.1f32 * v2_laplacian)) + v0_reaction)
            - ((s_feed + s_kill) * atp0p0_v[j]);
        row_u1[j] = out_u1;
        row_v1[j] = out_v1;
    }
}
#[doc(hidden)]
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
pub unsafe fn gray_scott_rows(
    args: &gray_scott_args,
    p_u1: *mut ::core::primitive::f32,
    p_v1: *mut ::core::primitive::f32,
    p_u: *const ::core::primitive::f32,
    p_v: *const ::core::primitive::f32,
    rows: ::core::ops::Range<::core::primitive::usize>,
) {
    let n = args.extents[1] as ::core::primitive::usize;
    if n == 0 {
        return;
    }
    for row in rows {
        let row = row as ::core::primitive::i64;
        let i0 = row;
        let row_u1 = unsafe {
            ::core::slice::from_raw_parts_mut(
                p_u1.offset((args.u1_first + i0 * args.u1_strides[0]) as _),
                n,
            )
        };
        let row_v1 = unsafe {
            ::core::slice::from_raw_parts_mut(
                p_v1.offset((args.v1_first + i0 * args.v1_strides[0]) as _),
                n,
            )
        };
        let row0_u = unsafe {
            ::core::slice::from_raw_parts(
                p_u.offset((args.u_first + (i0 + -1i64) * args.u_strides[0]) as _),
                n + 0,
            )
        };
        let row1_u = unsafe {
            ::core::slice::from_raw_parts(
                p_u.offset((args.u_first + i0 * args.u_strides[0] + -1i64) as _),
                n + 2,
            )
        };
        let row2_u = unsafe {
            ::core::slice::from_raw_parts(
                p_u.offset((args.u_first + (i0 + 1i64) * args.u_strides[0]) as _),
                n + 0,
            )
        };
        let row3_v = unsafe {
            ::core::slice::from_raw_parts(
                p_v.offset((args.v_first + (i0 + -1i64) * args.v_strides[0]) as _),
                n + 0,
            )
        };
        let row4_v = unsafe {
            ::core::slice::from_raw_parts(
                p_v.offset((args.v_first + i0 * args.v_strides[0] + -1i64) as _),
                n + 2,
            )
        };
        let row5_v = unsafe {
            ::core::slice::from_raw_parts(
                p_v.offset((args.v_first + (i0 + 1i64) * args.v_strides[0]) as _),
                n + 0,
            )
        };
        gray_scott_row(args, n, i0, row_u1, row_v1, row0_u, row1_u, row2_u, row3_v, row4_v, row5_v);
    }
}
