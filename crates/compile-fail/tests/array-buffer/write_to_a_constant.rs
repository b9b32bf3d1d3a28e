use array_buffer::{ArrayBuffer, Constant};
use ndarray::Ix1;
use runtime_core::Stream;

fn misuse(array: &mut ArrayBuffer<f64, Ix1, Constant>, s: &Stream) {
    drop(array.write(s));
}

fn main() {}
