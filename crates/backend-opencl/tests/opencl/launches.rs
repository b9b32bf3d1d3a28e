//! Arguments and geometry in OpenCL.

use std::fs;

use runtime_core::contract::{ParamAccess, ParamKind};
use runtime_core::{DType, Device, ErrorKind, Launch, Layout, Plain, args, record};

use crate::{open, open_if_it_can, run, source};

#[test]
fn parameters_are_read_from_the_loaded_kernel() {
    let Some(device) = open("") else { return };
    let text = "
        typedef struct { int a; float b; } pair;
        kernel void k(global const float *x, global uint *y, constant int *c, uchar n, float4 v,
                      pair p, local float *scratch, global char *bytes) {}";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    let found = kernel.parameters().unwrap();
    // Local memory is not an argument of a launch.
    assert_eq!(found.len(), 7);
    let memory = |index: usize| (found[index].kind, found[index].dtype, found[index].access);
    assert_eq!(memory(0), (ParamKind::Memory, Some(DType::F32), Some(ParamAccess::Read)));
    assert_eq!(memory(1), (ParamKind::Memory, Some(DType::U32), Some(ParamAccess::Write)));
    assert_eq!(memory(2), (ParamKind::Memory, Some(DType::I32), Some(ParamAccess::Read)));
    assert_eq!(memory(6), (ParamKind::Memory, None, Some(ParamAccess::Write)));
    assert_eq!((found[3].size, found[3].dtype), (Some(1), None));
    assert_eq!((found[4].size, found[4].dtype), (Some(16), None));
    // The compiler determines the size of a type that the program defines.
    assert_eq!((found[5].kind, found[5].size), (ParamKind::Value, Some(8)));
}

#[test]
fn a_size_is_that_of_the_declared_type_or_unknown() {
    let Some(device) = open("?cache=off") else { return };
    let size = |before: &str, parameter: &str, after: &str, options: &[&str]| {
        let text = format!("{before}\nkernel void k({parameter} p, global int *x) {{}}\n{after}");
        let image = source(&text).with_options(options.iter().copied());
        let kernel = device.module_load(image).unwrap().kernel("k").unwrap();
        kernel.parameters().unwrap()[0].size
    };
    let pair = "typedef struct { int a, b; } pair;";
    for after in [
        "",
        "#define PAIR 1\n// \\",
        "#define pair int",
        "#def\\\nine pair int",
        "#define sizeof 1 +",
        "#define unsigned",
        "#define long char",
        "#define __kernel",
        "#define __global",
        "#define device_runtime_parameter_sizes k",
    ] {
        assert_eq!(size(pair, "pair", after, &[]), Some(8), "{after}");
    }
    for before in ["#define ulong uint\n", "#define global __global\n", "#define kernel __kernel\n"]
    {
        assert_eq!(size(&(before.to_owned() + pair), "pair", "", &[]), Some(8), "{before}");
    }
    assert_eq!(size(pair, "pair", "", &["-Dsizeof=1+"]), Some(8));
    let two =
        "typedef struct { int a[5]; } five;\nkernel void l(five p, struct pair { int a; } q) {}";
    assert_eq!(size(two, "five", "", &[]), Some(20));
    let hidden = "struct pair { int a[9]; }";
    assert_eq!(size("struct pair { char a; };", hidden, "", &[]), None);
    assert_eq!(size("", hidden, "struct pair { char a; };", &[]), None);
    // A value of no bytes, and one that no launch can pass.
    assert_eq!(size("typedef struct {} none;", "none", "", &[]), None);
    assert_eq!(size("typedef struct { int a[1 << 20]; } huge;", "huge", "", &[]), None);
}

#[test]
fn a_struct_is_passed_as_its_bytes() {
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let text = "
        typedef struct { int a; int b; } pair;
        kernel void k(global int *out, pair p) { out[0] = p.a; out[1] = p.b; }";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    let mut out = device.memory_from_slice(&stream, &[0_i32; 2]).unwrap();
    let pair = Plain([5_i32, 6]);
    let launch = Launch::cover(1, 1);
    run(&kernel, &launch, args![&mut out, &pair]).unwrap();
    assert_eq!(out.view().to_vec(&stream).unwrap(), [5, 6]);
    for wrong in [&[0; 4][..], &[], &[0; 12]] {
        let arguments = [(&mut out).into(), runtime_core::Arg::bytes(wrong)];
        let error = run(&kernel, &launch, &arguments).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{} bytes", wrong.len());
    }
}

record! {
    #[derive(Debug, PartialEq)]
    struct Particle {
        position: [f64; 2],
        charge: f32,
        cell: u32,
    }
}

#[test]
fn records_are_structs_of_c() {
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let text = "
        typedef struct { double position[2]; float charge; uint cell; } particle;
        kernel void k(global particle *all, particle add) {
            global particle *one = all + get_global_id(0);
            one->position[1] += add.position[1];
            one->charge *= 2;
            one->cell += add.cell;
        }";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    let particle = |cell| Particle { position: [0.5, f64::from(cell)], charge: 1.5, cell };
    let start: Vec<_> = (0..9).map(particle).collect();
    let mut all = device.memory_from_slice(&stream, &start).unwrap();
    run(&kernel, &Launch::cover(9, 3), args![&mut all, &Plain(particle(10))]).unwrap();
    let moved = |cell: u32| Particle {
        position: [0.5, f64::from(cell) + 10.0],
        charge: 3.0,
        cell: cell + 10,
    };
    assert_eq!(all.to_vec(&stream).unwrap(), (0..9).map(moved).collect::<Vec<_>>());
}

#[test]
fn local_memory_is_the_shared_memory_of_a_launch() {
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let text = "
        kernel void reverse(global int *x, local int *scratch, int add) {
            const int i = get_local_id(0), n = get_local_size(0);
            scratch[i] = x[i] + add;
            barrier(CLK_LOCAL_MEM_FENCE);
            x[i] = scratch[n - 1 - i];
        }
        kernel void two(global int *x, local int *a, local int *b) {}";
    let module = device.module_load(source(text)).unwrap();
    let kernel = module.kernel("reverse").unwrap();
    let mut x = device.memory_from_slice(&stream, &[1, 2, 3, 4]).unwrap();
    let launch = Launch::cover(4, 4).with_shared(16);
    run(&kernel, &launch, args![&mut x, 10]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), [14, 13, 12, 11]);
    // Without any local memory, the driver refuses the launch.
    let error = run(&kernel, &Launch::cover(4, 4), args![&mut x, 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = module.kernel("two").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModule);
    assert!(error.message().contains("2 parameters in local memory"), "{error}");
}

#[test]
fn local_memory_beyond_the_devices_is_refused() {
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let most = device.info().limits.max_shared_bytes;
    let text = format!(
        "kernel void k(global int *x, local char *scratch) {{
            local char big[{}];
            big[get_local_id(0)] = 1;
            scratch[get_local_id(0)] = 2;
            barrier(CLK_LOCAL_MEM_FENCE);
            x[get_global_id(0)] = big[0] + scratch[0];
        }}",
        most / 2
    );
    let kernel = device.module_load(source(&text)).unwrap().kernel("k").unwrap();
    let mut x = device.memory_from_slice(&stream, &[0]).unwrap();
    let launch = Launch::cover(1, 1).with_shared(most / 2 + 64);
    let error = run(&kernel, &launch, args![&mut x]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains(&most.to_string()), "{error}");
    run(&kernel, &Launch::cover(1, 1).with_shared(64), args![&mut x]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), [3]);
}

/// Loads a module with this kernel parameter, and requires that only its kernel is refused.
fn refuse(device: &Device, options: &[&str], before: &str, parameter: &str, after: &str) {
    let text = format!(
        "{before}
         typedef struct {{ int a, b; }} pair;
         kernel void other(pair x, global int *y) {{}}
         kernel void k(pair x, global int *y, {parameter}) {{}}
         kernel void hidden(struct inner {{ int a; }} x) {{}}
         {after}"
    );
    // Some devices do not accept such source at all.
    let image = source(&text).with_options(options.iter().copied());
    let Ok(module) = device.module_load(image) else { return };
    let Err(error) = module.kernel("k") else { panic!("accepted: {text}") };
    assert_eq!(error.kind(), ErrorKind::InvalidModule, "{text}");
    let mut words = parameter.split_whitespace();
    assert!(words.any(|word| error.message().contains(&format!("type {word},"))), "{error}");
    let other = module.kernel("other").unwrap();
    assert_eq!(other.parameters().unwrap()[0].size, Some(8), "{text}");
    module.kernel("hidden").unwrap();
}

#[test]
fn images_samplers_and_queues_are_refused_with_their_kernel_by_any_name() {
    let Some(device) = open("?cache=off") else { return };
    for (name, access, options) in [
        ("sampler_t", "", &[][..]),
        ("image1d_t", "read_only", &[]),
        ("image1d_array_t", "read_only", &[]),
        ("image1d_buffer_t", "", &[]),
        ("image2d_t", "read_only", &[]),
        ("image2d_array_t", "", &[]),
        ("image2d_depth_t", "read_only", &[]),
        ("image3d_t", "__read_only", &[]),
        ("event_t", "", &[]),
        ("queue_t", "", &["-cl-std=CL2.0"]),
        ("clk_event_t", "", &["-cl-std=CL2.0"]),
        ("pipe int", "read_only", &["-cl-std=CL2.0"]),
    ] {
        refuse(&device, options, "", &format!("{access} {name} p"), "");
        let alias = format!("typedef {name} alias;");
        refuse(&device, options, &alias, &format!("{access} alias p"), "");
    }
}

#[test]
fn no_spelling_hides_an_image_or_a_sampler() {
    let Some(device) = open("?cache=off") else { return };
    let folder = tempfile::tempdir().unwrap();
    refuse(&device, &[], "", "write_only image2d_t p", "");
    refuse(&device, &[], "typedef write_only image2d_t alias;", "alias p", "");
    for (name, access) in [("sampler_t", ""), ("image2d_t", "read_only")] {
        let alias = format!("typedef {name} alias;\n");
        fs::write(folder.path().join("type.h"), &alias).unwrap();
        let parameter = &*format!("{access} alias p");
        refuse(&device, &[], &format!("typedef {access} {name} alias;"), "alias p", "");
        refuse(&device, &[], &format!("{alias}typedef alias a;"), &format!("{access} a p"), "");
        refuse(&device, &[], &format!("typedef {name} half4;"), &format!("{access} half4 p"), "");
        refuse(&device, &[], &alias, parameter, "#define alias int\n#define sizeof 1 +\n");
        refuse(&device, &["-Dsizeof=1+"], &alias, parameter, "");
        let include = format!("-I{}", folder.path().display());
        refuse(&device, &[&include], "#include \"type.h\"", parameter, "");
    }
}

#[test]
fn values_of_any_type_that_the_program_names_are_accepted() {
    let Some(device) = open("?cache=off") else { return };
    for (declaration, name, size) in [
        ("typedef char t;", "t", 1),
        ("typedef float4 t;", "t", 16),
        ("typedef const ushort3 t;", "t", 8),
        ("typedef volatile int t;", "t", 4),
        ("typedef private int t;", "t", 4),
        ("typedef float t __attribute__((ext_vector_type(16)));", "t", 64),
        ("typedef enum { one, two } t;", "t", 4),
        ("enum e { one, two };", "enum e", 4),
        ("union u { int a; long b; };", "union u", 8),
        ("struct s { const int a; short b[3]; };", "struct s", 12),
        ("typedef struct __attribute__((packed)) { char a; int b; } t; typedef t s;", "s", 5),
        ("typedef struct { struct { long a; } b[2]; float4 c; } t;", "t", 32),
        ("typedef struct { int a; } half4;", "half4", 4),
        ("typedef struct { int a; } sizes;", "sizes", 4),
    ] {
        let text = format!("{declaration}\nkernel void k({name} p, global int *x) {{}}");
        let module = device.module_load(source(&text)).unwrap();
        let kernel = module.kernel("k").unwrap();
        let found = &kernel.parameters().unwrap()[0];
        assert_eq!((found.kind, found.size), (ParamKind::Value, Some(size)), "{declaration}");
    }
}

#[test]
fn pointers_to_vectors_are_aligned_as_these() {
    let text = "kernel void k(global float4 *x) { x[get_global_id(0)] *= 2.0f; }";
    for options in ["?memory=buffer", "?memory=svm", "?memory=usm"] {
        let Some(device) = open_if(options) else { continue };
        let stream = device.default_stream();
        let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
        let mut x = device.memory_from_slice(&stream, &[1.0_f32; 40]).unwrap();
        let part = x.view_mut().slice(4..36).unwrap();
        run(&kernel, &Launch::cover(8, 1), args![part]).unwrap();
        let part = x.view_mut().slice(1..33).unwrap();
        match run(&kernel, &Launch::cover(8, 1), args![part]) {
            // A copy of the view is aligned.
            Ok(()) => assert_eq!(options, "?memory=buffer"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                for part in ["\"k\"", "argument 0", "byte 4", "16"] {
                    assert!(error.message().contains(part), "{error}");
                }
            }
        }
        let found = x.view().to_vec(&stream).unwrap();
        assert_eq!((found[0], found[39]), (1.0, 1.0));
    }
}

#[test]
fn a_bool_is_one_byte() {
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let text = "kernel void k(global int *x, uchar yes) { x[0] = yes ? 7 : 0; }";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    let mut x = device.memory_from_slice(&stream, &[1]).unwrap();
    run(&kernel, &Launch::cover(1, 1), args![&mut x, runtime_core::Bool::from(true)]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), [7]);
}

#[test]
fn a_block_larger_than_the_kernel_admits_is_refused() {
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let text = "kernel __attribute__((reqd_work_group_size(2, 1, 1))) void k(global int *x) {
        x[get_global_id(0)] = 1;
    }";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    let mut x = device.memory_from_slice(&stream, &[0; 4]).unwrap();
    let error = run(&kernel, &Launch::cover(4, 4), args![&mut x]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for part in ["\"k\"", "[4, 1, 1]", "[2, 1, 1]"] {
        assert!(error.message().contains(part), "{error}");
    }
    run(&kernel, &Launch::cover(4, 2), args![&mut x]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), [1; 4]);
}

/// A kernel gets the address of a view's first element wherever that lies, on every kind of memory.
#[test]
fn views_begin_anywhere() {
    const TEXT: &str = "
        kernel void shift(global int *out, global const int *in, int step) {
            const int i = get_global_id(0);
            out[i] = in[i * step] + 100;
        }";
    for options in ["?memory=buffer", "?memory=svm", "?memory=usm"] {
        let Some(device) = open_if(options) else { continue };
        let stream = device.default_stream();
        let kernel = device.module_load(source(TEXT)).unwrap().kernel("shift").unwrap();
        let numbers: Vec<i32> = (0..256).collect();
        let input = device.memory_from_slice(&stream, &numbers).unwrap();
        for start in [0, 1, 31, 32, 33, 128, 200] {
            let mut output = device.memory_from_slice(&stream, &vec![-1; 256]).unwrap();
            let from = input.view().slice(start..start + 40).unwrap();
            let to = output.view_mut().slice(start + 3..start + 43).unwrap();
            run(&kernel, &Launch::cover(40, 1), args![to, from, 1]).unwrap();
            let mut expected = vec![-1; 256];
            for i in 0..40 {
                expected[start + 3 + i] = numbers[start + i] + 100;
            }
            let found = output.view().to_vec(&stream).unwrap();
            assert_eq!(found, expected, "{options}, from element {start} on");
            // Backwards: the pointer points to the last element.
            let backwards = Layout::new(DType::I32, &[40], &[-1]).unwrap();
            let forward = input.view().slice(start..start + 40).unwrap();
            let back = forward.with_layout(39 * 4, &backwards).unwrap();
            let to = output.view_mut().slice(0..40).unwrap();
            run(&kernel, &Launch::cover(40, 1), args![to, back, -1]).unwrap();
            let expected: Vec<i32> = (0..40).map(|i| numbers[start + 39 - i] + 100).collect();
            let found = output.view().slice(0..40).unwrap().to_vec(&stream).unwrap();
            assert_eq!(found, expected, "{options}, backwards from element {start}");
        }
    }
}

/// Bytes between the elements of a view belong to other code, and a copy would overwrite its concurrent writes.
#[test]
fn a_written_view_with_gaps_begins_where_the_device_can_point() {
    const TEXT: &str = "kernel void k(global int *out) { out[2 * get_global_id(0)] = 5; }";
    let Some(device) = open_if("?memory=buffer") else { return };
    let stream = device.default_stream();
    let kernel = device.module_load(source(TEXT)).unwrap().kernel("k").unwrap();
    let mut memory = device.memory_from_slice(&stream, &[0_i32; 8]).unwrap();
    let every_other = memory.view_mut().reshape(&[4, 2]).unwrap().region(&[0..4, 1..2]).unwrap();
    let error = run(&kernel, &Launch::cover(4, 1), args![every_other]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for part in ["byte 4", "memory=svm"] {
        assert!(error.message().contains(part), "{error}");
    }
    let every_other = memory.view_mut().reshape(&[4, 2]).unwrap().region(&[0..4, 0..1]).unwrap();
    run(&kernel, &Launch::cover(4, 1), args![every_other]).unwrap();
    assert_eq!(memory.view().to_vec(&stream).unwrap(), [5, 0, 5, 0, 5, 0, 5, 0]);
}

#[test]
fn a_written_view_may_run_backwards() {
    const TEXT: &str = "kernel void k(global int *x, int step) { x[(int)get_global_id(0) * step] = get_global_id(0); }";
    for options in ["?memory=buffer", "?memory=svm"] {
        let Some(device) = open_if(options) else { continue };
        let stream = device.default_stream();
        let kernel = device.module_load(source(TEXT)).unwrap().kernel("k").unwrap();
        let mut memory = device.memory_from_slice(&stream, &[-1_i32; 64]).unwrap();
        let backwards = Layout::new(DType::I32, &[33], &[-1]).unwrap();
        let part = memory.view_mut().slice(3..36).unwrap();
        let part = part.with_layout(32 * 4, &backwards).unwrap();
        run(&kernel, &Launch::cover(33, 1), args![part, -1]).unwrap();
        let found = memory.view().to_vec(&stream).unwrap();
        let expected: Vec<i32> = (0..33).rev().collect();
        assert_eq!(found[3..36], expected, "{options}");
        assert_eq!((found[2], found[36]), (-1, -1), "{options}");
    }
}

#[test]
fn bf16_is_passed_as_ushort() {
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let text = "kernel void k(global ushort *x) { x[get_global_id(0)] ^= 0x8000; }";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    let ones = [half::bf16::ONE; 4];
    let mut x = device.memory_from_slice(&stream, &ones).unwrap();
    run(&kernel, &Launch::cover(4, 1), args![&mut x]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), [half::bf16::NEG_ONE; 4]);
}

/// Opens a device with this kind of memory, if it supports it.
fn open_if(options: &str) -> Option<Device> {
    use runtime_core::Backend;
    let plain = open("")?;
    let index = plain.id().index();
    let selector = format!("opencl:{index}{options}").parse().unwrap();
    match backend_opencl::OpenClBackend::new().open(&selector) {
        Ok(device) => Some(device),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            None
        }
    }
}

#[test]
fn the_suggested_block_size_suits_the_kernel() {
    let Some(device) = open("") else { return };
    let text = "
        kernel void plain(global int *x) { x[get_global_id(0)] = 1; }
        kernel void __attribute__((reqd_work_group_size(8, 1, 1))) row(global int *x) {
            x[get_global_id(0)] = 1;
        }
        kernel void __attribute__((reqd_work_group_size(2, 2, 1))) square(global int *x) {
            x[get_global_id(0)] = 1;
        }";
    let module = device.module_load(source(text)).unwrap();
    let plain = module.kernel("plain").unwrap();
    let block = plain.suggested_block(0).unwrap();
    assert!(block <= 256 && block <= device.info().limits.max_block_threads, "{block}");
    assert_eq!(plain.resident_blocks(block, 0).unwrap(), None);
    let row = module.kernel("row").unwrap();
    assert_eq!(row.suggested_block(0).unwrap(), 8);
    let stream = device.default_stream();
    let mut out = device.memory_from_slice(&stream, &[0_i32; 24]).unwrap();
    run(&row, &row.cover(20).unwrap(), args![&mut out]).unwrap();
    assert_eq!(out.view().to_vec(&stream).unwrap(), [1; 24]);
    let error = module.kernel("square").unwrap().cover(20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("square") && error.message().contains("[2, 2, 1]"), "{error}");
}

/// Launches copy rows of 100 numbers, unless the device accepts any address. Padded rows are not copied.
#[test]
fn launches_on_rows_that_are_not_aligned_are_counted() {
    for memory in ["buffer", "svm"] {
        let Some(device) = open_if_it_can(&format!("?memory={memory}")) else { return };
        let stream = device.default_stream();
        let align = device.info().limits.argument_alignment.get();
        assert_eq!(align > 1, memory == "buffer");
        let text = "kernel void k(global float *to, global const float *from) {
            to[get_global_id(0)] = from[get_global_id(0)];
        }";
        let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
        let padded = 100_usize.next_multiple_of(align.div_ceil(4).max(1));
        for (pitch, copied) in [(100, memory == "buffer"), (padded, false)] {
            let from = device.memory_from_slice(&stream, &vec![2.0_f32; 3 * pitch]).unwrap();
            let mut to = device.memory_from_slice(&stream, &vec![0.0_f32; 3 * pitch]).unwrap();
            let before = device.statistics().realigned;
            for row in 0..3 {
                let row = row * pitch..row * pitch + 100;
                let from = from.view().slice(row.clone()).unwrap();
                let to = to.view_mut().slice(row).unwrap();
                run(&kernel, &Launch::new([1; 3], [100, 1, 1]), args![to, from]).unwrap();
            }
            let after = device.statistics().realigned;
            // For the second and the third row: `from` is copied once, and `to` there and back.
            let expected = if copied { (6, 6 * 400) } else { (0, 0) };
            let found = (after.count - before.count, after.bytes - before.bytes);
            assert_eq!(found, expected, "{memory}, rows of {pitch}");
            assert_eq!(to.to_vec(&stream).unwrap()[2 * pitch..][..100], [2.0; 100]);
        }
    }
}

#[test]
fn an_argument_that_is_copied_and_overlaps_another_one_is_refused() {
    let Some(device) = open_if_it_can("?memory=buffer") else { return };
    let stream = device.default_stream();
    let text = "kernel void k(global int *to, global const int *from) {
        to[get_global_id(0)] = from[0];
    }";
    let kernel = device.module_load(source(text)).unwrap().kernel("k").unwrap();
    let memory = device.memory_from_slice(&stream, &[7; 8]).unwrap();
    // SAFETY: the views are used for one launch.
    let shared = || unsafe { memory.view_mut_shared() };
    let launch = Launch::new([1; 3], [8, 1, 1]);
    let error = run(&kernel, &launch, args![shared(), memory.view().slice(1..5).unwrap()]);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("arguments 1 and 0 overlap"), "{error}");
    run(&kernel, &launch, args![shared(), memory.view()]).unwrap();
    assert_eq!(memory.to_vec(&stream).unwrap(), [7; 8]);
}
