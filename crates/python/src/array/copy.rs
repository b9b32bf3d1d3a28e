//! Copies between arrays of devices and of the host.
#![expect(unsafe_code, reason = "host memory is lent as bytes for the length of a copy")]

use std::ops::Range;
use std::sync::Arc;
use std::{ptr, slice};

use pyo3::prelude::*;
use runtime::{Device, Layout, Stream};

use super::host::HostArray;
use super::index::{Order, dense_order};
use super::work::{Asked, Chosen, Turn};
use super::{DeviceArray, Part};
use crate::dtype;
use crate::error::{Failure, Result};
use crate::pinned::PinnedArray;

/// Refuses a copy between arrays of different element types or shapes.
fn check_alike(operation: &'static str, to: &Layout, from: &Layout) -> Result<()> {
    if to.dtype() == from.dtype() && to.shape() == from.shape() {
        return Ok(());
    }
    let name = |layout: &Layout| format!("{} {:?}", dtype::name(layout.dtype()), layout.shape());
    Err(Failure::invalid(operation, format!("an array {} for one {}", name(from), name(to))))
}

/// Whether both have their elements in the same order without gaps. If so, copying the bytes copies the elements.
fn are_dense_alike(one: &Layout, other: &Layout) -> bool {
    let dense = dense_order(one);
    dense.is_some() && dense == dense_order(other)
}

/// Enqueues a copy within a device, in the caller's turn. The shapes are equal.
pub(super) fn on_device(stream: &Stream, to: &Part, from: &Part) -> Result<()> {
    if from.layout.is_empty() {
        return Ok(());
    }
    if Arc::ptr_eq(&to.block, &from.block) {
        let aside =
            Part::allocate(stream.device(), from.layout.shape(), from.layout.dtype(), Order::C)?;
        on_device(stream, &aside, from)?;
        return on_device(stream, to, &aside);
    }
    let (source, target) = (from.hold()?, to.hold()?);
    if are_dense_alike(&to.layout, &from.layout) {
        return Ok(to.bytes_mut(&target)?.copy_from(stream, &from.bytes(&source)?)?);
    }
    Ok(to.view_mut(&target)?.copy_from(stream, &from.view(&source)?)?)
}

/// Enqueues a fill of every element.
pub(super) fn fill(asked: Asked<'_>, part: &Part, value: &dtype::Value) -> Result<()> {
    if part.layout.is_empty() {
        return Ok(());
    }
    let on = Chosen::of(asked, part);
    let _turn = Turn::take([on.writes(part)])?;
    let held = part.hold()?;
    let view = match dense_order(&part.layout) {
        Some(_) => {
            let row = Layout::row(part.layout.dtype(), part.layout.len())?;
            held.view_mut(part.first_byte(), &row)?
        }
        None => part.view_mut(&held)?,
    };
    dtype::with_element!(part.layout.dtype(), T => {
        view.typed::<T>()?.fill(&on.stream, value.element()?)?;
    });
    Ok(())
}

/// The array if it has no gaps, in its own order; otherwise a copy without gaps, in the order `order`. The copy is
/// enqueued in the caller's turn.
pub(crate) fn packed(stream: &Stream, part: &Part, order: Order) -> Result<Part> {
    let packed = order.layout(part.layout.dtype(), part.layout.shape())?;
    if are_dense_alike(&part.layout, &packed) {
        return Ok(part.clone());
    }
    copied(stream, part, order)
}

/// Copies the elements without gaps, in this order, into new memory, in the caller's turn.
fn copied(stream: &Stream, part: &Part, order: Order) -> Result<Part> {
    let copy = Part::allocate(stream.device(), part.layout.shape(), part.layout.dtype(), order)?;
    on_device(stream, &copy, part)?;
    copy.block.work.written_on(stream);
    Ok(copy)
}

/// Copies the elements without gaps, in this order, into new memory.
pub(crate) fn anew(asked: Asked<'_>, part: &Part, order: Order) -> Result<Part> {
    let on = Chosen::of(asked, part);
    let _turn = Turn::take([on.reads(part)])?;
    copied(&on.stream, part, order)
}

/// As `packed`, for a copy to these addresses of the host. If they are in the memory of the array, returns a copy,
/// which is complete.
fn unshared(stream: &Stream, part: &Part, order: Order, host: &Range<usize>) -> Result<Part> {
    if !part.meets(host)? {
        return packed(stream, part, order);
    }
    let copy = copied(stream, part, order)?;
    stream.synchronize()?;
    Ok(copy)
}

/// The order that an array already has, if it has one.
fn own_order(layout: &Layout) -> Result<Order> {
    let columns = Order::F.layout(layout.dtype(), layout.shape())?;
    Ok(if !layout.is_contiguous() && are_dense_alike(layout, &columns) {
        Order::F
    } else {
        Order::C
    })
}

/// Copies to a new NumPy array, in the order of the array if it has no gaps. Blocks until the values are there.
pub(super) fn to_new_host<'py>(
    py: Python<'py>,
    asked: Asked<'_>,
    part: &Part,
    order: Option<Order>,
) -> Result<Bound<'py, PyAny>> {
    let order = order.map_or_else(|| own_order(&part.layout), Ok)?;
    let host = HostArray::empty(py, part.layout.shape(), part.layout.dtype(), order)?;
    to_host(py, asked, part, order, &host)?;
    Ok(host.object)
}

/// Copies to a host array without gaps, in this order.
fn to_host(
    py: Python<'_>,
    asked: Asked<'_>,
    part: &Part,
    order: Order,
    host: &HostArray<'_>,
) -> Result<()> {
    let len = part.layout.len() * part.layout.dtype().size();
    if len == 0 {
        return Ok(());
    }
    let first = host.data()?.expose_provenance();
    py.detach(|| {
        let on = Chosen::of(asked, part);
        part.wait_ahead(&on)?;
        let _turn = Turn::take([on.reads(part)])?;
        let source = unshared(&on.stream, part, order, &(first..first + len))?;
        // SAFETY: the array has elements of that many bytes without gaps, may be written, and is kept by its object,
        // which outlives the call. The device no longer reads them. Python code that uses it from another thread
        // meanwhile races, as with any function that lets other threads run.
        let bytes =
            unsafe { slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(first), len) };
        Ok(source.bytes(&source.hold()?)?.copy_to_slice(&on.stream, bytes)?)
    })
}

/// Copies from a host array. The source is no longer used after the call returns.
fn from_host(py: Python<'_>, asked: Asked<'_>, part: &Part, host: HostArray<'_>) -> Result<()> {
    check_alike("set", &part.layout, host.layout())?;
    let len = part.layout.len() * part.layout.dtype().size();
    if len == 0 {
        return Ok(());
    }
    let order = own_order(&part.layout)?;
    let host = host.ordered(order)?;
    let first = host.data()?.expose_provenance();
    py.detach(|| {
        let on = Chosen::of(asked, part);
        let _turn = Turn::take([on.writes(part)])?;
        let packed = order.layout(part.layout.dtype(), part.layout.shape())?;
        let is_shared = part.meets(&(first..first + len))?;
        if is_shared {
            // Earlier work may still write these bytes.
            on.stream.synchronize()?;
        }
        // SAFETY: as in `to_host`; the array is only read, and the device does not write it meanwhile.
        let bytes = unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(first), len) };
        if are_dense_alike(&part.layout, &packed) && !is_shared {
            part.bytes_mut(&part.hold()?)?.copy_from_slice(&on.stream, bytes)?;
            return Ok(());
        }
        let device = part.block.device();
        let aside = Part::allocate(device, part.layout.shape(), part.layout.dtype(), order)?;
        aside.bytes_mut(&aside.hold()?)?.copy_from_slice(&on.stream, bytes)?;
        on_device(&on.stream, part, &aside)?;
        // The caller may change the host array when this returns.
        if is_shared { Ok(on.stream.synchronize()?) } else { Ok(()) }
    })
}

/// Copies into `out`, a host array. Does not block if `out` is pinned.
pub(super) fn get_into(
    py: Python<'_>,
    asked: Asked<'_>,
    part: &Part,
    out: &Bound<'_, PyAny>,
) -> Result<()> {
    if let Ok(pinned) = out.cast::<PinnedArray>() {
        let pinned = pinned.get();
        check_alike("get", &pinned.layout, &part.layout)?;
        return py.detach(|| {
            let works = [&part.block.work, &pinned.work];
            let on = Chosen::new(asked, part.block.device(), &works);
            let _turn = Turn::take([on.reads(part), on.uses(&pinned.work, true)])?;
            let order = own_order(&pinned.layout)?;
            let source = unshared(&on.stream, part, order, &pinned.addresses())?;
            Ok(pinned.copy_in(&on.stream, &source.bytes(&source.hold()?)?)?)
        });
    }
    let host = HostArray::to_write(out)?;
    check_alike("get", host.layout(), &part.layout)?;
    let order = own_order(host.layout())?;
    if are_dense_alike(host.layout(), &order.layout(host.layout().dtype(), host.layout().shape())?)
    {
        return to_host(py, asked, part, order, &host);
    }
    let values = HostArray::empty(py, part.layout.shape(), part.layout.dtype(), order)?;
    to_host(py, asked, part, order, &values)?;
    values.copy_to(&host)
}

/// Copies from any kind of `source`, on the given stream of the array's device.
pub(super) fn set_from(part: &Part, source: &Bound<'_, PyAny>, asked: Asked<'_>) -> Result<()> {
    let py = source.py();
    let (device, work) = (part.block.device(), &part.block.work);
    if let Ok(array) = source.cast::<DeviceArray>() {
        let source = &array.get().part;
        check_alike("set", &part.layout, &source.layout)?;
        return py.detach(|| {
            if !source.block.device().is_same(device) {
                return between(asked, part, source);
            }
            let on = Chosen::new(asked, device, &[work, &source.block.work]);
            let _turn = Turn::take([on.writes(part), on.reads(source)])?;
            on_device(&on.stream, part, source)
        });
    }
    if let Ok(pinned) = source.cast::<PinnedArray>() {
        let pinned = pinned.get();
        check_alike("set", &part.layout, &pinned.layout)?;
        return py.detach(|| {
            let on = Chosen::new(asked, device, &[work, &pinned.work]);
            let _turn = Turn::take([on.writes(part), on.uses(&pinned.work, false)])?;
            if are_dense_alike(&part.layout, &pinned.layout) && !part.meets(&pinned.addresses())? {
                return Ok(pinned.copy_out(&on.stream, &mut part.bytes_mut(&part.hold()?)?)?);
            }
            let order = own_order(&pinned.layout)?;
            let aside = Part::allocate(device, part.layout.shape(), part.layout.dtype(), order)?;
            pinned.copy_out(&on.stream, &mut aside.bytes_mut(&aside.hold()?)?)?;
            on_device(&on.stream, part, &aside)
        });
    }
    let host = HostArray::of(source, Some(part.layout.dtype()))?;
    from_host(py, asked, part, host)
}

/// Copies between devices, on a stream of the destination device. All work on the source comes first.
pub(super) fn between(asked: Asked<'_>, to: &Part, from: &Part) -> Result<()> {
    if to.layout.is_empty() {
        return Ok(());
    }
    let here = Chosen::of(asked.unnamed(), from);
    let there = Chosen::of(asked, to);
    let _turn = Turn::take([there.writes(to), here.reads(from)])?;
    let (stream, from_stream) = (&there.stream, &here.stream);
    let order = own_order(&to.layout)?;
    let source = packed(from_stream, from, order)?;
    let target = match are_dense_alike(&to.layout, &source.layout) {
        true => to.clone(),
        false => Part::allocate(stream.device(), to.layout.shape(), to.layout.dtype(), order)?,
    };
    let (held, lent) = (target.hold()?, source.hold()?);
    target.bytes_mut(&held)?.copy_from_device(stream, &source.bytes(&lent)?, from_stream)?;
    if !Arc::ptr_eq(&target.block, &to.block) {
        on_device(stream, to, &target)?;
    }
    Ok(())
}

/// Creates an array with the values of `source`.
pub(crate) fn array_of(
    device: &Device,
    source: &Bound<'_, PyAny>,
    of: Option<&Bound<'_, PyAny>>,
    order: Option<Order>,
    asked: Asked<'_>,
) -> Result<DeviceArray> {
    let of = of.map(dtype::from_python).transpose()?;
    let layout = if let Ok(array) = source.cast::<DeviceArray>() {
        array.get().part.layout
    } else if let Ok(pinned) = source.cast::<PinnedArray>() {
        pinned.get().layout
    } else {
        let host = HostArray::of(source, of)?;
        let order = order.map_or_else(|| own_order(host.layout()), Ok)?;
        let part = Part::allocate(device, host.layout().shape(), host.layout().dtype(), order)?;
        check_dtype(of, host.layout().dtype())?;
        from_host(source.py(), asked, &part, host)?;
        return Ok(DeviceArray { part });
    };
    check_dtype(of, layout.dtype())?;
    let order = order.map_or_else(|| own_order(&layout), Ok)?;
    let part = Part::allocate(device, layout.shape(), layout.dtype(), order)?;
    set_from(&part, source, asked)?;
    Ok(DeviceArray { part })
}

pub(crate) fn check_dtype(asked: Option<runtime::DType>, given: runtime::DType) -> Result<()> {
    match asked {
        Some(asked) if asked != given => {
            let [given, asked] = [given, asked].map(dtype::name);
            let message = format!("an array of {given} for one of {asked}: convert it first");
            Err(Failure::invalid("array", message))
        }
        _ => Ok(()),
    }
}
