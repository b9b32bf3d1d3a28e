//! A device that passes everything on to another one, with one defect, or with a server that ends with it.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use backend_embedded::{Board, GdbDevice};
use runtime_core::contract::{
    CallOutcome, CallValue, CommonRuntime, CounterSet, Counters, EmbeddedAbilities, EmbeddedDevice,
    MemoryArea, Symbol,
};
use runtime_core::{DeviceInfo, Embedded, Error, ErrorKind, Result};

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    /// No defect: the last bytes of memory are declared as read-only.
    EndIsReadOnly,
    MapChanges,
    ArgumentsAreFew,
    ResultIsCut,
    ResultIsOfAnother,
    TimeIsZero,
    WritesAreLost,
    LastByteIsLost,
    CodeIsData,
    SymbolsAreFunctions,
    UnknownSymbolsExist,
    FlashesOnce,
    ImagesAreTaken,
    ResetDoesNothing,
    ResetClears,
    TimeoutIsResult,
    FaultIsResult,
    FaultHasNoPlace,
    LinesRepeat,
    CountersAreConstant,
    CountersEndWithTheDevice,
}

const ROM_BYTES: u64 = 4096;
/// The arguments that a device with few arguments passes.
const FEW: usize = 8;

/// The device. Its server, if it has one, ends after it.
pub(crate) struct Wrapped<D> {
    inner: D,
    broken: Broken,
    map: Vec<MemoryArea>,
    has_flashed: AtomicBool,
    lines: Mutex<Vec<String>>,
    last: AtomicU64,
    /// Dropped with the device.
    open: Arc<()>,
    _server: Option<Server>,
}

impl<D: EmbeddedDevice> Wrapped<D> {
    pub(crate) fn new(inner: D, broken: Broken) -> Self {
        let (has_flashed, lines, last, open) = Default::default();
        let mut map = inner.memory_map().to_vec();
        if broken == Broken::EndIsReadOnly
            && let Some(area) = map.last_mut()
        {
            area.bytes -= ROM_BYTES;
            let rom = MemoryArea::new("rom", area.address + area.bytes, ROM_BYTES, false);
            map.push(rom);
        }
        Self { inner, broken, map, has_flashed, lines, last, open, _server: None }
    }

    fn is(&self, broken: Broken) -> bool {
        self.broken == broken
    }
}

impl<D: EmbeddedDevice> CommonRuntime for Wrapped<D> {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
}

impl<D: EmbeddedDevice> EmbeddedDevice for Wrapped<D> {
    fn abilities(&self) -> EmbeddedAbilities<'_> {
        let inner = self.inner.abilities();
        if inner.counters().is_some() { inner.with_counters(self) } else { inner }
    }

    fn flash(&self, image: &[u8]) -> Result<()> {
        let is_again = self.has_flashed.swap(true, Ordering::Relaxed);
        match self.broken {
            Broken::FlashesOnce if is_again => Ok(()),
            Broken::ImagesAreTaken => self.inner.flash(image).or(Ok(())),
            _ => self.inner.flash(image),
        }
    }

    fn reset(&self) -> Result<()> {
        if self.is(Broken::ResetDoesNothing) {
            return Ok(());
        }
        if self.is(Broken::ResetClears) {
            self.inner.memory_write(super::RISCV_FREE, &[0; 4096])?;
        }
        self.inner.reset()
    }

    fn memory_map(&self) -> &[MemoryArea] {
        let is_late = self.is(Broken::MapChanges) && self.last.load(Ordering::Relaxed) > 0;
        if is_late { &self.map[..self.map.len() - 1] } else { &self.map }
    }

    fn memory_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if self.is(Broken::WritesAreLost) {
            return Ok(());
        }
        let end = address + bytes.len() as u64;
        let is_last = self.map.iter().any(|area| area.address + area.bytes == end);
        if self.is(Broken::LastByteIsLost) && is_last {
            return self.inner.memory_write(address, &bytes[..bytes.len() - 1]);
        }
        self.inner.memory_write(address, bytes)
    }

    fn memory_read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.inner.memory_read(address, bytes)
    }

    fn code_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if self.is(Broken::CodeIsData) {
            return self.inner.memory_write(address, bytes);
        }
        self.inner.code_write(address, bytes)
    }

    fn symbol(&self, name: &str) -> Result<Symbol> {
        match self.inner.symbol(name) {
            Ok(symbol) if self.is(Broken::SymbolsAreFunctions) => {
                Ok(Symbol::new(symbol.address, symbol.bytes, false))
            }
            Err(_) if self.is(Broken::UnknownSymbolsExist) => self.inner.symbol("nothing"),
            symbol => symbol,
        }
    }

    fn call(&self, function: u64, args: &[CallValue], timeout: Duration) -> Result<CallOutcome> {
        let passes = if self.is(Broken::ArgumentsAreFew) { FEW } else { usize::MAX };
        let passed = |(i, arg): (usize, &CallValue)| match *arg {
            CallValue::F64(_) if i >= passes => CallValue::F64(0.0),
            arg => arg,
        };
        let args: Vec<_> = args.iter().enumerate().map(passed).collect();
        let called = self.inner.call(function, &args, timeout);
        let nothing = self.inner.symbol("nothing")?.address;
        let hides = |error: &Error| match self.broken {
            Broken::TimeoutIsResult => error.kind() == ErrorKind::Timeout,
            Broken::FaultIsResult => error.kind() == ErrorKind::DeviceFault,
            _ => false,
        };
        let mut outcome = match called {
            Err(error) if hides(&error) => {
                self.inner.reset()?;
                self.inner.call(nothing, &[], timeout)?
            }
            Err(error) if self.is(Broken::FaultHasNoPlace) => {
                return Err(match error.driver() {
                    Some(code) => Error::new(error.kind(), "call", "a fault")
                        .with_driver(code.name.clone(), code.code),
                    None => error,
                });
            }
            called => called?,
        };
        let last = self.last.swap(outcome.value.max(1), Ordering::Relaxed);
        match self.broken {
            Broken::ResultIsCut => outcome.value &= 0xFFFF_FFFF,
            Broken::ResultIsOfAnother if last != 0 => outcome.value = last,
            Broken::TimeIsZero => outcome.elapsed = Duration::ZERO,
            _ => {}
        }
        Ok(outcome)
    }

    fn console(&self) -> Result<Vec<String>> {
        let lines = self.inner.console()?;
        if !self.is(Broken::LinesRepeat) {
            return Ok(lines);
        }
        let mut known = self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.extend(lines);
        Ok(known.clone())
    }
}

impl<D: EmbeddedDevice> Counters for Wrapped<D> {
    fn names(&self) -> Vec<String> {
        self.inner.abilities().counters().expect("the ability").names()
    }

    fn open(&self, names: &[&str]) -> Result<Box<dyn CounterSet>> {
        let inner = self.inner.abilities().counters().expect("the ability").open(names)?;
        Ok(Box::new(Count { inner, broken: self.broken, device: Arc::downgrade(&self.open) }))
    }
}

/// Counters that count, except for the defect.
struct Count {
    inner: Box<dyn CounterSet>,
    broken: Broken,
    device: Weak<()>,
}

impl CounterSet for Count {
    fn read(&mut self, values: &mut [u64]) -> Result<()> {
        match self.broken {
            Broken::CountersAreConstant => values.fill(7),
            Broken::CountersEndWithTheDevice if self.device.strong_count() == 0 => values.fill(0),
            _ => return self.inner.read(values),
        }
        Ok(())
    }
}

/// QEMU as a debug server, which is killed when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A board behind a debug server of its own.
pub(crate) fn serve() -> Result<Embedded> {
    const PROGRAM: &str = "qemu-system-riscv64";
    let failed = |what: std::io::Error| {
        let kind = match what.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::Unavailable,
            _ => ErrorKind::Driver,
        };
        Error::new(kind, "open", format!("{PROGRAM}: {what}"))
    };
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?.to_string();
    drop(listener);
    let child = Command::new(PROGRAM)
        .args(["-M", "virt", "-m", "256M", "-bios", "none", "-display", "none", "-serial", "none"])
        .args(["-monitor", "none", "-S", "-gdb", &format!("tcp:{address}")])
        .stderr(Stdio::null())
        .spawn();
    let server = Some(Server(child.map_err(failed)?));
    let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("boards/qemu-virt.toml");
    let board = std::fs::read_to_string(board).map_err(failed)?;
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match GdbDevice::connect(&address, Board::parse(&board)?) {
            Err(error) if error.kind() == ErrorKind::Unavailable && Instant::now() < end => {
                thread::sleep(Duration::from_millis(10));
            }
            inner => {
                let wrapped = Wrapped::new(inner?, Broken::Nothing);
                return Ok(Embedded::new(Wrapped { _server: server, ..wrapped }));
            }
        }
    }
}
