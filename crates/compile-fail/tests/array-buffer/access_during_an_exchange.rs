use array_buffer::{ArrayBuffer, Exchange};
use ndarray::Ix1;
use runtime_core::Stream;

fn misuse(array: &mut ArrayBuffer<f64, Ix1>, s: &Stream) {
    let flight = array.begin_exchange(s, Exchange::Broadcast).unwrap();
    drop(array.read(s));
    drop(flight.finish());
}

fn main() {}
