//! The output of a program, as lines.

use std::collections::VecDeque;
use std::sync::Mutex;

use backend_support::lock;
use runtime_core::DeviceId;

/// Longer lines are split.
const LINE_BYTES: usize = 4096;
/// The most lines that are stored; the oldest are dropped.
const LINES: usize = 10_000;

/// Lines that were not taken yet. Each line is also emitted as a `tracing` event of level `INFO`, without the lock of
/// the lines, because a subscriber may take them.
#[derive(Debug)]
pub(crate) struct Console {
    device: DeviceId,
    text: Mutex<Text>,
}

#[derive(Debug, Default)]
struct Text {
    lines: VecDeque<String>,
    begun: Vec<u8>,
}

impl Console {
    pub(crate) fn new(device: DeviceId) -> Self {
        Self { device, text: Mutex::default() }
    }

    /// Adds printed bytes.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut text = lock(&self.text);
        let ended: Vec<String> = bytes.iter().filter_map(|byte| text.push(*byte)).collect();
        drop(text);
        self.emit(ended);
    }

    /// Returns the complete lines, each only once.
    pub(crate) fn take(&self) -> Vec<String> {
        lock(&self.text).lines.drain(..).collect()
    }

    /// Ends a line that the program will not continue.
    pub(crate) fn flush(&self) {
        let mut text = lock(&self.text);
        let ended = (!text.begun.is_empty()).then(|| text.end_line());
        drop(text);
        self.emit(ended);
    }

    fn emit(&self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            tracing::info!(target: "backend_embedded::console", device = %self.device, "{line}");
        }
    }
}

impl Text {
    /// Adds a byte. Returns the line that it ends.
    fn push(&mut self, byte: u8) -> Option<String> {
        match byte {
            b'\r' => return None,
            b'\n' => return Some(self.end_line()),
            _ => self.begun.push(byte),
        }
        (self.begun.len() == LINE_BYTES).then(|| self.end_line())
    }

    fn end_line(&mut self) -> String {
        let line = String::from_utf8_lossy(&self.begun).into_owned();
        self.begun.clear();
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line.clone());
        line
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::{Arc, LazyLock, Mutex, OnceLock, mpsc};
    use std::thread;
    use std::time::Duration;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::NoSubscriber;
    use tracing::{Dispatch, Event, Metadata, Subscriber};

    use super::*;

    #[test]
    fn bytes_become_lines() {
        let console = Console::new(DeviceId::new("embedded", 0));
        console.push(b"one\r\ntwo\nthr\xFFee");
        assert_eq!(console.take(), ["one", "two"]);
        assert!(console.take().is_empty());
        console.flush();
        assert_eq!(console.take(), ["thr\u{FFFD}ee"]);
    }

    #[test]
    fn a_program_that_prints_for_ever_takes_no_more_than_so_much() {
        let console = Console::new(DeviceId::new("embedded", 0));
        for _ in 0..=LINES {
            console.push(&[b'x'; LINE_BYTES]);
        }
        assert_eq!(console.take().len(), LINES);
    }

    /// Records the texts of events, and takes the lines of a console.
    #[derive(Clone, Default)]
    struct Listener(Arc<Mutex<Vec<String>>>, Arc<OnceLock<Console>>);

    impl Subscriber for Listener {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "backend_embedded::console"
        }

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
            let taken = self.1.get().map(Console::take).unwrap_or_default();
            self.0.lock().unwrap().extend(taken);
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

    /// A second subscriber. With a single one, `tracing` disables events that a thread without a subscriber emits
    /// first.
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

    /// Runs `work` with a subscriber.
    fn with_subscriber<T>(
        subscriber: impl Subscriber + Send + Sync,
        work: impl FnOnce() -> T,
    ) -> T {
        LazyLock::force(&SECOND);
        tracing::subscriber::with_default(subscriber, work)
    }

    #[test]
    fn lines_are_events() {
        let listener = Listener::default();
        with_subscriber(listener.clone(), || {
            let console = Console::new(DeviceId::new("embedded", 1));
            console.push(b"ready {}\n");
        });
        assert_eq!(*listener.0.lock().unwrap(), ["message=ready {}", "device=embedded:1"]);
    }

    #[test]
    fn a_subscriber_may_take_the_lines() {
        let (done, end) = mpsc::channel();
        thread::spawn(move || {
            let listener = Listener::default();
            let console = listener.1.get_or_init(|| Console::new(DeviceId::new("embedded", 1)));
            with_subscriber(listener.clone(), || {
                console.push(b"one\ntwo");
                console.flush();
            });
            done.send(listener.0.lock().unwrap().clone()).unwrap();
        });
        let reported = end.recv_timeout(Duration::from_secs(60)).expect("no call waits for ever");
        let event = |line: &str| {
            [format!("message={line}"), "device=embedded:1".to_owned(), line.to_owned()]
        };
        assert_eq!(reported, [event("one"), event("two")].concat());
    }
}
