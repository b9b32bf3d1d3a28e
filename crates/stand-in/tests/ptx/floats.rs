//! Floats and directions of rounding.
#![expect(clippy::cast_possible_truncation, reason = "instructions take low bits")]

use crate::harness::{DOUBLES, Function, Operands, SINGLES, check, single, toward};

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
    let functions: [Function<f32>; 5] = [
        ("sin.approx.f32", f32::sin),
        ("cos.approx.f32", f32::cos),
        ("ex2.approx.f32", f32::exp2),
        ("lg2.approx.f32", f32::log2),
        ("rsqrt.approx.f32", |a| 1.0 / a.sqrt()),
    ];
    for (name, function) in functions {
        let text = format!("{name} %f0, %f1;");
        check(&text, &SINGLES, |[a, ..]| function(single(a)).to_bits().into());
    }
}

/// A product with zero, or a sum with a product by one, is exact in a double: its rounding is known.
#[test]
fn fused_products_are_rounded_in_every_direction() {
    let finite = |operands: &&Operands| operands[..2].iter().all(|bits| single(*bits).is_finite());
    let operands: Vec<Operands> = SINGLES.iter().filter(finite).copied().collect();
    for direction in ['z', 'm', 'p'] {
        let round = |exact: f64| u64::from(toward(exact, direction).to_bits());
        let nonzero = |exact: fn(f32, f32) -> f64| -> Vec<Operands> {
            let is_exact = |[a, b, ..]: &&Operands| exact(single(*a), single(*b)) != 0.0;
            operands.iter().filter(is_exact).copied().collect()
        };
        let product = |a: f32, b: f32| f64::from(a) * f64::from(b);
        let text = format!("fma.r{direction}.f32 %f0, %f1, %f2, 0f00000000;");
        check(&text, &nonzero(product), |[a, b, ..]| round(product(single(a), single(b))));
        // The exponents of random operands differ by less than 29.
        let sum = |a: f32, b: f32| f64::from(a) + f64::from(b);
        let random = nonzero(sum);
        let text = format!("fma.r{direction}.f32 %f0, %f1, 0f3f800000, %f2;");
        check(&text, &random[random.len() - 500..], |[a, b, ..]| round(sum(single(a), single(b))));
    }
}

#[test]
fn directed_rounding_stops_at_the_largest_number_and_keeps_infinity() {
    let operands = |a: f32| [a.to_bits().into(), 2_f32.to_bits().into(), 0, 0];
    let (most, infinite) = (f32::MAX, f32::INFINITY);
    for (direction, above, below) in
        [("z", most, -most), ("m", most, -infinite), ("p", infinite, -most)]
    {
        let text = format!("fma.r{direction}.f32 %f0, %f1, %f2, 0f00000000;");
        check(&text, &[operands(most)], |_| above.to_bits().into());
        check(&text, &[operands(-most)], |_| below.to_bits().into());
        check(&text, &[operands(infinite)], |_| infinite.to_bits().into());
    }
}
