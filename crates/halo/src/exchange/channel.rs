//! The channel of an exchange: the tags and message IDs that distinguish its messages from others of the communicator.

use std::sync::Arc;

use runtime_core::{Error, Footprint, Result};

use crate::communicator::{Buffer, Claims, Communicator, Direct};
use crate::engine::Engine;
use crate::engine::route::Direction;
use crate::plan::fingerprint::mix;
use crate::plan::transfer::refuse;

/// The number of tag sets of a channel. Each reset moves to the next set, so that late messages from before a reset are
/// not mistaken for new ones. Before a set is used again, what is left in it is discarded.
const EPOCHS: u32 = 16;
/// Tags per epoch. Successive exchanges use different tags, so that their messages do not overtake each other.
const TURNS: u32 = 4;
const CHANNEL_TAGS: u32 = EPOCHS * TURNS;

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) communicator: Arc<dyn Communicator>,
    /// This rank's number when the exchange was made.
    rank: usize,
    number: u32,
    /// The serial number of this exchange object on each rank. No other object of the rank's process has it.
    serials: Vec<u64>,
    /// Selects the channel's tags that are in use. It is the same on every rank.
    epoch: u32,
    /// The number of exchanges so far; the same on every rank.
    pub(super) exchanges: u64,
    /// The number of exchanges before the latest reset.
    reset: u64,
    /// Set if there may be several ranks in this process.
    claims: Option<Claims>,
    /// Whether all messages of all ranks end with a stamp.
    pub(super) stamps: bool,
    /// The caller's token for exchanges from now on.
    pub(super) token: u64,
}

impl Channel {
    /// Checks that the communicator has tags for a channel.
    pub(super) fn check(communicator: &dyn Communicator, number: u32) -> Result<()> {
        let last = (u64::from(number) + 1) * u64::from(CHANNEL_TAGS);
        if last > communicator.max_tag().into() {
            let (rank, channels) = (communicator.rank(), communicator.max_tag() / CHANNEL_TAGS);
            return Err(refuse(format!("rank {rank}: channel {number}; there are {channels}")));
        }
        Ok(())
    }

    /// A channel with the tags for messages after the latest reset: for those that measure the staging, and then for
    /// exchanges.
    pub(super) fn new(
        communicator: Arc<dyn Communicator>,
        rank: usize,
        number: u32,
        serials: Vec<u64>,
        stamps: bool,
    ) -> Self {
        let claims = communicator.collectives().claims(serials[0], (rank, serials.len()));
        let (epoch, exchanges, reset, token) = (0, 0, 0, 0);
        let mut channel = Self {
            communicator,
            rank,
            number,
            serials,
            epoch,
            exchanges,
            reset,
            claims,
            stamps,
            token,
        };
        channel.begin_epoch();
        channel
    }

    /// Starts an exchange of fields with these elements, those that other memory may have.
    pub(super) fn begin(&mut self, fields: Vec<(usize, Footprint)>, engine: &Engine) -> Result<()> {
        self.exchanges += 1;
        let Some(claims) = &self.claims else { return Ok(()) };
        let name = |field: usize| engine.specs()[field].name();
        let claimed = claims.claim(self.reset, self.exchanges, fields, name);
        claimed.map_err(|error| self.failed(error))
    }

    /// Takes back the start of an exchange, of which other ranks have noticed nothing.
    pub(super) fn undo_begin(&mut self) {
        if let Some(claims) = &self.claims {
            claims.withdraw(self.exchanges);
        }
        self.exchanges -= 1;
    }

    /// Returns the error of another rank's [`begin`](Self::begin), if there is one.
    pub(super) fn check_claims(&self) -> Result<()> {
        let Self { claims, reset, exchanges, .. } = self;
        claims.as_ref().map_or(Ok(()), |claims| claims.check(*reset, *exchanges))
    }

    /// Uses the tags for messages after the latest reset. They are the same on all ranks, even if a rank completed an
    /// earlier reset of the exchange as a reset of the communicator.
    pub(super) fn begin_epoch(&mut self) {
        self.reset = self.exchanges;
        self.epoch = remainder(self.communicator.collectives().resets(), EPOCHS);
    }

    /// Discards what earlier exchanges of a channel have left, before this rank makes a new one. Its ranks may still
    /// send what belongs to the receives of the present epoch.
    pub(super) fn discard_old(communicator: &dyn Communicator, number: u32) -> Result<()> {
        let epoch = remainder(communicator.collectives().resets(), EPOCHS);
        discard_except(communicator, number, Some(epoch))
    }

    /// As `discard_old`, before this rank resets the exchange: no rank has begun a later exchange of the channel.
    pub(super) fn discard_before_reset(&self) -> Result<()> {
        let next = remainder(self.communicator.collectives().resets() + 1, EPOCHS);
        let kept = (self.epoch != next).then_some(self.epoch);
        discard_except(&*self.communicator, self.number, kept)
    }

    /// The tag of the messages of the current exchange.
    pub(super) fn tag(&self) -> u32 {
        // Tag 0 belongs to collective calls.
        1 + self.number * CHANNEL_TAGS + self.epoch * TURNS + remainder(self.exchanges, TURNS)
    }

    /// The number by which a rank identifies the current exchange, whatever its direction. Another exchange of the
    /// process has the same number with a probability of 2^-64. Successive exchanges of this object have
    /// successive numbers.
    pub(super) fn exchange_id(&self, rank: usize) -> u64 {
        mix(self.serials[rank].wrapping_add(1)).wrapping_add(self.exchanges)
    }

    /// The message ID: a hash of the sender's number of the exchange, the direction of the exchange, the token, and the
    /// number of the message among the sender's messages.
    pub(super) fn message_id(&self, sender: usize, direction: Direction, part: usize) -> u64 {
        let id = mix(self.exchange_id(sender)).wrapping_add(direction.code());
        mix(mix(id).wrapping_add(mix(self.token)).wrapping_add(part as u64))
    }

    /// The message ID of a list that a rank sends when it makes a forest. No message of an exchange has it.
    pub(super) fn list_id(&self, sender: usize) -> u64 {
        !mix(self.exchange_id(sender))
    }

    /// The buffer of a message, with its ID and token.
    pub(super) fn label(
        &self,
        buffer: Buffer,
        sender: usize,
        direction: Direction,
        part: usize,
    ) -> Buffer {
        buffer.with_message_id(self.message_id(sender, direction, part)).with_token(self.token)
    }

    /// What a reset of this exchange resets, for all ranks: the channel, and the number that rank 0 gave the exchange.
    pub(super) fn identity(&self) -> u64 {
        u64::from(self.number) << u32::BITS | self.serials[0] & u64::from(u32::MAX)
    }

    /// Access to the memory of the other ranks, if this rank still has the same number among as many ranks there.
    pub(super) fn direct(&self) -> Option<Direct<'_>> {
        let numbers = (self.rank, self.serials.len());
        self.communicator.direct().filter(|access| access.numbers() == numbers)
    }

    /// Adds the number of the exchange and the rank to an error of the transport.
    #[cold]
    pub(super) fn failed(&self, error: Error) -> Error {
        let Self { exchanges: number, rank, .. } = self;
        error.about(format_args!("exchange {number} of rank {rank}"))
    }
}

/// Discards what has the tags of a channel, except those of one epoch.
fn discard_except(communicator: &dyn Communicator, number: u32, epoch: Option<u32>) -> Result<()> {
    let first = 1 + number * CHANNEL_TAGS;
    let end = first + CHANNEL_TAGS;
    let kept = epoch.map_or(end..end, |epoch| first + epoch * TURNS..first + (epoch + 1) * TURNS);
    communicator.discard(first..kept.start)?;
    communicator.discard(kept.end..end)
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder of a small number")]
fn remainder(number: u64, of: u32) -> u32 {
    (number % u64::from(of)) as u32
}
