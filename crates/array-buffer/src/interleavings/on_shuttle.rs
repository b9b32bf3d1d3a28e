//! Orders that `shuttle` chooses, with its atomics.

use shuttle::sync::{Arc, Mutex, atomic};
use shuttle::thread;

#[path = "../mirror.rs"]
#[expect(dead_code, reason = "reads are not tested here")]
mod mirror;
#[path = "scenarios.rs"]
mod scenarios;

/// The number of orders that are tried.
const ORDERS: usize = 4000;

#[test]
fn a_write_of_one_thread_is_in_the_mirror_or_in_the_state() {
    shuttle::check_random(scenarios::writes_beside_an_action_on_another_part, ORDERS);
    shuttle::check_pct(scenarios::writes_beside_an_action_on_another_part, ORDERS, 3);
}

#[test]
fn a_failure_is_not_forgotten_by_a_write() {
    shuttle::check_random(scenarios::a_failure_is_reported_during_a_write, ORDERS);
    shuttle::check_pct(scenarios::a_failure_is_reported_during_a_write, ORDERS, 3);
}
