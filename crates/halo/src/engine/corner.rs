//! Ghosts at corners where tiles meet without a cell: constants and averages.

use std::ops::{Add, Range};
use std::time::Duration;

use runtime_core::{
    Bool, Combine, Complex, DType, Device, Element, Error, Memory, RegionCopy, RegionPlan,
    RegionSide, Result, Stream, StreamOptions, bf16, bytemuck, f16,
};

use crate::field::{Field, FieldSpec, execute};
use crate::plan::ALIGN;
use crate::plan::copies::{box_side, row_major};
use crate::plan::transfer::{Edge, refuse};
use crate::topology::Side;

/// The value of each field's elements at missing corners, 16 bytes apart.
const CONSTANT_BYTES: usize = 16;

/// The memory of a constant for each field, if there are missing corners.
pub(crate) fn constants(
    device: &Device,
    specs: &[FieldSpec],
    edges: &[Edge],
    value: f64,
) -> Result<Option<Memory<u8>>> {
    if !edges.iter().any(|edge| edge.missing_corner) {
        return Ok(None);
    }
    let mut values = Vec::new();
    for spec in specs {
        values.extend(element(spec.dtype(), value).ok_or_else(|| no_numbers(spec))?);
    }
    // On another stream, the device could skip the copy behind a failure.
    let own = device.stream_create(&StreamOptions::default())?;
    let constants = device.memory_from_slice(&own, &values)?;
    own.synchronize().map(|()| Some(constants))
}

/// The copies that set missing corners to the constants in the memory bound to `slot`.
pub(crate) fn fills<'a>(
    specs: &'a [FieldSpec],
    edges: &'a [Edge],
    slot: usize,
) -> impl Iterator<Item = RegionCopy> + 'a {
    edges.iter().filter(|edge| edge.missing_corner).map(move |edge| {
        let (spec, strides) = (&specs[edge.field], vec![0; edge.ranges.len()]);
        RegionCopy {
            dtype: spec.dtype(),
            extents: edge.ranges.iter().map(Range::len).collect(),
            source: RegionSide { slot, offset: edge.field * CONSTANT_BYTES, strides },
            destination: box_side(spec, edge.field, &edge.ranges),
            negate: false,
            combine: Combine::Replace,
        }
    })
}

fn no_numbers(spec: &FieldSpec) -> Error {
    let (name, dtype) = (spec.name(), spec.dtype());
    refuse(format!("field {name}: {dtype} is no number, so missing corners keep their values only"))
}

/// Converts a number to the bytes of an element. `None` for a record.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers are rounded to the type on purpose, and saturate"
)]
fn element(dtype: DType, value: f64) -> Option<[u8; CONSTANT_BYTES]> {
    fn bytes(value: impl Element) -> [u8; CONSTANT_BYTES] {
        let mut bytes = [0; CONSTANT_BYTES];
        let value = bytemuck::bytes_of(&value);
        bytes[..value.len()].copy_from_slice(value);
        bytes
    }
    Some(match dtype {
        DType::Bool => bytes(Bool::from(value != 0.0)),
        DType::I8 => bytes(value as i8),
        DType::I16 => bytes(value as i16),
        DType::I32 => bytes(value as i32),
        DType::I64 => bytes(value as i64),
        DType::U8 => bytes(value as u8),
        DType::U16 => bytes(value as u16),
        DType::U32 => bytes(value as u32),
        DType::U64 => bytes(value as u64),
        DType::F16 => bytes(f16::from_f64(value)),
        DType::BF16 => bytes(bf16::from_f64(value)),
        DType::F32 => bytes(value as f32),
        DType::F64 => bytes(value),
        DType::C64 => bytes(Complex::new(value as f32, 0.0)),
        DType::C128 => bytes(Complex::new(value, 0.0)),
        DType::Record(_) => return None,
    })
}

/// Sets each ghost of a missing corner to a mean: see [`MissingCorners::Average`](crate::MissingCorners::Average).
///
/// Devices only copy here and do not compute, so the few values go through the host.
#[derive(Debug)]
pub(crate) struct Corners {
    gather: RegionPlan,
    scatter: RegionPlan,
    memory: Memory<u8>,
    boxes: Vec<Means>,
}

/// The position of the values of one corner: the values beyond each side, one side after the other.
#[derive(Debug)]
struct Means {
    dtype: DType,
    start: usize,
    bytes: usize,
    sides: usize,
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
            let size = spec.dtype().size();
            let bytes = size * extents.iter().product::<usize>();
            let start = end.next_multiple_of(ALIGN);
            let sides = edge.side.faces().count();
            let next = bytes.checked_mul(sides).and_then(|bytes| bytes.checked_add(start));
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
                let wire = row_major(size, slot, start + number * bytes, &extents);
                gather.push(copy(near, wire));
            }
            let means = row_major(size, slot, start, &extents);
            scatter.push(copy(means, box_side(spec, edge.field, &edge.ranges)));
            boxes.push(Means { dtype: spec.dtype(), start, bytes, sides });
        }
        Ok(Self {
            gather: device.plan_regions(&gather)?,
            scatter: device.plan_regions(&scatter)?,
            memory: device.memory_allocate(end)?,
            boxes,
        })
    }

    /// Sets the corners after all other ghosts are filled. Blocks until they are, at most for `timeout`.
    pub(crate) fn fill(
        &mut self,
        stream: &Stream,
        fields: &mut [Field<'_>],
        timeout: Duration,
    ) -> Result<()> {
        if self.boxes.is_empty() {
            return Ok(());
        }
        execute(&self.gather, stream, fields, vec![self.memory.view_mut().into()])?;
        stream.synchronize_for(timeout)?;
        let mut values = self.memory.to_vec(stream)?;
        for Means { dtype, start, bytes, sides } in &self.boxes {
            let (first, others) = values[*start..start + sides * bytes].split_at_mut(*bytes);
            means(*dtype, first, others);
        }
        self.memory.copy_from_slice(stream, &values)?;
        execute(&self.scatter, stream, fields, vec![self.memory.view_mut().into()])
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

const fn has_means(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::C64 | DType::C128)
}

/// Replaces elements by their means with other elements, of which there are as many, once or several times.
fn means(dtype: DType, values: &mut [u8], others: &[u8]) {
    fn each<T: Element, S: Copy + Add<Output = S>>(
        values: &mut [u8],
        others: &[u8],
        wide: impl Fn(T) -> S,
        narrow: impl Fn(S, f64) -> T,
    ) {
        let (size, bytes) = (size_of::<T>(), values.len());
        let count = (others.len() / bytes.max(1) + 1) as f64;
        for (index, value) in values.chunks_exact_mut(size).enumerate() {
            let others = others.chunks_exact(bytes).map(|other| &other[index * size..][..size]);
            let sum = others
                .map(|other| wide(bytemuck::pod_read_unaligned(other)))
                .fold(wide(bytemuck::pod_read_unaligned(value)), |sum, other| sum + other);
            value.copy_from_slice(bytemuck::bytes_of(&narrow(sum, count)));
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "a mean of values of a type fits it")]
    match dtype {
        DType::F16 => each(values, others, f16::to_f64, |sum, n| f16::from_f64(sum / n)),
        DType::BF16 => each(values, others, bf16::to_f64, |sum, n| bf16::from_f64(sum / n)),
        DType::F32 => each(values, others, f64::from, |sum, n| (sum / n) as f32),
        DType::F64 => each(values, others, |value: f64| value, |sum, n| sum / n),
        DType::C64 => {
            let wide = |value: Complex<f32>| Complex::new(value.re.into(), value.im.into());
            let narrow = |value: Complex<f64>| Complex::new(value.re as f32, value.im as f32);
            each(values, others, wide, |sum, n| narrow(sum / n));
        }
        DType::C128 => each(values, others, |value: Complex<f64>| value, |sum, n| sum / n),
        _ => {}
    }
}
