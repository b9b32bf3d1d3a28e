//! Opening embedded devices by selector.

use std::path::Path;

use runtime_core::{Backend, Device, DeviceInfo, Embedded, Error, ErrorKind, Result, Selector};

use crate::qemu::{self, MACHINES};
use crate::{AcceleratorConfig, Board, EmbeddedAccelerator, GdbDevice, QemuConfig, QemuDevice};

/// The backend `embedded`: QEMU machines, and boards behind a debug server.
///
/// | selector | device |
/// |---|---|
/// | `embedded`, `embedded:0`, `embedded:qemu-riscv64` | the QEMU machine `virt`: RV64GC |
/// | `embedded:1`, `embedded:qemu-cortex-m7` | the QEMU machine `mps2-an500`: Arm Cortex-M7 |
/// | `embedded:gdb:HOST:PORT?board=FILE` | the processor behind a server of the GDB remote protocol, described by a [`Board`]; an IPv6 address is written in brackets, `[::1]` |
///
/// Options follow a question mark: those of [`QemuConfig::set`], and `timeout` of [`AcceleratorConfig::set`]. Opening a
/// QEMU machine twice starts two machines. [`open`] returns the embedded device itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbeddedBackend;

impl EmbeddedBackend {
    /// The backend.
    pub fn new() -> Self {
        Self
    }
}

impl Backend for EmbeddedBackend {
    fn name(&self) -> &str {
        "embedded"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let found: Vec<_> =
            (0..MACHINES.len()).map(|index| qemu::info(index, &QemuConfig::new())).collect();
        let some = found.iter().any(Result::is_ok);
        found.into_iter().filter(|info| info.is_ok() || !some).collect()
    }

    fn open(&self, selector: &Selector) -> Result<Device> {
        let is_of_adapter = |(option, _): &&(String, String)| option == "timeout";
        let options = selector.options().iter();
        let (adapter, device): (Vec<_>, Vec<_>) = options.partition(is_of_adapter);
        let config =
            adapter.into_iter().try_fold(AcceleratorConfig::new(), |config, (option, value)| {
                config.set(option, value)
            })?;
        let device = open_selected(selector, &device)?;
        Device::new(EmbeddedAccelerator::new(device, &config)?)
    }
}

/// Opens an embedded device by a selector of [`EmbeddedBackend`], to flash a program and call its functions.
///
/// # Errors
///
/// `UnknownDevice` for a selector that matches no device. Otherwise as for [`QemuDevice::open`] and
/// [`GdbDevice::connect`].
pub fn open(selector: &str) -> Result<Embedded> {
    let selector: Selector = selector.parse()?;
    if selector.backend() != "embedded" {
        return Err(unknown(&selector));
    }
    open_selected(&selector, &selector.options().iter().collect::<Vec<_>>())
}

fn open_selected(selector: &Selector, options: &[&(String, String)]) -> Result<Embedded> {
    let parts: Vec<&str> = selector.parts().iter().map(String::as_str).collect();
    let machine = match parts.as_slice() {
        ["gdb", host, port] => {
            if Selector::number::<u16>(port).is_none_or(|port| port == 0) {
                let message = format!("{selector}: {port:?} is no port from 1 to 65535");
                return Err(Error::new(ErrorKind::InvalidArgument, "open", message));
            }
            return connect(&format!("{host}:{port}"), options);
        }
        [] => MACHINES[0].name,
        [name] => {
            let by_number = Selector::number::<usize>(name).and_then(|index| MACHINES.get(index));
            by_number
                .or_else(|| MACHINES.iter().find(|machine| machine.name == *name))
                .ok_or_else(|| unknown(selector))?
                .name
        }
        _ => return Err(unknown(selector)),
    };
    let set = |config: QemuConfig, (option, value): &&(String, String)| config.set(option, value);
    let config = options.iter().try_fold(QemuConfig::new(), set)?;
    Ok(Embedded::new(QemuDevice::open(machine, config)?))
}

fn connect(address: &str, options: &[&(String, String)]) -> Result<Embedded> {
    let refused = |message: String| Error::new(ErrorKind::InvalidArgument, "open", message);
    let board = match options {
        [(option, file)] if option == "board" => Board::read(Path::new(file))?,
        [] => {
            return Err(refused(format!("{address}: which board is it? board=FILE describes it")));
        }
        _ => {
            let given: Vec<&str> = options.iter().map(|(option, _)| option.as_str()).collect();
            return Err(refused(format!(
                "{}: the options are board=FILE and timeout",
                given.join(", ")
            )));
        }
    };
    Ok(Embedded::new(GdbDevice::connect(address, board)?))
}

fn unknown(selector: &Selector) -> Error {
    let known: Vec<&str> = MACHINES.iter().map(|machine| machine.name).collect();
    let message = format!(
        "{selector}: there is embedded:{} and embedded:gdb:HOST:PORT",
        known.join(", embedded:")
    );
    Error::new(ErrorKind::UnknownDevice, "open", message)
}
