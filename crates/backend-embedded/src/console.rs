//! The output of a program, as lines.

use std::collections::VecDeque;

use runtime_core::DeviceId;

/// Longer lines are split.
const LINE_BYTES: usize = 4096;
/// The most lines that are stored; the oldest are dropped.
const LINES: usize = 10_000;

/// Lines that were not taken yet. Each line is also emitted as a `tracing` event of level `INFO`.
#[derive(Debug)]
pub(crate) struct Console {
    device: DeviceId,
    lines: VecDeque<String>,
    begun: Vec<u8>,
}

impl Console {
    pub(crate) fn new(device: DeviceId) -> Self {
        Self { device, lines: VecDeque::new(), begun: Vec::new() }
    }

    /// Adds a printed byte.
    pub(crate) fn push(&mut self, byte: u8) {
        match byte {
            b'\r' => {}
            b'\n' => self.end_line(),
            _ => {
                self.begun.push(byte);
                if self.begun.len() == LINE_BYTES {
                    self.end_line();
                }
            }
        }
    }

    /// Returns the complete lines, each only once.
    pub(crate) fn take(&mut self) -> Vec<String> {
        self.lines.drain(..).collect()
    }

    /// Ends a line that the program will not continue.
    pub(crate) fn flush(&mut self) {
        if !self.begun.is_empty() {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.begun).into_owned();
        self.begun.clear();
        tracing::info!(target: "backend_embedded::console", device = %self.device, "{line}");
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    #[test]
    fn bytes_become_lines() {
        let mut console = Console::new(DeviceId::new("embedded", 0));
        b"one\r\ntwo\nthr\xFFee".iter().for_each(|byte| console.push(*byte));
        assert_eq!(console.take(), ["one", "two"]);
        assert!(console.take().is_empty());
        console.flush();
        assert_eq!(console.take(), ["thr\u{FFFD}ee"]);
    }

    #[test]
    fn a_program_that_prints_for_ever_takes_no_more_than_so_much() {
        let mut console = Console::new(DeviceId::new("embedded", 0));
        for _ in 0..=LINES {
            (0..LINE_BYTES).for_each(|_| console.push(b'x'));
        }
        assert_eq!(console.take().len(), LINES);
    }

    /// Records the texts of events.
    #[derive(Clone, Default)]
    struct Listener(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Listener {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "backend_embedded::console"
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
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0.lock().unwrap().push(format!("{field}={value:?}"));
        }
    }

    #[test]
    fn lines_are_events() {
        let listener = Listener::default();
        tracing::subscriber::with_default(listener.clone(), || {
            let mut console = Console::new(DeviceId::new("embedded", 1));
            b"ready {}\n".iter().for_each(|byte| console.push(*byte));
        });
        assert_eq!(*listener.0.lock().unwrap(), ["message=ready {}", "device=embedded:1"]);
    }
}
