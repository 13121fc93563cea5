//! Entering a network namespace.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use nix::sched::{CloneFlags, setns, unshare};

use crate::HostError;

/// Directory in which named namespaces are mounted (the convention of iproute2).
const NAMED: &str = "/run/netns";

/// An open network namespace. It lives at least as long as this handle.
///
/// A network namespace is a property of a thread: sockets belong to the one their thread was in
/// when it opened them, and new threads and child processes start in that of their creator.
#[derive(Debug)]
pub struct Netns {
    file: File,
    path: PathBuf,
}

impl Netns {
    /// Opens a namespace: a plain name is looked up in `/run/netns`, anything with a `/` is a path
    /// such as `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// [`HostError::OpenNamespace`] when there is none, or it may not be opened.
    pub fn open(name_or_path: &str) -> Result<Self, HostError> {
        let path = if name_or_path.contains('/') {
            PathBuf::from(name_or_path)
        } else {
            Path::new(NAMED).join(name_or_path)
        };
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path }),
            Err(error) => Err(HostError::OpenNamespace { path, error }),
        }
    }

    /// Opens the calling thread's namespace, to come back to.
    ///
    /// # Errors
    /// [`HostError::OpenNamespace`] when `/proc` is not there.
    pub fn current() -> Result<Self, HostError> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// The file that stands for it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Does something in a thread with a network namespace of its own, which nobody else can enter without
    /// capabilities in this one, and which ends with what was opened in it.
    ///
    /// # Errors
    /// [`HostError::MakeNamespace`] when none may be made, as without `CAP_SYS_ADMIN`; nothing is done then.
    pub fn private<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, HostError> {
        let in_it = || {
            let made = unshare(CloneFlags::CLONE_NEWNET);
            made.map_err(|errno| HostError::MakeNamespace { error: errno.into() }).map(|()| work())
        };
        std::thread::scope(|scope| match scope.spawn(in_it).join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// The open file that stands for it.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Moves the calling thread into the namespace, and every thread and process it starts later.
    ///
    /// # Errors
    /// [`HostError::EnterNamespace`] when it is not permitted, or the file is no network namespace.
    pub fn enter(&self) -> Result<(), HostError> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| HostError::EnterNamespace {
            path: self.path.clone(),
            error: errno.into(),
        })
    }

    /// Moves the whole process into the namespace, which is only possible while it has one thread.
    ///
    /// # Errors
    /// [`HostError::Threads`] when there are more, and as [`Netns::enter`].
    pub fn enter_process(&self) -> Result<(), HostError> {
        let threads = threads()
            .map_err(|error| HostError::EnterNamespace { path: self.path.clone(), error })?;
        if threads != 1 {
            return Err(HostError::Threads { threads });
        }
        self.enter()
    }
}

fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}
