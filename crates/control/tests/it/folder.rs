//! A state folder on a real file system: its files, its lock, and what happens when they are lost.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoy_control::lease::{
    InboundRequest, LeaseError, LeaseEvent, LeaseKeeper, Machine, OutboundRequest,
};
use convoy_crypto::{GcmParams, IcvLen, KeyBits, SecretBytes};
use convoy_ipsec::key::SaKeyMaterial;

fn open(dir: &Path) -> Result<LeaseKeeper, LeaseError> {
    open_on(dir, &machine(Some(1), Some(2)))
}

fn key(number: u8) -> SaKeyMaterial {
    let bytes = SecretBytes::copy_from(&[number; 20]);
    SaKeyMaterial::new(GcmParams::new(KeyBits::Aes128, IcvLen::Icv16), bytes).unwrap()
}

/// The next number of key 1, leasing from it.
fn next(keeper: &LeaseKeeper) -> u64 {
    let (ours, theirs) = (key(1), key(2));
    let request = OutboundRequest { name: "sa", key: &ours, esn: true, block: 100 };
    let inbound = InboundRequest { name: "in", key: &theirs, counters: &Arc::default() };
    let acquired = keeper.acquire(&[request], &[inbound]).unwrap();
    acquired[0].used().get() + 1
}

#[test]
fn files_are_the_owners_alone_and_hold_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = open(dir.path()).unwrap();
    assert_eq!(next(&keeper), 1);
    keeper.finish().unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap) {
        let bytes = std::fs::read(entry.path()).unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!bytes.windows(8).any(|window| window == [1; 8]));
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["hash-key", "leases-a", "leases-b", "lock"]);
}

#[test]
fn a_folder_serves_one_gateway_and_names_it_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let error = open(dir.path()).unwrap_err();
    let us = std::process::id();
    assert!(matches!(&error, LeaseError::Locked { pid: Some(pid), .. } if *pid == us), "{error}");
    assert!(error.to_string().contains("stop that gateway first"), "{error}");
    drop(first);
    open(dir.path()).unwrap();
}

/// A new process has copies of all descriptors, locks and all, until it has become its program.
#[test]
fn a_gateway_that_has_ended_holds_no_lock_in_processes_just_started() {
    let dir = tempfile::tempdir().unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                assert!(std::process::Command::new("true").status().unwrap().success());
            }
        });
        let attempt = || open(dir.path()).and_then(LeaseKeeper::finish).err();
        let refused = std::panic::catch_unwind(|| (0..300).find_map(|_| attempt()));
        ended.store(true, Ordering::Relaxed);
        assert!(matches!(refused, Ok(None)), "{refused:?}");
    });
}

#[test]
fn losing_what_tells_used_numbers_is_refused_with_a_remedy() {
    let lost: [(&[&str], &str); 3] = [
        (&["hash-key"], "has records but not their key file"),
        (&["leases-a", "leases-b"], "was in use but its records"),
        (&[], "both copies of the records"),
    ];
    for (removed, text) in lost {
        let dir = tempfile::tempdir().unwrap();
        let keeper = open(dir.path()).unwrap();
        next(&keeper);
        keeper.finish().unwrap();
        for name in removed {
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        if removed.is_empty() {
            std::fs::write(dir.path().join("leases-a"), "not an image").unwrap();
            std::fs::write(dir.path().join("leases-b"), []).unwrap();
        }
        let error = open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("write new keys on both sides"), "{error}");
    }
}

#[test]
fn a_damaged_key_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap().finish().unwrap();
    std::fs::write(dir.path().join("hash-key"), [0; 48]).unwrap();
    assert!(matches!(open(dir.path()), Err(LeaseError::HashKeyDamaged { .. })));
}

#[test]
fn losing_one_copy_skips_numbers_and_repeats_none() {
    for lost in ["leases-a", "leases-b"] {
        let dir = tempfile::tempdir().unwrap();
        let keeper = open(dir.path()).unwrap();
        next(&keeper);
        let granted = 1 + 200;
        drop(keeper);
        std::fs::remove_file(dir.path().join(lost)).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let ours = machine(Some(1), Some(2));
        let opened = LeaseKeeper::open_on(dir.path(), &ours, move |e| tell.send(e).unwrap());
        let first = next(&opened.unwrap());
        assert!(first >= granted, "{first}");
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [LeaseEvent::CopyMended { file: lost }]);
    }
}

#[test]
fn a_folder_whose_making_was_interrupted_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap().finish().unwrap();
    // As if the power had failed before the key got its name: nothing was ever leased.
    std::fs::rename(dir.path().join("hash-key"), dir.path().join("hash-key.new")).unwrap();
    assert_eq!(next(&open(dir.path()).unwrap()), 1);
    assert!(!dir.path().join("hash-key.new").exists());
}

#[test]
fn a_folder_that_is_missing_is_an_error_that_names_it() {
    let error = open(Path::new("/no/such/folder")).unwrap_err().to_string();
    assert!(
        error.contains("state folder /no/such/folder does not exist: create it (mkdir -m 700)"),
        "{error}"
    );
}

/// Keeper of a folder, and its events in order.
fn open_telling(dir: &Path) -> (LeaseKeeper, std::sync::mpsc::Receiver<LeaseEvent>) {
    let (tell, told) = std::sync::mpsc::channel();
    let ours = machine(Some(1), Some(2));
    let keeper = LeaseKeeper::open_on(dir, &ours, move |event| drop(tell.send(event))).unwrap();
    (keeper, told)
}

/// A folder of which the first number was used, below one that may be changed.
struct Used {
    dir: PathBuf,
    keeper: LeaseKeeper,
    told: std::sync::mpsc::Receiver<LeaseEvent>,
    /// Removed with all that is in it.
    parent: tempfile::TempDir,
}

impl Used {
    fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("state");
        std::fs::create_dir(&dir).unwrap();
        let (keeper, told) = open_telling(&dir);
        assert_eq!(next(&keeper), 1);
        Self { dir, keeper, told, parent }
    }
}

/// Removal of the lock file does not unlock the folder.
#[test]
fn a_second_gateway_is_refused_also_when_the_lock_file_was_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    assert_eq!(next(&first), 1);
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(error, LeaseError::Locked { pid: None, .. }), "{error}");
    first.finish().unwrap();
    open(dir.path()).unwrap();
}

/// A version before this one locks the file alone.
#[test]
fn a_folder_whose_lock_file_is_locked_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let lock = std::fs::File::create(dir.path().join("lock")).unwrap();
    lock.lock().unwrap();
    assert!(matches!(open(dir.path()), Err(LeaseError::Locked { .. })));
    lock.unlock().unwrap();
    open(dir.path()).unwrap();
}

/// Change made to a folder under a running gateway.
type Damage = fn(&Path);

fn empty(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

fn replace(dir: &Path) {
    // At once: a gateway that looks in between would say that it is gone.
    let aside = dir.with_extension("aside");
    std::fs::create_dir(&aside).unwrap();
    let (here, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(here, dir, here, &aside, flags).unwrap();
}

fn restore_a_copy(dir: &Path) {
    for name in ["leases-a", "leases-b"] {
        std::fs::copy(dir.join(name), dir.join("copy")).unwrap();
        std::fs::rename(dir.join("copy"), dir.join(name)).unwrap();
    }
}

fn remove(dir: &Path) {
    // A gateway that looks meanwhile leaves a sign in it.
    while let Err(error) = std::fs::remove_dir_all(dir) {
        assert_eq!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty, "{error}");
    }
}

/// Nothing is granted any more once the next life would not find it, and it is said, although nothing
/// is sent or received.
#[test]
fn a_folder_that_is_lost_under_a_running_gateway_is_noticed() {
    let damages: [(Damage, &str); 4] = [
        (empty, "is gone"),
        (replace, "another folder is in the place of"),
        (restore_a_copy, "another file is in the place of"),
        (remove, "is gone"),
    ];
    for (damage, text) in damages {
        let Used { dir, keeper, told, parent: _parent } = Used::new();
        damage(&dir);
        let LeaseEvent::WriteFailed { reason } = told.recv().unwrap() else { panic!("{text}") };
        assert!(reason.contains(text) && reason.contains("write new keys"), "{reason}");
        let ours = key(5);
        let request = OutboundRequest { name: "sa", key: &ours, esn: true, block: 100 };
        let refused = keeper.acquire(&[request], &[]).unwrap_err();
        assert!(matches!(refused, LeaseError::Write(_)), "{refused}");
        assert!(keeper.failure().is_some());
        // It does not get well by itself.
        drop(keeper);
        assert_eq!(told.iter().count(), 0);
    }
}

/// Seen before: the next life took the emptied folder for a new one, and began at number 1.
#[test]
fn a_folder_that_was_lost_under_a_running_gateway_is_not_taken_for_a_new_one() {
    for damage in [empty as Damage, replace] {
        let Used { dir, keeper, told, parent: _parent } = Used::new();
        damage(&dir);
        told.recv().unwrap();
        drop(keeper);
        let error = open(&dir).unwrap_err();
        assert!(matches!(error, LeaseError::Emptied { .. }), "{error}");
        assert!(error.to_string().contains("write new keys on both sides"), "{error}");
    }
}

/// Seen before: only the moment in which it was noticed left a sign, and a folder that was made after it,
/// or emptied to the end after it, had none.
#[test]
fn a_folder_that_is_made_anew_after_its_loss_was_noticed_is_refused() {
    let begin: Damage = |dir| std::fs::remove_file(dir.join("leases-a")).unwrap();
    let again: Damage = |dir| std::fs::create_dir(dir).unwrap();
    for (damage, later) in [(remove as Damage, again), (begin, empty)] {
        let Used { dir, keeper, told, parent: _parent } = Used::new();
        damage(&dir);
        told.recv().unwrap();
        later(&dir);
        while !dir.join("records-lost").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        drop(keeper);
        let error = open(&dir).unwrap_err();
        assert!(matches!(error, LeaseError::Emptied { .. }), "{error}");
        // Nor later than the last tick.
        std::fs::remove_dir_all(&dir).unwrap();
        std::fs::create_dir(&dir).unwrap();
        let (keeper, told) = open_telling(&dir);
        damage(&dir);
        told.recv().unwrap();
        later(&dir);
        drop(keeper);
        let error = open(&dir).unwrap_err();
        assert!(matches!(error, LeaseError::Emptied { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("setfattr -x user.convoy.used"), "{text}");
    }
}

/// Seen before: any user could lock a folder that all may read, and a process of long ago was blamed.
#[test]
fn a_folder_is_closed_to_others_and_who_locks_it_is_not_taken_for_a_gateway() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    drop(open(dir.path()).unwrap());
    assert_eq!(std::fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
    let other = std::fs::File::open(dir.path()).unwrap();
    other.lock().unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(error, LeaseError::FolderLocked { .. }), "{error}");
    assert!(error.to_string().contains("lslocks"), "{error}");
    other.unlock().unwrap();
    open(dir.path()).unwrap();
}

/// Also where no gateway ran that could notice it.
#[test]
fn a_folder_that_was_emptied_while_nobody_used_it_is_not_taken_for_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let root = std::fs::File::open(dir.path()).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::fsetxattr(&root, "user.convoy.test", b"1", flags).is_err() {
        return println!("SKIPPED: the file system of temporary files keeps no attributes");
    }
    let keeper = open(dir.path()).unwrap();
    assert_eq!(next(&keeper), 1);
    keeper.finish().unwrap();
    empty(dir.path());
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(error, LeaseError::Emptied { .. }), "{error}");
}

/// Identity of a machine, as files say it.
fn machine(id: Option<u8>, board: Option<u8>) -> Machine {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["id", "board"].map(|name| folder.path().join(name));
    for (path, number) in paths.iter().zip([id, board]) {
        if let Some(number) = number {
            std::fs::write(path, format!("{number:032x}\n")).unwrap();
        }
    }
    Machine::read(&paths[0], &paths[1])
}

fn open_on(dir: &Path, machine: &Machine) -> Result<LeaseKeeper, LeaseError> {
    LeaseKeeper::open_on(dir, machine, |event| panic!("{event:?}"))
}

/// Files of a folder, without the one that says who locked it last.
fn content(dir: &Path) -> Vec<Vec<u8>> {
    ["hash-key", "leases-a", "leases-b"].map(|name| std::fs::read(dir.join(name)).unwrap()).into()
}

/// An image of a disk that is cloned has the state folder as it was, inodes included.
#[test]
fn a_folder_of_another_machine_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let ours = machine(Some(1), Some(2));
    let keeper = open_on(dir.path(), &ours).unwrap();
    assert_eq!(next(&keeper), 1);
    keeper.finish().unwrap();
    let before = content(dir.path());
    let others = [
        (machine(Some(3), Some(2)), "its machine-id is not the one of this machine"),
        (machine(Some(1), Some(3)), "its DMI product UUID is not the one of this machine"),
        (machine(None, Some(3)), "its DMI product UUID is not the one of this machine"),
    ];
    for (other, text) in others {
        let error = open_on(dir.path(), &other).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("write new keys on both sides"), "{error}");
        assert_eq!(content(dir.path()), before);
    }
    let silent = LeaseKeeper::open_on(dir.path(), &machine(None, None), |_| {}).unwrap_err();
    assert!(matches!(silent, LeaseError::MachineUnknown { what: "machine-id" }), "{silent}");
    assert_eq!(content(dir.path()), before);
    // Who may not read one of both is still at home.
    for ours in [machine(Some(1), None), machine(None, Some(2)), ours] {
        let keeper = open_on(dir.path(), &ours).unwrap();
        assert!(next(&keeper) > 0);
        keeper.finish().unwrap();
    }
}

/// Copies a folder with its files and attributes. No program does it: as long as that begins, it would hold the locks
/// of the folders of other tests.
fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(from, &mut names).unwrap();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = [0; 64];
        let len = rustix::fs::getxattr(from, name, &mut value).unwrap();
        rustix::fs::setxattr(to, name, &value[..len], rustix::fs::XattrFlags::empty()).unwrap();
    }
}

#[test]
fn a_copy_of_a_folder_is_refused_and_a_folder_that_was_renamed_goes_on() {
    let parent = tempfile::tempdir().unwrap();
    let [first, copy, renamed] = ["first", "copy", "renamed"].map(|name| parent.path().join(name));
    std::fs::create_dir(&first).unwrap();
    let keeper = open(&first).unwrap();
    assert_eq!(next(&keeper), 1);
    keeper.finish().unwrap();
    copy_all(&first, &copy);
    let before = content(&copy);
    let error = open(&copy).unwrap_err();
    assert!(matches!(error, LeaseError::Copied), "{error}");
    assert!(error.to_string().contains("write new keys on both sides"), "{error}");
    assert_eq!(content(&copy), before);
    std::fs::rename(&first, &renamed).unwrap();
    let keeper = open(&renamed).unwrap();
    assert_eq!(next(&keeper), 1, "nothing was used, and the end was orderly");
}

/// The folder goes to the first machine that has an identity, if none could be read before.
#[test]
fn a_folder_that_is_tied_to_no_machine_is_tied_to_the_first_one_and_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let told = |machine: &Machine| {
        let (tell, told) = std::sync::mpsc::channel();
        let keeper =
            LeaseKeeper::open_on(dir.path(), machine, move |event| tell.send(event).unwrap());
        keeper.map(|keeper| {
            keeper.finish().unwrap();
            told.iter().collect::<Vec<_>>()
        })
    };
    let nobody = machine(None, None);
    assert_eq!(told(&nobody).unwrap(), [LeaseEvent::MachineUnknown]);
    assert_eq!(told(&nobody).unwrap(), [LeaseEvent::MachineUnknown]);
    let bound = LeaseEvent::Bound { to: "machine-id".to_owned() };
    assert_eq!(told(&machine(Some(1), None)).unwrap(), [bound]);
    assert_eq!(told(&machine(Some(1), Some(2))).unwrap(), []);
    let error = told(&machine(Some(1), Some(3))).unwrap_err();
    assert!(matches!(error, LeaseError::OtherMachine { .. }), "{error}");
}
