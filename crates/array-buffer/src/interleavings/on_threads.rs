//! Threads of the system. Miri explores their memory orders.

use std::sync::{Arc, Mutex, MutexGuard, atomic};
use std::thread;

#[path = "../mirror.rs"]
#[expect(dead_code, reason = "the size is not tested here")]
mod mirror;
#[path = "scenarios.rs"]
mod scenarios;

/// Waits until the other thread is done, without being ordered after it. So weak memory orders show.
fn wait_unordered(done: &atomic::AtomicBool) {
    while !done.load(atomic::Ordering::Relaxed) {
        thread::yield_now();
    }
}

#[test]
fn a_write_of_one_thread_is_in_the_mirror_or_in_the_state() {
    scenarios::writes_beside_an_action_on_another_part();
}

#[test]
fn a_failure_is_not_forgotten_by_a_write() {
    scenarios::a_failure_is_reported_during_a_write();
}

#[test]
fn values_of_failed_work_are_not_readable() {
    scenarios::a_failure_is_processed();
}

#[test]
fn a_write_makes_ghosts_stale_that_were_filled_during_it() {
    scenarios::a_ghost_is_filled_during_a_write();
}

#[test]
fn a_write_makes_ghosts_stale_that_were_filled_before_it() {
    scenarios::a_ghost_is_filled_before_a_write();
}

#[test]
fn a_forgotten_write_is_never_readable() {
    scenarios::a_forgotten_write_moves_to_the_state();
}

#[test]
fn a_reader_sees_the_values_that_it_may_read() {
    scenarios::values_arrive();
}

#[test]
fn a_stream_with_the_lane_of_another_one_reads_nothing_by_its_waits() {
    scenarios::a_lane_is_taken_over();
}

#[test]
fn a_stream_that_has_lost_its_lane_reads_nothing_by_it() {
    scenarios::a_lane_is_given_away();
}

#[test]
fn a_stream_that_gets_its_lane_back_reads_nothing_by_the_waits_of_another_one() {
    scenarios::a_lane_comes_back();
}
