//! libc's own functions, behind the ones interposed here.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{FILE, epoll_event, msghdr, size_t, sockaddr, socklen_t, ssize_t, stat, stat64};

/// The function of that name that the program would have called without this library.
pub(super) struct Next<F> {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    kind: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// # Safety
    ///
    /// `F` is a pointer to functions of the type that the function called `name` has.
    const unsafe fn new(name: &'static CStr) -> Self {
        assert!(size_of::<F>() == size_of::<*mut c_void>());
        Self { name, found: AtomicPtr::new(ptr::null_mut()), kind: PhantomData }
    }

    /// The function. It is looked up when the library is loaded; constructors of other libraries may
    /// call before that.
    #[inline]
    pub(super) fn get(&self) -> F {
        let mut found = self.found.load(Relaxed);
        if found.is_null() {
            found = self.find();
        }
        // SAFETY: as the creator of this promised, the pointer is to a function of this type.
        unsafe { mem::transmute_copy::<*mut c_void, F>(&found) }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // Nobody can have linked a program against a function that no library has.
            // SAFETY: ends the process.
            unsafe { libc::abort() };
        }
        self.found.store(found, Relaxed);
        found
    }

    /// Looks the function up, if there is one.
    fn prepare(&self) {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Relaxed);
    }
}

macro_rules! functions {
    ($($place:ident = $name:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        $(
            pub(super) static $place: Next<unsafe extern "C-unwind" fn($($argument),*) -> $result> =
                // SAFETY: the type is that of the function in the C library.
                unsafe { Next::new($name) };
        )*

        /// Looks all functions up.
        pub(super) fn prepare() {
            $($place.prepare();)*
            FCNTL.prepare();
            OPEN.prepare();
        }
    };
}

type Name = *const sockaddr;
type NameRoom = *mut sockaddr;
type LenRoom = *mut socklen_t;
type Bytes = *const c_void;
type Room = *mut c_void;

functions! {
    SOCKET = c"socket": fn(c_int, c_int, c_int) -> c_int;
    BIND = c"bind": fn(c_int, Name, socklen_t) -> c_int;
    CONNECT = c"connect": fn(c_int, Name, socklen_t) -> c_int;
    GETSOCKNAME = c"getsockname": fn(c_int, NameRoom, LenRoom) -> c_int;
    GETPEERNAME = c"getpeername": fn(c_int, NameRoom, LenRoom) -> c_int;
    GETSOCKOPT = c"getsockopt": fn(c_int, c_int, c_int, Room, LenRoom) -> c_int;
    SETSOCKOPT = c"setsockopt": fn(c_int, c_int, c_int, Bytes, socklen_t) -> c_int;
    SEND = c"send": fn(c_int, Bytes, size_t, c_int) -> ssize_t;
    SENDTO = c"sendto": fn(c_int, Bytes, size_t, c_int, Name, socklen_t) -> ssize_t;
    SENDMSG = c"sendmsg": fn(c_int, *const msghdr, c_int) -> ssize_t;
    WRITE = c"write": fn(c_int, Bytes, size_t) -> ssize_t;
    RECV = c"recv": fn(c_int, Room, size_t, c_int) -> ssize_t;
    RECVFROM = c"recvfrom": fn(c_int, Room, size_t, c_int, NameRoom, LenRoom) -> ssize_t;
    RECVMSG = c"recvmsg": fn(c_int, *mut msghdr, c_int) -> ssize_t;
    READ = c"read": fn(c_int, Room, size_t) -> ssize_t;
    RECV_CHK = c"__recv_chk": fn(c_int, Room, size_t, size_t, c_int) -> ssize_t;
    RECVFROM_CHK = c"__recvfrom_chk":
        fn(c_int, Room, size_t, size_t, c_int, NameRoom, LenRoom) -> ssize_t;
    READ_CHK = c"__read_chk": fn(c_int, Room, size_t, size_t) -> ssize_t;
    EPOLL_CTL = c"epoll_ctl": fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
    DUP = c"dup": fn(c_int) -> c_int;
    DUP2 = c"dup2": fn(c_int, c_int) -> c_int;
    DUP3 = c"dup3": fn(c_int, c_int, c_int) -> c_int;
    STAT = c"stat": fn(*const c_char, *mut stat) -> c_int;
    STAT64 = c"stat64": fn(*const c_char, *mut stat64) -> c_int;
    FOPEN = c"fopen": fn(*const c_char, *const c_char) -> *mut FILE;
    FOPEN64 = c"fopen64": fn(*const c_char, *const c_char) -> *mut FILE;
}

// SAFETY: the type is that of the function in the C library.
pub(super) static FCNTL: Next<unsafe extern "C-unwind" fn(c_int, c_int, ...) -> c_int> =
    unsafe { Next::new(c"fcntl") };
// SAFETY: the type is that of the function in the C library.
pub(super) static OPEN: Next<unsafe extern "C-unwind" fn(*const c_char, c_int, ...) -> c_int> =
    unsafe { Next::new(c"open") };

/// The type of `mode_t` as a variable argument.
pub(super) type ModeArgument = c_uint;
