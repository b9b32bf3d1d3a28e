//! The rules: requirements on an embedded device.
#![expect(
    clippy::missing_errors_doc,
    reason = "a rule's error says that it is broken, which its docs define"
)]

use std::thread;
use std::time::{Duration, Instant};

use runtime_core::contract::{CallOutcome, CallValue};
use runtime_core::{Embedded, ErrorKind, Result};

use super::EmbeddedFixture;
use crate::Ability;
use crate::outcome::{Outcome, Stop, check, check_eq, needed, refused, same};

/// More time than any call takes that does not hang.
const LONG: Duration = Duration::from_secs(20);
/// The bytes at the free address.
const FREE_BYTES: usize = 4096;

/// Calls a macro with the names of all rules.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_embedded_rule {
    ($($then:tt)+) => {
        $($then)+! {
            information_about_the_device_is_stable,
            results_of_every_type_come_back,
            many_arguments_of_every_type_arrive,
            the_time_of_a_call_is_reported,
            more_arguments_than_the_limit_are_refused,
            a_timeout_of_zero_is_refused,
            memory_keeps_the_bytes_written,
            memory_is_reached_up_to_its_ends,
            the_program_sees_the_bytes_written,
            ranges_outside_of_the_memory_map_are_refused,
            symbols_are_found_by_name,
            data_is_not_called,
            code_that_is_written_over_code_runs,
            flashing_starts_the_program_anew,
            calls_run_the_program_that_was_flashed_last,
            a_broken_image_is_refused,
            a_reset_restarts_the_program_and_keeps_memory,
            a_timeout_is_reported_in_time_and_a_reset_ends_the_call,
            a_reset_ends_a_call_of_another_thread,
            a_fault_is_reported_and_the_next_call_is_right,
            calls_of_threads_take_turns,
            printed_lines_arrive_once_and_in_order,
            counters_grow_with_the_work,
            clones_are_one_device,
            the_device_can_be_opened_again,
        }
    };
}

fn call(device: &Embedded, function: &str, args: &[CallValue]) -> Result<CallOutcome> {
    device.call(function, args, LONG)
}

/// A call must return the right result, whatever happened before.
fn is_usable(device: &Embedded) -> Outcome {
    let sum = call(device, "add", &[CallValue::I32(2), CallValue::I32(-44)])?.i32();
    check_eq!(sum, -42, "a call afterwards");
    Ok(())
}

fn count(device: &Embedded) -> Outcome<i32> {
    Ok(call(device, "count", &[])?.i32())
}

/// Identity, limits and the memory map are plausible and the same at every call.
pub fn information_about_the_device_is_stable(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    check_eq!(device.info().id.to_string(), device.id().to_string(), "the identity");
    let map = device.memory_map().to_vec();
    check!(map.iter().any(|area| area.writable), "no area of memory can be written");
    for area in &map {
        let (name, bytes) = (&area.name, area.bytes);
        check!(bytes > 0, "the area {name:?} has no bytes");
        let end = u128::from(area.address) + u128::from(bytes);
        check!(end <= 1 << 64, "the area {name:?} of {bytes} bytes ends beyond the last address");
    }
    is_usable(&device)?;
    check_eq!(device.memory_map(), map.as_slice(), "the memory map after a call");
    Ok(())
}

/// Integers and floating-point numbers of both sizes are passed and returned.
pub fn results_of_every_type_come_back(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let small = [CallValue::I32(i32::MIN), CallValue::I32(1)];
    check_eq!(call(&device, "add", &small)?.i32(), i32::MIN + 1, "the sum of 32-bit integers");
    let large = [CallValue::I64(i64::MAX), CallValue::I64(-(1 << 40))];
    let sum = call(&device, "add_long", &large)?.i64();
    check_eq!(sum, i64::MAX - (1 << 40), "the sum of 64-bit integers");
    let single = [CallValue::F32(0.5), CallValue::F32(-3.0)];
    check_eq!(call(&device, "add_float", &single)?.f32(), -2.5, "the sum of f32");
    let double = [CallValue::F64(1e300), CallValue::F64(1e299)];
    check_eq!(call(&device, "add_double", &double)?.f64(), 1e300 + 1e299, "the sum of f64");
    Ok(())
}

/// More arguments than there are registers arrive, each with its own type.
pub fn many_arguments_of_every_type_arrive(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    // Each product with a weight is exact, and so is the sum. Shorter integers are passed as 32 bits.
    let weighed = [
        (CallValue::I32(-1), -1.0),
        (CallValue::F64(2.5), 2.5 * 2.0),
        (CallValue::I64(-(1 << 40)), -1_099_511_627_776.0 * 3.0),
        (CallValue::F32(0.25), 0.25 * 5.0),
        (CallValue::I32(250), 250.0 * 7.0),
        (CallValue::F64(-7.0), -7.0 * 11.0),
        (CallValue::I32(-2_000_000), -2_000_000.0 * 13.0),
        (CallValue::F32(8.5), 8.5 * 17.0),
        (CallValue::I64(1 << 35), 34_359_738_368.0 * 19.0),
        (CallValue::F64(10.0), 10.0 * 23.0),
        (CallValue::I32(11), 11.0 * 29.0),
        (CallValue::F64(-12.0), -12.0 * 31.0),
        (CallValue::I32(60_000), 60_000.0 * 37.0),
        (CallValue::F32(14.0), 14.0 * 41.0),
        (CallValue::F64(15.5), 15.5 * 43.0),
        (CallValue::F64(16.0), 16.0 * 47.0),
        (CallValue::F64(-17.0), -17.0 * 53.0),
        (CallValue::F32(18.0), 18.0 * 59.0),
    ];
    let limit = device.info().limits.max_arguments;
    if limit < weighed.len() {
        return Err(Stop::Skipped(format!("the device passes {limit} arguments")));
    }
    let args = weighed.map(|(argument, _)| argument);
    let expected: f64 = weighed.iter().map(|(_, product)| product).sum();
    check_eq!(call(&device, "mix", &args)?.f64(), expected, "the weighted sum of 18 arguments");
    Ok(())
}

/// The time of a call is not longer than the caller has waited.
pub fn the_time_of_a_call_is_reported(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let start = Instant::now();
    let reported = call(&device, "nothing", &[])?.elapsed;
    let waited = start.elapsed();
    check!(!reported.is_zero() && reported <= waited, "{reported:?} reported, {waited:?} waited");
    Ok(())
}

/// A call with more arguments than the limit is refused, and the error names both numbers.
pub fn more_arguments_than_the_limit_are_refused(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let limit = device.info().limits.max_arguments;
    if let Some(over) = limit.checked_add(1).filter(|over| *over < 1 << 16) {
        let called = call(&device, "nothing", &vec![CallValue::I32(0); over]);
        let error = refused(called, ErrorKind::InvalidArgument, "one argument too many")?;
        for number in [over, limit] {
            check!(error.message().contains(&number.to_string()), "{error} does not name {number}");
        }
    }
    is_usable(&device)
}

/// A timeout of zero is refused.
pub fn a_timeout_of_zero_is_refused(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let called = device.call("nothing", &[], Duration::ZERO);
    refused(called, ErrorKind::InvalidArgument, "a timeout of zero")?;
    is_usable(&device)
}

/// Bytes that were written are read back: at any address, of any length, and no others change.
pub fn memory_keeps_the_bytes_written(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let start = fixture.free();
    let mut expected: Vec<u8> = (0..FREE_BYTES).map(|i| (i * 7 % 251).to_le_bytes()[0]).collect();
    device.memory_write(start, &expected)?;
    for (at, len) in [(0, 1), (1, 1), (3, 2), (5, 7), (63, 130), (1001, 3000)] {
        let part = &mut expected[at..at + len];
        part.iter_mut().for_each(|byte| *byte ^= 0xA5);
        device.memory_write(start + at as u64, part)?;
        let mut found = vec![0; len];
        device.memory_read(start + at as u64, &mut found)?;
        same(&found, part, format_args!("{len} bytes at offset {at}"))?;
    }
    let mut found = vec![0; FREE_BYTES];
    device.memory_read(start, &mut found)?;
    same(&found, &expected, "all bytes after writes in the middle")
}

/// The first and the last bytes of every area are read, and written if the area can be, at odd addresses too.
pub fn memory_is_reached_up_to_its_ends(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    for area in device.memory_map() {
        // An area may be shorter than the longest part.
        for len in [1, 2, 3, 7, 64_u8].into_iter().filter(|len| u64::from(*len) <= area.bytes) {
            let last = area.address + (area.bytes - u64::from(len));
            for address in [area.address, last] {
                let place = format!("{len} bytes at {address:#x} in {:?}", area.name);
                let mut held = vec![0; len.into()];
                device.memory_read(address, &mut held)?;
                if !area.writable {
                    continue;
                }
                let turned: Vec<_> = held.iter().map(|byte| !byte).collect();
                device.memory_write(address, &turned)?;
                let mut found = vec![0; len.into()];
                device.memory_read(address, &mut found)?;
                same(&found, &turned, &place)?;
                // The program may be here.
                device.memory_write(address, &held)?;
            }
        }
    }
    device.flash(fixture.program())?;
    is_usable(&device)
}

/// The program reads the bytes that the host has written.
pub fn the_program_sees_the_bytes_written(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let numbers = device.symbol("numbers")?.address;
    for round in 1..4_u32 {
        let values: Vec<u8> = (0..1024_u32).flat_map(|i| (i * round).to_le_bytes()).collect();
        device.memory_write(numbers, &values)?;
        let args = [CallValue::Address(numbers), CallValue::I32(1024)];
        let sum = call(&device, "sum", &args)?.i32();
        check_eq!(sum.cast_unsigned(), 1023 * 512 * round, "the sum of round {round}");
    }
    Ok(())
}

/// A range that is not inside one area is refused, and so is a write to an area that is read-only. The error names the
/// address, and nothing is written.
pub fn ranges_outside_of_the_memory_map_are_refused(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let map = device.memory_map().to_vec();
    let holds = |address: u64| {
        map.iter().any(|area| address >= area.address && address - area.address < area.bytes)
    };
    for area in &map {
        let Some(end) = area.address.checked_add(area.bytes) else { continue };
        let mut last = [0; 4];
        device.memory_read(end - 4, &mut last)?;
        if !holds(end) {
            let named = format!("{:#x}", end - 4);
            let read = device.memory_read(end - 4, &mut [0; 5]);
            let write = device.memory_write(end - 4, &[0xFF; 5]);
            let code = device.code_write(end - 4, &[0xFF; 5]);
            for (what, done) in [("a read", read), ("a write", write), ("a write of code", code)] {
                let error = refused(done, ErrorKind::OutOfBounds, what)?;
                check!(error.message().contains(&named), "{error} does not name {named}");
            }
            let called = device.call_at(end, &[], LONG);
            let error = refused(called, ErrorKind::OutOfBounds, "a call behind an area")?;
            let named = format!("{end:#x}");
            check!(error.message().contains(&named), "{error} does not name {named}");
        }
        if !area.writable {
            let named = format!("{:#x}", end - 4);
            let other = last.map(|byte| !byte);
            for done in [device.memory_write(end - 4, &other), device.code_write(end - 4, &other)] {
                let error = refused(done, ErrorKind::OutOfBounds, "a write to read-only memory")?;
                check!(error.message().contains(&named), "{error} does not name {named}");
            }
        }
        let mut after = [0; 4];
        device.memory_read(end - 4, &mut after)?;
        check_eq!(after, last, "the last bytes of {:?} after a refused write", area.name);
    }
    is_usable(&device)
}

/// Functions and objects of the program are found. An unknown name is an error that contains it.
pub fn symbols_are_found_by_name(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let (function, object) = (device.symbol("add")?, device.symbol("numbers")?);
    check!(!function.data, "a function is reported as data");
    check!(object.data && matches!(object.bytes, 0 | FREE_SYMBOL), "numbers: {object:?}");
    let unknown = device.symbol("no such symbol");
    let error = refused(unknown, ErrorKind::KernelNotFound, "an unknown symbol")?;
    check!(error.message().contains("no such symbol"), "{error} does not name the symbol");
    let called = call(&device, "no such symbol", &[]);
    refused(called, ErrorKind::KernelNotFound, "a call of an unknown symbol")?;
    is_usable(&device)
}

/// The bytes of the object `numbers`.
const FREE_SYMBOL: u64 = 4096;

/// Data is not called by its name.
pub fn data_is_not_called(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    refused(call(&device, "numbers", &[]), ErrorKind::InvalidArgument, "a call of data")?;
    is_usable(&device)
}

/// The instructions of a function, as the device holds them.
fn instructions(device: &Embedded, function: &str) -> Outcome<Vec<u8>> {
    let symbol = device.symbol(function)?;
    let len = usize::try_from(symbol.bytes).unwrap_or(usize::MAX);
    if len == 0 || len > FREE_BYTES {
        return Err(Stop::failed(format_args!("{function}: a function of {len} bytes")));
    }
    let mut bytes = vec![0; len];
    device.memory_read(symbol.address, &mut bytes)?;
    Ok(bytes)
}

/// Instructions that are written are those that run, also where others ran before.
pub fn code_that_is_written_over_code_runs(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let numbers = device.symbol("numbers")?.address;
    let values: Vec<u8> = [3_u32, 50, 700].into_iter().flat_map(u32::to_le_bytes).collect();
    device.memory_write(numbers, &values)?;
    let add = instructions(&device, "add")?;
    let sum = instructions(&device, "sum")?;
    let place = fixture.free();
    for round in 0..3 {
        device.code_write(place, &add)?;
        let args = [CallValue::I32(20), CallValue::I32(round)];
        let found = device.call_at(place, &args, LONG)?.i32();
        check_eq!(found, 20 + round, "the code of add in round {round}");
        device.code_write(place, &sum)?;
        let args = [CallValue::Address(numbers), CallValue::I32(3)];
        let found = device.call_at(place, &args, LONG)?.i32();
        check_eq!(found, 753, "the code of sum over it, in round {round}");
    }
    is_usable(&device)
}

/// A call by name runs the program that was flashed last, also if the function is at the same address.
pub fn calls_run_the_program_that_was_flashed_last(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let add = instructions(&device, "add")?;
    let sum = instructions(&device, "sum")?;
    check!(add.len() <= sum.len(), "add has {} bytes, sum {}", add.len(), sum.len());
    let mut other = fixture.program().to_vec();
    let Some(at) = other.windows(sum.len()).position(|bytes| bytes == sum) else {
        return Err(Stop::failed("the code of sum on the device is not in the image"));
    };
    other[at..at + add.len()].copy_from_slice(&add);
    let numbers = device.symbol("numbers")?.address;
    let args = [CallValue::Address(numbers), CallValue::I32(8)];
    for round in 0..3 {
        device.memory_write(numbers, &[1; 32])?;
        let found = call(&device, "sum", &args)?.i32();
        check_eq!(found, 8 * 0x0101_0101, "the sum of round {round}");
        device.flash(&other)?;
        let added = [CallValue::I32(30), CallValue::I32(round)];
        let found = call(&device, "sum", &added)?.i32();
        check_eq!(found, 30 + round, "the function that replaced sum, in round {round}");
        device.flash(fixture.program())?;
    }
    is_usable(&device)
}

/// A flashed program starts with its initial data, also if it is the same program again.
pub fn flashing_starts_the_program_anew(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    for round in 0..3 {
        check_eq!(count(&device)?, 41, "the first count of round {round}");
        check_eq!(count(&device)?, 42, "the second count of round {round}");
        device.flash(fixture.program())?;
    }
    Ok(())
}

/// An image that is no program of this processor is refused, and a good one can be flashed afterwards.
pub fn a_broken_image_is_refused(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let program = fixture.program();
    let mut other = program.to_vec();
    // The machine in the header of an ELF file.
    other[18] ^= 0xFF;
    let images: [&[u8]; 4] = [b"", b"this is no program", &program[..program.len() / 8], &other];
    for image in images {
        let flashed = device.flash(image);
        refused(flashed, ErrorKind::InvalidModule, format_args!("{} bytes", image.len()))?;
    }
    device.flash(program)?;
    check_eq!(count(&device)?, 41, "the first count of the program flashed afterwards");
    is_usable(&device)
}

/// A reset restarts the program with its initial data. Memory outside of the program keeps its bytes.
pub fn a_reset_restarts_the_program_and_keeps_memory(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let written = [0xA5_u8; FREE_BYTES];
    device.memory_write(fixture.free(), &written)?;
    check_eq!(count(&device)?, 41, "the first count");
    device.reset()?;
    check_eq!(count(&device)?, 41, "the first count after a reset");
    let mut kept = [0; FREE_BYTES];
    device.memory_read(fixture.free(), &mut kept)?;
    same(&kept, &written, "memory outside of the program after a reset")
}

/// A call that does not return is reported when its time is over. Later calls are refused until a reset.
pub fn a_timeout_is_reported_in_time_and_a_reset_ends_the_call(
    fixture: &EmbeddedFixture,
) -> Outcome {
    let device = fixture.device()?;
    let timeout = Duration::from_millis(100);
    let start = Instant::now();
    refused(device.call("hang", &[], timeout), ErrorKind::Timeout, "a call without end")?;
    let waited = start.elapsed();
    check!(waited >= timeout && waited < LONG, "{waited:?} waited, for a timeout of {timeout:?}");
    refused(call(&device, "nothing", &[]), ErrorKind::Conflict, "a call beside one that hangs")?;
    device.reset()?;
    is_usable(&device)
}

/// A reset ends a call that another thread waits for.
pub fn a_reset_ends_a_call_of_another_thread(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let other = device.clone();
    let caller = thread::spawn(move || {
        let start = Instant::now();
        (call(&other, "hang", &[]).is_err(), start.elapsed())
    });
    // The other thread needs time to begin. If it begins later, its call ends by its own timeout, which is too late.
    while !caller.is_finished() {
        thread::sleep(Duration::from_millis(50));
        device.reset()?;
    }
    let Ok((failed, waited)) = caller.join() else {
        return Err(Stop::failed("the call panicked"));
    };
    check!(failed && waited < LONG, "the call failed: {failed}, after {waited:?}");
    is_usable(&device)
}

/// A fault is an error that says what happened and where, and the device works again.
pub fn a_fault_is_reported_and_the_next_call_is_right(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    // Its first instruction faults.
    let place = format!("{:#x}", device.symbol("illegal")?.address);
    for _ in 0..3 {
        let called = call(&device, "illegal", &[]);
        let error = refused(called, ErrorKind::DeviceFault, "an illegal instruction")?;
        check!(error.driver().is_some(), "{error} has no code");
        check!(error.message().contains(&place), "{error} does not name the place {place}");
        is_usable(&device)?;
    }
    Ok(())
}

/// Calls of several threads take turns: each returns its own result.
pub fn calls_of_threads_take_turns(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let work = |thread: i32| -> Outcome {
        for i in 0..20 {
            let args = [CallValue::I32(1000 * thread), CallValue::I32(i)];
            check_eq!(call(&device, "add", &args)?.i32(), 1000 * thread + i, "thread {thread}");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
        let panicked = |_| Err(Stop::failed("a thread panicked"));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })
}

/// Lines that the program prints arrive in their order, and once.
pub fn printed_lines_arrive_once_and_in_order(fixture: &EmbeddedFixture) -> Outcome {
    needed(fixture.has(Ability::Console), Ability::Console)?;
    let device = fixture.device()?;
    let place = fixture.free();
    let mut lines = Vec::new();
    for text in ["one\ntwo\n", "three\n"] {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        device.memory_write(place, &bytes)?;
        call(&device, "say", &[CallValue::Address(place)])?;
        lines.extend(text.lines().map(str::to_owned));
    }
    let mut found = Vec::new();
    let end = Instant::now() + LONG;
    while found.len() < lines.len() && Instant::now() < end {
        found.extend(device.console()?);
    }
    check_eq!(found, lines, "the lines");
    check_eq!(device.console()?, Vec::<String>::new(), "lines that were returned before");
    Ok(())
}

/// Counters have names, an unknown name is refused, and at least one counter grows with the work of the program. It can
/// be read after the device was dropped.
pub fn counters_grow_with_the_work(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let counters = needed(device.counters(), Ability::Counters)?;
    let names = counters.names();
    check!(!names.is_empty(), "counters without a name");
    match counters.open(&["no such counter"]) {
        Ok(_) => return Err(Stop::failed("an unknown counter was opened")),
        Err(error) => {
            check_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}; its kind");
            check!(error.message().contains("no such counter"), "{error} does not name it");
        }
    }
    let numbers = device.symbol("numbers")?.address;
    let mut grown = None;
    for name in &names {
        let mut open = counters.open(&[name])?;
        let mut read = || -> Outcome<u64> {
            let mut value = [u64::MAX];
            open.read(&mut value)?;
            check!(value[0] != u64::MAX, "{name:?} was not read");
            Ok(value[0])
        };
        let mut growth = |values: i32| -> Outcome<u64> {
            let before = read()?;
            call(&device, "sum", &[CallValue::Address(numbers), CallValue::I32(values)])?;
            let after = read()?;
            check!(after >= before, "{name:?} went from {before} to {after}");
            Ok(after - before)
        };
        let (little, much) = (growth(1)?, growth(1000)?);
        if much > little {
            grown = Some((open, name));
        }
    }
    let Some((mut open, name)) = grown else {
        let message = format_args!("none of {names:?} grows with the work of the program");
        return Err(Stop::failed(message));
    };
    let (mut before, mut after) = ([0], [u64::MAX]);
    open.read(&mut before)?;
    drop(device);
    open.read(&mut after)?;
    let is_kept = (before[0]..u64::MAX).contains(&after[0]);
    check!(is_kept, "{name:?} went from {before:?} to {after:?} with the device");
    Ok(())
}

/// A clone refers to the same device.
pub fn clones_are_one_device(fixture: &EmbeddedFixture) -> Outcome {
    let device = fixture.device()?;
    let clone = device.clone();
    check!(clone.is_same(&device), "a clone is another device");
    check_eq!((count(&device)?, count(&clone)?), (41, 42), "counts of the device and its clone");
    drop(device);
    is_usable(&clone)
}

/// A device that was dropped can be opened again, in the state of a new one.
pub fn the_device_can_be_opened_again(fixture: &EmbeddedFixture) -> Outcome {
    for _ in 0..3 {
        let device = fixture.device()?;
        check_eq!(count(&device)?, 41, "the first count of a new instance");
    }
    Ok(())
}
