//! Forests with random leaves, and a model of what they do.
#![allow(dead_code, reason = "each test crate uses what it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

use std::fmt::Debug;
use std::sync::Arc;

use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{
    Combine, Dim, Field, FieldSpec, Forest, ForestOptions, ForestSize, InFlight, Leaf, Result,
};
use runtime_core::{DType, Device, Element, Memory, Stream};

pub(crate) const OPERATIONS: [Combine; 4] =
    [Combine::Replace, Combine::Sum, Combine::Min, Combine::Max];

/// A small generator of numbers.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            let other = self.below(index + 1);
            items.swap(index, other);
        }
    }
}

/// The arrays and leaves of all ranks.
#[derive(Clone, Debug)]
pub(crate) struct Woods {
    pub(crate) sizes: Vec<ForestSize>,
    pub(crate) leaves: Vec<Vec<Leaf>>,
}

impl Woods {
    /// Some ranks have no roots, and some no leaves. Lists are random, or have long runs. Few roots have many leaves.
    pub(crate) fn random(ranks: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let has_any = |random: &mut Random| random.below(5) > 0;
        let mut sizes: Vec<ForestSize> = (0..ranks)
            .map(|_| ForestSize {
                roots: if has_any(&mut random) { 1 + random.below(200) } else { 0 },
                leaves: if has_any(&mut random) { 1 + random.below(300) } else { 0 },
            })
            .collect();
        let last = random.below(ranks);
        sizes[last].roots = 150;
        let leaves = sizes.iter().map(|size| {
            let mut places: Vec<u64> = (0..size.leaves as u64).collect();
            if random.below(2) == 0 {
                random.shuffle(&mut places);
            }
            places.truncate(size.leaves - random.below(size.leaves / 2 + 1));
            let kind = random.below(3);
            let mut leaves: Vec<Leaf> = places
                .into_iter()
                .map(|at| {
                    let rank = match kind {
                        0 => last,
                        _ => random.below(ranks),
                    };
                    let rank = if sizes[rank].roots > 0 { rank } else { last };
                    let root = match kind {
                        0 => at as usize % sizes[rank].roots,
                        1 => random.below(sizes[rank].roots.min(3)),
                        _ => random.below(sizes[rank].roots),
                    };
                    Leaf { at, rank, root: root as u64 }
                })
                .collect();
            random.shuffle(&mut leaves);
            leaves
        });
        let leaves = leaves.collect();
        Self { sizes, leaves }
    }

    pub(crate) fn ranks(&self) -> usize {
        self.sizes.len()
    }

    /// The leaves of all ranks with their ranks, in the order in which their values are combined.
    fn in_order(&self) -> Vec<(usize, Leaf)> {
        let mut all: Vec<(usize, Leaf)> = Vec::new();
        for (rank, leaves) in self.leaves.iter().enumerate() {
            all.extend(leaves.iter().map(|leaf| (rank, *leaf)));
        }
        all.sort_by_key(|(rank, leaf)| (*rank, leaf.at));
        all
    }
}

/// A field of all ranks: roots and leaves with some components.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arrays<T> {
    pub(crate) shape: Vec<usize>,
    pub(crate) roots: Vec<Vec<T>>,
    pub(crate) leaves: Vec<Vec<T>>,
}

impl<T: Element + Debug> Arrays<T> {
    fn new(woods: &Woods, shape: &[usize], mut value: impl FnMut() -> T) -> Self {
        let components = shape.iter().product::<usize>();
        let mut fill = |items: usize| (0..items * components).map(|_| value()).collect::<Vec<T>>();
        let roots = woods.sizes.iter().map(|size| fill(size.roots)).collect();
        let leaves = woods.sizes.iter().map(|size| fill(size.leaves)).collect();
        Self { shape: shape.to_vec(), roots, leaves }
    }

    fn components(&self) -> usize {
        self.shape.iter().product()
    }

    fn broadcast(&mut self, woods: &Woods) {
        let count = self.components();
        for (rank, Leaf { at, rank: of, root }) in woods.in_order() {
            for component in 0..count {
                self.leaves[rank][at as usize * count + component] =
                    self.roots[of][root as usize * count + component];
            }
        }
    }

    fn reduce(&mut self, leaves: &[(usize, Leaf)], combine: impl Fn(T, T) -> T) {
        let count = self.components();
        for &(rank, Leaf { at, rank: of, root }) in leaves {
            for component in 0..count {
                let root = &mut self.roots[of][root as usize * count + component];
                *root = combine(*root, self.leaves[rank][at as usize * count + component]);
            }
        }
    }

    pub(crate) fn spec(&self, name: &str, dtype: DType) -> FieldSpec {
        let dims: Vec<Dim> = self.shape.iter().map(|extent| Dim::free(*extent)).collect();
        FieldSpec::new(name, dtype, &dims).unwrap()
    }

    fn upload(&self, rank: usize, stream: &Stream) -> [Memory<T>; 2] {
        [&self.roots[rank], &self.leaves[rank]]
            .map(|values| stream.device().memory_from_slice(stream, values).unwrap())
    }
}

/// Fields of three types. Magnitudes of floating-point values differ, so that the order of sums affects the result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Model {
    pub(crate) a: Arrays<f64>,
    pub(crate) b: Arrays<i32>,
    pub(crate) c: Arrays<f32>,
}

impl Model {
    pub(crate) fn new(woods: &Woods, seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xabcd);
        let mut value = move || {
            let number = (random.below(2003) as f64 - 1001.0) / 7.0;
            number * 3.0_f64.powi(random.below(21) as i32 - 10)
        };
        let a = Arrays::new(woods, &[], &mut value);
        let c = Arrays::new(woods, &[2, 3], || value() as f32);
        let b = Arrays::new(woods, &[3], || value() as i32);
        Self { a, b, c }
    }

    pub(crate) fn specs(&self) -> [FieldSpec; 3] {
        [self.a.spec("a", DType::F64), self.b.spec("b", DType::I32), self.c.spec("c", DType::F32)]
    }

    pub(crate) fn broadcast(&mut self, woods: &Woods) {
        self.a.broadcast(woods);
        self.b.broadcast(woods);
        self.c.broadcast(woods);
    }

    pub(crate) fn reduce(&mut self, woods: &Woods, combine: Combine) {
        self.reduce_in(&woods.in_order(), combine);
    }

    /// The same in the opposite order of leaves.
    pub(crate) fn reduce_backwards(&mut self, woods: &Woods, combine: Combine) {
        let mut leaves = woods.in_order();
        leaves.reverse();
        self.reduce_in(&leaves, combine);
    }

    fn reduce_in(&mut self, leaves: &[(usize, Leaf)], combine: Combine) {
        match combine {
            Combine::Replace => {
                self.a.reduce(leaves, |_, new| new);
                self.b.reduce(leaves, |_, new| new);
                self.c.reduce(leaves, |_, new| new);
            }
            Combine::Sum => {
                self.a.reduce(leaves, |sum, new| sum + new);
                self.b.reduce(leaves, i32::wrapping_add);
                self.c.reduce(leaves, |sum, new| sum + new);
            }
            Combine::Min => {
                self.a.reduce(leaves, f64::min);
                self.b.reduce(leaves, Ord::min);
                self.c.reduce(leaves, f32::min);
            }
            Combine::Max => {
                self.a.reduce(leaves, f64::max);
                self.b.reduce(leaves, Ord::max);
                self.c.reduce(leaves, f32::max);
            }
        }
    }

    pub(crate) fn upload(&self, rank: usize, stream: &Stream) -> Stores {
        let (a, b, c) = (&self.a, &self.b, &self.c);
        Stores { a: a.upload(rank, stream), b: b.upload(rank, stream), c: c.upload(rank, stream) }
    }

    /// Compares every bit of a rank's arrays.
    pub(crate) fn check(&self, rank: usize, stores: &Stores, stream: &Stream, what: &str) {
        let found = |memory: &Memory<f64>| {
            memory.to_vec(stream).unwrap().into_iter().map(f64::to_bits).collect::<Vec<_>>()
        };
        let expected = [&self.a.roots, &self.a.leaves]
            .map(|all| all[rank].iter().map(|value| value.to_bits()).collect::<Vec<_>>());
        assert_eq!([0, 1].map(|side| found(&stores.a[side])), expected, "rank {rank}, {what}, a");
        let found = |memory: &Memory<i32>| memory.to_vec(stream).unwrap();
        let expected = [&self.b.roots[rank], &self.b.leaves[rank]].map(Clone::clone);
        assert_eq!([0, 1].map(|side| found(&stores.b[side])), expected, "rank {rank}, {what}, b");
        let found = |memory: &Memory<f32>| {
            memory.to_vec(stream).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let expected = [&self.c.roots, &self.c.leaves]
            .map(|all| all[rank].iter().map(|value| value.to_bits()).collect::<Vec<_>>());
        assert_eq!([0, 1].map(|side| found(&stores.c[side])), expected, "rank {rank}, {what}, c");
    }
}

/// The memories of one rank: roots and leaves of each field.
pub(crate) struct Stores {
    pub(crate) a: [Memory<f64>; 2],
    pub(crate) b: [Memory<i32>; 2],
    pub(crate) c: [Memory<f32>; 2],
}

impl Stores {
    /// The arrays of all fields. Of the last two fields, the arrays that the operation only reads are lent for reading.
    pub(crate) fn fields(&mut self, combine: Option<Combine>) -> [[Field<'_>; 2]; 3] {
        fn pair<'a, T: Element>(
            [roots, leaves]: &'a mut [Memory<T>; 2],
            shape: &[usize],
            combine: Option<Combine>,
        ) -> [Field<'a>; 2] {
            let components = shape.iter().product::<usize>();
            let shape = |memory: &Memory<T>| {
                let items = memory.len() / components;
                [&[items], shape].concat()
            };
            let (of_roots, of_leaves) = (shape(roots), shape(leaves));
            match combine {
                None => [
                    roots.view().reshape(&of_roots).unwrap().into(),
                    leaves.view_mut().reshape(&of_leaves).unwrap().into(),
                ],
                Some(_) => [
                    roots.view_mut().reshape(&of_roots).unwrap().into(),
                    leaves.view().reshape(&of_leaves).unwrap().into(),
                ],
            }
        }
        let Self { a, b, c } = self;
        let [roots, leaves] = a;
        let a = [roots.view_mut().into(), leaves.view_mut().into()];
        [a, pair(b, &[3], combine), pair(c, &[2, 3], combine)]
    }
}

/// Starts a broadcast, or a reduction.
pub(crate) fn start<'a, 'f>(
    forest: &'a mut Forest,
    stream: &Stream,
    fields: &'a mut [[Field<'f>; 2]],
    combine: Option<Combine>,
) -> Result<InFlight<'a, 'f>> {
    match combine {
        None => forest.start_broadcast(stream, fields),
        Some(combine) => forest.start_reduce(stream, fields, combine),
    }
}

/// All operations: a broadcast, and reductions.
pub(crate) fn operations() -> impl Iterator<Item = Option<Combine>> + Clone {
    std::iter::once(None).chain(OPERATIONS.map(Some))
}

pub(crate) fn all_reductions() -> ForestOptions {
    ForestOptions { reductions: OPERATIONS.to_vec(), ..Default::default() }
}

/// Runs all operations of one rank over any transport, each with new values, and compares every bit with the model.
pub(crate) fn check_over(
    ranks: Arc<dyn Communicator>,
    woods: &Woods,
    device: &Device,
    options: &ForestOptions,
    seed: u64,
) {
    let rank = ranks.rank();
    let stream = device.stream_create(&Default::default()).unwrap();
    let specs = Model::new(woods, seed).specs();
    let (size, leaves) = (woods.sizes[rank], &woods.leaves[rank]);
    let mut forest = Forest::new(ranks, size, leaves, &specs, device, options).unwrap();
    assert_eq!(forest.size(), size);
    for round in 0..2 {
        for combine in operations() {
            let mut model = Model::new(woods, seed + 100 * round);
            let mut stores = model.upload(rank, &stream);
            let fields = &mut stores.fields(combine);
            let mut flight = start(&mut forest, &stream, fields, combine).unwrap();
            // A few looks before the end, as a program with other work has.
            for _ in 0..seed % 3 {
                flight.poll().unwrap();
            }
            flight.finish().unwrap();
            match combine {
                None => model.broadcast(woods),
                Some(combine) => model.reduce(woods, combine),
            }
            let what = format!("{combine:?} of seed {seed}, round {round}");
            model.check(rank, &stores, &stream, &what);
        }
    }
}

/// Runs all ranks as threads.
pub(crate) fn check(woods: &Woods, device: &Device, options: &ForestOptions, seed: u64) {
    let run = |ranks: ThreadCommunicator| check_over(Arc::new(ranks), woods, device, options, seed);
    ThreadCommunicator::run(woods.ranks(), run).unwrap();
}
