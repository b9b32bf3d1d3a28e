use runtime_core::{Device, Memory, Result};

fn misuse(device: &Device) -> Result<Memory<bool>> {
    device.memory_allocate::<bool>(1)
}

fn main() {}
