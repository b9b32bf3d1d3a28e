//! A client of the GDB remote protocol: memory, registers, breakpoints, running.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use runtime_core::{Error, ErrorKind, Result};

use super::packet::Packets;

/// The timeout for answers that do not run the processor.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The least time for such an answer during a call whose timeout is over.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout for the first answer: a server that is busy with another debugger accepts a connection but does not
/// answer.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);
/// The packet size in bytes if the server does not report it.
const PACKET_BYTES: usize = 1024;
/// The error codes for failed system calls: `EFAULT` and `ENOSYS` in the numbering of the protocol.
const BAD_ADDRESS: u32 = 14;
const NO_SUCH_CALL: u32 = 88;

/// A connection to a halted processor.
#[derive(Debug)]
pub(crate) struct Client {
    packets: Packets,
    /// The bytes of memory that fit in one packet.
    memory_bytes: usize,
    /// The end of the call that is being made.
    pub(crate) deadline: Option<Instant>,
}

/// Whether the processor has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// The processor reached a breakpoint, or was halted.
    Stopped(Stop),
    /// The timeout ended first.
    Running,
}

/// The server's report of a stopped processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// The signal number in the numbering of GDB.
    pub(crate) signal: u8,
    /// The answer, such as `T05swbreak:;`.
    pub(crate) reported: String,
}

impl Stop {
    fn read(answer: &[u8]) -> Option<Self> {
        let [b'S' | b'T', signal @ ..] = answer else { return None };
        let signal = from_hex(signal.get(..2)?)?[0];
        Some(Self { signal, reported: String::from_utf8_lossy(answer).into_owned() })
    }
}

impl Client {
    /// Connects, and halts the processor.
    ///
    /// # Errors
    ///
    /// `Unavailable` if no server listens there, or if it does not answer, for example because it serves another
    /// debugger. `Driver` if it does not use the protocol.
    pub(crate) fn connect(address: &str, timeout: Duration) -> Result<Self> {
        let unavailable = |error: io::Error| {
            let message = format!("no debugger's server at {address}: {error}");
            Error::new(ErrorKind::Unavailable, "open", message).with_source(error)
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for place in address.to_socket_addrs().map_err(unavailable)? {
            match TcpStream::connect_timeout(&place, timeout) {
                Ok(stream) => {
                    let packets = Packets::new(stream).map_err(unavailable)?;
                    let mut client =
                        Self { packets, memory_bytes: PACKET_BYTES / 2, deadline: None };
                    client.greet(address)?;
                    return Ok(client);
                }
                Err(error) => last = error,
            }
        }
        Err(unavailable(last))
    }

    fn greet(&mut self, address: &str) -> Result<()> {
        const OPERATION: &str = "open";
        let asked = "qSupported:swbreak+;hwbreak+;qXfer:features:read+";
        let Some(features) = self.ask_within(OPERATION, asked, GREETING_TIMEOUT)? else {
            let message = format!(
                "the server at {address} does not answer within {GREETING_TIMEOUT:?}: most servers accept one debugger at a time, and another may be connected"
            );
            return Err(Error::new(ErrorKind::Unavailable, OPERATION, message));
        };
        let features = String::from_utf8_lossy(&features).into_owned();
        let size = features.split(';').find_map(|feature| feature.strip_prefix("PacketSize="));
        let size =
            size.and_then(|size| usize::from_str_radix(size, 16).ok()).unwrap_or(PACKET_BYTES);
        // A byte takes two digits; the address needs space, too.
        self.memory_bytes = size.saturating_sub(64).clamp(32, 1 << 17) / 2;
        if features.contains("qXfer:features:read+") {
            // QEMU only writes registers after a client has queried the register list.
            self.ask(OPERATION, "qXfer:features:read:target.xml:0,40")?;
        }
        if self.ask(OPERATION, "QStartNoAckMode")? == b"OK" {
            self.packets.without_acknowledgement();
        }
        match Stop::read(&self.ask(OPERATION, "?")?) {
            Some(_) => Ok(()),
            None => self.halt(OPERATION),
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
        if address.checked_add(bytes.len() as u64).is_none() {
            let message = format!("{} bytes at {at:#x}, beyond the last address", bytes.len());
            return Err(Error::new(ErrorKind::OutOfBounds, operation, message));
        }
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

    /// Writes a register. Its size is that of the value.
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

    /// Reads a register. Returns `None` if the server does not report it.
    pub(crate) fn read_register(
        &mut self,
        operation: &'static str,
        number: u32,
    ) -> Result<Option<u64>> {
        let answer = self.ask(operation, &format!("p{number:x}"))?;
        let bytes = from_hex(&answer).filter(|bytes| (1..=8).contains(&bytes.len()));
        Ok(bytes
            .map(|bytes| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))))
    }

    /// Removes the breakpoint on an instruction, if there is one.
    pub(crate) fn clear_breakpoint(&mut self, operation: &'static str, address: u64) -> Result<()> {
        // Servers refuse to remove a breakpoint that does not exist.
        self.ask(operation, &format!("z0,{address:x},2"))?;
        self.ask(operation, &format!("z1,{address:x},2"))?;
        Ok(())
    }

    /// Sets a breakpoint on a two-byte instruction: in memory, or in the processor if that memory is read-only.
    pub(crate) fn set_breakpoint(&mut self, operation: &'static str, address: u64) -> Result<()> {
        if self.ask(operation, &format!("Z0,{address:x},2"))? == b"OK" {
            return Ok(());
        }
        self.must(operation, &format!("Z1,{address:x},2"), || {
            format!("a breakpoint at {address:#x}")
        })
    }

    /// Makes the processor run.
    pub(crate) fn resume(&mut self, operation: &'static str) -> Result<()> {
        self.packets.send("c").map_err(|error| lost(operation, error))
    }

    /// Waits until a running processor stops, or for `timeout`. Text that it prints goes to `print`, whether the server
    /// forwards it or the program makes the debugger write it.
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
                Some([b'W' | b'X', ..]) => {
                    let error = io::Error::other("the program ended, and its processor with it");
                    return Err(lost(operation, error));
                }
                Some([b'F', request @ ..]) => self.serve(operation, request, &mut print)?,
                Some(answer) => {
                    if let Some(stop) = Stop::read(answer) {
                        return Ok(Run::Stopped(stop));
                    }
                }
            }
            // The timeout also holds for a program that prints without end.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Run::Running);
            }
        }
    }

    /// Serves a system call of a program, which waits for the result. Writes to standard output and standard error are
    /// printed; all other calls fail.
    fn serve(
        &mut self,
        operation: &'static str,
        request: &[u8],
        print: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        let request = String::from_utf8_lossy(request);
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let write = match *request.split(',').collect::<Vec<_>>() {
            ["write", "1" | "2", address, bytes] => number(address).zip(number(bytes)),
            _ => None,
        };
        let result = match write {
            Some((address, bytes)) => {
                // The program gets the number of bytes written, and calls again for the rest.
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.memory_bytes);
                let mut text = vec![0; bytes];
                match self.read(operation, address, &mut text) {
                    Ok(()) => {
                        print(&text);
                        format!("F{bytes:x}")
                    }
                    Err(error) if error.kind() == ErrorKind::DeviceLost => return Err(error),
                    Err(_) => format!("F-1,{BAD_ADDRESS:x}"),
                }
            }
            None => format!("F-1,{NO_SUCH_CALL:x}"),
        };
        self.packets.send(&result).map_err(|error| lost(operation, error))
    }

    /// Halts a running processor.
    pub(crate) fn halt(&mut self, operation: &'static str) -> Result<()> {
        self.packets.interrupt().map_err(|error| lost(operation, error))?;
        match self.wait(operation, ANSWER_TIMEOUT, |_| ())? {
            Run::Stopped(_) => Ok(()),
            Run::Running => Err(lost(operation, io::Error::other("the processor does not halt"))),
        }
    }

    /// Sends the server a command of its own, as `monitor` does in GDB. Returns its output.
    pub(crate) fn command(
        &mut self,
        operation: &'static str,
        command: &str,
    ) -> Result<Option<String>> {
        let mut packet = "qRcmd,".to_owned();
        push_hex(&mut packet, command.as_bytes());
        let answer = self.ask(operation, &packet)?;
        match from_hex(&answer).filter(|text| !text.is_empty()) {
            // The output of the command, instead of OK.
            Some(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            None if answer == b"OK" => Ok(None),
            None => Err(refused(operation, &answer, &format!("the command {command:?}"))),
        }
    }

    /// Releases the processor, and closes the connection.
    pub(crate) fn detach(&mut self) {
        // Closes the connection even if the server no longer answers.
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

    fn ask(&mut self, operation: &'static str, packet: &str) -> Result<Vec<u8>> {
        let left = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = left.unwrap_or(ANSWER_TIMEOUT).clamp(LEAST_TIMEOUT, ANSWER_TIMEOUT);
        self.ask_within(operation, packet, timeout)?.ok_or_else(|| {
            let error = format!("no answer to {packet:.40} in {timeout:.1?}");
            lost(operation, io::Error::other(error))
        })
    }

    /// Sends a packet and returns the answer, or `None` if there is none within `timeout`. Skips packets that the
    /// server sends on its own: printed text, and stop reports that nothing waits for any more.
    fn ask_within(
        &mut self,
        operation: &'static str,
        packet: &str,
        timeout: Duration,
    ) -> Result<Option<Vec<u8>>> {
        self.packets.send(packet).map_err(|error| lost(operation, error))?;
        let deadline = Instant::now() + timeout;
        loop {
            let answer =
                self.packets.receive(Some(deadline)).map_err(|error| lost(operation, error))?;
            match answer {
                Some(text) if text.first() == Some(&b'O') && text != b"OK" => {}
                Some(stop) if packet != "?" && Stop::read(&stop).is_some() => {}
                Some(answer) => return Ok(Some(answer)),
                None => return Ok(None),
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }
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
    let reported = if answer.is_empty() { "not supported" } else { &answer };
    let message = format!("the debugger's server refuses {what}: {reported:.60}");
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
    fn an_endless_flood_ends_at_the_timeout() {
        // Output of a program; acknowledgements; a notification; a system call.
        for packet in ["$O61#b6", "+", "%Stop:T05#a1", "$Fgettimeofday,0,0#00"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let mut answers = server.try_clone().unwrap();
            let flood = thread::spawn(move || while server.write_all(packet.as_bytes()).is_ok() {});
            let drain = thread::spawn(move || io::copy(&mut answers, &mut io::sink()));
            let packets = Packets::new(stream).unwrap();
            let mut client = Client { packets, memory_bytes: PACKET_BYTES, deadline: None };
            let (began, mut printed) = (Instant::now(), 0);
            let timeout = Duration::from_millis(50);
            let run = client.wait("call", timeout, |text| printed += text.len()).unwrap();
            assert_eq!(run, Run::Running, "{packet}");
            assert_eq!(printed > 0, packet.starts_with("$O"));
            assert!(began.elapsed() < Duration::from_secs(10), "{packet}");
            drop(client);
            flood.join().unwrap();
            let _ = drain.join().unwrap();
        }
    }
}
