//! The folder and its files, without SAs.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;

use super::journal::{Earlier, Journal};
use super::memory::Memory;
use super::*;

/// A folder in memory.
fn folder() -> Option<tempfile::TempDir> {
    let in_memory = |path: &&str| {
        statfs(*path).is_ok_and(|kind| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind.filesystem_type()))
    };
    let Some(path) = ["/dev/shm", "/run", "/tmp"].iter().find(|path| in_memory(path)) else {
        println!("SKIPPED: no folder in memory here");
        return None;
    };
    Some(tempfile::tempdir_in(path).unwrap())
}

fn open(path: &Path) -> Result<Keep, KeepError> {
    Keep::open(path, |_| Err(io::ErrorKind::Unsupported.into()))
}

fn found(keep: &Keep) -> Vec<(u64, Vec<u8>)> {
    keep.past.policies.iter().map(|found| (found.id, found.message.to_vec())).collect()
}

#[test]
fn a_folder_is_private_and_serves_one_gateway() {
    let Some(folder) = folder() else { return };
    let path = folder.path().join("made").join("one.state");
    // What cannot be mapped must not be believed later.
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("edges"), [1; 64]).unwrap();
    // It was a gateway's before, so it may be closed to others.
    let lock = File::create(path.join("lock")).unwrap();
    lock.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut keep = open(&path).unwrap();
    assert!(!path.join("edges").exists());
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for name in ["journal", "numbers", "lock"] {
        assert_eq!(mode(&path.join(name)), 0o600, "{name}");
    }
    assert!(matches!(open(&path), Err(KeepError::InUse(_))));
    keep.journal.put(Kind::Policy, 8, b"a policy").unwrap();
    keep.finish(false).unwrap();
    let mut keep = open(&path).unwrap();
    assert_eq!(found(&keep), [(8, b"a policy".to_vec())]);
    assert_eq!(keep.past.earlier, Earlier::Whole);
    keep.remove(Kind::Policy, 8);
    keep.finish(true).unwrap();
    let keep = open(&path).unwrap();
    assert_eq!((found(&keep), keep.past.earlier), (vec![], Earlier::Whole), "it says so");
    keep.finish(false).unwrap();
    assert!(!path.exists(), "nothing is kept");
}

#[test]
fn a_folder_on_a_disk_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let kind = statfs(folder.path()).unwrap().filesystem_type();
    if [TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind) {
        return println!("SKIPPED: the folder for temporary files is in memory");
    }
    let error = open(&path).unwrap_err();
    assert!(error.to_string().contains("must not reach a disk"), "{error}");
    assert!(!path.exists());
    let proc = open(Path::new("/proc/self")).unwrap_err();
    assert!(matches!(proc, KeepError::NotInMemory(_)), "{proc}");
}

#[test]
fn a_file_in_the_folders_place_is_refused() {
    let Some(folder) = folder() else { return };
    let path = folder.path().join("state");
    std::fs::write(&path, "a file").unwrap();
    assert!(matches!(open(&path), Err(KeepError::NotOurs(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
}

#[test]
fn what_went_is_wiped_where_it_stood() {
    let memory = Memory::default();
    let mut keep = memory.open();
    let holds = |text: &[u8]| memory.bytes(0).windows(text.len()).any(|part| part == text);
    keep.journal.put(Kind::Sa, 1, b"the first secret").unwrap();
    keep.journal.put(Kind::Sa, 2, b"the second secret").unwrap();
    assert!(holds(b"the first secret"));
    keep.journal.put(Kind::Sa, 2, b"the third secret").unwrap();
    keep.journal.remove(Kind::Sa, 1).unwrap();
    assert!(!holds(b"the first secret") && !holds(b"the second secret"));
    assert!(holds(b"the third secret"));
}

/// Live records are a small part of all that were ever written.
#[test]
fn a_journal_stays_small_and_keeps_its_order() {
    let memory = Memory::default();
    let mut keep = memory.open();
    for round in 0..40_u64 {
        for id in 0..100_u64 {
            keep.journal.put(Kind::Policy, id, &[u8::try_from(round).unwrap(); 700]).unwrap();
        }
        // The last one comes first from now on.
        keep.journal.remove(Kind::Policy, 99).unwrap();
    }
    assert!(memory.bytes(0).len() < 2 << 20, "{}", memory.bytes(0).len());
    let again = memory.killed().open();
    let ids: Vec<_> = again.past.policies.iter().map(|found| found.id).collect();
    assert_eq!(ids, (0..99).collect::<Vec<_>>());
    assert!(again.past.policies.iter().all(|found| found.message[..] == [39; 700]));
}

#[test]
fn a_journal_of_another_form_is_begun_anew_and_said_to_be_damaged() {
    for at in [0, 8, 16, 40] {
        let memory = Memory::default();
        let mut keep = memory.open();
        assert_eq!(keep.past.earlier, Earlier::None);
        keep.journal.put(Kind::Policy, 1, b"one").unwrap();
        let left = memory.killed();
        left.change(0, |bytes| bytes[at] ^= 1);
        let again = left.open();
        assert_eq!((again.past.earlier, found(&again).len()), (Earlier::Damaged, 0), "byte {at}");
        drop(again);
        assert_eq!(left.open().past.earlier, Earlier::Whole);
    }
}

#[test]
fn damage_within_is_told_from_a_torn_end() {
    let memory = Memory::default();
    let mut keep = memory.open();
    keep.journal.put(Kind::Policy, 1, &[1; 100]).unwrap();
    let first = memory.bytes(0).len();
    keep.journal.put(Kind::Policy, 2, &[2; 100]).unwrap();
    let whole = memory.bytes(0).len();
    for len in first..whole {
        let left = memory.killed();
        left.change(0, |bytes| bytes.truncate(len));
        let keep = left.open();
        assert_eq!((keep.past.earlier, found(&keep).len()), (Earlier::Whole, 1), "{len}");
        assert_eq!(left.bytes(0).len(), first, "cut off");
    }
    for at in first + 16..whole - 12 {
        let left = memory.killed();
        left.change(0, |bytes| bytes[at] ^= 1);
        let keep = left.open();
        assert_eq!((keep.past.earlier, found(&keep).len()), (Earlier::Damaged, 1), "byte {at}");
    }
}

#[test]
fn a_full_file_system_leaves_the_journal_as_it_was() {
    let memory = Memory::default();
    let (mut journal, _) = Journal::open(Box::new(memory::Leaf::journal(&memory))).unwrap();
    journal.put(Kind::Policy, 1, b"one").unwrap();
    memory.fill_up(true);
    assert!(journal.put(Kind::Policy, 2, b"two").is_err());
    assert!(journal.put(Kind::Policy, 1, b"another").is_err());
    memory.fill_up(false);
    journal.put(Kind::Policy, 3, b"three").unwrap();
    let keep = memory.killed().open();
    assert_eq!(found(&keep), [(1, b"one".to_vec()), (3, b"three".to_vec())]);
}

#[test]
fn a_second_gateway_is_refused_also_when_the_lock_file_was_deleted() {
    let Some(folder) = folder() else { return };
    let path = folder.path().join("state");
    let keep = open(&path).unwrap();
    std::fs::remove_file(path.join("lock")).unwrap();
    assert!(matches!(open(&path), Err(KeepError::InUse(_))));
    drop(keep);
    open(&path).unwrap();
}

/// Change made to a folder under a running gateway.
type Damage = fn(&Path);

/// Seen before: what was granted and written to files without names was found by no later life.
#[test]
fn a_folder_that_is_emptied_or_replaced_takes_nothing_more_and_it_is_said() {
    let damages: [(Damage, &str); 3] = [
        (
            |path| {
                for entry in std::fs::read_dir(path).unwrap() {
                    std::fs::remove_file(entry.unwrap().path()).unwrap();
                }
            },
            "is gone",
        ),
        (
            |path| {
                std::fs::rename(path, path.with_extension("aside")).unwrap();
                std::fs::create_dir(path).unwrap();
            },
            "another folder is in the place of",
        ),
        (
            |path| {
                std::fs::rename(path.join("numbers"), path.join("aside")).unwrap();
                std::fs::copy(path.join("aside"), path.join("numbers")).unwrap();
            },
            "another file is in the place of numbers",
        ),
    ];
    for (damage, text) in damages {
        let Some(folder) = folder() else { return };
        let path = folder.path().join("state");
        let keep = open(&path).unwrap();
        let admit = || {
            let (key, way) = (crate::lease::RecordId::from_bytes([7; 32]), Numbering::Inbound);
            keep.keeper.admit(Admission { key, counters: Arc::default(), way }, None)
        };
        admit().unwrap();
        damage(&path);
        // The last look holds for some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(6));
        let error = admit().unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("restart the gateway"), "{error}");
        // The thread that writes numbers finds it by itself, and stays with it.
        while keep.keeper.failure().is_none() {
            std::thread::yield_now();
        }
    }
}
