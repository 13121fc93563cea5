//! Check for other users who can change what a path leads to: folders of sockets, locks and records must be
//! the gateway's own.
//!
//! A name in a folder that others can write to can be theirs before it is ours, also where the sticky bit keeps
//! them from removing ours. So nobody but its owner writes to a folder. Of the folders above, others may write to those
//! that are sticky, as `/tmp`: they cannot rename what is not theirs. An owner who is neither root nor this process's
//! user is told of, no more: only root can serve there, and whoever names a user's folder to root trusts that user.

use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

/// The mode of folders that are made here, less the umask. What is in them has modes of its own.
const MODE: u32 = 0o755;
const STICKY: u32 = 0o1000;
const OF_GROUP: u32 = 0o020;
const OF_OTHERS: u32 = 0o002;
/// Links that one path may go through (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Makes a folder, and those above it, to which nobody else can write whatever the umask is. One that is there is left
/// as it is.
///
/// # Errors
/// As of mkdir(2).
pub fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE).create(folder)
}

/// A folder, or a link on the way to one, by which other users can change what a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    path: PathBuf,
    owner: u32,
    group: u32,
    mode: u32,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// They write to the folder itself.
    Written,
    /// It belongs to one of them.
    Owned,
    /// They can rename what is in a folder above.
    Above,
    /// A folder above belongs to one of them.
    OwnedAbove,
    /// A link on the way belongs to one of them.
    Link,
    /// They write to the file that the path leads to.
    FileWritten,
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, owner, group, mode, how } = self;
        let path = path.display();
        match how {
            How::Written => write!(f, "other users can write to folder {path}")?,
            How::Owned => write!(f, "folder {path} belongs to another user")?,
            How::Above => write!(f, "other users can rename what is in folder {path}")?,
            How::OwnedAbove => write!(f, "another user can rename what is in folder {path}")?,
            How::Link => write!(f, "the link {path} belongs to another user")?,
            How::FileWritten => write!(f, "other users can write to file {path}")?,
        }
        write!(f, " (owner {owner}, group {group}, mode {mode:04o})")
    }
}

impl Open {
    /// Advice on a better folder or mode.
    #[must_use]
    pub fn help(&self) -> String {
        let path = self.path.display();
        let own =
            "name one in a folder that only the gateway's user can write to, such as /run/convoy";
        match self.how {
            // It serves others.
            How::Written | How::Above
                if self.mode & STICKY != 0 || self.owner != effective_user() =>
            {
                own.to_owned()
            }
            How::Written | How::Above => format!("chmod go-w {path}, or {own}"),
            How::FileWritten => format!("chmod go-w {path}"),
            How::Owned | How::OwnedAbove | How::Link => own.to_owned(),
        }
    }

    /// The file or folder that others can change.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Advice of the same kind about a file that is read.
    #[must_use]
    pub fn help_for_file(&self) -> String {
        match self.how {
            How::FileWritten | How::Above if self.owner == effective_user() => {
                format!("chmod go-w {}", self.path.display())
            }
            _ => "put it into a folder that only the gateway's user can write to, such as /etc/convoy".to_owned(),
        }
    }

    /// True if it is for a warning alone: the owner of a folder can change it, as a user whose home root's files are
    /// in, and no other user can.
    #[must_use]
    pub fn is_doubtful_only(&self) -> bool {
        matches!(self.how, How::Owned | How::OwnedAbove)
    }

    /// True if it is of the folder itself, and not of one above.
    pub(crate) fn is_of_itself(&self) -> bool {
        matches!(self.how, How::Written | How::Owned)
    }
}

/// Finds what other users can change of a folder and of those above it. What is not there, or cannot be looked
/// at, is left to whoever uses it.
pub(crate) fn look(folder: &Path) -> Vec<Open> {
    walk(folder, &Users::read(), true)
}

/// The same of the folders above alone.
pub(crate) fn look_above(folder: &Path) -> Vec<Open> {
    walk(folder, &Users::read(), false)
}

/// Finds the first thing by which others than its owner can change a file: its mode, or that of a folder above it.
pub(crate) fn look_at_file(file: &Path) -> Option<Open> {
    let found = walk(file, &Users::read(), true).into_iter();
    let of_file = |open: Open| match open.how {
        How::Written => Open { how: How::FileWritten, ..open },
        _ => open,
    };
    found.filter(|open| !open.is_doubtful_only()).map(of_file).next()
}

fn walk(folder: &Path, users: &Users, and_itself: bool) -> Vec<Open> {
    let Ok(whole) = std::path::absolute(folder) else { return Vec::new() };
    let (mut at, mut links, mut found) = (PathBuf::from("/"), 0, Vec::new());
    let mut rest = names(&whole);
    let note = |path: &Path, meta: &Metadata, how: Option<How>| {
        how.map(|how| Open {
            path: path.to_owned(),
            owner: meta.uid(),
            group: meta.gid(),
            mode: meta.mode() & 0o7777,
            how,
        })
    };
    if let (false, Ok(meta)) = (rest.is_empty(), std::fs::symlink_metadata(&at)) {
        found.extend(note(&at, &meta, users.above(&at, &meta)));
    }
    while let Some(name) = rest.pop() {
        if name == ".." {
            at.pop();
            // Where the path ends there, it is the folder itself.
            let Some(last) = at.file_name().filter(|_| rest.is_empty()) else { continue };
            rest.push(last.to_owned());
            at.pop();
            continue;
        }
        let next = at.join(name);
        let Ok(meta) = std::fs::symlink_metadata(&next) else { break };
        if meta.is_symlink() {
            links += 1;
            let Ok(target) = std::fs::read_link(&next) else { break };
            if links > LINKS_MAX {
                break;
            }
            // Whoever owns the folder it is in can change it anyway.
            let is_own = users.is_own(meta.uid()) || owner_of(&at) == Some(meta.uid());
            found.extend(note(&next, &meta, (!is_own).then_some(How::Link)));
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            rest.extend(names(&target));
            continue;
        }
        let how = match rest.is_empty() {
            false => users.above(&next, &meta),
            true if and_itself => users.itself(&next, &meta),
            true => None,
        };
        found.extend(note(&next, &meta, how));
        at = next;
    }
    found
}

fn owner_of(folder: &Path) -> Option<u32> {
    std::fs::symlink_metadata(folder).ok().map(|meta| meta.uid())
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

fn effective_user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Users that count as this process's own, and groups that have nobody else.
struct Users {
    own: u32,
    /// A user that stands for all whom this user namespace does not know, root of the host among them.
    unknown: Option<u32>,
    passwd: String,
    group: String,
}

impl Users {
    fn read() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let is_first = read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
        let unknown = read("/proc/sys/kernel/overflowuid").trim().parse().ok();
        Self {
            own: effective_user(),
            unknown: unknown.filter(|_| !is_first),
            passwd: read("/etc/passwd"),
            group: read("/etc/group"),
        }
    }

    fn is_own(&self, user: u32) -> bool {
        user == 0 || user == self.own || Some(user) == self.unknown
    }

    fn itself(&self, path: &Path, meta: &Metadata) -> Option<How> {
        if self.is_written(path, meta) {
            return Some(How::Written);
        }
        (!self.is_own(meta.uid())).then_some(How::Owned)
    }

    fn above(&self, path: &Path, meta: &Metadata) -> Option<How> {
        if meta.mode() & STICKY == 0 && self.is_written(path, meta) {
            return Some(How::Above);
        }
        (!self.is_own(meta.uid())).then_some(How::OwnedAbove)
    }

    /// True if anybody but its owner can write to a folder or a file.
    fn is_written(&self, path: &Path, meta: &Metadata) -> bool {
        let by_group = meta.mode() & OF_GROUP != 0;
        // With a list, the group's bits are the most that anybody on it may do.
        let is_listed = || {
            let list = rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 1]);
            list.is_ok() || list == Err(rustix::io::Errno::RANGE)
        };
        meta.mode() & OF_OTHERS != 0
            || by_group && (!self.is_alone(meta.gid(), meta.uid()) || is_listed())
    }

    /// True if a group has no member but root, the own user and the folder's owner: that of root, a user's private
    /// group, and others that `/etc/passwd` and `/etc/group` give nobody else.
    fn is_alone(&self, group: u32, owner: u32) -> bool {
        let is_known = |user: u32| user == owner || self.is_own(user);
        if group == 0 {
            return true;
        }
        let user = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            let user: u32 = fields.nth(1)?.parse().ok()?;
            Some((name, user, fields.next()?.parse::<u32>().ok()?))
        };
        let users: Vec<_> = self.passwd.lines().filter_map(user).collect();
        if users.iter().any(|(_, user, its)| *its == group && !is_known(*user)) {
            return false;
        }
        let number = group.to_string();
        let entry = self.group.lines().find(|line| line.split(':').nth(2) == Some(&number));
        // One that is not listed, as in a container, has the number of its only user.
        let Some(entry) = entry else { return [self.own, owner].contains(&group) };
        let members = entry.split(':').nth(3).unwrap_or_default().split(',');
        members
            .filter(|member| !member.is_empty())
            .all(|member| users.iter().any(|(name, user, _)| name == member && is_known(*user)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn how(path: &Path) -> Vec<How> {
        look(path).into_iter().map(|open| open.how).collect()
    }

    fn below(folder: &tempfile::TempDir) -> PathBuf {
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        inner
    }

    #[test]
    fn what_only_the_own_user_and_root_write_to_is_good() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o700, 0o750, 0o755, 0o1755] {
            set(folder.path(), mode);
            assert_eq!(how(folder.path()), []);
        }
        assert_eq!(how(&folder.path().join("not/there")), []);
        assert_eq!(how(Path::new("/")), []);
    }

    #[test]
    fn what_others_write_to_is_told_also_where_it_is_sticky() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o1777, 0o702] {
            set(folder.path(), mode);
            assert_eq!(how(folder.path()), [How::Written], "{mode:o}");
        }
        let told = look(folder.path()).remove(0);
        let (path, own) = (folder.path().display(), effective_user());
        let group = nix::unistd::getegid();
        let right = format!(
            "other users can write to folder {path} (owner {own}, group {group}, mode 0702)"
        );
        assert_eq!(told.to_string(), right);
        assert!(told.help().starts_with(&format!("chmod go-w {path}, or ")), "{}", told.help());
        assert!(!look(Path::new("/tmp")).iter().any(|open| open.help().contains("chmod")));
    }

    #[test]
    fn of_folders_above_only_those_count_in_which_others_can_rename() {
        let folder = tempfile::tempdir().unwrap();
        let inner = below(&folder);
        set(folder.path(), 0o1777);
        assert_eq!(how(&inner), []);
        set(folder.path(), 0o777);
        assert_eq!(how(&inner), [How::Above]);
        assert_eq!(look_above(&inner).len(), 1);
        // Also when they are gone through by a link, or by dots.
        let other = tempfile::tempdir().unwrap();
        let link = other.path().join("link");
        symlink(folder.path(), &link).unwrap();
        assert_eq!(how(&link.join("inner")), [How::Above]);
        assert_eq!(how(&inner.join("../inner")), [How::Above]);
        assert_eq!(how(&inner.join("..")), [How::Above, How::Written]);
        symlink("loop", other.path().join("loop")).unwrap();
        assert_eq!(how(&other.path().join("loop/inner")), []);
    }

    #[test]
    fn what_belongs_to_another_user_is_told() {
        if effective_user() != 0 {
            return println!("SKIPPED: only root can give folders away");
        }
        let folder = tempfile::tempdir().unwrap();
        let inner = below(&folder);
        chown(folder.path(), Some(54_321), None).unwrap();
        // As in a user's home: whoever is root there trusts that user, and nobody else.
        for (path, right) in [(folder.path(), How::Owned), (&inner, How::OwnedAbove)] {
            let told = look(path);
            assert!(told.len() == 1 && told[0].is_doubtful_only(), "{told:?}");
            assert_eq!((told[0].how, told[0].is_of_itself()), (right, right == How::Owned));
        }
        set(folder.path(), 0o777);
        assert_eq!(how(folder.path()), [How::Written]);
        assert_eq!(how(&inner), [How::Above]);
        assert!(!look(&inner)[0].is_doubtful_only());
        set(folder.path(), 0o755);
        let link = inner.join("link");
        symlink("/run", &link).unwrap();
        chown(folder.path(), Some(0), None).unwrap();
        assert_eq!(how(&link), []);
        std::os::unix::fs::lchown(&link, Some(54_321), None).unwrap();
        assert_eq!(how(&link), [How::Link]);
        assert!(!look(&link)[0].is_doubtful_only());
        chown(&inner, Some(54_321), None).unwrap();
        assert_eq!(how(&link), [How::OwnedAbove]);
        chown(&inner, Some(0), None).unwrap();
        // Whoever is not known in a user namespace may be root of the host.
        let users = Users { unknown: Some(54_321), ..Users::read() };
        assert_eq!(walk(&link, &users, true), []);
    }

    #[test]
    fn groups_are_good_as_far_as_nobody_else_is_in_them() {
        let users = |own| {
            Users {
            own,
            unknown: None,
            passwd: "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbob:x:1001:100::/:/bin/sh\n".into(),
            group: "root:x:0:\nusers:x:100:\nann:x:1000:\nadm:x:4:root,ann\nstaff:x:50:\nnet:x:60:ann,bob\n".into(),
        }
        };
        for (own, owner, group, is_good) in [
            (1000, 1000, 0, true),
            (1000, 1000, 1000, true),
            (0, 0, 1000, false),
            // A folder in a user's home, where root serves.
            (0, 1000, 1000, true),
            (0, 1000, 60, false),
            (1000, 1000, 100, false),
            (1001, 1001, 100, true),
            (1000, 0, 4, true),
            (0, 0, 4, false),
            (0, 0, 50, true),
            (1000, 1000, 60, false),
            // Not listed.
            (5000, 5000, 5000, true),
            (0, 5000, 5000, true),
            (1000, 1000, 5000, false),
        ] {
            assert_eq!(users(own).is_alone(group, owner), is_good, "{own} {owner} {group}");
        }
    }

    #[test]
    fn a_list_of_users_who_may_write_counts() {
        let folder = tempfile::tempdir().unwrap();
        set(folder.path(), 0o770);
        let alone = Users { group: String::new(), passwd: String::new(), ..Users::read() };
        let own_group = nix::unistd::getegid().as_raw() == alone.own;
        if !own_group {
            return println!("SKIPPED: the own group has another number than the user");
        }
        assert_eq!(walk(folder.path(), &alone, true), []);
        // user::rwx user:54321:rwx group::r-x mask::rwx other::--- (acl(5), linux/posix_acl_xattr.h).
        let entries: [(u16, u16, u32); 5] = [
            (1, 7, u32::MAX),
            (2, 7, 54_321),
            (4, 5, u32::MAX),
            (16, 7, u32::MAX),
            (32, 0, u32::MAX),
        ];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, may, who) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(may.to_le_bytes());
            list.extend(who.to_le_bytes());
        }
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(folder.path(), "system.posix_acl_access", &list, flags) {
            Ok(()) => assert_eq!(how(folder.path()), [How::Written]),
            Err(error) => println!("SKIPPED: no lists of users here: {error}"),
        }
    }

    #[test]
    fn folders_are_made_for_nobody_else_to_write_to() {
        let folder = tempfile::tempdir().unwrap();
        // A thread with a umask of its own.
        let make = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).unwrap();
            nix::sys::stat::umask(nix::sys::stat::Mode::empty());
            make(&folder.path().join("a/b"))
        };
        let made = std::thread::scope(|scope| scope.spawn(make).join().unwrap());
        made.unwrap();
        for made in ["a", "a/b"] {
            let mode = std::fs::metadata(folder.path().join(made)).unwrap().mode();
            assert_eq!(mode & 0o7777, MODE);
        }
    }
}
