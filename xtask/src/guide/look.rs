//! Looks at the built book with Chromium.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Why nothing can look at the book.
pub(super) fn absence() -> Option<&'static str> {
    browser().is_none().then_some("no chromium; install Debian's package chromium")
}

fn browser() -> Option<&'static str> {
    let works = |program: &&str| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works)
}

/// The page that looks at all others, in frames, and logs what it finds.
const PAGE: &str = include_str!("look.html");

/// The longest time that this takes.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Looks at each page, 400 pixels wide: it has no errors, its pictures load, it does not scroll sideways, and its text
/// is large enough. Then searches for a word.
pub(super) fn look(book: &Path) -> Result<()> {
    let browser = browser().context("no browser")?;
    let looker = book.join("look.html");
    fs::write(&looker, PAGE)?;
    let profile = book.with_file_name("browser");
    let mut child = Command::new(browser)
        // Without a sandbox it works as root, for containers.
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"])
        .args(["--enable-logging=stderr", "--no-first-run"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", looker.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let log = child.stderr.take().context("no log")?;
    let (line, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        let read = BufReader::new(log).lines().map_while(Result::ok);
        read.take_while(|read| line.send(read.clone()).is_ok()).for_each(drop);
    });
    let found = listen(&lines);
    drop(lines);
    child.kill()?;
    child.wait()?;
    drop(reader.join());
    fs::remove_file(&looker)?;
    drop(fs::remove_dir_all(&profile));
    println!("{}", found?);
    Ok(())
}

/// The last line that the page logs. Any other line on the console is something wrong.
fn listen(lines: &mpsc::Receiver<String>) -> Result<String> {
    let end = Instant::now() + TIMEOUT;
    let (mut wrong, mut last) = (Vec::new(), None);
    while last.is_none() {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(line) = lines.recv_timeout(left) else {
            bail!("the browser has not looked at all pages in {TIMEOUT:?}: {}", wrong.join("\n"))
        };
        let Some((_, said)) = line.split_once("CONSOLE") else { continue };
        let ours = said.split_once("\"guide: ").and_then(|(_, rest)| rest.split_once("\", source"));
        match ours {
            Some((text, _)) if text.starts_with("looked at") => last = Some(text.to_owned()),
            Some((text, _)) => wrong.push(text.to_owned()),
            None => wrong.push(said.to_owned()),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    last.context("nothing was looked at")
}
