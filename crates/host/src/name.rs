//! The name of a network interface.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::HostError;

/// Longest name in bytes: `IFNAMSIZ` less the closing zero.
const MAX_LEN: usize = 15;

/// A well-formed interface name: 1 to 15 bytes, no `/`, no `:`, no white space, not `.` or `..`
/// (the rules of the kernel's `dev_valid_name`). It says nothing about whether such an interface
/// exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkName(String);

impl LinkName {
    /// Takes a name.
    ///
    /// # Errors
    /// [`HostError::BadLinkName`] when the kernel could not have an interface of that name.
    pub fn new(name: impl Into<String>) -> Result<Self, HostError> {
        let name = name.into();
        let fits = (1..=MAX_LEN).contains(&name.len()) && name != "." && name != "..";
        let clean = !name.chars().any(|c| c == '/' || c == ':' || c == '\0' || c.is_whitespace());
        if fits && clean { Ok(Self(name)) } else { Err(HostError::BadLinkName { name }) }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LinkName {
    type Error = HostError;

    fn try_from(name: String) -> Result<Self, HostError> {
        Self::new(name)
    }
}

impl std::str::FromStr for LinkName {
    type Err = HostError;

    fn from_str(name: &str) -> Result<Self, HostError> {
        Self::new(name)
    }
}

impl From<LinkName> for String {
    fn from(name: LinkName) -> Self {
        name.0
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_held_to_the_kernels_rules() {
        for good in ["a", "eth0", "wan.100", "fifteen-bytes-x"] {
            assert_eq!(LinkName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "a b", "a:1", "sixteen-bytes-xx", "a\0"] {
            assert!(LinkName::new(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_bad_name_is_refused_when_deserialised() {
        assert!(serde_json::from_str::<LinkName>("\"a/b\"").is_err());
    }
}
