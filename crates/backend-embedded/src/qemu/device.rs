//! A QEMU machine as an embedded device.

use std::fs::File;
use std::io::{self, ErrorKind as Io, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use backend_support::lock;
use runtime_core::contract::{
    CallOutcome, CallValue, CommonRuntime, EmbeddedAbilities, EmbeddedDevice, MemoryArea, Symbol,
};
use runtime_core::{DeviceId, DeviceInfo, Error, ErrorKind, Result};

use super::QemuConfig;
use super::counters::{InstructionCounter, Instructions};
use super::failure::{gone, lost, refused};
use super::layout::{MAILBOX, STACK, STAGING, STAGING_BYTES};
use super::machine::{MACHINES, Machine, info};
use super::process::{Process, anonymous_file};
use crate::console::Console;
use crate::mailbox::{self, Answer, RING};
use crate::program::Program;

/// The shortest timeout: a socket does not accept a timeout of zero.
const SHORTEST: Duration = Duration::from_micros(1);
/// How long the output of a call that timed out is read at a time.
const CATCH_UP: Duration = Duration::from_millis(20);
/// That output is not read on if nothing arrives for this long.
const PAUSE: Duration = Duration::from_millis(5);

/// A machine that QEMU emulates. It runs a monitor that calls functions of flashed programs.
///
/// Its RAM is a file without a name that both processes have open. Memory is therefore read and written without the
/// machine's help, even while a function runs. Nothing of it is on disk. The process is killed when this value is
/// dropped, or when the owning process ends in any way.
///
/// What a function prints is read during its call. After a call that timed out, it is read only by later calls and by
/// `console`, for at most 20 ms each. Meanwhile the function waits once it has printed about 280 bytes more.
#[derive(Debug)]
pub struct QemuDevice {
    info: DeviceInfo,
    machine: &'static Machine,
    config: QemuConfig,
    map: Vec<MemoryArea>,
    whole_ram: u64,
    ram: File,
    console: Console,
    program: Mutex<Program>,
    instructions: Arc<Instructions>,
    counters: Option<InstructionCounter>,
    /// Locked while the process is replaced.
    process: Mutex<Option<Process>>,
    /// Locked during a call.
    line: Mutex<Line>,
}

/// The machine's serial line.
#[derive(Debug, Default)]
struct Line {
    /// `None` if the process has ended.
    socket: Option<UnixStream>,
    /// Whether a call that timed out is still running.
    busy: bool,
}

impl QemuDevice {
    /// Starts the machine with this name, `qemu-riscv64` or `qemu-cortex-m7`, and its monitor.
    ///
    /// # Errors
    ///
    /// `Unavailable` if its emulator is not installed; the error names the package. `UnknownDevice` for another name.
    /// `InvalidArgument` for an option that the machine does not support. `DeviceLost` if the machine does not start.
    pub fn open(machine: &str, config: QemuConfig) -> Result<Self> {
        let index = MACHINES.iter().position(|known| known.name == machine).ok_or_else(|| {
            let known: Vec<_> = MACHINES.iter().map(|machine| machine.name).collect();
            let message = format!("no machine {machine:?}; there is {}", known.join(", "));
            Error::new(ErrorKind::UnknownDevice, "open", message)
        })?;
        let machine = &MACHINES[index];
        let id = DeviceId::new("embedded", index);
        Self::start(index, machine, config).map_err(|error| error.on(&id))
    }

    fn start(index: usize, machine: &'static Machine, config: QemuConfig) -> Result<Self> {
        let ram_bytes = machine.ram_bytes(&config)?;
        let whole_ram = ram_bytes + machine.tail;
        let info = info(index, &config)?;
        if config.icount && !machine.counts {
            let message = format!("icount=on: what {} counts cannot be read", machine.name);
            return Err(Error::new(ErrorKind::InvalidArgument, "open", message));
        }
        let ram = anonymous_file("ram").and_then(|ram| ram.set_len(whole_ram).map(|()| ram));
        let ram = ram.map_err(|error| lost("open", "no memory for its RAM").with_source(error))?;
        let instructions = Arc::<Instructions>::default();
        let device = Self {
            map: machine.memory_map(ram_bytes),
            console: Console::new(info.id.clone()),
            program: Mutex::default(),
            counters: config.icount.then(|| InstructionCounter::new(&instructions)),
            instructions,
            process: Mutex::default(),
            line: Mutex::default(),
            info,
            machine,
            config,
            whole_ram,
            ram,
        };
        device.restart("open", |_| Ok(()))?;
        Ok(device)
    }

    /// The process id of the emulator, or `None` if it has ended.
    pub fn process_id(&self) -> Option<u32> {
        lock(&self.process).as_ref().map(Process::id)
    }

    /// Ends the process, if there is one. Starts another after `prepare` has set up the memory.
    fn restart(
        &self,
        operation: &'static str,
        prepare: impl FnOnce(&mut Program) -> Result<()>,
    ) -> Result<()> {
        let elapsed = self.boot_anew(operation, prepare)?;
        // Without the locks, because a subscriber may use the device.
        tracing::debug!(device = %self.info.id, ?elapsed, "machine started");
        Ok(())
    }

    /// As [`restart`](Self::restart). Returns how long the machine took to start.
    fn boot_anew(
        &self,
        operation: &'static str,
        prepare: impl FnOnce(&mut Program) -> Result<()>,
    ) -> Result<Duration> {
        let mut process = lock(&self.process);
        drop(process.take());
        // A call in progress has ended with the process.
        let mut line = lock(&self.line);
        *line = Line::default();
        self.console.flush();
        prepare(&mut lock(&self.program))?;
        let failed =
            |error: io::Error| lost(operation, "QEMU cannot be started").with_source(error);
        self.post(&mailbox::empty()).map_err(failed)?;
        let (child, socket) = self.boot().map_err(failed)?;
        *process = Some(child);
        line.socket = Some(socket);
        let began = Instant::now();
        match self.wait(&mut line, self.config.timeout, None) {
            Ok(Some(Answer::Ready)) => Ok(began.elapsed()),
            other => {
                *line = Line::default();
                let end = process.take().map(Process::end).unwrap_or_default();
                Err(match other {
                    Ok(answer) => {
                        let timeout = self.config.timeout;
                        let reported =
                            answer.map_or("nothing".to_owned(), |reported| format!("{reported:?}"));
                        let message = format!(
                            "within {timeout:?} the machine reported {reported} instead of its start: {end}"
                        );
                        lost(operation, &message)
                    }
                    Err(_) => gone(operation, &end),
                })
            }
        }
    }

    /// Starts the emulator with RAM, monitor and serial line. None of them has a name, so no other process can open
    /// them.
    fn boot(&self) -> io::Result<(Process, UnixStream)> {
        let mut monitor = anonymous_file("monitor")?;
        monitor.write_all(self.machine.monitor)?;
        let (ours, theirs) = UnixStream::pair()?;
        let inherited: [OwnedFd; 3] = [self.ram.try_clone()?.into(), monitor.into(), theirs.into()];
        let [ram, monitor, line] = [0, 1, 2].map(|index: usize| inherited[index].as_raw_fd());
        let bytes = self.whole_ram;
        let mut command = Command::new(self.machine.program(&self.config));
        command
            .args(self.machine.arguments)
            .args(["-m", &format!("{}M", bytes >> 20)])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-kernel"])
            .arg(format!("/dev/fd/{monitor}"))
            .arg("-object")
            .arg(format!("memory-backend-file,id=ram,size={bytes},mem-path=/dev/fd/{ram},share=on"))
            .arg("-chardev")
            .arg(format!("socket,id=line,fd={line}"))
            .args(["-serial", "chardev:line"]);
        if self.config.icount {
            command.args(["-icount", "shift=0"]);
        }
        command.stdout(Stdio::null());
        Ok((Process::start(command, &inherited)?, ours))
    }

    /// Signals the machine, and waits for the answer.
    fn exchange(
        &self,
        line: &mut Line,
        operation: &'static str,
        timeout: Duration,
    ) -> Result<Option<Answer>> {
        let rung = match &mut line.socket {
            Some(socket) => socket.write_all(&[RING]),
            None => Err(Io::NotConnected.into()),
        };
        let answer = rung.and_then(|()| self.wait(line, timeout, None));
        answer.map_err(|error| self.ended(line, operation, error))
    }

    /// Reads what the machine sends until it answers. Returns `None` if there is no answer within `timeout`, or if
    /// nothing arrives for as long as `pause`.
    fn wait(
        &self,
        line: &mut Line,
        timeout: Duration,
        pause: Option<Duration>,
    ) -> io::Result<Option<Answer>> {
        let socket = line.socket.as_mut().ok_or(Io::NotConnected)?;
        // A timeout that the clock cannot represent means no timeout.
        let deadline = Instant::now().checked_add(timeout);
        let mut bytes = [0; 4096];
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let limit = [left, pause].into_iter().flatten().min();
            // Data that has already arrived is read in any case.
            socket.set_read_timeout(limit.map(|limit| limit.max(SHORTEST)))?;
            match socket.read(&mut bytes) {
                Ok(0) => return Err(Io::UnexpectedEof.into()),
                Ok(read) => {
                    if self.take_up(&bytes[..read])
                        && let Some(answer) = self.answer()?
                    {
                        return Ok(Some(answer));
                    }
                }
                Err(error) if matches!(error.kind(), Io::WouldBlock | Io::TimedOut) => {
                    if pause.is_some() {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == Io::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }

    /// Passes printed bytes to the console. Returns whether the machine signalled.
    fn take_up(&self, bytes: &[u8]) -> bool {
        bytes.split(|byte| *byte == RING).for_each(|printed| self.console.push(printed));
        bytes.contains(&RING)
    }

    /// Returns the line. If a reset is about to connect it to another process, waits for that.
    fn connected_line(&self) -> MutexGuard<'_, Line> {
        loop {
            let line = lock(&self.line);
            let restarts = matches!(self.process.try_lock(), Err(TryLockError::WouldBlock));
            if line.socket.is_some() || !restarts {
                return line;
            }
            // A thread that restarts the machine holds the process, and needs the line.
            drop(line);
            drop(lock(&self.process));
        }
    }

    /// Returns the line if the machine can take a request.
    fn idle_line(&self, operation: &'static str) -> Result<MutexGuard<'_, Line>> {
        let mut line = self.connected_line();
        if let Err(error) = self.catch_up(&mut line) {
            return Err(self.ended(&mut line, operation, error));
        }
        if line.busy {
            let message = "a call that timed out is still running; a reset stops it";
            return Err(Error::new(ErrorKind::Conflict, operation, message));
        }
        Ok(line)
    }

    /// Reads what a call that timed out has printed since, and whether it has ended. While nothing is read, QEMU holds a
    /// function up that prints.
    fn catch_up(&self, line: &mut Line) -> io::Result<()> {
        if line.busy
            && let Some(answer) = self.wait(line, CATCH_UP, Some(PAUSE))?
        {
            self.finish(&answer);
            line.busy = false;
        }
        Ok(())
    }

    /// Records the end of a call, in time or late. Counts its retired instructions. A call that did not return will not
    /// continue its incomplete output line.
    fn finish(&self, answer: &Answer) {
        match *answer {
            Answer::Done { instructions, .. } => {
                self.instructions.add(instructions);
            }
            Answer::Fault { instructions, .. } => {
                self.instructions.add(instructions);
                self.console.flush();
            }
            Answer::Ready => self.console.flush(),
        }
    }

    #[cold]
    fn ended(&self, line: &mut Line, operation: &'static str, error: io::Error) -> Error {
        *line = Line::default();
        self.console.flush();
        // A thread that resets the machine holds the process, and has ended it.
        let process = self.process.try_lock().ok().and_then(|mut process| process.take());
        let lost = match process {
            Some(process) => gone(operation, &process.end()),
            None if error.kind() == Io::NotConnected => {
                lost(operation, "its process has ended; reset starts another")
            }
            None => lost(operation, "a reset ended it"),
        };
        lost.with_source(error)
    }

    fn post(&self, request: &[u8]) -> io::Result<()> {
        self.ram.write_all_at(request, MAILBOX)
    }

    fn answer(&self) -> io::Result<Option<Answer>> {
        let mut bytes = [0; mailbox::ANSWER_BYTES];
        self.ram.read_exact_at(&mut bytes, MAILBOX)?;
        Ok(mailbox::answer(&bytes))
    }

    fn offset(&self, address: u64) -> u64 {
        address - self.machine.ram
    }

    fn write_segments(&self, program: &Program) -> Result<()> {
        for segment in &program.segments {
            self.memory_write(segment.address, &segment.bytes)?;
        }
        Ok(())
    }
}

impl CommonRuntime for QemuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

impl EmbeddedDevice for QemuDevice {
    fn abilities(&self) -> EmbeddedAbilities<'_> {
        match &self.counters {
            Some(counters) => EmbeddedAbilities::none().with_counters(counters),
            None => EmbeddedAbilities::none(),
        }
    }

    fn flash(&self, image: &[u8]) -> Result<()> {
        let program = Program::read(image, &self.machine.processor.architecture(), &self.map)?;
        program.must_be_fixed()?;
        self.restart("flash", |flashed| {
            self.write_segments(&program)?;
            *flashed = program;
            Ok(())
        })
    }

    fn reset(&self) -> Result<()> {
        self.restart("reset", |program| self.write_segments(program))
    }

    fn memory_map(&self) -> &[MemoryArea] {
        &self.map
    }

    fn memory_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let written = self.ram.write_all_at(bytes, self.offset(address));
        written.map_err(|error| refused("memory_write", error))
    }

    fn memory_read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.ram.read_exact_at(bytes, self.offset(address));
        read.map_err(|error| refused("memory_read", error))
    }

    fn code_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        const OPERATION: &str = "code_write";
        let mut line = self.idle_line(OPERATION)?;
        let staging = self.machine.ram + STAGING;
        let mut to = address;
        for piece in bytes.chunks(STAGING_BYTES) {
            let length = piece.len() as u64;
            self.memory_write(staging, piece)?;
            let request = mailbox::copy(to, staging, length);
            self.post(&request).map_err(|error| refused(OPERATION, error))?;
            match self.exchange(&mut line, OPERATION, self.config.timeout)? {
                Some(Answer::Done { .. }) => to += length,
                answer => {
                    // The state of the machine is unknown from here on.
                    *line = Line::default();
                    drop(self.process.try_lock().ok().and_then(|mut process| process.take()));
                    let timeout = self.config.timeout;
                    let message = format!(
                        "the monitor did not copy {length} bytes to {to:#x} within {timeout:?}: {answer:?}"
                    );
                    return Err(lost(OPERATION, &message));
                }
            }
        }
        Ok(())
    }

    fn symbol(&self, name: &str) -> Result<Symbol> {
        lock(&self.program).symbol(name)
    }

    fn call(&self, function: u64, args: &[CallValue], timeout: Duration) -> Result<CallOutcome> {
        const OPERATION: &str = "call";
        let processor = self.machine.processor;
        let stack = self.machine.ram + STACK;
        let request = mailbox::call(processor.entry(function)?, stack, &processor.arguments(args)?);
        let mut line = self.idle_line(OPERATION)?;
        self.post(&request).map_err(|error| refused(OPERATION, error))?;
        let began = Instant::now();
        let answer = self.exchange(&mut line, OPERATION, timeout)?;
        if let Some(answer) = &answer {
            self.finish(answer);
        }
        match answer {
            Some(Answer::Done { integers, float, .. }) => {
                let elapsed = began.elapsed();
                let (value, float_bits) = processor.result(integers, float);
                Ok(CallOutcome::new(value, elapsed).with_float_bits(float_bits))
            }
            Some(Answer::Fault { fault, .. }) => Err(processor.error(fault)),
            Some(Answer::Ready) => {
                let message = format!("the function at {function:#x} restarted the monitor");
                let fault = Error::new(ErrorKind::DeviceFault, OPERATION, message);
                Err(fault.with_driver("RESTARTED", 0))
            }
            None => {
                line.busy = true;
                let message =
                    format!("the function at {function:#x} did not return within {timeout:?}");
                Err(Error::new(ErrorKind::Timeout, OPERATION, message))
            }
        }
    }

    fn console(&self) -> Result<Vec<String>> {
        // A call that timed out may continue to print.
        if let Ok(mut line) = self.line.try_lock() {
            // The next call reports an error of the line.
            let _lost = self.catch_up(&mut line);
        }
        Ok(self.console.take())
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;

    const CALLS: &[u8] = include_bytes!("../../firmware/built/calls-riscv64.elf");

    #[test]
    fn a_monitor_that_does_not_copy_is_a_lost_device_until_it_is_reset() {
        let mut device = match QemuDevice::open("qemu-riscv64", QemuConfig::new()) {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                return println!("skipped: {error}");
            }
            device => device.unwrap(),
        };
        device.flash(CALLS).unwrap();
        let nothing = device.symbol("nothing").unwrap().address;
        let timeout = std::mem::replace(&mut device.config.timeout, Duration::from_millis(50));
        let process = i32::try_from(device.process_id().unwrap()).unwrap();
        kill(Pid::from_raw(process), Signal::SIGSTOP).unwrap();
        let error = device.code_write(nothing, &[0; 4]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        assert!(error.message().contains("did not copy 4 bytes"), "{error}");
        assert_eq!(device.process_id(), None);
        let error = device.call(nothing, &[], timeout).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        assert!(error.message().contains("reset starts another"), "{error}");
        device.config.timeout = timeout;
        device.reset().unwrap();
        device.call(nothing, &[], timeout).unwrap();
    }
}
