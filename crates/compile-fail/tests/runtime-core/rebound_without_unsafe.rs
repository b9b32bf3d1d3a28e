use runtime_core::{MemoryView, Stream};

fn misuse<'a>(view: MemoryView<'a>, stream: &Stream) -> MemoryView<'a> {
    view.rebound_to(stream)
}

fn main() {}
