//! The MPI calls of the rivals. Errors end the job, which is MPI's default.
#![expect(unsafe_code, reason = "calls MPI")]

use std::ffi::c_int;

use mpi::ffi;

/// An MPI datatype of elements.
#[derive(Clone, Copy)]
pub(crate) struct Datatype(ffi::MPI_Datatype);

impl Datatype {
    /// f64.
    pub(crate) fn double() -> Self {
        // SAFETY: a constant of the library.
        Self(unsafe { ffi::RSMPI_DOUBLE })
    }

    /// A box in an array of `f64`. It is never freed.
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
        // SAFETY: the datatype was created above.
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

/// Messages in transit between the ranks of the job.
#[derive(Default)]
pub(crate) struct Requests(Vec<ffi::MPI_Request>);

impl Requests {
    /// # Safety
    ///
    /// The elements are valid, and no code changes them, until the request is complete.
    pub(crate) unsafe fn send(&mut self, end: &End) {
        // SAFETY: constants of the library.
        let (world, mut request) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_REQUEST_NULL) };
        let (count, peer, tag) = (int(end.count), int(end.peer), int(end.tag));
        let address = end.address.cast();
        // SAFETY: guaranteed by the caller.
        unsafe {
            ffi::MPI_Isend(address, count, end.datatype.0, peer, tag, world, &mut request);
        }
        self.0.push(request);
    }

    /// # Safety
    ///
    /// The elements are valid, and no code uses them, until the request is complete.
    pub(crate) unsafe fn receive(&mut self, end: &End) {
        // SAFETY: constants of the library.
        let (world, mut request) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_REQUEST_NULL) };
        let (count, peer, tag) = (int(end.count), int(end.peer), int(end.tag));
        let address = end.address.cast();
        // SAFETY: guaranteed by the caller.
        unsafe {
            ffi::MPI_Irecv(address, count, end.datatype.0, peer, tag, world, &mut request);
        }
        self.0.push(request);
    }

    /// Blocks until one request is complete. Returns its number, or `None` if all were complete before.
    pub(crate) fn wait_any(&mut self) -> Option<usize> {
        let mut index = 0;
        // SAFETY: every request was started, or is null because it was found complete.
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

    /// Blocks until all requests are complete, and removes them.
    pub(crate) fn wait_all(&mut self) {
        // SAFETY: as in `wait_any`.
        unsafe {
            ffi::MPI_Waitall(int(self.0.len()), self.0.as_mut_ptr(), ffi::RSMPI_STATUSES_IGNORE);
        }
        self.0.clear();
    }
}

/// Blocks until all ranks of the job have called it.
pub(crate) fn barrier() {
    // SAFETY: a constant of the library.
    let world = unsafe { ffi::RSMPI_COMM_WORLD };
    // SAFETY: it is the communicator of all ranks.
    unsafe { ffi::MPI_Barrier(world) };
}
