//! Source, SPIR-V, options, logs and intermediate files.

use std::fs;

use backend_opencl::OpenClBackend;
use runtime_core::{Backend, ErrorKind, ImageFormat, Launch, ModuleBundle, ModuleImage, args};

use crate::{open, run, source};

const SCALE: &str = include_str!("scale.cl");
const SCALE_SPIRV: &[u8] = include_bytes!("scale.spv");

#[test]
fn a_compiler_error_comes_with_its_log_and_line() {
    let Some(device) = open("") else { return };
    let text = "kernel void k(global float *x) {\n  x[0] = 1.0f;\n  y = 2;\n}\n";
    let error = device.module_load(source(text)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModule);
    assert_eq!(error.driver().unwrap().name, "CL_BUILD_PROGRAM_FAILURE");
    let log = error.log().unwrap();
    assert!(log.contains(":3:") && log.contains('y'), "{log}");
    assert!(!error.to_string().contains('\n'), "{error}");
}

/// Compilers that run in the process need more stack than a thread may have left.
#[test]
fn deep_expressions_are_compiled_in_a_thread_with_little_stack() {
    let sum =
        (0..60).fold("x[1]".to_owned(), |sum, _| format!("(int)((unsigned int)({sum}) + 1u)"));
    let text = format!("kernel void k(global int *x) {{ x[0] = {sum}; }}");
    let work = || {
        let Some(device) = open("?cache=off") else { return };
        device.module_load(source(&text)).unwrap();
    };
    std::thread::scope(|scope| {
        std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work).unwrap();
    });
}

#[test]
fn options_reach_the_compiler() {
    let Some(device) = open("?options=-DBY=3") else { return };
    let stream = device.default_stream();
    let text = "kernel void k(global int *x) { x[get_global_id(0)] = BY * WIDE; }";
    let image = source(text).with_options(["-D", "WIDE=100"]);
    let kernel = device.module_load(image).unwrap().kernel("k").unwrap();
    let mut x = device.memory_from_slice(&stream, &[0_i32; 4]).unwrap();
    run(&kernel, &Launch::cover(4, 1), args![&mut x]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), [300; 4]);
    for wrong in ["-DBY=3 -no-such-option", "-D\0"] {
        let image = source("kernel void k() {}").with_options([wrong]);
        let kind = device.module_load(image).unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::InvalidModule | ErrorKind::InvalidArgument), "{wrong:?}");
    }
}

#[test]
fn spirv_runs_where_it_is_taken_and_is_refused_elsewhere() {
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let image = ModuleImage::binary(ImageFormat::SpirV, SCALE_SPIRV);
    let takes = device.info().formats.contains(&ImageFormat::SpirV);
    let module = match device.module_load(image.clone()) {
        Ok(module) => module,
        Err(error) => {
            assert!(!takes, "{error:?}");
            assert_eq!(error.kind(), ErrorKind::InvalidModule);
            assert!(error.message().contains("OpenCL C"), "{error}");
            let bundle = ModuleBundle::new().with(image).with(source(SCALE));
            device.module_load_bundle(&bundle).unwrap()
        }
    };
    let mut x = device.memory_from_slice(&stream, &[1.0_f32, 2.0, 3.0]).unwrap();
    let kernel = module.kernel("scale").unwrap();
    run(&kernel, &Launch::cover(3, 1), args![&mut x, 0.5_f32]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), [0.5, 1.0, 1.5]);
    // Few drivers report the parameters of such a kernel, but all report their number.
    drop(x);
    for wrong in [args![], args![1.0_f32], args![1.0_f32, 2.0_f32, 3.0_f32]] {
        let error = run(&kernel, &Launch::cover(3, 1), wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    // Words that are not a module, and a truncated module.
    for broken in [&SCALE_SPIRV[..SCALE_SPIRV.len() / 2], &SCALE_SPIRV[4..], &[3, 2, 35, 7]] {
        let image = ModuleImage::binary(ImageFormat::SpirV, broken);
        assert_eq!(device.module_load(image).unwrap_err().kind(), ErrorKind::InvalidModule);
    }
}

#[test]
fn intermediates_are_private_and_removed_with_their_module() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let Some(device) = open(&format!("?cache=off&work-dir={}", path.display())) else { return };
    let entries = || fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    let module = device.module_load(source(SCALE)).unwrap();
    let [intermediates] = &entries()[..] else { panic!("{:?}", entries()) };
    assert_eq!(fs::read_to_string(intermediates.join("program.cl")).unwrap(), SCALE);
    assert!(fs::metadata(intermediates.join("program.bin")).unwrap().len() > 0);
    assert!(intermediates.join("options").exists());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(intermediates).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
    drop(module);
    assert!(entries().is_empty(), "{:?}", entries());
    device.module_load(source("kernel void k( {")).unwrap_err();
    assert!(entries().is_empty(), "a failed build left {:?}", entries());

    let keeping = format!("?cache=off&keep=on&work-dir={}", path.display());
    let device = open(&keeping).unwrap();
    drop(device.module_load(source(SCALE)).unwrap());
    device.module_load(source("kernel void k( {")).unwrap_err();
    let kept = entries();
    assert_eq!(kept.len(), 2);
    let has_error = |log: &str| log.contains("error");
    let logs = kept.iter().map(|kept| fs::read_to_string(kept.join("build.log")).unwrap());
    assert_eq!(logs.filter(|log| has_error(log)).count(), 1, "the failed build's log");
}

#[test]
fn a_folder_that_cannot_be_made_is_named_when_the_device_is_opened() {
    let Some(device) = open("") else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    let inside = file.path().join("folder");
    let named = format!("work-dir={}", inside.display());
    for (option, part) in [(named.as_str(), named.as_str()), ("keep=on", "without work-dir")] {
        let selector = format!("opencl:{}?{option}", device.id().index()).parse().unwrap();
        let error = OpenClBackend::new().open(&selector).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(part), "{error}");
    }
}
