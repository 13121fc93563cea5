//! Loading the library, starting DPDK, and devices.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::CryptodevError;
use crate::ffi::queue::{RawDone, RawJob};
use crate::ffi::session::DeviceKey;

/// `CONVOY_CRYPTODEV_ABI`.
const ABI: u32 = 2;

/// `struct ccd_device`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawDevice {
    id: i32,
    is_hardware: u32,
    driver: [u8; 48],
}

/// A device that was opened.
#[derive(Clone, Debug)]
pub(crate) struct DeviceInfo {
    pub(crate) id: i32,
    /// True if it works beside the processor, and reaches only memory that it was told of.
    pub(crate) is_hardware: bool,
    pub(crate) driver: String,
}

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// Functions of the library under their own names.
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Functions {
            fn find(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the types are those of shim/convoy_cryptodev.h, which the ABI number vouches for.
                    $($name: *unsafe { library.get(stringify!($name).as_bytes())? },)*
                })
            }
        }
    };
}

functions! {
    ccd_init: fn(c_int, *mut *mut c_char) -> c_int;
    ccd_version: fn() -> *const c_char;
    ccd_open: fn(*const c_char, u16, u32, u32, *mut RawDevice) -> c_int;
    ccd_start: fn(c_int) -> c_int;
    ccd_stop: fn(c_int);
    ccd_knows: fn(c_int, *const DeviceKey) -> c_int;
    ccd_session: fn(c_int, *const DeviceKey, *mut c_int) -> *mut c_void;
    ccd_session_free: fn(c_int, *mut c_void);
    ccd_queue_open: fn(c_int, u16, u32, u32) -> *mut c_void;
    ccd_queue_close: fn(*mut c_void);
    ccd_submit: fn(*mut c_void, *const RawJob, u32) -> u32;
    ccd_poll: fn(*mut c_void, *mut RawDone, u32) -> u32;
    ccd_in_flight: fn(*const c_void) -> u32;
}

/// The library, with DPDK started. It stays for as long as the process: DPDK cannot be taken out of one.
pub(crate) struct Shim {
    functions: Functions,
    arguments: Vec<String>,
}

impl std::fmt::Debug for Shim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shim({:?})", self.arguments)
    }
}

static STARTED: Mutex<Option<&'static Shim>> = Mutex::new(None);

/// Held while a device is set up.
static OPENING: Mutex<()> = Mutex::new(());

impl Shim {
    /// Loads the library at `path` and starts DPDK, unless both have been done.
    pub(crate) fn start(
        path: &Path,
        arguments: Vec<String>,
    ) -> Result<&'static Self, CryptodevError> {
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shim) = *started {
            return match shim.arguments == arguments {
                true => Ok(shim),
                false => Err(CryptodevError::Started {
                    running: shim.arguments.clone(),
                    wanted: arguments,
                }),
            };
        }
        let failed = |error: libloading::Error| CryptodevError::Library {
            path: path.to_owned(),
            why: error.to_string(),
        };
        // SAFETY: the library does nothing when it is loaded; DPDK's own constructors register drivers.
        let library = unsafe { libloading::Library::new(path) }.map_err(failed)?;
        // SAFETY: whatever the library's version, this is the function's type.
        let abi = unsafe { library.get::<unsafe extern "C" fn() -> u32>(b"ccd_abi") };
        let abi = abi.map_err(failed)?;
        // SAFETY: it takes nothing and gives a number.
        let found = unsafe { abi() };
        if found != ABI {
            return Err(CryptodevError::Abi { path: path.to_owned(), found, wanted: ABI });
        }
        let functions = Functions::find(&library).map_err(failed)?;
        std::mem::forget(library);
        let shim: &'static Self = Box::leak(Box::new(Self { functions, arguments }));
        shim.start_dpdk()?;
        *started = Some(shim);
        Ok(shim)
    }

    /// DPDK binds the thread that starts it to one processor, so a thread does it that ends then.
    fn start_dpdk(&'static self) -> Result<(), CryptodevError> {
        let starting = move || {
            let words = std::iter::once("convoy").chain(self.arguments.iter().map(String::as_str));
            let words: Vec<_> =
                words.map(|word| CString::new(word).unwrap_or_default().into_raw()).collect();
            let mut pointers = words;
            let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
            // DPDK keeps and reorders the words: they stay for ever.
            let pointers = pointers.as_mut_ptr_range().start;
            // SAFETY: an array of so many strings that end in zero; it lives to the end of this call.
            -unsafe { (self.functions.ccd_init)(count, pointers) }
        };
        let code = std::thread::Builder::new()
            .name("dpdk-start".to_owned())
            .spawn(starting)
            .ok()
            .and_then(|thread| thread.join().ok())
            .unwrap_or(11);
        match code {
            0 => Ok(()),
            code => Err(CryptodevError::Start { arguments: self.arguments.clone(), code }),
        }
    }

    /// DPDK's version.
    pub(crate) fn version(&self) -> String {
        // SAFETY: it takes nothing.
        let text = unsafe { (self.functions.ccd_version)() };
        // SAFETY: a string that ends in zero and stays.
        let text = unsafe { std::ffi::CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// Sets a device up, stopped; an errno where that fails.
    pub(crate) fn open(
        &self,
        name: &str,
        queues: u16,
        descriptors: u32,
        sessions: u32,
    ) -> Result<DeviceInfo, i32> {
        const INVALID: i32 = 22;
        let name = CString::new(name).map_err(|_| INVALID)?;
        let mut raw = RawDevice { id: -1, is_hardware: 0, driver: [0; 48] };
        // Of devices that DPDK makes at the same time, two may get the same number, and one fails.
        let _one_at_a_time = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a string that ends in zero, and a place for the answer.
        let code = unsafe {
            (self.functions.ccd_open)(name.as_ptr(), queues, descriptors, sessions, &raw mut raw)
        };
        if code != 0 {
            return Err(-code);
        }
        let driver = raw.driver.split(|byte| *byte == 0).next().unwrap_or_default();
        let driver = String::from_utf8_lossy(driver).into_owned();
        Ok(DeviceInfo { id: raw.id, is_hardware: raw.is_hardware != 0, driver })
    }

    /// Starts a device; an errno where that fails.
    pub(crate) fn start_device(&self, id: i32) -> Result<(), i32> {
        // SAFETY: a number; DPDK checks it.
        match unsafe { (self.functions.ccd_start)(id) } {
            0 => Ok(()),
            code => Err(-code),
        }
    }

    /// Stops a device. None of its queue pairs may be in use meanwhile.
    pub(crate) fn stop_device(&self, id: i32) {
        // SAFETY: a number; DPDK checks it.
        unsafe { (self.functions.ccd_stop)(id) }
    }

    /// True if a device knows the algorithms of a key, with its lengths.
    pub(super) fn knows(&self, id: i32, key: &DeviceKey) -> bool {
        // SAFETY: a device that was opened, and a key that is only read.
        unsafe { (self.functions.ccd_knows)(id, key) != 0 }
    }

    /// A session, and whether there was no room for one.
    pub(super) fn session(&self, id: i32, key: &DeviceKey) -> (*mut c_void, bool) {
        let mut is_full = 0;
        // SAFETY: as above; the device copies what it needs of the key.
        let session = unsafe { (self.functions.ccd_session)(id, key, &raw mut is_full) };
        (session, is_full != 0)
    }

    /// # Safety
    /// `session` is of this device, is used by no job any more, and is not freed twice.
    pub(super) unsafe fn free_session(&self, id: i32, session: *mut c_void) {
        // SAFETY: as promised.
        unsafe { (self.functions.ccd_session_free)(id, session) }
    }

    /// A queue pair of a device that is set up; null when memory is short.
    pub(super) fn open_queue(&self, id: i32, number: u16, jobs: u32, room: u32) -> *mut c_void {
        // SAFETY: numbers; nothing else has this pair, which its caller sees to.
        unsafe { (self.functions.ccd_queue_open)(id, number, jobs, room) }
    }

    /// # Safety
    /// `queue` came from [`Self::open_queue`] and is not used again.
    pub(super) unsafe fn close_queue(&self, queue: *mut c_void) {
        // SAFETY: as promised.
        unsafe { (self.functions.ccd_queue_close)(queue) }
    }

    /// # Safety
    /// `queue` is open. What the jobs point to stays, unread where it is written and unwritten where it is
    /// read, until they come back or the device is stopped.
    pub(super) unsafe fn submit(&self, queue: *mut c_void, jobs: &[RawJob]) -> usize {
        let count = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        // SAFETY: as promised.
        unsafe { (self.functions.ccd_submit)(queue, jobs.as_ptr(), count) as usize }
    }

    /// # Safety
    /// `queue` is open.
    pub(super) unsafe fn poll(&self, queue: *mut c_void, done: &mut [RawDone]) -> usize {
        let count = u32::try_from(done.len()).unwrap_or(u32::MAX);
        // SAFETY: as promised; the places are valid to write.
        unsafe { (self.functions.ccd_poll)(queue, done.as_mut_ptr(), count) as usize }
    }

    /// # Safety
    /// `queue` is open.
    pub(super) unsafe fn in_flight(&self, queue: *mut c_void) -> usize {
        // SAFETY: as promised.
        unsafe { (self.functions.ccd_in_flight)(queue) as usize }
    }
}
