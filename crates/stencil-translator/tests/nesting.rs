//! Nested sources are translated or refused on a thread of 2 MiB, the stack of a test. A compiler has more.
#![cfg(test)]

use std::{env, thread};

use stencil_translator::{Module, Stencil};

/// What nests in an expression.
const EXPRESSIONS: &[&str] = &[
    "(",
    "[",
    "{",
    "a(",
    "a.b(",
    "S { a: ",
    "a[",
    "if a {",
    "if a { 1 } else {",
    "match a { b => ",
    "|a,b|",
    "|a, b| ",
    "|a| ",
    "||",
    "|a: A<B, ",
    "|a| -> A<B, ",
    "move |a, b| ",
    "static || ",
    "async |a| ",
    "for<'a, 'b> |a, b| ",
    "{} |a, b| ",
    "a::<b, ",
    "a::<",
    "<a<b, ",
    "<A as B<",
    "- ",
    "! ",
    "&",
    "&mut ",
    "&raw const ",
    "*",
    "-!",
    "- #[a] ",
    "#[a] - #[b] ",
    "-(",
    "-!&*(",
    "-!-!-!-!-!a(",
    "-!-!-!-!-!{}.a(",
    "-!-!-!-!-!a.b[",
    "-!-!-!-!-!-!-!-!a::<B<C>>(",
    "a as &&&&&&&&&&&&&&B<",
    "&&&&&&&&(",
    "return ",
    "break ",
    "break 'a ",
    "continue ",
    "'a: {",
    "'a: loop {",
    "yield ",
    "if ",
    "if a {} else ",
    "if let a = ",
    "let a = ",
    "let A<B, ",
    "match ",
    "while ",
    "while let a = ",
    "for a in ",
    "for S {} in ",
    "a = ",
    "a += ",
    "a >>= ",
    "a as A<B>=",
    "a as !=",
    "a + ",
    "a + S {} as u8 + ",
    "a * S {} + ",
    "a && let b = ",
    "a .. ",
    ".. ",
    "..=",
    "a as ",
    "a as A<B, ",
    "a as *const ",
    "a as fn() -> ",
    "a as fn(A, B) -> ",
    "return {} as ",
    "a < b, ",
    "a < b && ",
    "a < b > ",
    "a < (b, ",
    "a < 1, ",
    "async move {",
    "unsafe {",
    "const {",
    "loop {",
    "let a = |b| ",
    "1 + const {} as u8 + ",
    "x + if a { 1 } else { 2 } + ",
    "a.b().",
    "a.abs().",
    "a?.",
    "x as A<{}, ",
    "S { a, ..",
    "-{",
    "a == -",
    "a || b || |c, d| ",
    "a||b|||c,d|",
    "m![] |a, b| ",
    "#[a] |b, c| ",
    "g(t.shift(1), ",
    "a.min(",
    "W[",
    "if a == 1 { 1 } else ",
    "{ let b = ",
    "{ let mut b = 1; b = ",
    "if a == 1 { if a == 2 { 1 } else { 2 } } else {",
    "{ const A: i32 = ",
    "if a < b { ",
    "(a < b) as u32 + (",
    "if match ",
    "return |a, b| ",
    "return a = ",
    "a = |b, c| ",
];

/// What nests in a type.
const TYPES: &[&str] = &[
    "A<B, ",
    "A<",
    "A<B = ",
    "A<B: ",
    "A<B: C<",
    "A<B = C, D = A<",
    "A<'a, ",
    "A<1, ",
    "A<{ 1 }, ",
    "A<-1, ",
    "A<(B, ",
    "impl A<B, ",
    "dyn A<B, ",
    "<A as B<",
    "<A<B, ",
    "<",
    "*const ",
    "*mut ",
    "&",
    "&&&&&&&&&&&&&&",
    "&'a mut ",
    "&'a ",
    "fn() -> ",
    "fn(A, B) -> ",
    "impl Fn() -> ",
    "dyn for<'a, 'b> Fn() -> ",
    "for<'a, 'b> fn() -> ",
    "(",
    "[",
    "fn(",
    "fn(a: ",
    "A<{",
    "[u8; {",
    "[A<B, ",
    "A<&&&&&&&&&&&&&&B<",
    "fn()->&&&&&&&&",
    "A<fn() -> ",
    "A<B, C<D>, E<",
    "A<for<'a> fn(A) -> ",
    "impl A + B<C, ",
    "A<B, *const ",
    "A<dyn B<C, ",
    "A<impl B<C, ",
    "&&&&&&&&Fn(",
    "&&&&&&&&a::B<",
    "&&&&&&&&A<B + C, ",
    "&A<{}, ",
    "&&&&A<B = ",
    "&&&&impl A<B: ",
    "&&&&fn() -> ",
];

/// What nests in a pattern.
const PATTERNS: &[&str] = &[
    "a @ ", "&", "&mut ", "a::<b, ", "(", "[", "S { a: ", "ref a @ ", "a(", "A | ", "| ",
    "S {} | ", "box ", "a, ",
];

/// What nests in a source.
const ITEMS: &[&str] = &[
    "mod a {",
    "impl A for B { fn a() {",
    "fn a() {",
    "trait A: B<C, ",
    "trait A { fn a() {",
    "fn a<T: A<B, ",
    "impl<T: A<B, ",
    "impl A<B, ",
    "impl <A<B, ",
    "struct S<T = A<B, ",
    "struct S { a: A<B, ",
    "struct S(A<B, ",
    "fn f() where A: B<C, ",
    "fn f() -> ",
    "extern { fn a(",
    "fn f(a: ",
    "fn f(a: fn(a: ",
    "use a::{",
    "enum E { A = ",
    "const A: [u8; {",
    "static A: A<B, ",
    "#[a(",
    "macro_rules! a { () => { ",
    "fn f() { fn g() {",
    "fn f() { let a = |b| {",
    "#[stencil] fn f(o: Out<f64, 1>) { if ",
    "#[stencil] fn f(o: Out<f64, 1>) { fn g() {",
];

/// What is open at the end of a source, closed; `<` and `|` need not be.
fn closed(mut source: String, end: &str) -> String {
    let mut open = Vec::new();
    for sign in source.chars() {
        match sign {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' => drop(open.pop()),
            _ => {}
        }
    }
    source += end;
    source.extend(open.into_iter().rev());
    source
}

/// Where what nests stands in a source: before it, the innermost, and after it.
const PLACES: &[(&[&str], &str, &str, &str)] = &[
    (EXPRESSIONS, "fn f(o: Out<i32, 1>, a: i32) { let x = ", "1", "; o.set(x); }"),
    (EXPRESSIONS, "fn f(o: Out<i32, 1>, a: i32) { ", "1", " }"),
    (EXPRESSIONS, "fn f(o: Out<i32, 1>, a: i32) { o.set(", "a", "); }"),
    (EXPRESSIONS, "const A: i32 = ", "1", "; fn f(o: Out<i32, 1>) { o.set(A); }"),
    (TYPES, "type T = ", "A", "; fn f(o: Out<i32, 1>) { o.set(1 as T); }"),
    (TYPES, "fn f(o: Out<i32, 1>, a: ", "A", ") { o.set(1); }"),
    (TYPES, "fn f(o: Out<i32, 1>) { o.set(1 as ", "A", "); }"),
    (PATTERNS, "fn f(o: Out<i32, 1>) { let ", "a", " = 1; o.set(1); }"),
    (PATTERNS, "fn f(o: Out<i32, 1>) { match 1 { ", "a", " => 1 } }"),
    (ITEMS, "", "", ""),
    (ITEMS, "mod a { ", "1", " }"),
];

const COUNTS: [usize; 7] = [12, 18, 27, 39, 70, 240, 960];

fn translate(source: &str) {
    if let Ok(tokens) = source.parse::<proc_macro2::TokenStream>() {
        let _module = Module::parse(tokens.clone());
        let _stencil = Stencil::parse(tokens);
    }
}

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(2 << 20).spawn(test).unwrap().join().unwrap();
}

#[test]
fn nested_sources_fit_a_stack_of_two_mebibytes() {
    on_a_small_stack(|| {
        for (nested, before, end, after) in PLACES {
            for text in *nested {
                for count in COUNTS {
                    translate(&format!("{before}{}{after}", closed(text.repeat(count), end)));
                }
            }
        }
    });
}

#[test]
fn mixtures_of_what_nests_fit_a_stack_of_two_mebibytes() {
    let number = env::var("MIXTURES").map_or(500, |number| number.parse().unwrap());
    on_a_small_stack(move || {
        let mut random = fastrand::Rng::with_seed(number);
        for _ in 0..number {
            let (nested, before, end, after) = PLACES[random.usize(..PLACES.len())];
            let chosen: String =
                (0..random.usize(2..5)).map(|_| nested[random.usize(..nested.len())]).collect();
            let count = COUNTS[random.usize(..COUNTS.len())].div_ceil(3);
            translate(&format!("{before}{}{after}", closed(chosen.repeat(count), end)));
        }
    });
}
