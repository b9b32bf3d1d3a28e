//! Vendors' libraries: loading them at run time, and tables of the functions in them.
#![expect(unsafe_code, reason = "loads libraries, whose initialisers run")]

use std::error::Error as _;

pub use libloading;

/// The first of the libraries that loads.
///
/// # Errors
///
/// Why the first of them does not, if none does.
pub fn load(names: &[&str]) -> Result<libloading::Library, String> {
    let mut first = String::new();
    for name in names {
        // SAFETY: what runs when a library of these names is loaded is its vendor's code, or the user's choice.
        match unsafe { libloading::Library::new(*name) } {
            Ok(library) => return Ok(library),
            Err(error) if first.is_empty() => {
                let cause = error.source().map_or(String::new(), |cause| format!(": {cause}"));
                first = format!("{error}{cause}");
            }
            Err(_) => {}
        }
    }
    Err(first)
}

/// Declares a table of C functions that are bound by name. Those that return nothing else return a code, which is a plain
/// number: a library may be newer than the headers that a crate knows, and return others.
///
/// `bind` of the table takes the symbols from a library, or names the first of `every version` that is missing; those of
/// `newer versions` are options.
#[macro_export]
macro_rules! function_table {
    (@returned) => { u32 };
    (@returned $type:ty) => { $type };
    (
        $(#[$about:meta])*
        $visibility:vis $table:ident:
        every version { $($name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $returned:ty)?;)* }
        newer versions { $($newer:ident($($newer_arg:ident: $newer_type:ty),* $(,)?);)* }
    ) => {
        $(#[$about])*
        $visibility struct $table {
            $($visibility $name:
                unsafe extern "C" fn($($arg: $type),*) -> $crate::function_table!(@returned $($returned)?),)*
            $($visibility $newer:
                Option<unsafe extern "C" fn($($newer_arg: $newer_type),*) -> u32>,)*
        }

        impl $table {
            /// Binds the symbols, or names the first that is missing.
            fn bind(library: &$crate::libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: the library's headers declare the function so.
                    $($name: *unsafe { library.get(stringify!($name)) }
                        .map_err(|_| stringify!($name))?,)*
                    // SAFETY: as above.
                    $($newer: unsafe { library.get(stringify!($newer)) }.ok().map(|f| *f),)*
                })
            }
        }
    };
}
