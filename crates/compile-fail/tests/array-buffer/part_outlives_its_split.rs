use array_buffer::{ArrayBuffer, Parts};
use ndarray::Ix1;

fn misuse(array: &mut ArrayBuffer<f64, Ix1>) {
    let [part] = array.split([Parts::one(0)]).unwrap();
    drop(array.read_write_host());
    drop(part);
}

fn main() {}
