//! Plain programs: arrays with ghosts around them, and a loop over bands of rows on a pool of threads.

use std::array;
use std::ops::Range;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::rows::{Compute, Row};

/// Arrays of one shape, of one to three axes.
pub(crate) struct Plain<T, const N: usize> {
    cells: [usize; N],
    ghosts: usize,
    /// With ghosts; axes that are missing in front have one point.
    extents: [usize; 3],
    /// The points that are computed.
    inner: [Range<usize>; 3],
    outputs: Vec<Vec<T>>,
    inputs: Vec<Vec<T>>,
    scalars: [T; 2],
}

impl<T: Copy + Send + Sync, const N: usize> Plain<T, N> {
    /// Arrays of cells with ghosts around them, which have the values of the nearest cells. `inside` points at each end
    /// of an axis are not computed. Outputs begin with the values of the first input.
    pub(crate) fn new(
        cells: [usize; N],
        ghosts: usize,
        inside: [usize; N],
        outputs: usize,
        inputs: &[&dyn Fn([usize; N]) -> T],
        scalars: [T; 2],
    ) -> Self {
        let (mut extents, mut inner) = ([1; 3], [0..1, 0..1, 0..1]);
        for axis in 0..N {
            let margin = ghosts + inside[axis];
            let extent = cells[axis] + 2 * ghosts;
            extents[axis + 3 - N] = extent;
            inner[axis + 3 - N] = margin..extent - margin;
        }
        let points = extents.iter().product();
        let cell = |at: usize| -> [usize; N] {
            let [_, b, c] = extents;
            let place = [at / (b * c), at / c % b, at % c];
            array::from_fn(|axis| place[axis + 3 - N].saturating_sub(ghosts).min(cells[axis] - 1))
        };
        let values = |input: &&dyn Fn([usize; N]) -> T| -> Vec<T> {
            (0..points).map(|at| input(cell(at))).collect()
        };
        let inputs: Vec<Vec<T>> = inputs.iter().map(values).collect();
        let outputs = vec![inputs[0].clone(); outputs];
        Self { cells, ghosts, extents, inner, outputs, inputs, scalars }
    }

    /// Computes the inner points.
    pub(crate) fn step(&mut self, compute: Compute<T>, threads: &Threads) {
        let Self { extents: [_, b, c], inner, .. } = self;
        let steps = [*b * *c, *c];
        let [planes, rows, columns] = inner.clone();
        let outputs = Pointers(pointers(self.outputs.iter_mut().map(|array| array.as_mut_ptr())));
        let (inputs, scalars) = (&self.inputs, self.scalars);
        let count = planes.len() * rows.len();
        let band = (16_384 / columns.len()).max(1);
        threads.for_each(count.div_ceil(band), |chunk| {
            for number in chunk * band..count.min((chunk + 1) * band) {
                let (plane, row) =
                    (planes.start + number / rows.len(), rows.start + number % rows.len());
                let at = plane * steps[0] + row * steps[1] + columns.start;
                let inputs = pointers(inputs.iter().map(|array| array[at..].as_ptr().cast_mut()));
                let row = Row {
                    points: columns.len(),
                    steps,
                    outputs: outputs.at(at),
                    inputs: inputs.map(|pointer| pointer.cast_const()),
                    scalars,
                };
                // SAFETY: the inner points have others around them, and each row is computed once. The processor was
                // checked.
                unsafe { compute(&row) };
            }
        });
    }

    /// The values of an output, without ghosts.
    pub(crate) fn values(&self, output: usize) -> impl Iterator<Item = T> + '_ {
        let [a, b, c] = self.extents;
        let last = self.cells[N - 1];
        let margin = |axis: usize| if axis + N < 3 { 0 } else { self.ghosts };
        let [planes, rows] = [margin(0)..a - margin(0), margin(1)..b - margin(1)];
        planes.flat_map(move |i| {
            rows.clone().flat_map(move |j| {
                self.outputs[output][(i * b + j) * c + self.ghosts..][..last].iter().copied()
            })
        })
    }
}

/// The threads of a plain loop: a pool of several, or the calling one.
pub(crate) struct Threads(Option<ThreadPool>);

impl Threads {
    pub(crate) fn new(threads: usize) -> Self {
        let pool = || ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        Self((threads > 1).then(pool))
    }

    pub(crate) fn for_each(&self, count: usize, f: impl Fn(usize) + Send + Sync) {
        match &self.0 {
            Some(pool) => pool.install(|| (0..count).into_par_iter().for_each(f)),
            None => (0..count).for_each(f),
        }
    }
}

/// The pointers of up to two arrays; the last one again if there are fewer.
fn pointers<T>(mut arrays: impl Iterator<Item = *mut T>) -> [*mut T; 2] {
    let first = arrays.next().expect("an array");
    [first, arrays.next().unwrap_or(first)]
}

/// The starts of two arrays, for all threads.
pub(crate) struct Pointers<T>(pub(crate) [*mut T; 2]);

// SAFETY: threads write different rows.
unsafe impl<T: Send> Sync for Pointers<T> {}

impl<T> Pointers<T> {
    pub(crate) fn at(&self, place: usize) -> [*mut T; 2] {
        // SAFETY: the arrays have this place.
        self.0.map(|pointer| unsafe { pointer.add(place) })
    }
}
