use array_buffer::lend;

fn main() {
    let mut values = ndarray::array![1.0];
    let mut kept = None;
    lend(values.view_mut(), |array| kept = Some(array)).unwrap();
}
