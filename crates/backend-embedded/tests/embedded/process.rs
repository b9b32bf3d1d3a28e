//! The emulator's process: only one runs, it ends when it must, and it uses no CPU time while it waits.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use backend_embedded::{QemuConfig, QemuDevice};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime_core::contract::EmbeddedDevice;
use runtime_core::{Embedded, ErrorKind};

use crate::{LONG, MACHINES, must_work};

fn runs(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie has already ended.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn must_end(process: u32) {
    let began = Instant::now();
    while runs(process) {
        assert!(began.elapsed() < LONG, "process {process} goes on");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn kill_it(process: u32) {
    kill(Pid::from_raw(process.try_into().unwrap()), Signal::SIGKILL).unwrap();
}

fn open() -> Option<QemuDevice> {
    MACHINES[0].open_with(QemuConfig::new())
}

/// A script that starts the emulator and waits for it.
const WRAPPER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/wrapper.sh");

/// A device, and its processes: the emulator, or the script and the emulator that it started.
fn open_by(emulator: &str) -> Option<(QemuDevice, Vec<u32>)> {
    let device = MACHINES[0].open_with(QemuConfig::new().set("qemu", emulator).unwrap())?;
    let process = device.process_id().unwrap();
    let parent = |child: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let all = fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let mut processes: Vec<u32> = all.filter(|child| parent(*child) == Some(process)).collect();
    assert_eq!(processes.len(), usize::from(emulator == WRAPPER));
    processes.push(process);
    Some((device, processes))
}

const EMULATORS: [&str; 2] = ["qemu-system-riscv64", WRAPPER];

#[test]
fn a_dropped_device_ends_its_processes() {
    for emulator in EMULATORS {
        let Some((device, processes)) = open_by(emulator) else { return };
        assert!(processes.iter().all(|process| runs(*process)));
        drop(device);
        processes.into_iter().for_each(must_end);
    }
}

#[test]
fn flashing_ends_all_processes_and_starts_others() {
    let Some((device, processes)) = open_by(WRAPPER) else { return };
    device.flash(MACHINES[0].calls).unwrap();
    processes.into_iter().for_each(must_end);
    must_work(&Embedded::new(device));
}

#[test]
fn a_device_outlives_the_thread_that_opened_it() {
    let Some(device) = thread::spawn(open).join().unwrap() else { return };
    let process = device.process_id().unwrap();
    thread::sleep(Duration::from_millis(100));
    assert!(runs(process));
}

/// Opens a device and prints its processes, in a separate process that is then killed.
#[test]
fn a_killed_owner_takes_its_processes_along() {
    const CHILD: &str = "BACKEND_EMBEDDED_TEST_CHILD";
    if let Ok(emulator) = std::env::var(CHILD) {
        let opened = open_by(&emulator);
        let processes = opened.as_ref().map_or(&[][..], |(_, processes)| processes);
        println!("\nprocesses {processes:?}");
        thread::sleep(LONG);
        return;
    }
    for emulator in EMULATORS {
        let name = "process::a_killed_owner_takes_its_processes_along";
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, emulator)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines().map_while(Result::ok);
        let reported =
            lines.find_map(|line| Some(line.strip_prefix("processes ")?.to_owned())).unwrap();
        owner.kill().unwrap();
        owner.wait().unwrap();
        let processes =
            reported.trim_matches(['[', ']']).split(", ").filter_map(|id| id.parse().ok());
        processes.for_each(must_end);
    }
}

#[test]
fn a_process_killed_half_way_is_a_lost_device_until_it_is_reset() {
    let Some(device) = open() else { return };
    device.flash(MACHINES[0].calls).unwrap();
    let process = device.process_id().unwrap();
    let hang = device.symbol("hang").unwrap().address;
    thread::scope(|scope| {
        let hanging = scope.spawn(|| device.call(hang, &[], LONG));
        thread::sleep(Duration::from_millis(30));
        kill_it(process);
        let error = hanging.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        assert!(error.message().contains("signal: 9"), "{error}");
    });
    let error = device.call(hang, &[], LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    device.reset().unwrap();
    must_work(&Embedded::new(device));
}

#[test]
fn two_devices_are_two_processes_with_memory_of_their_own() {
    let (Some(first), Some(second)) = (MACHINES[0].open(), MACHINES[0].open()) else { return };
    for device in [&first, &first, &second] {
        device.call("count", &[], LONG).unwrap();
    }
    let count = |device: &Embedded| device.call("count", &[], LONG).unwrap().i32();
    assert_eq!((count(&first), count(&second)), (43, 42));
    assert!(
        first
            .call("load", &[runtime_core::contract::CallValue::Address(0x9000_0000)], LONG)
            .is_err()
    );
    must_work(&second);
}

#[test]
fn a_device_leaves_no_named_file_on_disk() {
    let Some(device) = open() else { return };
    let process = device.process_id().unwrap();
    let mut files = 0;
    for entry in fs::read_dir(format!("/proc/{process}/fd")).unwrap() {
        let place: PathBuf = fs::read_link(entry.unwrap().path()).unwrap();
        let place = place.to_string_lossy().into_owned();
        let anonymous = ["/memfd:", "socket:", "pipe:", "anon_inode:", "/dev/"];
        assert!(anonymous.iter().any(|start| place.starts_with(start)), "{place}");
        files += 1;
    }
    assert!(files > 3, "{files}");
}

#[test]
fn an_idle_machine_takes_no_time() {
    let Some(device) = open() else { return };
    let process = device.process_id().unwrap();
    let ticks = || -> u64 {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        // The times in user and system mode, in the 14th and 15th fields.
        rest.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
    };
    thread::sleep(Duration::from_millis(100));
    let before = ticks();
    thread::sleep(Duration::from_secs(1));
    assert!(ticks() - before <= 2, "{} hundredths of a second", ticks() - before);
}
