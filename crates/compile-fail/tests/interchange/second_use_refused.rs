//! A capsule is handed over once.

use interchange::ArrayExchange;

fn main() {
    let capsule = ArrayExchange::from_vec(vec![1.0], &[1]).unwrap();
    let _first = capsule.into_array_interface();
    let _second = capsule.into_array_interface();
}
