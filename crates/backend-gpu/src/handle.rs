//! Handles of a vendor's objects: numbers, which say nothing of whether the object is there.

use std::ptr;

macro_rules! handles {
    ($($(#[$about:meta])* $name:ident;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(
            /// The address that the vendor's interface knows it by.
            pub usize,
        );

        impl $name {
            /// The handle as the vendor's functions take it.
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
    /// What a capture recorded.
    Graph;
    /// A graph that can be launched.
    GraphExec;
    /// A memory pool.
    Pool;
    /// A loaded module.
    Module;
    /// A function of a loaded module.
    Function;
}

/// The pointer to an address on a device, or in memory that the host shares with it.
#[inline]
pub fn pointer<T>(address: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}
