//! The cases: periodic boxes on one or two ranks, their fields, and the expected values of the halos.

use benches::Bench;
use benches::turns::Contestant;
use runtime_core::{Device, Memory, MemoryViewMut, Result, Stream};

use backend_host::HostDevice;
use halo::{Dim, FieldSpec, Quantity, Topology};
use runtime_core::DType;

use crate::measured::{BY_HAND, DATATYPES, DIRECT_LOOP, IN_PROCESS, Measure, Measured, OVER_MPI};

/// The width of the halos.
pub(crate) const HALO: usize = 3;

/// The fastest dimension in memory: the last one, or the first. The ranks divide the box along the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    C,
    Fortran,
}

/// Fields of `cells`³ `f64` on each rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) cells: usize,
    pub(crate) fields: usize,
    pub(crate) order: Order,
    pub(crate) ranks: usize,
}

/// The data that a rank exchanges with its neighbour in one direction. Boxes have all dimensions, the slowest in memory
/// first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// The direction, as a number below 27.
    pub(crate) id: usize,
    /// The number of the opposite direction.
    pub(crate) opposite: usize,
    /// The neighbour.
    pub(crate) peer: usize,
    pub(crate) extents: [usize; 3],
    /// The start of the cells that the neighbour gets.
    pub(crate) owned: [usize; 3],
    /// The start of the ghosts that the neighbour fills.
    pub(crate) ghosts: [usize; 3],
}

impl Case {
    /// All cases with this number of ranks and cells.
    pub(crate) fn all(ranks: usize, cells: usize) -> Vec<Self> {
        let orders = [Order::C, Order::Fortran];
        let of = |fields| orders.map(|order| Self { cells, fields, order, ranks });
        [1, 8].into_iter().flat_map(of).collect()
    }

    pub(crate) fn name(&self) -> String {
        let Self { cells, fields, order, .. } = self;
        format!("{cells}³, {fields} fields, {order:?}")
    }

    /// Measures the contestants. `None` if the run measures absolute times.
    pub(crate) fn measured(
        &self,
        bench: &mut Bench,
        contestants: Vec<(&str, Box<Contestant<'_>>)>,
    ) -> Option<Measured> {
        let ours = [IN_PROCESS, OVER_MPI].into_iter();
        let pairs =
            ours.flat_map(|ours| [DIRECT_LOOP, DATATYPES, BY_HAND].map(|rival| (ours, rival)));
        let targets: Vec<_> =
            pairs.map(|(ours, rival)| (ours, rival, self.target(ours, rival))).collect();
        Measured::new((self.name(), self.bytes()), &targets, Measure::Medians, bench, contestants)
    }

    /// The required speed of ours relative to the rival; 0 if there is no requirement.
    fn target(&self, ours: &str, rival: &str) -> f64 {
        match (ours, rival) {
            _ if self.cells != 128 => 0.0,
            (IN_PROCESS, DIRECT_LOOP) => 1.0 / 1.25,
            (IN_PROCESS, DATATYPES) if self.ranks == 1 && self.fields == 1 => 1.3,
            (IN_PROCESS, DATATYPES) => 1.5,
            (OVER_MPI, DATATYPES) if self.ranks > 1 => 1.0,
            _ => 0.0,
        }
    }

    /// The number of elements of a field along each dimension.
    pub(crate) fn edge(&self) -> usize {
        self.cells + 2 * HALO
    }

    /// The distance in elements from one row, and from one plane, to the next.
    pub(crate) fn pitches(&self) -> [usize; 2] {
        [self.edge(), self.edge() * self.edge()]
    }

    /// The bytes of all halos of a rank.
    pub(crate) fn bytes(&self) -> u64 {
        let ghosts = self.edge().pow(3) - self.cells.pow(3);
        (ghosts * self.fields * size_of::<f64>()) as u64
    }

    /// The dimension that the ranks divide, in the order of memory.
    fn divided(&self) -> usize {
        match self.order {
            Order::C => 0,
            Order::Fortran => 2,
        }
    }

    /// The regions that `rank` exchanges, in all 26 directions.
    pub(crate) fn regions(&self, rank: usize) -> Vec<Region> {
        let n = self.cells;
        let region = |id: usize| {
            // For each dimension: below, within or above.
            let ends = [id / 9, id / 3 % 3, id % 3];
            let pick = |choices: [usize; 3]| ends.map(|end| choices[end]);
            let is_across = ends[self.divided()] != 1;
            Region {
                id,
                opposite: 26 - id,
                peer: if is_across { self.ranks - 1 - rank } else { rank },
                extents: pick([HALO, n, HALO]),
                owned: pick([HALO, HALO, n]),
                ghosts: pick([0, HALO, n + HALO]),
            }
        };
        (0..27).filter(|id| *id != 13).map(region).collect()
    }

    pub(crate) fn topology(&self) -> Result<Topology> {
        let n = self.cells;
        Topology::cartesian(&[n * self.ranks, n, n], &[self.ranks, 1, 1], &[true; 3])
    }

    pub(crate) fn quantities(&self) -> Result<Vec<Quantity>> {
        let dims = [0, 1, 2].map(|axis| Dim::axis(axis, self.cells).halo(HALO, HALO));
        let spec = |field| {
            let spec = FieldSpec::new(format!("field {field}"), DType::F64, &dims)?;
            match self.order {
                Order::C => Ok(spec),
                Order::Fortran => spec.ordered(&[2, 1, 0]),
            }
        };
        (0..self.fields).map(|field| Ok(Quantity::scalar(spec(field)?))).collect()
    }
}

/// A device whose streams use one thread for each rank.
pub(crate) fn device() -> Result<Device> {
    Device::new(HostDevice::with_threads(0, 1)?)
}

/// The fields of one rank.
pub(crate) struct Fields {
    pub(crate) case: Case,
    pub(crate) rank: usize,
    pub(crate) stream: Stream,
    quantities: Vec<Quantity>,
    memories: Vec<Memory<f64>>,
}

impl Fields {
    pub(crate) fn new(case: Case, rank: usize, device: &Device) -> Result<Self> {
        let stream = device.stream_create(&Default::default())?;
        let mut memories = Vec::new();
        for field in 0..case.fields {
            let memory = device.memory_allocate(case.edge().pow(3))?;
            memories.push(memory);
            let values = slice(&mut memories[field]);
            for (place, value) in values.iter_mut().enumerate() {
                *value = expected(&case, rank, field, place);
            }
        }
        Ok(Self { case, rank, stream, quantities: case.quantities()?, memories })
    }

    pub(crate) fn quantities(&self) -> &[Quantity] {
        &self.quantities
    }

    /// Views of all fields, with the planned layout.
    pub(crate) fn views(&mut self) -> impl Iterator<Item = MemoryViewMut<'_, f64>> {
        let layouts = self.quantities.iter().map(|quantity| quantity.components()[0].layout());
        self.memories
            .iter_mut()
            .zip(layouts)
            .map(|(memory, layout)| memory.view_mut().with_layout(0, layout).expect("a view"))
    }

    /// The values of all fields. Blocks until work on the device is done.
    pub(crate) fn slices(&mut self) -> impl Iterator<Item = &mut [f64]> {
        self.memories.iter_mut().map(slice)
    }

    /// Overwrites all halos with wrong values, exchanges them, and checks that they are right.
    pub(crate) fn prove(&mut self, name: &str, exchange: impl FnOnce(&mut Self)) {
        self.ghosts(|_, _, value| *value = f64::NAN);
        exchange(self);
        let (case, rank) = (self.case, self.rank);
        self.ghosts(|field, place, value| {
            let expected = expected(&case, rank, field, place);
            assert!(*value == expected, "{name}, {}: {value} at {place}", case.name());
        });
    }

    fn ghosts(&mut self, mut visit: impl FnMut(usize, usize, &mut f64)) {
        let (regions, [row, plane]) = (self.case.regions(self.rank), self.case.pitches());
        for (field, values) in self.slices().enumerate() {
            for region in &regions {
                let [i, j, k] = std::array::from_fn(|dim| {
                    region.ghosts[dim]..region.ghosts[dim] + region.extents[dim]
                });
                for place in i.flat_map(|i| j.clone().map(move |j| i * plane + j * row)) {
                    k.clone().for_each(|k| visit(field, place + k, &mut values[place + k]));
                }
            }
        }
    }
}

fn slice(memory: &mut Memory<f64>) -> &mut [f64] {
    memory.as_mut_slice().expect("memory of the host, and work that succeeds")
}

/// The expected value at a place of a field: the number of its cell in the whole box.
fn expected(case: &Case, rank: usize, field: usize, place: usize) -> f64 {
    let edge = case.edge();
    let at = [place / edge / edge, place / edge % edge, place % edge];
    let mut number = field;
    for (dim, at) in at.into_iter().enumerate() {
        let is_divided = dim == case.divided();
        let (cells, start) =
            if is_divided { (case.cells * case.ranks, case.cells * rank) } else { (case.cells, 0) };
        number = number * cells + (at + start + cells - HALO) % cells;
    }
    number as f64
}
