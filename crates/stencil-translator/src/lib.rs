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
//! # The subset
//!
//! | what | how it is written |
//! |---|---|
//! | types | `f32`, `f64`, `i32`, `i64`, `u32`, `bool`, and in a module `type` aliases of them |
//! | field parameters | `In<T, N>` is read, `Out<T, N>` is set, `InOut<T, N>` is read at the point itself and set; `N` is 1, 2 or 3, and the same for all fields; `T` is not `bool` |
//! | scalar parameters | a type |
//! | reading | `t.at(-1, 0)`; axis 0 is the first offset, and the last axis is contiguous; an `InOut` gives the value from before, also after `set` |
//! | columns | `#[column(forward)] fn sum(s: Out<f64, 2>, t: In<f64, 2>) { … }`, also `backward`: a stencil that computes the points along an axis in order; see [Columns](#columns) |
//! | setting | `next.set(value);` exactly once on each path, for each output |
//! | variables | `let x = …;`, `let mut x: f64 = …;`, `x = …;`, `x += …;` and its siblings |
//! | arithmetic | `+ - * /` of numbers; `%` of integers; `& \| ^` of integers and bools; `!`, `-` |
//! | comparisons and logic | `== != < <= > >=`, `&& \|\|` |
//! | casts | `x as f64`, with the semantics of Rust: from floats to integers they saturate, and NaN becomes 0 |
//! | branches | `if … { … } else { … }` as a statement, and as a value; `else if` |
//! | loops | `for k in 0..9 { … }`, `-1..=1`; they are unrolled, and `k` is a constant in each turn; the ends are numbers that the translator knows, no parameters of the stencil |
//! | constants | `const A: f64 = 4.0 / 9.0;` and tables `const W: [f64; 9] = […];`, in the function, or beside it in a module; made of literals and the constants above them, and finite; no parameter or variable has the name of one |
//! | elements of tables | `W[k]`, `W[2]`: the index is made of literals, constants and loop variables; a table of offsets is a `[i64; N]`, and one with rows is written as `M[2 * i + j]` |
//! | places | `index(0)` is the point's place on an axis of the grid, negative or beyond the last one at ghosts, and `extent(0)` the number of cells of the grid, also for fields on faces; both are `i64` |
//! | functions of floats | `x.sqrt()`, `x.abs()`, `x.floor()`, `x.ceil()`, `x.mul_add(a, b)` |
//! | functions of numbers | `a.min(b)`, `a.max(b)`, and `abs` of signed integers |
//! | inexact functions | `x.exp()`, `x.sin()`, `x.cos()`, `x.powf(y)`, under `#[stencil(inexact)]` and in the helpers that it calls; not in constants |
//! | reductions | `#[reduction(sum)] fn mass(h: In<f64, 2>) -> f64 { … }`, also `min` and `max`: a stencil that returns its value, from whose values a program makes one; it has fields `In` alone |
//! | helpers | `#[stencil_fn] fn lap(f: In<f64, 2>) -> f64 { … }` beside the stencil; called as `lap(t)`, `lap(t.shift(1, 0))` |
//!
//! Offsets, shifts, indices, axes and the ends of loops are known to the translator: they are made of literals,
//! constants, loop variables, and parameters of helpers whose arguments are known. So are the divisors of integers. If
//! a condition is known in the same way, only the branch that it chooses is translated. A block that gives a value
//! changes only variables of its own. Both branches of an `if` that gives a value may be computed. A constant beside
//! the stencils is refused only if one of them uses it.
//!
//! Parameters and variables that are never read are warned of as in Rust, if the program has no errors.
//!
//! Types are inferred as in Rust. A loop variable has the type that its use requires, as a literal has. Without one, an
//! integer literal is an `i32`, and a float literal has the float type that occurs in the function.
//!
//! Names are compared as texts. In a stencil that `macro_rules!` makes, a variable of the macro and one of the caller
//! must not have the same name.
//!
//! # Columns
//!
//! A *column* computes the points along one axis one after the other: in ascending order if it goes `forward`, and in
//! descending order if it goes `backward`. The axis is 0, or another one with `#[column(forward, axis = 1)]`. Lines of
//! points along it are independent of each other. Along axis 0 the Rust function computes them side by side, because
//! each row along the last axis has points of many of them.
//!
//! | to | write |
//! |---|---|
//! | know whether a point is the first or the last of its column | `first()`, `last()`: conditions, whose values the translator knows; `first()` is the point that is computed first, so that it has the highest index if the column goes `backward` |
//! | read what the column has set at the previous point | `s.at(-1, 0)` of an `Out` or `InOut`, if it goes `forward` along axis 0, and `s.at(1, 0)` if it goes `backward`; an output is read nowhere else |
//! | read the value from before | `s.at(0, 0)` of an `InOut` |
//!
//! The body is translated for the first point, for the last one, for those between them, and for the only point of a
//! column, as far as these differ. So a read in the branch `if first() { … }` counts for the footprint of the first
//! point alone: see [`Field::footprint_at`]. The first point has no previous one, and must not read it. If `first()` or
//! `last()` decides the left side of `&&` or `||`, the right side is not translated.
//!
//! A column with the option `ghosts`, `#[column(forward, ghosts)]`, computes values beyond the end of a field. For its
//! first point the previous one is the last own point of the field, so that it need not ask for `first()`.
//!
//! # What is refused
//!
//! | what | why, and what to write |
//! |---|---|
//! | a float literal without a type where `f32` and `f64` occur | its bits depend on its type: `1.5_f64` |
//! | a literal out of the range of its type | integers wrap, but literals mean what they say |
//! | division of integers by a variable | it has no value at zero: use floats |
//! | `%` of floats, `round`, `trunc`, `copysign` and others | they are not the same in all dialects, or rarely needed: `floor`, `ceil`, `if` |
//! | shifts | multiply or divide by a power of two |
//! | `while`, `loop`, `break`, `continue`, `return`, recursion | footprints and the number of operations would not be known: `for`, `if` |
//! | offsets and indices that are not known | the footprint would not be known |
//! | structs, tuples, arrays, references, closures, `match`, macros, generics, paths | C and Rust would differ, or the macro cannot see what they mean: one parameter for each value or field; the value of `f64::MAX` as a literal |
//! | methods: `#[stencil]` in an `impl` or a trait | what an attribute makes of a function are items, which have no place there: write a function in a module |
//! | two attributes on one function, options of `#[stencil_fn]` | a function is a stencil, a column, a reduction or a helper; a helper may be `inexact` if its stencils are |
//! | an output that is read, an `InOut` that is read at an offset | the order of the points would matter: a column has one |
//! | an output that is set on some paths, or twice | its value would be unspecified |
//! | `bool` in fields | the bytes of a field can have any value: `u32` |
//! | names with letters beyond ASCII | C has no such names |
//! | `#[cfg]` | a macro does not see its value: put it on the module |
//! | other attributes but lints, `doc`, `inline`, `must_use` and the like | a macro does not see what they do |
//! | a constant that is used above its line | it would hold there, too: move it up |
//! | offsets beyond 1024, more than 50 000 operations, deep nesting | the compilers behind would take very long |
//!
//! Each error has a place and says what to write instead. All errors of a source are found at once; whether outputs are
//! set is checked when there are no others.
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
