//! Protocols without synchronisation take what is ready alone.

use interchange::{ArrayExchange, Pending};

fn hand_over(pending: ArrayExchange<Pending>) {
    let _ = pending.into_sycl_usm();
}

fn main() {}
