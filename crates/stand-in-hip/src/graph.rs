//! Captures and graphs.

use stand_in::abi::{Buffer, Handle, Out};

use crate::process::{answer, current, engine};

stand_in::graph_functions! {
    exchange_mode: hipThreadExchangeStreamCaptureMode, begin: hipStreamBeginCapture,
    end: hipStreamEndCapture, instantiate: hipGraphInstantiateWithFlags, launch: hipGraphLaunch,
    exec_destroy: hipGraphExecDestroy, destroy: hipGraphDestroy,
}
