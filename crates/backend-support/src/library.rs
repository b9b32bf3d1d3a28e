//! Vendors' libraries: loading them at run time, and tables of the functions in them.
#![expect(unsafe_code, reason = "loads libraries and so runs their initialisers")]

use std::env;
use std::error::Error as _;
use std::path::PathBuf;

pub use libloading;
use runtime_core::{Error, ErrorKind};

/// Loads the first of the libraries that can be loaded.
///
/// # Errors
///
/// The reason, if none can be loaded: for the first library that exists but does not load, or otherwise for the first
/// name.
pub fn load(names: &[&str]) -> Result<libloading::Library, String> {
    let (mut absent, mut broken) = (None, None);
    for name in names {
        // SAFETY: loading a library of these names runs code of its vendor, or code that the user chose.
        let error = match unsafe { libloading::Library::new(*name) } {
            Ok(library) => return Ok(library),
            Err(error) => error,
        };
        let why = reason(&error);
        // The C library's message for the name itself. For a missing dependency, the message contains another name.
        if why.contains(&format!("{name}: cannot open shared object file: No such file")) {
            absent.get_or_insert(why);
        } else {
            broken.get_or_insert(format!("{name} does not load: {why}"));
        }
    }
    Err(broken.or(absent).unwrap_or_default())
}

/// The message of a loader error, with its cause, which names the file.
pub fn reason(error: &libloading::Error) -> String {
    let cause = error.source().map_or(String::new(), |cause| format!(": {cause}"));
    format!("{error}{cause}")
}

/// The file of the library that contains a function of a loaded library, if the system reports it.
pub fn file_of(library: &libloading::Library, function: &str) -> Option<PathBuf> {
    #[cfg(unix)]
    {
        use std::ffi::{CStr, OsStr, c_void};
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: the function is not called.
        let address = unsafe { library.get::<unsafe extern "C" fn()>(function) }.ok()?;
        let address = *address as *const c_void;
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be passed, and the result is written to valid memory.
        if unsafe { libc::dladdr(address, found.as_mut_ptr()) } == 0 {
            return None;
        }
        // SAFETY: every field may be zero, and the call has written the fields.
        let name = unsafe { found.assume_init() }.dli_fname;
        if name.is_null() {
            return None;
        }
        // SAFETY: the loader's pointer is to a text that ends with a NUL and lives as long as the library.
        let name = unsafe { CStr::from_ptr(name) };
        Some(OsStr::from_bytes(name.to_bytes()).into())
    }
    #[cfg(not(unix))]
    {
        let _ = (library, function);
        None
    }
}

/// The path of a library from an environment variable, which replaces the system's search.
pub fn named(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|path| !path.is_empty())
}

/// The reason why a library cannot be used.
#[derive(Debug)]
pub struct Refusal {
    /// `Unavailable` if the library is missing, `Driver` if it is broken.
    pub kind: ErrorKind,
    /// The reason in words.
    pub message: String,
    /// The library's error code, and the name of the code.
    pub code: Option<(&'static str, u32)>,
}

impl Refusal {
    /// A reason without an error code.
    pub fn new(kind: ErrorKind, message: String) -> Self {
        Self { kind, message, code: None }
    }

    /// The error of a request for devices.
    pub fn error(&self) -> Error {
        let error = Error::new(self.kind, "devices", self.message.as_str());
        match self.code {
            Some((name, code)) => error.with_driver(name, code.into()),
            None => error,
        }
    }
}

/// Declares a table of C functions that are bound by name. Functions without a declared return type return a code. A
/// code is a plain number, because a library may be newer than the headers that a crate was written for and return
/// other codes.
///
/// The table's `bind` takes the symbols from a library, or returns the name of the first missing symbol of
/// `every version`. Functions of `newer versions` are `Option`s.
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
            /// Binds the symbols, or returns the name of the first missing one.
            fn bind(library: &$crate::libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: the declaration agrees with the library's headers.
                    $($name: *unsafe { library.get(stringify!($name)) }
                        .map_err(|_| stringify!($name))?,)*
                    // SAFETY: as above.
                    $($newer: unsafe { library.get(stringify!($newer)) }.ok().map(|f| *f),)*
                })
            }
        }
    };
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_error_names_the_library_that_exists_and_does_not_load() {
        let folder = env::temp_dir().join(format!("no-library-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("libbroken.so.6");
        fs::write(&file, "no library").unwrap();
        let file = file.to_str().unwrap();
        let why = load(&["libnowhere.so.7", file, "libnowhere.so"]).unwrap_err();
        assert!(why.starts_with(file) && !why.contains("nowhere"), "{why}");
        let why = load(&["libnowhere.so.7", "libnowhere.so"]).unwrap_err();
        assert!(why.contains("libnowhere.so.7: cannot open"), "{why}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_function_is_in_its_librarys_file() {
        let library = load(&["libc.so.6"]).unwrap();
        let file = file_of(&library, "getpid").unwrap();
        assert!(file.is_file() && file.to_string_lossy().contains("libc"), "{}", file.display());
        assert_eq!(file_of(&library, "no_such_function"), None);
    }
}
