//! Names for one run's namespaces, and clearing up after runs that died.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use crate::{
    LabError, Namespace,
    namespace::{NAMED, unname},
};

/// Every namespace of a run is called `convoy-PID-ROLE`.
const PREFIX: &str = "convoy-";

/// The name this run gives to a namespace with a role, such as `hostA`.
#[must_use]
pub fn run_name(role: &str) -> String {
    format!("{PREFIX}{}-{role}", std::process::id())
}

impl Namespace {
    /// Creates a namespace named after this run and a role. [`leftovers`] finds it should the run
    /// be killed.
    ///
    /// # Errors
    /// As [`Namespace::named`].
    pub fn for_run(role: &str) -> Result<Self, LabError> {
        Self::named(&run_name(role))
    }
}

/// A namespace whose run is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Its name.
    pub name: String,
    /// The process that made it and no longer lives.
    pub run: u32,
    /// Processes still in it.
    pub processes: Vec<u32>,
}

/// Namespaces of runs that ended without clearing up.
#[must_use]
pub fn leftovers() -> Vec<Leftover> {
    let Ok(folder) = fs::read_dir(NAMED) else { return Vec::new() };
    let mut found: Vec<_> = folder
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let run = run_of(&name)?;
            let dead = !Path::new("/proc").join(run.to_string()).exists();
            dead.then(|| Leftover { processes: processes_in(&entry.path()), name, run })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Takes away the names of all [`leftovers`] and returns them. Processes still in one are listed
/// and left alone; such a namespace lives until they end.
///
/// # Errors
/// [`LabError::System`] when a name cannot be removed.
pub fn sweep() -> Result<Vec<Leftover>, LabError> {
    let found = leftovers();
    for leftover in &found {
        unname(&leftover.name)?;
    }
    if !found.is_empty() {
        // A dead run may have made the folder. It goes only when it is empty and not, as that of
        // iproute2, a mount.
        let _ = fs::remove_dir(NAMED);
    }
    Ok(found)
}

fn run_of(name: &str) -> Option<u32> {
    let (run, _role) = name.strip_prefix(PREFIX)?.split_once('-')?;
    run.parse().ok()
}

fn processes_in(namespace: &Path) -> Vec<u32> {
    let Ok(wanted) = fs::metadata(namespace) else { return Vec::new() };
    let inside = |pid: &u32| {
        fs::metadata(format!("/proc/{pid}/ns/net"))
            .is_ok_and(|its| (its.dev(), its.ino()) == (wanted.dev(), wanted.ino()))
    };
    process_ids().into_iter().filter(inside).collect()
}

/// All processes that can be seen.
pub(crate) fn process_ids() -> Vec<u32> {
    let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
    folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_runs_are_taken_for_ours() {
        assert_eq!(run_of("convoy-123-hostA"), Some(123));
        for other in ["convoy-x-hostA", "convoy-123", "other-123-hostA", "123-hostA"] {
            assert_eq!(run_of(other), None, "{other}");
        }
    }
}
