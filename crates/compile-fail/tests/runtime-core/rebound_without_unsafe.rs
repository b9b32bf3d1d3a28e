use runtime_core::{MemoryView, Stream};

fn misuse<'a>(view: MemoryView<'a, f32>, stream: &Stream) -> MemoryView<'a, f32> {
    view.rebound_to(stream)
}

fn main() {}
