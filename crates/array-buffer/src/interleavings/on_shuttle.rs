//! Orders that `shuttle` chooses, with its atomics.

use shuttle::sync::{Arc, Mutex, MutexGuard, atomic};
use shuttle::thread;

#[path = "../mirror.rs"]
#[expect(dead_code, reason = "the size is not tested here")]
mod mirror;
#[path = "scenarios.rs"]
mod scenarios;

/// The number of orders that are tried.
const ORDERS: usize = 4000;

fn check(scenario: fn()) {
    shuttle::check_random(scenario, ORDERS);
    shuttle::check_pct(scenario, ORDERS, 3);
}

/// Does not wait, because `shuttle` chooses when a thread runs.
fn wait_unordered(_: &atomic::AtomicBool) {}

#[test]
fn a_write_of_one_thread_is_in_the_mirror_or_in_the_state() {
    check(scenarios::writes_beside_an_action_on_another_part);
}

#[test]
fn a_failure_is_not_forgotten_by_a_write() {
    check(scenarios::a_failure_is_reported_during_a_write);
}

#[test]
fn values_of_failed_work_are_not_readable() {
    check(scenarios::a_failure_is_processed);
}

#[test]
fn a_write_makes_ghosts_stale_that_were_filled_during_it() {
    check(scenarios::a_ghost_is_filled_during_a_write);
}

#[test]
fn a_write_makes_ghosts_stale_that_were_filled_before_it() {
    check(scenarios::a_ghost_is_filled_before_a_write);
}

#[test]
fn a_forgotten_write_is_never_readable() {
    check(scenarios::a_forgotten_write_moves_to_the_state);
}

#[test]
fn a_reader_sees_the_values_that_it_may_read() {
    check(scenarios::values_arrive);
}

#[test]
fn a_stream_with_the_lane_of_another_one_reads_nothing_by_its_waits() {
    check(scenarios::a_lane_is_taken_over);
}

#[test]
fn a_stream_that_has_lost_its_lane_reads_nothing_by_it() {
    check(scenarios::a_lane_is_given_away);
}

#[test]
fn a_stream_that_gets_its_lane_back_reads_nothing_by_the_waits_of_another_one() {
    // The reader must be interrupted twice, at single steps.
    shuttle::check_pct(scenarios::a_lane_comes_back, 4 * ORDERS, 4);
}
