const _: fn(f32) -> ::core::primitive::f32 = |value| value;
const _: fn(i32) -> ::core::primitive::i32 = |value| value;
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "named after the stencil")]
#[derive(:: core :: clone :: Clone, :: core :: marker :: Copy, :: core :: fmt :: Debug)]
#[repr(C)]
pub struct integral_args {
    pub sum_first: ::core::primitive::i64,
    pub sum_strides: [::core::primitive::i64; 2],
    pub count_first: ::core::primitive::i64,
    pub count_strides: [::core::primitive::i64; 2],
    pub w_first: ::core::primitive::i64,
    pub w_strides: [::core::primitive::i64; 2],
    pub extents: [::core::primitive::i64; 3],
    pub first: [::core::primitive::i64; 3],
    pub grid: [::core::primitive::i64; 3],
}
const _: () = ::core::assert!(::core::mem::size_of::<integral_args>() == 144);
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
fn integral_row0(
    args: &integral_args,
    n: ::core::primitive::usize,
    i0: ::core::primitive::i64,
    i1: ::core::primitive::i64,
    start: ::core::primitive::i64,
    row_sum: &mut [::core::primitive::f32],
    row_count: &mut [::core::primitive::i32],
    mut previous_sum: ::core::primitive::f32,
    mut previous_count: ::core::primitive::i32,
    row0_w: &[::core::primitive::f32],
) {
    let row_sum = &mut row_sum[..n];
    let row_count = &mut row_count[..n];
    let atp0p0p1_w = &row0_w[0..][..n];
    for j in ::core::iter::Iterator::rev(0..n) {
        let out_sum: ::core::primitive::f32;
        let out_count: ::core::primitive::i32;
        out_sum = previous_sum + (row_sum[j] * atp0p0p1_w[j]);
        out_count = ::core::primitive::i32::wrapping_add(
            previous_count,
            (args.first[2] + start + j as ::core::primitive::i64) as ::core::primitive::i32,
        );
        row_sum[j] = out_sum;
        row_count[j] = out_count;
        previous_sum = out_sum;
        previous_count = out_count;
    }
}
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
fn integral_row1(
    args: &integral_args,
    n: ::core::primitive::usize,
    i0: ::core::primitive::i64,
    i1: ::core::primitive::i64,
    start: ::core::primitive::i64,
    row_sum: &mut [::core::primitive::f32],
    row_count: &mut [::core::primitive::i32],
    row0_w: &[::core::primitive::f32],
) {
    let row_sum = &mut row_sum[..n];
    let row_count = &mut row_count[..n];
    let atp0p0p0_w = &row0_w[0..][..n];
    for j in ::core::iter::Iterator::rev(0..n) {
        let out_sum: ::core::primitive::f32;
        let out_count: ::core::primitive::i32;
        out_sum = row_sum[j] * atp0p0p0_w[j];
        out_count = 1i32;
        row_sum[j] = out_sum;
        row_count[j] = out_count;
    }
}
#[doc(hidden)]
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
pub unsafe fn integral_rows(
    args: &integral_args,
    p_sum: *mut ::core::primitive::f32,
    p_count: *mut ::core::primitive::i32,
    p_w: *const ::core::primitive::f32,
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
        if n == 1 {
            let start: ::core::primitive::i64 = 0;
            let row_sum = unsafe {
                ::core::slice::from_raw_parts_mut(
                    p_sum.offset(
                        (args.sum_first
                            + i0 * args.sum_strides[0]
                            + i1 * args.sum_strides[1]
                            + start) as _,
                    ),
                    1,
                )
            };
            let row_count = unsafe {
                ::core::slice::from_raw_parts_mut(
                    p_count.offset(
                        (args.count_first
                            + i0 * args.count_strides[0]
                            + i1 * args.count_strides[1]
                            + start) as _,
                    ),
                    1,
                )
            };
            let row0_w = unsafe {
                ::core::slice::from_raw_parts(
                    p_w.offset(
                        (args.w_first + i0 * args.w_strides[0] + i1 * args.w_strides[1] + start)
                            as _,
                    ),
                    1 + 0,
                )
            };
            integral_row1(args, 1, i0, i1, start, row_sum, row_count, row0_w);
        } else {
            {
                let start: ::core::primitive::i64 = n as ::core::primitive::i64 - 1;
                let row_sum = unsafe {
                    ::core::slice::from_raw_parts_mut(
                        p_sum.offset(
                            (args.sum_first
                                + i0 * args.sum_strides[0]
                                + i1 * args.sum_strides[1]
                                + start) as _,
                        ),
                        1,
                    )
                };
                let row_count = unsafe {
                    ::core::slice::from_raw_parts_mut(
                        p_count.offset(
                            (args.count_first
                                + i0 * args.count_strides[0]
                                + i1 * args.count_strides[1]
                                + start) as _,
                        ),
                        1,
                    )
                };
                let row0_w = unsafe {
                    ::core::slice::from_raw_parts(
                        p_w.offset(
                            (args.w_first + i0 * args.w_strides[0] + i1 * args.w_strides[1] + start)
                                as _,
                        ),
                        1 + 0,
                    )
                };
                integral_row1(args, 1, i0, i1, start, row_sum, row_count, row0_w);
            }
            if n > 1 {
                let start: ::core::primitive::i64 = 0;
                let previous_sum = unsafe {
                    *p_sum.offset(
                        (args.sum_first
                            + i0 * args.sum_strides[0]
                            + i1 * args.sum_strides[1]
                            + start
                            + (n - 1) as ::core::primitive::i64) as _,
                    )
                };
                let previous_count = unsafe {
                    *p_count.offset(
                        (args.count_first
                            + i0 * args.count_strides[0]
                            + i1 * args.count_strides[1]
                            + start
                            + (n - 1) as ::core::primitive::i64) as _,
                    )
                };
                let row_sum = unsafe {
                    ::core::slice::from_raw_parts_mut(
                        p_sum.offset(
                            (args.sum_first
                                + i0 * args.sum_strides[0]
                                + i1 * args.sum_strides[1]
                                + start) as _,
                        ),
                        n - 1,
                    )
                };
                let row_count = unsafe {
                    ::core::slice::from_raw_parts_mut(
                        p_count.offset(
                            (args.count_first
                                + i0 * args.count_strides[0]
                                + i1 * args.count_strides[1]
                                + start) as _,
                        ),
                        n - 1,
                    )
                };
                let row0_w = unsafe {
                    ::core::slice::from_raw_parts(
                        p_w.offset(
                            (args.w_first
                                + i0 * args.w_strides[0]
                                + i1 * args.w_strides[1]
                                + start
                                + 1i64) as _,
                        ),
                        n - 1 + 0,
                    )
                };
                integral_row0(
                    args,
                    n - 1,
                    i0,
                    i1,
                    start,
                    row_sum,
                    row_count,
                    previous_sum,
                    previous_count,
                    row0_w,
                );
            }
        }
    }
}
