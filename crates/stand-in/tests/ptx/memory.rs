//! Device memory for the interpreter, and launches on it.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;
use stand_in::ptx::{Fault, Geometry, Global, Module, run};

/// The address of the first byte.
const BASE: u64 = 0x7f00_0000;

/// Memory that arrays are uploaded to, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Vec<u8>>);

impl Memory {
    /// The address of a copy of the values, a multiple of 256.
    pub(super) fn upload<T: Pod>(&self, values: &[T]) -> u64 {
        let mut bytes = self.0.lock().unwrap();
        let start = bytes.len().next_multiple_of(256);
        bytes.resize(start, 0xCC);
        bytes.extend_from_slice(bytemuck::cast_slice(values));
        BASE + start as u64
    }

    pub(super) fn download<T: Pod>(&self, address: u64, count: usize) -> Vec<T> {
        let start = usize::try_from(address - BASE).unwrap();
        let bytes = self.0.lock().unwrap();
        let bytes = &bytes[start..start + count * size_of::<T>()];
        bytes.chunks(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    fn with<R>(
        &self,
        address: u64,
        size: usize,
        run: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Fault> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let start = address.checked_sub(BASE).and_then(|start| usize::try_from(start).ok());
        let found = start.and_then(|start| bytes.get_mut(start..)?.get_mut(..size));
        Ok(run(found.ok_or(Fault::IllegalAddress(address))?))
    }
}

impl Global for Memory {
    fn load(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.with(address, to.len(), |bytes| to.copy_from_slice(bytes))
    }

    fn store(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.with(address, from.len(), |bytes| bytes.copy_from_slice(from))
    }

    fn update(
        &self,
        address: u64,
        width: usize,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        self.with(address, width, |bytes| {
            let mut old = [0; 8];
            old[..width].copy_from_slice(bytes);
            let old = u64::from_le_bytes(old);
            bytes.copy_from_slice(&update(old).to_le_bytes()[..width]);
            old
        })
    }
}

/// A parameter's bytes.
pub(super) fn p<T: Pod>(value: T) -> Vec<u8> {
    bytemuck::bytes_of(&value).to_vec()
}

/// Blocks and threads along x.
pub(super) fn line(blocks: u32, threads: u32) -> Geometry {
    Geometry::new([blocks, 1, 1], [threads, 1, 1])
}

/// Launches a kernel, whose parameters must have the sizes of those given.
pub(super) fn launch(
    module: &Module,
    kernel: &str,
    geometry: &Geometry,
    params: &[Vec<u8>],
    memory: &Memory,
) -> Result<(), Fault> {
    let entry = module.entry(kernel).unwrap_or_else(|| panic!("no kernel {kernel}"));
    let sizes: Vec<usize> = entry.params().iter().map(|param| param.size).collect();
    assert_eq!(sizes, params.iter().map(Vec::len).collect::<Vec<_>>(), "parameters of {kernel}");
    let mut bytes = Vec::new();
    for (place, param) in entry.params().iter().zip(params) {
        bytes.resize(place.offset, 0);
        bytes.extend_from_slice(param);
    }
    run(module, entry, geometry, &bytes, memory, &AtomicBool::new(false))
}
