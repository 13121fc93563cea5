//! The two libraries behind one set of calls.

use std::{
    ffi::{CStr, c_void},
    path::PathBuf,
    sync::OnceLock,
};

use stand_in::{ffi, types::*};

type Alloc = unsafe extern "C" fn(u64) -> *mut Mgr;
type Free = unsafe extern "C" fn(*mut Mgr);
type Init = unsafe extern "C" fn(*mut Mgr, *mut u32);
type IpadOpad = unsafe extern "C" fn(*mut Mgr, u32, *const c_void, usize, *mut c_void, *mut c_void);
type SetSession = unsafe extern "C" fn(*mut Mgr, *mut Job) -> u32;

/// Functions that both export, and the version.
#[derive(Clone, Copy)]
struct Exports {
    alloc: Alloc,
    free: Free,
    init: Init,
    /// Version 1.4 and later.
    ipad_opad: Option<IpadOpad>,
    set_session: Option<SetSession>,
    version: u32,
}

/// A manager of one of the libraries.
pub(crate) struct Library {
    exports: Exports,
    mgr: *mut Mgr,
}

impl Library {
    /// A manager of Convoy's.
    pub(crate) fn ours() -> Self {
        extern "C" fn alloc(flags: u64) -> *mut Mgr {
            ffi::alloc_mb_mgr(flags)
        }
        Self::with(Exports {
            alloc,
            free: ffi::free_mb_mgr,
            init: ffi::init_mb_mgr_auto,
            #[cfg(not(abi_1))]
            ipad_opad: Some(ffi::imb_hmac_ipad_opad),
            #[cfg(not(abi_1))]
            set_session: Some(ffi::imb_set_session),
            #[cfg(abi_1)]
            ipad_opad: None,
            #[cfg(abi_1)]
            set_session: None,
            version: ffi::imb_get_version(),
        })
    }

    /// A manager of intel-ipsec-mb's; none where the library is not installed, which is said.
    pub(crate) fn peer() -> Option<Self> {
        static EXPORTS: OnceLock<Option<Exports>> = OnceLock::new();
        let peer = EXPORTS.get_or_init(load).map(Self::with);
        if peer.is_none() {
            // In each test that compares, as each leaves that out.
            println!(
                "SKIPPED in part: intel-ipsec-mb is not installed (Debian: libipsec-mb1, libipsec-mb2)"
            );
        }
        peer
    }

    fn with(exports: Exports) -> Self {
        // SAFETY: as the header has it.
        let mgr = unsafe { (exports.alloc)(0) };
        assert!(!mgr.is_null());
        let mut arch = 0;
        // SAFETY: as above.
        unsafe { (exports.init)(mgr, &raw mut arch) };
        assert_ne!(arch, 0, "the manager is ready");
        Self { exports, mgr }
    }

    pub(crate) fn mgr(&self) -> *mut Mgr {
        self.mgr
    }

    /// The functions that macros of the header call.
    pub(crate) fn functions(&self) -> &Functions {
        // SAFETY: the manager is there as long as this is.
        unsafe { &(*self.mgr).functions }
    }

    /// True if jobs have room for a session's numbers.
    pub(crate) fn has_sessions(&self) -> bool {
        self.exports.version >= 2 << 16
    }

    /// True if jobs may ask for a cipher: that of CFB came with version 2.
    pub(crate) fn has_cipher(&self, cipher: u32) -> bool {
        cipher < CIPHER_NUM && (cipher != CIPHER_CFB || self.has_sessions())
    }

    /// Fields that a manager of version 2 has besides.
    #[cfg(not(abi_1))]
    pub(crate) fn later(&self) -> Option<&Later> {
        // SAFETY: as above.
        self.has_sessions().then(|| unsafe { &(*self.mgr).later })
    }

    pub(crate) fn version(&self) -> u32 {
        self.exports.version
    }

    pub(crate) fn errno(&self) -> i32 {
        // SAFETY: the manager is there as long as this is.
        unsafe { (*self.mgr).errno }
    }

    pub(crate) fn set_session(&self, job: *mut Job) {
        if let Some(set_session) = self.exports.set_session.filter(|_| self.has_sessions()) {
            // SAFETY: both are there.
            assert_ne!(unsafe { set_session(self.mgr, job) }, 0);
        }
    }

    pub(crate) fn ipad_opad(&self) -> Option<IpadOpad> {
        self.exports.ipad_opad
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { (self.exports.free)(self.mgr) };
    }
}

/// Loads intel-ipsec-mb's library, and keeps it.
fn load() -> Option<Exports> {
    let named = std::env::var_os("CONVOY_IPSEC_MB").map(PathBuf::from);
    let names = match &named {
        Some(path) => vec![path.as_os_str().to_owned()],
        // Version 2 has all that version 1 has, with the layout of that; not the other way round.
        None if cfg!(abi_1) => vec!["libIPSec_MB.so.1".into()],
        None => vec!["libIPSec_MB.so.2".into(), "libIPSec_MB.so.1".into()],
    };
    // SAFETY: what is loaded is a library of C without constructors that do harm.
    let library = names.iter().find_map(|name| unsafe { libloading::Library::new(name) }.ok());
    let Some(library) = library else {
        assert!(named.is_none(), "CONVOY_IPSEC_MB names no library that can be loaded");
        return None;
    };
    let library: &'static libloading::Library = Box::leak(Box::new(library));
    let version: extern "C" fn() -> u32 = symbol(library, c"imb_get_version").unwrap();
    Some(Exports {
        alloc: symbol(library, c"alloc_mb_mgr").unwrap(),
        free: symbol(library, c"free_mb_mgr").unwrap(),
        init: symbol(library, c"init_mb_mgr_auto").unwrap(),
        ipad_opad: symbol(library, c"imb_hmac_ipad_opad"),
        set_session: symbol(library, c"imb_set_session"),
        version: version(),
    })
}

/// A function of the library, which has the type that the header gives it.
fn symbol<T: Copy>(library: &libloading::Library, name: &CStr) -> Option<T> {
    // SAFETY: the types are those of the header.
    unsafe { library.get::<T>(name) }.ok().map(|symbol| *symbol)
}
