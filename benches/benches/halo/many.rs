//! Many boxes on two ranks: one message each way, against one message for each pair of boxes. And a box on each of
//! eight ranks: messages axis by axis, against all messages at once.
#![expect(unsafe_code, reason = "lends buffers to MPI, and packs as C does")]

use std::sync::Arc;

use benches::Bench;
use benches::team::Team;
use benches::turns::Contestant;
use halo::communicator::Communicator;
use halo::{Dim, Field, FieldSpec, HaloExchange, HaloOptions, Quantity, Reach, Result, Topology};
use runtime_core::{DType, Device, Memory, Stream};

use crate::case::{HALO, device};
use crate::direct_loop::copy_box;
use crate::job::{self, Work};
use crate::measured::{IN_PROCESS, OVER_MPI};
use crate::mpi::calls::{Datatype, End, Requests};

/// A message for each pair of boxes.
pub(crate) const PAIRS: &str = "a message for each pair";

/// The number of cells of a box along each axis, without and with ghosts.
const CELLS: usize = 32;
const EDGE: usize = CELLS + 2 * HALO;
const PITCHES: [usize; 2] = [EDGE, EDGE * EDGE];
/// The ghosts of a box, in bytes.
const GHOSTS: usize = (EDGE * EDGE * EDGE - CELLS * CELLS * CELLS) * size_of::<f64>();

/// The boxes of a rank in a periodic cube of boxes, with one field.
pub(crate) struct Boxes {
    /// The number of boxes along each axis of the cube.
    grid: usize,
    topology: Topology,
    blocks: Vec<usize>,
    stream: Stream,
    memories: Vec<Memory<f64>>,
}

impl Boxes {
    /// 64 boxes. Each of two ranks has a half of the cube.
    pub(crate) fn of_two(rank: usize, device: &Device) -> Result<Self> {
        let ranks: Vec<usize> = (0..64).map(|block| block % 4 / 2).collect();
        Self::new(4, &ranks, rank, device)
    }

    /// `ranks` has the rank of each box.
    fn new(grid: usize, ranks: &[usize], rank: usize, device: &Device) -> Result<Self> {
        let topology = Topology::cartesian(&[grid * CELLS; 3], &[grid; 3], &[true; 3])?;
        let topology = topology.on_ranks(ranks)?;
        let blocks = topology.blocks_of(rank)?;
        let stream = device.stream_create(&Default::default())?;
        let memories = blocks.iter().map(|_| device.memory_allocate(EDGE.pow(3)));
        let memories = memories.collect::<Result<_>>()?;
        let mut boxes = Self { grid, topology, blocks, stream, memories };
        boxes.each(|cell, value, _| *value = cell);
        Ok(boxes)
    }

    fn quantities(&self) -> Result<Vec<Quantity>> {
        let dims = [0, 1, 2].map(|axis| Dim::axis(axis, CELLS).halo(HALO, HALO));
        let field = Quantity::scalar(FieldSpec::new("f", DType::F64, &dims)?);
        Ok(vec![field; self.blocks.len()])
    }

    /// Calls `f` for each element, with the number of its cell in the cube, and whether it is a ghost.
    fn each(&mut self, mut f: impl FnMut(f64, &mut f64, bool)) {
        let cube = self.grid * CELLS;
        for (block, memory) in self.blocks.iter().zip(&mut self.memories) {
            let start = self.topology.block(*block).expect("a block").start;
            let values = memory.as_mut_slice().expect("memory of the host");
            for (place, value) in values.iter_mut().enumerate() {
                let at = [place / EDGE / EDGE, place / EDGE % EDGE, place % EDGE];
                let along = |axis: usize| (start[axis] + at[axis] + cube - HALO) % cube;
                let cell = (along(0) * cube + along(1)) * cube + along(2);
                let is_ghost = at.iter().any(|at| !(HALO..HALO + CELLS).contains(at));
                f(cell as f64, value, is_ghost);
            }
        }
    }

    /// Overwrites all ghosts with wrong values, exchanges them, and checks that they are right.
    pub(crate) fn prove(&mut self, name: &str, exchange: impl FnOnce(&mut Self)) {
        self.each(|_, value, is_ghost| {
            if is_ghost {
                *value = f64::NAN;
            }
        });
        exchange(self);
        self.each(|cell, value, _| assert!(*value == cell, "{name}: {value} for {cell}"));
    }
}

/// Our exchange of boxes.
pub(crate) struct Ours(HaloExchange);

impl Ours {
    pub(crate) fn new(
        ranks: Arc<dyn Communicator>,
        boxes: &Boxes,
        options: &HaloOptions,
    ) -> Result<Self> {
        let (quantities, device) = (boxes.quantities()?, boxes.stream.device());
        HaloExchange::new(ranks, &boxes.topology, &quantities, device, options).map(Self)
    }

    pub(crate) fn exchange(&mut self, boxes: &mut Boxes) {
        let views = boxes.memories.iter_mut().map(|memory| memory.view_mut().reshape(&[EDGE; 3]));
        let mut fields: Vec<Field<'_>> = views.map(|view| view.expect("a view").into()).collect();
        self.0.exchange(&boxes.stream, &mut fields).expect("an exchange");
        boxes.stream.synchronize().expect("an exchange");
    }
}

/// The ghosts of a box beside one neighbour, or the cells that the neighbour gets.
struct Part {
    /// The number of the box among those of the rank.
    own: usize,
    extents: [usize; 3],
    start: usize,
    peer: usize,
    tag: usize,
    buffer: Vec<f64>,
}

/// Loops that pack and unpack, with a message for each pair of boxes of two ranks. Boxes of one rank are copied.
pub(crate) struct Pairs {
    outgoing: Vec<Part>,
    incoming: Vec<Part>,
    /// The boxes and the starts of both ends, and the extents.
    local: Vec<([usize; 2], [usize; 2], [usize; 3])>,
    sends: Requests,
    receives: Requests,
}

impl Pairs {
    pub(crate) fn new(boxes: &Boxes, rank: usize) -> Result<Self> {
        let (mut outgoing, mut incoming, mut local) = (Vec::new(), Vec::new(), Vec::new());
        let place = |at: [usize; 3]| at[0] * PITCHES[1] + at[1] * PITCHES[0] + at[2];
        for (own, block) in boxes.blocks.iter().enumerate() {
            for next in boxes.topology.neighbours(*block)? {
                let pick = |low, middle, high| {
                    next.side.ends().map(|end| match end {
                        -1 => low,
                        0 => middle,
                        _ => high,
                    })
                };
                let extents = pick(HALO, CELLS, HALO);
                let ghosts = place(pick(0, HALO, CELLS + HALO));
                let (near, far) = (pick(HALO, HALO, CELLS), pick(CELLS, HALO, HALO));
                if next.rank == rank {
                    let other = boxes.blocks.binary_search(&next.block).expect("an own box");
                    local.push(([other, own], [place(far), ghosts], extents));
                    continue;
                }
                let part = |start, tag| {
                    let buffer = vec![0.0; extents.iter().product()];
                    Part { own, extents, start, peer: next.rank, tag, buffer }
                };
                incoming.push(part(ghosts, 64 * block + next.block));
                outgoing.push(part(place(near), 64 * next.block + block));
            }
        }
        let (sends, receives) = (Requests::default(), Requests::default());
        Ok(Self { outgoing, incoming, local, sends, receives })
    }

    pub(crate) fn exchange(&mut self, boxes: &mut Boxes) {
        let fields: Vec<*mut f64> = boxes
            .memories
            .iter_mut()
            .map(|memory| memory.as_mut_slice().expect("memory of the host").as_mut_ptr())
            .collect();
        let end = |part: &mut Part| End {
            address: part.buffer.as_mut_ptr(),
            count: part.buffer.len(),
            datatype: Datatype::double(),
            peer: part.peer,
            tag: part.tag,
        };
        for part in &mut self.incoming {
            // SAFETY: the buffer is used only after the message has arrived.
            unsafe { self.receives.receive(&end(part)) };
        }
        for part in &mut self.outgoing {
            let (from, [_, rows, row]) = (fields[part.own].wrapping_add(part.start), part.extents);
            let to = part.buffer.as_mut_ptr();
            // SAFETY: the box lies in the field, and has as many elements as the buffer.
            unsafe { copy_box(part.extents, from, PITCHES, to, [row, row * rows]) };
            // SAFETY: the buffer is next used after `wait_all`.
            unsafe { self.sends.send(&end(part)) };
        }
        for ([from, to], [start, ghosts], extents) in &self.local {
            let (from, to) =
                (fields[*from].wrapping_add(*start), fields[*to].wrapping_add(*ghosts));
            // SAFETY: both boxes lie in the fields, and owned cells and ghosts do not overlap.
            unsafe { copy_box(*extents, from, PITCHES, to, PITCHES) };
        }
        while let Some(arrived) = self.receives.wait_any() {
            let Part { own, extents, start, buffer, .. } = &self.incoming[arrived];
            let ([_, rows, row], to) = (*extents, fields[*own].wrapping_add(*start));
            // SAFETY: as above.
            unsafe { copy_box(*extents, buffer.as_ptr(), [row, row * rows], to, PITCHES) };
        }
        self.receives.wait_all();
        self.sends.wait_all();
    }
}

/// Two ranks that are threads.
pub(crate) fn in_process() -> Result<Team> {
    let device = device()?;
    Team::new(2, move |ranks| {
        let mut boxes = Boxes::of_two(ranks.rank(), &device).expect("boxes");
        let mut ours = Ours::new(Arc::new(ranks), &boxes, &HaloOptions::default()).expect("ours");
        boxes.prove(IN_PROCESS, |boxes| ours.exchange(boxes));
        move || ours.exchange(&mut boxes)
    })
}

/// 64 boxes on two ranks.
pub(crate) fn pairs(bench: &mut Bench) {
    if !bench.group("64 boxes of 32³ on two ranks") || bench.has_statistics() {
        return;
    }
    let said = match job::run(2, Work::ManyBoxes) {
        Ok(said) => said,
        Err(why) => return println!("64 boxes: left out: {why}"),
    };
    let found = said.lines().find_map(|line| serde_json::from_str::<Vec<(String, f64)>>(line).ok());
    let seconds = found.expect("the times of a job");
    let of = |wanted: &str| {
        let found = seconds.iter().find(|(name, _)| name == wanted);
        found.map_or(f64::NAN, |(_, seconds)| *seconds)
    };
    for name in [IN_PROCESS, OVER_MPI] {
        bench.measured(name, 32 * GHOSTS as u64, of(name), (PAIRS, of(PAIRS)), 1.0);
    }
}

/// A box on each of eight ranks that are threads, with 7 neighbours, 3 of them beyond sides.
pub(crate) fn by_axis(bench: &mut Bench) -> Result<()> {
    if !bench.group("axis by axis, a box of 32³ on each of eight ranks") {
        return Ok(());
    }
    let team = |reach| {
        let device = device()?;
        Team::new(8, move |ranks| {
            let owners: Vec<usize> = (0..8).collect();
            let mut boxes = Boxes::new(2, &owners, ranks.rank(), &device).expect("boxes");
            let options = HaloOptions { reach, direct: false, ..Default::default() };
            let mut ours = Ours::new(Arc::new(ranks), &boxes, &options).expect("ours");
            boxes.prove("eight ranks", |boxes| ours.exchange(boxes));
            move || ours.exchange(&mut boxes)
        })
    };
    let (axes, whole) = (team(Reach::ByAxis)?, team(Reach::Full)?);
    let mut runs: [(&str, &mut Contestant<'_>); 2] = [
        ("axis by axis", &mut |calls| axes.run(calls)),
        ("at once", &mut |calls| whole.run(calls)),
    ];
    if let Some(seconds) = bench.medians("eight threads", &mut runs, |_| true) {
        bench.measured("eight threads", GHOSTS as u64, seconds[0], ("at once", seconds[1]), 0.0);
    }
    Ok(())
}
