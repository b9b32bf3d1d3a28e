//! A child process makes each call between two stops, and the test executes it one instruction at a time. It prints the
//! counts, also those of all instructions, which depend on the optimisation.
#![expect(unsafe_code, reason = "launches on a device that does nothing")]

use std::env;
use std::error::Error;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use conformance::NullDevice;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use runtime_core::{
    Combine, DType, Device, ImageFormat, Launch, ModuleImage, RegionCopy, RegionSide, Slot, args,
};

/// Set for the child process.
const TRACED: &str = "ATOMICS_TRACED";

pub(super) fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os(TRACED).is_some() {
        ptrace::traceme()?;
        return calls();
    }
    let mut child =
        Command::new(env::current_exe()?).env(TRACED, "1").stdout(Stdio::piped()).spawn()?;
    let counts = count(&child);
    if counts.is_err() {
        child.kill()?;
    }
    let (counts, mut output) = (counts?, String::new());
    child.stdout.take().ok_or("no output")?.read_to_string(&mut output)?;
    if output.lines().count() != counts.len() || counts.is_empty() {
        return Err(format!("{} counts of these calls:\n{output}", counts.len()).into());
    }
    let mut differ = 0;
    for ((atomics, instructions), line) in counts.iter().zip(output.lines()) {
        let (name, expected) = line.rsplit_once(": ").ok_or(line)?;
        let verdict = if expected.parse() == Ok(*atomics) { "" } else { "  DIFFERS" };
        differ += usize::from(!verdict.is_empty());
        println!(
            "{name:44} {atomics:3} atomics, {expected:>3} expected, {instructions:5} instructions{verdict}"
        );
    }
    if differ > 0 {
        return Err(format!("{differ} calls execute another number of atomics").into());
    }
    Ok(())
}

/// For each call of the child, until it ends, the number of atomic read-modify-writes and of all instructions.
fn count(child: &Child) -> Result<Vec<(usize, usize)>, Box<dyn Error>> {
    let pid = Pid::from_raw(child.id().try_into()?);
    let mut counts = Vec::new();
    loop {
        // The call that is not counted, because its first uses are registered.
        match waitpid(pid, None)? {
            WaitStatus::Exited(_, 0) => return Ok(counts),
            WaitStatus::Stopped(_, Signal::SIGSTOP) => {}
            status => return Err(format!("before call {}: {status:?}", counts.len()).into()),
        }
        let (mut atomics, mut instructions) = (0, 0);
        loop {
            ptrace::step(pid, None)?;
            match waitpid(pid, None)? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
                WaitStatus::Stopped(_, Signal::SIGSTOP) => break,
                status => return Err(format!("in call {}: {status:?}", counts.len()).into()),
            }
            let next = ptrace::getregs(pid)?.rip;
            let bytes = ptrace::read(pid, next as ptrace::AddressType)?.to_ne_bytes();
            atomics += usize::from(is_atomic(bytes));
            instructions += 1;
        }
        counts.push((atomics, instructions));
        ptrace::cont(pid, None)?;
    }
}

/// Whether the instruction has the prefix that locks, or exchanges a register with memory, which always locks.
fn is_atomic(bytes: [u8; 8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    let mut rest = bytes.iter().copied().skip_while(is_prefix);
    match (rest.next(), rest.next()) {
        (Some(0xf0), _) => true,
        (Some(0x86 | 0x87), Some(operands)) => operands < 0xc0,
        _ => false,
    }
}

/// Makes a call twice. The second time is between two stops.
fn call(
    name: &str,
    expected: usize,
    mut call: impl FnMut() -> runtime_core::Result<()>,
) -> Result<(), Box<dyn Error>> {
    call()?;
    let stop = || kill(Pid::this(), Signal::SIGSTOP);
    stop()?;
    let done = call();
    stop()?;
    done?;
    println!("{name}: {expected}");
    Ok(())
}

/// What the child does.
fn calls() -> Result<(), Box<dyn Error>> {
    let device = Device::new(NullDevice::default())?;
    let stream = device.default_stream();
    let memory = || device.memory_allocate::<f64>(64);
    let (mut target, sources) = (memory()?, [memory()?, memory()?, memory()?, memory()?]);
    let mut host = [0.0; 64];
    let event = device.event_create(false)?;
    call("nothing", 0, || Ok(()))?;
    call("record", 0, || stream.record(&event))?;
    call("wait", 0, || stream.wait(&event))?;
    call("fill", 1, || target.view_mut().fill(&stream, 1.0))?;
    call("copy_from", 1, || target.view_mut().copy_from(&stream, &sources[0].view()))?;
    call("copy_from_slice", 1, || target.view_mut().copy_from_slice(&stream, &host))?;
    call("copy_to_slice", 3, || target.view().copy_to_slice(&stream, &mut host))?;

    let module = device.module_load(ModuleImage::source(ImageFormat::Ptx, ""))?;
    let (kernel, launch) = (module.kernel("aaaa")?, Launch::cover(64, 64));
    call("launch, 4 arguments", 1, || {
        let [a, b, c, d] = &sources;
        // SAFETY: the null device accesses no byte.
        unsafe { kernel.launch(&stream, &launch, args![a, b, c, d]) }
    })?;

    let unified = device.unified_memory().ok_or("no unified memory")?;
    let shown = || unified.allocate::<f64>(64);
    let mut shown = [shown()?, shown()?, shown()?, shown()?];
    call("fill, unified memory", 3, || shown[0].view_mut().fill(&stream, 1.0))?;
    call("launch, 4 arguments, unified memory", 3, || {
        let [a, b, c, d] = &shown;
        // SAFETY: as above.
        unsafe { kernel.launch(&stream, &launch, args![a, b, c, d]) }
    })?;
    call("as_slice, unified memory", 0, || shown[0].as_slice().map(drop))?;

    let pinned = || device.pinned_allocate::<f64>(64);
    let (given, mut taken) = (pinned()?, pinned()?);
    call("copy_from_pinned", 3, || target.view_mut().copy_from_pinned(&stream, &given))?;
    call("copy_to_pinned", 3, || target.view().copy_to_pinned(&stream, &mut taken))?;
    let graph = device.graphs().ok_or("no graphs")?.capture(|to| {
        target.view_mut().copy_from_pinned(to, &given)?;
        target.view().copy_to_pinned(to, &mut taken)
    })?;
    // SAFETY: as above.
    call("launch of a graph, 2 pinned memories", 8, || unsafe { graph.launch(&stream) })?;

    let row = |slot| RegionSide { slot, offset: 0, strides: vec![8] };
    let plan = device.plan_regions(&[RegionCopy {
        dtype: DType::F64,
        extents: vec![64],
        source: row(0),
        destination: row(1),
        negate: false,
        combine: Combine::Replace,
    }])?;
    call("plan.execute, 2 slots", 1, || {
        plan.execute(&stream, &mut [Slot::from(sources[0].view()), Slot::from(target.view_mut())])
    })
}
