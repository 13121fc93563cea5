//! The figures of the report, made from results: the experiments of four studies, redone.
//!
//! An [`Experiment`] has the figures of one study, and [`steps`](plan::steps) that measure them, each a command of `convoy bench`.
//! Results of the commands are put together ([`merge`]), kept in one file, and drawn from it alone.

mod dpdk;
mod gateways;
mod goals;
pub mod headline;
mod look_aside;
mod many_tunnels;
pub mod merge;
mod multi_buffer;
mod one_tunnel;
pub mod page;
pub mod plan;
mod points;
mod web_server;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Measurements for the figures of one study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// AES-GCM through one tunnel on one core: Intel's study of the Linux kernel, 2010.
    OneTunnel,
    /// The same through many tunnels on many cores.
    ManyTunnels,
    /// The library by itself: Intel's study of multi-buffer IPsec, 2012.
    MultiBuffer,
    /// Software beside a look-aside device: Intel's study of a VPP gateway, 2018.
    LookAside,
    /// Whole gateways beside each other.
    Gateways,
    /// A web server: Intel's study of AES-GCM in nginx, 2015.
    WebServer,
}

impl Experiment {
    /// All, in the order of their figures.
    pub const ALL: [Self; 6] = [
        Self::OneTunnel,
        Self::ManyTunnels,
        Self::MultiBuffer,
        Self::LookAside,
        Self::Gateways,
        Self::WebServer,
    ];

    /// Its name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneTunnel => "one tunnel",
            Self::ManyTunnels => "many tunnels",
            Self::MultiBuffer => "multi-buffer library",
            Self::LookAside => "look-aside",
            Self::Gateways => "gateways",
            Self::WebServer => "web server",
        }
    }

    /// Numbers of its figures.
    #[must_use]
    pub const fn figures(self) -> RangeInclusive<u8> {
        match self {
            Self::OneTunnel => 1..=3,
            Self::ManyTunnels => 4..=6,
            Self::MultiBuffer => 7..=8,
            Self::LookAside => 9..=12,
            Self::Gateways => 13..=13,
            Self::WebServer => 14..=16,
        }
    }

    /// The one whose results these are, when a bench wrote them by itself.
    #[must_use]
    pub fn of_bench(bench: &str) -> Option<Self> {
        match bench {
            "engine" | "forward" => Some(Self::LookAside),
            "gateways" => Some(Self::Gateways),
            "tls" => Some(Self::WebServer),
            _ => None,
        }
    }
}

/// A figure's number: `F1` to `F16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(u8);

impl Id {
    /// All.
    pub fn all() -> impl Iterator<Item = Self> {
        Experiment::ALL.into_iter().flat_map(Experiment::figures).map(Self)
    }

    /// Experiment that measures it.
    #[must_use]
    pub fn experiment(self) -> Experiment {
        let found = Experiment::ALL.into_iter().find(|one| one.figures().contains(&self.0));
        // Only figures of experiments can be made.
        found.unwrap_or(Experiment::OneTunnel)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "F{}", self.0)
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let number = word.strip_prefix(['F', 'f']).and_then(|digits| digits.parse::<u8>().ok());
        let found = number.and_then(|number| Self::all().find(|id| id.0 == number));
        found.ok_or_else(|| format!("no figure is called {word:?}; there are F1 to F16"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_of_one_experiment() {
        let all: Vec<Id> = Id::all().collect();
        assert_eq!(all.len(), 16);
        for id in all {
            assert_eq!(id.to_string().parse::<Id>(), Ok(id));
            assert!(id.experiment().figures().contains(&id.0));
        }
        assert_eq!("f10".parse::<Id>().unwrap().experiment(), Experiment::LookAside);
        for word in ["F0", "F17", "1", "F", "F1x", ""] {
            assert!(word.parse::<Id>().unwrap_err().contains("F1 to F16"), "{word}");
        }
    }
}
