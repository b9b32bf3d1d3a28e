//! A QEMU process that ends with its owner, whatever happens.
#![expect(unsafe_code, reason = "says what the child does between fork and exec")]

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio, id};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

/// What is told of a child's complaints.
const COMPLAINT_BYTES: usize = 2048;

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    id: u32,
    complaints: File,
    /// Its end is the child's.
    alive: Option<Sender<Infallible>>,
    keeper: Option<JoinHandle<Option<ExitStatus>>>,
}

impl Process {
    /// Starts `command` with the files in `inherited` open under the same numbers.
    ///
    /// A thread of its own starts the child and stays until it is gone: the system kills the child when the thread that
    /// started it ends, as it does if this process dies, and no thread of the caller's may be that one.
    pub(crate) fn start(mut command: Command, inherited: Vec<OwnedFd>) -> io::Result<Self> {
        let complaints = anonymous_file("complaints")?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints.try_clone()?);
        let numbers: Vec<_> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
        let owner = id();
        let before_exec = move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // It died before it could be asked to be told of its death.
            if u32::try_from(getppid().as_raw()) != Ok(owner) {
                return Err(Errno::ESRCH.into());
            }
            for number in &numbers {
                // SAFETY: `inherited` lives until the child is started, and the child has a copy of every file.
                let file = unsafe { BorrowedFd::borrow_raw(*number) };
                fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            Ok(())
        };
        // SAFETY: the closure makes system calls and does nothing else: it takes no lock and allocates nothing.
        unsafe { command.pre_exec(before_exec) };
        let (alive, until_dropped) = mpsc::channel::<Infallible>();
        let (tell, started) = mpsc::channel();
        let keep = move || {
            let spawned = command.spawn();
            drop(inherited);
            let mut child = match spawned {
                Ok(child) => child,
                Err(error) => {
                    drop(tell.send(Err(error)));
                    return None;
                }
            };
            drop(tell.send(Ok(child.id())));
            let _dropped = until_dropped.recv();
            child.kill().and_then(|()| child.wait()).ok()
        };
        let keeper = thread::Builder::new().name("qemu keeper".to_owned()).spawn(keep)?;
        let id = started.recv().map_err(|_| io::Error::other("the keeper is gone"))??;
        Ok(Self { id, complaints, alive: Some(alive), keeper: Some(keeper) })
    }

    /// The child's process id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Kills it if it still runs, and says how it ended and what it complained of.
    pub(crate) fn end(mut self) -> String {
        let status = self.kill().map_or("unknown".to_owned(), |status| status.to_string());
        let mut complaints = vec![0; COMPLAINT_BYTES];
        let read = self.complaints.read_at(&mut complaints, 0).unwrap_or(0);
        complaints.truncate(read);
        format!("{status}; {}", String::from_utf8_lossy(&complaints).trim())
            .trim_end_matches("; ")
            .to_owned()
    }

    fn kill(&mut self) -> Option<ExitStatus> {
        drop(self.alive.take());
        self.keeper.take()?.join().ok()?
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A file in memory that has no name and is gone with its last user.
pub(crate) fn anonymous_file(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC)?.into())
}
