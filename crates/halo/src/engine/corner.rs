//! Averages at corners without cells.

use std::ops::Range;

use runtime_core::{
    Combine, Complex, DType, Device, Element, Memory, RegionCopy, RegionPlan, RegionSide, Result,
    Slot, Stream, bf16, bytemuck, f16,
};

use crate::plan::transfer::{Edge, refuse};
use crate::plan::{ALIGN, box_side};
use crate::{Field, FieldSpec, Side};

/// Sets each ghost of a missing corner to the mean of two ghosts next to the block: the ghost at the same distance
/// beyond the first side, and the ghost at the same distance beyond the other side.
///
/// Devices only copy here and do not compute, so the few values go through the host.
#[derive(Debug)]
pub(crate) struct Corners {
    gather: RegionPlan,
    scatter: RegionPlan,
    memory: Memory<u8>,
    boxes: Vec<Means>,
}

/// The position of the values of one corner: the values beyond one side, then those beyond the other.
#[derive(Debug)]
struct Means {
    dtype: DType,
    start: usize,
    bytes: usize,
}

impl Corners {
    pub(crate) fn new(device: &Device, specs: &[FieldSpec], edges: &[Edge]) -> Result<Self> {
        let (mut gather, mut scatter) = (Vec::new(), Vec::new());
        let mut boxes = Vec::new();
        let (slot, mut end) = (specs.len(), 0_usize);
        for edge in edges.iter().filter(|edge| edge.missing_corner) {
            let spec = &specs[edge.field];
            if !has_means(spec.dtype()) {
                let message =
                    format!("field {}: averages of elements of {}", spec.name(), spec.dtype());
                return Err(refuse(message));
            }
            let extents: Vec<usize> = edge.ranges.iter().map(Range::len).collect();
            let bytes = spec.dtype().size() * extents.iter().product::<usize>();
            let start = end.next_multiple_of(ALIGN);
            let next = bytes.checked_mul(2).and_then(|bytes| bytes.checked_add(start));
            let Some(next) = next.filter(|next| isize::try_from(*next).is_ok()) else {
                let message = format!("field {}: averages of 2^63 bytes or more", spec.name());
                return Err(refuse(message));
            };
            end = next;
            let copy = |source, destination| RegionCopy {
                dtype: spec.dtype(),
                extents: extents.clone(),
                source,
                destination,
                negate: false,
                combine: Combine::Replace,
            };
            for (number, face) in edge.side.faces().enumerate() {
                let near = beyond(spec, edge, face);
                let wire = row_major(spec.dtype(), slot, start + number * bytes, &extents);
                gather.push(copy(near, wire));
            }
            let means = row_major(spec.dtype(), slot, start, &extents);
            scatter.push(copy(means, box_side(spec, edge.field, &edge.ranges)));
            boxes.push(Means { dtype: spec.dtype(), start, bytes });
        }
        Ok(Self {
            gather: device.plan_regions(&gather)?,
            scatter: device.plan_regions(&scatter)?,
            memory: device.memory_allocate(end)?,
            boxes,
        })
    }

    /// Sets the corners after all other ghosts are filled. Blocks until they are.
    pub(crate) fn fill(&mut self, stream: &Stream, fields: &mut [Field<'_>]) -> Result<()> {
        if self.boxes.is_empty() {
            return Ok(());
        }
        let bind = |fields: &mut [Field<'_>], plan: &RegionPlan, memory: &mut Memory<u8>| {
            let mut slots: Vec<Slot<'_>> = fields.iter_mut().map(Field::slot).collect();
            slots.push(memory.view_mut().into());
            plan.execute(stream, &mut slots)
        };
        bind(fields, &self.gather, &mut self.memory)?;
        let mut values = self.memory.to_vec(stream)?;
        for Means { dtype, start, bytes } in &self.boxes {
            let (first, second) = values[*start..start + 2 * bytes].split_at_mut(*bytes);
            means(*dtype, first, second);
        }
        self.memory.copy_from_slice(stream, &values)?;
        bind(fields, &self.scatter, &mut self.memory)
    }
}

/// The ghosts beyond one side of the block next to a corner, each repeated along the corner's other side.
fn beyond(spec: &FieldSpec, edge: &Edge, face: Side) -> RegionSide {
    let mut ranges = edge.ranges.clone();
    let mut repeated = vec![false; ranges.len()];
    for (dim, range) in ranges.iter_mut().enumerate() {
        let Some(axis) = spec.dims()[dim].along() else { continue };
        if edge.side.ends()[axis] != 0 && face.ends()[axis] == 0 {
            // The row of the block next to the corner.
            let owned = spec.dims()[dim].owned();
            let row = if edge.side.ends()[axis] < 0 { owned.start } else { owned.end - 1 };
            *range = row..row + 1;
            repeated[dim] = true;
        }
    }
    let mut side = box_side(spec, edge.field, &ranges);
    for (stride, repeated) in side.strides.iter_mut().zip(repeated) {
        *stride = if repeated { 0 } else { *stride };
    }
    side
}

fn row_major(dtype: DType, slot: usize, offset: usize, extents: &[usize]) -> RegionSide {
    let mut strides = vec![0; extents.len()];
    let mut next = dtype.size();
    for (stride, extent) in strides.iter_mut().zip(extents).rev() {
        *stride = next.cast_signed();
        next *= extent;
    }
    RegionSide { slot, offset, strides }
}

const fn has_means(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::C64 | DType::C128)
}

/// Replaces elements by their means with other elements.
fn means(dtype: DType, values: &mut [u8], others: &[u8]) {
    fn each<T: Element>(values: &mut [u8], others: &[u8], mean: impl Fn(T, T) -> T) {
        let size = size_of::<T>();
        for (value, other) in values.chunks_exact_mut(size).zip(others.chunks_exact(size)) {
            let mean =
                mean(bytemuck::pod_read_unaligned(value), bytemuck::pod_read_unaligned(other));
            value.copy_from_slice(bytemuck::bytes_of(&mean));
        }
    }
    match dtype {
        DType::F16 => {
            each(values, others, |a: f16, b| f16::from_f32(0.5 * (a.to_f32() + b.to_f32())))
        }
        DType::BF16 => {
            each(values, others, |a: bf16, b| bf16::from_f32(0.5 * (a.to_f32() + b.to_f32())))
        }
        DType::F32 => each(values, others, |a: f32, b| 0.5 * (a + b)),
        DType::F64 => each(values, others, |a: f64, b| 0.5 * (a + b)),
        DType::C64 => each(values, others, |a: Complex<f32>, b| (a + b) * 0.5),
        DType::C128 => each(values, others, |a: Complex<f64>, b| (a + b) * 0.5),
        _ => {}
    }
}
