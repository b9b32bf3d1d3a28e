//! Handles of a vendor's objects. They are numbers, and do not show whether the object still exists.

use std::ptr;

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

        impl<T> From<*mut T> for $name {
            #[inline]
            fn from(raw: *mut T) -> Self {
                Self(raw.expose_provenance())
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
