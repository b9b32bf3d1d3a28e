//! The functions of MPI, with the handles of an ABI.

use std::ffi::{c_char, c_int, c_void};

use backend_support::libloading::Library;

use super::abi::{Handle, Status};

/// Declares the functions, whose handles are of the type `$H`.
macro_rules! table {
    (
        $H:ident:
        every library { $($name:ident = $symbol:ident($($type:ty),* $(,)?);)* }
        some libraries { $($newer:ident = $newer_symbol:ident($($newer_type:ty),* $(,)?);)* }
    ) => {
        /// The functions of a library. Each returns a code, except for those that ask for abilities.
        pub(crate) struct Table<$H> {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> c_int,)*
            $(pub(crate) $newer: Option<unsafe extern "C" fn($($newer_type),*) -> c_int>,)*
        }

        impl<$H: Handle> Table<$H> {
            /// Binds them, or returns the name of the first one that the library lacks.
            #[expect(unsafe_code, reason = "declares C functions")]
            pub(crate) fn bind(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: the declaration agrees with the standard, for handles of the library's ABI.
                    $($name: *unsafe { library.get(stringify!($symbol)) }
                        .map_err(|_| stringify!($symbol))?,)*
                    // SAFETY: as above.
                    $($newer: unsafe { library.get(stringify!($newer_symbol)) }.ok().map(|f| *f),)*
                })
            }
        }
    };
}

/// The function that decides whether an attribute is copied with its communicator.
pub(crate) type CopyAttribute<H> =
    unsafe extern "C" fn(H, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;

/// The function that is called when an attribute, or its communicator, is freed.
pub(crate) type DeleteAttribute<H> =
    unsafe extern "C" fn(H, c_int, *mut c_void, *mut c_void) -> c_int;

table! {
    H:
    every library {
        initialized = MPI_Initialized(*mut c_int);
        finalized = MPI_Finalized(*mut c_int);
        init_thread = MPI_Init_thread(*mut c_int, *mut c_void, c_int, *mut c_int);
        query_thread = MPI_Query_thread(*mut c_int);
        finalize = MPI_Finalize();
        abort = MPI_Abort(H, c_int);
        error_string = MPI_Error_string(c_int, *mut c_char, *mut c_int);
        comm_rank = MPI_Comm_rank(H, *mut c_int);
        comm_size = MPI_Comm_size(H, *mut c_int);
        comm_idup = MPI_Comm_idup(H, *mut H, *mut H);
        comm_test_inter = MPI_Comm_test_inter(H, *mut c_int);
        comm_free = MPI_Comm_free(*mut H);
        comm_get_errhandler = MPI_Comm_get_errhandler(H, *mut H);
        comm_set_errhandler = MPI_Comm_set_errhandler(H, H);
        errhandler_free = MPI_Errhandler_free(*mut H);
        comm_create_keyval =
            MPI_Comm_create_keyval(CopyAttribute<H>, DeleteAttribute<H>, *mut c_int, *mut c_void);
        comm_get_attr = MPI_Comm_get_attr(H, c_int, *mut c_void, *mut c_int);
        comm_set_attr = MPI_Comm_set_attr(H, c_int, *mut c_void);
        ibarrier = MPI_Ibarrier(H, *mut H);
        iallgather =
            MPI_Iallgather(*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H);
        isend = MPI_Isend(*const c_void, c_int, H, c_int, c_int, H, *mut H);
        improbe = MPI_Improbe(c_int, c_int, H, *mut c_int, *mut H, *mut Status);
        imrecv = MPI_Imrecv(*mut c_void, c_int, H, *mut H, *mut H);
        get_count = MPI_Get_count(*const Status, H, *mut c_int);
        test = MPI_Test(*mut H, *mut c_int, *mut Status);
    }
    some libraries {
        cuda_support = MPIX_Query_cuda_support();
        hip_support = MPIX_Query_hip_support();
        rocm_support = MPIX_Query_rocm_support();
    }
}
