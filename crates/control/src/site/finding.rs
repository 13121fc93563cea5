//! Faults of a site file, told so that they can be mended.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// One thing that is wrong, or doubtful, in a site file.
///
/// Texts never hold key material: lines on which a key could stand are not quoted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1; 0 when the finding is about the file as a whole.
    pub line: usize,
    /// Column in characters, from 1; 0 when the finding is about the file as a whole.
    pub column: usize,
    /// Path of the key, such as `sa[to-right].spi`; empty when no key is concerned.
    pub key: String,
    /// Fault, in words.
    pub what: String,
    /// Advice on what to write.
    pub help: Option<String>,
    /// The line of the file, unless a secret may stand on it.
    pub excerpt: Option<Excerpt>,
}

/// A line of the file, and which part of it is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    /// The line.
    pub text: String,
    /// Number of characters to mark, from the finding's column; at least 1.
    pub width: usize,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.what)?;
        if let Some(excerpt) = &self.excerpt {
            let margin = self.line.to_string().len();
            let indent = self.column.saturating_sub(1);
            write!(f, "\n {} | {}", self.line, excerpt.text)?;
            write!(f, "\n {:margin$} | {:indent$}{}", "", "", "^".repeat(excerpt.width))?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

/// Everything that makes a site file unusable, in the order of the file; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}", Joined(.errors))]
pub struct SiteErrors {
    /// The errors.
    pub errors: Vec<Finding>,
}

/// Something that works but deserves a thought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning(pub Finding);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

struct Joined<'a>(&'a [Finding]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, finding) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            finding.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_marks_the_place_and_says_what_would_be_right() {
        let finding = Finding {
            file: "left.toml".into(),
            line: 12,
            column: 8,
            key: "sa[a].mode".into(),
            what: "\"tunel\" is no mode".into(),
            help: Some("did you mean \"tunnel\"?".into()),
            excerpt: Some(Excerpt { text: "mode = \"tunel\"".into(), width: 7 }),
        };
        assert_eq!(
            finding.to_string(),
            "left.toml:12:8: sa[a].mode: \"tunel\" is no mode\n \
             12 | mode = \"tunel\"\n    |        ^^^^^^^\n  help: did you mean \"tunnel\"?"
        );
    }

    #[test]
    fn a_finding_about_the_whole_file_has_no_line() {
        let finding = Finding {
            file: "a.toml".into(),
            line: 0,
            column: 0,
            key: String::new(),
            what: "cannot be read".into(),
            help: None,
            excerpt: None,
        };
        assert_eq!(
            SiteErrors { errors: vec![finding.clone(), finding] }.to_string(),
            "a.toml: cannot be read\na.toml: cannot be read"
        );
    }
}
