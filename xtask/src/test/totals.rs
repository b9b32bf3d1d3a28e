//! The closing table of a test run: the results and the time of each step.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::conformance::{Tallies, Tally, read, report_file};
use crate::test::programs::{Counts, TestRun};

/// One line of the table.
#[derive(Debug, Deserialize, Serialize)]
struct Row {
    name: String,
    passed: usize,
    failed: usize,
    not_applicable: usize,
    skipped: usize,
    why: String,
    /// The time of the step, in the first of its rows.
    time: Option<Duration>,
}

/// The results of the steps of a run.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Totals {
    rows: Vec<Row>,
    /// The failure reports of programs whose tests failed.
    failures: Vec<String>,
}

impl Totals {
    pub(crate) fn add(
        &mut self,
        name: &str,
        passed: usize,
        failed: usize,
        skipped: usize,
        why: &str,
    ) {
        let (name, why) = (name.to_owned(), why.to_owned());
        let not_applicable = 0;
        self.rows.push(Row { name, passed, failed, not_applicable, skipped, why, time: None });
    }

    /// Adds a failure that is not a test.
    pub(crate) fn fail(&mut self, name: &str, error: &anyhow::Error) {
        println!("{error:#}");
        self.add(name, 0, 1, 0, &first_line(error));
    }

    /// Adds a step that cannot run here, with the reason.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        self.add(name, 0, 0, 1, why);
    }

    /// Runs a step that the others do not need. If something is missing, it is skipped.
    pub(crate) fn optional(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        self.timed(name, |totals| {
            let why = step().map_or_else(|error| format!("{error:#}"), |()| String::new());
            if !why.is_empty() {
                println!("{why}");
            }
            totals.add(name, 0, 0, usize::from(!why.is_empty()), why.lines().next().unwrap_or(""));
        });
    }

    /// Runs a step that passes or fails as a whole.
    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        self.timed(name, |totals| match step() {
            Ok(()) => totals.add(name, 1, 0, 0, ""),
            Err(error) => totals.fail(name, &error),
        });
    }

    /// Runs a step that counts its own tests: passed, failed and skipped.
    pub(crate) fn counted(&mut self, name: &str, step: impl FnOnce() -> Result<[usize; 3]>) {
        self.timed(name, |totals| match step() {
            Ok([passed, failed, skipped]) => totals.add(name, passed, failed, skipped, ""),
            Err(error) => totals.fail(name, &error),
        });
    }

    /// Runs a step with tests, counted by the test runner and, for the conformance suite, by device. It is a failure if
    /// no rule was reported for a required device. `variant` distinguishes rows of the same device.
    pub(crate) fn tests(
        &mut self,
        name: &str,
        run: impl FnOnce() -> Result<TestRun>,
        required: &[&str],
        variant: &str,
    ) {
        self.timed(name, |totals| {
            let outcome = report_file(&name.replace([' ', ':'], "-")).and_then(|report| {
                let counts = run()?.report_to(&report).run()?;
                Ok((counts, read(&report)?))
            });
            match outcome {
                Ok((counts, tallies)) => {
                    totals.count_tests(name, &counts, tallies, required, variant);
                    totals.failures.extend(counts.failures);
                }
                Err(error) => totals.fail(name, &error),
            }
        });
    }

    fn count_tests(
        &mut self,
        name: &str,
        counts: &Counts,
        tallies: Tallies,
        required: &[&str],
        variant: &str,
    ) {
        let broken: usize = tallies.values().map(|tally| tally.failed.len()).sum();
        let rules = tallies.values().map(Tally::rules).sum::<usize>() - broken;
        // The runner counts a rule as one test, and one that is skipped or does not apply as passed.
        let (passed, failed) =
            (counts.passed.saturating_sub(rules), counts.failed.saturating_sub(broken));
        // If there are rules and no other tests, only the rows of the rules are shown.
        if passed + failed + counts.ignored > 0 || rules + broken == 0 {
            let why = if counts.clean { "" } else { "see below" };
            self.add(name, passed, failed, counts.ignored, why);
        }
        let row = |device: &str| format!("conformance {device}{variant}");
        for device in required.iter().filter(|device| !tallies.contains_key(**device)) {
            self.add(&row(device), 0, 1, 0, "no rule ran");
        }
        for (device, tally) in tallies {
            let why = tally.failed.first().or(tally.skipped.first()).cloned().unwrap_or_default();
            self.add(&row(&device), tally.passed, tally.failed.len(), tally.skipped.len(), &why);
            if let Some(row) = self.rows.last_mut() {
                row.not_applicable = tally.not_applicable.len();
            }
        }
    }

    /// Runs a step between two headings. Its first row gets the time of the step.
    fn timed(&mut self, name: &str, step: impl FnOnce(&mut Self)) {
        println!("\n== {name}");
        let (start, first) = (Instant::now(), self.rows.len());
        step(self);
        let time = start.elapsed();
        println!("== {name}: {} s", seconds(time));
        if let Some(row) = self.rows.get_mut(first) {
            row.time = Some(time);
        }
    }

    pub(crate) fn append(&mut self, mut others: Self) {
        self.rows.append(&mut others.rows);
        self.failures.append(&mut others.failures);
    }

    /// Prints the table, the failures and the closing line. Returns an error with the number of failed tests if there
    /// are any.
    pub(crate) fn close(&self, start: Instant) -> Result<()> {
        let head = ["", "s", "passed", "failed", "n/a", "skipped", "why"].map(str::to_owned);
        let cells = self.rows.iter().map(|row| {
            let time = row.time.map(seconds).unwrap_or_default();
            let [passed, failed, not_applicable, skipped] =
                [row.passed, row.failed, row.not_applicable, row.skipped]
                    .map(|count| count.to_string());
            [row.name.clone(), time, passed, failed, not_applicable, skipped, row.why.clone()]
        });
        let cells: Vec<_> = [head].into_iter().chain(cells).collect();
        let widths: [usize; 6] = std::array::from_fn(|column| {
            cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        });
        println!();
        for [name, time, passed, failed, not_applicable, skipped, why] in &cells {
            let line = format!(
                "{name:0$}  {time:>1$}  {passed:>2$}  {failed:>3$}  {not_applicable:>4$}  {skipped:>5$}  {why}",
                widths[0], widths[1], widths[2], widths[3], widths[4], widths[5]
            );
            println!("{}", line.trim_end());
        }
        let sum = |count: fn(&Row) -> usize| self.rows.iter().map(count).sum::<usize>();
        let (passed, failed) = (sum(|row| row.passed), sum(|row| row.failed));
        let (not_applicable, skipped) = (sum(|row| row.not_applicable), sum(|row| row.skipped));
        for failure in &self.failures {
            println!("\n{failure}");
        }
        println!("\n{} s in all", seconds(start.elapsed()));
        println!(
            "{passed} passed, {failed} failed, {not_applicable} not applicable, {skipped} skipped"
        );
        if failed > 0 {
            bail!("{failed} failed");
        }
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.0}", time.as_secs_f64())
}

pub(crate) fn first_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next().unwrap_or_default().to_owned()
}
