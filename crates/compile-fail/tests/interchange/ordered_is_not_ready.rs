//! An array that is ready for one stream is not ready for all users.

use interchange::{ArrayExchange, Ordered};

fn hand_over(ordered: ArrayExchange<Ordered>) {
    let _ = ordered.into_array_interface();
}

fn main() {}
