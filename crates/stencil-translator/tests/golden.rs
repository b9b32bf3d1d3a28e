//! The texts of seven stencils. `UPDATE_GOLDEN=1` rewrites them.
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use proc_macro2::{Group, TokenStream, TokenTree};
use stencil_translator::{Dialect, Module, Stencil};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn stencil(name: &str) -> Stencil {
    let text = fs::read_to_string(folder().join(name).with_extension("stencil")).unwrap();
    Stencil::parse(text.parse().unwrap()).unwrap_or_else(|errors| panic!("{name}: {errors}"))
}

fn is_updating() -> bool {
    env::var_os("UPDATE_GOLDEN").is_some()
}

fn compare(name: &str, extension: &str, text: &str) {
    let path = folder().join(name).with_extension(extension);
    if is_updating() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == text, "{name}.{extension} differs; UPDATE_GOLDEN=1 rewrites it:\n{text}");
}

/// Rust is stored as rustfmt writes it, and compared by its tokens.
fn compare_rust(name: &str, tokens: TokenStream) {
    let path = folder().join(name).with_extension("rows.rs");
    if is_updating() {
        fs::write(&path, tokens.to_string()).unwrap();
        let mut format = Command::new("rustfmt");
        format.args(["--edition=2024", "--config=use_small_heuristics=Max"]).arg(&path);
        assert!(format.status().unwrap().success());
    }
    let expected: TokenStream = fs::read_to_string(&path).unwrap_or_default().parse().unwrap();
    let text = tokens.to_string();
    assert!(
        compact(expected) == compact(tokens),
        "{name}.rows.rs differs; UPDATE_GOLDEN=1 rewrites it:\n{text}"
    );
}

/// The text without spaces and last commas.
fn compact(tokens: TokenStream) -> String {
    let mut text = without_last_commas(tokens).to_string();
    text.retain(|c| !c.is_whitespace());
    text
}

fn without_last_commas(tokens: TokenStream) -> TokenStream {
    let mut tokens: Vec<_> = tokens.into_iter().collect();
    tokens.pop_if(|last| matches!(last, TokenTree::Punct(comma) if comma.as_char() == ','));
    let each = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => {
            Group::new(group.delimiter(), without_last_commas(group.stream())).into()
        }
        token => token,
    });
    each.collect()
}

fn all_texts_are_as_stored(name: &str) {
    let stencil = stencil(name);
    for (dialect, extension) in Dialect::ALL.into_iter().zip(["cl", "cu", "hip", "c"]) {
        compare(name, extension, &stencil.source(dialect));
    }
    compare_rust(name, stencil.to_rust());
}

#[test]
fn heat() {
    all_texts_are_as_stored("heat");
    compare("heat", "embedded.c", &stencil("heat").embedded_source());
}

#[test]
fn gray_scott_in_f32_with_a_helper_and_two_outputs() {
    all_texts_are_as_stored("gray_scott");
}

#[test]
fn moments_with_tables_and_loops() {
    all_texts_are_as_stored("moments");
}

#[test]
fn upwind_with_branches_and_places() {
    all_texts_are_as_stored("upwind");
}

#[test]
fn integers_and_an_update_in_place() {
    all_texts_are_as_stored("integers");
}

#[test]
fn thomas_across_rows() {
    all_texts_are_as_stored("thomas");
}

#[test]
fn integral_along_rows_from_the_end() {
    all_texts_are_as_stored("integral");
}

#[test]
fn float_code_has_no_double() {
    let source = stencil("gray_scott").source(Dialect::OpenCl);
    assert!(!source.contains("double"), "{source}");
    let number = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    let words = source.split([' ', '(', ')', ';']).filter(number);
    for word in words {
        assert!(word.ends_with('f'), "{word}");
    }
}

#[test]
fn a_module_gives_all_its_stencils_and_leaves_the_rest() {
    let module = "mod model { use x::y; const NAME: &str = include_str!(x); type List = Vec<f64>; const C: f64 = 2.0;
        #[stencil] fn a(o: Out<f64, 1>) { o.set(C); }
        #[stencil(inexact)] fn b(o: Out<f64, 1>) { o.set(C.exp()); }
        fn other() {} }";
    let module = Module::parse(module.parse().unwrap()).unwrap();
    let names: Vec<_> =
        module.stencils().iter().map(|stencil| (stencil.name(), stencil.is_inexact())).collect();
    assert_eq!(names, [("a".to_owned(), false), ("b".to_owned(), true)]);
    let rest: Vec<_> = module.rest().iter().map(ToString::to_string).collect();
    assert_eq!(
        rest,
        [
            "use x :: y ;",
            "const NAME : & str = include_str ! (x) ;",
            "type List = Vec < f64 > ;",
            "const C : f64 = 2.0 ;",
            "fn other () { }"
        ]
    );
}

#[test]
fn c_has_no_warnings() {
    for name in ["heat", "gray_scott", "moments", "upwind", "integers", "thomas", "integral"] {
        let mut gcc = Command::new("gcc");
        gcc.args(Dialect::C.flags()).args([
            "-O2",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsyntax-only",
        ]);
        let Ok(output) = gcc.arg(folder().join(name).with_extension("c")).output() else {
            return println!("skipped: no gcc");
        };
        assert!(output.status.success(), "{name}:\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn inexact_functions_have_the_names_of_the_dialect() {
    let text = |ty: &str| {
        let text = format!(
            "#[stencil(inexact)] fn f(o: Out<{ty}, 1>, a: {ty}) {{ o.set(a.exp().sin().powf(a)); }}"
        );
        Stencil::parse(text.parse().unwrap()).unwrap()
    };
    let (single, double) = (text("f32"), text("f64"));
    assert!(single.source(Dialect::C).contains("powf(sinf(expf(args->a_value)), args->a_value)"));
    assert!(double.source(Dialect::Cuda).contains("pow(sin(exp(args.a_value)), args.a_value)"));
    assert!(single.source(Dialect::OpenCl).contains("pow(sin(exp(args.a_value)), args.a_value)"));
}
