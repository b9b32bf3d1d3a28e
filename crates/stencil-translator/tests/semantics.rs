//! What operations mean, by the interpreter. The differential tests show that C and Rust agree with it.
#![cfg(test)]

use stencil_translator::{Dialect, Intent, Point, Reduction, Stencil, Value};

/// The value that a stencil sets at place 3 of 7. An input is 100 there, and one more at each place after it.
fn set(text: &str, scalars: &[Value]) -> Value {
    let stencil = Stencil::parse(text.parse().unwrap()).unwrap_or_else(|errors| panic!("{errors}"));
    let read = |_: usize, offset: &[i64]| Value::I64(100 + offset[0]);
    let point = Point { read: &read, scalars, index: &[3], extent: &[7], ends: [false; 2] };
    stencil.interpret(&point).unwrap()[0].unwrap()
}

fn floats(body: &str, a: f64, b: f64) -> f64 {
    let text = format!("fn f(o: Out<f64, 1>, a: f64, b: f64) {{ o.set({body}); }}");
    match set(&text, &[Value::F64(a), Value::F64(b)]) {
        Value::F64(value) => value,
        other => panic!("{other:?}"),
    }
}

fn integers(body: &str, a: i32) -> Value {
    set(&format!("fn f(o: Out<i32, 1>, a: i32) {{ o.set({body}); }}"), &[Value::I32(a)])
}

#[test]
fn min_and_max_are_their_second_operand_unless_the_first_is_beyond_it() {
    for method in ["a.min(b)", "a.max(b)"] {
        assert!(floats(method, 1.0, f64::NAN).is_nan());
        assert_eq!(floats(method, f64::NAN, 1.0), 1.0);
        assert!(floats(method, -0.0, 0.0).is_sign_positive());
        assert!(floats(method, 0.0, -0.0).is_sign_negative());
    }
    assert_eq!((floats("a.min(b)", 1.0, 2.0), floats("a.max(b)", 1.0, 2.0)), (1.0, 2.0));
}

#[test]
fn integers_wrap() {
    assert_eq!(integers("a + 1", i32::MAX), Value::I32(i32::MIN));
    assert_eq!(integers("a * 3", i32::MAX), Value::I32(i32::MAX.wrapping_mul(3)));
    assert_eq!(integers("-a", i32::MIN), Value::I32(i32::MIN));
    assert_eq!(integers("a.abs()", i32::MIN), Value::I32(i32::MIN));
    assert_eq!(integers("a / -1", i32::MIN), Value::I32(i32::MIN));
    assert_eq!(integers("a % -1", i32::MIN), Value::I32(0));
    assert_eq!(integers("a / -3", -7), Value::I32(2));
    assert_eq!(integers("a % -3", -7), Value::I32(-1));
}

#[test]
fn a_loop_variable_has_the_type_of_its_other_uses() {
    for (header, used) in [
        ("k in 0..N", ""),
        ("k in 0..3", "s += (t.at(k) - t.at(k)) as f64;"),
        ("k in 0..3_i64", ""),
    ] {
        let text = format!(
            "fn f(o: Out<f64, 1>, t: In<i64, 1>) {{ const N: i64 = 3; let mut s = 0.0; \
            for {header} {{ {used} s += (k * 2000000000) as f64; }} o.set(s); }}"
        );
        assert_eq!(set(&text, &[]), Value::F64(6e9), "{header} {used}");
    }
    let text = "fn f(o: Out<f64, 1>) { let mut s = 0.0; \
        for k in 0..3 { s += (k * 2000000000) as f64; } o.set(s); }";
    assert_eq!(set(text, &[]), Value::F64(f64::from(2_000_000_000 + 4_000_000_000_u32 as i32)));
}

#[test]
fn casts_from_floats_saturate() {
    let cast =
        |value| set("fn f(o: Out<u32, 1>, a: f64) { o.set(a as u32); }", &[Value::F64(value)]);
    assert_eq!([-1.0, f64::NAN, 1e10, 3.9].map(cast), [0, 0, u32::MAX, 3].map(Value::U32));
}

#[test]
fn an_update_in_place_reads_the_value_from_before() {
    let text = "fn f(o: InOut<i64, 1>, p: Out<i64, 1>) { o.set(2 * o.at(0)); p.set(o.at(0)); }";
    let stencil = Stencil::parse(text.parse().unwrap()).unwrap();
    let point = Point {
        read: &|_, _| Value::I64(5),
        scalars: &[],
        index: &[0],
        extent: &[1],
        ends: [false; 2],
    };
    assert_eq!(stencil.interpret(&point).unwrap(), [10, 5].map(|value| Some(Value::I64(value))));
}

#[test]
fn a_column_reads_its_value_from_before_and_what_it_has_set_at_the_previous_point() {
    let text = "#[column(forward)] fn f(o: InOut<i64, 2>) {
        if first() { o.set(o.at(0, 0)); } else { o.set(2 * o.at(-1, 0) + o.at(0, 0)); }
    }";
    let stencil = Stencil::parse(text.parse().unwrap()).unwrap();
    let read = |_: usize, offset: &[i64]| Value::I64(if offset == [-1, 0] { 100 } else { 7 });
    let set = |ends| {
        let point = Point { read: &read, scalars: &[], index: &[0; 2], extent: &[4; 2], ends };
        stencil.interpret(&point).unwrap()[0].unwrap()
    };
    assert_eq!([set([true, false]), set([false, true])], [7, 207].map(Value::I64));
}

#[test]
fn what_an_end_decides_is_not_translated() {
    // Each of these would be refused at the first point otherwise, where there is no previous one.
    for condition in [
        "!first() && o.at(-1) > 1",
        "!(first() || o.at(-1) > 1)",
        "if first() { false } else { o.at(-1) > 1 }",
        "{ let is_first = first(); !first() && o.at(-1) > 1 && !is_first }",
    ] {
        let text = format!(
            "#[column(forward)] fn f(o: Out<i64, 1>) {{ if {condition} {{ o.set(2); }} else {{ o.set(1); }} }}"
        );
        let stencil = Stencil::parse(text.parse().unwrap()).unwrap();
        let point = Point {
            read: &|_, _| panic!("nothing is read"),
            scalars: &[],
            index: &[0],
            extent: &[1],
            ends: [true; 2],
        };
        assert_eq!(stencil.interpret(&point), Some(vec![Some(Value::I64(1))]), "{condition}");
    }
}

#[test]
fn places_and_offsets_are_those_of_the_point() {
    let text = "fn f(o: Out<i64, 1>, t: In<i64, 1>) { o.set(t.at(-2) * 100 + index(0) * 10 + extent(0)); }";
    assert_eq!(set(text, &[]), Value::I64(9800 + 37));
}

#[test]
fn a_point_of_another_stencil_gives_nothing() {
    let stencil =
        Stencil::parse("fn f(o: Out<f64, 1>, a: f64) { o.set(a); }".parse().unwrap()).unwrap();
    let point = |scalars| Point {
        read: &|_, _| Value::F64(0.0),
        scalars,
        index: &[0],
        extent: &[1],
        ends: [false; 2],
    };
    assert!(stencil.interpret(&point(&[])).is_none());
    assert!(stencil.interpret(&point(&[Value::F32(1.0)])).is_none());
    assert!(stencil.interpret(&point(&[Value::F64(1.0)])).is_some());
}

#[test]
fn a_literal_without_a_use_is_an_i32_or_the_float_that_occurs() {
    let wraps = "fn f(o: Out<i64, 1>) { o.set((2147483647 + 1) as i64); }";
    assert_eq!(set(wraps, &[]), Value::I64(i32::MIN.into()));
    let rounds = "fn f(o: Out<i64, 1>, a: f32) { let b = 16777217.0; o.set(b as i64); }";
    assert_eq!(set(rounds, &[Value::F32(0.0)]), Value::I64(16_777_216));
    let exact = "fn f(o: Out<i64, 1>) { let b = 16777217.0; o.set(b as i64); }";
    assert_eq!(set(exact, &[]), Value::I64(16_777_217));
}

#[test]
fn an_empty_statement_does_nothing() {
    let text = "fn f(o: Out<i32, 1>) { ; let a = { ; 1 };; if a == 1 { ; o.set(2); ; }; }";
    let text = text.replace("; }; }", "} else { o.set(3); }; }");
    assert_eq!(set(&text, &[]), Value::I32(2));
}

#[test]
fn a_constant_holds_in_its_block_and_before_parameters_and_variables_outside() {
    let text = "const A: i32 = 1; fn f(o: Out<i32, 1>, b: i32) {
        const b: i32 = 10;
        let c = 5;
        let mut sum = A;
        for k in 0..2 { const k: i32 = 100; sum += k; }
        { const A: i32 = 1000; const c: i32 = 10000; sum += A + c; }
        o.set(sum + b + c);
    }";
    assert_eq!(set(text, &[Value::I32(0)]), Value::I32(1 + 200 + 1000 + 10000 + 10 + 5));
}

#[test]
fn a_helper_passes_inexact_functions_into_inexact_stencils_alone() {
    let helper = "#[stencil_fn] fn g(a: f64) -> f64 { a.exp() }";
    let stencil = "(o: Out<f64, 1>, a: f64) { o.set(g(a)); }";
    assert_eq!(
        set(&format!("{helper} #[stencil(inexact)] fn f{stencil}"), &[Value::F64(0.0)]),
        Value::F64(1.0)
    );
    let refused = Stencil::parse(format!("{helper} #[stencil] fn f{stencil}").parse().unwrap());
    assert!(refused.unwrap_err().to_string().starts_with("`g` computes `exp`"));
}

#[test]
fn no_local_of_c_has_the_name_of_a_function() {
    for name in ["v0", "v1", "p", "at", "out", "i0", "to", "to_p"] {
        let mut variable = "i32_from_f64";
        for other in ["f_i32_from_f64", "v0_i32_from_f64", "kernel", "args"] {
            let text = format!(
                "fn {name}({variable}: Out<i32, 1>, {other}: In<f64, 1>, x: f64) {{
                    let a = {other}.at(0);
                    {{ let {variable} = a; let {other} = x; let b = {variable} + {other}; }}
                    {variable}.set(a as i32);
                }}"
            );
            let stencil = Stencil::parse(text.parse().unwrap()).unwrap();
            for dialect in Dialect::ALL {
                let source = stencil.source(dialect);
                let (helper, _) = source.split_once("(double x)").unwrap();
                let helper = helper.rsplit(' ').next().unwrap();
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                for (place, _) in source.match_indices(helper) {
                    let after = &source[place + helper.len()..];
                    let is_whole =
                        !source[..place].ends_with(is_name) && !after.starts_with(is_name);
                    assert!(!is_whole || after.starts_with('('), "{source}");
                }
            }
            variable = other;
        }
    }
}

#[test]
fn a_reduction_sets_a_last_field_that_the_source_does_not_have() {
    let text = "#[reduction(max, inexact)] fn f(value: In<f32, 2>, a: f32) -> f32 {
        let mut b = value.at(0, 1).exp(); b *= a; b }";
    let stencil = Stencil::parse(text.parse().unwrap()).unwrap();
    assert_eq!(stencil.reduction(), Some(Reduction::Max));
    assert!(stencil.is_inexact());
    let fields = stencil.fields().iter().map(|field| (field.name(), field.intent()));
    assert!(fields.eq([("value", Intent::In), ("value_", Intent::Out)]));
    let read = |_: usize, offset: &[i64]| Value::F32(offset[1] as f32 - 1.0);
    let point = Point {
        read: &read,
        scalars: &[Value::F32(2.5)],
        index: &[0, 0],
        extent: &[4, 4],
        ends: [false; 2],
    };
    assert_eq!(stencil.interpret(&point), Some(vec![None, Some(Value::F32(2.5))]));
}
