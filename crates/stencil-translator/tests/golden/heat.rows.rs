const _: fn(f64) -> ::core::primitive::f64 = |value| value;
#[doc(hidden)]
#[allow(non_camel_case_types, reason = "named after the stencil")]
#[derive(:: core :: clone :: Clone, :: core :: marker :: Copy, :: core :: fmt :: Debug)]
#[repr(C)]
pub struct heat_args {
    pub next_first: ::core::primitive::i64,
    pub next_strides: [::core::primitive::i64; 1],
    pub t_first: ::core::primitive::i64,
    pub t_strides: [::core::primitive::i64; 1],
    pub extents: [::core::primitive::i64; 2],
    pub first: [::core::primitive::i64; 2],
    pub grid: [::core::primitive::i64; 2],
    pub ax_value: ::core::primitive::f64,
    pub ay_value: ::core::primitive::f64,
}
const _: () = ::core::assert!(::core::mem::size_of::<heat_args>() == 96);
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
fn heat_row(
    args: &heat_args,
    n: ::core::primitive::usize,
    i0: ::core::primitive::i64,
    row_next: &mut [::core::primitive::f64],
    row0_t: &[::core::primitive::f64],
    row1_t: &[::core::primitive::f64],
    row2_t: &[::core::primitive::f64],
) {
    let s_ax: ::core::primitive::f64 = args.ax_value;
    let s_ay: ::core::primitive::f64 = args.ay_value;
    let row_next = &mut row_next[..n];
    let atm1p0_t = &row0_t[0..][..n];
    let atp0m1_t = &row1_t[0..][..n];
    let atp0p0_t = &row1_t[1..][..n];
    let atp0p1_t = &row1_t[2..][..n];
    let atp1p0_t = &row2_t[0..][..n];
    for j in 0..n {
        let out_next: ::core::primitive::f64;
        let v0_c: ::core::primitive::f64 = atp0p0_t[j];
        out_next = (v0_c + (s_ax * ((atm1p0_t[j] - (2.0f64 * v0_c)) + atp1p0_t[j])))
            + (s_ay * ((atp0m1_t[j] - (2.0f64 * v0_c)) + atp0p1_t[j]));
        row_next[j] = out_next;
    }
}
#[doc(hidden)]
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
#[inline(always)]
pub unsafe fn heat_rows(
    args: &heat_args,
    p_next: *mut ::core::primitive::f64,
    p_t: *const ::core::primitive::f64,
    rows: ::core::ops::Range<::core::primitive::usize>,
) {
    let n = args.extents[1] as ::core::primitive::usize;
    if n == 0 {
        return;
    }
    for row in rows {
        let row = row as ::core::primitive::i64;
        let i0 = row;
        let row_next = unsafe {
            ::core::slice::from_raw_parts_mut(
                p_next.offset((args.next_first + i0 * args.next_strides[0]) as _),
                n,
            )
        };
        let row0_t = unsafe {
            ::core::slice::from_raw_parts(
                p_t.offset((args.t_first + (i0 + -1i64) * args.t_strides[0]) as _),
                n + 0,
            )
        };
        let row1_t = unsafe {
            ::core::slice::from_raw_parts(
                p_t.offset((args.t_first + i0 * args.t_strides[0] + -1i64) as _),
                n + 2,
            )
        };
        let row2_t = unsafe {
            ::core::slice::from_raw_parts(
                p_t.offset((args.t_first + (i0 + 1i64) * args.t_strides[0]) as _),
                n + 0,
            )
        };
        heat_row(args, n, i0, row_next, row0_t, row1_t, row2_t);
    }
}
