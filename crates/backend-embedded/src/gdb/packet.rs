//! Packets of the GDB remote protocol: `$payload#checksum`, over a connection.

use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The largest packet: no request has a longer answer.
const MAX_BYTES: usize = 1 << 20;
/// The timeout for sending a packet.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
const SHORTEST: Duration = Duration::from_micros(1);

/// A connection to a debug server.
#[derive(Debug)]
pub(crate) struct Packets {
    stream: TcpStream,
    received: Vec<u8>,
    /// Whether each side acknowledges packets.
    acknowledged: bool,
}

impl Packets {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self { stream, received: Vec::new(), acknowledged: true })
    }

    /// Turns acknowledgements off for both sides.
    pub(crate) fn without_acknowledgement(&mut self) {
        self.acknowledged = false;
    }

    /// Sends a packet of text.
    pub(crate) fn send(&mut self, payload: &str) -> io::Result<()> {
        let sum = checksum(payload.as_bytes());
        self.stream.write_all(format!("${payload}#{sum:02x}").as_bytes())
    }

    /// Makes the server stop the processor.
    pub(crate) fn interrupt(&mut self) -> io::Result<()> {
        self.stream.write_all(&[3])
    }

    /// Returns the next packet, or `None` if none comes before the deadline. Without a deadline it waits until a packet
    /// comes.
    pub(crate) fn receive(&mut self, deadline: Option<Instant>) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(payload) = self.next_received()? {
                return Ok(Some(payload));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // Data that has already arrived is read in any case, and a socket does not accept a timeout of zero.
            self.stream.set_read_timeout(left.map(|left| left.max(SHORTEST)))?;
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Io::UnexpectedEof.into()),
                Ok(read) => self.received.extend_from_slice(&bytes[..read]),
                Err(error)
                    if matches!(error.kind(), Io::WouldBlock | Io::TimedOut | Io::Interrupted) => {}
                Err(error) => return Err(error),
            }
            // The deadline also holds for a server that keeps sending data that is not a packet.
            if left.is_some_and(|left| left.is_zero()) {
                return self.next_received();
            }
        }
    }

    /// Takes the first packet from the received data, if it is complete.
    fn next_received(&mut self) -> io::Result<Option<Vec<u8>>> {
        let broken = |what: &str| io::Error::new(Io::InvalidData, what.to_owned());
        // Acknowledgements and notifications come between packets.
        let Some(start) = self.received.iter().position(|byte| *byte == b'$') else {
            self.received.clear();
            return Ok(None);
        };
        let Some(length) = self.received[start..].iter().position(|byte| *byte == b'#') else {
            return if self.received.len() > MAX_BYTES {
                Err(broken("an unterminated packet"))
            } else {
                Ok(None)
            };
        };
        let end = start + length;
        let Some(sum) = self.received.get(end + 1..end + 3) else { return Ok(None) };
        let sum = std::str::from_utf8(sum).ok().and_then(|sum| u8::from_str_radix(sum, 16).ok());
        let payload = self.received[start + 1..end].to_vec();
        self.received.drain(..end + 3);
        if sum != Some(checksum(&payload)) {
            return Err(broken("a packet with a wrong checksum"));
        }
        if self.acknowledged {
            self.stream.write_all(b"+")?;
        }
        expand(&payload).map(Some).ok_or_else(|| broken("a truncated packet"))
    }
}

fn checksum(payload: &[u8]) -> u8 {
    payload.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte))
}

/// Expands escapes (`}` and a byte) and runs (a byte, `*` and a count).
fn expand(payload: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(payload.len());
    let mut rest = payload.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'}' => bytes.push(rest.next()? ^ 0x20),
            b'*' => {
                let (last, count) = (*bytes.last()?, rest.next()?.checked_sub(29)?);
                bytes.resize(bytes.len() + usize::from(count), last);
            }
            _ => bytes.push(*byte),
        }
        if bytes.len() > MAX_BYTES {
            return None;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_escapes_are_expanded() {
        assert_eq!(expand(b"0* x").unwrap(), b"0000x");
        assert_eq!(expand(b"a}\x03b").unwrap(), b"a#b");
        for broken in [&b"*"[..], b"0*", b"}", b"0*\x01"] {
            assert!(expand(broken).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn the_checksum_is_that_of_the_protocol() {
        assert_eq!(checksum(b"OK"), 0x9a);
    }
}
