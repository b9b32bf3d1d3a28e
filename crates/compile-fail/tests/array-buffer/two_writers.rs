use array_buffer::ArrayBuffer;
use ndarray::Ix1;
use runtime_core::Stream;

fn misuse(array: &mut ArrayBuffer<f64, Ix1>, s: &Stream) {
    let one = array.write(s);
    let other = array.write(s);
    drop((one, other));
}

fn main() {}
