//! Contexts that others own.

use backend_cuda::{CudaConfig, CudaDevice};
use runtime_core::{Backend, ErrorKind, NativeHandle, NativeKind};

use crate::common::{is_child, open, run};
use crate::others::{ContextKind, LEN, Others};
use crate::suite::faults::{opened_again, stop_on, with_faults_of_all_kinds};
use crate::vendor;

#[test]
fn a_device_in_a_context_of_others_is_as_good_as_any() {
    let Some(others) = Others::within(ContextKind::Created) else { return };
    let device = others.device();
    let stream = device.default_stream();
    let wide = num_complex::Complex::new(1.5_f64, 0.1);
    let mut memory = device.memory_allocate::<num_complex::Complex<f64>>(LEN).unwrap();
    memory.fill(&stream, wide).unwrap();
    let mut pinned = device.pinned_allocate::<num_complex::Complex<f64>>(LEN).unwrap();
    memory.view().copy_to_pinned(&stream, &mut pinned).unwrap();
    assert_eq!(pinned.as_slice().unwrap(), [wide; LEN]);
    let kernel = vendor::nothing(&device).unwrap();
    run(&kernel, &kernel.cover(1).unwrap(), &[]).unwrap();
    if let Some(graphs) = device.graphs() {
        let graph = graphs.capture(|capture| memory.fill(capture, wide * 2.0));
        // SAFETY: nothing else uses the memory meanwhile.
        unsafe { graph.unwrap().launch(&stream) }.unwrap();
    }
    assert_eq!(memory.to_vec(&stream).unwrap()[LEN - 1], wide * 2.0);
    device.synchronize().unwrap();
}

#[test]
fn contexts_of_one_device_wait_for_each_other_and_copy() {
    let Some(others) = Others::within(ContextKind::Created) else { return };
    let (device, primary) = (others.device(), open("").unwrap());
    assert_ne!(device.native(), primary.native());
    let (stream, foreign) = (device.default_stream(), primary.default_stream());
    let mut memory = device.memory_allocate::<u32>(LEN).unwrap();
    let mut copy = primary.memory_allocate::<u32>(LEN).unwrap();
    for value in 0..20 {
        memory.fill(&stream, value).unwrap();
        foreign.wait(&stream.record_event().unwrap()).unwrap();
        copy.view_mut().copy_from_device(&foreign, &memory.view(), &stream).unwrap();
        stream.wait(&foreign.record_event().unwrap()).unwrap();
        assert_eq!(copy.to_vec(&foreign).unwrap(), [value; LEN]);
    }
    let interop = device.interop().unwrap();
    // SAFETY: a stream of another context is refused.
    let error = unsafe { interop.stream_from_native(foreign.native()) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("another context"), "{error}");
}

#[test]
fn a_context_of_others_is_lost_alone_and_leaves_no_memory() {
    if !is_child() {
        let test = "contexts::a_context_of_others_is_lost_alone_and_leaves_no_memory";
        for output in with_faults_of_all_kinds(test, &[("STAND_IN_MEMORY", "64")]) {
            assert!(!output.contains("violation"), "{output}");
        }
        return;
    }
    for _ in 0..3 {
        let Some(others) = Others::within(ContextKind::Created) else { return };
        let device = others.device();
        let memory = device.memory_allocate::<u8>(40 << 20).unwrap();
        stop_on(&device);
        let fault = device.synchronize().unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::DeviceFault, "{fault}");
        let lost = others.open().unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{lost}");
        drop((memory, device));
        others.give_up_broken();
        let again = vendor::backend().open(&vendor::FIRST.parse().unwrap());
        if opened_again(again).is_none() {
            return;
        }
    }
    let device = open("").unwrap();
    let memory = device.memory_from_slice(&device.default_stream(), &[1_u32, 2]).unwrap();
    assert_eq!(memory.to_vec(&device.default_stream()).unwrap(), [1, 2]);
}

#[test]
fn null_and_invalid_contexts_are_refused() {
    let Some(device) = open("") else { return };
    let context = device.native();
    let of_hip = NativeHandle { api: "hip", ..context };
    let null = NativeHandle { raw: 0, ..context };
    let stream = NativeHandle { kind: NativeKind::Stream, ..context };
    for context in [of_hip, null, stream] {
        // SAFETY: what is no context is refused.
        let error = unsafe { CudaDevice::from_native(context, &CudaConfig::new()) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}
