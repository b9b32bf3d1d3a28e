use runtime_core::{Graph, Stream};

fn misuse(graph: &Graph, stream: &Stream) {
    let _ = graph.launch(stream);
}

fn main() {}
