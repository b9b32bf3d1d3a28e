//! Forests that cannot be made, calls that are refused, and messages with faults.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a test stops where something is wrong; small numbers"
)]

mod altered;
mod devices;
mod forests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use altered::Altered;
use devices::{emulated, host, sim};
use forests::{Model, Random, Woods, all_reductions, operations, start};
use halo::communicator::{Communicator, Fault, Faults, FaultyCommunicator, ThreadCommunicator};
use halo::{
    Combine, Dim, Error, ErrorKind, FieldSpec, Forest, ForestOptions, ForestSize, HaloExchange,
    HaloOptions, Leaf, Quantity, Result, Staging, Topology,
};
use runtime_core::{DType, Device, Memory, Stream};

const LONG: Duration = Duration::from_secs(60);

/// What a rank does wrong.
type Change = fn(&mut Own);

/// What a rank passes to `Forest::new`.
#[derive(Clone)]
struct Own {
    size: ForestSize,
    leaves: Vec<Leaf>,
    fields: Vec<FieldSpec>,
    options: ForestOptions,
}

fn field(name: &str, dtype: DType, dims: &[Dim]) -> FieldSpec {
    FieldSpec::new(name, dtype, dims).unwrap()
}

/// Four roots and six leaves, of which two point to the next rank, and one to this rank.
fn valid(rank: usize, ranks: usize) -> Own {
    let next = (rank + 1) % ranks;
    Own {
        size: ForestSize { roots: 4, leaves: 6 },
        leaves: vec![
            Leaf { at: 5, rank: next, root: 3 },
            Leaf { at: 1, rank: next, root: 3 },
            Leaf { at: 2, rank, root: 0 },
        ],
        fields: vec![field("f", DType::F64, &[])],
        options: ForestOptions { reductions: vec![Combine::Sum], ..Default::default() },
    }
}

fn make(ranks: Arc<dyn Communicator>, own: &Own, device: &Device) -> Result<Forest> {
    Forest::new(ranks, own.size, &own.leaves, &own.fields, device, &own.options)
}

/// The errors of three ranks, of which rank 1 changes what it passes. No rank sends a message other than those of
/// collective calls. Then the ranks make a forest without a reset.
fn refused(change: impl Fn(&mut Own) + Sync) -> Vec<Error> {
    let device = host();
    ThreadCommunicator::run(3, |ranks| {
        let rank = ranks.rank();
        let ranks = Arc::new(Altered::new(ranks));
        let mut own = valid(rank, 3);
        if rank == 1 {
            change(&mut own);
        }
        let error = make(Arc::clone(&ranks) as _, &own, &device).unwrap_err();
        assert_eq!(ranks.sent(), 0, "{error}");
        make(ranks, &valid(rank, 3), &device).unwrap();
        error
    })
    .unwrap()
}

/// The same error on all ranks, which names the rank, the leaf, the value and the limit.
#[test]
fn leaves_and_fields_that_cannot_be_are_an_error_on_every_rank() {
    let cases: [(Change, &str); 10] = [
        (|own| own.leaves[1].rank = 3, "rank 1, leaf 1: root 3 of rank 3; there are 3 ranks"),
        (|own| own.leaves[0].root = 4, "rank 1, leaf 5: root 4 of rank 2, which has 4 roots"),
        (
            |own| own.leaves[2].root = u64::MAX,
            "rank 1, leaf 2: root 18446744073709551615 of rank 1",
        ),
        (|own| own.leaves[2].at = 6, "rank 1, leaf 6: the array of leaves has 6 items"),
        (
            |own| own.leaves[2].at = 5,
            "rank 1, leaf 5: it occurs twice, with root 3 of rank 2 and root 0 of rank 1",
        ),
        (
            |own| own.fields[0] = field("f", DType::F64, &[Dim::axis(0, 2)]),
            "field f of rank 1: an item of a forest has no dimension along an axis",
        ),
        (
            |own| {
                let dims = [Dim::free(2), Dim::free(2)];
                own.fields[0] = field("f", DType::F64, &dims).strided(&[3, 1]).unwrap();
            },
            "field f of rank 1: an item of a forest has no gaps, and this has strides [3, 1]",
        ),
        (|own| own.fields.push(own.fields[0].clone()), "fields 0 and 1 of rank 1 are both named f"),
        (|own| own.fields[0] = field("f", DType::Bool, &[]), "field f: Sum of elements of bool"),
        (|own| own.options.channel = u32::MAX, "rank 1: channel 4294967295; there are"),
    ];
    for (change, words) in cases {
        for error in refused(change) {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains(words), "{error}; expected {words}");
        }
    }
}

#[test]
fn declarations_that_differ_are_an_error_on_every_rank() {
    let cases: [(Change, &str); 5] = [
        (
            |own| own.options.reductions.push(Combine::Max),
            "ranks [1] have another declared reductions than rank 0: [Sum, Max] on rank 1, [Sum] on rank 0",
        ),
        (|own| own.options.reductions.clear(), "[] on rank 1, [Sum] on rank 0"),
        (|own| own.options.channel = 3, "another channel than rank 0: 3 on rank 1, 0 on rank 0"),
        (
            |own| own.fields[0] = field("f", DType::F32, &[]),
            "another element type of field 0, f than rank 0: f32 on rank 1, f64 on rank 0",
        ),
        (
            |own| own.fields[0] = field("f", DType::F64, &[Dim::free(2)]),
            "another shape of an item of field 0, f than rank 0: [2] on rank 1, [] on rank 0",
        ),
    ];
    for (change, words) in cases {
        for error in refused(change) {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains(words), "{error}; expected {words}");
        }
    }
}

/// The order in which reductions are declared, and how often, makes no difference.
/// Ranks show each other the first 64 KiB of what differs.
#[test]
fn declarations_that_differ_after_a_long_name_are_an_error_on_every_rank() {
    let device = host();
    let errors = ThreadCommunicator::run(2, |ranks| {
        let (rank, dtype) = (ranks.rank(), [DType::F64, DType::F32][ranks.rank()]);
        let fields = vec![field(&"n".repeat(70_000), dtype, &[])];
        let own = Own { fields, options: ForestOptions::default(), ..valid(rank, 2) };
        make(Arc::new(ranks), &own, &device).unwrap_err()
    });
    for error in errors.unwrap() {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("beyond 65536 bytes"), "{error}");
    }
}

#[test]
fn reductions_may_be_declared_in_any_order() {
    let device = host();
    ThreadCommunicator::run(2, |ranks| {
        let mut own = valid(ranks.rank(), 2);
        own.options.reductions = match ranks.rank() {
            0 => vec![Combine::Sum, Combine::Max, Combine::Sum],
            _ => vec![Combine::Max, Combine::Sum],
        };
        make(Arc::new(ranks), &own, &device).unwrap();
    })
    .unwrap();
}

/// What only one rank can find out: when it allocates, and when its device gets the lists.
#[test]
fn a_rank_that_cannot_make_its_part_is_an_error_on_every_rank() {
    let changes: [(Change, &str); 2] = [
        (
            |own| own.options.pool_bytes = Some(40),
            "rank 1: pool_bytes is 40, and the messages of one exchange have",
        ),
        (
            |own| own.options.staging = Staging::Device,
            "rank 1: Staging::Device, and the transport passes no memory",
        ),
    ];
    for (change, words) in changes {
        let device = sim(3);
        let errors = ThreadCommunicator::run(3, |ranks| {
            let rank = ranks.rank();
            let ranks = Arc::new(Altered { passes_memory: false, ..Altered::new(ranks) });
            let mut own = valid(rank, 3);
            if rank == 1 {
                change(&mut own);
            }
            let error = make(Arc::clone(&ranks) as _, &own, &device).unwrap_err();
            make(ranks, &valid(rank, 3), &device).unwrap();
            error
        });
        for error in errors.unwrap() {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains(words), "{error}; expected {words}");
        }
    }
}

#[test]
fn global_numbers_that_no_rank_or_two_ranks_own_are_an_error_on_every_rank() {
    let device = host();
    for (owned, needed, words) in [
        ([0..4, 4..9], [vec![3], vec![0, 8, 9]], "rank 1, leaf 2: no rank owns global number 9"),
        ([0..4, 5..9], [vec![8, 4], vec![]], "rank 0, leaf 1: no rank owns global number 4"),
        (
            [2..6, 0..3],
            [vec![], vec![]],
            "rank 1 owns the global numbers 0..3, and rank 0 owns 2..6",
        ),
        #[expect(clippy::reversed_empty_ranges, reason = "a mistake of the program")]
        ([0..4, 9..4], [vec![], vec![]], "rank 1: the range 9..4 of global numbers ends before"),
    ] {
        let errors = ThreadCommunicator::run(2, |ranks| {
            let (rank, fields) = (ranks.rank(), [field("f", DType::U8, &[])]);
            let (owned, needed) = (owned[rank].clone(), &needed[rank]);
            let options = ForestOptions::default();
            let ranks = Arc::new(ranks);
            Forest::from_global(ranks, owned, needed, &fields, &device, &options).unwrap_err()
        });
        for error in errors.unwrap() {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains(words), "{error}; expected {words}");
        }
    }
}

/// The parts of a rank in a test of calls.
struct Rank {
    rank: usize,
    forest: Forest,
    stream: Stream,
    roots: Memory<f64>,
    leaves: Memory<f64>,
}

impl Rank {
    fn new(ranks: Arc<dyn Communicator>, device: &Device, options: &ForestOptions) -> Self {
        let (rank, size) = (ranks.rank(), ranks.size());
        let own = Own { options: options.clone(), ..valid(rank, size) };
        let forest = make(ranks, &own, device).unwrap();
        let stream = device.stream_create(&Default::default()).unwrap();
        let roots = Self::roots(rank, &stream);
        let leaves = device.memory_from_slice(&stream, &[-1.0; 6]).unwrap();
        Self { rank, forest, stream, roots, leaves }
    }

    fn roots(rank: usize, stream: &Stream) -> Memory<f64> {
        let roots = [0.0, 1.0, 2.0, 3.0].map(|value| 10.0 * rank as f64 + value);
        stream.device().memory_from_slice(stream, &roots).unwrap()
    }

    fn call(&mut self, combine: Option<Combine>) -> Result<()> {
        let fields = &mut [[self.roots.view_mut().into(), self.leaves.view_mut().into()]];
        start(&mut self.forest, &self.stream, fields, combine)?.finish()
    }

    fn check_broadcast(&mut self, ranks: usize) {
        self.call(None).unwrap();
        let [own, next] = [self.rank, (self.rank + 1) % ranks].map(|rank| 10.0 * rank as f64);
        let expected = [-1.0, next + 3.0, own, -1.0, -1.0, next + 3.0];
        assert_eq!(self.leaves.to_vec(&self.stream).unwrap(), expected);
    }
}

fn two<T: Send>(device: &Device, options: &ForestOptions, f: impl Fn(Rank) -> T + Sync) -> Vec<T> {
    ThreadCommunicator::run(2, |ranks| f(Rank::new(Arc::new(ranks), device, options))).unwrap()
}

fn short() -> ForestOptions {
    let timeout = Duration::from_millis(300);
    ForestOptions { reductions: vec![Combine::Sum], timeout, ..Default::default() }
}

/// Other ranks notice nothing, and the next call is as if nothing had happened.
#[test]
fn calls_that_are_refused_have_no_effect() {
    for device in [host(), sim(2), emulated()] {
        two(&device, &all_reductions(), |mut own| {
            let other = device.memory_from_slice(&own.stream, &[0.0_f64; 8]).unwrap();
            let Rank { forest, stream, roots, leaves, .. } = &mut own;
            let mut refused = |fields: &mut [[halo::Field<'_>; 2]], combine| {
                start(forest, stream, fields, combine).map(drop).unwrap_err()
            };
            let read = &mut [[roots.view().into(), leaves.view().into()]];
            for (combine, words) in [
                (None, "field f (leaves) of rank"),
                (Some(Combine::Sum), "field f (roots) of rank"),
            ] {
                let error = refused(read, combine);
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                assert!(error.message().contains(words), "{error}");
                assert!(error.message().contains("lent for reading"), "{error}");
            }
            let long = &mut [[other.view().into(), leaves.view_mut().into()]];
            let error = refused(long, None);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains("shape [8]"), "{error}");
            let error = refused(&mut [], None);
            assert!(error.message().contains("0 fields of rank"), "{error}");
            own.check_broadcast(2);
        });
    }
    let device = host();
    let options = ForestOptions { reductions: vec![Combine::Min], ..Default::default() };
    two(&device, &options, |mut own| {
        let error = own.call(Some(Combine::Sum)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("Sum"), "{error}");
        assert!(error.message().contains("[Min]"), "{error}");
        own.check_broadcast(2);
    });
}

#[test]
fn a_call_that_was_dropped_needs_a_reset() {
    let both = Barrier::new(2);
    for device in [host(), sim(4)] {
        two(&device, &short(), |mut own| {
            let Rank { forest, stream, roots, leaves, .. } = &mut own;
            let fields = &mut [[roots.view().into(), leaves.view_mut().into()]];
            drop(forest.start_broadcast(stream, fields).unwrap());
            let error = own.call(None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            both.wait();
            own.forest.reset().unwrap();
            own.check_broadcast(2);
        });
    }
}

/// Ranks that call different methods, have different tokens, or use their forests in different orders.
#[test]
fn ranks_that_do_different_things_get_an_error_and_no_values() {
    type Act = fn(&mut [Rank; 2], usize) -> Result<()>;
    let acts: [Act; 3] = [
        |[own, _], rank| own.call([None, Some(Combine::Sum)][rank]),
        |[own, _], rank| {
            own.forest.set_token(rank as u64);
            own.call(None)
        },
        |both, rank| both[rank].call(None),
    ];
    for act in acts {
        for device in [host(), sim(5)] {
            let both = Barrier::new(2);
            ThreadCommunicator::run(2, |ranks| {
                let rank = ranks.rank();
                let ranks: Arc<dyn Communicator> = Arc::new(ranks);
                let options = ForestOptions { timeout: LONG, ..short() };
                let mut own = [(); 2].map(|()| Rank::new(Arc::clone(&ranks), &device, &options));
                let error = act(&mut own, rank).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                for own in &own {
                    let leaves = own.leaves.to_vec(&own.stream).unwrap();
                    // Only the leaf with a root on the same rank may have its value.
                    assert_eq!([leaves[1], leaves[5]], [-1.0; 2]);
                }
                both.wait();
                for own in &mut own {
                    own.forest.set_token(0);
                    own.forest.reset().unwrap();
                }
                own.iter_mut().for_each(|own| {
                    own.roots = Rank::roots(own.rank, &own.stream);
                    own.check_broadcast(2);
                });
            })
            .unwrap();
        }
    }
}

/// One rank makes its forest again, and the other goes on with the old one, or makes a halo exchange instead.
#[test]
fn a_forest_that_one_rank_makes_again_is_an_error_on_both() {
    for makes_halo in [false, true] {
        let (device, both) = (host(), Barrier::new(2));
        ThreadCommunicator::run(2, |ranks| {
            let rank = ranks.rank();
            let ranks: Arc<dyn Communicator> = Arc::new(ranks);
            let mut own = Rank::new(Arc::clone(&ranks), &device, &short());
            let start = Instant::now();
            let error = match (rank, makes_halo) {
                (0, _) => {
                    let again = Own { options: short(), ..valid(0, 2) };
                    make(Arc::clone(&ranks), &again, &device).map(drop).unwrap_err()
                }
                (_, false) => own.call(None).unwrap_err(),
                (_, true) => {
                    let topology = Topology::cartesian(&[4], &[2], &[true]).unwrap();
                    let dims = [Dim::axis(0, 2).halo(1, 1)];
                    let fields = [Quantity::scalar(field("f", DType::F64, &dims))];
                    let options = HaloOptions { timeout: short().timeout, ..Default::default() };
                    HaloExchange::new(Arc::clone(&ranks), &topology, &fields, &device, &options)
                        .map(drop)
                        .unwrap_err()
                }
            };
            let expected = if makes_halo { ErrorKind::InvalidArgument } else { ErrorKind::Timeout };
            assert_eq!(error.kind(), expected, "{error}");
            assert!(start.elapsed() < LONG);
            both.wait();
            own.forest.reset().unwrap();
            own.check_broadcast(2);
        })
        .unwrap();
    }
}

/// Whether all ranks succeeded, on all ranks.
struct Votes {
    all: Barrier,
    failed: AtomicUsize,
}

impl Votes {
    fn all_succeeded(&self, has: bool) -> bool {
        self.failed.fetch_add(usize::from(!has), Ordering::SeqCst);
        self.all.wait();
        let failed = self.failed.load(Ordering::SeqCst);
        if self.all.wait().is_leader() {
            self.failed.store(0, Ordering::SeqCst);
        }
        self.all.wait();
        failed == 0
    }
}

/// Faults of all kinds: a call succeeds and its values are right, or it is an error. A rank that fails resets with the
/// others. A forest that cannot be made is an error on every rank.
#[test]
fn faults_are_errors_and_never_wrong_values() {
    const RANKS: usize = 3;
    let begin = Instant::now();
    let (made, succeeded, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    for seed in 0..18_u64 {
        let device = [host(), sim(seed), emulated()][seed as usize % 3].clone();
        let fault = Fault::ALL[seed as usize % Fault::ALL.len()];
        let faults = Faults::new(seed).with(fault, 0.15).longest(Duration::from_millis(3));
        let woods = Woods::random(RANKS, seed);
        let votes = Votes { all: Barrier::new(RANKS), failed: AtomicUsize::new(0) };
        ThreadCommunicator::run(RANKS, |ranks| {
            let rank = ranks.rank();
            let ranks: Arc<dyn Communicator> =
                Arc::new(FaultyCommunicator::new(ranks, faults.clone()));
            // Messages have a stamp, so the host sees one whose bytes have not arrived.
            let options = ForestOptions {
                timeout: Duration::from_millis(150),
                staging: Staging::Pinned,
                ..all_reductions()
            };
            let specs = Model::new(&woods, seed).specs();
            let stream = device.stream_create(&Default::default()).unwrap();
            let make = || {
                let (size, leaves) = (woods.sizes[rank], &woods.leaves[rank]);
                Forest::new(Arc::clone(&ranks), size, leaves, &specs, &device, &options)
            };
            for _ in 0..12 {
                let forest = make();
                let has = forest.is_ok();
                if !votes.all_succeeded(has) {
                    assert!(!has, "a forest that another rank could not make");
                    ranks.reset(LONG).unwrap();
                    continue;
                }
                made.fetch_add(1, Ordering::Relaxed);
                let mut forest = forest.unwrap();
                for (step, combine) in operations().cycle().take(6).enumerate() {
                    let mut model = Model::new(&woods, seed + 50 * step as u64);
                    let mut stores = model.upload(rank, &stream);
                    let fields = &mut stores.fields(combine);
                    let called = start(&mut forest, &stream, fields, combine)
                        .and_then(halo::InFlight::finish);
                    let has = called.is_ok();
                    if has {
                        match combine {
                            None => model.broadcast(&woods),
                            Some(combine) => model.reduce(&woods, combine),
                        }
                        model.check(rank, &stores, &stream, &format!("{fault:?}, seed {seed}"));
                        succeeded.fetch_add(1, Ordering::Relaxed);
                    } else {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    if !votes.all_succeeded(has) {
                        forest.reset().unwrap();
                    }
                }
                break;
            }
            votes.all.wait();
        })
        .unwrap();
    }
    // The test is of no use if one of these does not occur.
    let counts = [&made, &succeeded, &failed].map(|count| count.load(Ordering::Relaxed));
    assert!(counts[0] >= 10 * RANKS && counts[1] > 100 && counts[2] > 10, "{counts:?}");
    assert!(begin.elapsed() < 5 * LONG);
}

/// A list whose bytes are changed in transit without another sign is noticed: no forest is made of it.
#[test]
fn a_list_that_is_changed_in_transit_is_an_error_on_every_rank() {
    let device = host();
    for changed in [2_u8, 200] {
        let errors = ThreadCommunicator::run(3, |ranks| {
            let rank = ranks.rank();
            let mut altered = Altered::new(ranks);
            if rank == 1 {
                altered.received = match changed {
                    2 => |mut buffer| {
                        buffer.as_mut_slice()?.unwrap()[0] = 2;
                        Ok(buffer)
                    },
                    _ => |mut buffer| {
                        buffer.as_mut_slice()?.unwrap()[0] = 200;
                        Ok(buffer)
                    },
                };
            }
            make(Arc::new(altered), &valid(rank, 3), &device).unwrap_err()
        });
        for error in errors.unwrap() {
            assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
            let words = [
                "lists of leaves that arrived are not those that were sent",
                "root 200 came from rank 0",
            ];
            assert!(words.iter().any(|words| error.message().contains(words)), "{error}");
        }
    }
}

/// What a collective call of a faulty transport may return.
#[test]
fn gathered_bytes_that_cannot_be_are_an_error() {
    let device = host();
    use ErrorKind::{Driver, InvalidArgument};
    // Zeros say that no rank has a root.
    for (byte, len, kind) in [
        (0xFF_u8, 64, Driver),
        (0, 64, InvalidArgument),
        (0, 63, Driver),
        (1, 64, Driver),
        (0, 0, Driver),
    ] {
        let errors = ThreadCommunicator::run(2, |ranks| {
            let rank = ranks.rank();
            let gathered = Some(vec![byte; len]);
            let ranks = Arc::new(Altered { gathered, ..Altered::new(ranks) });
            make(ranks, &valid(rank, 2), &device).unwrap_err()
        });
        for error in errors.unwrap() {
            assert_eq!(error.kind(), kind, "{byte}, {len}: {error}");
        }
    }
}

/// Ranks without roots, leaves or fields, and a rank alone.
#[test]
fn empty_forests_do_nothing() {
    let device = sim(1);
    let mut random = Random::new(4);
    for ranks in 1..4 {
        let roots: Vec<usize> = (0..ranks).map(|_| random.below(3)).collect();
        ThreadCommunicator::run(ranks, |ranks| {
            let size = ForestSize { roots: roots[ranks.rank()], leaves: 2 };
            let stream = device.stream_create(&Default::default()).unwrap();
            let ranks: Arc<dyn Communicator> = Arc::new(ranks);
            for fields in [vec![], vec![field("f", DType::F64, &[])]] {
                let options = all_reductions();
                let ranks = Arc::clone(&ranks);
                let mut forest = Forest::new(ranks, size, &[], &fields, &device, &options).unwrap();
                assert_eq!(forest.sends().count() + forest.receives().count(), 0);
                let mut roots = device.memory_from_slice(&stream, &vec![1.0; size.roots]).unwrap();
                let mut leaves = device.memory_from_slice(&stream, &[2.0; 2]).unwrap();
                for combine in operations() {
                    let mut arrays = [[roots.view_mut().into(), leaves.view_mut().into()]];
                    let arrays = &mut arrays[..fields.len()];
                    start(&mut forest, &stream, arrays, combine).unwrap().finish().unwrap();
                }
                assert_eq!(roots.to_vec(&stream).unwrap(), vec![1.0; size.roots]);
                assert_eq!(leaves.to_vec(&stream).unwrap(), [2.0; 2]);
            }
        })
        .unwrap();
    }
}
