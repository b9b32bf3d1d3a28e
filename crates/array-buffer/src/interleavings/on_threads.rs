//! Threads of the system. Miri explores their memory orders.

use std::sync::{Arc, Mutex, atomic};
use std::thread;

#[path = "../mirror.rs"]
#[expect(dead_code, reason = "reads are not tested here")]
mod mirror;
#[path = "scenarios.rs"]
mod scenarios;

#[test]
fn a_write_of_one_thread_is_in_the_mirror_or_in_the_state() {
    scenarios::writes_beside_an_action_on_another_part();
}

#[test]
fn a_failure_is_not_forgotten_by_a_write() {
    scenarios::a_failure_is_reported_during_a_write();
}
