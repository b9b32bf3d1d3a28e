//! Names of codes.

use std::ffi::CStr;

/// Makes the table `NAMES` of codes and their names from the enumerators of a header: the type, a colon, and the names.
#[macro_export]
macro_rules! code_names {
    ($type:ident: $($name:ident)*) => {
        /// The codes that the stand-in returns, and their names.
        const NAMES: &[(u32, &::std::ffi::CStr)] = &[$((
            $type::$name as u32,
            match ::std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name with a NUL"),
            },
        )),*];
    };
}

/// The name of a code, if there is one.
pub fn name_of(names: &[(u32, &'static CStr)], code: u32) -> Option<&'static CStr> {
    names.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}
