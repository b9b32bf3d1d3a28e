use halo::{Field, HaloExchange, InFlight};
use runtime_core::{Memory, Stream};

fn misuse<'a>(halo: &'a mut HaloExchange, mut values: Memory<f64>, s: &Stream) -> InFlight<'a, 'a> {
    let mut fields = [Field::new(values.view_mut())];
    halo.start(s, &mut fields).unwrap()
}

fn main() {}
