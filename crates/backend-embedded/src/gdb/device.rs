//! A board behind a debug server as an embedded device.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use backend_support::lock;
use runtime_core::contract::{
    CallOutcome, CallValue, CommonRuntime, EmbeddedAbilities, EmbeddedDevice, MemoryArea, Symbol,
};
use runtime_core::{DeviceInfo, Error, ErrorKind, Result};

use super::client::{Client, Run, Stop};
use crate::board::Board;
use crate::common::{self, Identity};
use crate::console::Console;
use crate::mailbox::{self, Answer};
use crate::program::Program;
use crate::qemu::MACHINES;

/// The index of boards behind a debug server, which device lists do not contain: the one after QEMU's machines.
const INDEX: usize = MACHINES.len();

/// The time within which a call notices a reset by another thread.
const SLICE: Duration = Duration::from_millis(20);
/// The status register of a Cortex-M that runs Thumb code, the only state that it supports.
const XPSR_THUMB: u64 = 1 << 24;
/// The timeout for the server to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A board behind a debug server that uses the GDB remote protocol, such as OpenOCD, pyOCD, probe-rs or QEMU.
///
/// A small routine in the board's RAM calls functions and ends at a breakpoint: programs need no support for it. Memory
/// can only be accessed between calls, because the processor must be halted for it. Dropping the device lets the
/// processor run.
#[derive(Debug)]
pub struct GdbDevice {
    info: DeviceInfo,
    address: String,
    board: Board,
    stub: Stub,
    console: Console,
    program: Mutex<Program>,
    /// Locked during a call.
    connection: Mutex<Connection>,
    /// The number of resets that wait for a call to end.
    resets: AtomicUsize,
}

#[derive(Debug, Default)]
struct Connection {
    /// `None` if the connection is lost.
    client: Option<Client>,
    /// Whether a call that timed out is still running.
    busy: bool,
}

impl Connection {
    /// Sets the time at which the exchanges of a call should be over.
    fn limit(&mut self, deadline: Option<Instant>) {
        if let Some(client) = &mut self.client {
            client.deadline = deadline;
        }
    }
}

/// The routine that calls functions.
#[derive(Debug)]
struct Stub {
    program: Program,
    start: u64,
    stopped: u64,
    mailbox: u64,
}

impl Stub {
    fn new(board: &Board) -> Result<Self> {
        let (processor, architecture) = (board.processor, board.processor.architecture());
        let area = MemoryArea::new("stub", board.stub, Board::STUB_BYTES, true);
        let mut program = Program::read(processor.stub(), &architecture, &[area])?;
        program.relocate(board.stub, &architecture)?;
        let place = |name| program.symbol(name).map(|symbol| symbol.address);
        let (start, stopped, mailbox) = (place("start")?, place("stopped")?, place("mailbox")?);
        Ok(Self { program, start, stopped, mailbox })
    }
}

impl GdbDevice {
    /// Connects to the server at `address`, `HOST:PORT`, and halts the processor.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a board that [`Board::parse`] would refuse. `Unavailable` if no server listens there, or
    /// if it does not answer, for example because it serves another debugger. `Driver` if the server refuses a required
    /// function. `DeviceLost` if the server stops responding.
    pub fn connect(address: &str, board: Board) -> Result<Self> {
        board.check()?;
        let info = info(&board);
        let id = info.id.clone();
        let device = Self {
            stub: Stub::new(&board)?,
            console: Console::new(id.clone()),
            program: Mutex::default(),
            connection: Mutex::default(),
            resets: AtomicUsize::default(),
            address: address.to_owned(),
            board,
            info,
        };
        let prepared = device.prepare(&mut lock(&device.connection), "open", &Program::default());
        emit(prepared.map_err(|error| error.on(&id))?);
        Ok(device)
    }

    /// Connects if necessary, halts and resets the processor, and writes the routine and `program`. Returns the output
    /// of the server's command, for [`emit`].
    fn prepare(
        &self,
        connection: &mut Connection,
        operation: &'static str,
        program: &Program,
    ) -> Result<Option<String>> {
        if connection.client.is_none() {
            connection.client = Some(Client::connect(&self.address, CONNECT_TIMEOUT)?);
        }
        if mem::take(&mut connection.busy) {
            self.on(connection, operation, |client| client.halt(operation))?;
        }
        self.console.flush();
        self.on(connection, operation, |client| {
            let reported = match &self.board.reset {
                Some(command) => client.command(operation, command)?,
                None => None,
            };
            // Some servers refuse to set a breakpoint twice, and some set it in memory, where the routine is rewritten
            // now.
            client.clear_breakpoint(operation, self.stub.stopped)?;
            for segment in &self.stub.program.segments {
                client.write(operation, segment.address, &segment.bytes)?;
            }
            client.set_breakpoint(operation, self.stub.stopped)?;
            for segment in &program.segments {
                client.write(operation, segment.address, &segment.bytes)?;
            }
            Ok(reported)
        })
    }

    /// Calls `act` for the halted processor. A lost connection remains lost until the device is reset.
    fn with<T>(
        &self,
        operation: &'static str,
        act: impl FnOnce(&mut Client) -> Result<T>,
    ) -> Result<T> {
        let mut connection = self.idle(operation)?;
        self.on(&mut connection, operation, act)
    }

    fn on<T>(
        &self,
        connection: &mut Connection,
        operation: &'static str,
        act: impl FnOnce(&mut Client) -> Result<T>,
    ) -> Result<T> {
        let Some(client) = &mut connection.client else {
            let message =
                format!("the connection to {} is lost; reset makes another", self.address);
            return Err(
                Error::new(ErrorKind::DeviceLost, operation, message).with_driver("GDB_LOST", 0)
            );
        };
        let done = act(client);
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::DeviceLost) {
            *connection = Connection::default();
            self.console.flush();
        }
        done
    }

    /// Returns the connection if the processor is halted.
    fn idle(&self, operation: &'static str) -> Result<MutexGuard<'_, Connection>> {
        let mut connection = lock(&self.connection);
        if connection.busy {
            let wait = |client: &mut Client| client.wait(operation, Duration::ZERO, self.print());
            if self.on(&mut connection, operation, wait)? == Run::Running {
                let message = "a call that timed out is still running; a reset stops it";
                return Err(Error::new(ErrorKind::Conflict, operation, message));
            }
            connection.busy = false;
        }
        Ok(connection)
    }

    /// Returns the connection, after a call in progress has given it up.
    fn interrupt(&self) -> MutexGuard<'_, Connection> {
        self.resets.fetch_add(1, Ordering::Relaxed);
        let connection = lock(&self.connection);
        self.resets.fetch_sub(1, Ordering::Relaxed);
        connection
    }

    fn pc_register(&self) -> u32 {
        self.board.registers.pc.unwrap_or(self.board.processor.pc_register())
    }

    fn go_to_stub(&self, client: &mut Client) -> Result<()> {
        const OPERATION: &str = "call";
        let processor = self.board.processor;
        let width = if processor.is_64_bit() { 8 } else { 4 };
        if let Some(usual) = processor.xpsr_register() {
            let xpsr = self.board.registers.xpsr.unwrap_or(usual);
            client.write_register(OPERATION, xpsr, &XPSR_THUMB.to_le_bytes()[..width])?;
        }
        client.write_register(
            OPERATION,
            self.pc_register(),
            &self.stub.start.to_le_bytes()[..width],
        )
    }

    /// Waits until the processor stops. Returns `None` at the timeout of a call that `began` then, or if another thread
    /// resets the device.
    fn until_stopped(
        &self,
        client: &mut Client,
        began: Instant,
        timeout: Duration,
    ) -> Result<Option<Stop>> {
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            if let Run::Stopped(stop) = client.wait("call", left.min(SLICE), self.print())? {
                return Ok(Some(stop));
            }
            if left.is_zero() || self.resets.load(Ordering::Relaxed) > 0 {
                return Ok(None);
            }
        }
    }

    /// Calls the function of a request, within `timeout`.
    fn call_with(
        &self,
        connection: &mut Connection,
        function: u64,
        request: &[u8],
        timeout: Duration,
    ) -> Result<CallOutcome> {
        const OPERATION: &str = "call";
        let processor = self.board.processor;
        let began = Instant::now();
        let stopped = self.on(connection, OPERATION, |client| {
            client.write(OPERATION, self.stub.mailbox, request)?;
            self.go_to_stub(client)?;
            client.resume(OPERATION)?;
            self.until_stopped(client, began, timeout)
        })?;
        let Some(stop) = stopped else {
            connection.busy = true;
            let (kind, why) = if self.resets.load(Ordering::Relaxed) > 0 {
                (ErrorKind::DeviceLost, "was ended by a reset".to_owned())
            } else {
                (ErrorKind::Timeout, format!("did not return within {timeout:?}"))
            };
            return Err(Error::new(
                kind,
                OPERATION,
                format!("the function at {function:#x} {why}"),
            ));
        };
        let elapsed = began.elapsed();
        let mut bytes = [0; mailbox::ANSWER_BYTES];
        self.on(connection, OPERATION, |client| {
            client.read(OPERATION, self.stub.mailbox, &mut bytes)
        })?;
        let answer = mailbox::answer(&bytes);
        if !matches!(answer, Some(Answer::Done { .. })) {
            self.console.flush();
        }
        match answer {
            Some(Answer::Done { integers, float, .. }) => {
                let (value, float_bits) = processor.result(integers, float);
                Ok(CallOutcome::new(value, elapsed).with_float_bits(float_bits))
            }
            Some(Answer::Fault { fault, .. }) => Err(processor.error(fault)),
            Some(Answer::Ready) | None => {
                let pc = self.on(connection, OPERATION, |client| {
                    client.read_register(OPERATION, self.pc_register())
                })?;
                let pc = pc.map_or("an unknown pc".to_owned(), |pc| format!("pc {pc:#x}"));
                let message = format!(
                    "the function at {function:#x} stopped at {pc} before it returned: {:.80}",
                    stop.reported
                );
                Err(Error::new(ErrorKind::DeviceFault, OPERATION, message)
                    .with_driver("STOPPED", stop.signal.into()))
            }
        }
    }

    fn print(&self) -> impl FnMut(&[u8]) {
        |text| self.console.push(text)
    }
}

/// Emits the output of a command of the server. Call it without a lock, because a subscriber may use the device.
fn emit(answer: Option<String>) {
    if let Some(answer) = answer {
        tracing::debug!(answer = answer.trim_end(), "the debugger's server");
    }
}

impl Drop for GdbDevice {
    fn drop(&mut self) {
        let mut connection = lock(&self.connection);
        let busy = connection.busy;
        if let Some(client) = &mut connection.client
            && (!busy || client.halt("detach").is_ok())
        {
            client.detach();
        }
    }
}

impl CommonRuntime for GdbDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

impl EmbeddedDevice for GdbDevice {
    fn abilities(&self) -> EmbeddedAbilities<'_> {
        EmbeddedAbilities::none()
    }

    fn flash(&self, image: &[u8]) -> Result<()> {
        let program =
            Program::read(image, &self.board.processor.architecture(), &self.board.memory)?;
        program.must_be_fixed()?;
        let mut connection = self.interrupt();
        let mut flashed = lock(&self.program);
        let answer = self.prepare(&mut connection, "flash", &program)?;
        *flashed = program;
        drop((flashed, connection));
        emit(answer);
        Ok(())
    }

    fn reset(&self) -> Result<()> {
        let mut connection = self.interrupt();
        let prepared = self.prepare(&mut connection, "reset", &lock(&self.program));
        drop(connection);
        prepared.map(emit).map_err(|error| match error.kind() {
            ErrorKind::Unavailable => {
                let message = format!("it does not come back: {}", error.message());
                Error::new(ErrorKind::DeviceLost, "reset", message)
                    .with_driver("GDB_LOST", 0)
                    .with_source(error)
            }
            _ => error,
        })
    }

    fn memory_map(&self) -> &[MemoryArea] {
        &self.board.memory
    }

    fn memory_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.with("memory_write", |client| client.write("memory_write", address, bytes))
    }

    fn memory_read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.with("memory_read", |client| client.read("memory_read", address, bytes))
    }

    fn code_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        // Before each call, the routine makes the processor discard its instruction cache.
        self.with("code_write", |client| client.write("code_write", address, bytes))
    }

    fn symbol(&self, name: &str) -> Result<Symbol> {
        lock(&self.program).symbol(name)
    }

    fn call(&self, function: u64, args: &[CallValue], timeout: Duration) -> Result<CallOutcome> {
        let processor = self.board.processor;
        let arguments = processor.arguments(args)?;
        let mut request = mailbox::call(processor.entry(function)?, self.board.stack, &arguments);
        mailbox::guard(&mut request, self.board.guard(), self.board.guards_null());
        let mut connection = self.idle("call")?;
        connection.limit(Instant::now().checked_add(timeout));
        let called = self.call_with(&mut connection, function, &request, timeout);
        connection.limit(None);
        called
    }

    fn console(&self) -> Result<Vec<String>> {
        Ok(self.console.take())
    }
}

fn info(board: &Board) -> DeviceInfo {
    let identity = Identity {
        index: INDEX,
        name: &board.name,
        vendor: "GDB remote protocol",
        version: env!("CARGO_PKG_VERSION"),
    };
    common::info(&identity, board.processor, &board.memory)
}
