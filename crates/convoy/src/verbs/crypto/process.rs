//! `convoy crypto --pid`: whether a running process uses the OpenSSL provider, and whether it counts.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use convoy_openssl::stats::{Counts, VARIABLE};
use nix::unistd::Uid;
use serde::Serialize;

use super::provider::{Access, name_of};
use crate::exit::{Exit, Stop};
use crate::output;
use crate::verbs::openssl_conf::{self, module};

/// Suffix that the kernel puts behind the name of a file that is not there any more.
const DELETED: &[u8] = b" (deleted)";

/// File that OpenSSL reads where nothing says otherwise, as distributions have it.
const OPENSSL_CONF: &str = "/etc/ssl/openssl.cnf";

/// More than a file of counters has.
const COUNTERS_MAX: u64 = 1 << 16;

#[derive(Serialize)]
struct Report {
    pid: u32,
    /// The program, as the kernel calls it.
    name: String,
    user: String,
    /// The provider's library, if it is loaded.
    library: Option<PathBuf>,
    /// The library was replaced since: a restart loads the new one.
    library_is_replaced: bool,
    /// The file that it counts in.
    counts_in: Option<PathBuf>,
    /// The file that its configuration names.
    configured: Option<PathBuf>,
    is_good: bool,
    /// Findings, and what would be right.
    says: Vec<String>,
}

/// Judges a process; `file` is where it should count, if that is known.
pub(super) fn run(pid: u32, file: Option<&Path>, is_json: bool) -> anyhow::Result<Exit> {
    let file = file.map(std::path::absolute).transpose()?;
    let report = look(Path::new("/proc"), pid, file)?;
    if is_json {
        output::json(&report)?;
    } else {
        output::print(&report.to_string())?;
    }
    Ok(if report.is_good { Exit::Ok } else { Exit::Trouble })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "process {} ({}) of {}:", self.pid, self.name, self.user)?;
        self.says.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

fn look(proc: &Path, pid: u32, file: Option<PathBuf>) -> anyhow::Result<Report> {
    let folder = proc.join(pid.to_string());
    let fault = |error: io::Error| match error.kind() {
        ErrorKind::PermissionDenied => Stop {
            message: format!(
                "process {pid} belongs to another user and cannot be read: ask as root"
            ),
            exit: Exit::NoGateway,
        }
        .into(),
        _ => Stop::usage(format!("there is no process {pid} (or it has just ended): {error}")),
    };
    let maps = fs::read(folder.join("maps")).map_err(fault)?;
    if maps.is_empty() {
        let what = format!("process {pid} is a thread of the kernel, or has ended");
        return Err(Stop::usage(what));
    }
    let name = fs::read_to_string(folder.join("comm")).map_err(fault)?.trim_end().to_owned();
    let process = Process {
        root: folder.join("root"),
        environment: Environment::of(&folder),
        uid: uid(&folder),
    };
    let mappings: Vec<_> = maps.split(|byte| *byte == b'\n').filter_map(Mapping::parse).collect();
    let library = mappings.iter().find(|it| it.is_provider(&process.root));
    let counts = mappings.iter().find(|it| it.is_counters(&process.root));
    let mut report = Report {
        pid,
        name,
        user: process.uid.map_or_else(|| "an unknown user".to_owned(), name_of),
        library: library.map(|it| it.path.clone()),
        library_is_replaced: library.is_some_and(|it| it.is_deleted),
        counts_in: counts.map(|it| it.path.clone()),
        configured: file.or_else(|| process.configured()),
        is_good: false,
        says: Vec::new(),
    };
    if library.is_none() {
        report.says = process.why_not_loaded(&mappings);
        return Ok(report);
    }
    process.judge(&mut report, counts);
    Ok(report)
}

/// Properties of a process beside its mappings.
struct Process {
    /// Its `/`, as it sees it.
    root: PathBuf,
    environment: Option<Environment>,
    uid: Option<Uid>,
}

impl Process {
    fn within(&self, path: &Path) -> PathBuf {
        within(&self.root, path)
    }

    fn variable(&self, name: &str) -> Option<PathBuf> {
        let value = self.environment.as_ref()?.get(name)?;
        (!value.as_os_str().is_empty()).then_some(value)
    }

    /// The file of counters that its configuration names, or else its environment.
    fn configured(&self) -> Option<PathBuf> {
        let conf = self.variable("OPENSSL_CONF").unwrap_or_else(|| PathBuf::from(OPENSSL_CONF));
        let conf = openssl_conf::stats(&self.within(&conf));
        conf.or_else(|| self.variable(VARIABLE))
    }

    fn why_not_loaded(&self, mappings: &[Mapping]) -> Vec<String> {
        let mut says = vec!["does not use Convoy: the provider's library is not loaded".to_owned()];
        let has_libcrypto = mappings.iter().any(|it| {
            it.path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libcrypto.so"))
        });
        if !has_libcrypto {
            says.push(
                "It has not loaded libcrypto.so: it does not use OpenSSL, has not begun to, or is linked with \
                 it statically."
                    .to_owned(),
            );
        }
        says.push(match (&self.environment, self.variable("OPENSSL_CONF")) {
            (None, _) => "Its environment cannot be read.".to_owned(),
            (_, None) => "Its environment has no OPENSSL_CONF: restart it with OPENSSL_CONF=FILE, where FILE is what \
                          `convoy openssl-conf` printed (docs/tls.md has what that takes, program by program)."
                .to_owned(),
            (_, Some(conf)) if !self.within(&conf).exists() => {
                format!("Its OPENSSL_CONF is {}, which does not exist.", conf.display())
            }
            (_, Some(conf)) => format!(
                "Its OPENSSL_CONF is {0}: `convoy openssl-conf --check {0}` checks it. The process may also \
                 have been started before that file was written, may not have used OpenSSL yet, or ignores the \
                 variable because it has rights that its caller lacks.",
                conf.display()
            ),
        });
        says
    }

    fn judge(&self, report: &mut Report, counts: Option<&Mapping>) {
        let library = report.library.iter().map(|it| it.display().to_string()).collect::<String>();
        let since = match report.library_is_replaced {
            true => ", and was replaced since; a restart loads the new one",
            false => "",
        };
        report.says.push(format!("uses Convoy: {library} is loaded{since}"));
        let (good, line) = match (counts, &report.configured) {
            (Some(counts), _) if counts.is_deleted => (
                false,
                format!(
                    "It counts in {}, which was removed or replaced since: restart it to count in a new one.",
                    counts.path.display()
                ),
            ),
            (Some(counts), _) => (true, self.counted(&counts.path)),
            (None, None) if self.environment.is_none() => (
                false,
                "It counts nothing. Whether it should cannot be seen, as its environment is hidden or written over: \
                 name the file with --provider-stats, too."
                    .to_owned(),
            ),
            (None, None) => (true, "It counts nothing: no `stats` was configured.".to_owned()),
            (None, Some(file)) => (false, self.why_not_counting(file)),
        };
        report.is_good = good;
        report.says.push(line);
    }

    fn counted(&self, file: &Path) -> String {
        use convoy_openssl::stats::Counter::{
            MessagesOpened, MessagesSealed, RecordsOpened, RecordsSealed,
        };
        let sum = Counts::read(&self.within(file)).map(|counts| {
            let all = [RecordsSealed, RecordsOpened, MessagesSealed, MessagesOpened];
            all.map(|counter| counts.get(counter)).iter().sum::<u64>()
        });
        let sum = sum.map_or_else(|error| error.to_string(), |sum| sum.to_string());
        format!(
            "It counts in {}: {sum} records and messages by all that count there.",
            file.display()
        )
    }

    fn why_not_counting(&self, file: &Path) -> String {
        let name = file.display();
        let user = self.uid.map_or_else(|| "its user".to_owned(), name_of);
        match Access::of(&self.within(file)) {
            Ok(access) => format!(
                "It counts nothing, though {name} is configured: it could not open that file when it loaded the \
                 provider. It runs as {user}. {access} Give the file to the user that the process has by then \
                 (chown), and restart it."
            ),
            Err(error) => format!(
                "It counts nothing, though {name} is configured ({error}): it could not make that file when it loaded \
                 the provider. It runs as {user}. `convoy crypto --provider-stats {name} --create --owner USER` makes \
                 one for the user that the process has by then; then restart it."
            ),
        }
    }
}

/// A path as another process sees it.
fn within(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// A mapped file, as a line of `/proc/PID/maps` has it.
struct Mapping {
    path: PathBuf,
    bytes: u64,
    is_deleted: bool,
    is_executable: bool,
    is_shared_and_written: bool,
}

impl Mapping {
    /// Nothing for memory that is no file.
    fn parse(line: &[u8]) -> Option<Self> {
        // Range, rights, offset, device, inode; blanks; the path.
        let start = line.iter().position(|byte| *byte == b'/')?;
        let mut words = line.split(|byte| *byte == b' ');
        let range = std::str::from_utf8(words.next()?).ok()?.split_once('-')?;
        let place = |word| u64::from_str_radix(word, 16).ok();
        let bytes = place(range.1)?.checked_sub(place(range.0)?)?;
        let rights = words.next()?;
        let path = &line[start..];
        let (path, is_deleted) = match path.strip_suffix(DELETED) {
            Some(path) => (path, true),
            None => (path, false),
        };
        Some(Self {
            path: OsString::from_vec(unescaped(path)).into(),
            bytes,
            is_deleted,
            is_executable: rights.contains(&b'x'),
            is_shared_and_written: rights.starts_with(b"rw") && rights.ends_with(b"s"),
        })
    }

    /// By its name, or by what is in it: it may have another name.
    fn is_provider(&self, root: &Path) -> bool {
        self.path.file_name().is_some_and(|name| name == module::NAME)
            || (self.is_executable
                && !self.is_deleted
                && module::is_provider(&within(root, &self.path)))
    }

    fn is_counters(&self, root: &Path) -> bool {
        // What was removed cannot be read any more. Memory without a file has such names, too.
        let is_file = |name: &&str| !self.path.as_os_str().as_bytes().starts_with(name.as_bytes());
        let looks_like_it =
            || self.bytes <= COUNTERS_MAX && ["/dev/zero", "/memfd:", "/SYSV"].iter().all(is_file);
        self.is_shared_and_written
            && match self.is_deleted {
                true => looks_like_it(),
                false => Counts::read(&within(root, &self.path)).is_ok(),
            }
    }
}

/// A path as the kernel writes it there: a line's end is `\012`.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = path;
    while let [first, behind @ ..] = rest {
        if let Some(behind) = rest.strip_prefix(b"\\012") {
            plain.push(b'\n');
            rest = behind;
        } else {
            plain.push(*first);
            rest = behind;
        }
    }
    plain
}

/// The variables that a process was started with.
struct Environment(Vec<u8>);

impl Environment {
    /// Nothing if it is not to be seen, or if the process has written its title over it.
    fn of(folder: &Path) -> Option<Self> {
        let text = fs::read(folder.join("environ")).ok()?;
        let is_variable =
            |text: &[u8]| text.is_empty() || text.iter().skip(1).any(|it| *it == b'=');
        let is_whole = text.first() != Some(&0) && text.split(|it| *it == 0).all(is_variable);
        is_whole.then_some(Self(text))
    }

    fn get(&self, name: &str) -> Option<PathBuf> {
        let value = self
            .0
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(OsString::from_vec(value.to_vec()).into())
    }
}

/// The effective user.
fn uid(folder: &Path) -> Option<Uid> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    Some(Uid::from_raw(line.split_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "7f00-9f00 rw-s 00000000 00:1b 1234                       ";

    fn mapping(line: &str) -> Option<Mapping> {
        Mapping::parse(line.as_bytes())
    }

    #[test]
    fn lines_of_mappings_are_read() {
        let found = mapping(&format!("{LINE}/run/a b\\012c (deleted)")).unwrap();
        assert_eq!(found.path, Path::new("/run/a b\nc"));
        assert!(found.is_deleted && found.is_shared_and_written && !found.is_executable);
        assert_eq!(found.bytes, 0x2000);
        assert!(found.is_counters(Path::new("/")), "it may have been one");
        let library =
            mapping("7f00-8f00 r-xp 00000000 08:01 5  /usr/lib/libconvoy_openssl.so (deleted)");
        assert!(library.unwrap().is_provider(Path::new("/")));
        for memory in
            ["/dev/zero (deleted)", "/memfd:x (deleted)", "/SYSV00000000 (deleted)", "/not/there"]
        {
            let memory = mapping(&format!("{LINE}{memory}")).unwrap();
            assert!(!memory.is_counters(Path::new("/")) && !memory.is_provider(Path::new("/")));
        }
        assert!(mapping("7f00-8f00 rw-p 00000000 00:00 0").is_none());
        assert!(mapping("7f00-8f00 rw-p 00000000 00:00 0      [heap]").is_none());
    }

    #[test]
    fn an_environment_that_was_written_over_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            fs::write(folder.path().join("environ"), text).unwrap();
            Environment::of(folder.path())
        };
        let environment = of("A=1\0OPENSSL_CONF=/a b\0").unwrap();
        assert_eq!(environment.get("OPENSSL_CONF"), Some(PathBuf::from("/a b")));
        assert_eq!(environment.get("OPENSSL"), None);
        assert!(of("process /usr/sbin/nginx\0\0\0").is_none());
        assert!(of("\0\0\0A=1\0").is_none());
    }

    #[test]
    fn what_is_no_process_is_told() {
        let error = look(Path::new("/proc"), u32::MAX, None).err().unwrap().to_string();
        assert!(error.contains("there is no process 4294967295"), "{error}");
        // The first thread of the kernel maps nothing. In a namespace of its own there is none.
        if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
            let error = look(Path::new("/proc"), 2, None).err().unwrap().to_string();
            assert!(error.contains("thread of the kernel"), "{error}");
        }
    }
}
