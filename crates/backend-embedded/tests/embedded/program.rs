//! Programs: arguments, results, memory, printing, counting, faults.

use std::thread;
use std::time::Duration;

use backend_embedded::QemuConfig;
use runtime_core::contract::CallValue::{Address, F32, F64, I32, I64};
use runtime_core::{Embedded, ErrorKind};

use crate::{LONG, MACHINES, machines, must_work};

#[test]
fn results_of_every_type_come_back() {
    for (_, device) in machines() {
        must_work(&device);
        let long = device.call("add_long", &[I64(1 << 40), I64(-3)], LONG).unwrap();
        assert_eq!(long.i64(), (1 << 40) - 3);
        assert_eq!(device.call("add_float", &[F32(0.5), F32(-2.0)], LONG).unwrap().f32(), -1.5);
        let sum = device.call("add_double", &[F64(1e300), F64(-0.5e300)], LONG).unwrap();
        assert_eq!(sum.f64(), 0.5e300);
    }
}

#[test]
fn eighteen_arguments_of_all_types_arrive() {
    let arguments = [
        I32(-1),
        F64(2.5),
        I64(-(1 << 40)),
        F32(0.25),
        I32(250),
        F64(-7.0),
        I32(-2_000_000),
        F32(8.5),
        I64(1 << 35),
        F64(10.0),
        I32(11),
        F64(-12.0),
        I32(60_000),
        F32(14.0),
        F64(15.5),
        F64(16.0),
        F64(-17.0),
        F32(18.0),
    ];
    let weights = [1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59];
    let values = arguments.iter().map(|argument| match *argument {
        I32(value) => f64::from(value),
        // All are small enough to be exact.
        #[expect(clippy::cast_precision_loss, reason = "a power of two")]
        I64(value) => value as f64,
        F32(value) => f64::from(value),
        F64(value) => value,
        Address(_) => unreachable!(),
    });
    let expected: f64 = values.zip(weights).map(|(value, weight)| value * f64::from(weight)).sum();
    for (machine, device) in machines() {
        let mixed = device.call("mix", &arguments, LONG).unwrap().f64();
        assert_eq!(mixed, expected, "{}", machine.name);
    }
}

#[test]
fn memory_is_shared_with_the_program() {
    for (_, device) in machines() {
        let numbers = device.symbol("numbers").unwrap();
        assert_eq!(numbers.bytes, 4096);
        let bytes: Vec<u8> = (0..1024_u32).flat_map(u32::to_le_bytes).collect();
        device.memory_write(numbers.address, &bytes).unwrap();
        let sum = device.call("sum", &[Address(numbers.address), I32(1024)], LONG).unwrap();
        assert_eq!(sum.i32(), 1023 * 512);
        let mut back = vec![0; bytes.len()];
        device.memory_read(numbers.address, &mut back).unwrap();
        assert_eq!(back, bytes);
    }
}

/// More than the test program uses.
pub(crate) const PROGRAM_BYTES: u64 = 1 << 20;

#[test]
fn a_reset_restarts_the_program_and_keeps_other_memory() {
    for (_, device) in machines() {
        let count = || device.call("count", &[], LONG).unwrap().i32();
        assert_eq!((count(), count()), (41, 42));
        let area = &device.memory_map()[0];
        let behind = area.address + PROGRAM_BYTES;
        let written = vec![0xA5; usize::try_from(area.bytes - PROGRAM_BYTES).unwrap()];
        device.memory_write(behind, &written).unwrap();
        device.reset().unwrap();
        assert_eq!(count(), 41);
        let mut kept = vec![0; written.len()];
        device.memory_read(behind, &mut kept).unwrap();
        assert!(kept == written);
    }
}

#[test]
fn code_written_over_code_runs() {
    for (machine, device) in machines() {
        let area = &device.memory_map()[0];
        let place = area.address + area.bytes / 2;
        for _ in 0..3 {
            for (code, value) in machine.code.iter().zip(1..) {
                device.code_write(place, code).unwrap();
                assert_eq!(device.call_at(place, &[], LONG).unwrap().i32(), value);
            }
        }
        // Longer than the pieces that the monitor copies.
        let mut long = vec![0; 200_000];
        long.extend_from_slice(machine.code[1]);
        device.code_write(place, &long).unwrap();
        assert_eq!(device.call_at(place + 200_000, &[], LONG).unwrap().i32(), 2);
    }
}

#[test]
fn printed_lines_are_kept_in_order() {
    for (_, device) in machines() {
        let numbers = device.symbol("numbers").unwrap().address;
        for text in ["one\ntw", "o\r\nnot a whole line"] {
            device.memory_write(numbers, format!("{text}\0").as_bytes()).unwrap();
            device.call("say", &[Address(numbers)], LONG).unwrap();
        }
        assert_eq!(device.console().unwrap(), ["one", "two"]);
        assert!(device.console().unwrap().is_empty());
        device.reset().unwrap();
        assert_eq!(device.console().unwrap(), ["not a whole line"]);
    }
}

#[test]
fn two_boots_count_the_same_instructions() {
    let machine = &MACHINES[0];
    let counts = || {
        let config = QemuConfig::new().set("icount", "on").unwrap();
        let device = Embedded::new(machine.open_with(config)?);
        device.flash(machine.calls).unwrap();
        let counters = device.counters().unwrap();
        assert_eq!(counters.names(), ["instructions"]);
        let mut open = counters.open(&["instructions"]).unwrap();
        let numbers = device.symbol("numbers").unwrap().address;
        let mut read = || {
            let mut count = [0];
            open.read(&mut count).unwrap();
            count[0]
        };
        let calls: [(&str, &[_]); 4] = [
            ("nothing", &[]),
            ("sum", &[Address(numbers), I32(10)]),
            ("sum", &[Address(numbers), I32(1010)]),
            ("add_double", &[F64(1.0), F64(2.0)]),
        ];
        let counts = calls.map(|(name, arguments)| {
            let before = read();
            device.call(name, arguments, LONG).unwrap();
            read() - before
        });
        Some(counts)
    };
    let Some(first) = counts() else { return };
    // `nothing` is only a return; a thousand more elements take a thousand more loop steps.
    assert_eq!(first[0], 1);
    assert_eq!((first[2] - first[1]) % 1000, 0);
    for _ in 0..3 {
        assert_eq!(counts(), Some(first));
    }
}

#[test]
fn faults_name_cause_place_and_address_and_the_next_call_is_right() {
    for (machine, device) in machines() {
        let load = device.call("load", &[Address(machine.nowhere)], LONG).unwrap_err();
        let pc = device.symbol("load").unwrap().address;
        assert_eq!(load.kind(), ErrorKind::DeviceFault);
        assert!(load.message().contains(&format!("pc {pc:#x}")), "{load}");
        assert!(load.message().contains(&format!("address {:#x}", machine.nowhere)), "{load}");
        must_work(&device);
        let illegal = device.call("illegal", &[], LONG).unwrap_err();
        let names = [load, illegal].map(|error| error.driver().unwrap().name.to_string());
        let expected = match machine.name {
            "qemu-riscv64" => ["LOAD_ACCESS_FAULT", "ILLEGAL_INSTRUCTION"],
            _ => ["PRECISE_DATA_BUS_ERROR", "UNDEFINED_INSTRUCTION"],
        };
        assert_eq!(names, expected);
        must_work(&device);
        device.reset().unwrap();
        must_work(&device);
    }
}

#[test]
fn floating_point_that_a_function_disabled_is_on_in_the_next_call() {
    for (machine, device) in machines() {
        let error = device.call("disable_floats", &[], LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
        let half = device.call("add_double", &[F64(1.0), F64(-0.5)], LONG).unwrap();
        assert_eq!(half.f64(), 0.5, "{}", machine.name);
        must_work(&device);
    }
}

#[test]
fn a_function_that_drops_its_privileges_keeps_them_from_no_other_call() {
    let Some(device) = MACHINES[1].open() else { return };
    let error = device.call("drop_privileges", &[], LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
    must_work(&device);
}

#[test]
fn a_null_pointer_is_not_written_through() {
    for (machine, device) in machines() {
        for address in [0, 4, 0xFFC] {
            let error = device.call("store", &[Address(address), I32(-1)], LONG).unwrap_err();
            assert_eq!(error.driver().unwrap().name, machine.null, "{error}");
            assert!(error.message().ends_with(&format!("address {address:#x}")), "{error}");
            must_work(&device);
        }
    }
}

#[test]
fn breakpoints_and_calls_of_a_supervisor_are_named() {
    for (machine, device) in machines() {
        let name = |function| {
            let error = device.call(function, &[], LONG).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
            must_work(&device);
            error.driver().unwrap().name.to_string()
        };
        let expected = match machine.name {
            "qemu-riscv64" => ["BREAKPOINT", "ENVIRONMENT_CALL"],
            _ => ["BREAKPOINT_OR_SUPERVISOR_CALL"; 2],
        };
        assert_eq!([name("breakpoint"), name("environment_call")], expected);
    }
}

#[test]
fn a_fault_ends_the_line_that_was_begun() {
    for (_, device) in machines() {
        let numbers = device.symbol("numbers").unwrap().address;
        for (text, end) in [("last words", "illegal"), ("more", "nothing"), (" words\n", "nothing")]
        {
            device.memory_write(numbers, format!("{text}\0").as_bytes()).unwrap();
            device.call("say", &[Address(numbers)], LONG).unwrap();
            drop(device.call(end, &[], LONG));
        }
        assert_eq!(device.console().unwrap(), ["last words", "more words"]);
    }
}

/// The instructions of a call that faults, and of a call that returns late.
#[test]
fn instructions_of_calls_that_return_no_result_count() {
    let machine = &MACHINES[0];
    let config = QemuConfig::new().set("icount", "on").unwrap();
    let Some(device) = machine.open_with(config) else { return };
    let device = Embedded::new(device);
    device.flash(machine.calls).unwrap();
    let mut open = device.counters().unwrap().open(&["instructions"]).unwrap();
    let mut counted = || {
        let mut count = [0];
        open.read(&mut count).unwrap();
        count[0]
    };
    let area = &device.memory_map()[0];
    let long = |values: i32| [Address(area.address), I32(values)];
    device.call("sum", &long(1000), LONG).unwrap();
    let thousand = counted();
    device.call("sum", &long(2000), LONG).unwrap();
    let each = (counted() - 2 * thousand) / 1000;
    let before = counted();
    // The function leaves RAM after this number of steps.
    let steps = 1000;
    let end = area.address + area.bytes + (4 << 20);
    let beyond = [Address(end - 4 * steps), I32(i32::MAX)];
    device.call("sum", &beyond, LONG).unwrap_err();
    let faulted = counted() - before;
    assert!((steps * each..=(steps + 4) * each).contains(&faulted), "{faulted} of {each} each");
    let before = counted();
    let error = device.call("sum", &long(30_000_000), Duration::from_millis(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(counted(), before);
    let ended = (0..4000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        device.call("nothing", &[], LONG).is_ok()
    });
    assert!(ended, "the call never ended");
    // `nothing` is one instruction.
    let late = counted() - before - 1;
    assert_eq!(late, thousand + (30_000_000 - 1000) * each);
}

#[test]
fn a_stack_that_overflows_is_a_fault_and_the_next_call_is_right() {
    for (machine, device) in machines() {
        let recurse = |depth| device.call("recurse", &[I32(depth)], LONG);
        for _ in 0..2 {
            assert_eq!(recurse(5000).unwrap().i32(), 5000, "{}", machine.name);
            let error = recurse(i32::MAX).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
            let expected = match machine.name {
                "qemu-riscv64" => "STORE_ACCESS_FAULT",
                _ => "STACKING_ERROR",
            };
            assert_eq!(error.driver().unwrap().name, expected, "{error}");
            must_work(&device);
        }
    }
}

#[test]
fn a_function_that_restarts_the_monitor_is_a_fault_and_the_next_call_is_right() {
    for (machine, device) in machines() {
        let place = device.memory_map()[0].address + PROGRAM_BYTES;
        device.code_write(place, machine.restart).unwrap();
        for _ in 0..2 {
            let error = device.call_at(place, &[], LONG).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
            assert_eq!(error.driver().unwrap().name, "RESTARTED");
            must_work(&device);
        }
    }
}

#[test]
fn a_processor_that_locks_up_is_lost_until_it_is_reset() {
    let Some(device) = MACHINES[1].open() else { return };
    let place = device.memory_map()[0].address + PROGRAM_BYTES;
    // The code masks faults, and then faults: `cpsid f; udf #0`.
    device.code_write(place, &[0x71, 0xB6, 0x00, 0xDE]).unwrap();
    let error = device.call_at(place, &[], LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert_eq!(error.driver().unwrap().name, "LOCKUP", "{error}");
    assert!(error.message().contains(&format!("pc {:#x}", place + 2)), "{error}");
    assert_eq!(device.call("nothing", &[], LONG).unwrap_err().kind(), ErrorKind::DeviceLost);
    device.reset().unwrap();
    must_work(&device);
}

#[test]
fn an_endless_loop_is_a_timeout_and_a_reset_ends_it() {
    for (_, device) in machines() {
        let error = device.call("hang", &[], Duration::from_millis(30)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let error = device.call("count", &[], LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        device.reset().unwrap();
        must_work(&device);
    }
}

#[test]
fn a_call_that_ends_after_its_timeout_frees_the_device() {
    for (machine, device) in machines() {
        let rounds = 30_000_000;
        let area = &device.memory_map()[0];
        let long = [Address(area.address), I32(rounds)];
        let bound = u64::try_from(rounds).unwrap() * 4;
        if bound > area.bytes {
            continue;
        }
        match device.call("sum", &long, Duration::from_micros(200)) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{}", machine.name),
            Ok(_) => continue,
        }
        let free = (0..2000).any(|_| {
            thread::sleep(Duration::from_millis(5));
            device.call("nothing", &[], LONG).is_ok()
        });
        assert!(free, "the call never ended");
        must_work(&device);
    }
}

/// QEMU holds the function up until its output is read.
#[test]
fn a_call_that_timed_out_while_it_prints_goes_on_during_other_calls() {
    for (machine, device) in machines() {
        let (line, lines) = ("b".repeat(49), 400);
        let text = format!("{line}\n").repeat(lines) + "\0";
        let place = device.memory_map()[0].address + PROGRAM_BYTES;
        device.memory_write(place, text.as_bytes()).unwrap();
        let error = device.call("say", &[Address(place)], Duration::from_micros(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{}", machine.name);
        let mut printed = Vec::new();
        // A poll that reads only what has arrived would get few bytes.
        let most = text.len() / 20;
        let polls = (0..most).find(|poll| {
            printed.extend(device.console().unwrap());
            poll % 2 == 0 && device.call("nothing", &[], LONG).is_ok()
        });
        assert!(polls.is_some(), "{}: it still runs after {most} polls", machine.name);
        printed.extend(device.console().unwrap());
        assert!(printed == vec![line; lines], "{}: {} lines", machine.name, printed.len());
        must_work(&device);
    }
}

#[test]
fn a_reset_ends_a_call_of_another_thread() {
    for (_, device) in machines() {
        thread::scope(|scope| {
            let hanging = scope.spawn(|| device.call("hang", &[], LONG));
            thread::sleep(Duration::from_millis(50));
            device.reset().unwrap();
            let error = hanging.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        });
        must_work(&device);
    }
}

#[test]
fn calls_that_wait_for_their_turn_run_after_a_reset() {
    for (_, device) in machines() {
        thread::scope(|scope| {
            let hanging = scope.spawn(|| device.call("hang", &[], LONG));
            thread::sleep(Duration::from_millis(50));
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| must_work(&device))).collect();
            thread::sleep(Duration::from_millis(50));
            device.reset().unwrap();
            let error = hanging.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
            waiting.into_iter().for_each(|call| call.join().unwrap());
        });
    }
}
