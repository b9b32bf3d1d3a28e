//! The loop over tiles on an OpenCL device, beside the same loop by StarPU with the same device and kernel. StarPU's
//! loop is a C program, compiled when the benchmark runs.
#![expect(unsafe_code, reason = "calls C")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use benches::Bench;
use libloading::Library;
use runtime_core::Result;

use crate::opencl::{CASES, CHANGE, Setup, Tiles, open, values};
use crate::{Copies, TILES};

/// The tasks that StarPU enqueues ahead of the one that runs. Its thread waits for the end of a task if there are none,
/// and otherwise asks for it all the time, which takes a core from the kernels. Its default is 2.
const AHEAD: [(&str, c_int); 2] = [("StarPU", 0), ("StarPU, 2 ahead", 2)];
/// The runs of both sides after which their values are compared, and those whose copies are counted.
const RUNS: usize = 5;
/// The least speed relative to StarPU.
const LEAST: f64 = 0.95;

/// Compiles the C program, or returns what is not installed.
fn compile(to: &Path) -> std::result::Result<(), String> {
    let output = |command: &mut Command| {
        command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))
    };
    let text = |stderr: Vec<u8>| String::from_utf8_lossy(&stderr).into_owned();
    let found = output(Command::new("pkg-config").args(["--cflags", "--libs", "starpu-1.3"]))?;
    if !found.status.success() {
        return Err(text(found.stderr).lines().next().unwrap_or("no StarPU 1.3").to_owned());
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/transfers/starpu.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-shared", "-fPIC", source, "-o"]).arg(to);
    gcc.args(String::from_utf8_lossy(&found.stdout).split_whitespace()).arg("-lOpenCL");
    let compiled = output(&mut gcc)?;
    assert!(compiled.status.success(), "{}", text(compiled.stderr));
    Ok(())
}

/// The functions of the C program.
struct Calls {
    start: unsafe extern "C" fn(*const c_char, c_int, *const c_char, *mut c_char, usize) -> c_int,
    stop: unsafe extern "C" fn(),
    resume: unsafe extern "C" fn(),
    pause: unsafe extern "C" fn(),
    register: unsafe extern "C" fn(*const f64, usize, usize),
    unregister: unsafe extern "C" fn(*mut f64),
    run: unsafe extern "C" fn(u32),
    count: unsafe extern "C" fn(u32, usize) -> u64,
    /// They are those of this library.
    _library: Library,
}

impl Calls {
    fn load(path: &Path) -> Self {
        // SAFETY: it was compiled from the C file beside this one.
        let library = unsafe { Library::new(path) }.expect("the compiled program");
        macro_rules! bind {
            ($($name:ident: $symbol:literal),*) => {
                // SAFETY: the types are those of the C file.
                Self { $($name: *unsafe { library.get($symbol) }.expect($symbol)),*, _library: library }
            };
        }
        bind!(
            start: "tiles_start",
            stop: "tiles_stop",
            resume: "tiles_resume",
            pause: "tiles_pause",
            register: "tiles_register",
            unregister: "tiles_unregister",
            run: "tiles_run",
            count: "tiles_count"
        )
    }
}

/// StarPU, which runs until this is dropped, and pauses while others work.
struct StarPu<'a> {
    calls: &'a Calls,
    device: String,
}

impl<'a> StarPu<'a> {
    /// Starts it with files in this folder and as many tasks ahead, or returns why not.
    fn start(calls: &'a Calls, folder: &Path, ahead: c_int) -> std::result::Result<Self, String> {
        let folder = CString::new(folder.as_os_str().as_encoded_bytes()).expect("a path");
        let source = CString::new(CHANGE).expect("a source");
        let mut name = [0_u8; 256];
        let (at, len) = (name.as_mut_ptr().cast(), name.len());
        // SAFETY: the texts end with 0, and the name has this length.
        let code = unsafe { (calls.start)(folder.as_ptr(), ahead, source.as_ptr(), at, len) };
        if code != 0 {
            return Err(format!("StarPU does not start with an OpenCL device ({code})"));
        }
        let device = CStr::from_bytes_until_nul(&name).expect("a name").to_string_lossy();
        Ok(Self { device: device.trim().to_owned(), calls })
    }
}

impl Drop for StarPu<'_> {
    fn drop(&mut self) {
        // SAFETY: it was started.
        unsafe { (self.calls.stop)() };
    }
}

/// Tiles that are registered with StarPU.
struct Theirs<'a> {
    calls: &'a Calls,
    rounds: u32,
    /// The elements of all tiles.
    len: usize,
}

impl<'a> Theirs<'a> {
    fn new(starpu: &'a mut StarPu<'_>, values: &[f64], rounds: u32) -> Self {
        let (calls, len) = (starpu.calls, values.len());
        // SAFETY: there are as many values, which it copies. StarPU runs.
        unsafe { (calls.register)(values.as_ptr(), TILES as usize, len / TILES as usize) };
        Self { calls, rounds, len }
    }

    /// Resumes StarPU for this work.
    fn awake<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        // SAFETY: StarPU pauses.
        unsafe { (self.calls.resume)() };
        let result = work(self);
        // SAFETY: it was resumed.
        unsafe { (self.calls.pause)() };
        result
    }

    fn run(&mut self) {
        // SAFETY: the tiles are registered.
        unsafe { (self.calls.run)(self.rounds) };
    }

    /// The bytes that [`RUNS`] runs copy in both directions.
    fn bytes(&mut self) -> u64 {
        // SAFETY: the tiles are registered.
        self.awake(|theirs| unsafe { (theirs.calls.count)(theirs.rounds, RUNS) })
    }

    fn into_values(mut self) -> Vec<f64> {
        let mut values = vec![0.0; self.len];
        // SAFETY: the tiles are registered, and there is room for their values.
        self.awake(|theirs| unsafe { (theirs.calls.unregister)(values.as_mut_ptr()) });
        values
    }
}

pub(crate) fn compare(bench: &mut Bench) -> Result<()> {
    if !bench.group("tiles on an OpenCL device, up, changed, down") {
        return Ok(());
    }
    let left_out = |why: String| -> Result<()> {
        println!("StarPU: left out: {why}");
        Ok(())
    };
    let device = match open()? {
        Err(why) => return left_out(why),
        Ok(device) => device,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libtiles.so");
    if let Err(why) = compile(&library) {
        return left_out(why);
    }
    let calls = Calls::load(&library);
    // Its threads wake in a part of a sample.
    bench.set_sample_time(Duration::from_millis(20));
    let setup = Setup::new(device)?;
    for (rival, ahead) in AHEAD.into_iter().take(if bench.is_quick() { 1 } else { AHEAD.len() }) {
        let mut starpu = match StarPu::start(&calls, folder.path(), ahead) {
            Err(why) => return left_out(why),
            Ok(starpu) => starpu,
        };
        let (theirs, ours) = (&starpu.device, &setup.device.info().name);
        if theirs != ours {
            return left_out(format!("its device is {theirs}, ours is {ours}"));
        }
        let cases = if bench.is_quick() { 1 } else { CASES.len() };
        for (case, tile, rounds) in CASES.into_iter().take(cases) {
            let values = values(tile);
            let mut ours = Tiles::new(&setup, &values, rounds, (true, Copies::Enqueued))?;
            let mut theirs = Theirs::new(&mut starpu, &values, rounds);
            for _ in 0..RUNS {
                ours.run()?;
                theirs.awake(Theirs::run);
            }
            let computed = theirs.into_values();
            assert!(ours.values()? == computed && computed != values, "both compute the same");

            let mut theirs = Theirs::new(&mut starpu, &values, rounds);
            let mut run = || ours.run().unwrap_or_else(|error| panic!("{error}"));
            let contestants: &mut [(&str, &mut benches::turns::Contestant<'_>)] = &mut [
                ("ours", &mut |calls| benches::turns::time(calls, &mut run)),
                (rival, &mut |calls| {
                    theirs.awake(|theirs| benches::turns::time(calls, &mut || theirs.run()))
                }),
            ];
            if let Some(seconds) = bench.medians(case, contestants, |at| at[1] / at[0] >= LEAST) {
                bench.measured(case, 0, seconds[0], (rival, seconds[1]), LEAST);
            }
            let copies = |bytes| bytes as f64 / (tile * size_of::<f64>() * RUNS) as f64;
            let (by_us, by_them) = (copies(ours.bytes(RUNS)?), copies(theirs.bytes()));
            println!("{case}: {by_us} tiles copied in a run, {by_them} by {rival}");
            drop(theirs.into_values());
        }
    }
    Ok(())
}
