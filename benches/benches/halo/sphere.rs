//! The cubed sphere: exchanges of six ranks that are threads, and the cost of a plan.

use std::hint::black_box;
use std::sync::Arc;

use benches::Bench;
use benches::team::Team;
use benches::turns::{Contestant, time};
use halo::communicator::ThreadCommunicator;
use halo::{Dim, Field, FieldSpec, HaloExchange, HaloTransformer, Quantity, Result, Topology};
use runtime_core::{DType, Device, Memory};

use crate::allocator;
use crate::case::{HALO, device};

const LEVELS: usize = 79;
const TILES: usize = 6;

/// The limits for the plan of a C192 tile, in seconds and in KiB.
const PLAN_SECONDS: f64 = 1e-3;
const PLAN_KIB: f64 = 64.0;

/// The field with this number on a tile. Levels are planes, as in cubed-sphere models.
fn spec(cells: usize, field: usize) -> Result<FieldSpec> {
    let dim = |axis| Dim::axis(axis, cells).halo(HALO, HALO);
    FieldSpec::new(format!("field {field}"), DType::F64, &[Dim::free(LEVELS), dim(1), dim(0)])
}

/// Whole exchanges with one rank for each tile.
pub(crate) fn exchanges(bench: &mut Bench) -> Result<()> {
    if !bench.group("cubed sphere") {
        return Ok(());
    }
    let sizes = if bench.is_quick() { &[12][..] } else { &[48, 128] };
    for &cells in sizes {
        for fields in [1, 8] {
            let device = device()?;
            let part = move |ranks| tile(ranks, &device, cells, fields).expect("a tile");
            let team = Team::new(TILES, part)?;
            let case = format!("six threads, C{cells}, {fields} fields");
            let mut runs: [(&str, &mut Contestant<'_>); 1] =
                [("ours", &mut |calls| team.run(calls))];
            let Some(seconds) = bench.medians(&case, &mut runs, |_| true) else { continue };
            let ghosts = 4 * cells * HALO * LEVELS * fields * size_of::<f64>();
            let rate = (TILES * ghosts) as f64 / seconds[0] / 1e9;
            let milliseconds = seconds[0] * 1e3;
            println!(
                "  six threads, C{cells}, {LEVELS} levels, {fields} fields: {milliseconds:.2} ms, {rate:.1} GB/s"
            );
        }
    }
    Ok(())
}

/// The exchange of one tile.
fn tile(
    ranks: ThreadCommunicator,
    device: &Device,
    cells: usize,
    fields: usize,
) -> Result<impl FnMut() + use<>> {
    let stream = device.stream_create(&Default::default())?;
    let topology = Topology::cubed_sphere(cells, [1, 1])?;
    let layout = *spec(cells, 0)?.layout();
    let quantities: Vec<Quantity> =
        (0..fields).map(|field| spec(cells, field).map(Quantity::scalar)).collect::<Result<_>>()?;
    let options = Default::default();
    let mut halo = HaloExchange::new(Arc::new(ranks), &topology, &quantities, device, &options)?;
    let zeros = vec![0.0; layout.len()];
    let memories = (0..fields).map(|_| device.memory_from_slice(&stream, &zeros));
    let mut memories = memories.collect::<Result<Vec<Memory<f64>>>>()?;
    Ok(move || {
        let views = memories.iter_mut().map(|memory| memory.view_mut().with_layout(0, &layout));
        let views = views.map(|view| view.map(Field::from));
        let mut views: Vec<Field<'_>> = views.collect::<Result<_>>().expect("views");
        halo.exchange(&stream, &mut views).expect("an exchange");
        stream.synchronize().expect("an exchange");
    })
}

/// The cost of planning the exchange of a C192 tile.
pub(crate) fn plans(bench: &mut Bench) -> Result<()> {
    if !bench.group("plans") {
        return Ok(());
    }
    let device = device()?;
    let quantities = [Quantity::scalar(spec(192, 0)?)];
    let plan = || {
        let topology = Topology::cubed_sphere(192, [1, 1])?;
        HaloTransformer::new(&topology, 0, &quantities, &device, &Default::default())
    };
    let mut planned = || drop(black_box(plan().expect("a plan")));
    let mut runs: [(&str, &mut Contestant<'_>); 1] =
        [("ours", &mut |calls| time(calls, &mut planned))];
    let passes = |seconds: &[f64]| seconds[0] <= PLAN_SECONDS;
    let Some(seconds) = bench.medians("a C192 tile", &mut runs, passes) else { return Ok(()) };
    bench.limited("a C192 tile", "us", seconds[0] * 1e6, PLAN_SECONDS * 1e6);
    let before = allocator::held();
    let kept = plan()?;
    let bytes = allocator::held() - before;
    drop(kept);
    bench.limited("a C192 tile", "KiB", bytes as f64 / 1024.0, PLAN_KIB);
    Ok(())
}
