//! Graphs, which captures of streams create.
#![expect(unsafe_code, reason = "exports functions by name")]

use crate::process::{current, engine};
use stand_in::abi::{Buffer, Handle, Out, answer};

stand_in::graph_functions! {
    exchange_mode: cuThreadExchangeStreamCaptureMode,
    begin: cuStreamBeginCapture_v2, end: cuStreamEndCapture, is_capturing: cuStreamIsCapturing,
    instantiate: cuGraphInstantiateWithFlags, launch: cuGraphLaunch,
    exec_destroy: cuGraphExecDestroy, destroy: cuGraphDestroy,
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(executable: Handle, stream: Handle) -> u32 {
    answer(|| {
        let engine = engine()?;
        engine.graph_exists(executable)?;
        engine.stream(stream).map(drop)
    })
}
