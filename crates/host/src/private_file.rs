//! Files that their owner alone can read.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use nix::fcntl::OFlag;

/// Its owner alone reads and writes it: it holds keys, or packets in clear.
const MODE: u32 = 0o600;

/// Makes a file that no other user can read, for keys or for packets in clear.
///
/// A file of this user is emptied. A file that others could read, because it is theirs or has other
/// names, is removed and made again. A link is not followed. A pipe or a device, as `/dev/null`, is
/// written to as it is, and must be this user's or root's.
///
/// # Errors
/// The system's, and an error that says why for a link, a folder, or a pipe of another user.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(MODE).custom_flags(OFlag::O_NOFOLLOW.bits());
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(there) if there.is_symlink() => {
            return Err(refused(&there, "it is a link, which is not followed"));
        }
        Ok(there) if !there.is_file() => return special(&options, path, &there),
        Ok(there) if is_private(&there) => {
            let file = options.open(path)?;
            let opened = file.metadata()?;
            if !opened.is_file() || !is_private(&opened) {
                return Err(refused(&opened, "another process created it just now"));
            }
            file.set_permissions(Permissions::from_mode(MODE))?;
            file.set_len(0)?;
            return Ok(file);
        }
        Ok(there) => {
            let failed = |_| refused(&there, "other users could read it, and it cannot be removed");
            std::fs::remove_file(path).map_err(failed)?;
        }
    }
    options.create_new(true).open(path)
}

fn effective_user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// True if no other user has a file, by another name or as its owner.
fn is_private(file: &Metadata) -> bool {
    file.uid() == effective_user() && file.nlink() == 1
}

/// Opens what is no file. It keeps its mode.
fn special(options: &OpenOptions, path: &Path, there: &Metadata) -> io::Result<File> {
    let is_right = |meta: &Metadata| {
        let kind = meta.file_type();
        (kind.is_fifo() || kind.is_char_device()) && [0, effective_user()].contains(&meta.uid())
    };
    if !is_right(there) {
        return Err(refused(there, "it is not a regular file"));
    }
    let file = options.open(path)?;
    let opened = file.metadata()?;
    match is_right(&opened) {
        true => Ok(file),
        false => Err(refused(&opened, "it is not a regular file")),
    }
}

/// Error that says why, and what would be right; who calls names the path.
fn refused(there: &Metadata, why: &str) -> io::Error {
    let (owner, mode) = (there.uid(), there.mode() & 0o7777);
    io::Error::other(format!(
        "{why} (owner {owner}, mode {mode:04o}): remove it, or name another file"
    ))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn said(path: &Path) -> String {
        create_private_file(path).unwrap_err().to_string()
    }

    #[test]
    fn a_new_file_and_an_own_one_are_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        create_private_file(&path).unwrap();
        assert_eq!(mode(&path), MODE);
        std::fs::write(&path, "of before").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        create_private_file(&path).unwrap();
        assert_eq!((mode(&path), std::fs::read(&path).unwrap()), (MODE, Vec::new()));
    }

    #[test]
    fn a_link_is_not_followed_wherever_it_leads() {
        let folder = tempfile::tempdir().unwrap();
        let [target, link, nothing] =
            ["target", "link", "nothing"].map(|name| folder.path().join(name));
        std::fs::write(&target, "of others").unwrap();
        for to in [&target, &nothing] {
            symlink(to, &link).unwrap();
            let said = said(&link);
            assert!(said.starts_with("it is a link, which is not followed (owner "), "{said}");
            assert!(said.ends_with("mode 0777): remove it, or name another file"), "{said}");
            std::fs::remove_file(&link).unwrap();
        }
        assert!(!nothing.exists());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "of others");
    }

    #[test]
    fn a_file_that_others_could_read_is_replaced_and_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        std::fs::write(&first, "of others").unwrap();
        std::fs::hard_link(&first, &second).unwrap();
        create_private_file(&second).unwrap();
        assert_eq!(std::fs::read_to_string(&first).unwrap(), "of others");
        assert_eq!((mode(&second), std::fs::read(&second).unwrap()), (MODE, Vec::new()));
        if effective_user() != 0 {
            return println!("SKIPPED in part: only root can give files away");
        }
        chown(&first, Some(54_321), None).unwrap();
        // Who has it open since before reads nothing new.
        let mut theirs = File::open(&first).unwrap();
        io::Write::write_all(&mut create_private_file(&first).unwrap(), b"in clear").unwrap();
        let there = std::fs::metadata(&first).unwrap();
        assert_eq!((there.uid(), there.mode() & 0o7777), (0, MODE));
        let mut text = String::new();
        theirs.read_to_string(&mut text).unwrap();
        assert_eq!(text, "of others");
    }

    #[test]
    fn what_is_no_file_must_be_the_own_users_or_roots() {
        let folder = tempfile::tempdir().unwrap();
        assert!(said(folder.path()).starts_with("it is not a regular file (owner "));
        create_private_file(Path::new("/dev/null")).unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Both ends open at once.
        let _end = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        create_private_file(&pipe).unwrap();
        if effective_user() != 0 {
            return println!("SKIPPED in part: only root can give pipes away");
        }
        chown(&pipe, Some(54_321), None).unwrap();
        assert!(
            said(&pipe).starts_with("it is not a regular file (owner 54321, mode 0700): remove it")
        );
    }
}
