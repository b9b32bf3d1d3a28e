//! Region copies in host memory against `copy_nonoverlapping` and `ndarray`'s `assign` of the same views.

use std::hint::black_box;
use std::process::ExitCode;

use benches::{Bench, Rival};
use ndarray::{
    Array2, Array3, ArrayView, ArrayViewMut, Axis, Dimension, ShapeBuilder, Slice, s,
};
use rayon::prelude::*;
use runtime_core::{Combine, DType, Element, HostSlot, RegionCopy, RegionProgram, RegionSide};

/// A copy from one view to another, ready to run both ways.
struct Case<'a, T, D: Dimension> {
    to: ArrayViewMut<'a, T, D>,
    from: ArrayView<'a, T, D>,
    program: RegionProgram,
    slots: [HostSlot; 2],
}

impl<'a, T: Element, D: Dimension> Case<'a, T, D> {
    /// `to` and `from` may have any strides; both views must be of the same shape.
    fn new(mut to: ArrayViewMut<'a, T, D>, from: ArrayView<'a, T, D>) -> Self {
        assert_eq!(to.shape(), from.shape());
        let bytes = size_of::<T>().cast_signed();
        // Slots start at the lowest element.
        let side = |slot: usize, strides: &[isize]| {
            let strides: Vec<isize> = strides.iter().map(|stride| stride * bytes).collect();
            let below = from.shape().iter().zip(&strides).map(|(extent, stride)| {
                (extent - 1) * stride.min(&0).unsigned_abs()
            });
            RegionSide { slot, offset: below.sum(), strides }
        };
        let (source, destination) = (side(0, from.strides()), side(1, to.strides()));
        let bases = [
            from.as_ptr().cast::<u8>().wrapping_sub(source.offset).cast_mut(),
            to.as_mut_ptr().cast::<u8>().wrapping_sub(destination.offset),
        ];
        let entry = RegionCopy {
            dtype: T::DTYPE,
            extents: from.shape().to_vec(),
            source,
            destination,
            negate: false,
            combine: Combine::Replace,
        };
        let program = RegionProgram::new(&[entry]).expect("views of arrays are sound regions");
        let slots = [0, 1].map(|slot| HostSlot { base: bases[slot], len: program.slots()[slot].bytes });
        Self { to, from, program, slots }
    }

    fn bytes(&self) -> u64 {
        self.program.bytes()
    }

    /// Compares one thread with one thread.
    fn compare(mut self, bench: &mut Bench, name: String, target: f64) {
        let (program, slots) = (&self.program, self.slots);
        let bytes = self.bytes();
        bench.compare(
            name,
            bytes,
            // SAFETY: the slots are the two views, which nobody else uses during the call.
            &mut || unsafe { black_box(program).run(black_box(&slots)) },
            &mut [Rival {
                name: "ndarray",
                target,
                run: &mut || black_box(&mut self.to).assign(black_box(&self.from)),
            }],
        );
    }
}
