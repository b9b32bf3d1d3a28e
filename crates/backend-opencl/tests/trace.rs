//! The trace events of commands. Runs in its own process: `tracing` determines once for all threads which listeners
//! there are.
#![cfg(feature = "opencl")]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "launches the test's own kernel")]

use std::sync::{Arc, LazyLock, Mutex, OnceLock, mpsc};
use std::time::Duration;

use backend_opencl::OpenClBackend;
use runtime_core::contract::StreamOptions;
use runtime_core::{
    Backend, Combine, DType, Device, ErrorKind, ImageFormat, Kernel, Launch, Memory, ModuleImage,
    RegionCopy, RegionSide, Stream, args,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Records the reported operations, including warnings about misaligned views, and the longest run time.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<(Vec<String>, u64)>>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let warns =
            metadata.target() == "backend_opencl::launch" && *metadata.level() == Level::WARN;
        warns || metadata.target() == "backend_opencl::profile"
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Listener {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "operation" {
            self.0.lock().unwrap().0.push(value.to_owned());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let (operations, longest) = &mut *self.0.lock().unwrap();
        match field.name() {
            "ran_ns" => *longest = value.max(*longest),
            "alignment" => operations.push(format!("warned: {value}")),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// A second subscriber. With a single one, `tracing` disables events that a thread without a subscriber emits first.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// Runs `work` with a subscriber.
fn with_subscriber<T>(subscriber: impl Subscriber + Send + Sync, work: impl FnOnce() -> T) -> T {
    LazyLock::force(&SECOND);
    tracing::subscriber::with_default(subscriber, work)
}

#[test]
fn the_trace_has_durations_and_unaligned_rows() {
    let listener = Listener::default();
    with_subscriber(listener.clone(), || {
        let device = match OpenClBackend::new().open(&"opencl:0?memory=buffer".parse().unwrap()) {
            Err(error) if error.kind() == ErrorKind::Unavailable => return,
            device => device.unwrap(),
        };
        let stream = device.default_stream();
        let text = "kernel void work(global float *x) {
            float v = x[get_global_id(0)];
            for (int i = 0; i < 10000; ++i) v = v * 0.5f + 1.0f;
            x[get_global_id(0)] = v;
        }";
        let image = ModuleImage::source(ImageFormat::OpenClC, text);
        let kernel = device.module_load(image).unwrap().kernel("work").unwrap();
        let mut x = device.memory_from_slice(&stream, &[0.0_f32; 64]).unwrap();
        // SAFETY: there are as many elements as work-items, and each work-item accesses its own element.
        unsafe { kernel.launch(&stream, &Launch::cover(64, 8), args![&mut x]) }.unwrap();
        stream.synchronize().unwrap();
        let (operations, longest) = listener.0.lock().unwrap().clone();
        assert_eq!(operations, ["memory_copy_to", "launch"]);
        assert!(longest > 0);

        // One warning for the device, regardless of how many launches copy.
        for start in [1, 3] {
            let part = x.view_mut().slice(start..start + 8).unwrap();
            // SAFETY: as above.
            unsafe { kernel.launch(&stream, &Launch::cover(8, 8), args![part]) }.unwrap();
        }
        stream.synchronize().unwrap();
        let operations = std::mem::take(&mut listener.0.lock().unwrap().0);
        let warnings = operations.iter().filter(|operation| operation.starts_with("warned"));
        let alignment = device.info().limits.argument_alignment;
        assert_eq!(warnings.collect::<Vec<_>>(), [&format!("warned: {alignment}")]);
    });
}

/// A subscriber that uses the device in the thread of the event, and records the targets of the events.
#[derive(Clone, Default)]
struct Caller {
    objects: Arc<OnceLock<(Stream, Kernel)>>,
    targets: Arc<Mutex<Vec<String>>>,
}

impl Subscriber for Caller {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("backend_opencl")
    }

    fn event(&self, event: &Event<'_>) {
        let Some((stream, kernel)) = self.objects.get() else { return };
        let device = kernel.device();
        // Calls within a subscriber emit no events. So the queue learns outside of it how its commands ended.
        let other = match event.metadata().target() {
            "backend_opencl::profile" => stream.clone(),
            _ => device.stream_create(&StreamOptions::default()).unwrap(),
        };
        let mut y = device.memory_allocate::<f32>(8).unwrap();
        launch(&other, kernel, &mut y, 0..8);
        other.synchronize().unwrap();
        drop(plan(device));
        self.targets.lock().unwrap().push(event.metadata().target().to_owned());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn launch(stream: &Stream, kernel: &Kernel, x: &mut Memory<f32>, part: std::ops::Range<usize>) {
    let part = x.view_mut().slice(part).unwrap();
    // SAFETY: the part has as many elements as there are work-items, and each work-item accesses its own element.
    unsafe { kernel.launch(stream, &Launch::cover(8, 8), args![part]) }.unwrap();
}

fn plan(device: &Device) -> runtime_core::RegionPlan {
    let side = |slot, strides| RegionSide { slot, offset: 0, strides };
    let copy = RegionCopy {
        dtype: DType::F32,
        extents: vec![2],
        source: side(0, vec![8]),
        destination: side(1, vec![4]),
        negate: false,
        combine: Combine::Replace,
    };
    device.plan_regions(&[copy]).unwrap()
}

#[test]
fn a_subscriber_may_use_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let selector = format!("opencl:0?memory=buffer&cache-dir={}", folder.path().display());
    let open = move || OpenClBackend::new().open(&selector.parse().unwrap());
    // The programs are in the cache afterwards, so that loading them emits an event.
    match open() {
        Err(error) if error.kind() == ErrorKind::Unavailable => return,
        device => drop(plan(&device.unwrap())),
    }
    let (done, end) = mpsc::channel();
    std::thread::spawn(move || {
        let caller = Caller::default();
        with_subscriber(caller.clone(), || {
            let device = open().unwrap();
            let stream = device.default_stream();
            let text = "kernel void work(global float *x) { x[get_global_id(0)] += 1; }";
            let image = ModuleImage::source(ImageFormat::OpenClC, text);
            let kernel = device.module_load(image).unwrap().kernel("work").unwrap();
            assert!(caller.objects.set((stream.clone(), kernel.clone())).is_ok());
            drop(plan(&device));
            let mut x = device.memory_from_slice(&stream, &[0.0_f32; 64]).unwrap();
            // More launches than a queue keeps without looking whether they are over. None is aligned.
            for _ in 0..100 {
                launch(&stream, &kernel, &mut x, 1..9);
            }
            device.synchronize().unwrap();
            assert_eq!(
                x.to_vec(&stream).unwrap()[..10],
                [0., 100., 100., 100., 100., 100., 100., 100., 100., 0.]
            );
        });
        let targets = caller.targets.lock().unwrap().clone();
        drop(caller);
        done.send(targets).unwrap();
    });
    let targets = end.recv_timeout(Duration::from_secs(60)).expect("no call waits for ever");
    for target in ["backend_opencl::profile", "backend_opencl::launch", "backend_opencl::program"] {
        assert!(targets.iter().any(|reported| reported == target), "{target}: {targets:?}");
    }
}
