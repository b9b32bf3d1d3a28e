//! Translates a stencil, what one point of a grid computes, from a subset of Rust to C text and to a Rust function over
//! rows. It also derives how far each input is read: its *footprint*.
//!
//! ```
//! use stencil_translator::{Dialect, Stencil};
//!
//! let text = "
//! #[stencil]
//! fn diffuse(next: Out<f64, 2>, t: In<f64, 2>, ax: f64, ay: f64) {
//!     let c = t.at(0, 0);
//!     next.set(c + ax * (t.at(-1, 0) - 2.0 * c + t.at(1, 0)) + ay * (t.at(0, -1) - 2.0 * c + t.at(0, 1)));
//! }";
//! let stencil = Stencil::parse(text.parse()?)?;
//! let t = &stencil.fields()[1];
//! assert_eq!(t.footprint().range(0), (-1, 1));
//! assert!(!t.footprint().has_diagonals());
//! assert!(stencil.source(Dialect::OpenCl).contains("__kernel void diffuse_kernel"));
//! assert!(stencil.to_rust().to_string().contains("unsafe fn diffuse_rows"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate knows no grids, fields or launches. It is an ordinary library, so that it can be tested with random
//! programs. A macro passes it tokens, and gets back tokens or errors with places.
//!
#![doc = include_str!("subset.md")]
//!
//! # Bits
//!
//! All outputs compute the same bits, on every device that rounds each operation by IEEE 754. For this, types and
//! literals are explicit in both languages. A float literal is parsed at its final type, and printed with the fewest
//! digits that are read back as the same value. Compilers must get [`Dialect::flags`].
//!
//! | operation | bits |
//! |---|---|
//! | `+ - * /`, `sqrt`, `mul_add` | correctly rounded; nothing is contracted |
//! | `a.min(b)` | `if a < b { a } else { b }`: if either is NaN, the result is `b`; of two zeros, it is `b` |
//! | `a.max(b)` | `if a > b { a } else { b }`: the same |
//! | integer `+ - *`, `-x`, `abs` | they wrap |
//! | `x / -1` | it wraps; `x % -1` is 0 |
//! | NaN | where one side gives NaN the other does; its payload and sign are unspecified |
//! | `exp`, `sin`, `cos`, `powf` | unspecified, hence `inexact` |
//!
//! # What is made
//!
//! The *struct of arguments* is passed by value to a kernel, and by reference to C and Rust functions. It has no gaps:
//!
//! | member | meaning |
//! |---|---|
//! | `t_first` | for each field: the element of the box's first point |
//! | `t_strides` | for each field with more than one axis: the strides of all axes but the last, in elements; that of the last is 1 |
//! | `extents` | the box's extents |
//! | `first` | the place of the box's first point in the grid |
//! | `grid` | the grid's extents |
//! | `ax_value` | each scalar: first those of eight bytes, then those of four; a `bool` is a `u32` |
//! | `pad` | four bytes, if the number of four-byte scalars is odd |
//!
//! All but the scalars are 64-bit integers. [`Stencil::members`] lists the members.
//!
//! A kernel takes a pointer for each field, in the order of the parameters, and then the struct. It computes one point
//! for each work-item: x counts the last axis, y the one before it, z the first of three. Work-items outside of the box
//! do nothing. The kernel of a column computes one column for each work-item, which count the other axes in the same
//! order, and keeps what it reads at the previous point in variables. For fields of one axis, that is the first
//! work-item. On CUDA and HIP devices, a box has at most 2³¹ points along an axis. [`Dialect::C`] is a function that
//! computes the whole box.
//!
//! The Rust function is `unsafe fn diffuse_rows(args: &diffuse_args, …, rows: Range<usize>)`, with a raw pointer for
//! each field. It computes some of the box's rows along the last axis: row `i` for two axes, `i * extents[1] + j` for
//! three, 0 for one. A column along the last axis is a row. For a column along another one, row `i` has the points at
//! `i` on the third axis, or all points of the box if there are two axes, and the function goes through the levels of
//! all its rows together. Calls for different rows may run at once. It is always inlined, so that a caller chooses the
//! features of the processor: see [`LEVELS`]. Its caller guarantees:
//!
//! - Each field has the elements of the box, and an input has those of the box moved by each offset of its footprint.
//! - An input also has all elements between them along the last axis, though the stencil does not read them. If it is
//!   read at -2 and 3 there, it has the elements at -2 to 3. The function makes one slice of them for each row.
//! - The elements of an output are distinct from those of other outputs and of inputs, the elements between included.
//! - The strides of outputs keep their rows apart.
//! - For a column, the footprint of each point is meant: the first point needs no element that only others read.
//! - If a column computes ghosts, the outputs that it reads also have the elements before the first points, which no
//!   call writes.
//!
//! # Structure
//!
//! | file | subject |
//! |---|---|
//! | `subset.md` | the documentation of the subset, which is also that of `stencil::subset` |
//! | `parse/` | from tokens to `syntax.rs`: names are resolved, and what is no part of the subset is refused |
//! | `types.rs` | inference of types; literals are read |
//! | `inline.rs` | from syntax to `body.rs`: helpers are inlined, loops unrolled, constants replaced by their values |
//! | `bodies.rs` | the bodies of a column at its ends and between them |
//! | `assignment.rs`, `footprint.rs` | whether outputs are set; where inputs are read |
//! | `description.rs` | what is known of a stencil; the struct of arguments |
//! | `c.rs`, `rust.rs`, `interpret.rs` | the two languages, and a reference interpreter |
//! | `levels.rs` | levels of processors for which rows are compiled |
//! | `embedded.rs` | a program for embedded devices, in C |
//! | `op.rs`, `value.rs` | operations and values |
//! | `stencil.rs`, `errors.rs` | what programs use |

mod assignment;
mod bodies;
mod body;
mod c;
mod description;
mod embedded;
mod errors;
mod footprint;
mod inline;
mod interpret;
mod levels;
mod op;
mod parse;
mod rust;
mod stencil;
mod syntax;
mod types;
mod value;

pub use c::Dialect;
pub use description::{Field, Member, Scalar};
pub use errors::{Error, Errors};
pub use footprint::Footprint;
pub use interpret::Point;
pub use levels::{LEVELS, Level};
pub use parse::can_be_parsed;
pub use stencil::{Module, Stencil};
pub use syntax::{Column, Direction, Intent, Reduction};
pub use value::{Type, Value};
