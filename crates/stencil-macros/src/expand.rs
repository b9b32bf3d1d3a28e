//! What the attributes are replaced by.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use stencil_translator::{
    Column, Dialect, Direction, Intent, LEVELS, Module, Reduction, Stencil, Type, can_be_parsed,
};
use syn::{
    Attribute, FnArg, GenericArgument, Item, ItemFn, ItemMod, Pat, PathArguments, ReturnType,
    Type as SynType,
};

/// The attribute of one function.
pub(crate) fn stencil(options: TokenStream, function: TokenStream) -> TokenStream {
    translated(quote!(#[stencil(#options)] #function), function)
}

/// The attribute of one function that is a reduction.
pub(crate) fn reduction(options: TokenStream, function: TokenStream) -> TokenStream {
    translated(quote!(#[reduction(#options)] #function), function)
}

/// The attribute of one function that is a column.
pub(crate) fn column(options: TokenStream, function: TokenStream) -> TokenStream {
    translated(quote!(#[column(#options)] #function), function)
}

/// The attribute of a helper that is in no module with the attribute `stencils`, which would have replaced it.
pub(crate) fn helper(function: TokenStream) -> TokenStream {
    let message = "put the helper and its stencils into a module: `#[stencils] mod name { … }`";
    match syn::parse2::<ItemFn>(function) {
        Ok(function) => syn::Error::new_spanned(&function.sig.ident, message),
        Err(error) => error,
    }
    .into_compile_error()
}

/// What replaces a function, which `whole` has with its attribute.
fn translated(whole: TokenStream, function: TokenStream) -> TokenStream {
    let stencil = match Stencil::parse(whole) {
        Ok(stencil) => stencil,
        Err(errors) => return refused(errors.to_compile_error(), function),
    };
    match syn::parse2::<ItemFn>(function) {
        Ok(function) => items(&stencil, &function, &root()),
        Err(error) => error.into_compile_error(),
    }
}

/// Errors, and a function that has the signature of a refused stencil: calls of it are no further errors.
fn refused(errors: TokenStream, function: TokenStream) -> TokenStream {
    if !can_be_parsed(&function) {
        return errors;
    }
    let stub = syn::parse2::<ItemFn>(function).map(|function| stub(&function, &root()));
    let stub = stub.unwrap_or_default();
    quote!(#errors #stub)
}

/// A function with the signature of a stencil, and without its body.
fn stub(function: &ItemFn, root: &TokenStream) -> TokenStream {
    let (vis, name) = (&function.vis, &function.sig.ident);
    let lifetime = syn::Lifetime::new("'stencil", Span::mixed_site());
    let mut parameters = Vec::new();
    let mut used = TokenStream::new();
    for input in &function.sig.inputs {
        let FnArg::Typed(input) = input else { continue };
        let Pat::Ident(pattern) = &*input.pat else { continue };
        let (name, ty) = (&pattern.ident, &input.ty);
        let (element, rank) = arguments_of(ty);
        if rank.is_empty() {
            parameters.push(quote!(#name: #ty));
            continue;
        }
        let is_input = matches!(&**ty, SynType::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "In"));
        let borrow = if is_input { quote!(&#lifetime) } else { quote!(&#lifetime mut) };
        parameters.push(quote!(#name: #borrow #root::Field<#element, #rank>));
        used.extend(quote_spanned!(Span::mixed_site()=> const _: fn(#ty) = |_| ();));
    }
    let returned = match &function.sig.output {
        // What it is refused for.
        ReturnType::Type(_, ty) if ty.to_token_stream().to_string() == "bool" => {
            quote!(#root::Reduction<#lifetime, u32>)
        }
        ReturnType::Type(_, ty) => quote!(#root::Reduction<#lifetime, #ty>),
        ReturnType::Default => quote!(#root::Launch<#lifetime>),
    };
    quote_spanned! {Span::mixed_site()=>
        #used
        #[allow(clippy::too_many_arguments, unused_variables, reason = "those of the stencil")]
        #vis fn #name<#lifetime>(#(#parameters),*) -> #returned {
            ::core::unreachable!()
        }
    }
}

/// The attribute of a module.
pub(crate) fn module(options: TokenStream, module: TokenStream) -> TokenStream {
    if !options.is_empty() {
        let message = "`#[stencils]` takes no options: write `#[stencil(inexact)]` at the function";
        return syn::Error::new_spanned(options, message).into_compile_error();
    }
    let translated = match Module::parse(module.clone()) {
        Ok(translated) => translated,
        Err(errors) => return refused_module(errors.to_compile_error(), module),
    };
    let ItemMod { attrs, vis, ident, content, .. } = match syn::parse2(module) {
        Ok(module) => module,
        Err(error) => return error.into_compile_error(),
    };
    let items_within = content.map(|(_, items)| items).unwrap_or_default();
    let functions: Vec<_> = items_within
        .iter()
        .filter_map(|item| match item {
            Item::Fn(function) => Some(function),
            _ => None,
        })
        .collect();
    let root = root();
    let rest = translated.rest().iter().map(|item| {
        // Stencils alone may use it, and they have its value.
        let is_constant = matches!(syn::parse2(item.clone()), Ok(Item::Const(_)));
        let allow = is_constant.then(|| quote!(#[allow(dead_code, reason = "for stencils")]));
        quote!(#allow #item)
    });
    let helpers = functions.iter().filter_map(|function| {
        let unused = translated.unused(&function.sig.ident);
        let lints = function.attrs.iter().filter(|attribute| {
            ["allow", "expect", "warn", "deny", "forbid"].iter().any(|name| is(attribute, name))
        });
        let unused = (!unused.is_empty()).then(|| unused_variables(unused))?;
        Some(quote_spanned!(Span::mixed_site()=> #(#lints)* const _: fn() = || { #unused };))
    });
    let stencils = translated.stencils().iter().map(|stencil| {
        let named = functions.iter().find(|function| function.sig.ident == *stencil.ident());
        named.map(|function| items(stencil, function, &root))
    });
    quote! {
        #(#attrs)* #vis mod #ident {
            #(#rest)*
            #(#helpers)*
            #(#stencils)*
        }
    }
}

/// Variables that nothing uses, with the names and places of those of the source, so that the compiler warns of them.
fn unused_variables(names: &[Ident]) -> TokenStream {
    quote_spanned!(Span::mixed_site()=> #(let _ = |#names: ()| {};)*)
}

/// Errors, and the module with stubs of its stencils and its other items.
fn refused_module(errors: TokenStream, module: TokenStream) -> TokenStream {
    if !can_be_parsed(&module) {
        return errors;
    }
    let Ok(ItemMod { vis, ident, content: Some((_, items)), .. }) = syn::parse2(module) else {
        return errors;
    };
    let root = root();
    let items = items.into_iter().map(|item| match item {
        Item::Fn(function) if function.attrs.iter().any(is_stencil) => stub(&function, &root),
        Item::Fn(function)
            if function.attrs.iter().any(|attribute| is(attribute, "stencil_fn")) =>
        {
            TokenStream::new()
        }
        other => other.into_token_stream(),
    });
    quote! {
        #errors
        #[allow(unused_imports, reason = "what uses them was refused")]
        #vis mod #ident { #(#items)* }
    }
}

/// Whether an attribute has this name, with any path before it.
fn is(attribute: &Attribute, name: &str) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == name)
}

/// Whether an attribute makes a stencil of a function.
fn is_stencil(attribute: &Attribute) -> bool {
    ["stencil", "column", "reduction"].iter().any(|name| is(attribute, name))
}

/// The path of the crate `stencil`, by the name that the program has for it.
fn root() -> TokenStream {
    let named = |name: &str| Ident::new(name, Span::mixed_site());
    match (crate_name("stencil"), crate_name("runtime")) {
        (Ok(FoundCrate::Name(name)), _) => {
            let name = named(&name);
            quote!(::#name)
        }
        (Err(_), Ok(FoundCrate::Name(name))) => {
            let name = named(&name);
            quote!(::#name::stencil)
        }
        (Err(_), Ok(FoundCrate::Itself)) => quote!(::runtime::stencil),
        // The crate itself, its examples and its tests. It has this name for itself, too.
        _ => quote!(::stencil),
    }
}

/// The items that replace the function of a stencil: the function that makes a launch, and a type with its description.
fn items(stencil: &Stencil, function: &ItemFn, root: &TokenStream) -> TokenStream {
    let (vis, name) = (&function.vis, &function.sig.ident);
    let attributes: Vec<&Attribute> =
        function.attrs.iter().filter(|attribute| !is_stencil(attribute)).collect();
    let (generated, unused) = (stencil.to_rust(), unused_variables(stencil.unused()));
    let description = description(stencil, root);
    let (mut parameters, mut arguments, mut scalars) = (Vec::new(), Vec::new(), Vec::new());
    let mut asserted = TokenStream::new();
    let lifetime = syn::Lifetime::new("'stencil", Span::mixed_site());
    for input in &function.sig.inputs {
        let FnArg::Typed(input) = input else { continue };
        let Pat::Ident(pattern) = &*input.pat else { continue };
        let (name, ty) = (&pattern.ident, &input.ty);
        let field = stencil.fields().iter().find(|field| field.ident() == name);
        let Some(field) = field else {
            parameters.push(quote!(#name: #ty));
            scalars.push(quote_spanned!(Span::mixed_site()=>
                <#root::generated::Scalar as ::core::convert::From<_>>::from(#name)));
            continue;
        };
        let (element, rank) = arguments_of(ty);
        let marker = Ident::new(field.intent().name(), Span::mixed_site());
        let same = quote_spanned!(Span::mixed_site()=> |marker| marker);
        asserted.extend(quote_spanned!(Span::mixed_site()=>
            const _: fn(#ty) -> #root::#marker<#element, #rank> = #same;
        ));
        let (borrow, make) = match field.intent() {
            Intent::In => (quote!(&#lifetime), format_ident!("input")),
            Intent::Out => (quote!(&#lifetime mut), format_ident!("output")),
            Intent::InOut => (quote!(&#lifetime mut), format_ident!("update")),
        };
        parameters.push(quote!(#name: #borrow #root::Field<#element, #rank>));
        arguments
            .push(quote_spanned!(Span::mixed_site()=> #root::generated::Argument::#make(#name)));
    }
    let at = Span::mixed_site();
    let values = quote_spanned!(at=> [#(#arguments),*], &[#(#scalars),*]);
    let (returned, make) = match (stencil.reduction(), &function.sig.output) {
        (Some(reduction), ReturnType::Type(_, ty)) => {
            let op = match reduction {
                Reduction::Sum => quote_spanned!(at=> Sum),
                Reduction::Min => quote_spanned!(at=> Min),
                Reduction::Max => quote_spanned!(at=> Max),
            };
            let returned = quote_spanned!(at=> #root::Reduction<#lifetime, #ty>);
            (
                returned,
                quote_spanned!(at=> #root::generated::reduce(#root::generated::Op::#op, #name::STENCIL, #values)),
            )
        }
        _ => {
            let returned = quote_spanned!(at=> #root::Launch<#lifetime>);
            (returned, quote_spanned!(at=> #root::generated::launch(#name::STENCIL, #values)))
        }
    };
    let documentation = format!("What is known of the stencil [`{name}`](fn@{name}).");
    quote_spanned! {Span::mixed_site()=>
        #[doc = #documentation]
        #[allow(non_camel_case_types, reason = "named after the stencil")]
        #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
        #vis enum #name {}

        const _: () = {
            #asserted
            #generated
            #description

            impl #name {
                /// The description of the stencil: its texts for devices, and where it reads its fields.
                #[allow(dead_code, reason = "programs need it rarely")]
                #vis const STENCIL: &'static #root::Stencil = &DESCRIPTION;
            }
        };

        #(#attributes)*
        #[allow(clippy::too_many_arguments, reason = "those of the stencil")]
        #vis fn #name<#lifetime>(#(#parameters),*) -> #returned {
            #unused
            #make
        }
    }
}

/// The element type and the rank of `In<T, N>`.
fn arguments_of(ty: &SynType) -> (TokenStream, TokenStream) {
    let mut found = Vec::new();
    if let SynType::Path(path) = ty
        && let Some(last) = path.path.segments.last()
        && let PathArguments::AngleBracketed(arguments) = &last.arguments
    {
        found = arguments
            .args
            .iter()
            .map(|argument| match argument {
                GenericArgument::Type(ty) => ty.to_token_stream(),
                other => other.to_token_stream(),
            })
            .collect();
    }
    let mut found = found.into_iter();
    (found.next().unwrap_or_default(), found.next().unwrap_or_default())
}

/// The static description, and the functions that it points to.
fn description(stencil: &Stencil, root: &TokenStream) -> TokenStream {
    let at = Span::mixed_site();
    let (name, kernel) = (stencil.name(), stencil.kernel_name());
    let (inexact, rank) = (stencil.is_inexact(), stencil.rank());
    let fields = stencil.fields().iter().map(|field| {
        let (name, dtype) = (field.name(), dtype(field.element(), root));
        let intent = Ident::new(field.intent().name(), at);
        let footprint = field.footprint();
        let reach = (0..3).map(|axis| {
            let (low, high) = if axis < stencil.rank() { footprint.range(axis) } else { (0, 0) };
            quote!([#low, #high])
        });
        let (diagonals, is_read) =
            (footprint.has_diagonals(), footprint.offsets().next().is_some());
        quote_spanned!(at=> #root::generated::FieldParts {
            name: #name,
            intent: #root::Intent::#intent,
            dtype: #dtype,
            reach: [#(#reach),*],
            has_diagonals: #diagonals,
            is_read: #is_read,
        })
    });
    let scalars = stencil.scalars().iter().map(|scalar| {
        let (name, size) = (scalar.name(), scalar.ty().size());
        quote_spanned!(at=> (#name, #size))
    });
    let sources = [
        (Dialect::OpenCl, quote_spanned!(at=> #root::generated::ImageFormat::OpenClC)),
        (Dialect::Cuda, quote_spanned!(at=> #root::generated::ImageFormat::CudaC)),
        (Dialect::Hip, quote_spanned!(at=> #root::generated::ImageFormat::HipC)),
        (Dialect::C, quote_spanned!(at=> #root::C)),
    ];
    let sources = sources.map(|(dialect, format)| (stencil.source(dialect), format, dialect));
    let elf = quote_spanned!(at=> #root::generated::ImageFormat::Elf);
    let sources = sources.into_iter().chain([(stencil.embedded_source(), elf, Dialect::C)]);
    let sources = sources.map(|(text, format, dialect)| {
        let flags = dialect.flags();
        quote_spanned!(at=> #root::generated::Source { format: #format, text: #text, options: &[#(#flags),*] })
    });
    let column = column_parts(stencil, root);
    let args = Ident::new(&format!("{name}_args"), at);
    let rows = Ident::new(&format!("{name}_rows"), at);
    let numbers: Vec<usize> = (0..stencil.fields().len()).collect();
    let call = quote_spanned! {at=>
        // SAFETY: the caller guarantees that these are arguments of this stencil.
        let args = unsafe { &*args.cast::<#args>() };
        // SAFETY: the caller guarantees what the rows need.
        unsafe { #rows(args, #(fields[#numbers].cast(),)* rows) }
    };
    let parameters = quote_spanned! {at=>
        args: *const ::core::primitive::u64,
        fields: &[*mut ::core::primitive::u8],
        rows: ::core::ops::Range<::core::primitive::usize>,
    };
    let levels = LEVELS.map(|level| Ident::new(level.name, at));
    let features = LEVELS.map(|level| level.features);
    quote_spanned! {at=>
        #[allow(clippy::pedantic, clippy::restriction, reason = "generated")]
        unsafe fn baseline(#parameters) {
            #call
        }

        #(
            #[cfg(target_arch = "x86_64")]
            #[allow(clippy::pedantic, clippy::restriction, reason = "generated")]
            #[target_feature(enable = #features)]
            unsafe fn #levels(#parameters) {
                #call
            }
        )*

        static DESCRIPTION: #root::Stencil = {
            let parts = #root::generated::Parts {
                name: #name,
                kernel: #kernel,
                is_inexact: #inexact,
                rank: #rank,
                fields: &[#(#fields),*],
                scalars: &[#(#scalars),*],
                sources: &[#(#sources),*],
                column: #column,
                rows: &[baseline, #(#[cfg(target_arch = "x86_64")] #levels),*],
            };
            // SAFETY: all parts were made of one stencil.
            unsafe { #root::generated::describe(parts) }
        };
    }
}

/// How a column goes through a grid, and how far it reads.
fn column_parts(stencil: &Stencil, root: &TokenStream) -> TokenStream {
    let at = Span::mixed_site();
    let Some(Column { direction, axis, ghosts }) = stencil.column() else {
        return quote_spanned!(at=> ::core::option::Option::None);
    };
    let is_forward = direction == Direction::Forward;
    let reach = stencil.fields().iter().map(|field| {
        let ends = [false, true].map(|first| {
            let ends = [false, true].map(|last| {
                let footprint = field.footprint_at([first, last]);
                if footprint.offsets().next().is_none() {
                    return quote_spanned!(at=> ::core::option::Option::None);
                }
                let (low, high) = footprint.range(axis);
                quote_spanned!(at=> ::core::option::Option::Some([#low, #high]))
            });
            quote!([#(#ends),*])
        });
        quote!([#(#ends),*])
    });
    quote_spanned!(at=> ::core::option::Option::Some(#root::generated::ColumnParts {
        axis: #axis,
        is_forward: #is_forward,
        ghosts: #ghosts,
        reach: &[#(#reach),*],
    }))
}

fn dtype(ty: Type, root: &TokenStream) -> TokenStream {
    let name = match ty {
        Type::F32 => "F32",
        Type::F64 => "F64",
        Type::I32 => "I32",
        Type::I64 => "I64",
        Type::U32 | Type::Bool => "U32",
    };
    let name = Ident::new(name, Span::mixed_site());
    quote_spanned!(Span::mixed_site()=> #root::generated::DType::#name)
}
