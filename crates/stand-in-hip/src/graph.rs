//! Graphs, which captures of streams create.
#![expect(unsafe_code, reason = "exports functions by name")]

use stand_in::abi::{Buffer, Handle, Out};

use crate::process::{answer, current, engine};
use crate::versions::check;

stand_in::graph_functions! {
    exchange_mode: hipThreadExchangeStreamCaptureMode,
    begin: hipStreamBeginCapture, end: hipStreamEndCapture, is_capturing: hipStreamIsCapturing,
    instantiate: hipGraphInstantiateWithFlags, launch: hipGraphLaunch,
    exec_destroy: hipGraphExecDestroy, destroy: hipGraphDestroy,
}

/// The node and the log are for graphs that are made by hand.
#[unsafe(no_mangle)]
extern "C" fn hipGraphInstantiate(
    executable: Out<Handle>,
    graph: Handle,
    _node: Out<Handle>,
    _log: Buffer,
    _room: usize,
) -> u32 {
    hipGraphInstantiateWithFlags(executable, graph, 0)
}

#[unsafe(no_mangle)]
extern "C" fn hipGraphUpload(executable: Handle, stream: Handle) -> u32 {
    answer(|| {
        check("hipGraphUpload")?;
        let engine = engine()?;
        engine.graph_exists(executable)?;
        engine.stream(stream).map(drop)
    })
}
