//! A type that depends on what is in scope cannot differ between a record's field and its check.
#![forbid(unsafe_code)]

use runtime_core::record;

struct Mine;
const LAYOUT: Mine = Mine;

trait Which {
    const NUMBER: usize;
}

impl Which for Mine {
    const NUMBER: usize = 0;
}

impl Which for runtime_core::Record {
    const NUMBER: usize = 1;
}

const fn which<T: Which, F: Fn() -> T>(f: F) -> usize {
    std::mem::forget(f);
    T::NUMBER
}

struct Select<const N: usize>;

trait Pick {
    type T;
}

impl Pick for Select<0> {
    type T = &'static u64;
}

impl Pick for Select<1> {
    type T = u64;
}

record! {
    struct Bad {
        a: <Select<{ which(|| LAYOUT) }> as Pick>::T,
    }
}

fn main() {}
