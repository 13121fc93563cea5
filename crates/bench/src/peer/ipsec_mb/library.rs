//! Finding the library and making a manager of the wanted kind.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

use libloading::Library;

use super::layout::{
    FEATURE_IFMA, FEATURES_TYPE_2, Functions, FunctionsV2, Generation, JobV2, Manager, SUPPORTED,
    SUPPORTED_TEXT,
};
use super::processor::Processor;
use crate::peer::PeerError;

/// Kind of manager: the instruction sets intel-ipsec-mb may use. Type 1 does without VAES, GFNI and
/// SHA-NI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arch {
    /// SSE and AES-NI.
    SseType1,
    /// And SHA-NI.
    SseShaNi,
    /// AVX and AES-NI; of version 1 alone.
    AvxType1,
    /// AVX2 and AES-NI.
    Avx2Type1,
    /// And VAES, SHA-NI.
    Avx2Type2,
    /// AVX-512 and AES-NI.
    Avx512Type1,
    /// And VAES, SHA-NI.
    Avx512Type2,
}

impl Arch {
    /// Every kind; a later one is preferred.
    pub const ALL: [Self; 7] = [
        Self::SseType1,
        Self::SseShaNi,
        Self::AvxType1,
        Self::Avx2Type1,
        Self::Avx2Type2,
        Self::Avx512Type1,
        Self::Avx512Type2,
    ];

    /// As `--peer-arch` spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SseType1 => "sse",
            Self::SseShaNi => "sse-sha",
            Self::AvxType1 => "avx",
            Self::Avx2Type1 => "avx2-t1",
            Self::Avx2Type2 => "avx2-t2",
            Self::Avx512Type1 => "avx512-t1",
            Self::Avx512Type2 => "avx512-t2",
        }
    }

    const fn init(self) -> &'static [u8] {
        match self {
            Self::SseType1 | Self::SseShaNi => b"init_mb_mgr_sse\0",
            Self::AvxType1 => b"init_mb_mgr_avx\0",
            Self::Avx2Type1 | Self::Avx2Type2 => b"init_mb_mgr_avx2\0",
            Self::Avx512Type1 | Self::Avx512Type2 => b"init_mb_mgr_avx512\0",
        }
    }

    /// True if it does without VAES, GFNI and SHA-NI.
    pub(super) const fn is_type_1(self) -> bool {
        matches!(self, Self::SseType1 | Self::AvxType1 | Self::Avx2Type1 | Self::Avx512Type1)
    }

    /// Features without which the library quietly falls back to the type below.
    const fn needs(self) -> u64 {
        match self {
            Self::SseShaNi => 1,
            Self::Avx2Type2 => FEATURES_TYPE_2,
            Self::Avx512Type2 => FEATURES_TYPE_2 | FEATURE_IFMA,
            _ => 0,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|arch| arch.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no kind of manager is called {name:?}; valid names are auto, {names}")
        })
    }
}

/// Names under which distributions install the library, newest first.
const NAMES: [&str; 3] = ["libIPSec_MB.so.3", "libIPSec_MB.so.2", "libIPSec_MB.so.1"];

/// A manager of the library, and all that is asked of the library through it.
pub struct IpsecMb {
    manager: *mut Manager,
    /// A copy, so that calls need not look into the manager.
    pub(super) functions: Functions,
    pub(super) aead_burst: Option<super::layout::CipherBurst>,
    pub(super) set_session: Option<unsafe extern "C" fn(*mut Manager, *mut JobV2) -> u32>,
    pub(super) quic_gcm: Option<QuicGcm>,
    pub(super) quic_chacha: Option<QuicChaCha>,
    pub(super) generation: Generation,
    version: String,
    arch: String,
    /// Path and architecture that it was made from.
    origin: (PathBuf, Arch),
    library: Library,
}

pub(super) type QuicGcm = unsafe extern "C" fn(
    *mut Manager,
    *const std::ffi::c_void,
    u32, // bytes of the AES key
    u32, // direction
    *const *mut u8,
    *const *const u8,
    *const u64,
    *const *const u8, // nonces
    *const *const u8, // AADs
    u64,
    *const *mut u8, // tags
    u64,
    u64,
);

pub(super) type QuicChaCha = unsafe extern "C" fn(
    *mut Manager,
    *const std::ffi::c_void,
    u32, // direction
    *const *mut u8,
    *const *const u8,
    *const u64,
    *const *const u8, // nonces
    *const *const u8, // AADs
    u64,
    *const *mut u8, // tags
    u64,
);

impl IpsecMb {
    /// Loads the library, from `path` or from where the system has it, and makes a manager.
    ///
    /// # Errors
    /// [`PeerError::Missing`] if there is no such library, [`PeerError::Unfit`] if it is not one
    /// whose layout is known or this processor lacks what such a manager needs.
    pub fn load(path: Option<&Path>, arch: Arch) -> Result<Rc<Self>, PeerError> {
        Self::start(Found::open(path)?, arch)
    }

    /// Loads the library as [`load`](Self::load) does, and makes the best manager that this processor can
    /// start, none better than `most`.
    ///
    /// # Errors
    /// As of [`load`](Self::load), if none starts.
    pub fn load_best(path: Option<&Path>, most: Arch) -> Result<Rc<Self>, PeerError> {
        let found = Found::open(path)?;
        let best = Processor::here().best(most, found.generation);
        // Where none starts, the error says what even the least one lacks.
        Self::start(found, best.unwrap_or(Arch::SseType1))
    }

    fn start(found: Found, arch: Arch) -> Result<Rc<Self>, PeerError> {
        let Found { library, path, version, generation } = found;
        if let Some(what) = Processor::here().lacks(arch, generation) {
            let what = format!("its {arch} manager needs {what}, which is not here");
            return Err(unfit(what));
        }
        let flags = if arch.is_type_1() { generation.flags_type_1() } else { 0 };
        let manager = new_manager(&library, arch, flags).map_err(unfit)?;
        // SAFETY: the manager is alive, and its beginning has this layout in every supported
        // version.
        let functions = unsafe { (*manager).functions };
        let aead_burst = (generation == Generation::V2).then(|| {
            // SAFETY: of generation 2, the manager has this layout.
            unsafe { (*manager.cast::<FunctionsV2>()).aead_burst_nocheck }
        });
        let mut this = Self {
            manager,
            functions,
            aead_burst: aead_burst.flatten(),
            set_session: None,
            quic_gcm: None,
            quic_chacha: None,
            generation,
            version: version.text,
            arch: String::new(),
            origin: (path, arch),
            library,
        };
        if functions.features & arch.needs() != arch.needs() {
            return Err(unfit(format!("this processor has no {arch} manager")));
        }
        // SAFETY: the header of generation 2 declares it so.
        this.set_session = unsafe { this.optional(b"imb_set_session\0") };
        // SAFETY: as above.
        this.quic_gcm = unsafe { this.optional(b"imb_quic_aes_gcm\0") };
        // SAFETY: as above.
        this.quic_chacha = unsafe { this.optional(b"imb_quic_chacha20_poly1305\0") };
        this.arch = this.arch_text(arch);
        if generation == Generation::V2 && this.set_session.is_none() {
            return Err(unfit("it has no imb_set_session".to_owned()));
        }
        Ok(Rc::new(this))
    }

    /// Another manager of the same kind: each interface gets one of its own, as programs do it.
    /// (Version 1.3 was seen to compute wrong bytes where bursts of mixed sizes wrap around in the
    /// queue.)
    pub(super) fn another(&self) -> Option<Rc<Self>> {
        let (path, arch) = &self.origin;
        Self::load(Some(path), *arch).ok()
    }

    /// The symbol `name`, if this version has it.
    ///
    /// # Safety
    /// `T` is what the header declares `name` as.
    unsafe fn optional<T: Copy>(&self, name: &[u8]) -> Option<T> {
        // SAFETY: the caller vouches for the type.
        unsafe { self.library.get::<T>(name) }.ok().map(|symbol| *symbol)
    }

    /// The library's version, as it tells it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Kind of manager that was asked for.
    #[must_use]
    pub const fn kind(&self) -> Arch {
        self.origin.1
    }

    /// Kind of manager, as the library tells it where it does.
    #[must_use]
    pub fn arch(&self) -> &str {
        &self.arch
    }

    pub(super) const fn manager(&self) -> *mut Manager {
        self.manager
    }

    fn arch_text(&self, wanted: Arch) -> String {
        type ArchText = unsafe extern "C" fn(
            *const Manager,
            *mut *const c_char,
            *mut *const c_char,
        ) -> std::ffi::c_int;
        // SAFETY: the header of generation 2 declares it so.
        let ask: Option<ArchText> = unsafe { self.optional(b"imb_get_arch_type_string\0") };
        let Some(ask) = ask else { return format!("{wanted}, by flags") };
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the manager is alive; the third pointer may be null.
        let failed = unsafe { ask(self.manager, &raw mut text, std::ptr::null_mut()) } != 0;
        if failed || text.is_null() {
            return wanted.to_string();
        }
        // SAFETY: on success it points to a string constant.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

impl fmt::Debug for IpsecMb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IpsecMb({} {})", self.version, self.arch)
    }
}

impl Drop for IpsecMb {
    fn drop(&mut self) {
        // SAFETY: the header declares it so.
        let free = unsafe { self.optional::<unsafe extern "C" fn(*mut Manager)>(b"free_mb_mgr\0") };
        if let Some(free) = free {
            // SAFETY: alloc_mb_mgr made the manager, and nobody uses it any more.
            unsafe { free(self.manager) };
        }
    }
}

fn unfit(what: String) -> PeerError {
    PeerError::Unfit { who: "intel-ipsec-mb", what }
}

/// The library, with a layout that is known.
struct Found {
    library: Library,
    path: PathBuf,
    version: Version,
    generation: Generation,
}

impl Found {
    fn open(path: Option<&Path>) -> Result<Self, PeerError> {
        let (library, path) = open(path)?;
        let version = version_of(&library, &path)?;
        let supported = SUPPORTED.iter().find(|s| (s.from..s.before).contains(&version.number));
        let Some(supported) = supported else {
            return Err(unfit(format!(
                "{} is version {}; the layouts known here are of {SUPPORTED_TEXT}",
                path.display(),
                version.text
            )));
        };
        Ok(Self { library, path, version, generation: supported.generation })
    }
}

fn open(path: Option<&Path>) -> Result<(Library, PathBuf), PeerError> {
    let names = path.map_or_else(|| NAMES.map(PathBuf::from).to_vec(), |path| vec![path.into()]);
    let mut reason = String::new();
    for name in names {
        // SAFETY: loading runs the library's initialisers; it is the one the system installed or
        // the user named, which is as trusted as this program.
        match unsafe { Library::new(&name) } {
            Ok(library) => return Ok((library, name)),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(PeerError::Missing {
        who: "intel-ipsec-mb",
        reason,
        mend: "install it (Debian and Ubuntu: apt install libipsec-mb1, or libipsec-mb2 in newer \
               ones), or name the shared library with --ipsec-mb PATH",
    })
}

struct Version {
    number: u32,
    text: String,
}

fn version_of(library: &Library, path: &Path) -> Result<Version, PeerError> {
    let unfit = || unfit(format!("{} is not this library", path.display()));
    type Number = unsafe extern "C" fn() -> std::ffi::c_uint;
    type Text = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: every header since 0.50 declares it so.
    let number = unsafe { library.get::<Number>(b"imb_get_version\0") }.map_err(|_| unfit())?;
    // SAFETY: as above.
    let text = unsafe { library.get::<Text>(b"imb_get_version_str\0") }.map_err(|_| unfit())?;
    // SAFETY: it takes nothing and returns a number.
    let number = unsafe { number() };
    // SAFETY: it takes nothing and returns a string constant.
    let text = unsafe { text() };
    // SAFETY: as said.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    Ok(Version { number, text })
}

fn new_manager(library: &Library, arch: Arch, flags: u64) -> Result<*mut Manager, String> {
    type Alloc = unsafe extern "C" fn(u64) -> *mut Manager;
    type Init = unsafe extern "C" fn(*mut Manager);
    type Errno = unsafe extern "C" fn(*mut Manager) -> std::ffi::c_int;
    type Free = unsafe extern "C" fn(*mut Manager);
    let lacks = |e: libloading::Error| format!("it lacks a function: {e}");
    // SAFETY: the supported headers declare it so.
    let alloc = unsafe { library.get::<Alloc>(b"alloc_mb_mgr\0") }.map_err(lacks)?;
    // SAFETY: as above.
    let init = unsafe { library.get::<Init>(arch.init()) }.map_err(lacks)?;
    // SAFETY: as above.
    let errno = unsafe { library.get::<Errno>(b"imb_get_errno\0") }.map_err(lacks)?;
    // SAFETY: as above.
    let free = unsafe { library.get::<Free>(b"free_mb_mgr\0") }.map_err(lacks)?;
    // SAFETY: it takes any flags.
    let manager = unsafe { alloc(flags) };
    if manager.is_null() {
        return Err("it could not allocate a manager".to_owned());
    }
    // SAFETY: the manager is fresh, and the caller has made sure that the processor has what it needs.
    unsafe { init(manager) };
    // SAFETY: the manager is alive.
    let error = unsafe { errno(manager) };
    if error != 0 {
        // SAFETY: nobody else has it.
        unsafe { free(manager) };
        return Err(format!("its {arch} manager does not start here (its error {error})"));
    }
    Ok(manager)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_managers_are_read_back() {
        for arch in Arch::ALL {
            assert_eq!(arch.name().parse(), Ok(arch));
        }
        assert!("avx9".parse::<Arch>().unwrap_err().contains("avx512-t1"));
    }

    #[test]
    fn missing_library_is_told_with_the_way_to_get_it() {
        let error = IpsecMb::load(Some(Path::new("/nowhere/libIPSec_MB.so")), Arch::SseType1);
        let text = error.err().unwrap().to_string();
        assert!(text.contains("apt install") && text.contains("--ipsec-mb"), "{text}");
    }

    #[test]
    fn other_libraries_are_refused() {
        let error = IpsecMb::load(Some(Path::new("libc.so.6")), Arch::SseType1).err().unwrap();
        assert!(error.to_string().contains("is not this library"), "{error}");
    }
}
