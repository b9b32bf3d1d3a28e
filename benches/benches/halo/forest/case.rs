//! The cases: the lists of leaves, their values, and the expected results.

use benches::Bench;
use benches::turns::Contestant;
use halo::{Dim, Field, FieldSpec, ForestSize, Leaf};
use runtime_core::{DType, Device, Memory, Result, Stream};

use crate::measured::{BY_HAND, IN_PROCESS, Measure, Measured, OVER_MPI, PETSC, Target};

/// The components of an item.
pub(super) const COMPONENTS: usize = 3;

pub(super) type Item = [f64; COMPONENTS];

/// Which leaf points to which root of the other rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Leaf i to root i.
    Contiguous,
    /// Every second leaf to the root with its number.
    Strided,
    /// Every leaf to a random root, so a root may have several leaves, or none.
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Broadcast,
    Sum,
}

/// A forest in which each of two ranks has this number of leaves, whose roots are on the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    leaves: usize,
    shape: Shape,
    pub(super) way: Way,
}

impl Case {
    pub(super) fn all(leaves: usize) -> Vec<Self> {
        let shapes = [Shape::Contiguous, Shape::Strided, Shape::Random];
        let both = |shape| [Way::Broadcast, Way::Sum].map(|way| Self { leaves, shape, way });
        shapes.into_iter().flat_map(both).collect()
    }

    fn name(&self) -> String {
        format!("{:?}, {:?}", self.shape, self.way)
    }

    /// The numbers of all items of an array, also of those that are no leaves or roots.
    fn items(&self) -> usize {
        match self.shape {
            Shape::Contiguous | Shape::Random => self.leaves,
            Shape::Strided => 2 * self.leaves,
        }
    }

    /// The places of the leaves of each rank.
    pub(super) fn leaves(&self) -> Vec<u32> {
        let step = self.items() / self.leaves;
        (0..self.leaves).map(|leaf| number(leaf * step)).collect()
    }

    /// The roots for the leaves of a rank.
    pub(super) fn roots(&self, rank: usize) -> Vec<u32> {
        if self.shape != Shape::Random {
            return self.leaves();
        }
        let random = |leaf| mix((self.leaves * rank + leaf) as u64) % self.leaves as u64;
        let root = |leaf| u32::try_from(random(leaf)).expect("fewer than 2^32 leaves");
        (0..self.leaves).map(root).collect()
    }

    /// The least speed relative to rivals.
    fn targets(&self) -> [Target; 3] {
        let over_mpi = match self.shape {
            Shape::Contiguous => 0.95,
            Shape::Strided => 1.2,
            Shape::Random => 1.0,
        };
        [(IN_PROCESS, BY_HAND, 0.95), (IN_PROCESS, PETSC, 1.2), (OVER_MPI, PETSC, over_mpi)]
    }

    /// Measures the contestants. `None` if the run measures absolute times.
    pub(super) fn measured(
        &self,
        bench: &mut Bench,
        contestants: Vec<(&str, Box<Contestant<'_>>)>,
    ) -> Option<Measured> {
        let bytes = (self.leaves * size_of::<Item>()) as u64;
        Measured::new((self.name(), bytes), &self.targets(), Measure::Least, bench, contestants)
    }
}

/// The arrays of one rank.
pub(super) struct Values {
    pub(super) case: Case,
    pub(super) rank: usize,
    pub(super) stream: Stream,
    roots: Memory<f64>,
    leaves: Memory<f64>,
}

impl Values {
    pub(super) fn new(case: Case, rank: usize, device: &Device) -> Result<Self> {
        let stream = device.stream_create(&Default::default())?;
        let memory = || device.memory_allocate(case.items() * COMPONENTS);
        Ok(Self { case, rank, stream, roots: memory()?, leaves: memory()? })
    }

    pub(super) fn device(&self) -> &Device {
        self.stream.device()
    }

    pub(super) fn size(&self) -> ForestSize {
        ForestSize { roots: self.case.items(), leaves: self.case.items() }
    }

    pub(super) fn spec() -> Result<FieldSpec> {
        FieldSpec::new("value", DType::F64, &[Dim::free(COMPONENTS)])
    }

    pub(super) fn leaves(&self) -> Vec<Leaf> {
        let (leaves, roots) = (self.case.leaves(), self.case.roots(self.rank));
        let leaf = |(at, root)| Leaf { at, rank: 1 - self.rank, root };
        leaves.into_iter().map(u64::from).zip(roots.into_iter().map(u64::from)).map(leaf).collect()
    }

    /// The roots and the leaves.
    pub(super) fn fields(&mut self) -> Result<[Field<'_>; 2]> {
        let shape = [self.case.items(), COMPONENTS];
        let Self { roots, leaves, .. } = self;
        Ok([roots.view_mut().reshape(&shape)?.into(), leaves.view_mut().reshape(&shape)?.into()])
    }

    /// The roots and the leaves. Blocks until work on the device is done.
    pub(super) fn slices(&mut self) -> [&mut [Item]; 2] {
        [&mut self.roots, &mut self.leaves].map(|memory| {
            let values = memory.as_mut_slice().expect("memory of the host, and work that succeeds");
            values.as_chunks_mut().0
        })
    }

    /// Sets all values, exchanges them once, and checks every bit.
    pub(super) fn prove(&mut self, name: &str, exchange: impl FnOnce(&mut Self)) {
        let (case, rank) = (self.case, self.rank);
        let start = |rank: usize| {
            let array = |array| (0..case.items()).map(move |item| value(rank, array, item));
            [0, 1].map(|number| array(number).collect::<Vec<Item>>())
        };
        for (values, start) in self.slices().into_iter().zip(start(rank)) {
            values.copy_from_slice(&start);
        }
        exchange(self);
        let [mut roots, mut leaves] = start(rank);
        let [their_roots, their_leaves] = start(1 - rank);
        let (of, at) = (if case.way == Way::Sum { 1 - rank } else { rank }, case.leaves());
        for (root, leaf) in case.roots(of).into_iter().zip(at) {
            let (root, leaf) = (root as usize, leaf as usize);
            match case.way {
                Way::Broadcast => leaves[leaf] = their_roots[root],
                Way::Sum => {
                    let sum = roots[root].iter_mut().zip(their_leaves[leaf]);
                    sum.for_each(|(root, leaf)| *root += leaf);
                }
            }
        }
        for (values, expected) in self.slices().into_iter().zip([roots, leaves]) {
            let first =
                values.iter().zip(&expected).position(|(value, expected)| value != expected);
            if let Some(item) = first {
                let (value, expected) = (values[item], expected[item]);
                panic!("{name}, {}: item {item} is {value:?}, not {expected:?}", case.name());
            }
        }
    }
}

/// A value whose sums depend on their order.
fn value(rank: usize, array: usize, item: usize) -> Item {
    let number = (2 * item + array) * 2 + rank;
    std::array::from_fn(|component| 1.0 / (1.0 + (number * COMPONENTS + component) as f64))
}

/// The finalizer of SplitMix64.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

fn number(number: usize) -> u32 {
    u32::try_from(number).expect("few items")
}
