use halo::{Field, HaloExchange};
use runtime_core::{Memory, Stream};

fn misuse(halo: &mut HaloExchange, values: &mut Memory<f64>, s: &Stream) {
    let mut fields = [Field::new(values.view_mut())];
    let flight = halo.start(s, &mut fields).unwrap();
    values.fill(s, 0.0).unwrap();
    flight.finish().unwrap();
}

fn main() {}
