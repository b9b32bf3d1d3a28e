//! An opened embedded device, as programs use it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{CallOutcome, CallValue, Counters, EmbeddedDevice, MemoryArea, Symbol};
use crate::{DeviceId, DeviceInfo, Error, ErrorKind, Result};

/// An opened embedded device: flash a program, call it, read its memory. Cheap to clone.
///
/// Nothing is transferred implicitly: the program on the device owns its memory. All checks are made here, once for
/// every backend.
#[derive(Clone)]
pub struct Embedded(Arc<dyn EmbeddedDevice>);

impl Embedded {
    /// Wraps a backend's device in the checked front.
    pub fn new(raw: impl EmbeddedDevice) -> Self {
        tracing::info!(device = %raw.info().id, name = raw.info().name, "embedded device opened");
        Self(Arc::new(raw))
    }

    /// Whether this is a clone of `other`: both refer to the same opened device.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Backend and index.
    pub fn id(&self) -> &DeviceId {
        &self.info().id
    }

    /// Identity and limits. Constant.
    pub fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    /// Loads an ELF image in place of the previous program, and resets the device.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if the image is empty, is not for this processor or does not fit its memory.
    pub fn flash(&self, image: &[u8]) -> Result<()> {
        if image.is_empty() {
            return Err(self.error(
                ErrorKind::InvalidModule,
                "flash",
                "an image of 0 bytes".to_owned(),
            ));
        }
        self.0.flash(image).map_err(|e| e.on(self.id()))?;
        tracing::debug!(device = %self.id(), bytes = image.len(), "program flashed");
        Ok(())
    }

    /// Restarts the flashed program. Ends a call that hangs, in any thread, and recovers a device that was lost. Memory
    /// outside of the program's segments keeps its bytes. A call that waits for its turn in another thread runs
    /// afterwards, or is ended too. An accelerator over this device that was lost stays lost.
    ///
    /// # Errors
    ///
    /// `DeviceLost` if the device does not recover.
    pub fn reset(&self) -> Result<()> {
        self.0.reset().map_err(|e| e.on(self.id()))
    }

    /// The areas of memory that can be addressed. Constant.
    pub fn memory_map(&self) -> &[MemoryArea] {
        self.0.memory_map()
    }

    /// Writes device memory. Blocks until it is written.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the range is not inside one writable area of the memory map.
    pub fn memory_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.check_range("memory_write", address, bytes.len(), true)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.0.memory_write(address, bytes).map_err(|e| e.on(self.id()))
    }

    /// Reads device memory. Blocks until `bytes` is filled.
    ///
    /// # Errors
    ///
    /// `OutOfBounds` if the range is not inside one area of the memory map.
    pub fn memory_read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.check_range("memory_read", address, bytes.len(), false)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.0.memory_read(address, bytes).map_err(|e| e.on(self.id()))
    }

    /// Writes instructions. Later calls run them. Blocks until they are written.
    ///
    /// # Errors
    ///
    /// As [`memory_write`](Self::memory_write). `DeviceLost`. `Conflict` after a call that timed out.
    pub fn code_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.check_range("code_write", address, bytes.len(), true)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.0.code_write(address, bytes).map_err(|e| e.on(self.id()))
    }

    /// Returns the location of the function or object of that name in the flashed program.
    ///
    /// # Errors
    ///
    /// `KernelNotFound` naming the symbol.
    pub fn symbol(&self, name: &str) -> Result<Symbol> {
        self.0.symbol(name).map_err(|e| e.on(self.id()))
    }

    /// Calls a function of the flashed program and blocks until it returns, for at most `timeout`. Calls from several
    /// threads take turns. The time counts from the start of the turn.
    ///
    /// # Errors
    ///
    /// `KernelNotFound`. `OutOfBounds` for a function outside of the memory map. `InvalidArgument` for the name of
    /// data, a timeout of zero, more arguments than the device can pass, or an address that the device does not have.
    /// `DeviceFault` with cause, program counter and address. `Timeout`, and for later calls `Conflict`, until the call
    /// returns after all or [`reset`](Self::reset) ends it. `DeviceLost` until [`reset`](Self::reset).
    pub fn call(
        &self,
        function: &str,
        args: &[CallValue],
        timeout: Duration,
    ) -> Result<CallOutcome> {
        let Symbol { address, bytes, data } = self.symbol(function)?;
        if data {
            let message =
                format!("{function:?}, {bytes} bytes at {address:#x}, is data and no function");
            return Err(self.error(ErrorKind::InvalidArgument, "call", message));
        }
        self.call_checked(&format_args!("{function:?} at {address:#x}"), address, args, timeout)
    }

    /// Calls the function at an address, as [`call`](Self::call) calls a function by name. Runs whatever code is there.
    /// The lowest bit may mark Thumb code where the processor has it.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call). `InvalidArgument` for an address that is not aligned for instructions.
    pub fn call_at(
        &self,
        address: u64,
        args: &[CallValue],
        timeout: Duration,
    ) -> Result<CallOutcome> {
        self.call_checked(&format_args!("the function at {address:#x}"), address, args, timeout)
    }

    fn call_checked(
        &self,
        function: &dyn fmt::Display,
        address: u64,
        args: &[CallValue],
        timeout: Duration,
    ) -> Result<CallOutcome> {
        let holds = |area: &MemoryArea| {
            address.checked_sub(area.address).is_some_and(|offset| offset < area.bytes)
        };
        if !self.memory_map().iter().any(holds) {
            let message = format!("{function} is not inside of the memory map");
            return Err(self.error(ErrorKind::OutOfBounds, "call", message));
        }
        let limit = self.info().limits.max_arguments;
        if args.len() > limit {
            let message =
                format!("{} arguments for {function}; the device passes {limit}", args.len());
            return Err(self.error(ErrorKind::InvalidArgument, "call", message));
        }
        if timeout.is_zero() {
            let message = format!("a timeout of zero for {function}");
            return Err(self.error(ErrorKind::InvalidArgument, "call", message));
        }
        let outcome = self.0.call(address, args, timeout).map_err(|e| e.on(self.id()))?;
        tracing::trace!(device = %self.id(), %function, elapsed = ?outcome.elapsed, "function called");
        Ok(outcome)
    }

    /// Returns the lines that the program printed since the last call of this method.
    ///
    /// # Errors
    ///
    /// Errors of the transport.
    pub fn console(&self) -> Result<Vec<String>> {
        self.0.console().map_err(|e| e.on(self.id()))
    }

    /// Event counters, if the processor has any.
    pub fn counters(&self) -> Option<&dyn Counters> {
        self.0.abilities().counters()
    }

    fn check_range(
        &self,
        operation: &'static str,
        address: u64,
        len: usize,
        write: bool,
    ) -> Result<()> {
        let end = u64::try_from(len).ok().and_then(|len| address.checked_add(len));
        let inside = |area: &&MemoryArea| {
            let area_end = area.address.saturating_add(area.bytes);
            address >= area.address && end.is_some_and(|end| end <= area_end)
        };
        match self.memory_map().iter().find(inside) {
            Some(area) if write && !area.writable => {
                let message =
                    format!("{len} bytes at {address:#x} in {:?}, which is read-only", area.name);
                Err(self.error(ErrorKind::OutOfBounds, operation, message))
            }
            Some(_) => Ok(()),
            None => {
                let message = format!("{len} bytes at {address:#x} are not inside one memory area");
                Err(self.error(ErrorKind::OutOfBounds, operation, message))
            }
        }
    }

    #[cold]
    fn error(&self, kind: ErrorKind, operation: &'static str, message: String) -> Error {
        Error::new(kind, operation, message).on(self.id())
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Embedded({}, {})", self.id(), self.info().name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::contract::{CommonRuntime, EmbeddedAbilities};
    use crate::{DeviceKind, Limits};

    /// A board with 64 bytes of RAM. Its single function adds its arguments.
    struct Board {
        info: DeviceInfo,
        map: Vec<MemoryArea>,
        ram: Mutex<[u8; 64]>,
    }

    const RAM: u64 = 0x8000_0000;

    fn board() -> Embedded {
        let area = |name: &str, address, writable| MemoryArea::new(name, address, 64, writable);
        Embedded::new(Board {
            info: DeviceInfo::new(
                DeviceId::new("board", 0),
                DeviceKind::Embedded,
                "adder",
                Limits::new(64, [1; 3], [1; 3], 1).with_max_arguments(2, 16),
            ),
            map: vec![
                area("rom", 0, false),
                area("ram", RAM, true),
                area("end", u64::MAX - 63, true),
            ],
            ram: Mutex::new([0; 64]),
        })
    }

    impl CommonRuntime for Board {
        fn info(&self) -> &DeviceInfo {
            &self.info
        }
    }

    impl EmbeddedDevice for Board {
        fn abilities(&self) -> EmbeddedAbilities<'_> {
            EmbeddedAbilities::none()
        }

        fn flash(&self, image: &[u8]) -> Result<()> {
            self.memory_write(RAM, image)
        }

        fn reset(&self) -> Result<()> {
            Ok(())
        }

        fn memory_map(&self) -> &[MemoryArea] {
            &self.map
        }

        fn memory_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
            let start = usize::try_from(address - RAM).unwrap();
            self.ram.lock().unwrap()[start..start + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }

        fn memory_read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
            let start = usize::try_from(address - RAM).unwrap();
            bytes.copy_from_slice(&self.ram.lock().unwrap()[start..start + bytes.len()]);
            Ok(())
        }

        fn code_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
            self.memory_write(address, bytes)
        }

        fn symbol(&self, name: &str) -> Result<Symbol> {
            match name {
                "add" => Ok(Symbol { address: RAM, bytes: 8, data: false }),
                "far" => Ok(Symbol { address: RAM + 64, bytes: 8, data: false }),
                "counter" => Ok(Symbol { address: RAM + 8, bytes: 4, data: true }),
                _ => Err(Error::new(ErrorKind::KernelNotFound, "symbol", format!("{name:?}"))),
            }
        }

        fn call(&self, _: u64, args: &[CallValue], elapsed: Duration) -> Result<CallOutcome> {
            let int =
                |value: &CallValue| if let CallValue::I64(value) = value { *value } else { 0 };
            let sum: i64 = args.iter().map(int).sum();
            Ok(CallOutcome { value: sum.cast_unsigned(), float_bits: None, elapsed })
        }

        fn console(&self) -> Result<Vec<String>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn data_is_not_called_by_its_name() {
        let error = board().call("counter", &[], Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("\"counter\", 4 bytes"), "{error}");
    }

    #[test]
    fn memory_round_trips_and_calls_return() {
        let board = board();
        board.memory_write(RAM + 60, &[1, 2, 3, 4]).unwrap();
        let mut back = [0; 4];
        board.memory_read(RAM + 60, &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4]);
        let args = [CallValue::I64(2), CallValue::I64(-5)];
        for sum in [
            board.call("add", &args, Duration::from_secs(1)),
            board.call_at(RAM, &args, Duration::from_secs(1)),
        ] {
            assert_eq!(sum.unwrap().i64(), -3);
        }
    }

    #[test]
    fn addresses_outside_the_memory_map_are_refused() {
        let board = board();
        for address in [RAM - 1, RAM + 61, 100, u64::MAX - 2] {
            let error = board.memory_write(address, &[0; 4]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{address:#x}");
        }
        for error in [board.memory_write(8, &[0; 4]), board.code_write(8, &[0; 4])] {
            let error = error.unwrap_err();
            assert!(error.message().contains("read-only"), "{error}");
        }
        let second = Duration::from_secs(1);
        for error in [board.call_at(RAM - 1, &[], second), board.call("far", &[], second)] {
            assert_eq!(error.unwrap_err().kind(), ErrorKind::OutOfBounds);
        }
    }

    #[test]
    fn bad_calls_are_refused() {
        let board = board();
        let args = [CallValue::I32(1); 3];
        let second = Duration::from_secs(1);
        assert_eq!(
            board.call("add", &args, second).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        assert_eq!(
            board.call("add", &[], Duration::ZERO).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        assert_eq!(board.call("sub", &[], second).unwrap_err().kind(), ErrorKind::KernelNotFound);
        assert_eq!(board.flash(&[]).unwrap_err().kind(), ErrorKind::InvalidModule);
    }
}
