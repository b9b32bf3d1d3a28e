//! Block sizes that suit a kernel.

use runtime_core::contract::Occupancy;
use runtime_core::{Error, ErrorKind, Result};

use crate::module::OpenClKernel;

/// Above this number of work-items, blocks gain nothing on most devices, and each block occupies more resources.
const USUAL: u64 = 256;

impl Occupancy for OpenClKernel {
    fn suggested_block(&self, _shared_bytes: u32) -> Result<u32> {
        let block = match self.required {
            Some([block, 1, 1]) => block,
            Some(required) => {
                let message = format!("kernel {:?} takes blocks of {required:?} alone", self.name);
                return Err(Error::new(ErrorKind::InvalidArgument, "occupancy", message));
            }
            None => largest_multiple(self.preferred_multiple, self.most.min(USUAL)),
        };
        Ok(u32::try_from(block).unwrap_or(u32::MAX))
    }

    fn resident_blocks(&self, _block: u32, _shared_bytes: u32) -> Result<Option<u32>> {
        // OpenCL has no query for the number of blocks that share a compute unit.
        Ok(None)
    }
}

/// The largest multiple of `step` up to `most`, which is at least 1. If there is none, `most` itself.
fn largest_multiple(step: u64, most: u64) -> u64 {
    match most.checked_div(step) {
        None | Some(0) => most,
        Some(times) => times * step,
    }
}

#[cfg(test)]
mod tests {
    use super::largest_multiple;

    #[test]
    fn blocks_are_whole_multiples_where_one_fits() {
        for (step, most, block) in
            [(32, 256, 256), (48, 256, 240), (64, 40, 40), (0, 7, 7), (1, 1, 1)]
        {
            assert_eq!(largest_multiple(step, most), block, "{step} up to {most}");
        }
    }
}
