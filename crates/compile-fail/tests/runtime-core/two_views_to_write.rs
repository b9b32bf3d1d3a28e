use runtime_core::{Memory, Stream};

fn misuse(memory: &mut Memory<f32>, stream: &Stream) {
    let mut first = memory.view_mut();
    let mut second = memory.view_mut();
    let _ = first.fill(stream, 1.0_f32);
    let _ = second.fill(stream, 2.0_f32);
}

fn main() {}
