//! Views: parts of a memory, the operations they refuse, and the writes they report.

use runtime_core::{
    AnyView, DType, Element, ErrorKind, Launch, Layout, MemoryView, MemoryViewMut, Result, Slot,
    WriteReport, args,
};

use crate::Fixture;
use crate::data::{each_element, elements};
use crate::outcome::{Outcome, check, check_eq, refused, same};
use crate::setup::{Setup, attempt};

/// Slices, boxes, reshaped views and views with a new layout address the right elements, and copies through them move
/// exactly those.
pub fn views_address_the_elements_they_name(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let stream = &setup.stream;
    let mut expected: Vec<u32> = (0..60).collect();
    let mut memory = setup.upload(&expected)?;
    let twice = memory.view().slice(10..50)?.slice(5..15)?;
    same(&twice.to_vec(stream)?, &expected[15..25], "a slice of a slice")?;
    check_eq!(twice.byte_range(), 60..100, "the bytes of a slice");

    let shaped = memory.view().reshape(&[3, 4, 5])?;
    let row = shaped.region(&[2..3, 1..2, 0..5])?;
    same(&row.to_vec(stream)?, &expected[45..50], "row [2, 1] of a 3 × 4 × 5 array")?;
    let planes = shaped.region(&[1..3, 0..4, 0..5])?;
    same(&planes.to_vec(stream)?, &expected[20..60], "planes 1 and 2")?;
    let element = shaped.region(&[1..2, 3..4, 2..3])?;
    same(&element.to_vec(stream)?, &[37], "element [1, 3, 2]")?;

    let inner = memory.view_mut().reshape(&[6, 10])?.region(&[4..5, 2..9])?;
    write(&setup, inner, &[100, 101, 102, 103, 104, 105, 106])?;
    expected[42..49].copy_from_slice(&[100, 101, 102, 103, 104, 105, 106]);
    let (low, high) = memory.view_mut().reshape(&[6, 10])?.split_at(2)?;
    write(&setup, high.region(&[0..1, 0..10])?, &[7; 10])?;
    write(&setup, low.region(&[1..2, 9..10])?, &[8])?;
    expected[20..30].fill(7);
    expected[19] = 8;
    let bytes = Layout::row(DType::U16, 4)?;
    memory.view_mut().reinterpret(4, &bytes)?.typed()?.fill(stream, 0x0101_u16)?;
    expected[1..3].fill(0x0101_0101);
    same(&setup.download(&memory)?, &expected, "the memory after writing through views")
}

fn write(setup: &Setup, mut view: MemoryViewMut<'_, u32>, values: &[u32]) -> Result<()> {
    view.copy_from_slice(&setup.stream, values)
}

/// A view cannot exceed its memory, whatever numbers are given.
pub fn views_do_not_leave_their_memory(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let memory = setup.device.memory_allocate::<u32>(20)?;
    let view = memory.view();
    let out = ErrorKind::OutOfBounds;
    #[expect(clippy::reversed_empty_ranges, reason = "a mistake that must be refused")]
    let reversed = 5..3;
    for range in [0..21, 20..21, 21..21, reversed, 0..usize::MAX, usize::MAX..usize::MAX] {
        refused(view.slice(range.clone()), out, format_args!("slice {range:?} of 20"))?;
    }
    let shaped = view.reshape(&[4, 5])?;
    refused(shaped.region(&[0..5, 0..5]), out, "5 rows of 4")?;
    refused(shaped.region(&[0..4, 2..usize::MAX]), out, "a box with a hostile end")?;
    let rows = shaped.region(std::slice::from_ref(&(0..4)));
    refused(rows, ErrorKind::InvalidArgument, "one range for two dimensions")?;
    refused(shaped.slice(0..4), ErrorKind::InvalidArgument, "a slice of a matrix")?;
    for shape in [&[3, 7][..], &[21], &[], &[usize::MAX, 2]] {
        // A shape whose size fits no integer is refused when the layout is made; that error names no device.
        check!(view.reshape(shape).is_err(), "20 elements were reshaped to {shape:?}");
    }
    let row = Layout::row(DType::U32, 20)?;
    refused(view.with_layout(4, &row), out, "20 elements from byte 4")?;
    refused(view.with_layout(usize::MAX, &row), out, "a layout at a hostile offset")?;
    let backwards = Layout::new(DType::U32, &[20], &[-1])?;
    refused(view.with_layout(72, &backwards), out, "a layout that begins before the view")?;
    view.with_layout(76, &backwards)?;
    let odd = Layout::row(DType::U32, 2)?;
    refused(view.with_layout(2, &odd), ErrorKind::InvalidArgument, "u32 at byte 2")?;
    let halves = Layout::row(DType::U16, 40)?;
    let error = refused(view.with_layout(0, &halves), ErrorKind::InvalidArgument, "u16 for u32")?;
    check!(error.message().contains("u16") && error.message().contains("u32"), "{error}");
    view.reinterpret(0, &halves)?;
    refused(view.reinterpret(2, &halves), out, "40 of u16 from byte 2 of 80")?;
    refused(view.reinterpret(2, &odd), ErrorKind::InvalidArgument, "u32 at byte 2")?;
    let spread = Layout::new(DType::U32, &[2], &[isize::MAX / 8])?;
    refused(view.with_layout(0, &spread), out, "a layout that spans half the address space")?;

    let mut memory = memory;
    refused(memory.view_mut().split_at(21), out, "splitting 20 at 21")?;
    refused(memory.view_mut().split_at(usize::MAX), out, "splitting at a hostile index")?;
    let scalar = memory.view_mut().slice(0..1)?.reshape(&[])?;
    refused(scalar.split_at(0), ErrorKind::InvalidArgument, "splitting a scalar")?;
    Ok(())
}

/// Layouts of 8 elements within a row of 24, which are not adjacent or not in order, with the byte offset of the first
/// element.
fn layouts_with_gaps() -> Result<[(usize, Layout); 5]> {
    let layout = |shape: &[usize], strides: &[isize]| Layout::new(DType::U32, shape, strides);
    Ok([
        (0, layout(&[8], &[2])?),
        (28, layout(&[8], &[-1])?),
        (0, layout(&[8], &[0])?),
        (4, layout(&[2, 4], &[1, 2])?),
        (8, layout(&[2, 4], &[6, 1])?),
    ])
}

/// The positions of a layout's elements, in row-major order of their indices, counted in elements from the start of the
/// row.
fn places((offset, layout): &(usize, Layout)) -> Vec<usize> {
    let origin = (*offset / 4).cast_signed();
    let (shape, strides) = (layout.shape(), layout.strides());
    let place = |mut index: usize| {
        let mut at = origin;
        for (extent, stride) in shape.iter().zip(strides).rev() {
            at += (index % extent).cast_signed() * stride;
            index /= extent;
        }
        at.cast_unsigned()
    };
    (0..layout.len()).map(place).collect()
}

/// Copies and fills move the elements of views with gaps, in order, and do not touch the gaps.
pub fn copies_reach_the_elements_of_views_with_gaps(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let stream = &setup.stream;
    let mut expected = elements::<u32>(1, 24);
    let mut memory = setup.upload(&expected)?;
    let other = setup.upload(&elements::<u32>(2, 8))?;
    for (offset, layout) in layouts_with_gaps()? {
        let what = format!("{layout:?} from byte {offset}");
        let at = places(&(offset, layout));
        let picked = |all: &[u32]| at.iter().map(|place| all[*place]).collect::<Vec<_>>();
        let view = memory.view().with_layout(offset, &layout)?;
        same(&view.to_vec(stream)?, &picked(&expected), format_args!("to_vec of {what}"))?;
        let mut out = [0; 8];
        view.copy_to_slice(stream, &mut out)?;
        same(&out, &picked(&expected), format_args!("copy_to_slice of {what}"))?;
        let mut row = setup.device.memory_allocate::<u32>(8)?;
        row.view_mut().reshape(layout.shape())?.copy_from(stream, &view)?;
        same(&setup.download(&row)?, &picked(&expected), format_args!("copy_from {what}"))?;
        if layout.strides() == [0] {
            continue;
        }
        let values = elements::<u32>(3, 8);
        for step in ["copy_from_slice", "copy_from", "fill", "fill_zero"] {
            let mut view = memory.view_mut().with_layout(offset, &layout)?;
            let written = match step {
                "copy_from_slice" => view.copy_from_slice(stream, &values).map(|()| values.clone()),
                "copy_from" => {
                    let source = other.view().reshape(layout.shape())?;
                    view.copy_from(stream, &source).map(|()| elements::<u32>(2, 8))
                }
                "fill" => view.fill(stream, 7_u32).map(|()| vec![7; 8]),
                _ => view.fill_zero(stream).map(|()| vec![0; 8]),
            }?;
            at.iter().zip(written).for_each(|(place, value)| expected[*place] = value);
            same(&setup.download(&memory)?, &expected, format_args!("{step} of {what}"))?;
        }
    }
    // Every second element is copied to its neighbour, in one memory.
    let halves = Layout::new(DType::U32, &[2, 12], &[1, 2])?;
    let (even, mut odd) = memory.view_mut().with_layout(0, &halves)?.split_at(1)?;
    odd.copy_from(stream, &even.as_view())?;
    (0..24).step_by(2).for_each(|place| expected[place + 1] = expected[place]);
    same(&setup.download(&memory)?, &expected, "a copy between parts in the gaps of each other")?;
    let longer = setup.device.memory_allocate::<u32>(12)?;
    let mut row = memory.view_mut().with_layout(0, &Layout::new(DType::U32, &[12], &[2])?)?;
    let shaped = longer.view().reshape(&[3, 4])?;
    refused(row.copy_from(stream, &shaped), ErrorKind::InvalidArgument, "another shape")?;
    let short = row.copy_from_slice(stream, &[0_u32; 11]);
    refused(short, ErrorKind::OutOfBounds, "11 elements for 12")?;
    same(&setup.download(&memory)?, &expected, "memory after refused copies")
}

/// Views with gaps refuse copies from and to pinned memory, which do not block, and reshaping. Nothing changes.
pub fn pinned_copies_of_views_with_gaps_are_refused(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let stream = &setup.stream;
    let expected = elements::<u32>(1, 24);
    let mut memory = setup.upload(&expected)?;
    let mut pinned = setup.device.pinned_allocate::<u32>(8)?;
    let kind = ErrorKind::InvalidArgument;
    for (offset, layout) in layouts_with_gaps()? {
        let view = memory.view().with_layout(offset, &layout)?;
        refused(view.copy_to_pinned(stream, &mut pinned), kind, format_args!("{layout:?}"))?;
        refused(view.reshape(&[8]), kind, format_args!("reshaping {layout:?}"))?;
        let view = memory.view_mut().with_layout(offset, &layout);
        if layout.strides() == [0] {
            refused(view, kind, format_args!("writing through {layout:?}"))?;
            continue;
        }
        refused(view?.copy_from_pinned(stream, &pinned), kind, format_args!("{layout:?}"))?;
    }
    same(&setup.download(&memory)?, &expected, "memory after refused copies")
}

/// A view bound to a stream works on that stream, and is refused with `WrongStream` on every other stream.
pub fn views_bound_to_a_stream_are_refused_elsewhere(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (own, other) = (&setup.stream, setup.new_stream()?);
    let expected = elements::<u8>(3, 64);
    let mut memory = setup.upload(&expected)?;
    let source = setup.upload(&elements::<u8>(4, 64))?;
    let mut words = setup.device.memory_allocate::<u32>(8)?;
    let mut pinned = setup.device.pinned_allocate::<u8>(64)?;
    let kind = ErrorKind::WrongStream;
    {
        let mut bound = memory.view_mut().on_stream(own)?;
        refused(bound.fill(&other, 1_u8), kind, "a fill")?;
        refused(bound.fill_zero(&other), kind, "a fill with zeros")?;
        refused(bound.copy_from_slice(&other, &[0_u8; 64]), kind, "a copy from a slice")?;
        refused(bound.copy_from_pinned(&other, &pinned), kind, "a copy from pinned memory")?;
        refused(bound.copy_from(&other, &source.view()), kind, "a copy to a bound view")?;
        let narrow = bound.reborrow().slice(0..1)?;
        refused(narrow.as_view().to_vec(&other), kind, "a copy to a vector")?;
        refused(bound.as_view().copy_to_pinned(&other, &mut pinned), kind, "a copy to pinned")?;
        let bound_source = source.view().on_stream(&other)?;
        refused(bound.copy_from(own, &bound_source), kind, "a copy from a bound view")?;
        let plan = setup.device.plan_regions(&[super::regions::row_copy::<u8>(0, 1, 64)])?;
        let bind = &mut [Slot::from(source.view()), Slot::from(bound)];
        refused(plan.execute(&other, bind), kind, "a plan")?;
        let kernel = setup.kernels.kernel("add_one")?;
        let arguments = args![words.view_mut().on_stream(own)?, 8_u32];
        let launched = attempt(&kernel, &other, &Launch::cover(8, 1), arguments);
        let error = refused(launched, kind, "a launch")?;
        check!(error.message().contains("argument 0"), "{error} does not name the argument");
    }
    if let Some(graphs) = setup.device.graphs() {
        let captured = graphs.capture(|c| memory.view_mut().on_stream(own)?.fill(c, 1_u8));
        let error = refused(captured, kind, "a capture")?;
        check!(error.message().contains("captured"), "{error} does not name the capture");
    }
    same(&setup.download(&memory)?, &expected, "memory after refused operations")?;
    memory.view_mut().on_stream(own)?.fill(own, 9_u8)?;
    same(&setup.download(&memory)?, &[9; 64], "memory filled through a bound view")
}

/// A bound view, and views made from it, cannot be bound to another stream. A view that reports its writes has only one
/// report.
pub fn views_keep_their_stream_and_their_report(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (own, other, foreign) = (&setup.stream, setup.new_stream()?, fixture.other()?);
    let mut memory = setup.upload(&[0_u8; 64])?;
    let (report, another) = (WriteReport::new(), WriteReport::new());
    let (wrong, abroad) = (ErrorKind::WrongStream, ErrorKind::WrongDevice);
    let mut view = memory.view_mut().on_stream(own)?.reporting_to(&report)?;
    refused(view.reborrow().on_stream(&other), wrong, "a bound view bound again")?;
    refused(view.as_view().on_stream(&other), wrong, "a bound view to read bound again")?;
    refused(view.reborrow().slice(0..8)?.on_stream(&other), wrong, "a part of a bound view")?;
    let (low, high) = view.reborrow().split_at(9)?;
    refused(low.on_stream(&other), wrong, "the half of a bound view")?;
    refused(high.reporting_to(&another), ErrorKind::Conflict, "a second lender")?;
    let (inside, _) = view.reborrow().split_off_box(std::slice::from_ref(&(2..5)))?;
    refused(inside.on_stream(&other), wrong, "a box of a bound view")?;
    let mut same_stream = view.on_stream(own)?;
    same_stream.fill(own, 3_u8)?;
    check!(report.wrote() && !another.wrote(), "the lender has {report:?}, not {another:?}");
    refused(memory.view().on_stream(&foreign.stream), abroad, "a stream of another device")?;
    same(
        &setup.download(&memory)?,
        &[3; 64],
        "memory filled through a view bound twice to one stream",
    )
}

/// A view without a static element type gets back the type of its elements and no other. Both conversions keep the
/// elements, the stream and the lender.
pub fn views_get_back_their_own_element_type_only(fixture: &Fixture) -> Outcome {
    fn fits<T: Element>(any: AnyView<'_>, fitting: &mut Vec<DType>) -> Outcome {
        match any.typed::<T>() {
            Ok(_) => fitting.push(T::DTYPE),
            Err(error) => {
                let refused_as = refused::<()>(Err(error), ErrorKind::InvalidArgument, T::DTYPE)?;
                let names = [any.dtype(), T::DTYPE].map(DType::name);
                let reported = names.iter().all(|name| refused_as.message().contains(name));
                check!(reported, "{refused_as} does not name {names:?}");
            }
        }
        Ok(())
    }
    fn converts<T: Element + std::fmt::Debug>(setup: &Setup) -> Outcome {
        let values = elements::<T>(5, 12);
        let memory = setup.upload(&values)?;
        let any: AnyView<'_> = memory.view().slice(2..12)?.erase();
        check_eq!(any.dtype(), T::DTYPE, "the type of an erased view");
        let mut fitting = Vec::new();
        each_element!(fits(any, &mut fitting))?;
        check_eq!(fitting, [T::DTYPE], "the types that a view of {} got", T::DTYPE);
        let again: MemoryView<'_, T> = any.slice(1..10)?.typed()?;
        same(&again.to_vec(&setup.stream)?, &values[3..], "elements of a view with its type back")
    }
    let setup = fixture.setup()?;
    each_element!(converts(&setup))?;

    let (own, other) = (&setup.stream, setup.new_stream()?);
    let mut memory = setup.upload(&[0_u16; 32])?;
    let (report, another) = (WriteReport::new(), WriteReport::new());
    let any = memory.view_mut().on_stream(own)?.reporting_to(&report)?.erase();
    check!(!any.as_view().is_usable_on(&other), "an erased view forgot its stream");
    refused(any.as_view().typed::<i16>(), ErrorKind::InvalidArgument, "i16 for u16")?;
    let mut view = any.typed::<u16>()?;
    refused(view.fill(&other, 1), ErrorKind::WrongStream, "a view that was converted twice")?;
    refused(view.reborrow().reporting_to(&another), ErrorKind::Conflict, "a second lender")?;
    check!(!report.wrote(), "nothing was written yet: {report:?}");
    view.fill(own, 7)?;
    check!(report.wrote(), "the lender of a view that was converted twice: {report:?}");
    same(&setup.download(&memory)?, &[7; 32], "memory filled through a view converted twice")
}

/// Every kind of write through a lent view is reported to the lender.
pub fn writes_are_reported(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let stream = &setup.stream;
    let mut memory = setup.upload(&[0_u32; 16])?;
    let source = setup.upload(&[1_u32; 16])?;
    let pinned = setup.device.pinned_allocate::<u32>(16)?;
    let plan = setup.device.plan_regions(&[super::regions::row_copy::<u32>(0, 1, 16)])?;
    let mut reported = |what: &str, write: &mut dyn FnMut(MemoryViewMut<'_, u32>) -> Result<()>| {
        let report = WriteReport::new();
        write(memory.view_mut().slice(0..16)?.reporting_to(&report)?)?;
        check!(report.wrote() && !report.failed(), "after {what}: {report:?}");
        Ok(())
    };
    reported("a fill", &mut |mut view| view.fill(stream, 1_u32))?;
    reported("a fill with zeros", &mut |mut view| view.fill_zero(stream))?;
    reported("a copy from a slice", &mut |mut view| view.copy_from_slice(stream, &[2_u32; 16]))?;
    reported("a copy from pinned", &mut |mut view| view.copy_from_pinned(stream, &pinned))?;
    reported("a copy", &mut |mut view| view.copy_from(stream, &source.view()))?;
    reported("a copy between devices", &mut |mut view| {
        view.copy_from_device(stream, &source.view(), stream)
    })?;
    reported("a launch", &mut |view| setup.kernels.fill_index(stream, view, 0))?;
    reported("a plan", &mut |view| {
        plan.execute(stream, &mut [Slot::from(source.view()), Slot::from(view)])
    })?;
    reported("a fill of a part", &mut |mut view| view.reborrow().slice(3..4)?.fill(stream, 1_u32))?;
    reported("a fill of one half", &mut |view| view.split_at(8)?.1.fill(stream, 1_u32))
}

/// Refused operations, reads and empty launches report no write.
pub fn operations_that_do_not_write_report_nothing(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let stream = &setup.stream;
    let mut memory = setup.upload(&[0_u32; 16])?;
    let source = setup.upload(&[1_u32; 15])?;
    let mut target = setup.device.memory_allocate::<u32>(16)?;
    let kernel = setup.kernels.kernel("fill_index")?;
    let report = WriteReport::new();
    let mut view = memory.view_mut().reporting_to(&report)?;
    let (bounds, invalid) = (ErrorKind::OutOfBounds, ErrorKind::InvalidArgument);
    refused(view.copy_from_slice(stream, &[1_u32; 15]), bounds, "a copy that is too short")?;
    refused(view.copy_from(stream, &source.view()), bounds, "a copy that is too short")?;
    refused(view.reborrow().erase().typed::<f32>(), invalid, "the type f32")?;
    let mut limit = Launch::cover(16, 1);
    limit.block[0] = setup.device.info().limits.max_block[0].saturating_add(1);
    if limit.block[0] != u32::MAX {
        let arguments = args![view.reborrow(), 0_u32, 16_u32];
        refused(attempt(&kernel, stream, &limit, arguments), invalid, "a launch too large")?;
    }
    attempt(
        &kernel,
        stream,
        &Launch::new([0, 1, 1], [1, 1, 1]),
        args![view.reborrow(), 0_u32, 16_u32],
    )?;
    let plan = setup.device.plan_regions(&[super::regions::row_copy::<u32>(0, 1, 16)])?;
    let missing = plan.execute(stream, &mut [Slot::from(view.reborrow())]);
    refused(missing, invalid, "a plan with one memory for two slots")?;
    view.as_view().to_vec(stream)?;
    target.view_mut().copy_from(stream, &view.as_view())?;
    let bind = &mut [Slot::from(view.reborrow()), Slot::from(target.view_mut())];
    plan.execute(stream, bind)?;
    check!(!report.wrote() && !report.failed(), "after operations that wrote nothing: {report:?}");
    same(&setup.download(&memory)?, &[0; 16], "unwritten memory")
}
