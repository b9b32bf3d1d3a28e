//! Integers, bits and predicates.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "instructions take low bits"
)]

use crate::harness::{INTEGERS, check, check_all};

macro_rules! integers {
    ($name:ident, $u:ident, $s:ident, $wide:ident, $kind:literal, $bits:literal) => {
        #[test]
        fn $name() {
            let binary = |name: &str, expected: fn($u, $u) -> $u| {
                let [kind, bits] = [$kind, $bits];
                let text = format!("{name}{bits} %{kind}0, %{kind}1, %{kind}2;");
                check(&text, &INTEGERS, |[a, b, ..]| expected(a as $u, b as $u).into());
            };
            binary("add.u", |a, b| a.wrapping_add(b));
            binary("add.s", |a, b| a.wrapping_add(b));
            binary("sub.s", |a, b| a.wrapping_sub(b));
            binary("mul.lo.s", |a, b| a.wrapping_mul(b));
            binary("mul.hi.u", |a, b| (($wide::from(a) * $wide::from(b)) >> $u::BITS) as $u);
            binary("mul.hi.s", |a, b| {
                ((i128::from(a as $s) * i128::from(b as $s)) >> $u::BITS) as $u
            });
            binary("div.u", |a, b| a.checked_div(b).unwrap_or($u::MAX));
            binary(
                "div.s",
                |a, b| if b == 0 { $u::MAX } else { (a as $s).wrapping_div(b as $s) as $u },
            );
            binary("rem.u", |a, b| a.checked_rem(b).unwrap_or(a));
            binary("rem.s", |a, b| if b == 0 { a } else { (a as $s).wrapping_rem(b as $s) as $u });
            binary("min.u", |a, b| a.min(b));
            binary("min.s", |a, b| (a as $s).min(b as $s) as $u);
            binary("max.u", |a, b| a.max(b));
            binary("max.s", |a, b| (a as $s).max(b as $s) as $u);
            binary("and.b", |a, b| a & b);
            binary("or.b", |a, b| a | b);
            binary("xor.b", |a, b| a ^ b);
            let unary = |name: &str, expected: fn($u) -> $u| {
                let [kind, bits] = [$kind, $bits];
                let text = format!("{name}{bits} %{kind}0, %{kind}1;");
                check(&text, &INTEGERS, |[a, ..]| expected(a as $u).into());
            };
            unary("not.b", |a| !a);
            unary("neg.s", |a| a.wrapping_neg());
            unary("abs.s", |a| (a as $s).wrapping_abs() as $u);
            let shift = |name: &str, expected: fn($u, u32) -> $u| {
                let [kind, bits] = [$kind, $bits];
                let text = format!("{name}{bits} %{kind}0, %{kind}1, %r2;");
                check(&text, &INTEGERS, |[a, b, ..]| expected(a as $u, b as u32).into());
            };
            shift("shl.b", |a, b| a.checked_shl(b).unwrap_or(0));
            shift("shr.u", |a, b| a.checked_shr(b).unwrap_or(0));
            shift("shr.s", |a, b| ((a as $s) >> b.min($u::BITS - 1)) as $u);
            let compare = |name: &str, expected: fn($u, $u) -> bool| {
                let [kind, bits] = [$kind, $bits];
                let text = format!("setp.{name}{bits} %p0, %{kind}1, %{kind}2;");
                check(&text, &INTEGERS, |[a, b, ..]| expected(a as $u, b as $u).into());
            };
            compare("eq.s", |a, b| a == b);
            compare("ne.b", |a, b| a != b);
            compare("lt.u", |a, b| a < b);
            compare("lt.s", |a, b| (a as $s) < b as $s);
            compare("le.s", |a, b| (a as $s) <= b as $s);
            compare("gt.s", |a, b| a as $s > b as $s);
            compare("ge.s", |a, b| a as $s >= b as $s);
            compare("lo.u", |a, b| a < b);
            compare("ls.u", |a, b| a <= b);
            compare("hi.u", |a, b| a > b);
            compare("hs.u", |a, b| a >= b);
            let [kind, bits] = [$kind, $bits];
            let text = format!("mad.lo.s{bits} %{kind}0, %{kind}1, %{kind}2, %{kind}3;");
            check(&text, &INTEGERS, |[a, b, c, _]| {
                (a as $u).wrapping_mul(b as $u).wrapping_add(c as $u).into()
            });
            let text = format!("selp.b{bits} %{kind}0, %{kind}1, %{kind}2, %p3;");
            check(&text, &INTEGERS, |[a, b, c, _]| if c as u32 == 0 { b } else { a });
        }
    };
}

integers!(integers_of_16_bits, u16, i16, u32, "h", "16");
integers!(integers_of_32_bits, u32, i32, u64, "r", "32");
integers!(integers_of_64_bits, u64, i64, u128, "d", "64");

#[test]
fn products_of_double_width() {
    check_all(
        &INTEGERS,
        &[
            ("mul.wide.u16 %r0, %h1, %h2;", |[a, b, ..]| u64::from(a as u16) * u64::from(b as u16)),
            ("mul.wide.s16 %r0, %h1, %h2;", |[a, b, ..]| {
                (i64::from(a as i16) * i64::from(b as i16)) as u64
            }),
            ("mul.wide.u32 %d0, %r1, %r2;", |[a, b, ..]| u64::from(a as u32) * u64::from(b as u32)),
            ("mul.wide.s32 %d0, %r1, %r2;", |[a, b, ..]| {
                (i64::from(a as i32) * i64::from(b as i32)) as u64
            }),
            ("mad.wide.s32 %d0, %r1, %r2, %d3;", |[a, b, c, _]| {
                ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c)
            }),
        ],
    );
}

#[test]
fn bits_and_fields() {
    check_all(
        &INTEGERS,
        &[
            ("popc.b32 %r0, %r1;", |[a, ..]| (a as u32).count_ones().into()),
            ("popc.b64 %r0, %d1;", |[a, ..]| a.count_ones().into()),
            ("clz.b32 %r0, %r1;", |[a, ..]| (a as u32).leading_zeros().into()),
            ("clz.b64 %r0, %d1;", |[a, ..]| a.leading_zeros().into()),
            ("brev.b32 %r0, %r1;", |[a, ..]| (a as u32).reverse_bits().into()),
            ("brev.b64 %d0, %d1;", |[a, ..]| a.reverse_bits()),
            ("bfe.u32 %r0, %r1, %r2, %r3;", |[a, b, c, _]| {
                let (position, length) = (b & 255, c & 255);
                let bits = u128::from(a as u32) >> position.min(64);
                (bits & ((1 << length.min(64)) - 1)) as u64
            }),
            ("bfe.u64 %d0, %d1, %r2, %r3;", |[a, b, c, _]| {
                let (position, length) = (b & 255, c & 255);
                ((u128::from(a) >> position.min(64)) & ((1 << length.min(64)) - 1)) as u64
            }),
            ("bfe.s32 %r0, %r1, %r2, %r3;", |[a, b, c, _]| {
                let (position, length) = (b & 255, c & 255);
                let bit = |bit: u64| (a as u32 >> bit.min(31)) & 1;
                let sign = if length == 0 { 0 } else { bit((position + length - 1).min(31)) };
                (0..32)
                    .map(|i| if i < length && position + i < 32 { bit(position + i) } else { sign } << i)
                    .sum::<u32>()
                    .into()
            }),
            ("bfi.b32 %r0, %r1, %r2, %r3, %r4;", |[a, b, c, d]| {
                let (position, length) = (c & 255, d & 255);
                let is_field = |i| i >= position && i - position < length;
                let bit = |i| if is_field(i) { a >> (i - position) & 1 } else { b >> i & 1 };
                (0..32).map(|i| bit(i) << i).sum()
            }),
            ("bfi.b64 %d0, %d1, %d2, %r3, %r4;", |[a, b, c, d]| {
                let (position, length) = (c & 255, d & 255);
                let is_field = |i| i >= position && i - position < length;
                let bit = |i| if is_field(i) { a >> (i - position) & 1 } else { b >> i & 1 };
                (0..64).map(|i| bit(i) << i).sum()
            }),
            ("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", |[a, b, c, _]| {
                let joined = u64::from(b as u32) << 32 | u64::from(a as u32);
                (joined << (c & 31)) >> 32
            }),
            ("shf.r.wrap.b32 %r0, %r1, %r2, %r3;", |[a, b, c, _]| {
                (u64::from(b as u32) << 32 | u64::from(a as u32)) >> (c & 31)
            }),
            ("{.reg .b32 %x; mov.b64 {%x, %r0}, %d1;}", |[a, ..]| a >> 32),
            ("mov.b64 %d0, {%r1, %r2};", |[a, b, ..]| u64::from(a as u32) | b << 32),
            ("mov.b32 {_, %h0}, %r1;", |[a, ..]| a as u32 as u64 >> 16),
        ],
    );
}

#[test]
fn predicates() {
    check_all(
        &INTEGERS,
        &[
            ("and.pred %p0, %p1, %p2;", |[a, b, ..]| u64::from(a as u32 != 0 && b as u32 != 0)),
            ("or.pred %p0, %p1, %p2;", |[a, b, ..]| u64::from(a as u32 != 0 || b as u32 != 0)),
            ("xor.pred %p0, %p1, %p2;", |[a, b, ..]| u64::from((a as u32 != 0) != (b as u32 != 0))),
            ("not.pred %p0, %p1;", |[a, ..]| u64::from(a as u32 == 0)),
            ("mov.u32 %r0, 5;\n@%p1 mov.u32 %r0, 6;", |[a, ..]| if a as u32 == 0 { 5 } else { 6 }),
            ("mov.u32 %r0, 5;\n@!%p1 mov.u32 %r0, 6;", |[a, ..]| if a as u32 == 0 { 6 } else { 5 }),
            ("mov.u32 %r0, 5;\n@%p1 bra L;\nmov.u32 %r0, 6;\nL:", |[a, ..]| {
                if a as u32 == 0 { 6 } else { 5 }
            }),
        ],
    );
}

#[test]
fn carries_make_long_integers() {
    let whole = |low: u64, high: u64| u128::from(low as u32) | u128::from(high as u32) << 32;
    let text = "add.cc.u32 %r5, %r1, %r2;\naddc.cc.u32 %r6, %r3, %r4;\naddc.u32 %r0, 0, 0;";
    check(text, &INTEGERS, |[a, b, c, d]| ((whole(a, c) + whole(b, d)) >> 64) as u64);
    let text = "sub.cc.u32 %r5, %r1, %r2;\nsubc.u32 %r0, %r3, %r4;";
    check(text, &INTEGERS, |[a, b, c, d]| (whole(a, c).wrapping_sub(whole(b, d)) >> 32) as u64);
    let text = "mad.lo.cc.u32 %r5, %r1, %r2, %r3;\nmadc.hi.u32 %r0, %r1, %r2, %r4;";
    check(text, &INTEGERS, |[a, b, c, d]| {
        let product = u64::from(a as u32) * u64::from(b as u32);
        product.wrapping_add(u64::from(c as u32) | d << 32) >> 32
    });
}
