//! The engine without kernels: order, memory, failures, reports.
#![expect(clippy::unwrap_used, reason = "a rig that cannot be made fails its test")]

use std::ffi::c_void;
use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use stand_in::{
    Callback, CaptureMode, Code, Config, Context, End, Engine, Entry, FRESH, Pitch, Result,
};

const LEN: usize = 1000;

/// An engine and the context of its first device.
struct Rig {
    engine: Engine,
    context: Arc<Context>,
}

impl Rig {
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
        self.engine.stream_create(&self.context, 1, 0).unwrap()
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

    fn copy_bytes(&self, to: End, from: End, len: usize, stream: u64) -> Result<()> {
        let pitch = Pitch::default();
        // SAFETY: every end on the host in these tests has so many bytes, and outlives the stream's work.
        unsafe { self.engine.copy(&self.context, (to, pitch), (from, pitch), [len, 1, 1], stream) }
    }

    fn copy(&self, to: u64, from: u64, stream: u64) -> Result<()> {
        self.copy_bytes(End::Device(to), End::Device(from), LEN, stream)
    }

    fn read(&self, memory: u64, stream: u64) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        self.copy_bytes(End::Host(bytes.as_mut_ptr()), End::Device(memory), LEN, stream).unwrap();
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

/// What a second stream copies of what a first one writes in several steps.
fn handed_over(seed: u64, ordered: bool) -> Vec<u8> {
    let rig = Rig::seeded(seed);
    let (first, second) = (rig.stream(), rig.stream());
    let (from, to) = (rig.memory(), rig.memory());
    for value in 1..=5 {
        rig.fill(from, value, first).unwrap();
    }
    if ordered {
        rig.order(second, first);
    }
    rig.copy(to, from, second).unwrap();
    rig.read(to, second)
}

#[test]
fn a_missing_wait_shows_under_some_seed() {
    assert!((1..20).any(|seed| handed_over(seed, false) != [5; LEN]));
    assert!((1..20).all(|seed| handed_over(seed, true) == [5; LEN]));
}

#[test]
fn fresh_memory_is_poisoned_and_out_of_the_host_s_reach() {
    let rig = Rig::seeded(0);
    let memory = rig.memory();
    assert_eq!(rig.read(memory, rig.stream()), [FRESH; LEN]);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapping = maps.lines().find(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&memory)
    });
    assert_eq!(mapping.unwrap().split(' ').nth(1), Some("---p"));
}

#[test]
fn copies_of_pageable_memory_are_staged_and_of_pinned_memory_are_not() {
    let rig = Rig::seeded(0);
    let stream = rig.stream();
    let (one, other) = (rig.memory(), rig.memory());
    let mut pageable = vec![1_u8; LEN];
    let pinned = rig.engine.allocate_pinned(&rig.context, LEN).unwrap();
    let pinned = std::ptr::with_exposed_provenance_mut::<u8>(pinned.try_into().unwrap());
    let held = rig.hold(stream);
    rig.copy_bytes(End::Device(one), End::Host(pageable.as_mut_ptr()), LEN, stream).unwrap();
    rig.copy_bytes(End::Device(other), End::Host(pinned), LEN, stream).unwrap();
    pageable.fill(2);
    // SAFETY: the stream is held up, so that nobody else touches the pinned bytes.
    unsafe { pinned.write_bytes(2, LEN) };
    drop(held);
    assert_eq!(rig.read(one, stream), [1; LEN]);
    assert_eq!(rig.read(other, stream), [2; LEN]);
}

#[test]
fn rows_and_planes_are_copied_and_the_rest_is_kept() {
    let rig = Rig::seeded(0);
    let stream = rig.stream();
    let memory = rig.memory();
    let mut packed: Vec<u8> = (1..=12).collect();
    let (to, from) = (Pitch { row: 10, plane: 100 }, Pitch { row: 3, plane: 6 });
    let ends = ((End::Device(memory + 1), to), (End::Host(packed.as_mut_ptr()), from));
    // SAFETY: 2 planes of 2 rows of 3 bytes are packed.
    unsafe { rig.engine.copy(&rig.context, ends.0, ends.1, [3, 2, 2], stream) }.unwrap();
    let bytes = rig.read(memory, stream);
    assert_eq!(bytes[..5], [FRESH, 1, 2, 3, FRESH]);
    assert_eq!(bytes[110..115], [FRESH, 10, 11, 12, FRESH]);
    let mut back = vec![0; 12];
    let ends = ((End::Host(back.as_mut_ptr()), from), (End::Device(memory + 1), to));
    // SAFETY: as above.
    unsafe { rig.engine.copy(&rig.context, ends.0, ends.1, [3, 2, 2], stream) }.unwrap();
    assert_eq!(back, packed);
}

#[test]
fn ranges_are_checked_when_the_call_is_made() {
    let rig = Rig::seeded(0);
    let stream = rig.stream();
    let memory = rig.memory();
    assert_eq!(rig.copy(memory, memory + 1, stream), Err(Code::INVALID_VALUE));
    assert_eq!(rig.fill(memory + 1, 0, stream), Err(Code::INVALID_VALUE));
    assert_eq!(rig.fill(0x1000, 0, stream), Err(Code::INVALID_VALUE));
    assert_eq!(
        rig.engine.fill(&rig.context, memory + 2, &[0; 4], 1, stream),
        Err(Code::INVALID_VALUE)
    );
    assert_eq!(rig.engine.allocate(&rig.context, 0), Err(Code::INVALID_VALUE));
    assert_eq!(rig.engine.allocate(&rig.context, 2 << 30), Err(Code::OUT_OF_MEMORY));
    assert_eq!(rig.engine.free(&rig.context, memory + 8), Err(Code::INVALID_VALUE));
    assert_eq!(rig.read(memory, stream), [FRESH; LEN]);
}

#[test]
fn freeing_what_unordered_work_uses_is_a_violation() {
    for (ordered, rules) in [(true, vec![]), (false, vec!["unordered free"])] {
        let rig = Rig::seeded(0);
        let (user, freer) = (rig.stream(), rig.stream());
        let memory = rig.memory();
        rig.fill(memory, 1, user).unwrap();
        if ordered {
            rig.order(freer, user);
        }
        rig.engine.free_in(&rig.context, memory, freer).unwrap();
        assert_eq!(rig.fill(memory, 1, freer), Err(Code::INVALID_VALUE));
        assert_eq!(rig.rules()[..rules.len()], rules);
        assert_eq!(rig.rules().len(), rules.len() + 1, "and the range is gone");
    }
}

#[test]
fn the_host_must_have_seen_the_end_of_what_uses_memory_that_it_frees() {
    let rig = Rig::seeded(0);
    let stream = rig.stream();
    let (one, other) = (rig.memory(), rig.memory());
    rig.fill(one, 1, stream).unwrap();
    rig.engine.stream_synchronize(stream).unwrap();
    rig.engine.free(&rig.context, one).unwrap();
    assert!(rig.rules().is_empty());
    rig.fill(other, 1, stream).unwrap();
    rig.engine.free(&rig.context, other).unwrap();
    assert_eq!(rig.rules(), ["unordered free"]);
}

#[test]
fn work_that_finds_its_memory_freed_ends_the_context() {
    let rig = Rig::seeded(0);
    let (user, freer) = (rig.stream(), rig.stream());
    let memory = rig.memory();
    let held = rig.hold(user);
    rig.fill(memory, 1, user).unwrap();
    rig.engine.free_in(&rig.context, memory, freer).unwrap();
    rig.engine.stream_synchronize(freer).unwrap();
    drop(held);
    assert_eq!(rig.engine.stream_synchronize(user), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(rig.rules(), ["unordered free", "use after free"]);
}

#[test]
fn memory_of_a_pool_is_for_work_after_its_allocation() {
    for ordered in [true, false] {
        let rig = Rig::seeded(0);
        let (allocating, using) = (rig.stream(), rig.stream());
        let pool = rig.engine.default_pool(0).unwrap();
        let memory = rig.engine.allocate_in(&rig.context, pool, LEN, allocating).unwrap();
        if ordered {
            rig.order(using, allocating);
        }
        rig.fill(memory, 1, using).unwrap();
        assert_eq!(rig.rules(), if ordered { vec![] } else { vec!["use before allocation"] });
    }
}

#[test]
fn failed_work_ends_the_context_until_it_is_made_anew() {
    let rig = Rig::failing("copy:1=700");
    let stream = rig.stream();
    let (from, to) = (rig.memory(), rig.memory());
    rig.copy(to, from, stream).unwrap();
    assert_eq!(rig.engine.stream_synchronize(stream), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(rig.engine.allocate(&rig.context, 8), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(rig.fill(to, 1, stream), Err(Code::ILLEGAL_ADDRESS));
    rig.engine.reset(0).unwrap();
    let stream = rig.stream();
    assert_eq!(rig.read(rig.memory(), stream), [FRESH; LEN]);
    assert_eq!(rig.fill(to, 1, stream), Err(Code::INVALID_VALUE), "its memory is gone");
}

#[test]
fn a_lost_device_is_had_again_by_a_new_context() {
    let rig = Rig::failing("lose:3=719");
    let stream = rig.stream();
    let memory = rig.memory();
    assert_eq!(rig.fill(memory, 1, stream), Err(Code::LAUNCH_FAILED));
    assert_eq!(rig.engine.stream_synchronize(stream), Err(Code::LAUNCH_FAILED));
    rig.engine.release(0).unwrap();
    let context = rig.engine.context(rig.engine.retain(0).unwrap()).unwrap();
    rig.engine.allocate(&context, 8).unwrap();
    assert!(rig.rules().is_empty());
}

#[test]
fn a_new_context_has_all_the_memory_again() {
    let rig = Rig::failing("fill:1=700");
    let free = rig.engine.free_memory(0).unwrap();
    let stream = rig.stream();
    let pool = rig.engine.pool_create(0).unwrap();
    rig.engine.pool(pool).unwrap().set_threshold(usize::MAX);
    let memory = rig.engine.allocate_in(&rig.context, pool, LEN, stream).unwrap();
    rig.memory();
    assert!(rig.engine.free_memory(0).unwrap() < free);
    rig.fill(memory, 1, stream).unwrap();
    rig.engine.reset(0).unwrap();
    assert_eq!(rig.engine.free_memory(0), Ok(free));
    assert_eq!(rig.engine.pool(pool).err(), Some(Code::INVALID_HANDLE));
    rig.engine.pool(rig.engine.default_pool(0).unwrap()).unwrap();
}

#[test]
fn memory_of_a_pool_outlives_the_context_that_failed() {
    let rig = Rig::failing("fill:1=700");
    let free = rig.engine.free_memory(0).unwrap();
    let stream = rig.stream();
    let pool = rig.engine.pool_create(0).unwrap();
    let memory = rig.engine.allocate_in(&rig.context, pool, LEN, stream).unwrap();
    rig.fill(memory, 1, stream).unwrap();
    assert_eq!(rig.engine.stream_synchronize(stream), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(rig.engine.free_in(&rig.context, memory, stream), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(rig.engine.free(&rig.context, memory), Err(Code::ILLEGAL_ADDRESS));
    rig.engine.pool_destroy(pool).unwrap();
    rig.engine.release(0).unwrap();
    assert!(rig.engine.free_memory(0).unwrap() < free);
    let context = rig.engine.context(rig.engine.retain(0).unwrap()).unwrap();
    rig.engine.free(&context, memory).unwrap();
    assert_eq!(rig.engine.free_memory(0), Ok(free));
    assert!(rig.rules().is_empty());
}

#[test]
fn a_context_that_was_made_ends_alone() {
    let rig = Rig::seeded(0);
    let made = rig.engine.context_create(0).unwrap();
    let context = rig.engine.context(made).unwrap();
    let memory = rig.engine.allocate(&context, 8).unwrap();
    assert_eq!(rig.engine.memory_at(memory).unwrap().context, made);
    let primary = rig.memory();
    assert_eq!(rig.engine.context_destroy(rig.context.handle()), Err(Code::INVALID_CONTEXT));
    rig.engine.free(&context, memory).unwrap();
    rig.engine.context_destroy(made).unwrap();
    assert!(rig.engine.memory_at(primary).is_some());
    assert!(rig.rules().is_empty());
    assert_eq!(rig.engine.context(made).err(), Some(Code::INVALID_CONTEXT));
}

#[test]
fn what_a_released_context_had_is_a_leak() {
    let rig = Rig::seeded(0);
    let memory = rig.memory();
    let event = rig.event();
    rig.stream();
    rig.engine.free(&rig.context, memory).unwrap();
    rig.engine.event_destroy(event).unwrap();
    rig.event();
    let leaks = |report: Vec<Entry>| -> Vec<Entry> {
        report.into_iter().filter(|entry| !matches!(entry, Entry::Calls { .. })).collect()
    };
    let alive = |object| Entry::Alive { device: 0, object, count: 1 };
    assert_eq!(leaks(rig.engine.report()), [alive("stream"), alive("event")]);
    rig.engine.release(0).unwrap();
    let leak = |object| Entry::Leak { device: 0, object, count: 1 };
    assert_eq!(leaks(rig.engine.report()), [leak("stream"), leak("event")]);
}

#[test]
fn the_driver_s_own_stream_and_dead_handles_are_violations() {
    let rig = Rig::seeded(0);
    let memory = rig.memory();
    assert_eq!(rig.fill(memory, 1, 0), Err(Code::INVALID_HANDLE));
    let stream = rig.stream();
    rig.engine.stream_destroy(stream).unwrap();
    assert_eq!(rig.fill(memory, 1, stream), Err(Code::INVALID_HANDLE));
    assert_eq!(rig.rules(), ["default stream", "bad handle"]);
}

#[test]
fn the_driver_s_own_streams_work_where_they_are_used_on_purpose() {
    let rig = Rig::new(Config { default_streams: true, ..Config::default() });
    let memory = rig.memory();
    let own = |handle| rig.engine.stream_of(&rig.context, handle).unwrap();
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| [1, 2].map(own)).join().unwrap());
    assert_eq!(own(0), own(0));
    assert_ne!(elsewhere[1], own(2), "each thread has one of its own");
    assert_ne!(own(1), own(2));
    rig.fill(memory, 7, 1).unwrap();
    assert_eq!(rig.read(memory, own(1)), [7; LEN]);
    let stream = rig.stream();
    assert_eq!(own(stream), stream);
    assert_eq!(rig.rules(), [""; 0]);
}

#[test]
fn a_destroyed_stream_does_what_it_was_given() {
    let rig = Rig::seeded(3);
    let (first, second) = (rig.stream(), rig.stream());
    let memory = rig.memory();
    rig.fill(memory, 7, first).unwrap();
    rig.order(second, first);
    rig.engine.stream_destroy(first).unwrap();
    assert_eq!(rig.read(memory, second), [7; LEN]);
}

#[test]
fn events_tell_states_and_times() {
    let rig = Rig::seeded(0);
    let stream = rig.stream();
    let [start, end] = [(); 2].map(|()| rig.engine.event_create(&rig.context, true).unwrap());
    assert_eq!(rig.engine.event_query(start), Ok(()), "never recorded");
    assert_eq!(rig.engine.event_elapsed(start, end), Err(Code::INVALID_HANDLE));
    let held = rig.hold(stream);
    rig.engine.event_record(&rig.context, start, stream).unwrap();
    assert_eq!(rig.engine.event_query(start), Err(Code::NOT_READY));
    assert_eq!(rig.engine.stream_query(stream), Err(Code::NOT_READY));
    drop(held);
    rig.engine.event_record(&rig.context, end, stream).unwrap();
    rig.engine.event_synchronize(end).unwrap();
    assert!(rig.engine.event_elapsed(start, end).unwrap() >= 0.0);
    assert!(rig.engine.event_elapsed(end, start).unwrap() <= 0.0);
}

/// Captures fills and copies on two streams, and what the graph leaves behind.
fn captured(seed: u64, ordered: bool) -> Vec<u8> {
    let rig = Rig::seeded(seed);
    let (first, second) = (rig.stream(), rig.stream());
    let (from, to) = (rig.memory(), rig.memory());
    rig.engine.capture_begin(first, CaptureMode::Relaxed).unwrap();
    if ordered {
        rig.fill(from, 9, first).unwrap();
        rig.order(second, first);
    } else {
        rig.order(second, first);
        rig.fill(from, 9, first).unwrap();
    }
    rig.copy(to, from, second).unwrap();
    rig.order(first, second);
    let graph = rig.engine.capture_end(first).unwrap();
    assert_eq!(rig.read(to, first), [FRESH; LEN], "nothing was done yet");
    let executable = rig.engine.graph_instantiate(graph).unwrap();
    rig.engine.graph_destroy(graph).unwrap();
    rig.engine.graph_launch(&rig.context, executable, first).unwrap();
    rig.engine.executable_destroy(executable).unwrap();
    rig.read(to, first)
}

#[test]
fn a_graph_runs_in_any_order_that_it_allows() {
    assert!((1..20).all(|seed| captured(seed, true) == [9; LEN]));
    assert!((1..20).any(|seed| captured(seed, false) == [9; LEN]));
    assert!((1..20).any(|seed| captured(seed, false) != [9; LEN]));
}

#[test]
fn what_cannot_be_captured_spoils_the_capture() {
    let rig = Rig::seeded(0);
    let (first, second) = (rig.stream(), rig.stream());
    let memory = rig.memory();
    let mut bytes = [0; LEN];
    let begin = || rig.engine.capture_begin(first, CaptureMode::Global).unwrap();
    let pageable = End::Host(bytes.as_mut_ptr());
    begin();
    let copied = rig.copy_bytes(End::Device(memory), pageable, LEN, first);
    assert_eq!(copied, Err(Code::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(rig.engine.capture_end(first), Err(Code::STREAM_CAPTURE_INVALIDATED));
    begin();
    assert_eq!(rig.engine.stream_synchronize(first), Err(Code::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(rig.engine.capture_end(first), Err(Code::STREAM_CAPTURE_INVALIDATED));
    begin();
    assert_eq!(rig.engine.may_wait(CaptureMode::Relaxed), Ok(()));
    assert_eq!(rig.engine.may_wait(CaptureMode::Global), Err(Code::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(rig.engine.capture_end(first), Err(Code::STREAM_CAPTURE_INVALIDATED));
    begin();
    rig.order(second, first);
    rig.fill(memory, 1, second).unwrap();
    assert_eq!(rig.engine.capture_end(second), Err(Code::STREAM_CAPTURE_UNMATCHED));
    assert_eq!(rig.engine.capture_end(first), Err(Code::STREAM_CAPTURE_INVALIDATED));
    begin();
    rig.order(second, first);
    rig.fill(memory, 1, second).unwrap();
    assert_eq!(rig.engine.capture_end(first), Err(Code::STREAM_CAPTURE_UNJOINED));
    begin();
    let event = rig.event();
    rig.engine.event_record(&rig.context, event, second).unwrap();
    let waited = rig.engine.stream_wait(&rig.context, first, event);
    assert_eq!(waited, Err(Code::STREAM_CAPTURE_ISOLATION));
    assert_eq!(rig.engine.capture_end(first), Err(Code::STREAM_CAPTURE_INVALIDATED));
    assert_eq!(rig.engine.capture_end(first), Err(Code::INVALID_VALUE));
    rig.fill(memory, 3, first).unwrap();
    assert_eq!(rig.read(memory, first), [3; LEN], "streams are as before");
    assert!(rig.rules().is_empty());
}

#[test]
fn captures_end_before_what_they_capture() {
    let rig = Rig::seeded(0);
    let (stream, event) = (rig.stream(), rig.event());
    rig.engine.capture_begin(stream, CaptureMode::Global).unwrap();
    rig.engine.event_record(&rig.context, event, stream).unwrap();
    assert_eq!(rig.engine.stream_destroy(stream), Err(Code::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(rig.rules(), ["unfinished capture"]);
    assert_eq!(rig.engine.capture_end(stream), Err(Code::STREAM_CAPTURE_INVALIDATED));
    let waited = rig.engine.stream_wait(&rig.context, stream, event);
    assert_eq!(waited, Err(Code::CAPTURED_EVENT));
    rig.engine.capture_begin(stream, CaptureMode::Global).unwrap();
    rig.engine.reset(0).unwrap();
    assert_eq!(rig.engine.may_wait(CaptureMode::Global), Ok(()));
}

#[test]
fn memory_of_the_program_s_can_be_registered() {
    let rig = Rig::seeded(0);
    let stream = rig.stream();
    let memory = rig.memory();
    let mut bytes = vec![4_u8; LEN];
    let start = std::ptr::NonNull::new(bytes.as_mut_ptr()).unwrap();
    let address = start.addr().get() as u64;
    // SAFETY: the bytes stay until they are unregistered.
    unsafe { rig.engine.register(&rig.context, start, LEN) }.unwrap();
    // SAFETY: as above.
    let again = unsafe { rig.engine.register(&rig.context, start, 1) };
    assert_eq!(again, Err(Code::HOST_MEMORY_ALREADY_REGISTERED));
    rig.copy(memory, address, stream).unwrap();
    rig.engine.stream_synchronize(stream).unwrap();
    rig.engine.unregister(&rig.context, address).unwrap();
    assert_eq!(rig.read(memory, stream), [4; LEN]);
    assert!(rig.rules().is_empty());
}
