//! Copies and fills.
#![expect(unsafe_code, reason = "copies from and to memory of the program's")]

use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::code::{Code, Result};
use crate::context::Context;
use crate::engine::Engine;
use crate::fault::Class;
use crate::host::stage;
use crate::work::{Copy, Extent, Fill, Pitch, Place, Work};

/// Where bytes are.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// Where a device reaches them.
    Device(u64),
    /// Where the host does.
    Host(*mut u8),
}

impl Engine {
    /// Copies rows of bytes.
    ///
    /// Host memory that devices know is read or written when the work runs. From other host memory the bytes are taken before
    /// the call returns, and copies to it are over then.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] where there is no such memory.
    ///
    /// # Safety
    ///
    /// At an end on the host there are as many bytes; in host memory that devices know, until the work is over.
    pub unsafe fn copy(
        &self,
        context: &Arc<Context>,
        to: (End, Pitch),
        from: (End, Pitch),
        extent: Extent,
        stream: u64,
    ) -> Result<()> {
        let fault = self.admit_work(Class::Copy, context)?;
        let stream = self.stream_in(context, stream)?;
        if extent.contains(&0) {
            return Ok(());
        }
        let (to_span, from_span) = (span(to.1, extent)?, span(from.1, extent)?);
        let source = match (self.place(from.0, from_span)?, from.0) {
            (Some(place), _) => place,
            // SAFETY: the caller vouches for the bytes.
            (None, End::Host(start)) => Place::Staged(unsafe { stage(start, from_span) }.into()),
            (None, End::Device(_)) => return Err(Code::INVALID_VALUE),
        };
        let (waiting, target) = match self.place(to.0, to_span)? {
            Some(place) => (None, place),
            None => {
                let bytes = Arc::new(Mutex::new(vec![0; to_span]));
                (Some(Arc::clone(&bytes)), Place::Caller(bytes))
            }
        };
        let (to_pitch, from_pitch) = (to.1, from.1);
        let copy = Copy { to: target, to_pitch, from: source, from_pitch, extent };
        stream.submit(Work::Copy(Arc::new(copy)), fault)?;
        if let (Some(bytes), End::Host(start)) = (waiting, to.0) {
            stream.synchronize()?;
            let bytes = bytes.lock();
            for row in offsets(to_pitch, extent) {
                let (from, to) = (bytes[row..].as_ptr(), start.wrapping_add(row));
                // SAFETY: the caller vouches for the rows, and lends them until this returns.
                unsafe { ptr::copy_nonoverlapping(from, to, extent[0]) };
            }
        }
        Ok(())
    }

    /// The memory of an end, if devices know it.
    fn place(&self, end: End, span: usize) -> Result<Option<Place>> {
        let address = match end {
            End::Device(address) => address,
            End::Host(start) => {
                let first = start.addr() as u64;
                let last = first.checked_add(span as u64).ok_or(Code::INVALID_VALUE)?;
                if start.is_null() || self.shared.space.is_reserved(first) {
                    return Err(Code::INVALID_VALUE);
                }
                if !self.shared.space.touches(first..last) {
                    return Ok(None);
                }
                first
            }
        };
        let (memory, at) = self.range(address, span)?;
        Ok(Some(Place::Memory(memory, at)))
    }

    /// Fills memory with a pattern of 1, 2 or 4 bytes.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] where there is no such memory, or at an address that is not a multiple of the pattern.
    pub fn fill(
        &self,
        context: &Arc<Context>,
        address: u64,
        pattern: &[u8],
        count: usize,
        stream: u64,
    ) -> Result<()> {
        let fault = self.admit_work(Class::Fill, context)?;
        let stream = self.stream_in(context, stream)?;
        if count == 0 {
            return Ok(());
        }
        let bytes = count.checked_mul(pattern.len()).ok_or(Code::INVALID_VALUE)?;
        if !address.is_multiple_of(pattern.len() as u64) {
            return Err(Code::INVALID_VALUE);
        }
        let (memory, at) = self.range(address, bytes)?;
        let fill = Fill { memory, at, bytes, pattern: pattern.to_vec() };
        stream.submit(Work::Fill(Arc::new(fill)), fault)
    }
}

impl Pitch {
    /// How far apart rows of `pitch` bytes and planes of `height` rows are, and where the first byte of an extent is that
    /// begins at an origin of bytes, rows and planes. A pitch or a height of 0 is that of the extent.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for an extent that does not fit.
    pub fn of(
        [x, y, z]: [usize; 3],
        [pitch, height]: [usize; 2],
        [width, rows, planes]: Extent,
    ) -> Result<(Self, usize)> {
        let sum = |a: usize, b: usize| a.checked_add(b).ok_or(Code::INVALID_VALUE);
        let product = |a: usize, b: usize| a.checked_mul(b).ok_or(Code::INVALID_VALUE);
        let row = if pitch == 0 { sum(x, width)? } else { pitch };
        let height = if height == 0 { sum(y, rows)? } else { height };
        if (sum(x, width)? > row && rows > 1) || (planes > 1 && sum(y, rows)? > height) {
            return Err(Code::INVALID_VALUE);
        }
        let plane = product(row, height)?;
        let first = sum(sum(product(z, plane)?, product(y, row)?)?, x)?;
        Ok((Self { row, plane }, first))
    }
}

/// Bytes from the first of an extent to its last.
fn span(pitch: Pitch, [bytes, rows, planes]: Extent) -> Result<usize> {
    let rows = pitch.row.checked_mul(rows - 1);
    let planes = pitch.plane.checked_mul(planes - 1);
    let before = rows.zip(planes).and_then(|(rows, planes)| rows.checked_add(planes));
    before.and_then(|before| before.checked_add(bytes)).ok_or(Code::INVALID_VALUE)
}

/// Where each row begins.
fn offsets(pitch: Pitch, [_, rows, planes]: Extent) -> impl Iterator<Item = usize> {
    (0..planes)
        .flat_map(move |plane| (0..rows).map(move |row| plane * pitch.plane + row * pitch.row))
}
