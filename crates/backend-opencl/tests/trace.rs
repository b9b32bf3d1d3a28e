//! The trace events of commands. Runs in its own process: `tracing` determines once for all threads which listeners
//! there are.
#![cfg(feature = "opencl")]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "launches the test's own kernel")]

use std::sync::{Arc, Mutex};

use backend_opencl::OpenClBackend;
use runtime_core::{Backend, ErrorKind, ImageFormat, Launch, ModuleImage, args};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

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

#[test]
fn commands_tell_how_long_they_ran_and_what_is_not_aligned() {
    let listener = Listener::default();
    tracing::subscriber::with_default(listener.clone(), || {
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
