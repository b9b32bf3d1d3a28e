use array_buffer::ArrayBuffer;
use ndarray::Ix1;
use runtime_core::Stream;

fn misuse(array: &mut ArrayBuffer<f64, Ix1>, s: &Stream) {
    let guard = array.read(s).unwrap();
    drop(array.evict(s.device()));
    drop(guard);
}

fn main() {}
