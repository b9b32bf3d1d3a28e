//! The description of a message without its bytes.

use std::fmt;

use runtime_core::{Error, ErrorKind, Result};

use super::{Buffer, Communicator};

/// The direction of a message, seen from the rank that made the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// To the peer.
    Send,
    /// From the peer.
    Receive,
}

/// Describes the message that a request is for. Displays as `receive of 24 bytes from rank 1, tag 7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The direction of the message.
    pub way: Way,
    /// The rank at the other end.
    pub peer: usize,
    /// The tag.
    pub tag: u32,
    /// The number of bytes sent, or expected.
    pub len: usize,
    /// The [message ID](Buffer::message_id) sent, or expected.
    pub message_id: u64,
    /// The [token](Buffer::token) sent, or expected.
    pub token: u64,
}

impl Envelope {
    /// The envelope of a new request. Every communicator starts a request with it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a rank or tag that does not exist.
    pub fn new<C: Communicator + ?Sized>(
        communicator: &C,
        way: Way,
        peer: usize,
        tag: u32,
        buffer: &Buffer,
    ) -> Result<Self> {
        let (len, message_id, token) = (buffer.len(), buffer.message_id(), buffer.token());
        let envelope = Self { way, peer, tag, len, message_id, token };
        let (size, max_tag) = (communicator.size(), communicator.max_tag());
        if peer >= size {
            return Err(envelope.invalid(format!("rank {peer} of {size}")));
        }
        if tag > max_tag {
            return Err(envelope.invalid(format!("tag {tag}; the largest is {max_tag}")));
        }
        Ok(envelope)
    }

    /// `send` or `receive`.
    pub fn operation(&self) -> &'static str {
        match self.way {
            Way::Send => "send",
            Way::Receive => "receive",
        }
    }

    /// An `InvalidArgument` of this operation.
    pub fn invalid(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, self.operation(), message)
    }

    /// The error of a receive whose message has another length. `length` is, for example, `40` or `more than 24`.
    pub fn wrong_length(&self, length: impl fmt::Display) -> Error {
        let Self { peer, tag, len, .. } = self;
        self.invalid(format!("{length} bytes came from rank {peer}, tag {tag}, for {len}"))
    }

    /// The error of a receive whose message has another message ID.
    pub fn wrong_message_id(&self) -> Error {
        let Self { peer, tag, message_id, .. } = self;
        self.invalid(format!(
            "another message came from rank {peer}, tag {tag}, than the one with message ID {message_id:#x}"
        ))
    }

    /// The error of a receive whose message has another token and therefore another message ID.
    pub fn wrong_token(&self, other: u64) -> Error {
        let Self { peer, tag, token, .. } = self;
        self.invalid(format!(
            "a message with token {other} came from rank {peer}, tag {tag}, for one with token {token}"
        ))
    }

    /// The error of testing a request that is over.
    pub fn over(&self) -> Error {
        self.invalid(format!("{self} is over and was tested again"))
    }
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.way == Way::Send { "to" } else { "from" };
        let Self { peer, tag, len, .. } = self;
        write!(f, "{} of {len} bytes {side} rank {peer}, tag {tag}", self.operation())
    }
}
