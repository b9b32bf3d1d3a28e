#![cfg(feature = "cuda")]
