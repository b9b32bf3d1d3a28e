//! The calls of MPI that the rivals make. Errors end the job, as MPI does unless told otherwise.
#![expect(unsafe_code, reason = "calls MPI")]

use std::ffi::c_int;

use mpi::ffi;

/// A type of elements that MPI knows.
#[derive(Clone, Copy)]
pub(crate) struct Datatype(ffi::MPI_Datatype);

impl Datatype {
    /// f64.
    pub(crate) fn double() -> Self {
        // SAFETY: a constant of the library.
        Self(unsafe { ffi::RSMPI_DOUBLE })
    }

    /// A box of an array of f64. It lasts as long as MPI.
    pub(crate) fn subarray(sizes: [usize; 3], extents: [usize; 3], starts: [usize; 3]) -> Self {
        let [sizes, extents, starts] = [sizes, extents, starts].map(|dims| dims.map(int));
        let (order, element) = (int(ffi::MPI_ORDER_C as usize), Self::double().0);
        let mut datatype = element;
        // SAFETY: there are as many sizes, extents and starts as dimensions.
        unsafe {
            ffi::MPI_Type_create_subarray(
                3,
                sizes.as_ptr(),
                extents.as_ptr(),
                starts.as_ptr(),
                order,
                element,
                &mut datatype,
            );
        }
        // SAFETY: it was made just now.
        unsafe { ffi::MPI_Type_commit(&mut datatype) };
        Self(datatype)
    }
}

fn int(value: usize) -> c_int {
    c_int::try_from(value).expect("a number that MPI takes")
}

/// One end of a message.
pub(crate) struct End {
    pub(crate) address: *mut f64,
    pub(crate) count: usize,
    pub(crate) datatype: Datatype,
    pub(crate) peer: usize,
    pub(crate) tag: usize,
}

/// Messages that are on their way between the ranks of the job.
#[derive(Default)]
pub(crate) struct Requests(Vec<ffi::MPI_Request>);

impl Requests {
    /// # Safety
    ///
    /// The elements are there, and nobody changes them, until the request is complete.
    pub(crate) unsafe fn send(&mut self, end: &End) {
        // SAFETY: constants of the library.
        let (world, mut request) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_REQUEST_NULL) };
        let (count, peer, tag) = (int(end.count), int(end.peer), int(end.tag));
        let address = end.address.cast();
        // SAFETY: as the caller vouches.
        unsafe {
            ffi::MPI_Isend(address, count, end.datatype.0, peer, tag, world, &mut request);
        }
        self.0.push(request);
    }

    /// # Safety
    ///
    /// The elements are there, and nobody uses them, until the request is complete.
    pub(crate) unsafe fn receive(&mut self, end: &End) {
        // SAFETY: constants of the library.
        let (world, mut request) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_REQUEST_NULL) };
        let (count, peer, tag) = (int(end.count), int(end.peer), int(end.tag));
        let address = end.address.cast();
        // SAFETY: as the caller vouches.
        unsafe {
            ffi::MPI_Irecv(address, count, end.datatype.0, peer, tag, world, &mut request);
        }
        self.0.push(request);
    }

    /// Blocks until one is complete. Gives its number, or `None` if all were before.
    pub(crate) fn wait_any(&mut self) -> Option<usize> {
        let mut index = 0;
        // SAFETY: every request was started, or is null since it was found complete.
        unsafe {
            ffi::MPI_Waitany(
                int(self.0.len()),
                self.0.as_mut_ptr(),
                &mut index,
                ffi::RSMPI_STATUS_IGNORE,
            );
        }
        // MPI_UNDEFINED is negative.
        usize::try_from(index).ok()
    }

    /// Blocks until all are complete, and forgets them.
    pub(crate) fn wait_all(&mut self) {
        // SAFETY: as in `wait_any`.
        unsafe {
            ffi::MPI_Waitall(int(self.0.len()), self.0.as_mut_ptr(), ffi::RSMPI_STATUSES_IGNORE);
        }
        self.0.clear();
    }
}

/// Blocks until all ranks of the job are there.
pub(crate) fn barrier() {
    // SAFETY: a constant of the library.
    let world = unsafe { ffi::RSMPI_COMM_WORLD };
    // SAFETY: it is the communicator of all ranks.
    unsafe { ffi::MPI_Barrier(world) };
}
