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
    let functions: [Function<f32>; 6] = [
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

/// The name of an operation, and its result without rounding.
type Exact = (&'static str, fn(f64, f64) -> f64);

/// Numbers with few bits, whose sums and products doubles hold exactly.
fn is_simple(values: &[f32]) -> bool {
    values
        .iter()
        .all(|value| value.is_finite() && (*value == 0.0 || (1e-6..1e6).contains(&value.abs())))
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
        let cases: [Exact; 2] = [("add", |a, b| a + b), ("mul", |a, b| a * b)];
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
fn directed_rounding_goes_no_further_than_it_should() {
    let pair = |a: f32, b: f32| [a.to_bits().into(), b.to_bits().into(), 0, 0];
    let most = f32::MAX;
    for (name, a, b) in [("add", most, most), ("mul", most, 2.0), ("div", most, 0.5)] {
        for (direction, above, below) in
            [("z", most, -most), ("m", most, f32::NEG_INFINITY), ("p", f32::INFINITY, -most)]
        {
            let text = format!("{name}.r{direction}.f32 %f0, %f1, %f2;");
            check(&text, &[pair(a, b)], |_| above.to_bits().into());
            let negative = if name == "add" { pair(-a, -b) } else { pair(-a, b) };
            check(&text, &[negative], |_| below.to_bits().into());
        }
    }
    for direction in ["z", "m", "p"] {
        let text = format!("add.r{direction}.f32 %f0, %f1, %f2;");
        check(&text, &[pair(f32::INFINITY, 1.0)], |_| f32::INFINITY.to_bits().into());
        let zero = if direction == "m" { -0.0_f32 } else { 0.0 };
        check(&text, &[pair(1.5, -1.5)], |_| zero.to_bits().into());
        let text = format!("div.r{direction}.f32 %f0, %f1, %f2;");
        check(&text, &[pair(1.0, 0.0)], |_| f32::INFINITY.to_bits().into());
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
