use runtime_core::{AnyView, AnyViewMut, Memory, Stream};

fn misuse(memory: &Memory<f32>, any: AnyView<'_>, target: &mut AnyViewMut<'_>, stream: &Stream) {
    let _ = any.to_vec(stream);
    let _ = target.copy_from(stream, &memory.view());
}

fn main() {}
