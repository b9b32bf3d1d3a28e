//! Child processes that always end with their owner.
#![expect(unsafe_code, reason = "runs code in the child between fork and exec")]

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind as Io, PipeWriter, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, close, getpid, read};

/// The Linux command that selects the signal for a file's events. `libc` lacks it for some systems.
const F_SETSIG: libc::c_int = 10;
/// The most bytes of a child's standard error that are reported.
const COMPLAINT_BYTES: usize = 2048;
/// The most bytes of a printed line that are read.
const LINE_BYTES: usize = 4096;

/// A running child and the processes that it starts, as one process group. Dropping this kills the group, and so does
/// the end of this process. The child may be a script that starts another process and waits for it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    complaints: File,
    /// The system kills the group when the last copy of this is closed. `None` after that.
    alive: Option<PipeWriter>,
}

/// The way in which a child ended.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// Its exit status as text.
    pub(crate) status: String,
    /// The start of its standard error.
    pub(crate) complaints: String,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.status)?;
        if self.complaints.is_empty() { Ok(()) } else { write!(f, "; {}", self.complaints) }
    }
}

impl Process {
    /// Starts `command` with no standard input. The files in `inherited` are open in the child under the same numbers.
    /// Standard output goes where the command directs it; standard error is stored.
    pub(crate) fn start(mut command: Command, inherited: &[OwnedFd]) -> io::Result<Self> {
        let complaints = anonymous_file("complaints")?;
        let (watch, alive) = io::pipe()?;
        command.stdin(Stdio::null()).stderr(complaints.try_clone()?).process_group(0);
        let mut kept: Vec<RawFd> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
        kept.push(watch.as_raw_fd());
        let (watched, owners) = (watch.as_raw_fd(), alive.as_raw_fd());
        let before_exec = move || {
            // A core file would contain the machine's RAM.
            setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
            for number in &kept {
                // SAFETY: the child process has a copy of every file that was open in its owner when it was started,
                // and the owner keeps these files open until then.
                let file = unsafe { BorrowedFd::borrow_raw(*number) };
                fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            close(owners)?;
            die_with_the_owner_of(watched)
        };
        // SAFETY: the closure only makes system calls: it takes no lock and allocates nothing.
        unsafe { command.pre_exec(before_exec) };
        let child = command.spawn()?;
        Ok(Self { child, complaints, alive: Some(alive) })
    }

    /// The child's process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the child if it still runs, and returns how it ended.
    pub(crate) fn end(mut self) -> End {
        let status = self.kill().map_or("unknown".to_owned(), |status| status.to_string());
        let mut complaints = vec![0; COMPLAINT_BYTES];
        let read = self.complaints.read_at(&mut complaints, 0).unwrap_or(0);
        let complaints = String::from_utf8_lossy(&complaints[..read]).trim().to_owned();
        End { status, complaints }
    }

    fn kill(&mut self) -> Option<ExitStatus> {
        drop(self.alive.take()?);
        // For a child that has closed its inherited files. No other group can have its number before it was waited for.
        if let Ok(group) = i32::try_from(self.child.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes the system kill the calling process and its whole group when the other end of a pipe is closed. The system
/// sends the signal when the owner closes that end or dies for any reason. It also kills processes that the child
/// started, which do not watch the owner themselves.
fn die_with_the_owner_of(pipe: RawFd) -> io::Result<()> {
    let group = -getpid().as_raw();
    for (command, value) in [(libc::F_SETOWN, group), (F_SETSIG, libc::SIGKILL)] {
        // SAFETY: both commands take a number and access no memory.
        Errno::result(unsafe { libc::fcntl(pipe, command, value) })?;
    }
    // SAFETY: the caller has the file open, and never closes it.
    let pipe = unsafe { BorrowedFd::borrow_raw(pipe) };
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_ASYNC | OFlag::O_NONBLOCK))?;
    // The owner may have died before the signal was set up.
    match read(pipe, &mut [0]) {
        Err(Errno::EAGAIN) => Ok(()),
        _ => Err(Errno::EPIPE.into()),
    }
}

/// Returns the first line that `command` prints, then kills it.
///
/// # Errors
///
/// `TimedOut` if the command neither prints a line nor ends within `timeout`.
pub(crate) fn first_line(mut command: Command, timeout: Duration) -> io::Result<String> {
    let (mut ours, theirs) = UnixStream::pair()?;
    command.stdout(OwnedFd::from(theirs));
    let _process = Process::start(command, &[])?;
    let deadline = Instant::now() + timeout;
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < LINE_BYTES {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Io::TimedOut.into());
        }
        ours.set_read_timeout(Some(left))?;
        let mut bytes = [0; LINE_BYTES];
        match ours.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => line.extend_from_slice(&bytes[..read]),
            Err(error)
                if matches!(error.kind(), Io::WouldBlock | Io::TimedOut | Io::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    line.truncate(line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len()));
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Creates a file in memory without a name, which is deleted with its last user.
pub(crate) fn anonymous_file(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC)?.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::thread;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn processes_started_by_a_child_end_with_it() {
        for script in ["sleep 1000 & echo $!; wait", "sleep 1000 & echo $!"] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut command = shell(script);
            command.stdout(OwnedFd::from(theirs));
            let process = Process::start(command, &[]).unwrap();
            let mut line = String::new();
            BufReader::new(ours).read_line(&mut line).unwrap();
            let stat = format!("/proc/{}/stat", line.trim());
            assert!(fs::exists(&stat).unwrap());
            drop(process);
            let began = Instant::now();
            // A zombie has ended.
            while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
                assert!(began.elapsed() < Duration::from_secs(20), "{script}");
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    #[test]
    fn a_first_line_is_waited_for_so_long_and_no_longer() {
        let line = |script, timeout| first_line(shell(script), timeout);
        let (short, long) = (Duration::from_millis(50), Duration::from_secs(20));
        assert_eq!(line("echo one; echo two; sleep 1000", long).unwrap(), "one");
        assert_eq!(line("printf one", long).unwrap(), "one");
        assert_eq!(line("yes | tr -d '\\n'", long).unwrap().len(), LINE_BYTES);
        let began = Instant::now();
        for script in ["sleep 1000", "while :; do printf .; sleep 0.01; done"] {
            assert_eq!(line(script, short).unwrap_err().kind(), Io::TimedOut);
        }
        assert!(began.elapsed() < long);
    }

    #[test]
    fn the_error_of_an_exit_has_the_status_and_stderr() {
        let ended = |script| {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let mut command = shell(script);
            command.stdout(OwnedFd::from(theirs));
            let process = Process::start(command, &[]).unwrap();
            assert_eq!(ours.read(&mut [0]).unwrap(), 0);
            process.end().to_string()
        };
        assert_eq!(ended("echo no >&2; exit 3"), "exit status: 3; no");
        // A core file would be empty.
        assert_eq!(ended("kill -ABRT $$"), "signal: 6 (SIGABRT)");
    }
}
