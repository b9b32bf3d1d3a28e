//! Checks for tests: a kernel writes all that it should, and nothing else.

use std::panic::Location;

use coherence::Access;
use ndarray::Dimension;
use runtime_core::{Element, Error, ErrorKind, MemoryView, Result, Stream, bytemuck};

use crate::guard::{ReadGuard, StreamRef, WriteGuard};
use crate::{ArrayBuffer, Parts};

/// Two bytes without a common bit. A byte that keeps both values was not written.
const PATTERNS: [u8; 2] = [0x55, 0xAA];

impl<T: Element, D: Dimension> ArrayBuffer<T, D> {
    /// Checks, byte for byte, that `writer` writes the whole array. Runs it twice, over memory that was filled with two
    /// different patterns. The check is exact for every type and value if the writer does the same both times. Commits
    /// one write. Blocks.
    ///
    /// # Errors
    ///
    /// `Poisoned`, which names the first element that was not written or only partly written. `InvalidArgument` if the
    /// writer replaces its guard by one of another array or of other parts. Errors of the writer or the copies. The
    /// array is poisoned after an error.
    #[track_caller]
    pub fn check_write(
        &mut self,
        stream: &Stream,
        mut writer: impl FnMut(&mut WriteGuard<'_, T, D>) -> Result<()>,
    ) -> Result<()> {
        let call_site = Location::caller();
        let mut results = Vec::with_capacity(PATTERNS.len());
        for pattern in PATTERNS {
            self.exclusive().forget_idle_if_crowded()?;
            let own = StreamRef::Borrowed(stream);
            let mut guard =
                WriteGuard::take(&self.core, self.all(), own, Access::Write, call_site, true)?;
            let mut pass = || {
                guard.fill_bytes(pattern)?;
                writer(&mut guard)?;
                if !guard.is_of(&self.core) || guard.parts() != Parts::of(*self.all()) {
                    let message = "the writer has put another guard in the place of its own";
                    return Err(Error::new(ErrorKind::InvalidArgument, "check_write", message));
                }
                bytes(&guard.view()?, stream)
            };
            // The pattern is not a value: on any error, the parts must stay unreadable.
            match pass() {
                Ok(result) => results.push(result),
                Err(error) => {
                    // Another array's guard ends as it would have.
                    if guard.is_of(&self.core) {
                        guard.abort();
                    }
                    return Err(error);
                }
            }
            let [first, second] = results.as_slice() else {
                guard.abort();
                continue;
            };
            let Some(byte) = unwritten(first, second) else {
                return guard.commit_over_pattern();
            };
            guard.abort();
            let element = self.partition().index_of(byte / size_of::<T>());
            let message = format!("element {element:?} was not written");
            let error = Error::new(ErrorKind::Poisoned, "check_write", message);
            return Err(error.on(stream.device().id()));
        }
        Ok(())
    }
}

impl<T: Element, D: Dimension, A> ArrayBuffer<T, D, A> {
    /// Checks that `reader` changes nothing, by comparing the bytes before and after. Blocks.
    ///
    /// # Errors
    ///
    /// `Poisoned`, which names the first element that changed. Errors of the reader or the copies. The array still
    /// counts as valid after an error, because a reader promises not to write and this function is for tests.
    #[track_caller]
    pub fn check_read(
        &self,
        stream: &Stream,
        reader: impl FnOnce(&ReadGuard<'_, T, D>) -> Result<()>,
    ) -> Result<()> {
        let guard = self.read(stream)?;
        let before = bytes(&guard.view()?, stream)?;
        reader(&guard)?;
        let after = bytes(&guard.view()?, stream)?;
        match before.iter().zip(&after).position(|(before, after)| before != after) {
            None => Ok(()),
            Some(byte) => {
                let element = self.partition().index_of(byte / size_of::<T>());
                let message = format!("a reader changed element {element:?}");
                let error = Error::new(ErrorKind::Poisoned, "check_read", message);
                Err(error.on(stream.device().id()))
            }
        }
    }
}

fn bytes<T: Element>(view: &MemoryView<'_, T>, stream: &Stream) -> Result<Vec<u8>> {
    Ok(bytemuck::cast_slice(&view.to_vec(stream)?).to_vec())
}

fn unwritten(first: &[u8], second: &[u8]) -> Option<usize> {
    first.iter().zip(second).position(|both| both == (&PATTERNS[0], &PATTERNS[1]))
}
