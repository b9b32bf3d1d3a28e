//! What lies beyond the ends of a grid.

use std::ops::Range;

use runtime_core::{
    AnyView, Combine, Device, Error, ErrorKind, RegionCopy, RegionPlan, RegionSide, Result,
};

use crate::shape::{Shape, Widths};

/// The values of a field beyond an end of the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Boundary<T> {
    /// Nothing. Stencils must not read there: see [`Launch::inside`](crate::Launch::inside).
    #[default]
    Nothing,
    /// This value.
    #[doc(alias = "Dirichlet")]
    Value(T),
    /// The values of the field, mirrored. If the field has values at the end itself, as on
    /// [faces](crate::Location::Face), that point is the mirror; otherwise it is between the last cell and the first
    /// ghost. Nothing flows through the end.
    #[doc(alias = "Neumann")]
    #[doc(alias = "no-flux")]
    #[doc(alias = "reflect")]
    Mirror,
    /// As [`Mirror`](Self::Mirror), with the opposite sign.
    OddMirror,
    /// The value of the last point.
    #[doc(alias = "zero-gradient")]
    Clamp,
    /// The values of the line through the last two points: each ghost is twice the point before it, less the one before
    /// that, as `(p + p) - q`.
    Extrapolate,
    /// What a stencil computes: see [`Launch::on`](crate::Launch::on). It must be launched again after each change of the
    /// field, before the ghosts are read.
    #[doc(alias = "Robin")]
    #[doc(alias = "inflow")]
    #[doc(alias = "absorbing")]
    Computed,
}

/// A boundary without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Nothing,
    Value,
    Mirror { odd: bool },
    Clamp,
    Extrapolate,
    Computed,
}

impl<T> Boundary<T> {
    pub(crate) fn rule(&self) -> Rule {
        match self {
            Self::Nothing => Rule::Nothing,
            Self::Value(_) => Rule::Value,
            Self::Mirror => Rule::Mirror { odd: false },
            Self::OddMirror => Rule::Mirror { odd: true },
            Self::Clamp => Rule::Clamp,
            Self::Extrapolate => Rule::Extrapolate,
            Self::Computed => Rule::Computed,
        }
    }
}

impl Rule {
    /// The number of points that `width` ghosts are made of. `staggered` is 1 if there is a point at the end itself.
    pub(crate) fn points(self, width: usize, staggered: usize) -> usize {
        match self {
            _ if width == 0 => 0,
            Self::Mirror { .. } => width + staggered,
            Self::Extrapolate => 2,
            Self::Clamp => 1,
            Self::Nothing | Self::Value | Self::Computed => 0,
        }
    }

    /// Whether copies fill the ghosts.
    fn is_filled(self) -> bool {
        !matches!(self, Self::Nothing | Self::Computed)
    }
}

/// The rules at both ends of each axis.
pub(crate) type Rules = [[Rule; 2]; 3];

/// The copies that fill the ghosts of one field beyond the ends of the grid.
#[derive(Debug)]
pub(crate) struct Filling {
    /// One after the other. Slot 0 is the field, slot 1 the values of boundaries.
    steps: Vec<RegionPlan>,
}

impl Filling {
    /// Plans the copies for ghosts of these widths. The ends are those of the grid that the block has. With corners,
    /// the ghosts beyond the other ends and those of neighbours are filled before.
    pub(crate) fn new(
        device: &Device,
        shape: &Shape,
        rules: &Rules,
        widths: &Widths,
        corners: bool,
    ) -> Result<Self> {
        let plan = Plan { shape, rules, widths, corners };
        let mut steps = Steps::default();
        for axis in 0..shape.rank {
            let first = if corners { steps.0.len() } else { 0 };
            for end in 0..2 {
                plan.end(axis, end, &mut steps, first)?;
            }
        }
        let steps = steps.0.iter().map(|copies| device.plan_regions(copies));
        Ok(Self { steps: steps.collect::<Result<_>>()? })
    }

    /// The steps, in order.
    pub(crate) fn steps(&self) -> &[RegionPlan] {
        &self.steps
    }
}

/// Lists of copies. Those of one list run at once.
#[derive(Default)]
struct Steps(Vec<Vec<RegionCopy>>);

impl Steps {
    fn push(&mut self, step: usize, copy: RegionCopy) {
        while self.0.len() <= step {
            self.0.push(Vec::new());
        }
        self.0[step].push(copy);
    }
}

struct Plan<'a> {
    shape: &'a Shape,
    rules: &'a Rules,
    widths: &'a Widths,
    corners: bool,
}

impl Plan<'_> {
    /// The copies at one end of an axis, from step `first` on.
    fn end(&self, axis: usize, end: usize, steps: &mut Steps, first: usize) -> Result<()> {
        let (rule, width) = (self.rules[axis][end], self.widths[axis][end]);
        if !rule.is_filled() || !self.shape.is_end[axis][end] {
            return Ok(());
        }
        let own = self.shape.own(axis);
        let on_point = usize::from(self.shape.staggered[axis]);
        let needed = rule.points(width, on_point);
        if needed > own.len() {
            let message = format!(
                "a boundary that needs {needed} points along axis {axis}; the block has {}",
                own.len()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, "boundary", message));
        }
        // Point `n` from the end inwards; ghosts are those below 0.
        let at = |n: isize| match end {
            0 => own.start.wrapping_add_signed(n),
            _ => (own.end - 1).wrapping_add_signed(-n),
        };
        for layer in 1..=width {
            let n = layer.cast_signed();
            let ghost = at(-n);
            let copy = |from: usize| self.copy(axis, ghost, from);
            match rule {
                Rule::Nothing | Rule::Computed => {}
                Rule::Value => {
                    let constant = RegionSide {
                        slot: 1,
                        offset: (2 * axis + end) * self.shape.dtype.size(),
                        strides: vec![0; self.shape.rank],
                    };
                    steps.push(first, RegionCopy { source: constant, ..copy(ghost) });
                }
                Rule::Mirror { odd } => {
                    let from = at(n - 1 + on_point.cast_signed());
                    steps.push(first, RegionCopy { negate: odd, ..copy(from) });
                }
                Rule::Clamp => steps.push(first, copy(at(0))),
                Rule::Extrapolate => {
                    // (a + a) - b, with each operation rounded.
                    let (one, two) = (at(1 - n), at(2 - n));
                    let step = first + 2 * (layer - 1);
                    steps.push(step, copy(one));
                    steps.push(step + 1, RegionCopy { combine: Combine::Sum, ..copy(one) });
                    let minus = RegionCopy { combine: Combine::Sum, negate: true, ..copy(two) };
                    steps.push(step + 1, minus);
                }
            }
        }
        Ok(())
    }

    /// A copy of a layer of points across an axis.
    fn copy(&self, axis: usize, to: usize, from: usize) -> RegionCopy {
        let Shape { rank, dtype, .. } = *self.shape;
        let ranges: Vec<Range<usize>> = (0..rank).map(|other| self.across(axis, other)).collect();
        let side = |at: usize| {
            let index = |other: usize| if other == axis { at } else { ranges[other].start };
            let offset: usize = (0..rank).map(|a| index(a) * self.shape.strides[a]).sum();
            let strides =
                self.shape.strides[..rank].iter().map(|s| (s * dtype.size()).cast_signed());
            RegionSide { slot: 0, offset: offset * dtype.size(), strides: strides.collect() }
        };
        RegionCopy {
            dtype,
            extents: (0..rank).map(|a| if a == axis { 1 } else { ranges[a].len() }).collect(),
            source: side(from),
            destination: side(to),
            negate: false,
            combine: Combine::Replace,
        }
    }

    /// The points along `other` of a layer across `axis`. With corners, they include ghosts that are filled before.
    fn across(&self, axis: usize, other: usize) -> Range<usize> {
        let own = self.shape.own(other);
        if !self.corners {
            return own;
        }
        let beyond = |end: usize| {
            let is_end = self.shape.is_end[other][end];
            let is_filled =
                if is_end { other < axis && self.rules[other][end].is_filled() } else { true };
            if is_filled { self.widths[other][end] } else { 0 }
        };
        own.start - beyond(0)..own.end + beyond(1)
    }
}

/// The values of boundaries on a device: for each axis, those at its two ends.
pub(crate) trait Constants: Send {
    fn view(&self) -> AnyView<'_>;
}

impl<T: runtime_core::Element> Constants for runtime_core::Memory<T> {
    fn view(&self) -> AnyView<'_> {
        self.view().erase()
    }
}
