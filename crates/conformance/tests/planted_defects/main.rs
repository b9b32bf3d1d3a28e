//! The suite detects wrong devices: a device with one defect breaks a rule whose name describes the defect.

mod faulty_device;
mod little_memory;
mod panics;
mod taken_failures;

use backend_host::HostDevice;
use backend_sim::{SimConfig, SimDevice};
use conformance::{Ability, Fixture, Rule, Stop, kernels, rules};
use runtime_core::{Device, ErrorKind, Result};

use faulty_device::{Broken, FaultyDevice};

/// A simulated device, which has its own memory, with one defect.
fn simulated(broken: Broken) -> Fixture {
    let open = move |index| -> Result<Device> {
        let config = SimConfig::new().memory_bytes(16 << 20);
        Device::new(FaultyDevice::new(SimDevice::new(index, config), broken))
    };
    Fixture::new("sabotaged sim", open, kernels::host_functions())
}

/// A host device, which reaches other devices and shares memory with the host, with one defect.
fn host(broken: Broken) -> Fixture {
    let open =
        move |index| Device::new(FaultyDevice::new(HostDevice::with_threads(index, 2)?, broken));
    Fixture::new("sabotaged host", open, kernels::host_functions())
}

/// Fails unless the device with the defect breaks the rule, and the same device without it keeps the rule.
fn bites(name: &str, rule: Rule, make: fn(Broken) -> Fixture, broken: Broken) {
    // If this thread had to wait for a core, work that should be in flight may have finished by chance.
    const ATTEMPTS: usize = 5;
    assert_eq!(rule(&make(Broken::Nothing)), Ok(()), "{name} with nothing broken");
    let outcomes = (0..ATTEMPTS).map(|_| rule(&make(broken)));
    let missed: Vec<_> =
        outcomes.take_while(|outcome| !matches!(outcome, Err(Stop::Failed(_)))).collect();
    assert!(missed.len() < ATTEMPTS, "{name} does not notice {broken:?}: {missed:?}");
}

macro_rules! bites {
    ($($test:ident: $make:ident $broken:ident => $rule:ident;)*) => {$(
        #[test]
        fn $test() {
            bites(stringify!($rule), rules::$rule, $make, Broken::$broken);
        }
    )*};
}

bites! {
    memory_copy: simulated MemoryCopy => copies_within_the_device_move_the_named_elements;
    memory_copy_to: simulated MemoryCopyTo => copies_round_trip_for_every_element_type;
    memory_copy_from_fresh_memory: simulated MemoryCopyFrom => fresh_memory_has_values;
    memory_copy_from: simulated MemoryCopyFrom => copies_round_trip_for_every_element_type;
    pinned_copy_to: simulated PinnedCopyTo => pinned_copies_round_trip;
    pinned_copy_from: simulated PinnedCopyFrom => pinned_copies_round_trip;
    pinned_copies_without_their_offset: simulated PinnedOffsetIsZero => copies_of_pinned_parts_touch_nothing_else;
    wait_for_pinned_parts: simulated Wait => copies_of_pinned_parts_are_ordered;
    event_wait_for_memory_alone: host EventWait => showing_memory_waits_for_its_own_work_alone;
    query_for_the_host: host QueryIsTrue => finished_work_is_visible_to_the_host;
    event_query_for_the_host: host EventQueryIsTrue => finished_work_is_visible_to_the_host;
    synchronize_for_the_host: host Synchronize => finished_work_is_visible_to_the_host;
    memory_fill: simulated MemoryFill => fills_reach_every_element_type;
    a_fill_that_is_too_long: simulated FillIsTooLong => fills_reach_every_element_type;
    a_copy_that_is_shifted: simulated CopyIsShifted => copies_within_the_device_move_the_named_elements;
    launch: simulated Launch => kernels_compute;
    a_launch_that_blocks: simulated LaunchBlocks => enqueueing_does_not_block;
    record: simulated Record => an_event_holds_the_consumer_back;
    record_for_the_host: simulated Record => waiting_for_an_event_waits_for_the_work_before_it;
    wait: simulated Wait => an_event_holds_the_consumer_back;
    wait_the_other_way: simulated Wait => an_event_holds_the_next_producer_back;
    query_is_true: simulated QueryIsTrue => is_done_is_reported_correctly;
    query_is_false: simulated QueryIsFalse => is_done_is_reported_correctly;
    synchronize_that_takes_failures: simulated SynchronizeTakesFailures => a_fault_that_one_thread_receives_is_known_to_the_others;
    failures_that_are_forgotten: simulated FailuresAreForgotten => a_fault_before_a_reached_event_is_found_without_a_wait;
    gates_that_hold_nothing: simulated GatesHoldNothing => work_behind_a_closed_gate_does_not_run;
    gates_that_open_by_themselves: simulated GatesOpenByThemselves => work_behind_a_closed_gate_does_not_run;
    waits_without_a_limit: simulated AssistWaits => a_wait_with_a_limit_ends_behind_a_closed_gate;
    gates_that_cannot_be_opened: simulated GatesCannotBeOpened => work_behind_a_gate_sees_what_the_host_wrote_before_it_opened;
    failures_of_gates_that_are_lost: simulated FailuresOfGatesAreLost => a_gate_that_is_given_up_fails_its_streams_once;
    failures_that_repeat: simulated FailuresRepeat => a_gate_that_is_given_up_fails_its_streams_once;
    open_gates_that_hold_up: simulated OpenGatesHoldUp => an_open_gate_holds_nothing_up;
    synchronize: simulated Synchronize => synchronizing_a_stream_waits_for_its_work;
    event_wait_on_the_host: host EventWait => host_visible_memory_is_lent_to_the_host;
    event_wait: simulated EventWait => waiting_for_an_event_waits_for_the_work_before_it;
    event_wait_of_pinned_memory: simulated EventWait => reading_pinned_memory_waits_for_the_device;
    record_of_pinned_memory: simulated Record => copies_of_one_pinned_memory_are_ordered;
    wait_for_pinned_memory: simulated Wait => copies_of_one_pinned_memory_are_ordered;
    wait_of_a_graph_for_pinned_memory: simulated Wait => launches_of_a_graph_are_ordered_with_copies_of_pinned_memory;
    event_query_is_true: simulated EventQueryIsTrue => an_event_knows_whether_it_is_done;
    event_query_is_false: simulated EventQueryIsFalse => an_event_knows_whether_it_is_done;
    elapsed_since: simulated NoTimeElapses => elapsed_time_covers_the_work_between;
    device_synchronize: simulated DeviceSynchronize => synchronizing_the_device_waits_for_every_stream;
    memory_release: simulated MemoryIsLeaked => exhausted_memory_is_reported_and_survived;
    memory_release_in_the_pool: simulated MemoryIsLeaked => the_memory_pool_accounts_for_its_bytes;
    memory_release_of_an_owner: simulated OwnersAreLeaked => adopted_memory_gives_its_owner_back;
    an_owner_dropped_in_its_stream: simulated OwnersAreDroppedInTheStream => an_owner_may_wait_for_its_streams;
    a_stream_taken_for_another: simulated TakenStreamIsAnother => a_stream_of_others_keeps_its_order;
    a_stream_taken_for_another_to_the_end: simulated TakenStreamIsAnother => a_stream_of_others_outlives_its_use;
    event_wait_of_a_stream_of_others: simulated EventWait => memory_outlasts_its_use_on_a_stream_of_others;
    an_event_taken_for_another: simulated TakenEventIsAnother => an_event_of_others_is_waited_for;
    an_origin_that_is_too_short: simulated OriginIsTooShort => origins_are_reported_correctly;
    an_origin_of_everything: simulated OriginOfEverything => origins_are_reported_correctly;
    memory_release_that_blocks: simulated FreeingBlocks => dropping_does_not_wait_for_the_work;
    regions_execute: simulated RegionsExecute => contiguous_regions_are_copied;
    regions_behind_copies: simulated RegionsExecute => copies_reach_the_elements_of_views_with_gaps;
    regions_of_parts: simulated RegionsExecute => plans_stay_within_the_elements_of_views;
    regions_of_parts_in_gaps: simulated RegionsExecute => parts_in_the_gaps_of_each_other_share_a_slot;
    regions_without_a_slot: simulated AbsentSlotsEndAll => copies_of_absent_slots_are_left_out;
    regions_of_one_memory: simulated MemoryInOneSlot => slots_that_are_written_share_a_memory;
    regions_of_one_memory_on_the_host: host MemoryInOneSlot => slots_that_are_written_share_a_memory;
    regions_of_few_slots: simulated FewSlots => executions_in_flight_keep_their_memories;
    regions_of_lists: simulated RegionsExecute => items_are_gathered_and_scattered_as_listed;
    regions_of_lists_that_repeat: simulated RegionsExecute => items_that_repeat_are_combined_in_order;
    regions_of_lists_in_parts: simulated RegionsExecute => an_indexed_plan_stays_within_the_elements_of_views;
    regions_of_lists_without_a_slot: simulated AbsentSlotsEndAll => indexed_copies_of_absent_slots_are_left_out;
    graph_launch: simulated GraphLaunch => graphs_do_what_was_captured;
    a_graph_beside_its_stream: simulated GraphIsUnordered => launches_of_a_graph_run_in_stream_order;
    a_graph_launch_that_blocks: simulated GraphLaunchBlocks => graphs_dropped_in_flight_run_to_the_end;
    release_of_an_owner_at_once: simulated ReleasesAtOnce => an_owner_may_wait_for_its_streams;
    release_of_a_kernel_at_once: simulated ReleasesAtOnce => what_a_kernel_owns_may_wait_for_its_streams;
    pinned_release: host PinnedMemoryIsLeaked => dropped_objects_are_released;
    registration_of_a_copy: simulated RegistrationIsACopy => registered_memory_is_the_vector_itself;
    registration_that_is_kept: simulated RegistrationIsKept => registered_memory_is_the_vector_itself;
    registration_behind_copies_that_block: simulated PinnedCopiesBlock => copies_of_registered_memory_do_not_wait;
    registration_without_waits: simulated EventWait => a_vector_comes_back_after_its_copies;
    registration_that_ends_at_once: simulated RegistrationEndsAtOnce => registered_memory_dropped_in_flight_stays_until_the_copies_are_done;
    registration_that_is_invalid: simulated RegistrationIsInvalid => refused_registrations_give_the_vector_back;
    module_release: simulated ModulesAreLeaked => dropped_objects_are_released;
    abilities_that_vanish: host AbilitiesVanish => capabilities_agree_with_the_accessors;
    graph_release_that_blocks: simulated FreeingBlocks => graphs_dropped_in_flight_run_to_the_end;
    peer_copy: host PeerCopy => memory_is_copied_between_devices;
    reaches_nobody: host PeersReachNobody => peer_access_is_reported_correctly;
    reaches_everybody: host PeersReachEverybody => a_device_of_another_backend_is_not_reached;
    pool_trim: simulated PoolTrim => the_memory_pool_accounts_for_its_bytes;
    pool_used_bytes: simulated PoolUsesNothing => the_memory_pool_accounts_for_its_bytes;
    pool_reserved_bytes: simulated PoolReservesTooLittle => the_memory_pool_accounts_for_its_bytes;
    a_constant_monitor: simulated MonitorIsConstant => the_monitor_is_plausible;
    monitor_load: simulated MonitorReportsNothing => the_monitor_is_plausible;
    counters_read: simulated CountersRead => counters_count;
    counters_that_are_constant: simulated CountersAreConstant => counters_count;
    counters_of_their_own_reads: simulated CountersCountReads => counters_count;
    counters_names: simulated CountersHaveNoNames => counters_count;
    counters_without_their_device: simulated CountersEndWithTheDevice => counters_count;
    unified_memory_allocate: host UnifiedMemoryIsHidden => unified_memory_is_shared_with_the_host;
}

/// However long a device needs to hand a failure over, no thread misses it.
#[test]
fn failures_that_are_taken_slowly_are_no_defect() {
    let rule = rules::a_fault_that_one_thread_receives_is_known_to_the_others;
    assert_eq!(rule(&simulated(Broken::FailuresAreTakenSlowly)), Ok(()));
}

/// The memory must not be freed, so its owner stays.
#[test]
fn a_registration_that_does_not_end_is_an_error() {
    for (broken, ends) in [(Broken::Nothing, true), (Broken::RegistrationIsKept, false)] {
        let inner = SimDevice::new(0, SimConfig::new());
        let device = Device::new(FaultyDevice::new(inner, broken)).expect("the device");
        let pinned = device.pin_vec(vec![1_u32; 100]).expect("a registration");
        match pinned.end() {
            Ok(()) => assert!(ends),
            Err(error) => assert!(!ends && error.kind() == ErrorKind::Driver, "{error}"),
        }
    }
}

/// A device without the ability, for which the rule does not apply, claims it.
#[test]
fn cooperative_launches_that_are_not() {
    let rule = rules::blocks_of_a_cooperative_launch_run_at_once;
    let honest = rule(&simulated(Broken::Nothing));
    assert_eq!(honest, Err(Stop::NotApplicable(Ability::CooperativeLaunch)));
    let lying = rule(&simulated(Broken::BlocksDoNotMeet));
    assert!(matches!(lying, Err(Stop::Failed(_))), "{lying:?}");
}
