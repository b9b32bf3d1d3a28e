//! Conversions between types.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "instructions take low bits, and conversions are what is tested"
)]

use crate::harness::{DOUBLES, Function, INTEGERS, SINGLES, check, check_all, single};

#[test]
fn conversions_between_integers() {
    check_all(
        &INTEGERS,
        &[
            ("cvt.u64.u32 %d0, %r1;", |[a, ..]| u64::from(a as u32)),
            ("cvt.s64.s32 %d0, %r1;", |[a, ..]| i64::from(a as i32) as u64),
            ("cvt.u32.u64 %r0, %d1;", |[a, ..]| a),
            ("cvt.s32.s8 %r0, %r1;", |[a, ..]| i64::from(a as i8) as u64),
            ("cvt.s16.s8 %h0, %h1;", |[a, ..]| i64::from(a as i8) as u64),
            ("cvt.u32.u8 %r0, %r1;", |[a, ..]| u64::from(a as u8)),
            ("cvt.u16.u32 %h0, %r1;", |[a, ..]| a),
            ("cvt.s16.s8 %r0, %r1;", |[a, ..]| i64::from(a as i8) as u64),
            ("cvt.rn.f32.s32 %f0, %r1;", |[a, ..]| (a as i32 as f32).to_bits().into()),
            ("cvt.rn.f32.u64 %f0, %d1;", |[a, ..]| (a as f32).to_bits().into()),
            ("cvt.rn.f64.s64 %g0, %d1;", |[a, ..]| (a as i64 as f64).to_bits()),
            ("cvt.rn.f64.u16 %g0, %h1;", |[a, ..]| f64::from(a as u16).to_bits()),
        ],
    );
}

#[test]
fn conversions_of_floats() {
    let double = f64::from_bits;
    check("cvt.f64.f32 %g0, %f1;", &SINGLES, |[a, ..]| f64::from(single(a)).to_bits());
    check("cvt.rn.f32.f64 %f0, %g1;", &DOUBLES, |[a, ..]| (double(a) as f32).to_bits().into());
    check("cvt.sat.f32.f32 %f0, %f1;", &SINGLES, |[a, ..]| {
        (if single(a) > 0.0 { single(a).min(1.0) } else { 0.0 }).to_bits().into()
    });
    let integral: [Function<f64>; 4] = [
        ("rni", f64::round_ties_even),
        ("rzi", f64::trunc),
        ("rmi", f64::floor),
        ("rpi", f64::ceil),
    ];
    for (mode, round) in integral {
        check(&format!("cvt.{mode}.f32.f32 %f0, %f1;"), &SINGLES, |[a, ..]| {
            (round(single(a).into()) as f32).to_bits().into()
        });
        check(&format!("cvt.{mode}.s32.f32 %r0, %f1;"), &SINGLES, |[a, ..]| {
            (round(single(a).into()) as i32) as u64
        });
        check(&format!("cvt.{mode}.u8.f32 %r0, %f1;"), &SINGLES, |[a, ..]| {
            u64::from(round(single(a).into()) as u8)
        });
        // A NaN is the highest bit where one of the types has 64.
        check(&format!("cvt.{mode}.s64.f32 %d0, %f1;"), &SINGLES, |[a, ..]| {
            if single(a).is_nan() { 1 << 63 } else { round(single(a).into()) as i64 as u64 }
        });
        check(&format!("cvt.{mode}.u32.f64 %r0, %g1;"), &DOUBLES, |[a, ..]| {
            if double(a).is_nan() { 1 << 31 } else { u64::from(round(double(a)) as u32) }
        });
        check(&format!("cvt.{mode}.u64.f64 %d0, %g1;"), &DOUBLES, |[a, ..]| {
            if double(a).is_nan() { 1 << 63 } else { round(double(a)) as u64 }
        });
    }
}
