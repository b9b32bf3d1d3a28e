//! Boards behind a debug server: QEMU's own server, with the same program.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use backend_embedded::{Board, EmbeddedAccelerator, GdbDevice, open};
use runtime_core::contract::CallValue::{Address, F32, F64, I32, I64};
use runtime_core::{Device, Embedded, ErrorKind, ImageFormat, Launch, ModuleImage, args};

use crate::{LONG, must_work};

/// A board that QEMU serves, and the program for it.
struct Served {
    board: &'static str,
    command: &'static [&'static str],
    calls: &'static [u8],
    nowhere: u64,
    /// The end of the stack, and the name of the fault of a write below it.
    stack_limit: u64,
    overflow: &'static str,
}

const BOARDS: [Served; 3] = [
    Served {
        board: "qemu-virt",
        command: &["qemu-system-riscv64", "-M", "virt", "-m", "256M", "-bios", "none"],
        calls: include_bytes!("../../firmware/built/calls-riscv64.elf"),
        nowhere: 0x9000_0000,
        stack_limit: 0x8000_1000,
        overflow: "STORE_ACCESS_FAULT",
    },
    Served {
        board: "qemu-mps2-an500",
        command: &["qemu-system-arm", "-M", "mps2-an500"],
        calls: include_bytes!("../../firmware/built/calls-cortex-m7.elf"),
        nowhere: 0x9000_0000,
        stack_limit: 0x6000_0000,
        overflow: "STACKING_ERROR",
    },
    Served {
        board: "qemu-mps2-an385",
        command: &["qemu-system-arm", "-M", "mps2-an385"],
        calls: include_bytes!("../../firmware/built/calls-cortex-m3.elf"),
        nowhere: 0x9000_0000,
        stack_limit: 0x2100_1000,
        overflow: "STACKING_ERROR",
    },
];

/// QEMU as a debug server, which is killed when this is dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Served {
    /// Returns `None` if QEMU is not installed.
    fn start(&self) -> Option<Server> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        self.start_at(port)
    }

    fn start_at(&self, port: u16) -> Option<Server> {
        let started = Command::new(self.command[0])
            .args(&self.command[1..])
            .args(["-display", "none", "-serial", "none", "-monitor", "none", "-S", "-gdb"])
            .arg(format!("tcp:127.0.0.1:{port}"))
            .stderr(Stdio::null())
            .spawn();
        let child = match started {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("skipped: no {}", self.command[0]);
                return None;
            }
            child => child.unwrap(),
        };
        Some(Server { child, port })
    }

    fn board(&self) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("boards");
        folder.join(format!("{}.toml", self.board)).display().to_string()
    }

    /// Connects as soon as the server listens.
    fn connect(&self, port: u16) -> Embedded {
        let began = Instant::now();
        loop {
            match open(&format!("embedded:gdb:127.0.0.1:{port}?board={}", self.board())) {
                Err(error) if error.kind() == ErrorKind::Unavailable && began.elapsed() < LONG => {
                    thread::sleep(Duration::from_millis(10));
                }
                device => return device.unwrap(),
            }
        }
    }
}

/// The boards, connected, with the program flashed.
fn boards() -> impl Iterator<Item = (&'static Served, Server, Embedded)> {
    BOARDS.iter().filter_map(|served| {
        let server = served.start()?;
        let device = served.connect(server.port);
        device.flash(served.calls).unwrap();
        Some((served, server, device))
    })
}

#[test]
fn the_same_program_runs() {
    for (served, _server, device) in boards() {
        must_work(&device);
        assert_eq!(
            device.call("add_long", &[I64(1 << 40), I64(-1)], LONG).unwrap().i64(),
            (1 << 40) - 1
        );
        assert_eq!(device.call("add_float", &[F32(0.5), F32(1.0)], LONG).unwrap().f32(), 1.5);
        assert_eq!(device.call("add_double", &[F64(0.5), F64(1.0)], LONG).unwrap().f64(), 1.5);
        let numbers = device.symbol("numbers").unwrap().address;
        let bytes: Vec<u8> = (0..1024_u32).flat_map(u32::to_le_bytes).collect();
        device.memory_write(numbers, &bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        device.memory_read(numbers, &mut back).unwrap();
        assert_eq!(back, bytes);
        let sum = device.call("sum", &[Address(numbers), I32(1024)], LONG).unwrap();
        assert_eq!(sum.i32(), 1023 * 512, "{}", served.board);
        assert_eq!(device.call("count", &[], LONG).unwrap().i32(), 41);
        device.reset().unwrap();
        assert_eq!(device.call("count", &[], LONG).unwrap().i32(), 41);
    }
}

#[test]
fn faults_and_loops_are_errors_and_the_next_call_is_right() {
    for (served, _server, device) in boards() {
        let error = device.call("load", &[Address(served.nowhere)], LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
        assert!(error.message().contains(&format!("address {:#x}", served.nowhere)), "{error}");
        must_work(&device);
        let error = device.call("illegal", &[], LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
        must_work(&device);
        let error = device.call("recurse", &[I32(i32::MAX)], LONG).unwrap_err();
        assert_eq!(error.driver().unwrap().name, served.overflow, "{error}");
        let (_, place) = error.message().rsplit_once(" 0x").unwrap();
        let place = u64::from_str_radix(place, 16).unwrap();
        let below = served.stack_limit - 256..served.stack_limit;
        assert!(below.contains(&place), "{}: {error}", served.board);
        must_work(&device);
        let error = device.call("store", &[Address(8), I32(-1)], LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
        assert!(error.message().ends_with("address 0x8"), "{error}");
        must_work(&device);
        let error = device.call("hang", &[], Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert_eq!(device.call("add", &[], LONG).unwrap_err().kind(), ErrorKind::Conflict);
        device.reset().unwrap();
        must_work(&device);
        thread::scope(|scope| {
            let hanging = scope.spawn(|| device.call("hang", &[], LONG));
            thread::sleep(Duration::from_millis(50));
            device.reset().unwrap();
            let error = hanging.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        });
        must_work(&device);
    }
}

#[test]
fn a_device_is_lost_until_its_server_is_back() {
    let served = &BOARDS[0];
    let Some(server) = served.start() else { return };
    let port = server.port;
    let device = served.connect(port);
    device.flash(served.calls).unwrap();
    thread::scope(|scope| {
        let hanging = scope.spawn(|| device.call("hang", &[], LONG));
        thread::sleep(Duration::from_millis(50));
        drop(server);
        let error = hanging.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    });
    assert_eq!(device.call("add", &[], LONG).unwrap_err().kind(), ErrorKind::DeviceLost);
    assert_eq!(device.reset().unwrap_err().kind(), ErrorKind::DeviceLost);
    let _server = served.start_at(port).unwrap();
    let began = Instant::now();
    while let Err(error) = device.reset() {
        assert!(began.elapsed() < LONG, "{error}");
        thread::sleep(Duration::from_millis(10));
    }
    must_work(&device);
}

#[test]
fn a_board_is_an_accelerator() {
    let served = &BOARDS[0];
    let Some(server) = served.start() else { return };
    let device = served.connect(server.port);
    let device =
        Device::new(EmbeddedAccelerator::new(device, &Default::default()).unwrap()).unwrap();
    let kernels = include_bytes!("../../firmware/built/kernels-riscv64.elf");
    let module = device.module_load(ModuleImage::binary(ImageFormat::Elf, &kernels[..])).unwrap();
    let stream = device.default_stream();
    let mut data = device.memory_from_slice(&stream, &[1_u32, 2, 3]).unwrap();
    let add_one = module.kernel("add_one").unwrap();
    // SAFETY: the kernel writes three elements.
    unsafe { add_one.launch(&stream, &Launch::cover(3, 1), args![&mut data, 3_u32]) }.unwrap();
    assert_eq!(data.view().to_vec(&stream).unwrap(), [2, 3, 4]);
}

#[test]
fn a_server_that_does_not_answer_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let board = || Board::read(Path::new(&BOARDS[0].board())).unwrap();
    // It accepts connections later, as a server does that is busy with a debugger.
    let began = Instant::now();
    let error = GdbDevice::connect(&address, board()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("one debugger at a time"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(8));
    // Not the listener's port once more: another program may have it by then.
    let error = GdbDevice::connect("127.0.0.1:1", board()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("refused"), "{error}");
}

#[test]
fn a_peer_that_is_no_debugger_is_refused() {
    for answer in
        [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$OK#00", b"+$#00+$#00+$#00+$#00"]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let peer = thread::spawn(move || {
            let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
            let mut request = [0; 64];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer);
        });
        let board = Board::read(Path::new(&BOARDS[0].board())).unwrap();
        let error = GdbDevice::connect(&format!("127.0.0.1:{port}"), board).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::Driver), "{error}");
        peer.join().unwrap();
    }
}
