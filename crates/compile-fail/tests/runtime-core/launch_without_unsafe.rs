use runtime_core::{Kernel, Launch, Stream};

fn misuse(kernel: &Kernel, stream: &Stream) {
    let _ = kernel.launch(stream, &Launch::cover(1, 1), &[]);
}

fn main() {}
