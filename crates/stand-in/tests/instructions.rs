//! Instructions against Rust's own arithmetic, each on all pairs of telling values and on random ones.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "instructions take low bits, and conversions are what is tested"
)]

mod common;

use std::sync::LazyLock;

use common::{Memory, launch, line, p};
use half::f16;
use stand_in::ptx::Module;

/// Registers 1 to 4 of every kind have the operands, register 0 gets the result.
const KINDS: [(char, &str); 6] =
    [('h', "b16"), ('r', "b32"), ('d', "b64"), ('f', "f32"), ('g', "f64"), ('p', "pred")];

fn kernel(instructions: &str) -> String {
    let result = instructions.split('%').find_map(|rest| {
        let mut letters = rest.chars();
        let kind = letters.next()?;
        (letters.next() == Some('0')).then_some(kind)
    });
    let registers: String =
        KINDS.iter().map(|(kind, ty)| format!(".reg .{ty} %{kind}<9>;\n")).collect();
    let operands: String = (1..=4)
        .map(|i| {
            format!(
                "ld.global.u64 %d{i}, [%in+{}];\ncvt.u32.u64 %r{i}, %d{i};\ncvt.u16.u64 %h{i}, %d{i};\n\
                 mov.b32 %f{i}, %r{i};\nmov.b64 %g{i}, %d{i};\nsetp.ne.u64 %p{i}, %r{i}, 0;\n",
                8 * (i - 1)
            )
        })
        .collect();
    let store = match result {
        Some('h') => "st.global.b16 [%out], %h0;",
        Some('r') => "st.global.b32 [%out], %r0;",
        Some('d') => "st.global.b64 [%out], %d0;",
        Some('f') => "st.global.f32 [%out], %f0;",
        Some('g') => "st.global.f64 [%out], %g0;",
        Some('p') => "selp.b64 %d0, 1, 0, %p0;\nst.global.b64 [%out], %d0;",
        other => panic!("{other:?} in {instructions}"),
    };
    format!(
        ".version 8.0\n.target sm_60\n.address_size 64\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{registers}\
         .reg .b64 %in, %out;\n.reg .b32 %t;\nmov.u32 %t, %tid.x;\nld.param.u64 %in, [in];\n\
         ld.param.u64 %out, [out];\nmad.wide.u32 %in, %t, 32, %in;\nmad.wide.u32 %out, %t, 8, %out;\n\
         {operands}{instructions}\n{store}\nret;\n}}\n"
    )
}

type Operands = [u64; 4];

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// All pairs of the values, with further operands from among them.
fn pairs(values: &[u64]) -> Vec<Operands> {
    let mut state = 1;
    let mut all = Vec::new();
    for a in values {
        for b in values {
            let mut other = || values[random(&mut state) as usize % values.len()];
            all.push([*a, *b, other(), other()]);
        }
    }
    all
}

static INTEGERS: LazyLock<Vec<Operands>> = LazyLock::new(|| {
    let mut values = vec![0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256];
    for bits in [8, 16, 32, 64] {
        let highest = 1_u64 << (bits - 1);
        values.extend([highest - 1, highest, highest + 1, highest.wrapping_mul(2).wrapping_sub(1)]);
    }
    let mut all = pairs(&values);
    let mut state = 2;
    all.extend((0..400).map(|_| [0; 4].map(|_: u64| random(&mut state))));
    all
});

const FLOATS: [f32; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.3,
    -0.7,
    255.5,
    65504.0,
    70000.0,
    2147483648.0,
    -3e9,
    1e19,
    f32::MAX,
    f32::MIN_POSITIVE,
    1e-40,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

static SINGLES: LazyLock<Vec<Operands>> = LazyLock::new(|| {
    let mut all = pairs(&FLOATS.map(|value| value.to_bits().into()));
    let mut state = 3;
    let mut float = |_: u64| {
        let bits = random(&mut state) as u32;
        // Exponents near each other, so that sums are no copies.
        u64::from((bits & 0x807f_ffff) | (0x3c00_0000 + (bits >> 3 & 0x0780_0000)))
    };
    all.extend((0..600).map(|_| [0; 4].map(&mut float)));
    all
});

static DOUBLES: LazyLock<Vec<Operands>> = LazyLock::new(|| {
    let more = [1e-310, 1e300, -1e-300, 9.2e18, 4503599627370497.5];
    let values: Vec<u64> =
        FLOATS.iter().map(|value| f64::from(*value)).chain(more).map(f64::to_bits).collect();
    let mut all = pairs(&values);
    let mut state = 4;
    let mut float = |_: u64| {
        let bits = random(&mut state);
        (bits & 0x800f_ffff_ffff_ffff)
            | (0x3fc0_0000_0000_0000 + (bits >> 3 & 0x00f0_0000_0000_0000))
    };
    all.extend((0..600).map(|_| [0; 4].map(&mut float)));
    all
});

/// Runs the instructions on all operands and compares the low bits, as many as the result has; a NaN is a NaN.
fn check(instructions: &str, operands: &[Operands], expected: impl Fn(Operands) -> u64) {
    let text = kernel(instructions);
    let module = Module::parse(&text).unwrap_or_else(|log| panic!("{log}\n{text}"));
    for operands in operands.chunks(1024) {
        let memory = Memory::default();
        let (from, to) = (memory.upload(operands), memory.upload(&vec![0_u64; operands.len()]));
        let threads = u32::try_from(operands.len()).unwrap();
        launch(&module, "k", &line(1, threads), &[p(from), p(to)], &memory).unwrap();
        for (found, operands) in
            memory.download::<u64>(to, operands.len()).into_iter().zip(operands)
        {
            let expected = expected(*operands);
            let same = if instructions.contains("%f0") {
                same_float(
                    f32::from_bits(found as u32).into(),
                    f32::from_bits(expected as u32).into(),
                )
            } else if instructions.contains("%g0") {
                same_float(f64::from_bits(found), f64::from_bits(expected))
            } else {
                let bits = match instructions {
                    text if text.contains("%h0") => 16,
                    text if text.contains("%r0") => 32,
                    _ => 64,
                };
                (found ^ expected) << (64 - bits) == 0
            };
            assert!(same, "{instructions} of {operands:x?} is {found:#x}, not {expected:#x}");
        }
    }
}

fn same_float(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

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
            unary("cnot.b", |a| (a == 0).into());
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

/// The name of an instruction with its operands, and what it computes.
type Case = (&'static str, fn(Operands) -> u64);

fn check_all(operands: &[Operands], cases: &[Case]) {
    for (text, expected) in cases {
        check(text, operands, expected);
    }
}

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
            ("mad.hi.u32 %r0, %r1, %r2, %r3;", |[a, b, c, _]| {
                ((u64::from(a as u32) * u64::from(b as u32)) >> 32).wrapping_add(c)
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
            ("bfind.u32 %r0, %r1;", |[a, ..]| {
                (a as u32).checked_ilog2().unwrap_or(u32::MAX).into()
            }),
            ("bfind.u64 %r0, %d1;", |[a, ..]| a.checked_ilog2().unwrap_or(u32::MAX).into()),
            ("bfind.s32 %r0, %r1;", |[a, ..]| {
                let a = a as i32;
                (if a < 0 { !a } else { a }).checked_ilog2().unwrap_or(u32::MAX).into()
            }),
            ("bfind.shiftamt.u32 %r0, %r1;", |[a, ..]| {
                (a as u32).checked_ilog2().map_or(u32::MAX, |bit| 31 - bit).into()
            }),
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
            ("prmt.b32 %r0, %r1, %r2, 0x0145;", |[a, b, ..]| {
                let byte = |of: u64, i: u32| of >> (8 * i) & 255;
                byte(b, 1) | byte(b, 0) << 8 | byte(a, 1) << 16 | byte(a, 0) << 24
            }),
            ("prmt.b32 %r0, %r1, %r2, 0xB810;", |[a, ..]| {
                let sign = |i: u32| if a >> (8 * i + 7) & 1 == 1 { 255 } else { 0 };
                (a & 0xffff) | sign(0) << 16 | sign(3) << 24
            }),
            ("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", |[a, b, c, _]| {
                let joined = u64::from(b as u32) << 32 | u64::from(a as u32);
                (joined << (c & 31)) >> 32
            }),
            ("shf.r.wrap.b32 %r0, %r1, %r2, %r3;", |[a, b, c, _]| {
                (u64::from(b as u32) << 32 | u64::from(a as u32)) >> (c & 31)
            }),
            ("shf.r.clamp.b32 %r0, %r1, %r2, %r3;", |[a, b, c, _]| {
                (u64::from(b as u32) << 32 | u64::from(a as u32)) >> (c as u32).min(32)
            }),
            ("shf.l.clamp.b32 %r0, %r1, %r2, %r3;", |[a, b, c, _]| {
                ((u64::from(b as u32) << 32 | u64::from(a as u32)) << (c as u32).min(32)) >> 32
            }),
            ("slct.b32.s32 %r0, %r1, %r2, %r3;", |[a, b, c, _]| if c as i32 >= 0 { a } else { b }),
            ("{.reg .b32 %x; mov.b64 {%x, %r0}, %d1;}", |[a, ..]| a >> 32),
            ("mov.b64 %d0, {%r1, %r2};", |[a, b, ..]| u64::from(a as u32) | b << 32),
            ("mov.b32 {_, %h0}, %r1;", |[a, ..]| a as u32 as u64 >> 16),
            ("add.sat.s32 %r0, %r1, %r2;", |[a, b, ..]| {
                u64::from((a as i32).saturating_add(b as i32) as u32)
            }),
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
            ("setp.lt.and.s32 %p0, %r1, %r2, %p3;", |[a, b, c, _]| {
                u64::from((a as i32) < b as i32 && c as u32 != 0)
            }),
            ("setp.lt.or.s32 %p0, %r1, %r2, !%p3;", |[a, b, c, _]| {
                u64::from((a as i32) < (b as i32) || c as u32 == 0)
            }),
            ("setp.lt.and.s32 %p5|%p0, %r1, %r2, %p3;", |[a, b, c, _]| {
                u64::from(a as i32 >= b as i32 && c as u32 != 0)
            }),
            (
                "set.ge.u32.s32 %r0, %r1, %r2;",
                |[a, b, ..]| {
                    if a as i32 >= b as i32 { 0xffff_ffff } else { 0 }
                },
            ),
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
    let whole = |low: u64, high: u64| u128::from(low) | u128::from(high) << 64;
    let text = "add.cc.u64 %d5, %d1, %d2;\naddc.u64 %d0, %d3, %d4;";
    check(text, &INTEGERS, |[a, b, c, d]| (whole(a, c).wrapping_add(whole(b, d)) >> 64) as u64);
    let text = "sub.cc.u64 %d5, %d1, %d2;\nsubc.u64 %d0, %d3, %d4;";
    check(text, &INTEGERS, |[a, b, c, d]| (whole(a, c).wrapping_sub(whole(b, d)) >> 64) as u64);
    let text = "add.cc.u32 %r5, %r1, %r2;\naddc.cc.u32 %r6, %r3, %r4;\naddc.u32 %r0, 0, 0;";
    check(text, &INTEGERS, |[a, b, c, d]| {
        let whole = |low: u64, high: u64| u128::from(low as u32) | u128::from(high as u32) << 32;
        ((whole(a, c) + whole(b, d)) >> 64) as u64
    });
    let text = "mad.lo.cc.u32 %r5, %r1, %r2, %r3;\nmadc.hi.u32 %r0, %r1, %r2, %r4;";
    check(text, &INTEGERS, |[a, b, c, d]| {
        let product = u64::from(a as u32) * u64::from(b as u32);
        product.wrapping_add(u64::from(c as u32) | d << 32) >> 32
    });
}

macro_rules! floats {
    ($name:ident, $t:ident, $bits:ident, $kind:literal, $suffix:literal, $operands:ident) => {
        #[test]
        fn $name() {
            let binary = |name: &str, expected: fn($t, $t) -> $t| {
                let kind = $kind;
                let text = format!("{name}.{} %{kind}0, %{kind}1, %{kind}2;", $suffix);
                check(&text, &$operands, |[a, b, ..]| {
                    let [a, b] = [a, b].map(|bits| $t::from_bits(bits as $bits));
                    expected(a, b).to_bits().into()
                });
            };
            binary("add", |a, b| a + b);
            binary("add.rn", |a, b| a + b);
            binary("sub", |a, b| a - b);
            binary("mul.rn", |a, b| a * b);
            binary("div.rn", |a, b| a / b);
            binary("min", |a, b| match () {
                () if a.is_nan() => b,
                () if b.is_nan() => a,
                () if a == b => $t::from_bits(a.to_bits() | b.to_bits()),
                () => {
                    if a < b {
                        a
                    } else {
                        b
                    }
                }
            });
            binary("max", |a, b| match () {
                () if a.is_nan() => b,
                () if b.is_nan() => a,
                () if a == b => $t::from_bits(a.to_bits() & b.to_bits()),
                () => {
                    if a > b {
                        a
                    } else {
                        b
                    }
                }
            });
            binary("copysign", |a, b| b.copysign(a));
            let unary = |name: &str, expected: fn($t) -> $t| {
                let kind = $kind;
                let text = format!("{name}.{} %{kind}0, %{kind}1;", $suffix);
                check(&text, &$operands, |[a, ..]| {
                    expected($t::from_bits(a as $bits)).to_bits().into()
                });
            };
            unary("neg", |a| -a);
            unary("abs", |a| a.abs());
            unary("sqrt.rn", |a| a.sqrt());
            unary("rcp.rn", |a| 1.0 / a);
            let compare = |name: &str, expected: fn($t, $t) -> bool| {
                let text = format!("setp.{name}.{} %p0, %{}1, %{}2;", $suffix, $kind, $kind);
                check(&text, &$operands, |[a, b, ..]| {
                    let [a, b] = [a, b].map(|bits| $t::from_bits(bits as $bits));
                    expected(a, b).into()
                });
            };
            compare("eq", |a, b| a == b);
            compare("ne", |a, b| a != b && !a.is_nan() && !b.is_nan());
            compare("lt", |a, b| a < b);
            compare("le", |a, b| a <= b);
            compare("gt", |a, b| a > b);
            compare("ge", |a, b| a >= b);
            compare("equ", |a, b| a == b || a.is_nan() || b.is_nan());
            compare("neu", |a, b| a != b);
            compare("ltu", |a, b| a < b || a.is_nan() || b.is_nan());
            compare("leu", |a, b| a <= b || a.is_nan() || b.is_nan());
            compare("gtu", |a, b| a > b || a.is_nan() || b.is_nan());
            compare("geu", |a, b| a >= b || a.is_nan() || b.is_nan());
            compare("num", |a, b| !a.is_nan() && !b.is_nan());
            compare("nan", |a, b| a.is_nan() || b.is_nan());
            let kind = $kind;
            let text = format!("fma.rn.{} %{kind}0, %{kind}1, %{kind}2, %{kind}3;", $suffix);
            check(&text, &$operands, |[a, b, c, _]| {
                let [a, b, c] = [a, b, c].map(|bits| $t::from_bits(bits as $bits));
                a.mul_add(b, c).to_bits().into()
            });
        }
    };
}

floats!(floats_of_32_bits, f32, u32, "f", "f32", SINGLES);
floats!(floats_of_64_bits, f64, u64, "g", "f64", DOUBLES);

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

#[test]
fn modifiers_and_approximations_of_floats() {
    let flush = |value: f32| if value.is_subnormal() { 0_f32.copysign(value) } else { value };
    check("add.ftz.f32 %f0, %f1, %f2;", &SINGLES, |[a, b, ..]| {
        flush(flush(single(a)) + flush(single(b))).to_bits().into()
    });
    check("mul.sat.f32 %f0, %f1, %f2;", &SINGLES, |[a, b, ..]| {
        let product = single(a) * single(b);
        (if product > 0.0 { product.min(1.0) } else { 0.0 }).to_bits().into()
    });
    check("min.NaN.f32 %f0, %f1, %f2;", &SINGLES, |[a, b, ..]| {
        let (a, b) = (single(a), single(b));
        let least = if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { a.min(b) };
        (if a.is_nan() || b.is_nan() { f32::NAN } else { least }).to_bits().into()
    });
    let functions: [(&str, fn(f32) -> f32); 6] = [
        ("sin.approx.f32", f32::sin),
        ("cos.approx.f32", f32::cos),
        ("ex2.approx.f32", f32::exp2),
        ("lg2.approx.f32", f32::log2),
        ("rsqrt.approx.f32", |a| 1.0 / a.sqrt()),
        ("tanh.approx.f32", f32::tanh),
    ];
    for (name, function) in functions {
        let text = format!("{name} %f0, %f1;");
        check(&text, &SINGLES, |[a, ..]| function(single(a)).to_bits().into());
    }
}

/// Numbers with few bits, whose sums and products doubles hold exactly.
fn is_simple(values: &[f32]) -> bool {
    values
        .iter()
        .all(|value| value.is_finite() && (*value == 0.0 || (1e-6..1e6).contains(&value.abs())))
}

/// The exact value rounded in a direction: `z`, `m` or `p`.
fn toward(exact: f64, direction: char) -> f32 {
    let nearest = exact as f32;
    let below = if f64::from(nearest) > exact { nearest.next_down() } else { nearest };
    let above = if f64::from(nearest) < exact { nearest.next_up() } else { nearest };
    match direction {
        'm' => below,
        'p' => above,
        _ => {
            if exact > 0.0 {
                below
            } else {
                above
            }
        }
    }
}

#[test]
fn directed_rounding_of_singles_is_exact() {
    let simple: Vec<Operands> = SINGLES
        .iter()
        .filter(|operands| is_simple(&operands.map(single)) && single(operands[1]) != 0.0)
        .copied()
        .collect();
    assert!(simple.len() > 600);
    for direction in ['z', 'm', 'p'] {
        let cases: [(&str, fn(f64, f64) -> f64); 2] =
            [("add", |a, b| a + b), ("mul", |a, b| a * b)];
        for (name, exact) in cases {
            let text = format!("{name}.r{direction}.f32 %f0, %f1, %f2;");
            let nonzero = |operands: &&Operands| {
                exact(single(operands[0]).into(), single(operands[1]).into()) != 0.0
            };
            let operands: Vec<Operands> = simple.iter().filter(nonzero).copied().collect();
            check(&text, &operands, |[a, b, ..]| {
                toward(exact(single(a).into(), single(b).into()), direction).to_bits().into()
            });
        }
        // Of these a double tells at least on which side the exact result is.
        check(&format!("div.r{direction}.f32 %f0, %f1, %f2;"), &simple, |[a, b, ..]| {
            let exact = f64::from(single(a)) / f64::from(single(b));
            toward(exact, direction).to_bits().into()
        });
        let positive: Vec<Operands> =
            simple.iter().filter(|operands| single(operands[0]) > 0.0).copied().collect();
        check(&format!("sqrt.r{direction}.f32 %f0, %f1;"), &positive, |[a, ..]| {
            toward(f64::from(single(a)).sqrt(), direction).to_bits().into()
        });
    }
}

#[test]
fn directed_rounding_of_fused_products_brackets_the_exact_result() {
    for (kind, ty, operands) in [("f", "f32", &*SINGLES), ("g", "f64", &*DOUBLES)] {
        let random = &operands[operands.len() - 600..];
        for operation in ["fma", "add", "mul"] {
            let arity = if operation == "fma" { 3 } else { 2 };
            let sources: String = (1..=arity).map(|i| format!(", %{kind}{i}")).collect();
            // Down and up differ by one step or not at all, and the nearest result and the one toward zero are among them.
            let down = format!("{operation}.rm.{ty} %{kind}5{sources};\n");
            let up = format!("{operation}.rp.{ty} %{kind}6{sources};\n");
            let near = format!("{operation}.rn.{ty} %{kind}7{sources};\n");
            let zero = format!("{operation}.rz.{ty} %{kind}8{sources};\n");
            let bits = &ty[1..];
            let integers = if ty == "f32" { "r" } else { "d" };
            let compare = format!(
                "setp.gt.{ty} %p5, %{kind}5, %{kind}6;\n\
                 setp.lt.or.{ty} %p5, %{kind}7, %{kind}5, %p5;\n\
                 setp.gt.or.{ty} %p5, %{kind}7, %{kind}6, %p5;\n\
                 setp.lt.or.{ty} %p5, %{kind}8, %{kind}5, %p5;\n\
                 setp.gt.or.{ty} %p5, %{kind}8, %{kind}6, %p5;\n\
                 mov.b{bits} %{integers}5, %{kind}5;\nmov.b{bits} %{integers}6, %{kind}6;\n\
                 sub.s{bits} %{integers}5, %{integers}6, %{integers}5;\n\
                 abs.s{bits} %{integers}5, %{integers}5;\n\
                 setp.gt.or.s{bits} %p0, %{integers}5, 1, %p5;"
            );
            check(&[down, up, near, zero, compare].concat(), random, |_| 0);
        }
    }
}

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
            ("cvt.sat.u8.s32 %r0, %r1;", |[a, ..]| (a as i32).clamp(0, 255) as u64),
            ("cvt.sat.s8.s64 %r0, %d1;", |[a, ..]| (a as i64).clamp(-128, 127) as u64),
            ("cvt.sat.s32.u64 %r0, %d1;", |[a, ..]| a.min(i32::MAX as u64)),
            ("cvt.rn.f32.s32 %f0, %r1;", |[a, ..]| (a as i32 as f32).to_bits().into()),
            ("cvt.rn.f32.u64 %f0, %d1;", |[a, ..]| (a as f32).to_bits().into()),
            ("cvt.rn.f64.s64 %g0, %d1;", |[a, ..]| (a as i64 as f64).to_bits()),
            ("cvt.rn.f64.u16 %g0, %h1;", |[a, ..]| f64::from(a as u16).to_bits()),
            ("cvt.rz.f32.u32 %f0, %r1;", |[a, ..]| {
                toward(f64::from(a as u32), 'z').to_bits().into()
            }),
            ("cvt.rp.f32.s32 %f0, %r1;", |[a, ..]| {
                toward(f64::from(a as i32), 'p').to_bits().into()
            }),
        ],
    );
}

#[test]
fn conversions_of_floats() {
    let double = f64::from_bits;
    check("cvt.f64.f32 %g0, %f1;", &SINGLES, |[a, ..]| f64::from(single(a)).to_bits());
    check("cvt.rn.f32.f64 %f0, %g1;", &DOUBLES, |[a, ..]| (double(a) as f32).to_bits().into());
    check("cvt.rm.f32.f64 %f0, %g1;", &DOUBLES, |[a, ..]| {
        let near = double(a) as f32;
        (if f64::from(near) > double(a) { near.next_down() } else { near }).to_bits().into()
    });
    check("cvt.rn.f16.f32 %h0, %f1;", &SINGLES, |[a, ..]| {
        f16::from_f32(single(a)).to_bits().into()
    });
    check("cvt.f32.f16 %f0, %h1;", &INTEGERS, |[a, ..]| {
        f16::from_bits(a as u16).to_f32().to_bits().into()
    });
    check("cvt.sat.f32.f32 %f0, %f1;", &SINGLES, |[a, ..]| {
        (if single(a) > 0.0 { single(a).min(1.0) } else { 0.0 }).to_bits().into()
    });
    let integral: [(&str, fn(f64) -> f64); 4] = [
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

#[test]
fn what_is_unknown_is_refused_with_its_line() {
    let refused = |instructions: &str| Module::parse(&kernel(instructions)).unwrap_err();
    for (instructions, reason) in [
        ("frobnicate.b32 %r0, %r1;", "unknown instruction"),
        ("add.rq.f32 %f0, %f1, %f2;", "unknown modifier `.rq`"),
        ("add.s32 %r0, %r1;", "2 operands instead of 3"),
        ("add.s32 %r0, %r1, %r9;", "`%r9` is not declared"),
        ("mul.wide.u64 %d0, %d1, %d2;", "unknown for this type"),
        ("@%p1 bra NOWHERE;\nmov.u32 %r0, 0;", "label `NOWHERE` is nowhere"),
        ("L: mov.u32 %r0, 0;\nL: ret;", "label `L` twice"),
        ("call (%r0), f, ();", "`f` is no function"),
        ("mov.u32 %r0 5;", "`5` instead of `,`"),
        ("ld.global.v2.u64 %d0, [%d1];", "for 2"),
    ] {
        let log = refused(instructions);
        assert!(log.starts_with("line ") && log.contains(reason), "{instructions}: {log}");
    }
    let text = kernel("mov.u32 %r0, 0;\nnonsense;");
    let line = 1 + text.lines().position(|line| line == "nonsense;").unwrap();
    assert!(Module::parse(&text).unwrap_err().starts_with(&format!("line {line}: nonsense")));
    for (text, reason) in [
        ("", "line 1: the end of the text instead of a `.version`"),
        (".version 8.0\n.target sm_x\n", "line 2: `sm_x`"),
        (".version 8.0\n.target sm_60\n.address_size 32\n", "line 3: addresses of 32 bits"),
        (".version 8.0\n.target sm_60\n#\n", "line 3: unexpected character '#'"),
        (".version 8.0\n.target sm_60\n.visible .entry k()\n{\n", "the end of the text"),
    ] {
        let log = Module::parse(text).unwrap_err();
        assert!(log.contains(reason), "{text:?}: {log}");
    }
}
