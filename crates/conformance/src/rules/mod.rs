//! The rules: requirements on a device. Each rule is one function; they are grouped by subject.
#![expect(
    clippy::missing_errors_doc,
    reason = "a rule's error says that it is broken, which its docs define"
)]

mod abilities;
mod events;
mod faults;
mod gates;
mod graphs;
mod indexed;
mod info;
mod interop;
mod kernels;
mod lifetimes;
mod measure;
mod memory;
mod modules;
mod peers;
mod pinned;
mod regions;
mod registration;
mod streams;
mod views;

/// Calls a macro with every group of rules and the names in the group.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_rule {
    ($($then:tt)+) => {
        $($then)+! {
            info isolated: false {
                identity_and_limits_make_sense,
                information_is_stable,
                capabilities_agree_with_the_accessors,
                two_instances_are_two_devices,
                two_open_devices_are_independent,
                opening_is_repeatable,
                native_handles_are_stable,
                threads_share_a_device,
            }
            memory isolated: false {
                copies_round_trip_for_every_element_type,
                copies_honour_offsets,
                fresh_memory_has_values,
                large_copies_round_trip,
                many_small_allocations_live_together,
                allocations_are_aligned,
                zero_sizes_are_well_defined,
                copies_of_the_wrong_length_change_nothing,
                wrong_element_types_are_refused,
                copies_within_the_device_move_the_named_elements,
                fills_reach_every_element_type,
                large_fills_are_complete,
                objects_of_another_device_are_refused,
                a_request_beyond_the_limit_is_out_of_memory,
                exhausted_memory_is_reported_and_survived,
                errors_name_operation_device_and_value,
                written_bytes_are_seen_by_other_streams,
            }
            views isolated: false {
                views_address_the_elements_they_name,
                views_do_not_leave_their_memory,
                copies_reach_the_elements_of_views_with_gaps,
                pinned_copies_of_views_with_gaps_are_refused,
                views_bound_to_a_stream_are_refused_elsewhere,
                views_keep_their_stream_and_their_report,
                views_get_back_their_own_element_type_only,
                writes_are_reported,
                operations_that_do_not_write_report_nothing,
            }
            streams isolated: false {
                streams_run_in_order,
                enqueueing_does_not_block,
                is_done_is_reported_correctly,
                synchronizing_a_stream_waits_for_its_work,
                synchronizing_the_device_waits_for_every_stream,
                a_timed_synchronize_times_out_and_the_work_continues,
                host_copies_are_done_on_return,
                the_default_stream_is_an_ordinary_stream,
                streams_have_unique_ids,
                many_streams_share_one_memory,
                unordered_writers_do_no_harm,
                priorities_are_checked,
                threads_enqueue_on_one_stream,
                waiting_in_circles_does_not_lock_up,
            }
            events isolated: false {
                an_event_holds_the_consumer_back,
                an_event_holds_the_next_producer_back,
                events_order_two_streams_under_repetition,
                a_wait_is_for_the_mark_at_the_time_of_the_call,
                a_recorded_again_event_stands_for_its_new_mark,
                a_fresh_event_holds_nothing_up,
                waiting_for_an_event_waits_for_the_work_before_it,
                an_event_knows_whether_it_is_done,
                a_timed_wait_times_out_and_the_work_continues,
                elapsed_time_covers_the_work_between,
                elapsed_time_that_has_no_meaning_is_refused,
                many_events_live_together,
                events_are_shared_by_threads,
            }
            pinned isolated: false {
                pinned_memory_starts_zeroed,
                pinned_memory_is_aligned,
                pinned_copies_round_trip,
                pinned_copies_honour_offsets,
                copies_of_pinned_parts_touch_nothing_else,
                copies_of_pinned_parts_are_ordered,
                reading_pinned_memory_waits_for_the_device,
                writing_pinned_memory_waits_for_the_device,
                reading_pinned_memory_does_not_wait_for_readers,
                pinned_lengths_are_checked,
                pinned_memory_of_another_device_is_refused,
                pinned_memory_serves_many_streams,
                copies_of_one_pinned_memory_are_ordered,
                copies_from_one_pinned_memory_run_side_by_side,
                write_combined_memory_is_pinned_memory,
            }
            registration isolated: false {
                registered_memory_is_the_vector_itself,
                copies_of_registered_memory_do_not_wait,
                a_vector_comes_back_after_its_copies,
                registered_memory_dropped_in_flight_stays_until_the_copies_are_done,
                refused_registrations_give_the_vector_back,
            }
            gates isolated: false {
                work_behind_a_closed_gate_does_not_run,
                a_wait_with_a_limit_ends_behind_a_closed_gate,
                work_behind_a_gate_sees_what_the_host_wrote_before_it_opened,
                a_gate_that_is_given_up_fails_its_streams_once,
                an_open_gate_holds_nothing_up,
            }
            lifetimes isolated: false {
                memory_dropped_in_flight_stays_until_the_work_is_done,
                memory_dropped_in_flight_waits_for_every_stream,
                pinned_memory_dropped_in_flight_stays_until_the_copies_are_done,
                modules_and_kernels_dropped_in_flight_run_to_the_end,
                a_dropped_stream_finishes_its_work,
                events_dropped_in_flight_keep_their_order,
                plans_dropped_in_flight_run_to_the_end,
                what_a_kernel_owns_may_wait_for_its_streams,
                dropped_objects_are_released,
                objects_outlive_the_device_handle,
                everything_dropped_in_flight_is_sound,
                forgetting_is_sound,
                dropping_does_not_wait_for_the_work,
            }
            kernels isolated: false {
                kernels_compute,
                launches_take_many_arguments,
                values_are_captured_at_the_launch,
                wrong_arguments_are_refused,
                reported_parameters_are_those_of_the_kernel,
                empty_launches_run_nothing,
                launches_beyond_a_limit_are_refused,
                too_many_arguments_are_refused,
                the_geometry_reaches_the_kernel,
                the_largest_block_runs,
                suggested_blocks_run,
                resident_blocks_are_reported_correctly,
                arguments_may_share_a_memory,
                views_reach_kernels_with_their_offset,
                interleaved_views_share_a_launch,
                gaps_in_a_written_view_are_not_written,
                launches_across_devices_are_refused,
                blocks_of_a_cooperative_launch_run_at_once,
                threads_launch_one_kernel,
            }
            modules isolated: false {
                kernels_are_found_by_name,
                formats_not_taken_are_refused,
                broken_code_is_refused,
                a_bundle_offers_the_device_a_choice,
                many_modules_are_loaded_at_once,
                a_kernel_keeps_its_module_loaded,
            }
            regions isolated: false {
                contiguous_regions_are_copied,
                random_regions_agree_with_the_definition,
                the_symmetries_of_the_square_are_exact,
                large_regions_are_copied_in_any_orientation,
                empty_regions_do_nothing,
                negation_is_exact_where_it_is_admitted,
                accumulation_is_exact_where_it_is_admitted,
                special_values_combine_as_documented,
                one_plan_serves_many_slots_and_types,
                views_are_bound_by_their_first_byte,
                overlap_is_decided_exactly,
                overlapping_accumulations_happen_in_entry_order,
                two_parts_of_one_memory_share_a_slot,
                plans_stay_within_the_elements_of_views,
                parts_in_the_gaps_of_each_other_share_a_slot,
                slots_that_are_read_share_a_memory,
                slots_that_are_written_share_a_memory,
                copies_of_absent_slots_are_left_out,
                a_box_is_read_while_the_elements_outside_are_written,
                a_plan_is_bound_to_memory_at_each_execution,
                executions_in_flight_keep_their_memories,
                threads_execute_one_plan,
                bytes_between_the_regions_may_change_meanwhile,
                region_copies_run_in_stream_order,
                launches_agree_with_the_capability,
                memory_that_does_not_fit_the_plan_is_refused,
                hostile_entries_are_refused,
            }
            indexed isolated: false {
                items_are_gathered_and_scattered_as_listed,
                items_that_repeat_are_combined_in_order,
                indexed_copies_of_absent_slots_are_left_out,
                lists_that_cannot_be_are_refused,
                an_indexed_plan_stays_within_the_elements_of_views,
            }
            peers isolated: false {
                memory_is_copied_between_devices,
                copies_between_devices_wait_for_the_producer,
                copies_between_devices_are_done_before_the_next_producer,
                copies_between_streams_of_one_device_are_ordered_likewise,
                copies_between_devices_are_checked,
                events_of_another_device_are_waited_for_where_it_is_reached,
                peer_access_is_reported_correctly,
                a_device_of_another_backend_is_not_reached,
                ends_of_a_copy_between_devices_can_be_dropped_in_flight,
                two_devices_work_on_each_others_results,
            }
            graphs isolated: false {
                graphs_do_what_was_captured,
                region_copies_are_captured_where_they_are_native,
                a_graph_keeps_the_memories_of_its_region_copies,
                launches_of_a_graph_run_in_stream_order,
                events_order_launches_of_a_graph,
                captured_values_are_frozen,
                blocking_calls_cannot_be_captured,
                an_abandoned_capture_leaves_nothing_behind,
                a_capture_does_not_affect_other_streams,
                threads_capture_and_launch,
                a_graph_keeps_what_it_uses,
                graphs_dropped_in_flight_run_to_the_end,
                pinned_memory_waits_for_launches_of_a_graph,
                launches_of_a_graph_are_ordered_with_copies_of_pinned_memory,
                graphs_belong_to_their_device,
            }
            abilities isolated: false {
                unified_memory_is_shared_with_the_host,
                host_visible_memory_is_lent_to_the_host,
                showing_memory_waits_for_its_own_work_alone,
                finished_work_is_visible_to_the_host,
                adopted_memory_gives_its_owner_back,
                an_owner_may_wait_for_its_streams,
                adoption_is_checked,
                the_memory_pool_accounts_for_its_bytes,
                memory_in_flight_is_given_back_to_the_pool,
                the_monitor_is_plausible,
                counters_count,
            }
            interop isolated: false {
                a_stream_of_others_keeps_its_order,
                a_stream_of_others_outlives_its_use,
                memory_outlasts_its_use_on_a_stream_of_others,
                an_event_of_others_is_waited_for,
                handles_of_others_are_checked,
                origins_are_reported_correctly,
            }
            measure isolated: false {
                a_measurement_has_every_sample,
                short_samples_are_run_more_often,
                the_time_covers_the_work_and_not_the_setup,
                measurements_of_nothing_are_refused,
                statistics_count_operations_and_bytes,
            }
            faults isolated: true {
                a_fault_is_reported_once_by_its_stream,
                a_blocking_read_reports_the_fault_before_it,
                a_fault_of_a_dropped_stream_is_reported_by_the_device,
                a_fault_that_one_thread_receives_is_known_to_the_others,
                a_fault_before_a_reached_event_is_found_without_a_wait,
                work_behind_a_fault_ends,
                a_fault_leaves_a_device_that_can_be_opened_again,
            }
        }
    };
}

macro_rules! publish {
    ($($group:ident isolated: $isolated:literal { $($rule:ident,)* })*) => {
        pub(crate) const NAMES: &[&str] = &[$($(stringify!($rule),)*)*];
        $(pub use $group::{$($rule),*};)*
    };
}

for_each_rule! { publish }

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::NAMES;

    #[test]
    fn every_rule_has_a_name_of_its_own() {
        assert_eq!(NAMES.iter().collect::<HashSet<_>>().len(), NAMES.len());
    }
}
