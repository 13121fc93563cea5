//! A device that workers share, a queue pair for each.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::CryptodevError;
use crate::ffi::{DeviceInfo, Queue, Shim};

/// Requests that a queue pair holds, and jobs.
pub(crate) const REQUESTS: usize = 16;
const JOBS: u32 = 2048;
/// Memory for DPDK's own, in MiB, of a process without huge pages.
const MEMORY: &str = "256";

/// Choice of a device, and of its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The library in C. Nothing: where `make install` puts it, or beside the program.
    pub library: Option<PathBuf>,
    /// A virtual device by its name, such as `crypto_openssl` or `crypto_aesni_mb`, with anything behind it to
    /// tell several apart; or the address of one on PCI, such as `0000:3d:01.0`.
    pub device: String,
    /// Arguments of DPDK in place of those that suit the device.
    pub arguments: Option<Vec<String>>,
    /// Queue pairs: two for each worker.
    pub queues: u16,
    /// Keys that the device may have at once.
    pub sessions: u32,
    /// Nanoseconds for which a request may be away before the device counts as lost.
    pub deadline: u64,
    /// Has the device work on copies of packets even if it can reach the host's memory.
    pub copies: bool,
    /// Has the device do no work, as `crypto_null` can: what everything else costs. For measurements alone.
    pub idle: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            library: None,
            device: "crypto_openssl".to_owned(),
            arguments: None,
            queues: 2,
            sessions: 4096,
            deadline: 50_000_000,
            copies: false,
            idle: false,
        }
    }
}

impl Settings {
    /// Arguments that DPDK starts with: a device on PCI needs huge pages and is named, one of software needs neither.
    #[must_use]
    pub fn dpdk_arguments(&self) -> Vec<String> {
        if let Some(arguments) = &self.arguments {
            return arguments.clone();
        }
        let words: Vec<&str> = match self.device.contains(':') {
            true => vec!["--in-memory", "-a", &self.device],
            false => vec!["--no-huge", "-m", MEMORY, "--no-pci", "--no-shconf"],
        };
        let all = ["--no-telemetry", "--log-level=*:error"];
        words.into_iter().chain(all).map(str::to_owned).collect()
    }

    fn library(&self) -> PathBuf {
        const NAME: &str = "libconvoy_cryptodev.so";
        if let Some(path) = &self.library {
            return path.clone();
        }
        let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
        let places = beside
            .iter()
            .map(|folder| folder.join(NAME))
            .chain(beside.iter().map(|folder| folder.join("../lib/convoy").join(NAME)));
        let found = places.into_iter().find(|path| path.exists());
        found.unwrap_or_else(|| Path::new("/usr/local/lib/convoy").join(NAME))
    }
}

/// A device of DPDK's.
#[derive(Clone, Debug)]
pub struct Cryptodev(Arc<Device>);

impl Cryptodev {
    /// Starts DPDK if it does not run, sets the device up, and starts it.
    ///
    /// # Errors
    /// [`CryptodevError`].
    pub fn open(settings: &Settings) -> Result<Self, CryptodevError> {
        let shim = Shim::start(&settings.library(), settings.dpdk_arguments())?;
        let name = Name::take(&settings.device);
        let on_bus = name.is_on_bus();
        let failed = |code| CryptodevError::Device {
            device: settings.device.clone(),
            code,
            help: match (code, on_bus) {
                (28, _) => "it has fewer queue pairs than two for each worker: use fewer workers",
                (_, true) => "bind it to vfio-pci (dpdk-devbind.py), and reserve huge pages",
                (_, false) => {
                    "use the name of a virtual device whose driver is installed, such as crypto_openssl or \
                     crypto_aesni_mb"
                }
            },
        };
        let info = shim.open(&name.0, settings.queues, JOBS, settings.sessions).map_err(failed)?;
        shim.start_device(info.id).map_err(failed)?;
        Ok(Self(Arc::new(Device {
            shim,
            _name: name,
            by_copy: settings.copies || info.is_hardware,
            is_idle: settings.idle,
            info,
            deadline: settings.deadline,
            is_lost: AtomicBool::new(false),
            pairs: Mutex::new(Pairs {
                unused: (0..settings.queues).rev().collect(),
                open: Vec::new(),
            }),
        })))
    }

    /// A queue pair that nobody else has. `None` when all are taken, or memory is short.
    pub(crate) fn take_queue(&self) -> Option<(Arc<Device>, u16, Queue)> {
        let number = self.0.pairs().unused.pop()?;
        let queue = self.0.queue(number)?;
        self.0.pairs().open.push(Pair { number, has_let_go: false });
        Some((self.0.clone(), number, queue))
    }

    /// Requests that each engine holds at most.
    #[must_use]
    pub const fn requests(&self) -> usize {
        REQUESTS
    }

    /// DPDK's version, and the driver of the device.
    #[must_use]
    pub fn about(&self) -> String {
        format!("{}, driver {}", self.0.shim.version(), self.0.info.driver)
    }
}

/// The name of a device that is in use by this process.
#[derive(Debug)]
struct Name(String);

static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Name {
    /// A virtual device whose name is in use gets another one: it is a device of its own.
    fn take(wanted: &str) -> Self {
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let candidates = (1..).map(|n: u32| format!("{wanted}_{n}"));
        let mut free = std::iter::once(wanted.to_owned()).chain(candidates);
        let name = free.find(|name| name.contains(':') || !names.contains(name));
        let name = Self(name.unwrap_or_default());
        names.push(name.0.clone());
        name
    }

    fn is_on_bus(&self) -> bool {
        self.0.contains(':')
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = names.iter().position(|name| *name == self.0) {
            names.swap_remove(at);
        }
    }
}

/// State that engines share.
#[derive(Debug)]
pub(crate) struct Device {
    // The device is stopped before its name is free.
    _name: Name,
    pub(crate) shim: &'static Shim,
    pub(crate) info: DeviceInfo,
    pub(crate) by_copy: bool,
    pub(crate) is_idle: bool,
    pub(crate) deadline: u64,
    /// One engine's requests did not come back: the device is to be stopped, which all must agree to.
    is_lost: AtomicBool,
    pairs: Mutex<Pairs>,
}

#[derive(Debug)]
struct Pairs {
    unused: Vec<u16>,
    open: Vec<Pair>,
}

#[derive(Debug)]
struct Pair {
    number: u16,
    /// Its engine touches it no more.
    has_let_go: bool,
}

impl Device {
    fn pairs(&self) -> std::sync::MutexGuard<'_, Pairs> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn queue(&self, number: u16) -> Option<Queue> {
        Queue::open(self.shim, self.info.id, number, JOBS, REQUESTS)
    }

    /// True if the device is to be stopped.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// The engine of a pair does not get back what it handed over, and touches the pair no more: `true` when
    /// no engine does, and the device has been stopped. DPDK stops devices, not queue pairs.
    pub(crate) fn let_go(&self, number: u16) -> bool {
        self.is_lost.store(true, Ordering::Release);
        let mut pairs = self.pairs();
        for pair in pairs.open.iter_mut().filter(|pair| pair.number == number) {
            pair.has_let_go = true;
        }
        let have_all = pairs.open.iter().all(|pair| pair.has_let_go);
        if have_all {
            self.shim.stop_device(self.info.id);
        }
        have_all
    }

    /// Starts the device again, once it has been stopped and nobody holds what it had.
    pub(crate) fn begin_anew(&self, number: u16) -> bool {
        let mut pairs = self.pairs();
        if self.is_lost() {
            if !pairs.open.iter().all(|pair| pair.has_let_go) {
                return false;
            }
            if self.shim.start_device(self.info.id).is_err() {
                return false;
            }
            self.is_lost.store(false, Ordering::Release);
        }
        for pair in pairs.open.iter_mut().filter(|pair| pair.number == number) {
            pair.has_let_go = false;
        }
        true
    }

    pub(crate) fn give_back(&self, number: u16) {
        let mut pairs = self.pairs();
        pairs.open.retain(|pair| pair.number != number);
        pairs.unused.push(number);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shim.stop_device(self.info.id);
    }
}
