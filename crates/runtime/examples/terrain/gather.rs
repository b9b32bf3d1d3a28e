//! Gathers the heights of all ranks in one place.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use ndarray::{Array2, ArrayRef2, Ix2, s};
use runtime::array::HostReadGuard;
use runtime::halo::communicator::{Buffer, Communicator};

use crate::blocks::Blocks;
use crate::diffusion::Field;
use crate::error::DemoError;

/// Different from the tags of exchanges.
const TAG: u32 = 1000;

/// The most cells of one message. An MPI message has fewer than 2 GiB, and two messages are held at a time.
const CELLS: usize = 1 << 20;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends the heights of all ranks to the first rank.
pub(crate) struct Gather {
    communicator: Arc<dyn Communicator>,
    /// The rows and columns of each rank.
    blocks: Vec<[Range<usize>; 2]>,
    /// The terrain, on the first rank. Empty if the first rank has all cells in its field.
    terrain: Array2<f64>,
}

/// The heights of all ranks.
pub(crate) enum Heights<'a> {
    /// If there is only one rank, in its field.
    Own(HostReadGuard<'a, f64, Ix2>),
    Gathered(&'a Array2<f64>),
}

impl Deref for Heights<'_> {
    type Target = ArrayRef2<f64>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Own(heights) => heights,
            Self::Gathered(heights) => heights,
        }
    }
}

impl Gather {
    /// Gathers into `terrain`. On the first of several ranks, it has room for all blocks.
    pub(crate) fn new(
        communicator: &Arc<dyn Communicator>,
        blocks: &Blocks,
        terrain: Array2<f64>,
    ) -> Result<Self, DemoError> {
        let all = (0..communicator.size())
            .map(|rank| blocks.of(rank).map(|block| [block.rows, block.columns]));
        let blocks = all.collect::<runtime::Result<_>>()?;
        Ok(Self { communicator: Arc::clone(communicator), blocks, terrain })
    }

    /// All heights on the first rank, `None` on the others. All ranks call it together.
    #[track_caller]
    pub(crate) fn heights<'a>(
        &'a mut self,
        field: &'a Field,
    ) -> Result<Option<Heights<'a>>, DemoError> {
        let own = field.heights()?;
        match (self.communicator.rank(), self.communicator.size()) {
            (0, 1) => Ok(Some(Heights::Own(own))),
            (0, _) => {
                self.receive(&own)?;
                Ok(Some(Heights::Gathered(&self.terrain)))
            }
            (rank, _) => {
                let [rows, columns] = &self.blocks[rank];
                for band in bands(0..rows.len(), columns.len()) {
                    let heights = own.slice(s![band, ..]);
                    let bytes = heights.iter().flat_map(|height| height.to_ne_bytes()).collect();
                    let sent = self.communicator.send(0, TAG, Buffer::host(bytes))?;
                    self.communicator.wait(sent, TIMEOUT)?;
                }
                Ok(None)
            }
        }
    }

    fn receive(&mut self, own: &ArrayRef2<f64>) -> Result<(), DemoError> {
        let [rows, columns] = self.blocks[0].clone();
        self.terrain.slice_mut(s![rows, columns]).assign(own);
        for (rank, [rows, columns]) in self.blocks.iter().enumerate().skip(1) {
            for band in bands(rows.clone(), columns.len()) {
                let bytes = vec![0; band.len() * columns.len() * size_of::<f64>()];
                let received = self.communicator.receive(rank, TAG, Buffer::host(bytes))?;
                let bytes = self.communicator.wait(received, TIMEOUT)?.to_vec()?;
                let heights = bytes.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes));
                let mut cells = self.terrain.slice_mut(s![band, columns.clone()]);
                cells.iter_mut().zip(heights).for_each(|(cell, height)| *cell = height);
            }
        }
        Ok(())
    }
}

/// Splits rows into runs that fit in a message.
fn bands(rows: Range<usize>, columns: usize) -> impl Iterator<Item = Range<usize>> {
    let step = (CELLS / columns).max(1);
    let end = rows.end;
    rows.step_by(step).map(move |start| start..end.min(start + step))
}
