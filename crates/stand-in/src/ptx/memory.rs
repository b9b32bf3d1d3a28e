//! State spaces, and the generic address space that contains them.
//!
//! | generic addresses from | memory |
//! |---|---|
//! | 0 | global, of the caller |
//! | [`SHARED`] | shared, of a block |
//! | [`LOCAL`] | local, of a thread |
//! | [`VARIABLES`] | variables of the module, in the global and constant spaces |
//!
//! Addresses of the shared and local spaces are offsets from those; addresses of the others are generic ones.

use std::sync::{PoisonError, RwLock};

use super::instruction::Space;
use super::{Fault, Global};

pub(super) const SHARED: u64 = 1 << 56;
pub(super) const LOCAL: u64 = 2 << 56;
pub(super) const VARIABLES: u64 = 3 << 56;

/// The value of each byte of memory that was never written.
pub(super) const POISON: u8 = 0xAB;

/// The generic address at which a space begins.
pub(super) fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED,
        Space::Local => LOCAL,
        Space::Generic | Space::Global | Space::Const | Space::Param => 0,
    }
}

/// The variables of a module, which all launches share.
#[derive(Debug, Default)]
pub(super) struct Variables(RwLock<Vec<u8>>);

impl Variables {
    pub(super) fn new(initial: Vec<u8>) -> Self {
        Self(RwLock::new(initial))
    }

    fn with<R>(
        &self,
        address: u64,
        size: usize,
        run: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Fault> {
        let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Ok(run(piece_mut(&mut bytes, address - VARIABLES, size).ok_or(illegal(address))?))
    }

    fn load(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        to.copy_from_slice(piece(&bytes, address - VARIABLES, to.len()).ok_or(illegal(address))?);
        Ok(())
    }
}

fn illegal(address: u64) -> Fault {
    Fault::IllegalAddress(address)
}

fn piece(bytes: &[u8], offset: u64, size: usize) -> Option<&[u8]> {
    bytes.get(usize::try_from(offset).ok()?..)?.get(..size)
}

fn piece_mut(bytes: &mut [u8], offset: u64, size: usize) -> Option<&mut [u8]> {
    bytes.get_mut(usize::try_from(offset).ok()?..)?.get_mut(..size)
}

/// The memory of a thread.
#[derive(Debug, Default)]
pub(super) struct Private {
    pub(super) local: Vec<u8>,
    /// Parameter memory of all frames, the latest last.
    pub(super) params: Vec<u8>,
    /// The start of the parameter memory of the latest frame.
    pub(super) params_start: usize,
}

/// The memory that a block can access.
pub(super) struct Memory<'a> {
    pub(super) globals: &'a dyn Global,
    pub(super) variables: &'a Variables,
    pub(super) shared: Vec<u8>,
}

/// The space of an address, and the offset in spaces of this interpreter.
enum Place {
    Global,
    Variables,
    Shared(u64),
    Local(u64),
    Param(u64),
}

fn place(space: Space, address: u64) -> Place {
    match space {
        Space::Shared => Place::Shared(address),
        Space::Local => Place::Local(address),
        Space::Param => Place::Param(address),
        Space::Generic | Space::Global | Space::Const => match address >> 56 {
            0 => Place::Global,
            1 if space == Space::Generic => Place::Shared(address - SHARED),
            2 if space == Space::Generic => Place::Local(address - LOCAL),
            3 => Place::Variables,
            _ => Place::Global,
        },
    }
}

fn aligned(address: u64, size: usize) -> Result<(), Fault> {
    if address & (size as u64 - 1) == 0 { Ok(()) } else { Err(Fault::Misaligned(address)) }
}

impl Memory<'_> {
    /// Reads 1, 2, 4, 8 or 16 bytes.
    pub(super) fn load(
        &self,
        private: &Private,
        space: Space,
        address: u64,
        to: &mut [u8],
    ) -> Result<(), Fault> {
        aligned(address, to.len())?;
        let from = match place(space, address) {
            Place::Global => return self.globals.load(address, to),
            Place::Variables => return self.variables.load(address, to),
            Place::Shared(offset) => piece(&self.shared, offset, to.len()),
            Place::Local(offset) => piece(&private.local, offset, to.len()),
            Place::Param(offset) => {
                piece(&private.params[private.params_start..], offset, to.len())
            }
        };
        to.copy_from_slice(from.ok_or(illegal(address))?);
        Ok(())
    }

    /// Writes 1, 2, 4, 8 or 16 bytes.
    pub(super) fn store(
        &mut self,
        private: &mut Private,
        space: Space,
        address: u64,
        from: &[u8],
    ) -> Result<(), Fault> {
        aligned(address, from.len())?;
        let to = match place(space, address) {
            Place::Global => return self.globals.store(address, from),
            Place::Variables => {
                return self.variables.with(address, from.len(), |to| to.copy_from_slice(from));
            }
            Place::Shared(offset) => piece_mut(&mut self.shared, offset, from.len()),
            Place::Local(offset) => piece_mut(&mut private.local, offset, from.len()),
            Place::Param(offset) => {
                piece_mut(&mut private.params[private.params_start..], offset, from.len())
            }
        };
        to.ok_or(illegal(address))?.copy_from_slice(from);
        Ok(())
    }

    /// Replaces 4 or 8 bytes and returns the old ones.
    pub(super) fn update(
        &mut self,
        private: &mut Private,
        space: Space,
        address: u64,
        size: usize,
        mut update: impl FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        aligned(address, size)?;
        let place = place(space, address);
        if matches!(place, Place::Global) {
            return self.globals.update(address, size, &mut update);
        }
        let mut replace = |bytes: &mut [u8]| {
            let mut word = [0; 8];
            word[..size].copy_from_slice(bytes);
            let old = u64::from_le_bytes(word);
            bytes.copy_from_slice(&update(old).to_le_bytes()[..size]);
            old
        };
        let to = match place {
            Place::Variables => return self.variables.with(address, size, replace),
            Place::Shared(offset) => piece_mut(&mut self.shared, offset, size),
            Place::Local(offset) => piece_mut(&mut private.local, offset, size),
            Place::Global | Place::Param(_) => None,
        };
        Ok(replace(to.ok_or(illegal(address))?))
    }
}
