//! Handles of a vendor's objects. They are numbers, and do not show whether the object still exists.

use std::ffi::c_void;
use std::ptr;

use crate::call::Written;

macro_rules! handles {
    ($($(#[$about:meta])* $name:ident;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(
            /// The object's address in the vendor's interface.
            pub usize,
        );

        impl $name {
            /// The handle in the form that the vendor's functions take.
            #[inline]
            pub fn pointer<T>(self) -> *mut T {
                ptr::with_exposed_provenance_mut(self.0)
            }
        }

        impl<T> Written<$name> for *mut T {
            #[inline]
            fn written(self) -> $name {
                $name(self.expose_provenance())
            }
        }
    )*};
}

handles! {
    /// A stream.
    Stream;
    /// An event.
    Event;
    /// A captured graph.
    Graph;
    /// An executable graph.
    GraphExec;
    /// A memory pool.
    Pool;
    /// A loaded module.
    Module;
    /// A function of a loaded module.
    Function;
}

/// Converts an address on a device, or in memory that the host shares with it, to a pointer.
#[inline]
pub fn pointer<T>(address: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

/// The address of a value that a function reads.
#[inline]
pub fn value<T>(value: &T) -> *mut c_void {
    ptr::from_ref(value).cast_mut().cast()
}

/// The address of a number that a function writes.
#[inline]
pub fn number(number: &mut u64) -> *mut c_void {
    ptr::from_mut(number).cast()
}
