//! Misuse that the compiler must refuse, with the error it must give.

use trybuild::TestCases;

#[test]
fn misuse_of_runtime_core() {
    TestCases::new().compile_fail("tests/runtime-core/*.rs");
}

#[test]
fn misuse_of_array_buffer() {
    TestCases::new().compile_fail("tests/array-buffer/*.rs");
}

#[test]
fn misuse_of_halo() {
    TestCases::new().compile_fail("tests/halo/*.rs");
}

#[test]
fn misuse_of_interchange() {
    TestCases::new().compile_fail("tests/interchange/*.rs");
}

#[test]
fn misuse_of_stencil() {
    TestCases::new().compile_fail("tests/stencil/*.rs");
}
