//! A datatype for each box of each field. MPI packs, directly from memory to memory.
#![expect(unsafe_code, reason = "lends fields to MPI")]

use super::calls::{Datatype, End, Requests};
use crate::case::{Fields, Region};

pub(crate) struct Datatypes {
    /// Each with the box that is sent, and the box that is received.
    regions: Vec<(Region, Datatype, Datatype)>,
    requests: Requests,
}

impl Datatypes {
    pub(crate) fn new(fields: &Fields) -> Self {
        let sizes = [fields.case.edge(); 3];
        let regions = fields.case.regions(fields.rank).into_iter().map(|region| {
            let datatype = |starts| Datatype::subarray(sizes, region.extents, starts);
            (region, datatype(region.owned), datatype(region.ghosts))
        });
        Self { regions: regions.collect(), requests: Requests::default() }
    }

    pub(crate) fn exchange(&mut self, fields: &mut Fields) {
        // A tag for each field and direction, where the direction is the receiver's.
        for (number, field) in fields.slices().enumerate() {
            let address = field.as_mut_ptr();
            for (region, owned, ghosts) in &self.regions {
                let end = |datatype: &Datatype, direction| End {
                    address,
                    count: 1,
                    datatype: *datatype,
                    peer: region.peer,
                    tag: 27 * number + direction,
                };
                // SAFETY: the fields are borrowed until all requests are complete, and ghosts overlap nothing else.
                unsafe { self.requests.receive(&end(ghosts, region.id)) };
                // SAFETY: as above; owned cells are only read.
                unsafe { self.requests.send(&end(owned, region.opposite)) };
            }
        }
        self.requests.wait_all();
    }
}
