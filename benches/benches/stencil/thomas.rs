//! Columns that solve tridiagonal systems, against plain loops that make the same two passes.

use benches::{Bench, Rival};
use runtime_core::Result;
use stencil::{Field, Grid, In, Out, column};

use crate::plain::{Pointers, Threads};
use crate::rows::{self, Compute, Row};
use crate::{Machine, SPEED, steps, value};

/// The columns that a plain loop computes side by side.
const BAND: usize = 512;

#[column(forward)]
fn eliminate(c: Out<f64, 3>, d: Out<f64, 3>, t: In<f64, 3>, a: In<f64, 3>) {
    if first() {
        let b = 1.0 + a.at(0, 0, 0);
        c.set(a.at(0, 0, 0) / b);
        d.set(t.at(0, 0, 0) / b);
    } else {
        let b = 1.0 + a.at(0, 0, 0) + a.at(-1, 0, 0) * (1.0 - c.at(-1, 0, 0));
        c.set(a.at(0, 0, 0) / b);
        d.set((t.at(0, 0, 0) + a.at(-1, 0, 0) * d.at(-1, 0, 0)) / b);
    }
}

#[column(backward)]
fn substitute(t: Out<f64, 3>, c: In<f64, 3>, d: In<f64, 3>) {
    if first() {
        t.set(d.at(0, 0, 0));
    } else {
        t.set(d.at(0, 0, 0) + c.at(0, 0, 0) * t.at(1, 0, 0));
    }
}

/// The same by plain loops.
struct Plain {
    levels: usize,
    /// The columns side by side, which are the elements from level to level.
    columns: usize,
    /// The fields c, d, t and a.
    fields: [Vec<f64>; 4],
}

impl Plain {
    fn new([levels, n, m]: [usize; 3]) -> Self {
        let values = |by: f64| -> Vec<f64> {
            let places = (0..levels * n * m).map(|at| [at / (n * m), at / m % n, at % m]);
            places.map(|at| by * value(at)).collect()
        };
        let zeros = vec![0.0; levels * n * m];
        let fields = [zeros.clone(), zeros, values(1.0), values(1e-3)];
        Self { levels, columns: n * m, fields }
    }

    fn solve(&mut self, on: &Threads) {
        let [c, d, t, a] = self.fields.each_mut().map(|field| field.as_mut_ptr());
        self.pass(on, true, [c, d], [t, a], [rows::eliminate_first, rows::eliminate]);
        self.pass(on, false, [t; 2], [d, c], [rows::copy, rows::substitute]);
    }

    /// Computes each band level by level, upwards or downwards: the level where it begins, and then the others.
    fn pass(
        &self,
        threads: &Threads,
        is_upwards: bool,
        outputs: [*mut f64; 2],
        inputs: [*mut f64; 2],
        [first, next]: [Compute<f64>; 2],
    ) {
        let Self { levels, columns, .. } = *self;
        let (outputs, inputs) = (Pointers(outputs), Pointers(inputs));
        threads.for_each(columns.div_ceil(BAND), |band| {
            let start = band * BAND;
            for number in 0..levels {
                let level = if is_upwards { number } else { levels - 1 - number };
                let at = level * columns + start;
                let row = Row {
                    points: BAND.min(columns - start),
                    steps: [columns, 0],
                    outputs: outputs.at(at),
                    inputs: inputs.at(at).map(|pointer| pointer.cast_const()),
                    scalars: [0.0; 2],
                };
                let compute = if number == 0 { first } else { next };
                // SAFETY: the fields have this level, and those behind the first one have one before it. One thread
                // computes a band, and inputs are no outputs. The processor was checked.
                unsafe { compute(&row) };
            }
        });
    }
}

/// Compares solutions of systems on a small grid, and on one of nearly a gigabyte.
pub(crate) fn solutions(machine: &Machine<'_>, bench: &mut Bench) -> Result<()> {
    if !machine.group(bench, "tridiagonal systems along the first axis, by columns, f64") {
        return Ok(());
    }
    let stream = &machine.stream;
    for cells in [[64, 32, 64], if bench.is_quick() { [64; 3] } else { [64, 512, 768] }] {
        let grid = Grid::cartesian(cells).build(stream.device())?;
        let t = grid.field("t").from_fn(value)?;
        let a = grid.field("a").from_fn(|at| 1e-3 * value(at))?;
        let mut fields = [t.like("c")?, t.like("d")?, t];
        let solve = |[c, d, t]: &mut [Field<f64, 3>; 3]| {
            eliminate(c, d, &*t, &a).run(stream).expect("a launch");
            substitute(t, &*c, &*d).run(stream).expect("a launch");
        };
        let mut plain = Plain::new(cells);
        // Each call changes t, so the bits are those of the first.
        solve(&mut fields);
        stream.synchronize()?;
        plain.solve(&machine.pool);
        for (field, values) in fields.iter_mut().zip(&plain.fields) {
            let same = field.read_host()?.iter().eq(values);
            assert!(same, "the plain loops compute other values of {}", field.name());
        }
        // The first pass reads two fields and writes two, and the second one reads two and writes one.
        let steps = steps(bench, cells);
        let bytes = steps * 7 * cells.iter().product::<usize>() * size_of::<f64>();
        bench.compare(
            format!("{cells:?} points, {steps} times"),
            bytes as u64,
            &mut || {
                (0..steps).for_each(|_| solve(&mut fields));
                stream.synchronize().expect("launches");
            },
            &mut [Rival {
                name: "Rust",
                target: SPEED,
                run: &mut || (0..steps).for_each(|_| plain.solve(&machine.pool)),
            }],
        );
    }
    Ok(())
}
