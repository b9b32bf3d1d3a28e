//! The attributes of the crate `stencil`. Use them through that crate, whose documentation describes them.

mod expand;

use proc_macro::TokenStream;

/// Makes a stencil of a function: see the crate `stencil`.
#[proc_macro_attribute]
pub fn stencil(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::stencil(options.into(), function.into()).into()
}

/// Makes a reduction of a function that returns a value: see the crate `stencil`.
#[proc_macro_attribute]
pub fn reduction(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::reduction(options.into(), function.into()).into()
}

/// Makes a column of a function, a stencil that computes the points along an axis in order: see the crate `stencil`.
#[proc_macro_attribute]
pub fn column(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::column(options.into(), function.into()).into()
}

/// Marks a helper of the stencils in a module with the attribute [`macro@stencils`]. Elsewhere it is an error, which says
/// so.
#[proc_macro_attribute]
pub fn stencil_fn(_: TokenStream, function: TokenStream) -> TokenStream {
    expand::helper(function.into()).into()
}

/// Makes stencils, columns and reductions of the functions of a module that have the attribute `stencil`, `column` or
/// `reduction`: see the crate `stencil`.
#[proc_macro_attribute]
pub fn stencils(options: TokenStream, module: TokenStream) -> TokenStream {
    expand::module(options.into(), module.into()).into()
}
