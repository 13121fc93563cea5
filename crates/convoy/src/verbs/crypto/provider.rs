//! `convoy crypto --provider-stats`: what the OpenSSL provider did, and who may count in its file.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use convoy_openssl::stats::{Counter, Counts};
use nix::unistd::{Uid, User};
use serde_json::{Map, Value};

use crate::exit::{Exit, Stop};
use crate::output;

pub(super) fn run(file: &Path, is_json: bool) -> anyhow::Result<Exit> {
    let counts = Counts::read(file).map_err(|error| Stop::usage(why_not(file, &error)))?;
    if is_json {
        let entry =
            |counter: Counter| (counter.name().to_owned(), Value::from(counts.get(counter)));
        output::json(&Counter::ALL.into_iter().map(entry).collect::<Map<_, _>>())?;
    } else {
        let row = |counter: Counter| {
            vec![
                counter.name().to_owned(),
                counts.get(counter).to_string(),
                counter.about().to_owned(),
            ]
        };
        let heading = ["counter", "count", "of"].map(str::to_owned).to_vec();
        let rows: Vec<_> = std::iter::once(heading).chain(Counter::ALL.map(row)).collect();
        let who = Access::of(file).map_or_else(|_| String::new(), |access| format!("\n{access}\n"));
        output::print(&format!("{}{who}", output::table(&rows)))?;
    }
    Ok(Exit::Ok)
}

/// Reason for the lack of counts, and what would be right.
fn why_not(file: &Path, error: &io::Error) -> String {
    let name = file.display();
    match Access::of(file) {
        Ok(access) if access.bytes == 0 => {
            format!(
                "{name} is empty: no process that may write it has loaded the provider yet. {access}"
            )
        }
        Ok(access) => format!("{name}: {error}. {access}"),
        Err(_) => format!(
            "{name}: {error}; the provider makes it where `stats` of its section in OpenSSL's \
             configuration, or CONVOY_PROVIDER_STATS, says so, if its process may write into that folder; \
             --create --owner USER makes one that the processes of USER may write"
        ),
    }
}

/// Makes an empty file, which the first process that loads the provider fills.
pub(super) fn create(file: &Path, owner: Option<&str>) -> anyhow::Result<Exit> {
    let owner = owner.map(user).transpose().map_err(Stop::usage)?;
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(file);
    let made = made.map_err(|error| {
        let access =
            Access::of(file).map_or_else(|_| String::new(), |access| format!(". {access}"));
        Stop::usage(format!("{}: {error}{access}", file.display()))
    })?;
    if let Some(owner) = owner
        && let Err(error) = fchown(&made, Some(owner.as_raw()), None)
    {
        fs::remove_file(file)?;
        let what = format!("{}: cannot be given to {}: {error}", file.display(), name_of(owner));
        return Err(Stop { message: what, exit: Exit::Trouble }.into());
    }
    output::print(&format!("{}: made. {}\n", file.display(), Access::of(file)?))?;
    Ok(Exit::Ok)
}

/// A user by name or number.
fn user(word: &str) -> Result<Uid, String> {
    if let Ok(number) = word.parse() {
        return Ok(Uid::from_raw(number));
    }
    match User::from_name(word) {
        Ok(Some(user)) => Ok(user.uid),
        Ok(None) => Err(format!("--owner: this machine has no user {word}")),
        Err(error) => Err(format!("--owner {word}: {error}")),
    }
}

/// A user's name, if it has one, and number.
pub(super) fn name_of(uid: Uid) -> String {
    match User::from_uid(uid) {
        Ok(Some(user)) => format!("{} ({uid})", user.name),
        _ => format!("user {uid}"),
    }
}

/// Owner, mode and size of a file of counters, which tell who may write it.
pub(super) struct Access {
    owner: Uid,
    mode: u32,
    bytes: u64,
}

impl Access {
    pub(super) fn of(file: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(file)?;
        let owner = Uid::from_raw(metadata.uid());
        Ok(Self { owner, mode: metadata.mode() & 0o7777, bytes: metadata.len() })
    }
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { owner, mode, .. } = self;
        write!(f, "It belongs to {}, mode {mode:04o}: ", name_of(*owner))?;
        let others = match (mode & 0o020 != 0, mode & 0o002 != 0) {
            (_, true) => "every process may",
            (true, _) => "processes of that user, of the file's group and root may",
            _ if owner.is_root() => "root's processes alone may",
            _ => "processes of that user and root's may",
        };
        write!(
            f,
            "{others} count in it. One that cannot open it when it loads the provider counts nothing \
             (convoy crypto --pid PID tells)."
        )
    }
}
