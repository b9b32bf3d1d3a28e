//! Allocations, copies and fills.

use std::fmt::Debug;

use runtime_core::{Element, ErrorKind, Launch, Memory, NativeKind, Slot, args};

use crate::Fixture;
use crate::data::{Random, each_element, elements};
use crate::outcome::{Outcome, check, check_eq, refused, same};
use crate::setup::{Setup, attempt};

/// Data copied to a device and back is unchanged, for every element type and odd lengths.
pub fn copies_round_trip_for_every_element_type(fixture: &Fixture) -> Outcome {
    fn round_trip<T: Element + Debug>(setup: &Setup) -> Outcome {
        for len in [1, 2, 3, 7, 31, 64, 1000, 4097] {
            let expected = elements::<T>(len as u64, len);
            let memory = setup.upload(&expected)?;
            let bytes = len * size_of::<T>();
            check_eq!((memory.len(), memory.bytes()), (len, bytes), "length and bytes");
            same(&setup.download(&memory)?, &expected, format_args!("{len} {}", T::DTYPE))?;
        }
        Ok(())
    }
    let setup = fixture.setup()?;
    each_element!(round_trip(&setup))
}

/// A copy to or from a part of a memory touches exactly that part, at any offset.
pub fn copies_honour_offsets(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut expected = elements::<u8>(1, 300);
    let mut memory = setup.upload(&expected)?;
    for (start, len) in [(0, 1), (1, 2), (3, 61), (64, 64), (127, 130), (299, 1)] {
        let part = elements::<u8>(start as u64 + 7, len);
        memory.view_mut().slice(start..start + len)?.copy_from_slice(&setup.stream, &part)?;
        expected[start..start + len].copy_from_slice(&part);
        let all = setup.download(&memory)?;
        same(&all, &expected, format_args!("after writing {len} bytes at {start}"))?;
        let found = memory.view().slice(start..start + len)?.to_vec(&setup.stream)?;
        same(&found, &part, format_args!("reading {len} bytes at {start}"))?;
    }
    let wide = elements::<f64>(2, 50);
    let memory = setup.upload(&wide)?;
    let found = memory.view().slice(7..19)?.to_vec(&setup.stream)?;
    same(&found, &wide[7..19], "elements 7 to 19")
}

/// Fresh memory has unspecified but stable values: copies, kernels, and the host (if it can address the memory) all
/// read the same values. Under Miri or Valgrind this detects uninitialised bytes.
pub fn fresh_memory_has_values(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    for len in [1, 100, 5000] {
        let mut memories = vec![setup.device.memory_allocate::<u32>(len)?];
        if let Some(unified) = setup.device.unified_memory() {
            memories.push(unified.allocate(len)?);
        }
        for memory in &mut memories {
            let what = format_args!("{len} fresh elements, read once more");
            let values = setup.download(memory)?;
            same(&setup.download(memory)?, &values, what)?;
            if memory.is_host_visible() {
                same(memory.as_slice()?, &values, what)?;
            }
            setup.kernels.add_one(&setup.stream, memory.view_mut())?;
            let next: Vec<u32> = values.iter().map(|value| value.wrapping_add(1)).collect();
            same(&setup.download(memory)?, &next, "the values that a kernel wrote to new memory")?;
        }
    }
    Ok(())
}

/// Data of several MiB is unchanged after a round trip.
pub fn large_copies_round_trip(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let len = ((6 << 20) + 13).min(setup.device.info().limits.max_allocation_bytes);
    let expected = elements::<u8>(3, len);
    let memory = setup.upload(&expected)?;
    check!(setup.download(&memory)? == expected, "{len} bytes came back changed");
    let mut copy = setup.device.memory_allocate::<u8>(len)?;
    copy.view_mut().copy_from(&setup.stream, &memory.view())?;
    check!(
        setup.download(&copy)? == expected,
        "{len} bytes copied on the device came back changed"
    );
    Ok(())
}

/// Many small allocations exist at once and keep their contents while others are made and freed.
pub fn many_small_allocations_live_together(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut random = Random::new(4);
    let mut live: Vec<(Memory<u8>, Vec<u8>)> = Vec::new();
    for round in 0..600 {
        if live.len() > 200 && random.chance() {
            let (memory, expected) = live.swap_remove(random.below(live.len()));
            same(
                &setup.download(&memory)?,
                &expected,
                format_args!("memory freed in round {round}"),
            )?;
        } else {
            let expected = elements::<u8>(round, 1 + random.below(300));
            live.push((setup.upload(&expected)?, expected));
        }
    }
    for (memory, expected) in &live {
        same(&setup.download(memory)?, expected, "memory that was kept to the end")?;
    }
    Ok(())
}

/// Every allocation starts at a multiple of the alignment that the device reports.
pub fn allocations_are_aligned(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let alignment = setup.device.info().limits.allocation_alignment.get();
    let mut kept = Vec::new();
    for bytes in [1, 3, 17, 255, 4097] {
        let memory = setup.device.memory_allocate::<u8>(bytes)?;
        if let Some(handle) = memory.native().filter(|handle| handle.kind == NativeKind::Pointer) {
            check_eq!(handle.raw % alignment, 0, "{handle:?} modulo {alignment}");
        }
        if memory.is_host_visible() {
            check_eq!(
                memory.as_slice()?.as_ptr().addr() % alignment,
                0,
                "a host address modulo {alignment}"
            );
        }
        kept.push(memory);
    }
    Ok(())
}

/// Size zero is valid, and never an error: for memory, pinned memory, views, copies, fills, launches and plans.
pub fn zero_sizes_are_well_defined(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (device, stream) = (&setup.device, &setup.stream);
    let mut none = device.memory_allocate::<f64>(0)?;
    check!(none.is_empty() && none.view().is_empty(), "memory of no element is not empty");
    none.view_mut().copy_from_slice(stream, &[])?;
    none.view_mut().fill(stream, 1.0_f64)?;
    none.view_mut().fill_zero(stream)?;
    check_eq!(none.view().to_vec(stream)?.len(), 0, "elements read");
    let other = device.memory_allocate::<f64>(0)?;
    none.view_mut().copy_from(stream, &other.view())?;
    none.view_mut().copy_from_device(stream, &other.view(), stream)?;
    let mut pinned = device.pinned_allocate::<f64>(0)?;
    check_eq!(pinned.as_slice()?.len(), 0, "pinned elements");
    check_eq!(pinned.as_mut_slice()?.len(), 0, "pinned elements");
    none.view_mut().copy_from_pinned(stream, &pinned)?;
    none.view().copy_to_pinned(stream, &mut pinned)?;
    check!(none.is_host_visible(), "memory of no element has no address");
    check_eq!(none.as_slice()?.len(), 0, "elements of a slice");

    let expected = elements::<u32>(5, 10);
    let mut memory = setup.upload(&expected)?;
    for start in [0, 5, 10] {
        let mut part = memory.view_mut().slice(start..start)?;
        part.fill(stream, 1_u32)?;
        part.copy_from_slice(stream, &[])?;
        setup.kernels.fill_index(stream, part, 9)?;
    }
    let mut none = device.memory_allocate::<u32>(0)?;
    let kernel = setup.kernels.kernel("fill_index")?;
    attempt(&kernel, stream, &Launch::cover(64, 1), args![&mut none, 0_u32, 0_u32])?;
    let nothing = device.plan_regions(&[])?;
    check_eq!((nothing.bytes(), nothing.phases()), (0, 0), "bytes and phases of an empty plan");
    nothing.execute(stream, &mut [])?;
    let plan = device.plan_regions(&[super::regions::row_copy::<u32>(0, 1, 0)])?;
    let slots = &mut [Slot::from(none.view()), Slot::from(memory.view_mut())];
    plan.execute(stream, slots)?;
    same(&setup.download(&memory)?, &expected, "memory after nothing was done to it")
}

/// A host copy that is too long or too short is refused, and changes neither side.
pub fn copies_of_the_wrong_length_change_nothing(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let stream = &setup.stream;
    let expected = elements::<i32>(6, 100);
    let mut memory = setup.upload(&expected)?;
    for len in [0, 99, 101, 5000] {
        let source = vec![-1; len];
        let written = memory.view_mut().copy_from_slice(stream, &source);
        refused(written, ErrorKind::OutOfBounds, format_args!("writing {len} of 100 elements"))?;
        let mut out = vec![77_i32; len];
        let read = memory.view().copy_to_slice(stream, &mut out);
        refused(read, ErrorKind::OutOfBounds, format_args!("reading {len} of 100 elements"))?;
        check!(out.iter().all(|value| *value == 77), "a refused read of {len} elements wrote some");
        let other = setup.upload(&source)?;
        let copied = memory.view_mut().copy_from(stream, &other.view());
        refused(copied, ErrorKind::OutOfBounds, format_args!("copying {len} to 100 elements"))?;
    }
    same(&setup.download(&memory)?, &expected, "memory after refused copies")
}

/// Copies between views whose element types differ at run time are refused, and change nothing.
pub fn wrong_element_types_are_refused(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let stream = &setup.stream;
    let expected = elements::<f32>(7, 16);
    let mut memory = setup.upload(&expected)?;
    let same_size = setup.upload(&elements::<u32>(8, 16))?;
    let kind = ErrorKind::InvalidArgument;
    let source = same_size.view().erase();
    let mut target = memory.view_mut().erase();
    for error in [
        refused(target.copy_from(stream, &source), kind, "copying u32 to f32")?,
        refused(target.copy_from_device(stream, &source, stream), kind, "the same by devices")?,
    ] {
        let reported = ["u32", "f32"].iter().all(|name| error.message().contains(name));
        check!(reported, "{error} does not name both types");
    }
    refused(target.typed::<u32>(), kind, "f32 as u32")?;
    same(&setup.download(&memory)?, &expected, "memory after refused copies")
}

/// Copies within a device move exactly the named bytes, between memories and within one memory.
pub fn copies_within_the_device_move_the_named_elements(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let stream = &setup.stream;
    let mut left = elements::<u16>(9, 500);
    let right = elements::<u16>(10, 400);
    let mut a = setup.upload(&left)?;
    let b = setup.upload(&right)?;
    for (from, to, len) in [(0, 0, 400), (13, 77, 1), (1, 499, 1), (200, 3, 199)] {
        let source = b.view().slice(from..from + len)?;
        a.view_mut().slice(to..to + len)?.copy_from(stream, &source)?;
        left[to..to + len].copy_from_slice(&right[from..from + len]);
        let what = format_args!("{len} elements from {from} to {to}");
        same(&setup.download(&a)?, &left, what)?;
    }
    same(&setup.download(&b)?, &right, "the source")?;
    let (source, mut target) = a.view_mut().split_at(250)?;
    target.copy_from(stream, &source.as_view())?;
    left.copy_within(0..250, 250);
    same(&setup.download(&a)?, &left, "the second half, copied from the first")
}

/// A fill sets exactly the elements of the view, for every element size.
pub fn fills_reach_every_element_type(fixture: &Fixture) -> Outcome {
    fn fill<T: Element + Debug>(setup: &Setup) -> Outcome {
        let mut expected = elements::<T>(12, 97);
        let mut memory = setup.upload(&expected)?;
        for (seed, range) in [(1, 0..1), (2, 3..10), (3, 40..97), (4, 50..50)] {
            let value = elements::<T>(seed, 1)[0];
            memory.view_mut().slice(range.clone())?.fill(&setup.stream, value)?;
            expected[range.clone()].fill(value);
            let what = format_args!("filling {range:?} of 97 {}", T::DTYPE);
            same(&setup.download(&memory)?, &expected, what)?;
        }
        memory.view_mut().slice(5..41)?.fill_zero(&setup.stream)?;
        expected[5..41].fill(T::zeroed());
        same(&setup.download(&memory)?, &expected, "zeroing 5..41")?;
        let value = elements::<T>(5, 1)[0];
        memory.view_mut().fill(&setup.stream, value)?;
        same(&setup.download(&memory)?, &[value; 97], "filling all")
    }
    let setup = fixture.setup()?;
    each_element!(fill(&setup))
}

/// Fills of several MiB, also of a length that no power of two divides, are complete.
pub fn large_fills_are_complete(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let len = ((5 << 20) + 7).min(setup.device.info().limits.max_allocation_bytes / 2);
    let mut memory = setup.device.memory_allocate::<u16>(len)?;
    memory.view_mut().fill(&setup.stream, 0xABCD_u16)?;
    let found = setup.download(&memory)?;
    check_eq!(
        found.iter().position(|value| *value != 0xABCD),
        None,
        "the first element not filled"
    );
    memory.view_mut().slice(1..len)?.fill_zero(&setup.stream)?;
    let found = setup.download(&memory)?;
    check_eq!(found[0], 0xABCD, "the element before the range");
    check_eq!(
        found[1..].iter().position(|value| *value != 0),
        None,
        "the first element not zeroed"
    );
    Ok(())
}

/// Memory, pinned memory and streams of another opened device are refused, and nothing changes.
pub fn objects_of_another_device_are_refused(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    let expected = elements::<u32>(13, 32);
    let mut memory = setup.upload(&expected)?;
    let foreign = other.upload(&elements::<u32>(14, 32))?;
    let foreign_pinned = other.device.pinned_allocate::<u32>(32)?;
    let kind = ErrorKind::WrongDevice;
    let (own, their) = (&setup.stream, &other.stream);
    let zeros = [0_u32; 32];
    refused(memory.view_mut().fill(their, 1_u32), kind, "a fill")?;
    refused(memory.view_mut().fill_zero(their), kind, "a fill with zeros")?;
    refused(memory.view_mut().copy_from_slice(their, &zeros), kind, "a copy from a slice")?;
    refused(memory.view().copy_to_slice(their, &mut [0_u32; 32]), kind, "a copy to a slice")?;
    refused(memory.view().to_vec(their), kind, "a copy to a vector")?;
    refused(memory.view_mut().copy_from(own, &foreign.view()), kind, "a copy of foreign memory")?;
    refused(memory.view_mut().copy_from(their, &foreign.view()), kind, "a copy to own memory")?;
    let pinned = memory.view_mut().copy_from_pinned(own, &foreign_pinned);
    refused(pinned, kind, "a copy from foreign pinned memory")?;
    let uploaded = setup.device.memory_from_slice(their, &expected);
    refused(uploaded, kind, "an upload on a foreign stream")?;
    let swapped = memory.view_mut().copy_from_device(their, &foreign.view(), own);
    refused(swapped, kind, "a copy between devices with the streams swapped")?;
    same(&setup.download(&memory)?, &expected, "memory after refused operations")
}

/// A request that no device could meet is `OutOfMemory`, and the device still works. For pinned and unified memory this
/// is tested only beyond the address space.
pub fn a_request_beyond_the_limit_is_out_of_memory(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let device = &setup.device;
    let limit = device.info().limits.max_allocation_bytes;
    let kind = ErrorKind::OutOfMemory;
    for len in [usize::MAX, usize::MAX / 8 + 1, (limit / 8).saturating_add(1)] {
        let what = format_args!("{len} elements of 8 bytes, where {limit} bytes are the limit");
        refused(device.memory_allocate::<u64>(len), kind, what)?;
        if len < usize::MAX / 8 {
            continue;
        }
        refused(device.pinned_allocate::<u64>(len), kind, format_args!("pinned: {what}"))?;
        if let Some(unified) = device.unified_memory() {
            refused(unified.allocate::<u64>(len), kind, format_args!("unified: {what}"))?;
        }
    }
    setup.is_usable()
}

/// When memory runs out, the error is `OutOfMemory` with the driver's code, and freed memory can be allocated again.
///
/// Devices that use host memory, or have more than 4 GiB, get a single request for the largest allocation, which they
/// may refuse or grant.
pub fn exhausted_memory_is_reported_and_survived(fixture: &Fixture) -> Outcome {
    let setup = fixture.fresh()?;
    let info = setup.device.info();
    let total = info.memory_bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let Some(total) = total.filter(|total| *total <= 4 << 30) else {
        let bytes = info.limits.max_allocation_bytes;
        match setup.device.memory_allocate::<u8>(bytes) {
            Ok(memory) => check_eq!(memory.len(), bytes, "the bytes promised"),
            Err(error) => is_out_of_memory(Err(error))?,
        }
        return setup.is_usable();
    };
    let piece = (total / 4 + 1).min(info.limits.max_allocation_bytes);
    let mut kept = Vec::new();
    // Twice as many as fit, to detect a device that overcommits.
    for _ in 0..total.div_ceil(piece) * 2 {
        match setup.device.memory_allocate::<u8>(piece) {
            Ok(memory) => kept.push(memory),
            Err(error) => {
                is_out_of_memory(Err(error))?;
                check!(kept.len() * piece <= total, "more than its {total} bytes were handed out");
                setup.is_usable()?;
                // Repeated, to detect memory that is not freed.
                for _ in 0..3 {
                    let count = kept.len();
                    kept.clear();
                    setup.device.synchronize()?;
                    for _ in 0..count {
                        kept.push(setup.device.memory_allocate(piece)?);
                    }
                }
                return setup.is_usable();
            }
        }
    }
    Err(crate::Stop::failed(format_args!(
        "{} pieces of {piece} bytes were handed out of {total} bytes",
        kept.len()
    )))
}

fn is_out_of_memory(outcome: runtime_core::Result<()>) -> Outcome {
    let error = refused(outcome, ErrorKind::OutOfMemory, "an allocation")?;
    let Some(driver) = error.driver() else {
        return Err(crate::Stop::failed(format_args!("no driver code in {error}")));
    };
    check!(!driver.name.is_empty(), "the driver code of {error} has no name");
    Ok(())
}

/// An error names its operation, its device and the offending numbers, in one line.
pub fn errors_name_operation_device_and_value(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let memory = setup.device.memory_allocate::<u8>(10)?;
    let error = refused(memory.view().slice(3..12), ErrorKind::OutOfBounds, "slicing 3..12 of 10")?;
    check_eq!(error.device(), Some(setup.device.id()), "the error's device");
    let line = error.to_string();
    for part in ["3..12", "10", &setup.device.id().to_string(), "out of bounds", error.operation()]
    {
        check!(line.contains(part), "{line:?} does not say {part:?}");
    }
    check!(!line.contains('\n'), "{line:?} is more than one line");
    let too_much = setup.device.memory_allocate::<u64>(usize::MAX);
    let error = refused(too_much, ErrorKind::OutOfMemory, "too much")?;
    check_eq!(error.device(), Some(setup.device.id()), "the error's device");
    Ok(())
}

/// After a synchronization, another stream reads every byte that one stream wrote.
pub fn written_bytes_are_seen_by_other_streams(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let reader = setup.new_stream()?;
    let mut memory = setup.device.memory_allocate::<u32>(4096)?;
    for start in 0..20 {
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), start * 1000)?;
        setup.stream.synchronize()?;
        let expected: Vec<u32> = (0..4096).map(|i| start * 1000 + i).collect();
        let found = memory.view().to_vec(&reader)?;
        same(&found, &expected, "the values another stream reads")?;
    }
    Ok(())
}
