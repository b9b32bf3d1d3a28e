//! Programs that misuse the workspace's crates and must not compile, each with the error that the compiler must give.
//! They are in `tests`, in a folder for each crate.
