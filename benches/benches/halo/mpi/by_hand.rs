//! Packing by hand: one message for each direction, with all fields, unpacked when it arrives.
#![expect(unsafe_code, reason = "lends buffers to MPI, and packs as C does")]

use super::calls::{Datatype, End, Requests};
use crate::case::{Fields, Region};
use crate::direct_loop::{copy_box, start};

pub(crate) struct ByHand {
    directions: Vec<Direction>,
    sends: Requests,
    receives: Requests,
}

struct Direction {
    region: Region,
    outgoing: Vec<f64>,
    incoming: Vec<f64>,
}

impl Direction {
    fn end(&mut self, sends: bool) -> End {
        let (buffer, tag) = match sends {
            true => (&mut self.outgoing, self.region.opposite),
            false => (&mut self.incoming, self.region.id),
        };
        End {
            address: buffer.as_mut_ptr(),
            count: buffer.len(),
            datatype: Datatype::double(),
            peer: self.region.peer,
            tag,
        }
    }
}

impl ByHand {
    pub(crate) fn new(fields: &Fields) -> Self {
        let directions = fields.case.regions(fields.rank).into_iter().map(|region| {
            let buffer = vec![0.0; region.extents.iter().product::<usize>() * fields.case.fields];
            Direction { region, outgoing: buffer.clone(), incoming: buffer }
        });
        let directions = directions.collect();
        Self { directions, sends: Requests::default(), receives: Requests::default() }
    }

    pub(crate) fn exchange(&mut self, fields: &mut Fields) {
        let case = fields.case;
        let pitches = case.pitches();
        let fields: Vec<*mut f64> = fields.slices().map(<[f64]>::as_mut_ptr).collect();
        for direction in &mut self.directions {
            // SAFETY: the buffer is used only after the message has arrived.
            unsafe { self.receives.receive(&direction.end(false)) };
        }
        for direction in &mut self.directions {
            let Region { extents, owned, .. } = direction.region;
            let [_, rows, row] = extents;
            let size = extents.iter().product();
            let boxes = direction.outgoing.chunks_exact_mut(size);
            for (packed, field) in boxes.zip(&fields) {
                let from = field.wrapping_add(start(&case, owned));
                // SAFETY: the box lies in the field, and has as many elements as its part of the buffer.
                unsafe {
                    copy_box(extents, from, pitches, packed.as_mut_ptr(), [row, row * rows]);
                }
            }
            // SAFETY: the buffer is next used after `wait_all`.
            unsafe { self.sends.send(&direction.end(true)) };
        }
        while let Some(arrived) = self.receives.wait_any() {
            let Direction { region, incoming, .. } = &self.directions[arrived];
            let [_, rows, row] = region.extents;
            let boxes = incoming.chunks_exact(region.extents.iter().product());
            for (packed, field) in boxes.zip(&fields) {
                let to = field.wrapping_add(start(&case, region.ghosts));
                // SAFETY: as above.
                unsafe {
                    copy_box(region.extents, packed.as_ptr(), [row, row * rows], to, pitches);
                }
            }
        }
        self.receives.wait_all();
        self.sends.wait_all();
    }
}
