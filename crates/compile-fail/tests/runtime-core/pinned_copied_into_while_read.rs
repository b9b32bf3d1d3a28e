use runtime_core::{MemoryView, Pinned, Stream};

fn misuse(view: &MemoryView<'_, f32>, pinned: &mut Pinned<f32>, stream: &Stream) {
    let seen = pinned.as_slice().unwrap();
    let _ = view.copy_to_pinned(stream, pinned);
    assert_eq!(seen[0], 0.0);
}

fn main() {}
