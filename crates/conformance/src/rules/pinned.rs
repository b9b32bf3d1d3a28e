//! Pinned host memory and its asynchronous copies.

use std::fmt::Debug;
use std::time::Duration;

use runtime_core::{Element, ErrorKind, PinnedOptions, bytemuck};

use crate::Fixture;
use crate::data::{each_element, elements};
use crate::outcome::{Outcome, best_of_three, check, check_eq, refused, same};
use crate::setup::Setup;

/// Long enough that a copy enqueued behind it has not run when the host continues.
const HEAD_START: Duration = Duration::from_millis(40);

/// Pinned memory is zero at first, also if it was used before.
pub fn pinned_memory_starts_zeroed(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    for bytes in [1, 100, 4096, 100_000] {
        for _ in 0..3 {
            let mut pinned = setup.device.pinned_allocate::<u8>(bytes)?;
            check_eq!(pinned.len(), bytes, "the length");
            same(pinned.as_slice()?, &vec![0; bytes], format_args!("{bytes} fresh bytes"))?;
            pinned.as_mut_slice()?.fill(0xFF);
        }
    }
    Ok(())
}

/// Pinned memory is aligned to 64 bytes.
pub fn pinned_memory_is_aligned(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut kept = Vec::new();
    for bytes in [1, 3, 65, 5000] {
        let pinned = setup.device.pinned_allocate::<u8>(bytes)?;
        check_eq!(pinned.as_slice()?.as_ptr().addr() % 64, 0, "the address modulo 64");
        kept.push(pinned);
    }
    Ok(())
}

/// Data copied through pinned memory in both directions is unchanged, for every element type.
pub fn pinned_copies_round_trip(fixture: &Fixture) -> Outcome {
    fn round_trip<T: Element + Debug>(setup: &Setup) -> Outcome {
        for len in [1, 5, 1001] {
            let expected = elements::<T>(len as u64, len);
            let mut there = setup.device.pinned_allocate::<T>(len)?;
            let mut back = setup.device.pinned_allocate::<T>(len)?;
            let mut memory = setup.device.memory_allocate::<T>(len)?;
            there.as_mut_slice()?.copy_from_slice(&expected);
            memory.view_mut().copy_from_pinned(&setup.stream, &there)?;
            memory.view().copy_to_pinned(&setup.stream, &mut back)?;
            same(back.as_slice()?, &expected, format_args!("{len} {}", T::DTYPE))?;
            same(&setup.download(&memory)?, &expected, "the device's side")?;
        }
        Ok(())
    }
    let setup = fixture.setup()?;
    each_element!(round_trip(&setup))
}

/// A pinned copy of a part of a memory touches exactly that part.
pub fn pinned_copies_honour_offsets(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut expected = elements::<u16>(1, 200);
    let mut memory = setup.upload(&expected)?;
    let mut pinned = setup.device.pinned_allocate::<u16>(200)?;
    for (start, len) in [(0, 1), (3, 60), (199, 1), (7, 100)] {
        let part = elements::<u16>(start as u64, len);
        pinned.as_mut_slice()?[..len].copy_from_slice(&part);
        let mut view = memory.view_mut().slice(start..start + len)?;
        view.copy_from_pinned(&setup.stream, &pinned)?;
        expected[start..start + len].copy_from_slice(&part);
        same(&setup.download(&memory)?, &expected, format_args!("{len} elements to {start}"))?;
        let mut back = setup.device.pinned_allocate::<u16>(200)?;
        memory.view().slice(start..start + len)?.copy_to_pinned(&setup.stream, &mut back)?;
        same(&back.as_slice()?[..len], &part, format_args!("{len} elements from {start}"))?;
        same(&back.as_slice()?[len..], &vec![0; 200 - len], "pinned memory behind the copy")?;
    }
    Ok(())
}

/// A copy from or to a part of a pinned memory touches exactly that part. A part beyond the memory is refused, and so
/// is a part that is shorter than the view.
pub fn copies_of_pinned_parts_touch_nothing_else(fixture: &Fixture) -> Outcome {
    fn at_offsets<T: Element + Debug>(setup: &Setup) -> Outcome {
        let (device, host) = (elements::<T>(1, 40), elements::<T>(2, 50));
        for (first, len, start) in [(0, 3, 5), (1, 40, 0), (49, 1, 39), (17, 20, 11), (50, 0, 40)] {
            let what = format!("{len} {} at {first} of pinned memory", T::DTYPE);
            let mut memory = setup.upload(&device)?;
            let mut pinned = setup.device.pinned_allocate::<T>(50)?;
            pinned.as_mut_slice()?.copy_from_slice(&host);
            let part = pinned.slice(first..first + len)?;
            check_eq!(part.len(), len, "the length of a part");
            memory.view_mut().slice(start..start + len)?.copy_from_pinned(&setup.stream, part)?;
            let mut expected = device.clone();
            expected[start..start + len].copy_from_slice(&host[first..first + len]);
            same(&setup.download(&memory)?, &expected, format_args!("from {what}"))?;
            let source = setup.upload(&device)?;
            let source = source.view().slice(start..start + len)?;
            source.copy_to_pinned(&setup.stream, pinned.slice_mut(first..first + len)?)?;
            let mut expected = host.clone();
            expected[first..first + len].copy_from_slice(&device[start..start + len]);
            same(pinned.as_slice()?, &expected, format_args!("to {what}"))?;
        }
        Ok(())
    }
    let setup = fixture.setup()?;
    each_element!(at_offsets(&setup))?;
    let mut memory = setup.upload(&[1_u32; 8])?;
    let mut pinned = setup.device.pinned_allocate::<u32>(20)?;
    let bounds = ErrorKind::OutOfBounds;
    #[expect(clippy::reversed_empty_ranges, reason = "a mistake that must be refused")]
    let reversed = 5..3;
    for range in [0..21, 20..21, 21..21, reversed, 0..usize::MAX, usize::MAX..usize::MAX] {
        refused(pinned.slice(range.clone()), bounds, format_args!("{range:?} of 20"))?;
        refused(pinned.slice_mut(range.clone()), bounds, format_args!("{range:?} of 20"))?;
    }
    let short = pinned.slice(5..12)?;
    refused(memory.view_mut().copy_from_pinned(&setup.stream, short), bounds, "7 elements for 8")?;
    let short = pinned.slice_mut(13..20)?;
    refused(memory.view().copy_to_pinned(&setup.stream, short), bounds, "8 elements into 7")?;
    memory.view().copy_to_pinned(&setup.stream, pinned.slice_mut(11..20)?)?;
    let expected: Vec<u32> = (0..20).map(|index| u32::from((11..19).contains(&index))).collect();
    same(pinned.as_slice()?, &expected, "a copy to a longer part, after refused copies")
}

/// Copies of parts of one pinned memory are ordered as copies of the whole memory: a copy waits for copies of the same
/// elements on other streams, and the host waits for all of them.
pub fn copies_of_pinned_parts_are_ordered(fixture: &Fixture) -> Outcome {
    const LEN: usize = 1 << 12;
    let setup = fixture.setup()?;
    let slow = setup.new_stream()?;
    let (first, second) = (setup.upload(&[1_u32; LEN])?, setup.upload(&[2_u32; LEN])?);
    let mut target = setup.upload(&[0_u32; LEN])?;
    let mut pinned = setup.device.pinned_allocate::<u32>(2 * LEN)?;
    setup.stream.synchronize()?;
    for _ in 0..3 {
        pinned.as_mut_slice()?.fill(0);
        let busy = setup.spin(&slow, HEAD_START)?;
        first.view().copy_to_pinned(&slow, pinned.slice_mut(LEN..2 * LEN)?)?;
        // The upper half of the slow copy is overwritten.
        second.view().copy_to_pinned(&setup.stream, pinned.slice_mut(LEN / 2..LEN + LEN / 2)?)?;
        let expected: Vec<u32> =
            [0, 2, 2, 1].into_iter().flat_map(|value| [value; LEN / 2]).collect();
        same(pinned.as_slice()?, &expected, "two copies to parts that share elements")?;
        busy.must_be_over("pinned memory with a part that a copy writes was read")?;

        setup.spin(&slow, HEAD_START)?;
        target.view_mut().copy_from_pinned(&slow, pinned.slice(LEN / 2..LEN + LEN / 2)?)?;
        first.view().copy_to_pinned(&setup.stream, pinned.slice_mut(0..LEN)?)?;
        let found = target.view().to_vec(&slow)?;
        same(&found, &[2; LEN], "a copy from a part before it is written")?;
    }
    Ok(())
}

/// Reading pinned memory on the host waits for the copies that write it.
pub fn reading_pinned_memory_waits_for_the_device(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    for start in [1, 500] {
        let mut memory = setup.upload(&[0_u32; 300])?;
        let mut pinned = setup.device.pinned_allocate::<u32>(300)?;
        let busy = setup.spin(&setup.stream, HEAD_START)?;
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), start)?;
        memory.view().copy_to_pinned(&setup.stream, &mut pinned)?;
        let expected: Vec<u32> = (start..start + 300).collect();
        same(pinned.as_slice()?, &expected, "the values the host reads after a copy was enqueued")?;
        busy.must_be_over("pinned memory that a copy writes was read")?;
    }
    Ok(())
}

/// Opening pinned memory for writing waits for the copies that read it: the device gets the old bytes.
pub fn writing_pinned_memory_waits_for_the_device(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let old = elements::<u32>(2, 300);
    let mut memory = setup.upload(&[0_u32; 300])?;
    let mut pinned = setup.device.pinned_allocate::<u32>(300)?;
    pinned.as_mut_slice()?.copy_from_slice(&old);
    let busy = setup.spin(&setup.stream, HEAD_START)?;
    memory.view_mut().copy_from_pinned(&setup.stream, &pinned)?;
    pinned.as_mut_slice()?.fill(7);
    busy.must_be_over("pinned memory that a copy reads was opened for writing")?;
    same(&setup.download(&memory)?, &old, "the values on the device")?;
    same(pinned.as_slice()?, &[7; 300], "the values the host wrote")
}

/// Reading pinned memory on the host does not wait for copies that only read it.
pub fn reading_pinned_memory_does_not_wait_for_readers(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut memory = setup.upload(&[0_u32; 300])?;
    let pinned = setup.device.pinned_allocate::<u32>(300)?;
    best_of_three(|| {
        let busy = setup.spin(&setup.stream, Duration::from_millis(200))?;
        memory.view_mut().copy_from_pinned(&setup.stream, &pinned)?;
        same(pinned.as_slice()?, &[0; 300], "pinned memory")?;
        check!(!setup.stream.is_done()?, "reading waited for a copy that reads");
        busy.was_done(&setup.stream)
    })
}

/// Pinned memory may be longer than the view. If it is shorter, the copy is refused and changes nothing.
pub fn pinned_lengths_are_checked(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let expected = elements::<i64>(3, 50);
    let mut memory = setup.upload(&expected)?;
    for len in [0, 1, 49] {
        let mut short = setup.device.pinned_allocate::<i64>(len)?;
        let kind = ErrorKind::OutOfBounds;
        let what = format_args!("{len} pinned elements for 50");
        refused(memory.view_mut().copy_from_pinned(&setup.stream, &short), kind, what)?;
        refused(memory.view().copy_to_pinned(&setup.stream, &mut short), kind, what)?;
        same(short.as_slice()?, &vec![0; len], "pinned memory after a refused copy")?;
    }
    same(&setup.download(&memory)?, &expected, "memory after refused copies")?;
    let mut long = setup.device.pinned_allocate::<i64>(60)?;
    memory.view().copy_to_pinned(&setup.stream, &mut long)?;
    same(&long.as_slice()?[..50], &expected, "a copy to longer pinned memory")?;
    same(&long.as_slice()?[50..], &[0; 10], "the rest of it")
}

/// Pinned memory can be used only for copies of its own device.
pub fn pinned_memory_of_another_device_is_refused(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    let mut memory = setup.upload(&[5_u8; 40])?;
    let mut pinned = other.device.pinned_allocate::<u8>(40)?;
    check!(pinned.device().is_same(&other.device), "pinned memory names another device");
    let kind = ErrorKind::WrongDevice;
    for stream in [&setup.stream, &other.stream] {
        refused(memory.view_mut().copy_from_pinned(stream, &pinned), kind, "a copy from it")?;
        refused(memory.view().copy_to_pinned(stream, &mut pinned), kind, "a copy to it")?;
    }
    same(&setup.download(&memory)?, &[5; 40], "memory after refused copies")?;
    same(pinned.as_slice()?, &[0; 40], "pinned memory after refused copies")
}

/// One pinned memory can be used for copies on many streams, and waits for all of them.
pub fn pinned_memory_serves_many_streams(fixture: &Fixture) -> Outcome {
    const STREAMS: u32 = 20;
    let setup = fixture.setup()?;
    let data = elements::<u32>(4, 100);
    let mut pinned = setup.device.pinned_allocate::<u32>(100)?;
    pinned.as_mut_slice()?.copy_from_slice(&data);
    let mut targets = Vec::new();
    for index in 0..STREAMS {
        let stream = setup.new_stream()?;
        let mut memory = setup.upload(&[0_u32; 100])?;
        // One of them is late.
        if index == 3 {
            setup.spin(&stream, HEAD_START)?;
        }
        memory.view_mut().copy_from_pinned(&stream, &pinned)?;
        targets.push((memory, stream));
    }
    pinned.as_mut_slice()?.fill(0);
    for (memory, stream) in &targets {
        same(&memory.view().to_vec(stream)?, &data, "the values that each stream copied")?;
    }
    let bytes: &[u8] = bytemuck::cast_slice(pinned.as_slice()?);
    check!(bytes.iter().all(|byte| *byte == 0), "the host's own writes are lost");
    Ok(())
}

/// Copies that use the same pinned memory on several streams run in the order of their calls, if one of them writes it.
pub fn copies_of_one_pinned_memory_are_ordered(fixture: &Fixture) -> Outcome {
    const LEN: usize = 1 << 14;
    let setup = fixture.setup()?;
    let slow = setup.new_stream()?;
    let first = setup.upload(&[1_u32; LEN])?;
    let second = setup.upload(&[2_u32; LEN])?;
    let mut target = setup.upload(&[0_u32; LEN])?;
    let mut pinned = setup.device.pinned_allocate::<u32>(LEN)?;
    setup.stream.synchronize()?;
    for _ in 0..3 {
        setup.spin(&slow, HEAD_START)?;
        first.view().copy_to_pinned(&slow, &mut pinned)?;
        second.view().copy_to_pinned(&setup.stream, &mut pinned)?;
        same(pinned.as_slice()?, &[2; LEN], "the later of two copies to pinned memory")?;
        slow.synchronize()?;
        same(pinned.as_slice()?, &[2; LEN], "it, when the stream of the earlier one is done")?;

        setup.spin(&slow, HEAD_START)?;
        target.view_mut().copy_from_pinned(&slow, &pinned)?;
        first.view().copy_to_pinned(&setup.stream, &mut pinned)?;
        same(&target.view().to_vec(&slow)?, &[2; LEN], "a copy from it before it is written")?;

        setup.spin(&slow, HEAD_START)?;
        second.view().copy_to_pinned(&slow, &mut pinned)?;
        target.view_mut().copy_from_pinned(&setup.stream, &pinned)?;
        same(&setup.download(&target)?, &[2; LEN], "a copy from it after it was written")?;
    }
    Ok(())
}

/// Copies that only read the same pinned memory do not wait for each other.
pub fn copies_from_one_pinned_memory_run_side_by_side(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (slow, quick) = (setup.new_stream()?, setup.new_stream()?);
    let mut targets = [setup.upload(&[0_u32; 300])?, setup.upload(&[0_u32; 300])?];
    let pinned = setup.device.pinned_allocate::<u32>(300)?;
    setup.stream.synchronize()?;
    best_of_three(|| {
        let busy = setup.spin(&slow, Duration::from_millis(200))?;
        targets[0].view_mut().copy_from_pinned(&slow, &pinned)?;
        targets[1].view_mut().copy_from_pinned(&quick, &pinned)?;
        quick.synchronize()?;
        check!(!slow.is_done()?, "a copy that reads waited for another one that reads");
        busy.was_done(&slow)
    })
}

/// Every device accepts requests for write-combined memory, which keeps every guarantee of pinned memory.
pub fn write_combined_memory_is_pinned_memory(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let options = PinnedOptions::default().with_write_combined(true);
    for len in [1, 65, 10_000] {
        let mut there = setup.device.pinned_allocate_with::<u32>(len, &options)?;
        let mut back = setup.device.pinned_allocate_with::<u32>(len, &options)?;
        check_eq!(there.as_slice()?.as_ptr().addr() % 64, 0, "the address modulo 64");
        same(there.as_slice()?, &vec![0; len], format_args!("{len} fresh elements"))?;
        let data = elements::<u32>(len as u64, len);
        there.as_mut_slice()?.copy_from_slice(&data);
        let mut memory = setup.device.memory_allocate::<u32>(len)?;
        let busy = setup.spin(&setup.stream, HEAD_START)?;
        memory.view_mut().copy_from_pinned(&setup.stream, &there)?;
        there.as_mut_slice()?.fill(7);
        busy.must_be_over("write-combined memory that a copy reads was opened for writing")?;
        memory.view().copy_to_pinned(&setup.stream, &mut back)?;
        same(back.as_slice()?, &data, format_args!("{len} elements there and back"))?;
    }
    let none = setup.device.pinned_allocate_with::<u32>(0, &options)?;
    check_eq!(none.as_slice()?.len(), 0, "elements of memory without any");
    let beyond = setup.device.pinned_allocate_with::<u64>(usize::MAX / 4, &options);
    refused(beyond, ErrorKind::OutOfMemory, "more than there can be").map(drop)
}
