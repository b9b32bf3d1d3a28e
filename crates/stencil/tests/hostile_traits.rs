//! Stencils in a module whose traits have methods of the names that generated code could use.
#![forbid(unsafe_code)]

use backend_host::HostDevice;
use runtime_core::Device;
use stencil::{Boundary, Grid, Result};

/// Without the prelude, these traits alone are in scope.
#[no_implicit_prelude]
mod hostile {
    use ::core::ops::Range;

    use ::stencil::{In, InOut, Out, column, reduction, stencil};

    #[expect(dead_code, reason = "generated code must not find them")]
    trait Rows {
        fn clone(&self) -> Range<usize>;
        fn rev(self) -> Range<usize>;
        fn into_iter(self) -> Range<usize>;
        fn len(&self) -> usize;
        fn next(&mut self) -> ::core::option::Option<usize>;
    }

    impl Rows for Range<usize> {
        fn clone(&self) -> Range<usize> {
            0..50_000_000
        }

        fn rev(self) -> Range<usize> {
            self
        }

        fn into_iter(self) -> Range<usize> {
            0..50_000_000
        }

        fn len(&self) -> usize {
            50_000_000
        }

        fn next(&mut self) -> ::core::option::Option<usize> {
            ::core::option::Option::None
        }
    }

    /// For every type.
    #[expect(dead_code, reason = "generated code must not find them")]
    trait Any<T> {
        fn from(value: T) -> Self;
        fn offset(self, by: isize) -> Self;
        fn cast(self) -> Self;
        fn into(self) -> T;
    }

    impl<A, B> Any<A> for B {
        fn from(_: A) -> Self {
            ::core::unreachable!()
        }

        fn offset(self, _: isize) -> Self {
            self
        }

        fn cast(self) -> Self {
            self
        }

        fn into(self) -> A {
            ::core::unreachable!()
        }
    }

    #[stencil]
    pub(super) fn step(next: Out<f64, 3>, t: In<f64, 3>, by: f64, n: i32) {
        next.set(t.at(0, 0, -1) + by * t.at(0, 1, 0) + n as f64);
    }

    #[stencil]
    pub(super) fn grow(t: InOut<f64, 3>, by: f32) {
        t.set(t.at(0, 0, 0) * by as f64);
    }

    #[column(forward)]
    pub(super) fn up(sum: Out<f64, 3>, t: In<f64, 3>) {
        if first() {
            sum.set(t.at(0, 0, 0));
        } else {
            sum.set(sum.at(-1, 0, 0) + t.at(0, 0, 0));
        }
    }

    #[column(backward, axis = 1)]
    pub(super) fn down(sum: Out<f64, 3>, t: In<f64, 3>) {
        if first() {
            sum.set(t.at(0, 0, 0));
        } else {
            sum.set(sum.at(0, 1, 0) + t.at(0, 0, 0));
        }
    }

    #[column(forward, axis = 2)]
    pub(super) fn right(sum: Out<f64, 3>, t: In<f64, 3>) {
        if first() {
            sum.set(t.at(0, 0, 0));
        } else {
            sum.set(sum.at(0, 0, -1) + t.at(0, 0, 0));
        }
    }

    #[column(backward, axis = 2)]
    pub(super) fn left(sum: Out<f64, 3>, t: In<f64, 3>) {
        if first() {
            sum.set(t.at(0, 0, 0));
        } else {
            sum.set(sum.at(0, 0, 1) + t.at(0, 0, 0));
        }
    }

    #[reduction(sum)]
    pub(super) fn total(t: In<f64, 3>, by: f64) -> f64 {
        by * t.at(0, 0, 0)
    }
}

#[test]
fn traits_of_the_program_do_not_change_stencils() -> Result<()> {
    use hostile::{down, grow, left, right, step, total, up};

    let device = Device::new(HostDevice::with_threads(0, 1)?)?;
    let stream = device.default_stream();
    let [m, n, k] = [3, 4, 5];
    let grid = Grid::cartesian([m, n, k]).build(&device)?;
    let t = grid.field("t").boundary(Boundary::Value(1.0)).filled(1.0)?;
    let mut out = t.like("out")?;
    type Expected = fn([usize; 3]) -> usize;
    let expected: [Expected; 4] = [|at| at[0] + 1, |at| 4 - at[1], |at| at[2] + 1, |at| 5 - at[2]];
    for (number, expected) in expected.into_iter().enumerate() {
        let column = match number {
            0 => up(&mut out, &t),
            1 => down(&mut out, &t),
            2 => right(&mut out, &t),
            _ => left(&mut out, &t),
        };
        column.run(&stream)?;
        for (at, value) in out.read_host()?.indexed_iter() {
            assert_eq!(*value, expected([at[0], at[1], at[2]]) as f64, "{number}: {at:?}");
        }
    }
    step(&mut out, &t, 2.0, 4).run(&stream)?;
    grow(&mut out, 0.5).run(&stream)?;
    assert!(out.read_host()?.iter().all(|value| *value == 3.5));
    assert_eq!(total(&out, 2.0).run(&stream)?.get()?, (7 * m * n * k) as f64);
    Ok(())
}
