//! A client of the GDB remote protocol: memory, registers, breakpoints, running.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use runtime_core::{Error, ErrorKind, Result};

use super::packet::Packets;

/// How long the server may take to answer what does not run the processor.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a packet if the server does not say what it takes.
const PACKET_BYTES: usize = 1024;

/// A connection to a halted processor.
#[derive(Debug)]
pub(crate) struct Client {
    packets: Packets,
    /// Bytes of memory that one packet carries.
    memory_bytes: usize,
}

/// Why the processor stands still, or that it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// It reached a breakpoint, or was halted.
    Stopped,
    /// The time was over first.
    Running,
}

impl Client {
    /// Connects, and halts the processor.
    ///
    /// # Errors
    ///
    /// `Unavailable` if nobody serves there; `Driver` if it is no server of the protocol.
    pub(crate) fn connect(address: &str, timeout: Duration) -> Result<Self> {
        let unavailable = |error: io::Error| {
            let message = format!("no debugger's server at {address}");
            Error::new(ErrorKind::Unavailable, "open", message).with_source(error)
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for place in address.to_socket_addrs().map_err(unavailable)? {
            match TcpStream::connect_timeout(&place, timeout) {
                Ok(stream) => {
                    let packets = Packets::new(stream).map_err(unavailable)?;
                    let mut client = Self { packets, memory_bytes: PACKET_BYTES / 2 };
                    client.greet()?;
                    return Ok(client);
                }
                Err(error) => last = error,
            }
        }
        Err(unavailable(last))
    }

    fn greet(&mut self) -> Result<()> {
        const OPERATION: &str = "open";
        let features = self.ask(OPERATION, "qSupported:swbreak+;hwbreak+;qXfer:features:read+")?;
        let features = String::from_utf8_lossy(&features).into_owned();
        let size = features.split(';').find_map(|feature| feature.strip_prefix("PacketSize="));
        let size =
            size.and_then(|size| usize::from_str_radix(size, 16).ok()).unwrap_or(PACKET_BYTES);
        // Two digits for a byte, and room for the address.
        self.memory_bytes = size.saturating_sub(64).clamp(32, 1 << 17) / 2;
        if features.contains("qXfer:features:read+") {
            // QEMU writes registers for nobody who has not asked which there are.
            self.ask(OPERATION, "qXfer:features:read:target.xml:0,40")?;
        }
        if self.ask(OPERATION, "QStartNoAckMode")? == b"OK" {
            self.packets.without_acknowledgement();
        }
        match self.ask(OPERATION, "?")?.first() {
            Some(b'S' | b'T') => Ok(()),
            _ => self.halt(OPERATION),
        }
    }

    /// Reads memory.
    pub(crate) fn read(
        &mut self,
        operation: &'static str,
        address: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        let mut at = address;
        for piece in bytes.chunks_mut(self.memory_bytes) {
            let answer = self.ask(operation, &format!("m{at:x},{:x}", piece.len()))?;
            let read = from_hex(&answer).filter(|read| read.len() == piece.len());
            let Some(read) = read else {
                return Err(refused(
                    operation,
                    &answer,
                    &format!("{} bytes at {at:#x}", piece.len()),
                ));
            };
            piece.copy_from_slice(&read);
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes memory.
    pub(crate) fn write(
        &mut self,
        operation: &'static str,
        address: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let mut at = address;
        for piece in bytes.chunks(self.memory_bytes) {
            let mut packet = format!("M{at:x},{:x}:", piece.len());
            push_hex(&mut packet, piece);
            let what = || format!("{} bytes at {at:#x}", piece.len());
            self.must(operation, &packet, what)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes a register of as many bytes as the value.
    pub(crate) fn write_register(
        &mut self,
        operation: &'static str,
        number: u32,
        value: &[u8],
    ) -> Result<()> {
        let mut packet = format!("P{number:x}=");
        push_hex(&mut packet, value);
        self.must(operation, &packet, || format!("register {number}"))
    }

    /// Sets a breakpoint on an instruction of two bytes, in memory or, where that cannot be written, in the processor.
    pub(crate) fn set_breakpoint(&mut self, operation: &'static str, address: u64) -> Result<()> {
        if self.ask(operation, &format!("Z0,{address:x},2"))? == b"OK" {
            return Ok(());
        }
        self.must(operation, &format!("Z1,{address:x},2"), || {
            format!("a breakpoint at {address:#x}")
        })
    }

    /// Lets the processor run.
    pub(crate) fn resume(&mut self, operation: &'static str) -> Result<()> {
        self.packets.send("c").map_err(|error| lost(operation, error))
    }

    /// Waits until a running processor stops, or for `timeout`. Text that it prints goes to `print`.
    pub(crate) fn wait(
        &mut self,
        operation: &'static str,
        timeout: Duration,
        mut print: impl FnMut(&[u8]),
    ) -> Result<Run> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let packet = self.packets.receive(deadline).map_err(|error| lost(operation, error))?;
            match packet.as_deref() {
                None => return Ok(Run::Running),
                Some([b'O', text @ ..]) if text != b"K" => {
                    print(&from_hex(text).unwrap_or_default())
                }
                Some([b'S' | b'T', ..]) => return Ok(Run::Stopped),
                Some([b'W' | b'X', ..]) => {
                    let error = io::Error::other("the program ended, and its processor with it");
                    return Err(lost(operation, error));
                }
                Some(_) => {}
            }
            // A program that prints without end has its time like any other.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Run::Running);
            }
        }
    }

    /// Halts a running processor.
    pub(crate) fn halt(&mut self, operation: &'static str) -> Result<()> {
        self.packets.interrupt().map_err(|error| lost(operation, error))?;
        match self.wait(operation, ANSWER_TIMEOUT, |_| ())? {
            Run::Stopped => Ok(()),
            Run::Running => Err(lost(operation, io::Error::other("the processor does not halt"))),
        }
    }

    /// Gives the server a command of its own, which `monitor` does in GDB.
    pub(crate) fn command(&mut self, operation: &'static str, command: &str) -> Result<()> {
        let mut packet = "qRcmd,".to_owned();
        push_hex(&mut packet, command.as_bytes());
        self.must(operation, &packet, || format!("the command {command:?}"))
    }

    /// Lets the processor go, and the connection.
    pub(crate) fn detach(&mut self) {
        // Whoever does not answer any more is left all the same.
        drop(self.ask("detach", "D"));
    }

    fn must(
        &mut self,
        operation: &'static str,
        packet: &str,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        let answer = self.ask(operation, packet)?;
        if answer == b"OK" { Ok(()) } else { Err(refused(operation, &answer, &what())) }
    }

    /// Sends a packet and gives the answer. What servers tell on their own is passed over: text that is printed, and that the
    /// processor stopped, when nobody waits for that any more.
    fn ask(&mut self, operation: &'static str, packet: &str) -> Result<Vec<u8>> {
        self.packets.send(packet).map_err(|error| lost(operation, error))?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let answer =
                self.packets.receive(Some(deadline)).map_err(|error| lost(operation, error))?;
            match answer {
                Some(text) if text.first() == Some(&b'O') && text != b"OK" => {}
                Some(stop) if is_stop(&stop) && packet != "?" => {}
                Some(answer) => return Ok(answer),
                None => break,
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        let error = io::Error::other(format!("no answer to {packet:.40} in {ANSWER_TIMEOUT:?}"));
        Err(lost(operation, error))
    }
}

fn is_stop(answer: &[u8]) -> bool {
    matches!(answer, [b'T' | b'S', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.reserve(2 * bytes.len());
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cold]
fn refused(operation: &'static str, answer: &[u8], what: &str) -> Error {
    let answer = String::from_utf8_lossy(answer).into_owned();
    let code =
        answer.strip_prefix('E').and_then(|code| i64::from_str_radix(code.get(..2)?, 16).ok());
    let told = if answer.is_empty() { "it does not know how" } else { &answer };
    let message = format!("the debugger's server refuses {what}: {told:.60}");
    Error::new(ErrorKind::Driver, operation, message).with_driver("GDB_ERROR", code.unwrap_or(0))
}

#[cold]
fn lost(operation: &'static str, error: io::Error) -> Error {
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the debugger's server closed the connection".to_owned(),
        _ => format!("the connection to the debugger's server: {error}"),
    };
    let code = error.raw_os_error().unwrap_or(0).into();
    Error::new(ErrorKind::DeviceLost, operation, message)
        .with_driver("GDB_LOST", code)
        .with_source(error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn bytes_are_hex_both_ways() {
        let mut text = String::new();
        push_hex(&mut text, &[0, 0x7F, 0xFF, 0x10]);
        assert_eq!(text, "007fff10");
        assert_eq!(from_hex(text.as_bytes()).unwrap(), [0, 0x7F, 0xFF, 0x10]);
        assert!(from_hex(b"0").is_none() && from_hex(b"0x").is_none());
    }

    #[test]
    fn a_program_that_prints_without_end_has_its_time_like_any_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let flood = thread::spawn(move || while server.write_all(b"$O61#b6").is_ok() {});
        let packets = Packets::new(stream).unwrap();
        let mut client = Client { packets, memory_bytes: PACKET_BYTES };
        let (began, mut printed) = (Instant::now(), 0);
        let timeout = Duration::from_millis(50);
        let run = client.wait("call", timeout, |text| printed += text.len()).unwrap();
        assert_eq!(run, Run::Running);
        assert!(printed > 0);
        assert!(began.elapsed() < Duration::from_secs(10));
        drop(client);
        flood.join().unwrap();
    }
}
