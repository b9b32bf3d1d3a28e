use runtime_core::{Memory, Stream};

fn misuse(memory: Memory<f32>, stream: &Stream) {
    let view = memory.view();
    drop(memory);
    let _ = view.to_vec(stream);
}

fn main() {}
