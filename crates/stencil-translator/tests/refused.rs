//! Programs that are refused, with the place and the text of each error. `UPDATE_GOLDEN=1` rewrites the errors.
#![cfg(test)]

use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use stencil_translator::{Module, Stencil};

/// The errors of a program, with line and column.
fn errors(program: &str) -> Vec<String> {
    let tokens = program.parse().expect("tokens");
    let result = if program.trim_start().starts_with("mod") {
        Module::parse(tokens).map(|_| ())
    } else {
        Stencil::parse(tokens).map(|_| ())
    };
    let errors = result.err();
    let each = errors.iter().flat_map(|errors| errors.iter());
    each.map(|error| {
        let start = error.span().start();
        format!("{}:{}: {error}", start.line, start.column + 1)
    })
    .collect()
}

#[test]
fn refused_programs_have_their_errors_at_their_places() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused.txt");
    let stored = fs::read_to_string(&path).unwrap();
    let mut found = Vec::new();
    for case in stored.split("\n----\n") {
        let (program, _) = case.split_once("\n=>").unwrap_or((case, ""));
        let program = program.trim_end();
        let errors = errors(program);
        assert!(!errors.is_empty(), "this is not refused:\n{program}");
        found.push(format!("{program}\n=> {}", errors.join("\n=> ")));
    }
    assert!(found.len() >= 40, "{} programs", found.len());
    let found = found.join("\n----\n") + "\n";
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &found).unwrap();
    } else {
        for (found, stored) in found.split("\n----\n").zip(stored.split("\n----\n")) {
            assert_eq!(found, stored);
        }
    }
}

#[test]
fn hostile_sizes_are_refused_quickly() {
    let body = |value: &str| format!("fn f(o: Out<i32, 1>, a: i32) {{ {value} }}");
    let set = |value: &str| body(&format!("o.set({value});"));
    let many = |text: &str, count| text.repeat(count);
    let cases = [
        (set(&format!("{}1{}", many("(", 3000), many(")", 3000))), "nested"),
        (set(&format!("{}a", many("- ", 3000))), "signs"),
        (set(&format!("1{}", many(" + a", 9000))), "statement"),
        (set(&format!("1{}", many(" + a", 400))), "nested"),
        (set(&format!("{}a{}", many("(", 40), many(&(many(" + a", 20) + ")"), 40))), "nested"),
        (set(&format!("a{}", many(".abs()", 4000))), "statement"),
        (set(&format!("a{}", many(".abs()", 300))), "nested"),
        (set(&format!("1{}", many(" + a", 60000))), "statement"),
        (body(&many("let x = 1;", 6000)), "tokens"),
        (
            body(&format!("{} {{ o.set(1); }}", many("if a == 1 { o.set(1); } else ", 1200))),
            "nested",
        ),
        (
            body(&format!("{} {{ o.set(1); }}", many("if a == 1 { o.set(1); } else ", 120))),
            "nested",
        ),
        (set(&format!("a{}", many(" as i32", 5000))), "statement"),
        (set(&format!("a{}", many(" as i32", 450))), "nested"),
        (body("for i in 0..1000000000000 { }"), "operations"),
        (body("for i in -9223372036854775808..=9223372036854775807 { o.set(1); }"), "operations"),
        (body("for i in 0..9999 { for j in 0..9999 { let x = 1; } }"), "operations"),
    ];
    for (program, word) in cases {
        let errors = errors(&program);
        assert!(
            errors.iter().any(|error| error.contains(word)),
            "{:?} of {}",
            errors,
            &program[..80]
        );
    }
    let mut doubling = String::from("#[stencil_fn] fn f0(a: i32) -> i32 { a }");
    for n in 1..60 {
        let m = n - 1;
        doubling += &format!("#[stencil_fn] fn f{n}(a: i32) -> i32 {{ f{m}(a) + f{m}(a) }}");
    }
    let doubling = doubling + "#[stencil] fn f(o: Out<i32, 1>, a: i32) { o.set(f59(a)); }";
    assert!(errors(&doubling)[0].contains("operations"), "{:?}", errors(&doubling));
    let mut chain = String::from("#[stencil_fn] fn f0(a: i32) -> i32 { a }");
    for n in 1..600 {
        chain += &format!("#[stencil_fn] fn f{n}(a: i32) -> i32 {{ f{}(a) }}", n - 1);
    }
    let chain = chain + "#[stencil] fn f(o: Out<i32, 1>, a: i32) { o.set(f599(a)); }";
    assert!(errors(&chain)[0].contains("nested"), "{:?}", errors(&chain));
}

#[test]
fn long_tables_and_many_errors_are_translated_within_two_seconds() {
    let sum = |terms: Vec<String>| terms.join("+");
    let wide = sum(vec![format!("({})", sum(vec!["1.0".into(); 22])); 18]);
    let tables = (0..20).map(|n| format!("const A{n}: [f64; 4096] = [{wide}; 4096];"));
    let unknown = sum((0..90).map(|n| format!("b{n}")).collect());
    let sources = [
        (format!("fn f(o: Out<f64, 1>) {{ {} o.set(1.0); }}", "a; ".repeat(9900)), 9900),
        (format!("fn f(o: Out<f64, 1>) {{ o.set(1.0); }} {}", tables.collect::<String>()), 0),
        (
            format!(
                "fn f(o: Out<f64, 1>) {{ const A: [f64; 4096] = [{unknown}; 4096]; o.set(A[0]); }}"
            ),
            90,
        ),
    ];
    for (source, expected) in sources {
        let tokens = source.parse().unwrap();
        let start = Instant::now();
        let errors = Stencil::parse(tokens).err();
        let taken = start.elapsed();
        assert!(taken < Duration::from_secs(2), "{taken:?} for {}", &source[..80]);
        assert_eq!(errors.map_or(0, |errors| errors.iter().count()), expected);
    }
}

#[test]
fn errors_become_compile_errors() {
    let errors =
        Stencil::parse("fn f(o: Out<f64, 1>) { o.set(1); while true {} }".parse().unwrap())
            .unwrap_err();
    let tokens = errors.to_compile_error().to_string();
    assert_eq!(tokens.matches("compile_error").count(), 2, "{tokens}");
}
