//! Messages between two ranks, against the same calls in C, and against requests that are made once.

use std::time::Duration;

use benches::Bench;
use benches::turns::{median, time};
use halo::Result;
use halo::communicator::{Buffer, Communicator};
use halo_mpi::MpiCommunicator;
use serde::{Deserialize, Serialize};

use super::calls::{barrier, ping_pong};

/// Batches of each contestant, in turns.
const BATCHES: usize = 50;
/// Bytes, and the round trips in a batch.
const ROUND_TRIPS: [(usize, u32); 3] = [(8, 2000), (64 << 10, 200), (1 << 20, 20)];

/// How long a wait may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The medians of the seconds that a message takes.
#[derive(Serialize, Deserialize)]
pub(crate) struct Message {
    bytes: usize,
    ours: f64,
    plain: f64,
    persistent: f64,
}

impl Message {
    /// Parses a line of a job's output.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    pub(crate) fn note(&self, bench: &mut Bench) {
        let Self { bytes, ours, plain, persistent } = *self;
        if bytes == 8 {
            bench.limited("8 B, more than the same calls in C", "ns", (ours - plain) * 1e9, 300.0);
        }
        let target = if bytes == 8 { 0.0 } else { 1.0 / 1.05 };
        let case = format!("{bytes} B");
        bench.measured(&case, bytes as u64, ours, ("the same calls in C", plain), target);
        bench.measured(&case, bytes as u64, ours, ("requests made once, in C", persistent), 0.0);
    }
}

/// Measures on two ranks. Rank 0 prints the results.
pub(crate) fn run(ranks: &MpiCommunicator, is_quick: bool) {
    for (bytes, trips) in ROUND_TRIPS {
        let (batches, trips) = if is_quick { (2, 2) } else { (BATCHES, trips) };
        let [mut plain, mut persistent] = [vec![0_u8; bytes], vec![0; bytes]];
        let mut buffer = Buffer::host(vec![0; bytes]);
        let rank = ranks.rank();
        let mut seconds = [(); 3].map(|()| Vec::new());
        for _ in 0..batches {
            let contestants: [&mut dyn FnMut(); 3] = [
                &mut || {
                    for _ in 0..trips {
                        let sent = std::mem::take(&mut buffer);
                        buffer = round_trip(ranks, sent).expect("a message");
                    }
                },
                &mut || ping_pong(&mut plain, rank, trips, false),
                &mut || ping_pong(&mut persistent, rank, trips, true),
            ];
            for (run, seconds) in contestants.into_iter().zip(&mut seconds) {
                barrier();
                seconds.push(time(1, run) / f64::from(2 * trips));
            }
        }
        let [ours, plain, persistent] = seconds.map(|mut seconds| median(&mut seconds));
        if rank == 0 {
            let message = Message { bytes, ours, plain, persistent };
            println!("{}", serde_json::to_string(&message).expect("numbers"));
        }
    }
}

/// Sends the bytes to the other rank and back.
fn round_trip(ranks: &MpiCommunicator, mut buffer: Buffer) -> Result<Buffer> {
    const TAG: u32 = 9;
    let (rank, other) = (ranks.rank(), 1 - ranks.rank());
    for is_sender in [rank == 0, rank == 1] {
        buffer = match is_sender {
            true => ranks.wait(ranks.send(other, TAG, buffer)?, LIMIT)?,
            false => ranks.wait(ranks.receive(other, TAG, buffer)?, LIMIT)?,
        };
    }
    Ok(buffer)
}
