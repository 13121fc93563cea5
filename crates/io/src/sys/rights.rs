//! Rights of a thread: its capabilities, and a signal by which every thread gives some up.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use super::check;
use super::landlock::landlock_restrict;

/// True if the kernel set `AT_SECURE` for this process as its program began.
pub(crate) fn is_secure() -> bool {
    // SAFETY: takes a number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// `_LINUX_CAPABILITY_VERSION_3`: sets of 64 bits in two words each.
const VERSION: u32 = 0x2008_0522;

/// Capabilities a kernel may know; numbers above its last one are refused.
const NUMBERS: u64 = 64;

/// `struct __user_cap_header_struct`, about the calling thread.
#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`: one half of the three sets.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Capabilities that the handler of the signal leaves to its thread.
static KEEP: AtomicU64 = AtomicU64::new(0);
/// The ruleset under which it puts its thread; none if negative.
static RULESET: AtomicI32 = AtomicI32::new(-1);
/// Threads that have done so, and as many as there are; those that could not, with a minus.
static DONE: [AtomicI32; DONE_MAX] = [const { AtomicI32::new(0) }; DONE_MAX];
static DONE_COUNT: AtomicUsize = AtomicUsize::new(0);
/// More threads than any gateway has.
const DONE_MAX: usize = 1 << 14;

/// While this lives, [`Broadcast::send`] makes a thread give up all capabilities but some, and puts it under a
/// ruleset of Landlock.
pub(crate) struct Broadcast(libc::c_int);

/// Outcome in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// It has given up what it could, and is under the ruleset.
    Yes,
    /// The kernel did not take the ruleset.
    NoRuleset,
}

impl Broadcast {
    /// Takes a signal that nobody uses for it. For one caller at a time.
    pub(crate) fn new(keep: u64, ruleset: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        KEEP.store(keep, Ordering::Release);
        RULESET.store(ruleset.map_or(-1, |ruleset| ruleset.as_raw_fd()), Ordering::Release);
        DONE.iter().for_each(|thread| thread.store(0, Ordering::Release));
        DONE_COUNT.store(0, Ordering::Release);
        let signal = libc::SIGRTMAX() - 1;
        let handler: extern "C" fn(libc::c_int) = on_signal;
        // SAFETY: the handler calls nothing but system calls, so it may interrupt anything.
        unsafe { handle(signal, handler as libc::sighandler_t) }?;
        Ok(Self(signal))
    }

    /// Sends the signal to a thread of this process; one that has ended needs none.
    pub(crate) fn send(&self, thread: libc::pid_t) -> io::Result<()> {
        // SAFETY: takes no arguments and touches no memory.
        let own = unsafe { libc::getpid() };
        // SAFETY: three integers; a signal to a thread of this process, which has a handler for it.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, own, thread, self.0) };
        match check(sent as libc::c_int) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }

    /// The threads that have handled it, and what came of it.
    pub(crate) fn done(&self) -> impl Iterator<Item = (libc::pid_t, Done)> {
        let count = DONE_COUNT.load(Ordering::Acquire).min(DONE_MAX);
        DONE.iter().take(count).filter_map(|thread| match thread.load(Ordering::Acquire) {
            0 => None,
            thread @ 1.. => Some((thread, Done::Yes)),
            thread => Some((-thread, Done::NoRuleset)),
        })
    }
}

impl Drop for Broadcast {
    /// A signal that comes late, or from somebody else, is ignored from now on.
    fn drop(&mut self) {
        // SAFETY: to ignore a signal runs no code.
        let _ = unsafe { handle(self.0, libc::SIG_IGN) };
    }
}

/// Sets what is done at a signal; interrupted calls go on.
///
/// # Safety
/// The handler must do nothing but what is allowed wherever a thread may be.
unsafe fn handle(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: integers and pointers only, for which zeros are a value: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the structure is valid for reads, and no old one is asked for.
    check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }).map(drop)
}

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: takes nothing and allocates nothing.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own number, which nobody else refers to while the handler runs.
    let errno = unsafe { &mut *errno };
    let before = *errno;
    control(libc::PR_SET_NO_NEW_PRIVS, 1, 0);
    let ruleset = RULESET.load(Ordering::Acquire);
    let is_under = ruleset < 0 || landlock_restrict(ruleset);
    narrow_thread(KEEP.load(Ordering::Acquire));
    // SAFETY: takes no arguments and touches no memory.
    let thread = unsafe { libc::gettid() };
    if let Some(place) = DONE.get(DONE_COUNT.fetch_add(1, Ordering::AcqRel)) {
        place.store(if is_under { thread } else { -thread }, Ordering::Release);
    }
    *errno = before;
}

/// The calling thread gives up all capabilities but `keep`, in every set. Whether that came to pass is to be
/// asked of the kernel.
fn narrow_thread(keep: u64) {
    for number in (0..NUMBERS).filter(|number| keep & (1 << number) == 0) {
        // Refused without CAP_SETPCAP, and beyond the last capability that the kernel knows.
        control(libc::PR_CAPBSET_DROP, number, 0);
    }
    control(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64, 0);
    let mut header = Header { version: VERSION, pid: 0 };
    let mut halves = [Half::default(); 2];
    // SAFETY: both structures are as this version has them, and valid for the call.
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) };
    if got != 0 {
        return;
    }
    for (half, keep) in halves.iter_mut().zip([keep as u32, (keep >> 32) as u32]) {
        half.permitted &= keep;
        half.effective &= keep;
        half.inheritable = 0;
    }
    // SAFETY: both structures are as this version has them, and valid for the call.
    unsafe { libc::syscall(libc::SYS_capset, &raw mut header, halves.as_ptr()) };
}

/// `prctl` with integers; what it answers does not matter here.
fn control(option: libc::c_int, first: u64, second: u64) {
    // SAFETY: the options above take integers and touch no memory.
    unsafe { libc::prctl(option, first, second, 0_u64, 0_u64) };
}
