//! Threads that share an array, on two devices and the host at once.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use array_buffer::{ErrorKind, SharedArrayBuffer};

use common::{Setup, counting, quick, set, values_on};

const THREADS: u32 = 8;
const ROUNDS: u32 = 300;
const LEN: u32 = 33;
/// Long enough for every thread to have its turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pseudorandom number.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The work of one thread: accesses the array somewhere, to read or write it. It checks that all values are equal, and
/// not older than those that it has seen before.
fn work(
    shared: &SharedArrayBuffer<f64, ndarray::Ix1>,
    setup: &Setup,
    writes: &AtomicU32,
    seed: u64,
) {
    let stream = match seed % 2 {
        0 => setup.a.stream_create(&Default::default()).unwrap(),
        _ => setup.b.stream_create(&Default::default()).unwrap(),
    };
    let (mut state, mut newest) = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, 0.0);
    let mut check = |values: &[f64]| {
        assert!(values.iter().all(|value| *value == values[0]), "torn: {values:?}");
        assert!(values[0] >= newest, "{} after {newest}", values[0]);
        newest = values[0];
    };
    for _ in 0..ROUNDS {
        match next(&mut state) % 6 {
            0 => {
                let array = shared.read(PATIENCE).unwrap();
                check(&values_on(&array, &stream));
            }
            1 => {
                let array = shared.read(PATIENCE).unwrap();
                let again = shared.read(PATIENCE).unwrap();
                check(array.read_host().unwrap().as_slice().unwrap());
                check(again.read_host().unwrap().as_slice().unwrap());
            }
            2 => {
                let frozen = shared.freeze("the test", PATIENCE).unwrap();
                assert_eq!(shared.write(PATIENCE).unwrap_err().kind(), ErrorKind::Conflict);
                check(&values_on(&frozen, &stream));
            }
            kind => {
                // A writer is refused while the array is frozen.
                let begun = Instant::now();
                let mut array = loop {
                    match shared.write(PATIENCE) {
                        Err(error) if error.kind() == ErrorKind::Conflict => thread::yield_now(),
                        array => break array.unwrap(),
                    }
                    assert!(begun.elapsed() < PATIENCE, "frozen for ever");
                };
                let value = f64::from(writes.fetch_add(1, Ordering::Relaxed) + 1);
                match kind {
                    3 => set(&mut array.write(&stream).unwrap(), &stream, value).unwrap(),
                    4 => array.read_write_host().unwrap().iter_mut().for_each(|v| *v += 1.0),
                    _ => {
                        set(&mut array.read_write(&stream).unwrap(), &stream, value).unwrap();
                        let wrong = shared.read(PATIENCE).unwrap_err();
                        assert_eq!(wrong.kind(), ErrorKind::Conflict, "{wrong}");
                    }
                }
            }
        }
    }
}

#[test]
fn many_threads_see_whole_writes_in_order() {
    for seed in 0..4 {
        for setup in [Setup::sim(quick().seed(seed)), Setup::apart()] {
            let array = counting(LEN);
            let shared = SharedArrayBuffer::new(array);
            shared.write(PATIENCE).unwrap().write_host().unwrap().fill(0.0);
            let (writes, start) = (AtomicU32::new(0), Barrier::new(THREADS as usize));
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (shared, setup, writes, start) = (shared.clone(), &setup, &writes, &start);
                    scope.spawn(move || {
                        start.wait();
                        work(&shared, setup, writes, u64::from(thread) + 100 * (seed + 1));
                    });
                }
            });
            let array = shared.read(PATIENCE).unwrap();
            let expected = vec![f64::from(writes.load(Ordering::Relaxed)); LEN as usize];
            assert_eq!(values_on(&array, &setup.s), expected);
        }
    }
}

#[test]
fn a_writer_times_out_and_names_the_holder_of_the_array() {
    let shared = SharedArrayBuffer::new(counting(4));
    let reader = shared.read(Duration::ZERO).unwrap();
    let begun = Instant::now();
    let error = thread::scope(|scope| {
        let late = scope.spawn(|| shared.write(Duration::from_millis(30)).unwrap_err());
        late.join().unwrap()
    });
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.message().contains("held for reading"), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(30));
    drop(reader);
    drop(shared.write(Duration::ZERO).unwrap());
}
