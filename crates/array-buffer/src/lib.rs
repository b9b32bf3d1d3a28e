//! One logical array, coherent on every device.
#![deny(unsafe_code)]

mod coherence;
