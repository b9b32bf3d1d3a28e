//! Operations of streams on blocks.
#![expect(
    unsafe_code,
    reason = "runs region programs and host kernels on memory that it holds the locks of"
)]

use std::fmt;
use std::sync::Arc;

use runtime_core::contract::{DeviceMemory, ParamAccess, RawArg};
use runtime_core::{
    Error, ErrorKind, Grid, HostArg, HostKernel, HostSlot, Launch, RegionProgram, Result,
};
use smallvec::SmallVec;

use crate::access::{Access, Guard};
use crate::block::{Block, Span};
use crate::{Cores, guarded};

/// Most operations touch at most this many memories. Longer lists are allocated on the heap.
const FEW: usize = 8;

/// An operation on blocks, with all data needed to run it at any time in any thread.
#[derive(Debug)]
pub enum Work {
    /// Copies as many bytes as both spans have.
    Copy {
        /// The bytes to read.
        src: Span,
        /// The bytes to write.
        dst: Span,
    },
    /// Repeats the first `len` bytes of `pattern`.
    Fill {
        /// The bytes to write.
        dst: Span,
        /// The pattern, padded.
        pattern: [u8; 16],
        /// Length of the pattern in bytes.
        len: usize,
    },
    /// Runs a region program; made by [`Work::regions`].
    Regions(Regions),
    /// Runs a host kernel.
    Launch(HostLaunch),
}

/// A region program with memory bound to its slots.
#[derive(Debug)]
pub struct Regions {
    program: Arc<RegionProgram>,
    slots: SmallVec<[SlotSpan; FEW]>,
}

/// The span bound to one slot of a region program. `None` if the program needs no byte of the slot, or if the copies
/// that use it are left out.
pub type SlotSpan = Option<Span>;

impl Work {
    /// Fills `dst` with repetitions of `pattern`. Only the first 16 bytes of `pattern` are used.
    pub fn fill(dst: Span, pattern: &[u8]) -> Self {
        let len = pattern.len().min(16);
        let mut padded = [0; 16];
        padded[..len].copy_from_slice(&pattern[..len]);
        Self::Fill { dst, pattern: padded, len }
    }

    /// Runs `program` with `slots[i]` bound to slot `i`.
    ///
    /// # Errors
    ///
    /// The first error among the slots.
    ///
    /// # Safety
    ///
    /// The slots agree with the program's [`slots`](RegionProgram::slots): there are as many, and each span is long
    /// enough and aligned. One block may be bound to several slots. The bytes that the program touches through a slot
    /// that it writes are touched through no other slot. If a span is [of a split](Span::of_split), the program touches
    /// only its side of the split.
    pub unsafe fn regions(
        program: &Arc<RegionProgram>,
        slots: impl IntoIterator<Item = Result<SlotSpan>>,
    ) -> Result<Self> {
        let slots = slots.into_iter().collect::<Result<_>>()?;
        Ok(Self::Regions(Regions { program: Arc::clone(program), slots }))
    }

    /// The number of bytes that it moves or writes. 0 for a kernel, where the number is unknown.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Copy { src, dst } => src.len().min(dst.len()),
            Self::Fill { dst, .. } => dst.len(),
            Self::Regions(regions) => {
                let Regions { program, slots } = regions;
                let bytes = program.bytes_among(|slot| slots[slot].is_some());
                usize::try_from(bytes).unwrap_or(usize::MAX)
            }
            Self::Launch(_) => 0,
        }
    }

    /// Locks every block that the work touches. Blocks while other operations hold them.
    pub fn hold(&self) -> LockedWork<'_> {
        let guards = self.claims().iter().map(|claim| claim.block.hold(claim.access)).collect();
        LockedWork { work: self, _guards: guards }
    }

    /// As [`hold`](Self::hold), but returns `None` if another operation holds one of the blocks.
    pub fn try_hold(&self) -> Option<LockedWork<'_>> {
        let claims = self.claims();
        let guards =
            claims.iter().map(|claim| claim.block.try_hold(claim.access)).collect::<Option<_>>()?;
        Some(LockedWork { work: self, _guards: guards })
    }

    /// The blocks that it touches, each once and sorted by address. Every operation locks blocks in this order.
    fn claims<'a>(&'a self) -> SmallVec<[Claim<'a>; FEW]> {
        let mut claims: SmallVec<[Claim<'a>; FEW]> = SmallVec::new();
        let mut claim = |span: &'a Span, writes| {
            claims.push(Claim { block: span.block(), access: span.access(writes) })
        };
        match self {
            Self::Copy { src, dst } => {
                claim(src, false);
                claim(dst, true);
            }
            Self::Fill { dst, .. } => claim(dst, true),
            Self::Regions(Regions { program, slots }) => {
                for (span, used) in slots.iter().zip(program.slots()) {
                    span.iter().for_each(|span| claim(span, used.written));
                }
            }
            Self::Launch(launch) => {
                for argument in &launch.arguments {
                    if let Argument::Memory { span, writes } = argument {
                        claim(span, *writes);
                    }
                }
            }
        }
        claims.sort_unstable_by_key(|claim| std::ptr::from_ref(claim.block).addr());
        claims.dedup_by(|next, kept| {
            let same = std::ptr::eq(next.block, kept.block);
            if same {
                kept.access = kept.access.and(next.access);
            }
            same
        });
        claims
    }
}

struct Claim<'a> {
    block: &'a Block,
    access: Access,
}

/// Work whose blocks are locked.
pub struct LockedWork<'a> {
    work: &'a Work,
    _guards: SmallVec<[Guard<'a>; FEW]>,
}

impl LockedWork<'_> {
    /// Runs the work on `cores`.
    ///
    /// # Errors
    ///
    /// The error of a kernel, with the kernel's name. A panic of a kernel is a `DeviceFault`.
    pub fn perform(self, cores: Cores<'_>) -> Result<()> {
        match self.work {
            Work::Copy { src, dst } => src.copy_to(dst, cores),
            Work::Fill { dst, pattern, len } => dst.fill(&pattern[..*len], cores),
            Work::Regions(regions) => regions.run(cores),
            Work::Launch(launch) => {
                return guarded("launch", || launch.run(cores)).map_err(|error| {
                    error.about(format_args!("kernel {:?}", launch.kernel.name()))
                });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for LockedWork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockedWork").field(self.work).finish()
    }
}

impl Regions {
    fn run(&self, cores: Cores<'_>) {
        let slots: SmallVec<[HostSlot; FEW]> = self.slots.iter().map(host_slot).collect();
        let slots = Slots(&slots);
        for phase in 0..self.program.phases().len() {
            cores.for_each(self.program.parts(phase), &|part| {
                // SAFETY: the slots agree with the program, as the creator of this promised, and their blocks are held.
                // Each part of a phase runs once, and the parts write different bytes. A phase begins after the
                // previous one has ended.
                unsafe { self.program.run_part(phase, part, slots.get()) };
            });
        }
    }
}

fn host_slot(span: &SlotSpan) -> HostSlot {
    match span {
        Some(span) => HostSlot { base: span.pointer().as_ptr(), len: span.len() },
        None => HostSlot::ABSENT,
    }
}

/// Slots shared by threads; each thread uses them for its own parts.
struct Slots<'a>(&'a [HostSlot]);

impl Slots<'_> {
    fn get(&self) -> &[HostSlot] {
        self.0
    }
}

// SAFETY: addresses are only numbers until code with access to the bytes uses them.
unsafe impl Sync for Slots<'_> {}

/// A launch of a host kernel with its own copy of every value.
#[derive(Debug)]
pub struct HostLaunch {
    kernel: HostKernel,
    launch: Launch,
    arguments: SmallVec<[Argument; FEW]>,
    values: SmallVec<[u8; 64]>,
}

#[derive(Debug)]
enum Argument {
    Memory { span: Span, writes: bool },
    Empty,
    Value { start: usize, len: usize },
}

impl HostLaunch {
    /// Copies the values in `args`. `block` returns the block of a memory.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if an argument runs backwards through memory, which a slice cannot express. Errors of `block`.
    pub fn new<'a>(
        kernel: &HostKernel,
        launch: &Launch,
        args: &[RawArg<'a>],
        block: impl Fn(&'a dyn DeviceMemory) -> Result<&'a Arc<Block>>,
    ) -> Result<Self> {
        let mut values = SmallVec::new();
        let argument = |(index, arg): (usize, &RawArg<'a>)| match *arg {
            RawArg::Memory { memory, origin, start, bytes, writes, .. } => {
                if origin != start {
                    return Err(Error::new(
                        ErrorKind::InvalidArgument,
                        "launch",
                        format!(
                            "argument {index} has a negative stride, which a Rust slice cannot have"
                        ),
                    ));
                }
                let parameter =
                    kernel.parameters().get(index).and_then(|parameter| parameter.access);
                let writes = writes || parameter == Some(ParamAccess::Write);
                Ok(Argument::Memory { span: Span::new(block(memory)?, start, bytes)?, writes })
            }
            RawArg::Empty { .. } => Ok(Argument::Empty),
            RawArg::Value { bytes, .. } => {
                let start = values.len();
                values.extend_from_slice(bytes);
                Ok(Argument::Value { start, len: bytes.len() })
            }
        };
        let arguments = args.iter().enumerate().map(argument).collect::<Result<_>>()?;
        Ok(Self { kernel: kernel.clone(), launch: *launch, arguments, values })
    }

    fn run(&self, cores: Cores<'_>) -> Result<()> {
        let host = |argument: &Argument| match argument {
            Argument::Memory { span, .. } => {
                HostArg::Memory { pointer: span.pointer().as_ptr(), bytes: span.len() }
            }
            Argument::Empty => HostArg::Memory { pointer: std::ptr::null_mut(), bytes: 0 },
            Argument::Value { start, len } => HostArg::Value(&self.values[*start..start + len]),
        };
        let args: SmallVec<[HostArg<'_>; FEW]> = self.arguments.iter().map(host).collect();
        let grid = Grid::new(self.launch, cores.parallel());
        // SAFETY: blocks are initialised. The blocks of the arguments are held until this returns, exclusively if the
        // kernel writes them.
        unsafe { self.kernel.run(&grid, &args) }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use runtime_core::{Combine, DType};
    use runtime_core::{HostModule, RegionCopy, RegionSide};

    use super::*;

    fn block(bytes: &[u8]) -> Arc<Block> {
        let block = Block::zeroed(bytes.len(), None).unwrap();
        whole(&block).copy_in(bytes, Cores::SERIAL).unwrap();
        block
    }

    fn whole(block: &Arc<Block>) -> Span {
        Span::new(block, 0, block.len()).unwrap()
    }

    fn bytes(block: &Arc<Block>) -> Vec<u8> {
        let mut bytes = vec![0; block.len()];
        whole(block).copy_out(&mut bytes, Cores::SERIAL).unwrap();
        bytes
    }

    #[test]
    fn copies_and_fills_touch_their_spans_alone() {
        let (a, b) = (block(&[1, 2, 3, 4]), block(&[9; 6]));
        let src = Span::new(&a, 1, 3).unwrap();
        let copy = Work::Copy { src, dst: Span::new(&b, 2, 3).unwrap() };
        copy.hold().perform(Cores::SERIAL).unwrap();
        Work::fill(Span::new(&b, 0, 2).unwrap(), &[5, 6]).hold().perform(Cores::SERIAL).unwrap();
        assert_eq!(bytes(&b), [5, 6, 2, 3, 4, 9]);
        let within =
            Work::Copy { src: Span::new(&b, 0, 2).unwrap(), dst: Span::new(&b, 4, 2).unwrap() };
        within.hold().perform(Cores::SERIAL).unwrap();
        assert_eq!(bytes(&b), [5, 6, 2, 3, 5, 6]);
    }

    #[test]
    fn held_blocks_are_held_for_others() {
        let (a, b) = (block(&[0; 4]), block(&[0; 4]));
        let read_a = Work::Copy { src: whole(&a), dst: whole(&b) };
        let also_read_a = Work::Copy { src: whole(&a), dst: whole(&block(&[0; 4])) };
        let write_a = Work::fill(whole(&a), &[1]);
        let held = read_a.hold();
        assert!(also_read_a.try_hold().is_some());
        assert!(write_a.try_hold().is_none());
        assert!(read_a.try_hold().is_none());
        drop(held);
        assert!(write_a.try_hold().is_some());
    }

    #[test]
    fn opposite_copies_do_not_deadlock() {
        let (a, b) = (block(&[1; 64]), block(&[2; 64]));
        thread::scope(|scope| {
            for (src, dst) in [(&a, &b), (&b, &a)] {
                scope.spawn(move || {
                    let work = Work::Copy { src: whole(src), dst: whole(dst) };
                    for _ in 0..2000 {
                        work.hold().perform(Cores::SERIAL).unwrap();
                    }
                });
            }
        });
        assert_eq!(bytes(&a), bytes(&b));
    }

    #[test]
    fn region_programs_run_on_their_slots() {
        let entry = RegionCopy {
            dtype: DType::U8,
            extents: vec![2, 2],
            source: RegionSide { slot: 0, offset: 0, strides: vec![1, 2] },
            destination: RegionSide { slot: 2, offset: 1, strides: vec![2, 1] },
            negate: false,
            combine: Combine::Replace,
        };
        let program = Arc::new(RegionProgram::new(&[entry]).unwrap());
        let (a, b) = (block(&[1, 2, 3, 4]), block(&[0; 5]));
        let slots = [Ok(Some(whole(&a))), Ok(None), Ok(Some(whole(&b)))];
        // SAFETY: the slots are long enough for the entry, and two blocks.
        let work = unsafe { Work::regions(&program, slots) }.unwrap();
        work.hold().perform(Cores::SERIAL).unwrap();
        assert_eq!(bytes(&b), [0, 1, 3, 2, 4]);
    }

    struct Raw(Arc<Block>);

    // SAFETY: a block of a fixed place and size.
    unsafe impl DeviceMemory for Raw {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn host_ptr(&self) -> Option<*mut u8> {
            None
        }

        fn native(&self) -> runtime_core::NativeHandle {
            runtime_core::NativeHandle {
                api: "test",
                kind: runtime_core::NativeKind::Pointer,
                raw: 0,
            }
        }
    }

    fn block_of(memory: &dyn DeviceMemory) -> Result<&Arc<Block>> {
        Ok(&runtime_core::contract::own::<Raw>(memory, "test")?.0)
    }

    fn argument(memory: &Raw, origin: usize, writes: bool) -> RawArg<'_> {
        RawArg::Memory {
            memory,
            origin,
            start: 4,
            bytes: 8,
            dtype: DType::F32,
            writes,
            dense: true,
        }
    }

    #[test]
    fn kernels_get_their_arguments() {
        let module = HostModule::new().with("scale", |_: &Grid<'_>, x: &mut [f32], by: f32| {
            x.iter_mut().for_each(|x| *x *= by);
        });
        let kernel = module.kernel("scale").unwrap();
        let raw = Raw(block(&[1.0_f32, 2.0, 3.0, 4.0].map(f32::to_ne_bytes).concat()));
        let by = 3.0_f32.to_ne_bytes();
        let args =
            [argument(&raw, 4, false), RawArg::Value { bytes: &by, dtype: Some(DType::F32) }];
        let launch = HostLaunch::new(&kernel, &Launch::cover(2, 1), &args, block_of).unwrap();
        let work = Work::Launch(launch);
        let held = work.hold();
        // The parameter is written, whatever the argument says.
        assert!(raw.0.try_hold(Access::Read).is_none());
        held.perform(Cores::SERIAL).unwrap();
        assert_eq!(bytes(&raw.0), [1.0_f32, 6.0, 9.0, 4.0].map(f32::to_ne_bytes).concat());
    }

    #[test]
    fn slices_do_not_run_backwards() {
        let kernel =
            HostModule::new().with("k", |_: &Grid<'_>, _x: &[f32]| {}).kernel("k").unwrap();
        let raw = Raw(block(&[0; 16]));
        let args = [argument(&raw, 8, false)];
        let error = HostLaunch::new(&kernel, &Launch::cover(1, 1), &args, block_of).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
