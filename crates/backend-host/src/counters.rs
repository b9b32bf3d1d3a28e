//! Event counters of this process: Linux's perf events (`perf_event_open(2)`).

use std::collections::BTreeSet;
use std::{fs, io};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use perf_event::events::{Event, Hardware, Software};
use perf_event::{Builder, CountAndTime, Counter};
use runtime_core::contract::{CounterSet, Counters};
use runtime_core::{Error, ErrorKind, Result};

/// How often to start again because new threads were started.
const ATTEMPTS: usize = 100;

/// An event's name in `perf list`, and the builder of its counter.
type Known = (&'static str, fn() -> Builder<'static>);

const EVENTS: [Known; 10] = [
    ("cycles", || in_user_mode(Hardware::CPU_CYCLES)),
    ("instructions", || in_user_mode(Hardware::INSTRUCTIONS)),
    ("cache-references", || in_user_mode(Hardware::CACHE_REFERENCES)),
    ("cache-misses", || in_user_mode(Hardware::CACHE_MISSES)),
    ("branches", || in_user_mode(Hardware::BRANCH_INSTRUCTIONS)),
    ("branch-misses", || in_user_mode(Hardware::BRANCH_MISSES)),
    ("task-clock", || in_user_mode(Software::TASK_CLOCK)),
    ("page-faults", || in_user_mode(Software::PAGE_FAULTS)),
    ("context-switches", || anywhere(Software::CONTEXT_SWITCHES)),
    ("cpu-migrations", || anywhere(Software::CPU_MIGRATIONS)),
];

/// For events that the kernel permits by default, because they count only in user mode.
fn in_user_mode(event: impl Event) -> Builder<'static> {
    let mut builder = Builder::new(event);
    builder.enabled(true).inherit(true).exclude_kernel(true);
    builder
}

/// For events that occur in the kernel itself. Without the kernel, their counters would open but stay zero.
fn anywhere(event: impl Event) -> Builder<'static> {
    let mut builder = in_user_mode(event);
    builder.exclude_kernel(false);
    builder
}

/// The events that can be counted for this process on this machine.
#[derive(Debug)]
pub(crate) struct HostCounters(Vec<Known>);

impl HostCounters {
    /// `None` if no event can be opened.
    pub(crate) fn new() -> Option<Self> {
        Self::that_open(|builder| builder.build().map(drop))
    }

    fn that_open(open: impl Fn(Builder<'_>) -> io::Result<()>) -> Option<Self> {
        let known: Vec<Known> =
            EVENTS.into_iter().filter(|(_, builder)| open(builder()).is_ok()).collect();
        (!known.is_empty()).then_some(Self(known))
    }

    fn find(&self, name: &str) -> Result<Known> {
        self.0.iter().find(|(known, _)| *known == name).copied().ok_or_else(|| {
            let message = format!("no counter {name:?}; there are {}", self.names().join(", "));
            Error::new(ErrorKind::InvalidArgument, "counters_open", message)
        })
    }
}

impl Counters for HostCounters {
    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn open(&self, names: &[&str]) -> Result<Box<dyn CounterSet>> {
        let mut events = Vec::with_capacity(names.len());
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                let message = format!("counter {name:?} is named twice in {names:?}");
                return Err(Error::new(ErrorKind::InvalidArgument, "counters_open", message));
            }
            events.push(self.find(name)?);
        }
        let counters = for_all(threads, |threads| attach(&events, threads))?;
        Ok(Box::new(Open { values: vec![0; counters.len()], counters }))
    }
}

/// Attaches to every thread that `list` returns.
///
/// If a thread with counters starts another thread, its counters also count the new thread. If a thread was started
/// while counters were attached, its parent may or may not have had counters, and the system does not report which.
/// With counters of its own, such a thread could be counted twice; without them, it could be missed. Therefore
/// everything starts again.
fn for_all<T>(
    mut list: impl FnMut() -> Result<BTreeSet<i32>>,
    mut attach: impl FnMut(&BTreeSet<i32>) -> Result<T>,
) -> Result<T> {
    for _ in 0..ATTEMPTS {
        let reached = list()?;
        let attached = attach(&reached)?;
        let late = &list()? - &reached;
        if late.is_empty() || late.is_disjoint(&list()?) {
            return Ok(attached);
        }
    }
    let message =
        format!("threads were started during each of {ATTEMPTS} attempts to reach them all");
    Err(Error::new(ErrorKind::Timeout, "counters_open", message))
}

/// The ids of the threads of this process, as the kernel numbers them.
fn threads() -> Result<BTreeSet<i32>> {
    let list = || -> io::Result<_> {
        let mut threads = BTreeSet::new();
        for task in fs::read_dir("/proc/self/task")? {
            threads.extend(task?.file_name().to_str().and_then(|id| id.parse::<i32>().ok()));
        }
        Ok(threads)
    };
    list().map_err(|e| driver_error("counters_open", "the threads in /proc/self/task", e))
}

/// Counters of each event, one for each thread that has not ended.
fn attach(events: &[Known], threads: &BTreeSet<i32>) -> Result<Vec<Vec<Counter>>> {
    let each = |(name, builder): &Known| {
        let mut builder = builder();
        let opened = threads.iter().map(|&thread| builder.observe_pid(thread).build());
        opened
            .filter(|counter| !fails_with(counter, Errno::ESRCH))
            .collect::<io::Result<_>>()
            .map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EMFILE) => too_many(events.len(), threads.len(), error),
                _ => driver_error("counters_open", name, error),
            })
    };
    events.iter().map(each).collect()
}

fn fails_with<T>(result: &io::Result<T>, errno: Errno) -> bool {
    result.as_ref().is_err_and(|error| error.raw_os_error() == Some(errno as i32))
}

fn too_many(counters: usize, threads: usize, error: io::Error) -> Error {
    let needed = counters.saturating_mul(threads);
    let mut message = format!("{counters} counters of {threads} threads need {needed} descriptors");
    if let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        message += &format!("; this process may have {most} open, other files included");
    }
    coded(Error::new(ErrorKind::InvalidArgument, "counters_open", message), error)
}

fn driver_error(operation: &'static str, what: &str, error: io::Error) -> Error {
    coded(Error::new(ErrorKind::Driver, operation, format!("{what}: {error}")), error)
}

fn coded(error: Error, cause: io::Error) -> Error {
    match cause.raw_os_error() {
        Some(code) => error.with_driver(format!("{:?}", Errno::from_raw(code)), code.into()),
        None => error,
    }
    .with_source(cause)
}

/// Open counters: for each event, one for each thread.
struct Open {
    counters: Vec<Vec<Counter>>,
    values: Vec<u64>,
}

impl CounterSet for Open {
    fn read(&mut self, values: &mut [u64]) -> Result<()> {
        if values.len() != self.values.len() {
            let message = format!("{} values for {} counters", values.len(), self.values.len());
            return Err(Error::new(ErrorKind::InvalidArgument, "counters_read", message));
        }
        for (last, counters) in self.values.iter_mut().zip(&mut self.counters) {
            let sum = counters.iter_mut().try_fold(0_u64, |sum, counter| {
                Ok(sum.saturating_add(scaled(counter.read_count_and_time()?)))
            });
            let sum = sum.map_err(|e| driver_error("counters_read", "a counter", e))?;
            // An estimate may be lower than the previous one.
            *last = sum.max(*last);
        }
        values.copy_from_slice(&self.values);
        Ok(())
    }
}

/// The count, extrapolated if the event was counted only part of the time.
fn scaled(CountAndTime { count, time_enabled, time_running }: CountAndTime) -> u64 {
    if time_running == 0 || time_running >= time_enabled {
        return count;
    }
    let all = u128::from(count) * u128::from(time_enabled) / u128::from(time_running);
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use runtime_core::{Device, MeasureOptions, Support, measure};

    use super::*;
    use crate::HostDevice;

    #[test]
    fn a_machine_that_refuses_every_event_has_no_counters() {
        let refuse = |_: Builder<'_>| Err(Errno::EACCES.into());
        let counters = HostCounters::that_open(refuse);
        let device = Device::new(HostDevice::build(0, 1, counters)).unwrap();
        assert!(device.counters().is_none());
        assert_eq!(device.capabilities().counters, Support::Absent);
        let options = MeasureOptions { counters: vec!["cycles".into()], ..Default::default() };
        let error = measure(&device.default_stream(), &options, || Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("cycles"), "{error}");
    }

    #[test]
    fn the_names_are_of_the_events_that_open() {
        // The kind of event is the number in its attributes: hardware is 0, software 1.
        let software_only = |builder: Builder<'_>| match builder.attrs().type_ {
            1 => Ok(()),
            _ => Err(Errno::ENOENT.into()),
        };
        let user_mode_only = |builder: Builder<'_>| match builder.attrs().exclude_kernel() {
            1 => Ok(()),
            _ => Err(Errno::EACCES.into()),
        };
        let names = |counters: Option<HostCounters>| counters.unwrap().names();
        let software = ["task-clock", "page-faults", "context-switches", "cpu-migrations"];
        assert_eq!(names(HostCounters::that_open(software_only)), software);
        let user = EVENTS.map(|(name, _)| name);
        assert_eq!(names(HostCounters::that_open(user_mode_only)), user[..8]);
    }

    #[test]
    fn counting_restarts_while_a_thread_started_meanwhile_lives() {
        let reached_of = |lists: &[&[i32]]| {
            let mut lists = lists.iter().map(|list| Ok(list.iter().copied().collect()));
            let attach = |threads: &BTreeSet<i32>| Ok(threads.iter().copied().collect::<Vec<_>>());
            let reached = for_all(|| lists.next().unwrap(), attach).unwrap();
            assert_eq!(lists.count(), 0, "lists that were not requested");
            reached
        };
        assert_eq!(reached_of(&[&[1, 2], &[1, 2]]), [1, 2]);
        assert_eq!(reached_of(&[&[1, 2], &[1]]), [1, 2]);
        assert_eq!(reached_of(&[&[1], &[1, 2], &[1, 3]]), [1]);
        assert_eq!(reached_of(&[&[1], &[1, 2], &[1, 2], &[1, 2], &[1, 2]]), [1, 2]);
    }

    #[test]
    fn threads_without_end_are_given_up() {
        let mut last = 0;
        let list = || {
            last += 1;
            Ok((0..last).collect())
        };
        let error = for_all(list, |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.message().contains("100 attempts"), "{error}");
    }

    #[test]
    fn a_thread_that_has_ended_is_passed_over() {
        let Some(counters) = HostCounters::new() else { return };
        let clock = [counters.find("task-clock").unwrap()];
        let this: i32 = fs::read_link("/proc/thread-self")
            .unwrap()
            .file_name()
            .and_then(|id| id.to_str()?.parse().ok())
            .unwrap();
        // The kernel numbers no thread so high.
        let attached = attach(&clock, &BTreeSet::from([this, i32::MAX])).unwrap();
        assert_eq!(attached.iter().map(Vec::len).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn counts_of_part_of_the_time_are_scaled() {
        let scale = |count, time_enabled, time_running| {
            scaled(CountAndTime { count, time_enabled, time_running })
        };
        assert_eq!(scale(100, 50, 50), 100);
        assert_eq!(scale(100, 40, 10), 400);
        assert_eq!(scale(0, 40, 0), 0);
        assert_eq!(scale(7, 0, 0), 7);
        assert_eq!(scale(u64::MAX, 3, 2), u64::MAX);
        assert_eq!(scale(1 << 62, 1 << 62, 1 << 61), 1 << 63);
    }

    #[test]
    fn the_kernels_refusal_is_named() {
        let error = driver_error("counters_open", "cycles", Errno::EACCES.into());
        assert_eq!(error.kind(), ErrorKind::Driver);
        assert_eq!(error.driver().unwrap().to_string(), "EACCES (13)");
        assert!(error.message().contains("cycles"), "{error}");
        assert_eq!(driver_error("counters_open", "cycles", io::Error::other("x")).driver(), None);
    }

    #[test]
    fn an_estimate_never_decreases() {
        let Ok(counter) = in_user_mode(Software::TASK_CLOCK).build() else { return };
        let mut open = Open { counters: vec![vec![counter]], values: vec![u64::MAX / 2] };
        let mut values = [0];
        open.read(&mut values).unwrap();
        assert_eq!(values, [u64::MAX / 2]);
    }
}
