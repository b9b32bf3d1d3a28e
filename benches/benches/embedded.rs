//! Embedded devices on QEMU: starting, calling, copying memory. Each is compared with a time limit, and with the same
//! machine behind QEMU's own debug server, by the same calls.

use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use backend_embedded::{Board, GdbDevice, QemuConfig, QemuDevice};
use benches::{Bench, Rival};
use runtime_core::contract::CallValue;
use runtime_core::{Embedded, Error, ErrorKind, Result};

const MACHINE: &str = "qemu-riscv64";
const CALLS: &[u8] =
    include_bytes!("../../crates/backend-embedded/firmware/built/calls-riscv64.elf");
const BOARD: &str = include_str!("../../crates/backend-embedded/boards/qemu-virt.toml");
/// The time limits.
const BOOT: Duration = Duration::from_millis(100);
const CALL: Duration = Duration::from_micros(60);
const WRITE: Duration = Duration::from_millis(10);
const WRITE_BYTES: usize = 8 << 20;
/// Far longer than any call here takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<ExitCode> {
    let mut bench = Bench::from_args();
    let device = match QemuDevice::open(MACHINE, QemuConfig::new()) {
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            println!("embedded: left out: {error}");
            return Ok(ExitCode::SUCCESS);
        }
        device => Embedded::new(device?),
    };
    println!("embedded: {}, {}", device.info().name, device.info().driver_version);
    device.flash(CALLS)?;
    let server = Server::start()?;
    let rival = server.connect()?;
    rival.flash(CALLS)?;
    starting(&mut bench, &device);
    calls(&mut bench, &device, &rival);
    memory(&mut bench, &device, &rival)?;
    Ok(bench.finish())
}

/// A reset ends one process and starts another. It is complete when the monitor of the new process answers.
fn starting(bench: &mut Bench, device: &Embedded) {
    if bench.group("start of a machine") {
        let mut ours = || device.reset().expect("a reset");
        bench.compare("reset", 0, &mut ours, &mut [within(BOOT, &mut || thread::sleep(BOOT))]);
    }
}

fn calls(bench: &mut Bench, device: &Embedded, rival: &Embedded) {
    if !bench.group("calls") {
        return;
    }
    bench.set_sample_time(Duration::from_millis(5));
    let nothing = |device: &Embedded| {
        device.call("nothing", &[], TIMEOUT).expect("a call");
    };
    bench.compare(
        "an empty function",
        0,
        &mut || nothing(device),
        &mut [
            within(CALL, &mut || wait(CALL)),
            Rival { name: "gdb", target: 1.0, run: &mut || nothing(rival) },
        ],
    );
    let twelve = [CallValue::I32(1); 12];
    let add = |device: &Embedded| {
        device.call("add", &twelve, TIMEOUT).expect("a call");
    };
    bench.compare(
        "twelve arguments",
        0,
        &mut || add(device),
        &mut [
            within(CALL, &mut || wait(CALL)),
            Rival { name: "gdb", target: 1.0, run: &mut || add(rival) },
        ],
    );
}

fn memory(bench: &mut Bench, device: &Embedded, rival: &Embedded) -> Result<()> {
    if !bench.group("memory, 8 MiB") {
        return Ok(());
    }
    let bytes = vec![0x5A_u8; WRITE_BYTES];
    let address = |device: &Embedded| {
        let area = &device.memory_map()[0];
        area.address + area.bytes / 2
    };
    let places = [address(device), address(rival)];
    bench.compare(
        "to the device",
        WRITE_BYTES as u64,
        &mut || device.memory_write(places[0], &bytes).expect("a write"),
        &mut [
            within(WRITE, &mut || wait(WRITE)),
            Rival {
                name: "gdb",
                target: 1.0,
                run: &mut || rival.memory_write(places[1], &bytes).expect("a write"),
            },
        ],
    );
    let (mut ours, mut theirs) = (vec![0; WRITE_BYTES], vec![0; WRITE_BYTES]);
    bench.compare(
        "from the device",
        WRITE_BYTES as u64,
        &mut || device.memory_read(places[0], &mut ours).expect("a read"),
        &mut [
            within(WRITE, &mut || wait(WRITE)),
            Rival {
                name: "gdb",
                target: 1.0,
                run: &mut || rival.memory_read(places[1], &mut theirs).expect("a read"),
            },
        ],
    );
    assert_eq!(ours, theirs, "both machines hold what was written");
    Ok(())
}

/// The limit as a contestant that takes exactly this long.
fn within<'a>(limit: Duration, run: &'a mut dyn FnMut()) -> Rival<'a> {
    let name = match limit {
        BOOT => "100 ms",
        CALL => "60 us",
        _ => "10 ms",
    };
    Rival { name, target: 1.0, run }
}

/// Waits without sleeping, because sleeping would take longer.
fn wait(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// QEMU as a debug server.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start() -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Driver, "start", "the rival").with_source(error)
        };
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        drop(listener);
        let child = Command::new("qemu-system-riscv64")
            .args(["-M", "virt", "-m", "256M", "-bios", "none", "-display", "none"])
            .args(["-serial", "none", "-monitor", "none", "-S", "-gdb"])
            .arg(format!("tcp:127.0.0.1:{port}"))
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        Ok(Self { child, port })
    }

    fn connect(&self) -> Result<Embedded> {
        let began = Instant::now();
        loop {
            match GdbDevice::connect(&format!("127.0.0.1:{}", self.port), Board::parse(BOARD)?) {
                Err(error)
                    if error.kind() == ErrorKind::Unavailable && began.elapsed() < TIMEOUT =>
                {
                    thread::sleep(Duration::from_millis(10));
                }
                device => return Ok(Embedded::new(device?)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
