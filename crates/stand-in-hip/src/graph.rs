//! Graphs by capture of streams.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::ffi::{c_uint, c_ulonglong};

use stand_in::abi::{Buffer, Handle, Out};
use stand_in::process::{mode, set_mode};
use stand_in::{CaptureMode, Code};

use crate::process::{answer, current, engine};
use crate::versions::check;

#[unsafe(no_mangle)]
extern "C" fn hipThreadExchangeStreamCaptureMode(exchanged: Buffer) -> u32 {
    answer(|| {
        let new = CaptureMode::of(exchanged.holding::<c_uint>().get()?)?;
        exchanged.of::<c_uint>().put(mode() as c_uint)?;
        set_mode(new);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamBeginCapture(stream: Handle, mode: c_uint) -> u32 {
    answer(|| engine()?.capture_begin(stream, CaptureMode::of(mode)?))
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamEndCapture(stream: Handle, graph: Out<Handle>) -> u32 {
    answer(|| {
        let ended = engine()?.capture_end(stream);
        graph.put(ended.unwrap_or(0))?;
        ended.map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamIsCapturing(stream: Handle, status: Out<c_uint>) -> u32 {
    answer(|| {
        let state = engine()?.capture_state(stream)?;
        status.put(state.map_or(0, |is_spoilt| if is_spoilt { 2 } else { 1 }))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipGraphInstantiateWithFlags(
    executable: Out<Handle>,
    graph: Handle,
    flags: c_ulonglong,
) -> u32 {
    answer(|| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        executable.put(engine()?.graph_instantiate(graph)?)
    })
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
extern "C" fn hipGraphLaunch(executable: Handle, stream: Handle) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        engine.graph_launch(&context, executable, stream)
    })
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

#[unsafe(no_mangle)]
extern "C" fn hipGraphExecDestroy(executable: Handle) -> u32 {
    answer(|| engine()?.executable_destroy(executable))
}

#[unsafe(no_mangle)]
extern "C" fn hipGraphDestroy(graph: Handle) -> u32 {
    answer(|| engine()?.graph_destroy(graph))
}
