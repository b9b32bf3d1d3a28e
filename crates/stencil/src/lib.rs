//! Stencils and fields: one safe kernel for every device, on any number of ranks, with the same bits everywhere.
//!
//! A *stencil* is what one point of a grid computes from its neighbours. It is a function in a subset of Rust, with the
//! attribute [`stencil`](macro@stencil). A [`Grid`] is divided among ranks, and a [`Field`] holds values on it. A
//! launch of the stencil exchanges ghosts that are stale, and computes all points on the grid's device.
//!
//! ```
//! use std::mem::swap;
//!
//! use runtime_core::Device;
//! use stencil::{Boundary, Grid, In, Out, Result, stencil};
//!
//! /// One explicit step of dT/dt = κ ∇²T.
//! #[stencil]
//! fn diffuse(next: Out<f64, 2>, t: In<f64, 2>, ax: f64, ay: f64) {
//!     let c = t.at(0, 0);
//!     next.set(c + ax * (t.at(-1, 0) - 2.0 * c + t.at(1, 0)) + ay * (t.at(0, -1) - 2.0 * c + t.at(0, 1)));
//! }
//!
//! # fn main() -> Result<()> {
//! let device = Device::new(backend_host::HostDevice::new(0))?;
//! let stream = device.default_stream();
//! let grid = Grid::cartesian([60, 40]).periodic([true, false]).build(&device)?;
//! let mut t = grid.field("T").boundary(Boundary::Mirror).from_fn(|[i, j]| (i * j) as f64)?;
//! let mut next = t.like("next")?;
//! for _ in 0..100 {
//!     diffuse(&mut next, &t, 0.1, 0.2).run(&stream)?;
//!     swap(&mut t, &mut next);
//! }
//! println!("{}", t.read_host()?[[3, 4]]);
//! # Ok(())
//! # }
//! ```
//!
//! For several ranks, add `.ranks(communicator)` before `build`. Nothing else changes, and neither do the results, if
//! the [halo](GridBuilder::halo) is as wide as the stencils read.
//!
//! # When to use it
//!
//! Use it for explicit steps on rectangular grids of one to three axes: finite differences and volumes, also staggered,
//! and lattice Boltzmann methods; and for steps that are implicit along one axis, and integrals along it. A cubed
//! sphere has two axes: there are no levels and no columns on it. For kernels that are written by hand for each device,
//! use `runtime-core`; for arrays and halos without grids, `array-buffer` and `halo`.
//!
//! # Stencils
//!
//! | to | write |
//! |---|---|
//! | read a field around the point | `t: In<f64, 2>`, `t.at(-1, 0)`; axis 0 is that of the first index |
//! | set a field | `next: Out<f64, 2>`, `next.set(value)`, once on each path; a stencil may have several outputs |
//! | update a field in place | `t: InOut<f64, 2>`, `t.at(0, 0)`, `t.set(value)` |
//! | pass a number | `a: f64`: also `f32`, `i32`, `i64`, `u32` and `bool` |
//! | choose | `if … { … } else { … }`, as a statement or as a value |
//! | repeat | `for k in 0..9 { … }`, where `k` is a constant in each turn |
//! | use constants, types and helpers | `const`, `type` and `#[stencil_fn]` beside the stencils, in an inline module (`mod name { … }`) with the attribute [`stencils`](macro@stencils) |
//! | read around another point | `#[stencil_fn] fn laplacian(f: In<f64, 2>) -> f64 { … }`, `laplacian(t.shift(1, 0))` |
//! | pass an offset to a helper | `#[stencil_fn] fn pull(f: In<f64, 1>, k: i64) -> f64 { f.at(k) }`, `pull(t, k - 1)`: made of literals, constants and variables of loops |
//! | know the point's place | `index(0)`, which is negative or beyond the last index where [ghosts](Launch::on) are computed, and `extent(0)` for the cells of the grid, also in fields on faces |
//!
//! ```
//! use stencil::stencils;
//!
//! #[stencils]
//! mod model {
//!     use stencil::{In, Out};
//!
//!     const RATE: f32 = 0.1;
//!
//!     #[stencil_fn]
//!     fn laplacian(f: In<f32, 2>) -> f32 {
//!         f.at(-1, 0) + f.at(1, 0) + f.at(0, -1) + f.at(0, 1) - 4.0 * f.at(0, 0)
//!     }
//!
//!     #[stencil]
//!     pub fn smooth(next: Out<f32, 2>, t: In<f32, 2>) {
//!         next.set(t.at(0, 0) - RATE * (laplacian(t.shift(1, 0)) - laplacian(t)));
//!     }
//! }
//!
//! assert_eq!(model::smooth::STENCIL.reach("t"), Some(&[[-1, 2], [-1, 1]][..]));
//! ```
//!
//! The module [`subset`] has the whole subset, and a table of what is refused. What is no part of it is a compile
//! error, which says what to write instead. A stencil is a function, of a module or within another function, and no
//! method of an `impl`. How far a stencil reads is found from its body. [`Stencil::source`] is its text for a device.
//!
//! # Fields and launches
//!
//! A field has one value for each cell, on faces or at corners: see [`Location`]. The outputs of one launch have the
//! same location. What is read may have others: `u.at(1, 0)` of a field on [faces](Location::Face) across axis 0 is the
//! face behind the cell.
//!
//! [`Launch::run`] enqueues a launch. [`Launch::inside`] leaves out points near the ends of the grid, and
//! [`Launch::over`] computes only some. The outputs keep their values elsewhere. A field can be no output and input of
//! the same launch: use `InOut`, or two fields and `swap`.
//!
//! # Columns
//!
//! A function with the attribute [`column`](macro@column) is a stencil that computes the points along an axis in order,
//! and reads what it has set at the previous one. So it makes sums along the axis, and solves tridiagonal systems.
//!
//! ```
//! use runtime_core::Device;
//! use stencil::{Grid, In, Out, Result, column};
//!
//! /// The hydrostatic pressure in the middle of each level, half a level of air below the top of the level.
//! #[column(forward)]
//! fn pressure(p: Out<f64, 3>, density: In<f64, 3>, top: f64, half: f64) {
//!     if first() {
//!         p.set(top + half * density.at(0, 0, 0));
//!     } else {
//!         p.set(p.at(-1, 0, 0) + half * (density.at(-1, 0, 0) + density.at(0, 0, 0)));
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let device = Device::new(backend_host::HostDevice::new(0))?;
//! // Axis 0 goes down, from the top.
//! let grid = Grid::cartesian([4, 30, 20]).build(&device)?;
//! let density = grid.field("density").filled(2.0)?;
//! let mut p = density.like("p")?;
//! pressure(&mut p, &density, 100.0, 0.5 * 9.0).run(&device.default_stream())?;
//! let p = p.read_host()?;
//! assert_eq!([0, 1, 2, 3].map(|level| p[[level, 7, 7]]), [109.0, 127.0, 145.0, 163.0]);
//! # Ok(())
//! # }
//! ```
//!
//! | to | write |
//! |---|---|
//! | go in ascending or descending order | `#[column(forward)]`, `#[column(backward)]` |
//! | go along another axis than 0 | `#[column(forward, axis = 1)]` |
//! | read what was set at the previous point | `p.at(-1, 0, 0)` of an `Out` or `InOut`, if it goes forward along axis 0, and `p.at(1, 0, 0)` if it goes backward |
//! | read what was set two points before | carry it in another output: `older.set(p.at(-1, 0, 0))`, and read `older.at(-1, 0, 0)` |
//! | compute the ends in another way | `if first() { … } else if last() { … } else { … }`: `first()` is the point that is computed first, so that it has the highest index if the column goes backward |
//! | compute ghosts from the last own point | `#[column(forward, ghosts)]`, launched [`on`](Launch::on) an end |
//!
//! The first point must not read the previous one. What it reads of inputs counts for it alone: in the example, no
//! density is needed before the first level. `first()` and `last()` mean the ends of the points that a launch computes,
//! also with [`Launch::over`], [`Launch::inside`] or [`Launch::on`]. The axis must have ends, and must not be divided
//! among ranks: see [`GridBuilder::blocks`]. Put the column on axis 0 where you can. The host computes the columns
//! across rows side by side, with the vector instructions of the processor, but those along the last axis one by one.
//!
//! # Reductions
//!
//! A function with the attribute [`reduction`](macro@reduction) returns a value. Its launch makes one value of those of
//! all points, with the same bits in any order and for any number of ranks: see [`Reduction`].
//!
//! # Boundaries
//!
//! Beyond the ends of an axis that is not [periodic](GridBuilder::periodic), a field has the values of its
//! [`Boundary`]. Each end may have another: see [`FieldBuilder::boundary_at`]. This is what stencils read before the
//! first values `a, b, c, …` of a field:
//!
//! | boundary | at centres | at the ends themselves, as on faces |
//! |---|---|---|
//! | [`Nothing`](Boundary::Nothing) | it is an error to read there | the same |
//! | [`Value(x)`](Boundary::Value) | `x, x \| a, b, c` | `x, x \| a, b, c` |
//! | [`Mirror`](Boundary::Mirror) | `b, a \| a, b, c` | `c, b \| a, b, c` |
//! | [`OddMirror`](Boundary::OddMirror) | `-b, -a \| a, b, c` | `-c, -b \| a, b, c` |
//! | [`Clamp`](Boundary::Clamp) | `a, a \| a, b, c` | `a, a \| a, b, c` |
//! | [`Extrapolate`](Boundary::Extrapolate) | `2x - a, x = 2a - b \| a, b, c` | the same |
//! | [`Computed`](Boundary::Computed) | what a stencil computes that is launched [`on`](Launch::on) the end | the same |
//!
//! The ghosts at corners are filled axis by axis: those along axis 0 first. Stencils compute none at corners.
//!
//! # Ranks
//!
//! All ranks make the same grids, the same fields, and the same launches in the same order, also if these are on
//! several grids. These are collective:
//!
//! | collective | does it wait for other ranks? |
//! |---|---|
//! | [`Launch::run`], [`Reduction::run`] | if it reads ghosts that are stale |
//! | [`Reduced::get`] | yes |
//! | [`Field::write_host`], [`Field::read_write_host`], [`Field::set_from_fn`], [`Field::set_from_array`], [`Field::set_boundary`] | no; ghosts are stale afterwards |
//! | [`Field::gather`], [`Field::scatter`], `write_npy` and `read_npy` with the feature `npy` | yes |
//! | [`Grid::reset`], after errors of communication | yes |
//!
//! [`Field::read_host`] is not: any rank may read its own points. Ranks that make different launches get an error when
//! they exchange ghosts.
//!
//! ```
//! use std::sync::Arc;
//!
//! use halo::communicator::ThreadCommunicator;
//! # use runtime_core::Device;
//! use stencil::{Grid, Result};
//!
//! # let device = Device::new(backend_host::HostDevice::new(0))?;
//! // Two threads of this process. Processes have `MpiCommunicator` of `halo-mpi`.
//! let blocks = ThreadCommunicator::run(2, |communicator| -> Result<_> {
//!     let grid = Grid::cartesian([10, 4]).ranks(Arc::new(communicator)).build(&device)?;
//!     Ok(grid.block())
//! })?;
//! let blocks: Vec<_> = blocks.into_iter().collect::<Result<_>>()?;
//! assert_eq!(blocks, [[0..5, 0..4], [5..10, 0..4]]);
//! # Ok::<(), runtime_core::Error>(())
//! ```
//!
//! The device `host` uses all cores for one rank. So ranks that are threads make a program on it no faster: they are
//! for tests, and for several devices. `host?threads=1` uses one core.
//!
//! If there are several ranks, one thread of each rank makes the grid's fields, sets them, and makes launches and
//! reductions, in the same order on all ranks: not `if rank == 0 { t.set_from_fn(…)?; }`. A grid without
//! [`ranks`](GridBuilder::ranks) belongs to one rank alone. The threads of a single rank may use fields of a grid at
//! the same time.
//!
//! A program that uses `runtime` leaves the choice to `ranks::run`, which starts threads or joins an MPI job, and opens
//! the device of each rank:
//!
//! ```
//! use runtime::ranks;
//! use stencil::{Grid, In, Result, reduction};
//!
//! #[reduction(sum)]
//! fn total(t: In<f64, 2>) -> f64 {
//!     t.at(0, 0)
//! }
//!
//! # fn main() -> Result<()> {
//! let sum = ranks::run(Some(4), Some("host"), |rank| -> Result<_> {
//!     let grid = Grid::cartesian([10, 4]).ranks(rank.communicator.clone()).build(&rank.device)?;
//!     let t = grid.field("T").from_fn(|[i, j]| (i * j) as f64)?;
//!     total(&t).run(&rank.device.default_stream())?.get()
//! })?;
//! assert_eq!(sum, Some(270.0));
//! # Ok(())
//! # }
//! ```
//!
//! # Bits
//!
//! A stencil gives the same bits on every device and for any number of ranks. A device that rounds otherwise refuses
//! it. `#[stencil(inexact)]` gives this up, for the sake of such devices and of `exp`, `sin`, `cos` and `powf`. NaN is
//! NaN everywhere, but its sign and payload may differ.
//!
//! # Failures
//!
//! A failure of enqueued work is an error of a later call on the same stream, such as [`Field::read_host`] or
//! [`Reduced::get`]; values that it concerns are poisoned, and are set again as a whole. Until a call has reported it,
//! other streams do not know of it: a launch there that reads the field may compute with values that were never copied.
//! So the launches of a grid use one stream, the default one or another
//! ([`Device::stream_create`](runtime_core::Device::stream_create)), or a program waits for a stream before another one
//! uses its results: see [`Stream::synchronize`](runtime_core::Stream::synchronize).
//!
//! # Limits
//!
//! - Grids have one to three axes, and are rectangular, or [cubed spheres](Grid::cubed_sphere).
//! - A stencil reads no farther than [`GridBuilder::halo`], which is 1 by default, except within an axis that is neither
//!   divided among ranks nor periodic. No block may have fewer cells along an axis where it has neighbours.
//! - The fields of a launch are on one grid. Values pass between grids that are divided in other ways by
//!   [`Field::gather`] and [`Field::scatter`], so a method with columns along each axis in turn needs an undivided grid.
//! - A launch costs one to six microseconds, and tens of microseconds if it exchanges with ranks that are threads. On
//!   grids of fewer than about 10 000 points a plain loop is as fast.
//! - A column goes along an axis that is neither periodic nor divided among ranks, and not around a cubed sphere. A
//!   column of ghosts may go along an axis that is divided.
//! - All ranks make the same launches: of the same stencil, with fields of the same names, the same scalars and points.
//!   Ranks that differ get an error at the next exchange. Boundaries are not compared.
//! - All fields of a grid have its axes. A coefficient that depends on one axis alone is a field, too, or is computed from
//!   [`index`](subset).
//! - A device limits the number of fields in a launch: see `Limits::max_arguments`. `host` takes 127.
//!
//! The folder `examples` has complete programs; `docs/stencil.md` lists them.
#![deny(unsafe_code)]

extern crate self as stencil;

mod accumulate;
mod argument;
mod arguments;
mod boundary;
mod column;
mod description;
mod domain;
mod erased;
mod exchange;
mod exchanges;
mod field;
mod gather;
#[doc(hidden)]
pub mod generated;
mod geometry;
mod grid;
mod hash;
mod host;
mod kernel;
mod launch;
mod need;
#[cfg(feature = "npy")]
pub mod npy;
#[cfg(feature = "picture")]
pub mod picture;
mod probe;
mod reducer;
mod reduction;
mod shape;
#[doc = include_str!("../../stencil-translator/src/subset.md")]
pub mod subset {}
mod sweep;

pub use boundary::Boundary;
pub use description::{C, In, InOut, Intent, Out, Stencil};
pub use erased::Number;
pub use field::{End, Field, FieldBuilder, Location};
pub use grid::{Grid, GridBuilder};
pub use launch::Launch;
pub use reduction::{Reduced, Reduction};
pub use runtime_core::{Error, ErrorKind, Result};
pub use stencil_macros::{column, reduction, stencil, stencil_fn, stencils};
pub use sweep::{Part, Use, sweep};
