//! Rows of stencils, written by hand, with the same features of the processor as the stencils have.

use std::slice;

/// A row of a plain program.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Row<T> {
    pub(crate) points: usize,
    /// The elements from plane to plane, and from row to row.
    pub(crate) steps: [usize; 2],
    /// The first point in each array.
    pub(crate) outputs: [*mut T; 2],
    pub(crate) inputs: [*const T; 2],
    pub(crate) scalars: [T; 2],
}

/// Computes a row.
///
/// # Safety
///
/// The arrays have the points of the row and those around it that the stencil reads. Nothing else refers to those of
/// the outputs. The processor has the features of the function.
pub(crate) type Compute<T> = unsafe extern "C" fn(&Row<T>);

impl<T: Copy> Row<T> {
    /// # Safety
    ///
    /// As [`Compute`] says.
    #[inline(always)]
    unsafe fn output<'a>(&self, number: usize) -> &'a mut [T] {
        // SAFETY: the caller guarantees it.
        unsafe { slice::from_raw_parts_mut(self.outputs[number], self.points) }
    }

    /// The row of an output at a distance along the first axis.
    #[inline(always)]
    fn computed(&self, number: usize, planes: isize) -> Place<T> {
        Place { first: self.outputs[number], steps: self.steps }.shift(planes, 0, 0)
    }

    #[inline(always)]
    fn input(&self, number: usize) -> Place<T> {
        Place { first: self.inputs[number], steps: self.steps }
    }
}

/// A point of an array, which is read at distances from it.
#[derive(Clone, Copy)]
struct Place<T> {
    first: *const T,
    steps: [usize; 2],
}

impl<T: Copy> Place<T> {
    #[inline(always)]
    fn shift(self, planes: isize, rows: isize, points: isize) -> Self {
        let [plane, row] = self.steps.map(usize::cast_signed);
        Self { first: self.first.wrapping_offset(planes * plane + rows * row + points), ..self }
    }

    /// # Safety
    ///
    /// The array has this point.
    #[inline(always)]
    unsafe fn at(self, x: usize, planes: isize, rows: isize, points: isize) -> T {
        // SAFETY: the caller guarantees it.
        unsafe { *self.shift(planes, rows, points).first.wrapping_add(x) }
    }
}

/// Functions for processors of level v3. Each calls one with the outputs as parameters, of which the compiler knows that
/// nothing else refers to them.
macro_rules! rows {
    ($($name:ident, $ty:ty: |$row:ident| $call:expr;)*) => {$(
        #[cfg_attr(
            target_arch = "x86_64",
            target_feature(enable = "avx,avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe")
        )]
        pub(crate) unsafe extern "C" fn $name($row: &Row<$ty>) {
            // SAFETY: the caller guarantees it.
            unsafe { $call }
        }
    )*};
}

rows! {
    copy, f64: |row| copy_row(row.output(0), row.input(0));
    five_point, f64: |row| five_point_row(row.output(0), row.input(0), row.scalars[0]);
    seven_point, f64: |row| seven_point_row(row.output(0), row.input(0), row.scalars[0]);
    hdiff, f64: |row| hdiff_row(row.output(0), row.input(0), row.input(1));
    gray_scott, f32: |row| gray_scott_row(
        row.output(0),
        row.output(1),
        row.input(0),
        row.input(1),
        row.scalars,
    );
    eliminate_first, f64: |row| eliminate_first_row(
        row.output(0),
        row.output(1),
        row.input(0),
        row.input(1),
    );
    eliminate, f64: |row| eliminate_row(
        row.output(0),
        row.output(1),
        row.computed(0, -1),
        row.computed(1, -1),
        row.input(0),
        row.input(1),
    );
    substitute, f64: |row| substitute_row(
        row.output(0),
        row.computed(0, 1),
        row.input(0),
        row.input(1),
    );
}

#[inline(always)]
unsafe fn copy_row(next: &mut [f64], t: Place<f64>) {
    for (x, next) in next.iter_mut().enumerate() {
        // SAFETY: the caller guarantees it.
        *next = unsafe { t.at(x, 0, 0, 0) };
    }
}

#[inline(always)]
unsafe fn five_point_row(next: &mut [f64], t: Place<f64>, a: f64) {
    for (x, next) in next.iter_mut().enumerate() {
        // SAFETY: the caller guarantees it.
        let t = |i, j| unsafe { t.at(x, 0, i, j) };
        let around = t(-1, 0) + t(1, 0) + t(0, -1) + t(0, 1);
        *next = t(0, 0) + a * (around - 4.0 * t(0, 0));
    }
}

#[inline(always)]
unsafe fn seven_point_row(next: &mut [f64], t: Place<f64>, a: f64) {
    for (x, next) in next.iter_mut().enumerate() {
        // SAFETY: the caller guarantees it.
        let t = |i, j, k| unsafe { t.at(x, i, j, k) };
        let across = t(-1, 0, 0) + t(1, 0, 0) + t(0, -1, 0) + t(0, 1, 0);
        let around = across + t(0, 0, -1) + t(0, 0, 1);
        *next = t(0, 0, 0) + a * (around - 6.0 * t(0, 0, 0));
    }
}

#[inline(always)]
unsafe fn hdiff_row(next: &mut [f64], q: Place<f64>, coefficient: Place<f64>) {
    let limited = |flux: f64, slope: f64| if flux * slope > 0.0 { 0.0 } else { flux };
    for (x, next) in next.iter_mut().enumerate() {
        // SAFETY: the caller guarantees it.
        let q = |i, j| unsafe { q.at(x, 0, i, j) };
        let laplacian =
            |i, j| 4.0 * q(i, j) - (q(i, j + 1) + q(i, j - 1) + (q(i + 1, j) + q(i - 1, j)));
        let here = laplacian(0, 0);
        let south = limited(laplacian(1, 0) - here, q(1, 0) - q(0, 0));
        let north = limited(here - laplacian(-1, 0), q(0, 0) - q(-1, 0));
        let east = limited(laplacian(0, 1) - here, q(0, 1) - q(0, 0));
        let west = limited(here - laplacian(0, -1), q(0, 0) - q(0, -1));
        // SAFETY: as above.
        let coefficient = unsafe { coefficient.at(x, 0, 0, 0) };
        *next = q(0, 0) - coefficient * ((east - west) + (south - north));
    }
}

#[inline(always)]
unsafe fn gray_scott_row(
    u_next: &mut [f32],
    v_next: &mut [f32],
    u: Place<f32>,
    v: Place<f32>,
    [feed, kill]: [f32; 2],
) {
    for (x, (u_next, v_next)) in u_next.iter_mut().zip(v_next).enumerate() {
        let laplacian = |f: Place<f32>| {
            // SAFETY: the caller guarantees it.
            let f = |i, j| unsafe { f.at(x, 0, i, j) };
            let sides = f(-1, 0) + f(1, 0) + f(0, -1) + f(0, 1);
            let corners = f(-1, -1) + f(-1, 1) + f(1, -1) + f(1, 1);
            0.2 * sides + 0.05 * corners - f(0, 0)
        };
        // SAFETY: as above.
        let [u_here, v_here] = [u, v].map(|f| unsafe { f.at(x, 0, 0, 0) });
        let eaten = u_here * v_here * v_here;
        *u_next = u_here + laplacian(u) - eaten + feed * (1.0 - u_here);
        *v_next = v_here + 0.5 * laplacian(v) + eaten - (feed + kill) * v_here;
    }
}

#[inline(always)]
unsafe fn eliminate_first_row(c: &mut [f64], d: &mut [f64], t: Place<f64>, a: Place<f64>) {
    for (x, (c, d)) in c.iter_mut().zip(d).enumerate() {
        // SAFETY: the caller guarantees it.
        let [t, a] = [t, a].map(|f| unsafe { f.at(x, 0, 0, 0) });
        let b = 1.0 + a;
        *c = a / b;
        *d = t / b;
    }
}

#[inline(always)]
unsafe fn eliminate_row(
    c: &mut [f64],
    d: &mut [f64],
    c_before: Place<f64>,
    d_before: Place<f64>,
    t: Place<f64>,
    a: Place<f64>,
) {
    for (x, (c, d)) in c.iter_mut().zip(d).enumerate() {
        // SAFETY: the caller guarantees it.
        let [c_before, d_before, t, above] =
            [c_before, d_before, t, a].map(|f| unsafe { f.at(x, 0, 0, 0) });
        // SAFETY: as above.
        let below = unsafe { a.at(x, -1, 0, 0) };
        let b = 1.0 + above + below * (1.0 - c_before);
        *c = above / b;
        *d = (t + below * d_before) / b;
    }
}

#[inline(always)]
unsafe fn substitute_row(t: &mut [f64], before: Place<f64>, d: Place<f64>, c: Place<f64>) {
    for (x, t) in t.iter_mut().enumerate() {
        // SAFETY: the caller guarantees it.
        let [before, d, c] = [before, d, c].map(|f| unsafe { f.at(x, 0, 0, 0) });
        *t = d + c * before;
    }
}
