//! The mesh example: its reader, its bits on several ranks, and the program from its users' point of view.
#![cfg(all(feature = "halo", feature = "host"))]
#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../examples/mesh/elements.rs"]
mod elements;
#[path = "../../examples/mesh/gmsh.rs"]
mod gmsh;
#[path = "../../examples/mesh/laplace.rs"]
mod laplace;
#[cfg(feature = "mpi")]
#[path = "../../../halo-mpi/tests/launcher/mod.rs"]
mod launcher;
#[path = "../../examples/mesh/partition.rs"]
mod partition;
#[path = "../../examples/mesh/problem.rs"]
mod problem;
mod program;
mod ranks;
mod reader;
