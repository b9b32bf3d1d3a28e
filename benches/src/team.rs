//! Ranks that are threads.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;

use halo::Result;
use halo::communicator::ThreadCommunicator;

use crate::turns::time;

/// Ranks that are threads and wait until they are called to run their part.
#[derive(Debug)]
pub struct Team {
    orders: Vec<Sender<u32>>,
    times: Receiver<f64>,
}

impl Team {
    /// `rank` makes the part of each rank, in the rank's thread.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for no ranks.
    pub fn new<R: FnMut()>(
        size: usize,
        rank: impl Fn(ThreadCommunicator) -> R + Clone + Send + 'static,
    ) -> Result<Self> {
        let (reported, times) = channel();
        let together = Arc::new(Barrier::new(size));
        let orders = ThreadCommunicator::group(size)?.into_iter().map(|communicator| {
            let (order, orders) = channel();
            let (reported, together, rank) =
                (reported.clone(), Arc::clone(&together), rank.clone());
            thread::spawn(move || {
                let mut part = rank(communicator);
                for calls in orders {
                    together.wait();
                    if reported.send(time(calls, &mut part)).is_err() {
                        return;
                    }
                }
            });
            order
        });
        Ok(Self { orders: orders.collect(), times })
    }

    /// Makes every rank run its part this number of times. Returns the seconds per run on the slowest rank.
    ///
    /// # Panics
    ///
    /// Panics if a rank panics.
    pub fn run(&self, calls: u32) -> f64 {
        self.orders.iter().for_each(|order| order.send(calls).expect("a rank"));
        // If a rank panics, the others fail too, and their ends of the channel close.
        let slowest = |slowest: f64, _| slowest.max(self.times.recv().expect("a rank"));
        self.orders.iter().fold(0.0, slowest)
    }
}
