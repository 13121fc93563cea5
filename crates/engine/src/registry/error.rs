//! Reasons for which a driver was not registered, or not found.

use std::fmt;

use super::SelfTest;

/// A driver is not registered, or not found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistryError {
    /// No algorithm has the name.
    UnknownAlgorithm {
        /// The name that was asked for.
        name: String,
        /// All names, with commas between them.
        known: String,
    },
    /// No driver has the name.
    UnknownDriver {
        /// The name that was asked for.
        name: String,
        /// Drivers of the algorithm that the name begins with, or all algorithms.
        known: String,
    },
    /// A driver has the name already.
    NameTaken(String),
    /// The driver failed its self-test.
    Failed {
        /// The driver's name.
        name: String,
        /// Outcome of the self-test.
        self_test: SelfTest,
        /// Alternatives, in words.
        instead: String,
    },
    /// The driver is for benches.
    BenchOnly {
        /// The driver's name.
        name: String,
        /// Alternatives, in words.
        instead: String,
    },
    /// The driver was switched off.
    Off {
        /// The driver's name.
        name: String,
        /// Alternatives, in words.
        instead: String,
    },
    /// The driver works for other algorithms.
    OtherAlgorithm {
        /// The driver's name.
        name: String,
        /// Its algorithm.
        algorithm: String,
        /// The suite that it is asked to work for.
        wanted: String,
        /// Alternatives, in words.
        instead: String,
    },
    /// No driver that may be used works for the suite.
    NoDriver {
        /// The suite, or the name that was asked for.
        suite: String,
        /// Its algorithm.
        algorithm: String,
    },
}

impl RegistryError {
    /// Text that says what is wrong.
    #[must_use]
    pub fn fault(&self) -> String {
        match self {
            Self::UnknownAlgorithm { name, .. } => format!("no algorithm is called {name:?}"),
            Self::UnknownDriver { name, .. } => format!("no driver is called {name:?}"),
            Self::NameTaken(name) => format!("a driver is called {name:?} already"),
            Self::Failed { name, self_test, .. } => {
                format!("the driver {name} must not be used, as its self-test {self_test}")
            }
            Self::BenchOnly { name, .. } => format!("the driver {name} is for benches only"),
            Self::Off { name, .. } => format!("the driver {name} is switched off"),
            Self::OtherAlgorithm { name, algorithm, wanted, .. } => {
                format!("the driver {name} computes {algorithm}, and not {wanted}")
            }
            Self::NoDriver { suite, algorithm } => format!(
                "no driver that passed its self-test, and is switched on, works for {suite}, of {algorithm}"
            ),
        }
    }

    /// Text that says what would be right, where that is known.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::UnknownAlgorithm { known, .. } | Self::UnknownDriver { known, .. } => {
                Some(format!("there are {known}"))
            }
            Self::NameTaken(_) => Some("names are given once".to_owned()),
            Self::Failed { instead, .. }
            | Self::BenchOnly { instead, .. }
            | Self::Off { instead, .. }
            | Self::OtherAlgorithm { instead, .. } => Some(instead.clone()),
            Self::NoDriver { .. } => None,
        }
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fault())?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl std::error::Error for RegistryError {}
