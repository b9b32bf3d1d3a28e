//! Captures and graphs.

use stand_in::abi::{Buffer, Handle, Out};

use crate::process::{answer, current, engine};

stand_in::graph_functions! {
    exchange_mode: cuThreadExchangeStreamCaptureMode, begin: cuStreamBeginCapture_v2,
    end: cuStreamEndCapture, instantiate: cuGraphInstantiateWithFlags, launch: cuGraphLaunch,
    exec_destroy: cuGraphExecDestroy, destroy: cuGraphDestroy,
}
