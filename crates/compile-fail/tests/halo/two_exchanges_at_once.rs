use halo::{Field, HaloExchange};
use runtime_core::Stream;

fn misuse(halo: &mut HaloExchange, one: &mut [Field<'_>], two: &mut [Field<'_>], s: &Stream) {
    let first = halo.start(s, one).unwrap();
    let second = halo.start(s, two).unwrap();
    first.finish().unwrap();
    second.finish().unwrap();
}

fn main() {}
