//! The attributes of the crate `stencil`. Use them through that crate, whose documentation describes them.

mod expand;

use proc_macro::TokenStream;

/// Makes a stencil of a function: see the crate `stencil`.
#[proc_macro_attribute]
pub fn stencil(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::stencil(options.into(), function.into()).into()
}

/// Makes stencils of the functions of a module that have the attribute `stencil`: see the crate `stencil`.
#[proc_macro_attribute]
pub fn stencils(options: TokenStream, module: TokenStream) -> TokenStream {
    expand::module(options.into(), module.into()).into()
}
