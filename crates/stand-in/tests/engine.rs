//! The engine without kernels: order, memory, failures, reports.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::ffi::c_void;
use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use stand_in::{
    Callback, CaptureMode, Code, Config, Context, Endpoint, Engine, Entry, FRESH, Result,
};

const LEN: usize = 1000;

/// An engine and the context of its first device.
struct Setup {
    engine: Engine,
    context: Arc<Context>,
}

impl Setup {
    fn new(config: Config) -> Self {
        let engine = Engine::new(config).unwrap();
        let context = engine.context(engine.retain(0).unwrap()).unwrap();
        Self { engine, context }
    }

    fn seeded(seed: u64) -> Self {
        Self::new(Config { seed, ..Config::default() })
    }

    fn failing(faults: &str) -> Self {
        Self::new(Config { faults: faults.to_owned(), ..Config::default() })
    }

    fn stream(&self) -> u64 {
        self.engine.stream_create(&self.context).unwrap()
    }

    fn event(&self) -> u64 {
        self.engine.event_create(&self.context, false).unwrap()
    }

    fn memory(&self) -> u64 {
        self.engine.allocate(&self.context, LEN).unwrap()
    }

    fn fill(&self, memory: u64, value: u8, stream: u64) -> Result<()> {
        self.engine.fill(&self.context, memory, &[value], LEN, stream)
    }

    fn copy_bytes(&self, to: Endpoint, from: Endpoint, len: usize, stream: u64) -> Result<()> {
        // SAFETY: every host endpoint in these tests has as many bytes, and outlives the stream's work.
        unsafe { self.engine.copy(&self.context, to, from, len, stream) }
    }

    fn copy(&self, to: u64, from: u64, stream: u64) -> Result<()> {
        self.copy_bytes(Endpoint::Device(to), Endpoint::Device(from), LEN, stream)
    }

    fn read(&self, memory: u64, stream: u64) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        self.copy_bytes(Endpoint::Host(bytes.as_mut_ptr()), Endpoint::Device(memory), LEN, stream)
            .unwrap();
        bytes
    }

    /// Lets a stream wait for what another does.
    fn order(&self, after: u64, before: u64) {
        let event = self.event();
        self.engine.event_record(&self.context, event, before).unwrap();
        self.engine.stream_wait(&self.context, after, event).unwrap();
        self.engine.event_destroy(event).unwrap();
    }

    /// Holds a stream up until the sender is dropped.
    fn hold(&self, stream: u64) -> Sender<()> {
        unsafe extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: made by `into_raw` below, and called once.
            let gate = unsafe { Box::from_raw(gate.cast::<Receiver<()>>()) };
            gate.recv().unwrap_err();
        }
        let (sender, receiver) = channel::<()>();
        let gate = Box::into_raw(Box::new(receiver)).cast();
        // SAFETY: the function takes what it is given, from any thread.
        let callback = unsafe { Callback::new(wait, gate) };
        // SAFETY: as above.
        unsafe { self.engine.call(&self.context, stream, callback) }.unwrap();
        sender
    }

    fn rules(&self) -> Vec<&'static str> {
        let rule = |entry| match entry {
            Entry::Violation { rule, .. } => Some(rule),
            _ => None,
        };
        self.engine.report().into_iter().filter_map(rule).collect()
    }
}

/// The bytes that a second stream copies while a first one writes them in several steps.
fn handed_over(seed: u64, ordered: bool) -> Vec<u8> {
    let setup = Setup::seeded(seed);
    let (first, second) = (setup.stream(), setup.stream());
    let (from, to) = (setup.memory(), setup.memory());
    for value in 1..=5 {
        setup.fill(from, value, first).unwrap();
    }
    if ordered {
        setup.order(second, first);
    }
    setup.copy(to, from, second).unwrap();
    setup.read(to, second)
}

#[test]
fn a_missing_wait_gives_a_wrong_result_with_some_seed() {
    assert!((1..20).any(|seed| handed_over(seed, false) != [5; LEN]));
    assert!((1..20).all(|seed| handed_over(seed, true) == [5; LEN]));
}

#[test]
fn fresh_memory_has_a_pattern_and_the_host_cannot_access_it() {
    let setup = Setup::seeded(0);
    let memory = setup.memory();
    assert_eq!(setup.read(memory, setup.stream()), [FRESH; LEN]);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapping = maps.lines().find(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&memory)
    });
    assert_eq!(mapping.unwrap().split(' ').nth(1), Some("---p"));
}

#[test]
fn copies_from_pageable_memory_are_staged_and_from_pinned_memory_are_not() {
    let setup = Setup::seeded(0);
    let stream = setup.stream();
    let (one, other) = (setup.memory(), setup.memory());
    let mut pageable = vec![1_u8; LEN];
    let pinned = setup.engine.allocate_pinned(&setup.context, LEN).unwrap();
    let pinned = std::ptr::with_exposed_provenance_mut::<u8>(pinned.try_into().unwrap());
    let held = setup.hold(stream);
    setup
        .copy_bytes(Endpoint::Device(one), Endpoint::Host(pageable.as_mut_ptr()), LEN, stream)
        .unwrap();
    setup.copy_bytes(Endpoint::Device(other), Endpoint::Host(pinned), LEN, stream).unwrap();
    pageable.fill(2);
    // SAFETY: the stream waits, so no other thread accesses the pinned bytes.
    unsafe { pinned.write_bytes(2, LEN) };
    drop(held);
    assert_eq!(setup.read(one, stream), [1; LEN]);
    assert_eq!(setup.read(other, stream), [2; LEN]);
}

#[test]
fn ranges_are_checked_when_the_call_is_made() {
    let setup = Setup::seeded(0);
    let stream = setup.stream();
    let memory = setup.memory();
    assert_eq!(setup.copy(memory, memory + 1, stream), Err(Code::INVALID_VALUE));
    assert_eq!(setup.fill(memory + 1, 0, stream), Err(Code::INVALID_VALUE));
    assert_eq!(setup.fill(0x1000, 0, stream), Err(Code::INVALID_VALUE));
    assert_eq!(
        setup.engine.fill(&setup.context, memory + 2, &[0; 4], 1, stream),
        Err(Code::INVALID_VALUE)
    );
    assert_eq!(setup.engine.allocate(&setup.context, 0), Err(Code::INVALID_VALUE));
    assert_eq!(setup.engine.allocate(&setup.context, 2 << 30), Err(Code::OUT_OF_MEMORY));
    assert_eq!(setup.engine.free(&setup.context, memory + 8), Err(Code::INVALID_VALUE));
    assert_eq!(setup.read(memory, stream), [FRESH; LEN]);
}

#[test]
fn freeing_memory_that_unordered_work_uses_is_a_violation() {
    for (ordered, rules) in [(true, vec![]), (false, vec!["unordered free"])] {
        let setup = Setup::seeded(0);
        let (user, freer) = (setup.stream(), setup.stream());
        let memory = setup.memory();
        setup.fill(memory, 1, user).unwrap();
        if ordered {
            setup.order(freer, user);
        }
        setup.engine.free_in(&setup.context, memory, freer).unwrap();
        assert_eq!(setup.fill(memory, 1, freer), Err(Code::INVALID_VALUE));
        assert_eq!(setup.rules()[..rules.len()], rules);
        assert_eq!(setup.rules().len(), rules.len() + 1, "and the range is gone");
    }
}

#[test]
fn a_free_by_the_host_needs_a_wait_for_all_uses() {
    let setup = Setup::seeded(0);
    let stream = setup.stream();
    let (one, other) = (setup.memory(), setup.memory());
    setup.fill(one, 1, stream).unwrap();
    setup.engine.stream_synchronize(stream).unwrap();
    setup.engine.free(&setup.context, one).unwrap();
    assert!(setup.rules().is_empty());
    setup.fill(other, 1, stream).unwrap();
    setup.engine.free(&setup.context, other).unwrap();
    assert_eq!(setup.rules(), ["unordered free"]);
}

#[test]
fn work_on_freed_memory_fails_the_context() {
    let setup = Setup::seeded(0);
    let (user, freer) = (setup.stream(), setup.stream());
    let memory = setup.memory();
    let held = setup.hold(user);
    setup.fill(memory, 1, user).unwrap();
    setup.engine.free_in(&setup.context, memory, freer).unwrap();
    setup.engine.stream_synchronize(freer).unwrap();
    drop(held);
    assert_eq!(setup.engine.stream_synchronize(user), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(setup.rules(), ["unordered free", "use after free"]);
}

#[test]
fn work_on_memory_of_a_pool_must_be_ordered_after_its_allocation() {
    for ordered in [true, false] {
        let setup = Setup::seeded(0);
        let (allocating, using) = (setup.stream(), setup.stream());
        let pool = setup.engine.default_pool(0).unwrap();
        let memory = setup.engine.allocate_in(&setup.context, pool, LEN, allocating).unwrap();
        if ordered {
            setup.order(using, allocating);
        }
        setup.fill(memory, 1, using).unwrap();
        assert_eq!(setup.rules(), if ordered { vec![] } else { vec!["use before allocation"] });
    }
}

#[test]
fn failed_work_fails_the_context_until_a_reset() {
    let setup = Setup::failing("copy:1=700");
    let stream = setup.stream();
    let (from, to) = (setup.memory(), setup.memory());
    setup.copy(to, from, stream).unwrap();
    assert_eq!(setup.engine.stream_synchronize(stream), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(setup.engine.allocate(&setup.context, 8), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(setup.fill(to, 1, stream), Err(Code::ILLEGAL_ADDRESS));
    setup.engine.reset(0).unwrap();
    let stream = setup.stream();
    assert_eq!(setup.read(setup.memory(), stream), [FRESH; LEN]);
    assert_eq!(setup.fill(to, 1, stream), Err(Code::INVALID_VALUE), "its memory is gone");
}

#[test]
fn a_lost_device_works_again_in_a_new_context() {
    let setup = Setup::failing("lose:3=719");
    let stream = setup.stream();
    let memory = setup.memory();
    assert_eq!(setup.fill(memory, 1, stream), Err(Code::LAUNCH_FAILED));
    assert_eq!(setup.engine.stream_synchronize(stream), Err(Code::LAUNCH_FAILED));
    setup.engine.release(0).unwrap();
    let context = setup.engine.context(setup.engine.retain(0).unwrap()).unwrap();
    setup.engine.allocate(&context, 8).unwrap();
    assert!(setup.rules().is_empty());
}

#[test]
fn a_reset_frees_all_memory_and_pools() {
    let setup = Setup::failing("fill:1=700");
    let free = setup.engine.free_memory(0).unwrap();
    let stream = setup.stream();
    let pool = setup.engine.pool_create(0).unwrap();
    setup.engine.pool(pool).unwrap().set_threshold(usize::MAX);
    let memory = setup.engine.allocate_in(&setup.context, pool, LEN, stream).unwrap();
    setup.memory();
    assert!(setup.engine.free_memory(0).unwrap() < free);
    setup.fill(memory, 1, stream).unwrap();
    setup.engine.reset(0).unwrap();
    assert_eq!(setup.engine.free_memory(0), Ok(free));
    assert_eq!(setup.engine.pool(pool).err(), Some(Code::INVALID_HANDLE));
    setup.engine.pool(setup.engine.default_pool(0).unwrap()).unwrap();
}

#[test]
fn memory_of_a_pool_survives_a_failed_context() {
    let setup = Setup::failing("fill:1=700");
    let free = setup.engine.free_memory(0).unwrap();
    let stream = setup.stream();
    let pool = setup.engine.pool_create(0).unwrap();
    let memory = setup.engine.allocate_in(&setup.context, pool, LEN, stream).unwrap();
    setup.fill(memory, 1, stream).unwrap();
    assert_eq!(setup.engine.stream_synchronize(stream), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(setup.engine.free_in(&setup.context, memory, stream), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(setup.engine.free(&setup.context, memory), Err(Code::ILLEGAL_ADDRESS));
    setup.engine.pool_destroy(pool).unwrap();
    setup.engine.release(0).unwrap();
    assert!(setup.engine.free_memory(0).unwrap() < free);
    let context = setup.engine.context(setup.engine.retain(0).unwrap()).unwrap();
    setup.engine.free(&context, memory).unwrap();
    assert_eq!(setup.engine.free_memory(0), Ok(free));
    assert!(setup.rules().is_empty());
}

#[test]
fn a_created_context_is_destroyed_without_the_primary_context() {
    let setup = Setup::seeded(0);
    let made = setup.engine.context_create(0).unwrap();
    let context = setup.engine.context(made).unwrap();
    let memory = setup.engine.allocate(&context, 8).unwrap();
    assert_eq!(setup.engine.memory_at(memory).unwrap().context, made);
    let primary = setup.memory();
    assert_eq!(setup.engine.context_destroy(setup.context.handle()), Err(Code::INVALID_CONTEXT));
    setup.engine.free(&context, memory).unwrap();
    setup.engine.context_destroy(made).unwrap();
    assert!(setup.engine.memory_at(primary).is_some());
    assert!(setup.rules().is_empty());
    assert_eq!(setup.engine.context(made).err(), Some(Code::INVALID_CONTEXT));
}

#[test]
fn live_objects_of_a_released_context_are_leaks() {
    let setup = Setup::seeded(0);
    let memory = setup.memory();
    let event = setup.event();
    setup.stream();
    setup.engine.free(&setup.context, memory).unwrap();
    setup.engine.event_destroy(event).unwrap();
    setup.event();
    let leaks = |report: Vec<Entry>| -> Vec<Entry> {
        report.into_iter().filter(|entry| !matches!(entry, Entry::Calls { .. })).collect()
    };
    let alive = |object| Entry::Alive { device: 0, object, count: 1 };
    assert_eq!(leaks(setup.engine.report()), [alive("stream"), alive("event")]);
    setup.engine.release(0).unwrap();
    let leak = |object| Entry::Leak { device: 0, object, count: 1 };
    assert_eq!(leaks(setup.engine.report()), [leak("stream"), leak("event")]);
}

#[test]
fn default_streams_and_destroyed_handles_are_violations() {
    let setup = Setup::seeded(0);
    let memory = setup.memory();
    assert_eq!(setup.fill(memory, 1, 0), Err(Code::INVALID_HANDLE));
    let stream = setup.stream();
    setup.engine.stream_destroy(stream).unwrap();
    assert_eq!(setup.fill(memory, 1, stream), Err(Code::INVALID_HANDLE));
    assert_eq!(setup.rules(), ["default stream", "bad handle"]);
}

#[test]
fn default_streams_work_if_they_are_used_on_purpose() {
    let setup = Setup::new(Config { default_streams: true, ..Config::default() });
    let memory = setup.memory();
    let own = |handle| setup.engine.stream_handle(&setup.context, handle).unwrap();
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| [1, 2].map(own)).join().unwrap());
    assert_eq!(own(0), own(0));
    assert_ne!(elsewhere[1], own(2), "each thread has one of its own");
    assert_ne!(own(1), own(2));
    setup.fill(memory, 7, 1).unwrap();
    assert_eq!(setup.read(memory, own(1)), [7; LEN]);
    let stream = setup.stream();
    assert_eq!(own(stream), stream);
    assert_eq!(setup.rules(), [""; 0]);
}

#[test]
fn a_destroyed_stream_does_what_it_was_given() {
    let setup = Setup::seeded(3);
    let (first, second) = (setup.stream(), setup.stream());
    let memory = setup.memory();
    setup.fill(memory, 7, first).unwrap();
    setup.order(second, first);
    setup.engine.stream_destroy(first).unwrap();
    assert_eq!(setup.read(memory, second), [7; LEN]);
}

#[test]
fn events_report_states_and_times() {
    let setup = Setup::seeded(0);
    let stream = setup.stream();
    let [start, end] = [(); 2].map(|()| setup.engine.event_create(&setup.context, true).unwrap());
    assert_eq!(setup.engine.event_query(start), Ok(()), "never recorded");
    assert_eq!(setup.engine.event_elapsed(start, end), Err(Code::INVALID_HANDLE));
    let held = setup.hold(stream);
    setup.engine.event_record(&setup.context, start, stream).unwrap();
    assert_eq!(setup.engine.event_query(start), Err(Code::NOT_READY));
    assert_eq!(setup.engine.stream_query(stream), Err(Code::NOT_READY));
    drop(held);
    setup.engine.event_record(&setup.context, end, stream).unwrap();
    setup.engine.event_synchronize(end).unwrap();
    assert!(setup.engine.event_elapsed(start, end).unwrap() >= 0.0);
    assert!(setup.engine.event_elapsed(end, start).unwrap() <= 0.0);
}

/// Captures fills and copies on two streams, and what the graph leaves behind.
fn captured(seed: u64, ordered: bool) -> Vec<u8> {
    let setup = Setup::seeded(seed);
    let (first, second) = (setup.stream(), setup.stream());
    let (from, to) = (setup.memory(), setup.memory());
    setup.engine.capture_begin(first, CaptureMode::Relaxed).unwrap();
    if ordered {
        setup.fill(from, 9, first).unwrap();
        setup.order(second, first);
    } else {
        setup.order(second, first);
        setup.fill(from, 9, first).unwrap();
    }
    setup.copy(to, from, second).unwrap();
    setup.order(first, second);
    let graph = setup.engine.capture_end(first).unwrap();
    assert_eq!(setup.read(to, first), [FRESH; LEN], "nothing was done yet");
    let executable = setup.engine.graph_instantiate(graph).unwrap();
    setup.engine.graph_destroy(graph).unwrap();
    setup.engine.graph_launch(&setup.context, executable, first).unwrap();
    setup.engine.executable_destroy(executable).unwrap();
    setup.read(to, first)
}

#[test]
fn a_graph_runs_in_a_random_order_that_its_dependencies_allow() {
    assert!((1..20).all(|seed| captured(seed, true) == [9; LEN]));
    assert!((1..20).any(|seed| captured(seed, false) == [9; LEN]));
    assert!((1..20).any(|seed| captured(seed, false) != [9; LEN]));
}

#[test]
fn captured_work_that_is_planned_to_fail_fails_the_context_when_its_graph_runs() {
    let setup = Setup::failing("fill:1=700");
    let (stream, memory) = (setup.stream(), setup.memory());
    setup.engine.capture_begin(stream, CaptureMode::Global).unwrap();
    setup.fill(memory, 1, stream).unwrap();
    let graph = setup.engine.capture_end(stream).unwrap();
    let executable = setup.engine.graph_instantiate(graph).unwrap();
    setup.engine.stream_synchronize(stream).unwrap();
    setup.engine.graph_launch(&setup.context, executable, stream).unwrap();
    assert_eq!(setup.engine.stream_synchronize(stream), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(setup.fill(memory, 1, stream), Err(Code::ILLEGAL_ADDRESS));
    assert!(setup.rules().is_empty());
}

#[test]
fn a_call_that_cannot_be_captured_invalidates_the_capture() {
    let setup = Setup::seeded(0);
    let (first, second) = (setup.stream(), setup.stream());
    let memory = setup.memory();
    let mut bytes = [0; LEN];
    let begin = || setup.engine.capture_begin(first, CaptureMode::Global).unwrap();
    let pageable = Endpoint::Host(bytes.as_mut_ptr());
    begin();
    let copied = setup.copy_bytes(Endpoint::Device(memory), pageable, LEN, first);
    assert_eq!(copied, Err(Code::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(setup.engine.capture_end(first), Err(Code::STREAM_CAPTURE_INVALIDATED));
    begin();
    assert_eq!(setup.engine.stream_synchronize(first), Err(Code::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(setup.engine.capture_end(first), Err(Code::STREAM_CAPTURE_INVALIDATED));
    begin();
    assert_eq!(setup.engine.may_wait(CaptureMode::Relaxed), Ok(()));
    assert_eq!(setup.engine.may_wait(CaptureMode::Global), Err(Code::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(setup.engine.capture_end(first), Err(Code::STREAM_CAPTURE_INVALIDATED));
    begin();
    setup.order(second, first);
    setup.fill(memory, 1, second).unwrap();
    assert_eq!(setup.engine.capture_end(second), Err(Code::STREAM_CAPTURE_UNMATCHED));
    assert_eq!(setup.engine.capture_end(first), Err(Code::STREAM_CAPTURE_INVALIDATED));
    begin();
    setup.order(second, first);
    setup.fill(memory, 1, second).unwrap();
    assert_eq!(setup.engine.capture_end(first), Err(Code::STREAM_CAPTURE_UNJOINED));
    begin();
    let event = setup.event();
    setup.engine.event_record(&setup.context, event, second).unwrap();
    let waited = setup.engine.stream_wait(&setup.context, first, event);
    assert_eq!(waited, Err(Code::STREAM_CAPTURE_ISOLATION));
    assert_eq!(setup.engine.capture_end(first), Err(Code::STREAM_CAPTURE_INVALIDATED));
    assert_eq!(setup.engine.capture_end(first), Err(Code::INVALID_VALUE));
    setup.fill(memory, 3, first).unwrap();
    assert_eq!(setup.read(memory, first), [3; LEN], "streams are as before");
    assert!(setup.rules().is_empty());
}

#[test]
fn a_captured_stream_cannot_be_destroyed_and_a_reset_ends_captures() {
    let setup = Setup::seeded(0);
    let (stream, event) = (setup.stream(), setup.event());
    setup.engine.capture_begin(stream, CaptureMode::Global).unwrap();
    setup.engine.event_record(&setup.context, event, stream).unwrap();
    assert_eq!(setup.engine.stream_destroy(stream), Err(Code::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(setup.rules(), ["unfinished capture"]);
    assert_eq!(setup.engine.capture_end(stream), Err(Code::STREAM_CAPTURE_INVALIDATED));
    let waited = setup.engine.stream_wait(&setup.context, stream, event);
    assert_eq!(waited, Err(Code::CAPTURED_EVENT));
    setup.engine.capture_begin(stream, CaptureMode::Global).unwrap();
    setup.engine.reset(0).unwrap();
    assert_eq!(setup.engine.may_wait(CaptureMode::Global), Ok(()));
}

/// Registered memory is copied when the work runs, and other memory of the program at the call.
#[test]
fn registered_memory_is_pinned_until_it_is_unregistered() {
    let setup = Setup::seeded(3);
    let (stream, memory) = (setup.stream(), setup.memory());
    let mut bytes = vec![1_u8; LEN];
    let start = bytes.as_mut_ptr();
    let register = |bytes| {
        // SAFETY: the vector outlives the registration.
        unsafe { setup.engine.register(&setup.context, start, bytes) }
    };
    let unregister = |address| setup.engine.unregister(&setup.context, address);
    let address = start.addr() as u64;
    // The value that the device has at last, if the host writes 2 after the copy was enqueued.
    let copy = || {
        // SAFETY: the vector has as many bytes, and no work uses them.
        unsafe { start.write_bytes(1, LEN) };
        let held = setup.hold(stream);
        setup.copy_bytes(Endpoint::Device(memory), Endpoint::Host(start), LEN, stream).unwrap();
        // SAFETY: as above; the copy is held up.
        unsafe { start.write_bytes(2, LEN) };
        drop(held);
        setup.read(memory, stream)[0]
    };
    assert_eq!(copy(), 1);
    assert_eq!(register(0), Err(Code::INVALID_VALUE));
    assert_eq!(register(usize::MAX), Err(Code::OUT_OF_MEMORY));
    register(LEN).unwrap();
    assert_eq!(register(LEN), Err(Code::HOST_MEMORY_ALREADY_REGISTERED));
    assert_eq!(register(1), Err(Code::HOST_MEMORY_ALREADY_REGISTERED));
    assert!(setup.engine.memory_at(address).unwrap().is_pinned);
    assert_eq!(copy(), 2);
    assert_eq!(unregister(address + 8), Err(Code::INVALID_VALUE));
    assert_eq!(setup.engine.free_pinned(&setup.context, address), Err(Code::INVALID_VALUE));
    unregister(address).unwrap();
    assert_eq!(unregister(address), Err(Code::HOST_MEMORY_NOT_REGISTERED));
    assert_eq!(copy(), 1);
    register(LEN).unwrap();
    unregister(address).unwrap();
    let pinned = setup.engine.allocate_pinned(&setup.context, LEN).unwrap();
    assert_eq!(unregister(pinned), Err(Code::INVALID_VALUE));
    assert_eq!(bytes, [2; LEN]);
    assert_eq!(setup.rules(), ["bad unregister"]);
}

/// A page is registered once, whichever of its bytes.
#[test]
fn a_neighbour_in_a_registered_page_is_refused() {
    const PAGE: usize = 4096;
    let setup = Setup::seeded(3);
    let mut bytes = vec![0_u8; 4 * PAGE];
    let skipped = bytes.as_ptr().align_offset(PAGE);
    let mut register = |at: usize, len| {
        // SAFETY: the vector outlives the registrations.
        unsafe { setup.engine.register(&setup.context, bytes[skipped + at..].as_mut_ptr(), len) }
    };
    register(10, 10).unwrap();
    assert_eq!(register(30, 10), Err(Code::HOST_MEMORY_ALREADY_REGISTERED));
    register(PAGE, PAGE + 1).unwrap();
    assert_eq!(register(2 * PAGE + 100, 1), Err(Code::HOST_MEMORY_ALREADY_REGISTERED));
}
