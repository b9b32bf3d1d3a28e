const _: fn(f64) -> ::core::primitive::f64 = |value| value;
const _: fn(bool) -> ::core::primitive::bool = |value| value;
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "named after the stencil")]
#[derive(:: core :: clone :: Clone, :: core :: marker :: Copy, :: core :: fmt :: Debug)]
#[repr(C)]
pub struct upwind_args {
    pub next_first: ::core::primitive::i64,
    pub next_strides: [::core::primitive::i64; 2],
    pub q_first: ::core::primitive::i64,
    pub q_strides: [::core::primitive::i64; 2],
    pub extents: [::core::primitive::i64; 3],
    pub first: [::core::primitive::i64; 3],
    pub grid: [::core::primitive::i64; 3],
    pub c_value: ::core::primitive::f64,
    pub is_limited_value: ::core::primitive::u32,
    pub pad: ::core::primitive::u32,
}
const _: () = ::core::assert!(::core::mem::size_of::<upwind_args>() == 136);
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
fn upwind_row(
    args: &upwind_args,
    n: ::core::primitive::usize,
    i0: ::core::primitive::i64,
    i1: ::core::primitive::i64,
    row_next: &mut [::core::primitive::f64],
    row0_q: &[::core::primitive::f64],
) {
    let s_c: ::core::primitive::f64 = args.c_value;
    let s_is_limited: ::core::primitive::bool = args.is_limited_value != 0;
    let row_next = &mut row_next[..n];
    let atp0p0m2_q = &row0_q[0..][..n];
    let atp0p0m1_q = &row0_q[1..][..n];
    let atp0p0p0_q = &row0_q[2..][..n];
    let atp0p0p1_q = &row0_q[3..][..n];
    for j in 0..n {
        let out_next: ::core::primitive::f64;
        let v0_half: ::core::primitive::f64 = 0.5f64 * (1.0f64 - ::core::primitive::f64::abs(s_c));
        let v1_a: ::core::primitive::f64 = atp0p0m1_q[j] - atp0p0m2_q[j];
        let v2_b: ::core::primitive::f64 = atp0p0p0_q[j] - atp0p0m1_q[j];
        let v3_a: ::core::primitive::f64 = ::core::primitive::f64::abs(v1_a);
        let v4_b: ::core::primitive::f64 = ::core::primitive::f64::abs(v2_b);
        let v5_slope: ::core::primitive::f64 =
            if (v1_a * v2_b) > 0.0f64 { if v3_a < v4_b { v3_a } else { v4_b } } else { 0.0f64 };
        let v6_inflow: ::core::primitive::f64 = atp0p0m1_q[j] + (v0_half * v5_slope);
        let v7_a: ::core::primitive::f64 = atp0p0p0_q[j] - atp0p0m1_q[j];
        let v8_b: ::core::primitive::f64 = atp0p0p1_q[j] - atp0p0p0_q[j];
        let v9_a: ::core::primitive::f64 = ::core::primitive::f64::abs(v7_a);
        let v10_b: ::core::primitive::f64 = ::core::primitive::f64::abs(v8_b);
        let v11_slope: ::core::primitive::f64 =
            if (v7_a * v8_b) > 0.0f64 { if v9_a < v10_b { v9_a } else { v10_b } } else { 0.0f64 };
        let v12_outflow: ::core::primitive::f64 = atp0p0p0_q[j] + (v0_half * v11_slope);
        if (s_is_limited && ((args.first[2] + j as ::core::primitive::i64) > 0i64))
            && ((args.first[2] + j as ::core::primitive::i64)
                < ::core::primitive::i64::wrapping_sub(args.grid[2], 1i64))
        {
            out_next = atp0p0p0_q[j] - (s_c * (v12_outflow - v6_inflow));
        } else {
            out_next = atp0p0p0_q[j] - (s_c * (atp0p0p0_q[j] - atp0p0m1_q[j]));
        }
        row_next[j] = out_next;
    }
}
#[doc(hidden)]
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
pub unsafe fn upwind_rows(
    args: &upwind_args,
    p_next: *mut ::core::primitive::f64,
    p_q: *const ::core::primitive::f64,
    rows: ::core::ops::Range<::core::primitive::usize>,
) {
    let n = args.extents[2] as ::core::primitive::usize;
    if n == 0 {
        return;
    }
    for row in rows {
        let row = row as ::core::primitive::i64;
        let i0 = row / args.extents[1];
        let i1 = row % args.extents[1];
        let row_next = unsafe {
            ::core::slice::from_raw_parts_mut(
                p_next.offset(
                    (args.next_first + i0 * args.next_strides[0] + i1 * args.next_strides[1]) as _,
                ),
                n,
            )
        };
        let row0_q = unsafe {
            ::core::slice::from_raw_parts(
                p_q.offset(
                    (args.q_first + i0 * args.q_strides[0] + i1 * args.q_strides[1] + -2i64) as _,
                ),
                n + 3,
            )
        };
        upwind_row(args, n, i0, i1, row_next, row0_q);
    }
}
