//! System calls made by a gateway that runs, as somebody would who has taken it over.

use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use nix::libc::{self, c_long};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Room below the stack of the thread for what calls point to.
const ROOM: u64 = 1 << 14;
/// Bytes below the stack that may be used without saying so, and more.
const RED_ZONE: u64 = 512;

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Returned(u64),
    Failed(Errno),
    /// The process is gone.
    Killed(Signal),
}

impl Outcome {
    pub fn descriptor(self) -> Option<u64> {
        match self {
            Self::Returned(number) => Some(number),
            _ => None,
        }
    }
}

/// The instruction of a system call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The main thread of a process, held behind a system call; let go of when dropped.
pub struct Inside {
    thread: Pid,
    before: libc::user_regs_struct,
    memory: File,
    /// Address at which the next thing that a call points to is written.
    next: u64,
    is_gone: bool,
}

impl Inside {
    /// Takes hold of a process. Says why, and returns nothing, where that is not possible.
    pub fn of(process: u32) -> Option<Self> {
        if cfg!(not(target_arch = "x86_64")) {
            println!("SKIPPED: only registers of x86-64 are known here");
            return None;
        }
        let thread = Pid::from_raw(process as i32);
        let memory = File::options().write(true).read(true).open(format!("/proc/{process}/mem"));
        let memory = match memory {
            Ok(memory) => memory,
            Err(error) => {
                println!("SKIPPED: no process can be held here: {error}");
                return None;
            }
        };
        let before = loop {
            if let Err(error) = ptrace::attach(thread) {
                println!("SKIPPED: no process can be held here: {error}");
                return None;
            }
            assert_eq!(waitpid(thread, None), Ok(WaitStatus::Stopped(thread, Signal::SIGSTOP)));
            let registers = ptrace::getregs(thread).unwrap();
            let mut instruction = [0; 2];
            memory.read_exact_at(&mut instruction, registers.rip - 2).unwrap();
            if instruction == SYSCALL {
                break registers;
            }
            // It was not waiting in a system call; it soon is again.
            ptrace::detach(thread, None).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let next = (before.rsp - ROOM - RED_ZONE) & !15;
        Some(Self { thread, before, memory, next, is_gone: false })
    }

    /// Writes something into the process, and says where it is. For the next call.
    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.next;
        self.memory.write_all_at(bytes, at).unwrap();
        self.next += (bytes.len() as u64).next_multiple_of(16);
        assert!(self.next < self.before.rsp - RED_ZONE, "too much for one call");
        at
    }

    pub fn path(&mut self, path: &str) -> u64 {
        self.put(CString::new(path).unwrap().as_bytes_with_nul())
    }

    /// Makes one call.
    pub fn call(&mut self, number: c_long, arguments: [u64; 6]) -> Outcome {
        // The thread stopped behind the instruction of a system call, which is done again.
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = libc::user_regs_struct {
            rip: self.before.rip - 2,
            rax: number as u64,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.before
        };
        ptrace::setregs(self.thread, registers).unwrap();
        ptrace::step(self.thread, None).unwrap();
        self.next = (self.before.rsp - ROOM - RED_ZONE) & !15;
        loop {
            match waitpid(self.thread, None).unwrap() {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => break,
                // One for the process itself: it is not for now.
                WaitStatus::Stopped(..) => ptrace::step(self.thread, None).unwrap(),
                WaitStatus::Signaled(_, signal, _) => {
                    self.is_gone = true;
                    return Outcome::Killed(signal);
                }
                other => panic!("{other:?}"),
            }
        }
        match ptrace::getregs(self.thread).unwrap().rax as i64 {
            errno @ -4095..=-1 => Outcome::Failed(Errno::from_raw(-errno as i32)),
            value => Outcome::Returned(value as u64),
        }
    }

    pub fn open(&mut self, path: &str, flags: i32) -> Outcome {
        let at = self.path(path);
        let flags = [libc::AT_FDCWD as u64, at, flags as u64, 0o600, 0, 0];
        self.call(libc::SYS_openat, flags)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if !self.is_gone {
            let _ = ptrace::setregs(self.thread, self.before);
            let _ = ptrace::detach(self.thread, None);
        }
    }
}
