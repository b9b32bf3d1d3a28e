//! The parameters and variables that a source never reads.
#![cfg(test)]

use std::collections::BTreeMap;

use proc_macro2::Ident;
use stencil_translator::Module;

/// The names and their lines, for each function.
fn unused(source: &str) -> BTreeMap<String, Vec<(String, usize)>> {
    let module = Module::parse(source.parse().unwrap()).unwrap_or_else(|errors| panic!("{errors}"));
    let names = |names: &[Ident]| {
        names.iter().map(|name| (name.to_string(), name.span().start().line)).collect()
    };
    let helper: Ident = syn::parse_str("h").unwrap();
    let stencils = module.stencils().iter();
    let each = stencils.map(|stencil| (stencil.name(), names(stencil.unused())));
    each.chain([("h".to_owned(), names(module.unused(&helper)))]).collect()
}

#[test]
fn what_is_never_read_is_found_in_the_order_of_the_source() {
    let found = unused(
        "#[stencil] fn a(o: Out<f64, 1>, t: In<f64, 1>, u: In<f64, 1>, b: f64, c: f64) {
            let x = 1.0;
            let mut y = x;
            y = 2.0;
            let z = b;
            let z = t.shift(1).at(0);
            for k in 0..2 { let w = z; }
            o.set(if true { let v = 3.0; z } else { c });
        }
        #[stencil_fn] fn h(f: In<f64, 1>, n: i64, s: f64) -> f64 { f.at(n) }
        #[stencil] fn b(o: InOut<f64, 1>, t: In<f64, 1>, s: f64) { o.set(h(t, 1, s)); }",
    );
    let expected = [
        ("a", vec![("u", 1), ("y", 3), ("z", 5), ("k", 7), ("w", 7), ("v", 8)]),
        ("b", vec![]),
        ("h", vec![("s", 10)]),
    ];
    let owned = |names: Vec<(&str, usize)>| {
        names.into_iter().map(|(name, line)| (name.to_owned(), line)).collect::<Vec<_>>()
    };
    assert_eq!(found, expected.map(|(name, names)| (name.to_owned(), owned(names))).into());
}

#[test]
fn names_with_an_underscore_and_lint_attributes_are_left_out() {
    let found = unused(
        "#[stencil] fn a(o: Out<f64, 1>, _t: In<f64, 1>, #[allow(unused)] b: f64, #[doc = \"text\"] c: f64) {
            #[expect(unused)] let x = 1.0;
            for _k in 0..2 {}
            o.set(1.0);
        }
        #[reduction(sum)] fn r(t: In<f64, 1>, value: f64) -> f64 { t.at(0) }",
    );
    assert_eq!(found["a"], [("c".to_owned(), 1)]);
    assert_eq!(found["r"], [("value".to_owned(), 6)]);
}
