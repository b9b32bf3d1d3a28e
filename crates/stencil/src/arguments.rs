//! The struct of arguments that a stencil's kernel takes, as words of eight bytes.

use std::ops::Range;

use smallvec::SmallVec;

use crate::description::Parts;
use crate::generated::Scalar;

/// The number of words that need no memory of their own: those of eight fields with three axes, and fifteen scalars.
const INLINE: usize = 48;

/// The struct of arguments: for each field, the place of the box's first point and the strides of all axes but the
/// last; the extents of the box, the place of its first point in the grid, and the cells of the grid; the scalars.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    rank: usize,
    fields: usize,
    words: SmallVec<[u64; INLINE]>,
}

impl Words {
    /// The number of words of a stencil.
    pub(crate) fn count(parts: &Parts) -> usize {
        let bytes: usize = parts.scalars.iter().map(|(_, size)| *size).sum();
        (parts.fields.len() + 3) * parts.rank + bytes.div_ceil(size_of::<u64>())
    }

    /// The words of a kernel without scalars.
    pub(crate) fn without_scalars(rank: usize, fields: usize) -> Self {
        Self { rank, fields, words: zeros((fields + 3) * rank) }
    }

    /// The words with the values of these scalars. All other words are 0.
    pub(crate) fn new(parts: &Parts, scalars: &[Scalar]) -> Self {
        let mut words = zeros(Self::count(parts));
        let mut at = (parts.fields.len() + 3) * parts.rank;
        for wide in scalars.iter().filter(|scalar| scalar.size == 8) {
            words[at] = u64::from_ne_bytes(wide.bytes);
            at += 1;
        }
        let mut narrow = scalars.iter().filter(|scalar| scalar.size == 4);
        while let Some(first) = narrow.next() {
            let mut bytes = first.bytes;
            if let Some(second) = narrow.next() {
                bytes[4..].copy_from_slice(&second.bytes[..4]);
            }
            words[at] = u64::from_ne_bytes(bytes);
            at += 1;
        }
        Self { rank: parts.rank, fields: parts.fields.len(), words }
    }

    /// The words that a kernel was launched with.
    pub(crate) fn from_bytes(parts: &Parts, bytes: &[u8]) -> Self {
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        Self { rank: parts.rank, fields: parts.fields.len(), words: words.collect() }
    }

    /// Sets where a field is: its strides, and the place of the box's first point.
    pub(crate) fn set_field(&mut self, field: usize, first: usize, strides: &[usize; 3]) {
        let words = &mut self.words[field * self.rank..][..self.rank];
        words[0] = first as u64;
        words[1..].iter_mut().zip(strides).for_each(|(word, stride)| *word = *stride as u64);
    }

    /// Sets the box: its extents, the place of its first point in the grid, and the cells of the grid.
    pub(crate) fn set_box(&mut self, extents: &[usize; 3], first: &[usize; 3], cells: &[usize; 3]) {
        let words = self.words[self.fields * self.rank..].chunks_mut(self.rank);
        for (words, values) in words.zip([extents, first, cells]) {
            words.iter_mut().zip(values).for_each(|(word, value)| *word = *value as u64);
        }
    }

    /// The extents of the box.
    pub(crate) fn extents(&self) -> SmallVec<[usize; 3]> {
        let at = self.fields * self.rank;
        self.words[at..at + self.rank].iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect()
    }

    /// Narrows the box along the last axis to these of its points.
    pub(crate) fn narrow(&mut self, points: Range<usize>) {
        let start = points.start as u64;
        for field in 0..self.fields {
            self.words[field * self.rank] += start;
        }
        let extent = self.fields * self.rank + self.rank - 1;
        self.words[extent] = points.len() as u64;
        // The places of ghosts before the first point are negative.
        let first = &mut self.words[extent + self.rank];
        *first = first.wrapping_add(start);
    }

    pub(crate) fn as_ptr(&self) -> *const u64 {
        self.words.as_ptr()
    }

    /// The words, for kernels that take each of them by itself.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The words of the scalars.
    pub(crate) fn scalars(&self) -> &[u64] {
        &self.words[(self.fields + 3) * self.rank..]
    }

    /// The bytes that a launch takes.
    pub(crate) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }
}

fn zeros(count: usize) -> SmallVec<[u64; INLINE]> {
    if count <= INLINE {
        SmallVec::from_buf_and_len([0; INLINE], count)
    } else {
        SmallVec::from_vec(vec![0; count])
    }
}
