//! Every verb that has keys keeps them out of core files, debuggers and swap, as a gateway does.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use convoy_lab::Namespace;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::common::{PATIENCE, Plan, can_make_namespaces, copy_program};
use crate::privileges::lock;

/// An ordinary user.
const USER: u32 = 54_321;

/// The end of a pipe into which no byte goes any more: who writes there waits for ever.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let set = |flags| fcntl(&writer, FcntlArg::F_SETFL(flags)).unwrap();
    set(OFlag::O_NONBLOCK);
    while (&writer).write(&[0; 4096]).is_ok() {}
    while (&writer).write(&[0]).is_ok() {}
    set(OFlag::empty());
    writer.flush().unwrap();
    (reader, writer)
}

/// A folder with a program, a site file and an empty capture, all of one user.
struct World {
    folder: tempfile::TempDir,
    namespace: Namespace,
    user: u32,
}

impl World {
    fn new(user: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let program = path.join("convoy");
        copy_program(&program);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Plan::simple().write('a', path);
        let mut capture = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
            capture.extend(word.to_le_bytes());
        }
        fs::write(path.join("in.pcap"), capture).unwrap();
        for entry in fs::read_dir(path).unwrap() {
            chown(entry.unwrap().path(), Some(user), Some(user)).unwrap();
        }
        chown(path, Some(user), Some(user)).unwrap();
        Self { folder, namespace: Namespace::anonymous().unwrap(), user }
    }

    /// Starts the program, which waits as soon as it prints anything.
    fn start(&self, arguments: &[&str], end: &std::io::PipeWriter) -> Child {
        let mut command = Command::new(self.folder.path().join("convoy"));
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.stdout(end.try_clone().unwrap()).stderr(end.try_clone().unwrap());
        self.namespace.spawn(command.uid(self.user).gid(self.user)).unwrap()
    }
}

/// Protections of a process, as far as others see them.
#[derive(Debug, PartialEq)]
struct Kept {
    /// Nothing of it gets into a core file.
    from_cores: bool,
    /// No other process of its user attaches to it: what the kernel shows of it belongs to root.
    from_its_user: bool,
    from_swap: bool,
}

impl Kept {
    fn look(process: u32) -> Option<Self> {
        let of = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).ok();
        let filter = u32::from_str_radix(of("coredump_filter")?.trim(), 16).ok()?;
        let status = of("status")?;
        let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"))?;
        Some(Self {
            from_cores: filter == 0,
            from_its_user: fs::metadata(format!("/proc/{process}/environ")).ok()?.uid() == 0,
            from_swap: locked.trim() != "0 kB",
        })
    }
}

/// Waits until the protection of a process that waits to print is right. Fails if that ends or takes too long.
fn comes_to_be(child: &mut Child, is_right: impl Fn(&Kept) -> bool) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let kept = Kept::look(child.id());
        if kept.as_ref().is_some_and(&is_right) {
            return Ok(());
        }
        if child.try_wait().unwrap().is_some() || begun.elapsed() > PATIENCE {
            return Err(format!("{kept:?}"));
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// True if a process sleeps where it writes to a pipe.
fn waits_to_print(process: u32) -> bool {
    let of = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
    // The number of `write`, and the arguments.
    of("syscall").starts_with(&format!("{} ", libc::SYS_write))
}

const VERBS: [&[&str]; 17] = [
    &["init", "new"],
    &["genkey", "new.key"],
    &["check", "a.toml"],
    &["run", "a.toml", "--dry-run"],
    &["status", "a.toml"],
    &["sa", "a.toml"],
    &["policy", "a.toml"],
    &["reload", "a.toml"],
    &["trace", "a.toml", "--from", "10.1.0.5", "--to", "10.2.0.7"],
    &["crypto", "a.toml"],
    &["keys", "a.toml"],
    &["keys", "--from-site", "a.toml"],
    &["doctor", "a.toml"],
    &["open", "a.toml"],
    &["replay", "a.toml", "--plain-in", "in.pcap"],
    &["demo", "--in-memory", "--out", "demo"],
    &["demo", "--in-memory", "--keep", "--out", "demo2"],
];

#[test]
fn every_verb_that_has_keys_keeps_its_memory_from_cores_its_user_and_swap() {
    if !can_make_namespaces() {
        return;
    }
    let may_lock = lock().is_some();
    if !may_lock {
        println!("SKIPPED in part: memory may not be locked here");
    }
    let (_reader, end) = full_pipe();
    for user in [0, USER] {
        let world = World::new(user);
        for arguments in VERBS {
            let mut child = world.start(arguments, &end);
            let outcome = comes_to_be(&mut child, |kept| {
                // All that is of root belongs to root.
                kept.from_cores && kept.from_its_user && (kept.from_swap || user != 0 || !may_lock)
            });
            child.kill().unwrap();
            child.wait().unwrap();
            outcome.unwrap_or_else(|kept| panic!("convoy {arguments:?} of user {user}: {kept}"));
        }
    }
}

/// A command of `convoy exec` would inherit what its memory is kept from.
#[test]
fn what_others_run_by_exec_is_left_as_it_was() {
    if !can_make_namespaces() {
        return;
    }
    let (_reader, end) = full_pipe();
    let world = World::new(USER);
    let mut child = world.start(&["exec", "--wait", "0", "--socket", "none", "--", "true"], &end);
    let begun = Instant::now();
    while !waits_to_print(child.id()) {
        assert!(begun.elapsed() < PATIENCE && child.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let kept = Kept::look(child.id()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(kept, Kept { from_cores: false, from_its_user: false, from_swap: false });
}
