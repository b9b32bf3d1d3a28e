//! Rotated and mirrored sides, against the unrotated sides that they join.

use benches::Bench;
use benches::turns::Contestant;
use benches::turns::time;
use halo::{
    Dim, Field, FieldSpec, HaloTransformer, Link, Quantity, Result, Side, Symmetry, Topology,
};
use runtime_core::{DType, Layout, Memory, Stream};

use crate::case::{HALO, device};

/// The cells along x and y, and the levels.
const BLOCK: [usize; 3] = [128, 128, 79];

/// A side, by its end along each axis.
type Ends = [i8; 3];
const EAST: Ends = [1, 0, 0];
const NORTH: Ends = [0, 1, 0];
const ABOVE: Ends = [0, 0, 1];

/// A rotated edge may take 1.5 times as long as the slower of the unrotated edges that it joins.
const EDGE: f64 = 1.0 / 1.5;
/// A face that is rotated in its own plane may take twice as long as an unrotated face.
const FACE: f64 = 1.0 / 2.0;

/// The exchanged values, and their order in memory.
#[derive(Clone, Copy)]
struct Values {
    components: usize,
    /// The axes, the slowest in memory first.
    order: [usize; 3],
    name: &'static str,
}

const VALUES: [Values; 4] = [
    Values { components: 1, order: [0, 1, 2], name: "scalar, levels fastest" },
    Values { components: 1, order: [2, 1, 0], name: "scalar, x fastest" },
    Values { components: 2, order: [0, 1, 2], name: "vector, levels fastest" },
    Values { components: 2, order: [2, 1, 0], name: "vector, x fastest" },
];

/// Edges and faces, with all rotations.
pub(crate) fn rotations(bench: &mut Bench) -> Result<()> {
    let values = if bench.is_quick() { &VALUES[..1] } else { &VALUES };
    if bench.group("turned edges") {
        for values in values {
            compare(bench, *values, [EAST, NORTH], EDGE)?;
        }
    }
    if bench.group("turned faces") {
        for values in values {
            compare(bench, *values, [ABOVE, ABOVE], FACE)?;
        }
    }
    Ok(())
}

/// Compares the exchange beyond the first side under every symmetry with the unrotated exchange. If axes are exchanged,
/// compares with the slower of both sides.
fn compare(bench: &mut Bench, values: Values, sides: [Ends; 2], target: f64) -> Result<()> {
    for blocks in [1, 2] {
        let mut straight = [
            Seam::new(values, blocks, sides[0], Symmetry::IDENTITY)?,
            Seam::new(values, blocks, sides[1], Symmetry::IDENTITY)?,
        ];
        for symmetry in Symmetry::ALL {
            if symmetry == Symmetry::IDENTITY {
                continue;
            }
            let mut turned = Seam::new(values, blocks, sides[0], symmetry)?;
            let joined = if symmetry.swaps() { 1..3 } else { 1..2 };
            // A side that is joined to itself is copied in one direction only.
            let ways = turned.bytes as f64 / straight[0].bytes as f64;
            let slower = |seconds: &[f64]| {
                ways * seconds[joined.clone()].iter().copied().fold(0.0, f64::max)
            };
            let [first, second] = &mut straight;
            let how = if blocks == 1 { "copied" } else { "packed" };
            let case = format!("{how}, {}, {symmetry:?}", values.name);
            let mut runs: [(&str, &mut Contestant<'_>); 3] = [
                ("turned", &mut |calls| turned.time(calls)),
                ("straight", &mut |calls| first.time(calls)),
                ("straight, other side", &mut |calls| second.time(calls)),
            ];
            let passes = |seconds: &[f64]| slower(seconds) / seconds[0] >= target;
            let Some(seconds) = bench.medians(&case, &mut runs, passes) else { continue };
            let rival = ("straight", slower(&seconds));
            bench.measured(case, turned.bytes, seconds[0], rival, target);
        }
    }
    Ok(())
}

/// A block joined to itself, whose sides are copied, or joined to a second block, for which its side is packed.
struct Seam {
    halo: HaloTransformer,
    stream: Stream,
    layout: Layout,
    memories: Vec<Memory<f64>>,
    bytes: u64,
}

impl Seam {
    fn new(values: Values, blocks: usize, side: Ends, symmetry: Symmetry) -> Result<Self> {
        let mut links = vec![link(0, side, blocks - 1, symmetry)];
        let back = link(blocks - 1, through(side, symmetry), 0, symmetry.inverse());
        if back != links[0] {
            links.push(back);
        }
        let topology = Topology::of_blocks(&vec![BLOCK; blocks], &links)?;
        let dims = [0, 1, 2].map(|axis| Dim::axis(axis, BLOCK[axis]).halo(HALO, HALO));
        let spec = |name| FieldSpec::new(name, DType::F64, &dims)?.ordered(&values.order);
        let layout = *spec("u")?.layout();
        let quantity = match values.components {
            1 => Quantity::scalar(spec("u")?),
            _ => Quantity::vector(spec("u")?, spec("v")?)?,
        };
        let device = device()?;
        let stream = device.default_stream();
        let memories = (0..values.components)
            .map(|_| device.memory_from_slice(&stream, &vec![1.0; layout.len()]))
            .collect::<Result<_>>()?;
        let halo = HaloTransformer::new(&topology, 0, &[quantity], &device, &Default::default())?;
        let across: usize =
            (0..3).filter(|axis| side[*axis] == 0).map(|axis| BLOCK[axis]).product();
        let sides = if blocks == 1 { links.len() } else { 1 };
        let bytes = (sides * values.components * across * HALO * size_of::<f64>()) as u64;
        Ok(Self { halo, stream, layout, memories, bytes })
    }

    /// Runs this number of calls, and returns the seconds per call.
    fn time(&mut self, calls: u32) -> f64 {
        let Self { halo, stream, layout, memories, .. } = self;
        time(calls, &mut || {
            let views = memories.iter_mut().map(|memory| memory.view_mut().with_layout(0, layout));
            let views = views.map(|view| view.map(Field::from));
            let mut fields: Vec<Field<'_>> = views.collect::<Result<_>>().expect("views");
            let packed = halo.pack(stream, &mut fields).expect("a pack");
            stream.synchronize().expect("a pack");
            drop(packed);
        })
    }
}

fn link(rank: usize, side: Ends, neighbour: usize, symmetry: Symmetry) -> Link {
    Link { rank, side: Side::new(side).expect("a side"), neighbour, symmetry }
}

/// The side that is joined to this side.
fn through(side: Ends, symmetry: Symmetry) -> Ends {
    let mut joined = [0; 3];
    for (axis, end) in side.into_iter().enumerate() {
        let (on, against) = symmetry.axis(axis);
        joined[on] = if against { end } else { -end };
    }
    joined
}
