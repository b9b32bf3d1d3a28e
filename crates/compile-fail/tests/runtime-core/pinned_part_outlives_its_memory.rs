use runtime_core::{Memory, Pinned, Stream};

fn misuse(memory: &Memory<f32>, mut pinned: Pinned<f32>, stream: &Stream) {
    let part = pinned.slice_mut(0..1).unwrap();
    drop(pinned);
    let _ = memory.view().copy_to_pinned(stream, part);
}

fn main() {}
