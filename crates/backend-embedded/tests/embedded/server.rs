//! Debug servers with other answers than QEMU's: without a processor, controlled by a test's script.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use backend_embedded::{Board, GdbDevice};
use runtime_core::contract::CallValue::I32;
use runtime_core::{Embedded, ErrorKind};

use crate::LONG;

const BOARD: &str = r#"
    name = "scripted"
    processor = "cortex-m3"
    stack = 0x20001000
    stub = 0x20001000
    reset = "reset halt"
    memory = [{ name = "ram", address = 0x20002000, bytes = 0x1000 }]
"#;
const RAM: u64 = 0x2000_2000;
/// The start of a mailbox with a request to call: 2, in 8 bytes.
const CALL: &str = "0200000000000000";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Memory. Calls return their first argument immediately.
#[derive(Default)]
struct Memory {
    bytes: BTreeMap<u64, u8>,
    mailbox: u64,
}

impl Memory {
    fn read(&self, address: u64, bytes: u64) -> String {
        let byte = |at| self.bytes.get(&at).copied().unwrap_or(0);
        hex(&(address..address + bytes).map(byte).collect::<Vec<_>>())
    }

    fn write(&mut self, address: u64, digits: &str) {
        // A request contains all registers.
        if digits.starts_with(CALL) && digits.len() >= 2 * 192 {
            self.mailbox = address;
        }
        for (at, place) in (address..).zip((0..digits.len()).step_by(2)) {
            self.bytes.insert(at, u8::from_str_radix(&digits[place..place + 2], 16).unwrap());
        }
    }

    /// Makes the function return: the processor is at the breakpoint.
    fn finish(&mut self) -> Vec<String> {
        self.bytes.insert(self.mailbox, 3);
        vec!["T05swbreak:;".to_owned()]
    }

    /// The usual answers of a server, most of all the confirmation of a request.
    fn answer(&mut self, packet: &str) -> Vec<String> {
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let range = |text: &str| {
            let (address, bytes) = text.split_once(',').unwrap();
            (number(address), number(bytes))
        };
        let (what, rest) = packet.split_at(1);
        let answer = match what {
            "?" => "S05".to_owned(),
            "m" => {
                let (address, bytes) = range(rest);
                self.read(address, bytes)
            }
            "M" => {
                let (place, digits) = rest.split_once(':').unwrap();
                self.write(range(place).0, digits);
                "OK".to_owned()
            }
            "p" => "34120020".to_owned(),
            "c" => return self.finish(),
            "q" if rest.starts_with("Supported") => "PacketSize=400".to_owned(),
            _ => "OK".to_owned(),
        };
        vec![answer]
    }
}

/// The server's end of a connection.
struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Peer {
    /// The next packet, or `None` when the other side has closed the connection.
    fn receive(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'#')
                && self.received.len() >= end + 3
            {
                let packet: Vec<u8> = self.received.drain(..end + 3).collect();
                let start = packet.iter().position(|byte| *byte == b'$').unwrap();
                return Some(String::from_utf8(packet[start + 1..end].to_vec()).unwrap());
            }
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes).unwrap_or(0);
            if read == 0 {
                return None;
            }
            self.received.extend_from_slice(&bytes[..read]);
        }
    }

    fn send(&mut self, payload: &str) {
        let sum = payload.bytes().fold(0, |sum: u8, byte| sum.wrapping_add(byte));
        // A closed connection is noticed when nothing is received.
        let _ = self.stream.write_all(format!("${payload}#{sum:02x}").as_bytes());
    }
}

/// A device behind a server, and the number of its connections. The script answers first; the usual answers apply
/// otherwise.
fn connect(
    mut script: impl FnMut(&str, &mut Memory) -> Option<Vec<String>> + Send + 'static,
) -> (Embedded, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&connections);
    thread::spawn(move || {
        let mut memory = Memory::default();
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::Relaxed);
            let mut peer = Peer { stream: stream.unwrap(), received: Vec::new() };
            while let Some(packet) = peer.receive() {
                let answers = script(&packet, &mut memory);
                for answer in answers.unwrap_or_else(|| memory.answer(&packet)) {
                    peer.send(&answer);
                }
            }
        }
    });
    let device = GdbDevice::connect(&address, Board::parse(BOARD).unwrap()).unwrap();
    (Embedded::new(device), connections)
}

#[track_caller]
fn must_call(device: &Embedded) {
    assert_eq!(device.call_at(RAM, &[I32(-7)], LONG).unwrap().i32(), -7);
}

/// As in OpenOCD.
#[test]
fn a_server_that_sets_no_breakpoint_twice_is_reset_again_and_again() {
    let mut set = BTreeSet::new();
    let (device, connections) = connect(move |packet, _| {
        let done = match packet.split_once(',')?.0 {
            "Z0" => set.insert(packet.to_lowercase()),
            "z0" => set.remove(packet),
            "Z1" | "z1" => false,
            _ => return None,
        };
        Some(vec![if done { "OK" } else { "E0E" }.to_owned()])
    });
    for _ in 0..3 {
        must_call(&device);
        device.reset().unwrap();
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

/// As in pyOCD.
#[test]
fn a_server_may_answer_a_command_by_text() {
    let (commands, given) = mpsc::channel();
    let (device, _) = connect(move |packet, _| {
        let command = packet.strip_prefix("qRcmd,")?.to_owned();
        commands.send(command).unwrap();
        Some(vec![format!("O{}", hex(b"Resetting\n")), hex(b"Halted\n")])
    });
    device.reset().unwrap();
    must_call(&device);
    drop(device);
    assert_eq!(given.try_iter().collect::<Vec<_>>(), [hex(b"reset halt"), hex(b"reset halt")]);
}

#[test]
fn a_request_that_is_refused_leaves_the_connection() {
    for (refused, answer) in [("qRcmd,", "E01"), ("qRcmd,", ""), ("M20001000,", "E0E")] {
        let mut requests = 0;
        let (device, connections) = connect(move |packet, _| {
            packet.strip_prefix(refused)?;
            requests += 1;
            // The first is the connection of opening.
            (requests == 2).then(|| vec![answer.to_owned()])
        });
        must_call(&device);
        let error = device.reset().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
        must_call(&device);
        device.reset().unwrap();
        must_call(&device);
        assert_eq!(connections.load(Ordering::Relaxed), 1, "{refused}");
    }
}

#[test]
fn output_through_the_debugger_is_printed() {
    let text = b"one\ntwo\n";
    let requests = [
        "write,1,20002100,8",
        "open,20002100,8,0,1b6",
        "write,2,20002100,8",
        "write,1,fffffffffffffffe,8",
    ];
    let mut requests = requests.into_iter();
    let (results, given) = mpsc::channel();
    let (device, _) = connect(move |packet, memory| {
        if packet == "c" {
            memory.write(0x2000_2100, &hex(text));
        } else {
            packet.strip_prefix('F')?;
            results.send(packet.to_owned()).unwrap();
        }
        // A result lets the program continue.
        Some(match requests.next() {
            Some(request) => vec![format!("F{request}")],
            None => memory.finish(),
        })
    });
    must_call(&device);
    assert_eq!(device.console().unwrap(), ["one", "two", "one", "two"]);
    drop(device);
    assert_eq!(given.try_iter().collect::<Vec<_>>(), ["F8", "F-1,58", "F8", "F-1,e"]);
}

#[test]
fn a_server_that_is_silent_during_a_call_is_not_waited_for_much_longer_than_the_call() {
    // Before the function runs, and after it.
    for silent_from in ["M", "P", "m"] {
        let silent = Arc::new(AtomicBool::new(false));
        let is_silent = Arc::clone(&silent);
        let (device, connections) = connect(move |packet, _| {
            let silences = packet.starts_with(silent_from) && is_silent.load(Ordering::Relaxed);
            silences.then(Vec::new)
        });
        silent.store(true, Ordering::Relaxed);
        let began = Instant::now();
        let error = device.call_at(RAM, &[I32(1)], Duration::from_millis(100)).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(5), "{silent_from}: {:?}", began.elapsed());
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        silent.store(false, Ordering::Relaxed);
        device.reset().unwrap();
        must_call(&device);
        assert_eq!(connections.load(Ordering::Relaxed), 2, "{silent_from}");
    }
}

#[test]
fn a_stop_elsewhere_is_a_fault_with_place_and_reason() {
    let mut calls = 0;
    let (device, _) = connect(move |packet, _| {
        calls += usize::from(packet == "c");
        (packet == "c" && calls == 1).then(|| vec!["T0Bwatch:20002000;".to_owned()])
    });
    let error = device.call_at(RAM, &[], LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
    let code = error.driver().unwrap();
    assert_eq!((&*code.name, code.code), ("STOPPED", 11));
    for expected in ["pc 0x20001234", "T0Bwatch:20002000;"] {
        assert!(error.message().contains(expected), "{error}");
    }
    must_call(&device);
}
