//! The report: wrong uses of the driver, and objects that were never released.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use parking_lot::Mutex;
use serde::Serialize;

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// A use of the driver that is wrong even where it happens to work.
    Violation {
        /// The rule, in one or two words.
        rule: &'static str,
        /// The event that violated the rule.
        message: String,
    },
    /// Objects that were alive when their context was released.
    Leak {
        /// The number of the device.
        device: usize,
        /// The kind of the objects.
        object: &'static str,
        /// The number of objects.
        count: usize,
    },
    /// Objects that are alive at the end of the process, in a context that was not released.
    Alive {
        /// The number of the device.
        device: usize,
        /// The kind of the objects.
        object: &'static str,
        /// The number of objects.
        count: usize,
    },
    /// Work that failed, perhaps on purpose.
    Failure {
        /// The work that failed.
        message: String,
    },
    /// The number of calls of one class. There is one such line for each class.
    Calls {
        /// The class, as in the plan of faults.
        class: &'static str,
        /// The number of calls.
        count: u64,
    },
}

impl Entry {
    /// Whether the entry reports a mistake.
    pub fn is_mistake(&self) -> bool {
        matches!(self, Self::Violation { .. } | Self::Leak { .. })
    }
}

/// The entries so far.
#[derive(Debug, Default)]
pub(crate) struct Report(Mutex<Vec<Entry>>);

impl Report {
    pub(crate) fn add(&self, entry: Entry) {
        self.0.lock().push(entry);
    }

    pub(crate) fn violation(&self, rule: &'static str, message: String) {
        self.add(Entry::Violation { rule, message });
    }

    pub(crate) fn failure(&self, message: String) {
        self.add(Entry::Failure { message });
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.0.lock().clone()
    }

    /// Appends entries to the file, and writes mistakes to standard error.
    pub(crate) fn write(entries: &[Entry], path: Option<&Path>) -> io::Result<()> {
        let mut lines = String::new();
        for entry in entries {
            let line = serde_json::to_string(entry)?;
            if entry.is_mistake() {
                eprintln!("stand-in: {line}");
            }
            lines += &line;
            lines.push('\n');
        }
        // One write, so that processes that share the file do not mix their lines.
        let append = |path| OpenOptions::new().create(true).append(true).open(path);
        path.map_or(Ok(()), |path| append(path)?.write_all(lines.as_bytes()))
    }
}
