//! Loops by hand among ranks that are threads: they gather a message by a list, and scatter or add the one that arrives.

use std::mem;
use std::time::Duration;

use halo::communicator::{Buffer, Communicator, ThreadCommunicator};
use runtime_core::bytemuck;

use super::case::{Item, Values, Way};

pub(super) struct ByHand {
    ranks: ThreadCommunicator,
    other: usize,
    /// The roots of this rank for the leaves of the other.
    roots: Vec<u32>,
    /// The leaves of this rank.
    leaves: Vec<u32>,
    outgoing: Buffer,
    incoming: Buffer,
}

impl ByHand {
    const TAG: u32 = 1;

    pub(super) fn new(ranks: ThreadCommunicator, values: &Values) -> Self {
        let (other, case) = (1 - ranks.rank(), values.case);
        let (roots, leaves) = (case.roots(other), case.leaves());
        let buffer = || Buffer::host(vec![0; leaves.len() * size_of::<Item>()]);
        let (outgoing, incoming) = (buffer(), buffer());
        Self { ranks, other, roots, leaves, outgoing, incoming }
    }

    pub(super) fn exchange(&mut self, values: &mut Values) {
        let way = values.case.way;
        let [roots, leaves] = values.slices();
        let Self { ranks, other, outgoing, incoming, .. } = self;
        let receive = ranks.receive(*other, Self::TAG, mem::take(incoming)).expect("a receive");
        let mut message = mem::take(outgoing);
        let (from, list): (&[Item], _) = match way {
            Way::Broadcast => (roots, &self.roots),
            Way::Sum => (leaves, &self.leaves),
        };
        for (to, at) in items(&mut message).iter_mut().zip(list) {
            *to = from[*at as usize];
        }
        let send = ranks.send(*other, Self::TAG, message).expect("a send");
        *incoming = ranks.wait(receive, Duration::MAX).expect("a message");
        *outgoing = ranks.wait(send, Duration::MAX).expect("a message");
        let message = items(incoming);
        match way {
            Way::Broadcast => {
                for (from, at) in message.iter().zip(&self.leaves) {
                    leaves[*at as usize] = *from;
                }
            }
            Way::Sum => {
                for (from, at) in message.iter().zip(&self.roots) {
                    let sum = roots[*at as usize].iter_mut().zip(from);
                    sum.for_each(|(root, leaf)| *root += leaf);
                }
            }
        }
    }
}

fn items(message: &mut Buffer) -> &mut [Item] {
    bytemuck::cast_slice_mut(message.as_mut_slice().expect("no work").expect("host memory"))
}
