use runtime_core::Memory;

fn misuse(memory: &Memory<f32>) -> Memory<f32> {
    memory.clone()
}

fn main() {}
