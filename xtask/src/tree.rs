//! The project's own text files, as the checks see them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// Files above this size are data, not text that a person wrote.
const LARGEST_TEXT: u64 = 2 << 20;

/// Text files by their path from the root of the repository, with `/` between folders.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads every file that is committed or could be (not ignored) below `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        for path in listed_by_git(root).map_or_else(|| walk(root), Ok)? {
            let absolute = root.join(&path);
            // Listed but deleted, a symbolic link to nowhere, or a folder of a submodule.
            let Ok(metadata) = fs::metadata(&absolute) else { continue };
            if !metadata.is_file() || metadata.len() > LARGEST_TEXT {
                continue;
            }
            let bytes = fs::read(&absolute).with_context(|| format!("cannot read {path}"))?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.insert(path, text);
            }
        }
        Ok(Self { files })
    }

    /// All files in the order of their paths.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// All Rust source files in the order of their paths.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
        Self { files }
    }
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    output.status.success().then(|| {
        let names = String::from_utf8_lossy(&output.stdout);
        names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    })
}

/// For a source archive without git: everything but build output and hidden folders.
fn walk(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            if entry.file_type()?.is_dir() {
                if name != "target" && name != ".git" {
                    folders.push(path);
                }
            } else {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(found)
}

/// One thing that is wrong, where it is, and how to mend it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Counted from 1; 0 where the finding is about the whole file.
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) mend: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: String, mend: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what, mend: mend.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}\n    mend: {}", self.what, self.mend)
    }
}
