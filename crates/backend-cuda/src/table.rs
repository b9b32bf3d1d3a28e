//! Tables of functions that are bound by name when their library is loaded.

/// Declares a table of C functions that return a code. Codes are plain numbers: a library may be newer than the headers
/// that this crate knows, and return others.
macro_rules! table {
    (
        $(#[$about:meta])*
        $table:ident:
        every version { $($name:ident($($arg:ident: $type:ty),* $(,)?);)* }
        newer versions { $($newer:ident($($newer_arg:ident: $newer_type:ty),* $(,)?);)* }
    ) => {
        $(#[$about])*
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg: $type),*) -> u32,)*
            $(pub(crate) $newer: Option<unsafe extern "C" fn($($newer_arg: $newer_type),*) -> u32>,)*
        }

        impl $table {
            /// Binds the symbols, or names the first that is missing.
            fn bind(library: &libloading::Library) -> Result<Self, &'static str> {
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
