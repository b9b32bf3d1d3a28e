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

impl<T> Row<T> {
    /// # Safety
    ///
    /// As [`Compute`] says.
    #[inline(always)]
    unsafe fn output<'a>(&self, number: usize) -> &'a mut [T] {
        // SAFETY: the caller guarantees it.
        unsafe { slice::from_raw_parts_mut(self.outputs[number], self.points) }
    }

    /// The row of an output at a distance along the first axis.
    ///
    /// # Safety
    ///
    /// As [`Compute`] says.
    #[inline(always)]
    unsafe fn computed<'a>(&self, number: usize, planes: isize) -> &'a [T] {
        let first = self.outputs[number].wrapping_offset(planes * self.steps[0].cast_signed());
        // SAFETY: the caller guarantees it.
        unsafe { slice::from_raw_parts(first, self.points) }
    }

    /// The row at a distance, from `before` points before its start to as many behind its end.
    ///
    /// # Safety
    ///
    /// As [`Compute`] says.
    #[inline(always)]
    unsafe fn input<'a>(
        &self,
        number: usize,
        planes: isize,
        rows: isize,
        before: usize,
    ) -> &'a [T] {
        let [plane, row] = self.steps.map(usize::cast_signed);
        let first = self.inputs[number].wrapping_offset(planes * plane + rows * row);
        // SAFETY: the caller guarantees it.
        unsafe { slice::from_raw_parts(first.wrapping_sub(before), self.points + 2 * before) }
    }
}

/// The points of a row at this distance from its start.
#[inline(always)]
fn from<T>(row: &[T], start: usize, points: usize) -> &[T] {
    &row[start..][..points]
}

/// Functions for processors of level v3. Each calls one with slices as parameters, of which the compiler knows that
/// they do not overlap.
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
    copy, f64: |row| copy_row(row.output(0), row.input(0, 0, 0, 0));
    five_point, f64: |row| five_point_row(
        row.output(0),
        row.input(0, 0, -1, 0),
        row.input(0, 0, 0, 1),
        row.input(0, 0, 1, 0),
        row.scalars[0],
    );
    seven_point, f64: |row| seven_point_row(
        row.output(0),
        [row.input(0, -1, 0, 0), row.input(0, 1, 0, 0)],
        row.input(0, 0, -1, 0),
        row.input(0, 0, 0, 1),
        row.input(0, 0, 1, 0),
        row.scalars[0],
    );
    hdiff, f64: |row| hdiff_row(
        row.output(0),
        [-2, -1, 0, 1, 2].map(|by| row.input(0, 0, by, 2)),
        row.input(1, 0, 0, 0),
    );
    gray_scott, f32: |row| gray_scott_row(
        row.output(0),
        row.output(1),
        [-1, 0, 1].map(|by| row.input(0, 0, by, 1)),
        [-1, 0, 1].map(|by| row.input(1, 0, by, 1)),
        row.scalars,
    );
    eliminate_first, f64: |row| eliminate_first_row(
        row.output(0),
        row.output(1),
        row.input(0, 0, 0, 0),
        row.input(1, 0, 0, 0),
    );
    eliminate, f64: |row| eliminate_row(
        row.output(0),
        row.output(1),
        row.computed(0, -1),
        row.computed(1, -1),
        row.input(0, 0, 0, 0),
        row.input(1, -1, 0, 0),
        row.input(1, 0, 0, 0),
    );
    substitute, f64: |row| substitute_row(
        row.output(0),
        row.computed(0, 1),
        row.input(0, 0, 0, 0),
        row.input(1, 0, 0, 0),
    );
}

#[inline(always)]
fn copy_row(next: &mut [f64], t: &[f64]) {
    for (next, t) in next.iter_mut().zip(t) {
        *next = *t;
    }
}

#[inline(always)]
fn five_point_row(next: &mut [f64], north: &[f64], row: &[f64], south: &[f64], a: f64) {
    let n = next.len();
    let [west, here, east] = [0, 1, 2].map(|by| from(row, by, n));
    for x in 0..n {
        let around = north[x] + south[x] + west[x] + east[x];
        next[x] = here[x] + a * (around - 4.0 * here[x]);
    }
}

#[inline(always)]
fn seven_point_row(
    next: &mut [f64],
    [low, high]: [&[f64]; 2],
    north: &[f64],
    row: &[f64],
    south: &[f64],
    a: f64,
) {
    let n = next.len();
    let [west, here, east] = [0, 1, 2].map(|by| from(row, by, n));
    for x in 0..n {
        let around = low[x] + high[x] + north[x] + south[x] + west[x] + east[x];
        next[x] = here[x] + a * (around - 6.0 * here[x]);
    }
}

#[inline(always)]
fn hdiff_row(next: &mut [f64], q: [&[f64]; 5], coefficient: &[f64]) {
    let n = next.len();
    let columns = q.map(|row| [0, 1, 2, 3, 4].map(|by| from(row, by, n)));
    let limited = |flux: f64, slope: f64| if flux * slope > 0.0 { 0.0 } else { flux };
    for x in 0..n {
        let q = |i: usize, j: usize| columns[i][j][x];
        let laplacian =
            |i, j| 4.0 * q(i, j) - (q(i, j + 1) + q(i, j - 1) + (q(i + 1, j) + q(i - 1, j)));
        let here = laplacian(2, 2);
        let south = limited(laplacian(3, 2) - here, q(3, 2) - q(2, 2));
        let north = limited(here - laplacian(1, 2), q(2, 2) - q(1, 2));
        let east = limited(laplacian(2, 3) - here, q(2, 3) - q(2, 2));
        let west = limited(here - laplacian(2, 1), q(2, 2) - q(2, 1));
        next[x] = q(2, 2) - coefficient[x] * ((east - west) + (south - north));
    }
}

#[inline(always)]
fn gray_scott_row(
    u_next: &mut [f32],
    v_next: &mut [f32],
    u: [&[f32]; 3],
    v: [&[f32]; 3],
    [feed, kill]: [f32; 2],
) {
    let n = u_next.len();
    let v_next = &mut v_next[..n];
    let [u, v] = [u, v].map(|f| f.map(|row| [0, 1, 2].map(|by| from(row, by, n))));
    for x in 0..n {
        let laplacian = |f: &[[&[f32]; 3]; 3]| {
            let at = |i: usize, j: usize| f[i][j][x];
            let sides = at(0, 1) + at(2, 1) + at(1, 0) + at(1, 2);
            let corners = at(0, 0) + at(0, 2) + at(2, 0) + at(2, 2);
            0.2 * sides + 0.05 * corners - at(1, 1)
        };
        let (u_here, v_here) = (u[1][1][x], v[1][1][x]);
        let eaten = u_here * v_here * v_here;
        u_next[x] = u_here + laplacian(&u) - eaten + feed * (1.0 - u_here);
        v_next[x] = v_here + 0.5 * laplacian(&v) + eaten - (feed + kill) * v_here;
    }
}

#[inline(always)]
fn eliminate_first_row(c: &mut [f64], d: &mut [f64], t: &[f64], above: &[f64]) {
    let n = c.len();
    let (d, t, above) = (&mut d[..n], &t[..n], &above[..n]);
    for x in 0..n {
        let b = 1.0 + above[x];
        c[x] = above[x] / b;
        d[x] = t[x] / b;
    }
}

#[inline(always)]
fn eliminate_row(
    c: &mut [f64],
    d: &mut [f64],
    c_before: &[f64],
    d_before: &[f64],
    t: &[f64],
    below: &[f64],
    above: &[f64],
) {
    let n = c.len();
    let (d, c_before, d_before) = (&mut d[..n], &c_before[..n], &d_before[..n]);
    let (t, below, above) = (&t[..n], &below[..n], &above[..n]);
    for x in 0..n {
        let b = 1.0 + above[x] + below[x] * (1.0 - c_before[x]);
        c[x] = above[x] / b;
        d[x] = (t[x] + below[x] * d_before[x]) / b;
    }
}

#[inline(always)]
fn substitute_row(t: &mut [f64], before: &[f64], d: &[f64], c: &[f64]) {
    let n = t.len();
    let (before, d, c) = (&before[..n], &d[..n], &c[..n]);
    for x in 0..n {
        t[x] = d[x] + c[x] * before[x];
    }
}
