//! The rules for embedded devices, on both QEMU machines and behind a debug server, and devices with a defect, each of
//! which breaks a rule.

mod wrapped;

use backend_embedded::{QemuConfig, QemuDevice};
use conformance::embedded::{EmbeddedFixture, rules};
use conformance::{Ability, Outcome, Stop};
use runtime_core::{Embedded, Result};

use wrapped::{Broken, Wrapped, serve};

const RISCV: &[u8] = include_bytes!("../../firmware/built/calls-riscv64.elf");
const CORTEX_M7: &[u8] = include_bytes!("../../firmware/built/calls-cortex-m7.elf");

/// More than 1 MiB behind the start of memory; the program uses less.
const RISCV_FREE: u64 = 0x8030_0000;
const CORTEX_M7_FREE: u64 = 0x6080_0000;

fn machine(name: &str) -> Result<Embedded> {
    Ok(Embedded::new(QemuDevice::open(name, QemuConfig::new())?))
}

mod qemu_riscv64 {
    conformance::embedded! {
        name: "embedded:qemu-riscv64",
        open: || super::machine("qemu-riscv64"),
        program: super::RISCV,
        free: super::RISCV_FREE,
    }
}

/// It counts exactly, and so it has the ability that the others lack.
fn counting() -> Result<Embedded> {
    let config = QemuConfig::new().set("icount", "on")?;
    Ok(Embedded::new(QemuDevice::open("qemu-riscv64", config)?))
}

mod qemu_riscv64_counting {
    conformance::embedded! {
        name: "embedded:qemu-riscv64?icount=on",
        open: super::counting,
        program: super::RISCV,
        free: super::RISCV_FREE,
        abilities: [Counters],
    }
}

mod qemu_cortex_m7 {
    conformance::embedded! {
        name: "embedded:qemu-cortex-m7",
        open: || super::machine("qemu-cortex-m7"),
        program: super::CORTEX_M7,
        free: super::CORTEX_M7_FREE,
    }
}

mod debug_server {
    conformance::embedded! {
        name: "embedded:gdb",
        open: super::serve,
        program: super::RISCV,
        free: super::RISCV_FREE,
        // The debug server does not pass on the serial line.
        lacks: [Console],
    }
}

/// A machine that counts or not, with a defect.
fn wrapped(icount: &'static str, broken: Broken) -> EmbeddedFixture {
    let open = move || {
        let config = QemuConfig::new().set("icount", icount)?;
        let device = QemuDevice::open("qemu-riscv64", config)?;
        Ok(Embedded::new(Wrapped::new(device, broken)))
    };
    EmbeddedFixture::new("with a defect", open, RISCV, RISCV_FREE)
}

/// Fails unless the device with the defect breaks the rule, and the same device without it keeps the rule.
fn bites(name: &str, rule: fn(&EmbeddedFixture) -> Outcome, broken: Broken) {
    let counts = [Broken::CountersAreConstant, Broken::CountersEndWithTheDevice].contains(&broken);
    let icount = if counts { "on" } else { "off" };
    match rule(&wrapped(icount, Broken::Nothing)) {
        Err(Stop::Skipped(why)) => return println!("skipped: {why}"),
        outcome => assert_eq!(outcome, Ok(()), "{name} with nothing broken"),
    }
    let outcome = rule(&wrapped(icount, broken));
    assert!(matches!(outcome, Err(Stop::Failed(_))), "{name}, {broken:?}: {outcome:?}");
}

macro_rules! bites {
    ($($test:ident: $broken:ident => $rule:ident;)*) => {$(
        #[test]
        fn $test() {
            bites(stringify!($rule), rules::$rule, Broken::$broken);
        }
    )*};
}

bites! {
    a_map_that_changes: MapChanges => information_about_the_device_is_stable;
    arguments_that_are_lost: ArgumentsAreFew => many_arguments_of_every_type_arrive;
    results_without_their_upper_half: ResultIsCut => results_of_every_type_come_back;
    a_time_of_nothing: TimeIsZero => the_time_of_a_call_is_reported;
    writes_that_are_lost: WritesAreLost => memory_keeps_the_bytes_written;
    writes_that_the_program_does_not_see: WritesAreLost => the_program_sees_the_bytes_written;
    a_last_byte_that_is_lost: LastByteIsLost => memory_is_reached_up_to_its_ends;
    code_that_is_written_as_data: CodeIsData => code_that_is_written_over_code_runs;
    data_that_is_a_function: SymbolsAreFunctions => data_is_not_called;
    symbols_of_unknown_names: UnknownSymbolsExist => symbols_are_found_by_name;
    a_program_that_goes_on: FlashesOnce => flashing_starts_the_program_anew;
    a_program_that_is_not_replaced: FlashesOnce => calls_run_the_program_that_was_flashed_last;
    images_that_are_taken: ImagesAreTaken => a_broken_image_is_refused;
    a_reset_that_does_nothing: ResetDoesNothing => a_reset_restarts_the_program_and_keeps_memory;
    a_reset_that_clears_memory: ResetClears => a_reset_restarts_the_program_and_keeps_memory;
    a_reset_that_ends_nothing: ResetDoesNothing => a_reset_ends_a_call_of_another_thread;
    a_timeout_as_a_result: TimeoutIsResult => a_timeout_is_reported_in_time_and_a_reset_ends_the_call;
    a_fault_as_a_result: FaultIsResult => a_fault_is_reported_and_the_next_call_is_right;
    a_fault_without_a_place: FaultHasNoPlace => a_fault_is_reported_and_the_next_call_is_right;
    results_of_others: ResultIsOfAnother => calls_of_threads_take_turns;
    lines_that_arrive_again: LinesRepeat => printed_lines_arrive_once_and_in_order;
    counters_that_are_constant: CountersAreConstant => counters_grow_with_the_work;
    counters_without_their_device: CountersEndWithTheDevice => counters_grow_with_the_work;
}

#[test]
fn a_rule_about_counters_does_not_apply_without_them() {
    match rules::counters_grow_with_the_work(&wrapped("off", Broken::Nothing)) {
        Err(Stop::Skipped(why)) => println!("skipped: {why}"),
        outcome => assert_eq!(outcome, Err(Stop::NotApplicable(Ability::Counters))),
    }
}

/// The machines have no read-only memory.
#[test]
fn a_device_with_read_only_memory_keeps_the_rules_about_memory() {
    for rule in [
        rules::ranges_outside_of_the_memory_map_are_refused,
        rules::memory_is_reached_up_to_its_ends,
    ] {
        match rule(&wrapped("off", Broken::EndIsReadOnly)) {
            Err(Stop::Skipped(why)) => println!("skipped: {why}"),
            outcome => assert_eq!(outcome, Ok(())),
        }
    }
}
