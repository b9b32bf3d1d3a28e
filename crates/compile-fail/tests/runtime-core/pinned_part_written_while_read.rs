use runtime_core::{Memory, Pinned, Stream};

fn misuse(memory: &Memory<f32>, pinned: &mut Pinned<f32>, stream: &Stream) {
    let part = pinned.slice_mut(0..1).unwrap();
    let seen = pinned.as_slice().unwrap();
    let _ = memory.view().copy_to_pinned(stream, part);
    assert_eq!(seen[0], 0.0);
}

fn main() {}
