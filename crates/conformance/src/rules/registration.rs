//! Page-locked host memory of the program.
#![expect(unsafe_code, reason = "page-locks memory that an owner keeps")]

use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use runtime_core::{ConversionError, Device, Element, ErrorKind, Pinned, Support};

use crate::data::{each_element, elements};
use crate::outcome::{Outcome, best_of_three, check, check_eq, needed, same};
use crate::setup::Setup;
use crate::{Ability, Fixture};

/// Long enough that a copy enqueued behind it has not run when the host continues.
const HEAD_START: Duration = Duration::from_millis(40);

/// Bytes that begin at a memory page, whatever its size. Their drop is counted, and overwrites them.
struct Pages {
    bytes: Vec<u8>,
    drops: Arc<AtomicUsize>,
}

impl Pages {
    /// As large as any memory page.
    const ALIGNMENT: usize = 1 << 16;

    /// At least `len` such bytes, and the number of drops.
    fn filled_with(byte: u8, len: usize) -> (Self, Arc<AtomicUsize>) {
        let drops = Arc::default();
        (Self { bytes: vec![byte; len + Self::ALIGNMENT], drops: Arc::clone(&drops) }, drops)
    }

    fn first(&mut self) -> NonNull<u8> {
        let address = self.bytes.as_ptr().addr();
        let skipped = address.next_multiple_of(Self::ALIGNMENT) - address;
        NonNull::from(&mut self.bytes[skipped..]).cast()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.bytes.fill(0);
        self.drops.fetch_add(1, Ordering::Release);
    }
}

fn is_there(device: &Device) -> bool {
    device.capabilities().host_registration == Support::Native
}

/// The setup of a device that registers host memory.
fn setup(fixture: &Fixture) -> Outcome<Setup> {
    let setup = fixture.setup()?;
    needed(is_there(&setup.device).then_some(()), Ability::HostRegistration)?;
    Ok(setup)
}

/// Registers a vector of these elements. Also returns its address.
fn pin<T: Element>(device: &Device, elements: &[T]) -> Outcome<(Pinned<T>, *const T)> {
    // Another rule may have registered memory in the same page. The next vector is elsewhere while this one lives.
    let mut refused = Vec::new();
    loop {
        let vec = elements.to_vec();
        let address = vec.as_ptr();
        match device.pin_vec(vec) {
            Ok(pinned) => return Ok((pinned, address)),
            Err(error) if error.error().kind() == ErrorKind::Conflict && refused.len() < 50 => {
                refused.push(error.into_inner());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A registered vector is page-locked where it is: copies read and write its own elements, and it comes back at the
/// same address, with the values that copies and the host wrote. It can be registered again.
pub fn registered_memory_is_the_vector_itself(fixture: &Fixture) -> Outcome {
    fn at_its_address<T: Element + Debug>(setup: &Setup) -> Outcome {
        for len in [1, 5, 1001] {
            let what = format!("{len} {}", T::DTYPE);
            let (there, back) = (elements::<T>(1, len), elements::<T>(2, len));
            let (mut pinned, address) = pin(&setup.device, &there)?;
            check_eq!(pinned.len(), len, "the length of {what}");
            check_eq!(pinned.host_ptr().as_ptr().cast_const(), address, "the address of {what}");
            same(pinned.as_slice()?, &there, format_args!("{what} after the registration"))?;
            let mut memory = setup.device.memory_allocate::<T>(len)?;
            memory.view_mut().copy_from_pinned(&setup.stream, &pinned)?;
            same(&setup.download(&memory)?, &there, format_args!("{what} on the device"))?;
            let other = setup.upload(&back)?;
            let rest = pinned.slice_mut(len / 2..len)?;
            other.view().slice(len / 2..len)?.copy_to_pinned(&setup.stream, rest)?;
            pinned.as_mut_slice()?[0] = back[0];
            let mut expected = there;
            expected[len / 2..].copy_from_slice(&back[len / 2..]);
            expected[0] = back[0];
            let vec = pinned.into_vec()?;
            check_eq!(vec.as_ptr(), address, "the address of {what} that came back");
            same(&vec, &expected, format_args!("{what} that came back"))?;
        }
        Ok(())
    }
    let setup = setup(fixture)?;
    each_element!(at_its_address(&setup))?;
    let mut vec = Vec::with_capacity(100);
    let address = vec.as_ptr();
    vec = setup.device.pin_vec::<u8>(vec)?.into_vec()?;
    check_eq!((vec.as_ptr(), vec.capacity(), vec.len()), (address, 100, 0), "an empty vector");
    let (mut pinned, address) = pin(&setup.device, &[7_u32; 5000])?;
    for _ in 0..5 {
        pinned = setup.device.pin_vec(pinned.into_vec()?)?;
        check_eq!(pinned.host_ptr().as_ptr().cast_const(), address, "the address, once more");
    }
    same(pinned.as_slice()?, &[7; 5000], "a vector that was registered several times")
}

/// Enqueueing copies from and to a registered vector does not wait for work before them.
pub fn copies_of_registered_memory_do_not_wait(fixture: &Fixture) -> Outcome {
    let setup = setup(fixture)?;
    let (source, _) = pin(&setup.device, &[1_u32; 5000])?;
    let (mut target, _) = pin(&setup.device, &[2_u32; 5000])?;
    let mut memory = setup.upload(&[0_u32; 5000])?;
    best_of_three(|| {
        let busy = setup.spin(&setup.stream, Duration::from_millis(200))?;
        memory.view_mut().copy_from_pinned(&setup.stream, &source)?;
        check!(!setup.stream.is_done()?, "a copy from a registered vector waited");
        memory.view().copy_to_pinned(&setup.stream, &mut target)?;
        check!(!setup.stream.is_done()?, "a copy to a registered vector waited");
        busy.was_done(&setup.stream)
    })?;
    same(target.as_slice()?, &[1; 5000], "the values copied from vector to vector")
}

/// A vector comes back only after the copies from and to it are done.
pub fn a_vector_comes_back_after_its_copies(fixture: &Fixture) -> Outcome {
    let setup = setup(fixture)?;
    for start in [1, 500] {
        let mut memory = setup.upload(&[0_u32; 300])?;
        let mut copied = setup.upload(&[0_u32; 300])?;
        let (source, _) = pin(&setup.device, &[9_u32; 300])?;
        let (mut target, _) = pin(&setup.device, &[0_u32; 300])?;
        let busy = setup.spin(&setup.stream, HEAD_START)?;
        copied.view_mut().copy_from_pinned(&setup.stream, &source)?;
        let mut source = source.into_vec()?;
        let is_over = busy.must_be_over("a vector came back while it was read");
        source.fill(0);
        setup.spin(&setup.stream, HEAD_START)?;
        setup.kernels.fill_index(&setup.stream, memory.view_mut(), start)?;
        memory.view().copy_to_pinned(&setup.stream, &mut target)?;
        let target = target.into_vec()?;
        let (found, expected): (_, Vec<u32>) = (target.clone(), (start..start + 300).collect());
        // The vectors stay until a device that did not wait has finished.
        setup.stream.synchronize()?;
        drop((source, target));
        same(&found, &expected, "the values of a vector that came back")?;
        same(&setup.download(&copied)?, &[9; 300], "the values copied from a vector")?;
        is_over?;
    }
    Ok(())
}

/// A registered vector that is dropped with copies in flight, in either direction, stays until they have finished. So
/// does memory of another owner, which is dropped once, after its copies.
pub fn registered_memory_dropped_in_flight_stays_until_the_copies_are_done(
    fixture: &Fixture,
) -> Outcome {
    const LEN: usize = 1 << 14;
    let setup = setup(fixture)?;
    let data = elements::<u8>(3, LEN);
    let (outgoing, _) = pin(&setup.device, &data)?;
    let (mut incoming, _) = pin(&setup.device, &[0_u8; LEN])?;
    let other = setup.upload(&elements::<u8>(4, LEN))?;
    let mut memory = setup.device.memory_allocate::<u8>(LEN)?;
    let busy = setup.spin(&setup.stream, HEAD_START)?;
    memory.view_mut().copy_from_pinned(&setup.stream, &outgoing)?;
    other.view().copy_to_pinned(&setup.stream, &mut incoming)?;
    let (mut pages, drops) = Pages::filled_with(0x77, LEN);
    let first = pages.first();
    // SAFETY: the owner keeps as many bytes, and no other code uses them.
    let adopted = unsafe { setup.device.pinned_adopt::<u8>(first, LEN, pages) }?;
    let mut third = setup.device.memory_allocate::<u8>(LEN)?;
    third.view_mut().copy_from_pinned(&setup.stream, &adopted)?;
    drop((outgoing, incoming, adopted));
    let fresh: Vec<Vec<u8>> = (0..4).map(|_| vec![0x55; LEN]).collect();
    busy.was_done(&setup.stream)?;
    same(&setup.download(&memory)?, &data, "the values copied from a dropped vector")?;
    same(&setup.download(&third)?, &[0x77; LEN], "the values copied from memory of an owner")?;
    setup.device.synchronize()?;
    check_eq!(drops.load(Ordering::Acquire), 1, "the number of drops of an owner");
    for vec in &fresh {
        same(vec, &[0x55; LEN], "a vector made meanwhile")?;
    }
    Ok(())
}

/// A registration that is refused returns the vector unharmed. It is refused as a conflict if a page of the vector is
/// registered already, as out of memory, or as unsupported on a device without the ability.
pub fn refused_registrations_give_the_vector_back(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let kinds: &[ErrorKind] = match is_there(&setup.device) {
        true => &[ErrorKind::Conflict, ErrorKind::OutOfMemory],
        false => &[ErrorKind::Unsupported],
    };
    let mut kept = Vec::new();
    // Many small vectors share a page.
    for seed in 0..40 {
        let expected = elements::<u16>(seed, 50);
        let vec = expected.clone();
        let address = vec.as_ptr();
        match setup.device.pin_vec(vec) {
            Ok(pinned) => kept.push((pinned, expected)),
            Err(refused) => {
                let (vec, error) = ConversionError::into_parts(refused);
                check!(kinds.contains(&error.kind()), "{error}; expected {kinds:?}");
                check_eq!(error.device(), Some(setup.device.id()), "the device of the error");
                check_eq!(vec.as_ptr(), address, "the address of a vector that was refused");
                same(&vec, &expected, "a vector that was refused")?;
            }
        }
    }
    for (pinned, expected) in kept {
        same(pinned.as_slice()?, &expected, "a vector beside vectors that were refused")?;
    }
    setup.is_usable()
}
