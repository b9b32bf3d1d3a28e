use runtime_core::{Kernel, Launch, Memory, Stream, args};

fn misuse(kernel: &Kernel, stream: &Stream, memory: &mut Memory<f32>) {
    let launch = Launch::cover(1, 1);
    let _ = unsafe { kernel.launch(stream, &launch, args![&mut *memory, memory.view()]) };
}

fn main() {}
