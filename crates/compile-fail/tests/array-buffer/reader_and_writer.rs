use array_buffer::ArrayBuffer;
use ndarray::Ix1;
use runtime_core::Stream;

fn misuse(array: &mut ArrayBuffer<f64, Ix1>, s: &Stream) {
    let reader = array.read(s);
    let writer = array.read_write(s);
    drop((reader, writer));
}

fn main() {}
