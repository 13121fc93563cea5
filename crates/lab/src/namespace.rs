//! Network namespaces, and running things in them.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

use crate::{LabError, error::Doing as _};

/// Folder in which named namespaces are mounted, so that `ip netns` sees them.
pub(crate) const NAMED: &str = "/run/netns";
/// The calling thread's own namespace. (`/proc/self` would be that of the first thread.)
const OWN: &str = "/proc/thread-self/ns/net";

/// Set once this process has made `/run/netns` itself, which is then removed with the last name.
static MADE_FOLDER: AtomicBool = AtomicBool::new(false);

/// A network namespace. Dropping one that was created here deletes it: its interfaces go as soon as
/// no process and no socket is left in it.
#[derive(Debug)]
pub struct Namespace {
    file: Arc<File>,
    name: Option<String>,
}

impl Namespace {
    /// Creates a namespace without a name, held by this handle only.
    ///
    /// # Errors
    /// [`LabError::System`], above all when namespaces are not permitted.
    pub fn anonymous() -> Result<Self, LabError> {
        let file = in_new_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).doing(|| "create a network namespace".into())?;
            File::open(OWN).doing(|| format!("open {OWN}"))
        })?;
        let namespace = Self { file: Arc::new(file), name: None };
        namespace.make_usable()?;
        Ok(namespace)
    }

    /// Creates a namespace with a name, as `ip netns add` does.
    ///
    /// # Errors
    /// [`LabError::BadName`], [`LabError::NamespaceExists`], [`LabError::System`].
    pub fn named(name: &str) -> Result<Self, LabError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(allowed) {
            return Err(LabError::BadName { name: name.into() });
        }
        if !Path::new(NAMED).exists() {
            fs::create_dir(NAMED).doing(|| format!("create {NAMED}"))?;
            MADE_FOLDER.store(true, Ordering::Relaxed);
        }
        let path = Path::new(NAMED).join(name);
        match File::create_new(&path) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(LabError::NamespaceExists { name: name.into() });
            }
            Err(error) => return Err(error).doing(|| format!("create {}", path.display())),
        }
        let made = in_new_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .doing(|| format!("create the network namespace {name}"))?;
            mount(Some(OWN), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .doing(|| format!("mount the network namespace {name}"))?;
            File::open(&path).doing(|| format!("open {}", path.display()))
        });
        match made {
            Ok(file) => {
                let namespace = Self { file: Arc::new(file), name: Some(name.into()) };
                namespace.make_usable()?;
                Ok(namespace)
            }
            Err(error) => {
                let _ = unname(name);
                Err(error)
            }
        }
    }

    /// The calling thread's own namespace. Dropping it deletes nothing.
    ///
    /// # Errors
    /// [`LabError::System`] when `/proc` is not there.
    pub fn current() -> Result<Self, LabError> {
        let file = File::open(OWN).doing(|| format!("open {OWN}"))?;
        Ok(Self { file: Arc::new(file), name: None })
    }

    /// Its name, if it was created with one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// A file that stands for it and can be entered by other processes: `/run/netns/NAME`, or this
    /// process's descriptor in `/proc`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match &self.name {
            Some(name) => Path::new(NAMED).join(name),
            None => format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into(),
        }
    }

    /// Moves the calling thread into it for good, with all threads and processes it starts later.
    ///
    /// # Errors
    /// [`LabError::System`] when that is not permitted.
    pub fn enter(&self) -> Result<(), LabError> {
        enter(&self.file)
    }

    /// Runs a closure in it, on a thread of its own, and waits for the result. Sockets opened there
    /// stay in the namespace wherever they are used later. A panic goes on in the caller.
    ///
    /// # Errors
    /// As [`Namespace::enter`].
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        in_new_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// Starts a named thread in it. The thread keeps the namespace alive.
    ///
    /// # Errors
    /// [`LabError::Thread`], and as [`Namespace::enter`].
    pub fn start<T: Send + 'static>(
        &self,
        thread_name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, LabError> {
        let file = Arc::clone(&self.file);
        // Entering on a first thread shows failure here; the second inherits its place.
        let name = thread_name.to_owned();
        in_new_thread(move || {
            enter(&file)?;
            let builder = thread::Builder::new().name(name);
            builder.spawn(work).map_err(LabError::Thread)
        })
    }

    /// Starts a program in it.
    ///
    /// # Errors
    /// [`LabError::System`] when the program cannot be started, and as [`Namespace::enter`].
    pub fn spawn(&self, command: &mut Command) -> Result<Child, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.run(|| command.spawn())?.doing(|| format!("start {program}"))
    }

    /// Deletes it. A name is gone at once; the rest goes when nothing uses it any more.
    ///
    /// # Errors
    /// [`LabError::System`] when the name cannot be removed.
    pub fn delete(mut self) -> Result<(), LabError> {
        match self.name.take() {
            Some(name) => unname(&name),
            None => Ok(()),
        }
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            let _ = unname(&name);
        }
    }
}

fn enter(file: &File) -> Result<(), LabError> {
    setns(file, CloneFlags::CLONE_NEWNET).doing(|| "enter a network namespace".into())
}

/// Runs on a fresh thread, so that the caller's own place is never touched.
fn in_new_thread<T: Send>(
    work: impl FnOnce() -> Result<T, LabError> + Send,
) -> Result<T, LabError> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, work)
            .map_err(LabError::Thread)?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Takes a name away: the mount and the file below it.
pub(crate) fn unname(name: &str) -> Result<(), LabError> {
    let path = Path::new(NAMED).join(name);
    // A file that was never mounted on says EINVAL; what counts is that it goes.
    let _ = umount2(&path, MntFlags::MNT_DETACH);
    fs::remove_file(&path).doing(|| format!("remove {}", path.display()))?;
    if MADE_FOLDER.load(Ordering::Relaxed) {
        // Fails while other names are there, which is right.
        let _ = fs::remove_dir(NAMED);
    }
    Ok(())
}
