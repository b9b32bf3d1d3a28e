use array_buffer::ArrayBuffer;

fn main() {
    let guard = {
        let array = ArrayBuffer::from_vec(vec![1.0], 1).unwrap();
        array.read_host().unwrap()
    };
    drop(guard);
}
